//! Messages that wait for the disk.

mod clock;
mod pending;
mod state;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::Stamp;
use asof_live::Sample;
use asof_live::ros::is_latched;
use parking_lot::{Condvar, Mutex};

use self::clock::RobotClock;
use self::state::{MOST_TOPICS, State, Waiting, named};
use self::writing::Prefixed;
use crate::options::{Priorities, RecordOptions};
use crate::report::TopicReport;
use crate::sink::Tags;

/// At most this many notes may wait to be written.
const MOST_NOTES: usize = 10_000;
/// How often a slow disk is logged.
const WARN_INTERVAL: Duration = Duration::from_secs(1);
/// The writer takes one part in this many of the queue at once; what it has taken cannot be dropped for something
/// else.
const TAKE_FRACTION: u64 = 16;
/// At most this many messages wait for the robot's clock.
const MOST_BEFORE_CLOCK: usize = 1_000;

/// Messages that wait for the disk.
///
/// When the queue is full, messages of lower priority than the incoming one are dropped, the oldest first; if there
/// are none, the incoming message is dropped. All drops are counted.
pub(crate) struct Queue {
    limit: u64,
    priorities: Priorities,
    state: Mutex<State>,
    arrived: Condvar,
    prefixed: Mutex<Prefixed>,
    /// The robot's clock, for a recording by it.
    clock: Option<RobotClock>,
    /// When the recording began.
    begun: Instant,
    /// An open chunk is flushed at this age.
    chunk_age: Option<Duration>,
}

impl Queue {
    pub fn new(options: &RecordOptions) -> Self {
        Queue {
            limit: options.queue_bytes,
            priorities: options.priorities.clone(),
            state: Mutex::default(),
            arrived: Condvar::new(),
            prefixed: Mutex::default(),
            clock: options.sim_time.then(RobotClock::new),
            begun: Instant::now(),
            chunk_age: options.writer.chunk_age,
        }
    }

    /// Whether messages are logged by the robot's clock.
    pub fn has_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// The counts of each topic, and the bytes that wait.
    pub fn report(&self) -> (BTreeMap<String, TopicReport>, u64) {
        let state = self.state.lock();
        (state.topics.clone(), state.bytes)
    }

    /// Queues named text values to be written.
    pub fn note(&self, name: &str, values: Tags) {
        let mut state = self.state.lock();
        if state.notes.len() < MOST_NOTES {
            state.notes.push((name.to_owned(), values));
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Queues the reason of a snapshot.
    pub fn trigger(&self, reason: &str) {
        let mut state = self.state.lock();
        if state.triggers.len() < MOST_NOTES {
            state.triggers.push(reason.to_owned());
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Sets the robot's clock.
    pub fn set_clock(&self, time: Stamp) {
        if let Some(clock) = &self.clock {
            clock.set(time);
            let latched = std::mem::take(&mut self.state.lock().before_clock);
            for (prefix, sample) in latched {
                self.push(&prefix, sample);
            }
        }
    }

    /// The current log time: the robot's clock once it was received, for a recording by it; else this machine's.
    fn now(&self) -> Stamp {
        let time = self.clock.as_ref().and_then(RobotClock::time);
        time.unwrap_or_else(Stamp::now)
    }

    /// The time since the recording began, by a clock that never goes back.
    fn steady(&self) -> Stamp {
        match &self.clock {
            Some(clock) => clock.advanced(),
            None => i64::try_from(self.begun.elapsed().as_nanos())
                .unwrap_or(i64::MAX)
                .into(),
        }
    }

    pub fn push(&self, prefix: &Arc<str>, mut sample: Sample) {
        let weight = sample.weight();
        let topic = named(prefix, &sample.channel.topic);
        let mut state = self.state.lock();
        if state.is_closed {
            if state.is_broken {
                state.report_of(&topic).dropped += 1;
            }
            return;
        }
        if !state.arrivals.contains_key(&topic) && state.arrivals.len() < MOST_TOPICS {
            state.arrivals.insert(topic.clone(), Default::default());
        }
        // Under the lock: what finds no clock is then among what the first time of the clock releases.
        let is_early = match &self.clock {
            None => false,
            Some(clock) => match clock.time() {
                Some(time) => {
                    // Its publisher sent it by the clock of its computer.
                    let step = time.since(sample.received);
                    for sent in [&mut sample.source, &mut sample.transport] {
                        *sent = sent.map(|sent| sent.plus_nanos(step));
                    }
                    sample.received = time;
                    false
                }
                None => true,
            },
        };
        if let Some((gaps, stamps)) = state.arrivals.get_mut(&topic) {
            let before = gaps.lost;
            gaps.note(&sample);
            let is_bad = !is_early && stamps.note(sample.stamps(), sample.received);
            let (stamps, lost) = (*stamps, gaps.lost);
            if is_bad || lost > before {
                let report = state.report_of(&topic);
                (report.lost, report.stamps) = (lost, stamps);
            }
        }
        if is_early {
            // It will not be sent again once the clock is there.
            let held: u64 = state.before_clock.iter().map(|(_, one)| one.weight()).sum();
            let has_room = state.before_clock.len() < MOST_BEFORE_CLOCK
                && held.saturating_add(weight) <= self.limit / TAKE_FRACTION;
            if is_latched(&sample.channel) && has_room {
                state.before_clock.push((Arc::clone(prefix), sample));
            } else {
                state.report_of(&topic).early += 1;
            }
            return;
        }
        let priority = state.priority_of(&sample.channel, &self.priorities);
        let missing = state
            .bytes
            .saturating_add(weight)
            .saturating_sub(self.limit);
        if missing > 0 && !state.make_room(missing, priority, self.limit / TAKE_FRACTION) {
            let report = state.report_of(&topic);
            report.dropped += 1;
            let dropped = report.dropped;
            let is_due = state
                .warned
                .is_none_or(|last| last.elapsed() >= WARN_INTERVAL);
            if is_due {
                state.warned = Some(Instant::now());
                drop(state);
                tracing::warn!(
                    "the disk is slower than the robot: {dropped} messages of {} dropped so far",
                    sample.channel.topic
                );
            }
            return;
        }
        state.bytes += weight;
        *state.by_priority.entry(priority).or_default() += weight;
        state.samples.push_back(Waiting {
            weight,
            priority,
            prefix: Arc::clone(prefix),
            at: self.steady(),
            sample,
        });
        drop(state);
        self.arrived.notify_one();
    }

    pub fn close(&self) {
        self.state.lock().close();
        self.arrived.notify_all();
    }
}
