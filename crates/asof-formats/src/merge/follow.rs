//! Several recordings followed as one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use asof_core::{Batch, Batches, Follow, FollowEnd, Followed, Query, SourceError};

use super::Shared;
use super::read::{Reader, Translation};

/// First the existing messages of all recordings, in one order; then new messages of those that grow, as they arrive.
pub(super) struct MergedFollow {
    shared: Arc<Shared>,
    held: Option<Reader>,
    parts: Vec<FollowedPart>,
    /// Set by a part whose clock was set back while its existing messages were read.
    has_restarted: Arc<AtomicBool>,
}

/// One of the recordings, and how far it has been followed.
struct FollowedPart {
    part: usize,
    follower: Arc<Mutex<Box<dyn Follow>>>,
    table: Translation,
    end: Option<FollowEnd>,
}

/// How long to wait for one part before the others get their turn.
const PART_WAIT: Duration = Duration::from_millis(20);

impl MergedFollow {
    pub fn new(shared: &Arc<Shared>, query: &Query) -> Result<Self, SourceError> {
        let mut parts = Vec::new();
        let mut held: Vec<Option<Batches>> = Vec::new();
        let has_restarted = Arc::new(AtomicBool::new(false));
        for (part, recording) in shared.parts.iter().enumerate() {
            let follower = recording.recording.follow(query)?;
            let follower = Arc::new(Mutex::new(follower));
            held.push(Some(Box::new(Backlog {
                follower: Arc::clone(&follower),
                has_restarted: Arc::clone(&has_restarted),
            })));
            parts.push(FollowedPart {
                part,
                follower,
                table: Translation::default(),
                end: None,
            });
        }
        Ok(MergedFollow {
            shared: Arc::clone(shared),
            held: Some(Reader::over(shared, query, held)),
            parts,
            has_restarted,
        })
    }

    /// The next messages of the parts that grow.
    fn step(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        loop {
            let now = Instant::now();
            let mut has_waited = false;
            for place in 0..self.parts.len() {
                if self.parts[place].end.is_some() {
                    continue;
                }
                // Only one part waits per round.
                let until = if has_waited {
                    now
                } else {
                    deadline.min(now + PART_WAIT)
                };
                has_waited = true;
                match self.parts[place].next(until)? {
                    Followed::Batch(batch) => {
                        return Ok(Followed::Batch(self.translated(place, &batch)));
                    }
                    Followed::Restarted => return Ok(Followed::Restarted),
                    Followed::End(end) => self.parts[place].end = Some(end),
                    Followed::CaughtUp => {}
                }
            }
            if let Some(end) = self.all_ended() {
                return Ok(Followed::End(end));
            }
            if Instant::now() >= deadline {
                return Ok(Followed::CaughtUp);
            }
        }
    }

    /// How the parts ended, once all have: the worst of their ends.
    fn all_ended(&self) -> Option<FollowEnd> {
        let ends: Vec<&FollowEnd> = self
            .parts
            .iter()
            .map(|part| part.end.as_ref())
            .collect::<Option<_>>()?;
        let lost = ends.iter().find(|end| matches!(end, FollowEnd::Lost(_)));
        let closed = ends.iter().find(|end| matches!(end, FollowEnd::Closed));
        let worst = lost.or(closed).map(|end| (**end).clone());
        Some(worst.unwrap_or(FollowEnd::Complete))
    }

    fn translated(&mut self, place: usize, batch: &Batch) -> Batch {
        let FollowedPart { part, table, .. } = &mut self.parts[place];
        table.translated(&self.shared, *part, batch)
    }
}

impl FollowedPart {
    fn next(&self, deadline: Instant) -> Result<Followed, SourceError> {
        let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        follower.next(deadline)
    }
}

impl Follow for MergedFollow {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        if let Some(held) = &mut self.held {
            match held.next() {
                Some(batch) => return batch.map(Followed::Batch),
                None => self.held = None,
            }
        }
        if self.has_restarted.swap(false, Ordering::Relaxed) {
            return Ok(Followed::Restarted);
        }
        self.step(deadline)
    }

    fn missed(&mut self) -> BTreeMap<String, u64> {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for part in &self.parts {
            let mut follower = part.follower.lock().unwrap_or_else(PoisonError::into_inner);
            for (topic, count) in follower.missed() {
                *all.entry(topic).or_default() += count;
            }
        }
        all
    }
}

/// The existing messages of a part: its follower's batches until it has caught up.
struct Backlog {
    follower: Arc<Mutex<Box<dyn Follow>>>,
    has_restarted: Arc<AtomicBool>,
}

impl Iterator for Backlog {
    type Item = Result<Batch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        match follower.next(Instant::now()) {
            Ok(Followed::Batch(batch)) => Some(Ok(batch)),
            Ok(Followed::Restarted) => {
                // What comes next is out of order with the other parts' messages.
                self.has_restarted.store(true, Ordering::Relaxed);
                None
            }
            Ok(Followed::CaughtUp | Followed::End(_)) => None,
            Err(error) => Some(Err(error)),
        }
    }
}
