//! Sleeping instead of spinning, at no cost to the one who publishes while nobody sleeps.
//!
//! Whoever publishes must look for sleepers after the publication, and whoever goes to sleep must look for a
//! publication after saying so. Both looks need a fence between store and load, the dearest there is. Here the
//! sleeper pays for both: it makes the kernel run a fence on every core (`membarrier`), so that the publisher gets by
//! with a load. Where the kernel cannot, each pays for its own.

use core::time::Duration;

use crate::handle::{Handle, Owned};
use crate::order;
use crate::sync::Ordering;

#[cfg(not(loom))]
use core::sync::atomic::AtomicU32;
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;

/// The memory of a signal.
#[repr(C)]
pub struct Signal {
    /// How many sleep, or are about to.
    sleepers: AtomicU32,
    /// Changes with every wake-up; the sleepers sleep on it.
    turn: AtomicU32,
}

/// Makes a signal, to be rung beside any of the structures.
///
/// ```
/// use asof_hot::{latest, signal, Stamp};
/// use std::time::Duration;
///
/// let (mut writer, reader) = latest::<u64, 8>();
/// let (notifier, sleeper) = signal();
/// let thread = std::thread::spawn(move || {
///     let is_there = sleeper.wait_until(Some(Duration::from_secs(60)), || reader.generation() > 0);
///     assert!(is_there);
///     reader.read().unwrap().value
/// });
/// writer.write(&7, Stamp(0));
/// notifier.notify();
/// assert_eq!(thread.join().unwrap(), 7);
/// ```
pub fn signal() -> (Notifier, Sleeper) {
    let memory = Owned::new(Signal::new());
    (Notifier::attach(memory.clone()), Sleeper::attach(memory))
}

impl Signal {
    /// Nobody sleeps.
    pub fn new() -> Self {
        Signal {
            sleepers: AtomicU32::new(0),
            turn: AtomicU32::new(0),
        }
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

/// The end that wakes. There may be any number.
#[derive(Clone)]
pub struct Notifier<H = Owned<Signal>> {
    memory: H,
    /// The kernel has promised this process that a sleeper's fence reaches its cores.
    is_fenced_by_sleeper: bool,
}

impl<H: Handle<Target = Signal>> Notifier<H> {
    /// One more notifier.
    pub fn attach(memory: H) -> Self {
        Notifier {
            memory,
            is_fenced_by_sleeper: kernel::register_for_fences(),
        }
    }

    /// Wakes all who sleep; call it after each publication.
    #[inline(always)]
    pub fn notify(&self) {
        if self.is_fenced_by_sleeper {
            compiler_fence();
        } else {
            order::signal_publish_fence();
        }
        if self.memory.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.memory.turn.fetch_add(1, Ordering::Relaxed);
        kernel::wake_all(&self.memory.turn);
    }
}

/// The end that sleeps. There may be any number.
#[derive(Clone)]
pub struct Sleeper<H = Owned<Signal>> {
    memory: H,
    spins: u32,
}

impl<H: Handle<Target = Signal>> Sleeper<H> {
    /// One more sleeper.
    pub fn attach(memory: H) -> Self {
        Sleeper { memory, spins: 0 }
    }

    /// Looks so many times before it goes to sleep: a wake-up takes the kernel ten microseconds, a look next to nothing.
    #[must_use]
    pub fn spinning(mut self, spins: u32) -> Self {
        self.spins = spins;
        self
    }

    /// Sleeps until `is_ready` holds, or the time is over; looks once more whenever it is woken.
    ///
    /// Returns whether it holds.
    pub fn wait_until(
        &self,
        timeout: Option<Duration>,
        mut is_ready: impl FnMut() -> bool,
    ) -> bool {
        for _ in 0..self.spins {
            if is_ready() {
                return true;
            }
            core::hint::spin_loop();
        }
        self.memory.sleepers.fetch_add(1, Ordering::Relaxed);
        let was_ready = self.sleep_until(timeout, &mut is_ready);
        self.memory.sleepers.fetch_sub(1, Ordering::Relaxed);
        was_ready
    }

    fn sleep_until(&self, timeout: Option<Duration>, is_ready: &mut impl FnMut() -> bool) -> bool {
        let deadline = kernel::deadline(timeout);
        // A process that cannot fence the others does not hear all of them, and has to look by itself.
        let nap = (!kernel::fence_everyone()).then_some(Duration::from_millis(1));
        loop {
            let turn = self.memory.turn.load(Ordering::Relaxed);
            // The turn is read before the look: a publication after the look changes it, and nobody sleeps on a
            // turn that has passed.
            order::signal_sleep_fence();
            if is_ready() {
                return true;
            }
            let Some(left) = kernel::left(deadline) else {
                return false;
            };
            let left = match (left, nap) {
                (Some(left), Some(nap)) => Some(left.min(nap)),
                (left, nap) => left.or(nap),
            };
            kernel::sleep_while(&self.memory.turn, turn, left);
        }
    }
}

/// Keeps the compiler, and it alone, from moving a load before a store.
#[inline(always)]
fn compiler_fence() {
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The system calls.
#[cfg(all(not(loom), target_os = "linux"))]
mod kernel {
    use core::sync::atomic::AtomicU32;
    use core::time::Duration;
    use std::sync::OnceLock;
    use std::time::Instant;

    /// Whether other processes' and threads' fences reach this process from now on.
    pub(super) fn register_for_fences() -> bool {
        static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
        *IS_REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED))
    }

    /// A fence on every core that runs a registered process; false if the kernel cannot.
    pub(super) fn fence_everyone() -> bool {
        membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
    }

    fn membarrier(command: libc::c_int) -> bool {
        if cfg!(miri) {
            return false;
        }
        // SAFETY: the call takes two integers and no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    pub(super) fn wake_all(turn: &AtomicU32) {
        // SAFETY: the address is of an atomic that is alive; waking reads no memory.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                core::ptr::from_ref(turn),
                libc::FUTEX_WAKE,
                i32::MAX,
            )
        };
    }

    /// Sleeps unless the turn has passed; may also wake for no reason.
    pub(super) fn sleep_while(turn: &AtomicU32, value: u32, left: Option<Duration>) {
        let left = left.map(|left| libc::timespec {
            tv_sec: left.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: left.subsec_nanos() as _,
        });
        let left = left.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: the address is of an atomic that is alive, the time (if any) lives through the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                core::ptr::from_ref(turn),
                libc::FUTEX_WAIT,
                value,
                left,
            )
        };
    }

    pub(super) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
        timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// `None` when the time is over, `Some(None)` when there is no end to it.
    #[allow(clippy::option_option)]
    pub(super) fn left(deadline: Option<Instant>) -> Option<Option<Duration>> {
        let Some(deadline) = deadline else {
            return Some(None);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(Some(left))
    }
}

/// In a model everybody pays for their own fence, and sleeping is looking at the turn.
#[cfg(loom)]
mod kernel {
    use core::time::Duration;
    use loom::sync::atomic::AtomicU32;

    pub(super) fn register_for_fences() -> bool {
        false
    }
    pub(super) fn fence_everyone() -> bool {
        true
    }
    pub(super) fn wake_all(_turn: &AtomicU32) {}
    pub(super) fn sleep_while(turn: &AtomicU32, value: u32, _left: Option<Duration>) {
        while turn.load(loom::sync::atomic::Ordering::Relaxed) == value {
            loom::thread::yield_now();
        }
    }
    pub(super) fn deadline(_timeout: Option<Duration>) {}
    #[allow(clippy::option_option)]
    pub(super) fn left(_deadline: ()) -> Option<Option<Duration>> {
        Some(None)
    }
}
