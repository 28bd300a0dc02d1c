//! The queue of what was read and not yet played.

use std::collections::{BTreeMap, VecDeque};

use asof_core::{Batch, Stamp};

/// Queued pieces in playback order, and the bytes that they keep alive.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pieces: VecDeque<(Piece, u64)>,
    bytes: u64,
}

/// A queued piece.
#[derive(Debug)]
pub(crate) enum Piece {
    Batch(Batch),
    /// The number of messages, by topic, that were dropped before they could be read.
    Missed(BTreeMap<String, u64>),
    /// The clock of the source was set back.
    Restarted,
}

/// The most bytes that queued batches may keep alive, whatever the look-ahead. What is further ahead
/// stays in the cache or the source.
pub(crate) const QUEUED_BYTES: u64 = 32 << 20;

impl Queue {
    /// Adds a piece at the end. Batches are compacted.
    pub fn push(&mut self, piece: Piece) {
        let (piece, bytes) = match piece {
            Piece::Batch(batch) => {
                let batch = batch.compacted();
                let bytes = batch.held_bytes();
                (Piece::Batch(batch), bytes)
            }
            other => (other, 0),
        };
        self.bytes += bytes;
        self.pieces.push_back((piece, bytes));
    }

    /// Puts back the rest of the batch taken last.
    pub fn push_back_front(&mut self, batch: Batch) {
        let bytes = batch.held_bytes();
        self.bytes += bytes;
        self.pieces.push_front((Piece::Batch(batch), bytes));
    }

    pub fn pop(&mut self) -> Option<Piece> {
        let (piece, bytes) = self.pieces.pop_front()?;
        self.bytes -= bytes;
        Some(piece)
    }

    pub fn front(&self) -> Option<&Piece> {
        self.pieces.front().map(|(piece, _)| piece)
    }

    /// The start of the first queued batch.
    pub fn start(&self) -> Option<Stamp> {
        self.pieces.iter().find_map(|(piece, _)| match piece {
            Piece::Batch(batch) => Some(batch.range().start),
            _ => None,
        })
    }

    /// The end of the last queued batch.
    pub fn end(&self) -> Option<Stamp> {
        self.pieces.iter().rev().find_map(|(piece, _)| match piece {
            Piece::Batch(batch) => Some(batch.range().end),
            _ => None,
        })
    }

    /// Whether the queue contains a restart of the source's clock.
    pub fn has_restart(&self) -> bool {
        let mut pieces = self.pieces.iter();
        pieces.any(|(piece, _)| matches!(piece, Piece::Restarted))
    }

    pub fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
    }

    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether more may be read; a full queue is treated as far enough ahead.
    pub fn has_room(&self) -> bool {
        self.pieces.is_empty() || self.bytes < QUEUED_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use asof_core::{Channel, Row};

    /// One small message in a chunk of a megabyte.
    fn cut(time: i64) -> Batch {
        let row = Row {
            log_time: time.into(),
            publish_time: time.into(),
            order: time as u64,
            offset: 10,
            len: 100,
            sequence: 0,
            channel: 0,
            buffer: 0,
        };
        let channels: Arc<[_]> = [Arc::new(Channel::default())].into();
        Batch::new(channels, vec![vec![0; 1 << 20].into()], vec![row])
    }

    #[test]
    fn small_messages_do_not_keep_their_chunks() {
        let mut queue = Queue::default();
        for time in 0..2_000 {
            assert!(queue.has_room());
            queue.push(Piece::Batch(cut(time)));
        }
        let kept: usize = queue
            .pieces
            .iter()
            .map(|(piece, _)| match piece {
                Piece::Batch(batch) => batch.buffers()[0].len(),
                _ => 0,
            })
            .sum();
        assert_eq!(kept, 200_000);
    }

    #[test]
    fn it_is_full_by_what_it_keeps_alive_and_not_before() {
        let mut queue = Queue::default();
        let large = |time: i64| {
            let batch = cut(time);
            let rows = vec![Row {
                len: 1 << 20,
                offset: 0,
                ..batch.rows()[0]
            }];
            Batch::new(Arc::clone(batch.channels()), batch.buffers().to_vec(), rows)
        };
        let mut count = 0;
        while queue.has_room() {
            queue.push(Piece::Batch(large(count)));
            count += 1;
        }
        assert_eq!(count, 32);
        while queue.pop().is_some() {}
        assert_eq!(queue.bytes, 0);
    }
}
