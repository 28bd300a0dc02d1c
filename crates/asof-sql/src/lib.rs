//! SQL over robot recordings, in place: every topic a table.
//!
//! A `Database` is one recording or several, opened and not converted. A topic is a table by its own name in quotes
//! (`"/odom"`), and by a plain alias where that is unique (`odom`, `camera_image`). Columns are `recording`, `log_time`,
//! `publish_time`, `stamp` and `sequence`, then the fields of its messages; dots select nested ones.
//!
//! ```
//! # #[cfg(feature = "engine")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use std::sync::Arc;
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("run.mcap");
//! # let mut writer = asof_formats::McapWriter::create(&path, Default::default())?;
//! # let demo = asof_demo::Demo::new(asof_demo::DemoOptions { duration: std::time::Duration::from_secs(2), ..Default::default() });
//! # for message in demo.messages() { writer.write(&message)?; }
//! # writer.finish()?;
//! use asof_sql::{Database, SqlOptions};
//!
//! let recording = Arc::from(asof_formats::open(&path)?);
//! let database = Database::new(vec![("run.mcap".into(), recording)], SqlOptions::default())?;
//! let rows = database.collect(
//!     r#"SELECT i.log_time, o.pose.pose.position.x
//!        FROM "/scan" i ASOF JOIN "/odom" o MATCH_CONDITION (i.stamp >= o.stamp)"#,
//! )?;
//! assert!(rows.iter().map(|batch| batch.num_rows()).sum::<usize>() > 10);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "engine"))]
//! # fn main() {}
//! ```
//!
//! The engine is [DataFusion](https://datafusion.apache.org), with the feature `engine`: without it this crate is
//! empty, so that a build of all of asof does not wait for it. With the feature `flight`, `FlightServer` serves a database
//! over Arrow Flight SQL, for JDBC, ADBC and similar clients.

#![forbid(unsafe_code)]
#![cfg(feature = "engine")]

mod adapt;
mod asof;
mod assemble;
mod between;
mod calls;
mod catalogue;
mod database;
#[cfg(feature = "distributed")]
mod distributed;
mod ends;
mod error;
mod fleet;
mod fleet_tables;
#[cfg(feature = "flight")]
mod flight;
mod fused;
mod instants;
mod known;
mod labels;
mod lags;
mod leaf;
mod matching;
mod meanings;
mod merge;
mod narrow;
mod numbered;
mod order;
mod own;
mod parameters;
mod planning;
mod points;
mod pushdown;
mod recordings;
mod rewrite;
mod right;
mod scan;
#[cfg(any(feature = "flight", feature = "distributed"))]
mod tables;
mod times;
mod topic;
mod transforms;
mod view;
mod windows;

/// A topic over all recordings.
pub use asof_catalogue::TopicTotal;
pub use database::{Database, QueryRows, SqlOptions, Undecoded, Waited};
/// The version of Arrow that DataFusion uses.
pub use datafusion::arrow;
/// The value of a parameter.
pub use datafusion::common::ScalarValue;
#[cfg(feature = "distributed")]
pub use distributed::{
    Cluster, ClusterRows, ClusterStats, FleetVersion, PlanCodec, RecordingAddress, RecordingOpener,
};
pub use error::{SqlError, TextPlace};
pub use fleet::FleetPlace;
#[cfg(feature = "flight")]
pub use flight::{FlightOptions, FlightServer};
pub use labels::RecordingLabels;
pub use own::{OwnRows, OwnTable, OwnTableError};
pub use parameters::Described;
#[cfg(feature = "distributed")]

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
