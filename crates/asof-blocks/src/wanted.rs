//! Which topics a query means.

use std::collections::BTreeSet;
use std::sync::Arc;

use asof_core::{Source, Stamp, Summary, Topics};

use crate::names::{TopicId, TopicSet};
use crate::shared::Shared;
use crate::store::State;

/// The topics of a query, by number.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueryTopics {
    pub topics: TopicSet,
    /// The one of `topics` that represents all topics the summary does not list, if it is unknown whether there
    /// are any.
    pub doubt: Option<TopicId>,
    /// Names that are not cached: they are read from the source each time.
    pub around: BTreeSet<String>,
}

/// The topics that a summary lists.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Kept to recognize it.
    summary: Arc<Summary>,
    topics: TopicSet,
    rest: Rest,
}

/// Topics that a summary does not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// There are none.
    Nothing,
    /// There may be some: channels are listed, but not known to be complete.
    InDoubt(TopicId),
    /// There are some, or nothing is listed at all.
    There(TopicId),
}

/// Callers may request any number of names that no summary lists and no message uses. At most this many are
/// remembered, and none longer than [`MAX_UNLISTED_NAME_BYTES`].
const MAX_UNLISTED_TOPICS: usize = 64;
const MAX_UNLISTED_NAME_BYTES: usize = 256;

impl State {
    /// The topics that a selection means under the source's current summary.
    pub fn resolve(&mut self, summary: &Arc<Summary>, topics: &Topics) -> QueryTopics {
        let rest = self.rest(summary);
        let Topics::Named(names) = topics else {
            let mut wanted = QueryTopics {
                topics: self.listed(),
                ..QueryTopics::default()
            };
            if let Rest::InDoubt(rest) | Rest::There(rest) = rest {
                wanted.topics.insert(rest);
            }
            if let Rest::InDoubt(rest) = rest {
                wanted.doubt = Some(rest);
            }
            return wanted;
        };
        let mut wanted = QueryTopics::default();
        for name in names.iter() {
            if let Some(id) = self.names.find(name) {
                wanted.topics.insert(id);
            } else if rest == Rest::Nothing {
                // Every message is on a listed topic: this name matches nothing.
            } else if self.strangers < MAX_UNLISTED_TOPICS && name.len() <= MAX_UNLISTED_NAME_BYTES
            {
                self.strangers += 1;
                wanted.topics.insert(self.topic(name));
            } else {
                wanted.around.insert(name.clone());
            }
        }
        wanted
    }

    /// The topics for [`Loaded`](crate::loaded::Loaded) ranges: all that are listed, or everything as one.
    pub fn resolve_held(&mut self, summary: &Arc<Summary>, topics: &Topics) -> QueryTopics {
        if *topics == Topics::All {
            let rest = self.rest(summary);
            let mut topics = self.listed();
            if let Rest::There(rest) = rest
                && topics.is_empty()
            {
                topics.insert(rest);
            }
            return QueryTopics {
                topics,
                ..QueryTopics::default()
            };
        }
        self.resolve(summary, topics)
    }

    /// Settles whether a rest in doubt exists.
    pub fn settle_doubt(&mut self, rest: TopicId, is_there: bool) {
        if let Some(listing) = &mut self.listing
            && listing.rest == Rest::InDoubt(rest)
        {
            listing.rest = if is_there {
                Rest::There(rest)
            } else {
                Rest::Nothing
            };
        }
    }

    /// The topics that the last summary listed.
    fn listed(&self) -> TopicSet {
        let listing = self.listing.as_ref();
        listing.map_or_else(TopicSet::default, |listing| listing.topics.clone())
    }

    /// Takes in a new summary's list and returns what there may be beside it.
    fn rest(&mut self, summary: &Arc<Summary>) -> Rest {
        if let Some(known) = &self.listing
            && Arc::ptr_eq(&known.summary, summary)
        {
            return known.rest;
        }
        let channels = summary.channels.iter();
        let topics: TopicSet = channels
            .map(|entry| self.topic(&entry.channel.topic))
            .collect();
        let same = self.listing.as_ref().filter(|known| known.topics == topics);
        let rest = match same.map(|known| known.rest) {
            _ if accounts_for_all(summary) => Rest::Nothing,
            // Only other parts of the summary have changed.
            Some(known) => known,
            None if topics.is_empty() => Rest::There(self.names.rest_of(&topics)),
            None => Rest::InDoubt(self.names.rest_of(&topics)),
        };
        self.grow_topics();
        self.listing = Some(Listing {
            summary: Arc::clone(summary),
            topics,
            rest,
        });
        rest
    }
}

impl Shared {
    /// Finds out whether the source has topics that its summary does not list: each topic with any message has a
    /// last one. Returns whether there may be such topics.
    pub fn ask_about(&self, rest: TopicId) -> bool {
        // A failing source is read again later, where its error is reported.
        let Ok(last) = self.source.latest_at(&Topics::All, Stamp::MAX) else {
            return true;
        };
        let mut state = self.state();
        state.counters.source_lookups += 1;
        let only: TopicSet = [rest].into_iter().collect();
        let is_there = last.iter().any(|message| {
            state
                .names
                .place_in(&only, &message.channel.topic)
                .is_some()
        });
        state.settle_doubt(rest, is_there);
        is_there
    }
}

/// Whether the listed channels account for all messages.
pub(crate) fn accounts_for_all(summary: &Summary) -> bool {
    let counts = summary.channels.iter().map(|entry| entry.messages);
    let listed: Option<u64> = counts.sum();
    let has_all = listed.is_some() && listed == summary.messages && listed != Some(0);
    has_all && !summary.channels.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use asof_core::{Channel, ChannelSummary};

    fn summary(listed: &[(&str, Option<u64>)], messages: Option<u64>) -> Arc<Summary> {
        let mut summary = Summary::empty("test");
        summary.messages = messages;
        summary.channels = listed
            .iter()
            .map(|(topic, messages)| ChannelSummary {
                channel: Arc::new(Channel {
                    topic: (*topic).into(),
                    ..Channel::default()
                }),
                messages: *messages,
            })
            .collect();
        Arc::new(summary)
    }

    fn state() -> State {
        State::new(Budget::new(0), false)
    }

    #[test]
    fn names_that_nothing_is_known_of_do_not_pile_up() {
        let mut state = state();
        let unsure = summary(&[("/a", None)], None);
        let mut around = 0;
        for number in 0..10_000 {
            let wanted = state.resolve(&unsure, &Topics::named([format!("/{number}")]));
            around += wanted.around.len();
        }
        assert!(state.names.len() < 100, "{}", state.names.len());
        assert_eq!(around + state.strangers, 10_000);
        let long = state.resolve(&unsure, &Topics::named(["x".repeat(5_000)]));
        assert_eq!(long.around.len(), 1);
    }

    #[test]
    fn a_name_that_a_complete_summary_does_not_list_matches_nothing() {
        let mut state = state();
        let sure = summary(&[("/a", Some(3)), ("/b", Some(4))], Some(7));
        for number in 0..1_000 {
            let wanted = state.resolve(&sure, &Topics::named([format!("/{number}")]));
            assert!(wanted.topics.is_empty() && wanted.around.is_empty());
        }
        assert_eq!(state.names.len(), 2);
        let all = state.resolve(&sure, &Topics::All);
        assert_eq!((all.topics.len(), all.doubt), (2, None));
    }

    #[test]
    fn a_summary_that_lists_more_has_another_rest() {
        let mut state = state();
        let first = state.resolve(&summary(&[("/a", None)], None), &Topics::All);
        let second = state.resolve(&summary(&[("/a", None), ("/b", None)], None), &Topics::All);
        assert_ne!(first.doubt, second.doubt);
        let nothing = state.resolve(&summary(&[], Some(0)), &Topics::All);
        assert_eq!((nothing.topics.len(), nothing.doubt), (1, None));
    }
}
