//! The latest value, large; with one reader, the triple buffer.

use core::ffi::{c_char, c_void};
use core::ops::Range;
use std::boxed::Box;
use std::vec;

use super::{AsofMeta, AsofType, Body, boxed, close, layout, open_or_create, stride, tell, within};
use crate::shm::mapping::Claim;
use crate::shm::{Role, ShmError, claim};
use crate::snapshot::{Mail, Memory, ReaderState, WriterState};
use crate::stamp::{Meta, MonoStamp};
use crate::steps::Whole;
use crate::sync::AtomicMark;
use crate::tiles::TileBook;

// The layout of `Snapshot`, for types aligned to at most 8: a mailbox for each reader, then the buffers, each a
// generation, a stamp, a value.
const MAILBOX: usize = 128;
const GENERATION: usize = 0;
const STAMP: usize = 8;
const VALUE: usize = 16;

const fn buffers(readers: usize) -> usize {
    readers * MAILBOX
}
const fn buffer_stride(size: usize) -> usize {
    stride(VALUE + size)
}
const fn total(size: usize, readers: usize) -> usize {
    buffers(readers) + (readers + 2) * buffer_stride(size)
}

/// A snapshot of a size known at run time.
struct RawSnapshot {
    body: Body,
    readers: usize,
    size: usize,
}

impl RawSnapshot {
    fn buffer(&self, buffer: usize) -> *mut u8 {
        let offset = buffers(self.readers) + buffer * buffer_stride(self.size);
        self.body.place(offset)
    }
    fn value(&self, buffer: usize) -> *mut u8 {
        self.buffer(buffer).wrapping_add(VALUE)
    }
    /// # Safety
    /// A mailbox names the buffer.
    unsafe fn meta(&self, buffer: usize) -> Meta {
        // SAFETY: upheld by the caller, so it is not written.
        unsafe {
            Meta {
                generation: self.generation_of(buffer),
                stamp: MonoStamp(self.buffer(buffer).add(STAMP).cast::<u64>().read()),
            }
        }
    }
}

impl Memory for RawSnapshot {
    fn readers(&self) -> usize {
        self.readers
    }
    fn mailbox(&self, reader: usize) -> &AtomicMark {
        // SAFETY: the mailboxes come first, one after the other.
        unsafe { self.body.at(reader * MAILBOX) }
    }
    unsafe fn generation_of(&self, buffer: usize) -> u64 {
        // SAFETY: upheld by the caller.
        unsafe { self.buffer(buffer).add(GENERATION).cast::<u64>().read() }
    }
    unsafe fn seal(&self, buffer: usize, generation: u64, stamp: MonoStamp) {
        let buffer = self.buffer(buffer);
        // SAFETY: upheld by the caller.
        unsafe {
            buffer.add(GENERATION).cast::<u64>().write(generation);
            buffer.add(STAMP).cast::<u64>().write(stamp.0);
        }
    }
    fn address(&self, buffer: usize) -> *const u8 {
        self.buffer(buffer)
    }
}

/// The writing end of a large value.
pub struct AsofSnapshotWriter {
    memory: RawSnapshot,
    state: WriterState<Box<[Mail]>>,
    /// Which buffer lacks which tiles, once edits are by tiles.
    tiles: Option<TileBook>,
    _claim: Claim,
}

impl AsofSnapshotWriter {
    /// Copies bytes of the last published value to the back buffer.
    fn copy_to_back(&mut self, bytes: Range<usize>) {
        let front = self.memory.value(self.state.front);
        let back = self.memory.value(self.state.back);
        // SAFETY: the bytes are within a value; the back buffer is ours, the front buffer is not written, and they are
        // distinct.
        unsafe {
            let (front, back) = (front.add(bytes.start), back.add(bytes.start));
            back.copy_from_nonoverlapping(front, bytes.len());
        }
    }
}

/// A reading end of a large value.
pub struct AsofSnapshotReader {
    memory: RawSnapshot,
    state: ReaderState,
    _claim: Claim,
}

unsafe fn open(
    name: *const c_char,
    value: &AsofType,
    readers: u32,
) -> Result<RawSnapshot, ShmError> {
    let count = within(readers, 1..=999, "readers of a snapshot")?;
    // SAFETY: upheld by the caller.
    let body = unsafe {
        let layout = layout(value, 4, [readers, 0, 0], total(value.size, count))?;
        Body::open(name, open_or_create(), &layout, ())?
    };
    Ok(RawSnapshot {
        body,
        readers: count,
        size: value.size,
    })
}

/// Opens or creates a large value with `readers` readers, for writing. With one reader it is a triple buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_writer_open(
    name: *const c_char,
    value: AsofType,
    readers: u32,
) -> *mut AsofSnapshotWriter {
    // SAFETY: upheld by the caller.
    let opened = unsafe { open(name, &value, readers) };
    boxed(opened.and_then(|memory| {
        let claim = claim(&memory.body.mapping, Role::WRITER)?;
        let known = vec![Mail::default(); memory.readers].into_boxed_slice();
        Ok(AsofSnapshotWriter {
            state: WriterState::attach(&memory, known),
            memory,
            tiles: None,
            _claim: claim,
        })
    }))
}

/// The back buffer, to fill in place until it is published; it holds some older value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_back(writer: *mut AsofSnapshotWriter) -> *mut c_void {
    // SAFETY: upheld by the caller.
    let writer = unsafe { &mut *writer };
    if let Some(tiles) = &mut writer.tiles {
        tiles.overwrite_all(writer.state.back);
    }
    writer.memory.value(writer.state.back).cast()
}

/// The back buffer as a copy of the last publication, to be changed in part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_edit(writer: *mut AsofSnapshotWriter) -> *mut c_void {
    // SAFETY: upheld by the caller.
    unsafe {
        let writer = &mut *writer;
        writer.copy_to_back(0..writer.memory.size);
        asof_snapshot_back(writer)
    }
}

/// From now on this writer edits by tiles of `tile_size` bytes. Returns the number of tiles; 0 if `tile_size` is 0.
/// Each buffer is copied entirely once; after that an edit costs only the tiles that it touches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_use_tiles(
    writer: *mut AsofSnapshotWriter,
    tile_size: usize,
) -> usize {
    // SAFETY: upheld by the caller.
    let writer = unsafe { &mut *writer };
    if tile_size == 0 {
        return 0;
    }
    let (size, buffers) = (writer.memory.size, writer.memory.readers + 2);
    let book = TileBook::new(size, tile_size, buffers, writer.state.front);
    writer.tiles.insert(book).tiles()
}

/// A tile of the back buffer, counted from 0, to be changed in part: it holds the last publication and the changes
/// since. Null if it does not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_edit_tile(
    writer: *mut AsofSnapshotWriter,
    tile: usize,
) -> *mut c_void {
    // SAFETY: upheld by the caller.
    unsafe { self::tile(&mut *writer, tile, true) }
}

/// A tile of the back buffer, counted from 0, to be overwritten entirely: it holds some older contents. Null if it does
/// not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_overwrite_tile(
    writer: *mut AsofSnapshotWriter,
    tile: usize,
) -> *mut c_void {
    // SAFETY: upheld by the caller.
    unsafe { self::tile(&mut *writer, tile, false) }
}

fn tile(writer: &mut AsofSnapshotWriter, tile: usize, is_edit: bool) -> *mut c_void {
    let back = writer.state.back;
    let Some(tiles) = writer.tiles.as_mut().filter(|tiles| tile < tiles.tiles()) else {
        return core::ptr::null_mut();
    };
    let bytes = tiles.cells(tile);
    if !is_edit {
        tiles.overwrite(back, tile);
    } else if tiles.edit(back, tile) {
        writer.copy_to_back(bytes.clone());
    }
    writer.memory.value(back).wrapping_add(bytes.start).cast()
}

/// Gives the back buffer to all readers; another one becomes the back buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_publish(writer: *mut AsofSnapshotWriter, stamp: u64) {
    // SAFETY: upheld by the caller.
    let writer = unsafe { &mut *writer };
    if let Some(mut tiles) = writer.tiles.take() {
        tiles.publish(writer.state.back, |bytes| writer.copy_to_back(bytes));
        writer.tiles = Some(tiles);
    }
    let AsofSnapshotWriter { memory, state, .. } = writer;
    state.publish(memory, MonoStamp(stamp), &mut Whole);
}

/// The number of values published over the segment's lifetime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_generation(writer: *const AsofSnapshotWriter) -> u64 {
    // SAFETY: upheld by the caller.
    unsafe { &*writer }.state.generation
}

/// Closes the writing end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_writer_close(writer: *mut AsofSnapshotWriter) {
    // SAFETY: upheld by the caller.
    unsafe { close(writer) }
}

/// Opens or creates a large value with `readers` readers, as reader `number`, counted from 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_reader_open(
    name: *const c_char,
    value: AsofType,
    readers: u32,
    number: u32,
) -> *mut AsofSnapshotReader {
    // SAFETY: upheld by the caller.
    let opened = unsafe { open(name, &value, readers) };
    boxed(opened.and_then(|memory| {
        let (number, count) = (number as usize, memory.readers);
        if number >= count {
            return Err(ShmError::NoSuchEnd { number, count });
        }
        let claim = claim(&memory.body.mapping, Role::reader(number))?;
        Ok(AsofSnapshotReader {
            state: ReaderState::attach(&memory, number),
            memory,
            _claim: claim,
        })
    }))
}

/// Whether there is a publication that this reader has not taken yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_has_new(reader: *const AsofSnapshotReader) -> bool {
    // SAFETY: upheld by the caller.
    let reader = unsafe { &*reader };
    reader.state.has_new(&reader.memory)
}

/// The newest value, in place; it does not change until the next call. Generation 0 before the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_latest(
    reader: *mut AsofSnapshotReader,
    meta: *mut AsofMeta,
) -> *const c_void {
    // SAFETY: upheld by the caller.
    let reader = unsafe { &mut *reader };
    reader.state.take_newest(&reader.memory);
    // SAFETY: by the mailbox this reader has the buffer.
    unsafe { tell(meta, reader.memory.meta(reader.state.held)) };
    reader.memory.value(reader.state.held).cast_const().cast()
}

/// The value that this reader holds, whatever was published since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_current(
    reader: *const AsofSnapshotReader,
    meta: *mut AsofMeta,
) -> *const c_void {
    // SAFETY: upheld by the caller; by the mailbox this reader has the buffer.
    unsafe {
        let reader = &*reader;
        tell(meta, reader.memory.meta(reader.state.held));
        reader.memory.value(reader.state.held).cast_const().cast()
    }
}

/// Closes a reading end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_snapshot_reader_close(reader: *mut AsofSnapshotReader) {
    // SAFETY: upheld by the caller.
    unsafe { close(reader) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Snapshot;

    #[test]
    fn the_numbers_describe_the_rust_structure() {
        fn check<const SIZE: usize, const R: usize>() {
            assert_eq!(total(SIZE, R), size_of::<Snapshot<[u8; SIZE], R>>());
            assert_eq!(total(SIZE * 8, R), size_of::<Snapshot<[u64; SIZE], R>>());
            let numbers = [buffers(R), buffer_stride(SIZE), GENERATION, STAMP, VALUE];
            assert_eq!(numbers, Snapshot::<[u8; SIZE], R>::offsets());
        }
        check::<1, 1>();
        check::<112, 2>();
        check::<4096, 3>();
    }
}
