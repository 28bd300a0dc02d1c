//! The latest odometry, 144 bytes: reads with the writer quiet or not, and writes.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use asof_hot::MonoStamp;

use super::cores::{Work, on_one_core, on_two_cores, ticks, ticks_per_nano};
use super::cpp;
use crate::harness::{Bench, Contender, contender};

asof_hot::plain! {
    /// As a robot reports it.
    pub struct Odometry { pub values: [f64; 18] }
}

pub const ZERO: Odometry = Odometry { values: [0.0; 18] };
const ROUNDS: usize = 40;

pub fn run(bench: &Bench) {
    bench.case(
        "latest_144_read_quiet",
        "ns",
        ROUNDS,
        everyone(Kind::ReadQuiet),
    );
    bench.case("latest_144_write", "ns", ROUNDS, everyone(Kind::Write));
    bench.case(
        "latest_144_read_writer_1mhz",
        "ns",
        ROUNDS,
        everyone(Kind::ReadPaced { period: 1000.0 }),
    );
    bench.case(
        "latest_144_read_writer_5mhz",
        "ns",
        ROUNDS,
        everyone(Kind::ReadPaced { period: 200.0 }),
    );
    bench.case(
        "latest_144_read_writer_full_speed",
        "ns",
        ROUNDS,
        everyone(Kind::ReadPaced { period: 0.0 }),
    );
}

/// What is measured.
#[derive(Clone, Copy)]
enum Kind {
    ReadQuiet,
    Write,
    /// A read while the other core writes at every so many nanoseconds, or as fast as it can.
    ReadPaced {
        period: f64,
    },
}

fn everyone(kind: Kind) -> Vec<Contender<'static>> {
    vec![
        cell("asof", kind, || {
            let (mut writer, reader) = asof_hot::latest::<Odometry, 8>();
            (
                move |value: &Odometry| writer.write(value, MonoStamp(1)),
                move |out: &mut Odometry| {
                    reader.read_into(out);
                },
            )
        }),
        cell("seqlock", kind, || {
            let lock = Arc::new(seqlock::SeqLock::new(ZERO));
            let reader = lock.clone();
            (
                move |value: &Odometry| *lock.lock_write() = *value,
                move |out: &mut Odometry| *out = reader.read(),
            )
        }),
        cell("crossbeam", kind, || {
            let atomic = Arc::new(crossbeam_utils::atomic::AtomicCell::new(ZERO));
            let reader = atomic.clone();
            (
                move |value: &Odometry| atomic.store(*value),
                move |out: &mut Odometry| *out = reader.load(),
            )
        }),
        cell("triple_buffer", kind, || {
            let (mut input, mut output) = triple_buffer::triple_buffer(&ZERO);
            (
                move |value: &Odometry| {
                    *input.input_buffer_mut() = *value;
                    input.publish();
                },
                move |out: &mut Odometry| *out = *output.read(),
            )
        }),
        cell("left-right", kind, || {
            let (mut write, read) = left_right::new_from_empty::<Copied, Odometry>(Copied(ZERO));
            write.publish();
            (
                move |value: &Odometry| {
                    write.append(*value);
                    write.publish();
                },
                move |out: &mut Odometry| {
                    if let Some(value) = read.enter() {
                        *out = value.0;
                    }
                },
            )
        }),
        cell("arc-swap", kind, || {
            let swap = Arc::new(arc_swap::ArcSwap::from_pointee(ZERO));
            let reader = swap.clone();
            (
                move |value: &Odometry| swap.store(Arc::new(*value)),
                move |out: &mut Odometry| *out = **reader.load(),
            )
        }),
        cell("std_mutex", kind, || {
            let mutex = Arc::new(std::sync::Mutex::new(ZERO));
            let reader = mutex.clone();
            (
                move |value: &Odometry| *mutex.lock().expect("nobody panics") = *value,
                move |out: &mut Odometry| *out = *reader.lock().expect("nobody panics"),
            )
        }),
        cell("parking_lot", kind, || {
            let mutex = Arc::new(parking_lot::Mutex::new(ZERO));
            let reader = mutex.clone();
            (
                move |value: &Odometry| *mutex.lock() = *value,
                move |out: &mut Odometry| *out = *reader.lock(),
            )
        }),
        cpp_cell("cpp!racy", kind),
    ]
}

/// What left-right keeps two of.
#[derive(Clone)]
struct Copied(Odometry);

impl left_right::Absorb<Odometry> for Copied {
    fn absorb_first(&mut self, operation: &mut Odometry, _: &Self) {
        self.0 = *operation;
    }
    fn sync_with(&mut self, first: &Self) {
        *self = first.clone();
    }
}

const QUIET: u64 = 200_000;
const BURST_NANOS: f64 = 3_000_000.0;

fn cell<W, R>(
    name: &'static str,
    kind: Kind,
    make: impl Fn() -> (W, R) + 'static,
) -> Contender<'static>
where
    W: FnMut(&Odometry) + Send + 'static,
    R: FnMut(&mut Odometry) + Send + 'static,
{
    contender(name, move || {
        let (mut write, mut read) = make();
        write(&ZERO);
        match kind {
            Kind::ReadQuiet => {
                let work = || {
                    let mut out = ZERO;
                    for _ in 0..QUIET {
                        read(&mut out);
                        black_box(&mut out);
                    }
                };
                on_one_core(work, QUIET)
            }
            Kind::Write => {
                let work = || {
                    let mut value = ZERO;
                    for _ in 0..QUIET {
                        value.values[0] += 1.0;
                        black_box(&mut value);
                        write(&value);
                    }
                };
                on_one_core(work, QUIET)
            }
            Kind::ReadPaced { period } => on_two_cores(|| {
                let (mut write, mut read) = make();
                write(&ZERO);
                paced(
                    period,
                    move || {
                        let mut out = ZERO;
                        for _ in 0..READS {
                            read(&mut out);
                            black_box(&mut out);
                        }
                    },
                    write_numbered(write),
                )
            }),
        }
    })
}

fn write_numbered(
    mut write: impl FnMut(&Odometry) + Send + 'static,
) -> impl FnMut() + Send + 'static {
    let mut value = ZERO;
    move || {
        value.values[0] += 1.0;
        black_box(&mut value);
        write(&value);
    }
}

const READS: u64 = 32;

/// A burst of reads, `READS` at a time, beside a writer with a period.
fn paced(
    period: f64,
    mut reads: impl FnMut() + Send + 'static,
    mut write: impl FnMut() + Send + 'static,
) -> (Work, Work) {
    let is_over = Arc::new(AtomicBool::new(false));
    let until = is_over.clone();
    let period = (period * ticks_per_nano()) as u64;
    let burst = (BURST_NANOS * ticks_per_nano()) as u64;
    (
        Box::new(move || {
            let end = ticks() + burst;
            let mut count = 0;
            while ticks() < end {
                reads();
                count += READS;
            }
            is_over.store(true, Ordering::Relaxed);
            count
        }),
        Box::new(move || {
            let mut next = ticks();
            while !until.load(Ordering::Relaxed) {
                while ticks() < next {}
                next += period;
                write();
            }
            1
        }),
    )
}

fn cpp_cell(name: &'static str, kind: Kind) -> Contender<'static> {
    let new = || {
        Arc::new(cpp::Object::new(
            cpp::cpp_latest_new,
            cpp::cpp_latest_delete,
        ))
    };
    contender(name, move || {
        let cell = new();
        // SAFETY (all): the object is alive, and one thread at a time writes.
        match kind {
            Kind::ReadQuiet => on_one_core(
                || unsafe { cpp::cpp_latest_read(cell.pointer, QUIET) },
                QUIET,
            ),
            Kind::Write => on_one_core(
                || unsafe { cpp::cpp_latest_write(cell.pointer, QUIET) },
                QUIET,
            ),
            Kind::ReadPaced { period } => on_two_cores(|| {
                let (cell, writer) = (cell.clone(), cell.clone());
                paced(
                    period,
                    move || unsafe { cpp::cpp_latest_read(cell.pointer, READS) },
                    move || unsafe { cpp::cpp_latest_write(writer.pointer, 1) },
                )
            }),
        }
    })
}
