//! A large value made of tiles: publishing an edit costs as much as the edit, not as much as the value.

use alloc::vec::Vec;
use core::ops::Range;

use crate::handle::{Handle, Owned};
use crate::snapshot::{Snapshot, SnapshotReader, SnapshotWriter, snapshot};
use crate::stamp::Stamp;

/// A writer of a large row of cells that knows which tiles each buffer lacks.
///
/// What was published last is what is edited next, as with [`SnapshotWriter::edit`], but only the tiles that the
/// back buffer lacks are copied, and those that are written whole not even then.
pub struct TileWriter<C, const R: usize = 1, H = Owned<Snapshot<Vec<C>, R>>> {
    writer: SnapshotWriter<Vec<C>, R, H>,
    tile: usize,
    /// For each buffer, whether it lacks the newest contents of a tile.
    lacks: Vec<TileSet>,
    /// Tiles edited since the last publication.
    edited: TileSet,
}

/// Makes a row of `cells` cells for R readers, edited by tiles of `tile` cells.
///
/// ```
/// use asof_hot::{tile_map, Stamp};
///
/// let (mut writer, [mut reader]) = tile_map::<u8, 1>(1024 * 1024, 4096, 255);
/// writer.tile_mut(3)[5] = 100;
/// writer.publish(Stamp(1));
/// writer.tile_mut(9).fill(0);
/// writer.publish(Stamp(2));
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
    assert!(tile > 0, "a tile has at least one cell");
    let (writer, readers) = snapshot(|| alloc::vec![initial; cells]);
    let tiles = cells.div_ceil(tile);
    let writer = TileWriter {
        writer,
        tile,
        lacks: (0..R + 2).map(|_| TileSet::empty(tiles)).collect(),
        edited: TileSet::empty(tiles),
    };
    (writer, readers)
}

impl<C: Copy + Send + Sync, const R: usize, H: Handle<Target = Snapshot<Vec<C>, R>>>
    TileWriter<C, R, H>
{
    /// How many tiles there are; the last may be shorter than the others.
    pub fn tiles(&self) -> usize {
        self.edited.tiles
    }

    /// A tile, to be changed in part: it holds what was published last, and what was changed since.
    ///
    /// # Panics
    /// If there is no such tile.
    pub fn tile_mut(&mut self, tile: usize) -> &mut [C] {
        let cells = self.cells(tile);
        let back = self.writer.back_number();
        if self.lacks[back].remove(tile) {
            let (front, back) = self.writer.front_and_back();
            back[cells.clone()].copy_from_slice(&front[cells.clone()]);
        }
        self.edited.insert(tile);
        &mut self.writer.back()[cells]
    }

    /// A tile, to be written whole: it holds some older contents, and nothing is copied.
    ///
    /// # Panics
    /// If there is no such tile.
    pub fn overwrite_tile(&mut self, tile: usize) -> &mut [C] {
        let cells = self.cells(tile);
        let back = self.writer.back_number();
        self.lacks[back].remove(tile);
        self.edited.insert(tile);
        &mut self.writer.back()[cells]
    }

    /// Gives all readers the edited value.
    pub fn publish(&mut self, stamp: Stamp) {
        let back = self.writer.back_number();
        let (from, to) = self.writer.front_and_back();
        let tile_size = self.tile;
        self.lacks[back].drain(|tile| {
            let cells = tile * tile_size..((tile + 1) * tile_size).min(to.len());
            to[cells.clone()].copy_from_slice(&from[cells]);
        });
        for (buffer, lacks) in self.lacks.iter_mut().enumerate() {
            if buffer != back {
                lacks.insert_all(&self.edited);
            }
        }
        self.edited.drain(|_| ());
        self.writer.publish(stamp);
    }

    /// What was published last.
    pub fn front(&self) -> &[C] {
        self.writer.front()
    }

    fn cells(&self, tile: usize) -> Range<usize> {
        assert!(tile < self.tiles(), "tile {tile} of {}", self.tiles());
        tile * self.tile..((tile + 1) * self.tile).min(self.writer.front().len())
    }
}

/// Some of the tiles.
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
            writer.publish(Stamp(step as u64));
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
