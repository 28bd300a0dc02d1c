//! What a [`Recent`](super::Recent) holds, under its lock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use asof_core::{
    Channel, ChannelSummary, FollowEnd, Message, Problem, ProblemKind, Query, RecentSummary, Stamp,
    Summary, TimeRange, Topics,
};

use super::RecentStats;
use super::builder::{Builder, Later};
use crate::health::goes_on;
use crate::{Bounds, StampOptions};

#[derive(Debug, Default)]
pub(super) struct Store {
    lanes: Vec<Lane>,
    by_topic: BTreeMap<String, usize>,
    /// The lane of each held message, in order: each lane's messages are in the same order.
    log: VecDeque<u32>,
    /// The sequence number of the next message.
    pub next: u64,
    newest: Option<Stamp>,
    /// How log times are judged.
    pub stamps: StampOptions,
    doubt: Option<Doubt>,
    /// Bytes of the last messages that are carried.
    carried_bytes: u64,
    pub stats: RecentStats,
    pub is_connected: bool,
    /// Why the stream ended.
    pub end: Option<FollowEnd>,
    /// Waiting followers.
    pub waiting: usize,
    problems: Vec<Problem>,
    /// How often the clock was set back.
    epoch: u64,
    /// Counts changes that the summary shows beside messages: channels, problems, the connection.
    changes: u64,
    /// The cached summary, by `next` and `changes`.
    summary: Option<((u64, u64), Arc<Summary>)>,
}

/// The messages of one topic.
#[derive(Debug, Default)]
struct Lane {
    entries: VecDeque<Entry>,
    /// The last dropped message.
    carried: Option<Entry>,
    channels: Vec<Arc<Channel>>,
    /// Dropped messages: the number of the first held entry.
    evicted: u64,
    /// Whether a log time far ahead was reported for it.
    has_been_ahead: bool,
}

/// The newest messages, while their log times are far ahead of all others and nothing has confirmed them.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    /// The newest log time before them.
    trusted: Stamp,
    messages: usize,
}

#[derive(Debug, Clone)]
struct Entry {
    order: u64,
    /// Bytes that it keeps alive.
    bytes: u64,
    message: Message,
    /// What makes the message's payload, where that is done for its first reader.
    later: Option<Later>,
}

/// A follower's position.
#[derive(Debug)]
pub(super) struct Cursor {
    /// For each lane, the number of the next message; lanes added since start with their first.
    places: Vec<u64>,
    epoch: u64,
}

/// What was dropped, to be freed without the lock. Usually one message, which costs no allocation.
#[derive(Debug, Default)]
pub(super) struct Gone {
    one: Option<Entry>,
    more: Vec<Entry>,
}

impl Gone {
    fn push(&mut self, entry: Entry) {
        if self.one.is_none() {
            self.one = Some(entry);
        } else {
            self.more.push(entry);
        }
    }
}

/// Overhead of an entry beside its payload: itself, its line in the log, and the slack of both.
const ENTRY_OVERHEAD: u64 = size_of::<Entry>() as u64 + 40;
/// One part in so many of the bytes may be last messages of topics that are older than everything else.
const CARRIED_PART: u64 = 4;
/// Overhead of a topic beside its name.
const LANE_OVERHEAD: u64 = size_of::<Lane>() as u64 + 64;
/// The most topics; more than any robot has.
const MAX_TOPICS: usize = 10_000;
/// The most channels of a topic; more than one is a mistake, and an endless number an attack.
const MAX_CHANNELS: usize = 8;
/// The most problems listed.
const MAX_PROBLEMS: usize = 100;
/// After this many messages in a row that are far ahead, the clock was set forward.
const MAX_DOUBTED: usize = 3;

impl Store {
    pub fn push(
        &mut self,
        (mut message, later): (Message, Option<Later>),
        bytes: u64,
        bounds: Bounds,
        gone: &mut Gone,
    ) {
        let Some(lane) = self.lane_of(&message.channel.topic) else {
            self.stats.counters.refused += 1;
            self.changes += 1;
            return;
        };
        if message.log_time == Stamp::EPOCH {
            self.stats.counters.zero += 1;
            if self.stamps.refuse_zero {
                self.stats.counters.refused += 1;
                self.changes += 1;
                return;
            }
        }
        self.judge(message.log_time, bounds);
        if let Some(newest) = self.newest {
            let back = newest.since(message.log_time);
            let jump = bounds.restart_after().unwrap_or_default().as_nanos();
            if back > 0 && u128::from(back.unsigned_abs()) > jump {
                self.start_over(back, gone);
            } else if back >= 0 {
                message.log_time = newest.plus_nanos(1);
                self.stats.counters.late += 1;
            }
        }
        self.newest = Some(message.log_time);
        message.channel = self.meet(lane, &message.channel);
        let entry = Entry {
            order: self.next,
            bytes: bytes.max(message.payload.len() as u64) + ENTRY_OVERHEAD,
            message,
            later,
        };
        self.next += 1;
        self.stats.messages += 1;
        self.stats.counters.inserted += 1;
        self.stats.bytes += entry.bytes;
        self.lanes[lane].entries.push_back(entry);
        self.log.push_back(lane as u32);
        self.fit(bounds, gone);
    }

    /// Judges a log time before it is added: whether it is far ahead of all others, and whether it confirms or denies
    /// those that were.
    fn judge(&mut self, stamp: Stamp, bounds: Bounds) {
        let Some(newest) = self.newest else {
            return;
        };
        let is_far = stamp.nanos().abs_diff(newest.nanos()) > self.stamps.limit(&bounds);
        match &mut self.doubt {
            None if is_far && stamp > newest => {
                self.doubt = Some(Doubt {
                    trusted: newest,
                    messages: 1,
                });
            }
            None => {}
            Some(doubt) if is_far && stamp > newest && doubt.messages < MAX_DOUBTED => {
                doubt.messages += 1;
            }
            Some(doubt) => {
                let doubt = *doubt;
                self.doubt = None;
                // A stamp may be slightly earlier than the trusted ones.
                let jump = i64::try_from(bounds.restart_after().unwrap_or_default().as_nanos());
                let late = stamp.plus_nanos(jump.unwrap_or(i64::MAX));
                let goes_on = goes_on(
                    stamp.nanos().max(doubt.trusted.nanos()),
                    doubt.trusted.nanos(),
                    newest.nanos(),
                );
                if is_far && stamp < newest && late >= doubt.trusted && goes_on {
                    self.put_back(doubt);
                }
            }
        }
    }

    /// The newest messages were not that far ahead: they are moved right after the one before them.
    fn put_back(&mut self, doubt: Doubt) {
        let first = self.log.len().saturating_sub(doubt.messages);
        let lanes: Vec<usize> = self
            .log
            .iter()
            .skip(first)
            .map(|&lane| lane as usize)
            .collect();
        let mut at = doubt.trusted;
        for (done, &lane) in lanes.iter().enumerate() {
            let later = lanes[done..].iter().filter(|&&other| other == lane).count();
            let lane = &mut self.lanes[lane];
            let place = lane.entries.len() - later;
            at = at.plus_nanos(1);
            lane.entries[place].message.log_time = at;
        }
        // With a small bound on the count, some were dropped already.
        let carried = self
            .lanes
            .iter_mut()
            .filter_map(|lane| lane.carried.as_mut());
        for entry in carried.filter(|entry| entry.message.log_time > at) {
            entry.message.log_time = doubt.trusted;
        }
        self.stats.counters.future += doubt.messages as u64;
        for lane in lanes {
            if !std::mem::replace(&mut self.lanes[lane].has_been_ahead, true) {
                let topic = self.lanes[lane].topic().to_owned();
                let by = self.newest.unwrap_or(at).duration_since(doubt.trusted);
                let text = format!(
                    "a log time was {:.0} s ahead of all others and not confirmed by the next message; it was moved back",
                    by.as_secs_f64()
                );
                self.tell(Problem::whole(ProblemKind::BadTime, text).on_topic(&topic));
            }
        }
        self.newest = Some(at);
        self.changes += 1;
    }

    /// The newest log time that is not in doubt.
    pub fn trusted(&self) -> Option<Stamp> {
        match self.doubt {
            Some(doubt) => Some(doubt.trusted),
            None => self.newest,
        }
    }

    /// Drops what exceeds the bounds. The newest message is always kept.
    pub fn fit(&mut self, bounds: Bounds, gone: &mut Gone) {
        let most = bounds.max_count().unwrap_or(usize::MAX);
        let most_bytes = bounds.max_bytes().unwrap_or(u64::MAX);
        self.fit_carried(most_bytes / CARRIED_PART, gone);
        while self.log.len() > 1 {
            let is_old = match (self.oldest(), self.trusted(), bounds.max_age()) {
                (Some(oldest), Some(newest), Some(age)) => newest.duration_since(oldest) > age,
                _ => false,
            };
            let is_much = self.stats.bytes > most_bytes || self.log.len() > most;
            if !is_old && !is_much {
                return;
            }
            if !is_old {
                self.stats.counters.crowded_out += 1;
            }
            self.let_go(gone);
            self.fit_carried(most_bytes / CARRIED_PART, gone);
        }
    }

    /// Drops the largest of the carried messages until the rest are within this many bytes.
    fn fit_carried(&mut self, most: u64, gone: &mut Gone) {
        while self.carried_bytes > most {
            let weight = |lane: &Lane| lane.carried.as_ref().map_or(0, |entry| entry.bytes);
            let largest = self.lanes.iter_mut().max_by_key(|lane| weight(lane));
            let Some(entry) = largest.and_then(|lane| lane.carried.take()) else {
                return;
            };
            self.carried_bytes -= entry.bytes;
            self.stats.bytes -= entry.bytes;
            self.stats.carried_dropped += 1;
            gone.push(entry);
        }
    }

    fn let_go(&mut self, gone: &mut Gone) {
        let Some(lane) = self.log.pop_front() else {
            return;
        };
        let lane = &mut self.lanes[lane as usize];
        let Some(entry) = lane.entries.pop_front() else {
            return;
        };
        lane.evicted += 1;
        self.stats.messages -= 1;
        self.stats.counters.evicted += 1;
        // It replaces the one carried until now and still counts towards the bytes.
        self.carried_bytes += entry.bytes;
        if let Some(before) = lane.carried.replace(entry) {
            self.carried_bytes -= before.bytes;
            self.stats.bytes -= before.bytes;
            gone.push(before);
        }
    }

    /// The clock was set back: everything received so far belongs to another time.
    fn start_over(&mut self, back: i64, gone: &mut Gone) {
        while !self.log.is_empty() {
            self.let_go(gone);
        }
        for lane in &mut self.lanes {
            if let Some(carried) = lane.carried.take() {
                self.carried_bytes -= carried.bytes;
                self.stats.bytes -= carried.bytes;
                gone.push(carried);
            }
        }
        self.epoch += 1;
        self.doubt = None;
        self.stats.counters.restarts += 1;
        let seconds = back as f64 * 1e-9;
        let text =
            format!("the clock was set back by {seconds:.1} s; earlier messages were dropped");
        self.tell(Problem::whole(ProblemKind::BadTime, text));
    }

    pub fn tell(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
            self.changes += 1;
        }
    }

    pub fn set_connected(&mut self, is_connected: bool) {
        if self.is_connected != is_connected {
            self.is_connected = is_connected;
            self.changes += 1;
        }
    }

    pub fn lane_of(&mut self, topic: &str) -> Option<usize> {
        if let Some(&lane) = self.by_topic.get(topic) {
            return Some(lane);
        }
        if self.lanes.len() >= MAX_TOPICS {
            return None;
        }
        let lane = self.lanes.len();
        self.lanes.push(Lane::default());
        self.by_topic.insert(topic.to_owned(), lane);
        self.stats.bytes += topic.len() as u64 + LANE_OVERHEAD;
        Some(lane)
    }

    /// The channel as it is stored. A channel with a schema replaces its equal without one.
    pub fn meet(&mut self, lane: usize, channel: &Arc<Channel>) -> Arc<Channel> {
        let lane = &mut self.lanes[lane];
        let same = |known: &&Arc<Channel>| Arc::ptr_eq(known, channel) || **known == *channel;
        if let Some(known) = lane.channels.iter().find(same) {
            return Arc::clone(known);
        }
        self.changes += 1;
        self.stats.bytes += weight_of(channel);
        let bare = |known: &Arc<Channel>| {
            known.type_name() == channel.type_name()
                && known.message_encoding == channel.message_encoding
                && !has_schema(known)
        };
        if has_schema(channel)
            && let Some(at) = lane.channels.iter().position(bare)
        {
            let old = std::mem::replace(&mut lane.channels[at], Arc::clone(channel));
            self.stats.bytes -= weight_of(&old);
            for entry in lane.entries.iter_mut().chain(&mut lane.carried) {
                if Arc::ptr_eq(&entry.message.channel, &old) {
                    entry.message.channel = Arc::clone(channel);
                }
            }
            return Arc::clone(channel);
        }
        if lane.channels.len() >= MAX_CHANNELS {
            self.stats.bytes -= weight_of(&lane.channels.remove(0));
        }
        lane.channels.push(Arc::clone(channel));
        Arc::clone(channel)
    }

    pub fn evicted_by_topic(&self) -> BTreeMap<String, u64> {
        let lanes = self.by_topic.iter();
        lanes
            .map(|(topic, &lane)| (topic.clone(), self.lanes[lane].evicted))
            .filter(|(_, evicted)| *evicted > 0)
            .collect()
    }

    fn oldest(&self) -> Option<Stamp> {
        let lane = &self.lanes[*self.log.front()? as usize];
        Some(lane.entries.front()?.message.log_time)
    }

    fn range(&self) -> TimeRange {
        match (self.oldest(), self.newest) {
            (Some(oldest), Some(newest)) => TimeRange::new(oldest, newest),
            _ => TimeRange::EMPTY,
        }
    }

    pub fn summary(&mut self, bounds: Bounds) -> Arc<Summary> {
        let key = (self.next, self.changes);
        if let Some((known, summary)) = &self.summary
            && *known == key
        {
            return Arc::clone(summary);
        }
        let lanes = self.by_topic.values().map(|&lane| &self.lanes[lane]);
        let channels = lanes.flat_map(|lane| {
            let counts = lane.counts().into_iter().zip(&lane.channels);
            counts.map(|(messages, channel)| ChannelSummary {
                channel: Arc::clone(channel),
                messages: Some(messages),
            })
        });
        let recent = RecentSummary {
            age: bounds.max_age(),
            budget: bounds.max_bytes(),
            bytes: self.stats.bytes,
            evicted: self.stats.counters.evicted,
            crowded_out: self.stats.counters.crowded_out,
            refused: self.stats.counters.refused,
            evicted_by_topic: self.evicted_by_topic(),
            is_connected: self.is_connected,
        };
        let summary = Arc::new(Summary {
            size: self.stats.bytes,
            range: self.range(),
            messages: Some(self.stats.messages),
            channels: channels.collect(),
            problems: self.problems.clone(),
            recent: Some(recent),
            ..Summary::empty("live")
        });
        self.summary = Some((key, Arc::clone(&summary)));
        summary
    }

    pub fn latest_at(&self, topics: &Topics, at: Stamp) -> Builder {
        let mut batch = Builder::default();
        for lane in self.wanted(topics) {
            if let Some(entry) = self.lanes[lane].as_of(at) {
                entry.add_to(&mut batch);
            }
        }
        batch
    }

    fn wanted(&self, topics: &Topics) -> Vec<usize> {
        match topics {
            Topics::All => (0..self.lanes.len()).collect(),
            Topics::Named(names) => {
                let mut lanes: Vec<usize> = names
                    .iter()
                    .filter_map(|name| self.by_topic.get(name).copied())
                    .collect();
                lanes.sort_unstable();
                lanes.dedup();
                lanes
            }
        }
    }

    /// The next messages from a time and a sequence number, and where to continue after them.
    pub fn batch(&self, query: &Query, from: (Stamp, u64)) -> Option<(Builder, (Stamp, u64))> {
        let mut heads = Heads::default();
        for lane in self.wanted(&query.topics) {
            let entries = &self.lanes[lane].entries;
            heads.add(
                self,
                lane,
                entries.partition_point(|entry| entry.key() < from),
            );
        }
        let mut batch = Builder::default();
        let mut last = None;
        while let Some((lane, at)) = heads.next_before(query.range.end) {
            let entry = &self.lanes[lane].entries[at];
            entry.add_to(&mut batch);
            last = Some(entry.key());
            heads.add(self, lane, at + 1);
            if batch.is_full() {
                break;
            }
        }
        let (time, order) = last?;
        Some((batch, (time, order + 1)))
    }

    /// The position right before the first message at or after `start`.
    pub fn cursor(&self, start: Stamp) -> Cursor {
        let place = |lane: &Lane| {
            let entries = &lane.entries;
            let before = entries.partition_point(|entry| entry.message.log_time < start);
            lane.evicted + before as u64
        };
        Cursor {
            places: self.lanes.iter().map(place).collect(),
            epoch: self.epoch,
        }
    }

    /// Whether the clock was set back since the last call.
    pub fn has_restarted(&self, cursor: &mut Cursor) -> bool {
        std::mem::replace(&mut cursor.epoch, self.epoch) != self.epoch
    }

    /// The next batch of messages that a follower has not seen; those it was too late for are counted.
    pub fn advance(
        &self,
        query: &Query,
        cursor: &mut Cursor,
        missed: &mut BTreeMap<String, u64>,
    ) -> Option<Builder> {
        cursor.places.resize(self.lanes.len(), 0);
        let mut heads = Heads::default();
        for lane in self.wanted(&query.topics) {
            let (held, place) = (&self.lanes[lane], &mut cursor.places[lane]);
            if *place < held.evicted {
                *missed.entry(held.topic().to_owned()).or_default() += held.evicted - *place;
                *place = held.evicted;
            }
            let mut at = (*place - held.evicted) as usize;
            // After a restart, messages may be before the range again.
            while let Some(entry) = held.entries.get(at)
                && entry.message.log_time < query.range.start
            {
                at += 1;
            }
            heads.add(self, lane, at);
        }
        let mut batch = Builder::default();
        while let Some((lane, at)) = heads.next_before(query.range.end) {
            let held = &self.lanes[lane];
            held.entries[at].add_to(&mut batch);
            cursor.places[lane] = held.evicted + at as u64 + 1;
            heads.add(self, lane, at + 1);
            if batch.is_full() {
                break;
            }
        }
        (!batch.is_empty()).then_some(batch)
    }
}

/// The next message of each lane, earliest first.
#[derive(Default)]
struct Heads(BinaryHeap<Reverse<Head>>);

/// A message's log time and sequence number, its lane, and its index there.
type Head = ((Stamp, u64), usize, usize);

impl Heads {
    fn add(&mut self, store: &Store, lane: usize, at: usize) {
        if let Some(entry) = store.lanes[lane].entries.get(at) {
            self.0.push(Reverse((entry.key(), lane, at)));
        }
    }

    fn next_before(&mut self, end: Stamp) -> Option<(usize, usize)> {
        let Reverse(((time, _), lane, at)) = self.0.pop()?;
        (time <= end).then_some((lane, at))
    }
}

impl Lane {
    /// The number of held messages of each channel. Those of a channel that was forgotten count with the last.
    fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.channels.len()];
        let Some(last) = self.channels.len().checked_sub(1) else {
            return counts;
        };
        if last == 0 {
            counts[0] = self.entries.len() as u64;
            return counts;
        }
        for entry in &self.entries {
            let own = &entry.message.channel;
            let mut channels = self.channels.iter();
            let at = channels.position(|channel| Arc::ptr_eq(channel, own));
            counts[at.unwrap_or(last)] += 1;
        }
        counts
    }

    fn topic(&self) -> &str {
        self.channels.last().map_or("", |channel| &channel.topic)
    }

    fn as_of(&self, at: Stamp) -> Option<&Entry> {
        let later = self
            .entries
            .partition_point(|entry| entry.message.log_time <= at);
        match later.checked_sub(1) {
            Some(last) => self.entries.get(last),
            None => self
                .carried
                .as_ref()
                .filter(|entry| entry.message.log_time <= at),
        }
    }
}

impl Entry {
    fn key(&self) -> (Stamp, u64) {
        (self.message.log_time, self.order)
    }

    fn add_to(&self, batch: &mut Builder) {
        batch.add(&self.message, self.order, self.later.as_ref());
    }
}

fn has_schema(channel: &Channel) -> bool {
    let schema = channel.schema.as_ref();
    schema.is_some_and(|schema| !schema.data.is_empty())
}

/// Bytes that a channel keeps alive.
fn weight_of(channel: &Channel) -> u64 {
    let schema = channel.schema.as_ref().map_or(0, |schema| {
        schema.data.len() + schema.name.len() + schema.encoding.len()
    });
    let pairs = channel.metadata.iter();
    let metadata: usize = pairs.map(|(key, value)| key.len() + value.len() + 64).sum();
    let names = channel.topic.len() + channel.message_encoding.len();
    (size_of::<Channel>() + schema + metadata + names) as u64
}
