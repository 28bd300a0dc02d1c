//! Discovery: writers as publishers, and mismatched quality of service.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use asof_core::{Problem, ProblemKind, Schema};
use rustdds::discovery::DiscoveredWriterData;
use rustdds::policy::{Durability as DdsDurability, Reliability as DdsReliability};
use rustdds::qos::QosPolicyId;
use rustdds::{DomainParticipant, QosPolicies};

use super::descriptions::{Describer, Unknown};
use super::{Losses, Shared};
use crate::Publisher;
use crate::describe::Described;
use crate::graph::{Graph, Origin};
use crate::ros::{
    Durability, Guid, History, QosProfile, Reliability, announced_type_hash, describing_node,
    ros_topic_name, ros_type_name,
};

/// At most this many writers are followed; more than any robot has.
const MOST_WRITERS: usize = 20_000;
/// At most this many writers that have left are remembered.
const MOST_LEFT: usize = 1_000;
/// The shortest time between two polls of discovery.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// At most this many nodes of a process are asked for a type whose node is unknown.
const MOST_ASKED: usize = 16;
/// At most this many mismatches are reported.
const MOST_MISMATCHES: usize = 100;

/// A DDS topic with one type and one kind of writers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DdsTopic {
    /// Its key in the graph.
    pub key: String,
    /// Its name on DDS.
    pub name: String,
    /// Its name in ROS.
    pub ros_name: String,
    /// Its type, in the spelling of DDS.
    pub type_name: String,
    /// Whether its writers keep messages for late joiners, and resend lost ones.
    pub is_latched: bool,
}

/// Discovered writers, as publishers of the graph.
pub(super) struct Directory {
    graph: Weak<Graph>,
    writers: HashMap<Guid, TopicEntry>,
    /// Writers that have left, the latest last: their last messages may not have been taken yet.
    left: VecDeque<(Guid, Arc<DdsTopic>)>,
    nodes: HashMap<Guid, String>,
    /// Nodes with a type description service.
    describers: HashSet<Describer>,
    looked: Option<Instant>,
}

struct TopicEntry {
    topic: Arc<DdsTopic>,
    node: String,
    hash: Option<String>,
    described: Arc<Described>,
}

impl Directory {
    pub fn new(graph: Weak<Graph>) -> Self {
        Directory {
            graph,
            writers: HashMap::new(),
            left: VecDeque::new(),
            nodes: HashMap::new(),
            describers: HashSet::new(),
            looked: None,
        }
    }

    /// Types without a definition, and the nodes to ask: the publishing node, or, as long as that is not known, all
    /// nodes of its process.
    pub fn unknown(&self) -> HashSet<(Describer, Unknown)> {
        let mut found = HashSet::new();
        if self.describers.is_empty() {
            return found;
        }
        for (guid, known) in &self.writers {
            let Some(hash) = &known.hash else {
                continue;
            };
            if !known.described.is_pending() {
                continue;
            }
            let unknown = Unknown {
                type_name: ros_type_name(&known.topic.type_name),
                hash: hash.clone(),
            };
            let beside = self.describers.iter();
            let mut asked: Vec<_> = beside.filter(|of| of.writer[..12] == guid[..12]).collect();
            if asked.iter().any(|of| of.node == known.node) {
                asked.retain(|of| of.node == known.node);
            }
            let asked = asked.into_iter().take(MOST_ASKED);
            found.extend(asked.map(|of| (of.clone(), unknown.clone())));
        }
        found
    }

    /// Whether a node with a type description service is still there.
    pub fn has(&self, describer: &Describer) -> bool {
        self.describers.contains(describer)
    }

    /// Adds the description of a type.
    pub fn learn(&self, unknown: &Unknown, schema: &Schema) {
        let Some(graph) = self.graph.upgrade() else {
            return;
        };
        let mut keys = BTreeSet::new();
        for known in self.writers.values() {
            let is_it = known.hash.as_deref() == Some(&unknown.hash)
                && ros_type_name(&known.topic.type_name) == unknown.type_name;
            if is_it && known.described.learn_if_pending(schema.clone()) {
                keys.insert(known.topic.key.as_str());
            }
        }
        for key in keys {
            graph.renew(key);
        }
    }

    /// Sets the names of nodes by their writers.
    pub fn set_nodes(&mut self, nodes: HashMap<Guid, String>) {
        self.nodes = nodes;
    }

    fn is_known(&self, writer: &Guid) -> bool {
        self.writers.contains_key(writer)
    }

    /// Whether a writer publishes on a key, or did until it left; `None` for a writer that is not known.
    pub fn is_of(&self, writer: &Guid, key: &str) -> Option<bool> {
        let known = self.writers.get(writer).map(|known| &known.topic);
        let left = || self.left.iter().find(|(guid, _)| guid == writer);
        let topic = known.or_else(|| left().map(|(_, topic)| topic))?;
        Some(topic.key == key)
    }

    /// Polls discovery for a writer whose message came before the writer was seen; not for each of its messages, since
    /// the writer may be one that is skipped.
    pub fn look_for(&mut self, writer: &Guid, participant: &DomainParticipant, shared: &Shared) {
        let is_due = self
            .looked
            .is_none_or(|last| last.elapsed() >= MIN_POLL_INTERVAL);
        if is_due && !self.is_known(writer) {
            self.look(participant, shared);
        }
    }

    /// Reports writers that have come or gone to the graph.
    pub fn look(&mut self, participant: &DomainParticipant, shared: &Shared) {
        self.looked = Some(Instant::now());
        let Some(graph) = self.graph.upgrade() else {
            return;
        };
        let found = participant.discovered_writers();
        let mut participants = HashSet::new();
        let mut present = HashSet::with_capacity(found.len());
        for writer in &found {
            let guid = writer.publication_topic_data.key.to_bytes();
            participants.insert(<[u8; 12]>::try_from(&guid[..12]).unwrap_or_default());
            present.insert(guid);
            self.appeared(&graph, guid, writer, shared);
        }
        let gone: Vec<Guid> = self.writers.keys().copied().collect();
        for guid in gone.into_iter().filter(|guid| !present.contains(guid)) {
            if let Some(known) = self.writers.remove(&guid) {
                self.left.push_back((guid, known.topic));
            }
            graph.gone(&name_of(&guid));
        }
        let excess = self.left.len().saturating_sub(MOST_LEFT);
        self.left.drain(..excess);
        self.describers.retain(|of| present.contains(&of.writer));
        let mismatches = self.mismatches(participant, &found);
        self.tell(participants.len(), mismatches, shared);
    }

    fn appeared(
        &mut self,
        graph: &Graph,
        guid: Guid,
        writer: &DiscoveredWriterData,
        shared: &Shared,
    ) {
        let node = self.nodes.get(&guid).cloned().unwrap_or_default();
        if let Some(known) = self.writers.get(&guid)
            && known.node == node
        {
            return;
        }
        let told = &writer.publication_topic_data;
        let Some(ros_name) = ros_topic_name(&told.topic_name) else {
            let node = describing_node(&told.topic_name, &told.type_name);
            if self.describers.len() < MOST_WRITERS {
                let describer = node.map(|node| Describer { writer: guid, node });
                self.describers.extend(describer);
            }
            return;
        };
        if self.writers.len() >= MOST_WRITERS && !self.writers.contains_key(&guid) {
            if Losses::count(&shared.losses.crowded) {
                tracing::warn!("there are more than {MOST_WRITERS} writers; the rest are skipped");
            }
            return;
        }
        let qos = profile(&told.qos());
        let hash = announced_type_hash(&writer.user_data);
        let topic = Arc::new(topic(
            &told.topic_name,
            ros_name,
            &told.type_name,
            hash.as_deref(),
            qos,
        ));
        let described = graph.described(&topic.key, |definitions| {
            let metadata = Some(("dds_qos", qos.to_text()));
            let type_name = ros_type_name(&topic.type_name);
            Described::ros2(
                &topic.ros_name,
                type_name,
                hash.as_deref(),
                metadata,
                definitions,
            )
        });
        let publisher = Publisher {
            node: node.clone(),
            key: topic.key.clone(),
            qos: Some(qos),
            channel: described.known().channel,
            described: Arc::clone(&described),
            origin: Origin::Dds(Arc::clone(&topic)),
        };
        let known = TopicEntry {
            topic,
            node,
            hash,
            described,
        };
        // Before the graph reports it: its first message may come at once.
        self.writers.insert(guid, known);
        graph.appeared(name_of(&guid), publisher);
    }

    fn tell(&self, participants: usize, mismatches: Vec<(String, String)>, shared: &Shared) {
        let mut publishers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut without_hash = BTreeSet::new();
        for known in self.writers.values() {
            if !known.node.is_empty() {
                let nodes = publishers.entry(known.topic.ros_name.clone()).or_default();
                nodes.insert(known.node.clone());
            }
            if known.hash.is_none() {
                without_hash.insert(known.topic.ros_name.as_str());
            }
        }
        let publishers = publishers
            .into_iter()
            .map(|(topic, nodes)| (topic, nodes.into_iter().collect()));
        let mut told = shared.told.lock();
        told.publishers = publishers.collect();
        told.without_hash = without_hash.len();
        told.writers = self.writers.len();
        told.describers = self.describers.len();
        told.participants = participants;
        told.mismatches = mismatches;
    }

    /// Writers and readers of one topic on the robot whose quality of service does not match.
    fn mismatches(
        &self,
        participant: &DomainParticipant,
        writers: &[DiscoveredWriterData],
    ) -> Vec<(String, String)> {
        let mut by_topic: HashMap<&str, Vec<&DiscoveredWriterData>> = HashMap::new();
        for writer in writers {
            let topic = writer.publication_topic_data.topic_name.as_str();
            by_topic.entry(topic).or_default().push(writer);
        }
        let mut told = BTreeSet::new();
        for reader in participant.discovered_readers() {
            let asked = &reader.subscription_topic_data;
            let Some(topic) = ros_topic_name(asked.topic_name()) else {
                continue;
            };
            let offers = by_topic.get(asked.topic_name().as_str());
            for writer in offers.into_iter().flatten() {
                let offered = &writer.publication_topic_data;
                if offered.type_name != *asked.type_name() {
                    // A topic with several types is reported as such.
                    continue;
                }
                let Some(policy) = offered_of(&offered.qos()).compliance_failure_wrt(&asked.qos())
                else {
                    continue;
                };
                let of = self.node_of(offered.key.to_bytes());
                let to = self.node_of(asked.key().to_bytes());
                let sentence = sentence(&of, &to, policy, &offered.qos(), &asked.qos());
                if told.len() < MOST_MISMATCHES {
                    told.insert((topic.clone(), sentence));
                }
            }
        }
        told.into_iter().collect()
    }

    fn node_of(&self, guid: Guid) -> String {
        let name = self.nodes.get(&guid).cloned();
        name.unwrap_or_else(|| name_of(&guid))
    }
}

/// The subscription topic for a topic's writers of one kind.
fn topic(
    name: &str,
    ros_name: String,
    type_name: &str,
    hash: Option<&str>,
    qos: QosProfile,
) -> DdsTopic {
    let is_latched =
        qos.durability == Durability::TransientLocal && qos.reliability == Reliability::Reliable;
    let hash = hash.map_or(String::new(), |hash| format!(", {hash}"));
    let latched = if is_latched { ", latched" } else { "" };
    DdsTopic {
        key: format!("{name} ({type_name}{hash}{latched})"),
        name: name.to_owned(),
        ros_name,
        type_name: type_name.to_owned(),
        is_latched,
    }
}

/// A writer's quality of service as a ROS profile. Policies that it does not announce are the defaults of DDS writers:
/// reliable and volatile. Discovery does not include the history depth.
fn profile(offered: &QosPolicies) -> QosProfile {
    let reliability = match offered.reliability() {
        Some(DdsReliability::BestEffort) => Reliability::BestEffort,
        Some(DdsReliability::Reliable { .. }) | None => Reliability::Reliable,
    };
    let durability = match offered.durability() {
        None | Some(DdsDurability::Volatile) => Durability::Volatile,
        Some(_) => Durability::TransientLocal,
    };
    QosProfile {
        reliability,
        durability,
        history: History::KeepLast,
        ..QosProfile::default()
    }
}

/// A writer's quality of service with the defaults of writers filled in: RustDDS would fill in those of readers.
fn offered_of(offered: &QosPolicies) -> QosPolicies {
    let reliable = DdsReliability::Reliable {
        max_blocking_time: rustdds::Duration::ZERO,
    };
    let mut said = rustdds::QosPolicyBuilder::new()
        .reliability(reliable)
        .build();
    said = said.modify_by(offered);
    said
}

fn sentence(
    of: &str,
    to: &str,
    policy: QosPolicyId,
    offered: &QosPolicies,
    asked: &QosPolicies,
) -> String {
    let (offers, asks) = (profile(offered), asked);
    match policy {
        QosPolicyId::Reliability => {
            format!(
                "{of} offers BEST_EFFORT and {to} requests RELIABLE: {to} receives nothing from it"
            )
        }
        QosPolicyId::Durability => format!(
            "{of} offers {:?} and {to} requests {:?}: {to} receives nothing from it",
            offers.durability,
            asks.durability().unwrap_or(DdsDurability::Volatile),
        ),
        other => format!(
            "{of} does not offer the {other:?} that {to} requests: {to} receives nothing from it"
        ),
    }
}

/// A mismatch as a problem.
pub(super) fn mismatch(text: &str) -> Problem {
    Problem::whole(ProblemKind::ConflictingDefinition, text.to_owned())
}

/// The name of a writer in the graph.
fn name_of(guid: &Guid) -> String {
    use std::fmt::Write as _;
    let mut name = String::with_capacity(32);
    for byte in guid {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustdds::QosPolicyBuilder;

    #[test]
    fn a_writer_that_does_not_say_is_reliable_and_volatile() {
        let silent = profile(&QosPolicies::qos_none());
        assert_eq!(silent.reliability, Reliability::Reliable);
        assert_eq!(silent.durability, Durability::Volatile);
    }

    #[test]
    fn a_writer_that_keeps_messages_without_sending_them_again_is_read_like_any_other() {
        let kept = QosPolicyBuilder::new().durability(DdsDurability::TransientLocal);
        let of = |qos: QosPolicies| topic("rt/a", "/a".to_owned(), "b", None, profile(&qos));
        assert!(
            of(kept.build()).is_latched,
            "what it does not say is reliable"
        );
        let kept = QosPolicyBuilder::new()
            .durability(DdsDurability::TransientLocal)
            .reliability(DdsReliability::BestEffort);
        assert!(!of(kept.build()).is_latched);
    }

    #[test]
    fn writers_of_another_hash_or_kind_are_on_another_key() {
        let (volatile, latched) = (
            QosProfile::default(),
            QosProfile {
                durability: Durability::TransientLocal,
                ..QosProfile::default()
            },
        );
        let key = |hash, qos| topic("rt/a", "/a".to_owned(), "b", hash, qos).key;
        let keys = [
            key(None, volatile),
            key(None, latched),
            key(Some("RIHS01_1"), volatile),
            key(Some("RIHS01_2"), volatile),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 4, "{keys:?}");
    }

    #[test]
    fn a_silent_writer_is_no_mismatch_for_a_reader_that_asks_for_reliable() {
        let asked = QosPolicyBuilder::new().reliability(DdsReliability::Reliable {
            max_blocking_time: rustdds::Duration::ZERO,
        });
        let asked = asked.build();
        let silent = offered_of(&QosPolicies::qos_none());
        assert!(silent.compliance_failure_wrt(&asked).is_none());
        let careless = QosPolicyBuilder::new()
            .reliability(DdsReliability::BestEffort)
            .build();
        let policy = offered_of(&careless).compliance_failure_wrt(&asked);
        let policy = policy.expect("a mismatch");
        let text = sentence("/lidar", "/map", policy, &careless, &asked);
        assert!(text.starts_with("/lidar offers BEST_EFFORT"), "{text}");
    }
}
