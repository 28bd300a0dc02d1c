//! Payload encodings, each with a decoder that writes into columns.

mod cbor;
pub(crate) mod cdr;
pub(crate) mod cdr_fields;
mod cdr_memo;
mod cdr_wrapped;
pub(crate) mod flat_table;
pub(crate) mod flatbuffer;
pub(crate) mod json;
pub(crate) mod protobuf;
mod protobuf_plan;
mod protobuf_quick;
mod protobuf_wire;

use crate::columns::{Columns, Payload};
use crate::error::{Fault, PayloadError};
use crate::layout::Layout;

/// What a message may add to a column in any case, such as values that stand in for missing ones.
const LEAST_MEASURED: usize = BYTES_OF_A_VALUE * VALUES_AT_LEAST;
/// A message of any size may have this many values, with those that stand in for missing ones.
const VALUES_AT_LEAST: usize = 1 << 22;
/// The most values for each byte of a larger message: an element of a list may take two bytes and have thousands of fields.
const VALUES_OF_A_BYTE: usize = 32;
/// This many bytes of text that a decoder writes count as a value.
const BYTES_OF_A_VALUE: usize = 4;

/// The most values of a message with this many bytes.
fn values_at_most(bytes: usize) -> usize {
    VALUES_AT_LEAST.max(bytes.saturating_mul(VALUES_OF_A_BYTE))
}

#[cold]
#[allow(clippy::unnecessary_box_returns)]
fn too_many_values(at: usize) -> Fault {
    let reason =
        "far more values than bytes: elements of lists that have hardly any of their fields"
            .to_owned();
    Box::new(PayloadError::TooLarge { at, reason })
}

/// Decodes the payloads of one channel into columns.
pub(crate) trait WireDecoder: Send {
    /// The columns that it writes.
    fn layout(&self) -> &Layout;

    /// Decodes a payload into a row after the existing `rows`. When it fails, the caller has to roll back what was
    /// written.
    fn decode_one(
        &mut self,
        payload: Payload<'_>,
        columns: &mut Columns,
        rows: usize,
    ) -> Result<(), Fault>;

    /// Decodes at once the first payloads of a run that have the layout of an earlier one; returns how many.
    fn decode_alike(&mut self, _run: &[Payload<'_>], _columns: &mut Columns) -> usize {
        0
    }

    /// Decodes a run of payloads into rows after the existing `rows`. Payloads that cannot be decoded leave no row,
    /// and are reported by their position in the run.
    fn decode(
        &mut self,
        run: &[Payload<'_>],
        columns: &mut Columns,
        mut rows: usize,
        failed: &mut Vec<(usize, PayloadError)>,
    ) {
        let mut at = 0;
        let mut room = columns.room().unwrap_or(0);
        while at < run.len() {
            let alike = self.decode_alike(&run[at..], columns);
            if alike > 0 {
                let most = alike.saturating_mul(run[at].bytes.len());
                room = room.saturating_sub(most.saturating_mul(64));
                at += alike;
                rows += alike;
                continue;
            }
            match self.decode_one(run[at], columns, rows) {
                Ok(()) => {
                    // Measured again where it may be used up.
                    let most = run[at].bytes.len();
                    let most =
                        most.saturating_mul(BYTES_OF_A_VALUE * VALUES_OF_A_BYTE) + LEAST_MEASURED;
                    room = room
                        .checked_sub(most)
                        .or_else(|| columns.room())
                        .unwrap_or(0);
                    if room > 0 {
                        rows += 1;
                    } else {
                        self.layout().truncate(columns, rows);
                        let reason = "the batch has no room for its texts and bytes".to_owned();
                        failed.push((at, PayloadError::TooLarge { at: 0, reason }));
                    }
                }
                Err(error) => {
                    self.layout().truncate(columns, rows);
                    failed.push((at, *error));
                }
            }
            at += 1;
        }
    }

    /// The payload as JSON text, if it is JSON or can be converted without the columns.
    fn text(&self, _payload: &[u8]) -> Option<Result<Vec<u8>, PayloadError>> {
        None
    }
}
