//! Callbacks for new messages.

use std::sync::Arc;

use crate::Entry;

/// Called with a message, and how often the window had started over before it.
type Callback<T> = Arc<dyn Fn(&Entry<T>, u64) + Send + Sync>;

/// A connected callback. Dropping it disconnects the callback; [`Connection::detach`] keeps it connected.
#[must_use = "the callback is disconnected when the connection is dropped"]
pub struct Connection {
    disconnect: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Connection {
    pub(crate) fn new(disconnect: impl FnOnce() + Send + Sync + 'static) -> Self {
        Connection {
            disconnect: Some(Box::new(disconnect)),
        }
    }

    /// Disconnects the callback now.
    pub fn disconnect(self) {
        drop(self);
    }

    /// Leaves the callback connected for the lifetime of its window.
    pub fn detach(mut self) {
        self.disconnect = None;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(disconnect) = self.disconnect.take() {
            disconnect();
        }
    }
}

/// Calls a user's code. Its panic is reported by the panic hook and goes no further: others wait behind it, and the thread is
/// that of whoever inserts.
pub(crate) fn contained(call: impl FnOnce()) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
}

/// The callbacks of a window. The list is replaced, never changed, so it can be called outside of the lock.
pub(crate) struct Callbacks<T> {
    next: u64,
    list: Option<List<T>>,
}

/// A list of callbacks as it was at one moment.
pub(crate) struct List<T>(Arc<[(u64, Callback<T>)]>);

impl<T> Default for Callbacks<T> {
    fn default() -> Self {
        Callbacks {
            next: 0,
            list: None,
        }
    }
}

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        List(Arc::clone(&self.0))
    }
}

impl<T> List<T> {
    pub(crate) fn call(&self, entry: &Entry<T>, restarts: u64) {
        for (_, callback) in self.0.iter() {
            contained(|| callback(entry, restarts));
        }
    }
}

impl<T> Callbacks<T> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_none()
    }

    pub(crate) fn current(&self) -> Option<List<T>> {
        self.list.clone()
    }

    pub(crate) fn add(&mut self, callback: Callback<T>) -> u64 {
        let id = self.next;
        self.next += 1;
        let old = self.list.take();
        let old = old.iter().flat_map(|list| list.0.iter().cloned());
        self.list = Some(List(old.chain([(id, callback)]).collect()));
        id
    }

    /// Returns the old list for the caller to drop with no lock held.
    pub(crate) fn remove(&mut self, id: u64) -> Option<List<T>> {
        let old = self.list.take()?;
        let rest: Vec<_> = old.0.iter().filter(|(i, _)| *i != id).cloned().collect();
        if !rest.is_empty() {
            self.list = Some(List(rest.into()));
        }
        Some(old)
    }
}
