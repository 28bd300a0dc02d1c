//! Latest time: the newest message of every topic, at the rate of the fastest.

use asof_core::Stamp;

use super::{Stamped, SyncEvent, Synchronizer, unknown};

/// The newest message of every topic, whenever the fastest topic has a new one: a zero-order hold.
///
/// The sets of message_filters' `LatestTime` for the same messages at the same times (usually arrival times). The
/// rate of each topic is estimated; the topic with the highest rate that is not late is the pivot, and a set is emitted
/// when the pivot receives, once every topic has been seen. Topics may be seen for the first time in any order.
///
/// A message at the same time as the one before it, or earlier, does not update the rate and emits nothing; call
/// [`LatestTime::clear`] when a clock was set back for good. Messages are held, not consumed, so values must be cheap
/// to clone.
pub struct LatestTime<V> {
    held: Vec<Option<Stamped<V>>>,
    rates: Vec<Rate>,
}

/// How the rate of a topic is estimated. The defaults are those of message_filters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateOptions {
    /// How much the newest period counts for the rate, from 0 to 1.
    pub rate_smoothing: f64,
    /// How much the newest period counts for the usual error of the rate, from 0 to 1.
    pub error_smoothing: f64,
    /// A rate that is off by more than this many usual errors has changed and is estimated anew.
    pub step_factor: f64,
}

impl Default for RateOptions {
    fn default() -> Self {
        RateOptions {
            rate_smoothing: 0.9,
            error_smoothing: 0.3,
            step_factor: 10.0,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Rate {
    options: RateOptions,
    last: Option<Stamp>,
    hertz: Option<f64>,
    error: Option<f64>,
}

impl Rate {
    /// Records a message. Returns whether its time updated the rate.
    fn note(&mut self, now: Stamp) -> bool {
        let Some(last) = self.last else {
            self.last = Some(now);
            return false;
        };
        let period = seconds(last, now);
        if period <= 0.0 {
            return false;
        }
        self.last = Some(now);
        let sample = 1.0 / period;
        let Some(hertz) = self.hertz else {
            self.hertz = Some(sample);
            return true;
        };
        let error = (hertz - sample).abs();
        let RateOptions {
            rate_smoothing,
            error_smoothing,
            step_factor,
        } = self.options;
        match self.error {
            // A topic without any error so far has no tolerance, not even for rounding.
            Some(usual) if error > step_factor * usual => {
                (self.hertz, self.error) = (Some(sample), None);
                return true;
            }
            Some(usual) => {
                self.error = Some(error_smoothing * error + (1.0 - error_smoothing) * usual);
            }
            None => self.error = Some(error),
        }
        self.hertz = Some(rate_smoothing / period + (1.0 - rate_smoothing) * hertz);
        true
    }

    /// The rate, unless the topic is late: slower by now than its usual error explains.
    fn current(&self, now: Stamp) -> Option<f64> {
        let hertz = self.hertz.filter(|hertz| *hertz > 0.0)?;
        let period = seconds(self.last?, now);
        if period != 0.0
            && let Some(usual) = self.error
            && hertz - 1.0 / period > self.options.step_factor * usual
        {
            return None;
        }
        Some(hertz)
    }
}

/// Divided, not multiplied, as in message_filters: if a topic's error is zero, the last bit decides.
fn seconds(from: Stamp, to: Stamp) -> f64 {
    to.since(from) as f64 / 1e9
}

impl<V> LatestTime<V> {
    /// Joins `topics` topics.
    pub fn new(topics: usize) -> Self {
        LatestTime {
            held: (0..topics).map(|_| None).collect(),
            rates: vec![Rate::default(); topics],
        }
    }

    /// Sets how the rates of all topics are estimated.
    #[must_use]
    pub fn with_rates(mut self, options: RateOptions) -> Self {
        for rate in &mut self.rates {
            rate.options = options;
        }
        self
    }

    /// Sets how the rate of one topic is estimated.
    #[must_use]
    pub fn with_rate(mut self, topic: usize, options: RateOptions) -> Self {
        if let Some(rate) = self.rates.get_mut(topic) {
            rate.options = options;
        }
        self
    }

    /// An empty one with the same settings for another number of topics.
    pub(super) fn with_topics(self, topics: usize) -> Self {
        let mut same = LatestTime::new(topics);
        for (rate, old) in same.rates.iter_mut().zip(self.rates) {
            rate.options = old.options;
        }
        same
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
    /// Everything but the options.
    fn take_waiting(&mut self, gone: &mut Vec<V>) {
        let held = self.held.iter_mut().filter_map(Option::take);
        gone.extend(held.map(|message| message.value));
        for rate in &mut self.rates {
            *rate = Rate {
                options: rate.options,
                ..Rate::default()
            };
        }
    }

    fn topics(&self) -> usize {
        self.held.len()
    }

    fn add(&mut self, topic: usize, stamp: Stamp, value: V, emit: &mut dyn FnMut(SyncEvent<V>)) {
        self.add_with_gone(topic, stamp, value, emit, &mut Vec::new());
    }

    fn add_with_gone(
        &mut self,
        topic: usize,
        stamp: Stamp,
        value: V,
        emit: &mut dyn FnMut(SyncEvent<V>),
        gone: &mut Vec<V>,
    ) {
        let Some(held) = self.held.get_mut(topic) else {
            emit(unknown(topic, stamp, value));
            return;
        };
        let replaced = held.replace(Stamped::new(stamp, value));
        gone.extend(replaced.map(|message| message.value));
        if !self.rates[topic].note(stamp) || self.pivot(stamp) != Some(topic) {
            return;
        }
        // Looked at first: an incomplete set would be dropped here.
        if self.held.iter().all(Option::is_some) {
            let set = self.held.iter().flatten().cloned();
            emit(SyncEvent::Matched(set.collect()));
        }
    }
}
