//! A source that can be anything, and remembers what it was asked.
#![allow(dead_code, missing_docs)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use asof_blocks::BlockCache;
use asof_core::{
    Batch, Batches, Channel, ChannelSummary, Query, Row, Source, SourceError, Stamp, Summary,
    TimeRange, Topics,
};
use bytes::Bytes;

/// One message of a [`Recording`]: its number in the vector is its place in the source.
#[derive(Debug, Clone)]
pub struct Said {
    pub topic: usize,
    pub time: i64,
    pub payload: Bytes,
}

/// What a recording's summary tells of its channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists {
    /// All of them, and how many messages each has.
    Counted,
    /// All of them.
    Uncounted,
    /// Only the first ones.
    Some(usize),
    Nothing,
}

/// A recording in memory.
pub struct Recording {
    channels: Arc<[Arc<Channel>]>,
    /// In the order of time, then place.
    sorted: Vec<(Row, Bytes)>,
    batch: usize,
    summary: Arc<Summary>,
    pub asked: Mutex<Vec<Query>>,
    pub lookups: AtomicUsize,
    pub delivered: AtomicUsize,
    /// Messages until the source fails; `usize::MAX` for never.
    pub fail_after: AtomicUsize,
    pub fail_latest: AtomicBool,
    /// Calls of `latest_at` until one fails; `usize::MAX` for never.
    pub fail_latest_after: AtomicUsize,
    /// Set, one message of so many comes a batch too late.
    pub disorder: AtomicUsize,
    /// Set, every read is held against what the cache says it has.
    pub watcher: OnceLock<BlockCache>,
    pub violations: Mutex<Vec<String>>,
    /// Set while the cache may ask for what it holds: for names that it does not keep.
    pub is_unwatched: AtomicBool,
}

pub fn topic(number: usize) -> String {
    format!("/t{number}")
}

pub fn channels(topics: usize) -> Arc<[Arc<Channel>]> {
    let channel = |number| {
        Arc::new(Channel {
            topic: topic(number),
            ..Channel::default()
        })
    };
    (0..topics).map(channel).collect()
}

impl Recording {
    pub fn new(topics: usize, batch: usize, messages: &[Said]) -> Arc<Self> {
        Recording::that_lists(Lists::Counted, topics, batch, messages)
    }

    pub fn that_lists(lists: Lists, topics: usize, batch: usize, messages: &[Said]) -> Arc<Self> {
        let channels = channels(topics);
        let mut sorted: Vec<(Row, Bytes)> = messages
            .iter()
            .enumerate()
            .map(|(order, said)| {
                let row = Row {
                    log_time: said.time.into(),
                    publish_time: (said.time - 1).into(),
                    order: order as u64,
                    offset: 0,
                    len: said.payload.len() as u64,
                    sequence: order as u32,
                    channel: said.topic as u32,
                    buffer: 0,
                };
                (row, said.payload.clone())
            })
            .collect();
        sorted.sort_by_key(|(row, _)| (row.log_time, row.order));
        let mut summary = Summary::empty("test");
        for (row, _) in &sorted {
            summary.range = summary.range.cover_stamp(row.log_time);
        }
        let count_of = |number: usize| {
            let rows = sorted
                .iter()
                .filter(|(row, _)| row.channel as usize == number);
            rows.count() as u64
        };
        let listed = match lists {
            Lists::Counted | Lists::Uncounted => topics,
            Lists::Some(count) => count.min(topics),
            Lists::Nothing => 0,
        };
        summary.messages = (lists == Lists::Counted).then_some(sorted.len() as u64);
        summary.channels = channels[..listed]
            .iter()
            .enumerate()
            .map(|(number, channel)| ChannelSummary {
                channel: Arc::clone(channel),
                messages: (lists == Lists::Counted).then(|| count_of(number)),
            })
            .collect();
        Arc::new(Recording {
            channels,
            sorted,
            batch: batch.max(1),
            summary: Arc::new(summary),
            asked: Mutex::default(),
            lookups: AtomicUsize::new(0),
            delivered: AtomicUsize::new(0),
            fail_after: AtomicUsize::new(usize::MAX),
            fail_latest: AtomicBool::new(false),
            fail_latest_after: AtomicUsize::new(usize::MAX),
            disorder: AtomicUsize::new(usize::MAX),
            watcher: OnceLock::new(),
            violations: Mutex::default(),
            is_unwatched: AtomicBool::new(false),
        })
    }

    /// One message per topic and tick.
    pub fn regular(topics: usize, ticks: i64, payload: usize) -> Arc<Self> {
        let mut said = Vec::new();
        for tick in 0..ticks {
            for topic in 0..topics {
                let payload = vec![(tick as usize * 31 + topic) as u8; payload];
                said.push(Said {
                    topic,
                    time: tick * 10 + topic as i64 % 10,
                    payload: payload.into(),
                });
            }
        }
        Recording::new(topics, 16, &said)
    }

    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// What a reader without any cache would see.
    pub fn naive(&self, query: &Query) -> Vec<Seen> {
        let matching = self.matching(query);
        matching.map(|(row, payload)| seen(row, payload)).collect()
    }

    pub fn naive_latest(&self, topics: &Topics, at: Stamp) -> Vec<Seen> {
        let query = Query {
            topics: topics.clone(),
            range: TimeRange::new(Stamp::MIN, at),
        };
        let mut last = BTreeMap::new();
        for (row, payload) in self.matching(&query) {
            last.insert(row.channel, (row, payload));
        }
        let mut last: Vec<Seen> = last
            .values()
            .map(|(row, payload)| seen(row, payload))
            .collect();
        last.sort();
        last
    }

    pub fn reads(&self) -> usize {
        self.asked.lock().expect("asked").len()
    }

    pub fn last_asked(&self) -> Option<Query> {
        self.asked.lock().expect("asked").last().cloned()
    }

    pub fn lookups(&self) -> usize {
        self.lookups.load(Ordering::Relaxed)
    }

    pub fn delivered(&self) -> usize {
        self.delivered.load(Ordering::Relaxed)
    }

    fn matching<'a>(&'a self, query: &'a Query) -> impl Iterator<Item = &'a (Row, Bytes)> {
        self.sorted.iter().filter(|(row, _)| {
            query.matches(&self.channels[row.channel as usize].topic, row.log_time)
        })
    }

    /// The one that asks for what is held has forgotten it.
    fn watch(&self, query: &Query) {
        let (Some(cache), Topics::Named(names)) = (self.watcher.get(), &query.topics) else {
            return;
        };
        if self.is_unwatched.load(Ordering::Relaxed) {
            return;
        }
        for name in names.iter() {
            let loaded = cache.loaded(&Topics::named([name]));
            if let Some(held) = loaded.ranges.iter().find(|held| held.overlaps(query.range)) {
                let violation = format!("{name} {:?} asked, {held:?} held", query.range);
                self.violations.lock().expect("violations").push(violation);
            }
        }
    }

    fn fails(&self) -> Option<SourceError> {
        count_down(&self.fail_after).then(failure)
    }

    /// Every so many-th message comes after the next batch: the promise of order is broken.
    fn disordered(&self, rows: Vec<(Row, Bytes)>) -> Vec<(Row, Bytes)> {
        let every = self.disorder.load(Ordering::Relaxed);
        if every == usize::MAX {
            return rows;
        }
        let mut late: Vec<(usize, (Row, Bytes))> = Vec::new();
        let mut out = Vec::new();
        for (number, row) in rows.into_iter().enumerate() {
            while late.first().is_some_and(|(due, _)| *due <= number) {
                out.push(late.remove(0).1);
            }
            if number % every == every - 1 {
                late.push((number + 2 * self.batch + 1, row));
            } else {
                out.push(row);
            }
        }
        out.extend(late.into_iter().map(|(_, row)| row));
        out
    }
}

/// Whether the count has come to its end; it never fails again then.
fn count_down(left: &AtomicUsize) -> bool {
    match left.load(Ordering::Relaxed) {
        usize::MAX => false,
        0 => {
            left.store(usize::MAX, Ordering::Relaxed);
            true
        }
        more => {
            left.store(more - 1, Ordering::Relaxed);
            false
        }
    }
}

pub fn failure() -> SourceError {
    SourceError::Unreadable {
        place: "test".into(),
        reason: "injected".into(),
    }
}

/// The source as the cache gets it.
pub struct Shared(pub Arc<Recording>);

impl Source for Shared {
    fn summary(&self) -> Arc<Summary> {
        Arc::clone(&self.0.summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let recording = Arc::clone(&self.0);
        recording.watch(query);
        recording.asked.lock().expect("asked").push(query.clone());
        if let Some(error) = recording.fails() {
            return Err(error);
        }
        let rows: Vec<(Row, Bytes)> = recording.matching(query).cloned().collect();
        let rows = recording.disordered(rows);
        let mut at = 0;
        let mut is_over = false;
        Ok(Box::new(std::iter::from_fn(move || {
            if at >= rows.len() || is_over {
                return None;
            }
            if let Some(error) = recording.fails() {
                is_over = true;
                return Some(Err(error));
            }
            let part = &rows[at..rows.len().min(at + recording.batch)];
            at += part.len();
            recording.delivered.fetch_add(part.len(), Ordering::Relaxed);
            Some(Ok(batch_of(&recording.channels, part)))
        })))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.0.lookups.fetch_add(1, Ordering::Relaxed);
        let fails = count_down(&self.0.fail_latest_after);
        if fails || self.0.fail_latest.load(Ordering::Relaxed) {
            return Err(failure());
        }
        let query = Query {
            topics: topics.clone(),
            range: TimeRange::new(Stamp::MIN, at),
        };
        let mut last = BTreeMap::new();
        for (row, payload) in self.0.matching(&query) {
            last.insert(row.channel, (*row, payload.clone()));
        }
        let rows: Vec<_> = last.into_values().collect();
        Ok(batch_of(&self.0.channels, &rows))
    }
}

/// All payloads in one buffer, as a chunk has them.
pub fn batch_of(channels: &Arc<[Arc<Channel>]>, part: &[(Row, Bytes)]) -> Batch {
    let mut buffer = vec![0xAA; 7];
    let rows = part
        .iter()
        .map(|(row, payload)| {
            let offset = buffer.len() as u64;
            buffer.extend_from_slice(payload);
            Row { offset, ..*row }
        })
        .collect();
    Batch::new(Arc::clone(channels), vec![buffer.into()], rows)
}

/// A message as it can be compared: time, place, topic, times and payload.
pub type Seen = (i64, u64, String, i64, u32, Vec<u8>);

fn seen(row: &Row, payload: &Bytes) -> Seen {
    (
        row.log_time.nanos(),
        row.order,
        topic(row.channel as usize),
        row.publish_time.nanos(),
        row.sequence,
        payload.to_vec(),
    )
}

pub fn seen_in(batch: &Batch) -> Vec<Seen> {
    let view = |message: asof_core::MessageRef<'_>| {
        (
            message.log_time.nanos(),
            message.order,
            message.channel.topic.clone(),
            message.publish_time.nanos(),
            message.sequence,
            message.payload.to_vec(),
        )
    };
    batch.iter().map(view).collect()
}

pub fn read_all(cache: &BlockCache, query: &Query) -> Vec<Seen> {
    let batches = cache.read(query).expect("reads");
    batches
        .flat_map(|batch| seen_in(&batch.expect("a batch")))
        .collect()
}

pub fn range(start: i64, end: i64) -> TimeRange {
    TimeRange::new(start.into(), end.into())
}

pub fn query(topics: &[usize], start: i64, end: i64) -> Query {
    Query::topics(topics.iter().map(|&number| topic(number))).between(range(start, end))
}

pub fn named(topics: &[usize]) -> Topics {
    Topics::named(topics.iter().map(|&number| topic(number)))
}

pub fn assert_sound(cache: &BlockCache) {
    let audit = cache.audit();
    assert!(audit.is_sound(), "{audit:?}");
}
