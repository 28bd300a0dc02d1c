//! Column memory that is reused once the last batch that holds it is dropped.
//!
//! Fresh memory costs a page fault every 4 KiB, which is more than it costs to fill it. A batch that is read and
//! dropped returns its columns, and the next one is written into them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_buffer::{ArrowNativeType, Buffer, ToByteSlice};
use bytes::Bytes;

/// The most unused memory that is kept, in bytes, over all columns of the process: a batch of the usual size.
const KEPT_BYTES: usize = 9 << 20;
/// Smaller blocks come from the allocator just as quickly.
const MIN_RECYCLED_BYTES: usize = 16 << 10;

/// The unused vectors of one type.
#[derive(Debug)]
pub(crate) struct Free<T>(Vec<Vec<T>>);

/// All unused vectors.
#[derive(Debug)]
pub(crate) struct FreeLists {
    bytes: usize,
    w1: Free<u8>,
    w2: Free<u16>,
    w4: Free<u32>,
    w8: Free<u64>,
    w16: Free<u128>,
    ends: Free<i32>,
}

static SHELF: Mutex<FreeLists> = Mutex::new(FreeLists {
    bytes: 0,
    w1: Free(Vec::new()),
    w2: Free(Vec::new()),
    w4: Free(Vec::new()),
    w8: Free(Vec::new()),
    w16: Free(Vec::new()),
    ends: Free(Vec::new()),
});

/// An element of a column.
pub(crate) trait Word: ArrowNativeType + ToByteSlice {
    fn free(shelf: &mut FreeLists) -> &mut Free<Self>;
}

macro_rules! word {
    ($word:ty, $list:ident) => {
        impl Word for $word {
            fn free(shelf: &mut FreeLists) -> &mut Free<Self> {
                &mut shelf.$list
            }
        }
    };
}

word!(u8, w1);
word!(u16, w2);
word!(u32, w4);
word!(u64, w8);
word!(u128, w16);
word!(i32, ends);

fn shelf() -> MutexGuard<'static, FreeLists> {
    SHELF.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An empty vector with capacity for about as many values as were needed last time.
pub(crate) fn room_for<T: Word>(len: usize) -> Vec<T> {
    if len * size_of::<T>() < MIN_RECYCLED_BYTES {
        return Vec::with_capacity(len);
    }
    let mut shelf = shelf();
    let free = &mut T::free(&mut shelf).0;
    // The smallest that is large enough, unless it is far too large.
    let fitting = free
        .iter()
        .enumerate()
        .filter(|(_, kept)| kept.capacity() >= len && kept.capacity() <= 4 * len)
        .min_by_key(|(_, kept)| kept.capacity());
    if let Some((at, _)) = fitting {
        let found = free.swap_remove(at);
        shelf.bytes -= found.capacity() * size_of::<T>();
        return found;
    }
    drop(shelf);
    Vec::with_capacity(len)
}

/// An Arrow buffer whose memory is returned when its last handle is dropped.
pub(crate) fn buffer_of<T: Word>(words: Vec<T>) -> Buffer {
    if words.capacity() * size_of::<T>() < MIN_RECYCLED_BYTES {
        return Buffer::from_vec(words);
    }
    Buffer::from(Bytes::from_owner(Owned(words)))
}

struct Owned<T: Word>(Vec<T>);

impl<T: Word> AsRef<[u8]> for Owned<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.to_byte_slice()
    }
}

impl<T: Word> Drop for Owned<T> {
    fn drop(&mut self) {
        let mut words = std::mem::take(&mut self.0);
        let bytes = words.capacity() * size_of::<T>();
        words.clear();
        let mut shelf = shelf();
        if shelf.bytes + bytes <= KEPT_BYTES {
            shelf.bytes += bytes;
            T::free(&mut shelf).0.push(words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_when_the_last_buffer_is_gone() {
        // Of a size that no other test has.
        let mut words: Vec<u16> = Vec::with_capacity(77_777);
        words.extend([1, 2, 3]);
        let address = words.as_ptr();
        let buffer = buffer_of(words);
        let slice = buffer.slice(2);
        assert_eq!(buffer.as_slice(), [1, 0, 2, 0, 3, 0]);
        drop(buffer);
        let other = room_for::<u16>(77_777);
        assert_ne!(other.as_ptr(), address);
        drop(slice);
        let again = room_for::<u16>(77_700);
        assert_eq!(again.as_ptr(), address);
    }
}
