//! A read-through cache for recordings and other sources, by topic and time.
//!
//! A [`BlockCache`] is a [`Source`](asof_core::Source) over any source. It tracks which times it holds for each topic,
//! including times known to be empty. A read is served from memory where possible; only the gaps are read from the
//! source, and only for the topics missing there. Memory never exceeds a byte budget.
//!
//! ```
//! use asof_blocks::{BlockCache, CacheOptions};
//! use asof_core::{Query, Source, Stamp, Topics};
//! # use std::sync::Arc;
//! # use asof_core::{Channel, Message};
//! # use asof_formats::{McapWriter, McapWriterOptions};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("run.mcap");
//! # let mut writer = McapWriter::create(&path, McapWriterOptions::default())?;
//! # let channel = Arc::new(Channel { topic: "/odom".into(), ..Channel::default() });
//! # for seconds in 0..10 {
//! #     let at = Stamp::from_nanos(seconds * 1_000_000_000);
//! #     writer.write(&Message { channel: Arc::clone(&channel), log_time: at, publish_time: at, sequence: 0, payload: "x".into() })?;
//! # }
//! # writer.finish()?;
//!
//! let cache = BlockCache::new(asof_formats::open(&path)?, CacheOptions::with_budget(100_000_000));
//! let query = Query::topics(["/odom"]);
//! for _ in 0..2 {
//!     let batches = cache.read(&query)?.collect::<Result<Vec<_>, _>>()?;
//!     assert_eq!(batches.iter().map(|batch| batch.len()).sum::<usize>(), 10);
//! }
//! assert_eq!(cache.stats().source_reads, 1);
//!
//! let known = cache.latest_at(&Topics::All, Stamp::from_nanos(4_500_000_000))?;
//! assert_eq!(known.get(0).map(|message| message.log_time.nanos()), Some(4_000_000_000));
//! assert_eq!(cache.stats().source_lookups, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod around;
mod block;
mod budget;
mod cache;
mod coverage;
mod disk;
mod evict;
mod fetch;
mod head;
mod last_n;
mod latest_at;
mod loaded;
mod names;
mod options;
mod order;
mod ranges;
mod reader;
mod reverse;
mod shared;
mod stats;
mod store;
mod wanted;

pub use cache::{Audit, BlockCache};
pub use disk::fingerprint_of_file;
pub use head::{Direction, HeadClass, HeadOptions, ReadHead};
pub use options::{CacheOptions, DiskOptions};
pub use ranges::{LoadedRanges, RangeWatch};
pub use reader::Reader;
pub use reverse::Reverse;
pub use stats::CacheStats;

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
