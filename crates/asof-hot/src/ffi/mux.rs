//! The priority mux.

use core::ffi::{c_char, c_void};
use core::time::Duration;
use std::string::String;
use std::vec::Vec;

use super::latest::{RawLatest, total as latest_total};
use super::{AsofMeta, AsofType, Body, boxed, close, layout, open_or_create, tell, within};
use crate::latest::Memory as _;
use crate::mux::{
    Followed, LockLimit, LockOptions, MOST, Memory, SILENT, SLOTS, SourceLimit, SourceOptions,
    Stop, command, engage, force, give_way, is_engaged, release,
};
use crate::shm::mapping::Claim;
use crate::shm::{Make, Opening, Role, ShmError, claim, disagreement};
use crate::stamp::MonoStamp;
use crate::stamp_cell::StampCell;
use crate::sync::{AtomicWord, Ordering, Word};

/// Options of one source of a mux.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AsofMuxSourceConfig {
    /// How many nanoseconds after its stamp a command is valid.
    pub timeout: u64,
}

/// Options of one lock of a mux.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AsofMuxLockConfig {
    /// How many of the lowest sources it suppresses while it is engaged.
    pub masks: u32,
    /// How many nanoseconds after a release it counts as engaged again; 0 if it has no heartbeat.
    pub heartbeat: u64,
}

/// The result of reading a mux.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsofMuxAnswer {
    /// There is a command to follow.
    Command = 0,
    /// Stop: no source has commanded within its timeout.
    Nobody = 1,
    /// Stop: a lock suppresses every live source.
    Locked = 2,
    /// Stop: sources came alive faster than they could be read.
    Unsettled = 3,
}

/// The source of a command, or the lock that prevents one.
#[repr(C)]
#[derive(Default)]
pub struct AsofMuxInfo {
    /// If there is a command: its source, counted from 0.
    pub source: u32,
    /// If all are locked: the lock, counted from 0.
    pub lock: u32,
    /// Which command of that source, and its stamp.
    pub meta: AsofMeta,
}

// The layout of `Mux`, for types aligned to at most 8: a word for each source and lock and one more, then the limits,
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
    fn watched(&self) -> *const u8 {
        // SAFETY: the ends come first, and there is one.
        core::ptr::from_ref(unsafe { self.body.at::<StampCell>(0) }).cast()
    }
    fn source_limit(&self, source: usize) -> SourceLimit {
        let offset = limits(self.source_count(), self.locks) + source * LIMIT;
        // SAFETY: the limits of the sources are there, and are not written once the mux is created.
        unsafe { *self.body.at(offset) }
    }
    fn lock_limit(&self, lock: usize) -> LockLimit {
        let offset = limits(self.source_count(), self.locks) + (self.source_count() + lock) * LIMIT;
        // SAFETY: the limits of the locks follow those of the sources, and are not written once the mux is created.
        unsafe { *self.body.at(offset) }
    }
    fn command(&self, source: usize) -> &RawLatest {
        &self.commands[source]
    }
}

/// A mux, from which ends are opened.
pub struct AsofMux(RawMux);

/// The end of one source.
pub struct AsofMuxSource {
    memory: RawMux,
    source: usize,
    limit: SourceLimit,
    generation: Word,
    _claim: Claim,
}

/// The end of one lock.
pub struct AsofMuxLock {
    memory: RawMux,
    lock: usize,
    _claim: Claim,
}

/// The director, which can force a source.
pub struct AsofMuxDirector {
    memory: RawMux,
    _claim: Claim,
}

/// Reads the command to follow.
pub struct AsofMuxOutput {
    memory: RawMux,
    followed: Followed,
}

/// # Safety
/// The name and the type's name are NUL-terminated strings.
unsafe fn open(
    name: *const c_char,
    value: &AsofType,
    [sources, locks]: [u32; 2],
    opening: Opening,
    make: impl Make,
) -> Result<RawMux, ShmError> {
    let (size, source_count) = (
        value.size,
        within(sources, 1..=MOST as u32, "sources of a mux")?,
    );
    let lock_count = within(locks, 0..=MOST as u32, "locks of a mux")?;
    // SAFETY: upheld by the caller.
    let body = unsafe {
        let total = total(size, source_count, lock_count);
        let layout = layout(value, 5, [sources, locks, 0], total)?;
        Body::open(name, opening, &layout, make)?
    };
    Ok(RawMux::new(body, size, source_count, lock_count))
}

/// The options of a mux from C.
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
    /// A mux without commands.
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
        // SAFETY: the limits are there, sources then locks, and are not written once the mux is created.
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
/// Null and 0, or valid for `count` elements as long as the result is used.
unsafe fn slice<'a, T>(first: *const T, count: u32) -> &'a [T] {
    if count == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: upheld by the caller.
    unsafe { core::slice::from_raw_parts(first, count as usize) }
}

/// Opens or creates a mux; later sources are more important. Null if it exists with other limits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_open(
    name: *const c_char,
    value: AsofType,
    sources: *const AsofMuxSourceConfig,
    source_count: u32,
    locks: *const AsofMuxLockConfig,
    lock_count: u32,
) -> *mut AsofMux {
    // SAFETY: upheld by the caller.
    let opened = unsafe {
        let settings = Settings::new(slice(sources, source_count), slice(locks, lock_count));
        let counts = [settings.sources.len() as u32, settings.locks.len() as u32];
        open(name, &value, counts, open_or_create(), settings)
    };
    boxed(opened.map(AsofMux))
}

/// Opens an existing mux with these numbers of sources and locks, whatever its limits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_open_existing(
    name: *const c_char,
    value: AsofType,
    source_count: u32,
    lock_count: u32,
) -> *mut AsofMux {
    let counts = [source_count, lock_count];
    // SAFETY: upheld by the caller.
    let opened = unsafe { open(name, &value, counts, Opening::Open, ()) };
    boxed(opened.map(AsofMux))
}

/// Closes a mux; its ends stay open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_close(mux: *mut AsofMux) {
    // SAFETY: upheld by the caller.
    unsafe { close(mux) }
}

/// Opens the end of one source, counted from 0; null while another process holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_source_open(
    mux: *const AsofMux,
    number: u32,
) -> *mut AsofMuxSource {
    // SAFETY: upheld by the caller.
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
    claim(&mux.body.mapping, role(number))
}

/// Writes a command. It is valid until its timeout after `stamp`, unless a more important source commands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_write(
    source: *mut AsofMuxSource,
    value: *const c_void,
    stamp: u64,
) {
    // SAFETY: upheld by the caller; the claim makes this the only one of its source.
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

/// Yields at once, instead of after the timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_give_way(source: *mut AsofMuxSource) {
    // SAFETY: upheld by the caller.
    let source = unsafe { &*source };
    give_way(&source.memory, source.source);
}

/// Closes the end of a source; its last command is valid until its timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_source_close(source: *mut AsofMuxSource) {
    // SAFETY: upheld by the caller.
    unsafe { close(source) }
}

/// Opens the end of one lock, counted from 0; null while another process holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_lock_open(mux: *const AsofMux, number: u32) -> *mut AsofMuxLock {
    // SAFETY: upheld by the caller.
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

/// Suppresses the lock's sources until it is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_lock_engage(lock: *mut AsofMuxLock) {
    // SAFETY: upheld by the caller.
    let lock = unsafe { &*lock };
    engage(&lock.memory, lock.lock);
}

/// Passes the lock's sources; if it has a heartbeat, until that expires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_lock_release(lock: *mut AsofMuxLock, stamp: u64) {
    // SAFETY: upheld by the caller.
    let lock = unsafe { &*lock };
    release(&lock.memory, lock.lock, MonoStamp(stamp));
}

/// Whether the lock is engaged explicitly.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_lock_is_engaged(lock: *const AsofMuxLock) -> bool {
    // SAFETY: upheld by the caller.
    let lock = unsafe { &*lock };
    is_engaged(&lock.memory, lock.lock)
}

/// Closes the end of a lock; the lock keeps its state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_lock_close(lock: *mut AsofMuxLock) {
    // SAFETY: upheld by the caller.
    unsafe { close(lock) }
}

/// Opens the end that can force a source; null while another process holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_director_open(mux: *const AsofMux) -> *mut AsofMuxDirector {
    // SAFETY: upheld by the caller.
    let mux = unsafe { &(*mux).0 };
    let claim = claim(&mux.body.mapping, Role::DIRECTOR);
    boxed(claim.map(|claim| AsofMuxDirector {
        memory: mux.share(),
        _claim: claim,
    }))
}

/// From now on only this source is followed, subject to its timeout and the locks as before; false if it does not
/// exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_force(director: *mut AsofMuxDirector, source: u32) -> bool {
    // SAFETY: upheld by the caller.
    let memory = unsafe { &(*director).memory };
    let is_there = (source as usize) < memory.source_count();
    if is_there {
        force(memory, Some(source as usize));
    }
    is_there
}

/// Returns to the priorities.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_automatic(director: *mut AsofMuxDirector) {
    // SAFETY: upheld by the caller.
    force(unsafe { &(*director).memory }, None);
}

/// Closes the director's end; a forced source stays forced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_director_close(director: *mut AsofMuxDirector) {
    // SAFETY: upheld by the caller.
    unsafe { close(director) }
}

/// Opens an existing mux with these numbers of sources and locks for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_output_open(
    name: *const c_char,
    value: AsofType,
    source_count: u32,
    lock_count: u32,
) -> *mut AsofMuxOutput {
    let counts = [source_count, lock_count];
    // SAFETY: upheld by the caller.
    let opened = unsafe { open(name, &value, counts, Opening::OpenReadOnly, ()) };
    boxed(opened.map(|memory| AsofMuxOutput {
        followed: Followed::new(&memory),
        memory,
    }))
}

/// Reads the command to follow at `now`. Without one, `value` holds a command that must not be followed, or is
/// unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_read(
    output: *const AsofMuxOutput,
    now: u64,
    value: *mut c_void,
    info: *mut AsofMuxInfo,
) -> AsofMuxAnswer {
    // SAFETY: upheld by the caller.
    let chosen = unsafe {
        let output = &*output;
        output
            .followed
            .choose(&output.memory, MonoStamp(now), value.cast())
    };
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
    // SAFETY: upheld by the caller.
    unsafe { tell(info, found) };
    answer
}

/// Closes a reading end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_mux_output_close(output: *mut AsofMuxOutput) {
    // SAFETY: upheld by the caller.
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
