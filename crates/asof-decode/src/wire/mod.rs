//! Payload encodings, each with a decoder that writes into columns.

mod cbor;
pub(crate) mod cdr;
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
use crate::error::PayloadError;
use crate::layout::Layout;

/// Decodes the payloads of one channel into columns.
pub(crate) trait WireDecoder: Send {
    /// The columns that it writes.
    fn layout(&self) -> &Layout;

    /// Decodes a run of payloads into rows behind the `rows` that there are. Those that cannot be decoded
    /// leave no row, and are named by their place in the run.
    fn decode(
        &mut self,
        run: &[Payload<'_>],
        columns: &mut Columns,
        rows: usize,
        failed: &mut Vec<(usize, PayloadError)>,
    );

    /// Whether a payload is JSON text as it is, or can be made so without the columns.
    fn text(&self, _payload: &[u8]) -> Option<Result<Vec<u8>, PayloadError>> {
        None
    }
}

impl WireDecoder for cdr::CdrDecoder {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn decode(
        &mut self,
        run: &[Payload<'_>],
        columns: &mut Columns,
        rows: usize,
        failed: &mut Vec<(usize, PayloadError)>,
    ) {
        cdr::CdrDecoder::decode(self, run, columns, rows, failed);
    }
}
