//! When messages were measured, as they say themselves.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use asof_core::{Channel, MessageRef, Stamp};
use asof_decode::{Decoder, Projection};

/// The column that the decoder makes of them.
const COLUMN: &str = "stamp";

/// Reads the stamps of messages, and nothing else of them.
#[derive(Default)]
pub(super) struct Stamps {
    /// The channel is kept so that its address is not used for another.
    known: HashMap<*const Channel, (Arc<Channel>, Option<Decoder>)>,
}

impl Stamps {
    /// The stamp of a message; `None` where it has none, or zero: a header that nobody filled in.
    pub(super) fn of(&mut self, message: MessageRef<'_>) -> Option<Stamp> {
        let entry = self.known.entry(Arc::as_ptr(message.channel));
        let (_, decoder) = entry.or_insert_with(|| {
            let decoder = decoder_of(message.channel, &[message.payload]);
            (Arc::clone(message.channel), decoder)
        });
        let decoder = decoder.as_mut()?;
        let run = [(
            message.log_time,
            message.publish_time,
            message.payload.into(),
        )];
        decoder.append(&run, |_, _| {});
        let batch = decoder.take().ok()??;
        let stamps = batch.column_by_name(COLUMN)?;
        let stamps = stamps.as_primitive_opt::<TimestampNanosecondType>()?;
        let stamp = stamps.is_valid(0).then(|| stamps.value(0))?;
        (stamp != 0).then(|| Stamp::from_nanos(stamp))
    }
}

/// Whether the type of a channel has a stamp.
pub(super) fn has_stamp(channel: &Channel) -> bool {
    decoder_of(channel, &[]).is_some()
}

fn decoder_of(channel: &Channel, samples: &[&[u8]]) -> Option<Decoder> {
    let decoder = Decoder::new(channel, &Projection::stamp(), samples).ok()?;
    let schema = decoder.schema();
    let field = schema.field_with_name(COLUMN).ok()?;
    let is_time = matches!(field.data_type(), arrow_schema::DataType::Timestamp(..));
    is_time.then_some(decoder)
}
