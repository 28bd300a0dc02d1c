//! Recordings as LeRobot datasets, version 3: Parquet, metadata, statistics and videos.
//!
//! A dataset has frames at a fixed rate. Numbers are found for each frame by a stated method; pictures are the last
//! before it, or the nearest. H.264 and H.265 are copied into MP4 files without loss: the frames of
//! such a dataset are at the times of its first video's pictures. Other pictures become videos if
//! `ffmpeg` is installed, and stay pictures otherwise.
//!
//! ```no_run
//! use asof::lerobot::{DatasetMap, export};
//! # use std::ops::ControlFlow;
//!
//! let map = DatasetMap::from_toml(r#"
//!     hz = 30
//!     [features]
//!     "observation.state" = ["/joint_states.position"]
//!     "observation.images.front" = "/camera/image"
//! "#)?;
//! let places = [vec!["monday.mcap".into()], vec!["tuesday.mcap".into()]];
//! let made = export(&places, "dataset".as_ref(), &map, &mut |_| ControlFlow::Continue(()))?;
//! println!("{} frames in {} episodes", made.frames, made.episodes);
//! # Ok::<(), asof::lerobot::LerobotError>(())
//! ```

mod base;
mod cameras;
mod data;
mod episodes;
mod ffmpeg;
mod joints;
mod map;
mod meta;
mod mp4;
mod numbers;
mod reels;
mod stats;
mod writing;

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use arrow_schema::ArrowError;
use asof_core::{Source, SourceError, Stamp};
use serde::{Serialize, Serializer};

use crate::align::AlignError;
use crate::files::folder_of;
use crate::{Error, Recording};

use base::Base;
pub use ffmpeg::command as ffmpeg_command;
pub use map::{DatasetMap, Episodes, Feature};
pub use mp4::{Mp4, Parameters};
use writing::Dataset;

/// The path of rows; `file_path` fills it in.
const DATA_PATH: &str = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet";
/// The path of videos.
const VIDEO_PATH: &str = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4";
/// How many files a folder has.
const CHUNK_FILES: usize = 1000;
/// A file of rows has at most about this many bytes, as LeRobot's own have.
const DATA_BYTES: u64 = 100 << 20;
/// A video file has at most about this many bytes.
const VIDEO_BYTES: u64 = 200 << 20;

/// What was written. As JSON it is what `asof lerobot --json` prints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Exported {
    /// Episodes.
    pub episodes: u64,
    /// Frames of all episodes.
    pub frames: u64,
    /// Frames left out because something was not known yet, not known any more, or farther away than the tolerance.
    pub left_out: u64,
    /// Episodes that were split by such frames.
    pub cuts: u64,
    /// Episodes without any frame.
    pub empty: u64,
    /// Messages that could not be decoded, go back in time, or have no stamp.
    pub unusable: u64,
    /// Video features without statistics, because there is no ffmpeg to decode them.
    #[serde(rename = "without_statistics")]
    pub unseen: Vec<String>,
    /// Features, and the type of each: `float32`, `image` or `video`.
    #[serde(serialize_with = "as_map")]
    pub features: Vec<(String, String)>,
}

fn as_map<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, kind)| (name, kind)))
}

/// Why there is no dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LerobotError {
    /// The map is invalid.
    #[error("the map is wrong: {0}")]
    Map(String),
    /// A recording cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Numbers cannot be aligned.
    #[error(transparent)]
    Align(#[from] AlignError),
    /// A topic does not exist.
    #[error("there is no topic {topic}; there are {topics}")]
    NoTopic {
        /// The topic.
        topic: String,
        /// The existing topics.
        topics: String,
    },
    /// A path does not begin with a topic.
    #[error(
        "'{path}' is not a topic, a dot and a field, such as /joint_states.position; topics are {topics}"
    )]
    NoPath {
        /// The path.
        path: String,
        /// The existing topics.
        topics: String,
    },
    /// The value at a path is not numeric.
    #[error("the value at '{path}' is not a number, or a list or struct of numbers")]
    NotNumbers {
        /// The path.
        path: String,
    },
    /// A list changes its length.
    #[error(
        "'{path}' has {one} numbers in one message and {other} in another; a feature has one shape{}",
        joints::hint(path)
    )]
    Uneven {
        /// The path.
        path: String,
        /// How many numbers there are.
        one: usize,
        /// How many there are in another message.
        other: usize,
    },
    /// No message has a joint.
    #[error("there is no joint '{joint}' for '{path}'; there are {joints}")]
    NoJoint {
        /// The path.
        path: String,
        /// The joint.
        joint: String,
        /// The joints that there are.
        joints: String,
    },
    /// A feature changes its shape.
    #[error("'{feature}' is {found}, and was {known} before; a feature has one shape")]
    Shape {
        /// The feature.
        feature: String,
        /// The shape before.
        known: String,
        /// The shape now.
        found: String,
    },
    /// No picture of an episode can be decoded.
    #[error("no picture on {topic} can be decoded; `asof doctor` shows why")]
    NoPicture {
        /// The topic.
        topic: String,
    },
    /// Video cannot be copied, because frames would skip or repeat pictures.
    #[error(
        "the video on {topic} does not have exactly {hz} pictures per second, so it would have to be encoded again: install ffmpeg, or choose its own rate as hz"
    )]
    NotEvery {
        /// The topic.
        topic: String,
        /// The rate of the dataset.
        hz: u32,
    },
    /// A codec that cannot be copied.
    #[error("the video on {topic} is {codec}; H.264 and H.265 can be exported")]
    Codec {
        /// The topic.
        topic: String,
        /// The codec.
        codec: &'static str,
    },
    /// Video changes its parameters within an episode.
    #[error(
        "the video on {topic} changes its size or its parameters at {at}; start an episode there"
    )]
    Changed {
        /// The topic.
        topic: String,
        /// When.
        at: Stamp,
    },
    /// There is no frame.
    #[error("there is no frame in which all features are known, so there is no dataset{0}")]
    Empty(String),
    /// Videos are wanted, but there is no encoder.
    #[error(
        "encoding pictures as videos needs ffmpeg with libx264, libsvtav1 or libopenh264, which is not installed; install it, or set videos = false"
    )]
    NoFfmpeg,
    /// ffmpeg failed.
    #[error("ffmpeg failed at {}: {said}", path.display())]
    Ffmpeg {
        /// The file that it was to write or read.
        path: PathBuf,
        /// Its error output.
        said: String,
    },
    /// A file or a folder cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Parquet cannot be read.
    #[error("cannot read Parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Arrow rejected the rows, which is a defect of this crate.
    #[error("cannot make rows: {0}")]
    Arrow(#[from] ArrowError),
    /// A dataset cannot be appended to.
    #[error("{0}")]
    Other(String),
    /// The caller stopped it.
    #[error("cancelled; nothing was written")]
    Cancelled,
}

/// The progress of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportProgress {
    /// Frames that were written.
    pub frames: u64,
    /// Recordings that were read, and how many there are.
    pub recordings: (usize, usize),
}

/// Writes recordings, each of one place or of several that are merged, as a dataset into a folder that does not exist yet, or
/// is empty. The folder appears when it is complete.
///
/// `progress` is called many times a second, and can stop the export.
///
/// # Errors
/// When a recording cannot be read, lacks something that the map names, or the folder cannot be written.
pub fn export(
    recordings: &[Vec<PathBuf>],
    folder: &Path,
    map: &DatasetMap,
    progress: &mut dyn FnMut(ExportProgress) -> ControlFlow<()>,
) -> Result<Exported, LerobotError> {
    let opened = recordings.iter().map(|places| crate::open_all(places));
    export_all(opened, folder, map, progress)
}

/// Adds recordings to a dataset of the same map, which LeRobot may have made. The dataset is complete at every moment; where
/// there is none yet, it is made. What is returned is said of the new episodes alone.
///
/// # Errors
/// As [`export`], or when the dataset has another rate, other features, or features of another shape.
pub fn append(
    recordings: &[Vec<PathBuf>],
    folder: &Path,
    map: &DatasetMap,
    progress: &mut dyn FnMut(ExportProgress) -> ControlFlow<()>,
) -> Result<Exported, LerobotError> {
    if !folder.join("meta").exists() {
        return export(recordings, folder, map, progress);
    }
    let base = Base::read(folder, map)?;
    let opened = recordings.iter().map(|places| crate::open_all(places));
    let (making, exported) = make(opened, folder, map, base, progress)?;
    base::join(making.path(), folder)?;
    Ok(exported)
}

impl Recording {
    /// Writes it as a dataset into a folder that does not exist yet, or is empty: one episode, or those that the map names.
    /// The folder appears when it is complete.
    ///
    /// # Errors
    /// When it lacks something that the map names, the folder cannot be written, or the work is cancelled.
    pub fn lerobot(&self, folder: impl AsRef<Path>, map: &DatasetMap) -> Result<Exported, Error> {
        let progress = self.progress();
        let one = std::iter::once(Ok(self.clone()));
        let made = export_all(one, folder.as_ref(), map, &mut |made| {
            progress.done(made.frames, 0);
            if progress.is_cancelled() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        Ok(made?)
    }
}

fn export_all(
    recordings: impl ExactSizeIterator<Item = Result<Recording, SourceError>>,
    folder: &Path,
    map: &DatasetMap,
    progress: &mut dyn FnMut(ExportProgress) -> ControlFlow<()>,
) -> Result<Exported, LerobotError> {
    let is_free = match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if !is_free {
        let taken = io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it exists and is not empty; name another folder, or append to it",
        );
        return Err(failed(folder, &taken));
    }
    let (making, exported) = make(recordings, folder, map, Base::default(), progress)?;
    place(making, folder)?;
    Ok(exported)
}

/// Makes the episodes of recordings in a folder beside that of the dataset.
fn make(
    recordings: impl ExactSizeIterator<Item = Result<Recording, SourceError>>,
    folder: &Path,
    map: &DatasetMap,
    base: Base,
    progress: &mut dyn FnMut(ExportProgress) -> ControlFlow<()>,
) -> Result<(tempfile::TempDir, Exported), LerobotError> {
    let parent = &folder_of(folder);
    std::fs::create_dir_all(parent).map_err(|error| failed(parent, &error))?;
    let making = tempfile::Builder::new().prefix(".asof-").tempdir_in(parent);
    let making = making.map_err(|error| failed(parent, &error))?;
    let exported = fill(recordings, making.path(), map, base, progress);
    let exported = exported.map_err(|error| error.placed(making.path(), folder))?;
    Ok((making, exported))
}

fn fill(
    recordings: impl ExactSizeIterator<Item = Result<Recording, SourceError>>,
    making: &Path,
    map: &DatasetMap,
    base: Base,
    progress: &mut dyn FnMut(ExportProgress) -> ControlFlow<()>,
) -> Result<Exported, LerobotError> {
    let mut dataset = Dataset::new(making, map, base);
    let total = recordings.len();
    for (at, recording) in recordings.enumerate() {
        let recording = recording?;
        let mut told = |frames: u64| match progress(ExportProgress {
            frames,
            recordings: (at, total),
        }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(LerobotError::Cancelled),
        };
        dataset.add(&recording, &mut told)?;
    }
    dataset.finish()
}

impl LerobotError {
    /// The same, of a file in the folder that the dataset will have: the one that it is made in is removed.
    fn placed(mut self, making: &Path, folder: &Path) -> Self {
        if let LerobotError::Write { path, .. } | LerobotError::Ffmpeg { path, .. } = &mut self
            && let Ok(inner) = path.strip_prefix(making)
        {
            *path = folder.join(inner);
        }
        self
    }
}

/// Moves a folder to its target, with the permissions of a folder that was created there.
fn place(making: tempfile::TempDir, folder: &Path) -> Result<(), LerobotError> {
    let wrong = |error: io::Error| failed(folder, &error);
    let made = folder.exists() || std::fs::create_dir(folder).map_err(wrong).is_ok();
    let rights = std::fs::metadata(folder).map(|found| found.permissions());
    if made {
        std::fs::remove_dir(folder).map_err(wrong)?;
    }
    std::fs::rename(making.path(), folder).map_err(wrong)?;
    // It has another name now: there is nothing to remove.
    let _ = making.keep();
    match rights {
        Ok(rights) => std::fs::set_permissions(folder, rights).map_err(wrong),
        Err(_) => Ok(()),
    }
}

/// Rejects a topic that does not exist.
fn known(source: &dyn Source, topic: &str) -> Result<(), LerobotError> {
    let summary = source.summary();
    let topics = summary.topics();
    if topics.contains(&topic) {
        return Ok(());
    }
    Err(LerobotError::NoTopic {
        topic: topic.to_owned(),
        topics: topics.join(", "),
    })
}

fn failed(path: &Path, error: &io::Error) -> LerobotError {
    LerobotError::Write {
        path: path.to_owned(),
        cause: io::Error::new(error.kind(), error.to_string()),
    }
}

/// The path of a file by its number: a thousand to a folder.
fn file_path(pattern: &str, number: usize) -> String {
    let chunk = format!("{:03}", number / CHUNK_FILES);
    let file = format!("{:03}", number % CHUNK_FILES);
    pattern
        .replace("{chunk_index:03d}", &chunk)
        .replace("{file_index:03d}", &file)
}
