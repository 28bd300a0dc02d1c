//! Sections loaded ahead of their reader, in order.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use asof_core::SourceError;
use bytes::Bytes;

use super::{Loaded, Sections, Wanted};

/// Loads the sections of a plan, in the plan's order, on other threads where that pays.
///
/// At most `threads + 2` sections, and at most [`BYTES_AHEAD`] unless a single one is larger, are loaded
/// and not yet taken. Dropping it stops the threads after the section that each is at.
pub(crate) struct Prefetch {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// What may lie loaded and not yet taken.
const BYTES_AHEAD: u64 = 16 << 20;
/// Plans shorter than this are not worth a thread.
const WORTH_A_THREAD: usize = 3;

struct Shared {
    file: Arc<dyn Sections>,
    wanted: Wanted,
    plan: Vec<usize>,
    state: Mutex<State>,
    /// Signalled when a section was taken, or no more are wanted.
    room: Condvar,
    /// Signalled when a section was loaded, or a worker is gone.
    ready: Condvar,
    ahead_at_most: usize,
}

#[derive(Default)]
struct State {
    /// The next place of the plan that nobody works on.
    next: usize,
    /// The place of the plan that is to be taken next.
    taken: usize,
    loaded: BTreeMap<usize, Result<Loaded, SourceError>>,
    bytes_ahead: u64,
    is_closed: bool,
    /// A worker ended in a panic: what it worked on never comes.
    is_broken: bool,
}

impl Prefetch {
    pub fn new(file: &Arc<dyn Sections>, wanted: Wanted, plan: Vec<usize>) -> Self {
        let threads = if plan.len() < WORTH_A_THREAD {
            1
        } else {
            file.threads().min(plan.len())
        };
        let shared = Arc::new(Shared {
            file: Arc::clone(file),
            wanted,
            plan,
            state: Mutex::default(),
            room: Condvar::new(),
            ready: Condvar::new(),
            ahead_at_most: threads + 2,
        });
        let start = |_| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("asof-read".into())
                .spawn(move || shared.work())
        };
        // A system that gives no more threads is served by those that there are, or by the reader alone.
        let workers = if threads > 1 {
            (0..threads).map_while(|n| start(n).ok()).collect()
        } else {
            Vec::new()
        };
        Prefetch { shared, workers }
    }

    /// The next section of the plan; `None` when all were taken.
    pub fn next(&mut self) -> Option<Result<Loaded, SourceError>> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let place = state.taken;
        let &section = shared.plan.get(place)?;
        state.taken += 1;
        if self.workers.is_empty() {
            drop(state);
            return Some(shared.file.load(section, &shared.wanted));
        }
        loop {
            if let Some(result) = state.loaded.remove(&place) {
                state.bytes_ahead -= shared.bytes_of(place);
                shared.room.notify_all();
                return Some(result);
            }
            if state.is_broken {
                let (place, reason) = (
                    shared.file.name().to_owned(),
                    "a reading thread failed".to_owned(),
                );
                return Some(Err(SourceError::Unreadable { place, reason }));
            }
            state = shared
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Prefetch {
    /// The buffers of a section that was taken before, loaded again.
    pub fn reload(&self, section: usize) -> Result<Vec<Bytes>, SourceError> {
        self.shared.file.reload(section, &self.shared.wanted)
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.room.notify_all();
        for worker in self.workers.drain(..) {
            // A panic of the worker was passed on as an error already.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut guard = PanicGuard {
            shared: self,
            is_armed: true,
        };
        while let Some(place) = self.claim() {
            let result = self.file.load(self.plan[place], &self.wanted);
            self.lock().loaded.insert(place, result);
            self.ready.notify_all();
        }
        guard.is_armed = false;
    }

    /// The next place to work on, once there is room for it.
    fn claim(&self) -> Option<usize> {
        let mut state = self.lock();
        loop {
            let place = state.next;
            if state.is_closed || place >= self.plan.len() {
                return None;
            }
            let bytes = self.bytes_of(place);
            let is_first = place <= state.taken;
            let has_room = place < state.taken + self.ahead_at_most
                && state.bytes_ahead + bytes <= BYTES_AHEAD;
            if is_first || has_room {
                state.next += 1;
                state.bytes_ahead += bytes;
                return Some(place);
            }
            state = self
                .room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn bytes_of(&self, place: usize) -> u64 {
        self.file.expected_bytes(self.plan[place])
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the reader when its worker ends in a panic, so that it does not wait for ever.
struct PanicGuard<'a> {
    shared: &'a Shared,
    is_armed: bool,
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.shared.lock().is_broken = true;
            self.shared.ready.notify_all();
        }
    }
}
