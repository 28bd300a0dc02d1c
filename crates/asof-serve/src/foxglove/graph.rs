//! The publishers of topics, where a source has them.

use std::collections::{BTreeMap, BTreeSet};

use asof_core::Summary;
use asof_foxglove::{PublishedTopic, ServerText};

/// The metadata keys of a channel's publisher, by format.
const PUBLISHER: [&str; 2] = ["callerid", "publisher"];

/// The publishers of each topic, where they are known.
pub(super) fn publishers(summary: &Summary) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for entry in &summary.channels {
        let metadata = &entry.channel.metadata;
        for name in PUBLISHER.iter().filter_map(|key| metadata.get(*key)) {
            if !name.is_empty() {
                let topic = all.entry(entry.channel.topic.as_str()).or_default();
                topic.insert(name);
            }
        }
    }
    all
}

/// The graph as a message of the protocol.
pub(super) fn update(summary: &Summary) -> ServerText {
    let published = publishers(summary)
        .into_iter()
        .map(|(topic, ids)| PublishedTopic {
            name: topic.to_owned(),
            publisher_ids: ids.into_iter().map(str::to_owned).collect(),
        });
    ServerText::ConnectionGraphUpdate {
        published_topics: published.collect(),
        subscribed_topics: Vec::new(),
        advertised_services: Vec::new(),
        removed_topics: Vec::new(),
        removed_services: Vec::new(),
    }
}
