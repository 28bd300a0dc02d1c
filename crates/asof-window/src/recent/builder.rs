//! Batches of what a store holds, and payloads that are made for their first reader.

use std::fmt;
use std::sync::Arc;

use asof_core::{Batch, Channel, Message, Row};
use bytes::Bytes;

/// The most messages in a batch, and about the most bytes.
const BATCH_MESSAGES: usize = 1024;
const BATCH_BYTES: u64 = 4 << 20;

/// A payload that is made for its first reader.
#[derive(Clone)]
pub(super) struct Later {
    /// About how long it will be.
    pub len: u64,
    pub make: Arc<dyn Fn() -> Bytes + Send + Sync>,
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// The rows of a batch, collected under the store's lock and finished without it.
#[derive(Default)]
pub(super) struct Builder {
    channels: Vec<Arc<Channel>>,
    /// One for each row.
    payloads: Vec<Payload>,
    rows: Vec<Row>,
    bytes: u64,
}

enum Payload {
    Whole(Bytes),
    Later(Later),
}

impl Builder {
    pub fn add(&mut self, message: &Message, order: u64, later: Option<&Later>) {
        let known = self
            .channels
            .iter()
            .position(|known| Arc::ptr_eq(known, &message.channel));
        let channel = known.unwrap_or_else(|| {
            self.channels.push(Arc::clone(&message.channel));
            self.channels.len() - 1
        });
        self.bytes += later.map_or(message.payload.len() as u64, |later| later.len);
        self.rows.push(Row {
            log_time: message.log_time,
            publish_time: message.publish_time,
            order,
            offset: 0,
            len: 0,
            sequence: message.sequence,
            channel: channel as u32,
            buffer: self.rows.len() as u32,
        });
        self.payloads.push(match later {
            None => Payload::Whole(message.payload.clone()),
            Some(later) => Payload::Later(later.clone()),
        });
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.rows.len() >= BATCH_MESSAGES || self.bytes >= BATCH_BYTES
    }

    /// The batch. Makes the payloads that nobody has read before.
    pub fn finish(mut self) -> Batch {
        let buffers = self.payloads.into_iter().map(|payload| match payload {
            Payload::Whole(bytes) => bytes,
            Payload::Later(later) => (later.make)(),
        });
        let buffers: Vec<Bytes> = buffers.collect();
        for (row, buffer) in self.rows.iter_mut().zip(&buffers) {
            row.len = buffer.len() as u64;
        }
        Batch::new(self.channels.into(), buffers, self.rows)
    }
}
