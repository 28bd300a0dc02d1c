//! Zenoh: topics by liveliness tokens, one subscriber for each exact key.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use asof_core::{Channel, Problem, Schema, Stamp};
use parking_lot::Mutex;
use zenoh::Wait;
use zenoh::query::{ConsolidationMode, QueryTarget, ReplyKeyExpr};
use zenoh::sample::SampleKind;
use zenoh_ext::{AdvancedSubscriberBuilderExt, HistoryConfig, RecoveryConfig};

use super::{Losses, SubscriptionGuard, Transport};
use crate::describe::{DESCRIBE_TIMEOUT, Described};
use crate::error::said;
use crate::graph::{Graph, Origin};
use crate::robot::now;
use crate::ros::{
    BRIDGE_TOKENS, BridgeToken, DescriptionError, Durability, QosOverride, QosProfile, Reliability,
    SampleAttachment, Token, TopicKey, described_as, description_request, ros_type_name,
    tokens_of_domain,
};
use crate::sample::SamplePayload;
use crate::subscribe::Callback;
use crate::{LiveError, Mode, Publisher, Sample, ZenohAddress};

/// How long a client waits for its router, in milliseconds.
const CLIENT_TIMEOUT: i64 = 2_000;

/// Numbers the subscribers that are announced.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A Zenoh session, and its liveliness subscribers.
pub(crate) struct ZenohTransport {
    pub session: zenoh::Session,
    pub domain: u32,
    /// Keep the liveliness subscriptions alive.
    _tokens: Vec<zenoh::pubsub::Subscriber<()>>,
    losses: Arc<Losses>,
}

/// At most this many publishers, and as many services, are followed, as over the other transports.
const MOST_PUBLISHERS: usize = 20_000;
/// At most this many changes of tokens wait.
const MOST_CHANGES: usize = 65_536;
/// So many tokens are read before their topics are subscribed.
const BATCH: usize = 1_000;

enum Change {
    Appeared(String),
    Gone(String),
}

impl ZenohTransport {
    pub fn open(address: &ZenohAddress, graph: &Arc<Graph>) -> Result<Self, LiveError> {
        let session = zenoh::open(configuration(address)?)
            .wait()
            .map_err(|cause| LiveError::session(address, &cause))?;
        let (changes, events) = mpsc::sync_channel(MOST_CHANGES);
        let losses = Arc::<Losses>::default();
        let mut expressions = vec![tokens_of_domain(address.domain)];
        expressions.extend(BRIDGE_TOKENS.map(str::to_owned));
        let tokens = expressions
            .iter()
            .map(|expression| watch_tokens(&session, expression, changes.clone(), &losses))
            .collect::<Result<_, LiveError>>()?;
        let directory = Directory {
            session: session.clone(),
            graph: Arc::downgrade(graph),
            services: HashMap::new(),
            losses: Arc::clone(&losses),
        };
        // Subscriptions are made on a separate thread: within the transport's callback they could wait for it.
        thread::Builder::new()
            .name("asof-live graph".to_owned())
            .spawn(move || directory.follow(&events))
            .map_err(LiveError::Thread)?;
        Ok(ZenohTransport {
            session,
            domain: address.domain,
            _tokens: tokens,
            losses,
        })
    }

    fn declare(
        &self,
        publisher: &Publisher,
        qos: QosProfile,
        callback: Callback,
    ) -> zenoh::Result<SubscriptionGuard> {
        let described = Arc::clone(&publisher.described);
        let on_sample = move |sample: zenoh::sample::Sample| {
            receive(
                &sample,
                Sample::of(&described, SamplePayload::default()),
                &callback,
            );
        };
        let builder = self
            .session
            .declare_subscriber(publisher.key.clone())
            .callback(on_sample);
        if qos.durability != Durability::TransientLocal {
            return Ok(Box::new(builder.wait()?));
        }
        let builder = builder.history(history(qos)).subscriber_detection();
        // A publisher's history is queried without a timeout, as rmw_zenoh does.
        let builder = builder.query_timeout(Duration::from_millis(u64::MAX));
        Ok(if qos.reliability == Reliability::Reliable {
            let recovery = RecoveryConfig::default().heartbeat();
            Box::new(builder.recovery(recovery).wait()?)
        } else {
            Box::new(builder.wait()?)
        })
    }

    /// Queries an older bridge for its cache of a topic.
    fn ask_cache(&self, token: &BridgeToken, publisher: &Publisher, callback: Callback) {
        let described = Arc::clone(&publisher.described);
        let asked = self
            .session
            .get(token.cache_key())
            // Cached messages have the topic's own key.
            .accept_replies(ReplyKeyExpr::Any)
            .target(QueryTarget::All)
            .consolidation(ConsolidationMode::None)
            .timeout(DESCRIBE_TIMEOUT)
            .callback(move |reply| {
                if let Ok(sample) = reply.result() {
                    receive(
                        sample,
                        Sample::of(&described, SamplePayload::default()),
                        &callback,
                    );
                }
            })
            .wait();
        if let Err(cause) = asked {
            tracing::debug!("cannot query the history of {}: {cause}", publisher.key);
        }
    }
}

impl Transport for ZenohTransport {
    fn is_connected(&self) -> bool {
        let info = self.session.info();
        info.routers_zid().wait().next().is_some() || info.peers_zid().wait().next().is_some()
    }

    fn subscribe(
        &self,
        publisher: &Publisher,
        asked: QosOverride,
        callback: Callback,
    ) -> Result<SubscriptionGuard, LiveError> {
        let qos = asked.over(publisher.qos.unwrap_or_default());
        let held = self
            .declare(publisher, qos, Arc::clone(&callback))
            .map_err(|cause| LiveError::Zenoh {
                what: format!("cannot subscribe to {}", publisher.key),
                cause: said(&cause),
            })?;
        if let Origin::Bridge(token) = &publisher.origin
            && qos.durability == Durability::TransientLocal
        {
            self.ask_cache(token, publisher, callback);
        }
        Ok(held)
    }

    /// Publishers of 2026 that can hand over GPU buffers publish nothing that we can read, unless a subscriber that
    /// does not support such buffers announces itself.
    fn announce(&self, publisher: &Publisher) -> Option<SubscriptionGuard> {
        let Origin::Token(token, _) = &publisher.origin else {
            return None;
        };
        token.topic.as_ref().filter(|topic| topic.has_buffers)?;
        let session = self.session.zid().to_string();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let token = token.subscriber(&session, number)?;
        match self.session.liveliness().declare_token(token).wait() {
            Ok(token) => Some(Box::new(token)),
            Err(cause) => {
                tracing::warn!("cannot announce a subscriber of {}: {cause}", publisher.key);
                None
            }
        }
    }

    fn subscribe_key(
        &self,
        key_expression: &str,
        callback: Callback,
        refused: &Arc<AtomicU64>,
    ) -> Result<SubscriptionGuard, LiveError> {
        let channels: Mutex<RawChannels> = Mutex::default();
        let refused = Arc::clone(refused);
        let subscriber = self
            .session
            .declare_subscriber(key_expression.to_owned())
            .callback(move |sample| {
                let found = channels.lock().of(&sample);
                match found {
                    // A raw key has no information on its type.
                    Some(channel) => {
                        receive(
                            &sample,
                            Sample::new(channel, SamplePayload::default()),
                            &callback,
                        );
                    }
                    None => refuse(&refused),
                }
            })
            .wait()
            .map_err(|cause| LiveError::Zenoh {
                what: format!("cannot subscribe to '{key_expression}'"),
                cause: said(&cause),
            })?;
        Ok(Box::new(subscriber))
    }

    fn domain(&self) -> u32 {
        self.domain
    }

    fn problems(&self) -> Vec<Problem> {
        self.losses.problems("zenoh")
    }

    fn as_zenoh(&self) -> Option<&ZenohTransport> {
        Some(self)
    }
}

fn refuse(refused: &AtomicU64) {
    if refused.fetch_add(1, Ordering::Relaxed) == 0 {
        tracing::warn!(
            "messages come on more than {MOST_KEYS} raw keys; those on further keys are dropped and counted"
        );
    }
}

/// Turns tokens into publishers, and asks nodes for missing type definitions.
struct Directory {
    session: zenoh::Session,
    graph: Weak<Graph>,
    /// Type description services, by their tokens: their nodes, and the keys to call them on.
    services: HashMap<String, (Node, TopicKey)>,
    losses: Arc<Losses>,
}

/// A node: its session, and its name there.
type Node = (String, String);

impl Directory {
    fn follow(mut self, events: &Receiver<Change>) {
        while let Ok(first) = events.recv() {
            let Some(graph) = self.graph.upgrade() else {
                return;
            };
            let mut found = Vec::new();
            let more = events.try_iter().take(BATCH);
            for change in std::iter::once(first).chain(more) {
                match change {
                    Change::Gone(key) => {
                        self.add(&graph, std::mem::take(&mut found));
                        self.services.remove(&key);
                        graph.gone(&key);
                    }
                    Change::Appeared(key) => {
                        let room = MOST_PUBLISHERS.saturating_sub(graph.len() + found.len());
                        found.extend(self.appeared(&graph, key, room > 0));
                    }
                }
            }
            self.add(&graph, found);
        }
    }

    /// Adds publishers, and asks their nodes for missing types.
    fn add(&self, graph: &Arc<Graph>, found: Vec<(String, Publisher)>) {
        let mut asked = Vec::new();
        for (_, publisher) in &found {
            if let Origin::Token(token, topic) = &publisher.origin
                && publisher.described.is_pending()
                && let Some(service) = self.service_of(token)
            {
                let described = Arc::clone(&publisher.described);
                asked.push((service.clone(), topic.clone(), described));
            }
        }
        graph.appeared_together(found);
        for (service, topic, described) in asked {
            self.ask(&service, &topic, &described);
        }
    }

    fn service_of(&self, token: &Token) -> Option<&TopicKey> {
        let is_same = |node: &Node| node.0 == token.session && node.1 == token.node;
        let mut services = self.services.values();
        services
            .find(|(node, _)| is_same(node))
            .map(|(_, service)| service)
    }

    /// The publisher that a token announces, if there is room for it.
    fn appeared(
        &mut self,
        graph: &Arc<Graph>,
        key: String,
        has_room: bool,
    ) -> Option<(String, Publisher)> {
        let losses = Arc::clone(&self.losses);
        let has_room = || {
            if !has_room {
                Losses::count(&losses.crowded);
            }
            has_room
        };
        if key.starts_with("@/") || BridgeToken::is_older(&key) {
            match BridgeToken::parse(&key) {
                Ok(Some(token)) => return has_room().then(|| (key, bridged(graph, token))),
                // A subscriber, a service, an action, or the bridge itself.
                Ok(None) => {}
                Err(error) => tracing::warn!("{error}; it is skipped"),
            }
            return None;
        }
        let token = match Token::parse(&key) {
            Ok(token) => token,
            Err(error) => {
                tracing::warn!("{error}; it is skipped");
                return None;
            }
        };
        if let Some(service) = token.description_key() {
            let node = (token.session, token.node);
            self.serve(graph, &node, &service);
            if self.services.len() < MOST_PUBLISHERS {
                self.services.insert(key, (node, service));
            } else {
                Losses::count(&self.losses.crowded);
            }
            return None;
        }
        let topic = token.topic_key()?;
        has_room().then(|| (key, published(graph, token, topic)))
    }

    /// A type description service appeared: asks it for the missing types of its node.
    fn serve(&self, graph: &Graph, node: &Node, service: &TopicKey) {
        for publisher in graph.publishers() {
            if let Origin::Token(token, topic) = &publisher.origin
                && token.session == node.0
                && token.node == node.1
                && publisher.described.is_pending()
            {
                self.ask(service, topic, &publisher.described);
            }
        }
    }

    /// Asks a node for the schema of a channel. The answer comes later, on a thread of the transport.
    fn ask(&self, service: &TopicKey, key: &TopicKey, to: &Arc<Described>) {
        let type_name = ros_type_name(&key.dds_type);
        let attachment = SampleAttachment {
            sequence: 1,
            source_timestamp: now(),
            gid: self.session.zid().to_le_bytes(),
        };
        let (described, graph) = (Arc::clone(to), Weak::clone(&self.graph));
        let (key, asked) = (key.clone(), type_name.clone());
        let sent = self
            .session
            .get(service.to_string())
            .payload(description_request(&type_name, &key.type_hash))
            .attachment(attachment.to_bytes().to_vec())
            .target(QueryTarget::All)
            .consolidation(ConsolidationMode::None)
            .timeout(DESCRIBE_TIMEOUT)
            .callback(
                move |reply| match schema_in(&reply, &asked, &key.type_hash) {
                    Ok(schema) => {
                        if described.learn_if_pending(schema)
                            && let Some(graph) = graph.upgrade()
                        {
                            graph.renew(&key.to_string());
                        }
                    }
                    Err(cause) => tracing::debug!("{asked}: {cause}"),
                },
            )
            .wait();
        if let Err(cause) = sent {
            tracing::debug!("cannot ask for the description of {type_name}: {cause}");
        }
    }
}

/// A publisher of rmw_zenoh.
fn published(graph: &Arc<Graph>, token: Token, topic: TopicKey) -> Publisher {
    let key = topic.to_string();
    let qos = token.topic.as_ref().map(|topic| topic.qos);
    let described = graph.described(&key, |definitions| {
        let metadata = qos.map(|qos| ("rmw_zenoh_qos", qos.to_text()));
        let type_name = ros_type_name(&topic.dds_type);
        let hash = Some(topic.type_hash.as_str());
        Described::ros2(&topic.topic, type_name, hash, metadata, definitions)
    });
    Publisher {
        node: token.node.clone(),
        key,
        qos,
        channel: described.known().channel,
        described,
        origin: Origin::Token(Box::new(token), topic),
    }
}

/// A DDS publisher that a bridge publishes on a bare key.
fn bridged(graph: &Arc<Graph>, token: BridgeToken) -> Publisher {
    let described = graph.described(&token.key, |definitions| {
        let metadata = Some(("bridge_qos", token.qos.to_text()));
        let type_name = token.type_name.clone();
        Described::ros2(&token.topic(), type_name, None, metadata, definitions)
    });
    Publisher {
        node: String::new(),
        key: token.key.clone(),
        qos: Some(token.qos),
        channel: described.known().channel,
        described,
        origin: Origin::Bridge(token),
    }
}

fn schema_in(
    reply: &zenoh::query::Reply,
    type_name: &str,
    type_hash: &str,
) -> Result<Schema, DescriptionError> {
    let sample = reply
        .result()
        .map_err(|error| DescriptionError::Unreadable(format!("{error:?}")))?;
    described_as(&sample.payload().to_bytes(), type_name, type_hash)
}

fn watch_tokens(
    session: &zenoh::Session,
    expression: &str,
    changes: SyncSender<Change>,
    losses: &Arc<Losses>,
) -> Result<zenoh::pubsub::Subscriber<()>, LiveError> {
    let losses = Arc::clone(losses);
    session
        .liveliness()
        .declare_subscriber(expression.to_owned())
        // Including the tokens that are already there.
        .history(true)
        .callback(move |sample| {
            let key = sample.key_expr().as_str().to_owned();
            let change = match sample.kind() {
                SampleKind::Put => Change::Appeared(key),
                SampleKind::Delete => Change::Gone(key),
            };
            pass_on(&changes, change, &losses);
        })
        .wait()
        .map_err(|cause| LiveError::Zenoh {
            what: "cannot watch the robot's liveliness tokens".to_owned(),
            cause: said(&cause),
        })
}

/// Queues a change where there is room, without waiting: this is the transport's own thread.
fn pass_on(changes: &SyncSender<Change>, change: Change, losses: &Losses) {
    // The receiver is gone when the session is being closed.
    if let Err(mpsc::TrySendError::Full(_)) = changes.try_send(change) {
        Losses::count(&losses.crowded);
    }
}

fn history(qos: QosProfile) -> HistoryConfig {
    HistoryConfig::default()
        .detect_late_publishers()
        .max_samples(qos.depth.max(1))
}

/// Fills in the metadata of a Zenoh sample, and passes it on.
fn receive(sample: &zenoh::sample::Sample, mut filled: Sample, callback: &Callback) {
    if sample.kind() == SampleKind::Delete {
        return;
    }
    let attachment = sample
        .attachment()
        .and_then(|bytes| SampleAttachment::parse(&bytes.to_bytes()).ok());
    filled.transport = sample
        .timestamp()
        .and_then(|time| Stamp::try_from(time.get_time().to_system_time()).ok());
    filled.source = attachment.map(|attachment| attachment.source_timestamp);
    filled.sequence = attachment.map(|attachment| attachment.sequence);
    filled.publisher = attachment.map(|attachment| attachment.gid);
    filled.payload = SamplePayload::new(sample.payload());
    callback(filled);
}

/// Limits of one subscription on raw keys, and on the bytes of their names; more than any robot has, and few enough
/// that a publisher on ever new keys does no harm.
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
        // The key is stored twice: in the map and as the topic.
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

fn configuration(address: &ZenohAddress) -> Result<zenoh::Config, LiveError> {
    let mut config = zenoh::Config::default();
    let list = |endpoints: &[String]| {
        let quoted: Vec<_> = endpoints.iter().map(|e| format!("{e:?}")).collect();
        format!("[{}]", quoted.join(","))
    };
    let is_client = address.mode == Mode::Client;
    let timeout = if is_client { CLIENT_TIMEOUT } else { -1 };
    let settings = [
        ("mode", format!("{:?}", address.mode.name())),
        ("connect/endpoints", list(&address.connect)),
        ("listen/endpoints", list(&address.listen)),
        // A robot that is not there yet, or goes away, is waited for in the background. A client cannot have a session
        // without its router: it waits a moment, and then returns an error.
        ("connect/timeout_ms", timeout.to_string()),
        ("connect/exit_on_failure", is_client.to_string()),
        ("scouting/multicast/enabled", address.multicast.to_string()),
        ("timestamping/enabled", "true".to_owned()),
    ];
    for (name, value) in settings {
        config
            .insert_json5(name, &value)
            .map_err(|cause| LiveError::Zenoh {
                what: format!("cannot set {name} to {value}"),
                cause: said(&cause),
            })?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    #[test]
    fn publishers_are_followed_up_to_a_number_and_the_rest_is_counted() {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = probe.local_addr().expect("an address").port();
        drop(probe);
        let address: Address = format!("zenoh://?listen=127.0.0.1:{port}")
            .parse()
            .expect("an address");
        let Address::Zenoh(address) = address else {
            panic!("of Zenoh")
        };
        let config = configuration(&address).expect("a configuration");
        let session = zenoh::open(config).wait().expect("a session");
        let (graph, losses) = (Arc::new(Graph::default()), Arc::<Losses>::default());
        let directory = Directory {
            session,
            graph: Arc::downgrade(&graph),
            services: HashMap::new(),
            losses: Arc::clone(&losses),
        };
        let token = |number: usize| {
            format!(
                "@ros2_lv/0/ab/0/{number}/MP/%/%/many/%t{number}/my_msgs::msg::dds_::Own_/RIHS01_00/::,:,:,:,,"
            )
        };
        let (changes, events) = mpsc::channel();
        let told = (0..MOST_PUBLISHERS + 50).map(|number| Change::Appeared(token(number)));
        let told = told.chain((0..10).map(|number| Change::Gone(token(number))));
        let told = told.chain([Change::Appeared(token(MOST_PUBLISHERS + 50))]);
        for change in told {
            changes.send(change).expect("there is room");
        }
        drop(changes);
        directory.follow(&events);
        assert_eq!(graph.len(), MOST_PUBLISHERS - 10 + 1);
        assert_eq!(graph.types(), graph.len(), "nothing is left of the rest");
        assert_eq!(losses.crowded.load(Ordering::Relaxed), 50);
        assert_eq!(losses.problems("zenoh").len(), 1);
    }

    #[test]
    fn changes_that_find_no_room_are_counted_and_hold_nobody_up() {
        let (changes, events) = mpsc::sync_channel(1);
        let losses = Losses::default();
        for _ in 0..3 {
            pass_on(&changes, Change::Gone(String::new()), &losses);
        }
        assert_eq!(losses.crowded.load(Ordering::Relaxed), 2);
        drop(events);
        pass_on(&changes, Change::Gone(String::new()), &losses);
        assert_eq!(losses.crowded.load(Ordering::Relaxed), 2);
    }

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
