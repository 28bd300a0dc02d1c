//! Sleeping instead of spinning, at no cost to the one who publishes while nobody sleeps.
//!
//! A publisher must look for sleepers after the publication, and one that goes to sleep must look for a
//! publication after saying so. Both looks need a fence between store and load, the dearest there is. Here the
//! sleeper pays for both: it makes the kernel run a fence on every core (`membarrier`), so that the publisher gets by
//! with a load. Where the kernel cannot, each pays for its own.
//!
//! A sleeper does not count itself in and out, since one that is killed would stay counted and make every publication
//! dear for good. It leaves a mark that names the turn it sleeps on; the one that wakes the sleepers takes that mark away,
//! after the wake-up, and those who go back to sleep leave the next one. So a dead sleeper costs one wake-up, and a
//! notifier that dies in the middle leaves the mark to the next.

use alloc::vec::Vec;
use core::time::Duration;

use crate::handle::{Handle, Owned};
use crate::order;
use crate::steps::{Steps, Whole};
use crate::sync::Ordering;

#[cfg(not(loom))]
use core::sync::atomic::AtomicU32;
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;

#[cfg(loom)]
pub use kernel::Kernel;

/// The memory of a signal.
#[repr(C)]
pub struct Signal {
    /// The turn that someone sleeps on, or is about to, with [`ASLEEP`]; 0 if nobody does.
    asleep: AtomicU32,
    /// Changes with every wake-up, by [`TURN`]; the sleepers sleep on it.
    turn: AtomicU32,
    #[cfg(loom)]
    kernel: Kernel,
}

/// Tells a turn that someone sleeps on from none.
const ASLEEP: u32 = 1;
/// From one turn to the next: the lowest bit of a turn is never set.
const TURN: u32 = 2;

/// Makes a signal, to be rung beside any of the structures.
///
/// ```
/// use asof_hot::{latest, signal, MonoStamp};
/// use std::time::Duration;
///
/// let (mut writer, reader) = latest::<u64, 8>();
/// let (notifier, sleeper) = signal();
/// let thread = std::thread::spawn(move || {
///     let is_there = sleeper.wait_until(Some(Duration::from_secs(60)), || reader.generation() > 0);
///     assert!(is_there);
///     reader.read().unwrap().value
/// });
/// writer.write(&7, MonoStamp(0));
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
            asleep: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            #[cfg(loom)]
            kernel: Kernel::default(),
        }
    }

    /// With a kernel that can do so much; for the models.
    #[cfg(loom)]
    pub fn with_kernel(kernel: Kernel) -> Self {
        Signal {
            kernel,
            ..Signal::new()
        }
    }

    /// Begins the next turn and wakes all who sleep on the last one.
    #[cfg(not(loom))]
    fn begin_turn(&self) {
        self.turn.fetch_add(TURN, order::signal_wake());
        kernel::wake_all(&self.turn);
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

/// The end that wakes. There may be any number.
#[derive(Clone)]
pub struct Notifier<H = Owned<Signal>>
where
    H: Handle<Target = Signal>,
{
    memory: H,
    /// The kernel has promised this process that a sleeper's fence reaches its cores.
    is_fenced_by_sleeper: bool,
    /// What else is rung when someone sleeps.
    #[cfg_attr(loom, allow(dead_code))]
    bells: Vec<Bell>,
}

#[cfg(not(loom))]
use crate::event_fd::EventFd as Bell;
/// In a model nobody waits for a file.
#[cfg(loom)]
#[derive(Clone)]
struct Bell;

impl<H: Handle<Target = Signal>> Notifier<H> {
    /// One more notifier.
    pub fn attach(memory: H) -> Self {
        Notifier {
            is_fenced_by_sleeper: kernel::register_for_fences(&memory),
            memory,
            bells: Vec::new(),
        }
    }

    /// Rings this file too from now on, for those who wait for it by `epoll` and have said so with
    /// [`Sleeper::prepare`]. In another process than the waiter's, the file is one that was received from it.
    #[cfg(not(loom))]
    pub fn ring_also(&mut self, bell: &crate::EventFd) {
        self.bells.push(bell.clone());
    }

    /// Wakes all who sleep; call it after each publication.
    #[inline(always)]
    pub fn notify(&self) {
        self.notify_steps(&mut Whole);
    }

    /// Whether someone has said that they sleep, or are about to, since the last wake-up: the next [`notify`](Self::notify)
    /// then asks the kernel to wake them, which takes microseconds where it takes nanoseconds otherwise.
    pub fn has_sleepers(&self) -> bool {
        self.memory.asleep.load(Ordering::Relaxed) != 0
    }

    /// Notifies but dies after so many steps, as a process can; for the models.
    #[cfg(loom)]
    pub fn notify_and_die(self, steps: usize) {
        self.notify_steps(&mut crate::steps::DiesAfter(steps));
    }

    /// A moment in which the kernel may run a fence on this core, besides those within `notify`; for the models.
    #[cfg(loom)]
    pub fn may_be_fenced(&self) {
        kernel::may_be_fenced(&self.memory);
    }

    #[inline(always)]
    fn notify_steps(&self, steps: &mut impl Steps) {
        if self.is_fenced_by_sleeper {
            compiler_fence();
            #[cfg(loom)]
            self.may_be_fenced();
        } else {
            order::signal_publish_fence();
        }
        let asleep = self.memory.asleep.load(Ordering::Relaxed);
        if asleep != 0 {
            self.wake(asleep, steps);
        }
    }

    #[cold]
    fn wake(&self, asleep: u32, steps: &mut impl Steps) {
        if steps.stop() {
            return;
        }
        // The publication goes with the turn: a sleeper that sees this turn has to see it too.
        self.memory.turn.fetch_add(TURN, order::signal_wake());
        if steps.stop() {
            return;
        }
        kernel::wake_all(&self.memory.turn);
        #[cfg(not(loom))]
        for bell in &self.bells {
            bell.ring();
        }
        if steps.stop() {
            return;
        }
        // Only the mark that was answered: one of a later turn is of someone who sleeps through this one. One of the
        // same turn, by someone who came in between, is of no use to them: that turn has passed.
        let _ =
            self.memory
                .asleep
                .compare_exchange(asleep, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(loom)]
impl<H: Handle<Target = Signal>> Drop for Notifier<H> {
    fn drop(&mut self) {
        kernel::is_gone(&self.memory);
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
        let deadline = kernel::deadline(timeout);
        loop {
            // Before anything is said: who has what it waits for costs the notifiers nothing.
            if is_ready() {
                return true;
            }
            if kernel::left(deadline).is_none() {
                return false;
            }
            let turn = self.announce();
            if is_ready() {
                return true;
            }
            let Some(left) = kernel::left(deadline) else {
                return false;
            };
            let left = match (left, turn.nap) {
                (Some(left), Some(nap)) => Some(left.min(nap)),
                (left, nap) => left.or(nap),
            };
            kernel::sleep_while(&self.memory.turn, turn.number, left);
        }
    }

    /// Says, before one waits for an `EventFd` that the notifiers ring too (`Notifier::ring_also`), that one is about to;
    /// then looks.
    ///
    /// Returns whether `is_ready` holds already, and there is nothing to wait for. One call is good for one ring.
    pub fn prepare(&self, mut is_ready: impl FnMut() -> bool) -> bool {
        if is_ready() {
            return true;
        }
        self.announce();
        is_ready()
    }

    /// Says that someone is about to sleep on this turn, to all who publish from now on. Whatever was published by
    /// someone who did not hear of it is seen by a look after this.
    fn announce(&self) -> Turn {
        // The turn is read before the look: a publication after the look changes it, and nobody sleeps on a turn that
        // has passed.
        let number = self.memory.turn.load(order::signal_turn_load());
        // An exchange where a store would do: loom does not see that a store cannot fall between the two halves of the
        // exchange that takes a mark away.
        self.memory.asleep.swap(number | ASLEEP, Ordering::Relaxed);
        // A process that cannot fence the others does not hear all of them, and has to look by itself.
        let mut nap = None;
        if !kernel::fence_everyone(&self.memory) {
            order::signal_sleep_fence();
            nap = Some(Duration::from_millis(1));
        }
        Turn { number, nap }
    }

    /// How often a sleeper has asked the kernel for a fence; for the models.
    #[cfg(loom)]
    pub fn fences_asked(&self) -> u32 {
        kernel::fences_asked(&self.memory)
    }

    /// Sleeps until the next turn begins, or `is_over`; `before` is called once this end is sure to hear of it.
    #[cfg(not(loom))]
    pub(crate) fn next_turn(&self, is_over: impl Fn() -> bool, before: impl FnOnce()) {
        let turn = self.announce();
        before();
        if !is_over() {
            kernel::sleep_while(&self.memory.turn, turn.number, turn.nap);
        }
    }

    /// Wakes all who sleep, whatever there is to see.
    #[cfg(not(loom))]
    pub(crate) fn wake_everyone(&self) {
        self.memory.begin_turn();
    }
}

/// What one may sleep on.
struct Turn {
    number: u32,
    /// The longest sleep from which nobody has to be woken.
    nap: Option<Duration>,
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

    use super::Signal;

    /// Whether other processes' and threads' fences reach this process from now on.
    pub(super) fn register_for_fences(_signal: &Signal) -> bool {
        static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
        *IS_REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED))
    }

    /// A fence on this core and on every one that runs a registered process; false if the kernel cannot.
    pub(super) fn fence_everyone(_signal: &Signal) -> bool {
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

/// In a model sleeping is looking at the turn, and a fence on another core is a hand-over at a moment in which that core
/// may be interrupted: what it did before is seen by the one who asked, and what that one did before by it.
#[cfg(loom)]
mod kernel {
    use core::time::Duration;
    use loom::sync::atomic::{AtomicU32, Ordering, fence};

    use super::Signal;

    /// What the kernel can do, and the one notifier that it may have to interrupt.
    #[derive(Default)]
    pub struct Kernel {
        registers: bool,
        fences: bool,
        asked: AtomicU32,
        answered: AtomicU32,
        is_gone: AtomicU32,
    }

    impl Kernel {
        /// Nothing: everybody pays for their own fence.
        pub fn without_fences() -> Self {
            Kernel::default()
        }
        /// It fences the sleeper's core and the one notifier's.
        pub fn with_fences() -> Self {
            Kernel {
                registers: true,
                fences: true,
                ..Kernel::default()
            }
        }
        /// It fences the sleeper's core, and the notifier's process has not registered for more.
        pub fn with_unregistered_notifiers() -> Self {
            Kernel {
                fences: true,
                ..Kernel::default()
            }
        }
    }

    pub(super) fn register_for_fences(signal: &Signal) -> bool {
        signal.kernel.registers
    }

    pub(super) fn fence_everyone(signal: &Signal) -> bool {
        let kernel = &signal.kernel;
        if !kernel.fences {
            return false;
        }
        if crate::order::is_left_out("signal_membarrier=Missing") {
            return true;
        }
        fence(Ordering::SeqCst);
        if kernel.registers {
            let asked = kernel.asked.fetch_add(1, Ordering::AcqRel) + 1;
            while kernel.answered.load(Ordering::Acquire) < asked
                && kernel.is_gone.load(Ordering::Acquire) == 0
            {
                loom::thread::yield_now();
            }
        }
        true
    }

    /// Here the notifier's core may be interrupted.
    pub(super) fn may_be_fenced(signal: &Signal) {
        let kernel = &signal.kernel;
        let asked = kernel.asked.load(Ordering::Acquire);
        if kernel.registers && asked != 0 {
            kernel.answered.store(asked, Ordering::Release);
        }
    }

    /// A core that runs nothing of the notifier's needs no interruption.
    pub(super) fn is_gone(signal: &Signal) {
        signal.kernel.is_gone.store(1, Ordering::Release);
    }

    pub(super) fn wake_all(_turn: &AtomicU32) {}
    pub(super) fn sleep_while(turn: &AtomicU32, value: u32, _left: Option<Duration>) {
        // Who was woken by the kernel sees what was done before it was asked to.
        while turn.load(crate::order::signal_turn_load()) == value {
            loom::thread::yield_now();
        }
    }

    /// How often a fence was asked for.
    pub(super) fn fences_asked(signal: &Signal) -> u32 {
        signal.kernel.asked.load(Ordering::Relaxed)
    }
    pub(super) fn deadline(_timeout: Option<Duration>) {}
    #[allow(clippy::option_option)]
    pub(super) fn left(_deadline: ()) -> Option<Option<Duration>> {
        Some(None)
    }
}
