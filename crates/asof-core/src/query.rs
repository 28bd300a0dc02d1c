//! What to read from a source.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{Stamp, TimeRange};

/// The topics and the time range to read.
///
/// ```
/// use asof_core::{Query, Stamp};
///
/// let query = Query::topics(["/scan", "/odom"]).between(Stamp::from_nanos(0)..=Stamp::from_nanos(9));
/// assert!(query.topics.contains("/scan"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The wanted topics.
    pub topics: Topics,
    /// The wanted log times, both ends included.
    pub range: TimeRange,
}

/// A selection of topics, which is cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Topics {
    /// Every topic.
    #[default]
    All,
    /// These, by their exact names. Names that do not exist match nothing.
    Named(Arc<BTreeSet<String>>),
}

impl Topics {
    /// Exactly these topics.
    pub fn named<I: IntoIterator<Item = S>, S: Into<String>>(names: I) -> Self {
        Topics::Named(Arc::new(names.into_iter().map(Into::into).collect()))
    }

    /// No topic.
    pub fn none() -> Self {
        Topics::Named(Arc::default())
    }

    /// Whether `topic` is selected, in about the time of one name, however many are.
    pub fn contains(&self, topic: &str) -> bool {
        match self {
            Topics::All => true,
            Topics::Named(names) => names.contains(topic),
        }
    }
}

impl Query {
    /// Every message.
    pub fn all() -> Self {
        Query {
            topics: Topics::All,
            range: TimeRange::ALL,
        }
    }

    /// Every message on these topics.
    pub fn topics<I: IntoIterator<Item = S>, S: Into<String>>(names: I) -> Self {
        Query {
            topics: Topics::named(names),
            range: TimeRange::ALL,
        }
    }

    /// The same query within a range of log time.
    #[must_use]
    pub fn between(self, range: impl Into<TimeRange>) -> Self {
        Query {
            range: range.into(),
            ..self
        }
    }

    /// Whether a message on this topic at this time matches.
    pub fn matches(&self, topic: &str, log_time: Stamp) -> bool {
        self.range.contains(log_time) && self.topics.contains(topic)
    }
}

impl Default for Query {
    fn default() -> Self {
        Query::all()
    }
}
