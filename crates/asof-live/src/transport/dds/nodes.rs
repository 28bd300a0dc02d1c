//! Which node owns which writer, from the discovery topic of ROS 2.

use std::collections::HashMap;
use std::io;

use rustdds::dds::CreateResult;
use rustdds::mio1::event::Source as _;
use rustdds::mio1::{Interest, Poll, Token};
use rustdds::{DomainParticipant, Subscriber, TopicKind};

use super::raw::{RawReader, Undecoded};
use super::reader::{Manner, RawTaken};
use crate::ros::{DISCOVERY_TOPIC, DISCOVERY_TYPE, Guid, ParticipantEntities};

/// At most this many processes are kept; more than any robot has.
const MOST_PARTICIPANTS: usize = 10_000;

/// At most this many messages may wait in DDS: one for each process that was there before.
const MOST_AT_ONCE: i32 = 256;

/// The nodes of each process.
pub(super) struct Nodes {
    reader: RawReader,
    by_participant: HashMap<Guid, ParticipantEntities>,
}

impl Nodes {
    pub fn new(participant: &DomainParticipant, subscriber: &Subscriber) -> CreateResult<Self> {
        let manner = Manner {
            is_latched: true,
            is_reliable: true,
        };
        let qos = manner.qos(MOST_AT_ONCE);
        let topic = participant.create_topic(
            DISCOVERY_TOPIC.to_owned(),
            DISCOVERY_TYPE.to_owned(),
            &qos,
            TopicKind::NoKey,
        )?;
        let reader =
            subscriber.create_simple_datareader_no_key::<_, Undecoded>(&topic, Some(qos))?;
        Ok(Nodes {
            reader,
            by_participant: HashMap::new(),
        })
    }

    pub fn register(&mut self, poll: &Poll, token: Token) -> io::Result<()> {
        self.reader
            .register(poll.registry(), token, Interest::READABLE)
    }

    /// Processes received messages; returns whether there were any.
    pub fn take(&mut self) -> bool {
        self.reader.drain_read_notifications();
        let mut is_news = false;
        while let Some(taken) = RawTaken::next(&self.reader) {
            let Ok(taken) = taken else {
                continue;
            };
            let Some(entities) = ParticipantEntities::parse(&taken.bytes) else {
                tracing::debug!("a message of {DISCOVERY_TOPIC} cannot be read");
                continue;
            };
            let is_known = self.by_participant.contains_key(&entities.participant);
            if is_known || self.by_participant.len() < MOST_PARTICIPANTS {
                self.by_participant.insert(entities.participant, entities);
                is_news = true;
            }
        }
        is_news
    }

    /// The names of nodes by their writers.
    pub fn by_guid(&self) -> HashMap<Guid, String> {
        let all = self.by_participant.values();
        let all = all.flat_map(|entities| &entities.nodes);
        all.map(|(guid, name)| (*guid, name.clone())).collect()
    }
}
