//! A message as it was received from the robot.

use std::sync::{Arc, OnceLock};

use asof_core::{Channel, Message, Stamp};
use bytes::Bytes;
use parking_lot::Mutex;
use zenoh::bytes::ZBytes;

use crate::describe::Described;
use crate::robot::now;

/// Smaller payloads are copied out of their receive buffer: a handle to one would keep up to 64 KB alive.
const MIN_SHARED_BYTES: usize = 16 << 10;
/// The memory that one slice of a payload keeps alive: Zenoh's receive buffer.
const RECEIVE_BUFFER_BYTES: usize = 1 << 16;
/// The bytes of a CDR message up to the end of its header's stamp.
const STAMP_END: usize = 12;

/// A message as it was received from the robot: undecoded, with all its metadata.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Its topic, type, encoding and schema.
    pub channel: Arc<Channel>,
    /// The source of its schema, while that is pending.
    pub(crate) described: Option<Arc<Described>>,
    /// Whether its type was known to start with a header when it arrived.
    pub(crate) has_header: bool,
    /// When it was sent, by the transport.
    pub transport: Option<Stamp>,
    /// When it was sent, by its publisher.
    pub source: Option<Stamp>,
    /// When it was received.
    pub received: Stamp,
    /// The publisher's sequence number.
    pub sequence: Option<i64>,
    /// The publisher's identifier.
    pub publisher: Option<[u8; 16]>,
    /// The encoded message.
    pub payload: SamplePayload,
}

impl Sample {
    /// A message of a channel with a complete schema, received now.
    pub fn new(channel: Arc<Channel>, payload: impl Into<SamplePayload>) -> Self {
        Sample {
            channel,
            described: None,
            has_header: false,
            transport: None,
            source: None,
            received: now(),
            sequence: None,
            publisher: None,
            payload: payload.into(),
        }
    }

    /// A message of a channel whose schema may be pending, received now.
    pub(crate) fn of(described: &Arc<Described>, payload: impl Into<SamplePayload>) -> Self {
        let known = described.known();
        Sample {
            described: known.is_pending.then(|| Arc::clone(described)),
            has_header: known.has_header,
            ..Sample::new(known.channel, payload)
        }
    }

    /// Converts it to a message of a recording: logged when received, published by its source time, with the schema
    /// that may have arrived since. Its payload keeps no more memory alive than its own bytes.
    pub fn to_message(&self) -> Message {
        let channel = match &self.described {
            Some(described) => described.known().channel,
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

    /// The same without its payload, and the payload, where that arrived in pieces that are about as large as the memory
    /// which they keep alive: they can be joined when somebody reads them.
    pub(crate) fn to_message_in_pieces(&self) -> Option<(Message, SamplePayload)> {
        let payload = self.payload.in_pieces()?;
        let bare = Sample {
            payload: SamplePayload::default(),
            ..self.clone()
        };
        Some((bare.to_message(), payload))
    }

    /// Whether its schema has arrived, or is no longer expected: a node may take a moment to describe its types.
    pub fn is_settled(&self) -> bool {
        self.settled().is_some()
    }

    /// Its channel with the schema that has arrived since; `None` while one is worth waiting for.
    pub fn settled(&self) -> Option<Arc<Channel>> {
        match &self.described {
            Some(described) => described.settled(),
            None => Some(Arc::clone(&self.channel)),
        }
    }

    /// Whether the only definition of its type that was found differs from the robot's.
    pub fn is_defined_otherwise(&self) -> bool {
        let described = self.described.as_ref();
        described.is_some_and(|described| described.is_other())
    }

    /// The stamp in the message's header, read in place. `None` where the type does not start with a
    /// `std_msgs/Header`, or its definition is not known yet.
    pub fn header_stamp(&self) -> Option<Stamp> {
        let has_header = match &self.described {
            Some(described) => described.known().has_header,
            None => self.has_header,
        };
        if !has_header {
            return None;
        }
        asof_window::header_stamp(&self.payload.head()?)
    }

    /// Its stamps: the one in its header, and that of its publisher.
    pub fn stamps(&self) -> impl Iterator<Item = Stamp> {
        [self.header_stamp(), self.source].into_iter().flatten()
    }

    /// The same beside a robot's own clock, where it has one: a stamp in a header that is nearer to that clock than to the
    /// time of receipt is moved by the difference of the two.
    pub(crate) fn stamps_beside(&self, clock: Option<Stamp>) -> impl Iterator<Item = Stamp> {
        let header = self.header_stamp().map(|stamp| {
            let off = |from: Stamp| stamp.nanos().abs_diff(from.nanos());
            let clock = clock.filter(|clock| off(*clock) < off(self.received));
            let step = clock.map_or(0, |clock| self.received.since(clock));
            // Zero stays what it is: a header that nobody filled in.
            if stamp == Stamp::EPOCH {
                stamp
            } else {
                stamp.plus_nanos(step)
            }
        });
        [header, self.source].into_iter().flatten()
    }

    /// The time of a clock message, of ROS 1 or ROS 2; `None` where it is not one.
    pub fn clock_time(&self) -> Option<Stamp> {
        match self.channel.type_name() {
            "rosgraph_msgs/msg/Clock" => asof_window::header_stamp(&self.payload.head()?),
            "rosgraph_msgs/Clock" => {
                let bytes = self.payload.bytes();
                let time: &[u8; 8] = bytes.first_chunk()?;
                // ROS 1 has the same eight bytes, without the encapsulation header.
                asof_window::header_stamp(&[&[0, 1, 0, 0], &time[..]].concat())
            }
            _ => None,
        }
    }

    /// The memory that this sample keeps alive.
    pub fn weight(&self) -> u64 {
        self.payload.weight() + size_of::<Sample>() as u64
    }
}

/// The bytes of a message. Large ones are shared with the transport, as they arrived.
#[derive(Debug, Clone)]
pub struct SamplePayload(Inner);

#[derive(Debug, Clone)]
enum Inner {
    Copied(Bytes),
    Kept(Arc<Fragments>),
}

#[derive(Debug)]
struct Fragments {
    len: usize,
    /// The memory that the pieces keep alive. The joined payload never has more: the pieces are released for it.
    weight: u64,
    /// As they arrived, until they are joined.
    pieces: Mutex<Option<ZBytes>>,
    whole: OnceLock<Bytes>,
}

impl SamplePayload {
    /// Wraps a received payload: a small one is copied, a large one is kept as it is.
    pub fn new(received: &ZBytes) -> Self {
        let len = received.len();
        if len < MIN_SHARED_BYTES {
            return SamplePayload(Inner::Copied(copy(received)));
        }
        let pinned = received
            .slices()
            .map(|slice| slice.len().max(RECEIVE_BUFFER_BYTES) as u64);
        SamplePayload(Inner::Kept(Arc::new(Fragments {
            len,
            weight: pinned.sum(),
            pieces: Mutex::new(Some(received.clone())),
            whole: OnceLock::new(),
        })))
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Inner::Copied(bytes) => bytes.len(),
            Inner::Kept(kept) => kept.len,
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes in one piece, which keeps no more memory alive than its own bytes. Pieces, and parts of a receive
    /// buffer, are joined on the first call and then released; a piece larger than a receive buffer is shared as it
    /// is.
    pub fn bytes(&self) -> Bytes {
        match &self.0 {
            Inner::Copied(bytes) => bytes.clone(),
            Inner::Kept(kept) => kept.whole().clone(),
        }
    }

    /// Itself, if its bytes are not joined yet and its pieces keep little more alive than they would be.
    fn in_pieces(&self) -> Option<SamplePayload> {
        let Inner::Kept(kept) = &self.0 else {
            return None;
        };
        let is_tight = kept.weight <= kept.len as u64 / 8 * 9;
        (is_tight && kept.whole.get().is_none()).then(|| self.clone())
    }

    /// The most memory that it keeps alive, now and after its pieces are joined.
    pub fn weight(&self) -> u64 {
        match &self.0 {
            Inner::Copied(bytes) => bytes.len() as u64,
            Inner::Kept(kept) => kept.weight,
        }
    }

    /// The first bytes, for peeking; `None` where there are fewer.
    fn head(&self) -> Option<[u8; STAMP_END]> {
        match &self.0 {
            Inner::Copied(bytes) => bytes.first_chunk().copied(),
            Inner::Kept(kept) => kept.head(),
        }
    }
}

impl Fragments {
    fn whole(&self) -> &Bytes {
        self.whole.get_or_init(|| {
            // The pieces are taken once: this initializer runs once.
            let pieces = self.pieces.lock().take().unwrap_or_default();
            whole(pieces)
        })
    }

    fn head(&self) -> Option<[u8; STAMP_END]> {
        if let Some(whole) = self.whole.get() {
            return whole.first_chunk().copied();
        }
        let pieces = self.pieces.lock();
        let Some(pieces) = &*pieces else {
            // They are being joined at this moment.
            drop(pieces);
            return self.whole().first_chunk().copied();
        };
        let first = pieces.slices().next().and_then(<[u8]>::first_chunk);
        first
            .copied()
            .or_else(|| pieces.to_bytes().first_chunk().copied())
    }
}

impl Default for SamplePayload {
    fn default() -> Self {
        SamplePayload(Inner::Copied(Bytes::new()))
    }
}

impl From<Bytes> for SamplePayload {
    fn from(bytes: Bytes) -> Self {
        SamplePayload(Inner::Copied(bytes))
    }
}

/// A payload of one slice, as an owner of its bytes.
struct OneSlice(ZBytes);

impl AsRef<[u8]> for OneSlice {
    fn as_ref(&self) -> &[u8] {
        self.0.slices().next().unwrap_or_default()
    }
}

fn whole(pieces: ZBytes) -> Bytes {
    let is_shared = pieces.slices().count() == 1 && pieces.len() >= RECEIVE_BUFFER_BYTES;
    if is_shared {
        return Bytes::from_owner(OneSlice(pieces));
    }
    copy(&pieces)
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
    use zenoh::bytes::ZBytesWriter;

    /// A payload that arrived in pieces.
    fn in_pieces(count: usize, len: usize) -> ZBytes {
        let mut writer: ZBytesWriter = ZBytes::writer();
        for number in 0..count {
            writer.append(ZBytes::from(vec![number as u8; len]));
        }
        writer.finish()
    }

    fn sample(definition: Option<&str>, payload: SamplePayload) -> Sample {
        Sample {
            channel: Arc::default(),
            described: None,
            has_header: definition
                .is_some_and(|text| asof_ros::msg::starts_with_header("a/msg/B", text)),
            transport: None,
            source: None,
            received: 1.into(),
            sequence: None,
            publisher: None,
            payload,
        }
    }

    #[test]
    fn a_small_payload_is_copied_out_of_its_buffer() {
        let payload = SamplePayload::new(&ZBytes::from(vec![7; 100]));
        assert_eq!((payload.weight(), payload.bytes().len()), (100, 100));
    }

    #[test]
    fn a_large_payload_is_kept_and_weighed_with_what_it_pins() {
        let received = ZBytes::from(vec![7; 1 << 20]);
        let payload = SamplePayload::new(&received);
        let first = received.slices().next().expect("one slice").as_ptr();
        assert_eq!(payload.bytes().as_ptr(), first, "nothing was copied");
        assert_eq!(payload.weight(), 1 << 20);
        assert_eq!(
            SamplePayload::new(&ZBytes::from(vec![7; MIN_SHARED_BYTES])).weight(),
            1 << 16
        );
    }

    #[test]
    fn a_part_of_a_receive_buffer_does_not_pin_it_as_a_message() {
        let received = ZBytes::from(vec![7; MIN_SHARED_BYTES]);
        let part = received.slices().next().expect("one slice").as_ptr();
        let message = sample(None, SamplePayload::new(&received)).to_message();
        assert_ne!(message.payload.as_ptr(), part, "it has bytes of its own");
        assert_eq!(message.payload.len(), MIN_SHARED_BYTES);
    }

    #[test]
    fn pieces_are_given_up_for_the_whole() {
        let payload = SamplePayload::new(&in_pieces(3, 50_000));
        let before = payload.weight();
        assert_eq!(before, 3 << 16, "each pins a receive buffer");
        let whole = payload.bytes();
        assert_eq!((whole.len(), whole[49_999], whole[50_000]), (150_000, 0, 1));
        let Inner::Kept(kept) = &payload.0 else {
            panic!("it is large");
        };
        assert!(kept.pieces.lock().is_none(), "only the whole is left");
        assert!(payload.weight() >= whole.len() as u64 && payload.weight() <= before);
        assert_eq!(
            payload.bytes().as_ptr(),
            whole.as_ptr(),
            "put together once"
        );
    }

    #[test]
    fn pieces_that_pin_little_more_than_themselves_are_joined_by_their_reader() {
        let large = sample(None, SamplePayload::new(&in_pieces(20, 65_000)));
        let (message, payload) = large.to_message_in_pieces().expect("in pieces");
        assert_eq!((message.payload.len(), payload.len()), (0, 1_300_000));
        assert_eq!(payload.bytes(), large.to_message().payload);
        assert!(large.to_message_in_pieces().is_none(), "joined already");
        // Kept in pieces, it would take much more of a budget.
        let loose = sample(None, SamplePayload::new(&in_pieces(20, 20_000)));
        assert!(loose.to_message_in_pieces().is_none());
    }

    #[test]
    fn a_stamp_is_read_of_types_that_start_with_a_header_alone() {
        let at_rest = || SamplePayload::from(Bytes::from(vec![0; 52]));
        let twist = "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular";
        assert_eq!(sample(Some(twist), at_rest()).header_stamp(), None);
        assert_eq!(sample(None, at_rest()).header_stamp(), None);
        let stamped = "# where\nuint8 A=1\nstd_msgs/Header header\nfloat64 x";
        assert_eq!(
            sample(Some(stamped), at_rest()).header_stamp(),
            Some(0.into())
        );
    }

    #[test]
    fn a_stamp_of_a_simulation_is_compared_with_its_clock() {
        let mut payload = vec![0, 1, 0, 0];
        payload.extend([7, 0, 0, 0, 0, 0, 0, 0]);
        let payload = SamplePayload::from(Bytes::from(payload));
        let mut sample = sample(Some("std_msgs/Header header"), payload);
        sample.received = 1_700_000_000_000_000_000.into();
        let seen = |sample: &Sample, clock: Option<i64>| -> Vec<i64> {
            let stamps = sample.stamps_beside(clock.map(Stamp::from));
            stamps.map(|stamp| stamp.since(sample.received)).collect()
        };
        assert_eq!(seen(&sample, Some(7_000_000_005)), [-5]);
        assert_eq!(
            seen(&sample, None),
            [7_000_000_000 - sample.received.nanos()]
        );
        // Where stamps have the time of the computer, another clock is none of theirs.
        sample.received = 7_000_000_001.into();
        assert_eq!(seen(&sample, Some(99_000_000_000)), [-1]);
    }

    #[test]
    fn a_stamp_is_read_of_pieces_and_of_the_whole() {
        let definition = Some("std_msgs/Header header");
        let mut writer = ZBytes::writer();
        writer.append(ZBytes::from(vec![0, 1, 0, 0, 7]));
        writer.append(ZBytes::from(vec![0, 0, 0, 5, 0, 0, 0]));
        writer.append(ZBytes::from(vec![0; 1 << 17]));
        let payload = SamplePayload::new(&writer.finish());
        let sample = sample(definition, payload);
        assert_eq!(sample.header_stamp(), Some(7_000_000_005.into()));
        let _ = sample.payload.bytes();
        assert_eq!(sample.header_stamp(), Some(7_000_000_005.into()));
    }
}
