//! One message, owned or borrowed.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Channel, Stamp};

/// One owned message, which can be kept and sent to other threads.
///
/// The payload is usually a slice of a larger buffer: cheap to clone, but it keeps that buffer alive.
/// To keep small messages for a long time, call [`Message::detached`], so that they do not pin their chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its topic, encoding and schema.
    pub channel: Arc<Channel>,
    /// When it was recorded. Everything in asof is ordered by it.
    pub log_time: Stamp,
    /// When it was sent, by its sender's clock.
    pub publish_time: Stamp,
    /// The sender's sequence number; zero without one.
    pub sequence: u32,
    /// The encoded message.
    pub payload: Bytes,
}

impl Message {
    /// The same message with a payload of its own, so that it keeps no larger buffer alive.
    #[must_use]
    pub fn detached(self) -> Self {
        Message {
            payload: Bytes::copy_from_slice(&self.payload),
            ..self
        }
    }
}

/// One message, borrowed from its [`Batch`](crate::Batch): no reference count is touched, and nothing is copied.
#[derive(Debug, Clone, Copy)]
pub struct MessageRef<'a> {
    /// Its topic, encoding and schema.
    pub channel: &'a Arc<Channel>,
    /// When it was recorded.
    pub log_time: Stamp,
    /// When it was sent, by its sender's clock.
    pub publish_time: Stamp,
    /// The sender's sequence number; zero without one.
    pub sequence: u32,
    /// Its position in the source: of two messages with equal `log_time`, the smaller comes first.
    pub order: u64,
    /// The encoded message.
    pub payload: &'a [u8],
    pub(crate) buffer: &'a Bytes,
}

impl MessageRef<'_> {
    /// An owned message that shares the batch's buffer.
    pub fn to_message(&self) -> Message {
        Message {
            channel: Arc::clone(self.channel),
            log_time: self.log_time,
            publish_time: self.publish_time,
            sequence: self.sequence,
            payload: self.buffer.slice_ref(self.payload),
        }
    }
}
