//! The C interface to the structures in shared memory, from which `include/asof_hot.h` is generated.
//!
//! Sizes are known only at run time here, so the memory is described by numbers; the protocols are the same. Every
//! function that can fail returns null (or false); `asof_hot_last_error` has the reason.

#![allow(clippy::cast_ptr_alignment)] // every cast is to an offset that is aligned for it
#![allow(clippy::missing_safety_doc)] // the same for all functions, as in the header:
// # Safety
// Handles come from the opening functions and were not closed; names are NUL-terminated strings; values are as large
// as the type that the handle was opened with; a handle is used by one thread at a time.

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

/// The type of a segment's values, as declared with `plain!` on the Rust side.
#[repr(C)]
pub struct AsofType {
    /// The name of the struct.
    pub name: *const c_char,
    /// Its size in bytes.
    pub size: usize,
    /// Its alignment in bytes, at most 8.
    pub align: usize,
    /// A hash of its fields, the same on both sides (`ASOF_FIELDS` in C++ computes it); 0 if unknown, which matches
    /// everything.
    pub shape: u64,
}

/// Which write a value came from, and when.
#[repr(C)]
#[derive(Default)]
pub struct AsofMeta {
    /// The number of the write, counted from 1.
    pub generation: u64,
    /// The writer's stamp, in nanoseconds.
    pub stamp: u64,
    /// The number of samples before this one that were dropped unread (rings only).
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

/// Why the last open on this thread failed; empty if it did not. Valid until the next open.
#[unsafe(no_mangle)]
pub extern "C" fn asof_hot_last_error() -> *const c_char {
    LAST_ERROR.with(|error| error.borrow().as_ptr())
}

/// The time on this machine's monotonic clock, in nanoseconds: the stamps of the Rust side.
#[unsafe(no_mangle)]
pub extern "C" fn asof_hot_now() -> u64 {
    MonoStamp::now().0
}

/// The permissions of the segments that this process creates.
static PERMISSIONS: AtomicU32 = AtomicU32::new(0o600);

/// Sets who may open the segments that this process creates from now on, as the bits of a file mode: 0600, only this
/// user, by default; 0660 for the group. False if the mode is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn asof_hot_set_permissions(mode: u32) -> bool {
    let is_fine = kept(SegmentOptions::new().permissions(mode).check()).is_some();
    if is_fine {
        PERMISSIONS.store(mode, Ordering::Relaxed);
    }
    is_fine
}

/// The options for new segments.
fn options() -> SegmentOptions {
    SegmentOptions::new().permissions(PERMISSIONS.load(Ordering::Relaxed))
}

/// Opens an existing segment or creates it.
fn open_or_create() -> Opening {
    Opening::OpenOrCreate(options())
}

/// Removes a segment's name; true if it existed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_hot_remove(name: *const c_char) -> bool {
    // SAFETY: upheld by the caller.
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
        // SAFETY: upheld by the caller.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// # Safety
/// Null, or valid for writing.
unsafe fn tell<T>(place: *mut T, value: impl Into<T>) {
    if !place.is_null() {
        // SAFETY: upheld by the caller.
        unsafe { place.write(value.into()) };
    }
}

/// # Safety
/// A NUL-terminated string, alive as long as the result is used.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, ShmError> {
    if text.is_null() {
        return Err(ShmError::BadName("(null)".into()));
    }
    // SAFETY: upheld by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| ShmError::BadName(text.to_string_lossy().into()))
}

/// What a segment of values of a C type holds.
///
/// # Safety
/// The type's name is a NUL-terminated string.
unsafe fn layout(
    value: &AsofType,
    kind: u32,
    counts: [u32; 3],
    total: usize,
) -> Result<SegmentLayout, ShmError> {
    let AsofType { size, align, .. } = *value;
    if align > 8 || !align.is_power_of_two() || !size.is_multiple_of(align) {
        let reason = "the alignment must be 1, 2, 4 or 8, and the size a multiple of it";
        return Err(ShmError::Invalid(std::format!(
            "a type of {size} bytes aligned to {align}: {reason}"
        )));
    }
    Ok(SegmentLayout {
        kind,
        counts,
        // SAFETY: upheld by the caller.
        type_name: TypeName::new(unsafe { text(value.name) }?),
        size: size as u64,
        align: align as u64,
        total: total as u64,
        shape: value.shape,
    })
}

/// Checks that a number from C is in range.
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
        "{number} {what}: must be {first} to {last}"
    )))
}

/// The structure of a segment, accessed by offset.
#[derive(Clone)]
struct Body {
    mapping: Arc<Mapping>,
    /// Where the structure is in it.
    first: *mut u8,
}

impl Body {
    /// # Safety
    /// The name is a NUL-terminated string.
    unsafe fn open(
        name: *const c_char,
        opening: Opening,
        layout: &SegmentLayout,
        make: impl Make,
    ) -> Result<Self, ShmError> {
        // SAFETY: upheld by the caller.
        let name = unsafe { text(name) }?;
        obtain(name, opening, layout, make).map(|mapping| Body {
            first: mapping.base().wrapping_add(BODY),
            mapping: Arc::new(mapping),
        })
    }

    fn place(&self, offset: usize) -> *mut u8 {
        self.first.wrapping_add(offset)
    }

    /// The value at an offset.
    ///
    /// # Safety
    /// There is a T at the offset, any bytes are a valid T, and it is atomic or not written.
    unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: upheld by the caller; the mapping is kept alive by this.
        unsafe { &*self.place(offset).cast() }
    }
}

/// The size of a slot, padded to keep it apart from the next one.
const fn stride(size: usize) -> usize {
    size.next_multiple_of(128)
}
