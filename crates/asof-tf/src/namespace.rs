//! The robots of a source: topics of transforms by their namespaces.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use asof_core::{Batch, Channel, Message, Problem, ProblemKind, Summary};

use crate::loader::{Absorbed, ClockJump, Kind, TransformLoader, last_part};

/// The namespaces of the topics that feed transforms. `/robot1/tf` and `/robot2/tf` are of two robots, whose frames have the
/// same names; `/tf` is in the namespace without a name.
///
/// A namespace is where a topic `tf` is. Static transforms, descriptions, joint states and transforms of other topics belong
/// to the nearest namespace above them; those without one to all below them, those that come later too, or else to the only
/// one there is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces {
    topics: BTreeMap<String, Rank>,
    /// The namespaces of the topics that say most.
    heads: BTreeSet<String>,
    best: Option<Rank>,
}

/// How much a topic says about where a robot's namespace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Transforms on a topic `tf`.
    Tf,
    /// Other transforms.
    Moving,
    /// Static transforms.
    Static,
    /// Descriptions and joint states.
    Joints,
}

impl Namespaces {
    /// Those of a source.
    pub fn of(summary: &Summary) -> Self {
        let mut namespaces = Namespaces::default();
        for entry in &summary.channels {
            namespaces.learn(&entry.channel);
        }
        namespaces
    }

    /// Adds the topic of a channel that feeds transforms; returns whether it is new.
    pub fn learn(&mut self, channel: &Channel) -> bool {
        if self.topics.contains_key(&channel.topic) {
            return false;
        }
        let rank = match (Kind::of(channel), last_part(&channel.topic)) {
            (None, _) => return false,
            (Some(Kind::Joints(_) | Kind::Description(_)), _) => Rank::Joints,
            (_, "tf") => Rank::Tf,
            (_, "tf_static") => Rank::Static,
            _ => Rank::Moving,
        };
        self.topics.insert(channel.topic.clone(), rank);
        if self.best.is_none_or(|best| rank < best) {
            self.best = Some(rank);
            self.heads.clear();
        }
        if self.best == Some(rank) {
            self.heads.insert(namespace(&channel.topic).to_owned());
        }
        true
    }

    /// Their names, as `/robot1`; empty for that of `/tf`.
    pub fn names(&self) -> Vec<String> {
        // Topics of one namespace belong together: they are looked up once.
        let mut alike: BTreeSet<(&str, bool)> = BTreeSet::new();
        let names: BTreeSet<&str> = (self.topics.iter())
            .filter(|(topic, rank)| alike.insert((namespace(topic), **rank <= Rank::Moving)))
            .flat_map(|(topic, _)| self.of_topic(topic))
            .collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// The namespaces that a topic belongs to: one, or several that share its static transforms.
    pub fn of_topic<'a>(&'a self, topic: &'a str) -> Vec<&'a str> {
        let own = namespace(topic);
        let heads = &self.heads;
        if let Some(above) = self.above(own) {
            return vec![above];
        }
        if self.is_moving(topic) {
            return vec![own];
        }
        let below: Vec<&str> = heads
            .range::<str, _>((Bound::Included(own), Bound::Unbounded))
            .map(String::as_str)
            .take_while(|head| head.starts_with(own))
            .filter(|head| is_within(head, own))
            .collect();
        match (below.is_empty(), heads.first()) {
            (false, _) => below,
            (true, Some(only)) if heads.len() == 1 => vec![only],
            _ => vec![own],
        }
    }

    /// The nearest namespace that has transforms of its own.
    fn above<'a>(&self, own: &'a str) -> Option<&'a str> {
        let mut all = std::iter::successors(Some(own), |inner| {
            inner.rsplit_once('/').map(|(outer, _)| outer)
        });
        all.find(|above| self.heads.contains(*above))
    }

    fn is_moving(&self, topic: &str) -> bool {
        let rank = self.topics.get(topic);
        rank.is_some_and(|rank| *rank <= Rank::Moving)
    }

    /// Whether robots that are not known yet may share what a topic says for all times.
    fn may_be_shared(&self, channel: &Channel) -> bool {
        let topic = channel.topic.as_str();
        !self.is_moving(topic)
            && (self.best != Some(Rank::Tf) || self.above(namespace(topic)).is_none())
            && !matches!(Kind::of(channel), Some(Kind::Joints(_)))
    }
}

/// The part of a topic's name before its last part.
pub(crate) fn namespace(topic: &str) -> &str {
    topic
        .rsplit_once('/')
        .map_or("", |(namespace, _)| namespace)
}

/// Whether a namespace is another one, or in it.
fn is_within(inner: &str, outer: &str) -> bool {
    let rest = inner.strip_prefix(outer);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Is called with the old and the new name of a namespace.
type Renamed = Box<dyn FnMut(&str, &str) + Send>;

/// Loads the transforms of several robots: a [`TransformLoader`] for each of the [`Namespaces`] of their topics.
pub struct TransformLoaders {
    namespaces: Namespaces,
    /// By namespace, in order.
    loaders: Vec<(String, TransformLoader)>,
    make: Box<dyn FnMut(&str) -> TransformLoader + Send>,
    renamed: Renamed,
    shared: SharedMessages,
    /// Whether there are topics whose namespaces have not been looked up.
    is_new: bool,
}

impl TransformLoaders {
    /// `make` is called once for each namespace, in the order of their names as far as they are known.
    pub fn new(make: impl FnMut(&str) -> TransformLoader + Send + 'static) -> Self {
        TransformLoaders {
            namespaces: Namespaces::default(),
            loaders: Vec::new(),
            make: Box::new(make),
            renamed: Box::new(|_, _| {}),
            shared: SharedMessages::default(),
            is_new: false,
        }
    }

    /// `renamed` is called with the old and the new name when the namespace of a robot turns out to be another: its static
    /// transforms came on `/tf_static`, and then others on `/robot1/tf`.
    #[must_use]
    pub fn on_rename(self, renamed: impl FnMut(&str, &str) + Send + 'static) -> Self {
        TransformLoaders {
            renamed: Box::new(renamed),
            ..self
        }
    }

    /// The loaders with their namespaces.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TransformLoader)> {
        self.loaders
            .iter()
            .map(|(name, loader)| (name.as_str(), loader))
    }

    pub(crate) fn into_each(self) -> impl Iterator<Item = (String, TransformLoader)> {
        self.loaders.into_iter()
    }

    /// Adds a channel before its first message comes: the more are known, the better the namespaces are.
    pub fn learn(&mut self, channel: &Channel) {
        self.is_new |= self.namespaces.learn(channel);
    }

    /// Loads the transforms of a batch.
    pub fn absorb(&mut self, batch: &Batch) -> Absorbed {
        self.take(batch);
        self.finish()
    }

    pub(crate) fn take(&mut self, batch: &Batch) {
        for message in batch.iter() {
            self.is_new |= self.namespaces.learn(message.channel);
        }
        if std::mem::take(&mut self.is_new) {
            self.fit();
        }
        for message in batch.iter() {
            if self.namespaces.may_be_shared(message.channel) {
                self.shared.keep(message.to_message());
            }
        }
        if let [(_, only)] = &mut *self.loaders {
            return only.take(batch);
        }
        let mut shares: BTreeMap<&str, Vec<Message>> = BTreeMap::new();
        for message in batch.iter() {
            for name in self.namespaces.of_topic(&message.channel.topic) {
                let share = shares.entry(name).or_default();
                share.push(message.to_message());
            }
        }
        for (name, own) in shares {
            if let Ok(place) = self
                .loaders
                .binary_search_by(|(known, _)| (**known).cmp(name))
            {
                self.loaders[place].1.take(&own.into_iter().collect());
            }
        }
    }

    /// A loader for each namespace that is known by now.
    fn fit(&mut self) {
        let mut names: BTreeSet<String> = self.namespaces.names().into_iter().collect();
        let loaders = self.loaders.iter_mut();
        let elsewhere: Vec<_> = loaders.filter(|(name, _)| !names.remove(name)).collect();
        let mut names = names.into_iter();
        // One robot stays one when its namespace turns out to be another.
        for ((own, _), name) in elsewhere.into_iter().zip(names.by_ref()) {
            (self.renamed)(own.as_str(), &name);
            *own = name;
        }
        for name in names {
            let mut loader = (self.make)(&name);
            let shared = self.shared.messages.iter();
            let is_own = |topic: &str| self.namespaces.of_topic(topic).contains(&name.as_str());
            let own = shared.filter(|message| is_own(&message.channel.topic));
            loader.take(&own.cloned().collect());
            self.loaders.push((name, loader));
        }
        self.loaders.sort_by(|(one, _), (other, _)| one.cmp(other));
    }

    pub(crate) fn finish(&mut self) -> Absorbed {
        let mut all = Absorbed {
            problems: self.shared.problem.take().into_iter().collect(),
            ..Absorbed::default()
        };
        for (name, loader) in &mut self.loaders {
            let absorbed = loader.finish();
            let jump = absorbed.jump.map(|jump| ClockJump {
                namespace: name.clone(),
                ..jump
            });
            all.transforms += absorbed.transforms;
            all.joints += absorbed.joints;
            all.jump = all.jump.or(jump);
            all.moved.extend(absorbed.moved);
            all.problems.extend(absorbed.problems);
        }
        all
    }
}

/// What robots share that were not known when it came, such as a `/tf_static` beside `/robot1/tf`: it is sent once.
#[derive(Default)]
struct SharedMessages {
    messages: VecDeque<Message>,
    bytes: usize,
    has_told: bool,
    problem: Option<Problem>,
}

/// At most this many such messages are kept, of so many bytes.
const MOST_SHARED: usize = 1_000;
const MOST_SHARED_BYTES: usize = 16 << 20;

impl SharedMessages {
    /// Keeps a message as the newest; one that says the same is replaced.
    fn keep(&mut self, message: Message) {
        let is_same = |one: &Message| {
            one.channel.topic == message.channel.topic && one.payload == message.payload
        };
        if let Some(known) = self.messages.iter().position(is_same) {
            self.bytes -= message.payload.len();
            self.messages.remove(known);
        }
        self.bytes += message.payload.len();
        self.messages.push_back(message.detached());
        while self.messages.len() > MOST_SHARED || self.bytes > MOST_SHARED_BYTES {
            let Some(oldest) = self.messages.pop_front() else {
                return;
            };
            self.bytes -= oldest.payload.len();
            if !std::mem::replace(&mut self.has_told, true) {
                let text = "several robots share it, and it says so much that robots which come later do not get all of it";
                let problem = Problem::whole(ProblemKind::Incomplete, text.to_owned());
                self.problem = Some(problem.on_topic(&oldest.channel.topic));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof_core::{Schema, Stamp};
    use std::sync::{Arc, Mutex};

    fn names_of(topics: &[(&str, &str)]) -> (Namespaces, Vec<String>) {
        let mut namespaces = Namespaces::default();
        for (topic, type_name) in topics {
            let schema = Schema {
                name: (*type_name).to_owned(),
                ..Schema::default()
            };
            namespaces.learn(&Channel {
                topic: (*topic).to_owned(),
                message_encoding: "cdr".to_owned(),
                schema: Some(schema.into()),
                ..Channel::default()
            });
        }
        let names = namespaces.names();
        (namespaces, names)
    }

    const TF: &str = "tf2_msgs/msg/TFMessage";
    const TEXT: &str = "std_msgs/msg/String";

    #[test]
    fn two_robots_have_a_namespace_each() {
        let (namespaces, names) = names_of(&[
            ("/robot1/tf", TF),
            ("/robot1/tf_static", TF),
            ("/robot2/tf", TF),
            ("/robot2/arm/robot_description", TEXT),
            ("/tf_static", TF),
        ]);
        assert_eq!(names, ["/robot1", "/robot2"]);
        assert_eq!(namespaces.of_topic("/robot1/tf_static"), ["/robot1"]);
        assert_eq!(
            namespaces.of_topic("/robot2/arm/robot_description"),
            ["/robot2"]
        );
        assert_eq!(
            namespaces.of_topic("/tf_static"),
            ["/robot1", "/robot2"],
            "both"
        );
    }

    #[test]
    fn a_robot_is_told_from_one_whose_name_begins_alike() {
        let (namespaces, names) = names_of(&[("/a/tf", TF), ("/ab/tf", TF), ("/a/b/tf", TF)]);
        assert_eq!(names, ["/a", "/a/b", "/ab"]);
        assert_eq!(namespaces.of_topic("/a/b/c/joints"), ["/a/b"]);
        assert_eq!(namespaces.of_topic("/a/tf_static"), ["/a"]);
        assert_eq!(namespaces.of_topic("/tf_static"), ["/a", "/a/b", "/ab"]);
        assert_eq!(namespaces.of_topic("/abc/joints"), ["/abc"]);
    }

    #[test]
    fn the_names_of_very_many_robots_are_found_in_linear_time() {
        let make = |scale: usize| -> Vec<String> {
            let of = |at| [format!("/r{at}/tf"), format!("/r{at}/tf_static")];
            (0..200 * scale).flat_map(of).collect()
        };
        asof_core::testing::assert_linear("namespaces", make, |topics: Vec<String>| {
            let topics: Vec<(&str, &str)> = topics.iter().map(|one| (one.as_str(), TF)).collect();
            assert_eq!(names_of(&topics).1.len(), topics.len() / 2);
        });
    }

    /// A message with one transform, of CDR.
    fn message(topic: &str, parent: &str, child: &str) -> Batch {
        let mut cdr = asof_ros::CdrWriter::with_capacity(200);
        cdr.length(1).int32(5).uint32(0);
        cdr.string(parent).string(child);
        cdr.float64s(&[1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0]);
        let schema = Schema {
            name: TF.to_owned(),
            ..Schema::default()
        };
        let message = Message {
            channel: Arc::new(Channel {
                topic: topic.to_owned(),
                message_encoding: "cdr".to_owned(),
                schema: Some(schema.into()),
                ..Channel::default()
            }),
            log_time: Stamp::EPOCH,
            publish_time: Stamp::EPOCH,
            sequence: 0,
            payload: cdr.finish().into(),
        };
        std::iter::once(message).collect()
    }

    #[test]
    fn a_global_static_transform_is_of_all_robots_whenever_they_come() {
        // Before the first robot, between the two, and after both.
        for at in 0..=4 {
            let names = Arc::<Mutex<Vec<String>>>::default();
            let (made, renamed) = (Arc::clone(&names), Arc::clone(&names));
            let mut loaders = TransformLoaders::new(move |name| {
                made.lock().expect("whole").push(name.to_owned());
                TransformLoader::new(crate::TransformBuffer::new())
            })
            .on_rename(move |before, now| {
                let mut names = renamed.lock().expect("whole");
                let own = names.iter_mut().find(|name| name.as_str() == before);
                now.clone_into(own.expect("known"));
            });
            let mut batches = vec![
                message("/robot1/tf", "odom", "base"),
                message("/robot2/tf", "odom", "base"),
                message("/robot3/tf", "odom", "base"),
                message("/robot1/tf_static", "base", "camera"),
            ];
            batches.insert(at, message("/tf_static", "base", "lidar"));
            let mut absorbed = 0;
            for batch in &batches {
                let of_batch = loaders.absorb(batch);
                absorbed += of_batch.transforms;
                assert!(of_batch.problems.is_empty(), "{:?}", of_batch.problems);
            }
            let found: Vec<&str> = loaders.iter().map(|(name, _)| name).collect();
            assert_eq!(found, ["/robot1", "/robot2", "/robot3"], "{at}");
            assert_eq!(*names.lock().expect("whole"), found, "{at}");
            for (name, loader) in loaders.iter() {
                let buffer = loader.buffer();
                assert!(
                    buffer.lookup_latest("odom", "lidar").is_ok(),
                    "{name}, {at}"
                );
                let has_camera = buffer.lookup_latest("odom", "camera").is_ok();
                assert_eq!(has_camera, name == "/robot1", "{name}, {at}");
            }
            assert_eq!(
                absorbed,
                4 + 3,
                "the one that is shared counts for each, {at}"
            );
        }
    }

    #[test]
    fn what_robots_share_is_kept_once_and_within_bounds() {
        let mut shared = SharedMessages::default();
        let keep = |shared: &mut SharedMessages, child: &str| {
            let batch = message("/tf_static", "base", child);
            shared.keep(batch.iter().next().expect("one").to_message());
        };
        for _ in 0..10 {
            keep(&mut shared, "lidar");
        }
        assert_eq!(shared.messages.len(), 1);
        for number in 0..MOST_SHARED + 5 {
            keep(&mut shared, &format!("frame_{number:06}"));
        }
        assert_eq!(shared.messages.len(), MOST_SHARED);
        assert!(shared.problem.is_some(), "told");
        let bytes: usize = shared.messages.iter().map(|one| one.payload.len()).sum();
        assert_eq!(shared.bytes, bytes);
    }

    #[test]
    fn topics_beside_the_only_tf_belong_to_it() {
        let (namespaces, names) = names_of(&[
            ("/tf", TF),
            ("/camera/tf_static", TF),
            ("/slam/transforms", TF),
        ]);
        assert_eq!(names, [""]);
        assert_eq!(namespaces.of_topic("/slam/transforms"), [""]);
        let (_, names) = names_of(&[
            ("/robot/tf", TF),
            ("/tf_static", TF),
            ("/urdf/robot_description", TEXT),
        ]);
        assert_eq!(names, ["/robot"]);
        let (_, names) = names_of(&[("/tf", TF), ("/robot1/tf", TF)]);
        assert_eq!(names, ["", "/robot1"]);
    }
}
