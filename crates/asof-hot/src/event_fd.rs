//! Waiting for a signal through a file descriptor, for `epoll` and async runtimes.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::thread::JoinHandle;

use crate::handle::Handle;
use crate::wait::{Signal, Sleeper};

/// An `eventfd`: a file that is readable from when it is rung until it is cleared. Neither ever blocks.
#[derive(Clone, Debug)]
pub struct EventFd {
    file: Arc<OwnedFd>,
}

impl EventFd {
    /// A new one, closed on `exec`.
    ///
    /// # Errors
    /// The system's error, if too many files are open.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: the call takes only integers.
        let file = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if file < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the call has just created it, and no other code has it.
        Ok(EventFd::from(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    /// Makes it readable.
    pub fn ring(&self) {
        let one = 1u64;
        // SAFETY: the eight bytes outlive the call. It fails when the count is full, and then it is readable.
        unsafe { libc::write(self.file.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes it unreadable until it is rung again; returns how often it was rung. Clear it first, then check the data.
    ///
    /// # Errors
    /// The system's error, if this is not an `eventfd`.
    pub fn clear(&self) -> Result<u64, Error> {
        let mut count = 0u64;
        // SAFETY: the eight bytes outlive the call.
        let read = unsafe { libc::read(self.file.as_raw_fd(), (&raw mut count).cast(), 8) };
        if read == 8 {
            return Ok(count);
        }
        match Error::last_os_error() {
            error if error.kind() == ErrorKind::WouldBlock => Ok(0),
            error => Err(error),
        }
    }
}

/// An `eventfd` that was inherited or received from another process.
impl From<OwnedFd> for EventFd {
    fn from(file: OwnedFd) -> Self {
        EventFd {
            file: Arc::new(file),
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// A thread that sleeps on a signal and rings an [`EventFd`] for every wake-up, from any process.
///
/// It ends when this is dropped. It costs one more hand-over between threads than an [`EventFd`] that the notifier
/// [rings itself](crate::Notifier::ring_also), but needs no support from the notifier.
///
/// ```
/// use asof_hot::{latest, signal, MonoStamp};
///
/// let (mut writer, reader) = latest::<u64, 8>();
/// let (notifier, sleeper) = signal();
/// let relay = sleeper.relay()?;
/// writer.write(&7, MonoStamp(0));
/// notifier.notify();
///
/// // With epoll or an async runtime: wait for relay.event_fd(), clear it, then check.
/// while reader.read().is_none() {
///     relay.event_fd().clear()?;
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Relay<H: Handle<Target = Signal>> {
    bell: EventFd,
    sleeper: Sleeper<H>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<H: Handle<Target = Signal> + Clone + Send + 'static> Sleeper<H> {
    /// Rings a file whenever this signal is notified, from a thread that sleeps on it.
    ///
    /// # Errors
    /// The system's error, if it has no file or no thread left.
    pub fn relay(&self) -> Result<Relay<H>, Error> {
        let bell = EventFd::new()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = {
            let (bell, sleeper, is_over) = (bell.clone(), self.clone(), is_over.clone());
            std::thread::Builder::new()
                .name("asof-hot-relay".into())
                .spawn(move || {
                    while !is_over.load(Ordering::Acquire) {
                        // Rung between the announcement and the sleep: a check then sees what was published before,
                        // and what is published later begins another turn.
                        sleeper.next_turn(|| is_over.load(Ordering::Acquire), || bell.ring());
                    }
                })?
        };
        Ok(Relay {
            bell,
            sleeper: self.clone(),
            is_over,
            thread: Some(thread),
        })
    }
}

impl<H: Handle<Target = Signal>> Relay<H> {
    /// The file to wait for.
    pub fn event_fd(&self) -> &EventFd {
        &self.bell
    }
}

impl<H: Handle<Target = Signal>> AsFd for Relay<H> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl<H: Handle<Target = Signal>> AsRawFd for Relay<H> {
    fn as_raw_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

impl<H: Handle<Target = Signal>> Drop for Relay<H> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.sleeper.wake_everyone();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
