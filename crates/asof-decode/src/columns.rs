//! The columns that plans write into: plain vectors, grouped by the width of their values.
//!
//! A plan names a column by its kind and number, so that no write looks at a type. Rows need no bookkeeping: after a
//! failed row, [`Layout::truncate`](crate::layout::Layout) derives every column's length from the number of good rows.

use arrow_buffer::Buffer;
use bytes::Bytes;

use crate::recycle::{Word, room_for};

/// Columns of every width.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    pub w1: Vec<Vec<u8>>,
    pub w2: Vec<Vec<u16>>,
    pub w4: Vec<Vec<u32>>,
    pub w8: Vec<Vec<u64>>,
    /// The end offsets of each list; each column starts with a 0.
    pub ends: Vec<Vec<i32>>,
    pub texts: Vec<Texts>,
    pub blobs: Vec<Blobs>,
}

/// Texts, one after the other. They are validated as UTF-8 when an array is made of them, all at once.
#[derive(Debug)]
pub(crate) struct Texts {
    pub ends: Vec<i32>,
    pub data: Vec<u8>,
}

impl Default for Texts {
    fn default() -> Self {
        Texts {
            ends: vec![0],
            data: Vec::new(),
        }
    }
}

impl Texts {
    #[inline]
    pub fn push(&mut self, text: &[u8]) {
        self.data.extend_from_slice(text);
        self.ends.push(self.data.len() as i32);
    }

    pub fn get(&self, index: usize) -> &[u8] {
        &self.data[self.ends[index] as usize..self.ends[index + 1] as usize]
    }

    pub fn truncate(&mut self, len: usize) {
        self.ends.truncate(len + 1);
        let end = self.ends.last().copied().unwrap_or(0);
        self.data.truncate(end as usize);
    }
}

/// Bytes of any length, in Arrow's view layout: short ones within their view, others in a buffer of the column or,
/// where they are a large part of it, in the buffer that they came in.
#[derive(Debug, Default)]
pub(crate) struct Blobs {
    pub views: Vec<u128>,
    pub own: Vec<u8>,
    /// Shared buffers that views point into, from number 1 on; 0 is `own`.
    pub shared: Vec<Bytes>,
    /// Bytes that `shared` keeps alive.
    pub pinned: usize,
}

/// A payload, with the buffer that it came in.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    /// The encoded message.
    pub bytes: &'a [u8],
    /// The buffer that holds it, if that may be kept: large byte fields are then not copied.
    pub owner: Option<(&'a Bytes, usize)>,
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Payload { bytes, owner: None }
    }
}

/// The position of a byte field in its buffer, so that it can be kept without a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backing<'a> {
    pub owner: Option<(&'a Bytes, usize)>,
}

/// Shorter fields are copied: they would keep much more memory alive than their own.
const MIN_SHARED_BYTES: usize = 16 << 10;
/// A field stays in its buffer if it is at least one part in this many of it.
const SHARE_OF_BUFFER: usize = 8;

impl Blobs {
    /// Adds `bytes`, which start at offset `at` of their payload.
    #[inline]
    pub fn push(&mut self, bytes: &[u8], at: usize, place: Backing<'_>) {
        let len = bytes.len();
        if len <= 12 {
            let mut view = [0; 16];
            view[..4].copy_from_slice(&(len as u32).to_le_bytes());
            view[4..4 + len].copy_from_slice(bytes);
            self.views.push(u128::from_le_bytes(view));
            return;
        }
        if len >= MIN_SHARED_BYTES
            && let Some((owner, start)) = place.owner
            && len * SHARE_OF_BUFFER >= owner.len()
            && u32::try_from(start + at).is_ok()
        {
            let is_last = self
                .shared
                .last()
                .is_some_and(|last| last.as_ptr() == owner.as_ptr() && last.len() == owner.len());
            if !is_last {
                self.shared.push(owner.clone());
                self.pinned += owner.len();
            }
            let index = self.shared.len() as u32;
            self.views.push(view(bytes, index, (start + at) as u32));
            return;
        }
        let offset = self.own.len() as u32;
        self.own.extend_from_slice(bytes);
        self.views.push(view(bytes, 0, offset));
    }

    /// Keeps the first `len` values, and the buffers that they need.
    pub fn truncate(&mut self, len: usize) {
        // Values are stored in order, so the first removed one marks the end of the kept ones.
        let gone = self.views.get(len..).unwrap_or_default();
        let mut places = gone
            .iter()
            .filter(|view| **view as u32 > 12)
            .map(|view| ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize));
        let own = places.clone().find(|(buffer, _)| *buffer == 0);
        if let Some((_, offset)) = own {
            self.own.truncate(offset);
        }
        // The first buffer of the removed values may also hold kept ones.
        if let Some((first, _)) = places.find(|(buffer, _)| *buffer > 0) {
            let kept = if len == 0 { 0 } else { first };
            let dropped = self.shared.drain(kept.min(self.shared.len())..);
            self.pinned -= dropped.map(|buffer| buffer.len()).sum::<usize>();
        }
        self.views.truncate(len);
    }

    pub fn get(&self, index: usize) -> &[u8] {
        Blobs::resolve(&self.views[index], &self.own, &self.shared)
    }

    fn resolve<'a>(view: &'a u128, own: &'a [u8], shared: &'a [Bytes]) -> &'a [u8] {
        let word = |shift: u32| (view >> shift) as u32 as usize;
        let len = word(0);
        if len <= 12 {
            return inline(view, len);
        }
        let (buffer, offset) = (word(64), word(96));
        let data: &[u8] = if buffer == 0 {
            own
        } else {
            &shared[buffer - 1]
        };
        &data[offset..offset + len]
    }

    /// The views, and the buffers that they point into, in order.
    pub fn into_parts(self) -> (Vec<u128>, Vec<Buffer>) {
        let own = std::iter::once(crate::recycle::buffer_of(self.own));
        let shared = self.shared.into_iter().map(Buffer::from);
        (self.views, own.chain(shared).collect())
    }
}

fn view(bytes: &[u8], buffer: u32, offset: u32) -> u128 {
    let prefix = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.len() as u128
        | u128::from(prefix) << 32
        | u128::from(buffer) << 64
        | u128::from(offset) << 96
}

/// The bytes of a short view are in the view itself.
fn inline(view: &u128, len: usize) -> &[u8] {
    // Views are written and read on little-endian and big-endian machines alike, so the bytes are accessed through
    // Arrow's own conversion of plain values.
    let bytes: &[u8] = arrow_buffer::ToByteSlice::to_byte_slice(std::slice::from_ref(view));
    &bytes[4..4 + len]
}

/// The size of each column of a batch.
#[derive(Debug, Default)]
pub(crate) struct Sizes(Vec<usize>);

impl Columns {
    /// Records the current sizes, for [`make_room`](Self::make_room) after the batch is taken.
    pub fn sizes(&self, sizes: &mut Sizes) {
        let sizes = &mut sizes.0;
        sizes.clear();
        sizes.extend(self.w1.iter().map(Vec::len));
        sizes.extend(self.w2.iter().map(Vec::len));
        sizes.extend(self.w4.iter().map(Vec::len));
        sizes.extend(self.w8.iter().map(Vec::len));
        sizes.extend(self.ends.iter().map(Vec::len));
        for texts in &self.texts {
            sizes.extend([texts.ends.len(), texts.data.len()]);
        }
        for blobs in &self.blobs {
            sizes.extend([blobs.views.len(), blobs.own.len()]);
        }
    }

    /// Reserves memory in empty columns for another batch of the size of an earlier one.
    ///
    /// Called when the first row comes, not when the last batch is taken: by then that batch is mostly gone, and its
    /// memory is reused while it is still in the CPU caches.
    pub fn make_room(&mut self, sizes: &Sizes) {
        fn words<T: Word>(column: &mut Vec<T>, len: usize) {
            if column.capacity() < len {
                *column = room_for(len);
            }
        }
        fn ends(column: &mut Vec<i32>, len: usize) {
            words(column, len);
            if column.is_empty() {
                column.push(0);
            }
        }
        let mut sizes = sizes.0.iter().copied();
        let mut next = || sizes.next().unwrap_or(0);
        self.w1.iter_mut().for_each(|column| words(column, next()));
        self.w2.iter_mut().for_each(|column| words(column, next()));
        self.w4.iter_mut().for_each(|column| words(column, next()));
        self.w8.iter_mut().for_each(|column| words(column, next()));
        self.ends.iter_mut().for_each(|column| ends(column, next()));
        for texts in &mut self.texts {
            ends(&mut texts.ends, next());
            words(&mut texts.data, next());
        }
        for blobs in &mut self.blobs {
            words(&mut blobs.views, next());
            words(&mut blobs.own, next());
        }
    }

    /// Reserves memory for `more` rows like the existing `rows`.
    pub fn reserve(&mut self, rows: usize, more: usize) {
        fn grow<T>(column: &mut Vec<T>, rows: usize, more: usize) {
            // A little more than the average, so that a few larger rows at the end do not cause a reallocation.
            let wanted = column.len() as u128 * more as u128 / rows as u128;
            let wanted = (wanted + wanted / 32) as usize;
            if column.capacity() - column.len() < wanted {
                // Not more than that; where there is not enough memory, growing step by step will report it.
                let _ = column.try_reserve_exact(wanted);
            }
        }
        if rows == 0 {
            return;
        }
        self.w1.iter_mut().for_each(|c| grow(c, rows, more));
        self.w2.iter_mut().for_each(|c| grow(c, rows, more));
        self.w4.iter_mut().for_each(|c| grow(c, rows, more));
        self.w8.iter_mut().for_each(|c| grow(c, rows, more));
        self.ends.iter_mut().for_each(|c| grow(c, rows, more));
        for texts in &mut self.texts {
            grow(&mut texts.ends, rows, more);
            grow(&mut texts.data, rows, more);
        }
        for blobs in &mut self.blobs {
            grow(&mut blobs.views, rows, more);
            grow(&mut blobs.own, rows, more);
        }
    }

    /// Adds all rows of columns of the same layout.
    pub fn append(&mut self, other: &Columns) {
        fn words<T: Copy>(columns: &mut [Vec<T>], others: &[Vec<T>]) {
            for (column, other) in columns.iter_mut().zip(others) {
                column.extend_from_slice(other);
            }
        }
        words(&mut self.w1, &other.w1);
        words(&mut self.w2, &other.w2);
        words(&mut self.w4, &other.w4);
        words(&mut self.w8, &other.w8);
        for (ends, other) in self.ends.iter_mut().zip(&other.ends) {
            let start = ends.last().copied().unwrap_or(0);
            if ends.is_empty() {
                ends.push(0);
            }
            ends.extend(other.iter().skip(1).map(|end| start.saturating_add(*end)));
        }
        for (texts, other) in self.texts.iter_mut().zip(&other.texts) {
            if texts.ends.is_empty() {
                texts.ends.push(0);
            }
            for at in 0..other.ends.len().saturating_sub(1) {
                texts.push(other.get(at));
            }
        }
        for (blobs, other) in self.blobs.iter_mut().zip(&other.blobs) {
            for at in 0..other.views.len() {
                blobs.push(other.get(at), 0, Backing { owner: None });
            }
        }
    }

    /// What is left for the offsets of the fullest column, in bytes; `None` if one is too full.
    pub fn room(&self) -> Option<usize> {
        let texts = self.texts.iter().map(|texts| texts.data.len()).max();
        let blobs = self.blobs.iter().map(|blobs| blobs.own.len()).max();
        let texts = (i32::MAX as usize).checked_sub(texts.unwrap_or(0))?;
        Some(texts.min((u32::MAX as usize).checked_sub(blobs.unwrap_or(0))?))
    }

    /// The memory that the columns hold and keep alive, in bytes, and a byte for each element of a list, which may have
    /// no other.
    pub fn bytes(&self) -> usize {
        let words = self.w1.iter().map(Vec::len).sum::<usize>()
            + 2 * self.w2.iter().map(Vec::len).sum::<usize>()
            + 4 * self.w4.iter().map(Vec::len).sum::<usize>()
            + 8 * self.w8.iter().map(Vec::len).sum::<usize>()
            + 4 * self.ends.iter().map(Vec::len).sum::<usize>()
            + self
                .ends
                .iter()
                .filter_map(|ends| ends.last())
                .map(|end| *end as usize)
                .sum::<usize>();
        let texts: usize = self
            .texts
            .iter()
            .map(|texts| texts.data.len() + 4 * texts.ends.len())
            .sum();
        let blobs: usize = self
            .blobs
            .iter()
            .map(|blobs| 16 * blobs.views.len() + blobs.own.len() + blobs.pinned)
            .sum();
        words + texts + blobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_that_go_take_their_bytes_with_them() {
        let owner = Bytes::from(vec![3; 64 << 10]);
        let place = |owner| Backing { owner };
        let mut blobs = Blobs::default();
        blobs.push(&[1; 20], 0, place(None));
        blobs.push(&[2; 3], 0, place(None));
        for _ in 0..100 {
            blobs.push(&[9; 500], 0, place(None));
            blobs.push(&owner[..40 << 10], 0, place(Some((&owner, 0))));
            blobs.push(&[9; 500], 0, place(None));
            blobs.truncate(2);
        }
        assert_eq!(blobs.own.len(), 20);
        assert!(blobs.shared.len() <= 1 && blobs.pinned <= owner.len());
        assert_eq!((blobs.get(0), blobs.get(1)), (&[1; 20][..], &[2; 3][..]));
        blobs.truncate(0);
        assert!(blobs.own.is_empty());
    }
}
