//! Many messages at once.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Channel, Message, MessageRef, Stamp, TimeRange};

/// Messages in log-time order, with the buffers that hold their payloads.
///
/// A batch owns its data: it can outlive its source and be sent to another thread.
/// Iterating touches no reference counts; [`MessageRef::to_message`] makes an owned message.
///
/// Invariant: rows are sorted by log time, then by `order`; every row's payload is within its buffer,
/// and its channel index within the table.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    channels: Arc<[Arc<Channel>]>,
    buffers: Vec<Bytes>,
    rows: Vec<Row>,
}

/// One message of a [`Batch`]: its times, and where its payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// When it was recorded.
    pub log_time: Stamp,
    /// When it was sent.
    pub publish_time: Stamp,
    /// Its place in the source, to break ties.
    pub order: u64,
    /// First byte of the payload in its buffer.
    pub offset: u64,
    /// Length of the payload.
    pub len: u64,
    /// The sender's sequence number.
    pub sequence: u32,
    /// Index into the batch's channels.
    pub channel: u32,
    /// Index into the batch's buffers.
    pub buffer: u32,
}

impl Batch {
    /// A batch of these rows, which are sorted here.
    ///
    /// # Panics
    /// When a row points outside of its buffer or of the channels: that is a bug of the caller,
    /// never of any input.
    pub fn new(channels: Arc<[Arc<Channel>]>, buffers: Vec<Bytes>, mut rows: Vec<Row>) -> Self {
        let is_inside = |row: &Row| {
            let end = row.offset.checked_add(row.len);
            let buffer = buffers.get(row.buffer as usize);
            (row.channel as usize) < channels.len()
                && buffer
                    .zip(end)
                    .is_some_and(|(buffer, end)| end <= buffer.len() as u64)
        };
        assert!(
            rows.iter().all(is_inside),
            "a row must lie within its buffer and its channels"
        );
        if !rows.is_sorted_by_key(key) {
            rows.sort_by_key(key);
        }
        Batch {
            channels,
            buffers,
            rows,
        }
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it holds no messages.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The message at `index`, in log-time order.
    pub fn get(&self, index: usize) -> Option<MessageRef<'_>> {
        self.rows.get(index).map(|row| self.view(row))
    }

    /// All messages, in log-time order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = MessageRef<'_>> + DoubleEndedIterator {
        self.rows.iter().map(|row| self.view(row))
    }

    /// The rows themselves, for merging or indexing batches.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The channels that [`Row::channel`] points into; some may have no message here.
    pub fn channels(&self) -> &Arc<[Arc<Channel>]> {
        &self.channels
    }

    /// The buffers that [`Row::buffer`] points into.
    pub fn buffers(&self) -> &[Bytes] {
        &self.buffers
    }

    /// From the first message's log time to the last one's.
    pub fn range(&self) -> TimeRange {
        match (self.rows.first(), self.rows.last()) {
            (Some(first), Some(last)) => TimeRange::new(first.log_time, last.log_time),
            _ => TimeRange::EMPTY,
        }
    }

    /// Payload bytes of all its messages together.
    pub fn payload_bytes(&self) -> u64 {
        self.rows.iter().map(|row| row.len).sum()
    }

    /// Bytes that it keeps alive: its rows, and each of its buffers in full, however few of their bytes are payload.
    pub fn held_bytes(&self) -> u64 {
        self.buffer_bytes() + (self.rows.len() * size_of::<Row>()) as u64
    }

    /// The same messages, copied into a buffer of their own if the current buffers keep more than twice the payload
    /// bytes alive.
    ///
    /// Use it for batches that are kept or queued: a batch may be a few messages of a large chunk.
    #[must_use]
    pub fn compacted(self) -> Self {
        const MIN_SAVED_BYTES: u64 = 4 << 10;
        let payload = self.payload_bytes();
        if self.buffer_bytes() <= payload.saturating_mul(2).saturating_add(MIN_SAVED_BYTES) {
            return self;
        }
        let mut own = Vec::with_capacity(payload as usize);
        let mut rows = self.rows.clone();
        for (row, message) in rows.iter_mut().zip(self.iter()) {
            (row.offset, row.buffer) = (own.len() as u64, 0);
            own.extend_from_slice(message.payload);
        }
        Batch {
            channels: Arc::clone(&self.channels),
            buffers: vec![own.into()],
            rows,
        }
    }

    /// The messages for which this returns true, in the same buffers; `None` if there are none.
    pub fn only(&self, mut is_wanted: impl FnMut(MessageRef<'_>) -> bool) -> Option<Self> {
        let rows = self.rows.iter();
        let rows: Vec<Row> = rows
            .filter(|row| is_wanted(self.view(row)))
            .copied()
            .collect();
        (!rows.is_empty()).then(|| Batch {
            channels: Arc::clone(&self.channels),
            buffers: self.buffers.clone(),
            rows,
        })
    }

    fn buffer_bytes(&self) -> u64 {
        if let [only] = self.buffers.as_slice() {
            return only.len() as u64;
        }
        // Two rows may share one payload.
        let mut places: Vec<(usize, u64)> = self
            .buffers
            .iter()
            .map(|buffer| (buffer.as_ptr().addr(), buffer.len() as u64))
            .collect();
        places.sort_unstable();
        places.dedup();
        places.iter().map(|&(_, bytes)| bytes).sum()
    }

    fn view(&self, row: &Row) -> MessageRef<'_> {
        let buffer = &self.buffers[row.buffer as usize];
        MessageRef {
            channel: &self.channels[row.channel as usize],
            log_time: row.log_time,
            publish_time: row.publish_time,
            sequence: row.sequence,
            order: row.order,
            payload: &buffer[row.offset as usize..(row.offset + row.len) as usize],
            buffer,
        }
    }
}

/// A batch of owned messages, ordered by log time; ties keep the order in which they were given.
impl FromIterator<Message> for Batch {
    fn from_iter<I: IntoIterator<Item = Message>>(messages: I) -> Self {
        let mut channels: Vec<Arc<Channel>> = Vec::new();
        let mut buffers = Vec::new();
        let mut rows = Vec::new();
        for (order, message) in messages.into_iter().enumerate() {
            let known = channels
                .iter()
                .position(|channel| Arc::ptr_eq(channel, &message.channel));
            let channel = known.unwrap_or_else(|| {
                channels.push(message.channel);
                channels.len() - 1
            });
            rows.push(Row {
                log_time: message.log_time,
                publish_time: message.publish_time,
                order: order as u64,
                offset: 0,
                len: message.payload.len() as u64,
                sequence: message.sequence,
                channel: channel as u32,
                buffer: order as u32,
            });
            buffers.push(message.payload);
        }
        Batch::new(channels.into(), buffers, rows)
    }
}

fn key(row: &Row) -> (Stamp, u64) {
    (row.log_time, row.order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(log_time: i64, payload: &'static str) -> Message {
        Message {
            channel: Arc::new(Channel {
                topic: "/t".into(),
                ..Channel::default()
            }),
            log_time: log_time.into(),
            publish_time: log_time.into(),
            sequence: 0,
            payload: Bytes::from_static(payload.as_bytes()),
        }
    }

    #[test]
    fn messages_come_out_by_time_and_ties_keep_their_order() {
        let batch: Batch = [message(2, "b"), message(1, "a"), message(2, "c")]
            .into_iter()
            .collect();
        let seen: Vec<_> = batch.iter().map(|m| m.payload).collect();
        assert_eq!(seen, [b"a", b"b", b"c"]);
        assert_eq!(batch.range(), TimeRange::new(1.into(), 2.into()));
    }

    #[test]
    fn a_message_taken_out_shares_the_buffer() {
        let batch: Batch = [message(1, "payload")].into_iter().collect();
        let taken = batch.get(0).expect("one message").to_message();
        assert_eq!(taken.payload.as_ptr(), batch.buffers()[0].as_ptr());
        assert_ne!(
            taken.clone().detached().payload.as_ptr(),
            taken.payload.as_ptr()
        );
    }

    #[test]
    fn a_few_messages_of_a_large_buffer_can_be_kept_without_it() {
        let large = Bytes::from(vec![7; 100_000]);
        let few: Batch = (0..3)
            .map(|time| Message {
                payload: large.slice(time as usize * 10..time as usize * 10 + 10),
                ..message(time, "")
            })
            .collect();
        let buffers = vec![large.clone(), large];
        let mut rows = few.rows().to_vec();
        for (row, at) in rows.iter_mut().zip([5, 20, 40]) {
            (row.buffer, row.offset) = (1, at);
        }
        let batch = Batch::new(Arc::clone(few.channels()), buffers, rows);
        let rows = 3 * size_of::<Row>() as u64;
        assert_eq!(
            batch.held_bytes(),
            100_000 + rows,
            "one buffer, named twice"
        );
        let compact = batch.clone().compacted();
        assert_eq!(compact.held_bytes(), 30 + rows);
        let payloads = |batch: &Batch| -> Vec<Vec<u8>> {
            batch
                .iter()
                .map(|message| message.payload.to_vec())
                .collect()
        };
        assert_eq!(payloads(&compact), payloads(&batch));
        let place = compact.buffers()[0].as_ptr();
        assert_eq!(
            compact.compacted().buffers()[0].as_ptr(),
            place,
            "it is left as it is"
        );
    }

    #[test]
    #[should_panic(expected = "within its buffer")]
    fn a_row_outside_of_its_buffer_is_refused() {
        let channels = vec![message(0, "").channel];
        let stamp = Stamp::EPOCH;
        let row = Row {
            log_time: stamp,
            publish_time: stamp,
            order: 0,
            offset: 2,
            len: 2,
            sequence: 0,
            channel: 0,
            buffer: 0,
        };
        Batch::new(channels.into(), vec![Bytes::from_static(b"abc")], vec![row]);
    }
}
