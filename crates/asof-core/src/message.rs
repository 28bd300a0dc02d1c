//! One message, owned or seen in place.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Channel, Stamp};

/// One message, free to be kept and sent to other threads.
///
/// The payload is a slice of a larger buffer as a rule: cheap to clone, but it keeps that buffer
/// alive. To keep messages for long, call [`Message::detached`] on small ones, so that they
/// do not pin the chunk they were cut from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What it is and where it came from.
    pub channel: Arc<Channel>,
    /// When it was recorded. The order of everything in asof.
    pub log_time: Stamp,
    /// When it was sent, by its sender's clock.
    pub publish_time: Stamp,
    /// The sender's own count; zero where there is none.
    pub sequence: u32,
    /// The encoded message.
    pub payload: Bytes,
}

impl Message {
    /// The same message with a payload of its own, which keeps no other buffer alive.
    #[must_use]
    pub fn detached(self) -> Self {
        Message {
            payload: Bytes::copy_from_slice(&self.payload),
            ..self
        }
    }
}

/// One message as it lies in its [`Batch`](crate::Batch): nothing is counted, cloned or copied.
#[derive(Debug, Clone, Copy)]
pub struct MessageRef<'a> {
    /// What it is and where it came from.
    pub channel: &'a Arc<Channel>,
    /// When it was recorded.
    pub log_time: Stamp,
    /// When it was sent, by its sender's clock.
    pub publish_time: Stamp,
    /// The sender's own count; zero where there is none.
    pub sequence: u32,
    /// Its place in the source: of two messages with one `log_time`, the smaller comes first.
    pub order: u64,
    /// The encoded message.
    pub payload: &'a [u8],
    pub(crate) buffer: &'a Bytes,
}

impl MessageRef<'_> {
    /// The message as a value of its own, sharing the batch's buffer.
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
