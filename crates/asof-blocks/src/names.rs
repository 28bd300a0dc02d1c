//! Topics and channels by number.

use std::hash::{Hash as _, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use asof_core::Channel;
use rustc_hash::{FxHashMap, FxHasher};

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

    pub fn remove(&mut self, topic: TopicId) {
        if let Some(word) = self.words.get_mut(topic as usize / 64) {
            *word &= !(1 << (topic % 64));
        }
        *self = std::mem::take(self).trimmed();
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

    /// The size of the intersection.
    pub fn common(&self, other: &TopicSet) -> usize {
        let both = self.words.iter().zip(&other.words);
        both.map(|(a, b)| (a & b).count_ones() as usize).sum()
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

/// Every channel seen so far with its topic. Rows of blocks point into it.
///
/// A snapshot. Numbers never change; later snapshots only have more of them.
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
    /// The channels by topic and by what tells most of them apart, to find an equal one.
    numbers: FxHashMap<(TopicId, u64), Vec<u32>>,
    channels: Vec<Arc<Channel>>,
    topic_of_channel: Vec<TopicId>,
    /// Of all channels, unless some were added since.
    table: Mutex<Arc<ChannelTable>>,
    rests: Vec<Rest>,
}

/// "Every topic but these": the topics of a source that its summary does not list, as one
/// topic.
///
/// Invariant: `listed` never changes. A summary that lists more has a different rest.
#[derive(Debug)]
struct Rest {
    id: TopicId,
    listed: TopicSet,
}

impl Names {
    pub fn topic(&mut self, name: &str) -> TopicId {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let name: Arc<str> = name.into();
        let id = self.number(&name);
        self.by_name.insert(name, id);
        id
    }

    fn number(&mut self, name: &Arc<str>) -> TopicId {
        let id = self.topics.len() as TopicId;
        self.topics.push(Arc::clone(name));
        id
    }

    /// All topics but `listed`, as one.
    pub fn rest_of(&mut self, listed: &TopicSet) -> TopicId {
        if let Some(known) = self.rests.iter().find(|rest| rest.listed == *listed) {
            return known.id;
        }
        // The name is the same in every process with the same listed topics.
        let mut names: Vec<&Arc<str>> = listed.iter().map(|topic| self.name(topic)).collect();
        names.sort_unstable();
        let mut hasher = FxHasher::default();
        for name in names {
            hasher.write(name.as_bytes());
            hasher.write_u8(0xFF);
        }
        let name = format!("\0all but {} topics {:016x}", listed.len(), hasher.finish());
        let id = self.number(&name.into());
        let listed = listed.clone();
        self.rests.push(Rest { id, listed });
        id
    }

    /// Whether this is a rest rather than a single topic.
    pub fn is_rest(&self, topic: TopicId) -> bool {
        self.rests.iter().any(|rest| rest.id == topic)
    }

    /// Whether there is a rest among some topics.
    pub fn has_rest(&self, topics: &TopicSet) -> bool {
        self.rests.iter().any(|rest| topics.contains(rest.id))
    }

    /// The one of `topics` that a message on `name` belongs to.
    pub fn place_in(&self, topics: &TopicSet, name: &str) -> Option<TopicId> {
        let id = self.find(name);
        if let Some(id) = id.filter(|&id| topics.contains(id)) {
            return Some(id);
        }
        let is_unlisted = |rest: &&Rest| !id.is_some_and(|id| rest.listed.contains(id));
        self.rests
            .iter()
            .filter(|rest| topics.contains(rest.id))
            .find(is_unlisted)
            .map(|rest| rest.id)
    }

    /// Like [`Names::find`] for stored names: also finds a rest.
    pub fn find_stored(&self, name: &str) -> Option<TopicId> {
        let rest = || {
            let mut rests = self.rests.iter().map(|rest| rest.id);
            rests.find(|&id| **self.name(id) == *name)
        };
        self.find(name).or_else(rest)
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

    /// All channels so far. A new snapshot is made only when there are more of them than before: a file may declare tens of
    /// thousands.
    pub fn table(&self) -> Arc<ChannelTable> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.topics.len() < self.channels.len() {
            *table = Arc::new(ChannelTable {
                channels: self.channels.as_slice().into(),
                topics: self.topic_of_channel.clone(),
            });
        }
        Arc::clone(&table)
    }

    /// The number of this channel, or of one that equals it, as part of `topic`.
    pub fn channel(&mut self, channel: &Arc<Channel>, topic: TopicId) -> u32 {
        let channels = &mut self.channels;
        let same = self.numbers.entry((topic, mark_of(channel))).or_default();
        let is_known = |&&id: &&u32| {
            let known = &channels[id as usize];
            Arc::ptr_eq(known, channel) || known == channel
        };
        if let Some(&id) = same.iter().find(is_known) {
            return id;
        }
        let id = channels.len() as u32;
        channels.push(Arc::clone(channel));
        self.topic_of_channel.push(topic);
        same.push(id);
        id
    }
}

/// The same for equal channels, and rarely for others. The text of the schema is left out: it is long.
fn mark_of(channel: &Channel) -> u64 {
    let mut hasher = FxHasher::default();
    let Channel {
        topic,
        message_encoding,
        metadata,
        ..
    } = channel;
    (topic, message_encoding, channel.type_name(), metadata).hash(&mut hasher);
    if let Some(schema) = &channel.schema {
        (schema.encoding.as_str(), schema.data.len()).hash(&mut hasher);
    }
    hasher.finish()
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
        let topic = names.topic("/a");
        let first = names.channel(&channel("cdr"), topic);
        assert_eq!(names.channel(&channel("cdr"), topic), first);
        assert_ne!(names.channel(&channel("json"), topic), first);
    }

    #[test]
    fn tens_of_thousands_of_channels_on_one_topic_are_numbered_in_one_pass() {
        let mut names = Names::default();
        let topic = names.topic("/a");
        for number in 0..65_534_u32 {
            let channel = Arc::new(Channel {
                topic: "/a".into(),
                metadata: [("number".to_owned(), number.to_string())].into(),
                ..Channel::default()
            });
            assert_eq!(names.channel(&channel, topic), number);
        }
        let most = names.numbers.values().map(Vec::len).max();
        assert!(most < Some(8), "{most:?} channels have the same mark");
        let table = names.table();
        assert_eq!(table.channels.len(), 65_534);
        assert!(Arc::ptr_eq(&table, &names.table()), "there is nothing new");
    }

    #[test]
    fn a_topic_that_is_not_listed_belongs_to_the_rest() {
        let mut names = Names::default();
        let listed: TopicSet = [names.topic("/a")].into_iter().collect();
        let rest = names.rest_of(&listed);
        assert_eq!(names.rest_of(&listed), rest);
        let mut all = listed.clone();
        all.insert(rest);
        assert_eq!(names.place_in(&all, "/a"), names.find("/a"));
        assert_eq!(names.place_in(&all, "/b"), Some(rest));
        assert_eq!(names.place_in(&listed, "/b"), None);
        let only_rest: TopicSet = [rest].into_iter().collect();
        assert_eq!(names.place_in(&only_rest, "/a"), None);
        let stored = names.name(rest).to_string();
        assert_eq!(
            (names.find(&stored), names.find_stored(&stored)),
            (None, Some(rest))
        );
    }
}
