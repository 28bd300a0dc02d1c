//! Commands, bumpers, and waking: single operations on one core.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asof_hot::{LatchState, LockOptions, MonoStamp, MuxEnds, SourceOptions};

use super::cores::on_one_core;
use super::cpp;
use crate::harness::{Bench, Contender, contender};

asof_hot::plain! {
    /// A velocity command, 72 bytes.
    pub struct Command { pub values: [f64; 9] }
}

pub const ZERO: Command = Command { values: [0.0; 9] };
const COUNT: u64 = 200_000;
const ROUNDS: usize = 40;

pub fn run(bench: &Bench) {
    bench.case("mux_72_write", "ns", ROUNDS, mux_write());
    bench.case("mux_72_read_4_levels", "ns", ROUNDS, mux_read(3));
    bench.case(
        "mux_72_read_4_levels_three_silent",
        "ns",
        ROUNDS,
        mux_read(0),
    );
    bench.case("latch_check", "ns", ROUNDS, latch_check());
    bench.case("notify_nobody_waiting", "ns", ROUNDS, notify());
}

pub fn four_levels() -> MuxEnds<Command, 4, 1> {
    asof_hot::mux(
        [SourceOptions::new(Duration::from_millis(500)); 4],
        [LockOptions::new(4)],
    )
}

fn mux_write() -> Vec<Contender<'static>> {
    vec![
        contender("asof", || {
            let MuxEnds { mut sources, .. } = four_levels();
            let work = || {
                let mut value = ZERO;
                for count in 0..COUNT {
                    value.values[0] += 1.0;
                    black_box(&mut value);
                    sources[3].write(&value, MonoStamp(count));
                }
            };
            on_one_core(work, COUNT)
        }),
        contender("cpp!racy", || {
            let mux = cpp::Object::new(cpp::cpp_mux_new, cpp::cpp_mux_delete);
            let address = mux.address();
            // SAFETY: the object is alive, and used by one thread.
            on_one_core(
                || unsafe { cpp::cpp_mux_write(address as *mut _, COUNT) },
                COUNT,
            )
        }),
    ]
}

fn mux_read(level: usize) -> Vec<Contender<'static>> {
    vec![
        contender("asof", move || {
            let MuxEnds {
                mut sources,
                output,
                ..
            } = four_levels();
            sources[level].write(&ZERO, MonoStamp(1000));
            let work = move || {
                let mut out = ZERO;
                let mut followed = 0;
                for count in 0..COUNT {
                    followed +=
                        u64::from(output.read_into(MonoStamp(1000 + count), &mut out).is_ok());
                    black_box(&mut out);
                }
                assert_eq!(followed, COUNT);
            };
            on_one_core(work, COUNT)
        }),
        contender("cpp!racy", || {
            let mux = cpp::Object::new(cpp::cpp_mux_new, cpp::cpp_mux_delete);
            let address = mux.address();
            // SAFETY: the object is alive, and used by one thread.
            on_one_core(
                || unsafe { cpp::cpp_mux_read(address as *const _, COUNT) },
                COUNT,
            )
        }),
    ]
}

fn latch_check() -> Vec<Contender<'static>> {
    const COUNT: u64 = 1_000_000;
    fn checks(
        name: &'static str,
        is_set: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Contender<'static> {
        contender(name, move || {
            let work = || {
                let mut hits = 0u64;
                for _ in 0..COUNT {
                    hits += u64::from(is_set());
                    hits = black_box_register(hits);
                }
                black_box(hits);
            };
            on_one_core(work, COUNT)
        })
    }
    let (_trigger, _resetter, observer) = asof_hot::event_latch(None);
    let atomic = AtomicBool::new(false);
    let std_mutex = std::sync::Mutex::new(false);
    let parking_lot = parking_lot::Mutex::new(false);
    vec![
        checks("asof", move || {
            observer.state(MonoStamp(0)) != LatchState::Clear
        }),
        checks("atomic_bool", move || atomic.load(Ordering::Acquire)),
        checks("std_mutex", move || {
            *std_mutex.lock().expect("nobody panics")
        }),
        checks("parking_lot", move || *parking_lot.lock()),
        contender("cpp!racy", || {
            let latch = cpp::Object::new(cpp::cpp_latch_new, cpp::cpp_latch_delete);
            let address = latch.address();
            // SAFETY: the object is alive, and used by one thread.
            let work = || {
                black_box(unsafe { cpp::cpp_latch_check(address as *const _, COUNT) });
            };
            on_one_core(work, COUNT)
        }),
    ]
}

/// Hides a value from the optimizer without sending it through memory.
#[inline(always)]
fn black_box_register(value: u64) -> u64 {
    let mut value = value;
    // SAFETY: the assembly is empty.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags))
    };
    value
}

fn notify() -> Vec<Contender<'static>> {
    fn publishes(name: &'static str, has_signal: bool, has_fence: bool) -> Contender<'static> {
        contender(name, move || {
            let (mut writer, _reader) = asof_hot::latest::<u64, 8>();
            let (notifier, _sleeper) = asof_hot::signal();
            let work = || {
                for count in 0..COUNT {
                    writer.write(&count, MonoStamp(count));
                    if has_fence {
                        std::sync::atomic::fence(Ordering::SeqCst);
                    }
                    if has_signal {
                        notifier.notify();
                    }
                }
            };
            on_one_core(work, COUNT)
        })
    }
    vec![
        publishes("asof", true, false),
        publishes("publish_alone", false, false),
        publishes("with_a_fence", true, true),
    ]
}
