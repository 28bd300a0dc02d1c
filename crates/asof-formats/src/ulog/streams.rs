//! The channels of a ULog, and the mapping from message ids to them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use asof_core::{Channel, Schema};
use asof_ros::CdrWriter;

use super::format::{Formats, Layout};
use super::record::Pair;

/// The channels of a file, and the message ids of its subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub channels: Vec<Arc<Channel>>,
    /// Their numbers by a hash of what they are.
    by_content: HashMap<u64, Vec<u32>>,
    /// The channels of subscriptions, by the address of their layout and their instance. The layouts are kept in `by_id`, so
    /// no address is reused.
    subscribed: HashMap<(usize, u8), u32>,
    /// By id: the offset in the file from which it means a stream; `None` after it was unsubscribed.
    by_id: HashMap<u16, Vec<(u64, Option<Stream>)>>,
}

/// A channel of messages that have one layout.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub channel: u32,
    pub layout: Arc<Layout>,
}

impl Streams {
    /// Further instances of a topic have their number in the name; the first has the bare name.
    pub fn subscribe(
        &mut self,
        offset: u64,
        (id, instance): (u16, u8),
        name: &str,
        formats: &mut Formats,
    ) -> Result<(), String> {
        let layout = formats.layout(name)?;
        let key = (Arc::as_ptr(&layout) as usize, instance);
        let channel = if let Some(known) = self.subscribed.get(&key) {
            *known
        } else {
            let topic = match instance {
                0 => format!("/{name}"),
                instance => format!("/{name}/{instance}"),
            };
            let mut channel = channel_of(topic, &formats.type_name(name), &layout.definition);
            channel
                .metadata
                .insert("multi_id".into(), instance.to_string());
            let channel = self.channel(channel);
            self.subscribed.insert(key, channel);
            channel
        };
        let stream = Stream { channel, layout };
        self.by_id
            .entry(id)
            .or_default()
            .push((offset, Some(stream)));
        Ok(())
    }

    pub fn unsubscribe(&mut self, offset: u64, id: u16) {
        if let Some(known) = self.by_id.get_mut(&id) {
            known.push((offset, None));
        }
    }

    /// The stream of an id at an offset of the file.
    pub fn find(&self, id: u16, offset: u64) -> Option<&Stream> {
        let known = self.by_id.get(&id)?;
        let later = known.partition_point(|(from, _)| *from <= offset);
        known.get(later.checked_sub(1)?)?.1.as_ref()
    }

    /// Whether data of this length can be a message of the id's stream; `None` where there is no such stream.
    pub fn fits(&self, id: u16, len: usize, offset: u64) -> Option<bool> {
        self.find(id, offset).map(|stream| stream.layout.fits(len))
    }

    /// The index of a channel, which is added if it is new.
    pub fn channel(&mut self, channel: Channel) -> u32 {
        let mut hasher = DefaultHasher::new();
        let schema = channel.schema.as_ref();
        let definition = schema.map(|schema| (&schema.name, &schema.data));
        (&channel.topic, definition, &channel.metadata).hash(&mut hasher);
        let alike = self.by_content.entry(hasher.finish()).or_default();
        let is_same = |place: &&u32| *self.channels[**place as usize] == channel;
        if let Some(known) = alike.iter().find(is_same) {
            return *known;
        }
        let place = self.channels.len() as u32;
        alike.push(place);
        self.channels.push(Arc::new(channel));
        place
    }
}

fn channel_of(topic: String, type_name: &str, definition: &str) -> Channel {
    Channel {
        topic,
        message_encoding: "cdr".into(),
        schema: Some(Arc::new(Schema {
            name: format!("ulog/msg/{type_name}"),
            encoding: "ros2msg".into(),
            data: definition.to_owned().into(),
        })),
        ..Channel::default()
    }
}

/// What is logged besides topics; each kind is a channel of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    Parameters,
    LoggedStrings,
    Dropouts,
}

impl Beside {
    pub const ALL: [Beside; 3] = [Beside::Parameters, Beside::LoggedStrings, Beside::Dropouts];

    pub fn channel(self) -> Channel {
        match self {
            Beside::Parameters => channel_of(
                "/parameters".into(),
                "Parameter",
                "uint64 timestamp\nstring name\n# int32_t or float\nstring type\nfloat64 value\n\
                 # initial, changed, or default\nstring source\n\
                 # of a default: 1 of the system, 2 of the current setup\nuint8 default_types\n",
            ),
            Beside::LoggedStrings => channel_of(
                "/logged_strings".into(),
                "LoggedString",
                "uint64 timestamp\n# 0 emergency to 7 debug\nuint8 level\nstring severity\nbool tagged\n\
                 uint16 tag\nstring text\n",
            ),
            Beside::Dropouts => channel_of(
                "/dropouts".into(),
                "Dropout",
                "uint64 timestamp\nuint16 duration_ms\n",
            ),
        }
    }
}

/// Where a parameter's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Initial,
    Changed,
    Default(u8),
}

/// Writes a parameter as CDR; `false` if the type of its value is unknown.
pub(crate) fn put_parameter(out: &mut Vec<u8>, time: u64, pair: &Pair<'_>, origin: Origin) -> bool {
    let Some(value) = pair.number() else {
        return false;
    };
    let (source, types) = match origin {
        Origin::Initial => ("initial", 0),
        Origin::Changed => ("changed", 0),
        Origin::Default(types) => ("default", types),
    };
    CdrWriter::new(out)
        .uint64(time)
        .string(pair.key)
        .string(pair.kind)
        .float64(value)
        .string(source)
        .byte(types);
    true
}

/// Writes a logged string as CDR.
pub(crate) fn put_logged(out: &mut Vec<u8>, time: u64, level: u8, tag: Option<u16>, text: &[u8]) {
    const SEVERITIES: [&str; 8] = [
        "emergency",
        "alert",
        "critical",
        "error",
        "warning",
        "notice",
        "info",
        "debug",
    ];
    // Loggers write the digit, not the number.
    let level = level.checked_sub(b'0').unwrap_or(level);
    let severity = SEVERITIES
        .get(usize::from(level))
        .copied()
        .unwrap_or("unknown");
    let end = memchr::memchr(0, text).unwrap_or(text.len());
    CdrWriter::new(out)
        .uint64(time)
        .byte(level)
        .string(severity)
        .boolean(tag.is_some())
        .uint16(tag.unwrap_or(0))
        .string(&text[..end]);
}

/// Writes a dropout as CDR.
pub(crate) fn put_dropout(out: &mut Vec<u8>, time: u64, milliseconds: u16) {
    CdrWriter::new(out).uint64(time).uint16(milliseconds);
}
