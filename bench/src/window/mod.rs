//! The suite `window`: our windows beside ZCache's storage and Debian's message_filters.
//!
//! Figures are nanoseconds of thread CPU time per operation: on a busy machine wall time measures other programs.

pub mod identical;
mod message_filters;
mod zcache;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use asof_core::{Channel, Message, Stamp};
use asof_window::sync::{ApproximateTime, Rule, SharedSynchronizer, Track};
use asof_window::{Bounds, Window};
use bytes::Bytes;

use crate::harness::{Bench, contender};
use message_filters::MessageFilters;
use zcache::ZCache;

/// A message as a small sensor has it: 64 bytes.
#[derive(Clone)]
pub struct Sample {
    pub id: u64,
    /// A stand-in for the contents of a message, which are moved and kept.
    _body: [u64; 7],
}

impl Sample {
    fn new(id: u64) -> Self {
        Sample { id, _body: [id; 7] }
    }
}

/// A second, in nanoseconds; the first stamp, so that no time is before 1970.
const START: i64 = 1_700_000_000_000_000_000;
/// Between two messages: 1 kHz.
const PERIOD: i64 = 1_000_000;

/// Lookups in one turn: as many as stay in the caches beside a robot's other work.
const QUERIES: usize = 4_000;
/// How often a turn asks for them; the median counts. So the caches are warm, whichever peer had the turn before.
const BATCHES: usize = 7;
/// Lookups in one turn of a case that is named cold: each instant once.
const COLD: usize = 40_000;
/// How often a turn goes over the frames of a join, for the same reason.
const PASSES: usize = 20;

/// How messages arrive.
#[derive(Clone, Copy)]
enum Order {
    InOrder,
    /// Five percent come 1 to 20 places late.
    Late,
    /// Five percent come half the capacity late.
    FarLate,
}

pub fn run(bench: &mut Bench) {
    let peer = MessageFilters::load();
    if let Err(problem) = &peer {
        eprintln!("message_filters is not measured: {problem}");
    }
    let peer = peer.ok();
    insert(
        bench,
        "insert_200_in_order",
        200,
        Order::InOrder,
        peer.as_ref(),
    );
    insert(
        bench,
        "insert_10000_in_order",
        10_000,
        Order::InOrder,
        peer.as_ref(),
    );
    insert(
        bench,
        "insert_10000_late_5_percent",
        10_000,
        Order::Late,
        peer.as_ref(),
    );
    insert(
        bench,
        "insert_100000_late_5_percent",
        100_000,
        Order::Late,
        peer.as_ref(),
    );
    insert(
        bench,
        "insert_10000_far_late_5_percent",
        10_000,
        Order::FarLate,
        None,
    );
    insert(
        bench,
        "insert_100000_far_late_5_percent",
        100_000,
        Order::FarLate,
        None,
    );
    before(bench, "before_10000_uniform", 10_000, peer.as_ref());
    for count in [200, 10_000, 100_000] {
        nearest(bench, &format!("nearest_{count}"), count);
        nearest(bench, &format!("nearest_{count}_cold"), count);
    }
    interval(bench, 10_000, peer.as_ref());
    image(bench);
    approximate(bench, peer.as_ref());
    join(bench);
    beside_writer(bench);
}

fn insert(bench: &Bench, case: &str, count: usize, order: Order, peer: Option<&MessageFilters>) {
    if !bench.wants(case) {
        return;
    }
    let batch = 20_000;
    let window = Window::new(Bounds::count(count));
    let zcache = ZCache::new(count);
    let cache = peer.map(|peer| peer.cache(count as u32));
    // All contenders get the same stamps, and start full.
    let mut arrivals = [(); 3].map(|()| Arrivals::new(count, order));
    for stamp in arrivals[0].take(count + 100) {
        window.insert(stamp.into(), Sample::new(0));
    }
    for stamp in arrivals[1].take(count + 100) {
        zcache.insert(time(stamp), Sample::new(0));
    }
    let filling = arrivals[2].take(count + 100);
    if let Some(cache) = &cache {
        cache.add(&filling);
    }
    let [ours, zs, mfs] = &mut arrivals;
    let mut contenders = vec![
        contender("asof", || {
            let stamps = ours.take(batch);
            cpu(batch, || {
                for &stamp in &stamps {
                    black_box(window.insert(stamp.into(), Sample::new(stamp as u64)));
                }
            })
        }),
        contender("zcache", || {
            let stamps: Vec<_> = zs.take(batch).into_iter().map(time).collect();
            cpu(batch, || {
                for &stamp in &stamps {
                    zcache.insert(stamp, Sample::new(1));
                }
            })
        }),
    ];
    if let Some(cache) = &cache {
        contenders.push(contender("message_filters", || {
            let stamps = mfs.take(batch);
            cache.add(&stamps) / batch as f64
        }));
    }
    bench.case(case, "ns/message", 15, contenders);
}

fn before(bench: &Bench, case: &str, count: usize, peer: Option<&MessageFilters>) {
    if !bench.wants(case) {
        return;
    }
    let (window, zcache, stamps) = filled(count);
    let mut fresh = [Random(11), Random(11), Random(11)];
    let [ours, theirs, few] = &mut fresh;
    let cache = peer.map(|peer| {
        let cache = peer.cache(count as u32);
        cache.add(&stamps);
        cache
    });
    let mut contenders = vec![
        contender("asof", || {
            let asked = uniform(&stamps, QUERIES, ours);
            warm(asked.len(), || {
                for &t in &asked {
                    black_box(window.before(t.into()));
                }
            })
        }),
        contender("zcache", || {
            let asked = uniform(&stamps, QUERIES, theirs);
            let times: Vec<_> = asked.into_iter().map(time).collect();
            warm(times.len(), || {
                for &t in &times {
                    black_box(zcache.before(t));
                }
            })
        }),
    ];
    if let Some(cache) = &cache {
        contenders.push(contender("message_filters", || {
            let asked = uniform(&stamps, 50, few);
            cache.before(&asked) / asked.len() as f64
        }));
    }
    bench.case(case, "ns/query", 15, contenders);
}

fn nearest(bench: &Bench, case: &str, count: usize) {
    if !bench.wants(case) {
        return;
    }
    let (window, zcache, stamps) = filled(count);
    // New instants in every round, so that the branch predictor cannot learn them.
    let mut fresh = [Random(11), Random(11)];
    let [ours, theirs] = &mut fresh;
    let (count, timed): (usize, fn(usize, &mut dyn FnMut()) -> f64) = if case.ends_with("cold") {
        (COLD, |operations, work| cpu(operations, work))
    } else {
        (QUERIES, |operations, work| warm(operations, work))
    };
    let contenders = vec![
        contender("asof", || {
            let asked = uniform(&stamps, count, ours);
            timed(asked.len(), &mut || {
                for &t in &asked {
                    black_box(window.nearest(t.into()));
                }
            })
        }),
        contender("zcache", || {
            let asked = uniform(&stamps, count, theirs);
            let times: Vec<_> = asked.into_iter().map(time).collect();
            timed(times.len(), &mut || {
                for &t in &times {
                    black_box(zcache.nearest(t));
                }
            })
        }),
    ];
    bench.case(case, "ns/query", 25, contenders);
}

fn interval(bench: &Bench, count: usize, peer: Option<&MessageFilters>) {
    if !bench.wants("interval_100") {
        return;
    }
    let (window, zcache, stamps) = filled(count);
    let starts = uniform(&stamps[..count - 200], 1_000, &mut Random(11));
    let span = 100 * PERIOD - 1;
    let times: Vec<_> = starts.iter().map(|&t| (time(t), time(t + span))).collect();
    let cache = peer.map(|peer| {
        let cache = peer.cache(count as u32);
        cache.add(&stamps);
        cache
    });
    let zcache_interval = || {
        cpu(times.len(), || {
            for &(a, b) in &times {
                let found = zcache.interval(a, b);
                black_box(found.iter().map(|sample| sample.id).sum::<u64>());
            }
        })
    };
    let mut contenders = vec![
        contender("asof", || {
            cpu(starts.len(), || {
                for &t in &starts {
                    let found = window.interval(t.into(), (t + span).into());
                    black_box(found.iter().map(|sample| sample.id).sum::<u64>());
                }
            })
        }),
        contender("zcache", zcache_interval),
    ];
    if let Some(cache) = &cache {
        let few = &starts[..30];
        let ends: Vec<_> = few.iter().map(|t| t + span).collect();
        contenders.push(contender("message_filters", move || {
            cache.interval(few, &ends) / few.len() as f64
        }));
    }
    bench.case("interval_100_owned_10000", "ns/query", 15, contenders);
    let contenders = vec![
        contender("asof", || {
            cpu(starts.len(), || {
                for &t in &starts {
                    let mut sum = 0;
                    let view = window.view(t.into(), (t + span).into());
                    view.for_each(|_, sample| sum += sample.id);
                    black_box(sum);
                }
            })
        }),
        contender("zcache", zcache_interval),
    ];
    bench.case("interval_100_borrowed_10000", "ns/query", 15, contenders);
}

/// A raw image of 1 MB, indexed by the stamp in its header: the bytes are shared, the stamp is peeked.
fn image(bench: &Bench) {
    let case = "insert_1mb_image_by_header_stamp";
    if !bench.wants(case) {
        return;
    }
    let channel = Arc::new(Channel {
        topic: "/camera".into(),
        message_encoding: "cdr".into(),
        ..Channel::default()
    });
    let window = Window::weighed(Bounds::count(50), |message: &Message| {
        message.payload.len() as u64
    });
    let images: Vec<Message> = (0..500u32)
        .map(|number| {
            let mut payload = vec![0u8; 1 << 20];
            payload[..4].copy_from_slice(&[0, 1, 0, 0]);
            payload[4..8].copy_from_slice(&number.to_le_bytes());
            Message {
                channel: Arc::clone(&channel),
                log_time: Stamp::EPOCH,
                publish_time: Stamp::EPOCH,
                sequence: number,
                payload: Bytes::from(payload),
            }
        })
        .collect();
    let contenders = vec![contender("asof", || {
        window.clear();
        let arriving = images.clone();
        cpu(images.len(), || {
            for message in arriving {
                let stamp = asof_window::header_stamp(&message.payload);
                black_box(window.insert(stamp.unwrap_or_default(), message));
            }
        })
    })];
    bench.case(case, "ns/message", 15, contenders);
}

/// 30, 100 and 200 Hz with 2 ms of jitter.
fn approximate(bench: &Bench, peer: Option<&MessageFilters>) {
    let case = "approximate_time_3_topics";
    if !bench.wants(case) {
        return;
    }
    let (topics, stamps) = sensor_streams(100_000);
    let count = stamps.len();
    let sets = Arc::new(AtomicU64::new(0));
    let mut contenders = vec![contender("asof", || {
        sets.store(0, Ordering::Relaxed);
        let sink = Arc::clone(&sets);
        // With its lock and its callback, as message_filters has them.
        let sync = SharedSynchronizer::sets(ApproximateTime::new(3, 10), move |set| {
            black_box(&set);
            sink.fetch_add(1, Ordering::Relaxed);
        });
        cpu(count, || {
            for (&topic, &stamp) in topics.iter().zip(&stamps) {
                sync.add(
                    topic.into(),
                    stamp.into(),
                    Arc::new(Sample::new(stamp as u64)),
                );
            }
        })
    })];
    if let Some(peer) = peer {
        contenders.push(contender("message_filters", || {
            let run = peer.approximate(3, 10, 0.1, None, &[0; 3], &topics, &stamps);
            run.nanos / count as f64
        }));
    }
    bench.case(case, "ns/message", 9, contenders);
    if let Some(peer) = peer {
        let theirs = peer
            .approximate(3, 10, 0.1, None, &[0; 3], &topics, &stamps)
            .sets;
        assert_eq!(
            sets.load(Ordering::Relaxed),
            theirs,
            "the same sets are found"
        );
    }
}

/// Per camera frame the nearest of IMU (400 Hz), odometry (50 Hz) and transforms (100 Hz).
fn join(bench: &Bench) {
    if !bench.wants("join_3_topics") {
        return;
    }
    let seconds = 25;
    let topic = |hertz: i64| -> Vec<i64> {
        let mut random = Random(hertz as u64);
        (0..seconds * hertz)
            .map(|n| START + n * 1_000_000_000 / hertz + random.below(400_000) as i64)
            .collect()
    };
    let topics: Vec<Vec<i64>> = [400, 50, 100].map(topic).into();
    let frames = topic(30);
    let times: Vec<_> = frames.iter().copied().map(time).collect();
    let windows: Vec<_> = topics
        .iter()
        .map(|stamps| {
            let window = Window::new(Bounds::count(10_000));
            for &stamp in stamps {
                window.insert(stamp.into(), Sample::new(1));
            }
            window
        })
        .collect();
    let zcaches: Vec<_> = topics
        .iter()
        .map(|stamps| {
            let cache = ZCache::new(10_000);
            for &stamp in stamps {
                cache.insert(time(stamp), Sample::new(1));
            }
            cache
        })
        .collect();
    let tracks: Vec<Track<Sample>> = topics
        .iter()
        .map(|stamps| stamps.iter().map(|&t| (t.into(), Sample::new(1))).collect())
        .collect();
    // Read in place: copying the answers is not part of the search.
    let zcache_join = || {
        cpu(times.len() * PASSES, || {
            for &t in (0..PASSES).flat_map(|_| &times) {
                black_box(&(
                    zcaches[0].nearest(t),
                    zcaches[1].nearest(t),
                    zcaches[2].nearest(t),
                ));
            }
        })
    };
    let rule = Rule::nearest().within(Duration::from_millis(50));
    let contenders = vec![
        contender("asof", || {
            let (mut imu, mut odometry, mut transforms) = (
                windows[0].cursor(),
                windows[1].cursor(),
                windows[2].cursor(),
            );
            cpu(frames.len() * PASSES, || {
                for &t in (0..PASSES).flat_map(|_| &frames) {
                    let t = Stamp::from_nanos(t);
                    black_box(&(
                        imu.pick(t, rule),
                        odometry.pick(t, rule),
                        transforms.pick(t, rule),
                    ));
                }
            })
        }),
        contender("zcache", zcache_join),
    ];
    bench.case("join_3_topics_live", "ns/frame", 25, contenders);
    let contenders = vec![
        contender("asof", || {
            let (mut imu, mut odometry, mut transforms) =
                (tracks[0].cursor(), tracks[1].cursor(), tracks[2].cursor());
            cpu(frames.len() * PASSES, || {
                for &t in (0..PASSES).flat_map(|_| &frames) {
                    let t = Stamp::from_nanos(t);
                    black_box(&(
                        imu.pick(t, rule),
                        odometry.pick(t, rule),
                        transforms.pick(t, rule),
                    ));
                }
            })
        }),
        contender("zcache", zcache_join),
    ];
    bench.case("join_3_topics_recorded", "ns/frame", 25, contenders);
}

/// One reader asks for the nearest and one writer inserts, both without a pause: wall time per read.
fn beside_writer(bench: &Bench) {
    let case = "reads_beside_writer_per_read";
    if !bench.wants(case) {
        return;
    }
    let count = 10_000;
    let contenders = vec![
        contender("asof", || {
            let (window, _, _) = filled(count);
            race(
                |n| {
                    black_box(window.insert(stamp_at(count, n).into(), Sample::new(n)));
                },
                |back| {
                    drop(black_box(
                        window
                            .newest_stamp()
                            .and_then(|t| window.nearest(t.plus_nanos(-back))),
                    ))
                },
            )
        }),
        contender("zcache", || {
            let (_, zcache, _) = filled(count);
            race(
                |n| zcache.insert(time(stamp_at(count, n)), Sample::new(n)),
                |back| {
                    let newest = zcache.newest_stamp();
                    let asked = newest.map(|t| t - Duration::from_nanos(back as u64));
                    drop(black_box(asked.and_then(|t| zcache.nearest(t))));
                },
            )
        }),
    ];
    bench.case(case, "ns/read", 9, contenders);
}

fn stamp_at(count: usize, n: u64) -> i64 {
    START + (count as i64 + n as i64) * PERIOD
}

/// Nanoseconds per read while the writer does its work.
fn race(write: impl Fn(u64) + Sync, read: impl Fn(i64) + Sync) -> f64 {
    let (stop, started) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut reads = 0u64;
    let mut nanos = 0.0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            started.store(true, Ordering::Release);
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..64 {
                    write(n);
                    n += 1;
                }
            }
        });
        while !started.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let mut random = Random(7);
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(60) {
            for _ in 0..32 {
                read(random.below(9_000) as i64 * PERIOD);
            }
            reads += 32;
        }
        nanos = start.elapsed().as_nanos() as f64;
        stop.store(true, Ordering::Relaxed);
    });
    nanos / reads as f64
}

/// A window and a ZCache with the same `count` messages, and their stamps.
fn filled(count: usize) -> (Window<Sample>, ZCache<Sample>, Vec<i64>) {
    let window = Window::new(Bounds::count(count));
    let zcache = ZCache::new(count);
    let stamps = Arrivals::new(count, Order::InOrder).take(count);
    // One after the other: in a robot, each would have its memory to itself.
    for &stamp in &stamps {
        window.insert(stamp.into(), Sample::new(stamp as u64));
    }
    for &stamp in &stamps {
        zcache.insert(time(stamp), Sample::new(stamp as u64));
    }
    (window, zcache, stamps)
}

fn uniform(stamps: &[i64], count: usize, random: &mut Random) -> Vec<i64> {
    let (first, last) = (stamps[0], stamps[stamps.len() - 1]);
    (0..count)
        .map(|_| first + random.below((last - first) as u64) as i64)
        .collect()
}

/// Interleaved by arrival: topics and stamps of three sensors.
fn sensor_streams(count: usize) -> (Vec<u8>, Vec<i64>) {
    let mut random = Random(3);
    let mut next = [(0, 33_333_333), (0, 10_000_000), (0, 5_000_000)];
    let mut topics = Vec::with_capacity(count);
    let mut stamps = Vec::with_capacity(count);
    for _ in 0..count {
        let topic = (0..3).min_by_key(|&topic| next[topic].0).unwrap_or(0);
        topics.push(topic as u8);
        stamps.push(START + next[topic].0 + random.below(2_000_000) as i64);
        next[topic].0 += next[topic].1;
    }
    (topics, stamps)
}

/// An endless stream of stamps.
struct Arrivals {
    order: Order,
    random: Random,
    half: i64,
    next: i64,
}

impl Arrivals {
    fn new(count: usize, order: Order) -> Self {
        Arrivals {
            order,
            random: Random(5),
            half: count as i64 / 2,
            next: 0,
        }
    }

    fn take(&mut self, count: usize) -> Vec<i64> {
        (0..count)
            .map(|_| {
                self.next += 1;
                // A little jitter, as every sensor has.
                let stamp = START + self.next * PERIOD + self.random.below(100_000) as i64;
                let is_late = self.random.below(20) == 0;
                let places = match self.order {
                    Order::Late if is_late => 1 + self.random.below(20) as i64,
                    Order::FarLate if is_late => self.half,
                    _ => 0,
                };
                stamp - places * PERIOD
            })
            .collect()
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn time(nanos: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos as u64)
}

/// Nanoseconds of this thread's CPU time per operation.
fn cpu(operations: usize, work: impl FnOnce()) -> f64 {
    let start = thread_nanos();
    work();
    (thread_nanos() - start) / operations as f64
}

/// The same, as the median of some batches of the same work.
fn warm(operations: usize, mut work: impl FnMut()) -> f64 {
    let mut batches: Vec<f64> = (0..BATCHES).map(|_| cpu(operations, &mut work)).collect();
    batches.sort_by(f64::total_cmp);
    batches[BATCHES / 2]
}

fn thread_nanos() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec, and this clock exists on every system that has threads.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}
