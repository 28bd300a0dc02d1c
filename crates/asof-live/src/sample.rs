//! A message as it came from the robot.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use asof_core::{Channel, Message, Stamp};
use bytes::Bytes;
use zenoh::bytes::ZBytes;

use crate::describe::Described;

/// Smaller payloads are copied out of their receive buffer: a handle to one would keep up to 64 KB alive.
const KEEP_FROM: usize = 16 << 10;
/// What one slice of a payload keeps alive: Zenoh's receive buffer.
const RECEIVE_BUFFER: u64 = 1 << 16;

/// A message as it came from the robot: undecoded, with all that is known of it.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Its topic, type, encoding and schema.
    pub channel: Arc<Channel>,
    /// Where its schema will be, while that is on its way.
    pub(crate) described: Option<Arc<Described>>,
    /// When the transport says it was sent.
    pub transport: Option<Stamp>,
    /// When its publisher says it was sent.
    pub source: Option<Stamp>,
    /// When it was received.
    pub received: Stamp,
    /// The publisher's own count.
    pub sequence: Option<i64>,
    /// Which publisher it came from.
    pub publisher: Option<[u8; 16]>,
    /// The encoded message.
    pub payload: Payload,
}

impl Sample {
    /// The same as a message of a recording: logged when received, published when the source said so; with the schema
    /// that may have come since.
    pub fn to_message(&self) -> Message {
        let channel = match &self.described {
            Some(described) => described.current().0,
            None => Arc::clone(&self.channel),
        };
        Message {
            channel,
            log_time: self.received,
            publish_time: self.source.or(self.transport).unwrap_or(self.received),
            sequence: self.sequence.unwrap_or(0) as u32,
            payload: self.payload.bytes(),
        }
    }

    /// Whether its schema is there, or nobody waits for one any more: a node may take a moment to describe its types.
    pub fn is_settled(&self) -> bool {
        self.settled().is_some()
    }

    /// Its channel with the schema that has come meanwhile; `None` while it is worth waiting for one.
    pub(crate) fn settled(&self) -> Option<Arc<Channel>> {
        match &self.described {
            Some(described) => described.settled(),
            None => Some(Arc::clone(&self.channel)),
        }
    }

    /// The stamp in the message's header, read in place, if its type starts with one.
    pub fn header_stamp(&self) -> Option<Stamp> {
        asof_window::header_stamp(&self.payload.head())
    }

    /// The bytes that keeping this sample keeps alive.
    pub fn weight(&self) -> u64 {
        self.payload.weight() + size_of::<Sample>() as u64
    }
}

/// The bytes of a message. Large ones are shared with the transport, as they arrived.
#[derive(Debug, Clone)]
pub struct Payload(Inner);

#[derive(Debug, Clone)]
enum Inner {
    Copied(Bytes),
    Kept(Arc<Kept>),
}

#[derive(Debug)]
struct Kept {
    pieces: ZBytes,
    whole: OnceLock<Bytes>,
}

impl Payload {
    /// Takes over what was received: copied if it is small, kept as it is if it is large.
    pub fn new(received: &ZBytes) -> Self {
        if received.len() < KEEP_FROM {
            return Payload(Inner::Copied(copy(received)));
        }
        Payload(Inner::Kept(Arc::new(Kept {
            pieces: received.clone(),
            whole: OnceLock::new(),
        })))
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        match &self.0 {
            Inner::Copied(bytes) => bytes.len(),
            Inner::Kept(kept) => kept.pieces.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it in one piece. A large payload arrives in several: they are put together once, when first asked for.
    pub fn bytes(&self) -> Bytes {
        match &self.0 {
            Inner::Copied(bytes) => bytes.clone(),
            Inner::Kept(kept) => kept.whole.get_or_init(|| whole(&kept.pieces)).clone(),
        }
    }

    /// The bytes that it keeps alive.
    pub fn weight(&self) -> u64 {
        match &self.0 {
            Inner::Copied(bytes) => bytes.len() as u64,
            Inner::Kept(kept) => {
                let slices = kept.pieces.slices().count() as u64;
                let pinned = (slices * RECEIVE_BUFFER).max(kept.pieces.len() as u64);
                pinned + kept.whole.get().map_or(0, |whole| whole.len() as u64)
            }
        }
    }

    /// The first bytes, for those who peek.
    fn head(&self) -> Cow<'_, [u8]> {
        match &self.0 {
            Inner::Copied(bytes) => Cow::Borrowed(bytes),
            Inner::Kept(kept) => match kept.pieces.slices().next() {
                Some(first) if first.len() >= 12 => Cow::Borrowed(first),
                _ => kept.pieces.to_bytes(),
            },
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Payload(Inner::Copied(bytes))
    }
}

/// A payload that is one slice, as an owner of its bytes.
struct OneSlice(ZBytes);

impl AsRef<[u8]> for OneSlice {
    fn as_ref(&self) -> &[u8] {
        self.0.slices().next().unwrap_or_default()
    }
}

fn whole(pieces: &ZBytes) -> Bytes {
    if pieces.slices().count() == 1 {
        return Bytes::from_owner(OneSlice(pieces.clone()));
    }
    copy(pieces)
}

fn copy(pieces: &ZBytes) -> Bytes {
    let mut bytes = Vec::with_capacity(pieces.len());
    for slice in pieces.slices() {
        bytes.extend_from_slice(slice);
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_payload_is_copied_out_of_its_buffer() {
        let payload = Payload::new(&ZBytes::from(vec![7; 100]));
        assert_eq!((payload.weight(), payload.bytes().len()), (100, 100));
    }

    #[test]
    fn a_large_payload_is_kept_and_weighed_with_what_it_pins() {
        let received = ZBytes::from(vec![7; 1 << 20]);
        let payload = Payload::new(&received);
        let first = received.slices().next().expect("one slice").as_ptr();
        assert_eq!(payload.bytes().as_ptr(), first, "nothing was copied");
        assert!(payload.weight() >= 1 << 20);
        assert_eq!(
            Payload::new(&ZBytes::from(vec![7; KEEP_FROM])).weight(),
            1 << 16
        );
    }
}
