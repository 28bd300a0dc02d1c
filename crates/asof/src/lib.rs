//! What did the robot know, as of time t?
//!
//! [`open`] a recording and ask it: every message of a stretch of time ([`Source::read`]), or the last
//! message of every topic as of an instant ([`Source::backfill`]).
//!
//! ```
//! use asof::{Message, Query, Stamp, Topics};
//! use asof::formats::{McapWriter, McapWriterOptions};
//! # use std::sync::Arc;
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("run.mcap");
//!
//! // A robot that says where it is, once a second …
//! let mut writer = McapWriter::create(&path, McapWriterOptions::default())?;
//! let channel = Arc::new(asof::Channel { topic: "/room".into(), ..Default::default() });
//! for (second, room) in ["kitchen", "hall", "study"].into_iter().enumerate() {
//!     let at = Stamp::from_nanos(second as i64 * 1_000_000_000);
//!     let (channel, payload) = (channel.clone(), room.into());
//!     writer.write(&Message { channel, log_time: at, publish_time: at, sequence: 0, payload })?;
//! }
//! writer.finish()?;
//!
//! // … and where it was, as of 1.5 s.
//! let recording = asof::open(&path)?;
//! let known = recording.backfill(&Topics::All, "1.5".parse()?)?;
//! assert_eq!(known.get(0).map(|message| message.payload), Some(&b"hall"[..]));
//!
//! let messages = recording.read(&Query::topics(["/room"]))?.map(|batch| batch.map(|b| b.len()));
//! assert_eq!(messages.sum::<Result<usize, _>>()?, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The command `asof` is built from this crate too, with the feature `cli`, which is on by default.

#![forbid(unsafe_code)]

use std::path::Path;

pub use asof_core::{
    AttachmentEntry, Batch, Batches, Channel, ChannelSummary, Message, MessageRef, MetadataEntry,
    Problem, ProblemKind, Query, Row, Schema, Source, SourceError, Stamp, StampError, Summary,
    TimeRange, Topics, When,
};
/// Messages decoded: into Arrow tables, and into JSON.
pub use asof_decode as decode;
/// The files themselves: what only one format has, and the MCAP writer.
pub use asof_formats as formats;
/// Running robots: windows over live topics, and the recorder.
#[cfg(feature = "live")]
pub use asof_live as live;
#[cfg(feature = "live")]
pub use asof_live::connect;
/// Frames and transforms: the buffer, and what it can be asked.
pub use asof_tf as tf;

/// Opens a recording: MCAP, a ROS 1 bag, a ROS 2 bag (a file or its folder), a PX4 log, or a folder of any of these.
///
/// Opening reads the file's own summary and no message. A damaged file opens as far as it can be read;
/// [`Summary::problems`] says what is wrong with it.
///
/// # Errors
/// When there is no such file, or it is no recording that can be read; the error says what to do.
pub fn open(path: impl AsRef<Path>) -> Result<Box<dyn Source>, SourceError> {
    Ok(formats::open(path)?)
}

/// The README's examples, compiled with the doc tests so that they stay true.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;
