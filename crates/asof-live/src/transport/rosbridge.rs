//! A rosbridge server as a robot, of ROS 1 or ROS 2.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use asof_core::{Channel, Problem, Schema};
use asof_decode::{Decoder, Encoder, Projection};
use asof_formats::Definitions;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tungstenite::Message;

use super::hub::Hub;
use super::served::{self, Served};
use super::socket::Conversation;
use super::{Losses, Transport};
use crate::describe::Described;
use crate::graph::{Graph, Origin};
use crate::rosbridge::{self, Body, Fragments, Incoming};
use crate::{LiveError, Publisher, RobotInfo, Sample, SocketAddress};

/// At most this many topics are followed; more than any robot has.
const MOST_TOPICS: usize = 20_000;
const MOST_STATUSES: usize = 20;
const LONGEST_STATUS: usize = 500;
/// How often topics are polled: there is no event for a new topic.
const TOPIC_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long an answer is waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

const TOPICS: &str = "/rosapi/topics";
const DEFINED: &str = "/rosapi/topics_and_raw_types";

/// The state of the server.
#[derive(Default)]
struct About {
    version: &'static str,
    statuses: VecDeque<String>,
    /// Messages that came as values and were re-encoded, by topic.
    encoded: BTreeMap<String, u64>,
    /// Messages that came as values and could not be encoded, by topic, with the first reason.
    refused: BTreeMap<String, (u64, String)>,
    has_no_rosapi: bool,
}

impl About {
    fn note(&mut self, text: &str) {
        if self.statuses.len() >= MOST_STATUSES {
            self.statuses.pop_front();
        }
        self.statuses
            .push_back(text.chars().take(LONGEST_STATUS).collect());
    }
}

/// Connects to the server at an address; the server may come up later.
pub(super) fn open(
    address: &SocketAddress,
    graph: &Arc<Graph>,
) -> Result<impl Transport + use<>, LiveError> {
    Served::call(address, graph, |graph, hub, about| Client {
        graph,
        hub,
        about,
        topics: HashMap::new(),
        fragments: Fragments::default(),
        calls: 0,
        asked: None,
        looked: None,
        has_definitions: true,
        has_new: false,
        seen: None,
    })
}

impl served::About for About {
    fn info(&self) -> RobotInfo {
        let mut details = BTreeMap::new();
        if !self.version.is_empty() {
            details.insert("version".to_owned(), self.version.to_owned());
        }
        for (topic, count) in &self.encoded {
            let text = format!("{count} messages came as values and were re-encoded");
            details.insert(topic.clone(), text);
        }
        RobotInfo {
            name: "rosbridge".to_owned(),
            details,
            statuses: self.statuses.iter().cloned().collect(),
            ..RobotInfo::default()
        }
    }

    fn problems(&self, place: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.has_no_rosapi {
            let text = format!(
                "{place}: the server does not answer {TOPICS}, so its topics cannot be found; start rosapi next to rosbridge"
            );
            problems.push(super::incomplete(text));
        }
        for (topic, (count, reason)) in &self.refused {
            let text = format!(
                "{count} messages came as values and could not be encoded by their type: {reason}"
            );
            problems.push(super::incomplete(text).on_topic(topic));
        }
        problems
    }
}

/// The client side of the protocol.
struct Client {
    graph: Weak<Graph>,
    hub: Arc<Hub>,
    about: Arc<Mutex<About>>,
    topics: HashMap<String, Offered>,
    fragments: Fragments,
    calls: u64,
    /// The call in progress: its id, its service, and its start.
    asked: Option<(String, &'static str, Instant)>,
    looked: Option<Instant>,
    /// Whether the server sends definitions with its topics; an older rosapi does not.
    has_definitions: bool,
    /// Whether there are topics whose definitions are still to be requested.
    has_new: bool,
    /// The version of the subscriptions and the number of topics at the last check.
    seen: Option<(u64, usize)>,
}

/// A topic of the server.
struct Offered {
    type_name: String,
    key: String,
    described: Arc<Described>,
    is_subscribed: bool,
    /// Created when the first message comes as values.
    encoder: Option<Result<Encoder, String>>,
}

/// A response of rosapi.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    topics: Vec<String>,
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    typedefs_full_text: Vec<String>,
}

impl Conversation for Client {
    const SUBPROTOCOLS: Option<&'static str> = None;

    fn opened(&mut self, _subprotocol: &str, _out: &mut Vec<Message>) {
        self.has_definitions = true;
        self.about.lock().has_no_rosapi = false;
    }

    fn text(&mut self, text: &str, _out: &mut Vec<Message>, losses: &Losses) -> bool {
        self.take(Incoming::parse(text), losses)
    }

    fn binary(&mut self, bytes: Bytes, _out: &mut Vec<Message>, losses: &Losses) -> bool {
        self.take(Incoming::parse_bytes(&bytes), losses)
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Message>) {
        self.look(now, out);
        self.subscribe(out);
    }

    fn closed(&mut self) {
        let topics: Vec<String> = self.topics.keys().cloned().collect();
        for topic in topics {
            self.gone(&topic);
        }
        self.fragments.clear();
        (self.asked, self.looked, self.seen) = (None, None, None);
    }
}

impl Client {
    /// Processes a message of the server; returns whether it was valid.
    fn take(&mut self, said: Result<Incoming, rosbridge::RosbridgeError>, losses: &Losses) -> bool {
        match said {
            Ok(Incoming::Publish { topic, body }) => self.published(&topic, body),
            Ok(Incoming::ServiceResponse {
                id,
                values,
                is_success,
            }) => self.answered(&id, values, is_success, losses),
            Ok(Incoming::Fragment {
                id,
                data,
                number,
                total,
            }) => {
                let mut given_up = 0;
                let taken = self.fragments.take(&id, data, number, total, &mut given_up);
                for _ in 0..given_up {
                    Losses::count(&losses.malformed);
                }
                match taken {
                    Ok(None) => {}
                    // A fragment within a fragment is ignored.
                    Ok(Some(whole)) => match Incoming::parse(&whole) {
                        Ok(Incoming::Fragment { .. }) => return false,
                        whole => return self.take(whole, losses),
                    },
                    Err(error) => {
                        tracing::debug!("{error}");
                        return false;
                    }
                }
            }
            Ok(Incoming::Status { level, message }) => {
                tracing::debug!("status of the server ({level}): {message}");
                if matches!(level.as_str(), "error" | "warning") {
                    self.about.lock().note(&message);
                }
            }
            Ok(Incoming::Other) => {}
            Err(error) => {
                tracing::debug!("{error}");
                return false;
            }
        }
        true
    }

    fn published(&mut self, topic: &str, body: Body) {
        let Some(offered) = self.topics.get_mut(topic) else {
            return;
        };
        let (bytes, time) = match body {
            Body::Raw { bytes, time } => (bytes, time),
            Body::Values(values) => match offered.encoded(&values) {
                Ok(bytes) => {
                    let mut about = self.about.lock();
                    let count = about.encoded.entry(topic.to_owned()).or_default();
                    *count += 1;
                    if *count == 1 {
                        about.note(&format!(
                            "messages of {topic} come as values; they are re-encoded by their type"
                        ));
                    }
                    (bytes, None)
                }
                Err(reason) => {
                    let mut about = self.about.lock();
                    let entry = about.refused.entry(topic.to_owned());
                    entry.or_insert((0, reason)).0 += 1;
                    return;
                }
            },
        };
        let mut sample = Sample::of(&offered.described, Bytes::from(bytes));
        sample.source = time;
        self.hub.deliver(&offered.key, sample);
    }

    /// Polls for topics.
    fn look(&mut self, now: Instant, out: &mut Vec<Message>) {
        if let Some((_, service, since)) = &self.asked {
            if now.duration_since(*since) < ANSWER_TIMEOUT {
                return;
            }
            let service = *service;
            self.asked = None;
            self.unanswered(service);
        }
        let is_due = self
            .looked
            .is_none_or(|last| now.duration_since(last) >= TOPIC_POLL_INTERVAL);
        if is_due {
            self.looked = Some(now);
            // New topics are requested with their definitions; whether there are any, without.
            let is_news = (self.topics.is_empty() || self.has_new) && self.has_definitions;
            self.call(if is_news { DEFINED } else { TOPICS }, now, out);
        }
    }

    fn call(&mut self, service: &'static str, now: Instant, out: &mut Vec<Message>) {
        self.calls += 1;
        let id = format!("asof:{}", self.calls);
        out.push(Message::Text(rosbridge::call_service(&id, service).into()));
        self.asked = Some((id, service, now));
    }

    fn unanswered(&mut self, service: &'static str) {
        if service == DEFINED {
            self.has_definitions = false;
        } else {
            self.about.lock().has_no_rosapi = true;
        }
        self.looked = None;
    }

    fn answered(&mut self, id: &str, values: Value, is_success: bool, losses: &Losses) {
        let Some((_, service, _)) = self.asked.take_if(|(asked, ..)| asked == id) else {
            return;
        };
        let answer = match serde_json::from_value::<Answer>(values) {
            Ok(answer) if is_success => answer,
            _ => return self.unanswered(service),
        };
        self.about.lock().has_no_rosapi = false;
        let is_new = |(topic, kind): (&String, &String)| {
            let known = self.topics.get(topic);
            known.is_none_or(|known| known.type_name != *kind)
        };
        let mut told = answer.topics.iter().zip(&answer.types);
        if service == TOPICS && self.has_definitions && told.any(is_new) {
            // Once more, with definitions.
            let gone: Vec<String> = self.missing_in(&answer);
            for topic in gone {
                self.gone(&topic);
            }
            self.has_new = true;
            self.looked = None;
            return;
        }
        self.has_new = false;
        for topic in self.missing_in(&answer) {
            self.gone(&topic);
        }
        let texts = answer.typedefs_full_text.iter().map(Some);
        let texts = texts.chain(std::iter::repeat(None));
        for ((topic, kind), text) in answer.topics.iter().zip(&answer.types).zip(texts) {
            self.offered(topic, kind, text.map_or("", String::as_str), losses);
        }
    }

    fn missing_in(&self, answer: &Answer) -> Vec<String> {
        let told: HashMap<&String, &String> = answer.topics.iter().zip(&answer.types).collect();
        let topics = self.topics.iter();
        let gone = topics.filter(|(topic, known)| told.get(topic) != Some(&&known.type_name));
        gone.map(|(topic, _)| topic.clone()).collect()
    }

    fn offered(&mut self, topic: &str, type_name: &str, text: &str, losses: &Losses) {
        if self.topics.contains_key(topic) || topic.is_empty() || type_name.is_empty() {
            return;
        }
        if self.topics.len() >= MOST_TOPICS {
            if Losses::count(&losses.crowded) {
                tracing::warn!(
                    "the server has more than {MOST_TOPICS} topics; the rest are skipped"
                );
            }
            return;
        }
        let Some(graph) = self.graph.upgrade() else {
            return;
        };
        let is_two = type_name.contains("/msg/");
        self.about.lock().version = if is_two { "ROS 2" } else { "ROS 1" };
        let key = format!("{topic} ({type_name})");
        let described = graph.described(&key, |definitions| {
            described(topic, type_name, text, definitions)
        });
        let publisher = Publisher {
            node: String::new(),
            key: key.clone(),
            qos: None,
            channel: described.known().channel,
            described: Arc::clone(&described),
            origin: Origin::Key,
        };
        graph.appeared(topic.to_owned(), publisher);
        let offered = Offered {
            type_name: type_name.to_owned(),
            key,
            described,
            is_subscribed: false,
            encoder: None,
        };
        self.topics.insert(topic.to_owned(), offered);
    }

    fn gone(&mut self, topic: &str) {
        self.topics.remove(topic);
        if let Some(graph) = self.graph.upgrade() {
            graph.gone(topic);
        }
    }

    /// Subscribes to wanted topics, and unsubscribes from the others.
    fn subscribe(&mut self, out: &mut Vec<Message>) {
        let current = Some((self.hub.version(), self.topics.len()));
        if self.seen == current {
            return;
        }
        self.seen = current;
        let mut topics: Vec<(&String, &mut Offered)> = self.topics.iter_mut().collect();
        // Latched messages first: everything else needs them.
        topics.sort_by_key(|(topic, _)| (!topic.ends_with("tf_static"), (*topic).clone()));
        for (topic, offered) in topics {
            let is_wanted = self.hub.is_wanted(&offered.key);
            if is_wanted == offered.is_subscribed {
                continue;
            }
            offered.is_subscribed = is_wanted;
            let id = format!("asof:{topic}");
            let said = if is_wanted {
                rosbridge::subscribe(&id, topic, &offered.type_name)
            } else {
                rosbridge::unsubscribe(&id, topic)
            };
            out.push(Message::Text(said.into()));
        }
    }
}

impl Offered {
    fn encoded(&mut self, values: &Value) -> Result<Vec<u8>, String> {
        let described = &self.described;
        let make = || {
            let channel = described.known().channel;
            Encoder::new(&channel).map_err(|error| error.to_string())
        };
        match self.encoder.get_or_insert_with(make) {
            Ok(encoder) => encoder.encode(values).map_err(|error| error.to_string()),
            Err(reason) => Err(reason.clone()),
        }
    }
}

/// A topic with the server's definition, if it is valid; else with a local one.
fn described(topic: &str, type_name: &str, text: &str, definitions: &Definitions) -> Described {
    let is_two = type_name.contains("/msg/");
    let (encoding, language) = if is_two {
        ("cdr", "ros2msg")
    } else {
        ("ros1", "ros1msg")
    };
    let channel = |schema: Schema| Channel {
        topic: topic.to_owned(),
        message_encoding: encoding.to_owned(),
        schema: Some(Arc::new(schema)),
        ..Channel::default()
    };
    let given = channel(Schema {
        name: type_name.to_owned(),
        encoding: language.to_owned(),
        data: text.as_bytes().to_vec().into(),
    });
    let is_failure = text.starts_with("# failed to get");
    if !is_failure && !text.is_empty() && Decoder::new(&given, &Projection::All, &[]).is_ok() {
        return Described::complete(given);
    }
    if is_two {
        return Described::ros2(topic, type_name.to_owned(), None, None, definitions);
    }
    Described::complete(channel(Schema {
        name: type_name.to_owned(),
        ..Schema::default()
    }))
}
