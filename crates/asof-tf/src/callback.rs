//! Waits with a callback.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use asof_core::Stamp;
use nalgebra::Isometry3;

use crate::buffer::TransformBuffer;
use crate::frame_ref::FrameRef;
use crate::sync::{locked, wake};
use crate::wait::{TransformWaitError, Wait};

/// A wait with a callback, created by [`TransformBuffer::on_transform`]. Dropping it cancels the wait.
#[must_use = "dropping it cancels the wait"]
pub struct WaitCallback(Arc<Pending>);

type Callback = Box<dyn FnOnce(Result<Isometry3<f64>, TransformWaitError>) + Send>;

struct Pending {
    /// `None` once it has ended or was cancelled.
    state: Mutex<Option<(Pin<Box<Wait>>, Callback)>>,
}

impl TransformBuffer {
    /// Calls `callback` once: when `lookup(target, source, t)` succeeds, at once if it does so now; or with an
    /// error when the timeout expires or no transform can come.
    ///
    /// The callback runs on this thread when the wait is over at once, else on the thread of the writer that added
    /// the last missing transform, or on a timer thread; with no lock held: it may use the buffer freely. It should
    /// be quick, since that writer waits for it. A panic in it is reported and ends there, on every thread.
    ///
    /// ```
    /// # use asof_core::Stamp;
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// # let at = |seconds: i64| Stamp::from_nanos(seconds * 1_000_000_000);
    /// # let buffer = TransformBuffer::new();
    /// # buffer.update_static("base_link", "lidar", Isometry3::translation(0.0, 0.0, 0.3))?;
    /// # // One metre a second, forward.
    /// # buffer.update("odom", "base_link", at(0), Isometry3::identity())?;
    /// # buffer.update("odom", "base_link", at(2), Isometry3::translation(2.0, 0.0, 0.0))?;
    /// let (send, receive) = std::sync::mpsc::channel();
    /// let waiting = buffer.on_transform("odom", "lidar", at(3), None, move |found| {
    ///     let _ = send.send(found.is_ok());
    /// });
    /// buffer.update("odom", "base_link", at(4), Isometry3::identity())?;
    /// assert!(receive.recv()?);
    /// # drop(waiting);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_transform(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
        t: Stamp,
        timeout: Option<Duration>,
        callback: impl FnOnce(Result<Isometry3<f64>, TransformWaitError>) + Send + 'static,
    ) -> WaitCallback {
        let wait = Box::pin(self.wait(target, source, t, timeout));
        let pending = Arc::new(Pending {
            state: Mutex::new(Some((wait, Box::new(callback)))),
        });
        wake(Waker::from(Arc::clone(&pending)));
        WaitCallback(pending)
    }
}

impl WaitCallback {
    /// Whether the callback has not been called yet.
    pub fn is_pending(&self) -> bool {
        locked(&self.0.state).is_some()
    }

    /// Lets the wait continue without this handle, for the lifetime of the buffer if it has no timeout.
    pub fn detach(self) {
        // Its wakers keep it alive.
        std::mem::forget(self);
    }
}

impl Drop for WaitCallback {
    fn drop(&mut self) {
        let state = locked(&self.0.state).take();
        drop(state);
    }
}

impl Wake for Pending {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut state = locked(&self.state);
        let Some((wait, _)) = &mut *state else { return };
        if let Poll::Ready(result) = wait.as_mut().poll(&mut Context::from_waker(&waker)) {
            let ended = state.take();
            drop(state);
            if let Some((_, callback)) = ended {
                callback(result);
            }
        }
    }
}
