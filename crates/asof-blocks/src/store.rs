//! What is held: blocks by topics and time, and the indexes over them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use asof_core::{Row, Stamp, TimeRange};
use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::block::Block;
use crate::budget::{Budget, Reservation};
use crate::coverage::{Coverage, before};
use crate::fetch::Fetch;
use crate::head::{Head, HeadClass, HeadOptions};
use crate::loaded::Loaded;
use crate::names::{Names, TopicId, TopicSet};
use crate::stats::CacheStats;
use crate::wanted::Listing;

/// The store, guarded by the lock of [`Shared`](crate::shared::Shared).
///
/// Invariant: any topic and instant is covered by at most one block or by at most one fetch in
/// progress, never by both.
#[derive(Debug)]
pub(crate) struct State {
    pub names: Names,
    pub sets: Vec<BlockSet>,
    by_set: FxHashMap<TopicSet, usize>,
    pub topics: Vec<TopicIndex>,
    pub fetches: Vec<Flight>,
    pub heads: Vec<Head>,
    pub budget: Arc<Budget>,
    pub counters: CacheStats,
    /// Counts the changes of what is covered.
    pub version: u64,
    /// Evicted blocks for the disk tier, where there is one.
    pub evicted: Option<Vec<(TopicSet, Arc<Block>)>>,
    pub listing: Option<Listing>,
    /// How many topics have a number although no summary lists them and no message was seen on
    /// them.
    pub strangers: usize,
    /// The source has broken its order: it may add to what it has already returned.
    pub is_disorderly: bool,
    pub loaded: Loaded,
    facts_in_order: VecDeque<(TopicId, Stamp)>,
    fact_bytes: u64,
    next_id: u64,
}

/// The blocks of one set of topics.
#[derive(Debug)]
pub(crate) struct BlockSet {
    pub topics: TopicSet,
    pub blocks: BTreeMap<Stamp, Slot>,
    pub covered: Coverage,
    /// Starts of the blocks that only scans have read.
    pub scans: BTreeSet<Stamp>,
}

/// A block and what was reserved for it.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The block's end, repeated here to keep searches from touching the block.
    pub end: Stamp,
    pub block: Arc<Block>,
    pub class: HeadClass,
    pub charge: Reservation,
}

/// What is known of one topic.
#[derive(Debug, Default)]
pub(crate) struct TopicIndex {
    sets: Vec<usize>,
    /// The blocks that have messages of it, by start.
    pub filled: BTreeMap<Stamp, Arc<Block>>,
    facts: BTreeMap<Stamp, Fact>,
    pub payload_bytes: u64,
}

/// An answer of the source: "from its key to `through`, this was the last message".
#[derive(Debug)]
struct Fact {
    through: Stamp,
    answer: Option<Remembered>,
    charge: Reservation,
}

/// One message with a buffer of its own.
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    pub row: Row,
    pub payload: Bytes,
}

/// A fetch in progress.
#[derive(Debug)]
pub(crate) struct Flight {
    pub fetch: Arc<Fetch>,
    /// The first instant that it has read and not yet handed over to a block.
    pub open_start: Stamp,
    /// The first instant that it has not read; `None` at the end of time.
    pub frontier: Option<Stamp>,
    /// The last instant that it will read.
    pub end: Stamp,
    /// What it holds in an unsealed block.
    pub open: Option<TimeRange>,
    pub readers: usize,
}

/// What is held at an instant.
pub(crate) struct View {
    pub blocks: Vec<(Arc<Block>, usize)>,
    pub missing: TopicSet,
    /// The last instant for which this is so.
    pub through: Stamp,
}

/// The last message at or before some time, as far as memory can prove it.
pub(crate) enum LastMessage<'a> {
    InBlock(&'a Arc<Block>, usize),
    Remembered(&'a Remembered),
    /// There is no such message.
    Nothing,
    Unknown,
}

/// Facts may use one part in this many of the budget.
const FACTS_BUDGET_DIVISOR: u64 = 8;
/// Cost of a fact's entries, without its payload.
const FACT_COST: u64 = 224;
/// Above this many sets, those without blocks are dropped.
const PRUNE_SETS_ABOVE: usize = 64;

impl State {
    pub fn new(budget: Arc<Budget>, spills: bool) -> Self {
        State {
            names: Names::default(),
            sets: Vec::new(),
            by_set: FxHashMap::default(),
            topics: Vec::new(),
            fetches: Vec::new(),
            heads: Vec::new(),
            budget,
            counters: CacheStats::nothing_yet(),
            version: 0,
            evicted: spills.then(Vec::new),
            listing: None,
            strangers: 0,
            is_disorderly: false,
            loaded: Loaded::default(),
            facts_in_order: VecDeque::new(),
            fact_bytes: 0,
            next_id: 0,
        }
    }

    pub fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub fn topic(&mut self, name: &str) -> TopicId {
        let id = self.names.topic(name);
        self.grow_topics();
        id
    }

    pub fn grow_topics(&mut self) {
        if self.topics.len() < self.names.len() {
            self.topics
                .resize_with(self.names.len(), TopicIndex::default);
        }
    }

    pub fn add_head(&mut self, topics: TopicSet, options: HeadOptions) -> u64 {
        let id = self.fresh_id();
        self.heads.push(Head {
            id,
            topics,
            options,
        });
        id
    }

    /// What is held at `at`, for these topics.
    pub fn view(&self, wanted: &TopicSet, at: Stamp, end: Stamp) -> View {
        let mut view = View {
            blocks: Vec::new(),
            missing: wanted.clone(),
            through: end,
        };
        let mut covered = TopicSet::default();
        for (index, set) in self.sets.iter().enumerate() {
            if !set.topics.intersects(wanted) {
                continue;
            }
            if let Some(block) = set.at(at) {
                view.through = view.through.min(block.range.end);
                covered.add(&set.topics);
                view.blocks.push((Arc::clone(block), index));
            } else if let Some((&start, _)) = set.blocks.range(at..).next() {
                view.through = view.through.min(before(start).unwrap_or(start));
            }
        }
        view.missing = wanted.without(&covered);
        view
    }

    /// The last instant up to which exactly `missing` of `wanted` is missing, from `at` on.
    pub fn hole_end(&self, wanted: &TopicSet, missing: &TopicSet, at: Stamp, end: Stamp) -> Stamp {
        let relevant: Vec<&BlockSet> = self
            .sets
            .iter()
            .filter(|set| set.topics.intersects(wanted))
            .collect();
        let in_flight = self
            .fetches
            .iter()
            .filter(|flight| flight.open_start > at && flight.fetch.topics.intersects(missing))
            .filter_map(|flight| before(flight.open_start))
            .min();
        let end = in_flight.map_or(end, |limit| limit.min(end));
        let mut from = at;
        // Where coverage is in very many pieces, the gap may be cut short and read in two parts.
        for _ in 0..64 {
            let change = relevant
                .iter()
                .filter_map(|set| set.covered.change_after(from))
                .min();
            let Some(change) = change.filter(|&change| change <= end) else {
                return end;
            };
            let mut covered = TopicSet::default();
            for set in &relevant {
                if set.covered.at(change).is_some() {
                    covered.add(&set.topics);
                }
            }
            if wanted.without(&covered) != *missing {
                return before(change).unwrap_or(change);
            }
            from = change;
        }
        before(from).unwrap_or(from).max(at)
    }

    /// Inserts a block. One that overlaps an existing block is dropped instead.
    pub fn commit(
        &mut self,
        topics: &TopicSet,
        block: Block,
        class: HeadClass,
        charge: Reservation,
    ) -> bool {
        let range = block.range;
        let overlaps = |set: &BlockSet| set.topics.intersects(topics) && set.overlaps(range);
        if range.is_empty() || topics.is_empty() || self.sets.iter().any(overlaps) {
            return false;
        }
        let block = Arc::new(block);
        for entry in &block.topics {
            let index = &mut self.topics[entry.topic as usize];
            index.filled.insert(range.start, Arc::clone(&block));
            index.payload_bytes += entry.payload_bytes;
        }
        let set = self.set_of(topics);
        let set = &mut self.sets[set];
        set.covered.insert(range);
        if class == HeadClass::Scan {
            set.scans.insert(range.start);
        }
        self.counters.add_block(class, charge.bytes());
        set.blocks.insert(
            range.start,
            Slot {
                end: range.end,
                block,
                class,
                charge,
            },
        );
        self.loaded.note_change(topics, range);
        self.version += 1;
        true
    }

    /// Removes a block and returns its reservation.
    pub fn remove(&mut self, set: usize, start: Stamp) -> Option<Arc<Block>> {
        let slot = self.sets[set].blocks.remove(&start)?;
        self.sets[set].covered.remove(slot.block.range);
        self.sets[set].scans.remove(&start);
        for entry in &slot.block.topics {
            let index = &mut self.topics[entry.topic as usize];
            index.filled.remove(&start);
            index.payload_bytes -= entry.payload_bytes;
        }
        self.counters.remove_block(slot.class, slot.charge.bytes());
        let topics = &self.sets[set].topics;
        self.loaded.note_change(topics, slot.block.range);
        self.version += 1;
        Some(slot.block)
    }

    /// Raises the class of a block that a more important reader uses.
    pub fn promote(&mut self, set: usize, start: Stamp, class: HeadClass) {
        let set = &mut self.sets[set];
        if let Some(slot) = set.blocks.get_mut(&start)
            && slot.class < class
        {
            let bytes = slot.charge.bytes();
            self.counters.remove_block(slot.class, bytes);
            self.counters.add_block(class, bytes);
            slot.class = class;
            set.scans.remove(&start);
        }
    }

    /// Drops all facts about these topics, and every block of theirs that overlaps `range`.
    pub fn forget(&mut self, topics: &TopicSet, range: TimeRange) {
        for index in 0..self.sets.len() {
            if !self.sets[index].topics.intersects(topics) {
                continue;
            }
            while let Some(start) = self.sets[index].last_in(range) {
                self.remove(index, start);
            }
        }
        for topic in topics.iter() {
            if let Some(index) = self.topics.get_mut(topic as usize) {
                index.facts.clear();
            }
        }
        self.fact_bytes = self.measured_facts();
    }

    /// The topic's last message at or before `t`, if memory proves it.
    ///
    /// `hint` reuses what was found for another topic at the same `t`.
    pub fn last_known<'a>(
        &'a self,
        topic: TopicId,
        t: Stamp,
        hint: &mut Hint<'a>,
    ) -> LastMessage<'a> {
        let index = &self.topics[topic as usize];
        let found = hint.last_of(topic).or_else(|| {
            let mut earlier = index.filled.range(..=t).rev();
            // A block may begin before `t` and have its first message of the topic after it.
            (0..2).find_map(|_| hint.last_in(earlier.next()?.1, topic, t))
        });
        let mut at = t;
        loop {
            let covered = index.sets.iter().find_map(|&set| match hint.covered {
                Some((known, range)) if known == set && range.contains(at) => Some(range),
                _ => {
                    let range = self.sets[set].covered.at(at)?;
                    hint.covered = Some((set, range));
                    Some(range)
                }
            });
            let Some(covered) = covered else { break };
            if let Some((block, place)) = found
                && covered.start <= block.rows[place].log_time
            {
                return LastMessage::InBlock(block, place);
            }
            match before(covered.start) {
                Some(earlier) => at = earlier,
                None => return LastMessage::Nothing,
            }
        }
        match index.facts.range(..=at).next_back() {
            Some((_, fact)) if fact.through >= at => match &fact.answer {
                Some(answer) => LastMessage::Remembered(answer),
                None => LastMessage::Nothing,
            },
            _ => LastMessage::Unknown,
        }
    }

    /// How far back from `t` everything on this topic is held without a gap.
    pub fn unbroken_from(&self, topic: TopicId, t: Stamp) -> Option<Stamp> {
        let index = &self.topics[topic as usize];
        let mut floor = None;
        let mut at = t;
        while let Some(covered) = index
            .sets
            .iter()
            .find_map(|&set| self.sets[set].covered.at(at))
        {
            floor = Some(covered.start);
            match before(covered.start) {
                Some(earlier) => at = earlier,
                None => break,
            }
        }
        floor
    }

    /// Whether everything up to `t` is known of a topic and it has no message there.
    pub fn is_known_empty(&self, topic: TopicId, t: Stamp) -> bool {
        self.topics[topic as usize].filled.is_empty()
            && self.unbroken_from(topic, t) == Some(Stamp::MIN)
    }

    /// The range of the block that covers this topic at `at`.
    pub fn block_at(&self, topic: TopicId, at: Stamp) -> Option<TimeRange> {
        let sets = &self.topics[topic as usize].sets;
        sets.iter().find_map(|&set| self.sets[set].range_at(at))
    }

    /// Remembers an answer of the source: between it and `t` there is no other message.
    pub fn remember(&mut self, topic: TopicId, t: Stamp, answer: Option<Remembered>) {
        let from = answer
            .as_ref()
            .map_or(Stamp::MIN, |known| known.row.log_time);
        if from > t {
            return;
        }
        if let Some(fact) = self.topics[topic as usize].facts.get_mut(&from) {
            fact.through = fact.through.max(t);
            return;
        }
        let payload = answer
            .as_ref()
            .map_or(0, |known| known.payload.len() as u64);
        let bytes = FACT_COST + payload;
        let allowed = self.budget.limit() / FACTS_BUDGET_DIVISOR;
        if bytes > allowed {
            return;
        }
        while self.fact_bytes + bytes > allowed && self.forget_oldest_fact() {}
        let mut charge = self.budget.nothing();
        if !self.reserve(&mut charge, bytes, HeadClass::Scrub) {
            return;
        }
        self.fact_bytes += bytes;
        self.facts_in_order.push_back((topic, from));
        let fact = Fact {
            through: t,
            answer,
            charge,
        };
        self.topics[topic as usize].facts.insert(from, fact);
    }

    pub fn forget_oldest_fact(&mut self) -> bool {
        while let Some((topic, from)) = self.facts_in_order.pop_front() {
            if let Some(fact) = self.topics[topic as usize].facts.remove(&from) {
                self.fact_bytes -= fact.charge.bytes();
                return true;
            }
        }
        false
    }

    /// Bytes of all facts together, counted anew.
    pub fn measured_facts(&self) -> u64 {
        let facts = self.topics.iter().flat_map(|index| index.facts.values());
        facts.map(|fact| fact.charge.bytes()).sum()
    }

    /// Topics' names, as the disk tier keeps them.
    pub fn stored_names(&self, topics: &TopicSet) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = topics
            .iter()
            .map(|topic| Arc::clone(self.names.name(topic)))
            .collect();
        // Numbers differ from process to process.
        names.sort_unstable();
        names
    }

    pub fn block_count(&self) -> usize {
        self.sets.iter().map(|set| set.blocks.len()).sum()
    }

    pub fn flight(&mut self, id: u64) -> Option<&mut Flight> {
        self.fetches.iter_mut().find(|flight| flight.fetch.id == id)
    }

    fn set_of(&mut self, topics: &TopicSet) -> usize {
        if let Some(&index) = self.by_set.get(topics) {
            return index;
        }
        if self.sets.len() >= PRUNE_SETS_ABOVE {
            self.drop_empty_sets();
        }
        let index = self.sets.len();
        for topic in topics.iter() {
            self.topics[topic as usize].sets.push(index);
        }
        self.sets.push(BlockSet {
            topics: topics.clone(),
            blocks: BTreeMap::new(),
            covered: Coverage::default(),
            scans: BTreeSet::new(),
        });
        self.by_set.insert(topics.clone(), index);
        index
    }

    fn drop_empty_sets(&mut self) {
        self.sets.retain(|set| !set.blocks.is_empty());
        self.by_set.clear();
        for index in &mut self.topics {
            index.sets.clear();
        }
        for (number, set) in self.sets.iter().enumerate() {
            self.by_set.insert(set.topics.clone(), number);
            for topic in set.topics.iter() {
                self.topics[topic as usize].sets.push(number);
            }
        }
    }
}

impl BlockSet {
    /// The block that holds `t`.
    pub fn at(&self, t: Stamp) -> Option<&Arc<Block>> {
        let (_, slot) = self.blocks.range(..=t).next_back()?;
        (t <= slot.end).then_some(&slot.block)
    }

    fn range_at(&self, t: Stamp) -> Option<TimeRange> {
        let (&start, slot) = self.blocks.range(..=t).next_back()?;
        (t <= slot.end).then(|| TimeRange::new(start, slot.end))
    }

    fn overlaps(&self, range: TimeRange) -> bool {
        self.last_in(range).is_some()
    }

    fn last_in(&self, range: TimeRange) -> Option<Stamp> {
        // Blocks do not overlap: the last one to begin by the end of the range also ends last.
        let (&last, slot) = self.blocks.range(..=range.end).next_back()?;
        (slot.end >= range.start).then_some(last)
    }
}

/// What a lookup of one topic found that also helps with the next topic at the same time.
#[derive(Default)]
pub(crate) struct Hint<'a> {
    /// A block that covers the time, and how many of its rows are at or before it.
    block: Option<(&'a Arc<Block>, usize)>,
    covered: Option<(usize, TimeRange)>,
}

impl<'a> Hint<'a> {
    /// The topic's last row at or before the time in the hinted block, if it has one.
    fn last_of(&self, topic: TopicId) -> Option<(&'a Arc<Block>, usize)> {
        let (block, place) = self.block?;
        let places = block.rows_of(topic);
        let count = places.count_below(place);
        (count > 0).then(|| (block, places.get(count - 1)))
    }

    /// The topic's last row at or before `t` in a block that has rows of it.
    fn last_in(
        &mut self,
        block: &'a Arc<Block>,
        topic: TopicId,
        t: Stamp,
    ) -> Option<(&'a Arc<Block>, usize)> {
        let place = block.span(TimeRange::new(Stamp::MIN, t)).end;
        if block.range.contains(t) {
            self.block = Some((block, place));
        }
        let places = block.rows_of_filled(topic);
        let count = places.count_below(place);
        (count > 0).then(|| (block, places.get(count - 1)))
    }
}
