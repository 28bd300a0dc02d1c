//! The connections of a bag: who sent what on which topic.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use asof_core::{Channel, Problem, ProblemKind, Schema};
use bytes::Bytes;

use super::record::fields;

/// The connections of a file, in the order in which they became known. Only ever grows.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTable {
    pub channels: Arc<[Arc<Channel>]>,
    /// The file's number of each connection, beside it.
    pub ids: Vec<u32>,
    by_id: ById,
}

impl ConnectionTable {
    /// The index of the channel of connection `id`.
    #[inline]
    pub fn index_of(&self, id: u32) -> Option<u32> {
        self.by_id.get(id)
    }
}

/// Indexes by the file's numbers: of the small ones, which is all of them in practice, by place.
#[derive(Debug, Clone, Default)]
struct ById {
    small: Vec<u32>,
    large: BTreeMap<u32, u32>,
}

const NONE: u32 = u32::MAX;
const MAX_DIRECT_IDS: u32 = 1 << 16;

impl ById {
    #[inline]
    fn get(&self, id: u32) -> Option<u32> {
        match self.small.get(id as usize) {
            Some(&index) => (index != NONE).then_some(index),
            None => self.large.get(&id).copied(),
        }
    }

    fn set(&mut self, id: u32, index: u32) {
        if id < MAX_DIRECT_IDS {
            if self.small.len() <= id as usize {
                self.small.resize(id as usize + 1, NONE);
            }
            self.small[id as usize] = index;
        } else {
            self.large.insert(id, index);
        }
    }
}

/// Collects connections as they are met, in chunks and in the index, as often as they are repeated.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    channels: Vec<Arc<Channel>>,
    ids: Vec<u32>,
    by_id: ById,
    /// Made when it is asked for: a bag may have very many connections, and each makes the last copy old.
    table: OnceLock<Arc<ConnectionTable>>,
    /// Definitions are long and many connections share one.
    schemas: HashMap<(String, Bytes), Arc<Schema>>,
}

impl Connections {
    /// All connections by now.
    pub fn table(&self) -> Arc<ConnectionTable> {
        let table = self.table.get_or_init(|| {
            Arc::new(ConnectionTable {
                channels: self.channels.clone().into(),
                ids: self.ids.clone(),
                by_id: self.by_id.clone(),
            })
        });
        Arc::clone(table)
    }

    /// The channel of connection `id`, and its index.
    pub fn find(&self, id: u32) -> Option<(u32, &Arc<Channel>)> {
        let index = self.by_id.get(id)?;
        Some((index, &self.channels[index as usize]))
    }

    /// Takes in a connection record: its number and topic, and the data that describes the rest.
    pub fn add(&mut self, offset: u64, id: u32, topic: &[u8], data: &[u8]) -> Option<Problem> {
        let mut described = BTreeMap::new();
        let mut is_damaged = false;
        for field in fields(data) {
            match field {
                Some((name, value)) => {
                    described.insert(
                        String::from_utf8_lossy(name).into_owned(),
                        Bytes::copy_from_slice(value),
                    );
                }
                None => is_damaged = true,
            }
        }
        let channel = self.channel(topic, described);
        if let Some((_, known)) = self.find(id) {
            return (known.topic != channel.topic || known.schema != channel.schema).then(|| {
                let message = format!(
                    "connection {id} is defined again as {} on {}, after {} on {}; the first counts",
                    channel.type_name(),
                    channel.topic,
                    known.type_name(),
                    known.topic
                );
                Problem::at(ProblemKind::ConflictingDefinition, offset, message)
            });
        }
        let topic = channel.topic.clone();
        self.by_id.set(id, self.channels.len() as u32);
        self.channels.push(Arc::new(channel));
        self.ids.push(id);
        self.table = OnceLock::new();
        is_damaged.then(|| {
            let message = "the description of a connection is damaged; its type may be missing";
            Problem::at(ProblemKind::BadRecord, offset, message).on_topic(topic)
        })
    }

    fn channel(&mut self, topic: &[u8], mut described: BTreeMap<String, Bytes>) -> Channel {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let name = described.remove("type").map(|name| text(&name));
        let definition = described.remove("message_definition");
        let schema = name.map(|name| {
            let data = definition.unwrap_or_default();
            let key = (name.clone(), data.clone());
            let schema = self.schemas.entry(key).or_insert_with(|| {
                Arc::new(Schema {
                    name,
                    encoding: "ros1msg".into(),
                    data,
                })
            });
            Arc::clone(schema)
        });
        // The topic of the record itself is where the messages were recorded; the one that the publisher
        // named, where it differs, was remapped on the way.
        let published = described.remove("topic").map(|name| text(&name));
        let topic = text(topic);
        let mut metadata: BTreeMap<String, String> = described
            .into_iter()
            .map(|(name, value)| (name, text(&value)))
            .collect();
        if let Some(published) = published.filter(|name| *name != topic) {
            metadata.insert("topic".into(), published);
        }
        Channel {
            topic,
            message_encoding: "ros1".into(),
            schema,
            metadata,
        }
    }
}
