//! Topics and channels by number.

use std::sync::Arc;

use asof_core::Channel;
use rustc_hash::FxHashMap;

pub(crate) type TopicId = u32;

/// A set of topics, as bits.
///
/// Invariant: the last word is not zero, so equal sets are equal values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct TopicSet {
    words: Vec<u64>,
}

impl TopicSet {
    pub fn insert(&mut self, topic: TopicId) {
        let word = topic as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (topic % 64);
    }

    pub fn contains(&self, topic: TopicId) -> bool {
        self.words
            .get(topic as usize / 64)
            .is_some_and(|word| word >> (topic % 64) & 1 == 1)
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    pub fn intersects(&self, other: &TopicSet) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    pub fn add(&mut self, other: &TopicSet) {
        if other.words.len() > self.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    #[must_use]
    pub fn intersection(&self, other: &TopicSet) -> TopicSet {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        TopicSet {
            words: words.collect(),
        }
        .trimmed()
    }

    #[must_use]
    pub fn without(&self, other: &TopicSet) -> TopicSet {
        let rest = other.words.iter().copied().chain(std::iter::repeat(0));
        let words = self.words.iter().zip(rest).map(|(a, b)| a & !b);
        TopicSet {
            words: words.collect(),
        }
        .trimmed()
    }

    pub fn iter(&self) -> impl Iterator<Item = TopicId> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(index as u32 * 64 + bit)
            })
        })
    }

    fn trimmed(mut self) -> Self {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        self
    }
}

impl FromIterator<TopicId> for TopicSet {
    fn from_iter<I: IntoIterator<Item = TopicId>>(topics: I) -> Self {
        let mut set = TopicSet::default();
        for topic in topics {
            set.insert(topic);
        }
        set
    }
}

/// Every channel that was met, and its topic: what rows of blocks point into.
///
/// A snapshot; numbers never change, later snapshots only know more of them.
#[derive(Debug, Default)]
pub(crate) struct ChannelTable {
    pub channels: Arc<[Arc<Channel>]>,
    pub topics: Vec<TopicId>,
}

/// Numbers for topics and channels.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: FxHashMap<Arc<str>, TopicId>,
    topics: Vec<Arc<str>>,
    /// The channels of each topic, to find an equal one.
    by_topic: Vec<Vec<u32>>,
    table: Arc<ChannelTable>,
}

impl Names {
    pub fn topic(&mut self, name: &str) -> TopicId {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let name: Arc<str> = name.into();
        let id = self.topics.len() as TopicId;
        self.topics.push(Arc::clone(&name));
        self.by_topic.push(Vec::new());
        self.by_name.insert(name, id);
        id
    }

    pub fn find(&self, name: &str) -> Option<TopicId> {
        self.by_name.get(name).copied()
    }

    pub fn name(&self, topic: TopicId) -> &Arc<str> {
        &self.topics[topic as usize]
    }

    pub fn len(&self) -> usize {
        self.topics.len()
    }

    pub fn table(&self) -> &Arc<ChannelTable> {
        &self.table
    }

    /// The number of this channel, or of one that equals it.
    pub fn channel(&mut self, channel: &Arc<Channel>) -> (u32, TopicId) {
        let topic = self.topic(&channel.topic);
        let is_known = |&&id: &&u32| {
            let known = &self.table.channels[id as usize];
            Arc::ptr_eq(known, channel) || known == channel
        };
        if let Some(&id) = self.by_topic[topic as usize].iter().find(is_known) {
            return (id, topic);
        }
        let id = self.table.channels.len() as u32;
        let channels = self.table.channels.iter().chain([channel]).map(Arc::clone);
        let topics = self.table.topics.iter().copied().chain([topic]);
        self.table = Arc::new(ChannelTable {
            channels: channels.collect(),
            topics: topics.collect(),
        });
        self.by_topic[topic as usize].push(id);
        (id, topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_compare_by_their_members() {
        let many: TopicSet = [1, 70].into_iter().collect();
        let few = many.without(&[70].into_iter().collect());
        assert_eq!(few, [1].into_iter().collect());
        assert_eq!(many.iter().collect::<Vec<_>>(), [1, 70]);
        assert!(few.without(&many).is_empty());
        assert_eq!(many.intersection(&few), few);
    }

    #[test]
    fn equal_channels_share_a_number() {
        let mut names = Names::default();
        let channel = |encoding: &str| {
            Arc::new(Channel {
                topic: "/a".into(),
                message_encoding: encoding.into(),
                ..Channel::default()
            })
        };
        let first = names.channel(&channel("cdr"));
        assert_eq!(names.channel(&channel("cdr")), first);
        let second = names.channel(&channel("json"));
        assert_ne!(second.0, first.0);
        assert_eq!(second.1, first.1);
    }
}
