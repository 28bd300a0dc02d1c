//! A Foxglove WebSocket server as a robot: its advertised channels are topics, with their schemas.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};
use std::time::Instant;

use asof_core::{Channel, Stamp};
use asof_foxglove::{
    Advertised, ClientText, OLDER, ParameterValue, PublishedTopic, SDK, ServerBinary, ServerInfo,
    ServerText, Subscribe,
};
use bytes::Bytes;
use parking_lot::Mutex;
use tungstenite::Message;

use super::hub::Hub;
use super::served::{self, Served};
use super::socket::Conversation;
use super::{Losses, Transport};
use crate::describe::Described;
use crate::graph::{Graph, Origin};
use crate::{LiveError, Publisher, RobotInfo, Sample, SocketAddress};

/// Limits on channels and on the bytes of their schemas; more than any robot has.
const MOST_CHANNELS: usize = 20_000;
const MOST_SCHEMA_BYTES: usize = 128 << 20;
/// Limits on the parameters, publishers and statuses that are kept.
const MOST_PARAMETERS: usize = 10_000;
const MOST_STATUSES: usize = 20;
/// Statuses are truncated to this many characters.
const LONGEST_STATUS: usize = 500;

/// The server's description of itself.
#[derive(Default)]
struct About {
    server: ServerInfo,
    subprotocol: String,
    time: Option<Stamp>,
    parameters: BTreeMap<String, String>,
    publishers: BTreeMap<String, Vec<String>>,
    statuses: VecDeque<String>,
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
        channels: HashMap::new(),
        schema_bytes: 0,
        subscriptions: HashMap::new(),
        next: 1,
        seen: None,
    })
}

impl served::About for About {
    fn info(&self) -> RobotInfo {
        let server = &self.server;
        let mut details: BTreeMap<String, String> = server
            .metadata
            .iter()
            .map(|(name, value)| (name.clone(), plain(value)))
            .collect();
        let own = [
            ("subprotocol", self.subprotocol.clone()),
            ("capabilities", server.capabilities.join(", ")),
            ("session", server.session_id.clone().unwrap_or_default()),
        ];
        for (name, value) in own.into_iter().filter(|(_, value)| !value.is_empty()) {
            details.insert(name.to_owned(), value);
        }
        RobotInfo {
            name: server.name.clone(),
            time: self.time,
            details,
            parameters: self.parameters.clone(),
            publishers: self.publishers.clone(),
            statuses: self.statuses.iter().cloned().collect(),
        }
    }
}

/// The client side of the protocol.
struct Client {
    graph: Weak<Graph>,
    hub: Arc<Hub>,
    about: Arc<Mutex<About>>,
    /// By the server's channel identifiers.
    channels: HashMap<u64, Offered>,
    schema_bytes: usize,
    /// Our subscription identifiers, and the server's channel identifiers.
    subscriptions: HashMap<u32, u64>,
    next: u32,
    /// The version of the subscriptions and the number of channels at the last check.
    seen: Option<(u64, usize)>,
}

/// A channel that the server offers.
struct Offered {
    key: String,
    described: Arc<Described>,
    schema_bytes: usize,
    /// Our subscription identifier, while it is subscribed.
    subscription: Option<u32>,
}

impl Conversation for Client {
    const SUBPROTOCOLS: Option<&'static str> = Some("foxglove.sdk.v1, foxglove.websocket.v1");

    fn opened(&mut self, subprotocol: &str, _out: &mut Vec<Message>) {
        debug_assert!(Self::SUBPROTOCOLS.is_some_and(|all| all == format!("{SDK}, {OLDER}")));
        *self.about.lock() = About {
            subprotocol: subprotocol.to_owned(),
            ..About::default()
        };
    }

    fn text(&mut self, text: &str, out: &mut Vec<Message>, losses: &Losses) -> bool {
        let said = match ServerText::parse(text) {
            Ok(said) => said,
            Err(error) => {
                tracing::debug!("{error}");
                return false;
            }
        };
        match said {
            ServerText::ServerInfo(info) => self.greeted(info, out),
            ServerText::Status { level, message, .. } => self.noted(level, &message),
            ServerText::Advertise { channels } => {
                let mut is_good = true;
                for channel in &channels {
                    is_good &= self.offered(channel, losses);
                }
                self.seen = None;
                return is_good;
            }
            ServerText::Unadvertise { channel_ids } => {
                for id in channel_ids {
                    self.withdrawn(id);
                }
            }
            ServerText::ParameterValues { parameters, .. } => self.set(parameters),
            ServerText::ConnectionGraphUpdate {
                published_topics,
                removed_topics,
                ..
            } => self.connect(published_topics, &removed_topics),
            ServerText::Unknown => {}
        }
        true
    }

    fn binary(&mut self, bytes: Bytes, _out: &mut Vec<Message>, _losses: &Losses) -> bool {
        match ServerBinary::parse(&bytes) {
            Ok(ServerBinary::Message {
                subscription,
                log_time,
                payload,
            }) => {
                let channel = self.subscriptions.get(&subscription);
                // A message that was in flight when its topic was unsubscribed has no receiver.
                if let Some(offered) = channel.and_then(|id| self.channels.get(id)) {
                    // Copied out of the receive buffer: a slice would keep all of it alive.
                    let payload = Bytes::copy_from_slice(&payload);
                    let mut sample = Sample::of(&offered.described, payload);
                    sample.source = Stamp::from_unsigned_nanos(log_time).ok();
                    self.hub.deliver(&offered.key, sample);
                }
            }
            Ok(ServerBinary::Time(nanos)) => {
                self.about.lock().time = Stamp::from_unsigned_nanos(nanos).ok();
            }
            Ok(ServerBinary::Other(_)) => {}
            Err(error) => {
                tracing::debug!("{error}");
                return false;
            }
        }
        true
    }

    /// Subscribes to wanted channels, and unsubscribes from the others.
    fn tick(&mut self, _now: Instant, out: &mut Vec<Message>) {
        let current = Some((self.hub.version(), self.channels.len()));
        if self.seen == current {
            return;
        }
        self.seen = current;
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        for (&channel_id, offered) in &mut self.channels {
            match (self.hub.is_wanted(&offered.key), offered.subscription) {
                (true, None) => {
                    let id = self.next;
                    self.next = self.next.wrapping_add(1);
                    offered.subscription = Some(id);
                    self.subscriptions.insert(id, channel_id);
                    wanted.push(Subscribe { channel_id, id });
                }
                (false, Some(id)) => {
                    offered.subscription = None;
                    self.subscriptions.remove(&id);
                    unwanted.push(id);
                }
                _ => {}
            }
        }
        if !unwanted.is_empty() {
            let subscription_ids = unwanted;
            out.push(said(&ClientText::Unsubscribe { subscription_ids }));
        }
        if !wanted.is_empty() {
            let subscriptions = wanted;
            out.push(said(&ClientText::Subscribe { subscriptions }));
        }
    }

    fn closed(&mut self) {
        let ids: Vec<u64> = self.channels.keys().copied().collect();
        for id in ids {
            self.withdrawn(id);
        }
        self.subscriptions.clear();
    }
}

impl Client {
    fn greeted(&mut self, info: ServerInfo, out: &mut Vec<Message>) {
        let can = |what: &str| info.capabilities.iter().any(|one| one == what);
        if can("parameters") {
            out.push(said(&ClientText::GetParameters {
                parameter_names: Vec::new(),
                id: Some("all".to_owned()),
            }));
        }
        if can("connectionGraph") {
            out.push(said(&ClientText::SubscribeConnectionGraph));
        }
        self.about.lock().server = info;
    }

    fn noted(&self, level: u8, message: &str) {
        let shown: String = message.chars().take(LONGEST_STATUS).collect();
        if level == 0 {
            tracing::debug!("status of the server: {shown}");
        } else {
            tracing::warn!("status of the server: {shown}");
        }
        let mut about = self.about.lock();
        if about.statuses.len() >= MOST_STATUSES {
            about.statuses.pop_front();
        }
        about.statuses.push_back(shown);
    }

    /// Adds an advertised channel; returns whether it could be read.
    fn offered(&mut self, told: &Advertised, losses: &Losses) -> bool {
        let channel = match told.to_channel() {
            Ok(channel) => channel,
            Err(error) => {
                tracing::warn!("{error}; the channel is skipped");
                return false;
            }
        };
        // An identifier that is reused is another channel.
        self.withdrawn(told.id);
        let schema_bytes = told.schema.len() + told.topic.len() + told.schema_name.len();
        let is_crowded = self.channels.len() >= MOST_CHANNELS
            || self.schema_bytes.saturating_add(schema_bytes) > MOST_SCHEMA_BYTES;
        if is_crowded {
            if Losses::count(&losses.crowded) {
                tracing::warn!(
                    "the server advertises more than {MOST_CHANNELS} channels or {MOST_SCHEMA_BYTES} bytes of schemas; the rest are skipped"
                );
            }
            return true;
        }
        let Some(graph) = self.graph.upgrade() else {
            return true;
        };
        let key = key_of(&channel);
        let described = graph.described(&key, |_| Described::complete(channel));
        let nodes = self.about.lock().publishers.get(&told.topic).cloned();
        let publisher = Publisher {
            node: nodes.unwrap_or_default().join(", "),
            key: key.clone(),
            qos: None,
            channel: described.known().channel,
            described: Arc::clone(&described),
            origin: Origin::Key,
        };
        graph.appeared(told.id.to_string(), publisher);
        self.schema_bytes += schema_bytes;
        let offered = Offered {
            key,
            described,
            schema_bytes,
            subscription: None,
        };
        self.channels.insert(told.id, offered);
        true
    }

    fn withdrawn(&mut self, id: u64) {
        let Some(gone) = self.channels.remove(&id) else {
            return;
        };
        self.schema_bytes -= gone.schema_bytes;
        if let Some(subscription) = gone.subscription {
            self.subscriptions.remove(&subscription);
        }
        if let Some(graph) = self.graph.upgrade() {
            graph.gone(&id.to_string());
        }
    }

    fn set(&self, parameters: Vec<ParameterValue>) {
        let mut about = self.about.lock();
        for parameter in parameters {
            let is_known = about.parameters.contains_key(&parameter.name);
            match parameter.value {
                Some(value) if is_known || about.parameters.len() < MOST_PARAMETERS => {
                    about.parameters.insert(parameter.name, value.to_string());
                }
                Some(_) => {}
                None => {
                    about.parameters.remove(&parameter.name);
                }
            }
        }
    }

    fn connect(&self, published: Vec<PublishedTopic>, removed: &[String]) {
        let mut about = self.about.lock();
        for topic in removed {
            about.publishers.remove(topic);
        }
        for topic in published {
            if about.publishers.len() < MOST_CHANNELS {
                about.publishers.insert(topic.name, topic.publisher_ids);
            }
        }
    }
}

/// The identity of a channel across connections: everything that a reader of its messages sees.
fn key_of(channel: &Channel) -> String {
    let mut hasher = DefaultHasher::new();
    if let Some(schema) = &channel.schema {
        (&schema.encoding, &schema.data).hash(&mut hasher);
    }
    format!(
        "{} ({}, {}, {:08x})",
        channel.topic,
        channel.type_name(),
        channel.message_encoding,
        hasher.finish() as u32
    )
}

fn said(text: &ClientText) -> Message {
    Message::Text(text.to_text().into())
}

/// Text as it is, anything else as JSON.
fn plain(value: &serde_json::Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
