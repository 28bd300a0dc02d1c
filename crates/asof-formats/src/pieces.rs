//! Pieces of a file that were read when it was opened, kept elsewhere so that it can be opened again without being read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::{Bytes, BytesMut};

use crate::FilePiece;
use crate::storage::{MappedFile, PlainFile, Storage};

/// At most this many bytes read on opening are worth keeping elsewhere.
const MOST_NOTED_BYTES: u64 = 1 << 20;

/// Pieces of a file, by offset.
#[derive(Debug, Default)]
pub(crate) struct Pieces(BTreeMap<u64, Bytes>);

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
    pub fn add(&self, offset: u64, found: &Bytes) {
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

/// A file on disk whose first reader opens it, or notes what is read of it.
pub(crate) struct KnownFile {
    path: PathBuf,
    name: String,
    size: u64,
    is_mapped: bool,
    known: Pieces,
    noted: Option<Arc<Noted>>,
    file: OnceLock<Box<dyn Storage>>,
}

impl KnownFile {
    /// A file of this size, with pieces of it that were read before. It is opened when others are asked for.
    pub fn new(path: &Path, size: u64, pieces: Vec<FilePiece>, is_mapped: bool) -> Self {
        KnownFile {
            path: path.to_owned(),
            name: path.display().to_string(),
            size,
            is_mapped,
            known: Pieces::of(pieces),
            noted: None,
            file: OnceLock::new(),
        }
    }

    /// A file as it is now; what is read of it is noted.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn noting(path: &Path, is_mapped: bool, noted: &Arc<Noted>) -> io::Result<Self> {
        let mut known = KnownFile::new(path, 0, Vec::new(), is_mapped);
        let file = known.open()?;
        known.size = file.size();
        known.noted = Some(Arc::clone(noted));
        known.file = OnceLock::from(file);
        Ok(known)
    }

    fn open(&self) -> io::Result<Box<dyn Storage>> {
        Ok(if self.is_mapped {
            Box::new(MappedFile::open(&self.path)?)
        } else {
            Box::new(PlainFile::open(&self.path)?)
        })
    }

    fn file(&self) -> io::Result<&dyn Storage> {
        if let Some(file) = self.file.get() {
            return Ok(&**file);
        }
        let file = self.open()?;
        if file.size() != self.size {
            return Err(io::ErrorKind::StaleNetworkFileHandle.into());
        }
        Ok(&**self.file.get_or_init(|| file))
    }
}

impl Storage for KnownFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn fetch(&self, offset: u64, len: u64) -> io::Result<Bytes> {
        let len = len.min(self.size.saturating_sub(offset));
        if let Some(bytes) = self.known.get(offset, len) {
            return Ok(bytes);
        }
        let bytes = self.file()?.fetch(offset, len)?;
        if let Some(noted) = &self.noted {
            noted.add(offset, &bytes);
        }
        Ok(bytes)
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
    fn a_file_is_opened_by_the_first_reader_of_what_is_not_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, b"abcdefgh").expect("written");
        for is_mapped in [false, true] {
            let noted = Arc::new(Noted::new());
            let file = KnownFile::noting(&path, is_mapped, &noted).expect("opens");
            assert_eq!(file.size(), 8);
            assert_eq!(file.fetch(2, 3).expect("read"), &b"cde"[..]);
            assert_eq!(file.fetch(6, 9).expect("read"), &b"gh"[..]);
            let pieces = noted.take();
            assert_eq!(pieces, [piece(2, b"cde"), piece(6, b"gh")]);

            let elsewhere = folder.path().join("elsewhere");
            let file = KnownFile::new(&elsewhere, 8, pieces.clone(), is_mapped);
            assert_eq!(file.fetch(3, 2).expect("known"), &b"de"[..]);
            assert_eq!(file.fetch(7, 9).expect("known"), &b"h"[..]);
            assert!(file.fetch(0, 1).is_err(), "there is no such file");
            let file = KnownFile::new(&path, 8, pieces.clone(), is_mapped);
            assert_eq!(file.fetch(0, 4).expect("read"), &b"abcd"[..]);
            let longer = KnownFile::new(&path, 9, pieces, is_mapped);
            let error = longer.fetch(0, 4).expect_err("another size");
            assert_eq!(error.kind(), io::ErrorKind::StaleNetworkFileHandle);
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
