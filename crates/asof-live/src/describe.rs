//! Channels whose schema may still be on its way.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use asof_core::{Channel, Schema};
use asof_formats::Definitions;
use parking_lot::Mutex;
use zenoh::Wait;
use zenoh::query::{ConsolidationMode, QueryTarget};

use crate::robot::{Inner, now};
use crate::ros::{
    Attachment, DescriptionError, Token, TopicKey, described_schema, description_request, differs,
    ros_type_name, starts_with_header,
};

/// So long a node may take to describe a type; recordings wait for it before they write the type without a schema.
const PATIENCE: Duration = Duration::from_secs(2);

/// A channel with the best schema that is known by now.
#[derive(Debug)]
pub(crate) struct Described {
    appeared: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    known: Known,
    /// Whether a definition was found that is another one than the robot's.
    is_other: bool,
}

/// What is known of a channel by now.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub channel: Arc<Channel>,
    /// Whether a schema may still come.
    pub is_pending: bool,
    /// Whether the type is known to start with a header.
    pub has_header: bool,
}

impl Known {
    fn new(channel: Channel, is_pending: bool) -> Self {
        let has_header = channel.schema.as_deref().is_some_and(has_header);
        Known {
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
    /// The channel of a key, with a definition from a folder or of the standard types if there is one.
    pub(crate) fn new(key: &TopicKey, token: &Token, definitions: &Definitions) -> Self {
        let name = ros_type_name(&key.dds_type);
        let found = defined(&name, &key.type_hash, definitions);
        let is_other = matches!(found, Found::Other);
        let found = found.schema();
        let is_pending = found.is_none();
        // Without a definition the type's name is still worth keeping.
        let schema = found.unwrap_or_else(|| Schema {
            name,
            ..Schema::default()
        });
        let mut metadata = BTreeMap::from([(TYPE_HASH.to_owned(), key.type_hash.clone())]);
        if let Some(topic) = &token.topic {
            metadata.insert("rmw_zenoh_qos".to_owned(), topic.qos.to_text());
        }
        let channel = Channel {
            topic: key.topic.clone(),
            message_encoding: "cdr".to_owned(),
            schema: Some(Arc::new(schema)),
            metadata,
        };
        Described {
            appeared: Instant::now(),
            state: Mutex::new(State {
                known: Known::new(channel, is_pending),
                is_other,
            }),
        }
    }

    /// The channel as it is known now.
    pub(crate) fn known(&self) -> Known {
        self.state.lock().known.clone()
    }

    /// The channel, once it has its schema or nobody waits for one any more.
    pub(crate) fn settled(&self) -> Option<Arc<Channel>> {
        let state = self.state.lock();
        let is_settled = !state.known.is_pending || self.appeared.elapsed() > PATIENCE;
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

    /// Whether the only definition that could be had is another one than the robot's.
    pub(crate) fn is_other(&self) -> bool {
        let state = self.state.lock();
        state.known.is_pending && state.is_other
    }

    fn learn(&self, schema: Schema) {
        let mut state = self.state.lock();
        let channel = Channel {
            schema: Some(Arc::new(schema)),
            ..Channel::clone(&state.known.channel)
        };
        state.known = Known::new(channel, false);
    }
}

/// The name of the robot's hash in a channel's metadata.
pub(crate) const TYPE_HASH: &str = "type_hash";

enum Found {
    Same(Schema),
    /// A type of this name is defined, but as the robot's hash says, otherwise than there: it would be read wrongly.
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
            "the robot's {name} is not the one that is known here ({hash}); its node is asked for it"
        );
        return Found::Other;
    }
    Found::Same(Schema {
        name: name.to_owned(),
        encoding: "ros2msg".to_owned(),
        data: text.into(),
    })
}

/// Asks a node for the schema of a channel. The answer comes later, on a thread of the transport.
pub(crate) fn ask(robot: &Arc<Inner>, service: &TopicKey, key: &TopicKey, to: &Arc<Described>) {
    let type_name = ros_type_name(&key.dds_type);
    let attachment = Attachment {
        sequence: 1,
        source_timestamp: now(),
        gid: robot.session.zid().to_le_bytes(),
    };
    let (described, weak) = (Arc::clone(to), Arc::downgrade(robot));
    let (key, asked) = (key.clone(), type_name.clone());
    let sent = robot
        .session
        .get(service.to_string())
        .payload(description_request(&type_name, &key.type_hash))
        .attachment(attachment.to_bytes().to_vec())
        .target(QueryTarget::All)
        .consolidation(ConsolidationMode::None)
        .timeout(PATIENCE)
        .callback(move |reply| match schema_in(&reply, &asked) {
            Ok(schema) => answered(&weak, &key, &described, schema),
            Err(cause) => tracing::debug!("{asked}: {cause}"),
        })
        .wait();
    if let Err(cause) = sent {
        tracing::debug!("cannot ask for the description of {type_name}: {cause}");
    }
}

fn schema_in(reply: &zenoh::query::Reply, asked: &str) -> Result<Schema, DescriptionError> {
    let unreadable = |cause: String| DescriptionError::Unreadable(cause);
    let sample = reply
        .result()
        .map_err(|error| unreadable(format!("{error:?}")))?;
    let schema = described_schema(&sample.payload().to_bytes())?;
    if schema.name != asked {
        return Err(unreadable(format!("it is of {} instead", schema.name)));
    }
    Ok(schema)
}

fn answered(robot: &Weak<Inner>, key: &TopicKey, described: &Described, schema: Schema) {
    if !described.is_pending() {
        return;
    }
    described.learn(schema);
    if let Some(robot) = robot.upgrade() {
        robot.learned(key);
    }
}
