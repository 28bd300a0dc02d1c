//! Recordings that differ from others in one respect.

mod extra_metadata;
mod selection;
mod shift;

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{Channel, Source};

pub use extra_metadata::ExtraMetadata;
pub use selection::{ChannelFilter, Selection};
pub use shift::Shift;

use crate::Recording;

impl Recording {
    /// The same with a prefix before each topic, and with log times that are `by` nanoseconds later. Times inside of messages
    /// stay as recorded.
    ///
    /// ```no_run
    /// let (before, after) = (asof::open("before.mcap")?, asof::open("after.mcap")?);
    /// let by = before.start().zip(after.start()).map_or(0, |(before, after)| before.since(after));
    /// let (before, after) = (before.shifted("/before", 0), after.shifted("/after", by));
    /// # Ok::<(), asof::SourceError>(())
    /// ```
    #[must_use]
    pub fn shifted(&self, prefix: impl Into<String>, by: i64) -> Recording {
        self.layered(|source| Arc::new(Shift::new(source, prefix, by)))
    }

    /// The same with the channels that `wants` accepts, also those that appear later.
    #[must_use]
    pub fn selected(&self, wants: impl Fn(&Channel) -> bool + Send + Sync + 'static) -> Recording {
        self.layered(|source| Arc::new(Selection::new(source, Arc::new(wants))))
    }

    /// The same with one more metadata record.
    #[must_use]
    pub fn with_metadata(
        &self,
        name: impl Into<String>,
        values: BTreeMap<String, String>,
    ) -> Recording {
        self.layered(|source| Arc::new(ExtraMetadata::new(source, name, values)))
    }

    fn layered(&self, layer: impl FnOnce(Arc<dyn Source>) -> Arc<dyn Source>) -> Recording {
        let source = layer(Arc::clone(self.source()));
        Recording::new(source, self.places()).with_progress(self.progress().clone())
    }
}
