//! Record a running robot to MCAP.
//!
//! A [`Recorder`] subscribes topics of one or several robots of asof-live and writes their messages to a file, to files one after
//! another within a quota ([`SplitOptions`]), or, when a [`Trigger`] fires, to snapshots of the last minute ([`SnapshotOptions`]).
//! Messages wait for the disk in one queue, bounded in bytes; what does not fit is dropped by priority and counted.
//!
//! ```no_run
//! use asof_record::{RecordOptions, Recorder};
//! use std::time::Duration;
//!
//! let robot = asof_live::connect("zenoh://192.168.1.5:7447")?;
//! let recorder = Recorder::create(&robot, "run.mcap", RecordOptions::default(), |_| true)?;
//! std::thread::sleep(Duration::from_secs(60));
//! println!("{} messages", recorder.stop()?.written());
//! # Ok::<(), asof_record::RecordError>(())
//! ```

#![forbid(unsafe_code)]

mod backlog;
mod durable;
mod error;
mod last;
mod options;
mod parts;
mod queue;
mod recorder;
mod report;
mod ring;
mod sink;
mod snapshot;
mod trigger;

pub use durable::{DurableFile, RecordOutput};
pub use error::RecordError;
pub use options::{Priorities, RecordOptions};
pub use parts::{PartsReport, SplitOptions, started_path};
pub use recorder::Recorder;
pub use report::{RecordReport, TopicReport};
pub use sink::Tags;
pub use snapshot::{SnapshotOptions, SnapshotReport};
pub use trigger::{Trigger, TriggerError};

/// Compiles the README's examples as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
