//! One reader at full speed, one writer on the same edge.

use std::hint::black_box;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::peers::{Asof, Peer, Pose, Schiebung, Tf2, Tf2Library, Transforms};
use super::{SECOND, track};
use crate::harness::{Bench, contender};

/// Samples in the writer's loop of poses; stamps go on for ever.
const LOOP: i64 = 4_096;
/// Behind the newest sample, where the reader asks.
const BEHIND: i64 = 5;
const WINDOW: Duration = Duration::from_micros(1_200);
const WINDOWS: usize = 120;

pub fn run(bench: &Bench, tf2: Option<&Tf2Library>) {
    for (case, rate) in [
        ("reader_p999_writer_50khz", Some(50_000)),
        ("reader_with_unthrottled_writer", None),
    ] {
        if !bench.wants(case) {
            continue;
        }
        let asof = Shared::new(Asof::new());
        let schiebung = Shared::new(RwLock::new(Schiebung::new()));
        let transforms = Shared::new(RwLock::new(Transforms::new()));
        let tf2 = tf2.map(|library| Shared::new(Tf2::new(library)));
        let mut contenders = vec![
            contender("asof", || asof.race(rate)),
            contender("schiebung", || schiebung.race(rate)),
            contender("transforms", || transforms.race(rate)),
        ];
        if let Some(tf2) = &tf2 {
            contenders.push(contender("tf2", || tf2.race(rate)));
        }
        bench.case(case, "ns", 7, contenders);
    }
    let case = "writer_alone_beside_reader";
    if bench.wants(case) {
        let asof = Shared::new(Asof::new());
        let schiebung = Shared::new(RwLock::new(Schiebung::new()));
        bench.case(
            case,
            "ns per write",
            7,
            vec![
                contender("asof", || {
                    asof.race(None);
                    asof.write_cost()
                }),
                contender("schiebung", || {
                    schiebung.race(None);
                    schiebung.write_cost()
                }),
            ],
        );
    }
}

/// A buffer that two threads use at once.
trait Contended: Sync {
    fn write(&self, stamp: i64, pose: &Pose);
    fn read(&self, stamp: i64) -> f64;
}

impl Contended for Asof {
    fn write(&self, stamp: i64, pose: &Pose) {
        let isometry = super::isometry(pose);
        self.0
            .update("odom", "base_link", stamp.into(), isometry)
            .expect("a good update");
    }

    fn read(&self, stamp: i64) -> f64 {
        self.lookup("odom", "base_link", &[stamp])
    }
}

impl<P: Peer + Send + Sync> Contended for RwLock<P> {
    fn write(&self, stamp: i64, pose: &Pose) {
        self.write()
            .expect("no panic")
            .update("odom", "base_link", &[stamp], &[*pose]);
    }

    fn read(&self, stamp: i64) -> f64 {
        self.read()
            .expect("no panic")
            .lookup("odom", "base_link", &[stamp])
    }
}

impl Contended for Tf2<'_> {
    fn write(&self, stamp: i64, pose: &Pose) {
        self.set("odom", "base_link", &[stamp], &[*pose]);
    }

    fn read(&self, stamp: i64) -> f64 {
        self.lookup("odom", "base_link", &[stamp])
    }
}

struct Shared<C> {
    buffer: C,
    poses: Vec<Pose>,
    written: AtomicU64,
    /// Nanoseconds per write in the last race, as bits.
    cost: AtomicU64,
}

/// The step between two stamps; at this step no sample leaves the window during a race.
const PERIOD: i64 = 20_000;

impl<C: Contended> Shared<C> {
    fn new(buffer: C) -> Self {
        let (_, poses) = track(0, LOOP, SECOND / 1000);
        let shared = Shared {
            buffer,
            poses,
            written: AtomicU64::new(0),
            cost: AtomicU64::new(0),
        };
        (0..1_000).for_each(|_| shared.write_next());
        shared
    }

    fn write_next(&self) {
        let number = self.written.load(Ordering::Relaxed) as i64;
        self.buffer
            .write(stamp_of(number), &self.poses[(number % LOOP) as usize]);
        self.written.store(number as u64 + 1, Ordering::Release);
    }

    fn write_cost(&self) -> f64 {
        f64::from_bits(self.cost.load(Ordering::Relaxed))
    }

    /// The reader's latency that 99.9 of 100 reads do not exceed. Only windows in which the reader was never
    /// taken off its core count.
    fn race(&self, rate: Option<u64>) -> f64 {
        let is_over = AtomicBool::new(false);
        let mut kept: Vec<u32> = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (begin, first) = (Instant::now(), self.written.load(Ordering::Relaxed));
                let mut done = 0;
                while !is_over.load(Ordering::Relaxed) {
                    match rate {
                        Some(rate)
                            if begin.elapsed().as_nanos() as u64 * rate / 1_000_000_000 <= done =>
                        {
                            std::hint::spin_loop();
                        }
                        _ => {
                            self.write_next();
                            done += 1;
                        }
                    }
                }
                let writes = self.written.load(Ordering::Relaxed) - first;
                let cost = begin.elapsed().as_nanos() as f64 / writes.max(1) as f64;
                self.cost.store(cost.to_bits(), Ordering::Relaxed);
            });
            let mut window = Vec::with_capacity(100_000);
            for _ in 0..WINDOWS {
                window.clear();
                let switches = switches();
                let begin = Instant::now();
                let mut before = begin;
                while before.duration_since(begin) < WINDOW {
                    let newest = self.written.load(Ordering::Acquire) as i64 - 1;
                    black_box(self.buffer.read(stamp_of(newest - BEHIND) + PERIOD / 3));
                    let now = Instant::now();
                    window.push(now.duration_since(before).as_nanos() as u32);
                    before = now;
                }
                if self::switches() == switches {
                    kept.extend_from_slice(&window);
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        kept.sort_unstable();
        let place = kept.len() * 999 / 1_000;
        kept.get(place)
            .map_or(f64::NAN, |latency| f64::from(*latency))
    }
}

fn stamp_of(number: i64) -> i64 {
    super::START + number * PERIOD
}

/// How often this thread was preempted.
fn switches() -> i64 {
    // SAFETY: an all-zero rusage is valid, and the call writes into it and nothing else.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw
    }
}
