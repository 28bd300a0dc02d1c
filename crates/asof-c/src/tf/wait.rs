//! Waiting for a transform: blocking, by callback, by a descriptor.

use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use asof_core::Stamp;
use asof_tf::WaitCallback;

use super::lookup::put_latest;
use super::{AsofTf, AsofTransform};
use crate::border::{
    AsofStatus, Failure, Outcome, call, hand_out, held, is_there, put, take, text,
    timeout as duration,
};

/// Is called once, with a transform and `ASOF_STATUS_OK`, or with NULL, the status and a sentence that says why. It must not
/// throw.
pub type AsofTfCallback = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        status: AsofStatus,
        transform: *const AsofTransform,
        message: *const c_char,
    ),
>;

/// A wait for a transform.
pub struct AsofTfWait {
    shared: Arc<Shared>,
    waiting: Option<WaitCallback>,
    event: Option<Event>,
}

struct Shared {
    state: Mutex<State>,
    has_ended: Condvar,
}

#[derive(Default)]
struct State {
    is_cancelled: bool,
    /// The thread on which the callback runs.
    running: Option<ThreadId>,
    result: Option<Result<AsofTransform, (AsofStatus, CString)>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The callback's context, which C promises to share between threads.
struct Context(*mut c_void);

// SAFETY: the caller promises that the context may be used on another thread.
unsafe impl Send for Context {}

impl Context {
    /// A method, so that closures capture the whole.
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Blocks until `asof_tf_lookup` succeeds. `timeout` is in nanoseconds; negative is without one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_wait(
    tf: *const AsofTf,
    target: *const c_char,
    source: *const c_char,
    stamp: i64,
    timeout: i64,
    transform: *mut AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, target, source) = unsafe { (held(tf)?, text(target)?, text(source)?) };
        is_there(transform)?;
        let stamp = Stamp::from_nanos(stamp);
        // Further off than anybody waits.
        let timeout = duration(timeout).unwrap_or(std::time::Duration::MAX);
        let found = tf.buffer.wait_for(target, source, stamp, timeout)?;
        // SAFETY: upheld by the caller.
        unsafe { put(transform, found.into()) }
    })
}

/// Blocks until `asof_tf_lookup_latest` succeeds: tf2's `canTransform` at time zero with a timeout. `timeout` is as for
/// `asof_tf_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_wait_latest(
    tf: *const AsofTf,
    target: *const c_char,
    source: *const c_char,
    timeout: i64,
    transform: *mut AsofTransform,
    stamp: *mut i64,
    is_static: *mut bool,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, target, source) = unsafe { (held(tf)?, text(target)?, text(source)?) };
        is_there(transform)?;
        let timeout = duration(timeout).unwrap_or(std::time::Duration::MAX);
        let found = tf.buffer.wait_for_latest(target, source, timeout)?;
        // SAFETY: upheld by the caller.
        unsafe { put_latest(found, transform, stamp, is_static) }
    })
}

/// Calls back once, when `asof_tf_lookup` succeeds or can no longer do so: on the thread of the writer that stored what was
/// missing, on a timer's thread, or on this one before this returns. The callback may use the buffer. `timeout` is as for
/// `asof_tf_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_on_transform(
    tf: *const AsofTf,
    target: *const c_char,
    source: *const c_char,
    stamp: i64,
    timeout: i64,
    callback: AsofTfCallback,
    context: *mut c_void,
    wait: *mut *mut AsofTfWait,
) -> AsofStatus {
    call(|| {
        let callback = callback.ok_or(Failure::invalid("the callback is NULL"))?;
        let context = Context(context);
        let tell = move |result: &Result<AsofTransform, (AsofStatus, CString)>| {
            let (status, transform, message) = match result {
                Ok(found) => (AsofStatus::Ok, &raw const *found, c"".as_ptr()),
                Err((status, text)) => (*status, std::ptr::null(), text.as_ptr()),
            };
            // SAFETY: the caller promises that it can be called with this context from any thread.
            unsafe { callback(context.get(), status, transform, message) }
        };
        // SAFETY: upheld by the caller.
        unsafe { start((tf, target, source), stamp, timeout, None, tell, wait) }
    })
}

/// Waits in the background: `asof_tf_wait_descriptor` has a file descriptor to poll, `asof_tf_wait_result` the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_wait_new(
    tf: *const AsofTf,
    target: *const c_char,
    source: *const c_char,
    stamp: i64,
    timeout: i64,
    wait: *mut *mut AsofTfWait,
) -> AsofStatus {
    call(|| {
        let event = Event::new()?;
        let rings = event.clone();
        let tell = move |_: &Result<_, _>| rings.ring();
        // SAFETY: upheld by the caller.
        unsafe {
            start(
                (tf, target, source),
                stamp,
                timeout,
                Some(event),
                tell,
                wait,
            )
        }
    })
}

/// The descriptor of a wait (an eventfd), which is readable from its end on. It belongs to the wait, which closes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_wait_descriptor(
    wait: *const AsofTfWait,
    descriptor: *mut i32,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let wait = unsafe { held(wait) }?;
        let event = wait
            .event
            .as_ref()
            .ok_or(Failure::invalid("a wait with a callback has no descriptor"))?;
        // SAFETY: upheld by the caller.
        unsafe { put(descriptor, event.descriptor()) }
    })
}

/// The result of a wait: the transform, `ASOF_STATUS_PENDING`, or why there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_wait_result(
    wait: *const AsofTfWait,
    transform: *mut AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let wait = unsafe { held(wait) }?;
        match &wait.shared.state().result {
            // SAFETY: upheld by the caller.
            Some(Ok(found)) => unsafe { put(transform, *found) },
            Some(Err((status, text))) => Err(Failure::new(*status, text.to_string_lossy())),
            None => Err(Failure::fixed(
                AsofStatus::Pending,
                "the wait has not ended yet",
            )),
        }
    })
}

/// Ends a wait. When this returns, its callback neither runs nor will run; only within the callback itself this does not wait
/// for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_wait_free(wait: *mut *mut AsofTfWait) {
    // SAFETY: upheld by the caller.
    let taken = unsafe { take(wait) };
    call(|| {
        if let Some(mut wait) = taken {
            wait.end();
        }
        Ok(())
    });
}

/// # Safety
/// As by the crate's contract.
unsafe fn start(
    (tf, target, source): (*const AsofTf, *const c_char, *const c_char),
    stamp: i64,
    timeout: i64,
    event: Option<Event>,
    tell: impl FnOnce(&Result<AsofTransform, (AsofStatus, CString)>) + Send + 'static,
    wait: *mut *mut AsofTfWait,
) -> Outcome {
    // SAFETY: upheld by the caller.
    let (tf, target, source) = unsafe { (held(tf)?, text(target)?, text(source)?) };
    if wait.is_null() {
        return Err(Failure::invalid("the place for the handle is NULL"));
    }
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        has_ended: Condvar::new(),
    });
    let within = Arc::clone(&shared);
    let stamp = Stamp::from_nanos(stamp);
    let waiting = tf
        .buffer
        .on_transform(target, source, stamp, duration(timeout), move |found| {
            let found = found.map(AsofTransform::from).map_err(|error| {
                let failure = Failure::from(error);
                (failure.status, failure.text())
            });
            {
                let mut state = within.state();
                if state.is_cancelled {
                    return;
                }
                state.running = Some(std::thread::current().id());
                state.result = Some(found.clone());
            }
            tell(&found);
            within.state().running = None;
            within.has_ended.notify_all();
        });
    let waiting = AsofTfWait {
        shared,
        waiting: Some(waiting),
        event,
    };
    // SAFETY: upheld by the caller.
    unsafe { hand_out(wait, waiting) }
}

impl AsofTfWait {
    fn end(&mut self) {
        let here = std::thread::current().id();
        let mut state = self.shared.state();
        state.is_cancelled = true;
        while state.running.is_some_and(|thread| thread != here) {
            let waited = self.shared.has_ended.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.waiting = None;
    }
}

#[cfg(target_os = "linux")]
use event::Event;

#[cfg(target_os = "linux")]
mod event {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::sync::Arc;

    use crate::border::{AsofStatus, Failure, Outcome};

    /// A descriptor that becomes readable.
    #[derive(Clone)]
    pub struct Event(Arc<OwnedFd>);

    impl Event {
        pub fn new() -> Outcome<Self> {
            // SAFETY: it takes no pointer.
            let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if descriptor < 0 {
                let error = std::io::Error::last_os_error();
                return Err(Failure::new(
                    AsofStatus::Full,
                    format_args!("there is no descriptor for the wait: {error}"),
                ));
            }
            // SAFETY: it was opened here, and nothing else has it.
            Ok(Event(Arc::new(unsafe { OwnedFd::from_raw_fd(descriptor) })))
        }

        pub fn descriptor(&self) -> i32 {
            self.0.as_raw_fd()
        }

        pub fn ring(&self) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: the bytes are valid for reading, and the descriptor is open. It is written once, so it cannot fail.
            unsafe { libc::write(self.descriptor(), one.as_ptr().cast(), one.len()) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
use no_event::Event;

#[cfg(not(target_os = "linux"))]
mod no_event {
    use crate::border::{AsofStatus, Failure, Outcome};

    /// There is none here.
    #[derive(Clone)]
    pub struct Event(std::convert::Infallible);

    impl Event {
        pub fn new() -> Outcome<Self> {
            Err(Failure::fixed(
                AsofStatus::Unsupported,
                "waits with a descriptor need Linux; use a callback",
            ))
        }

        pub fn descriptor(&self) -> i32 {
            match self.0 {}
        }

        pub fn ring(&self) {
            match self.0 {}
        }
    }
}
