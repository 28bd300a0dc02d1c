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
use super::raw::{RawReader, Undecoded};
use crate::Sample;
use crate::describe::Described;
use crate::ros::{Durability, Guid, QosOverride, QosProfile, Reliability};
use crate::subscribe::Callback;

/// Messages that DDS may hold of a topic before they are taken: few where each may be a picture or a cloud.
const MOST_SMALL: i32 = 256;
const MOST_LARGE: i32 = 8;
/// Writers that a reader counts the messages of.
const MOST_WRITERS: usize = 1_000;

/// What is subscribed.
pub(super) struct Wanted {
    pub token: Token,
    pub topic: Arc<DdsTopic>,
    pub described: Arc<Described>,
    pub manner: Manner,
    pub callback: Callback,
    /// Since when.
    pub asked: Instant,
    /// Until the subscription is dropped.
    pub is_alive: Arc<AtomicBool>,
}

/// How a topic is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Manner {
    /// Whether messages from before are asked for.
    pub is_latched: bool,
    /// Whether what is lost is asked for again.
    pub is_reliable: bool,
}

impl Manner {
    /// As little as the robot has to do: what is lost is asked for again where messages are kept for late joiners, or
    /// where that was wanted. Never more than is offered: a reader that asks for that hears nothing.
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

    /// What a reader asks for; DDS holds so many messages for it.
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
    wanted: Wanted,
    /// What was received before is for others: readers of one topic share what DDS holds of it.
    since: Timestamp,
    /// The last number of each writer.
    numbers: HashMap<Guid, i64>,
}

impl Reader {
    /// A reader; where there can be none, what was wanted, and why not.
    pub fn new(
        wanted: Wanted,
        participant: &DomainParticipant,
        subscriber: &Subscriber,
    ) -> Result<Self, (Wanted, String)> {
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
                "a reader of {} stays listed: {cause}",
                self.wanted.topic.name
            );
        }
    }

    /// Hands on what has come.
    pub fn take(
        &mut self,
        participant: &DomainParticipant,
        directory: &mut Directory,
        shared: &Shared,
    ) {
        self.of_dds.drain_read_notifications();
        while self.wanted.is_alive.load(Ordering::Acquire) {
            let Some(taken) = RawTaken::next(&self.of_dds) else {
                return;
            };
            let Ok(taken) = taken else {
                if super::Losses::count(&shared.losses.malformed) {
                    let topic = &self.wanted.topic.ros_name;
                    tracing::warn!("a message of {topic} is in an encoding that is not known");
                }
                continue;
            };
            self.hand_on(taken, participant, directory, shared);
        }
    }

    fn hand_on(
        &mut self,
        taken: RawTaken,
        participant: &DomainParticipant,
        directory: &mut Directory,
        shared: &Shared,
    ) {
        let topic = Arc::clone(&self.wanted.topic);
        let is_latched = self.wanted.manner.is_latched;
        if !is_latched && taken.received < self.since {
            return;
        }
        // A writer that has just come may be heard before it was looked at.
        directory.look_for(&taken.writer, participant, shared);
        if !directory.is_of(&taken.writer, &topic.key) {
            return;
        }
        if !is_latched {
            let lost = self.count(taken.writer, taken.number);
            if lost > 0 {
                let mut told = shared.told.lock();
                *told.lost.entry(topic.ros_name.clone()).or_default() += lost;
            }
        }
        let mut sample = Sample::of(&self.wanted.described, taken.bytes);
        sample.source = taken.source;
        sample.sequence = Some(taken.number);
        sample.publisher = Some(taken.writer);
        (self.wanted.callback)(sample);
    }

    /// Notes the number of a message; how many of its writer are missing before it.
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

/// A message as DDS hands it over.
pub(super) struct RawTaken {
    pub bytes: Bytes,
    pub writer: Guid,
    pub number: i64,
    pub source: Option<Stamp>,
    pub received: Timestamp,
    /// The request that it replies to, where it says so beside the message: whose, and its number.
    pub related: Option<(Guid, i64)>,
}

impl RawTaken {
    /// The next message, if there is one; an error where its encoding is not known.
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

/// A time of DDS, to the nanosecond; `None` for those that stand for no time.
fn stamp(time: Timestamp) -> Option<Stamp> {
    if [Timestamp::ZERO, Timestamp::INVALID, Timestamp::INFINITE].contains(&time) {
        return None;
    }
    let ticks = time.to_ticks();
    // The fraction is cut by those who write it: the nearest nanosecond is the one that they meant.
    let nanos = ((ticks & u64::from(u32::MAX)) * 1_000_000_000 + (1 << 31)) >> 32;
    Stamp::from_unsigned_nanos((ticks >> 32) * 1_000_000_000 + nanos).ok()
}

/// Whether the messages of a type are small for sure: it is known, and has no list of numbers without a bound.
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
