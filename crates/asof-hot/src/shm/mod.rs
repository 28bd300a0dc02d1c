//! The structures in named shared memory, between processes.
//!
//! A [`Segment`] is one structure in a file under `/dev/shm`, with a header that describes it; opening it as something
//! else is an error. Its ends are claimed by locks that the kernel releases when their process dies, so that a
//! successor can take an end once it is free, and only then. (A child made by `fork` keeps the ends of a dead parent
//! until it exits or runs another program.) The ends are the same types as between threads.
//!
//! ```
//! use asof_hot::{Latest, MonoStamp, shm::Segment};
//!
//! # fn main() -> Result<(), asof_hot::shm::ShmError> {
//! # let name = format!("asof-hot-doc-{}", std::process::id());
//! let segment = Segment::<Latest<[f64; 3]>>::open_or_create(&name, ())?;
//! let mut writer = segment.writer()?;
//! assert!(segment.writer().is_err(), "there is one writer across all processes");
//!
//! // In another process:
//! let reader = Segment::<Latest<[f64; 3]>>::open_read_only(&name)?.reader();
//! writer.write(&[1.0, 2.0, 0.5], MonoStamp::now());
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
use crate::stamp::MonoStamp;
use crate::wait::{Notifier, Signal, Sleeper};

#[cfg_attr(not(feature = "ffi"), allow(unused_imports))]
pub(crate) use ends::disagreement;
pub use error::ShmError;
use mapping::{Access, File, Mapping};

/// The first bytes of every segment.
const MAGIC: [u8; 8] = *b"asof-hot";
/// Changes whenever the header or a structure is laid out differently.
const LAYOUT: u32 = 3;
/// The offset of the structure: a full page, so that no alignment is too large.
pub(crate) const BODY: usize = 4096;

/// A structure that can be in shared memory.
///
/// # Safety
/// It holds only its bytes, at the same offsets in every process; all bytes zero, followed by
/// [`init`](Self::init), is a valid structure.
pub unsafe trait Shared: Sized + Sync {
    /// What is needed to create one.
    type Config;
    /// Its kind and layout.
    fn layout() -> SegmentLayout;
    /// Initializes the structure in zeroed memory.
    ///
    /// # Safety
    /// `place` is valid for writing, and no other code has access to it.
    unsafe fn init(place: *mut Self, config: Self::Config);
    /// How the existing structure differs from one that would be created now, as text; `None` if it does not.
    fn disagreement(&self, config: &Self::Config) -> Option<String> {
        let _ = config;
        None
    }
}

/// What a segment holds; both sides must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SegmentLayout {
    /// Which structure: 1 latest, 2 ring, 3 ring that drops, 4 snapshot, 5 mux, 6 latch, 7 broadcast ring.
    pub kind: u32,
    /// The numbers of the structure: slots, readers, sources and locks.
    pub counts: [u32; 3],
    /// The type of the values, by name.
    pub type_name: TypeName,
    /// The size of a value in bytes.
    pub size: u64,
    /// The alignment of a value in bytes.
    pub align: u64,
    /// The total size of the structure in bytes.
    pub total: u64,
    /// A hash of the fields of a value, see [`Plain::SHAPE`](crate::Plain::SHAPE); 0 if unknown.
    pub shape: u64,
}

impl SegmentLayout {
    /// Whether a process that expects this layout may use the `held` one.
    fn fits(&self, held: &SegmentLayout) -> bool {
        let is_shape_fine = self.shape == 0 || held.shape == 0 || self.shape == held.shape;
        let of = |layout: &SegmentLayout| SegmentLayout {
            shape: 0,
            ..*layout
        };
        is_shape_fine && of(self) == of(held)
    }

    /// The roles of the writing ends.
    fn writers(&self) -> core::ops::Range<u16> {
        match self.kind {
            5 => roles(Role::source(0), self.counts[0]),
            _ => roles(Role::WRITER, 1),
        }
    }

    /// The roles of the reading ends that are claimed.
    fn readers(&self) -> core::ops::Range<u16> {
        match self.kind {
            1 | 5 => 0..0,
            4 => roles(Role::reader(0), self.counts[0]),
            7 => roles(Role::reader(0), self.counts[1]),
            _ => roles(Role::READER, 1),
        }
    }
}

/// `count` consecutive roles. The count comes from another process, so it may be anything.
fn roles(first: Role, count: u32) -> core::ops::Range<u16> {
    first.0..first.0 + count.min(1000) as u16
}

impl core::fmt::Display for SegmentLayout {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [first, second, _] = self.counts;
        match self.kind {
            1 => write!(f, "a latest value with {first} slots"),
            2 => write!(f, "a ring of {first} slots that refuses"),
            3 => write!(f, "a ring of {first} slots that drops its oldest"),
            4 => write!(f, "a snapshot for {first} readers"),
            5 => write!(f, "a mux of {first} sources and {second} locks"),
            6 => write!(f, "an event latch"),
            7 => write!(f, "a broadcast ring of {first} slots for {second} readers"),
            kind => write!(f, "a structure of kind {kind}"),
        }?;
        let (name, size, align) = (self.type_name, self.size, self.align);
        write!(f, " of {name} ({size} bytes, aligned to {align}")?;
        if self.shape != 0 {
            write!(f, ", fields {:016x}", self.shape)?;
        }
        f.write_str(")")
    }
}

/// The beginning of a segment.
#[repr(C)]
pub(crate) struct Header {
    magic: [u8; 8],
    layout: u32,
    /// 1 once the structure is complete.
    is_ready: AtomicU32,
    held: SegmentLayout,
    /// The number of writers so far.
    pub(crate) epoch: AtomicU64,
    pub(crate) heartbeat: AtomicU64,
    pub(crate) signal: Signal,
}

/// An open segment; the source of its ends.
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

/// Removes a segment's name. Processes that have it open keep it; the next to open the name creates a new one.
///
/// # Errors
/// If the name does not exist, or may not be removed.
pub fn remove(name: &str) -> Result<(), ShmError> {
    mapping::unlink(&path(name)?)
}

/// The system's name of a segment.
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

/// How a segment is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    Create(SegmentOptions),
    Open,
    OpenReadOnly,
    OpenOrCreate(SegmentOptions),
}

/// What is initialized in a new segment, and compared in an existing one.
pub(crate) trait Make {
    /// # Safety
    /// The place is new, all zeros, as large as the layout, and no other code has access to it.
    unsafe fn init(self, place: *mut u8);
    /// How the existing structure differs from one that would be created, as text; `None` if it does not.
    ///
    /// # Safety
    /// The place is that of a finished segment of the layout.
    unsafe fn disagreement(&self, place: *const u8) -> Option<String>;
}

/// Structures that are valid as zeros.
impl Make for () {
    unsafe fn init(self, _place: *mut u8) {}
    unsafe fn disagreement(&self, _place: *const u8) -> Option<String> {
        None
    }
}

/// A structure with its configuration.
struct Made<S: Shared>(S::Config);

impl<S: Shared> Make for Made<S> {
    unsafe fn init(self, place: *mut u8) {
        // SAFETY: upheld by the caller.
        unsafe { S::init(place.cast(), self.0) }
    }
    unsafe fn disagreement(&self, place: *const u8) -> Option<String> {
        // SAFETY: upheld by the caller.
        let there = unsafe { &*place.cast::<S>() };
        there.disagreement(&self.0)
    }
}

/// Options for creating a segment.
///
/// ```
/// use asof_hot::{Latest, shm::{SegmentOptions, remove}};
///
/// # fn main() -> Result<(), asof_hot::shm::ShmError> {
/// # let name = format!("asof-hot-doc-options-{}", std::process::id());
/// // For all users in this process's group.
/// let options = SegmentOptions::new().permissions(0o660);
/// let segment = options.open_or_create::<Latest<f64>>(&name, ())?;
/// # drop(segment);
/// # remove(&name)
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOptions {
    permissions: u32,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        SegmentOptions { permissions: 0o600 }
    }
}

impl SegmentOptions {
    /// Access for this user only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets who may open the segment, as the bits of a file mode for owner, group and others. Ends that only load need
    /// read permission ([`Segment::open_read_only`]); all others need read and write. The process's `umask` is not
    /// applied.
    #[must_use]
    pub fn permissions(mut self, mode: u32) -> Self {
        self.permissions = mode;
        self
    }

    /// Like [`Segment::create`].
    ///
    /// # Errors
    /// As there, and [`ShmError::Invalid`] if the permissions are invalid.
    pub fn create<S: Shared>(self, name: &str, config: S::Config) -> Result<Segment<S>, ShmError> {
        let made = Made::<S>(config);
        obtain(name, Opening::Create(self), &S::layout(), made).map(Segment::of)
    }

    /// Like [`Segment::open_or_create`]; an existing segment keeps its permissions.
    ///
    /// # Errors
    /// As there, and [`ShmError::Invalid`] if the permissions are invalid.
    pub fn open_or_create<S: Shared>(
        self,
        name: &str,
        config: S::Config,
    ) -> Result<Segment<S>, ShmError> {
        let made = Made::<S>(config);
        obtain(name, Opening::OpenOrCreate(self), &S::layout(), made).map(Segment::of)
    }

    pub(crate) fn check(self) -> Result<(), ShmError> {
        if self.permissions & 0o600 == 0o600 && self.permissions <= 0o777 {
            return Ok(());
        }
        Err(ShmError::Invalid(std::format!(
            "permissions {:#o}: the owner needs read and write (0o600), and only the lowest nine bits are allowed",
            self.permissions
        )))
    }
}

/// Opens or creates a segment of the given layout.
pub(crate) fn obtain(
    name: &str,
    opening: Opening,
    layout: &SegmentLayout,
    make: impl Make,
) -> Result<Mapping, ShmError> {
    let path = path(name)?;
    match opening {
        Opening::Create(options) => {
            options.check()?;
            let file = File::create_new(&path, options.permissions)?;
            let _lock = file.lock_whole()?;
            if file.size()? != 0 {
                // Another process created it in between.
                return Err(ShmError::AlreadyThere { name: name.into() });
            }
            fill(&file, options, layout, make)
        }
        Opening::OpenOrCreate(options) => {
            options.check()?;
            let file = File::open_or_create(&path, options.permissions)?;
            // While we hold the lock no other process creates it, so what is not ready now never will be.
            let _lock = file.lock_whole()?;
            let mapping = match map(name, &file, Access::ReadWrite, layout) {
                Err(ShmError::Unfinished { .. }) => return fill(&file, options, layout, make),
                opened => opened?,
            };
            // SAFETY: the segment is complete, and of this layout.
            match unsafe { make.disagreement(mapping.base().add(BODY)) } {
                Some(what) => Err(ShmError::Settings {
                    name: name.into(),
                    what,
                }),
                None => Ok(mapping),
            }
        }
        Opening::Open => open_with(name, &path, Access::ReadWrite, layout),
        Opening::OpenReadOnly => open_with(name, &path, Access::Read, layout),
    }
}

/// Initializes the structure. The file is locked.
#[allow(clippy::cast_ptr_alignment)] // to a page
fn fill(
    file: &File,
    options: SegmentOptions,
    layout: &SegmentLayout,
    make: impl Make,
) -> Result<Mapping, ShmError> {
    let size = BODY + layout.total as usize;
    file.permit(options.permissions)?;
    file.resize_to_zeros(size)?;
    let mapping = Mapping::new(file, size, Access::ReadWrite)?;
    let header = mapping.base().cast::<Header>();
    // SAFETY: the mapping is new, all zeros, large enough, aligned to a page, and not marked ready for other processes.
    unsafe {
        make.init(mapping.base().add(BODY));
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
    // Its creator needs a moment between creating the file and locking it.
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

/// Opens an existing segment of any kind, for its header.
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
    if !expected.fits(&header.held) || size < needed {
        return Err(ShmError::Mismatch {
            name: name.into(),
            found: std::boxed::Box::new(header.held),
            expected: std::boxed::Box::new(*expected),
        });
    }
    Ok(mapping)
}

/// Maps the first `needed` bytes of a file, or all if there are fewer, provided it is a segment of any kind.
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
    /// Creates a segment that does not exist yet.
    ///
    /// # Errors
    /// [`ShmError::AlreadyThere`], or an error of the system.
    pub fn create(name: &str, config: S::Config) -> Result<Self, ShmError> {
        SegmentOptions::new().create(name, config)
    }

    /// Opens an existing segment.
    ///
    /// # Errors
    /// [`ShmError::NotThere`], [`ShmError::Mismatch`] if it holds something else, or an error of the system.
    pub fn open(name: &str) -> Result<Self, ShmError> {
        obtain(name, Opening::Open, &S::layout(), ()).map(Self::of)
    }

    /// Opens a segment read-only: the memory is mapped without write access.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_read_only(name: &str) -> Result<Self, ShmError> {
        obtain(name, Opening::OpenReadOnly, &S::layout(), ()).map(Self::of)
    }

    /// Opens a segment, or creates it if it does not exist, also if a process died while creating it.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and [`ShmError::Settings`] if it exists with other settings, so that processes
    /// never disagree about a timeout, a lock or a silence. [`open`](Self::open) accepts any settings.
    pub fn open_or_create(name: &str, config: S::Config) -> Result<Self, ShmError> {
        SegmentOptions::new().open_or_create(name, config)
    }

    /// The structure, for its settings and counters; the ends come from the segment.
    pub fn structure(&self) -> Mapped<S> {
        self.handle()
    }

    fn of(mapping: Mapping) -> Self {
        Segment {
            mapping: Arc::new(mapping),
            _structure: PhantomData,
        }
    }

    /// Whether the writing end (or producer, or trigger, or any source of a mux) is held by a live process.
    pub fn is_writer_alive(&self) -> bool {
        self.mapping.is_writer_alive()
    }

    /// Whether the reading end (consumer, resetter), or one of them (of a snapshot, of a broadcast ring), is held by a
    /// live process. Ends that only load (of a latest value, of a mux, a latch's observers) are not counted.
    pub fn is_reader_alive(&self) -> bool {
        self.mapping.is_reader_alive()
    }

    /// The number of writers so far: a change means that one took over from another, or that a mux has a new one.
    pub fn epoch(&self) -> u64 {
        self.mapping.header().epoch.load(Ordering::Acquire)
    }

    /// A sign of life of a writer that has nothing to write.
    ///
    /// # Errors
    /// [`ShmError::ReadOnly`] on a segment opened read-only.
    pub fn beat(&self, now: MonoStamp) -> Result<(), ShmError> {
        self.writable()?;
        self.mapping
            .header()
            .heartbeat
            .store(now.0, Ordering::Relaxed);
        Ok(())
    }

    /// The time of the writer's last sign of life; 0 if never.
    pub fn last_beat(&self) -> MonoStamp {
        MonoStamp(self.mapping.header().heartbeat.load(Ordering::Relaxed))
    }

    /// A notifier, which wakes sleepers of this segment in all processes.
    ///
    /// # Errors
    /// [`ShmError::ReadOnly`] on a segment opened read-only.
    pub fn notifier(&self) -> Result<Notifier<SegmentSignal>, ShmError> {
        self.writable()?;
        Ok(Notifier::attach(SegmentSignal::of(&self.mapping)))
    }

    /// A sleeper, which waits for notifiers of this segment.
    ///
    /// # Errors
    /// [`ShmError::ReadOnly`] on a segment opened read-only: a sleeper has to write that it sleeps.
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

    /// A unique end: claimed until it is dropped, or its process dies.
    fn claim(&self, role: Role) -> Result<Claimed<S>, ShmError> {
        self.writable()?;
        Ok(Claimed {
            mapped: self.handle(),
            claim: claim(&self.mapping, role)?,
        })
    }
}

/// Claims an end; a writer begins a new epoch.
pub(crate) fn claim(mapping: &Mapping, role: Role) -> Result<mapping::Claim, ShmError> {
    let claim = mapping.claim(role)?;
    if mapping.header().held.writers().contains(&role.0) {
        mapping.header().epoch.fetch_add(1, Ordering::AcqRel);
    }
    Ok(claim)
}

/// Which end, as the byte of the file whose lock represents it.
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

/// The handle of ends in shared memory of which there may be any number.
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
        // SAFETY: the segment was created or checked to hold an S there, and the mapping is kept alive by this.
        unsafe { &*self.mapping.base().add(BODY).cast::<S>() }
    }
}

// SAFETY: a mapping does not move while it is alive, and clones keep the same one alive.
unsafe impl<S> Handle for Mapped<S> {}

/// The handle of unique ends in shared memory.
pub struct Claimed<S> {
    mapped: Mapped<S>,
    claim: mapping::Claim,
}

impl<S> Deref for Claimed<S> {
    type Target = S;
    #[inline(always)]
    fn deref(&self) -> &S {
        &self.mapped
    }
}

// SAFETY: as for what it holds.
unsafe impl<S> Handle for Claimed<S> {
    fn is_opposite_alive(&self) -> Option<bool> {
        let mapping = &self.mapped.mapping;
        let is_writer = mapping.header().held.writers().contains(&self.claim.role.0);
        Some(if is_writer {
            mapping.is_reader_alive()
        } else {
            mapping.is_writer_alive()
        })
    }
}

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
