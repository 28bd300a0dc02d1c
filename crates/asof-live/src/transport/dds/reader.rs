//! A reader of one topic, for one subscription.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use asof_core::{Schema, Stamp};
use bytes::Bytes;
use rustdds::mio1::event::Source as _;
use rustdds::mio1::{Interest, Poll, Token};
use rustdds::policy::{
    Durability as DdsDurability, History as DdsHistory, Reliability as DdsReliability,
    ResourceLimits,
};
use rustdds::{DomainParticipant, QosPolicies, QosPolicyBuilder, Subscriber, Timestamp, TopicKind};

use super::Shared;
use super::directory::{DdsTopic, Directory};
use super::early::EarlyMessages;
use super::raw::{RawReader, Undecoded};
use crate::Sample;
use crate::describe::Described;
use crate::ros::{Durability, Guid, QosOverride, QosProfile, Reliability};
use crate::subscribe::Callback;

/// At most this many messages of a topic may wait in DDS: few where each may be an image or a point cloud.
const MOST_SMALL: i32 = 256;
const MOST_LARGE: i32 = 8;
/// At most this many writers per reader have their sequence numbers tracked.
const MOST_WRITERS: usize = 1_000;

/// A requested subscription.
pub(super) struct SubscriptionRequest {
    pub token: Token,
    pub topic: Arc<DdsTopic>,
    pub described: Arc<Described>,
    pub manner: Manner,
    pub callback: Callback,
    /// When it was requested.
    pub asked: Instant,
    /// False once the subscription is dropped.
    pub is_alive: Arc<AtomicBool>,
}

/// How a topic is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Manner {
    /// Whether messages from before are requested.
    pub is_latched: bool,
    /// Whether lost messages are requested again.
    pub is_reliable: bool,
}

impl Manner {
    /// The least work for the robot: reliable only where messages are kept for late joiners, or where it was
    /// requested. Never more than is offered: a reader that requests more receives nothing.
    pub fn of(topic: &DdsTopic, offered: QosProfile, asked: QosOverride) -> Self {
        let is_reliable = match asked.reliability {
            Some(asked) => asked == Reliability::Reliable,
            None => topic.is_latched,
        };
        let is_latched = asked.durability != Some(Durability::Volatile);
        Manner {
            is_latched: topic.is_latched && is_latched,
            is_reliable: is_reliable && offered.reliability == Reliability::Reliable,
        }
    }

    /// The reader's quality of service; DDS holds at most `most` messages for it.
    pub fn qos(self, most: i32) -> QosPolicies {
        let durability = if self.is_latched {
            DdsDurability::TransientLocal
        } else {
            DdsDurability::Volatile
        };
        let reliability = if self.is_reliable {
            DdsReliability::Reliable {
                max_blocking_time: rustdds::Duration::ZERO,
            }
        } else {
            DdsReliability::BestEffort
        };
        QosPolicyBuilder::new()
            .durability(durability)
            .reliability(reliability)
            .history(DdsHistory::KeepLast { depth: most })
            .resource_limits(ResourceLimits {
                max_samples: most,
                max_instances: 1,
                max_samples_per_instance: most,
            })
            .build()
    }
}

/// A reader for a subscription.
pub(super) struct Reader {
    of_dds: RawReader,
    wanted: SubscriptionRequest,
    /// Messages received before this are for others: readers of one topic share the DDS cache.
    since: Timestamp,
    /// The last sequence number of each writer.
    numbers: HashMap<Guid, i64>,
    early: EarlyMessages<RawTaken>,
}

impl Reader {
    /// Creates a reader; the error has the request, and why it failed.
    pub fn new(
        wanted: SubscriptionRequest,
        participant: &DomainParticipant,
        subscriber: &Subscriber,
    ) -> Result<Self, (SubscriptionRequest, String)> {
        let topic = &wanted.topic;
        let schema = wanted.described.known().channel.schema.clone();
        let most = if schema.is_some_and(|schema| is_small(&schema)) {
            MOST_SMALL
        } else {
            MOST_LARGE
        };
        let qos = wanted.manner.qos(most);
        let since = Timestamp::now();
        let made = participant
            .create_topic(
                topic.name.clone(),
                topic.type_name.clone(),
                &qos,
                TopicKind::NoKey,
            )
            .and_then(|made| {
                subscriber.create_simple_datareader_no_key::<_, Undecoded>(&made, Some(qos))
            });
        match made {
            Ok(of_dds) => Ok(Reader {
                of_dds,
                wanted,
                since,
                numbers: HashMap::new(),
                early: EarlyMessages::new(),
            }),
            Err(cause) => Err((wanted, cause.to_string())),
        }
    }

    pub fn register(&mut self, poll: &Poll) -> io::Result<()> {
        let token = self.wanted.token;
        self.of_dds
            .register(poll.registry(), token, Interest::READABLE)
    }

    pub fn deregister(&mut self, poll: &Poll) {
        if let Err(cause) = self.of_dds.deregister(poll.registry()) {
            tracing::debug!(
                "cannot deregister the reader of {}: {cause}",
                self.wanted.topic.name
            );
        }
    }

    /// Passes on received messages.
    pub fn take(
        &mut self,
        participant: &DomainParticipant,
        directory: &mut Directory,
        shared: &Shared,
    ) {
        self.of_dds.drain_read_notifications();
        while self.wanted.is_alive.load(Ordering::Acquire) {
            let Some(taken) = RawTaken::next(&self.of_dds) else {
                break;
            };
            let Ok(taken) = taken else {
                if super::Losses::count(&shared.losses.malformed) {
                    let topic = &self.wanted.topic.ros_name;
                    tracing::warn!(
                        "a message of {topic} has an unknown encapsulation and is skipped"
                    );
                }
                continue;
            };
            if !self.wanted.manner.is_latched && taken.received < self.since {
                continue;
            }
            // A new writer's message may come before discovery was polled.
            directory.look_for(&taken.writer, participant, shared);
            match directory.is_of(&taken.writer, &self.wanted.topic.key) {
                Some(is_ours) if self.early.is_empty() => {
                    if is_ours {
                        self.hand_on(taken, shared);
                    }
                }
                _ => {
                    self.early.push(Instant::now(), taken.bytes.len(), taken);
                    self.settle(directory, shared);
                }
            }
        }
        self.settle(directory, shared);
    }

    /// Whether messages wait until their writers are known.
    pub fn is_waiting(&self) -> bool {
        !self.early.is_empty()
    }

    /// Passes on the messages of known writers.
    fn settle(&mut self, directory: &Directory, shared: &Shared) {
        if self.early.is_empty() {
            return;
        }
        let mut ready = Vec::new();
        let key = &self.wanted.topic.key;
        let given_up = self.early.settle(
            Instant::now(),
            |taken| directory.is_of(&taken.writer, key),
            |taken| ready.push(taken),
        );
        shared
            .losses
            .unclaimed
            .fetch_add(given_up, Ordering::Relaxed);
        for taken in ready {
            if self.wanted.is_alive.load(Ordering::Acquire) {
                self.hand_on(taken, shared);
            }
        }
    }

    fn hand_on(&mut self, taken: RawTaken, shared: &Shared) {
        if !self.wanted.manner.is_latched {
            let lost = self.count(taken.writer, taken.number);
            if lost > 0 {
                let mut told = shared.told.lock();
                let topic = self.wanted.topic.ros_name.clone();
                *told.lost.entry(topic).or_default() += lost;
            }
        }
        let mut sample = Sample::of(&self.wanted.described, taken.bytes);
        sample.source = taken.source;
        sample.sequence = Some(taken.number);
        sample.publisher = Some(taken.writer);
        (self.wanted.callback)(sample);
    }

    /// Records a message's sequence number; returns how many of its writer are missing before it.
    fn count(&mut self, writer: Guid, number: i64) -> u64 {
        if self.numbers.len() >= MOST_WRITERS && !self.numbers.contains_key(&writer) {
            self.numbers.clear();
        }
        let last = self.numbers.insert(writer, number);
        last.map_or(0, |last| {
            number.saturating_sub(last).saturating_sub(1).max(0) as u64
        })
    }
}

/// A message as taken from DDS.
pub(super) struct RawTaken {
    pub bytes: Bytes,
    pub writer: Guid,
    pub number: i64,
    pub source: Option<Stamp>,
    pub received: Timestamp,
    /// The request that it replies to, where that is in the inline quality of service: the client, and the sequence
    /// number.
    pub related: Option<(Guid, i64)>,
}

impl RawTaken {
    /// The next message, if there is one; an error where its encapsulation is unknown.
    pub fn next(reader: &RawReader) -> Option<Result<Self, ()>> {
        match reader.try_take_one() {
            Ok(None) => None,
            Err(cause) => {
                tracing::debug!("{cause}");
                Some(Err(()))
            }
            Ok(Some(change)) => Some(Ok(RawTaken {
                writer: change.writer_guid.to_bytes(),
                number: change.sequence_number.into(),
                source: change.source_timestamp().and_then(stamp),
                received: change.receive_instant,
                related: change
                    .related_sample_identity()
                    .map(|of| (of.writer_guid.to_bytes(), of.sequence_number.into())),
                bytes: change.into_value().0,
            })),
        }
    }
}

/// A DDS time, to the nanosecond; `None` for the values that mean no time.
fn stamp(time: Timestamp) -> Option<Stamp> {
    if [Timestamp::ZERO, Timestamp::INVALID, Timestamp::INFINITE].contains(&time) {
        return None;
    }
    let ticks = time.to_ticks();
    // Writers truncate the fraction: the nearest nanosecond is the one that was meant.
    let nanos = ((ticks & u64::from(u32::MAX)) * 1_000_000_000 + (1 << 31)) >> 32;
    Stamp::from_unsigned_nanos((ticks >> 32) * 1_000_000_000 + nanos).ok()
}

/// Whether the messages of a type are certain to be small: its definition is known, and has no unbounded list of
/// numbers.
fn is_small(schema: &Schema) -> bool {
    const NUMBERS: [&str; 12] = [
        "bool", "byte", "char", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float32",
        "float64", "uint64",
    ];
    let Ok(text) = std::str::from_utf8(&schema.data) else {
        return false;
    };
    let is_list = |line: &str| {
        let kind = line.split_whitespace().next().unwrap_or_default();
        let list = kind.strip_suffix("[]");
        list.is_some_and(|element| NUMBERS.contains(&element) || element == "int64")
    };
    !text.is_empty() && !text.lines().any(is_list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(text: &str) -> Schema {
        Schema {
            name: "a/msg/B".to_owned(),
            encoding: "ros2msg".to_owned(),
            data: text.as_bytes().to_vec().into(),
        }
    }

    #[test]
    fn few_messages_are_held_of_types_that_may_be_large_or_are_not_known() {
        assert!(is_small(&schema(
            "std_msgs/Header header\nfloat64[36] covariance"
        )));
        assert!(is_small(&schema(
            "geometry_msgs/TransformStamped[] transforms"
        )));
        for large in [
            "uint8[] data",
            "std_msgs/Header header\nfloat32[]   ranges # m",
            "",
        ] {
            assert!(!is_small(&schema(large)), "{large:?}");
        }
    }

    #[test]
    fn times_of_dds_are_read_to_the_nanosecond() {
        let ticks = |nanos: u64| {
            ((nanos / 1_000_000_000) << 32) + (((nanos % 1_000_000_000) << 32) / 1_000_000_000)
        };
        for nanos in [
            1,
            999_999_999,
            1_700_000_000_123_456_789,
            4_000_000_000_000_000_001,
        ] {
            let read = stamp(Timestamp::from_ticks(ticks(nanos)));
            assert_eq!(read, Stamp::from_unsigned_nanos(nanos).ok(), "{nanos}");
        }
        assert_eq!(stamp(Timestamp::INVALID), None);
    }
}
