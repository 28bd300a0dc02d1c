//! Robot recordings of any format, through one API: MCAP, ROS 1 bags, ROS 2 bags, PX4 logs.
//!
//! [`open`] detects the format by the first bytes of a file: MCAP ([`McapFile`]), a ROS 1 bag ([`BagFile`]), a ROS 2
//! db3 ([`Db3File`]), a PX4 ULog ([`UlogFile`]), a folder of these, or several as one ([`Merged`]). Indexes are used if
//! there are any; damage is skipped and reported. [`McapWriter`] writes MCAP, and [`convert`] converts any format to it.
//!
//! ```
//! use std::sync::Arc;
//! use asof_core::{Channel, Message, Source, Stamp, Topics};
//! use asof_formats::{McapWriter, McapWriterOptions};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("run.mcap");
//! let mut writer = McapWriter::create(&path, McapWriterOptions::default())?;
//! let channel = Arc::new(Channel { topic: "/battery".into(), ..Channel::default() });
//! for (seconds, level) in [(1, "80 %"), (2, "79 %"), (3, "78 %")] {
//!     let at = Stamp::from_nanos(seconds * 1_000_000_000);
//!     writer.write(&Message {
//!         channel: Arc::clone(&channel),
//!         log_time: at,
//!         publish_time: at,
//!         sequence: 0,
//!         payload: level.into(),
//!     })?;
//! }
//! writer.finish()?;
//!
//! let recording = asof_formats::open(&path)?;
//! let known = recording.latest_at(&Topics::All, "2.5".parse()?)?;
//! assert_eq!(known.get(0).map(|message| message.payload), Some(&b"79 %"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bag;
mod buffers;
mod convert;
mod cores;
mod counts;
mod db3;
mod decompress;
mod file;
mod filling;
mod folder;
mod kind;
mod limits;
mod mcap;
mod merge;
mod open;
mod options;
mod pieces;
mod problems;
#[cfg(feature = "remote")]
mod remote;
mod report;
mod reserve;
mod secrets;
mod sections;
mod storage;
mod store;
mod ulog;
mod unpacked;
mod yaml;

pub use asof_core::{HiddenRecord, HiddenRecords, Progress, ReadStats, SectionEntry};
pub use asof_ros::Definitions;
pub use bag::BagFile;
pub use convert::{
    ConvertCounts, ConvertError, ConvertOptions, ForeignType, convert, is_latched, profile_of,
};
pub use db3::Db3File;
pub use file::FormatFile;
pub use limits::DecompressionLimits;
pub use mcap::{
    Attachment, Compression, GrowingMcapFile, McapFile, McapWriteError, McapWriter,
    McapWriterOptions,
};
pub use merge::Merged;
pub use open::{REMOTE_SCHEMES, open, open_all, open_with};
pub use options::{Notices, OpenOptions};
#[cfg(feature = "remote")]
pub use remote::{RemoteFile, version_at};
pub use secrets::without_secrets;
pub use storage::{MappedFile, PlainFile, Storage};
pub use store::{FilePiece, Listing, Replaced, Store, Stored, StoredFile, StoredVersion};
pub use ulog::UlogFile;
pub use unpacked::remove_temporary_files;

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
