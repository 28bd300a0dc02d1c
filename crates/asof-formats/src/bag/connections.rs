//! The connections of a bag: publishers and their topics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use asof_core::{Channel, Problem, ProblemKind, Schema};
use bytes::Bytes;

use super::record::fields;
use crate::sections::{ChannelList, ChannelTable};

/// Collects connections from chunks and the index, which may repeat them.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    list: ChannelList<u32>,
    /// Definitions are long and many connections share one.
    schemas: HashMap<(String, Bytes), Arc<Schema>>,
}

impl Connections {
    /// All connections so far.
    pub fn table(&self) -> Arc<ChannelTable<u32>> {
        self.list.table()
    }

    /// The channel of connection `id`, and its index.
    pub fn find(&self, id: u32) -> Option<(u32, &Arc<Channel>)> {
        self.list.find(id)
    }

    /// Adds a connection record: its id and topic, and the data that describes the rest.
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
        self.list.insert(id, Arc::new(channel));
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
        // The topic of the record is where the messages were recorded; if the publisher's own name for it
        // differs, it was remapped.
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
