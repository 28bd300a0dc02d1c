//! The types that every asof crate shares.
//!
//! A [`Stamp`] is an instant, a [`TimeRange`] an interval. A [`Channel`] describes the [`Message`]s of a topic.
//! A [`Source`] answers a [`Query`] with [`Batch`]es; its [`Summary`] lists what it holds and the [`Problem`]s
//! found in it. Nothing here opens a file or decodes a payload.
//!
//! ```
//! use asof_core::{Stamp, TimeRange, When};
//!
//! let drive = TimeRange::new(Stamp::from_nanos(0), Stamp::from_nanos(60_000_000_000));
//! let moment: When = "+12.5s".parse()?;
//! assert_eq!(moment.resolve(drive), Stamp::from_nanos(12_500_000_000));
//! assert_eq!(moment.resolve(drive).to_string(), "1970-01-01T00:00:12.5Z");
//! # Ok::<(), asof_core::StampError>(())
//! ```

#![forbid(unsafe_code)]

mod batch;
mod channel;
mod check;
mod comparison;
mod follow;
mod index;
mod layer;
mod message;
mod parts;
mod problem;
mod query;
mod range;
mod secret;
mod source;
pub mod spelling;
mod stamp;
mod stamp_health;
mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod when;

pub use batch::{Batch, Row};
pub use channel::{Channel, Schema};
pub use check::check_by_reading;
pub use comparison::Comparison;
pub use follow::{Follow, FollowEnd, FollowFinished, FollowFused, Followed, Growth, read_through};
pub use index::{Index, Portion, SectionEntry};
pub use layer::{DerivedSummary, SourceLayer};
pub use message::{Message, MessageRef};
pub use parts::{FileOrder, FileParts, HiddenRecord, HiddenRecords};
pub use problem::{Problem, ProblemKind};
pub use query::{Query, Topics};
pub use range::TimeRange;
pub use secret::is_same_secret;
pub use source::{Batches, Progress, ReadStats, Source, SourceError};
pub use stamp::{Stamp, StampError};
pub use stamp_health::StampHealth;
pub use summary::{AttachmentEntry, ChannelSummary, MetadataEntry, RecentSummary, Summary};
pub use when::When;

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
