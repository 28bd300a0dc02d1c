//! What did the robot know, as of time t?
//!
//! [`open`] a recording or a running robot: a [`Recording`]. It answers what was known at an instant ([`Recording::at`]), has
//! topics ([`Recording::topic`]) that are tables, columns and structs, and does what the command `asof` does.
//!
//! ```
//! use asof::{Message, Stamp, When};
//! use asof::formats::{McapWriter, McapWriterOptions};
//! # use std::sync::Arc;
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("run.mcap");
//!
//! // A robot reports which room it is in, once a second …
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
//! let known = recording.at("+1.5s".parse::<When>()?)?;
//! assert_eq!(known.get(0).map(|message| message.payload), Some(&b"hall"[..]));
//!
//! let messages = recording.topic("/room")?.batches()?.map(|batch| batch.map(|b| b.len()));
//! assert_eq!(messages.sum::<Result<usize, _>>()?, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The command `asof` is the crate `asof-cli`.

use std::path::{Path, PathBuf};

#[cfg(feature = "sql")]
mod completion;
mod description;
mod error;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(feature = "export")]
mod joined;
#[cfg(feature = "sql")]
mod own_table;
mod poses;
mod progress;
#[cfg(feature = "sql")]
mod query;
mod recording;
#[cfg(feature = "live")]
mod robot;
mod several;
mod table;
mod topic;
mod transforms;
mod views;

#[cfg(feature = "sql")]
pub use completion::{QueryWords, in_quotes};
pub use error::Error;
#[cfg(feature = "fleet")]
pub use fleet::{Fleet, FleetOptions, FleetRecording, FleetRecordings, PlacesBelow};
#[cfg(feature = "export")]
pub use joined::{Item, JoinedForm, JoinedOptions, JoinedOutput, JoinedWriter};
#[cfg(feature = "sql")]
pub use own_table::own_table;
pub use progress::{Event, Progress};
pub use recording::Recording;
#[cfg(feature = "live")]
pub use robot::{
    LiveSession, PlayOptions, PlayReport, Playback, RecordFiles, Robot, snapshots_as_json,
    stamps_as_json, tell_losses, topics_as_json, trigger_problems,
};
pub use table::{Table, TableBatches};
pub use topic::Topic;
pub use transforms::{TransformStream, TransformUpdate, ambiguous_frames};

/// Recordings checked against expectations, compared, and examined.
pub mod check;
/// Tables, lines and pictures in files.
#[cfg(feature = "export")]
pub mod export;
/// New files: recordings converted, split and recovered.
pub mod files;
/// The contents of a recording.
pub mod info;
/// Problems as JSON.
pub mod problems;
/// Rows as text: JSON, comma-separated values, and tables for people.
#[cfg(feature = "export")]
pub mod rows;
/// Numbers and names as people read them.
pub mod text;

/// Layers: other names and times, some of the topics, one more metadata record.
pub mod layers;

/// Topics side by side, as Arrow tables: joined by time, or resampled at a fixed rate.
pub mod align;

/// Recordings as datasets for machine learning.
#[cfg(feature = "lerobot")]
pub mod lerobot;

/// A cache over any source: what was read is kept, within a budget.
pub use asof_blocks as blocks;
/// Many recordings as one database, and the patterns that select names.
#[cfg(feature = "fleet")]
pub use asof_catalogue as catalogue;
/// SQL on several machines: scheduler, executor and client.
#[cfg(feature = "cluster")]
pub use asof_cluster as cluster;
pub use asof_core::spelling;
pub use asof_core::{
    AttachmentEntry, Batch, Batches, Channel, ChannelSummary, DerivedSummary, FileOrder, FileParts,
    Follow, FollowEnd, Followed, Growth, HiddenRecord, HiddenRecords, Index, Message, MessageRef,
    MetadataEntry, Portion, Problem, ProblemKind, Query, RecentSummary, Row, Schema, SectionEntry,
    Source, SourceError, SourceLayer, Stamp, StampError, Summary, TimeRange, Topics, When,
};
/// Messages decoded: into Arrow tables, into structs, and into JSON.
pub use asof_decode as decode;
/// From a recording to numbers: the columns of a topic, its messages as structs, and the Arrow types.
pub use asof_decode::{Rows, arrow, messages};
/// A simulated robot whose sensors agree with each other.
#[cfg(feature = "demo")]
pub use asof_demo as demo;
/// Access to single formats, and the MCAP writer.
pub use asof_formats as formats;
/// Running robots: windows over live topics, and all of them as a source.
#[cfg(feature = "live")]
pub use asof_live as live;
/// Playing a source back: play, pause, seek, step, loop.
pub use asof_player as player;
/// Recording a running robot: files, files one after another, snapshots.
#[cfg(feature = "live")]
pub use asof_record as record;
/// ROS's own formats: `.msg` text, and CDR.
pub use asof_ros as ros;
/// Queries over recordings.
#[cfg(feature = "sql")]
pub use asof_sql as sql;
/// Frames and transforms: the transform buffer and its queries.
pub use asof_tf as tf;
/// Windows of recent messages, and the synchronizers that join topics by time.
pub use asof_window as window;

/// Opens a recording or a running robot.
///
/// A recording is MCAP, a ROS 1 bag, a ROS 2 bag (a file or its folder), a PX4 log, or a folder of any of these; on this
/// machine or, with the feature `remote`, on a web server or in a bucket. Opening reads the file's summary and no message. A
/// damaged file opens as far as it can be read; [`Summary::problems`] lists what is wrong with it.
///
/// A running robot is `zenoh://host:port`, a Foxglove server `foxglove://host:port` (`ws://host:port` is the same) or a
/// rosbridge server `rosbridge://host:port`, with the feature `live`; or `dds://?domain=0`, with the feature `dds`. It is a
/// source that [grows](Source::growth) and holds the last five minutes, up to 600 MB. The same calls query, read and follow
/// it; `connect` offers more.
///
/// # Errors
/// When there is no such file, its format is unknown, or the robot's address is invalid; the error includes a way on.
/// A robot that is not there yet is not an error: the connection is retried in the background.
pub fn open(place: impl AsRef<Path>) -> Result<Recording, SourceError> {
    open_all(&[place])
}

fn open_source(place: &Path) -> Result<Box<dyn Source>, SourceError> {
    match place.to_str().filter(|text| is_robot(text)) {
        Some(address) => open_robot(address),
        None => formats::open(place),
    }
}

/// The schemes of addresses of running robots.
const ROBOTS: [&str; 5] = ["zenoh", "foxglove", "ws", "rosbridge", "dds"];

/// Whether a place is the address of a running robot, rather than a recording. The rest of the address may still be
/// invalid, or of a kind that this build cannot listen to.
///
/// ```
/// assert!(asof::is_robot("foxglove://localhost:8765"));
/// assert!(!asof::is_robot("https://example.org/run.mcap"));
/// ```
pub fn is_robot(place: &str) -> bool {
    let scheme = place.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| ROBOTS.contains(&scheme))
}

/// Whether a place is an address rather than a path.
pub fn is_address(place: &Path) -> bool {
    scheme_of(place).is_some()
}

/// The scheme of an address; `None` for a path.
pub fn scheme_of(place: &Path) -> Option<&str> {
    let (scheme, _) = place.to_str()?.split_once("://")?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    (!scheme.is_empty() && scheme.chars().all(is_word)).then_some(scheme)
}

/// Opens several places as one, merged by time.
///
/// # Errors
/// When one of them cannot be opened, as [`open`]; or none is given.
pub fn open_all<P: AsRef<Path>>(places: &[P]) -> Result<Recording, SourceError> {
    let named: Vec<PathBuf> = places
        .iter()
        .map(|place| place.as_ref().to_owned())
        .collect();
    let source = match places {
        [] => formats::open_all(places, &formats::OpenOptions::default())?,
        [place] => open_source(place.as_ref())?,
        places => {
            let parts = places.iter().map(|place| open(place.as_ref()));
            let parts = parts.collect::<Result<Vec<Recording>, SourceError>>()?;
            return Ok(Recording::merged(parts));
        }
    };
    Ok(Recording::new(source, &named))
}

/// Opens a session with the robot at an address: `zenoh://host:port`, `foxglove://host:port`, `rosbridge://host:port`, or
/// `dds://?domain=0` with the feature `dds`.
///
/// A robot that is not there yet is waited for in the background, and one that goes away is found again when it comes back.
///
/// ```no_run
/// use asof::live::Sample;
/// let robot = asof::connect("zenoh://192.168.1.5:7447")?;
/// let scans = robot.create_window::<Sample>("/scan", 30).build()?;
/// let pose = robot.tf().lookup("map", "base_link", asof::Stamp::now());
/// let recorder = robot.record("run.mcap", Default::default(), Default::default(), |_| true)?;
/// # let _ = (scans, pose, recorder);
/// # Ok::<(), asof::Error>(())
/// ```
///
/// # Errors
/// When the text is not an address, or the session cannot be opened: an endpoint to listen on is taken, or a client's router
/// does not answer within two seconds.
#[cfg(feature = "live")]
pub fn connect(address: &str) -> Result<Robot, Error> {
    Robot::open(address)
}

/// The recordings below a folder or bucket as one database. Nothing is read yet.
///
/// ```no_run
/// use asof::catalogue::{IndexOptions, NamePattern, Search};
/// let fleet = asof::fleet("s3://bucket/fleet")?;
/// fleet.index(&IndexOptions::default())?;
/// let search = Search { topics: vec![NamePattern::new("/bumper")], ..Search::default() };
/// for found in fleet.recordings(&search)?.recordings {
///     println!("{}: {:?}", found.name(), found.recording.topic("/bumper")?.read()?.columns());
/// }
/// # Ok::<(), asof::Error>(())
/// ```
///
/// # Errors
/// When the address is not valid.
#[cfg(feature = "fleet")]
pub fn fleet(place: impl AsRef<Path>) -> Result<Fleet, Error> {
    Fleet::new(place, FleetOptions::default())
}

#[cfg(feature = "live")]
fn open_robot(address: &str) -> Result<Box<dyn Source>, SourceError> {
    match live::open(address) {
        Ok(robot) => Ok(Box::new(robot)),
        Err(error @ live::LiveError::WithoutDds) => Err(SourceError::Unsupported {
            place: address.to_owned(),
            reason: error.to_string(),
            feature: "dds",
        }),
        Err(error) => Err(SourceError::Unreadable {
            place: address.to_owned(),
            reason: error.to_string(),
        }),
    }
}

#[cfg(not(feature = "live"))]
fn open_robot(address: &str) -> Result<Box<dyn Source>, SourceError> {
    Err(SourceError::Unsupported {
        place: address.to_owned(),
        reason: "it is a running robot, and this build cannot listen to one; build it with the feature `live`"
            .to_owned(),
        feature: "live",
    })
}

/// The README's examples, compiled with the doc tests so that they stay true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
