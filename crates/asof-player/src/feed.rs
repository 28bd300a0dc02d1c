//! Reading ahead of the player, on a thread of its own.

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
    /// What comes after this.
    pub after: Cursor,
    /// First say what was known on these topics as of then.
    pub backfill: Option<(Topics, Stamp)>,
    /// What was known is told of all topics, and nothing has been handed out since.
    pub is_seek: bool,
    /// Go on with what comes.
    pub grows: bool,
}

/// What has been read and not yet played.
#[allow(clippy::struct_excessive_bools)] // Each is a question of its own.
pub(crate) struct Ahead {
    pub queue: Queue,
    pub backfill: Option<(Stamp, Batch)>,
    /// Messages at or before this place have been handed out, or told as what was known.
    pub skip: Cursor,
    /// Everything up to here has been read; `None` before the first batch.
    pub through: Option<Stamp>,
    /// All that a source that grows has so far was read.
    pub is_caught_up: bool,
    pub is_finished: bool,
    /// Why a source that grew does not grow any more.
    pub end: Option<FollowEnd>,
    pub error: Option<SourceError>,
    /// What was known could not be found out.
    pub backfill_error: Option<SourceError>,
    /// Read until here, and then wait.
    pub wanted_through: Stamp,
    pub pace: Pace,
    request: Option<Request>,
    /// Counts the requests: what belongs to an earlier one is thrown away.
    generation: u64,
    /// The number of the thread that works. Others end when their source lets them.
    worker: u64,
    /// Threads that wait for a source whose answer is not needed any more.
    strays: usize,
    /// Since when the source has been at work.
    busy: Option<Instant>,
    is_idle: bool,
    /// Counts how often a source that grows had nothing new.
    rounds: u64,
    waiters: usize,
    is_over: bool,
}

/// The thread that reads ahead, and what it shares with its player.
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

/// A source that has been at work for this long does not keep a new request waiting: another thread takes it.
const STUCK_AFTER: Duration = Duration::from_millis(50);
/// So many threads may wait for a stuck source; then requests wait too.
const MOST_STRAYS: usize = 4;
/// How long a source that grows is waited for at a time, between looks at what the player wants.
const A_WAIT: Duration = Duration::from_millis(20);

impl Feed {
    pub fn start(cache: BlockCache, head: Arc<ReadHead>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            ahead: Mutex::new(Ahead {
                queue: Queue::default(),
                backfill: None,
                skip: Cursor::START,
                through: None,
                is_caught_up: false,
                is_finished: false,
                end: None,
                error: None,
                backfill_error: None,
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

    /// Throws away what was read, and reads this instead.
    pub fn ask(&mut self, request: Request) {
        let mut ahead = self.shared.lock();
        ahead.generation += 1;
        ahead.queue.clear();
        ahead.backfill = None;
        ahead.backfill_error = None;
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

    /// A look at what is there; the thread goes on if there is something to do.
    pub fn with<T>(&self, look: impl FnOnce(&mut Ahead) -> T) -> T {
        let mut ahead = self.shared.lock();
        let outcome = look(&mut ahead);
        if ahead.has_work() {
            ahead.is_idle = false;
        }
        self.shared.changed.notify_all();
        outcome
    }

    /// Lets another thread take a request that the first one does not come to, because its source does not answer.
    pub fn unstick(&mut self) {
        let mut ahead = self.shared.lock();
        let is_stuck = ahead
            .busy
            .is_some_and(|since| since.elapsed() > STUCK_AFTER);
        if ahead.request.is_none() || !is_stuck || ahead.strays >= MOST_STRAYS {
            return;
        }
        let former = ahead.worker;
        ahead.worker += 1;
        ahead.strays += 1;
        ahead.busy = None;
        let worker = ahead.worker;
        drop(ahead);
        // The thread that is left behind ends by itself.
        let left = self.thread.take();
        if let Err(error) = self.spawn(worker) {
            tracing::warn!(%error, "no thread can be started to read ahead; the next seek has to wait");
            let mut ahead = self.shared.lock();
            ahead.worker = former;
            ahead.strays -= 1;
            self.thread = left;
        }
    }

    /// Waits until the thread has nothing more to do, or for so long.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut ahead = self.shared.lock();
        ahead.waiters += 1;
        // What came before this was asked is there after a look that began later.
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
        // A source that is at work is not waited for: its thread ends when the source lets it.
        if let Some(thread) = self.thread.take().filter(|_| !is_busy) {
            // A source that panicked has said so already.
            drop(thread.join());
        }
    }
}

impl Ahead {
    /// Takes out what lies at or before `until`, up to the next thing that is not a message.
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

/// Where a thread reads.
enum Reading {
    /// What is there, as the cache has it.
    Held(Box<Reader>),
    /// A source that grows, and the topics that it is followed for.
    Growing(Box<dyn Follow>, Topics),
}

/// What a thread has to do.
enum Task {
    Begin(Request),
    GoOn,
    /// It is not needed any more.
    Leave,
}

/// What came of one look at the source.
enum Turn {
    GoesOn,
    /// The clock of the source was set back.
    Anew,
    Ends,
}

/// A thread at its work.
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
                    // Its reader goes before anything else is read, and what it has read is kept.
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
                // Its times begin again, maybe before the range that was asked for.
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

/// Tells that a thread ends, also where its source has panicked.
struct Leaving<'a>(&'a Shared, u64);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut ahead = self.0.lock();
        if ahead.worker != self.1 {
            ahead.strays -= 1;
        } else if std::thread::panicking() {
            ahead.fail(SourceError::Unreadable {
                place: "the source".into(),
                reason: "reading it has panicked; play on to try again".into(),
            });
            ahead.is_idle = true;
        }
        self.0.changed.notify_all();
    }
}

impl Worker<'_> {
    /// Waits for something to do.
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
        if let Some((topics, at)) = &request.backfill {
            let known = self.cache.backfill(topics, *at);
            if let Ok(known) = &known
                && request.grows
                && request.is_seek
            {
                // More may come with that very stamp: it is told apart from what was known by its place.
                after = Cursor::told_by(known, *at);
            }
            let is_known = known.is_ok();
            self.put(|ahead| match known {
                Ok(known) => {
                    ahead.skip = after;
                    ahead.backfill = Some((*at, known));
                }
                Err(error) => {
                    ahead.backfill_error = Some(error);
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
        // What was in memory says nothing about the source.
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

    /// Takes what a source that grows has next.
    fn follow(&self, follow: &mut dyn Follow) -> Turn {
        let was_caught_up = self.shared.lock().is_caught_up;
        // What the source holds before it says that there is nothing new has been handed out, or is on other topics:
        // time passes up to there. Not asked for while messages come: they tell it themselves.
        let end = was_caught_up.then(|| self.cache.summary().range);
        let end = end.filter(|range| !range.is_empty());
        // A look first, without a wait: a source that has something new before every wait is over can be caught up
        // with, too.
        let next = follow.next(Instant::now());
        let is_caught_up = matches!(next, Ok(Followed::CaughtUp));
        let turn = self.take(next, follow.missed(), end);
        if !is_caught_up || self.shared.lock().waiters > 0 {
            return turn;
        }
        match follow.next(Instant::now() + A_WAIT) {
            Ok(Followed::CaughtUp) => Turn::GoesOn,
            next => self.take(next, follow.missed(), None),
        }
    }

    /// Puts what a source that grows has told with what is ahead.
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
                    // What comes late does not take back what was there before it.
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

    /// Changes what is ahead, unless something else has been asked for since.
    fn put(&self, change: impl FnOnce(&mut Ahead)) {
        let mut ahead = self.shared.lock();
        if ahead.worker == self.number && ahead.generation == self.generation {
            change(&mut ahead);
        }
        self.shared.changed.notify_all();
    }
}
