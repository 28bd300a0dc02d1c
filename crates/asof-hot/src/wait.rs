//! Sleeping instead of spinning, at no cost to a publisher while no reader sleeps.
//!
//! A publisher must check for sleepers after the publication, and a sleeper must check for a publication after
//! announcing itself. Both checks need a fence between store and load, the most expensive kind. Here the sleeper pays
//! for both: it makes the kernel run a fence on every core (`membarrier`), so that the publisher needs only a load. If
//! the kernel cannot do that, each pays for its own.
//!
//! Sleepers are not counted, since a killed one would stay counted and make every publication expensive. A sleeper
//! leaves a mark that names the turn it sleeps on; the notifier that wakes the sleepers removes that mark after the
//! wake-up, and sleepers that go back to sleep leave the next one. So a dead sleeper costs one wake-up, and a notifier
//! that dies in the middle leaves the mark to the next.

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
    /// The turn that a sleeper sleeps on, or is about to, with [`ASLEEP`]; 0 if there is none.
    asleep: AtomicU32,
    /// Changes with every wake-up, by [`TURN`]; the sleepers sleep on it.
    turn: AtomicU32,
    #[cfg(loom)]
    kernel: Kernel,
}

/// Marks a turn that has a sleeper.
const ASLEEP: u32 = 1;
/// The step from one turn to the next: the lowest bit of a turn is never set.
const TURN: u32 = 2;

/// Creates a signal, to use with any of the structures.
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
    /// A signal without sleepers.
    pub fn new() -> Self {
        Signal {
            asleep: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            #[cfg(loom)]
            kernel: Kernel::default(),
        }
    }

    /// With a kernel of these capabilities; for the models.
    #[cfg(loom)]
    pub fn with_kernel(kernel: Kernel) -> Self {
        Signal {
            kernel,
            ..Signal::new()
        }
    }

    /// Begins the next turn and wakes all sleepers of the last one.
    #[cfg(not(loom))]
    fn begin_turn(&self) {
        self.turn.fetch_add(TURN, order::signal_wake());
        kernel::wake_all(self);
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

/// The end that wakes sleepers. There may be any number.
#[derive(Clone)]
pub struct Notifier<H = Owned<Signal>>
where
    H: Handle<Target = Signal>,
{
    memory: H,
    /// The kernel guarantees this process that a sleeper's fence reaches its cores.
    is_fenced_by_sleeper: bool,
    /// What else is rung when there is a sleeper.
    #[cfg_attr(loom, allow(dead_code))]
    bells: Vec<Bell>,
}

#[cfg(not(loom))]
use crate::event_fd::EventFd as Bell;
/// Models have no files to wait for.
#[cfg(loom)]
#[derive(Clone)]
struct Bell;

impl<H: Handle<Target = Signal>> Notifier<H> {
    /// A new notifier.
    pub fn attach(memory: H) -> Self {
        Notifier {
            is_fenced_by_sleeper: kernel::register_for_fences(&memory),
            memory,
            bells: Vec::new(),
        }
    }

    /// Also rings this file from now on, for threads that wait for it by `epoll` and have announced that with
    /// [`Sleeper::prepare`]. Across processes, the waiter has to send its file to this one.
    #[cfg(not(loom))]
    pub fn ring_also(&mut self, bell: &crate::EventFd) {
        self.bells.push(bell.clone());
    }

    /// Wakes all sleepers; call it after each publication.
    #[inline(always)]
    pub fn notify(&self) {
        self.notify_steps(&mut Whole);
    }

    /// Whether a sleeper has announced itself since the last wake-up: the next [`notify`](Self::notify) then asks the
    /// kernel to wake it, which takes microseconds instead of nanoseconds.
    pub fn has_sleepers(&self) -> bool {
        self.memory.asleep.load(Ordering::Relaxed) != 0
    }

    /// Notifies but dies after `steps` steps, as a process can; for the models.
    #[cfg(loom)]
    pub fn notify_and_die(self, steps: usize) {
        self.notify_steps(&mut crate::steps::DiesAfter(steps));
    }

    /// A point at which the kernel may run a fence on this core, besides those within `notify`; for the models.
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
        // A sleeper that sees this turn has to see the publication too.
        self.memory.turn.fetch_add(TURN, order::signal_wake());
        if steps.stop() {
            return;
        }
        kernel::wake_all(&self.memory);
        #[cfg(not(loom))]
        for bell in &self.bells {
            bell.ring();
        }
        if steps.stop() {
            return;
        }
        // Only the mark that was answered: one of a later turn belongs to a sleeper that this wake-up does not reach.
        // One of the same turn, set in between, is not needed: that turn has passed.
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

/// The end that waits. There may be any number.
#[derive(Clone)]
pub struct Sleeper<H = Owned<Signal>> {
    memory: H,
    spins: u32,
}

impl<H: Handle<Target = Signal>> Sleeper<H> {
    /// A new sleeper.
    pub fn attach(memory: H) -> Self {
        Sleeper { memory, spins: 0 }
    }

    /// Checks this many times before it goes to sleep: a wake-up takes the kernel ten microseconds, a check next to
    /// nothing.
    #[must_use]
    pub fn spinning(mut self, spins: u32) -> Self {
        self.spins = spins;
        self
    }

    /// Sleeps until `is_ready` holds or the timeout expires; checks again after every wake-up.
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
            // Before the announcement: a wait that is already satisfied costs the notifiers nothing.
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
            kernel::sleep_while(&self.memory, turn.number, left);
        }
    }

    /// Announces a wait for an `EventFd` that the notifiers also ring (`Notifier::ring_also`); then checks.
    ///
    /// Returns whether `is_ready` already holds, so that there is nothing to wait for. Each call is good for one ring.
    pub fn prepare(&self, mut is_ready: impl FnMut() -> bool) -> bool {
        if is_ready() {
            return true;
        }
        self.announce();
        is_ready()
    }

    /// Announces a sleeper on this turn to all publishers from now on. A check after this sees everything published by
    /// a notifier that did not see the announcement.
    fn announce(&self) -> Turn {
        // The turn is read before the check: a publication after the check changes it, and the kernel does not let a
        // thread sleep on a turn that has passed.
        let number = self.memory.turn.load(order::signal_turn_load());
        // Always an exchange, even for the mark that is there: a load alone could see one that was already removed.
        let mark = |last| Some(newer_mark(last, number | ASLEEP));
        let _ = (self.memory.asleep).fetch_update(Ordering::Relaxed, Ordering::Relaxed, mark);
        // A process that cannot fence the others may miss wake-ups, and has to poll.
        let mut nap = None;
        if !kernel::fence_everyone(&self.memory) {
            order::signal_sleep_fence();
            nap = Some(Duration::from_millis(1));
        }
        Turn { number, nap }
    }

    /// How often a sleeper has requested a fence from the kernel; for the models.
    #[cfg(loom)]
    pub fn fences_asked(&self) -> u32 {
        kernel::fences_asked(&self.memory)
    }

    /// Sleeps until the next turn begins, or `is_over`; `before` is called once a wake-up cannot be missed.
    #[cfg(not(loom))]
    pub(crate) fn next_turn(&self, is_over: impl Fn() -> bool, before: impl FnOnce()) {
        let turn = self.announce();
        before();
        if !is_over() {
            kernel::sleep_while(&self.memory, turn.number, turn.nap);
        }
    }

    /// Wakes all sleepers unconditionally.
    #[cfg(not(loom))]
    pub(crate) fn wake_everyone(&self) {
        self.memory.begin_turn();
    }
}

/// The mark that stays. An older one in place of a newer one would be removed by a notifier that has answered only the
/// older; a sleeper on a turn that has passed needs none.
fn newer_mark(last: u32, next: u32) -> u32 {
    #[cfg(loom)]
    if order::is_left_out("signal_newer_mark=Missing") {
        return next;
    }
    let is_older = last != 0 && (next.wrapping_sub(last) as i32) < 0;
    if is_older { last } else { next }
}

/// A turn to sleep on.
struct Turn {
    number: u32,
    /// The longest sleep, if wake-ups may be missed.
    nap: Option<Duration>,
}

/// Keeps only the compiler from moving a load before a store.
#[inline(always)]
fn compiler_fence() {
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The system calls.
#[cfg(all(not(loom), target_os = "linux"))]
mod kernel {
    use core::time::Duration;
    use std::sync::OnceLock;
    use std::time::Instant;

    use super::Signal;

    /// Whether fences of other processes and threads reach this process from now on.
    pub(super) fn register_for_fences(_signal: &Signal) -> bool {
        static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
        *IS_REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED))
    }

    /// A fence on this core and on every core that runs a registered process; `false` if the kernel does not support
    /// it.
    pub(super) fn fence_everyone(_signal: &Signal) -> bool {
        membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
    }

    fn membarrier(command: libc::c_int) -> bool {
        if cfg!(miri) {
            return false;
        }
        // SAFETY: the call takes only integers and no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    pub(super) fn wake_all(signal: &Signal) {
        // SAFETY: the address is of a live atomic; waking reads no memory.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                core::ptr::from_ref(&signal.turn),
                libc::FUTEX_WAKE,
                i32::MAX,
            )
        };
    }

    /// Sleeps unless the turn has passed; may wake spuriously.
    pub(super) fn sleep_while(signal: &Signal, turn: u32, left: Option<Duration>) {
        let left = left.map(|left| libc::timespec {
            tv_sec: left.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: left.subsec_nanos() as _,
        });
        let left = left.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: the address is of a live atomic, the time (if any) outlives the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                core::ptr::from_ref(&signal.turn),
                libc::FUTEX_WAIT,
                turn,
                left,
            )
        };
    }

    pub(super) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
        timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// `None` after the deadline, `Some(None)` without one.
    #[allow(clippy::option_option)]
    pub(super) fn left(deadline: Option<Instant>) -> Option<Option<Duration>> {
        let Some(deadline) = deadline else {
            return Some(None);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(Some(left))
    }
}

/// In a model, a turn is compared and slept on under a lock, as the kernel does, and a fence on another core is a
/// synchronization at a point where that core may be interrupted: the requester sees what that core did before, and that
/// core sees what the requester did before.
#[cfg(loom)]
mod kernel {
    use core::time::Duration;
    use loom::sync::atomic::{AtomicU32, Ordering, fence};
    use loom::sync::{Condvar, Mutex};

    use super::Signal;

    /// What the kernel supports, and the one notifier that it may have to interrupt.
    #[derive(Default)]
    pub struct Kernel {
        registers: bool,
        fences: bool,
        asked: AtomicU32,
        answered: AtomicU32,
        is_gone: AtomicU32,
        bucket: Mutex<()>,
        sleepers: Condvar,
    }

    impl Kernel {
        /// No support: every thread pays for its own fence.
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

    pub(super) fn wake_all(signal: &Signal) {
        let _bucket = signal.kernel.bucket.lock();
        signal.kernel.sleepers.notify_all();
    }

    pub(super) fn sleep_while(signal: &Signal, turn: u32, _left: Option<Duration>) {
        let kernel = &signal.kernel;
        let mut bucket = kernel
            .bucket
            .lock()
            .expect("no model panics while it holds it");
        while signal.turn.load(crate::order::signal_turn_load()) == turn {
            bucket = (kernel.sleepers.wait(bucket)).expect("no model panics while it holds it");
        }
    }

    /// How often a fence was requested.
    pub(super) fn fences_asked(signal: &Signal) -> u32 {
        signal.kernel.asked.load(Ordering::Relaxed)
    }
    pub(super) fn deadline(_timeout: Option<Duration>) {}
    #[allow(clippy::option_option)]
    pub(super) fn left(_deadline: ()) -> Option<Option<Duration>> {
        Some(None)
    }
}
