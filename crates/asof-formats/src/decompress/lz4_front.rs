//! What comes before the damage in truncated or damaged LZ4 frames.
//!
//! A block may hold a complete chunk, and decoders return a block only if all of it is valid. But it is a sequence of
//! literals and copies of earlier bytes, so everything before the damage can be decoded.

/// As much of frames as can be decoded, up to `limit` bytes: the blocks before the damaged one, and the start of that
/// one.
pub(crate) fn of_lz4(frames: &[u8], limit: usize) -> Vec<u8> {
    let mut contents = Vec::new();
    let mut rest = frames;
    while let Some(checksums) = take_frame_header(&mut rest) {
        while let Some(size) = take_u32(&mut rest) {
            if size == 0 {
                break;
            }
            let len = (size & 0x7fff_ffff) as usize;
            let data = &rest[..len.min(rest.len())];
            let is_whole = append(data, size >> 31 == 0, &mut contents, limit);
            let behind = len
                .checked_add(checksums.of_block)
                .and_then(|len| rest.get(len..));
            match behind {
                Some(behind) if is_whole && contents.len() < limit => rest = behind,
                _ => return contents,
            }
        }
        let Some(behind) = rest.get(checksums.of_contents..) else {
            break;
        };
        rest = behind;
    }
    contents
}

/// Bytes of the checksum after each block, and after the last.
struct Checksums {
    of_block: usize,
    of_contents: usize,
}

fn take_frame_header(rest: &mut &[u8]) -> Option<Checksums> {
    const MAGIC: u32 = 0x184d_2204;
    if take_u32(rest)? != MAGIC {
        return None;
    }
    let flags = *rest.first()?;
    let has = |bit: u8| usize::from(flags >> bit & 1);
    // Flags, block size and checksum; the content size and the dictionary id if present.
    let len = 3 + 8 * has(3) + 4 * has(0);
    *rest = rest.get(len..)?;
    Some(Checksums {
        of_block: 4 * has(4),
        of_contents: 4 * has(2),
    })
}

/// Appends as much of a block as can be decompressed, up to `limit` bytes in total; returns whether that was all of it.
fn append(data: &[u8], is_compressed: bool, contents: &mut Vec<u8>, limit: usize) -> bool {
    if !is_compressed {
        push(data, contents, limit);
        return true;
    }
    let mut rest = data;
    while append_sequence(&mut rest, contents, limit).is_some() {}
    rest.is_empty()
}

/// Appends one run of literals and the copy after it; `None` if the data or the space ends, or the copy's source does
/// not exist.
fn append_sequence(rest: &mut &[u8], contents: &mut Vec<u8>, limit: usize) -> Option<()> {
    let token = take_u8(rest)?;
    let literals = take_length(token >> 4, rest)?;
    let (front, behind) = rest.split_at(literals.min(rest.len()));
    push(front, contents, limit);
    *rest = behind;
    let offset = usize::from(u16::from_le_bytes([take_u8(rest)?, take_u8(rest)?]));
    let len = take_length(token & 15, rest)?.saturating_add(4);
    let mut from = contents.len().checked_sub(offset).filter(|_| offset > 0)?;
    let end = contents.len().saturating_add(len).min(limit);
    // A copy may overlap its own output.
    while contents.len() < end {
        let upto = contents.len().min(from + (end - contents.len()));
        contents.extend_from_within(from..upto);
        from = upto;
    }
    (contents.len() < limit).then_some(())
}

fn push(bytes: &[u8], contents: &mut Vec<u8>, limit: usize) {
    let room = limit.saturating_sub(contents.len());
    contents.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

/// A length of four bits, continued in further bytes if it is 15.
fn take_length(start: u8, rest: &mut &[u8]) -> Option<usize> {
    let mut length = usize::from(start);
    if start == 15 {
        loop {
            let more = take_u8(rest)?;
            length = length.saturating_add(usize::from(more));
            if more != 255 {
                break;
            }
        }
    }
    Some(length)
}

fn take_u8(rest: &mut &[u8]) -> Option<u8> {
    let (&first, behind) = rest.split_first()?;
    *rest = behind;
    Some(first)
}

pub(super) fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (&front, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u32::from_le_bytes(front))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

    use super::*;

    fn packed(contents: &[u8], info: FrameInfo) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(contents).expect("compresses");
        encoder.finish().expect("compresses")
    }

    /// Text that repeats itself, near and far, and some that does not.
    fn contents() -> Vec<u8> {
        let lines =
            (0..9000u32).map(|n| format!("{} and {};", n.wrapping_mul(2_654_435_761), n % 7));
        let mut text = lines.collect::<String>().into_bytes();
        text.extend(vec![b'='; 5000]);
        text
    }

    #[test]
    fn whatever_is_there_of_a_block_comes_out() {
        let whole = contents();
        let data = packed(&whole, FrameInfo::new().block_size(BlockSize::Max1MB));
        let mut longest = 0;
        for cut in (0..data.len()).step_by(97) {
            let found = of_lz4(&data[..cut], whole.len());
            assert!(whole.starts_with(&found), "{cut}");
            assert!(found.len() >= longest, "{cut}");
            longest = found.len();
        }
        assert!(
            longest > whole.len() * 9 / 10,
            "{longest} of {}",
            whole.len()
        );
    }

    #[test]
    fn blocks_before_the_damage_come_out_and_their_checksums_are_stepped_over() {
        let whole = contents();
        for info in [
            FrameInfo::new().block_size(BlockSize::Max64KB),
            FrameInfo::new()
                .block_size(BlockSize::Max64KB)
                .block_mode(BlockMode::Linked)
                .block_checksums(true)
                .content_checksum(true)
                .content_size(Some(whole.len() as u64)),
        ] {
            let data = packed(&whole, info);
            // All blocks are complete except the last of the second frame.
            let twice = [&data[..], &data[..data.len() - 1000]].concat();
            let found = of_lz4(&twice, 2 * whole.len());
            assert!([whole.clone(), whole.clone()].concat().starts_with(&found));
            assert!(found.len() > whole.len() * 3 / 2);
        }
    }

    #[test]
    fn the_front_of_a_block_comes_out_up_to_a_copy_of_nothing() {
        let whole = contents();
        let mut data = packed(&whole, FrameInfo::new().block_size(BlockSize::Max1MB));
        let at = data.len() / 2;
        // Zeros: wherever an offset is read, it is invalid.
        data[at..at + 64].fill(0);
        let found = of_lz4(&data, whole.len());
        let good = found.iter().zip(&whole).take_while(|(a, b)| a == b).count();
        assert!(good > whole.len() / 4, "{good} of {}", whole.len());
    }

    #[test]
    fn whole_frames_are_whole_and_other_bytes_are_nothing() {
        let whole = contents();
        let data = packed(&whole, FrameInfo::new());
        assert!(of_lz4(&data, usize::MAX) == whole);
        assert!(of_lz4(b"hello, hello, hello", usize::MAX).is_empty());
        assert!(of_lz4(b"", usize::MAX).is_empty());
    }

    #[test]
    fn no_bytes_make_it_panic_or_grow_beyond_the_limit() {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        for _ in 0..2000 {
            let data: Vec<u8> = (0..200).map(|_| next()).collect();
            let mut found = vec![7; 10];
            append(&data, true, &mut found, 1000);
            assert!(found.len() <= 1000);
        }
    }
}
