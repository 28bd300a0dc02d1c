//! Channels and schemas by their ids in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asof_core::{Channel, Problem, ProblemKind, Schema};
use bytes::Bytes;
use mcap::records;

use crate::sections::{ChannelList, ChannelTable};

/// Collects definitions anywhere in the file, which may be repeated.
///
/// The first definition of an id counts. A conflicting repetition is a problem, and is skipped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Definitions {
    list: ChannelList<u16>,
    schemas: BTreeMap<u16, Arc<Schema>>,
    /// Channels whose schema has not been found yet, by schema id: it may still come.
    waiting: BTreeMap<u16, Vec<(u64, records::Channel)>>,
    waiting_ids: BTreeSet<u16>,
}

impl Definitions {
    /// All channels so far.
    pub fn table(&self) -> Arc<ChannelTable<u16>> {
        self.list.table()
    }

    /// Adds the definitions of another collection whose ids are new.
    pub fn adopt(&mut self, others: &Definitions) {
        for (id, schema) in &others.schemas {
            self.schemas
                .entry(*id)
                .or_insert_with(|| Arc::clone(schema));
        }
        for (id, channel) in others.list.iter() {
            if self.find(id).is_none() {
                self.list.insert(id, Arc::clone(channel));
            }
        }
    }

    /// The number of channels.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The channel with this id in the file, and its index.
    pub fn find(&self, id: u16) -> Option<(u32, &Arc<Channel>)> {
        self.list.find(id)
    }

    pub fn add_schema(
        &mut self,
        offset: u64,
        header: records::SchemaHeader,
        data: &[u8],
    ) -> Option<Problem> {
        if header.id == 0 {
            // Id 0 means "no schema", so nothing can refer to a schema with it.
            return Some(Problem::at(
                ProblemKind::BadRecord,
                offset,
                format!(
                    "schema '{}' has the id 0, which means no schema; it is ignored",
                    header.name
                ),
            ));
        }
        if let Some(known) = self.schemas.get(&header.id) {
            let agrees = known.name == header.name
                && known.encoding == header.encoding
                && known.data == data;
            return (!agrees).then(|| {
                let message = format!(
                    "schema {} is defined again as '{}', not as '{}' before; the first definition counts",
                    header.id, header.name, known.name
                );
                Problem::at(ProblemKind::ConflictingDefinition, offset, message)
            });
        }
        let schema = Schema {
            name: header.name,
            encoding: header.encoding,
            data: Bytes::copy_from_slice(data),
        };
        self.schemas.insert(header.id, Arc::new(schema));
        for (_, channel) in self.waiting.remove(&header.id).unwrap_or_default() {
            self.define(channel);
        }
        None
    }

    pub fn add_channel(&mut self, offset: u64, record: records::Channel) -> Option<Problem> {
        if let Some((_, known)) = self.find(record.id) {
            let schema_agrees = match self.schemas.get(&record.schema_id) {
                Some(schema) => known.schema.as_ref() == Some(schema),
                None => record.schema_id != 0 || known.schema.is_none(),
            };
            let agrees = schema_agrees
                && known.topic == record.topic
                && known.message_encoding == record.message_encoding
                && known.metadata == record.metadata;
            return (!agrees).then(|| {
                let message = format!(
                    "channel {} is defined again, differently; the first definition counts",
                    record.id
                );
                Problem::at(ProblemKind::ConflictingDefinition, offset, message)
                    .on_topic(record.topic)
            });
        }
        if record.schema_id != 0 && !self.schemas.contains_key(&record.schema_id) {
            if self.waiting_ids.insert(record.id) {
                let waiting = self.waiting.entry(record.schema_id).or_default();
                waiting.push((offset, record));
            }
            return None;
        }
        self.define(record);
        None
    }

    /// Whether some channel's schema is still missing.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Defines waiting channels without their schema. Call it when nothing more will come.
    pub fn settle(&mut self) -> Vec<Problem> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut waiting: Vec<_> = waiting.into_values().flatten().collect();
        waiting.sort_by_key(|&(offset, _)| offset);
        let mut problems = Vec::new();
        for (offset, channel) in waiting {
            let message = format!(
                "channel {} refers to schema {}, which is not defined",
                channel.id, channel.schema_id
            );
            problems.push(
                Problem::at(ProblemKind::UnknownReference, offset, message)
                    .on_topic(channel.topic.clone()),
            );
            self.define(channel);
        }
        problems
    }

    fn define(&mut self, record: records::Channel) {
        self.waiting_ids.remove(&record.id);
        let channel = Channel {
            topic: record.topic,
            message_encoding: record.message_encoding,
            schema: self.schemas.get(&record.schema_id).cloned(),
            metadata: record.metadata,
        };
        self.list.insert(record.id, Arc::new(channel));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(id: u16, schema_id: u16, topic: &str) -> records::Channel {
        let (topic, message_encoding) = (topic.to_owned(), "cdr".to_owned());
        records::Channel {
            id,
            schema_id,
            topic,
            message_encoding,
            metadata: BTreeMap::new(),
        }
    }

    fn schema(id: u16, name: &str) -> records::SchemaHeader {
        records::SchemaHeader {
            id,
            name: name.to_owned(),
            encoding: "ros2msg".to_owned(),
        }
    }

    #[test]
    fn a_repetition_is_silent_and_a_contradiction_is_not() {
        let mut definitions = Definitions::default();
        for _ in 0..2 {
            assert_eq!(definitions.add_schema(0, schema(1, "A"), b"int8 a"), None);
            assert_eq!(definitions.add_channel(0, channel(7, 1, "/a")), None);
        }
        let problem = definitions
            .add_channel(99, channel(7, 1, "/b"))
            .expect("a contradiction");
        assert_eq!(
            (problem.kind, problem.offset),
            (ProblemKind::ConflictingDefinition, Some(99))
        );
        assert!(
            definitions
                .add_schema(0, schema(1, "A"), b"int8 b")
                .is_some()
        );
        assert_eq!(definitions.table().channels[0].topic, "/a");
    }

    #[test]
    fn a_channel_waits_for_a_schema_that_comes_later() {
        let mut definitions = Definitions::default();
        assert_eq!(definitions.add_channel(0, channel(7, 1, "/a")), None);
        assert_eq!(definitions.table().index_of(7), None);
        definitions.add_schema(0, schema(1, "A"), b"");
        assert_eq!(definitions.table().channels[0].type_name(), "A");
        assert!(definitions.settle().is_empty());
    }

    #[test]
    fn a_channel_whose_schema_never_comes_is_kept_without_it() {
        let mut definitions = Definitions::default();
        definitions.add_channel(12, channel(7, 1, "/a"));
        assert_eq!(definitions.settle()[0].kind, ProblemKind::UnknownReference);
        assert_eq!(definitions.table().channels[0].schema, None);
    }
}
