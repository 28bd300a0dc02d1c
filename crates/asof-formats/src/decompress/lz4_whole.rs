//! LZ4 frames, decompressed directly into their destination.
//!
//! The usual frame reader copies each block into a buffer, decompresses it into another, and copies that out. Here
//! source and destination are both completely in memory. Without the two copies, a chunk takes about half of the memory
//! bandwidth, which all cores share.

use std::hash::Hasher;

use lz4_flex::block::{decompress_into, decompress_into_with_dict};
use twox_hash::XxHash32;

use super::lz4_front::take_u32;

const MAGIC: u32 = 0x184d_2204;
/// How far back a linked block may refer into the blocks before it.
const WINDOW: usize = 64 << 10;

/// Fills `contents` from frames of exactly that decompressed size. `None` on any error; the streaming reader then finds
/// out which.
pub(super) fn fill(frames: &[u8], contents: &mut [u8]) -> Option<()> {
    (fill_front(frames, contents, &|_| false)? == contents.len()).then_some(())
}

/// Fills the front of `contents`, block by block until it is enough, or to the end of the frames; returns its length.
pub(super) fn fill_front(
    frames: &[u8],
    contents: &mut [u8],
    is_enough: &impl Fn(&[u8]) -> bool,
) -> Option<usize> {
    let mut rest = frames;
    let mut filled = 0;
    while !rest.is_empty() && !is_enough(&contents[..filled]) {
        filled = Frame::take(&mut rest)?.fill(&mut rest, contents, filled, is_enough)?;
    }
    Some(filled)
}

/// The header of a frame.
struct Frame {
    are_linked: bool,
    has_block_checksums: bool,
    has_checksum: bool,
    size: Option<u64>,
    largest_block: usize,
}

impl Frame {
    fn take(rest: &mut &[u8]) -> Option<Self> {
        if take_u32(rest)? != MAGIC {
            return None;
        }
        let (flags, sizes) = (*rest.first()?, *rest.get(1)?);
        let has = |bit: u8| flags >> bit & 1 == 1;
        // Version 1, no reserved bit set, and no dictionary, which would be unknown here.
        let is_known = flags >> 6 == 1 && !has(1) && !has(0) && sizes & 0x8f == 0;
        let largest_block = match sizes >> 4 {
            code @ 4..=7 if is_known => 1 << (8 + 2 * code),
            _ => return None,
        };
        let len = if has(3) { 10 } else { 2 };
        let (described, behind) = rest.split_at_checked(len)?;
        let (&checksum, behind) = behind.split_first()?;
        if (hash(described) >> 8) as u8 != checksum {
            return None;
        }
        *rest = behind;
        Some(Frame {
            are_linked: !has(5),
            has_block_checksums: has(4),
            has_checksum: has(2),
            size: described[2..].try_into().ok().map(u64::from_le_bytes),
            largest_block,
        })
    }

    /// Fills `contents` from `start` on, until it is enough; returns the end.
    fn fill(
        &self,
        rest: &mut &[u8],
        contents: &mut [u8],
        start: usize,
        is_enough: &impl Fn(&[u8]) -> bool,
    ) -> Option<usize> {
        let mut hasher = XxHash32::with_seed(0);
        let mut filled = start;
        loop {
            let head = take_u32(rest)?;
            if head == 0 {
                break;
            }
            let len = (head & 0x7fff_ffff) as usize;
            if len > self.largest_block {
                return None;
            }
            let (data, behind) = rest.split_at_checked(len)?;
            *rest = behind;
            if self.has_block_checksums && take_u32(rest)? != hash(data) {
                return None;
            }
            let (before, room) = contents.split_at_mut(filled);
            let room_len = room.len().min(self.largest_block);
            let room = &mut room[..room_len];
            let len = if head >> 31 == 1 {
                room.get_mut(..len)?.copy_from_slice(data);
                len
            } else if self.are_linked && filled > start {
                let window = &before[start.max(filled.saturating_sub(WINDOW))..];
                decompress_into_with_dict(data, room, window).ok()?
            } else {
                decompress_into(data, room).ok()?
            };
            if self.has_checksum {
                hasher.write(room.get(..len)?);
            }
            filled += len;
            if is_enough(&contents[..filled]) {
                return Some(filled);
            }
        }
        let is_whole = self.size.is_none_or(|size| size == (filled - start) as u64);
        let is_right = !self.has_checksum || u64::from(take_u32(rest)?) == hasher.finish();
        (is_whole && is_right).then_some(filled)
    }
}

fn hash(bytes: &[u8]) -> u32 {
    XxHash32::oneshot(0, bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

    use super::*;

    fn packed(contents: &[u8], info: FrameInfo) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(contents).expect("compresses");
        encoder.finish().expect("compresses")
    }

    /// Text that repeats itself near and far, over several blocks, and bytes that nothing compresses.
    fn contents() -> Vec<u8> {
        let word = |n: u32| n.wrapping_mul(2_654_435_761).rotate_left(n % 31);
        let mut all: Vec<u8> = (0..12_000)
            .flat_map(|n| format!("{} of {};", word(n / 3) % 5000, n % 7).into_bytes())
            .collect();
        all.extend((0..20_000).flat_map(|n| word(n).to_le_bytes()));
        all
    }

    fn infos() -> Vec<FrameInfo> {
        let mut all = Vec::new();
        for mode in [BlockMode::Independent, BlockMode::Linked] {
            for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
                for has_checksums in [false, true] {
                    let info = FrameInfo::new().block_mode(mode).block_size(size);
                    all.push(
                        info.block_checksums(has_checksums)
                            .content_checksum(has_checksums),
                    );
                }
            }
        }
        all
    }

    #[test]
    fn every_kind_of_frame_comes_out_as_it_went_in() {
        let whole = contents();
        for info in infos() {
            for size in [None, Some(whole.len() as u64)] {
                let data = packed(&whole, info.clone().content_size(size));
                let mut found = vec![0; whole.len()];
                assert_eq!(fill(&data, &mut found), Some(()), "{info:?}");
                assert!(found == whole, "{info:?}");
                let mut twice = vec![0; 2 * whole.len()];
                assert_eq!(fill(&[&data[..], &data].concat(), &mut twice), Some(()));
                assert!(twice == [&whole[..], &whole].concat(), "{info:?}");
            }
        }
        assert_eq!(fill(&packed(b"", FrameInfo::new()), &mut []), Some(()));
    }

    #[test]
    fn another_size_is_not_filled() {
        let whole = contents();
        let data = packed(&whole, FrameInfo::new());
        for len in [0, 1, whole.len() - 1, whole.len() + 1] {
            assert_eq!(fill(&data, &mut vec![0; len]), None);
        }
        assert_eq!(
            fill(&data[..data.len() - 1], &mut vec![0; whole.len()]),
            None
        );
        assert_eq!(fill(b"hello, hello", &mut [0; 12]), None);
    }

    #[test]
    fn damage_is_found_where_the_reader_by_steps_finds_it() {
        let whole = contents().split_off(100_000);
        let mut state = 7u32;
        let mut next = |limit: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % limit
        };
        for info in infos() {
            let data = packed(&whole, info.clone());
            for _ in 0..40 {
                let mut damaged = data.clone();
                // A frame's header is only a few bytes, so it is picked more often.
                let most = if next(3) == 0 { 30 } else { damaged.len() };
                damaged[next(most)] ^= 1 << next(8);
                let mut found = vec![0; whole.len()];
                if fill(&damaged, &mut found).is_some() {
                    let mut slow = Vec::new();
                    let mut reader = FrameDecoder::new(&damaged[..]);
                    reader.read_to_end(&mut slow).expect("is as good to both");
                    assert!(slow == found, "{info:?}");
                }
            }
        }
    }
}
