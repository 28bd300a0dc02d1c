//! Channels whose schema may still be pending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::{Channel, Schema};
use asof_formats::Definitions;
use parking_lot::Mutex;

use asof_ros::differs;
use asof_ros::msg::starts_with_header;

/// How long a node may take to describe a type; recordings wait this long before they write the type without a schema.
pub(crate) const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A channel with the best schema known so far.
#[derive(Debug)]
pub(crate) struct Described {
    appeared: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    known: ChannelState,
    /// Whether a definition was found that differs from the robot's.
    is_other: bool,
}

/// What is known of a channel so far.
#[derive(Debug, Clone)]
pub(crate) struct ChannelState {
    pub channel: Arc<Channel>,
    /// Whether a schema may still come.
    pub is_pending: bool,
    /// Whether the type is known to start with a header.
    pub has_header: bool,
}

impl ChannelState {
    fn new(channel: Channel, is_pending: bool) -> Self {
        let has_header = channel.schema.as_deref().is_some_and(has_header);
        ChannelState {
            channel: Arc::new(channel),
            is_pending,
            has_header,
        }
    }
}

fn has_header(schema: &Schema) -> bool {
    let text = std::str::from_utf8(&schema.data);
    schema.encoding == "ros2msg" && text.is_ok_and(|text| starts_with_header(&schema.name, text))
}

impl Described {
    /// A ROS 2 topic, with a definition from a folder or of the standard types if there is one.
    pub(crate) fn ros2(
        topic: &str,
        type_name: String,
        hash: Option<&str>,
        metadata: Option<(&str, String)>,
        definitions: &Definitions,
    ) -> Self {
        let found = defined(&type_name, hash.unwrap_or_default(), definitions);
        let is_other = matches!(found, Found::Other);
        let found = found.schema();
        let is_pending = found.is_none();
        // Without a definition the type's name is still worth keeping.
        let schema = found.unwrap_or_else(|| Schema {
            name: type_name,
            ..Schema::default()
        });
        let hash = hash.map(|hash| (TYPE_HASH.to_owned(), hash.to_owned()));
        let metadata = metadata.map(|(name, value)| (name.to_owned(), value));
        let channel = Channel {
            topic: topic.to_owned(),
            message_encoding: "cdr".to_owned(),
            schema: Some(Arc::new(schema)),
            metadata: hash.into_iter().chain(metadata).collect::<BTreeMap<_, _>>(),
        };
        Described {
            appeared: Instant::now(),
            state: Mutex::new(State {
                known: ChannelState::new(channel, is_pending),
                is_other,
            }),
        }
    }

    /// A channel whose schema is final.
    pub(crate) fn complete(channel: Channel) -> Self {
        Described {
            appeared: Instant::now(),
            state: Mutex::new(State {
                known: ChannelState::new(channel, false),
                is_other: false,
            }),
        }
    }

    /// The channel as it is known now.
    pub(crate) fn known(&self) -> ChannelState {
        self.state.lock().known.clone()
    }

    /// The channel, once it has its schema or the wait for one is over.
    pub(crate) fn settled(&self) -> Option<Arc<Channel>> {
        let state = self.state.lock();
        let is_settled = !state.known.is_pending || self.appeared.elapsed() > DESCRIBE_TIMEOUT;
        is_settled.then(|| Arc::clone(&state.known.channel))
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.state.lock().known.is_pending
    }

    /// Looks again, in definitions that were added.
    pub(crate) fn look_up(&self, definitions: &Definitions) {
        let channel = self.known().channel;
        let hash = channel.metadata.get(TYPE_HASH).map_or("", String::as_str);
        match defined(channel.type_name(), hash, definitions) {
            Found::Same(schema) => self.learn(schema),
            Found::Other => self.state.lock().is_other = true,
            Found::Nothing => {}
        }
    }

    /// Whether the only definition that was found differs from the robot's.
    pub(crate) fn is_other(&self) -> bool {
        let state = self.state.lock();
        state.known.is_pending && state.is_other
    }

    /// Accepts a schema that has arrived, if one is still waited for.
    pub(crate) fn learn_if_pending(&self, schema: Schema) -> bool {
        let is_pending = self.is_pending();
        if is_pending {
            self.learn(schema);
        }
        is_pending
    }

    fn learn(&self, schema: Schema) {
        let mut state = self.state.lock();
        let channel = Channel {
            schema: Some(Arc::new(schema)),
            ..Channel::clone(&state.known.channel)
        };
        state.known = ChannelState::new(channel, false);
    }
}

/// The metadata key of the robot's type hash.
pub(crate) const TYPE_HASH: &str = "type_hash";

enum Found {
    Same(Schema),
    /// A type of this name is defined, but with another hash than the robot's: messages would be decoded wrongly.
    Other,
    Nothing,
}

impl Found {
    fn schema(self) -> Option<Schema> {
        match self {
            Found::Same(schema) => Some(schema),
            Found::Other | Found::Nothing => None,
        }
    }
}

fn defined(name: &str, hash: &str, definitions: &Definitions) -> Found {
    let Some(text) = definitions.full_text(name) else {
        return Found::Nothing;
    };
    if differs(hash, name, &text) {
        tracing::warn!(
            "the local definition of {name} differs from the robot's ({hash}); asking its node for it"
        );
        return Found::Other;
    }
    Found::Same(Schema {
        name: name.to_owned(),
        encoding: "ros2msg".to_owned(),
        data: text.into(),
    })
}
