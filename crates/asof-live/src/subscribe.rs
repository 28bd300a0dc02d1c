//! Subscriptions: one for each exact key of the accepted topics.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::graph::Interest;
use crate::robot::Inner;
use crate::transport::SubscriptionGuard;
use crate::{LiveError, Publisher, Sample};

pub(crate) type Callback = Arc<dyn Fn(Sample) + Send + Sync>;
type Wants = Box<dyn Fn(&Publisher) -> bool + Send + Sync>;

/// Passes the messages of topics to a callback until it is dropped.
pub struct Subscription {
    topics: Arc<Topics>,
}

struct Topics {
    robot: Weak<Inner>,
    wants: Wants,
    callback: Callback,
    keys: Mutex<HashMap<String, SubscriptionGuard>>,
    /// By the same keys: announcements for publishers that need to know their subscribers.
    announced: Mutex<HashMap<String, SubscriptionGuard>>,
    /// Keys without a publisher, the longest first.
    idle: Mutex<VecDeque<String>>,
    /// Messages on more raw keys than are followed.
    refused: Arc<AtomicU64>,
}

/// At most this many keys without a publisher stay subscribed: one that comes back loses nothing.
const MOST_IDLE: usize = 256;

/// Calls a user's code. Its panic is reported by the panic hook and goes no further: the thread is that of the transport, and
/// what else it has to do must not end with it.
pub(crate) fn contained(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

impl Subscription {
    pub(crate) fn new(
        robot: &Arc<Inner>,
        wants: Wants,
        callback: impl Fn(Sample) + Send + Sync + 'static,
    ) -> Self {
        let callback: Callback = Arc::new(move |sample| contained(|| callback(sample)));
        Subscription {
            topics: Arc::new(Topics {
                robot: Arc::downgrade(robot),
                wants,
                callback,
                keys: Mutex::default(),
                announced: Mutex::default(),
                idle: Mutex::default(),
                refused: Arc::default(),
            }),
        }
    }

    pub(crate) fn interest(&self) -> Weak<dyn Interest> {
        let topics: Arc<dyn Interest> = Arc::<Topics>::clone(&self.topics);
        Arc::downgrade(&topics)
    }

    pub(crate) fn appeared(&self, publisher: &Publisher) {
        self.topics.appeared(publisher);
    }

    /// The exact keys that are subscribed now.
    pub fn keys(&self) -> Vec<String> {
        self.topics.keys.lock().keys().cloned().collect()
    }

    /// How many messages were dropped because they came on more raw keys than one subscription follows (10,000 keys,
    /// or 4 MB of their names).
    pub fn refused(&self) -> u64 {
        self.topics.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn raw(
        robot: &Arc<Inner>,
        key_expression: &str,
        callback: impl Fn(Sample) + Send + Sync + 'static,
    ) -> Result<Self, LiveError> {
        let subscription = Subscription::new(robot, Box::new(|_| false), callback);
        let topics = &subscription.topics;
        let callback = Arc::clone(&topics.callback);
        let transport = &robot.transport;
        let held = transport.subscribe_key(key_expression, callback, &topics.refused)?;
        topics.keys.lock().insert(key_expression.to_owned(), held);
        Ok(subscription)
    }
}

impl Interest for Topics {
    fn appeared(&self, publisher: &Publisher) {
        if !(self.wants)(publisher) {
            return;
        }
        let Some(robot) = self.robot.upgrade() else {
            return;
        };
        let key = &publisher.key;
        let mut announced = self.announced.lock();
        if !announced.contains_key(key)
            && let Some(held) = robot.transport.announce(publisher)
        {
            announced.insert(key.clone(), held);
        }
        drop(announced);
        self.idle.lock().retain(|idle| idle != key);
        // Taken before it is subscribed, and subscribed without the lock: the transport may call back at once.
        if let Entry::Vacant(place) = self.keys.lock().entry(key.clone()) {
            place.insert(Box::new(()));
        } else {
            return;
        }
        let asked = robot.asked_of(&publisher.channel.topic);
        let callback = Arc::clone(&self.callback);
        let subscribed = robot.transport.subscribe(publisher, asked, callback);
        let mut keys = self.keys.lock();
        // What was retired meanwhile is not wanted any more.
        let unused = match (subscribed, keys.get_mut(key)) {
            (Ok(held), Some(place)) => std::mem::replace(place, held),
            (Ok(held), None) => held,
            (Err(error), _) => {
                tracing::warn!("{error}");
                keys.remove(key).unwrap_or(Box::new(()))
            }
        };
        drop(keys);
        drop(unused);
    }

    fn idle(&self, key: &str) {
        if !self.keys.lock().contains_key(key) {
            return;
        }
        let oldest = {
            let mut idle = self.idle.lock();
            idle.retain(|known| known != key);
            idle.push_back(key.to_owned());
            if idle.len() > MOST_IDLE {
                idle.pop_front()
            } else {
                None
            }
        };
        if let Some(oldest) = oldest {
            self.retired(&oldest);
        }
    }

    fn retired(&self, key: &str) {
        self.announced.lock().remove(key);
        let held = self.keys.lock().remove(key);
        // Without the lock: the transport may wait for a callback that needs it.
        drop(held);
    }
}
