//! The graph of publishers, as discovered by a transport.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Instant;

use asof_core::Channel;
use asof_formats::Definitions;
use parking_lot::Mutex;

use crate::Topic;
use crate::describe::Described;
use crate::ros::{BridgeToken, QosProfile, Token, TopicKey};

/// A publisher that was discovered.
#[derive(Debug, Clone)]
pub struct Publisher {
    /// Its node, with the namespace; empty where the transport does not provide it.
    pub node: String,
    /// Where its messages are: the exact key on Zenoh, the topic and its type elsewhere.
    pub key: String,
    /// Its quality of service, where the transport provides it.
    pub qos: Option<QosProfile>,
    /// Its topic, type and schema, as far as they are known.
    pub channel: Arc<Channel>,
    pub(crate) described: Arc<Described>,
    pub(crate) origin: Origin,
}

/// A publisher's identity in its transport.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// A token of rmw_zenoh.
    Token(Box<Token>, TopicKey),
    /// A token of a bridge from DDS to Zenoh.
    Bridge(BridgeToken),
    /// A topic on DDS.
    #[cfg(feature = "dds")]
    Dds(Arc<crate::transport::DdsTopic>),
    /// A raw key.
    Key,
}

impl Publisher {
    /// Whether a direct publisher of the same topic makes it redundant.
    fn is_bridged(&self) -> bool {
        matches!(self.origin, Origin::Bridge(_))
    }
}

/// An observer of publishers as they appear.
pub(crate) trait Interest: Send + Sync {
    fn appeared(&self, publisher: &Publisher);
    /// Nothing on this key is wanted any more.
    fn retired(&self, key: &str);
    /// Nobody publishes on this key any more.
    fn idle(&self, key: &str);
}

/// So many subscriptions are declared at a time.
const PARALLEL_SUBSCRIPTIONS: usize = 8;

/// The publishers, and the observers of changes.
#[derive(Default)]
pub(crate) struct Graph {
    state: Mutex<State>,
    /// When the last publisher appeared.
    changed: Mutex<Option<Instant>>,
    interests: Mutex<Vec<Weak<dyn Interest>>>,
}

#[derive(Default)]
struct State {
    /// By the transport's name for them.
    publishers: HashMap<String, Arc<Publisher>>,
    /// Bridged publishers of topics that are also published without the bridge: each topic is listed once.
    shadowed: HashMap<String, Arc<Publisher>>,
    definitions: Definitions,
    /// The type on a key, and the number of publishers on it.
    channels: HashMap<String, (Arc<Described>, usize)>,
    /// The number of direct publishers of a topic.
    direct: HashMap<String, usize>,
    /// The number of bridged publishers.
    bridged: usize,
}

impl Graph {
    /// Adds an observer of publishers; returns those that are there.
    pub fn listen(&self, interest: Weak<dyn Interest>) -> Vec<Arc<Publisher>> {
        // Added first, then given what is there: a publisher that appears in between is reported twice, which is
        // detected, and never missed.
        self.interests.lock().push(interest);
        self.publishers()
    }

    pub fn publishers(&self) -> Vec<Arc<Publisher>> {
        self.state.lock().publishers.values().cloned().collect()
    }

    /// The type on a key; made by `describe` where it is not known yet.
    pub fn described(
        &self,
        key: &str,
        describe: impl FnOnce(&Definitions) -> Described,
    ) -> Arc<Described> {
        let mut state = self.state.lock();
        if let Some((known, _)) = state.channels.get(key) {
            return Arc::clone(known);
        }
        let described = Arc::new(describe(&state.definitions));
        let known = (Arc::clone(&described), 0);
        state.channels.insert(key.to_owned(), known);
        described
    }

    /// Adds publishers that were discovered together, some at a time.
    pub fn appeared_together(&self, publishers: Vec<(String, Publisher)>) {
        let share = publishers.len().div_ceil(PARALLEL_SUBSCRIPTIONS).max(1);
        let mut publishers = publishers.into_iter();
        std::thread::scope(|scope| {
            loop {
                let some: Vec<_> = publishers.by_ref().take(share).collect();
                if some.is_empty() {
                    return;
                }
                let add = move || {
                    for (name, publisher) in some {
                        self.appeared(name, publisher);
                    }
                };
                if publishers.len() == 0 {
                    // The last share, or the only one, needs no thread.
                    return add();
                }
                scope.spawn(add);
            }
        });
    }

    /// When the last publisher appeared.
    pub fn changed(&self) -> Option<Instant> {
        *self.changed.lock()
    }

    /// How many publishers there are.
    pub fn len(&self) -> usize {
        let state = self.state.lock();
        state.publishers.len() + state.shadowed.len()
    }

    /// How many keys have a type.
    #[cfg(test)]
    pub fn types(&self) -> usize {
        self.state.lock().channels.len()
    }

    /// Adds a publisher under a name, and notifies the observers.
    pub fn appeared(&self, name: String, publisher: Publisher) {
        *self.changed.lock() = Some(Instant::now());
        let publisher = Arc::new(publisher);
        let retired = {
            let mut state = self.state.lock();
            if publisher.is_bridged() && state.direct.contains_key(&publisher.channel.topic) {
                state.drop_unused(&publisher.key);
                state.shadowed.insert(name, publisher);
                return;
            }
            let retired = if publisher.is_bridged() {
                Vec::new()
            } else {
                state.shadow(&publisher.channel.topic)
            };
            state.add(name, &publisher);
            retired
        };
        for interest in self.interested() {
            for key in &retired {
                interest.retired(key);
            }
            interest.appeared(&publisher);
        }
    }

    /// Removes a publisher; with the last one on a key, the type of the key too: topics may come and go for as long as
    /// the robot runs.
    pub fn gone(&self, name: &str) {
        let (idle, back) = {
            let mut state = self.state.lock();
            state.shadowed.remove(name);
            let Some(gone) = state.remove(name) else {
                return;
            };
            let is_idle = !state.channels.contains_key(&gone.key);
            let idle = is_idle.then(|| gone.key.clone());
            (idle, state.uncover(&gone.channel.topic))
        };
        if let Some(key) = idle {
            for interest in self.interested() {
                interest.idle(&key);
            }
        }
        for (name, publisher) in back {
            self.appeared(name, Publisher::clone(&publisher));
        }
    }

    /// Updates the channel of the publishers on a key.
    pub fn renew(&self, key: &str) {
        self.state.lock().renew(key);
    }

    /// Adds definitions of types.
    pub fn set_definitions(&self, definitions: Definitions) {
        let mut state = self.state.lock();
        state.definitions = definitions;
        for (described, _) in state.channels.values() {
            described.look_up(&state.definitions);
        }
        let keys: Vec<_> = state.channels.keys().cloned().collect();
        for key in keys {
            state.renew(&key);
        }
    }

    /// The topics that are published now, by name.
    pub fn topics(&self) -> Vec<Topic> {
        let state = self.state.lock();
        let mut topics: BTreeMap<&str, Topic> = BTreeMap::new();
        for publisher in state.publishers.values() {
            let name = publisher.channel.topic.as_str();
            let topic = topics.entry(name).or_insert_with(|| Topic {
                name: name.to_owned(),
                types: Vec::new(),
                publishers: Vec::new(),
            });
            let kind = publisher.channel.type_name().to_owned();
            if !topic.types.contains(&kind) {
                topic.types.push(kind);
            }
            topic.publishers.push(Arc::clone(publisher));
        }
        topics.into_values().collect()
    }

    fn interested(&self) -> Vec<Arc<dyn Interest>> {
        let mut list = self.interests.lock();
        list.retain(|interest| interest.strong_count() > 0);
        list.iter().filter_map(Weak::upgrade).collect()
    }
}

impl State {
    fn add(&mut self, name: String, publisher: &Arc<Publisher>) {
        let described = &publisher.described;
        let known = self
            .channels
            .entry(publisher.key.clone())
            .or_insert_with(|| (Arc::clone(described), 0));
        known.1 += 1;
        if publisher.is_bridged() {
            self.bridged += 1;
        } else {
            let topic = publisher.channel.topic.clone();
            *self.direct.entry(topic).or_default() += 1;
        }
        // A token that is seen twice is one publisher.
        if let Some(before) = self.publishers.insert(name, Arc::clone(publisher)) {
            self.forget(&before);
        }
    }

    fn remove(&mut self, name: &str) -> Option<Arc<Publisher>> {
        let gone = self.publishers.remove(name)?;
        self.forget(&gone);
        Some(gone)
    }

    /// Removes a publisher from the counts.
    fn forget(&mut self, gone: &Publisher) {
        if let Some((_, count)) = self.channels.get_mut(&gone.key) {
            *count -= 1;
        }
        self.drop_unused(&gone.key);
        if gone.is_bridged() {
            self.bridged -= 1;
        } else if let Some(count) = self.direct.get_mut(&gone.channel.topic) {
            *count -= 1;
            if *count == 0 {
                self.direct.remove(&gone.channel.topic);
            }
        }
    }

    /// Drops the type of a key that has no publisher.
    fn drop_unused(&mut self, key: &str) {
        if self.channels.get(key).is_some_and(|(_, count)| *count == 0) {
            self.channels.remove(key);
        }
    }

    /// Sets the bridged publishers of a topic aside; returns the keys that are no longer published.
    fn shadow(&mut self, topic: &str) -> Vec<String> {
        if self.bridged == 0 {
            return Vec::new();
        }
        let is_meant = |one: &Arc<Publisher>| one.is_bridged() && one.channel.topic == topic;
        let names = self.publishers.iter().filter(|(_, one)| is_meant(one));
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        let mut keys = Vec::new();
        for name in names {
            if let Some(publisher) = self.remove(&name) {
                if !keys.contains(&publisher.key) {
                    keys.push(publisher.key.clone());
                }
                self.shadowed.insert(name, publisher);
            }
        }
        keys
    }

    /// Restores the bridged publishers of a topic, if it has no direct publisher.
    fn uncover(&mut self, topic: &str) -> Vec<(String, Arc<Publisher>)> {
        let is_it = |one: &Arc<Publisher>| one.channel.topic == topic;
        if self.shadowed.is_empty() || self.direct.contains_key(topic) {
            return Vec::new();
        }
        let names = self.shadowed.iter().filter(|(_, one)| is_it(one));
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        let taken = names.into_iter().filter_map(|name| {
            let publisher = self.shadowed.remove(&name)?;
            Some((name, publisher))
        });
        taken.collect()
    }

    fn renew(&mut self, key: &str) {
        for publisher in self.publishers.values_mut() {
            if publisher.key == key {
                let channel = publisher.described.known().channel;
                *publisher = Arc::new(Publisher {
                    channel,
                    ..Publisher::clone(publisher)
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Noted(Mutex<Vec<String>>);

    impl Interest for Noted {
        fn appeared(&self, publisher: &Publisher) {
            self.0.lock().push(format!("+{}", publisher.key));
        }

        fn retired(&self, key: &str) {
            self.0.lock().push(format!("-{key}"));
        }

        fn idle(&self, _key: &str) {}
    }

    fn publisher(graph: &Graph, key: &str, topic: &str, origin: Origin) -> Publisher {
        let channel = Channel {
            topic: topic.to_owned(),
            ..Channel::default()
        };
        let described = graph.described(key, |_| Described::complete(channel));
        Publisher {
            node: String::new(),
            key: key.to_owned(),
            qos: None,
            channel: described.known().channel,
            described,
            origin,
        }
    }

    fn bridge() -> Origin {
        let token = BridgeToken::parse("@/6a/@ros2_lv/MP/imu/a§msg§B/:::").expect("a token");
        Origin::Bridge(token.expect("a publisher"))
    }

    fn listened() -> (Graph, Arc<Noted>) {
        let (graph, noted) = (Graph::default(), Arc::new(Noted::default()));
        let interest: Arc<dyn Interest> = Arc::<Noted>::clone(&noted);
        assert!(graph.listen(Arc::downgrade(&interest)).is_empty());
        (graph, noted)
    }

    #[test]
    fn a_topic_that_is_also_bridged_is_there_once_whichever_came_first() {
        for bridge_first in [true, false] {
            let (graph, noted) = listened();
            let direct = publisher(&graph, "0/imu/x", "/imu", Origin::Key);
            let bridged = publisher(&graph, "imu", "/imu", bridge());
            let mut both = [("d", direct), ("b", bridged)];
            if bridge_first {
                both.reverse();
            }
            for (name, one) in both {
                graph.appeared(name.to_owned(), one);
            }
            let keys: Vec<String> = graph.publishers().iter().map(|p| p.key.clone()).collect();
            assert_eq!(keys, ["0/imu/x"]);
            graph.gone("d");
            let expected: &[&str] = if bridge_first {
                &["+imu", "-imu", "+0/imu/x", "+imu"]
            } else {
                &["+0/imu/x", "+imu"]
            };
            assert_eq!(*noted.0.lock(), expected);
            graph.gone("b");
            assert!(graph.topics().is_empty());
            assert_eq!(graph.types(), 0);
        }
    }

    #[test]
    fn a_bridged_publisher_that_goes_unseen_leaves_nothing() {
        let (graph, _noted) = listened();
        let direct = publisher(&graph, "0/imu/x", "/imu", Origin::Key);
        graph.appeared("d".to_owned(), direct);
        let bridged = publisher(&graph, "imu", "/imu", bridge());
        graph.appeared("b".to_owned(), bridged);
        graph.gone("b");
        graph.gone("d");
        assert_eq!((graph.len(), graph.types()), (0, 0));
    }

    #[test]
    fn other_topics_of_a_bridge_stay() {
        let (graph, _noted) = listened();
        let bridged = publisher(&graph, "scan", "/scan", bridge());
        graph.appeared("b".to_owned(), bridged);
        let direct = publisher(&graph, "0/imu/x", "/imu", Origin::Key);
        graph.appeared("d".to_owned(), direct);
        assert_eq!(graph.topics().len(), 2);
    }

    #[test]
    fn what_is_known_of_a_type_goes_with_its_last_publisher() {
        let (graph, _noted) = listened();
        for name in ["a", "b", "b"] {
            let one = publisher(&graph, "0/imu/x", "/imu", Origin::Key);
            graph.appeared(name.to_owned(), one);
        }
        graph.gone("a");
        assert_eq!(graph.types(), 1);
        graph.gone("b");
        let state = graph.state.lock();
        assert!(state.channels.is_empty() && state.direct.is_empty() && state.bridged == 0);
    }
}
