//! Read-ahead on a separate thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, ReadHead, Reader};
use asof_core::{
    Batch, Follow, FollowEnd, Followed, Query, Source, SourceError, Stamp, TimeRange, Topics,
};

use crate::cursor::Cursor;
use crate::pace::Pace;
use crate::queue::{Piece, Queue};
use crate::step;

/// What a player needs next.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub topics: Topics,
    /// Read what comes after this.
    pub after: Cursor,
    /// First fetch what was known on these topics as of then.
    pub latest: Option<(Topics, Stamp)>,
    /// What was known is asked of all topics, and nothing has been handed out since.
    pub is_seek: bool,
    /// Follow the source as it grows.
    pub grows: bool,
}

/// What was read and not yet played.
#[allow(clippy::struct_excessive_bools)] // Each is independent of the others.
pub(crate) struct Ahead {
    pub queue: Queue,
    pub latest: Option<(Stamp, Batch)>,
    /// Messages at or before this position were handed out, or were part of what was known after a seek.
    pub skip: Cursor,
    /// Everything up to here has been read; `None` before the first batch.
    pub through: Option<Stamp>,
    /// Everything that a growing source has so far was read.
    pub is_caught_up: bool,
    pub is_finished: bool,
    /// Why a growing source ended.
    pub end: Option<FollowEnd>,
    pub error: Option<SourceError>,
    /// Why what was known could not be read.
    pub latest_error: Option<SourceError>,
    /// Read up to here, then wait.
    pub wanted_through: Stamp,
    pub pace: Pace,
    request: Option<Request>,
    /// Counts the requests: results of an earlier one are discarded.
    generation: u64,
    /// The number of the current worker thread. Others end when their source returns.
    worker: u64,
    /// Threads still in a source call whose result is no longer needed.
    strays: usize,
    /// Since when a call of the source has been running.
    busy: Option<Instant>,
    is_idle: bool,
    /// Counts how often a growing source had nothing new.
    rounds: u64,
    waiters: usize,
    is_over: bool,
}

/// The read-ahead thread and the state it shares with its player.
pub(crate) struct Feed {
    shared: Arc<Shared>,
    cache: BlockCache,
    head: Arc<ReadHead>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ahead: Mutex<Ahead>,
    /// Something changed, on either side.
    changed: Condvar,
}

/// After a source call of this length, a new request is given to another thread.
const STUCK_AFTER: Duration = Duration::from_millis(50);
/// At most this many threads wait for a stuck source; then requests wait too.
const MAX_STRAYS: usize = 4;
/// The longest single wait for a growing source, between checks for new requests.
const FOLLOW_WAIT: Duration = Duration::from_millis(20);

impl Feed {
    pub fn start(cache: BlockCache, head: Arc<ReadHead>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            ahead: Mutex::new(Ahead {
                queue: Queue::default(),
                latest: None,
                skip: Cursor::START,
                through: None,
                is_caught_up: false,
                is_finished: false,
                end: None,
                error: None,
                latest_error: None,
                wanted_through: Stamp::MIN,
                pace: Pace::default(),
                request: None,
                generation: 0,
                worker: 0,
                strays: 0,
                busy: None,
                is_idle: true,
                rounds: 0,
                waiters: 0,
                is_over: false,
            }),
            changed: Condvar::new(),
        });
        let mut feed = Feed {
            shared,
            cache,
            head,
            thread: None,
        };
        feed.spawn(0)?;
        Ok(feed)
    }

    /// Discards what was read and reads this instead.
    pub fn ask(&mut self, request: Request) {
        let mut ahead = self.shared.lock();
        ahead.generation += 1;
        ahead.queue.clear();
        ahead.latest = None;
        ahead.latest_error = None;
        ahead.skip = request.after;
        ahead.through = None;
        ahead.is_caught_up = false;
        ahead.is_finished = false;
        ahead.end = None;
        ahead.error = None;
        ahead.is_idle = false;
        ahead.request = Some(request);
        self.shared.changed.notify_all();
        drop(ahead);
        self.unstick();
    }

    /// Accesses what was read; wakes the thread if there is something to do.
    pub fn with<T>(&self, look: impl FnOnce(&mut Ahead) -> T) -> T {
        let mut ahead = self.shared.lock();
        let outcome = look(&mut ahead);
        if ahead.has_work() {
            ahead.is_idle = false;
        }
        self.shared.changed.notify_all();
        outcome
    }

    /// Gives a request to another thread if the first one is stuck in its source.
    pub fn unstick(&mut self) {
        let mut ahead = self.shared.lock();
        let is_stuck = ahead
            .busy
            .is_some_and(|since| since.elapsed() > STUCK_AFTER);
        if ahead.request.is_none() || !is_stuck || ahead.strays >= MAX_STRAYS {
            return;
        }
        let former = ahead.worker;
        ahead.worker += 1;
        ahead.strays += 1;
        ahead.busy = None;
        let worker = ahead.worker;
        drop(ahead);
        // The abandoned thread ends by itself.
        let left = self.thread.take();
        if let Err(error) = self.spawn(worker) {
            tracing::warn!(%error, "cannot start another read-ahead thread; the next seek has to wait");
            let mut ahead = self.shared.lock();
            ahead.worker = former;
            ahead.strays -= 1;
            self.thread = left;
        }
    }

    /// Waits until the thread has nothing more to do, or until the timeout.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut ahead = self.shared.lock();
        ahead.waiters += 1;
        // What the source had before this call has been read after a round that began later.
        let rounds = ahead.rounds + 2;
        let mut is_idle = false;
        loop {
            let has_looked = !ahead.is_caught_up || ahead.rounds >= rounds || !ahead.has_work();
            if ahead.is_idle && has_looked {
                is_idle = true;
                break;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                break;
            };
            let waited = self.shared.changed.wait_timeout(ahead, left);
            ahead = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        ahead.waiters -= 1;
        is_idle
    }

    fn spawn(&mut self, worker: u64) -> std::io::Result<()> {
        let (shared, cache, head) = (
            Arc::clone(&self.shared),
            self.cache.clone(),
            Arc::clone(&self.head),
        );
        let thread = std::thread::Builder::new()
            .name("asof-player".into())
            .spawn(move || shared.run(&cache, &head, worker))?;
        self.thread = Some(thread);
        Ok(())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut ahead = self.shared.lock();
        ahead.is_over = true;
        let is_busy = ahead.busy.is_some();
        drop(ahead);
        self.shared.changed.notify_all();
        // Do not wait for a running source call: its thread ends when the call returns.
        if let Some(thread) = self.thread.take().filter(|_| !is_busy) {
            // A panic of the source was already reported.
            drop(thread.join());
        }
    }
}

impl Ahead {
    /// Takes out what is at or before `until`, up to the next piece that is not messages.
    pub fn take_due(&mut self, until: Stamp) -> Vec<Piece> {
        let mut due = Vec::new();
        while let Some(front) = self.queue.front() {
            if matches!(front, Piece::Batch(batch) if batch.range().start > until) {
                break;
            }
            match self.queue.pop() {
                Some(Piece::Batch(batch)) => {
                    let count = batch.rows().partition_point(|row| row.log_time <= until);
                    let skipped = batch
                        .rows()
                        .partition_point(|row| self.skip.has_passed(row));
                    if count < batch.len() {
                        self.queue
                            .push_back_front(step::part(&batch, count..batch.len()));
                    }
                    if skipped < count {
                        let is_whole = skipped == 0 && count == batch.len();
                        due.push(Piece::Batch(if is_whole {
                            batch
                        } else {
                            step::part(&batch, skipped..count)
                        }));
                    }
                }
                Some(other) => {
                    due.push(other);
                    break;
                }
                None => break,
            }
        }
        due
    }

    fn has_work(&self) -> bool {
        if self.request.is_some() {
            return true;
        }
        let is_far = self
            .through
            .is_some_and(|through| through >= self.wanted_through);
        !self.is_finished && !is_far && self.queue.has_room()
    }

    fn fail(&mut self, error: SourceError) {
        self.error = Some(error);
        self.is_finished = true;
    }
}

/// Where a thread reads from.
enum Reading {
    /// Through the cache.
    Held(Box<Reader>),
    /// From a growing source, with the topics it is followed for.
    Growing(Box<dyn Follow>, Topics),
}

/// What a thread has to do.
enum Task {
    Begin(Request),
    GoOn,
    /// The thread is no longer needed.
    Leave,
}

/// The result of one read of the source.
enum Turn {
    GoesOn,
    /// The clock of the source was set back.
    Anew,
    Ends,
}

/// A running worker thread.
struct Worker<'a> {
    shared: &'a Shared,
    cache: &'a BlockCache,
    head: &'a ReadHead,
    number: u64,
    generation: u64,
}

impl Shared {
    fn run(&self, cache: &BlockCache, head: &ReadHead, number: u64) {
        let mut worker = Worker {
            shared: self,
            cache,
            head,
            number,
            generation: 0,
        };
        let _leaving = Leaving(self, number);
        let mut reading: Option<Reading> = None;
        loop {
            match worker.wait(reading.is_some()) {
                Task::Begin(request) => {
                    // Drop the old reader before anything else is read; what it has read is kept.
                    drop(reading.take());
                    reading = worker.begin(request);
                }
                Task::GoOn => {}
                Task::Leave => return,
            }
            let turn = match &mut reading {
                Some(Reading::Held(reader)) => worker.read(reader),
                Some(Reading::Growing(follow, _)) => worker.follow(follow.as_mut()),
                None => continue,
            };
            reading = match (turn, reading) {
                (Turn::GoesOn, reading) => reading,
                // Its times restart, maybe before the requested range.
                (Turn::Anew, Some(Reading::Growing(_, topics))) => {
                    worker.follow_from(Stamp::MIN, topics)
                }
                _ => None,
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records that a thread ends, also if its source has panicked.
struct Leaving<'a>(&'a Shared, u64);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut ahead = self.0.lock();
        if ahead.worker != self.1 {
            ahead.strays -= 1;
        } else if std::thread::panicking() {
            ahead.fail(SourceError::Unreadable {
                place: "the source".into(),
                reason: "reading it panicked; play to try again".into(),
            });
            ahead.is_idle = true;
        }
        self.0.changed.notify_all();
    }
}

impl Worker<'_> {
    /// Waits for a task.
    fn wait(&mut self, is_reading: bool) -> Task {
        let mut ahead = self.shared.lock();
        loop {
            if ahead.is_over || ahead.worker != self.number {
                return Task::Leave;
            }
            ahead.busy = None;
            let can_work = is_reading || ahead.request.is_some();
            if can_work && ahead.has_work() {
                self.generation = ahead.generation;
                ahead.busy = Some(Instant::now());
                return ahead.request.take().map_or(Task::GoOn, Task::Begin);
            }
            ahead.is_idle = true;
            self.shared.changed.notify_all();
            ahead = self
                .shared
                .changed
                .wait(ahead)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn begin(&self, request: Request) -> Option<Reading> {
        let mut after = request.after;
        if let Some((topics, at)) = &request.latest {
            let known = self.cache.latest_at(topics, *at);
            if let Ok(known) = &known
                && request.grows
                && request.is_seek
            {
                // More messages may come with that very stamp: they are distinguished from those by their order.
                after = Cursor::told_by(known, *at);
            }
            let is_known = known.is_ok();
            self.put(|ahead| match known {
                Ok(known) => {
                    ahead.skip = after;
                    ahead.latest = Some((*at, known));
                }
                Err(error) => {
                    ahead.latest_error = Some(error);
                    ahead.is_finished = true;
                }
            });
            if !is_known {
                return None;
            }
        }
        if request.grows {
            return self.follow_from(after.next(), request.topics);
        }
        let query = Query {
            topics: request.topics,
            range: TimeRange::new(after.next(), Stamp::MAX),
        };
        Some(Reading::Held(Box::new(self.head.read_ahead(&query))))
    }

    fn follow_from(&self, start: Stamp, topics: Topics) -> Option<Reading> {
        let query = Query {
            topics: topics.clone(),
            range: TimeRange::new(start, Stamp::MAX),
        };
        match self.cache.follow(&query) {
            Ok(follow) => Some(Reading::Growing(follow, topics)),
            Err(error) => {
                self.put(|ahead| ahead.fail(error));
                None
            }
        }
    }

    /// Reads one batch.
    fn read(&self, reader: &mut Reader) -> Turn {
        let start = Instant::now();
        let from = reader.at();
        let next = reader.next();
        let took = start.elapsed();
        let is_last = reader.is_finished();
        let through = match reader.at() {
            Some(next) => next.plus_nanos(-1),
            None if is_last => Stamp::MAX,
            // An error is still to come.
            None => from.unwrap_or(Stamp::MIN),
        };
        // What was in memory does not measure the source.
        let was_read = reader.was_read();
        let mut turn = Turn::GoesOn;
        self.put(|ahead| match next {
            Some(Ok(batch)) => {
                if let Some(from) = from.filter(|_| was_read) {
                    ahead.pace.note(batch.range().end.since(from), took);
                }
                ahead.queue.push(Piece::Batch(batch));
                ahead.through = Some(through);
                ahead.is_finished = is_last;
                if is_last {
                    turn = Turn::Ends;
                }
            }
            Some(Err(error)) => {
                ahead.fail(error);
                turn = Turn::Ends;
            }
            None => {
                ahead.through = Some(Stamp::MAX);
                ahead.is_finished = true;
                turn = Turn::Ends;
            }
        });
        turn
    }

    /// Takes the next messages of a growing source.
    fn follow(&self, follow: &mut dyn Follow) -> Turn {
        let was_caught_up = self.shared.lock().is_caught_up;
        // When the source reports nothing new, everything up to the end of its summary was handed out or is on other
        // topics: time passes up to there. Not needed while messages come: they carry their times.
        let end = was_caught_up.then(|| self.cache.summary().range);
        let end = end.filter(|range| !range.is_empty());
        // Poll first, without a wait: otherwise a source with something new within every wait could never be caught
        // up with.
        let next = follow.next(Instant::now());
        let is_caught_up = matches!(next, Ok(Followed::CaughtUp));
        let turn = self.take(next, follow.missed(), end);
        if !is_caught_up || self.shared.lock().waiters > 0 {
            return turn;
        }
        match follow.next(Instant::now() + FOLLOW_WAIT) {
            Ok(Followed::CaughtUp) => Turn::GoesOn,
            next => self.take(next, follow.missed(), None),
        }
    }

    /// Queues what a growing source returned.
    fn take(
        &self,
        next: Result<Followed, SourceError>,
        missed: BTreeMap<String, u64>,
        end: Option<TimeRange>,
    ) -> Turn {
        let mut turn = Turn::GoesOn;
        self.put(|ahead| {
            if !missed.is_empty() {
                ahead.queue.push(Piece::Missed(missed));
            }
            match next {
                Ok(Followed::Batch(batch)) => {
                    let end = batch.range().end.plus_nanos(-1);
                    // A late message does not move the end of what was read back.
                    ahead.through = Some(ahead.through.map_or(end, |known| known.max(end)));
                    ahead.is_caught_up = false;
                    ahead.queue.push(Piece::Batch(batch));
                }
                Ok(Followed::CaughtUp) => {
                    if let Some(end) = end.map(|range| range.end.plus_nanos(-1)) {
                        ahead.through = Some(ahead.through.map_or(end, |known| known.max(end)));
                    }
                    ahead.is_caught_up = true;
                    ahead.is_idle = true;
                    ahead.rounds += 1;
                }
                Ok(Followed::Restarted) => {
                    ahead.queue.push(Piece::Restarted);
                    ahead.through = None;
                    ahead.is_caught_up = false;
                    turn = Turn::Anew;
                }
                Ok(Followed::End(end)) => {
                    ahead.end = Some(end);
                    ahead.is_finished = true;
                    turn = Turn::Ends;
                }
                Err(error) => {
                    ahead.fail(error);
                    turn = Turn::Ends;
                }
            }
        });
        turn
    }

    /// Changes what was read, unless another request came in the meantime.
    fn put(&self, change: impl FnOnce(&mut Ahead)) {
        let mut ahead = self.shared.lock();
        if ahead.worker == self.number && ahead.generation == self.generation {
            change(&mut ahead);
        }
        self.shared.changed.notify_all();
    }
}
