//! The structures in named shared memory, between processes.
//!
//! A [`Segment`] is one structure in a file under `/dev/shm`, with a header that says what it is; whoever opens it
//! with another idea is told so. Its ends are claimed by locks that the kernel gives up when their process dies, so
//! that a successor can take an end that is free, and only then. (A copy of a process, made by `fork`, keeps the ends
//! of one that died until it ends itself or runs another program.) The ends are the same types as between threads.
//!
//! ```
//! use asof_hot::{Latest, Stamp, shm::Segment};
//!
//! # fn main() -> Result<(), asof_hot::shm::ShmError> {
//! # let name = format!("asof-hot-doc-{}", std::process::id());
//! let segment = Segment::<Latest<[f64; 3]>>::open_or_create(&name, ())?;
//! let mut writer = segment.writer()?;
//! assert!(segment.writer().is_err(), "there is one writer, in whatever process");
//!
//! // In another process:
//! let reader = Segment::<Latest<[f64; 3]>>::open_read_only(&name)?.reader();
//! writer.write(&[1.0, 2.0, 0.5], Stamp::now());
//! assert_eq!(reader.read().unwrap().value, [1.0, 2.0, 0.5]);
//! # asof_hot::shm::remove(&name)
//! # }
//! ```

mod ends;
mod error;
pub(crate) mod mapping;

use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::string::String;
use std::sync::Arc;

use crate::handle::Handle;
use crate::plain::TypeName;
use crate::stamp::Stamp;
use crate::wait::{Notifier, Signal, Sleeper};

pub use error::ShmError;
use mapping::{Access, File, Mapping};

/// The first bytes of every segment.
const MAGIC: [u8; 8] = *b"asof-hot";
/// Changes whenever the header or a structure is laid out differently.
const LAYOUT: u32 = 2;
/// Where the structure begins: a page of its own, so that no alignment is too large.
pub(crate) const BODY: usize = 4096;

/// A structure that can live in shared memory.
///
/// # Safety
/// It holds nothing but its bytes, at the same places in every process; all bytes zero, followed by
/// [`init`](Self::init), is a valid structure.
pub unsafe trait Shared: Sized + Sync {
    /// What has to be said to make one.
    type Config;
    /// What it is, and how it is laid out.
    fn layout() -> SegmentLayout;
    /// Makes the structure in memory that is all zeros.
    ///
    /// # Safety
    /// `place` is valid for writing, and nobody else has it.
    unsafe fn init(place: *mut Self, config: Self::Config);
}

/// What a segment holds: both sides must say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SegmentLayout {
    /// Which structure: 1 latest, 2 ring, 3 ring that drops, 4 snapshot, 5 mux, 6 latch.
    pub kind: u32,
    /// Numbers that the structure was made with: slots, readers, sources and locks.
    pub counts: [u32; 3],
    /// The type of the values, by name.
    pub type_name: TypeName,
    /// The size of a value in bytes.
    pub size: u64,
    /// The alignment of a value in bytes.
    pub align: u64,
    /// The size of the whole structure in bytes.
    pub total: u64,
}

/// The beginning of a segment.
#[repr(C)]
pub(crate) struct Header {
    magic: [u8; 8],
    layout: u32,
    /// 1 once the structure is there.
    is_ready: AtomicU32,
    held: SegmentLayout,
    /// How many writers there were.
    pub(crate) epoch: AtomicU64,
    pub(crate) heartbeat: AtomicU64,
    pub(crate) signal: Signal,
}

/// Opened by someone; gives the ends.
pub struct Segment<S> {
    pub(crate) mapping: Arc<Mapping>,
    _structure: PhantomData<fn() -> S>,
}

impl<S> Clone for Segment<S> {
    fn clone(&self) -> Self {
        Segment {
            mapping: self.mapping.clone(),
            _structure: PhantomData,
        }
    }
}

/// Removes a segment's name. Those who have it open keep it; whoever opens the name next starts anew.
///
/// # Errors
/// If there is no such name, or it may not be removed.
pub fn remove(name: &str) -> Result<(), ShmError> {
    mapping::unlink(&path(name)?)
}

/// The name under which the system knows a segment.
pub(crate) fn path(name: &str) -> Result<String, ShmError> {
    let is_fine = !name.is_empty()
        && name.len() <= 200
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/')
        && !name.starts_with('.');
    if !is_fine {
        return Err(ShmError::BadName(name.into()));
    }
    Ok(std::format!("/{name}"))
}

/// How to come by a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    Create,
    Open,
    OpenReadOnly,
    OpenOrCreate,
}

/// Opens or makes a segment of the given layout; `init` makes the structure where the segment is new.
pub(crate) fn obtain(
    name: &str,
    opening: Opening,
    layout: &SegmentLayout,
    init: impl FnOnce(*mut u8),
) -> Result<Mapping, ShmError> {
    let path = path(name)?;
    match opening {
        Opening::Create => {
            let file = File::create_new(&path)?;
            let _lock = file.lock_whole()?;
            if file.size()? != 0 {
                // Another process came between, which opens or makes.
                return Err(ShmError::AlreadyThere { name: name.into() });
            }
            fill(&file, layout, init)
        }
        Opening::OpenOrCreate => {
            let file = File::open_or_create(&path)?;
            // While we hold the lock nobody else makes it, so that what is not ready now never will be.
            let _lock = file.lock_whole()?;
            match map(name, &file, Access::ReadWrite, layout) {
                Err(ShmError::Unfinished { .. }) => fill(&file, layout, init),
                opened => opened,
            }
        }
        Opening::Open => open_with(name, &path, Access::ReadWrite, layout),
        Opening::OpenReadOnly => open_with(name, &path, Access::Read, layout),
    }
}

/// Makes the structure. The file is locked.
#[allow(clippy::cast_ptr_alignment)] // to a page
fn fill(
    file: &File,
    layout: &SegmentLayout,
    init: impl FnOnce(*mut u8),
) -> Result<Mapping, ShmError> {
    let size = BODY + layout.total as usize;
    file.resize_to_zeros(size)?;
    let mapping = Mapping::new(file, size, Access::ReadWrite)?;
    let header = mapping.base().cast::<Header>();
    // SAFETY: the mapping is new, all zeros, large enough, aligned to a page, and not ready for anyone else.
    unsafe {
        init(mapping.base().add(BODY));
        (&raw mut (*header).magic).write(MAGIC);
        (&raw mut (*header).layout).write(LAYOUT);
        (&raw mut (*header).held).write(*layout);
        (*header).is_ready.store(1, Ordering::Release);
    }
    Ok(mapping)
}

fn open_with(
    name: &str,
    path: &str,
    access: Access,
    layout: &SegmentLayout,
) -> Result<Mapping, ShmError> {
    let file = File::open(path, access)?;
    // Whoever makes it needs a moment between making the file and locking it.
    for _ in 0..100 {
        match map(name, &file, access, layout) {
            Err(ShmError::Unfinished { .. }) => {
                std::thread::sleep(core::time::Duration::from_millis(2));
            }
            opened => return opened,
        }
    }
    map(name, &file, access, layout)
}

/// Opens a segment that is there, for what all of them have: its header.
#[cfg_attr(not(feature = "ffi"), allow(dead_code))]
pub(crate) fn open_whatever_it_holds(name: &str) -> Result<Mapping, ShmError> {
    let file = File::open(&path(name)?, Access::ReadWrite)?;
    let size = file.size()?;
    map_segment(name, &file, size, BODY as u64, Access::ReadWrite)
}

/// Maps a file, if it is a segment that holds what is expected.
fn map(
    name: &str,
    file: &File,
    access: Access,
    expected: &SegmentLayout,
) -> Result<Mapping, ShmError> {
    let size = file.size()?;
    let needed = BODY as u64 + expected.total;
    let mapping = map_segment(name, file, size, needed, access)?;
    let header = mapping.header();
    if header.held != *expected || size < needed {
        return Err(ShmError::Mismatch {
            name: name.into(),
            found: std::boxed::Box::new(header.held),
            expected: std::boxed::Box::new(*expected),
        });
    }
    Ok(mapping)
}

/// Maps the first `needed` bytes of a file, or all if there are fewer, if it is a segment of any kind.
fn map_segment(
    name: &str,
    file: &File,
    size: u64,
    needed: u64,
    access: Access,
) -> Result<Mapping, ShmError> {
    if size == 0 {
        return Err(ShmError::Unfinished { name: name.into() });
    }
    if size < BODY as u64 {
        return Err(ShmError::NotASegment { name: name.into() });
    }
    let mapping = Mapping::new(file, size.min(needed) as usize, access)?;
    let header = mapping.header();
    if header.is_ready.load(Ordering::Acquire) == 0 {
        return Err(ShmError::Unfinished { name: name.into() });
    }
    if header.magic != MAGIC {
        return Err(ShmError::NotASegment { name: name.into() });
    }
    if header.layout != LAYOUT {
        let found = header.layout;
        return Err(ShmError::Version {
            name: name.into(),
            found,
            expected: LAYOUT,
        });
    }
    Ok(mapping)
}

impl<S: Shared> Segment<S> {
    /// Makes a segment that is not there yet.
    ///
    /// # Errors
    /// [`ShmError::AlreadyThere`], or what the system says.
    pub fn create(name: &str, config: S::Config) -> Result<Self, ShmError> {
        // SAFETY: `obtain` gives the place of a new segment, as large as the layout says.
        let init = |place: *mut u8| unsafe { S::init(place.cast(), config) };
        obtain(name, Opening::Create, &S::layout(), init).map(Self::of)
    }

    /// Opens a segment that is there.
    ///
    /// # Errors
    /// [`ShmError::NotThere`], [`ShmError::Mismatch`] if it holds something else, or what the system says.
    pub fn open(name: &str) -> Result<Self, ShmError> {
        obtain(name, Opening::Open, &S::layout(), |_| ()).map(Self::of)
    }

    /// Opens a segment to read only: the processor itself sees to it that nothing is written.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_read_only(name: &str) -> Result<Self, ShmError> {
        obtain(name, Opening::OpenReadOnly, &S::layout(), |_| ()).map(Self::of)
    }

    /// Opens a segment, or makes it if it is not there; also if a process died while it made it.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_or_create(name: &str, config: S::Config) -> Result<Self, ShmError> {
        // SAFETY: as in `create`.
        let init = |place: *mut u8| unsafe { S::init(place.cast(), config) };
        obtain(name, Opening::OpenOrCreate, &S::layout(), init).map(Self::of)
    }

    fn of(mapping: Mapping) -> Self {
        Segment {
            mapping: Arc::new(mapping),
            _structure: PhantomData,
        }
    }

    /// Whether the writing end (or producer, or trigger) is held by a process that is alive.
    pub fn is_writer_alive(&self) -> bool {
        self.mapping.is_claimed(Role::WRITER)
    }

    /// Whether the only reading end (consumer, resetter) is held by a process that is alive.
    pub fn is_reader_alive(&self) -> bool {
        self.mapping.is_claimed(Role::READER)
    }

    /// How many writers there were so far: a change means that one took over from another.
    pub fn epoch(&self) -> u64 {
        self.mapping.header().epoch.load(Ordering::Acquire)
    }

    /// Says, for the writer, that it is alive though it has nothing to write.
    ///
    /// # Errors
    /// [`ShmError::ReadOnly`] on a segment opened to read.
    pub fn beat(&self, now: Stamp) -> Result<(), ShmError> {
        self.writable()?;
        self.mapping
            .header()
            .heartbeat
            .store(now.0, Ordering::Relaxed);
        Ok(())
    }

    /// When the writer last said so; 0 if never.
    pub fn last_beat(&self) -> Stamp {
        Stamp(self.mapping.header().heartbeat.load(Ordering::Relaxed))
    }

    /// Wakes those who sleep on this segment, in whatever process.
    ///
    /// # Errors
    /// [`ShmError::ReadOnly`] on a segment opened to read.
    pub fn notifier(&self) -> Result<Notifier<SegmentSignal>, ShmError> {
        self.writable()?;
        Ok(Notifier::attach(SegmentSignal::of(&self.mapping)))
    }

    /// Sleeps until it is woken through this segment.
    ///
    /// # Errors
    /// [`ShmError::ReadOnly`] on a segment opened to read: a sleeper says that it sleeps.
    pub fn sleeper(&self) -> Result<Sleeper<SegmentSignal>, ShmError> {
        self.writable()?;
        Ok(Sleeper::attach(SegmentSignal::of(&self.mapping)))
    }

    fn writable(&self) -> Result<(), ShmError> {
        match self.mapping.access() {
            Access::ReadWrite => Ok(()),
            Access::Read => Err(ShmError::ReadOnly),
        }
    }

    fn handle(&self) -> Mapped<S> {
        Mapped {
            mapping: self.mapping.clone(),
            _structure: PhantomData,
        }
    }

    /// An end of which there is one: claimed until it is dropped, or its process dies.
    fn claim(&self, role: Role) -> Result<Claimed<S>, ShmError> {
        self.writable()?;
        Ok(Claimed {
            mapped: self.handle(),
            _claim: claim(&self.mapping, role)?,
        })
    }
}

/// Claims an end; a writer that does begins a new epoch.
pub(crate) fn claim(mapping: &Mapping, role: Role) -> Result<mapping::Claim, ShmError> {
    let claim = mapping.claim(role)?;
    if role == Role::WRITER {
        mapping.header().epoch.fetch_add(1, Ordering::AcqRel);
    }
    Ok(claim)
}

/// Which end, as the byte of the file whose lock stands for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Role(pub(crate) u16);

impl Role {
    pub(crate) const WRITER: Role = Role(0);
    pub(crate) const READER: Role = Role(1);
    pub(crate) const DIRECTOR: Role = Role(2);

    pub(crate) const fn reader(number: usize) -> Role {
        Role(1000 + number as u16)
    }
    pub(crate) const fn source(number: usize) -> Role {
        Role(100 + number as u16)
    }
    pub(crate) const fn lock(number: usize) -> Role {
        Role(200 + number as u16)
    }
}

/// What ends in shared memory hold, where there may be any number of them.
pub struct Mapped<S> {
    mapping: Arc<Mapping>,
    _structure: PhantomData<fn() -> S>,
}

impl<S> Clone for Mapped<S> {
    fn clone(&self) -> Self {
        Mapped {
            mapping: self.mapping.clone(),
            _structure: PhantomData,
        }
    }
}

impl<S> Deref for Mapped<S> {
    type Target = S;
    #[inline(always)]
    fn deref(&self) -> &S {
        // SAFETY: the segment was made or checked to hold an S there, and the mapping is kept by this.
        unsafe { &*self.mapping.base().add(BODY).cast::<S>() }
    }
}

// SAFETY: a mapping does not move while it is kept, and clones keep the same one.
unsafe impl<S> Handle for Mapped<S> {}

/// What ends in shared memory hold, where there is only one of each.
pub struct Claimed<S> {
    mapped: Mapped<S>,
    _claim: mapping::Claim,
}

impl<S> Deref for Claimed<S> {
    type Target = S;
    #[inline(always)]
    fn deref(&self) -> &S {
        &self.mapped
    }
}

// SAFETY: as for what it holds.
unsafe impl<S> Handle for Claimed<S> {}

/// The signal of a segment.
#[derive(Clone)]
pub struct SegmentSignal(Arc<Mapping>);

impl SegmentSignal {
    pub(crate) fn of(mapping: &Arc<Mapping>) -> Self {
        SegmentSignal(mapping.clone())
    }
}

impl Deref for SegmentSignal {
    type Target = Signal;
    fn deref(&self) -> &Signal {
        &self.0.header().signal
    }
}

// SAFETY: as for Mapped.
unsafe impl Handle for SegmentSignal {}
