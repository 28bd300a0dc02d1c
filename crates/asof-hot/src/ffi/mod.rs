//! The C interface over the shared-memory forms: what `include/asof_hot.h` is made from.
//!
//! Sizes are known at run time only here, so the memory is described by numbers; the protocols are the same.
//! Every function that can fail returns null (or false) and leaves the reason to `asof_hot_last_error`.

#![allow(clippy::cast_ptr_alignment)] // all that is cast to is at an offset that is aligned for it
#![allow(clippy::missing_safety_doc)] // each says it under "Safety" in the header's words, once, here:
// # Safety
// Handles are those that the opening functions gave and that were not closed; names are strings that end with a zero;
// values are as large as the type that the handle was opened with; a handle is used by one thread at a time.

mod broadcast;
mod latch;
mod latest;
mod mux;
mod ring;
mod segment;
mod snapshot;

use core::cell::RefCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, Ordering};
use std::boxed::Box;
use std::ffi::CString;
use std::string::ToString;
use std::sync::Arc;

use crate::plain::TypeName;
use crate::shm::mapping::Mapping;
use crate::shm::{BODY, Make, Opening, SegmentLayout, SegmentOptions, ShmError, obtain};
use crate::stamp::{Meta, MonoStamp};

std::thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// What the values of a segment are: as the Rust side declares them with `plain!`.
#[repr(C)]
pub struct AsofType {
    /// The name of the struct.
    pub name: *const c_char,
    /// Its size in bytes.
    pub size: usize,
    /// Its alignment in bytes, 8 at most.
    pub align: usize,
    /// What its fields are, as a number that is the same on both sides (`ASOF_FIELDS` in C++ computes it); 0 if nobody
    /// knows, which fits everything.
    pub shape: u64,
}

/// Which write a value came from, and when that was.
#[repr(C)]
#[derive(Default)]
pub struct AsofMeta {
    /// The how-manieth write, from 1 on.
    pub generation: u64,
    /// The writer's time, in nanoseconds.
    pub stamp: u64,
    /// How many samples before this one were dropped unread (rings only).
    pub missed: u64,
}

impl From<Meta> for AsofMeta {
    fn from(meta: Meta) -> Self {
        AsofMeta {
            generation: meta.generation,
            stamp: meta.stamp.0,
            missed: 0,
        }
    }
}

/// Why the last opening on this thread failed; empty if it did not. Valid until the next opening.
#[unsafe(no_mangle)]
pub extern "C" fn asof_hot_last_error() -> *const c_char {
    LAST_ERROR.with(|error| error.borrow().as_ptr())
}

/// The time on this machine's monotonic clock, in nanoseconds: what the Rust side stamps with.
#[unsafe(no_mangle)]
pub extern "C" fn asof_hot_now() -> u64 {
    MonoStamp::now().0
}

/// The permissions of the segments that this process makes.
static PERMISSIONS: AtomicU32 = AtomicU32::new(0o600);

/// Says who may open the segments that this process makes from now on, as the bits of a file's mode: 0600, this user
/// alone, if nothing is said; 0660 for all of the group. Whether such permissions can be.
#[unsafe(no_mangle)]
pub extern "C" fn asof_hot_set_permissions(mode: u32) -> bool {
    let is_fine = kept(SegmentOptions::new().permissions(mode).check()).is_some();
    if is_fine {
        PERMISSIONS.store(mode, Ordering::Relaxed);
    }
    is_fine
}

/// How segments are made.
fn options() -> SegmentOptions {
    SegmentOptions::new().permissions(PERMISSIONS.load(Ordering::Relaxed))
}

/// Opens what is there, or makes it.
fn open_or_create() -> Opening {
    Opening::OpenOrCreate(options())
}

/// Removes a segment's name; true if it was there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_hot_remove(name: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    kept(unsafe { text(name) }.and_then(crate::shm::remove)).is_some()
}

fn kept<T>(result: Result<T, ShmError>) -> Option<T> {
    let text = match &result {
        Ok(_) => CString::default(),
        Err(error) => CString::new(error.to_string()).unwrap_or_default(),
    };
    LAST_ERROR.with(|error| *error.borrow_mut() = text);
    result.ok()
}

fn boxed<T>(result: Result<T, ShmError>) -> *mut T {
    kept(result).map_or(core::ptr::null_mut(), |value| {
        Box::into_raw(Box::new(value))
    })
}

/// # Safety
/// Null, or from `boxed` and not closed yet.
unsafe fn close<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// # Safety
/// Null, or valid for writing.
unsafe fn tell<T>(place: *mut T, value: impl Into<T>) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value.into()) };
    }
}

/// # Safety
/// A string that ends with a zero, alive as long as the result is used.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, ShmError> {
    if text.is_null() {
        return Err(ShmError::BadName("(null)".into()));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| ShmError::BadName(text.to_string_lossy().into()))
}

/// What a segment of values of a C type holds.
///
/// # Safety
/// The type's name is a string that ends with a zero.
unsafe fn layout(
    value: &AsofType,
    kind: u32,
    counts: [u32; 3],
    total: usize,
) -> Result<SegmentLayout, ShmError> {
    let AsofType { size, align, .. } = *value;
    if align > 8 || !align.is_power_of_two() || !size.is_multiple_of(align) {
        let reason = "C types are aligned to 1, 2, 4 or 8, and their size is a multiple of that";
        return Err(ShmError::Invalid(std::format!(
            "a type of {size} bytes aligned to {align}: {reason}"
        )));
    }
    Ok(SegmentLayout {
        kind,
        counts,
        // SAFETY: the caller's promise.
        type_name: TypeName::new(unsafe { text(value.name) }?),
        size: size as u64,
        align: align as u64,
        total: total as u64,
        shape: value.shape,
    })
}

/// Whether a number that the other language gave is one that the structure can have.
fn within(
    number: u32,
    range: core::ops::RangeInclusive<u32>,
    what: &str,
) -> Result<usize, ShmError> {
    if range.contains(&number) {
        return Ok(number as usize);
    }
    let (first, last) = (range.start(), range.end());
    Err(ShmError::Invalid(std::format!(
        "{number} {what}: there can be {first} to {last}"
    )))
}

/// The structure of a segment, reached by number.
#[derive(Clone)]
struct Body(Arc<Mapping>);

impl Body {
    /// # Safety
    /// The name is a string that ends with a zero.
    unsafe fn open(
        name: *const c_char,
        opening: Opening,
        layout: &SegmentLayout,
        make: impl Make,
    ) -> Result<Self, ShmError> {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name) }?;
        obtain(name, opening, layout, make).map(|mapping| Body(Arc::new(mapping)))
    }

    fn place(&self, offset: usize) -> *mut u8 {
        self.0.base().wrapping_add(BODY + offset)
    }

    /// What lies at an offset.
    ///
    /// # Safety
    /// There is a T at the offset, of which any bytes are one, and which is atomic or not written.
    unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: the caller's promise; the mapping is kept by this.
        unsafe { &*self.place(offset).cast() }
    }
}

/// The bytes of a slot that are kept apart from the next one's.
const fn stride(size: usize) -> usize {
    size.next_multiple_of(128)
}
