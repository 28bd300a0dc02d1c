//! A session with a running robot.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use asof_core::{Channel, Problem, ProblemKind, Stamp};
use asof_formats::Definitions;
use parking_lot::Mutex;
use zenoh::Wait;
use zenoh::sample::SampleKind;

use crate::describe::{self, Described};
use crate::error::said;
use crate::ros::{Token, TopicKey, ros_type_name, tokens_of_domain};
use crate::subscribe::{Interest, Subscription};
use crate::{Address, LiveError, Mode, Sample};

/// A session with a running robot. Clones share the same session; it is closed with the last of them.
///
/// The robot's topics are learned from rmw_zenoh's liveliness tokens, now and as they come and go.
#[derive(Clone)]
pub struct Robot {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) session: zenoh::Session,
    domain: u32,
    graph: Mutex<Graph>,
    interests: Mutex<Vec<Weak<dyn Interest>>>,
    /// Keeps the watch on tokens alive.
    _tokens: zenoh::pubsub::Subscriber<()>,
}

/// Who publishes what.
#[derive(Default)]
struct Graph {
    /// By their tokens.
    publishers: HashMap<String, Arc<Publisher>>,
    /// Type description services, by their tokens: of which node, and where they are asked.
    services: HashMap<String, (Node, TopicKey)>,
    definitions: Definitions,
    channels: HashMap<TopicKey, Arc<Described>>,
}

/// A node: its session, and its name there.
type Node = (String, String);

/// A publisher that was discovered.
#[derive(Debug, Clone)]
pub struct Publisher {
    /// Its token.
    pub token: Token,
    /// The key its messages are on.
    pub key: TopicKey,
    /// Its topic, type and schema, as far as they are known by now.
    pub channel: Arc<Channel>,
    pub(crate) described: Arc<Described>,
}

/// A topic of the robot.
#[derive(Debug, Clone)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its types, as people write them. More than one is a mistake on the robot.
    pub types: Vec<String>,
    /// Who publishes it.
    pub publishers: Vec<Arc<Publisher>>,
}

/// How long a client waits for its router, in milliseconds.
const CLIENT_TIMEOUT: i64 = 2_000;

enum Change {
    Appeared(String),
    Gone(String),
}

impl Robot {
    /// Opens a session; see [`crate::connect`].
    pub fn open(address: &Address) -> Result<Self, LiveError> {
        let session = zenoh::open(configuration(address)?)
            .wait()
            .map_err(|cause| LiveError::session(address, &cause))?;
        let (changes, events) = mpsc::channel();
        let tokens = watch_tokens(&session, address.domain, changes)?;
        let inner = Arc::new(Inner {
            session,
            domain: address.domain,
            graph: Mutex::default(),
            interests: Mutex::default(),
            _tokens: tokens,
        });
        let weak = Arc::downgrade(&inner);
        // Subscriptions are made on a thread of their own: within the transport's callback they could wait for it.
        thread::Builder::new()
            .name("asof-live graph".to_owned())
            .spawn(move || follow(&weak, &events))
            .map_err(LiveError::Thread)?;
        Ok(Robot { inner })
    }

    /// Looks for definitions of types here too. Without it, the standard types of ROS 2 are known, and nodes are asked
    /// for what they define themselves.
    pub fn set_definitions(&self, definitions: Definitions) {
        let mut graph = self.inner.graph.lock();
        graph.definitions = definitions;
        for described in graph.channels.values() {
            described.look_up(&graph.definitions);
        }
        let keys: Vec<_> = graph.channels.keys().cloned().collect();
        for key in keys {
            graph.renew(&key);
        }
    }

    /// Whether anybody is there: a router, or another peer.
    pub fn is_connected(&self) -> bool {
        let info = self.inner.session.info();
        info.routers_zid().wait().next().is_some() || info.peers_zid().wait().next().is_some()
    }

    /// The ROS domain.
    pub fn domain(&self) -> u32 {
        self.inner.domain
    }

    /// The topics that are published at the moment, by name.
    pub fn topics(&self) -> Vec<Topic> {
        let graph = self.inner.graph.lock();
        let mut topics: BTreeMap<String, Topic> = BTreeMap::new();
        for publisher in graph.publishers.values() {
            let name = &publisher.channel.topic;
            let topic = topics.entry(name.clone()).or_insert_with(|| Topic {
                name: name.clone(),
                types: Vec::new(),
                publishers: Vec::new(),
            });
            let kind = ros_type_name(&publisher.key.dds_type);
            if !topic.types.contains(&kind) {
                topic.types.push(kind);
            }
            topic.publishers.push(Arc::clone(publisher));
        }
        topics.into_values().collect()
    }

    /// What is wrong with the robot's topics, as far as its tokens tell: a topic with several types, a type whose
    /// definition cannot be had, or is another one here.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for topic in self.topics() {
            let mut say = |text: String| {
                let problem = Problem::whole(ProblemKind::ConflictingDefinition, text);
                problems.push(problem.on_topic(&topic.name));
            };
            if topic.types.len() > 1 {
                say(format!(
                    "it is published with several types: {}; its subscribers see some of them only",
                    topic.types.join(", ")
                ));
            }
            let described = topic
                .publishers
                .iter()
                .map(|publisher| &publisher.described);
            if described.clone().any(|described| described.is_other()) {
                say(format!(
                    "the definition of {} that is known here is another one than the robot's (their hashes differ), and \
                     no node described it",
                    topic.types.join(", ")
                ));
            } else if described.clone().any(|described| described.is_pending()) {
                let text = format!(
                    "no definition of {} can be had, so its messages cannot be decoded; give a folder of .msg files",
                    topic.types.join(", ")
                );
                let problem = Problem::whole(ProblemKind::UnknownReference, text);
                problems.push(problem.on_topic(&topic.name));
            }
        }
        problems
    }

    /// Waits until a topic is published.
    pub fn wait_for_topic(&self, name: &str, timeout: Duration) -> Option<Topic> {
        let deadline = std::time::Instant::now() + timeout;
        loop {
            let found = self.topics().into_iter().find(|topic| topic.name == name);
            if found.is_some() || std::time::Instant::now() >= deadline {
                return found;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Calls `callback` with every message of the topics that `wants` is true for, those that are there and those that
    /// will be, until the subscription is dropped. Topics are ROS topics such as `/scan`; each is subscribed by its
    /// exact key, and one that is transient-local with its history.
    pub fn subscribe(
        &self,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
        callback: impl Fn(Sample) + Send + Sync + 'static,
    ) -> Subscription {
        let subscription = Subscription::new(&self.inner, Box::new(wants), Arc::new(callback));
        let interest = subscription.interest();
        // Listed first, then told of what is there: a publisher that appears in between is told twice, which is
        // noticed, and never missed.
        self.inner.interests.lock().push(interest);
        let known: Vec<_> = self
            .inner
            .graph
            .lock()
            .publishers
            .values()
            .cloned()
            .collect();
        for publisher in known {
            subscription.appeared(&publisher);
        }
        subscription
    }

    /// Calls `callback` with every message on a raw key expression, until the subscription is dropped.
    ///
    /// # Errors
    /// When the key expression is none.
    pub fn subscribe_key(
        &self,
        key_expression: &str,
        callback: impl Fn(Sample) + Send + Sync + 'static,
    ) -> Result<Subscription, LiveError> {
        Subscription::raw(&self.inner, key_expression, Arc::new(callback))
    }

    /// Publishes bytes on a raw key, stamped by this session's clock.
    ///
    /// # Errors
    /// When the key is none, or the session is closed.
    pub fn put(
        &self,
        key: &str,
        payload: impl Into<zenoh::bytes::ZBytes>,
    ) -> Result<(), LiveError> {
        let stamp = self.inner.session.new_timestamp();
        self.inner
            .session
            .put(key.to_owned(), payload)
            .timestamp(stamp)
            .wait()
            .map_err(|cause| LiveError::Zenoh {
                what: format!("cannot publish on {key}"),
                cause: said(&cause),
            })
    }

    /// Zenoh's own session, for what is not here.
    pub fn session(&self) -> &zenoh::Session {
        &self.inner.session
    }
}

impl Inner {
    fn apply(self: &Arc<Self>, change: Change) {
        match change {
            Change::Gone(key) => {
                self.graph.lock().remove(&key);
            }
            Change::Appeared(key) => match Token::parse(&key) {
                Ok(token) => self.appeared(key, token),
                Err(error) => tracing::warn!("{error}; it is passed over"),
            },
        }
    }

    fn appeared(self: &Arc<Self>, key: String, token: Token) {
        if let Some(service) = token.description_key() {
            let node = (token.session, token.node);
            let waiting = self.graph.lock().serve(key, node, &service);
            for (topic, described) in waiting {
                describe::ask(self, &service, &topic, &described);
            }
            return;
        }
        let Some(topic) = token.topic_key() else {
            return;
        };
        let (publisher, service) = self.graph.lock().add(key, token, topic);
        let interests: Vec<_> = {
            let mut list = self.interests.lock();
            list.retain(|interest| interest.strong_count() > 0);
            list.iter().filter_map(Weak::upgrade).collect()
        };
        for interest in interests {
            interest.appeared(&publisher);
        }
        if let Some(service) = service {
            describe::ask(self, &service, &publisher.key, &publisher.described);
        }
    }

    /// The schema of a topic has come.
    pub(crate) fn learned(&self, key: &TopicKey) {
        self.graph.lock().renew(key);
    }
}

impl Graph {
    /// Lists a publisher; with it the service that can be asked for its type, if that is unknown.
    fn add(
        &mut self,
        key: String,
        token: Token,
        topic: TopicKey,
    ) -> (Arc<Publisher>, Option<TopicKey>) {
        let definitions = &self.definitions;
        let described = self
            .channels
            .entry(topic.clone())
            .or_insert_with(|| Arc::new(Described::new(&topic, &token, definitions)));
        let known = described.known();
        let is_same = |node: &Node| node.0 == token.session && node.1 == token.node;
        let mut services = self.services.values();
        let service = services
            .find(|(node, _)| known.is_pending && is_same(node))
            .map(|(_, service)| service.clone());
        let publisher = Arc::new(Publisher {
            token,
            key: topic,
            channel: known.channel,
            described: Arc::clone(described),
        });
        self.publishers.insert(key, Arc::clone(&publisher));
        (publisher, service)
    }

    /// Forgets what a token stood for; with the last publisher of a topic, what is known of its type: topics may come and
    /// go for as long as the robot runs.
    fn remove(&mut self, token: &str) {
        self.services.remove(token);
        let Some(gone) = self.publishers.remove(token) else {
            return;
        };
        if !self.publishers.values().any(|other| other.key == gone.key) {
            self.channels.remove(&gone.key);
        }
    }

    /// Lists a type description service; the topics of its node whose types are unknown.
    fn serve(
        &mut self,
        key: String,
        node: Node,
        service: &TopicKey,
    ) -> Vec<(TopicKey, Arc<Described>)> {
        let is_unknown = |publisher: &&Arc<Publisher>| {
            let token = &publisher.token;
            let is_same = token.session == node.0 && token.node == node.1;
            is_same && publisher.described.is_pending()
        };
        let waiting = self
            .publishers
            .values()
            .filter(is_unknown)
            .map(|publisher| (publisher.key.clone(), Arc::clone(&publisher.described)))
            .collect();
        self.services.insert(key, (node, service.clone()));
        waiting
    }

    /// Gives the publishers of a topic the channel as it is known now.
    fn renew(&mut self, key: &TopicKey) {
        for publisher in self.publishers.values_mut() {
            if publisher.key == *key {
                let channel = publisher.described.known().channel;
                *publisher = Arc::new(Publisher {
                    channel,
                    ..Publisher::clone(publisher)
                });
            }
        }
    }
}

fn watch_tokens(
    session: &zenoh::Session,
    domain: u32,
    changes: Sender<Change>,
) -> Result<zenoh::pubsub::Subscriber<()>, LiveError> {
    session
        .liveliness()
        .declare_subscriber(tokens_of_domain(domain))
        // Those that are there already, too.
        .history(true)
        .callback(move |sample| {
            let key = sample.key_expr().as_str().to_owned();
            let change = match sample.kind() {
                SampleKind::Put => Change::Appeared(key),
                SampleKind::Delete => Change::Gone(key),
            };
            // Nobody listens any more when the session is being closed.
            let _ = changes.send(change);
        })
        .wait()
        .map_err(|cause| LiveError::Zenoh {
            what: "cannot watch the robot's liveliness tokens".to_owned(),
            cause: said(&cause),
        })
}

fn follow(inner: &Weak<Inner>, events: &Receiver<Change>) {
    while let Ok(change) = events.recv() {
        let Some(inner) = inner.upgrade() else {
            return;
        };
        inner.apply(change);
    }
}

fn configuration(address: &Address) -> Result<zenoh::Config, LiveError> {
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
        // A robot that is not there yet, or goes away, is waited for in the background. A client has no session
        // without its router: it waits a moment, and says so.
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

/// The time of receipt.
pub(crate) fn now() -> Stamp {
    Stamp::try_from(SystemTime::now()).unwrap_or(Stamp::MAX)
}
