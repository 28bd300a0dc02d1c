//! The health of a robot's transforms, like tf2_monitor.

use std::collections::HashMap;
use std::time::Duration;

use asof_core::Stamp;

use crate::ros::StampedTransform;

/// Rates, delays and gaps of every edge. Fed by a [`TransformLoader`](crate::TransformLoader), or by
/// [`note`](TransformMonitor::note).
#[derive(Debug, Clone, Default)]
pub struct TransformMonitor {
    edges: HashMap<(String, String), Noted>,
    order: Vec<(String, String)>,
    ignored: u64,
}

/// Arrival statistics of one edge.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeStats {
    /// The parent frame.
    pub parent: String,
    /// The child frame.
    pub child: String,
    /// Whether it holds for all times: then only the count is meaningful.
    pub is_static: bool,
    /// The topic that it last arrived on.
    pub topic: String,
    /// The number of transforms.
    pub samples: u64,
    /// Transforms per second, by arrival time; `None` for fewer than two.
    pub rate: Option<f64>,
    /// The mean time from stamp to arrival, in seconds. Negative if stamps are in the future, as with some
    /// localizers.
    pub mean_delay: f64,
    /// The largest delay, in seconds.
    pub max_delay: f64,
    /// The longest time between two arrivals.
    pub longest_gap: Duration,
    /// Times between two arrivals that were more than three times the mean until then.
    pub gaps: u64,
    /// Transforms whose stamp was not after the one before.
    pub out_of_order: u64,
    /// When the last one arrived.
    pub last: Stamp,
}

#[derive(Debug, Clone)]
struct Noted {
    is_static: bool,
    topic: String,
    samples: u64,
    first: Stamp,
    last: Stamp,
    stamp: Stamp,
    delays: f64,
    max_delay: f64,
    longest_gap: u64,
    gaps: u64,
    out_of_order: u64,
}

/// The most edges with statistics; transforms of others are counted.
const MAX_EDGES: usize = 1 << 16;

/// Arrivals before gaps are detected.
const GAPS_AFTER: u64 = 4;

impl TransformMonitor {
    /// An empty monitor.
    pub fn new() -> Self {
        TransformMonitor::default()
    }

    /// Records a transform that arrived at `now` on a topic.
    pub fn note(&mut self, transform: &StampedTransform, now: Stamp, is_static: bool, topic: &str) {
        let key = (transform.parent.clone(), transform.child.clone());
        let delay = (now.nanos() as f64 - transform.stamp.nanos() as f64) * 1e-9;
        let Some(noted) = self.edges.get_mut(&key) else {
            if self.edges.len() == MAX_EDGES {
                self.ignored += 1;
                return;
            }
            self.order.push(key.clone());
            let noted = Noted {
                is_static,
                topic: topic.to_owned(),
                samples: 1,
                first: now,
                last: now,
                stamp: transform.stamp,
                delays: delay,
                max_delay: delay,
                longest_gap: 0,
                gaps: 0,
                out_of_order: 0,
            };
            self.edges.insert(key, noted);
            return;
        };
        let gap = u64::try_from(now.since(noted.last)).unwrap_or(0);
        if noted.samples >= GAPS_AFTER {
            let usual = now_span(noted) / (noted.samples - 1) as f64;
            noted.gaps += u64::from(gap as f64 > 3.0 * usual);
        }
        if noted.topic != topic {
            topic.clone_into(&mut noted.topic);
        }
        noted.is_static = is_static;
        noted.samples += 1;
        noted.out_of_order += u64::from(!is_static && transform.stamp <= noted.stamp);
        noted.longest_gap = noted.longest_gap.max(gap);
        noted.last = noted.last.max(now);
        noted.stamp = transform.stamp;
        noted.delays += delay;
        noted.max_delay = noted.max_delay.max(delay);
    }

    /// The statistics of every edge, in order of first arrival.
    pub fn edges(&self) -> impl Iterator<Item = EdgeStats> {
        self.order.iter().filter_map(|key| {
            let noted = self.edges.get(key)?;
            let seconds = now_span(noted) * 1e-9;
            Some(EdgeStats {
                parent: key.0.clone(),
                child: key.1.clone(),
                is_static: noted.is_static,
                topic: noted.topic.clone(),
                samples: noted.samples,
                rate: (noted.samples > 1 && seconds > 0.0)
                    .then(|| (noted.samples - 1) as f64 / seconds),
                mean_delay: noted.delays / noted.samples as f64,
                max_delay: noted.max_delay,
                longest_gap: Duration::from_nanos(noted.longest_gap),
                gaps: noted.gaps,
                out_of_order: noted.out_of_order,
                last: noted.last,
            })
        })
    }

    /// Transforms of edges beyond the first 65,536, which have no statistics.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Clears all statistics.
    pub fn clear(&mut self) {
        *self = TransformMonitor::default();
    }
}

/// Nanoseconds from the first arrival to the last.
fn now_span(noted: &Noted) -> f64 {
    noted.last.nanos() as f64 - noted.first.nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::Isometry3;

    #[test]
    fn rate_delay_and_gaps_are_those_of_the_arrivals() {
        let mut monitor = TransformMonitor::new();
        let ms = 1_000_000;
        // 100 Hz with a delay of 2 ms, one pause of 100 ms, and one that is late by 50 ms.
        let mut now = 0;
        for n in 0..100 {
            now += if n == 50 { 100 * ms } else { 10 * ms };
            let delay = if n == 70 { 50 * ms } else { 2 * ms };
            let transform = StampedTransform {
                stamp: (now - delay).into(),
                parent: "odom".into(),
                child: "base".into(),
                isometry: Isometry3::identity(),
            };
            monitor.note(&transform, now.into(), false, "/tf");
        }
        let edge = monitor.edges().next().expect("one edge");
        assert_eq!((edge.samples, edge.gaps, edge.out_of_order), (100, 1, 1));
        assert_eq!(edge.longest_gap, Duration::from_millis(100));
        assert!((edge.rate.expect("has one") - 99.0 / 1.08).abs() < 1e-6);
        assert!((edge.mean_delay - 0.002_48).abs() < 1e-9);
        assert!((edge.max_delay - 0.05).abs() < 1e-9);
    }
}
