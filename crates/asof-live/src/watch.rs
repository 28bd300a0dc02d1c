//! Statistics of a robot's topics: rates, bandwidth, jitter, drops.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use asof_core::Stamp;
use parking_lot::Mutex;

use crate::{LiveError, Publisher, Robot, Sample, StampHealth, Subscription};

/// Measures the rates of topics.
pub struct Watch {
    topics: Arc<Mutex<Meters>>,
    subscriptions: Vec<Subscription>,
}

/// The statistics of one topic.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicRate {
    /// Its name.
    pub topic: String,
    /// Its type; several, separated by commas, where publishers disagree.
    pub type_name: String,
    /// Messages so far.
    pub messages: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// Messages per second, over the last ten seconds.
    pub hertz: f64,
    /// Bytes per second, over the same time.
    pub bytes_per_second: f64,
    /// The average deviation of the time between two messages from its mean, in seconds, over the same time.
    pub jitter: f64,
    /// When the last message was received.
    pub last: Option<Stamp>,
    /// Messages that are missing in the publishers' sequence numbers.
    pub lost: u64,
    /// How its stamps stand to the arrival of its messages.
    pub stamps: StampHealth,
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

/// The rate is measured over the arrivals of this long, as `ros2 topic hz` does: a burst after a stall does not change it.
const WINDOW: i64 = 10_000_000_000;
/// At most this many arrivals, and at least two: a slow topic has a rate too.
const MOST_ARRIVALS: usize = 4_096;
/// At most this many publishers of one topic have their sequence numbers tracked; more than any robot has.
const MOST_PUBLISHERS: usize = 1_000;

/// Counts messages that are missing in the publishers' own sequence numbers.
#[derive(Debug, Clone, Default)]
pub struct SequenceGaps {
    publishers: HashMap<[u8; 16], i64>,
    /// Messages that are missing so far.
    pub lost: u64,
}

impl SequenceGaps {
    /// Notes a message that was received.
    pub fn note(&mut self, sample: &Sample) {
        let (Some(publisher), Some(sequence)) = (sample.publisher, sample.sequence) else {
            return;
        };
        let is_new = !self.publishers.contains_key(&publisher);
        if is_new && self.publishers.len() >= MOST_PUBLISHERS {
            return;
        }
        let Some(before) = self.publishers.insert(publisher, sequence) else {
            return;
        };
        // A publisher that restarts its sequence has not lost anything.
        let missing = sequence.saturating_sub(before).saturating_sub(1);
        self.lost = self
            .lost
            .saturating_add(u64::try_from(missing).unwrap_or(0));
    }
}

/// What is measured, under one lock.
#[derive(Default)]
struct Meters {
    by_topic: BTreeMap<String, Meter>,
    /// The robot's own clock, where it was heard.
    clock: Option<Stamp>,
}

impl Meters {
    /// Notes a message of a topic that is known.
    fn note(&mut self, sample: &Sample) {
        self.clock = sample.clock_time().or(self.clock);
        if let Some(meter) = self.by_topic.get_mut(&sample.channel.topic) {
            meter.note(sample, self.clock);
        }
    }
}

#[derive(Default)]
struct Meter {
    types: Vec<String>,
    messages: u64,
    bytes: u64,
    /// When the last messages were received, and their sizes.
    arrivals: VecDeque<(Stamp, u64)>,
    gaps: SequenceGaps,
    stamps: StampHealth,
}

impl Watch {
    /// Watches the topics that `wants` accepts.
    pub fn new(robot: &Robot, wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static) -> Self {
        let topics = Arc::<Mutex<Meters>>::default();
        let (seen, noted) = (Arc::clone(&topics), Arc::clone(&topics));
        let wants = move |publisher: &Publisher| {
            let is_wanted = wants(publisher);
            if is_wanted {
                // Listed even before its first message.
                let channel = &publisher.channel;
                let mut seen = seen.lock();
                let meter = seen.by_topic.entry(channel.topic.clone()).or_default();
                let kind = channel.type_name();
                if !meter.types.iter().any(|known| known == kind) {
                    meter.types.push(kind.to_owned());
                }
            }
            is_wanted
        };
        let subscription = robot.subscribe(wants, move |sample| noted.lock().note(&sample));
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
            if !topics.by_topic.contains_key(&sample.channel.topic) {
                let topic = sample.channel.topic.clone();
                topics.by_topic.insert(topic, Meter::default());
            }
            topics.note(&sample);
        })?;
        self.subscriptions.push(subscription);
        Ok(())
    }

    /// The statistics of all topics at `now`, by name.
    pub fn rates(&self, now: Stamp) -> Vec<TopicRate> {
        let topics = self.topics.lock();
        topics
            .by_topic
            .iter()
            .map(|(topic, meter)| meter.rate(topic, now))
            .collect()
    }
}

impl Meter {
    fn note(&mut self, sample: &Sample, clock: Option<Stamp>) {
        let (size, received) = (sample.payload.len() as u64, sample.received);
        self.messages += 1;
        self.bytes += size;
        let last = self.arrivals.back().map(|(last, _)| *last);
        if last.is_some_and(|last| received < last) {
            // The clock was set back: what came before is of another time.
            self.arrivals.clear();
        }
        self.arrivals.push_back((received, size));
        while self.arrivals.len() > 2
            && (self.arrivals.len() > MOST_ARRIVALS || received.since(self.arrivals[0].0) > WINDOW)
        {
            self.arrivals.pop_front();
        }
        self.gaps.note(sample);
        let stamps = sample.stamps_beside(clock);
        self.stamps.note(stamps, sample.received);
    }

    fn rate(&self, topic: &str, now: Stamp) -> TopicRate {
        let (hertz, bytes_per_second, jitter) = self.measured(now);
        TopicRate {
            topic: topic.to_owned(),
            type_name: self.types.join(", "),
            messages: self.messages,
            bytes: self.bytes,
            hertz,
            bytes_per_second,
            jitter,
            last: self.arrivals.back().map(|(last, _)| *last),
            lost: self.gaps.lost,
            stamps: self.stamps,
        }
    }

    /// Rate, bandwidth and jitter over the same window.
    fn measured(&self, now: Stamp) -> (f64, f64, f64) {
        let old = self
            .arrivals
            .partition_point(|(at, _)| now.since(*at) > WINDOW);
        let skipped = old.min(self.arrivals.len().saturating_sub(2));
        let window = || self.arrivals.iter().skip(skipped);
        let (Some(first), Some(last)) = (window().next(), self.arrivals.back()) else {
            return (0.0, 0.0, 0.0);
        };
        let periods = || window().zip(window().skip(1));
        let periods = || periods().map(|((one, _), (other, _))| other.since(*one));
        let count = periods().count();
        let silence = now.since(last.0);
        // Silent for longer than ever, and longer than a stall of the network: the rate falls.
        let is_silent = silence > periods().max().unwrap_or(0).max(1_000_000_000);
        let span = last.0.since(first.0) + if is_silent { silence } else { 0 };
        if count == 0 || span <= 0 {
            return (0.0, 0.0, 0.0);
        }
        let seconds = span as f64 * 1e-9;
        let bytes: u64 = window().skip(1).map(|(_, size)| size).sum();
        let mean = last.0.since(first.0) as f64 / count as f64;
        let deviation: f64 = periods().map(|period| (period as f64 - mean).abs()).sum();
        let jitter = deviation / count as f64 * 1e-9;
        (count as f64 / seconds, bytes as f64 / seconds, jitter)
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
            meter.note(&sample(n * 10_000_000, n), None);
        }
        let rate = meter.rate("/t", (49 * 10_000_000).into());
        assert!((rate.hertz - 100.0).abs() < 1e-6 && rate.jitter < 1e-9);
        assert!((rate.bytes_per_second - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn bursts_and_stalls_do_not_change_the_mean() {
        let mut meter = Meter::default();
        // 200 a second, of which a network holds back 300 ms at a time.
        for n in 0..4_000_i64 {
            let sent = n * 5_000_000;
            let received = (sent / 300_000_000 + 1) * 300_000_000;
            meter.note(&sample(received, n), None);
            // A window that is full: one burst more or less is three in a hundred.
            if n > 2_000 {
                for after in [0, 100_000_000, 299_000_000] {
                    let rate = meter.rate("/t", (received + after).into());
                    assert!((rate.hertz - 200.0).abs() < 10.0, "{} at {n}", rate.hertz);
                    assert!((rate.bytes_per_second - 2_000.0).abs() < 100.0);
                }
            }
        }
    }

    #[test]
    fn a_hostile_sequence_number_is_counted_and_no_more() {
        let mut meter = Meter::default();
        for sequence in [i64::MIN, i64::MAX, i64::MIN, i64::MAX, 0, -1] {
            meter.note(&sample(1, sequence), None);
        }
        assert!(meter.rate("/t", 9.into()).lost > 0);
    }

    #[test]
    fn gaps_in_the_count_are_lost_messages() {
        let mut meter = Meter::default();
        for sequence in [1, 2, 5, 6, 1] {
            meter.note(&sample(sequence, sequence), None);
        }
        assert_eq!(meter.rate("/t", 9.into()).lost, 2);
    }

    #[test]
    fn a_silent_topic_slows_down() {
        let mut meter = Meter::default();
        for n in 0..5 {
            meter.note(&sample(n * 10_000_000, n), None);
        }
        assert!(meter.rate("/t", 10_040_000_000.into()).hertz < 0.2);
    }
}
