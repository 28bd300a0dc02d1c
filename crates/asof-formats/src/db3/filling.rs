//! Payloads one behind the other, decompressed where each was compressed by itself.

use std::sync::Arc;

use bytes::Bytes;

use crate::buffers::BufferPool;

/// The first bytes of a zstd frame; no CDR payload starts so, since its second byte is at most 0x0b.
pub(crate) const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A message may not become larger than this.
const LARGEST_MESSAGE: usize = 1 << 30;

/// A buffer with payloads at its front, taken from the pool when the first one comes.
pub(crate) struct Filling<'a> {
    pool: &'a Arc<BufferPool>,
    expected: u64,
    bytes: Vec<u8>,
    pub used: usize,
}

impl<'a> Filling<'a> {
    pub fn new(pool: &'a Arc<BufferPool>, expected: u64) -> Self {
        Filling {
            pool,
            expected,
            bytes: Vec::new(),
            used: 0,
        }
    }

    /// Adds a payload, decompressed where it was compressed by itself.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), String> {
        if payload.starts_with(&ZSTD) {
            return self.push_compressed(payload);
        }
        self.room(payload.len())?.copy_from_slice(payload);
        self.used += payload.len();
        Ok(())
    }

    fn push_compressed(&mut self, payload: &[u8]) -> Result<(), String> {
        let bound = zstd::zstd_safe::get_frame_content_size(payload)
            .ok()
            .flatten()
            .and_then(|size| usize::try_from(size).ok())
            .filter(|&size| size <= LARGEST_MESSAGE);
        let Some(bound) = bound else {
            let whole = zstd::stream::decode_all(payload).map_err(|error| error.to_string())?;
            self.room(whole.len())?.copy_from_slice(&whole);
            self.used += whole.len();
            return Ok(());
        };
        // A frame that lies about its size is found out before memory is spent on it.
        if bound > payload.len().saturating_mul(4096).saturating_add(1 << 20) {
            return Err(format!(
                "{} compressed bytes cannot hold {bound}",
                payload.len()
            ));
        }
        let room = self.room(bound)?;
        let written = zstd::bulk::decompress_to_buffer(payload, room)
            .map_err(|error| format!("its zstd data is damaged ({error})"))?;
        self.used += written;
        Ok(())
    }

    pub fn room(&mut self, len: usize) -> Result<&mut [u8], String> {
        if self.bytes.is_empty() && len > 0 {
            self.bytes = self.pool.take(len.max(self.expected as usize));
        }
        let end = self.used + len;
        if end > self.bytes.len() {
            let larger = end.max(self.bytes.len().saturating_mul(2));
            self.bytes
                .try_reserve_exact(larger - self.bytes.len())
                .map_err(|_| format!("there is no memory for its {len} bytes"))?;
            self.bytes.resize(larger, 0);
        }
        Ok(&mut self.bytes[self.used..end])
    }

    /// What was filled; the buffer comes back to the pool after its last use.
    pub fn seal(self) -> Bytes {
        if self.used == 0 {
            self.pool.give_back(self.bytes);
            return Bytes::new();
        }
        self.pool.seal(self.bytes, self.used)
    }
}
