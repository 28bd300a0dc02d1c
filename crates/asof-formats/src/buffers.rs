//! Reusable buffers for decompressed chunks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::reserve::{Reserve, Reserved};

/// A pool of buffers, which return to it when the last slice of a chunk is dropped.
///
/// Fresh memory costs a page fault every 4 KiB, which is a good part of the time to decompress a chunk; a reused buffer
/// is warm.
#[derive(Debug)]
pub(crate) struct BufferPool {
    inner: Mutex<Inner>,
    /// Where buffers of unlikely data take their bytes from.
    pub reserve: Arc<Reserve>,
}

impl Default for BufferPool {
    fn default() -> Self {
        BufferPool {
            inner: Mutex::default(),
            reserve: Arc::clone(Reserve::shared()),
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    free: Vec<Vec<u8>>,
    /// Bytes that active readers have in flight beyond [`KEPT_BYTES`].
    expected: usize,
}

/// What the pool may keep while it is unused: about as much as a reader with few threads has in flight, so that buffers
/// are reused without the allocator, which retains more freed memory than it reuses.
const KEPT_BUFFERS: usize = 16;
const KEPT_BYTES: usize = 24 << 20;
/// Sizes of buffers are multiples of this, so that chunks of similar size fit the same buffers.
const STEP: usize = 1 << 20;

impl BufferPool {
    /// A buffer of at least `len` initialized bytes, with arbitrary contents.
    pub fn take(&self, len: usize) -> Vec<u8> {
        match self.take_free(len) {
            Some(buffer) => buffer,
            // Bytes beyond `len` are never touched, and so take no memory.
            None if len > STEP / 2 => vec![0; len.saturating_add(len / 8).next_multiple_of(STEP)],
            None => vec![0; len],
        }
    }

    /// The smallest buffer that fits; among equals the one returned last.
    fn take_free(&self, len: usize) -> Option<Vec<u8>> {
        let free = &mut self.lock().free;
        let fitting = free
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, buffer)| buffer.len() >= len)
            .min_by_key(|(_, b)| b.len());
        let (index, _) = fitting?;
        Some(free.remove(index))
    }

    /// Makes the first `used` bytes of `buffer` a chunk's contents; the buffer returns to the pool after its last use.
    pub fn seal(self: &Arc<Self>, buffer: Vec<u8>, used: usize) -> Bytes {
        self.seal_reserved(buffer, used, None)
    }

    /// The same, with the buffer's share of the reserve, which ends with the last use.
    pub fn seal_reserved(
        self: &Arc<Self>,
        buffer: Vec<u8>,
        used: usize,
        mut reserved: Option<Reserved>,
    ) -> Bytes {
        if let Some(reserved) = &mut reserved {
            reserved.shrink(used as u64);
        }
        Bytes::from_owner(Pooled {
            buffer,
            used,
            pool: Arc::clone(self),
            _reserved: reserved,
        })
    }

    pub fn give_back(&self, buffer: Vec<u8>) {
        let mut inner = self.lock();
        inner.free.push(buffer);
        let leaving = inner.surplus();
        // Dropped without the lock: freeing large buffers takes time.
        drop(inner);
        drop(leaving);
    }

    /// Raises the limit while a reader has this many bytes in flight: what its threads return, they soon take again.
    pub fn expect(self: &Arc<Self>, bytes: usize) -> Expected {
        let bytes = bytes.saturating_sub(KEPT_BYTES);
        self.lock().expected += bytes;
        Expected {
            pool: Arc::clone(self),
            bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Removes the buffers beyond the limits. The small ones go first: they are the cheapest to allocate again, and fit
    /// the fewest chunks.
    fn surplus(&mut self) -> Vec<Vec<u8>> {
        let free = &mut self.free;
        let most = KEPT_BYTES.saturating_add(self.expected);
        let mut leaving = Vec::new();
        while free.len() > KEPT_BUFFERS || free.iter().map(Vec::len).sum::<usize>() > most {
            let smallest = (0..free.len()).min_by_key(|&at| free[at].len());
            match smallest {
                Some(at) => leaving.push(free.swap_remove(at)),
                None => break,
            }
        }
        leaving
    }
}

/// A reader's share of the limit of a pool; dropping it lowers the limit.
#[derive(Debug)]
pub(crate) struct Expected {
    pool: Arc<BufferPool>,
    bytes: usize,
}

impl Drop for Expected {
    fn drop(&mut self) {
        let mut inner = self.pool.lock();
        inner.expected -= self.bytes;
        let leaving = inner.surplus();
        drop(inner);
        drop(leaving);
    }
}

struct Pooled {
    buffer: Vec<u8>,
    used: usize,
    pool: Arc<BufferPool>,
    _reserved: Option<Reserved>,
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.used]
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_slice_is_gone() {
        let pool = Arc::new(BufferPool::default());
        let buffer = pool.take(100);
        let address = buffer.as_ptr();
        let slice = pool.seal(buffer, 10).slice(2..4);
        assert_eq!(slice.len(), 2);
        let other = pool.take(100);
        assert_ne!(other.as_ptr(), address);
        drop(slice);
        let again = pool.take(50);
        assert_eq!(again.as_ptr(), address);
    }

    #[test]
    fn what_a_reader_expects_is_kept_until_it_is_done() {
        let pool = Arc::new(BufferPool::default());
        let kept = || pool.lock().free.iter().map(Vec::len).sum::<usize>();
        let fill = || {
            let buffers: Vec<_> = (0..10).map(|_| pool.take(7 << 20)).collect();
            for buffer in buffers {
                pool.give_back(buffer);
            }
        };
        fill();
        assert!(kept() <= KEPT_BYTES);
        let first = pool.expect(64 << 20);
        fill();
        assert!(kept() > 48 << 20, "{}", kept());
        drop(pool.expect(64 << 20));
        assert!(kept() > 48 << 20, "another is at work still");
        drop(first);
        assert!(kept() <= KEPT_BYTES);
    }
}
