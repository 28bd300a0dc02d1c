//! A check, not a measurement: approximate and exact time must find the same sets as message_filters, in the same order,
//! and a window must answer as its cache does.

use asof_core::Stamp;
use asof_window::sync::{ApproximateTime, DropReason, ExactTime, SyncEvent, Synchronizer};
use asof_window::{Bounds, Entry, MessageFiltersCache, Window};

use super::Random;
use super::message_filters::{ExactRun, MessageFilters, Question};
use crate::harness::Bench;

const STREAMS: u64 = 100;
const MESSAGES: usize = 5_000;

/// A random robot: rates, jitter, losses, queue sizes, penalties and bounds.
struct Stream {
    topics_count: usize,
    queue: u32,
    penalty: f64,
    max_interval: Option<i64>,
    lower_bounds: Vec<i64>,
    topics: Vec<u8>,
    stamps: Vec<i64>,
}

pub fn run(bench: &mut Bench) {
    let peer = match MessageFilters::load() {
        Ok(peer) => peer,
        Err(problem) => {
            eprintln!("SKIPPED: message_filters cannot be had here: {problem}");
            return;
        }
    };
    let (mut sets, mut different) = (0, 0);
    for seed in 1..=STREAMS {
        let stream = Stream::random(seed);
        let theirs = peer.approximate(
            stream.topics_count as u32,
            stream.queue,
            stream.penalty,
            stream.max_interval,
            &stream.lower_bounds,
            &stream.topics,
            &stream.stamps,
        );
        let (our_sets, our_hash) = stream.ours();
        sets += our_sets;
        if (our_sets, our_hash) != (theirs.sets, theirs.hash) {
            different += 1;
            eprintln!(
                "stream {seed} ({} topics, queue {}, penalty {}): {our_sets} sets, message_filters {}",
                stream.topics_count, stream.queue, stream.penalty, theirs.sets
            );
        }
    }
    if bench.json {
        println!(
            "{}",
            serde_json::json!({"suite": bench.suite, "streams": STREAMS, "sets": sets, "different": different})
        );
    } else {
        println!(
            "{STREAMS} random streams, {sets} sets, {different} streams differ from message_filters"
        );
    }
    assert_eq!(
        different, 0,
        "approximate time differs from message_filters"
    );
    let sets: u64 = (1..=STREAMS).map(|seed| exact(&peer, seed)).sum();
    let answers: usize = (1..=STREAMS).map(|seed| cache(&peer, seed)).sum();
    if !bench.json {
        println!(
            "{STREAMS} random streams, {sets} exact sets and {answers} answers of a cache as message_filters has them"
        );
    }
}

const HASH: u64 = 1_469_598_103_934_665_603;

fn fold(hash: &mut u64, value: u64) {
    *hash = (*hash ^ value).wrapping_mul(1_099_511_628_211);
}

/// Exact time on a random stream with losses, late and repeated stamps; how many sets both find.
fn exact(peer: &MessageFilters, seed: u64) -> u64 {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let topics_count = 2 + random.below(8) as usize;
    let queue = random.below(12) as u32;
    let loss = random.below(20);
    let late = 1 + random.below(6);
    let (mut topics, mut stamps) = (Vec::new(), Vec::new());
    for round in 10..400 {
        for topic in 0..topics_count {
            for _ in 0..1 + u64::from(random.below(30) == 0) {
                if random.below(100) >= loss {
                    topics.push(topic as u8);
                    stamps.push((round - random.below(late)) as i64 * 1_000_000);
                }
            }
        }
    }
    let theirs = peer.exact(topics_count as u32, queue, &topics, &stamps);
    let mut ours = ExactRun {
        sets: 0,
        hash: HASH,
        drops: 0,
    };
    let mut sync = ExactTime::new(topics_count, queue as usize);
    for (id, (&topic, &stamp)) in topics.iter().zip(&stamps).enumerate() {
        let mut emit = |event| match event {
            SyncEvent::Matched(set) => {
                ours.sets += 1;
                for message in set {
                    fold(&mut ours.hash, message.value);
                }
            }
            // message_filters does not report a message that is replaced by another.
            SyncEvent::Dropped {
                message, reason, ..
            } if reason != DropReason::Replaced => ours.drops += message.value + 1,
            SyncEvent::Dropped { .. } | SyncEvent::Partial(_) => {}
        };
        sync.add(topic.into(), Stamp::from_nanos(stamp), id as u64, &mut emit);
    }
    assert_eq!(ours, theirs, "exact time, stream {seed}");
    ours.sets
}

/// A window and a cache with the same messages, late ones and equal stamps among them; how many answers are equal.
fn cache(peer: &MessageFilters, seed: u64) -> usize {
    let mut random = Random(seed.wrapping_mul(0xD134_2543_DE82_EF95) | 1);
    let count = 1 + random.below(600) as usize;
    let spread = 1 + random.below(40);
    let stamps: Vec<i64> = (0..count as u64)
        .map(|n| (1_000 + n * 3 + random.below(spread)) as i64 * 1_000)
        .collect();
    // None is evicted: message_filters gives up a newer message for a late one.
    let theirs = peer.cache(count as u32 + 1);
    theirs.add(&stamps);
    let window = Window::new(Bounds::count(count + 1));
    for (id, &stamp) in stamps.iter().enumerate() {
        window.insert(Stamp::from_nanos(stamp), id as u64);
    }
    let last = 1_100 + count as u64 * 3;
    let mut instants = || -> Vec<i64> {
        (0..200)
            .map(|_| random.below(last) as i64 * 1_000)
            .collect()
    };
    let (starts, ends) = (instants(), instants());
    let questions = [
        Question::Before,
        Question::After,
        Question::Interval,
        Question::Surrounding,
        Question::Ends,
    ];
    for question in questions {
        let mut hash = HASH;
        for (&start, &end) in starts.iter().zip(&ends) {
            answer(&window, question, start.into(), end.into(), &mut hash);
        }
        let wanted = theirs.ask(question, &starts, &ends);
        assert_eq!(hash, wanted, "{question:?} of a cache, stream {seed}");
    }
    questions.len() * starts.len()
}

fn answer(window: &Window<u64>, question: Question, start: Stamp, end: Stamp, hash: &mut u64) {
    let one = |found: Option<Entry<u64>>, hash: &mut u64| {
        fold(hash, found.map_or(u64::MAX, |entry| *entry));
    };
    let many = |found: Vec<Entry<u64>>, hash: &mut u64| {
        fold(hash, found.len() as u64);
        found.iter().for_each(|entry| fold(hash, **entry));
    };
    match question {
        Question::Before => one(window.get_elem_before_time(start), hash),
        Question::After => one(window.get_elem_after_time(start), hash),
        Question::Interval => many(window.get_interval(start, end), hash),
        Question::Surrounding => many(window.get_surrounding_interval(start, end), hash),
        Question::Ends => {
            fold(hash, window.get_oldest_time().nanos() as u64);
            fold(hash, window.get_latest_time().nanos() as u64);
        }
    }
}

impl Stream {
    fn random(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let topics_count = 2 + random.below(8) as usize;
        let periods: Vec<i64> = (0..topics_count)
            .map(|_| 2_000_000 + random.below(100_000_000) as i64)
            .collect();
        // Some streams are exact to the nanosecond, so that ties happen.
        let grid = [1, 1, 1_000, 1_000_000][random.below(4) as usize];
        let jitter = 1 + random.below(4_000_000);
        let loss = random.below(10);
        let mut next: Vec<i64> = periods
            .iter()
            .map(|&period| random.below(period as u64) as i64)
            .collect();
        let mut last = vec![0; topics_count];
        let (mut topics, mut stamps) = (Vec::new(), Vec::new());
        while stamps.len() < MESSAGES {
            let topic = (0..topics_count)
                .min_by_key(|&topic| next[topic])
                .unwrap_or(0);
            let stamp = (next[topic] + random.below(jitter) as i64) / grid * grid;
            next[topic] += periods[topic];
            // In order within each topic, as the policy demands.
            if random.below(100) < loss || stamp <= last[topic] {
                continue;
            }
            last[topic] = stamp;
            topics.push(topic as u8);
            stamps.push(1_000_000_000_000 + stamp);
        }
        let bounded = random.below(2) == 0;
        let lower_bounds = periods
            .iter()
            .map(|&period| if bounded { period / 2 } else { 0 })
            .collect();
        Stream {
            topics_count,
            queue: 1 + random.below(40) as u32,
            penalty: [0.1, 0.0, 0.5, 2.0][random.below(4) as usize],
            max_interval: (random.below(2) == 0)
                .then(|| 1_000_000 + random.below(60_000_000) as i64),
            lower_bounds,
            topics,
            stamps,
        }
    }

    /// How many sets we find, and the same hash over their ids as the C++ side's.
    fn ours(&self) -> (u64, u64) {
        let mut sync = ApproximateTime::new(self.topics_count, self.queue as usize)
            .with_age_penalty(self.penalty);
        if let Some(nanos) = self.max_interval {
            sync = sync.with_max_interval(std::time::Duration::from_nanos(nanos as u64));
        }
        for (topic, &nanos) in self.lower_bounds.iter().enumerate() {
            sync = sync.with_lower_bound(topic, std::time::Duration::from_nanos(nanos as u64));
        }
        let (mut sets, mut hash) = (0, 1_469_598_103_934_665_603u64);
        for (id, (&topic, &stamp)) in self.topics.iter().zip(&self.stamps).enumerate() {
            sync.add(
                topic.into(),
                Stamp::from_nanos(stamp),
                id as u64,
                &mut |event| {
                    if let SyncEvent::Matched(set) = event {
                        sets += 1;
                        for message in set {
                            hash = (hash ^ message.value).wrapping_mul(1_099_511_628_211);
                        }
                    }
                },
            );
        }
        (sets, hash)
    }
}
