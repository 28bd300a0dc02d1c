//! Latest time: the newest of everything, at the pace of the fastest.

use asof_core::Stamp;

use super::{Event, Stamped, Synchronizer, unknown};

const RATE_SMOOTHING: f64 = 0.9;
const ERROR_SMOOTHING: f64 = 0.3;
const STEP_FACTOR: f64 = 10.0;

/// The newest message of every topic, whenever the fastest topic has a new one: a zero-order hold.
///
/// The semantics of message_filters' `LatestTime`: rates are estimated from the times that are given (arrival times,
/// as a rule), the topic with the highest rate is the pivot, and a set is emitted when the pivot receives, once
/// every topic has been seen. A topic that has fallen silent for ten of its periods is no pivot.
/// Messages are held, not used up, so values must be cheap to clone.
pub struct LatestTime<V> {
    held: Vec<Option<Stamped<V>>>,
    rates: Vec<Rate>,
}

#[derive(Clone, Copy, Default)]
struct Rate {
    last: Option<Stamp>,
    hertz: Option<f64>,
    error: Option<f64>,
}

impl Rate {
    fn note(&mut self, now: Stamp) {
        let period = self
            .last
            .replace(now)
            .map(|last| now.since(last) as f64 * 1e-9);
        // The same instant twice says nothing about a rate, nor does a clock that goes back.
        let Some(period) = period.filter(|period| *period > 0.0) else {
            return;
        };
        let sample = 1.0 / period;
        let Some(hertz) = self.hertz else {
            self.hertz = Some(sample);
            return;
        };
        let error = (sample - hertz).abs();
        match self.error {
            Some(usual) if usual > 0.0 && error > STEP_FACTOR * usual => {
                (self.hertz, self.error) = (Some(sample), None);
                return;
            }
            Some(usual) => {
                self.error = Some(ERROR_SMOOTHING * error + (1.0 - ERROR_SMOOTHING) * usual);
            }
            None => self.error = Some(error),
        }
        self.hertz = Some(RATE_SMOOTHING * sample + (1.0 - RATE_SMOOTHING) * hertz);
    }

    /// The rate, if the topic is still alive.
    fn current(&self, now: Stamp) -> Option<f64> {
        let (hertz, last) = (self.hertz?, self.last?);
        let silence = now.since(last) as f64 * 1e-9;
        (silence * hertz <= STEP_FACTOR).then_some(hertz)
    }
}

impl<V> LatestTime<V> {
    /// Joins `topics` topics.
    pub fn new(topics: usize) -> Self {
        LatestTime {
            held: (0..topics).map(|_| None).collect(),
            rates: vec![Rate::default(); topics],
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = LatestTime::new(self.held.len());
    }

    fn pivot(&self, now: Stamp) -> Option<usize> {
        let rates = self.rates.iter().enumerate();
        let alive = rates.filter_map(|(topic, rate)| Some((topic, rate.current(now)?)));
        // The first of several with the same rate.
        let best = alive.reduce(|best, other| if other.1 > best.1 { other } else { best });
        best.map(|(topic, _)| topic)
    }
}

impl<V: Clone> Synchronizer<V> for LatestTime<V> {
    fn topics(&self) -> usize {
        self.held.len()
    }

    fn add(&mut self, topic: usize, stamp: Stamp, value: V, emit: &mut dyn FnMut(Event<V>)) {
        let Some(held) = self.held.get_mut(topic) else {
            emit(unknown(topic, stamp, value));
            return;
        };
        *held = Some(Stamped::new(stamp, value));
        self.rates[topic].note(stamp);
        if self.pivot(stamp) != Some(topic) {
            return;
        }
        let set: Option<Vec<_>> = self.held.iter().cloned().collect();
        if let Some(set) = set {
            emit(Event::Matched(set));
        }
    }
}
