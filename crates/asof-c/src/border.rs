//! What every function of the C interface shares: statuses, messages, and the checks of what comes from outside.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use asof_core::Stamp;
use asof_tf::{LookupError, TransformWaitError, UpdateError};

/// How a call ended. `asof_last_error` has a sentence about everything but `ASOF_STATUS_OK`.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsofStatus {
    /// It was done.
    Ok = 0,
    /// An argument cannot be used: NULL, a freed handle, a bad name, a bad pose, text that is not UTF-8.
    InvalidArgument = 1,
    /// A frame, a topic or a column does not exist.
    NotFound = 2,
    /// The frames are in different trees.
    Disconnected = 3,
    /// The time is before what is held.
    ExtrapolationPast = 4,
    /// The time is after what is held.
    ExtrapolationFuture = 5,
    /// An edge on the way has no sample.
    NoData = 6,
    /// The parents of a frame form a cycle.
    Cycle = 7,
    /// The update conflicts with what is held.
    Refused = 8,
    /// The sample is older than what is kept.
    TooOld = 9,
    /// A limit is reached.
    Full = 10,
    /// The time was up.
    TimedOut = 11,
    /// Waiting cannot help.
    Never = 12,
    /// There is nothing more. Not an error.
    End = 13,
    /// It has not happened yet. Not an error.
    Pending = 14,
    /// A file, a server or a message could not be read or written.
    Unreadable = 15,
    /// This build or this system does not have it.
    Unsupported = 16,
    /// A defect of asof: please report it. The handle may be freed; what else it does is unspecified.
    Internal = 99,
}

/// Why a call failed.
pub(crate) struct Failure {
    pub(crate) status: AsofStatus,
    text: Text,
}

/// Formatted only when somebody asks.
enum Text {
    Fixed(&'static str),
    Own(String),
    Lookup(LookupError),
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: AsofStatus, text: impl Display) -> Self {
        let text = Text::Own(text.to_string());
        Failure { status, text }
    }

    pub(crate) const fn fixed(status: AsofStatus, text: &'static str) -> Self {
        let text = Text::Fixed(text);
        Failure { status, text }
    }

    pub(crate) const fn invalid(text: &'static str) -> Self {
        Failure::fixed(AsofStatus::InvalidArgument, text)
    }

    pub(crate) fn text(&self) -> CString {
        let text = match &self.text {
            Text::Fixed(text) => (*text).to_owned(),
            Text::Own(text) => text.clone(),
            Text::Lookup(error) => error.to_string(),
        };
        c_text(text)
    }
}

impl From<LookupError> for Failure {
    fn from(error: LookupError) -> Self {
        let status = match &error {
            LookupError::UnknownFrame { .. } => AsofStatus::NotFound,
            LookupError::Disconnected { .. } => AsofStatus::Disconnected,
            LookupError::NoData { .. } => AsofStatus::NoData,
            LookupError::Extrapolation { asked, oldest, .. } if asked < oldest => {
                AsofStatus::ExtrapolationPast
            }
            LookupError::Extrapolation { .. } => AsofStatus::ExtrapolationFuture,
            LookupError::Circle { .. } => AsofStatus::Cycle,
            LookupError::Stale { .. } => AsofStatus::TooOld,
            _ => AsofStatus::InvalidArgument,
        };
        let text = Text::Lookup(error);
        Failure { status, text }
    }
}

impl From<UpdateError> for Failure {
    fn from(error: UpdateError) -> Self {
        let status = match &error {
            UpdateError::SecondParent { .. }
            | UpdateError::Cycle { .. }
            | UpdateError::KindConflict { .. } => AsofStatus::Refused,
            UpdateError::TooOld { .. } => AsofStatus::TooOld,
            UpdateError::TooManyFrames { .. } => AsofStatus::Full,
            _ => AsofStatus::InvalidArgument,
        };
        Failure::new(status, error)
    }
}

impl From<TransformWaitError> for Failure {
    fn from(error: TransformWaitError) -> Self {
        let status = match &error {
            TransformWaitError::TimedOut { .. } => AsofStatus::TimedOut,
            TransformWaitError::Never(_) => AsofStatus::Never,
            _ => AsofStatus::Internal,
        };
        Failure::new(status, error)
    }
}

thread_local! {
    static LAST: RefCell<(Option<Failure>, CString)> = RefCell::default();
}

/// Why the last call on this thread that did not return `ASOF_STATUS_OK` failed; empty if none has. Valid until the next call
/// of this function on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn asof_last_error() -> *const c_char {
    let text = LAST.try_with(|last| {
        let (failure, text) = &mut *last.borrow_mut();
        *text = failure.as_ref().map(Failure::text).unwrap_or_default();
        text.as_ptr()
    });
    // A thread that is ending has no place for it any more.
    text.unwrap_or(c"".as_ptr())
}

/// When the last failure on this thread is an extrapolation: the times of the oldest and of the newest sample of the edge that
/// missed the time, which are the same if it has one. `ASOF_STATUS_NO_DATA` if it is another failure. The places may be NULL, and
/// `asof_last_error` stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_last_extrapolation(oldest: *mut i64, newest: *mut i64) -> AsofStatus {
    let samples =
        LAST.try_with(
            |last| match last.borrow().0.as_ref().map(|failure| &failure.text) {
                Some(Text::Lookup(LookupError::Extrapolation { oldest, newest, .. })) => {
                    Some((oldest.nanos(), newest.nanos()))
                }
                _ => None,
            },
        );
    let Ok(Some(samples)) = samples else {
        return AsofStatus::NoData;
    };
    // SAFETY: upheld by the caller.
    unsafe {
        tell(oldest, samples.0);
        tell(newest, samples.1);
    }
    AsofStatus::Ok
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn asof_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Frees a text that a function of this library has made, and leaves NULL. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_text_free(text: *mut *mut c_char) {
    if text.is_null() {
        return;
    }
    // SAFETY: the place is valid by the crate's contract.
    let held = unsafe { text.replace(std::ptr::null_mut()) };
    if !held.is_null() {
        // SAFETY: every text that is handed out comes from `CString::into_raw`.
        drop(unsafe { CString::from_raw(held) });
    }
}

/// Runs a call: no panic leaves it, and what failed is kept for `asof_last_error`.
pub(crate) fn call(work: impl FnOnce() -> Outcome) -> AsofStatus {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return AsofStatus::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => panicked(panic),
    };
    note(failure)
}

/// Keeps a failure for `asof_last_error`.
#[cold]
pub(crate) fn note(failure: Failure) -> AsofStatus {
    let status = failure.status;
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|last| last.borrow_mut().0 = Some(failure));
    status
}

#[cold]
fn panicked(panic: Box<dyn std::any::Any + Send>) -> Failure {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a text");
    let failure = Failure::new(
        AsofStatus::Internal,
        format_args!("a defect of asof: {text}"),
    );
    // What was thrown may itself panic when it is dropped.
    std::mem::forget(panic);
    failure
}

/// What stays in the place of a freed handle.
const FREED: usize = 1;

/// The value of a handle.
///
/// # Safety
/// By the crate's contract, for as long as the result is used.
pub(crate) unsafe fn held<'a, T>(handle: *const T) -> Outcome<&'a T> {
    match handle.addr() {
        0 => Err(Failure::invalid("the handle is NULL")),
        FREED => Err(Failure::invalid("the handle was freed")),
        // SAFETY: it came from `hand_out`, which made it of a box, and was not freed.
        _ => Ok(unsafe { &*handle }),
    }
}

/// The value of a handle that one thread at a time uses.
///
/// # Safety
/// By the crate's contract, for as long as the result is used.
pub(crate) unsafe fn held_alone<'a, T>(handle: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: upheld by the caller.
    unsafe { held(handle) }?;
    // SAFETY: as in `held`; the type of the handle says that no other thread uses it meanwhile.
    Ok(unsafe { &mut *handle })
}

/// Puts a new handle into its place.
///
/// # Safety
/// The place is NULL or valid for writing.
pub(crate) unsafe fn hand_out<T>(place: *mut *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(Failure::invalid("the place for the handle is NULL"));
    }
    // SAFETY: upheld by the caller.
    unsafe { put(place, Box::into_raw(Box::new(value))) }
}

/// Takes a handle from its place and leaves the mark of a freed one. `None` for NULL and for one that was freed.
///
/// # Safety
/// The place is NULL or valid; in it is NULL, the mark, or a handle that nobody uses.
pub(crate) unsafe fn take<T>(place: *mut *mut T) -> Option<Box<T>> {
    if place.is_null() {
        return None;
    }
    // SAFETY: upheld by the caller.
    let handle = unsafe { place.replace(std::ptr::without_provenance_mut(FREED)) };
    match handle.addr() {
        0 | FREED => None,
        // SAFETY: it came from `hand_out`, which made it of a box.
        _ => Some(unsafe { Box::from_raw(handle) }),
    }
}

/// Frees a handle. A panic of a destructor ends here.
///
/// # Safety
/// As for [`take`].
pub(crate) unsafe fn free<T>(place: *mut *mut T) {
    // SAFETY: upheld by the caller.
    let taken = unsafe { take(place) };
    call(|| {
        drop(taken);
        Ok(())
    });
}

/// Writes a result that the caller must want.
///
/// # Safety
/// The place is NULL or valid for writing.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    is_there(place)?;
    // SAFETY: upheld by the caller.
    unsafe { place.write(value) };
    Ok(())
}

/// Refuses a result without a place before there is work for it.
pub(crate) fn is_there<T>(place: *mut T) -> Outcome {
    if place.is_null() {
        return Err(Failure::invalid("the place for the result is NULL"));
    }
    Ok(())
}

/// Writes a result that the caller may leave out.
///
/// # Safety
/// The place is NULL or valid for writing.
pub(crate) unsafe fn tell<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: upheld by the caller.
        unsafe { place.write(value) };
    }
}

/// Puts a text into its place, for `asof_text_free`.
///
/// # Safety
/// The place is NULL or valid for writing.
pub(crate) unsafe fn put_text(place: *mut *mut c_char, text: impl Into<String>) -> Outcome {
    if place.is_null() {
        return Err(Failure::invalid("the place for the text is NULL"));
    }
    // SAFETY: upheld by the caller.
    unsafe { put(place, c_text(text.into()).into_raw()) }
}

/// A text for C, in which there is no NUL.
pub(crate) fn c_text(text: String) -> CString {
    CString::new(text).unwrap_or_else(|error| {
        let text = error.into_vec();
        let shown: Vec<u8> = text.into_iter().filter(|byte| *byte != 0).collect();
        CString::new(shown).unwrap_or_default()
    })
}

/// What `asof.hpp` hands over for a text with a NUL inside.
const CUT: usize = 1;

/// # Safety
/// NULL, the mark of a cut one, or NUL-terminated, and alive as long as the result is used.
#[inline]
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Outcome<&'a str> {
    match text.addr() {
        0 => return Err(Failure::invalid("a text is NULL")),
        CUT => return Err(Failure::invalid("a text has a NUL inside")),
        _ => {}
    }
    // Names are short and ASCII: where they end and what they are is found in one go.
    let first = text.cast::<u8>();
    let (mut length, mut all) = (0, 0_u8);
    // SAFETY: upheld by the caller: up to the NUL there are bytes.
    let bytes = unsafe {
        while *first.add(length) != 0 {
            all |= *first.add(length);
            length += 1;
        }
        std::slice::from_raw_parts(first, length)
    };
    if all.is_ascii() {
        // SAFETY: ASCII is UTF-8.
        return Ok(unsafe { std::str::from_utf8_unchecked(bytes) });
    }
    std::str::from_utf8(bytes).map_err(|_| {
        // SAFETY: upheld by the caller.
        let text = unsafe { CStr::from_ptr(text) };
        Failure::new(
            AsofStatus::InvalidArgument,
            format_args!("{text:?} is not UTF-8"),
        )
    })
}

/// The value at a place that the caller may leave out.
///
/// # Safety
/// NULL or valid for reading, as long as the result is used.
pub(crate) unsafe fn given<'a, T>(place: *const T) -> Option<&'a T> {
    // SAFETY: upheld by the caller.
    (!place.is_null()).then(|| unsafe { &*place })
}

/// More bytes than any address space of a process has.
const NO_ARRAY: u64 = 1 << 57;

/// Checks that an array of so many values can exist.
fn check_array<T>(values: *const T, count: usize) -> Outcome {
    if values.is_null() {
        return Err(Failure::invalid("an array is NULL, and its count is not 0"));
    }
    if !values.is_aligned() {
        return Err(Failure::invalid("an array is not aligned"));
    }
    let bytes = count.checked_mul(size_of::<T>());
    let end = bytes
        .filter(|bytes| isize::try_from(*bytes).is_ok() && (*bytes as u64) < NO_ARRAY)
        .and_then(|bytes| values.addr().checked_add(bytes));
    match end {
        Some(_) => Ok(()),
        None => Err(Failure::invalid("no array is as long as the count says")),
    }
}

/// # Safety
/// `count` values that are valid for reading, as long as the result is used.
pub(crate) unsafe fn array<'a, T>(values: *const T, count: usize) -> Outcome<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check_array(values, count)?;
    // SAFETY: upheld by the caller; it is no longer than any memory.
    Ok(unsafe { std::slice::from_raw_parts(values, count) })
}

/// # Safety
/// `count` values that are valid for reading and writing by nobody else, as long as the result is used.
pub(crate) unsafe fn array_mut<'a, T>(values: *mut T, count: usize) -> Outcome<&'a mut [T]> {
    if count == 0 {
        return Ok(&mut []);
    }
    check_array(values, count)?;
    // SAFETY: upheld by the caller; it is no longer than any memory.
    Ok(unsafe { std::slice::from_raw_parts_mut(values, count) })
}

/// Times as they are in Rust.
///
/// # Safety
/// As for [`array`].
pub(crate) unsafe fn stamps<'a>(values: *const i64, count: usize) -> Outcome<&'a [Stamp]> {
    // SAFETY: a `Stamp` is a transparent i64, every one of which is valid; the rest is upheld by the caller.
    unsafe { array(values.cast(), count) }
}

/// How long to wait: without an end if it is negative.
pub(crate) fn timeout(nanos: i64) -> Option<std::time::Duration> {
    u64::try_from(nanos)
        .ok()
        .map(std::time::Duration::from_nanos)
}
