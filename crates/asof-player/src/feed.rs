//! Reading ahead of the player, on a thread of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, ReadHead, Reader};
use asof_core::{Batch, Query, Source, SourceError, Stamp, TimeRange, Topics};

use crate::pace::Pace;

/// What a player needs next.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub topics: Topics,
    /// What to read, in order.
    pub range: TimeRange,
    /// First say what was known on these topics as of then.
    pub backfill: Option<(Topics, Stamp)>,
}

/// What has been read and not yet played.
pub(crate) struct Ahead {
    pub batches: VecDeque<Batch>,
    pub backfill: Option<(Stamp, Batch)>,
    /// Everything up to here has been read; `None` before the first batch.
    pub through: Option<Stamp>,
    pub is_finished: bool,
    pub error: Option<SourceError>,
    /// Read until here, and then wait.
    pub wanted_through: Stamp,
    pub pace: Pace,
    queued_bytes: u64,
    request: Option<Request>,
    /// Counts the requests: what belongs to an earlier one is thrown away.
    generation: u64,
    is_idle: bool,
    is_over: bool,
}

/// The thread that reads ahead, and what it shares with its player.
pub(crate) struct Feed {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ahead: Mutex<Ahead>,
    /// Something changed, on either side.
    changed: Condvar,
}

/// Batches that wait to be played keep their buffers alive: no more than this, whatever the look-ahead.
/// What lies further ahead waits in the cache.
const QUEUED_BYTES: u64 = 32 << 20;

impl Feed {
    pub fn start(cache: BlockCache, head: Arc<ReadHead>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            ahead: Mutex::new(Ahead {
                batches: VecDeque::new(),
                backfill: None,
                through: None,
                is_finished: false,
                error: None,
                wanted_through: Stamp::MIN,
                pace: Pace::default(),
                queued_bytes: 0,
                request: None,
                generation: 0,
                is_idle: true,
                is_over: false,
            }),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("asof-player".into())
            .spawn(move || own.run(&cache, &head))?;
        Ok(Feed {
            shared,
            thread: Some(thread),
        })
    }

    /// Throws away what was read, and reads this instead.
    pub fn ask(&self, request: Request) {
        let mut ahead = self.shared.lock();
        ahead.generation += 1;
        ahead.batches.clear();
        ahead.queued_bytes = 0;
        ahead.backfill = None;
        ahead.through = None;
        ahead.is_finished = false;
        ahead.error = None;
        ahead.is_idle = false;
        ahead.request = Some(request);
        self.shared.changed.notify_all();
    }

    /// Reads on behind what was asked for so far, and keeps what is there.
    pub fn extend(&self, range: TimeRange, topics: Topics) {
        let mut ahead = self.shared.lock();
        if !ahead.is_finished || ahead.request.is_some() {
            return;
        }
        ahead.is_finished = false;
        ahead.is_idle = false;
        ahead.request = Some(Request {
            topics,
            range,
            backfill: None,
        });
        self.shared.changed.notify_all();
    }

    /// A look at what is there; the thread goes on if there is something to do.
    pub fn with<T>(&self, look: impl FnOnce(&mut Ahead) -> T) -> T {
        let mut ahead = self.shared.lock();
        let outcome = look(&mut ahead);
        ahead.queued_bytes = ahead.batches.iter().map(Batch::payload_bytes).sum();
        if ahead.has_work() {
            ahead.is_idle = false;
        }
        self.shared.changed.notify_all();
        outcome
    }

    /// Waits until the thread has nothing more to do, or for so long.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut ahead = self.shared.lock();
        while !ahead.is_idle {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            let waited = self.shared.changed.wait_timeout(ahead, left);
            ahead = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A source that panicked has said so already.
            drop(thread.join());
        }
    }
}

impl Ahead {
    fn has_work(&self) -> bool {
        if self.request.is_some() {
            return true;
        }
        let is_far = self
            .through
            .is_some_and(|through| through >= self.wanted_through);
        !self.is_finished && !is_far && self.has_room()
    }

    /// Whether more may be read: a queue that is full is as good as one that is long enough.
    pub fn has_room(&self) -> bool {
        self.batches.is_empty() || self.queued_bytes < QUEUED_BYTES
    }
}

impl Shared {
    fn run(&self, cache: &BlockCache, head: &ReadHead) {
        let mut reading: Option<(Reader, TimeRange)> = None;
        let mut generation = 0;
        loop {
            let mut ahead = self.lock();
            while !ahead.is_over
                && (!ahead.has_work() || (reading.is_none() && ahead.request.is_none()))
            {
                ahead.is_idle = true;
                self.changed.notify_all();
                ahead = self
                    .changed
                    .wait(ahead)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if ahead.is_over {
                return;
            }
            let request = ahead.request.take();
            let is_new = generation != ahead.generation;
            generation = ahead.generation;
            drop(ahead);
            if let Some(request) = request {
                if is_new {
                    // Its reader goes before anything else is read, and what it has read is kept.
                    drop(reading.take());
                }
                if let Some((topics, at)) = &request.backfill {
                    let known = cache.backfill(topics, *at);
                    self.put(generation, |ahead| match known {
                        Ok(known) => ahead.backfill = Some((*at, known)),
                        Err(error) => ahead.fail(error),
                    });
                }
                let query = Query {
                    topics: request.topics,
                    range: request.range,
                };
                reading = Some((head.read_ahead(&query), request.range));
            }
            if let Some((reader, range)) = &mut reading
                && !self.read(reader, *range, generation)
            {
                reading = None;
            }
        }
    }

    /// Reads one batch. `false` at the end.
    fn read(&self, reader: &mut Reader, range: TimeRange, generation: u64) -> bool {
        let start = Instant::now();
        let from = reader.at();
        let next = reader.next();
        let took = start.elapsed();
        let is_last = reader.is_finished();
        let through = match reader.at() {
            Some(next) => next.plus_nanos(-1),
            None if is_last => range.end,
            // An error is still to come.
            None => from.unwrap_or(range.start),
        };
        let mut goes_on = true;
        self.put(generation, |ahead| match next {
            Some(Ok(batch)) => {
                if let Some(from) = from {
                    ahead.pace.note(batch.range().end.since(from), took);
                }
                ahead.queued_bytes += batch.payload_bytes();
                ahead.batches.push_back(batch);
                ahead.through = Some(through);
                ahead.is_finished = is_last;
                goes_on = !is_last;
            }
            Some(Err(error)) => {
                ahead.fail(error);
                goes_on = false;
            }
            None => {
                ahead.through = Some(range.end);
                ahead.is_finished = true;
                goes_on = false;
            }
        });
        goes_on
    }

    /// Changes what is ahead, unless something else has been asked for since.
    fn put(&self, generation: u64, change: impl FnOnce(&mut Ahead)) {
        let mut ahead = self.lock();
        if ahead.generation == generation {
            change(&mut ahead);
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ahead {
    fn fail(&mut self, error: SourceError) {
        self.error = Some(error);
        self.is_finished = true;
    }
}
