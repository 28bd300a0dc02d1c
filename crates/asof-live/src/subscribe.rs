//! Subscriptions: one for each exact key of the topics that are wanted.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use asof_core::{Channel, Stamp};
use parking_lot::Mutex;
use zenoh::Wait;
use zenoh::liveliness::LivelinessToken;
use zenoh::sample::SampleKind;
use zenoh_ext::{AdvancedSubscriberBuilderExt, HistoryConfig, RecoveryConfig};

use crate::describe::Described;
use crate::error::said;
use crate::robot::{Inner, now};
use crate::ros::{Attachment, Durability, QosProfile, Reliability};
use crate::sample::Payload;
use crate::{LiveError, Publisher, Sample};

/// Numbers for subscribers that are announced.
static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) type Callback = Arc<dyn Fn(Sample) + Send + Sync>;
type Wants = Box<dyn Fn(&Publisher) -> bool + Send + Sync>;

/// Something that wants to know of publishers as they appear.
pub(crate) trait Interest: Send + Sync {
    fn appeared(&self, publisher: &Publisher);
}

/// Messages of some topics go to a callback for as long as this lives.
pub struct Subscription {
    topics: Arc<Topics>,
}

struct Topics {
    robot: Weak<Inner>,
    wants: Wants,
    callback: Callback,
    keys: Mutex<HashMap<String, Subscriber>>,
    /// By the same keys: where publishers have to know that somebody listens.
    announced: Mutex<HashMap<String, LivelinessToken>>,
    /// Messages on more raw keys than are followed.
    refused: AtomicU64,
}

/// Raw keys that one subscription follows, and the bytes of their names; more than any robot has, and few enough that
/// somebody who publishes on ever new keys does no harm.
const MOST_KEYS: usize = 10_000;
const MOST_KEY_BYTES: usize = 4 << 20;

/// One channel for each key that an expression matches.
#[derive(Default)]
struct RawChannels {
    by_key: HashMap<String, Arc<Channel>>,
    bytes: usize,
}

impl RawChannels {
    /// The channel of a message; `None` where there are too many.
    fn of(&mut self, sample: &zenoh::sample::Sample) -> Option<Arc<Channel>> {
        self.by_name(sample.key_expr().as_str(), || sample.encoding().to_string())
    }

    fn by_name(&mut self, key: &str, encoding: impl FnOnce() -> String) -> Option<Arc<Channel>> {
        if let Some(channel) = self.by_key.get(key) {
            return Some(Arc::clone(channel));
        }
        let encoding = encoding();
        // The key is there twice: in the map and as the topic.
        let bytes = self.bytes + 2 * key.len() + encoding.len();
        if self.by_key.len() >= MOST_KEYS || bytes > MOST_KEY_BYTES {
            return None;
        }
        self.bytes = bytes;
        let channel = Arc::new(Channel {
            topic: key.to_owned(),
            message_encoding: encoding,
            schema: None,
            metadata: BTreeMap::new(),
        });
        self.by_key.insert(key.to_owned(), Arc::clone(&channel));
        Some(channel)
    }
}

/// Held for its life alone.
enum Subscriber {
    Plain {
        _held: zenoh::pubsub::Subscriber<()>,
    },
    WithHistory {
        _held: zenoh_ext::AdvancedSubscriber<()>,
    },
}

impl Subscription {
    pub(crate) fn new(robot: &Arc<Inner>, wants: Wants, callback: Callback) -> Self {
        Subscription {
            topics: Arc::new(Topics {
                robot: Arc::downgrade(robot),
                wants,
                callback,
                keys: Mutex::default(),
                announced: Mutex::default(),
                refused: AtomicU64::new(0),
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

    /// The exact keys that are subscribed at the moment.
    pub fn keys(&self) -> Vec<String> {
        self.topics.keys.lock().keys().cloned().collect()
    }

    /// How many messages were left out because they came on more raw keys than one subscription follows
    /// (10,000 keys, or 4 MB of their names).
    pub fn refused(&self) -> u64 {
        self.topics.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn raw(
        robot: &Arc<Inner>,
        key_expression: &str,
        callback: Callback,
    ) -> Result<Self, LiveError> {
        let subscription = Subscription::new(robot, Box::new(|_| false), callback);
        let topics = Arc::downgrade(&subscription.topics);
        let channels: Mutex<RawChannels> = Mutex::default();
        let subscriber = robot
            .session
            .declare_subscriber(key_expression.to_owned())
            .callback(move |sample| {
                let Some(topics) = topics.upgrade() else {
                    return;
                };
                let found = channels.lock().of(&sample);
                match found {
                    Some(channel) => receive(&sample, Origin::raw(channel), &topics.callback),
                    None => topics.refuse(),
                }
            })
            .wait()
            .map_err(|cause| LiveError::Zenoh {
                what: format!("cannot subscribe to '{key_expression}'"),
                cause: said(&cause),
            })?;
        let held = Subscriber::Plain { _held: subscriber };
        let mut keys = subscription.topics.keys.lock();
        keys.insert(key_expression.to_owned(), held);
        drop(keys);
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
        let key = publisher.key.to_string();
        self.announce(&robot, &key, publisher);
        let mut keys = self.keys.lock();
        if keys.contains_key(&key) {
            return;
        }
        match self.declare(&robot, &key, publisher) {
            Ok(subscriber) => {
                keys.insert(key, subscriber);
            }
            Err(cause) => tracing::warn!("cannot subscribe to {key}: {cause}"),
        }
    }
}

impl Topics {
    fn refuse(&self) {
        if self.refused.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                "messages come on more than {MOST_KEYS} raw keys; those on further keys are left out and counted"
            );
        }
    }

    /// Publishers of 2026 that can hand over buffers of graphics cards publish nothing that we could read, unless a
    /// subscriber that cannot take such buffers says that it is there.
    fn announce(&self, robot: &Inner, key: &str, publisher: &Publisher) {
        let topic = publisher.token.topic.as_ref();
        let mut announced = self.announced.lock();
        if !topic.is_some_and(|topic| topic.has_buffers) || announced.contains_key(key) {
            return;
        }
        let session = robot.session.zid().to_string();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let Some(token) = publisher.token.subscriber(&session, number) else {
            return;
        };
        match robot.session.liveliness().declare_token(token).wait() {
            Ok(token) => {
                announced.insert(key.to_owned(), token);
            }
            Err(cause) => tracing::warn!("cannot say that {key} is listened to: {cause}"),
        }
    }

    fn declare(
        &self,
        robot: &Inner,
        key: &str,
        publisher: &Publisher,
    ) -> zenoh::Result<Subscriber> {
        let (described, callback) = (Arc::clone(&publisher.described), Arc::clone(&self.callback));
        let on_sample = move |sample: zenoh::sample::Sample| {
            receive(&sample, Origin::of(&described), &callback);
        };
        let builder = robot
            .session
            .declare_subscriber(key.to_owned())
            .callback(on_sample);
        let qos = publisher.token.topic.as_ref().map(|topic| topic.qos);
        let Some(qos) = qos.filter(|qos| qos.durability == Durability::TransientLocal) else {
            return Ok(Subscriber::Plain {
                _held: builder.wait()?,
            });
        };
        let builder = builder.history(history(qos)).subscriber_detection();
        // What a publisher has kept is asked for without a limit of time, as rmw_zenoh does.
        let builder = builder.query_timeout(Duration::from_millis(u64::MAX));
        let held = if qos.reliability == Reliability::Reliable {
            builder
                .recovery(RecoveryConfig::default().heartbeat())
                .wait()?
        } else {
            builder.wait()?
        };
        Ok(Subscriber::WithHistory { _held: held })
    }
}

fn history(qos: QosProfile) -> HistoryConfig {
    HistoryConfig::default()
        .detect_late_publishers()
        .max_samples(qos.depth.max(1))
}

/// What is known of a message before it is looked at.
struct Origin {
    channel: Arc<Channel>,
    described: Option<Arc<Described>>,
    has_header: bool,
}

impl Origin {
    fn of(described: &Arc<Described>) -> Self {
        let known = described.known();
        Origin {
            channel: known.channel,
            described: known.is_pending.then(|| Arc::clone(described)),
            has_header: known.has_header,
        }
    }

    /// A raw key says nothing of its type.
    fn raw(channel: Arc<Channel>) -> Self {
        Origin {
            channel,
            described: None,
            has_header: false,
        }
    }
}

fn receive(sample: &zenoh::sample::Sample, origin: Origin, callback: &Callback) {
    if sample.kind() == SampleKind::Delete {
        return;
    }
    let attachment = sample
        .attachment()
        .and_then(|bytes| Attachment::parse(&bytes.to_bytes()).ok());
    let transport = sample
        .timestamp()
        .and_then(|time| Stamp::try_from(time.get_time().to_system_time()).ok());
    callback(Sample {
        channel: origin.channel,
        described: origin.described,
        has_header: origin.has_header,
        transport,
        source: attachment.map(|attachment| attachment.source_timestamp),
        received: now(),
        sequence: attachment.map(|attachment| attachment.sequence),
        publisher: attachment.map(|attachment| attachment.gid),
        payload: Payload::new(sample.payload()),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_keys_are_followed_up_to_a_number_and_a_size() {
        let mut channels = RawChannels::default();
        let name = |number: usize| format!("demo/{number}");
        for number in 0..MOST_KEYS {
            assert!(channels.by_name(&name(number), String::new).is_some());
        }
        assert!(channels.by_name("one/more", String::new).is_none());
        let known = channels.by_name(&name(7), || panic!("it is known"));
        assert_eq!(known.expect("followed").topic, "demo/7");

        let mut channels = RawChannels::default();
        let long = |number: usize| format!("{number}/{}", "x".repeat(60_000));
        let taken =
            (0..100).filter(|&number| channels.by_name(&long(number), String::new).is_some());
        let taken = taken.count();
        assert!((10..50).contains(&taken), "{taken} long keys");
        assert!(channels.bytes <= MOST_KEY_BYTES);
    }
}
