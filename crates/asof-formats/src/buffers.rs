//! Buffers that decompressed chunks lie in, used again and again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// A heap of buffers, given back by themselves when the last slice of a chunk is gone.
///
/// Fresh memory costs a page fault every 4 KiB, which is a good part of the time that decompressing a chunk
/// takes; a buffer that comes back is warm.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    free: Mutex<Vec<Vec<u8>>>,
}

/// What the pool may keep while nobody uses it: about as much as a reader has in flight, so that buffers come and
/// go without the allocator, which keeps more of what it is given back than it is asked for again.
const KEPT_BUFFERS: usize = 8;
const KEPT_BYTES: usize = 24 << 20;
/// Buffers are made of steps of this: chunks of about one size fit into each other's.
const STEP: usize = 1 << 20;

impl BufferPool {
    /// A buffer of at least `len` initialized bytes; what they hold is left over from before.
    pub fn take(&self, len: usize) -> Vec<u8> {
        match self.take_free(len) {
            Some(buffer) => buffer,
            // What is beyond `len` is never touched, and so takes no memory.
            None if len > STEP / 2 => vec![0; len.saturating_add(len / 8).next_multiple_of(STEP)],
            None => vec![0; len],
        }
    }

    /// The smallest that fits; among equals the one that came back last.
    fn take_free(&self, len: usize) -> Option<Vec<u8>> {
        let mut free = self.lock();
        let fitting = free
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, buffer)| buffer.len() >= len)
            .min_by_key(|(_, b)| b.len());
        let (index, _) = fitting?;
        Some(free.remove(index))
    }

    /// Makes the first `used` bytes of `buffer` a chunk's contents; the buffer comes back after its last use.
    pub fn seal(self: &Arc<Self>, buffer: Vec<u8>, used: usize) -> Bytes {
        Bytes::from_owner(Pooled {
            buffer,
            used,
            pool: Arc::clone(self),
        })
    }

    pub fn give_back(&self, buffer: Vec<u8>) {
        // They leave when nobody waits for the pool any longer: the system takes its time for large ones.
        let mut leaving = Vec::new();
        let mut free = self.lock();
        free.push(buffer);
        // The small ones go first: they are made again most easily, and fit the fewest.
        while free.len() > KEPT_BUFFERS || free.iter().map(Vec::len).sum::<usize>() > KEPT_BYTES {
            let smallest = (0..free.len()).min_by_key(|&at| free[at].len());
            match smallest {
                Some(at) => leaving.push(free.swap_remove(at)),
                None => break,
            }
        }
        drop(free);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Pooled {
    buffer: Vec<u8>,
    used: usize,
    pool: Arc<BufferPool>,
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
}
