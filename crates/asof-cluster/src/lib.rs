//! SQL over robot recordings on a cluster of machines.
//!
//! A `ClusterScheduler` and any number of `ClusterExecutor`s are [Apache DataFusion Ballista](https://datafusion.apache.org/ballista/)
//! with the tables and functions of asof-sql. A `ClusterClient` plans a query locally and sends the plan: its
//! leaves are slices of recordings, by address. An executor opens only recordings under the roots that it was started with.
//!
//! ```no_run
//! # #[cfg(feature = "engine")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use asof_cluster::{ClusterClient, Token};
//! use asof_sql::{Database, RecordingAddress, SqlOptions};
//!
//! let token = Token::new(&std::fs::read_to_string("/etc/asof/token")?)?;
//! let cluster = Arc::new(ClusterClient::connect("10.0.0.5:50050", Some(token))?);
//! let recording = Arc::from(asof_formats::open("/fleet/run.mcap")?);
//! let address = RecordingAddress { name: "run".into(), address: "/fleet/run.mcap".into(), size: None, version: None };
//! let database = Database::on_cluster(vec![(address, recording)], SqlOptions::default(), cluster)?;
//! let rows = database.collect("SELECT count(*) FROM imu WHERE angular_velocity.z > 1")?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "engine"))]
//! # fn main() {}
//! ```
//!
//! Everything needs the feature `engine`: without it this crate is empty, so that a build of all of asof does not wait
//! for Ballista.

#![forbid(unsafe_code)]
#![cfg(feature = "engine")]

mod allowed;
mod client;
mod error;
mod executor;
mod fetching;
mod log;
mod roots;
mod rows;
mod scheduler;
mod state;
mod terms;
mod token;

pub use client::ClusterClient;
pub use error::ClusterError;
pub use executor::{ClusterExecutor, ExecutorOptions};
pub use log::{Severity, log_to};
pub use roots::Roots;
pub use scheduler::{ClusterScheduler, SchedulerOptions};
pub use state::{ExecutorState, executors};
pub use token::Token;
