//! Messages decoded, each by the decoder of its channel.

use std::collections::HashMap;
use std::sync::Arc;

use asof_core::{Channel, MessageRef};
use asof_decode::{Decoder, Projection, SchemaError};

use super::numbers::counted;
use super::screen::Screen;

/// The decoders of all channels met so far, and what they could not decode.
#[derive(Default)]
pub struct Decoders {
    projection: Projection,
    known: HashMap<*const Channel, Known>,
}

struct Known {
    /// Kept so that the address is not used for another.
    channel: Arc<Channel>,
    decoder: Result<Decoder, SchemaError>,
    /// Why there is no decoder.
    reason: String,
    failed: u64,
    first_failure: Option<String>,
}

impl Decoders {
    pub fn new(projection: Projection) -> Self {
        Decoders {
            projection,
            known: HashMap::new(),
        }
    }

    /// Writes a message's data as JSON; says why where that cannot be. Nothing is written then.
    pub fn json(&mut self, message: MessageRef<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        self.with(message, |decoder| decoder.write_json(message.payload, out))
    }

    /// Writes as JSON what a message would have said `part` of the way from one to the next. Whether there
    /// is such a thing; nothing is written where there is none, or where one of them cannot be decoded.
    pub fn json_between(
        &mut self,
        before: MessageRef<'_>,
        after: MessageRef<'_>,
        part: f64,
        out: &mut Vec<u8>,
    ) -> bool {
        let known = self.known_of(before);
        let Ok(decoder) = &mut known.decoder else {
            return false;
        };
        let pair = (before.payload, after.payload);
        Arc::ptr_eq(&known.channel, after.channel)
            && decoder.write_json_between(pair, part, out).unwrap_or(false)
    }

    /// Writes a message's data as comma-separated values, each behind a comma.
    pub fn csv(&mut self, message: MessageRef<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        self.with(message, |decoder| decoder.write_csv(message.payload, out))
    }

    /// The names of a message's columns in comma-separated values.
    pub fn csv_names(&mut self, message: MessageRef<'_>) -> Result<Vec<String>, String> {
        let known = self.known_of(message);
        match &known.decoder {
            Ok(decoder) => Ok(decoder.csv_names()),
            Err(_) => Err(known.reason.clone()),
        }
    }

    /// Tells what could not be decoded; whether there was any that should have been.
    pub fn tell(&self, screen: &Screen) -> bool {
        let mut has_damage = false;
        let mut all: Vec<&Known> = self
            .known
            .values()
            .filter(|known| known.failed > 0)
            .collect();
        all.sort_by(|a, b| a.channel.topic.cmp(&b.channel.topic));
        for known in all {
            let what = counted(known.failed, "message");
            let topic = &known.channel.topic;
            match (&known.decoder, &known.first_failure) {
                // What nobody can read yet is no damage.
                (Err(SchemaError::UnknownEncoding { .. }), _) => {
                    let reason = &known.reason;
                    screen.note(format_args!("{what} on {topic} not decoded: {reason}"));
                }
                (Err(error), _) => {
                    has_damage = true;
                    screen.warning(format_args!("{what} on {topic} not decoded: {error}"));
                }
                (Ok(_), failure) => {
                    has_damage = true;
                    let failure = failure.as_deref().unwrap_or_default();
                    screen.warning(format_args!(
                        "{what} on {topic} not decoded; the first: {failure}"
                    ));
                }
            }
        }
        has_damage
    }

    fn with(
        &mut self,
        message: MessageRef<'_>,
        work: impl FnOnce(&mut Decoder) -> Result<(), asof_decode::PayloadError>,
    ) -> Result<(), String> {
        let known = self.known_of(message);
        let result = match &mut known.decoder {
            Ok(decoder) => work(decoder).map_err(|error| error.to_string()),
            Err(_) => Err(known.reason.clone()),
        };
        if let Err(error) = &result {
            known.failed += 1;
            if known.first_failure.is_none() {
                known.first_failure = Some(format!("at {}, {error}", message.log_time));
            }
        }
        result
    }

    fn known_of(&mut self, message: MessageRef<'_>) -> &mut Known {
        let projection = &self.projection;
        self.known
            .entry(Arc::as_ptr(message.channel))
            .or_insert_with(|| {
                let channel = Arc::clone(message.channel);
                let decoder = Decoder::new(&channel, projection, &[message.payload]);
                let reason = decoder.as_ref().err().map(ToString::to_string);
                Known {
                    reason: missing_definition(&channel).or(reason).unwrap_or_default(),
                    channel,
                    decoder,
                    failed: 0,
                    first_failure: None,
                }
            })
    }
}

/// What to do about a channel whose type is named and not defined, as in bags of ROS 2 before Iron.
pub fn missing_definition(channel: &Channel) -> Option<String> {
    let schema = channel.schema.as_ref()?;
    let is_missing = schema.encoding.is_empty() && schema.data.is_empty();
    is_missing.then(|| {
        format!(
            "no definition of {} is known; name a folder that has its .msg file: --msg-path DIR",
            schema.name
        )
    })
}
