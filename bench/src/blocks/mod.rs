//! The block cache: CPU time per operation, and its accounts against the allocator's.

mod counting;
mod large_file;
mod source;
mod studio;

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Arc;

use asof_blocks::{BlockCache, CacheOptions, HeadClass, HeadOptions};
use asof_core::{Query, Source, Stamp, TimeRange, Topics};

use crate::harness::{Bench, Contender, contender};
use source::{Ticks, TicksSource, topic};
use studio::Studio;

pub fn run(bench: &mut Bench) {
    let with_peer = [
        "cold_insert_over_source",
        "warm_read_100_topics",
        "backfill_100_topics_100000_messages",
        "step_back_60_frames",
    ];
    let studio = with_peer
        .iter()
        .any(|case| bench.wants(case))
        .then(Studio::prepare);
    let peer = |case| studio.as_ref().and_then(|studio| studio.contender(case));
    cold(bench, &peer);
    warm(bench, &peer);
    latest_at(bench, &peer);
    step_back(bench, &peer);
    many_blocks(bench);
    seeks(bench);
    accounts(bench);
    large_file::run(bench);
}

/// The contender that is compared with asof in a case, if there is one.
type Peer<'a> = &'a dyn Fn(&'static str) -> Option<Contender<'static>>;

/// asof, and the contender that it is compared with.
fn beside<'a>(asof: Contender<'a>, peer: Option<Contender<'static>>) -> Vec<Contender<'a>> {
    let mut contenders = vec![asof];
    contenders.extend(peer);
    contenders
}

/// CPU time of this thread: what others do on the machine does not count.
fn cpu_nanos() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec that lives for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn cpu(work: impl FnOnce()) -> f64 {
    let start = cpu_nanos();
    work();
    (cpu_nanos() - start) as f64
}

fn per<'a>(name: &'a str, operations: u64, mut work: impl FnMut() + 'a) -> Contender<'a> {
    contender(name, move || cpu(&mut work) / operations as f64)
}

/// Reads everything, and looks at every message.
fn drain(batches: impl Iterator<Item = Result<asof_core::Batch, asof_core::SourceError>>) {
    let mut sum = 0;
    for batch in batches {
        for message in batch.expect("reads").iter() {
            sum += message.payload.len() as u64 + message.order;
        }
    }
    black_box(sum);
}

fn cache_over(ticks: &Arc<Ticks>, options: CacheOptions) -> BlockCache {
    BlockCache::new(TicksSource(Arc::clone(ticks)), options)
}

/// Numbers that look random and are the same in every run.
fn dice(seed: u64) -> impl FnMut(i64) -> i64 {
    let mut state = seed | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as i64
    }
}

const MESSAGES: i64 = 200_000;

fn cold(bench: &Bench, peer: Peer<'_>) {
    for (case, payload) in [
        ("cold_insert_over_source", 100),
        ("cold_insert_over_source_1k", 1024),
    ] {
        if !bench.wants(case) {
            continue;
        }
        let ticks = Ticks::new(100, MESSAGES, 1_000_000, payload);
        bench.case(
            case,
            "ns CPU/message",
            15,
            beside(
                contender("asof", || {
                    let bare = cpu(|| {
                        drain(
                            TicksSource(Arc::clone(&ticks))
                                .read(&Query::all())
                                .expect("reads"),
                        )
                    });
                    let cache = cache_over(&ticks, CacheOptions::default());
                    let cached = cpu(|| drain(cache.read(&Query::all()).expect("reads")));
                    assert_eq!(cache.stats().passed_through, 0);
                    (cached - bare) / MESSAGES as f64
                }),
                (payload == 100).then(|| peer(case)).flatten(),
            ),
        );
    }
}

fn warm(bench: &Bench, peer: Peer<'_>) {
    if bench.wants("warm_read_100_topics") {
        let ticks = Ticks::new(100, MESSAGES, 1_000_000, 100);
        let cache = cache_over(&ticks, CacheOptions::default());
        drain(cache.read(&Query::all()).expect("reads"));
        let read = || drain(cache.read(&Query::all()).expect("reads"));
        bench.case(
            "warm_read_100_topics",
            "ns CPU/message",
            21,
            beside(
                per("asof", MESSAGES as u64, read),
                peer("warm_read_100_topics"),
            ),
        );
        assert_eq!(cache.stats().source_reads, 1);
    }
    // Every topic was read for itself: a hundred runs have to be merged.
    if bench.wants("warm_read_100_topics_fetched_apart") {
        let ticks = Ticks::new(100, MESSAGES, 1_000_000, 100);
        let cache = cache_over(&ticks, CacheOptions::default());
        for number in 0..100 {
            drain(cache.read(&Query::topics([topic(number)])).expect("reads"));
        }
        let read = || drain(cache.read(&Query::all()).expect("reads"));
        bench.case(
            "warm_read_100_topics_fetched_apart",
            "ns CPU/message",
            11,
            vec![per("asof", MESSAGES as u64, read)],
        );
        assert_eq!(cache.stats().source_reads, 100);
    }
}

fn latest_at(bench: &Bench, peer: Peer<'_>) {
    let messages = 100_000;
    let ticks = Ticks::new(100, messages, 1_000_000, 100);
    let cases = [
        ("backfill_100_topics_100000_messages", 0, 100),
        ("backfill_at_1_percent", 0, 1),
        ("backfill_at_99_percent", 99, 1),
    ];
    let wanted = cases.iter().any(|(case, _, _)| bench.wants(case))
        || bench.wants("backfill_one_topic_absent");
    if !wanted {
        return;
    }
    let cache = cache_over(&ticks, CacheOptions::default());
    drain(cache.read(&Query::all()).expect("reads"));
    let calls = 2000;
    for (case, from, parts) in cases {
        let mut dice = dice(11);
        let percent = ticks.end().nanos() / 100;
        let ask = || {
            for _ in 0..calls {
                let at = Stamp::from_nanos(percent * from + dice(percent * parts));
                black_box(cache.latest_at(&Topics::All, at).expect("answers"));
            }
        };
        let other = (parts == 100).then(|| peer(case)).flatten();
        bench.case(
            case,
            "ns CPU/call",
            15,
            beside(per("asof", calls, ask), other),
        );
    }
    // One topic of the hundred has no message anywhere.
    let mut names: Vec<String> = (0..99).map(topic).collect();
    names.push("/never".into());
    let topics = Topics::named(names);
    drain(
        cache
            .read(&Query {
                topics: topics.clone(),
                range: TimeRange::ALL,
            })
            .expect("reads"),
    );
    let mut dice = dice(12);
    let ask = || {
        for _ in 0..calls {
            let at = Stamp::from_nanos(dice(ticks.end().nanos()));
            black_box(cache.latest_at(&topics, at).expect("answers"));
        }
    };
    bench.case(
        "backfill_one_topic_absent",
        "ns CPU/call",
        15,
        vec![per("asof", calls, ask)],
    );
    assert_eq!(cache.stats().source_lookups, 0);
}

fn step_back(bench: &Bench, peer: Peer<'_>) {
    if !bench.wants("step_back_60_frames") {
        return;
    }
    // A video of 30 frames a second, 20 kB each, among nine other topics.
    let ticks = Ticks::new(10, 12_000, 3_333_333, 20_000);
    let cache = cache_over(&ticks, CacheOptions::default());
    drain(cache.read(&Query::all()).expect("reads"));
    let calls = 200;
    let mut dice = dice(13);
    let step = || {
        for _ in 0..calls {
            let at = Stamp::from_nanos(dice(ticks.end().nanos()));
            black_box(cache.last_n(&topic(3), at, 60).expect("answers"));
        }
    };
    bench.case(
        "step_back_60_frames",
        "ns CPU/call",
        15,
        beside(per("asof", calls, step), peer("step_back_60_frames")),
    );
    assert_eq!(cache.stats().source_reads, 1);
}

/// Blocks of one message each: unrealistically small, but ten thousand of 4 MiB would not fit into memory.
fn many_blocks(bench: &Bench) {
    let ticks = Ticks::new(1, 2_000_000, 1_000_000, 100);
    let options = CacheOptions {
        block_bytes: 1,
        ..CacheOptions::default()
    };
    if bench.wants("find_in_10000_blocks") {
        let cache = cache_over(&ticks, options.clone());
        let range = TimeRange::new(Stamp::EPOCH, Stamp::from_nanos(9_999 * 1_000_000));
        drain(cache.read(&Query::all().between(range)).expect("reads"));
        assert_eq!(cache.stats().blocks, 10_000);
        let calls = 20_000;
        let (name, topics) = (topic(0), Topics::named([topic(0)]));
        let mut places = dice(14);
        let find = || {
            for _ in 0..calls {
                let at = Stamp::from_nanos(places(9_999 * 1_000_000));
                assert!(black_box(cache.block_at(&name, at)).is_some());
            }
        };
        bench.case(
            "find_in_10000_blocks",
            "ns CPU/find",
            15,
            vec![per("asof", calls, find)],
        );
        // The same with the message itself, as a batch.
        let mut places = dice(15);
        let ask = || {
            for _ in 0..calls {
                let at = Stamp::from_nanos(places(9_999 * 1_000_000));
                black_box(cache.latest_at(&topics, at).expect("answers"));
            }
        };
        bench.case(
            "find_in_10000_blocks_with_message",
            "ns CPU/find",
            15,
            vec![per("asof", calls, ask)],
        );
    }
    if bench.wants("insert_evict_at_10000_blocks") {
        let probe = cache_over(&ticks, options.clone());
        let range = TimeRange::new(Stamp::EPOCH, Stamp::from_nanos(9_999 * 1_000_000));
        drain(probe.read(&Query::all().between(range)).expect("reads"));
        let cache = cache_over(
            &ticks,
            CacheOptions {
                budget: probe.stats().accounted,
                ..options
            },
        );
        let head = cache.head(
            &Topics::All,
            HeadOptions {
                class: HeadClass::Playback,
                ..HeadOptions::default()
            },
        );
        let at = RefCell::new(0i64);
        let calls = 20_000;
        let insert = || {
            let from = *at.borrow();
            *at.borrow_mut() = from + calls;
            let range = TimeRange::new(
                Stamp::from_nanos(from * 1_000_000),
                Stamp::from_nanos((from + calls) * 1_000_000 - 1),
            );
            for batch in head.read(&Query::all().between(range)) {
                black_box(batch.expect("reads"));
            }
        };
        insert();
        let before = cache.stats().evictions;
        bench.case(
            "insert_evict_at_10000_blocks",
            "ns CPU/message",
            15,
            vec![per("asof", calls as u64, insert)],
        );
        assert!(cache.stats().evictions > before + 100_000);
        assert!(cache.stats().blocks >= 9_900, "{}", cache.stats().blocks);
    }
}

/// An hour of 1000 messages a second; each seek reads a second of it.
fn seeks(bench: &Bench) {
    if !bench.wants("seek_after_600_seeks") {
        return;
    }
    let ticks = Ticks::new(100, 3_600_000, 1_000_000, 100);
    let seek = |cache: &BlockCache, second: i64| {
        let start = Stamp::from_nanos(second * 1_000_000_000);
        let query =
            Query::all().between(TimeRange::new(start, start.plus_nanos(1_012_000_000 - 1)));
        cpu(|| {
            black_box(cache.latest_at(&Topics::All, start).expect("answers"));
            drain(cache.read(&query).expect("reads"));
        })
    };
    // Every second place, in a scattered order, so that none is held before it is sought.
    let place = |number: i64| number * 7919 % 1799 * 2;
    let used = cache_over(&ticks, CacheOptions::default());
    for number in 0..600 {
        seek(&used, place(number));
    }
    let next = RefCell::new(600i64);
    bench.case(
        "seek_after_600_seeks",
        "ns CPU/seek",
        41,
        vec![
            contender("asof", || {
                *next.borrow_mut() += 1;
                seek(&used, place(*next.borrow()))
            }),
            contender("first_seek", || {
                seek(&cache_over(&ticks, CacheOptions::default()), place(77))
            }),
        ],
    );
}

/// What the cache says it holds, against what the allocator has handed out for it.
fn accounts(bench: &Bench) {
    if !bench.wants("accounted_over_allocated") && !bench.wants("allocated_over_accounted") {
        return;
    }
    let fill = |topics: usize, payload: usize, options: &CacheOptions| {
        let ticks = Ticks::new(topics, MESSAGES, 1_000_000, payload);
        let (allocated, cache) = counting::bytes_left_by(|| {
            let cache = cache_over(&ticks, options.clone());
            drain(cache.read(&Query::all()).expect("reads"));
            // Twice, so that whatever reading allocates lazily is counted too.
            drain(cache.read(&Query::all()).expect("reads"));
            cache
        });
        cache.stats().accounted as f64 / allocated as f64
    };
    let ratio = fill(100, 100, &CacheOptions::default());
    bench.case(
        "accounted_over_allocated",
        "ratio",
        1,
        vec![contender("asof", || ratio)],
    );
    bench.case(
        "allocated_over_accounted",
        "ratio",
        1,
        vec![contender("asof", || 1.0 / ratio)],
    );
    for (case, topics, payload, budget, block) in [
        (
            "accounted_over_allocated_16_bytes",
            100,
            16,
            600_000_000,
            4 << 20,
        ),
        (
            "accounted_over_allocated_while_evicting",
            100,
            100,
            10_000_000,
            1 << 20,
        ),
        (
            "accounted_over_allocated_tiny_blocks",
            1,
            100,
            600_000_000,
            1,
        ),
    ] {
        let options = CacheOptions {
            budget,
            block_bytes: block,
            ..CacheOptions::default()
        };
        let ratio = fill(topics, payload, &options);
        bench.case(case, "ratio", 1, vec![contender("asof", || ratio)]);
    }
}
