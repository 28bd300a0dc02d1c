//! Consecutive payloads, decompressed if each was compressed by itself.

use std::io::Read as _;
use std::sync::Arc;

use bytes::Bytes;

use crate::buffers::BufferPool;
use crate::decompress::no_room;
use crate::limits::{DecompressionLimits, LIFT};
use crate::reserve::Reserved;

/// The first bytes of a zstd frame; a CDR payload never starts with them, since its first byte is zero.
pub(crate) const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Bytes of one buffer that are not counted, however little they were compressed from.
const NOT_COUNTED: u64 = 1 << 20;

/// A buffer that payloads are appended to, taken from the pool for the first one.
pub(crate) struct Filling<'a> {
    pool: &'a Arc<BufferPool>,
    limits: &'a DecompressionLimits,
    expected: u64,
    bytes: Vec<u8>,
    pub used: usize,
    /// The share of the reserve that unlikely payloads take.
    reserved: Option<Reserved>,
    /// Compressed bytes so far, and their decompressed size.
    compressed: u64,
    decompressed: u64,
}

impl<'a> Filling<'a> {
    pub fn new(pool: &'a Arc<BufferPool>, limits: &'a DecompressionLimits, expected: u64) -> Self {
        Filling {
            pool,
            limits,
            expected,
            bytes: Vec::new(),
            used: 0,
            reserved: None,
            compressed: 0,
            decompressed: 0,
        }
    }

    /// Adds a payload, decompressed if it was compressed by itself.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), String> {
        if payload.starts_with(&ZSTD) {
            return self.push_compressed(payload);
        }
        self.room(payload.len())?.copy_from_slice(payload);
        self.used += payload.len();
        Ok(())
    }

    /// The messages of one buffer are limited together: each by itself may be small.
    fn push_compressed(&mut self, payload: &[u8]) -> Result<(), String> {
        self.compressed += payload.len() as u64;
        let allowed = self.limits.of_chunk(self.compressed) - self.decompressed;
        let declared = zstd::zstd_safe::get_frame_content_size(payload)
            .ok()
            .flatten();
        if declared.is_some_and(|declared| declared > allowed) {
            return Err(too_large(payload.len()));
        }
        let start = self.used;
        let likely = (payload.len() as u64).saturating_mul(64) + (64 << 10);
        match declared.filter(|&declared| declared <= likely.max(1 << 20)) {
            Some(declared) => {
                self.reserve(declared)?;
                let room = self.room(declared as usize)?;
                let written = zstd::bulk::decompress_to_buffer(payload, room).map_err(damaged)?;
                self.used += written;
            }
            // A frame without a size, or with an unlikely one: memory grows with the data.
            None => self.push_in_steps(payload, allowed)?,
        }
        self.decompressed += (self.used - start) as u64;
        Ok(())
    }

    fn push_in_steps(&mut self, payload: &[u8], allowed: u64) -> Result<(), String> {
        let start = self.used;
        let mut reader = zstd::stream::read::Decoder::with_buffer(payload)
            .map_err(damaged)?
            .take(allowed.saturating_add(1));
        let mut step = (128 << 10).max(payload.len());
        loop {
            let read = self
                .reserve((self.used - start + step) as u64)
                .and_then(|()| self.room(step))
                .and_then(|room| reader.read(room).map_err(damaged));
            match read {
                Ok(0) => return Ok(()),
                Ok(read) => self.used += read,
                Err(fault) => {
                    self.used = start;
                    return Err(fault);
                }
            }
            if (self.used - start) as u64 > allowed {
                self.used = start;
                return Err(too_large(payload.len()));
            }
            step = step.max(self.used - start);
        }
    }

    /// Takes bytes of the reserve if the payloads become unlikely many with `more`.
    fn reserve(&mut self, more: u64) -> Result<(), String> {
        let becomes = self.decompressed + more;
        let unlikely = DecompressionLimits::UNLIKELY_RATIO.saturating_mul(self.compressed);
        if becomes <= unlikely.saturating_add(NOT_COUNTED) {
            return Ok(());
        }
        let (pool, limits) = (self.pool, self.limits);
        let reserved = match &mut self.reserved {
            Some(reserved) => reserved.grow(becomes, limits.alive_at_most),
            none => {
                let taken = pool.reserve.take(becomes, limits.alive_at_most);
                taken.map(|taken| *none = Some(taken))
            }
        };
        reserved.map_err(|held| no_room(self.compressed as usize, becomes, held, limits))
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
                .map_err(|_| format!("not enough memory for its {len} bytes"))?;
            self.bytes.resize(larger, 0);
        }
        Ok(&mut self.bytes[self.used..end])
    }

    /// The filled part; the buffer returns to the pool after its last use.
    pub fn seal(self) -> Bytes {
        if self.used == 0 {
            self.pool.give_back(self.bytes);
            return Bytes::new();
        }
        self.pool
            .seal_reserved(self.bytes, self.used, self.reserved)
    }
}

fn damaged(error: impl std::fmt::Display) -> String {
    format!("its zstd data is damaged ({error})")
}

fn too_large(compressed: usize) -> String {
    format!("its {compressed} compressed bytes decompress to more than the limit: {LIFT}")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A frame without a content size.
    fn unsized_frame(contents: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder");
        encoder.write_all(contents).expect("compresses");
        encoder.finish().expect("compresses")
    }

    #[test]
    fn frames_with_and_without_a_size_come_out_whole() {
        let contents: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        let (pool, limits) = (Arc::default(), DecompressionLimits::default());
        let mut filling = Filling::new(&pool, &limits, 10);
        let sized = zstd::bulk::compress(&contents, 3).expect("compresses");
        for payload in [sized, unsized_frame(&contents), contents.clone()] {
            filling.push(&payload).expect("decompresses");
        }
        let filled = filling.seal();
        assert!(filled == [&contents[..], &contents, &contents].concat());
    }

    #[test]
    fn bombs_are_refused_alone_and_together() {
        let (pool, limits) = (Arc::default(), DecompressionLimits::default());
        let mut filling = Filling::new(&pool, &limits, 10);
        let alone = vec![0; 65 << 20];
        assert!(filling.push(&unsized_frame(&alone)).is_err());
        let sized = zstd::bulk::compress(&alone, 3).expect("compresses");
        assert!(filling.push(&sized).is_err());
        assert_eq!(filling.used, 0);
        let harmless = zstd::bulk::compress(&vec![0; 20 << 20], 3).expect("compresses");
        let pushed = (0..10).filter(|_| filling.push(&harmless).is_ok()).count();
        assert_eq!(pushed, 3);
        assert!(filling.used <= 64 << 20);
    }
}
