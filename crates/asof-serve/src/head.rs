//! A client's place at the newest end of what is retained.

use std::sync::Arc;

use asof_core::{Batch, Source, Stamp, Topics};

use crate::retained::{Retained, Tail};

/// Hands out what comes on some topics, as it comes.
pub(crate) struct Head {
    retained: Retained,
    topics: Vec<String>,
    next: u64,
    position: Stamp,
}

impl Head {
    /// Stands at the newest message; `start` counts where there is none.
    pub fn new(retained: &Retained, start: Stamp) -> Self {
        let mut head = Head {
            retained: retained.clone(),
            topics: Vec::new(),
            next: retained.version(),
            position: start,
        };
        head.look();
        head
    }

    /// Goes on behind `position`, where these topics have been handed out so far.
    pub fn after(retained: &Retained, position: Stamp, topics: Vec<String>) -> Self {
        let mut head = Head {
            retained: retained.clone(),
            topics,
            next: retained.place_after(position),
            position,
        };
        head.look();
        head
    }

    /// Hands out these topics from now on, and what is known of those that are new.
    pub fn set_topics(&mut self, topics: Vec<String>) -> Batch {
        let is_new = |topic: &&String| !self.topics.contains(topic);
        let new = Topics::named(topics.iter().filter(is_new));
        self.topics = topics;
        let known = self.retained.backfill(&new, Stamp::MAX).unwrap_or_default();
        // What has come since the last look is handed out with the rest of it.
        let rows = known.rows().iter().filter(|row| row.order < self.next);
        let rows = rows.copied().collect();
        Batch::new(Arc::clone(known.channels()), known.buffers().to_vec(), rows)
    }

    /// Whether it hands out this topic.
    pub fn has(&self, topic: &str) -> bool {
        self.topics.iter().any(|known| known == topic)
    }

    /// What has come since.
    pub fn take(&mut self) -> Tail {
        let tail = self
            .retained
            .tail(&Topics::Named(self.topics.clone()), self.next);
        self.next = tail.next;
        self.look();
        tail
    }

    /// When the newest message came, on any topic.
    pub fn position(&self) -> Stamp {
        self.position
    }

    fn look(&mut self) {
        let range = self.retained.summary().range;
        if !range.is_empty() {
            self.position = range.end;
        }
    }
}
