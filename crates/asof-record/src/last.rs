//! The last messages of topics, for files that begin later.

use std::collections::BTreeMap;

use asof_core::{Message, Stamp};
use asof_live::ros::is_latched;

use crate::sink::Receipt;

/// At most this many messages of one topic: a latched topic may have many publishers, each with one message.
const MOST_LATCHED: usize = 1_000;

/// Which topics' last messages are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those that are meant for late subscribers.
    Latched,
    All,
}

/// The last message of each topic; of a latched one, the last of each publisher.
pub(crate) struct LastMessages {
    scope: Scope,
    limit: u64,
    topics: BTreeMap<String, Vec<(Message, Receipt)>>,
    bytes: u64,
}

impl LastMessages {
    /// Keeps at most this many bytes.
    pub fn new(scope: Scope, limit: u64) -> Self {
        LastMessages {
            scope,
            limit,
            topics: BTreeMap::new(),
            bytes: 0,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn keep(&mut self, message: &Message, receipt: &Receipt) {
        let is_latched = is_latched(&message.channel);
        if !is_latched && self.scope == Scope::Latched {
            return;
        }
        let size = |message: &Message| message.payload.len() as u64;
        let topic = message.channel.topic.clone();
        let known = self.topics.entry(topic).or_default();
        // Where the publisher is not known, what is told again is the same.
        let is_replaced = |(before, from): &(Message, Receipt)| match receipt.publisher {
            _ if !is_latched => true,
            Some(_) => from.publisher == receipt.publisher,
            None => from.publisher.is_none() && before.payload == message.payload,
        };
        let mut freed = 0;
        known.retain(|one| {
            let is_replaced = is_replaced(one);
            freed += if is_replaced { size(&one.0) } else { 0 };
            !is_replaced
        });
        // Large messages of other topics are not worth their memory.
        let share = if is_latched {
            self.limit
        } else {
            self.limit / 16
        };
        if size(message) > share {
            self.bytes -= freed;
            return;
        }
        // The newest of a topic are worth more than its oldest.
        let is_crowded = |known: &[_], freed: u64| {
            known.len() >= MOST_LATCHED || self.bytes - freed + size(message) > self.limit
        };
        while !known.is_empty() && is_crowded(known, freed) {
            freed += size(&known.remove(0).0);
        }
        let fits = !is_crowded(known, freed);
        self.bytes -= freed;
        if fits {
            self.bytes += size(message);
            known.push((message.clone(), *receipt));
        }
    }

    /// The messages as a file begins with them: logged at its start.
    pub fn at(&self, start: Stamp) -> impl Iterator<Item = Message> {
        self.before(Stamp::MAX, start)
    }

    /// The messages that came before a time; logged at `start`.
    pub fn before(&self, came: Stamp, start: Stamp) -> impl Iterator<Item = Message> {
        let all = self.topics.values().flatten();
        let meant = all.filter(move |(_, receipt)| receipt.at < came);
        meant.map(move |(message, _)| Message {
            log_time: start,
            ..message.clone()
        })
    }
}
