//! Rows of a topic by their number, of which only some are held at once.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use asof_core::Source;
use bytes::Bytes;

use super::AlignError;

/// A source that is read while rows are made: borrowed, or shared.
pub enum SourceRef<'a> {
    /// A borrowed one.
    Borrowed(&'a dyn Source),
    /// A shared one.
    Shared(Arc<dyn Source>),
}

impl SourceRef<'_> {
    pub(super) fn get(&self) -> &dyn Source {
        match self {
            SourceRef::Borrowed(source) => *source,
            SourceRef::Shared(source) => &**source,
        }
    }
}

impl<'a> From<&'a dyn Source> for SourceRef<'a> {
    fn from(source: &'a dyn Source) -> Self {
        SourceRef::Borrowed(source)
    }
}

impl<'a, S: Source> From<&'a S> for SourceRef<'a> {
    fn from(source: &'a S) -> Self {
        SourceRef::Borrowed(source)
    }
}

impl<S: Source + 'static> From<Arc<S>> for SourceRef<'static> {
    fn from(source: Arc<S>) -> Self {
        SourceRef::Shared(source)
    }
}

/// Some rows, one after the other.
pub(super) trait Piece {
    /// How many rows it has.
    fn rows(&self) -> usize;
    /// The memory that it keeps alive.
    fn bytes(&self) -> usize;
}

impl Piece for RecordBatch {
    fn rows(&self) -> usize {
        self.num_rows()
    }

    fn bytes(&self) -> usize {
        self.get_array_memory_size()
    }
}

/// The payloads of messages.
impl Piece for Vec<Bytes> {
    fn rows(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> usize {
        let payloads = self.iter().map(Bytes::len).sum::<usize>();
        payloads + self.len() * size_of::<Bytes>()
    }
}

/// The rows of a topic, in their order.
pub(super) type Pieces<P> = Box<dyn Iterator<Item = Result<P, AlignError>> + Send>;

/// The rows of a topic by their number. Up to a number of bytes are held; others are read again when they are needed.
pub(super) struct RowWindow<P> {
    /// Rows without a gap, the first of which has the number `first`.
    pieces: VecDeque<P>,
    first: usize,
    bytes: usize,
    most_bytes: usize,
    /// What comes after the rows that are held; `None` if it has to be opened.
    coming: Option<Pieces<P>>,
    /// The rows and bytes of all of it.
    rows: usize,
    all_bytes: usize,
}

impl<P: Piece> RowWindow<P> {
    /// Reads all rows once, and holds them if they are not too many. `each` sees every piece, with the number of its first row.
    pub(super) fn read(
        pieces: impl Iterator<Item = Result<P, AlignError>>,
        most_bytes: usize,
        mut each: impl FnMut(&P, usize),
    ) -> Result<Self, AlignError> {
        let mut held = RowWindow {
            pieces: VecDeque::new(),
            first: 0,
            bytes: 0,
            most_bytes,
            coming: None,
            rows: 0,
            all_bytes: 0,
        };
        for piece in pieces {
            let piece = piece?;
            each(&piece, held.rows);
            held.rows += piece.rows();
            held.all_bytes += piece.bytes();
            if held.all_bytes <= most_bytes {
                held.bytes += piece.bytes();
                held.pieces.push_back(piece);
            } else {
                // They do not fit: all of them are read again, in turn.
                held.pieces.clear();
                held.bytes = 0;
            }
        }
        Ok(held)
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// About how many bytes a row has.
    pub(super) fn bytes_per_row(&self) -> usize {
        self.all_bytes / self.rows.max(1)
    }

    /// Visits rows by their numbers, which ascend: `each` is given a piece, the number of its first row, and the wanted
    /// ones of it. Rows that are not held are read from `open`, which begins with the first row of all.
    pub(super) fn visit(
        &mut self,
        open: &dyn Fn() -> Result<Pieces<P>, AlignError>,
        wanted: &[usize],
        mut each: impl FnMut(&P, usize, &[usize]) -> Result<(), AlignError>,
    ) -> Result<(), AlignError> {
        if wanted.first().is_some_and(|&row| row < self.first) {
            self.forget();
        }
        let (mut at, mut start, mut rest) = (0, self.first, wanted);
        while !rest.is_empty() {
            if at == self.pieces.len() {
                if !self.load(open)? {
                    // The source has fewer rows than before; the caller sees which are missing.
                    return Ok(());
                }
                at = self.pieces.len() - 1;
            }
            let piece = &self.pieces[at];
            let end = start + piece.rows();
            let (here, later) = rest.split_at(rest.partition_point(|&row| row < end));
            if !here.is_empty() {
                each(piece, start, here)?;
            }
            (at, start, rest) = (at + 1, end, later);
        }
        Ok(())
    }

    /// Reads the next piece, and gives up the first ones if there is no room; returns whether there was one.
    fn load(
        &mut self,
        open: &dyn Fn() -> Result<Pieces<P>, AlignError>,
    ) -> Result<bool, AlignError> {
        let coming = match &mut self.coming {
            Some(coming) => coming,
            // All rows are held, and there are no others.
            None if !self.pieces.is_empty() => return Ok(false),
            none => none.insert(open()?),
        };
        let Some(piece) = coming.next().transpose()? else {
            return Ok(false);
        };
        self.bytes += piece.bytes();
        self.pieces.push_back(piece);
        while self.bytes > self.most_bytes && self.pieces.len() > 1 {
            if let Some(first) = self.pieces.pop_front() {
                self.bytes -= first.bytes();
                self.first += first.rows();
            }
        }
        Ok(true)
    }

    fn forget(&mut self) {
        self.pieces.clear();
        self.coming = None;
        (self.first, self.bytes) = (0, 0);
    }
}
