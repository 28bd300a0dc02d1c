//! A session with a running robot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use asof_core::{Problem, ProblemKind, Stamp};
use asof_formats::Definitions;
use parking_lot::RwLock;
use zenoh::Wait;

use crate::error::said;
use crate::graph::Graph;
use crate::ros::QosOverride;
use crate::subscribe::Subscription;
use crate::transport::{self, Transport};
use crate::{Address, LiveError, Publisher, Sample};

/// A session with a running robot. Clones share the session; it is closed with the last of them.
///
/// Topics are discovered by the transport as they come and go: from liveliness tokens on Zenoh, from the
/// advertisements of a Foxglove server.
#[derive(Clone)]
pub struct Robot {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) graph: Arc<Graph>,
    pub(crate) transport: Box<dyn Transport>,
    overrides: RwLock<Option<Overrides>>,
}

/// Quality of service to request from topics instead of what they offer.
type Overrides = Arc<dyn Fn(&str) -> QosOverride + Send + Sync>;

impl Inner {
    /// The quality of service to request from a topic instead of what it offers.
    pub(crate) fn asked_of(&self, topic: &str) -> QosOverride {
        // It is called without the lock.
        let overrides = self.overrides.read().clone();
        overrides.map_or_else(QosOverride::default, |of| of(topic))
    }
}

/// A topic of the robot.
#[derive(Debug, Clone)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its types, in their usual spelling. More than one is an error on the robot.
    pub types: Vec<String>,
    /// Its publishers.
    pub publishers: Vec<Arc<Publisher>>,
}

/// A robot's description of itself, where its transport has one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RobotInfo {
    /// Its name.
    pub name: String,
    /// The latest time of its clock.
    pub time: Option<Stamp>,
    /// Its metadata and capabilities, by name.
    pub details: BTreeMap<String, String>,
    /// Its parameters, as JSON, by name.
    pub parameters: BTreeMap<String, String>,
    /// The publishers of each topic.
    pub publishers: BTreeMap<String, Vec<String>>,
    /// The latest status messages for the user.
    pub statuses: Vec<String>,
}

impl RobotInfo {
    /// As metadata of a recording.
    pub(crate) fn into_metadata(self) -> Vec<(&'static str, BTreeMap<String, String>)> {
        let joined = |(topic, nodes): (String, Vec<String>)| (topic, nodes.join(", "));
        let sets = [
            ("robot", self.details),
            ("parameters", self.parameters),
            (
                "publishers",
                self.publishers.into_iter().map(joined).collect(),
            ),
        ];
        let sets = sets.into_iter().filter(|(_, values)| !values.is_empty());
        sets.collect()
    }
}

impl Robot {
    /// Opens a session; see [`crate::connect`].
    pub fn open(address: &Address) -> Result<Self, LiveError> {
        let graph = Arc::new(Graph::default());
        let transport = transport::open(address, &graph)?;
        let inner = Arc::new(Inner {
            graph,
            transport,
            overrides: RwLock::default(),
        });
        Ok(Robot { inner })
    }

    /// Adds definitions of types. The standard types of ROS 2 are built in, and nodes are asked for the types that
    /// they define.
    pub fn set_definitions(&self, definitions: Definitions) {
        self.inner.graph.set_definitions(definitions);
    }

    /// Requests another quality of service than topics offer, by topic name. Applies to later subscriptions.
    pub fn set_qos_overrides(&self, of: impl Fn(&str) -> QosOverride + Send + Sync + 'static) {
        let before = self.inner.overrides.write().replace(Arc::new(of));
        drop(before);
    }

    /// Whether a router, a peer or a server is connected.
    pub fn is_connected(&self) -> bool {
        self.inner.transport.is_connected()
    }

    /// The ROS domain; 0 where the transport has none.
    pub fn domain(&self) -> u32 {
        self.inner.transport.domain()
    }

    /// The robot's description of itself.
    pub fn info(&self) -> RobotInfo {
        self.inner.transport.info()
    }

    /// The MCAP profile for the topics discovered so far: `ros1`, `ros2`, or none.
    pub fn profile(&self) -> &'static str {
        let topics = self.topics();
        let publishers = topics.iter().flat_map(|topic| &topic.publishers);
        crate::source::profile(publishers.map(|publisher| &*publisher.channel))
    }

    /// Problems on the way from the robot so far.
    pub(crate) fn losses(&self) -> Vec<Problem> {
        self.inner.transport.problems()
    }

    /// The topics that are published now, by name.
    pub fn topics(&self) -> Vec<Topic> {
        self.inner.graph.topics()
    }

    /// Problems of the robot that its transport can see: messages that were lost on the way, a topic with several
    /// types, a type without a definition or with a conflicting one.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = self.inner.transport.problems();
        for topic in self.topics() {
            if topic.types.len() > 1 {
                let mut types = topic.types.clone();
                types.sort_unstable();
                problems.push(several_types(&topic.name, &types.join(", ")));
            }
            let mut say = |text: String| {
                let problem = Problem::whole(ProblemKind::ConflictingDefinition, text);
                problems.push(problem.on_topic(&topic.name));
            };
            let described = topic
                .publishers
                .iter()
                .map(|publisher| &publisher.described);
            if described.clone().any(|described| described.is_other()) {
                say(format!(
                    "the local definition of {} differs from the robot's (their hashes differ), and \
                     no node described it",
                    topic.types.join(", ")
                ));
            } else if described.clone().any(|described| described.is_pending()) {
                let text = format!(
                    "no definition of {} was found, so its messages cannot be decoded; give a folder of .msg files",
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

    /// Calls `callback` with every message of the topics that `wants` accepts, present and future, until the
    /// subscription is dropped. Each topic is subscribed by its exact key; a transient-local topic with its history.
    ///
    /// It is called on the transport's thread, with no lock held. A panic in it is reported and ends there.
    pub fn subscribe(
        &self,
        wants: impl Fn(&Publisher) -> bool + Send + Sync + 'static,
        callback: impl Fn(Sample) + Send + Sync + 'static,
    ) -> Subscription {
        let subscription = Subscription::new(&self.inner, Box::new(wants), callback);
        for publisher in self.inner.graph.listen(subscription.interest()) {
            subscription.appeared(&publisher);
        }
        subscription
    }

    /// Calls `callback` with every message on a raw key expression, until the subscription is dropped.
    ///
    /// # Errors
    /// When the key expression is invalid, or the robot is not reached over Zenoh.
    pub fn subscribe_key(
        &self,
        key_expression: &str,
        callback: impl Fn(Sample) + Send + Sync + 'static,
    ) -> Result<Subscription, LiveError> {
        Subscription::raw(&self.inner, key_expression, callback)
    }

    /// Publishes bytes on a raw key, stamped by this session's clock.
    ///
    /// # Errors
    /// When the robot is not reached over Zenoh, the key is invalid, or the session is closed.
    pub fn put(
        &self,
        key: &str,
        payload: impl Into<zenoh::bytes::ZBytes>,
    ) -> Result<(), LiveError> {
        let session = self.zenoh()?;
        session
            .put(key.to_owned(), payload)
            .timestamp(session.new_timestamp())
            .wait()
            .map_err(|cause| LiveError::Zenoh {
                what: format!("cannot publish on {key}"),
                cause: said(&cause),
            })
    }

    /// The Zenoh session, for anything that this crate does not cover.
    ///
    /// # Errors
    /// When the robot is not reached over Zenoh.
    pub fn zenoh(&self) -> Result<&zenoh::Session, LiveError> {
        let zenoh = self.inner.transport.as_zenoh();
        zenoh.map(|zenoh| &zenoh.session).ok_or(LiveError::NotZenoh)
    }
}

/// The receipt time of a message that arrives now.
pub(crate) fn now() -> Stamp {
    Stamp::try_from(SystemTime::now()).unwrap_or(Stamp::MAX)
}

/// The problem of a topic that is published with several types.
pub(crate) fn several_types(topic: &str, types: &str) -> Problem {
    let text =
        format!("published with several types: {types}; each subscriber sees only some of them");
    Problem::whole(ProblemKind::ConflictingDefinition, text).on_topic(topic)
}
