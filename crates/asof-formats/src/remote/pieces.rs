//! Pieces of a file that were read when it was opened, kept elsewhere so that it can be opened again without requests.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};

use crate::FilePiece;

/// At most this many bytes read on opening are worth keeping elsewhere.
const MOST_NOTED_BYTES: u64 = 1 << 20;

/// Pieces of a file, by offset.
#[derive(Debug, Default)]
pub(super) struct Pieces(BTreeMap<u64, Bytes>);

impl Pieces {
    pub fn of(pieces: Vec<FilePiece>) -> Self {
        Pieces(
            pieces
                .into_iter()
                .map(|piece| (piece.offset, piece.bytes))
                .collect(),
        )
    }

    /// The bytes, if all of them are in one piece.
    pub fn get(&self, offset: u64, len: u64) -> Option<Bytes> {
        let (start, bytes) = self.0.range(..=offset).next_back()?;
        let from = usize::try_from(offset - start).ok()?;
        let to = from.checked_add(usize::try_from(len).ok()?)?;
        (to <= bytes.len()).then(|| bytes.slice(from..to))
    }
}

/// Records what is read of a file until [`take`](Noted::take) is called.
#[derive(Debug)]
pub(crate) struct Noted(Mutex<Noting>);

#[derive(Debug)]
enum Noting {
    Open { pieces: Vec<FilePiece>, bytes: u64 },
    Closed,
}

impl Noted {
    pub fn new() -> Self {
        Noted(Mutex::new(Noting::Open {
            pieces: Vec::new(),
            bytes: 0,
        }))
    }

    /// Records a piece. Past the limit, all pieces are dropped and recording ends.
    pub(super) fn add(&self, offset: u64, found: &Bytes) {
        let mut noting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Noting::Open { pieces, bytes } = &mut *noting else {
            return;
        };
        *bytes += found.len() as u64;
        if *bytes > MOST_NOTED_BYTES {
            *noting = Noting::Closed;
        } else if !found.is_empty() {
            // A copy: it may be a slice of a much larger block.
            let bytes = Bytes::copy_from_slice(found);
            pieces.push(FilePiece { offset, bytes });
        }
    }

    /// The recorded pieces, in file order, without overlaps. Recording ends.
    pub fn take(&self) -> Vec<FilePiece> {
        let mut noting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *noting, Noting::Closed) {
            Noting::Open { pieces, .. } => put_together(pieces),
            Noting::Closed => Vec::new(),
        }
    }
}

/// Joins pieces that overlap or touch.
fn put_together(mut pieces: Vec<FilePiece>) -> Vec<FilePiece> {
    pieces.sort_by_key(|piece| piece.offset);
    let mut whole: Vec<(u64, BytesMut)> = Vec::new();
    for FilePiece { offset, bytes } in pieces {
        match whole.last_mut() {
            Some((start, known)) if offset <= *start + known.len() as u64 => {
                let is_known = (*start + known.len() as u64 - offset) as usize;
                known.extend_from_slice(bytes.get(is_known..).unwrap_or_default());
            }
            _ => whole.push((offset, BytesMut::from(&*bytes))),
        }
    }
    let piece = |(offset, bytes): (u64, BytesMut)| FilePiece {
        offset,
        bytes: bytes.freeze(),
    };
    whole.into_iter().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, bytes: &'static [u8]) -> FilePiece {
        FilePiece {
            offset,
            bytes: Bytes::from_static(bytes),
        }
    }

    #[test]
    fn what_was_read_in_any_order_is_put_together() {
        let noted = Noted::new();
        for (offset, bytes) in [(10, "klmn"), (0, "ab"), (1, "bcd"), (11, "l"), (4, "e")] {
            noted.add(offset, &Bytes::from_static(bytes.as_bytes()));
        }
        assert_eq!(noted.take(), [piece(0, b"abcde"), piece(10, b"klmn")]);
        noted.add(20, &Bytes::from_static(b"u"));
        assert_eq!(noted.take(), []);
    }

    #[test]
    fn only_what_lies_in_one_piece_is_answered() {
        let pieces = Pieces::of(vec![piece(0, b"abcde"), piece(10, b"klmn")]);
        assert_eq!(pieces.get(1, 3).as_deref(), Some(&b"bcd"[..]));
        assert_eq!(pieces.get(10, 4).as_deref(), Some(&b"klmn"[..]));
        for (offset, len) in [(3, 4), (6, 1), (10, 5), (14, 1), (u64::MAX, u64::MAX)] {
            assert_eq!(pieces.get(offset, len), None, "{len} at {offset}");
        }
    }

    #[test]
    fn what_is_too_much_is_not_kept() {
        let noted = Noted::new();
        noted.add(0, &Bytes::from_static(b"front"));
        noted.add(5, &Bytes::from(vec![0; MOST_NOTED_BYTES as usize]));
        assert_eq!(noted.take(), []);
    }
}
