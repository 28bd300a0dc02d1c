//! The robots of a source: topics of transforms by their namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use asof_core::{Batch, Channel, Message, Summary};

use crate::loader::{Absorbed, ClockJump, Kind, TransformLoader, last_part};

/// The namespaces of the topics that feed transforms. `/robot1/tf` and `/robot2/tf` are of two robots, whose frames have the
/// same names; `/tf` is in the namespace without a name.
///
/// A namespace is where a topic `tf` is. Static transforms, descriptions, joint states and transforms of other topics belong
/// to the nearest namespace above them; those without one to all below them, or else to the only one there is.
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
        let above = std::iter::successors(Some(own), |inner| {
            inner.rsplit_once('/').map(|(outer, _)| outer)
        });
        if let Some(above) = above.into_iter().find(|above| heads.contains(*above)) {
            return vec![above];
        }
        let is_moving = self
            .topics
            .get(topic)
            .is_some_and(|rank| *rank <= Rank::Moving);
        if is_moving {
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

/// Loads the transforms of several robots: a [`TransformLoader`] for each of the [`Namespaces`] of their topics.
pub struct TransformLoaders {
    namespaces: Namespaces,
    /// By namespace, in order.
    loaders: Vec<(String, TransformLoader)>,
    make: Box<dyn FnMut(&str) -> TransformLoader + Send>,
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
            is_new: false,
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
            let names = self.namespaces.names();
            // One robot stays one when its namespace turns out to be another.
            let has_more = names.len() != self.loaders.len();
            for name in names.into_iter().filter(|_| has_more) {
                if let Err(place) = self.loaders.binary_search_by(|(known, _)| known.cmp(&name)) {
                    let loader = (self.make)(&name);
                    self.loaders.insert(place, (name, loader));
                }
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

    pub(crate) fn finish(&mut self) -> Absorbed {
        let mut all = Absorbed::default();
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

#[cfg(test)]
mod tests {
    use super::*;
    use asof_core::Schema;

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
