//! Bursts of work on two cores, without interruption by other threads.
//!
//! Other programs would disturb the measurement. So both threads of a burst are pinned and run under a real-time policy
//! where that is allowed, for a few milliseconds, followed by as long a rest; a burst in which one of them was preempted
//! is repeated.

use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What runs on one core in a burst; gives the number of operations that it did.
pub type Work = Box<dyn FnOnce() -> u64 + Send>;

/// Runs the first work of a burst on the first core while the other runs on the second; the figure is the time of the
/// first in nanoseconds, divided by its operations.
///
/// Of the first burst in which neither was preempted, or else the median of several: while one is preempted, the other is
/// slower where it waits for it, or faster where it has the memory for itself.
pub fn on_two_cores(mut burst: impl FnMut() -> (Work, Work)) -> f64 {
    let mut disturbed = Vec::new();
    while disturbed.len() < 6 {
        let (work, other) = burst();
        let (elapsed, operations, was_disturbed) = once(work, other);
        let figure = elapsed.as_nanos() as f64 / operations as f64;
        std::thread::sleep(elapsed.min(Duration::from_millis(20)));
        if !was_disturbed {
            return figure;
        }
        disturbed.push(figure);
    }
    disturbed.sort_by(f64::total_cmp);
    disturbed[disturbed.len() / 2]
}

/// Runs `work` on the first core, several times; the figure is the shortest time in nanoseconds, divided by
/// `operations`. (Other load on the machine only adds to the time of work that does not wait.)
pub fn on_one_core(mut work: impl FnMut() + Send, operations: u64) -> f64 {
    const BURSTS: usize = 5;
    let shortest = std::thread::scope(|scope| {
        let work = &mut work;
        let worker = scope.spawn(move || {
            take_core(0);
            (0..BURSTS).map(|_| undisturbed(&mut *work).0).min()
        });
        worker
            .join()
            .expect("the work does not panic")
            .unwrap_or_default()
    });
    std::thread::sleep((shortest * BURSTS as u32).min(Duration::from_millis(20)));
    shortest.as_nanos() as f64 / operations as f64
}

fn once(work: Work, other: Work) -> (Duration, u64, bool) {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            take_core(1);
            barrier.wait();
            undisturbed(other).2
        });
        let work = scope.spawn(|| {
            take_core(0);
            barrier.wait();
            undisturbed(work)
        });
        let (elapsed, operations, was_disturbed) = work.join().expect("the work does not panic");
        let was_other = other.join().expect("the other does not panic");
        (elapsed, operations, was_disturbed || was_other)
    })
}

/// The time, the result, and whether the thread was preempted meanwhile.
fn undisturbed<R>(work: impl FnOnce() -> R) -> (Duration, R, bool) {
    let before = switches();
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result, switches() != before)
}

fn switches() -> i64 {
    // SAFETY: a rusage of zeros is a rusage, and the call fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw
    }
}

/// Pins this thread, under a real-time policy if that is allowed.
pub fn take_core(core: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // SAFETY: both structures are plain data that lives through the calls; failure changes nothing.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core % cores, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        let priority = libc::sched_param { sched_priority: 10 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority);
    }
}

/// A clock of the processor's own, cheap enough to look at all the time.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction exists on every x86-64.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// How many ticks a nanosecond has.
pub fn ticks_per_nano() -> f64 {
    static RATE: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    *RATE.get_or_init(|| {
        let (start, from) = (Instant::now(), ticks());
        while start.elapsed() < Duration::from_millis(20) {}
        (ticks() - from) as f64 / start.elapsed().as_nanos() as f64
    })
}
