//! The channels that are advertised to a client: one for each topic and type.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use asof_core::Channel;
use asof_foxglove::{Advertised, advertised};

/// The advertised channels of one client, by number. Those that are gone keep their numbers.
///
/// A recording has a channel for each publisher; viewers take the first channel of a topic and ignore the others. So
/// channels that look the same to a viewer are merged, and one that differs has its type in its name.
#[derive(Default)]
pub(super) struct Offers {
    all: Vec<Offer>,
    /// Numbers by a hash of what a viewer sees: a file may have tens of thousands of channels on one topic.
    by_content: HashMap<u64, Vec<u32>>,
    /// Names in use, and how often they were requested.
    names: HashMap<String, u32>,
    /// Numbers by the address of channels; the channels are kept so that no address is reused.
    met: HashMap<usize, (Arc<Channel>, Option<u32>)>,
    /// Topics whose messages viewers cannot decode.
    undescribed: HashSet<String>,
}

struct Offer {
    name: String,
    channel: Arc<Channel>,
    is_gone: bool,
}

/// The changes since the last update of a client.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// Channels to advertise.
    pub new: Vec<Advertised>,
    pub gone: Vec<u32>,
    /// Topics that are not advertised, because viewers cannot decode their messages.
    pub undescribed: Vec<String>,
}

/// At most this many channels are remembered by address.
const MOST_MET: usize = 65_536;

impl Offers {
    /// Updates the channels. Those for which `waits` holds may still get their schema.
    pub fn update<'a>(
        &mut self,
        channels: impl Iterator<Item = &'a Arc<Channel>>,
        waits: impl Fn(&Channel) -> bool,
    ) -> Changes {
        let mut changes = Changes::default();
        let mut is_there = vec![false; self.all.len()];
        for channel in channels {
            if let Some(number) = self.find(channel) {
                let offer = &mut self.all[number as usize];
                if offer.is_gone {
                    offer.is_gone = false;
                    changes.new.push(offer.advertised(number));
                }
                if let Some(is_there) = is_there.get_mut(number as usize) {
                    *is_there = true;
                }
            } else if waits(channel) {
                // Its schema is pending.
            } else if is_described(channel) {
                changes.new.push(self.add(channel));
            } else if self.undescribed.insert(channel.topic.clone()) {
                changes.undescribed.push(channel.topic.clone());
            }
        }
        for (number, is_there) in is_there.into_iter().enumerate() {
            if !(is_there || self.all[number].is_gone) {
                self.all[number].is_gone = true;
                changes.gone.push(number as u32);
            }
        }
        if changes != Changes::default() {
            self.met.clear();
        }
        changes
    }

    /// The topic of an advertised channel.
    pub fn topic(&self, number: u64) -> Option<&str> {
        let offer = self.all.get(usize::try_from(number).ok()?)?;
        (!offer.is_gone).then_some(offer.channel.topic.as_str())
    }

    /// The number that a message's channel is advertised under.
    pub fn number_of(&mut self, channel: &Arc<Channel>) -> Option<u32> {
        let address = Arc::as_ptr(channel) as usize;
        if let Some((_, number)) = self.met.get(&address) {
            return *number;
        }
        if self.met.len() >= MOST_MET {
            self.met.clear();
        }
        let number = self.find(channel);
        self.met.insert(address, (Arc::clone(channel), number));
        number
    }

    fn find(&self, channel: &Channel) -> Option<u32> {
        let is_same = |number: &&u32| {
            let known = &self.all[**number as usize].channel;
            (&known.topic, &known.message_encoding, &known.schema)
                == (&channel.topic, &channel.message_encoding, &channel.schema)
        };
        let alike = self.by_content.get(&content(channel))?;
        alike.iter().find(is_same).copied()
    }

    fn add(&mut self, channel: &Arc<Channel>) -> Advertised {
        let number = self.all.len() as u32;
        let alike = self.by_content.entry(content(channel)).or_default();
        alike.push(number);
        let offer = Offer {
            name: self.name_for(channel),
            channel: Arc::clone(channel),
            is_gone: false,
        };
        let advertised = offer.advertised(number);
        self.all.push(offer);
        advertised
    }

    /// The topic; with the type where another type has the topic, and with a count where that is taken too.
    fn name_for(&mut self, channel: &Channel) -> String {
        let topic = &channel.topic;
        let kind = match channel.type_name() {
            "" => &channel.message_encoding,
            name => name,
        };
        let mut name = topic.clone();
        let mut count = 1;
        while self.names.contains_key(&name) {
            let typed = format!("{topic} ({kind})");
            let wanted = self.names.entry(typed.clone()).or_default();
            *wanted += 1;
            count = count.max(*wanted);
            if count == 1 {
                return typed;
            }
            name = format!("{topic} ({kind}, {count})");
            count += 1;
        }
        self.names.insert(name.clone(), 1);
        name
    }
}

/// A hash of what a viewer sees of a channel.
fn content(channel: &Channel) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&channel.topic, &channel.message_encoding).hash(&mut hasher);
    if let Some(schema) = &channel.schema {
        (&schema.name, &schema.encoding, &schema.data).hash(&mut hasher);
    }
    hasher.finish()
}

impl Offer {
    fn advertised(&self, number: u32) -> Advertised {
        advertised(u64::from(number), &self.name, &self.channel)
    }
}

/// Whether a type has a name but no definition.
pub(super) fn is_bare(channel: &Channel) -> bool {
    let schema = channel.schema.as_ref();
    schema.is_some_and(|schema| schema.data.is_empty())
}

/// Whether a viewer can decode the messages: with a schema, or as JSON. A type without fields has an empty schema.
fn is_described(channel: &Channel) -> bool {
    let is_empty_type = matches!(channel.type_name(), "std_msgs/Empty" | "std_msgs/msg/Empty");
    let schema = channel.schema.as_ref();
    let has_schema = schema.is_some_and(|schema| !schema.data.is_empty());
    has_schema || is_empty_type || channel.message_encoding == "json"
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof_core::Schema;

    fn channel(topic: &str, encoding: &str, kind: &str, caller: &str) -> Arc<Channel> {
        let schema = Schema {
            name: kind.to_owned(),
            encoding: "ros1msg".to_owned(),
            data: format!("{kind} data").into(),
        };
        Arc::new(Channel {
            topic: topic.to_owned(),
            message_encoding: encoding.to_owned(),
            schema: (!kind.is_empty()).then(|| Arc::new(schema)),
            metadata: [("callerid".to_owned(), caller.to_owned())].into(),
        })
    }

    fn names(changes: &Changes) -> Vec<&str> {
        changes.new.iter().map(|one| one.topic.as_str()).collect()
    }

    fn never(_: &Channel) -> bool {
        false
    }

    #[test]
    fn publishers_of_one_topic_and_type_are_one_channel() {
        let all = [
            channel("/odom", "ros1", "nav_msgs/Odometry", "/a"),
            channel("/odom", "ros1", "nav_msgs/Odometry", "/b"),
            channel("/scan", "ros1", "sensor_msgs/LaserScan", "/a"),
        ];
        let mut offers = Offers::default();
        let changes = offers.update(all.iter(), never);
        assert_eq!(names(&changes), ["/odom", "/scan"]);
        assert_eq!(offers.number_of(&all[0]), Some(0));
        assert_eq!(offers.number_of(&all[1]), Some(0));
        assert_eq!(offers.number_of(&all[2]), Some(1));
        assert_eq!(offers.update(all.iter(), never), Changes::default());
    }

    #[test]
    fn another_type_or_encoding_on_a_topic_has_a_name_of_its_own() {
        let all = [
            channel("/a", "ros1", "x/One", ""),
            channel("/a", "ros1", "x/Two", ""),
            channel("/a", "cdr", "x/Two", ""),
            channel("/a", "json", "", ""),
        ];
        let mut offers = Offers::default();
        let changes = offers.update(all.iter(), never);
        let expected = ["/a", "/a (x/Two)", "/a (x/Two, 2)", "/a (json)"];
        assert_eq!(names(&changes), expected);
        for (number, one) in all.iter().enumerate() {
            assert_eq!(offers.number_of(one), Some(number as u32));
            assert_eq!(offers.topic(number as u64), Some("/a"));
        }
    }

    #[test]
    fn what_no_viewer_can_decode_is_named_once_and_not_offered() {
        let all = [
            channel("/raw", "cdr", "", "1"),
            channel("/raw", "cdr", "", "2"),
            channel("/text", "json", "", ""),
        ];
        let mut offers = Offers::default();
        let changes = offers.update(all.iter(), never);
        assert_eq!(names(&changes), ["/text"]);
        assert_eq!(changes.undescribed, ["/raw"]);
        assert_eq!(
            changes.new[0].schema_encoding.as_deref(),
            Some("jsonschema")
        );
        assert_eq!(offers.number_of(&all[0]), None);
        assert_eq!(offers.update(all.iter(), never), Changes::default());
    }

    #[test]
    fn a_channel_that_goes_and_comes_back_keeps_its_number() {
        let (one, two) = (
            channel("/a", "ros1", "x/A", ""),
            channel("/b", "ros1", "x/B", ""),
        );
        let mut offers = Offers::default();
        offers.update([&one, &two].into_iter(), never);
        assert_eq!(offers.update([&two].into_iter(), never).gone, [0]);
        assert_eq!(offers.topic(0), None);
        let back = offers.update([&one, &two].into_iter(), never);
        assert_eq!(back.new[0].id, 0);
        assert_eq!(offers.topic(0), Some("/a"));
    }

    #[test]
    fn a_schema_that_is_on_its_way_is_waited_for() {
        let bare = Arc::new(Channel {
            schema: Some(Arc::new(Schema::default())),
            ..(*channel("/a", "cdr", "", "")).clone()
        });
        let mut offers = Offers::default();
        assert_eq!(
            offers.update([&bare].into_iter(), is_bare),
            Changes::default()
        );
        let given_up = offers.update([&bare].into_iter(), never);
        assert_eq!(given_up.undescribed, ["/a"]);
    }
}
