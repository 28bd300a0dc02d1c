//! The fields of the messages that are shown, and how they are decoded.

use std::collections::HashMap;
use std::sync::Arc;

use asof_core::{Batch, Channel, Message, MessageRef, Source, Stamp, Topics};
use asof_decode::{Decoder, Projection, SchemaError};

use crate::export::{ReportingDecoders, meant_field};
use crate::rows::CellTexts;
use crate::text::shown;
use crate::{Error, Progress};

/// The requested fields.
#[derive(Debug, Clone, Default)]
pub(super) struct FieldChoice {
    /// Only these, by path; all if there are none.
    pub(super) paths: Vec<String>,
    /// Also bytes, such as those of a picture.
    pub(super) with_bytes: bool,
}

/// Decodes the chosen fields of messages.
pub(super) struct Fields {
    chosen: FieldChoice,
    by_channel: HashMap<*const Channel, ChannelFields>,
}

struct ChannelFields {
    /// Kept so that the address is not reused.
    channel: Arc<Channel>,
    decoders: ReportingDecoders,
    /// Paths of bytes that are not shown.
    left_out: Vec<String>,
    /// Whether none of the chosen fields exists.
    has_nothing: bool,
    names: Option<Vec<String>>,
}

impl Fields {
    pub(super) fn new(chosen: FieldChoice) -> Self {
        Fields {
            chosen,
            by_channel: HashMap::new(),
        }
    }

    /// A field that no topic has is an error.
    pub(super) fn check(&self, file: &dyn Source, topics: &[String]) -> Result<(), Error> {
        let summary = file.summary();
        let channels = summary.channels.iter().map(|entry| &entry.channel);
        let channels = channels.filter(|channel| topics.contains(&channel.topic));
        for path in &self.chosen.paths {
            let is_missing = |channel: &Arc<Channel>| {
                let decoder = Decoder::new(channel, &Projection::paths([path]), &[]);
                // Topics whose fields are unknown before their messages are read may have them.
                channel.schema.is_some() && matches!(decoder, Err(SchemaError::NoSuchField { .. }))
            };
            if channels.clone().all(is_missing) {
                let meant = meant_field(path, channels.map(|channel| &**channel))
                    .map_or(String::new(), |path| format!("; did you mean '{path}'?"));
                return Err(Error::Option(format!(
                    "no topic that is joined has a field '{path}'{meant}"
                )));
            }
        }
        Ok(())
    }

    /// Writes a message's data as JSON. The error is the reason; nothing is written then.
    pub(super) fn json(&mut self, message: &Message, out: &mut Vec<u8>) -> Result<(), String> {
        let known = self.known(message);
        if known.has_nothing {
            out.extend_from_slice(b"{}");
            return Ok(());
        }
        with_ref(message, |message| known.decoders.json(message, out))
    }

    /// Writes as JSON a message interpolated at `part` of the way between two; returns whether that is possible.
    pub(super) fn json_between(
        &mut self,
        (before, after): (&Message, &Message),
        part: f64,
        out: &mut Vec<u8>,
    ) -> bool {
        let known = self.known(before);
        if known.has_nothing {
            out.extend_from_slice(b"{}");
            return true;
        }
        let pair: Batch = [before.clone(), after.clone()].into_iter().collect();
        // Two messages with one log time may have swapped in the batch.
        match (pair.get(0), pair.get(1)) {
            (Some(first), Some(second)) => {
                let is_turned = first.payload.as_ptr() != before.payload.as_ptr();
                let (first, second) = if is_turned {
                    (second, first)
                } else {
                    (first, second)
                };
                known.decoders.json_between(first, second, part, out)
            }
            _ => false,
        }
    }

    /// The texts of a message's columns.
    pub(super) fn cells(&mut self, message: &Message) -> Result<CellTexts, String> {
        let known = self.known(message);
        if known.has_nothing {
            return Ok(CellTexts::default());
        }
        with_ref(message, |message| known.decoders.cells(message))
    }

    /// The names of the columns of a message.
    pub(super) fn names(&mut self, message: &Message) -> &[String] {
        let known = self.known(message);
        let has_nothing = known.has_nothing;
        let decoders = &mut known.decoders;
        known.names.get_or_insert_with(|| {
            let names = decoders.cell_names(&message.channel, &message.payload);
            names.ok().filter(|_| !has_nothing).unwrap_or_default()
        })
    }

    /// Reports what was left out, and what could not be decoded; returns whether anything that should be there is missing.
    pub(super) fn tell(&self, progress: &Progress) -> bool {
        let mut has_damage = false;
        let mut all: Vec<&ChannelFields> = self.by_channel.values().collect();
        all.sort_by(|a, b| a.channel.topic.cmp(&b.channel.topic));
        for known in all {
            if !known.left_out.is_empty() {
                let paths = known.left_out.join(", ");
                progress.note(format_args!(
                    "bytes on {} were left out ({}); --bytes prints them",
                    shown(&known.channel.topic),
                    shown(&paths)
                ));
            }
            has_damage |= known.decoders.tell(progress);
        }
        has_damage
    }

    fn known(&mut self, message: &Message) -> &mut ChannelFields {
        let chosen = &self.chosen;
        let entry = self.by_channel.entry(Arc::as_ptr(&message.channel));
        entry.or_insert_with(|| {
            let (projection, left_out) = projection_of(chosen, message);
            let samples: [&[u8]; 1] = [&message.payload];
            let decoder = Decoder::new(&message.channel, &projection, &samples);
            ChannelFields {
                channel: Arc::clone(&message.channel),
                has_nothing: matches!(decoder, Err(SchemaError::NoSuchField { .. })),
                decoders: ReportingDecoders::new(projection),
                left_out,
                names: None,
            }
        })
    }
}

/// What to decode of a channel's messages, and which bytes are left out.
fn projection_of(chosen: &FieldChoice, message: &Message) -> (Projection, Vec<String>) {
    if !chosen.paths.is_empty() {
        return (Projection::any_of(&chosen.paths), Vec::new());
    }
    if chosen.with_bytes {
        return (Projection::All, Vec::new());
    }
    let samples: [&[u8]; 1] = [&message.payload];
    let Ok(decoder) = Decoder::new(&message.channel, &Projection::All, &samples) else {
        return (Projection::All, Vec::new());
    };
    let (mut kept, mut left_out) = (Vec::new(), Vec::new());
    for field in decoder.schema().fields() {
        sort_out(field, "", &mut kept, &mut left_out);
    }
    if left_out.is_empty() {
        return (Projection::All, left_out);
    }
    // The times beside the message are among them: they are not part of it.
    (Projection::any_of(kept), left_out)
}

/// Sorts the fields of a struct into those that are bytes of any length, and the others.
fn sort_out(
    field: &arrow_schema::Field,
    prefix: &str,
    kept: &mut Vec<String>,
    left_out: &mut Vec<String>,
) {
    use arrow_schema::DataType;
    fn inner(kind: &DataType) -> &DataType {
        match kind {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                inner(item.data_type())
            }
            kind => kind,
        }
    }
    let path = format!("{prefix}{}", field.name());
    match inner(field.data_type()) {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => left_out.push(path),
        DataType::Struct(fields) => {
            let (mut some, count) = (Vec::new(), left_out.len());
            for field in fields {
                sort_out(field, &format!("{path}."), &mut some, left_out);
            }
            if left_out.len() == count {
                kept.push(path);
            } else {
                kept.append(&mut some);
            }
        }
        _ => kept.push(path),
    }
}

/// One message of a topic, to determine its columns: the last, or an empty one of its type where there is none.
pub(super) fn sample(file: &dyn Source, topic: &str) -> Option<Message> {
    let topics = Topics::named([topic]);
    let batch = file.latest_at(&topics, Stamp::MAX).ok()?;
    if let Some(message) = batch.get(0) {
        return Some(message.to_message().detached());
    }
    let summary = file.summary();
    let mut channels = summary.channels.iter().map(|entry| &entry.channel);
    let channel = channels.find(|channel| channel.topic == topic && channel.schema.is_some())?;
    Some(Message {
        channel: Arc::clone(channel),
        log_time: Stamp::EPOCH,
        publish_time: Stamp::EPOCH,
        sequence: 0,
        payload: bytes::Bytes::new(),
    })
}

fn with_ref<T: Default>(
    message: &Message,
    work: impl FnOnce(MessageRef<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let batch: Batch = [message.clone()].into_iter().collect();
    match batch.get(0) {
        Some(message) => work(message),
        None => Ok(T::default()),
    }
}
