//! Bytes with times, for channels that no other layer takes.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryViewArray, RecordBatch, TimestampNanosecondArray};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use asof_core::Channel;

use super::{Claim, MessageLayer, Table};
use crate::columns::{Backing, Blobs};
use crate::decoder::{channel_metadata, time_field};
use crate::{PayloadError, Projection, Timed};

pub(super) struct Raw;

impl MessageLayer for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn claim(&self, channel: &Channel, _: &Projection, _: &[&[u8]]) -> Claim {
        let fields = vec![
            time_field("log_time", false),
            time_field("publish_time", false),
            Field::new("data", DataType::BinaryView, false),
        ];
        let metadata = channel_metadata(channel, "raw").into_iter().collect();
        Claim::Takes {
            reason: "no other layer takes it".to_owned(),
            table: Box::new(RawTable {
                schema: Arc::new(Schema::new(fields).with_metadata(metadata)),
                log_times: Vec::new(),
                publish_times: Vec::new(),
                blobs: Blobs::default(),
            }),
        }
    }
}

struct RawTable {
    schema: SchemaRef,
    log_times: Vec<i64>,
    publish_times: Vec<i64>,
    blobs: Blobs,
}

impl Table for RawTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn append(&mut self, run: &[Timed<'_>], _: &mut dyn FnMut(usize, PayloadError)) {
        for (log_time, publish_time, payload) in run {
            self.log_times.push(log_time.nanos());
            self.publish_times.push(publish_time.nanos());
            let place = Backing {
                owner: payload.owner,
            };
            self.blobs.push(payload.bytes, 0, place);
        }
    }

    fn rows(&self) -> usize {
        self.log_times.len()
    }

    fn bytes(&self) -> usize {
        32 * self.rows() + self.blobs.own.len() + self.blobs.pinned
    }

    fn take(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        if self.rows() == 0 {
            return Ok(None);
        }
        let times = |times: Vec<i64>| -> ArrayRef {
            let array = TimestampNanosecondArray::new(ScalarBuffer::from(times), None);
            Arc::new(array.with_timezone("UTC"))
        };
        let (views, buffers) = std::mem::take(&mut self.blobs).into_parts();
        let data = BinaryViewArray::try_new(ScalarBuffer::from(views), buffers, None)?;
        let arrays = vec![
            times(std::mem::take(&mut self.log_times)),
            times(std::mem::take(&mut self.publish_times)),
            Arc::new(data),
        ];
        RecordBatch::try_new(Arc::clone(&self.schema), arrays).map(Some)
    }
}
