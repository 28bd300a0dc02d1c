//! A thread of real-time priority and one without, on the same core.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(unsafe_code, reason = "priorities and cores are set by system calls")]

use std::sync::atomic::{AtomicBool, Ordering};

use asof_core::Stamp;
use asof_tf::TransformBuffer;
use nalgebra::Isometry3;

/// Keeps the calling thread on the first core that it may use.
fn stay_on_one_core() -> std::io::Result<()> {
    // SAFETY: a set of zeros is a set; it lives through the calls, which are told its size.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        let (mut allowed, mut one): (libc::cpu_set_t, libc::cpu_set_t) = std::mem::zeroed();
        checked(libc::sched_getaffinity(0, size, &raw mut allowed))?;
        let first = (0..libc::CPU_SETSIZE as usize).find(|&core| libc::CPU_ISSET(core, &allowed));
        libc::CPU_SET(first.unwrap_or(0), &mut one);
        checked(libc::sched_setaffinity(0, size, &raw const one))
    }
}

/// Lets the calling thread run before all others.
fn take_priority() -> std::io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters live through the call.
    checked(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) })
}

fn checked(result: libc::c_int) -> std::io::Result<()> {
    if result == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

#[test]
fn a_writer_of_high_priority_waits_for_one_of_low_priority_on_its_core() {
    let buffer = TransformBuffer::new();
    let is_over = AtomicBool::new(false);
    let write = |stamp: i64| {
        buffer
            .update("a", "b", stamp.into(), Isometry3::identity())
            .expect("inside");
    };
    let is_merging = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stay_on_one_core().expect("the core is allowed");
            while !is_over.load(Ordering::Relaxed) {
                let samples = (0..20_000).map(|n| (Stamp::from_nanos(n), Isometry3::identity()));
                is_merging.store(true, Ordering::Relaxed);
                buffer.extend_edge("a", "b", samples).expect("good");
                is_merging.store(false, Ordering::Relaxed);
            }
        });
        let urgent = scope.spawn(|| {
            stay_on_one_core().expect("the core is allowed");
            if let Err(error) = take_priority() {
                asof_core::testing::skipped(format_args!(
                    "no real-time priority for this test: {error}"
                ));
            } else {
                for _ in 0..50 {
                    // Until the other one is in the middle of a merge.
                    std::thread::park();
                    write(5);
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        // Of ordinary priority, and on any core.
        while !is_over.load(Ordering::Relaxed) {
            if is_merging.load(Ordering::Relaxed) {
                urgent.thread().unpark();
            }
            std::thread::yield_now();
        }
    });
}
