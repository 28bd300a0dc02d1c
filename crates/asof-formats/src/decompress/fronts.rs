//! What comes before the damage in compressed data.
//!
//! A decoder that meets damage within a large request returns nothing of it. So the data is fed byte by byte here: all
//! output up to the damage is intact. That is slow, and done for damaged data only.

use bzip2::{Decompress, Status};
use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

/// Data up to this size is fed byte by byte; larger data in at most this many steps.
const STEPS: usize = 4 << 20;
/// Output buffer of a decoder: at least one zstd block.
const OUTPUT_BYTES: usize = 256 << 10;

/// The blocks of zstd data before the damaged one, up to about `limit` bytes.
pub(crate) fn of_zstd(data: &[u8], limit: usize) -> Vec<u8> {
    let mut contents = Vec::new();
    let Ok(mut decoder) = Decoder::new() else {
        return contents;
    };
    let mut room = vec![0; OUTPUT_BYTES];
    for step in steps(data) {
        let mut input = InBuffer::around(step);
        loop {
            let mut output = OutBuffer::around(&mut room[..]);
            if decoder.run(&mut input, &mut output).is_err() {
                return contents;
            }
            let written = output.pos();
            contents.extend_from_slice(&room[..written]);
            if contents.len() >= limit || (written < OUTPUT_BYTES && input.pos() == step.len()) {
                break;
            }
        }
        if contents.len() >= limit {
            break;
        }
    }
    contents
}

/// The blocks of bzip2 data before the damaged one, up to about `limit` bytes. A block's checksum follows the block, so
/// a step's output counts only once the step has succeeded.
pub(crate) fn of_bz2(data: &[u8], limit: usize) -> Vec<u8> {
    let mut contents = Vec::new();
    let mut decoder = Decompress::new(false);
    let mut room = vec![0; OUTPUT_BYTES];
    for mut step in steps(data) {
        let good = contents.len();
        loop {
            let (taken, given) = (decoder.total_in(), decoder.total_out());
            let Ok(status) = decoder.decompress(step, &mut room) else {
                contents.truncate(good);
                return contents;
            };
            let taken = (decoder.total_in() - taken) as usize;
            let given = (decoder.total_out() - given) as usize;
            contents.extend_from_slice(&room[..given.min(OUTPUT_BYTES)]);
            step = step.get(taken..).unwrap_or_default();
            if matches!(status, Status::StreamEnd) {
                decoder = Decompress::new(false);
            }
            if contents.len() >= limit || (given < OUTPUT_BYTES && step.is_empty()) {
                break;
            }
        }
        if contents.len() >= limit {
            break;
        }
    }
    contents
}

fn steps(data: &[u8]) -> std::slice::Chunks<'_, u8> {
    data.chunks(data.len().div_ceil(STEPS).max(1))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    type Front = fn(&[u8], usize) -> Vec<u8>;

    /// Text of many blocks.
    fn contents() -> Vec<u8> {
        let line = |n: u32| format!("{} and {};", n.wrapping_mul(2_654_435_761), n % 7);
        (0..200_000).map(line).collect::<String>().into_bytes()
    }

    fn bz2_of(contents: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(contents).expect("compresses");
        encoder.finish().expect("compresses")
    }

    #[test]
    fn whole_data_comes_out_whole() {
        let whole = contents();
        let packed = zstd::bulk::compress(&whole, 3).expect("compresses");
        assert!(of_zstd(&packed, usize::MAX) == whole);
        let twice = [packed.clone(), packed].concat();
        assert!(of_zstd(&twice, usize::MAX) == [whole.clone(), whole.clone()].concat());
        let packed = bz2_of(&whole);
        assert!(of_bz2(&packed, usize::MAX) == whole);
        let twice = [packed.clone(), packed].concat();
        assert!(of_bz2(&twice, usize::MAX) == [whole.clone(), whole].concat());
    }

    #[test]
    fn what_comes_before_a_damaged_bit_comes_out_as_it_went_in() {
        let whole = contents();
        let packed = [
            (
                zstd::bulk::compress(&whole, 3).expect("compresses"),
                140 << 10,
            ),
            (bz2_of(&whole), 110_000),
        ];
        let fronts: [Front; 2] = [of_zstd, of_bz2];
        for ((packed, block), front) in packed.into_iter().zip(fronts) {
            for tenth in 1..10 {
                let mut damaged = packed.clone();
                // Enough damage that no block decodes by accident.
                let at = packed.len() * tenth / 10;
                damaged[at..at + 40].fill(0x5a);
                let found = front(&damaged, usize::MAX);
                let good = found.iter().zip(&whole).take_while(|(a, b)| a == b).count();
                let before = whole.len() * tenth / 10;
                assert!(good + 2 * block > before, "{good} of {before}");
            }
        }
    }

    #[test]
    fn no_more_than_the_limit_is_kept() {
        let packed = zstd::bulk::compress(&vec![0; 50 << 20], 3).expect("compresses");
        assert!(of_zstd(&packed, 1 << 20).len() <= (1 << 20) + OUTPUT_BYTES);
        let packed = bz2_of(&vec![0; 50 << 20]);
        assert!(of_bz2(&packed, 1 << 20).len() <= (1 << 20) + OUTPUT_BYTES);
    }
}
