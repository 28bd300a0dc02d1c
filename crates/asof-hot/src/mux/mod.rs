//! Commands from several sources by priority, with timeouts and locks.
//!
//! There is no mode to switch. Each source has a priority and a timeout. A source that goes silent yields by itself,
//! and if none is live, the result is to stop. A lock suppresses sources while it is engaged, or silent.

mod followed;

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::time::Duration;

use crate::handle::{Handle, Owned};
use crate::latest::{self, Latest};
use crate::order;
use crate::plain::Plain;
use crate::stamp::{Meta, MonoStamp, nanos};
use crate::stamp_cell::StampCell;
use crate::steps::Whole;
use crate::sync::{AtomicWord, Ordering, Padded, Word};
pub(crate) use followed::Followed;

/// The expiry of a source that has no command or has yielded: later than any real one.
pub(crate) const SILENT: u64 = u64::MAX;
/// The longest timeout, 73 years: a quarter of the range of a stamp.
const MAX_TIMEOUT_NANOS: u64 = 1 << 61;
/// The most sources, and the most locks.
pub(crate) const MOST: usize = 16;
/// Slots of each level's command.
pub(crate) const SLOTS: usize = 4;

/// Options of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceOptions {
    timeout: u64,
}

impl SourceOptions {
    /// A source whose commands are valid for `timeout` from their stamp.
    ///
    /// A stamp up to `timeout` ahead of the reader's "now" counts as fresh (the reader may have read the clock first).
    /// One further ahead comes from a broken clock and counts as stale while it is that far ahead.
    pub const fn new(timeout: Duration) -> Self {
        SourceOptions {
            timeout: longest(timeout),
        }
    }

    /// How long a command is valid; at most 73 years.
    pub const fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout)
    }
}

/// A timeout in nanoseconds, at most [`MAX_TIMEOUT_NANOS`].
const fn longest(timeout: Duration) -> u64 {
    let timeout = nanos(timeout);
    if timeout > MAX_TIMEOUT_NANOS {
        MAX_TIMEOUT_NANOS
    } else {
        timeout
    }
}

/// Options of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOptions {
    masks: usize,
    /// Without a heartbeat, the largest time.
    timeout: u64,
}

impl LockOptions {
    /// A lock that suppresses the `masks` lowest sources while it is engaged.
    pub const fn new(masks: usize) -> Self {
        LockOptions {
            masks,
            timeout: u64::MAX,
        }
    }

    /// A lock that also counts as engaged if it was not released within `timeout`, or ever.
    ///
    /// A release stamped further than that ahead of the reader's "now" comes from a broken clock: the lock counts as
    /// engaged while the stamp is that far ahead.
    pub const fn with_heartbeat(masks: usize, timeout: Duration) -> Self {
        LockOptions {
            masks,
            timeout: longest(timeout),
        }
    }

    /// How many of the lowest sources it suppresses while it is engaged.
    pub const fn masks(&self) -> usize {
        self.masks
    }

    /// How long after a release it counts as engaged again, if ever; at most 73 years.
    pub const fn heartbeat(&self) -> Option<Duration> {
        if self.timeout == u64::MAX {
            None
        } else {
            Some(Duration::from_nanos(self.timeout))
        }
    }
}

/// The memory of S sources, the first the least important, and K locks.
#[repr(C)]
pub struct Mux<T, const S: usize, const K: usize = 1> {
    watched: Padded<Watched<S, K>>,
    sources: [SourceLimit; S],
    lock_limits: [LockLimit; K],
    commands: [Latest<T, SLOTS>; S],
}

/// What a reader checks besides the command itself, contiguous: one cache line for four sources.
#[repr(C)]
struct Watched<const S: usize, const K: usize> {
    /// When each source's last command expires.
    ends: [StampCell; S],
    /// The time from which each lock is engaged: 0 while it is, the largest time while it is not.
    locks: [StampCell; K],
    /// 0, or 1 more than the forced source.
    forced: AtomicWord,
}

/// Written when the mux is created, never again.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SourceLimit {
    timeout: u64,
    /// How far ahead of now the expiry of a command may be: the timeout, for a command of this moment, and once more
    /// for one slightly ahead of the reader's clock.
    window: u64,
}

impl SourceLimit {
    pub(crate) const fn new(source: SourceOptions) -> Self {
        SourceLimit {
            timeout: source.timeout,
            window: source.timeout * 2,
        }
    }

    /// When a command with this stamp expires.
    #[inline(always)]
    fn end(self, stamp: MonoStamp) -> u64 {
        stamp.0.wrapping_add(self.timeout)
    }

    /// The options that it was created with.
    pub(crate) const fn setting(self) -> SourceOptions {
        SourceOptions {
            timeout: self.timeout,
        }
    }

    /// One comparison for both: an expiry in the past wraps around to the far future.
    fn is_live(self, end: u64, now: MonoStamp) -> bool {
        end.wrapping_sub(now.0) <= self.window
    }

    /// How far back and ahead of now [`is_live`](Self::is_live) says the same.
    fn same_around(self, end: u64, now: MonoStamp) -> (u64, u64) {
        let left = end.wrapping_sub(now.0);
        if left <= self.window {
            (self.window - left, left)
        } else {
            (now.0.wrapping_sub(end) - 1, left - self.window - 1)
        }
    }
}

/// Written when the mux is created, never again.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LockLimit {
    masks: u64,
    timeout: u64,
}

impl LockLimit {
    pub(crate) const fn new(lock: LockOptions) -> Self {
        LockLimit {
            masks: lock.masks as u64,
            timeout: lock.timeout,
        }
    }

    /// From when the lock is engaged before the first release: at once if it has a heartbeat, else never.
    pub(crate) const fn at_first(self) -> u64 {
        if self.timeout == u64::MAX {
            u64::MAX
        } else {
            0
        }
    }

    /// From when the lock is engaged again after a release.
    const fn after_release(self, stamp: MonoStamp) -> u64 {
        stamp.0.saturating_add(self.timeout).saturating_add(1)
    }

    /// How far ahead of now that may be: the heartbeat, for a release of this moment, and once more for one slightly
    /// ahead of the reader's clock. Unlimited without a heartbeat.
    const fn window(self) -> u64 {
        self.timeout.saturating_mul(2).saturating_add(1)
    }

    /// Whether a lock that is engaged from `engaged_from` on passes its sources now.
    const fn is_open(self, engaged_from: u64, now: MonoStamp) -> bool {
        now.0 < engaged_from && engaged_from - now.0 <= self.window()
    }

    /// How far back and ahead of now [`is_open`](Self::is_open) says the same.
    const fn same_around(self, engaged_from: u64, now: MonoStamp) -> (u64, u64) {
        if now.0 >= engaged_from {
            return (now.0 - engaged_from, u64::MAX - now.0);
        }
        let opens_at = engaged_from.saturating_sub(self.window());
        if now.0 >= opens_at {
            (now.0 - opens_at, engaged_from - 1 - now.0)
        } else {
            (now.0, opens_at - 1 - now.0)
        }
    }

    /// The options that it was created with.
    pub(crate) const fn setting(self) -> LockOptions {
        LockOptions {
            masks: self.masks as usize,
            timeout: self.timeout,
        }
    }
}

/// What the protocol needs of the memory: typed here, sized at run time in the C interface.
pub(crate) trait Memory {
    type Command: latest::Memory;
    fn source_count(&self) -> usize;
    fn lock_count(&self) -> usize;
    fn end(&self, source: usize) -> &StampCell;
    fn lock(&self, lock: usize) -> &StampCell;
    fn forced(&self) -> &AtomicWord;
    /// The first of these words: where a processor has 64-bit atomics the ends, the locks and the forced source follow
    /// each other, aligned to 16 bytes.
    fn watched(&self) -> *const u8;
    fn source_limit(&self, source: usize) -> SourceLimit;
    fn lock_limit(&self, lock: usize) -> LockLimit;
    fn command(&self, source: usize) -> &Self::Command;
}

impl<T: Plain, const S: usize, const K: usize> Memory for Mux<T, S, K> {
    type Command = Latest<T, SLOTS>;
    #[inline(always)]
    fn source_count(&self) -> usize {
        S
    }
    #[inline(always)]
    fn lock_count(&self) -> usize {
        K
    }
    #[inline(always)]
    fn end(&self, source: usize) -> &StampCell {
        &self.watched.ends[source]
    }
    #[inline(always)]
    fn lock(&self, lock: usize) -> &StampCell {
        &self.watched.locks[lock]
    }
    #[inline(always)]
    fn forced(&self) -> &AtomicWord {
        &self.watched.forced
    }
    #[inline(always)]
    fn watched(&self) -> *const u8 {
        (&raw const self.watched).cast()
    }
    #[inline(always)]
    fn source_limit(&self, source: usize) -> SourceLimit {
        self.sources[source]
    }
    #[inline(always)]
    fn lock_limit(&self, lock: usize) -> LockLimit {
        self.lock_limits[lock]
    }
    #[inline(always)]
    fn command(&self, source: usize) -> &Latest<T, SLOTS> {
        &self.commands[source]
    }
}

/// Writes a command of `source`; `generation` is that of its last command, and becomes that of this one.
///
/// # Safety
/// The caller is the only writer of this source, and `command` is valid for a value.
#[inline(always)]
pub(crate) unsafe fn command<M: Memory>(
    memory: &M,
    source: usize,
    limit: SourceLimit,
    generation: &mut Word,
    command: *const u8,
    stamp: MonoStamp,
) {
    let latest = memory.command(source);
    // SAFETY: upheld by the caller.
    *generation = unsafe { latest::publish(latest, *generation, command, stamp, &mut Whole) };
    let end = limit.end(stamp);
    memory.end(source).store(end, order::mux_stamp_store());
}

/// Yields at once.
pub(crate) fn give_way<M: Memory>(memory: &M, source: usize) {
    memory.end(source).store(SILENT, order::mux_stamp_store());
}

/// Suppresses a lock's sources.
pub(crate) fn engage<M: Memory>(memory: &M, lock: usize) {
    memory.lock(lock).store(0, order::mux_stamp_store());
}

/// Passes a lock's sources, until its heartbeat expires.
pub(crate) fn release<M: Memory>(memory: &M, lock: usize, stamp: MonoStamp) {
    let until = memory.lock_limit(lock).after_release(stamp);
    memory.lock(lock).store(until, order::mux_stamp_store());
}

/// Whether a lock is engaged explicitly.
pub(crate) fn is_engaged<M: Memory>(memory: &M, lock: usize) -> bool {
    memory.lock(lock).load(order::mux_stamp_load()) == 0
}

/// Forces one source, or none.
pub(crate) fn force<M: Memory>(memory: &M, source: Option<usize>) {
    let forced = source.map_or(0, |source| source as Word + 1);
    memory.forced().store(forced, order::mux_stamp_store());
}

/// Copies out the command to follow at `now` and returns its source.
///
/// # Safety
/// `target` is valid for writing a value.
#[cold]
pub(crate) unsafe fn choose<M: Memory>(
    memory: &M,
    now: MonoStamp,
    target: *mut u8,
) -> Result<(usize, Meta), Stop> {
    let ends = |source| memory.end(source).load(order::mux_stamp_load());
    let locks = |lock| memory.lock(lock).load(order::mux_stamp_load());
    // A round fails if a more important source came alive during it, so there are at most as many as sources, unless
    // they also go silent in between.
    for _ in 0..=memory.source_count() {
        let (floor, stop) = floor(memory, now, locks);
        let forced = memory.forced().load(order::mux_stamp_load()) as usize;
        let Some(source) = highest(memory, floor, forced, now, ends) else {
            return Err(stop);
        };
        // SAFETY: upheld by the caller.
        let found = unsafe { latest::newest(memory.command(source), target) };
        let is_settled = self::floor(memory, now, locks).0 <= source
            && (forced != 0 || highest(memory, source + 1, 0, now, ends).is_none());
        let limit = memory.source_limit(source);
        if let Some((meta, _)) = found
            && limit.is_live(limit.end(meta.stamp), now)
            && is_settled
        {
            return Ok((source, meta));
        }
    }
    Err(Stop::Unsettled)
}

/// The lowest source that no lock suppresses, and the reason to stop if there is none.
fn floor<M: Memory>(memory: &M, now: MonoStamp, locks: impl Fn(usize) -> u64) -> (usize, Stop) {
    let mut floor = (0, Stop::Nobody);
    for lock in 0..memory.lock_count() {
        let engaged_from = locks(lock);
        let limit = memory.lock_limit(lock);
        let masks = limit.masks as usize;
        if masks > floor.0 && !limit.is_open(engaged_from, now) {
            floor = (masks, Stop::Locked { lock });
        }
    }
    floor
}

/// The most important live source at or above `floor`.
fn highest<M: Memory>(
    memory: &M,
    floor: usize,
    forced: usize,
    now: MonoStamp,
    ends: impl Fn(usize) -> u64,
) -> Option<usize> {
    let candidates = (floor..memory.source_count()).rev();
    candidates
        .filter(|source| forced == 0 || forced == source + 1)
        .find(|source| memory.source_limit(*source).is_live(ends(*source), now))
}

/// All ends of a mux.
pub struct MuxEnds<T, const S: usize, const K: usize, H = Owned<Mux<T, S, K>>> {
    /// One end for each source, the least important first.
    pub sources: [MuxSource<T, S, K, H>; S],
    /// One end for each lock.
    pub locks: [MuxLock<T, S, K, H>; K],
    /// Overrides the priorities.
    pub director: MuxDirector<T, S, K, H>,
    /// Reads the command to follow.
    pub output: MuxOutput<T, S, K, H>,
}

/// Creates a mux; later `sources` are more important.
///
/// ```
/// use asof_hot::{mux, LockOptions, MuxEnds, SourceOptions, MonoStamp, Stop};
/// use std::time::Duration;
///
/// let (navigation, teleop) = (0, 1);
/// let half_a_second = SourceOptions::new(Duration::from_nanos(500));
/// let MuxEnds { mut sources, mut locks, output, .. } =
///     mux::<f64, 2, 1>([half_a_second; 2], [LockOptions::new(2)]);
/// assert_eq!(output.read(MonoStamp(0)), Err(Stop::Nobody), "no live source: stop");
///
/// sources[navigation].write(&0.9, MonoStamp(1000));
/// sources[teleop].write(&0.1, MonoStamp(1100));
/// assert_eq!(output.read(MonoStamp(1200)).unwrap().value, 0.1);
///
/// sources[navigation].write(&0.8, MonoStamp(1500));
/// let command = output.read(MonoStamp(1700)).unwrap();
/// assert_eq!((command.value, command.source), (0.8, navigation), "teleop went silent");
///
/// locks[0].engage();
/// assert_eq!(output.read(MonoStamp(1700)), Err(Stop::Locked { lock: 0 }));
/// ```
#[cfg(feature = "alloc")]
pub fn mux<T: Plain, const S: usize, const K: usize>(
    sources: [SourceOptions; S],
    locks: [LockOptions; K],
) -> MuxEnds<T, S, K> {
    let memory = Owned::new(Mux::new(sources, locks));
    // SAFETY: the memory is new, so these are its only ends.
    unsafe { ends(&memory, Owned::clone) }
}

/// # Safety
/// The memory has no other ends.
unsafe fn ends<T: Plain, const S: usize, const K: usize, M, H: Handle<Target = Mux<T, S, K>>>(
    memory: &M,
    share: impl Fn(&M) -> H,
) -> MuxEnds<T, S, K, H> {
    // SAFETY: upheld by the caller.
    unsafe {
        MuxEnds {
            sources: core::array::from_fn(|source| MuxSource::attach(share(memory), source)),
            locks: core::array::from_fn(|lock| MuxLock::attach(share(memory), lock)),
            director: MuxDirector::attach(share(memory)),
            output: MuxOutput::attach(share(memory)),
        }
    }
}

impl<T: Plain, const S: usize, const K: usize> Mux<T, S, K> {
    /// A mux without commands.
    pub fn new(sources: [SourceOptions; S], locks: [LockOptions; K]) -> Self {
        const {
            assert!(
                S >= 1 && S <= MOST && K <= MOST,
                "from 1 to 16 sources, up to 16 locks"
            );
        };
        let lock_limits = locks.map(LockLimit::new);
        Mux {
            watched: Padded(Watched {
                ends: core::array::from_fn(|_| StampCell::new(SILENT)),
                locks: lock_limits.map(|limit| StampCell::new(limit.at_first())),
                forced: AtomicWord::new(0),
            }),
            sources: sources.map(SourceLimit::new),
            lock_limits,
            commands: core::array::from_fn(|_| Latest::new()),
        }
    }

    /// Offsets: the expiries, the locks, the forced source, the limits of sources and of locks, the commands;
    /// and the size of a source's commands.
    #[cfg(all(test, feature = "ffi", not(loom)))]
    pub(crate) fn offsets() -> [usize; 7] {
        use core::mem::offset_of;
        let watched = offset_of!(Self, watched);
        [
            watched + offset_of!(Watched<S, K>, ends),
            watched + offset_of!(Watched<S, K>, locks),
            watched + offset_of!(Watched<S, K>, forced),
            offset_of!(Self, sources),
            offset_of!(Self, lock_limits),
            offset_of!(Self, commands),
            size_of::<Latest<T, SLOTS>>(),
        ]
    }

    /// The options of the sources and the locks.
    pub fn settings(&self) -> ([SourceOptions; S], [LockOptions; K]) {
        (
            self.sources.map(SourceLimit::setting),
            self.lock_limits.map(LockLimit::setting),
        )
    }

    /// The ends, which borrow this.
    pub fn split(&mut self) -> MuxEnds<T, S, K, &Self> {
        let this = &*self;
        // SAFETY: borrowed mutably, so no other end is alive.
        unsafe { ends(&this, |this| *this) }
    }
}

/// The end of one source. There is one per source.
pub struct MuxSource<T, const S: usize, const K: usize = 1, H = Owned<Mux<T, S, K>>> {
    memory: H,
    source: usize,
    limit: SourceLimit,
    generation: Word,
    _type: PhantomData<T>,
}

impl<T: Plain, const S: usize, const K: usize, H: Handle<Target = Mux<T, S, K>>>
    MuxSource<T, S, K, H>
{
    /// Becomes a source; continues where the last one stopped.
    ///
    /// # Panics
    /// If there is no such source.
    ///
    /// # Safety
    /// No other end of this source is alive.
    pub unsafe fn attach(memory: H, source: usize) -> Self {
        assert!(source < S, "source {source} of {S}, counted from 0");
        let generation = latest::Memory::head(&memory.commands[source]).load(Ordering::Relaxed);
        MuxSource {
            limit: memory.sources[source],
            memory,
            source,
            generation,
            _type: PhantomData,
        }
    }

    /// Writes a command. It is valid until its timeout after `stamp`, unless a more important source commands.
    #[inline(always)]
    pub fn write(&mut self, command: &T, stamp: MonoStamp) {
        // SAFETY: we are the only writer of this source, and the command is a T.
        unsafe {
            self::command(
                &*self.memory,
                self.source,
                self.limit,
                &mut self.generation,
                (&raw const *command).cast(),
                stamp,
            );
        }
    }

    /// Yields at once, instead of after the timeout.
    pub fn release(&mut self) {
        give_way(&*self.memory, self.source);
    }
}

/// The end of one lock. There is one per lock.
pub struct MuxLock<T, const S: usize, const K: usize = 1, H = Owned<Mux<T, S, K>>> {
    memory: H,
    lock: usize,
    _type: PhantomData<T>,
}

impl<T: Plain, const S: usize, const K: usize, H: Handle<Target = Mux<T, S, K>>>
    MuxLock<T, S, K, H>
{
    /// Becomes a lock's owner; the lock keeps its state.
    ///
    /// # Panics
    /// If there is no such lock.
    ///
    /// # Safety
    /// No other end of this lock is alive.
    pub unsafe fn attach(memory: H, lock: usize) -> Self {
        assert!(lock < K, "lock {lock} of {K}, counted from 0");
        MuxLock {
            memory,
            lock,
            _type: PhantomData,
        }
    }

    /// Suppresses its sources until it is released.
    pub fn engage(&mut self) {
        engage(&*self.memory, self.lock);
    }

    /// Passes its sources; if the lock has a heartbeat, until that expires. A stamp that is ahead by more than the
    /// heartbeat passes nothing.
    pub fn release(&mut self, stamp: MonoStamp) {
        release(&*self.memory, self.lock, stamp);
    }

    /// Whether it is engaged explicitly.
    pub fn is_engaged(&self) -> bool {
        is_engaged(&*self.memory, self.lock)
    }
}

/// The end that can force a source. There is one.
pub struct MuxDirector<T, const S: usize, const K: usize = 1, H = Owned<Mux<T, S, K>>> {
    memory: H,
    _type: PhantomData<T>,
}

impl<T: Plain, const S: usize, const K: usize, H: Handle<Target = Mux<T, S, K>>>
    MuxDirector<T, S, K, H>
{
    /// Becomes the director.
    ///
    /// # Safety
    /// No other director of this memory is alive.
    pub unsafe fn attach(memory: H) -> Self {
        MuxDirector {
            memory,
            _type: PhantomData,
        }
    }

    /// From now on only this source is followed, subject to its timeout and the locks as before.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn force(&mut self, source: usize) {
        assert!(source < S, "source {source} of {S}, counted from 0");
        force(&*self.memory, Some(source));
    }

    /// Returns to the priorities.
    pub fn automatic(&mut self) {
        force(&*self.memory, None);
    }
}

/// Why there is no command to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// No source has commanded within its timeout.
    Nobody,
    /// A lock suppresses every live source.
    Locked {
        /// The lock.
        lock: usize,
    },
    /// More important sources came alive faster than they could be read.
    Unsettled,
}

impl core::fmt::Display for Stop {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Stop::Nobody => f.write_str("no source has commanded within its timeout"),
            Stop::Locked { lock } => write!(f, "lock {lock} is engaged, or its owner is silent"),
            Stop::Unsettled => f.write_str("sources came alive faster than they could be read"),
        }
    }
}

impl core::error::Error for Stop {}

/// A command to follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Command<T> {
    /// The command.
    pub value: T,
    /// Its source.
    pub source: usize,
    /// Its stamp, and its number among the commands of that source.
    pub meta: Meta,
}

/// The reading end. It only loads, so there may be any number.
#[derive(Clone)]
pub struct MuxOutput<T, const S: usize, const K: usize = 1, H = Owned<Mux<T, S, K>>> {
    memory: H,
    followed: Followed,
    _type: PhantomData<T>,
}

impl<T: Plain, const S: usize, const K: usize, H: Handle<Target = Mux<T, S, K>>>
    MuxOutput<T, S, K, H>
{
    /// A new reader.
    pub fn attach(memory: H) -> Self {
        MuxOutput {
            followed: Followed::new(&*memory),
            memory,
            _type: PhantomData,
        }
    }

    /// The command to follow at `now`.
    ///
    /// # Errors
    /// Why the robot has to stop; there is nothing else to do about it.
    #[inline(always)]
    pub fn read(&self, now: MonoStamp) -> Result<Command<T>, Stop> {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: there is room for a T; a handle always leads to the same memory.
        let (source, meta) = unsafe {
            self.followed
                .choose(&*self.memory, now, value.as_mut_ptr().cast())
        }?;
        Ok(Command {
            // SAFETY: filled with a complete T, as a source was chosen.
            value: unsafe { value.assume_init() },
            source,
            meta,
        })
    }

    /// Copies the command to follow at `now` into `target`: the fastest way. On an error `target` holds a command that
    /// must not be followed, or is unchanged.
    ///
    /// # Errors
    /// Why the robot has to stop.
    #[inline(always)]
    pub fn read_into(&self, now: MonoStamp, target: &mut T) -> Result<(usize, Meta), Stop> {
        // SAFETY: there is room for a T, and any bytes are a valid T; a handle always leads to the same memory.
        unsafe {
            self.followed
                .choose(&*self.memory, now, (&raw mut *target).cast())
        }
    }
}
