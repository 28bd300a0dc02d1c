//! A large value made of tiles: the cost of publishing an edit depends on the edit, not on the value.

use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::Range;

use crate::handle::{Handle, Owned};
use crate::snapshot::{Snapshot, SnapshotReader, SnapshotWriter, snapshot};
use crate::stamp::MonoStamp;

/// A writer of a large array of cells that tracks which tiles each buffer lacks.
///
/// An edit starts from the last publication, as with [`SnapshotWriter::edit`], but only the tiles that the back
/// buffer lacks are copied, and not even those that are overwritten entirely.
pub struct TileWriter<C, const R: usize = 1, V = Vec<C>, H = Owned<Snapshot<V, R>>> {
    writer: SnapshotWriter<V, R, H>,
    book: TileBook,
    _cell: PhantomData<C>,
}

/// Creates an array of `cells` cells for R readers, edited by tiles of `tile` cells.
///
/// In shared memory the value is a fixed-size array, and the writer comes from the segment (`Segment::tile_writer`).
///
/// ```
/// use asof_hot::{tile_map, MonoStamp};
///
/// let (mut writer, [mut reader]) = tile_map::<u8, 1>(1024 * 1024, 4096, 255);
/// writer.tile_mut(3)[5] = 100;
/// writer.publish(MonoStamp(1));
/// writer.tile_mut(9).fill(0);
/// writer.publish(MonoStamp(2));
/// let map = reader.latest();
/// assert_eq!((map[3 * 4096 + 5], map[9 * 4096], map[0]), (100, 0, 255));
/// ```
///
/// # Panics
/// If `tile` is 0.
pub fn tile_map<C: Copy + Send + Sync, const R: usize>(
    cells: usize,
    tile: usize,
    initial: C,
) -> (TileWriter<C, R>, [SnapshotReader<Vec<C>, R>; R]) {
    let (writer, readers) = snapshot(|| alloc::vec![initial; cells]);
    let mut writer = TileWriter::over(writer, tile);
    writer.book.all_buffers_are_equal();
    (writer, readers)
}

impl<C, const R: usize, V, H> TileWriter<C, R, V, H>
where
    C: Copy,
    V: AsRef<[C]> + AsMut<[C]> + Send + Sync,
    H: Handle<Target = Snapshot<V, R>>,
{
    /// Edits a large value by tiles of `tile` cells. For a value that was written before, each buffer is copied
    /// entirely once.
    ///
    /// # Panics
    /// If `tile` is 0.
    pub fn over(writer: SnapshotWriter<V, R, H>, tile: usize) -> Self {
        assert!(tile > 0, "a tile has at least one cell");
        let cells = writer.front().as_ref().len();
        TileWriter {
            book: TileBook::new(cells, tile, R + 2, writer.front_number()),
            writer,
            _cell: PhantomData,
        }
    }

    /// The number of tiles; the last may be shorter than the others.
    pub fn tiles(&self) -> usize {
        self.book.tiles()
    }

    /// A tile to be changed in part: it holds the last publication and the changes since.
    ///
    /// # Panics
    /// If there is no such tile.
    pub fn tile_mut(&mut self, tile: usize) -> &mut [C] {
        let cells = self.cells(tile);
        if self.book.edit(self.writer.back_number(), tile) {
            let (front, back) = self.writer.front_and_back();
            back.as_mut()[cells.clone()].copy_from_slice(&front.as_ref()[cells.clone()]);
        }
        &mut self.writer.back().as_mut()[cells]
    }

    /// A tile to be overwritten entirely: it holds some older contents, and nothing is copied.
    ///
    /// # Panics
    /// If there is no such tile.
    pub fn overwrite_tile(&mut self, tile: usize) -> &mut [C] {
        let cells = self.cells(tile);
        self.book.overwrite(self.writer.back_number(), tile);
        &mut self.writer.back().as_mut()[cells]
    }

    /// Publishes the edited value to all readers.
    pub fn publish(&mut self, stamp: MonoStamp) {
        let back = self.writer.back_number();
        let (from, to) = self.writer.front_and_back();
        let (from, to) = (from.as_ref(), to.as_mut());
        self.book.publish(back, |cells| {
            to[cells.clone()].copy_from_slice(&from[cells]);
        });
        self.writer.publish(stamp);
    }

    /// The last published value.
    pub fn front(&self) -> &[C] {
        self.writer.front().as_ref()
    }

    /// The number of values published.
    pub fn generation(&self) -> u64 {
        self.writer.generation()
    }

    /// The number of tiles copied from one buffer to another so far: the overhead of the edits.
    pub fn copied_tiles(&self) -> u64 {
        self.book.copied
    }

    fn cells(&self, tile: usize) -> Range<usize> {
        assert!(tile < self.tiles(), "tile {tile} of {}", self.tiles());
        self.book.cells(tile)
    }
}

/// Which buffer lacks which tiles of the last publication.
pub(crate) struct TileBook {
    cells: usize,
    tile: usize,
    /// For each buffer, whether it lacks the newest contents of a tile.
    lacks: Vec<TileSet>,
    /// Tiles edited since the last publication.
    edited: TileSet,
    copied: u64,
}

impl TileBook {
    /// For buffers of unknown contents, of which `front` was published last.
    pub(crate) fn new(cells: usize, tile: usize, buffers: usize, front: usize) -> Self {
        let tiles = cells.div_ceil(tile);
        let lacks = |buffer| {
            if buffer == front {
                TileSet::empty(tiles)
            } else {
                TileSet::full(tiles)
            }
        };
        TileBook {
            cells,
            tile,
            lacks: (0..buffers).map(lacks).collect(),
            edited: TileSet::empty(tiles),
            copied: 0,
        }
    }

    /// The state of new buffers.
    fn all_buffers_are_equal(&mut self) {
        for lacks in &mut self.lacks {
            lacks.drain(|_| ());
        }
    }

    pub(crate) fn tiles(&self) -> usize {
        self.edited.tiles
    }

    /// The cells of an existing tile.
    pub(crate) fn cells(&self, tile: usize) -> Range<usize> {
        tile * self.tile..((tile + 1) * self.tile).min(self.cells)
    }

    /// Records that a tile of the back buffer is changed in part; returns whether it has to be copied from the front
    /// buffer first.
    pub(crate) fn edit(&mut self, back: usize, tile: usize) -> bool {
        self.edited.insert(tile);
        let is_lacking = self.lacks[back].remove(tile);
        self.copied += u64::from(is_lacking);
        is_lacking
    }

    /// Records that a tile of the back buffer is overwritten entirely.
    pub(crate) fn overwrite(&mut self, back: usize, tile: usize) {
        self.edited.insert(tile);
        self.lacks[back].remove(tile);
    }

    /// Records that all of the back buffer was written, or may have been.
    #[cfg_attr(not(feature = "ffi"), allow(dead_code))]
    pub(crate) fn overwrite_all(&mut self, back: usize) {
        self.lacks[back].drain(|_| ());
        self.edited = TileSet::full(self.edited.tiles);
    }

    /// Prepares the back buffer for publication: `copy` copies the cells that it lacks from the front buffer.
    pub(crate) fn publish(&mut self, back: usize, mut copy: impl FnMut(Range<usize>)) {
        let (tile_size, cells) = (self.tile, self.cells);
        let copied = &mut self.copied;
        self.lacks[back].drain(|tile| {
            *copied += 1;
            copy(tile * tile_size..((tile + 1) * tile_size).min(cells));
        });
        for (buffer, lacks) in self.lacks.iter_mut().enumerate() {
            if buffer != back {
                lacks.insert_all(&self.edited);
            }
        }
        self.edited.drain(|_| ());
    }
}

/// A set of tiles.
struct TileSet {
    tiles: usize,
    words: Vec<u64>,
}

impl TileSet {
    fn empty(tiles: usize) -> Self {
        TileSet {
            tiles,
            words: alloc::vec![0; tiles.div_ceil(64)],
        }
    }

    fn full(tiles: usize) -> Self {
        let mut set = Self::empty(tiles);
        (0..tiles).for_each(|tile| set.insert(tile));
        set
    }

    fn insert(&mut self, tile: usize) {
        self.words[tile / 64] |= 1 << (tile % 64);
    }

    fn insert_all(&mut self, others: &TileSet) {
        for (word, other) in self.words.iter_mut().zip(&others.words) {
            *word |= other;
        }
    }

    /// Whether it was there.
    fn remove(&mut self, tile: usize) -> bool {
        let word = &mut self.words[tile / 64];
        let was_there = *word >> (tile % 64) & 1 == 1;
        *word &= !(1 << (tile % 64));
        was_there
    }

    fn drain(&mut self, mut take: impl FnMut(usize)) {
        for (index, word) in self.words.iter_mut().enumerate() {
            while *word != 0 {
                take(index * 64 + word.trailing_zeros() as usize);
                *word &= *word - 1;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_takes_over_publishes_whole_maps_and_copies_each_buffer_once() {
        let mut memory = Snapshot::<[u32; 100], 1>::new(|| [0; 100]);
        let (mut writer, [mut reader]) = memory.split();
        for number in 1..=5 {
            writer.back().fill(number);
            writer.publish(MonoStamp(0));
        }
        writer.back().fill(99); // and it is gone before it is published
        let mut writer = TileWriter::<u32, 1, _, _>::over(writer, 10);
        let mut expected = [5; 100];
        for step in 0..20usize {
            writer.tile_mut(step % 10)[3] = step as u32;
            expected[step % 10 * 10 + 3] = step as u32;
            writer.publish(MonoStamp(0));
            assert_eq!(*reader.latest(), expected);
        }
        // Two buffers besides the front one, once whole; then the one tile that each of them has missed.
        assert!(
            writer.copied_tiles() <= 2 * 10 + 2 * 20,
            "{}",
            writer.copied_tiles()
        );
    }

    #[test]
    fn every_published_map_has_all_edits_so_far_however_readers_come_and_go() {
        let (mut writer, [mut quick, mut slow]) = tile_map::<u32, 2>(100, 8, 0);
        let mut expected = alloc::vec![0; 100];
        for step in 1..400usize {
            for edit in 0..step % 4 {
                let tile = (step * 7 + edit * 5) % writer.tiles();
                if step % 3 == 0 {
                    let cells = writer.overwrite_tile(tile);
                    cells.fill(step as u32);
                    let len = cells.len();
                    expected[tile * 8..tile * 8 + len].fill(step as u32);
                } else {
                    writer.tile_mut(tile)[step % 4] = step as u32;
                    expected[tile * 8 + step % 4] = step as u32;
                }
            }
            writer.publish(MonoStamp(step as u64));
            if step % 2 == 0 {
                assert_eq!(*quick.latest(), expected);
            }
            if step % 17 == 0 {
                assert_eq!(*slow.latest(), expected);
            }
            assert_eq!(writer.front(), expected);
        }
    }
}
