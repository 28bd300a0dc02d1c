//! The subscribers of each key, where one connection carries all keys.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use asof_core::Stamp;
use parking_lot::Mutex;

use super::SubscriptionGuard;
use crate::Sample;
use crate::ros::is_latched;
use crate::subscribe::Callback;

/// Delivers samples to the subscribers of their key.
///
/// A server sends latched messages once per connection. So the last message of each latched key is kept here for later
/// subscribers on the same connection, within a budget. A key that has had one message alone may be latched without saying so.
/// Volatile messages are of their time, and are not repeated.
#[derive(Default)]
pub(crate) struct Hub {
    lanes: Mutex<Lanes>,
    /// Incremented with every change of the subscriptions.
    version: AtomicU64,
    next: AtomicU64,
}

#[derive(Default)]
struct Lanes {
    by_key: HashMap<String, Lane>,
    /// Bytes of the last messages.
    kept: u64,
}

#[derive(Default)]
struct Lane {
    callbacks: Vec<(u64, Callback)>,
    last: Option<Sample>,
    /// Whether a message has come.
    is_heard: bool,
}

/// The most bytes of last messages that are kept in total.
const MOST_KEPT: u64 = 64 << 20;

impl Hub {
    /// Delivers the messages on a key until the returned guard is dropped.
    pub fn subscribe(self: &Arc<Self>, key: &str, callback: &Callback) -> SubscriptionGuard {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let last = {
            let mut lanes = self.lanes.lock();
            let lane = lanes.by_key.entry(key.to_owned()).or_default();
            lane.callbacks.push((number, Arc::clone(callback)));
            lane.last.clone()
        };
        self.version.fetch_add(1, Ordering::Release);
        if let Some(mut sample) = last {
            // This subscriber receives it now: its time does not go back.
            sample.received = Stamp::now();
            callback(sample);
        }
        Box::new(Ticket {
            hub: Arc::downgrade(self),
            key: key.to_owned(),
            number,
        })
    }

    /// Incremented with every change of the subscriptions.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub fn is_wanted(&self, key: &str) -> bool {
        self.lanes.lock().by_key.contains_key(key)
    }

    /// Delivers a sample; the lock is not held while callbacks run.
    pub fn deliver(&self, key: &str, sample: Sample) {
        let callbacks: Vec<Callback> = {
            let mut lanes = self.lanes.lock();
            let kept = lanes.kept;
            let Some(lane) = lanes.by_key.get_mut(key) else {
                return;
            };
            let before = lane.last.take().map_or(0, |last| last.weight());
            let weight = sample.weight();
            let without = kept.saturating_sub(before);
            let is_kept = !lane.is_heard || is_latched(&sample.channel);
            lane.is_heard = true;
            let fits = is_kept && without.saturating_add(weight) <= MOST_KEPT;
            lane.last = fits.then(|| sample.clone());
            let callbacks = lane.callbacks.iter().map(|(_, callback)| callback);
            let callbacks = callbacks.cloned().collect();
            lanes.kept = without + if fits { weight } else { 0 };
            callbacks
        };
        if let Some((last, others)) = callbacks.split_last() {
            for callback in others {
                callback(sample.clone());
            }
            last(sample);
        }
    }

    fn leave(&self, key: &str, number: u64) {
        let mut lanes = self.lanes.lock();
        let mut gone = (None, None);
        if let Some(lane) = lanes.by_key.get_mut(key) {
            let place = lane.callbacks.iter().position(|(one, _)| *one == number);
            gone.0 = place.map(|place| lane.callbacks.remove(place));
            if lane.callbacks.is_empty() {
                let weight = lane.last.as_ref().map_or(0, Sample::weight);
                gone.1 = lanes.by_key.remove(key);
                lanes.kept = lanes.kept.saturating_sub(weight);
            }
        }
        drop(lanes);
        // What a callback owns may be a subscription of this hub.
        drop(gone);
        self.version.fetch_add(1, Ordering::Release);
    }
}

struct Ticket {
    hub: Weak<Hub>,
    key: String,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.leave(&self.key, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn sample(payload: Vec<u8>) -> Sample {
        let channel = asof_core::Channel {
            topic: "/tf_static".to_owned(),
            ..asof_core::Channel::default()
        };
        Sample::new(Arc::new(channel), Bytes::from(payload))
    }

    #[test]
    fn a_volatile_message_is_not_repeated_and_a_latched_one_comes_now() {
        let hub = Arc::new(Hub::default());
        let (_, callback) = counter();
        let _early = (
            hub.subscribe("/scan", &callback),
            hub.subscribe("/tf_static", &callback),
        );
        for _ in 0..2 {
            hub.deliver("/scan", Sample::new(Arc::default(), Bytes::new()));
        }
        let mut fixed = sample(vec![1]);
        fixed.received = 5.into();
        hub.deliver("/tf_static", fixed);
        let times = Arc::<Mutex<Vec<Stamp>>>::default();
        let noted = Arc::clone(&times);
        let callback: Callback = Arc::new(move |sample: Sample| noted.lock().push(sample.received));
        let before = Stamp::now();
        let _late = (
            hub.subscribe("/scan", &callback),
            hub.subscribe("/tf_static", &callback),
        );
        let times = times.lock();
        assert!(times.len() == 1 && times[0] >= before, "{times:?}");
    }

    fn counter() -> (Arc<AtomicU64>, Callback) {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let callback = move |_: Sample| {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        (count, Arc::new(callback))
    }

    #[test]
    fn a_late_subscriber_is_given_the_last_message() {
        let hub = Arc::new(Hub::default());
        let (early, callback) = counter();
        let _early = hub.subscribe("/tf_static", &callback);
        hub.deliver("/tf_static", sample(vec![1]));
        let (late, callback) = counter();
        let _late = hub.subscribe("/tf_static", &callback);
        assert_eq!(early.load(Ordering::Relaxed), 1);
        assert_eq!(late.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_key_is_wanted_for_as_long_as_somebody_holds_on_to_it() {
        let hub = Arc::new(Hub::default());
        let (_, callback) = counter();
        let (one, two) = (
            hub.subscribe("/a", &callback),
            hub.subscribe("/a", &callback),
        );
        drop(one);
        assert!(hub.is_wanted("/a"));
        let before = hub.version();
        drop(two);
        assert!(!hub.is_wanted("/a"));
        assert_ne!(hub.version(), before);
    }

    #[test]
    fn a_callback_may_own_another_subscription() {
        let hub = Arc::new(Hub::default());
        let (_, callback) = counter();
        let inner = hub.subscribe("/b", &callback);
        let callback: Callback = Arc::new(move |_| {
            let _ = &inner;
        });
        let outer = hub.subscribe("/a", &callback);
        drop(callback);
        drop(outer);
        assert!(!hub.is_wanted("/a") && !hub.is_wanted("/b"));
    }

    #[test]
    fn last_messages_are_kept_within_a_budget_and_given_back() {
        let hub = Arc::new(Hub::default());
        let (count, callback) = counter();
        let held: Vec<SubscriptionGuard> = (0..4)
            .map(|n| hub.subscribe(&format!("/{n}"), &callback))
            .collect();
        for round in 0..3 {
            for n in 0..4 {
                hub.deliver(&format!("/{n}"), sample(vec![round; 20 << 20]));
            }
        }
        assert_eq!(count.load(Ordering::Relaxed), 12, "all were delivered");
        let kept = hub.lanes.lock().kept;
        assert!((60 << 20..=MOST_KEPT).contains(&kept), "{kept}");
        drop(held);
        assert_eq!(hub.lanes.lock().kept, 0);
    }
}
