//! Tail latencies: the slowest of ten million operations while the other core works on the same structure.
//!
//! Each operation is timed on its own by the processor's clock, the looks at which are part of the figure (some 16 ns).
//! Twice: with both threads pinned under a real-time policy, which leaves what the structure itself makes others wait;
//! and as threads among others (`_shared`), where a thread that waits for a lock also waits for its holder to be run again.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use asof_hot::{MonoStamp, MuxEnds};

use super::cores::{take_core, ticks, ticks_per_nano};
use super::latest::{Odometry, ZERO};
use super::ring_peers::{Asof, Pipe, Receiver, Ringbuf, Rtrb, Scan, Sender};
use super::{cpp, small};
use crate::harness::{Bench, contender};

const OPERATIONS: u64 = 10_000_000;
/// Of the one on the other core.
const PERIOD_NANOS: f64 = 1000.0;
/// A peer that needs longer than this is measured by the operations that it finished.
const PATIENCE_NANOS: f64 = 4e9;

/// An operation that is repeated.
type Act = Box<dyn FnMut() + Send>;
/// What is timed, and what the other core does meanwhile.
type Pair = (&'static str, fn() -> (Act, Act));

pub fn run(bench: &Bench) {
    let structures: [(&str, Vec<Pair>); 4] = [
        ("ring_8k_take", rings()),
        ("latest_144_read", latest()),
        ("mux_72_read", muxes()),
        ("latch_check", latches()),
    ];
    for is_pinned in [true, false] {
        for (structure, pairs) in &structures {
            let suffix = if is_pinned { "" } else { "_shared" };
            let case = format!("tail_{structure}{suffix}");
            if bench.wants(&case) {
                report(bench, &case, pairs, is_pinned);
            }
        }
    }
}

fn report(bench: &Bench, case: &str, pairs: &[Pair], is_pinned: bool) {
    let tails: Vec<Histogram> = pairs
        .iter()
        .map(|(_, make)| measure(make(), is_pinned))
        .collect();
    for (name, part) in [
        ("p50", 0.5),
        ("p99_9", 0.999),
        ("p99_999", 0.99999),
        ("max", 1.0),
    ] {
        let figures = pairs.iter().zip(&tails).map(|((peer, _), tail)| {
            let figure = tail.at(part) as f64 / ticks_per_nano();
            contender(peer, move || figure)
        });
        bench.case(&format!("{case}_{name}"), "ns", 1, figures.collect());
    }
}

fn measure((mut act, mut other): (Act, Act), is_pinned: bool) -> Histogram {
    let is_over = AtomicBool::new(false);
    let period = (PERIOD_NANOS * ticks_per_nano()) as u64;
    let patience = (PATIENCE_NANOS * ticks_per_nano()) as u64;
    let tail = std::thread::scope(|scope| {
        scope.spawn(|| {
            if is_pinned {
                take_core(1);
            }
            while !is_over.load(Ordering::Relaxed) {
                // No catching up: operations that were missed while the thread was preempted are skipped.
                let next = ticks() + period;
                other();
                while ticks() < next {}
            }
        });
        let timed = scope.spawn(|| {
            if is_pinned {
                take_core(0);
            }
            let mut tail = Histogram::new();
            for _ in 0..100_000 {
                act();
            }
            let mut last = ticks();
            let end = last + patience;
            for _ in 0..OPERATIONS {
                act();
                let now = ticks();
                tail.add(now - last);
                last = ticks();
                if now > end {
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            tail
        });
        timed.join().expect("nobody panics")
    });
    // The system needs a pause from threads with a real-time policy.
    std::thread::sleep(std::time::Duration::from_millis(200));
    tail
}

/// Counts of times, to one part in 64.
struct Histogram {
    counts: Vec<u64>,
    total: u64,
    longest: u64,
}

impl Histogram {
    const PARTS: u64 = 64;

    fn new() -> Self {
        Histogram {
            counts: vec![0; 64 * Self::PARTS as usize],
            total: 0,
            longest: 0,
        }
    }

    #[inline(always)]
    fn add(&mut self, time: u64) {
        let shift = (64 - 6 - (time | (Self::PARTS - 1)).leading_zeros()).saturating_sub(1);
        let index = u64::from(shift) * Self::PARTS + (time >> shift);
        self.counts[index as usize] += 1;
        self.total += 1;
        self.longest = self.longest.max(time);
    }

    /// The time that this part of all is not longer than.
    fn at(&self, part: f64) -> u64 {
        let wanted = (self.total as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                let index = index as u64;
                let shift = (index / Self::PARTS).saturating_sub(1);
                let time = (index - shift * Self::PARTS) << shift;
                return time.min(self.longest);
            }
        }
        self.longest
    }
}

fn pipe<P: Pipe>() -> (Act, Act) {
    let (mut sender, mut receiver) = P::new();
    let mut number = 0;
    (
        Box::new(move || {
            black_box(receiver.receive(|scan| scan.0[0]));
        }),
        Box::new(move || {
            number += 1;
            black_box(sender.send(|scan| scan.0[0] = number));
        }),
    )
}

fn rings() -> Vec<Pair> {
    vec![
        ("asof", pipe::<Asof<false>>),
        ("rtrb", pipe::<Rtrb>),
        ("ringbuf", pipe::<Ringbuf>),
        ("std_mutex", || {
            let queue = Arc::new(Mutex::new(VecDeque::<Box<Scan>>::with_capacity(8)));
            let writer = queue.clone();
            (
                Box::new(move || {
                    let scan = queue.lock().expect("nobody panics").pop_front();
                    black_box(scan.map(|scan| scan.0[0]));
                }),
                Box::new(move || {
                    let scan = Box::<Scan>::default();
                    let mut queue = writer.lock().expect("nobody panics");
                    if queue.len() < 8 {
                        queue.push_back(scan);
                    }
                }),
            )
        }),
    ]
}

/// A value that is read, and written with another number each time.
fn cell(
    mut write: impl FnMut(&Odometry) + Send + 'static,
    mut read: impl FnMut(&mut Odometry) + Send + 'static,
) -> (Act, Act) {
    let (mut value, mut out) = (ZERO, ZERO);
    write(&value);
    (
        Box::new(move || {
            read(&mut out);
            black_box(&mut out);
        }),
        Box::new(move || {
            value.values[0] += 1.0;
            write(black_box(&value));
        }),
    )
}

fn latest() -> Vec<Pair> {
    vec![
        ("asof", || {
            let (mut writer, reader) = asof_hot::latest::<Odometry, 8>();
            cell(
                move |value| writer.write(value, MonoStamp(1)),
                move |out| {
                    reader.read_into(out);
                },
            )
        }),
        ("seqlock", || {
            let lock = Arc::new(seqlock::SeqLock::new(ZERO));
            let reader = lock.clone();
            cell(
                move |value| *lock.lock_write() = *value,
                move |out| *out = reader.read(),
            )
        }),
        ("triple_buffer", || {
            let (mut input, mut output) = triple_buffer::triple_buffer(&ZERO);
            cell(
                move |value| {
                    *input.input_buffer_mut() = *value;
                    input.publish();
                },
                move |out| *out = *output.read(),
            )
        }),
        ("arc-swap", || {
            let swap = Arc::new(arc_swap::ArcSwap::from_pointee(ZERO));
            let reader = swap.clone();
            cell(
                move |value| swap.store(Arc::new(*value)),
                move |out| *out = **reader.load(),
            )
        }),
        ("std_mutex", || {
            let mutex = Arc::new(Mutex::new(ZERO));
            let reader = mutex.clone();
            cell(
                move |value| *mutex.lock().expect("nobody panics") = *value,
                move |out| *out = *reader.lock().expect("nobody panics"),
            )
        }),
        ("parking_lot", || {
            let mutex = Arc::new(parking_lot::Mutex::new(ZERO));
            let reader = mutex.clone();
            cell(
                move |value| *mutex.lock() = *value,
                move |out| *out = *reader.lock(),
            )
        }),
        ("cpp!racy", || {
            let cell = Arc::new(cpp::Object::new(
                cpp::cpp_latest_new,
                cpp::cpp_latest_delete,
            ));
            let writer = cell.clone();
            let mut out = ZERO;
            (
                // SAFETY: the object is alive, and there is room for a value.
                Box::new(move || unsafe {
                    let cell = &*cell;
                    cpp::cpp_latest_read_one(cell.pointer, (&raw mut out).cast());
                }),
                // SAFETY: the object is alive, and one thread writes.
                Box::new(move || unsafe {
                    let writer = &*writer;
                    cpp::cpp_latest_write(writer.pointer, 1);
                }),
            )
        }),
    ]
}

fn muxes() -> Vec<Pair> {
    vec![
        ("asof", || {
            let MuxEnds {
                mut sources,
                output,
                ..
            } = small::four_levels();
            sources[3].write(&small::ZERO, MonoStamp(1));
            let (mut number, mut out) = (1, small::ZERO);
            (
                Box::new(move || {
                    let _ = black_box(output.read_into(MonoStamp(1), &mut out));
                    black_box(&mut out);
                }),
                Box::new(move || {
                    // Two of the four command in turns.
                    number += 1;
                    sources[2 + number % 2].write(black_box(&small::ZERO), MonoStamp(1));
                }),
            )
        }),
        ("cpp!racy", || {
            let mux = Arc::new(cpp::Object::new(cpp::cpp_mux_new, cpp::cpp_mux_delete));
            let writer = mux.clone();
            (
                // SAFETY: the object is alive.
                Box::new(move || unsafe {
                    let mux = &*mux;
                    cpp::cpp_mux_read(mux.pointer, 1);
                }),
                // SAFETY: the object is alive, and one thread writes.
                Box::new(move || unsafe {
                    let writer = &*writer;
                    cpp::cpp_mux_write(writer.pointer, 1);
                }),
            )
        }),
        ("std_mutex", || {
            let mutex = Arc::new(Mutex::new((3, small::ZERO)));
            let reader = mutex.clone();
            (
                Box::new(move || {
                    let command = *reader.lock().expect("nobody panics");
                    black_box(&command);
                }),
                Box::new(move || mutex.lock().expect("nobody panics").1 = *black_box(&small::ZERO)),
            )
        }),
    ]
}

fn latches() -> Vec<Pair> {
    vec![
        ("asof", || {
            let (mut trigger, mut resetter, observer) = asof_hot::event_latch(None);
            let mut count = 0;
            (
                Box::new(move || {
                    let _ = black_box(observer.state(MonoStamp(0)));
                }),
                Box::new(move || {
                    count += 1;
                    trigger.trigger(1, MonoStamp(count));
                    let _ = resetter.reset(count);
                }),
            )
        }),
        ("atomic_bool", || {
            let flag = Arc::new(AtomicBool::new(false));
            let reader = flag.clone();
            let mut is_set = false;
            (
                Box::new(move || {
                    black_box(reader.load(Ordering::Acquire));
                }),
                Box::new(move || {
                    is_set = !is_set;
                    flag.store(is_set, Ordering::Release);
                }),
            )
        }),
        ("std_mutex", || {
            let flag = Arc::new(Mutex::new(false));
            let reader = flag.clone();
            (
                Box::new(move || {
                    black_box(*reader.lock().expect("nobody panics"));
                }),
                Box::new(move || {
                    let mut flag = flag.lock().expect("nobody panics");
                    *flag = !*flag;
                }),
            )
        }),
    ]
}
