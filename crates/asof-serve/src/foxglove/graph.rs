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

/// The graph as a message of the protocol. `told` are the topics that the client knows of; those that are gone are listed.
pub(super) fn update(summary: &Summary, told: &mut BTreeSet<String>) -> ServerText {
    let publishers = publishers(summary);
    let current: BTreeSet<String> = publishers.keys().map(|&topic| topic.to_owned()).collect();
    let removed = told.difference(&current).cloned().collect();
    *told = current;
    let published = publishers.into_iter().map(|(topic, ids)| PublishedTopic {
        name: topic.to_owned(),
        publisher_ids: ids.into_iter().map(str::to_owned).collect(),
    });
    ServerText::ConnectionGraphUpdate {
        published_topics: published.collect(),
        subscribed_topics: Vec::new(),
        advertised_services: Vec::new(),
        removed_topics: removed,
        removed_services: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use asof_core::{Channel, ChannelSummary};

    use super::*;

    #[test]
    fn a_topic_that_is_gone_is_listed_once() {
        let summary = |topics: &[&str]| Summary {
            channels: topics
                .iter()
                .map(|topic| ChannelSummary {
                    channel: Arc::new(Channel {
                        topic: (*topic).to_owned(),
                        metadata: [("callerid".to_owned(), "/node".to_owned())].into(),
                        ..Channel::default()
                    }),
                    messages: None,
                })
                .collect(),
            ..Summary::empty("test")
        };
        let mut told = BTreeSet::new();
        let mut tell = |topics: &[&str]| match update(&summary(topics), &mut told) {
            ServerText::ConnectionGraphUpdate {
                published_topics,
                removed_topics,
                ..
            } => (published_topics.len(), removed_topics),
            other => panic!("{other:?}"),
        };
        assert_eq!(tell(&["/a", "/b"]), (2, vec![]));
        assert_eq!(tell(&["/b"]), (1, vec!["/a".to_owned()]));
        assert_eq!(tell(&["/b"]), (1, vec![]));
        assert_eq!(tell(&[]), (0, vec!["/b".to_owned()]));
    }
}
