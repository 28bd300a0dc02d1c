//! A folder or bucket of recordings as one database.
//!
//! A [`Catalogue`] is a set of plain Parquet files beside the recordings. It lists the recordings, their topics, times,
//! schemas and chunks. An [`Indexer`] keeps it current and opens only what is new or changed; a [`Search`] is answered
//! without opening any recording. Several processes may index and label at once: see the crate's README for how the
//! catalogue stays consistent.
//!
//! ```
//! use std::sync::Arc;
//! use asof_catalogue::{Catalogue, IndexOptions, Indexer, Search};
//! use asof_core::{Channel, Message, Stamp};
//! use asof_formats::{McapWriter, McapWriterOptions, Store};
//!
//! let folder = tempfile::tempdir()?;
//! let mut writer = McapWriter::create(&folder.path().join("run.mcap"), McapWriterOptions::default())?;
//! let channel = Arc::new(Channel { topic: "/battery".into(), ..Channel::default() });
//! let at = Stamp::from_nanos(1_000_000_000);
//! writer.write(&Message { channel, log_time: at, publish_time: at, sequence: 0, payload: "80 %".into() })?;
//! writer.finish()?;
//!
//! let catalogue = Catalogue::beside(Store::at(folder.path())?)?;
//! let run = Indexer::new(&catalogue, IndexOptions::default()).run(Stamp::now(), &|_| {})?;
//! assert_eq!(run.opened, 1);
//! let again = Indexer::new(&catalogue, IndexOptions::default()).run(Stamp::now(), &|_| {})?;
//! assert_eq!(again.opened, 0);
//!
//! let search = Search { topics: vec!["/batt*".parse()?], ..Search::default() };
//! let found = catalogue.find(&search)?;
//! assert_eq!(found.recordings[0].row.recording, "run.mcap");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod catalogue;
mod commit;
mod compact;
mod contents;
mod days;
mod error;
mod find;
mod glob;
mod head;
mod index;
mod known;
mod labels;
mod opening;
mod parts;
mod pattern;
mod predicate;
mod reading;
mod summaries;
mod survey;
mod tables;

pub use catalogue::{Catalogue, FOLDER};
pub use commit::{Changes, LabelChange};
pub use contents::{CatalogueTable, Contents, TopicKind, TopicTotal};
pub use days::{NotADay, since, until};
pub use error::CatalogueError;
pub use find::{Found, FoundRecording, FoundTopic, RecordingFilter, Search, SearchStats};
pub use glob::{NamePattern, NamePatterns};
pub use head::{Head, Part, PartFile, Retired};
pub use index::{IndexEvent, IndexOptions, IndexRun, Indexer};
pub use opening::{CataloguedRecording, SummaryOpener};
pub use pattern::{KeyPattern, PatternError};
pub use predicate::{Predicate, PredicateError};
pub use tables::{
    IndexedRecording, ProblemRow, RecordingRow, SchemaRow, SectionRow, SummaryRow, TopicRow,
    schema_hash,
};

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
