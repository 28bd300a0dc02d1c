//! Requests type descriptions from nodes, by the type description service that each node has since ROS 2 Iron.
//!
//! A client (a writer of requests and a reader of replies) is created for a node while requests are open, and dropped
//! when they are answered or given up.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use asof_core::Schema;
use bytes::Bytes;
use rustdds::dds::CreateResult;
use rustdds::{
    DataWriterStatus, DomainParticipant, Publisher, QosPolicies, RTPSEntity, SampleIdentity,
    SequenceNumber, StatusEvented, Subscriber, TopicKind, WriteOptionsBuilder,
};

use super::raw::{Raw, RawReader, RawWriter, Undecoded};
use super::reader::{Manner, RawTaken};
use crate::ros::{
    Correlation, Guid, described_as, description_reply_topic, description_request,
    description_request_topic, split_request_id, with_request_id,
};

/// At most this many nodes are asked at a time: each needs a reader and a writer.
const MOST_CLIENTS: usize = 32;
/// At most this many requests wait, and at most this many are remembered; more than any robot has types.
const MOST_QUESTIONS: usize = 10_000;
/// The most bytes of definitions that are kept.
const MOST_KNOWN: usize = 16 << 20;
/// How often a request is repeated: the node may not have discovered the client when it replied.
const REPEAT: Duration = Duration::from_millis(300);
const MOST_TRIES: u32 = 15;
/// How long a client without a matched node is kept.
const GIVE_UP: Duration = Duration::from_secs(5);
/// At most this many replies may wait in DDS.
const MOST_REPLIES: i32 = 64;

/// A type without a definition, and the hash that its writer announces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Unknown {
    /// In the spelling of ROS.
    pub type_name: String,
    pub hash: String,
}

/// A node with a type description service: the writer of its replies, and its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Describer {
    pub writer: Guid,
    pub node: String,
}

/// The open requests to nodes, and their answers.
pub(super) struct Descriptions {
    publisher: Publisher,
    clients: HashMap<Describer, Client>,
    waiting: VecDeque<(Describer, Unknown)>,
    asked: HashSet<(Describer, Unknown)>,
    /// Answers, for topics that come later.
    known: HashMap<Unknown, Schema>,
    known_bytes: usize,
}

impl Descriptions {
    pub fn new(participant: &DomainParticipant) -> CreateResult<Self> {
        Ok(Descriptions {
            publisher: participant.create_publisher(&QosPolicies::qos_none())?,
            clients: HashMap::new(),
            waiting: VecDeque::new(),
            asked: HashSet::new(),
            known: HashMap::new(),
            known_bytes: 0,
        })
    }

    /// Requests a type from a node, once; returns an earlier answer if there is one.
    pub fn ask(&mut self, of: Describer, unknown: &Unknown) -> Option<Schema> {
        if let Some(schema) = self.known.get(unknown) {
            return Some(schema.clone());
        }
        let question = (of, unknown.clone());
        if self.asked.len() < MOST_QUESTIONS && self.asked.insert(question.clone()) {
            self.waiting.push_back(question);
        }
        None
    }

    fn keep(&mut self, unknown: &Unknown, schema: &Schema) {
        self.known_bytes += schema.data.len();
        if self.known_bytes > MOST_KNOWN {
            // They are requested again when they are needed.
            let known = std::mem::take(&mut self.known);
            self.asked
                .retain(|(_, unknown)| !known.contains_key(unknown));
            self.known_bytes = schema.data.len();
        }
        self.known.insert(unknown.clone(), schema.clone());
    }

    /// Forgets nodes that are gone: a node that comes back is asked again.
    pub fn retain(&mut self, is_there: impl Fn(&Describer) -> bool) {
        self.clients.retain(|of, _| is_there(of));
        self.waiting.retain(|(of, _)| is_there(of));
        self.asked.retain(|(of, _)| is_there(of));
    }

    /// Whether any request is still open.
    pub fn is_busy(&self) -> bool {
        !self.clients.is_empty() || !self.waiting.is_empty()
    }

    /// Sends pending requests; returns the answers since the last call.
    pub fn turn(
        &mut self,
        participant: &DomainParticipant,
        subscriber: &Subscriber,
    ) -> Vec<(Unknown, Schema)> {
        for _ in 0..self.waiting.len() {
            let Some((of, unknown)) = self.waiting.pop_front() else {
                break;
            };
            if let Some(client) = self.clients.get_mut(&of) {
                client.questions.push(Question::new(unknown));
            } else if self.clients.len() >= MOST_CLIENTS {
                self.waiting.push_back((of, unknown));
            } else {
                match Client::new(&of, &self.publisher, participant, subscriber) {
                    Ok(mut client) => {
                        client.questions.push(Question::new(unknown));
                        self.clients.insert(of, client);
                    }
                    Err(cause) => {
                        tracing::warn!(
                            "cannot request type descriptions from {}: {cause}",
                            of.node
                        );
                    }
                }
            }
        }
        let mut answers = Vec::new();
        self.clients.retain(|of, client| {
            client.send();
            client.take(of, &mut answers);
            client.is_needed()
        });
        for (unknown, schema) in &answers {
            self.keep(unknown, schema);
        }
        answers
    }
}

/// The client of one node.
struct Client {
    writer: RawWriter,
    reader: RawReader,
    correlation: Correlation,
    /// This client's id in requests.
    id: u64,
    began: Instant,
    /// Whether the node receives requests.
    is_matched: bool,
    questions: Vec<Question>,
    next: i64,
}

struct Question {
    unknown: Unknown,
    /// The sequence numbers of its requests.
    numbers: Vec<i64>,
    tries: u32,
    sent: Option<Instant>,
    is_answered: bool,
}

impl Question {
    fn new(unknown: Unknown) -> Self {
        Question {
            unknown,
            numbers: Vec::new(),
            tries: 0,
            sent: None,
            is_answered: false,
        }
    }

    fn is_due(&self) -> bool {
        !self.is_answered && self.tries < MOST_TRIES && self.is_quiet()
    }

    /// Whether an answer may still come.
    fn is_open(&self) -> bool {
        let is_over = self.tries >= MOST_TRIES && self.is_quiet();
        !self.is_answered && !is_over
    }

    fn is_quiet(&self) -> bool {
        self.sent.is_none_or(|last| last.elapsed() >= REPEAT)
    }
}

impl Client {
    fn new(
        of: &Describer,
        publisher: &Publisher,
        participant: &DomainParticipant,
        subscriber: &Subscriber,
    ) -> CreateResult<Self> {
        let manner = Manner {
            is_latched: false,
            is_reliable: true,
        };
        let qos = manner.qos(MOST_REPLIES);
        let topic = |(name, kind): (String, String)| {
            participant.create_topic(name, kind, &qos, TopicKind::NoKey)
        };
        let replies = topic(description_reply_topic(&of.node))?;
        let requests = topic(description_request_topic(&of.node))?;
        // The reader first: it has to be known when the first request arrives.
        let reader = subscriber
            .create_simple_datareader_no_key::<_, Undecoded>(&replies, Some(qos.clone()))?;
        let writer = publisher.create_datawriter_no_key::<_, Undecoded>(&requests, Some(qos))?;
        let [one, two, ..] = of.writer;
        Ok(Client {
            id: RandomState::new().hash_one(&of.node),
            correlation: Correlation::of_vendor([one, two]),
            writer,
            reader,
            began: Instant::now(),
            is_matched: false,
            questions: Vec::new(),
            next: 1,
        })
    }

    fn send(&mut self) {
        while let Some(status) = self.writer.try_recv_status() {
            if let DataWriterStatus::PublicationMatched { current, .. } = status {
                self.is_matched = current.count() > 0;
            }
        }
        if !self.is_matched {
            return;
        }
        for at in 0..self.questions.len() {
            let question = &self.questions[at];
            if !question.is_due() {
                continue;
            }
            let request = description_request(&question.unknown.type_name, &question.unknown.hash);
            let number = self.write(&request);
            let question = &mut self.questions[at];
            question.numbers.extend(number);
            question.tries += 1;
            question.sent = Some(Instant::now());
        }
    }

    /// Sends a request; returns its sequence number.
    fn write(&mut self, request: &[u8]) -> Option<i64> {
        let (message, options) = match self.correlation {
            Correlation::Payload => {
                let message = with_request_id(request, self.id, self.next);
                (message, WriteOptionsBuilder::new())
            }
            // Nodes reply to the reader that is named here, once they have discovered it.
            Correlation::Inline => {
                let reader = SampleIdentity {
                    writer_guid: self.reader.guid(),
                    sequence_number: SequenceNumber::UNKNOWN,
                };
                let options = WriteOptionsBuilder::new().related_sample_identity(reader);
                (request.to_vec(), options)
            }
        };
        let sent = self
            .writer
            .write_with_options(Raw(Bytes::from(message)), options.build());
        match sent {
            Ok(identity) => Some(match self.correlation {
                Correlation::Payload => {
                    self.next += 1;
                    self.next - 1
                }
                Correlation::Inline => identity.sequence_number.into(),
            }),
            Err(cause) => {
                tracing::debug!("cannot send a request: {cause}");
                None
            }
        }
    }

    fn take(&mut self, of: &Describer, answers: &mut Vec<(Unknown, Schema)>) {
        self.reader.drain_read_notifications();
        while let Some(taken) = RawTaken::next(&self.reader) {
            let Ok(taken) = taken else {
                continue;
            };
            let Some((number, reply)) = self.of_ours(taken) else {
                continue;
            };
            let mut questions = self.questions.iter_mut();
            let Some(question) = questions.find(|one| one.numbers.contains(&number)) else {
                continue;
            };
            if std::mem::replace(&mut question.is_answered, true) {
                continue;
            }
            let Unknown { type_name, hash } = &question.unknown;
            match described_as(&reply, type_name, hash) {
                Ok(schema) => answers.push((question.unknown.clone(), schema)),
                Err(cause) => tracing::warn!("{}, of {type_name}: {cause}", of.node),
            }
        }
    }

    /// The request's sequence number and the reply without it; `None` for replies to other clients.
    fn of_ours(&self, taken: RawTaken) -> Option<(i64, Bytes)> {
        match self.correlation {
            Correlation::Payload => {
                let (client, number, reply) = split_request_id(&taken.bytes)?;
                (client == self.id).then(|| (number, reply.into()))
            }
            Correlation::Inline => {
                let (whose, number) = taken.related?;
                let ours = [self.reader.guid(), self.writer.guid()];
                let is_ours = ours.iter().any(|guid| guid.to_bytes() == whose);
                is_ours.then_some((number, taken.bytes))
            }
        }
    }

    fn is_needed(&self) -> bool {
        let is_hopeless = !self.is_matched && self.began.elapsed() >= GIVE_UP;
        !is_hopeless && self.questions.iter().any(Question::is_open)
    }
}
