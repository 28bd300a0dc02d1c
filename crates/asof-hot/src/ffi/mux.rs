//! The priority mux.

use core::ffi::{c_char, c_void};
use core::time::Duration;
use std::string::String;
use std::vec::Vec;

use super::latest::{RawLatest, total as latest_total};
use super::{AsofMeta, AsofType, Body, boxed, close, layout, open_or_create, tell, within};
use crate::latest::Memory as _;
use crate::mux::{
    LockLimit, LockOptions, Memory, SILENT, SLOTS, SourceLimit, SourceOptions, Stop, choose,
    command, engage, force, give_way, is_engaged, release,
};
use crate::shm::mapping::Claim;
use crate::shm::{Make, Opening, Role, ShmError, claim, disagreement};
use crate::stamp::MonoStamp;
use crate::stamp_cell::StampCell;
use crate::sync::{AtomicWord, Ordering, Word};

/// How one source of a mux is judged.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AsofMuxSourceConfig {
    /// For how many nanoseconds from its stamp a command counts.
    pub timeout: u64,
}

/// How one lock of a mux is judged.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AsofMuxLockConfig {
    /// How many sources, from the lowest on, it keeps down while it is engaged.
    pub masks: u32,
    /// After how many nanoseconds without a release it counts as engaged; 0 if it has no heartbeat.
    pub heartbeat: u64,
}

/// What a mux says.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsofMuxAnswer {
    /// There is a command to follow.
    Command = 0,
    /// Stop: no source has commanded within its timeout.
    Nobody = 1,
    /// Stop: a lock keeps every live source down.
    Locked = 2,
    /// Stop: sources came alive faster than they could be looked at.
    Unsettled = 3,
}

/// By whom a command is, or what stands against one.
#[repr(C)]
#[derive(Default)]
pub struct AsofMuxInfo {
    /// When there is a command: whose, from 0 on.
    pub source: u32,
    /// When all are locked: by which lock, from 0 on.
    pub lock: u32,
    /// Which command of that source, and when it was given.
    pub meta: AsofMeta,
}

// As `Mux` is laid out, for types aligned to 8 at most: a word for each source and lock and one more, then the limits,
// then the commands of each source.
const WORD: usize = 8;
const LIMIT: usize = 16;

const fn limits(sources: usize, locks: usize) -> usize {
    ((sources + locks + 1) * WORD).next_multiple_of(128)
}
const fn commands(sources: usize, locks: usize) -> usize {
    (limits(sources, locks) + (sources + locks) * LIMIT).next_multiple_of(128)
}
const fn total(size: usize, sources: usize, locks: usize) -> usize {
    commands(sources, locks) + sources * latest_total(size, SLOTS)
}

/// A mux of a size known at run time.
struct RawMux {
    body: Body,
    commands: Vec<RawLatest>,
    locks: usize,
}

impl RawMux {
    fn new(body: Body, size: usize, sources: usize, locks: usize) -> Self {
        let commands = (0..sources).map(|source| RawLatest {
            body: body.clone(),
            offset: commands(sources, locks) + source * latest_total(size, SLOTS),
            slots: SLOTS,
            size,
        });
        RawMux {
            commands: commands.collect(),
            body,
            locks,
        }
    }

    fn share(&self) -> Self {
        let size = self.commands.first().map_or(0, |command| command.size);
        RawMux::new(self.body.clone(), size, self.commands.len(), self.locks)
    }
}

impl Memory for RawMux {
    type Command = RawLatest;
    fn source_count(&self) -> usize {
        self.commands.len()
    }
    fn lock_count(&self) -> usize {
        self.locks
    }
    fn end(&self, source: usize) -> &StampCell {
        // SAFETY: the ends come first.
        unsafe { self.body.at(source * WORD) }
    }
    fn lock(&self, lock: usize) -> &StampCell {
        // SAFETY: the locks follow the ends.
        unsafe { self.body.at((self.source_count() + lock) * WORD) }
    }
    fn forced(&self) -> &AtomicWord {
        // SAFETY: the forced source follows the locks.
        unsafe { self.body.at((self.source_count() + self.locks) * WORD) }
    }
    fn source_limit(&self, source: usize) -> SourceLimit {
        let offset = limits(self.source_count(), self.locks) + source * LIMIT;
        // SAFETY: the limits of the sources lie there, and are not written once the mux is made.
        unsafe { *self.body.at(offset) }
    }
    fn lock_limit(&self, lock: usize) -> LockLimit {
        let offset = limits(self.source_count(), self.locks) + (self.source_count() + lock) * LIMIT;
        // SAFETY: the limits of the locks follow those of the sources, and are not written once the mux is made.
        unsafe { *self.body.at(offset) }
    }
    fn command(&self, source: usize) -> &RawLatest {
        &self.commands[source]
    }
}

/// A mux, of which there are ends to be had.
pub struct AsofMux(RawMux);

/// Commands as one source.
pub struct AsofMuxSource {
    memory: RawMux,
    source: usize,
    limit: SourceLimit,
    generation: Word,
    _claim: Claim,
}

/// Engages and releases one lock.
pub struct AsofMuxLock {
    memory: RawMux,
    lock: usize,
    _claim: Claim,
}

/// Names the one source that counts.
pub struct AsofMuxDirector {
    memory: RawMux,
    _claim: Claim,
}

/// Reads what is to be done.
pub struct AsofMuxOutput(RawMux);

/// # Safety
/// The name and the type's name are strings that end with a zero.
unsafe fn open(
    name: *const c_char,
    value: &AsofType,
    [sources, locks]: [u32; 2],
    opening: Opening,
    make: impl Make,
) -> Result<RawMux, ShmError> {
    let (size, source_count) = (value.size, within(sources, 1..=16, "sources of a mux")?);
    let lock_count = within(locks, 0..=16, "locks of a mux")?;
    // SAFETY: the caller's promise.
    let body = unsafe {
        let total = total(size, source_count, lock_count);
        let layout = layout(value, 5, [sources, locks, 0], total)?;
        Body::open(name, opening, &layout, make)?
    };
    Ok(RawMux::new(body, size, source_count, lock_count))
}

/// What the other language says about a mux.
struct Settings {
    sources: Vec<SourceOptions>,
    locks: Vec<LockOptions>,
}

impl Settings {
    fn new(sources: &[AsofMuxSourceConfig], locks: &[AsofMuxLockConfig]) -> Self {
        let sources = sources
            .iter()
            .map(|source| SourceOptions::new(Duration::from_nanos(source.timeout)));
        let locks = locks.iter().map(|lock| match lock.heartbeat {
            0 => LockOptions::new(lock.masks as usize),
            nanos => LockOptions::with_heartbeat(lock.masks as usize, Duration::from_nanos(nanos)),
        });
        Settings {
            sources: sources.collect(),
            locks: locks.collect(),
        }
    }
}

impl Make for Settings {
    /// Nobody commands yet.
    unsafe fn init(self, place: *mut u8) {
        let limits = place.wrapping_add(limits(self.sources.len(), self.locks.len()));
        let word = |index: usize| place.wrapping_add(index * WORD).cast::<StampCell>();
        for (index, source) in self.sources.iter().enumerate() {
            let limit = SourceLimit::new(*source);
            // SAFETY: the ends come first, the limits of the sources where the limits begin.
            unsafe {
                word(index).write(StampCell::new(SILENT));
                limits.add(index * LIMIT).cast::<SourceLimit>().write(limit);
            }
        }
        for (index, lock) in (self.sources.len()..).zip(&self.locks) {
            let limit = LockLimit::new(*lock);
            // SAFETY: the locks follow the sources, in both.
            unsafe {
                word(index).write(StampCell::new(limit.at_first()));
                limits.add(index * LIMIT).cast::<LockLimit>().write(limit);
            }
        }
    }

    unsafe fn disagreement(&self, place: *const u8) -> Option<String> {
        let (sources, locks) = (self.sources.len(), self.locks.len());
        let limits = place.wrapping_add(limits(sources, locks));
        // SAFETY: the limits lie there, sources then locks, and are not written once the mux is made.
        let (made_sources, made_locks): (Vec<SourceOptions>, Vec<LockOptions>) = unsafe {
            let source = |index| *limits.add(index * LIMIT).cast::<SourceLimit>();
            let lock = |index| *limits.add((sources + index) * LIMIT).cast::<LockLimit>();
            (
                (0..sources).map(|index| source(index).setting()).collect(),
                (0..locks).map(|index| lock(index).setting()).collect(),
            )
        };
        disagreement((&made_sources, &made_locks), (&self.sources, &self.locks))
    }
}

/// # Safety
/// Null and 0, or so many that live as long as the result is used.
unsafe fn slice<'a, T>(first: *const T, count: u32) -> &'a [T] {
    if count == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(first, count as usize) }
}

/// Opens a mux, or makes it: the later a source, the more important. Null if it is there with other limits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_open(
    name: *const c_char,
    value: AsofType,
    sources: *const AsofMuxSourceConfig,
    source_count: u32,
    locks: *const AsofMuxLockConfig,
    lock_count: u32,
) -> *mut AsofMux {
    // SAFETY: the caller's promise.
    let opened = unsafe {
        let settings = Settings::new(slice(sources, source_count), slice(locks, lock_count));
        let counts = [settings.sources.len() as u32, settings.locks.len() as u32];
        open(name, &value, counts, open_or_create(), settings)
    };
    boxed(opened.map(AsofMux))
}

/// Opens a mux of so many sources and locks that is there, with the limits that it has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_open_existing(
    name: *const c_char,
    value: AsofType,
    source_count: u32,
    lock_count: u32,
) -> *mut AsofMux {
    let counts = [source_count, lock_count];
    // SAFETY: the caller's promise.
    let opened = unsafe { open(name, &value, counts, Opening::Open, ()) };
    boxed(opened.map(AsofMux))
}

/// Closes a mux; ends that were had of it stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_close(mux: *mut AsofMux) {
    // SAFETY: the caller's promise.
    unsafe { close(mux) }
}

/// The end of one source, from 0 on; null while another process holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_source_open(
    mux: *const AsofMux,
    number: u32,
) -> *mut AsofMuxSource {
    // SAFETY: the caller's promise.
    let mux = unsafe { &(*mux).0 };
    let (source, count) = (number as usize, mux.source_count());
    boxed(
        claimed(mux, source, count, Role::source).map(|claim| AsofMuxSource {
            limit: mux.source_limit(source),
            generation: mux.command(source).head().load(Ordering::Relaxed),
            memory: mux.share(),
            source,
            _claim: claim,
        }),
    )
}

fn claimed(
    mux: &RawMux,
    number: usize,
    count: usize,
    role: impl FnOnce(usize) -> Role,
) -> Result<Claim, ShmError> {
    if number >= count {
        return Err(ShmError::NoSuchEnd { number, count });
    }
    claim(&mux.body.0, role(number))
}

/// Commands. It counts until its timeout has passed since `stamp`, unless someone more important commands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_write(
    source: *mut AsofMuxSource,
    value: *const c_void,
    stamp: u64,
) {
    // SAFETY: the caller's promise; the claim makes this the only one of its source.
    unsafe {
        let source = &mut *source;
        let (number, limit) = (source.source, source.limit);
        let generation = &mut source.generation;
        let stamp = MonoStamp(stamp);
        command(
            &source.memory,
            number,
            limit,
            generation,
            value.cast(),
            stamp,
        );
    }
}

/// Gives way at once, instead of after the timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_give_way(source: *mut AsofMuxSource) {
    // SAFETY: the caller's promise.
    let source = unsafe { &*source };
    give_way(&source.memory, source.source);
}

/// Gives the end of a source up; its last command counts until its timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_source_close(source: *mut AsofMuxSource) {
    // SAFETY: the caller's promise.
    unsafe { close(source) }
}

/// The end of one lock, from 0 on; null while another process holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_lock_open(mux: *const AsofMux, number: u32) -> *mut AsofMuxLock {
    // SAFETY: the caller's promise.
    let mux = unsafe { &(*mux).0 };
    let (lock, count) = (number as usize, mux.lock_count());
    boxed(
        claimed(mux, lock, count, Role::lock).map(|claim| AsofMuxLock {
            memory: mux.share(),
            lock,
            _claim: claim,
        }),
    )
}

/// Keeps the lock's sources down until it is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_lock_engage(lock: *mut AsofMuxLock) {
    // SAFETY: the caller's promise.
    let lock = unsafe { &*lock };
    engage(&lock.memory, lock.lock);
}

/// Lets the lock's sources through; where it has a heartbeat, until that runs out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_lock_release(lock: *mut AsofMuxLock, stamp: u64) {
    // SAFETY: the caller's promise.
    let lock = unsafe { &*lock };
    release(&lock.memory, lock.lock, MonoStamp(stamp));
}

/// Whether the lock is engaged by hand.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_lock_is_engaged(lock: *const AsofMuxLock) -> bool {
    // SAFETY: the caller's promise.
    let lock = unsafe { &*lock };
    is_engaged(&lock.memory, lock.lock)
}

/// Gives the end of a lock up; it stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_lock_close(lock: *mut AsofMuxLock) {
    // SAFETY: the caller's promise.
    unsafe { close(lock) }
}

/// The end that can name the one source that counts; null while another process holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_director_open(mux: *const AsofMux) -> *mut AsofMuxDirector {
    // SAFETY: the caller's promise.
    let mux = unsafe { &(*mux).0 };
    let claim = claim(&mux.body.0, Role::DIRECTOR);
    boxed(claim.map(|claim| AsofMuxDirector {
        memory: mux.share(),
        _claim: claim,
    }))
}

/// From now on only this source counts, by its timeout and under the locks as ever; false if there is none such.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_force(director: *mut AsofMuxDirector, source: u32) -> bool {
    // SAFETY: the caller's promise.
    let memory = unsafe { &(*director).memory };
    let is_there = (source as usize) < memory.source_count();
    if is_there {
        force(memory, Some(source as usize));
    }
    is_there
}

/// From now on the priorities decide again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_automatic(director: *mut AsofMuxDirector) {
    // SAFETY: the caller's promise.
    force(unsafe { &(*director).memory }, None);
}

/// Gives the director's end up; what it forced stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_director_close(director: *mut AsofMuxDirector) {
    // SAFETY: the caller's promise.
    unsafe { close(director) }
}

/// Opens a mux of so many sources and locks to read; it must be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_output_open(
    name: *const c_char,
    value: AsofType,
    source_count: u32,
    lock_count: u32,
) -> *mut AsofMuxOutput {
    let counts = [source_count, lock_count];
    // SAFETY: the caller's promise.
    let opened = unsafe { open(name, &value, counts, Opening::OpenReadOnly, ()) };
    boxed(opened.map(AsofMuxOutput))
}

/// What is to be done at `now`. Without a command, `value` holds one that is not to be followed, or what it held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_read(
    output: *const AsofMuxOutput,
    now: u64,
    value: *mut c_void,
    info: *mut AsofMuxInfo,
) -> AsofMuxAnswer {
    // SAFETY: the caller's promise.
    let chosen = unsafe { choose(&(*output).0, MonoStamp(now), value.cast()) };
    let mut found = AsofMuxInfo::default();
    let answer = match chosen {
        Ok((source, meta)) => {
            (found.source, found.meta) = (source as u32, meta.into());
            AsofMuxAnswer::Command
        }
        Err(Stop::Nobody) => AsofMuxAnswer::Nobody,
        Err(Stop::Locked { lock }) => {
            found.lock = lock as u32;
            AsofMuxAnswer::Locked
        }
        Err(Stop::Unsettled) => AsofMuxAnswer::Unsettled,
    };
    // SAFETY: the caller's promise.
    unsafe { tell(info, found) };
    answer
}

/// Closes a reading end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_output_close(output: *mut AsofMuxOutput) {
    // SAFETY: the caller's promise.
    unsafe { close(output) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mux;

    #[test]
    fn the_numbers_describe_the_rust_structure() {
        fn check<const SIZE: usize, const S: usize, const K: usize>() {
            assert_eq!(total(SIZE, S, K), size_of::<Mux<[u8; SIZE], S, K>>());
            let numbers = [
                0,
                S * WORD,
                (S + K) * WORD,
                limits(S, K),
                limits(S, K) + S * LIMIT,
                commands(S, K),
                latest_total(SIZE, SLOTS),
            ];
            assert_eq!(numbers, Mux::<[u8; SIZE], S, K>::offsets());
        }
        check::<1, 1, 0>();
        check::<72, 4, 1>();
        check::<72, 16, 16>();
    }
}
