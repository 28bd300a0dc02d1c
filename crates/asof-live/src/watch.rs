//! Statistics of a robot's topics: rates, bandwidth, jitter, drops.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use asof_core::Stamp;
use parking_lot::Mutex;

use crate::{LiveError, Publisher, Robot, Sample, Subscription};

/// Measures the rates of topics.
pub struct Watch {
    topics: Arc<Mutex<BTreeMap<String, Meter>>>,
    subscriptions: Vec<Subscription>,
}

/// The statistics of one topic.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicRate {
    /// Its name.
    pub topic: String,
    /// Its type.
    pub type_name: String,
    /// Messages so far.
    pub messages: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// Messages per second, recently.
    pub hertz: f64,
    /// Bytes per second, recently.
    pub bytes_per_second: f64,
    /// The average deviation of the time between two messages from its mean, in seconds.
    pub jitter: f64,
    /// When the last message was received.
    pub last: Option<Stamp>,
    /// Messages that are missing in the publishers' sequence numbers.
    pub lost: u64,
}

impl TopicRate {
    /// Seconds since the last message was received.
    pub fn age(&self, now: Stamp) -> Option<f64> {
        let last = self.last?;
        Some(now.since(last).max(0) as f64 * 1e-9)
    }

    /// Whether no message has come for much longer than usual.
    pub fn is_silent(&self, now: Stamp) -> bool {
        let usual = if self.hertz > 0.0 {
            1.0 / self.hertz
        } else {
            0.0
        };
        self.age(now).is_none_or(|age| age > 1.0 && age >= usual)
    }
}

/// The weight of the last message in the moving averages.
const WEIGHT: f64 = 0.1;
/// At most this many publishers of one topic have their sequence numbers tracked; more than any robot has.
const MOST_PUBLISHERS: usize = 1_000;

#[derive(Default)]
struct Meter {
    type_name: String,
    messages: u64,
    bytes: u64,
    last: Option<Stamp>,
    period: Option<f64>,
    size: f64,
    jitter: f64,
    lost: u64,
    sequences: HashMap<[u8; 16], i64>,
}

impl Watch {
    /// Watches the topics that `wants` accepts.
    pub fn new(robot: &Robot, wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static) -> Self {
        let topics: Arc<Mutex<BTreeMap<String, Meter>>> = Arc::default();
        let (seen, noted) = (Arc::clone(&topics), Arc::clone(&topics));
        let wants = move |publisher: &Publisher| {
            let is_wanted = wants(publisher);
            if is_wanted {
                // Listed even before its first message.
                let channel = &publisher.channel;
                let mut seen = seen.lock();
                let meter = seen.entry(channel.topic.clone()).or_default();
                channel.type_name().clone_into(&mut meter.type_name);
            }
            is_wanted
        };
        let subscription = robot.subscribe(wants, move |sample| {
            let mut topics = noted.lock();
            if let Some(meter) = topics.get_mut(&sample.channel.topic) {
                meter.note(&sample);
            }
        });
        Watch {
            topics,
            subscriptions: vec![subscription],
        }
    }

    /// Watches the messages on a raw key expression too.
    ///
    /// # Errors
    /// When the key expression is invalid.
    pub fn add_key(&mut self, robot: &Robot, key_expression: &str) -> Result<(), LiveError> {
        let noted = Arc::clone(&self.topics);
        let subscription = robot.subscribe_key(key_expression, move |sample| {
            let mut topics = noted.lock();
            if !topics.contains_key(&sample.channel.topic) {
                topics.insert(sample.channel.topic.clone(), Meter::default());
            }
            if let Some(meter) = topics.get_mut(&sample.channel.topic) {
                meter.note(&sample);
            }
        })?;
        self.subscriptions.push(subscription);
        Ok(())
    }

    /// The statistics of all topics at `now`, by name.
    pub fn rates(&self, now: Stamp) -> Vec<TopicRate> {
        let topics = self.topics.lock();
        topics
            .iter()
            .map(|(topic, meter)| meter.rate(topic, now))
            .collect()
    }
}

impl Meter {
    fn note(&mut self, sample: &Sample) {
        let size = sample.payload.len() as f64;
        self.messages += 1;
        self.bytes += sample.payload.len() as u64;
        self.size += (size - self.size) * if self.messages == 1 { 1.0 } else { WEIGHT };
        if let Some(last) = self.last.replace(sample.received) {
            let elapsed = sample.received.since(last).max(0) as f64 * 1e-9;
            let usual = *self.period.get_or_insert(elapsed);
            self.jitter += ((elapsed - usual).abs() - self.jitter) * WEIGHT;
            self.period = Some(usual + (elapsed - usual) * WEIGHT);
        }
        if let (Some(publisher), Some(sequence)) = (sample.publisher, sample.sequence) {
            if self.sequences.len() >= MOST_PUBLISHERS && !self.sequences.contains_key(&publisher) {
                return;
            }
            let before = self.sequences.insert(publisher, sequence);
            let missing = before.map_or(0, |before| sequence.saturating_sub(before) - 1);
            // A publisher that restarts its sequence has not lost anything.
            self.lost += u64::try_from(missing).unwrap_or(0);
        }
    }

    fn rate(&self, topic: &str, now: Stamp) -> TopicRate {
        let silence = self
            .last
            .map_or(0.0, |last| now.since(last).max(0) as f64 * 1e-9);
        // The rate of a silent topic decays, instead of keeping its last value for ever.
        let period = self.period.map(|period| {
            if silence > 2.0 * period {
                silence
            } else {
                period
            }
        });
        let hertz = period
            .filter(|period| *period > 0.0)
            .map_or(0.0, |period| 1.0 / period);
        TopicRate {
            topic: topic.to_owned(),
            type_name: self.type_name.clone(),
            messages: self.messages,
            bytes: self.bytes,
            hertz,
            bytes_per_second: hertz * self.size,
            jitter: self.jitter,
            last: self.last,
            lost: self.lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn sample(received: i64, sequence: i64) -> Sample {
        Sample {
            channel: Arc::default(),
            described: None,
            has_header: false,
            transport: None,
            source: None,
            received: received.into(),
            sequence: Some(sequence),
            publisher: Some([1; 16]),
            payload: Bytes::from_static(&[0; 10]).into(),
        }
    }

    #[test]
    fn a_steady_topic_has_its_rate_and_no_jitter() {
        let mut meter = Meter::default();
        for n in 0..50 {
            meter.note(&sample(n * 10_000_000, n));
        }
        let rate = meter.rate("/t", (49 * 10_000_000).into());
        assert!((rate.hertz - 100.0).abs() < 1e-6 && rate.jitter < 1e-9);
        assert!((rate.bytes_per_second - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn gaps_in_the_count_are_lost_messages() {
        let mut meter = Meter::default();
        for sequence in [1, 2, 5, 6, 1] {
            meter.note(&sample(sequence, sequence));
        }
        assert_eq!(meter.rate("/t", 9.into()).lost, 2);
    }

    #[test]
    fn a_silent_topic_slows_down() {
        let mut meter = Meter::default();
        for n in 0..5 {
            meter.note(&sample(n * 10_000_000, n));
        }
        assert!(meter.rate("/t", 10_040_000_000.into()).hertz < 0.2);
    }
}
