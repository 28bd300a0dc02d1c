//! The image properties in the sequence parameter set of H.264 and H.265.

use crate::VideoCodec;
use crate::video::{unescaped, units};

/// The image properties of a video, from its sequence parameter set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VideoShape {
    /// The visible width in pixels.
    pub width: usize,
    /// The visible height in pixels.
    pub height: usize,
    /// Chroma subsampling: 0 grey, 1 4:2:0, 2 4:2:2, 3 4:4:4.
    pub chroma_format: u8,
    /// Bits of luma.
    pub luma_bits: u8,
    /// Bits of chroma.
    pub chroma_bits: u8,
}

impl VideoCodec {
    /// The NAL units of an H.264 or H.265 packet in Annex B, without their start codes; none of them is empty.
    pub fn units(packet: &[u8]) -> impl Iterator<Item = &[u8]> {
        units(packet)
    }

    /// A unit without its emulation prevention bytes.
    pub fn unescaped(unit: &[u8]) -> Vec<u8> {
        unescaped(unit)
    }

    /// The image properties, from a keyframe; `None` for other packets, and for codecs other than H.264 and H.265.
    pub fn shape(self, packet: &[u8]) -> Option<VideoShape> {
        let set = self.parameters(packet)?;
        let shape = match self {
            VideoCodec::H264 => h264(&unescaped(set))?,
            VideoCodec::H265 => h265(&unescaped(set))?,
            VideoCodec::Vp9 | VideoCodec::Av1 => return None,
        };
        (shape.width > 0 && shape.height > 0).then_some(shape)
    }
}

/// ITU-T H.264, 7.3.2.1.1.
fn h264(set: &[u8]) -> Option<VideoShape> {
    let profile = *set.get(1)?;
    let mut bits = Bits::after(set, 4)?;
    bits.number()?;
    let (mut chroma_format, mut luma_bits, mut chroma_bits) = (1, 8, 8);
    // The profiles that have chroma subsampling.
    if [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135].contains(&profile) {
        chroma_format = u8::try_from(bits.number()?)
            .ok()
            .filter(|format| *format <= 3)?;
        if chroma_format == 3 {
            bits.bit()?;
        }
        luma_bits = depth(bits.number()?)?;
        chroma_bits = depth(bits.number()?)?;
        bits.bit()?;
        if bits.bit()? {
            let lists = if chroma_format == 3 { 12 } else { 8 };
            for list in 0..lists {
                if bits.bit()? {
                    scaling_list(&mut bits, if list < 6 { 16 } else { 64 })?;
                }
            }
        }
    }
    bits.number()?;
    match bits.number()? {
        0 => {
            bits.number()?;
        }
        1 => {
            bits.bit()?;
            bits.number()?;
            bits.number()?;
            let count = bits.number()?;
            for _ in 0..count.min(255) {
                bits.number()?;
            }
        }
        _ => {}
    }
    bits.number()?;
    bits.bit()?;
    let columns = bits.number()?.checked_add(1)?;
    let rows = bits.number()?.checked_add(1)?;
    let fields = if bits.bit()? { 1 } else { 2 };
    if fields == 2 {
        bits.bit()?;
    }
    bits.bit()?;
    let crop = bits.crop()?;
    let (across, down) = (
        if matches!(chroma_format, 1 | 2) { 2 } else { 1 },
        if chroma_format == 1 { 2 } else { 1 } * fields,
    );
    Some(VideoShape {
        width: cropped(columns.checked_mul(16)?, across, crop[0], crop[1])?,
        height: cropped(rows.checked_mul(16 * fields)?, down, crop[2], crop[3])?,
        chroma_format,
        luma_bits,
        chroma_bits,
    })
}

/// ITU-T H.265, 7.3.2.2.1.
fn h265(set: &[u8]) -> Option<VideoShape> {
    let layers = (set.get(2)? >> 1) & 7;
    // Two bytes of the unit, one of the set, twelve of profile and level.
    let mut bits = Bits::after(set, 15)?;
    if layers > 0 {
        let mut told = Vec::new();
        for _ in 0..layers {
            told.push((bits.bit()?, bits.bit()?));
        }
        bits.skip(2 * (8 - usize::from(layers)))?;
        for (has_profile, has_level) in told {
            bits.skip(if has_profile { 88 } else { 0 } + if has_level { 8 } else { 0 })?;
        }
    }
    bits.number()?;
    let chroma_format = u8::try_from(bits.number()?)
        .ok()
        .filter(|format| *format <= 3)?;
    if chroma_format == 3 {
        bits.bit()?;
    }
    let (width, height) = (bits.number()?, bits.number()?);
    let crop = bits.crop()?;
    let across = if matches!(chroma_format, 1 | 2) { 2 } else { 1 };
    let down = if chroma_format == 1 { 2 } else { 1 };
    Some(VideoShape {
        width: cropped(width, across, crop[0], crop[1])?,
        height: cropped(height, down, crop[2], crop[3])?,
        chroma_format,
        luma_bits: depth(bits.number()?)?,
        chroma_bits: depth(bits.number()?)?,
    })
}

/// A bit depth, which is coded as the bits beyond eight.
fn depth(more: u32) -> Option<u8> {
    u8::try_from(more)
        .ok()
        .filter(|more| *more <= 8)
        .map(|more| more + 8)
}

/// The size of a side after cropping both ends, in units of this many pixels.
fn cropped(size: u32, unit: u32, one: u32, other: u32) -> Option<usize> {
    let cut = one.checked_add(other)?.checked_mul(unit)?;
    Some(size.checked_sub(cut)? as usize)
}

fn scaling_list(bits: &mut Bits<'_>, size: usize) -> Option<()> {
    let (mut last, mut next) = (8_i64, 8_i64);
    for _ in 0..size {
        if next != 0 {
            let code = i64::from(bits.number()?);
            // Signs alternate: 1, -1, 2, -2, …
            let delta = if code % 2 == 1 {
                (code + 1) / 2
            } else {
                -(code / 2)
            };
            next = (last + delta).rem_euclid(256);
        }
        last = if next == 0 { last } else { next };
    }
    Some(())
}

/// Bits, highest first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    fn after(bytes: &'a [u8], count: usize) -> Option<Self> {
        Some(Bits {
            bytes: bytes.get(count..)?,
            at: 0,
        })
    }

    fn bit(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let bit = (byte >> (7 - self.at % 8)) & 1;
        self.at += 1;
        Some(bit == 1)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count)?;
        Some(())
    }

    /// An Exp-Golomb number: as many leading zeros as there are bits after the first one.
    fn number(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.bit()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        let mut value = 1_u64;
        for _ in 0..zeros {
            value = (value << 1) | u64::from(self.bit()?);
        }
        u32::try_from(value - 1).ok()
    }

    /// The cropping at the left, the right, the top and the bottom, where it is coded.
    fn crop(&mut self) -> Option<[u32; 4]> {
        if !self.bit()? {
            return Some([0; 4]);
        }
        Some([
            self.number()?,
            self.number()?,
            self.number()?,
            self.number()?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameter sets as x264 and x265 write them.
    #[rustfmt::skip]
    const SETS: [(VideoCodec, &[u8], VideoShape); 4] = [
        (VideoCodec::H264, &[
            0x67, 0x42, 0xc0, 0x0a, 0xda, 0x14, 0x9e, 0x22, 0x22, 0x10, 0x00, 0x00, 0x03, 0x00, 0x10, 0x00, 0x00, 0x03, 0x03,
            0xc8, 0xf1, 0x22, 0x6a,
        ], VideoShape { width: 66, height: 50, chroma_format: 1, luma_bits: 8, chroma_bits: 8 }),
        (VideoCodec::H264, &[
            0x67, 0xf4, 0x00, 0x0d, 0x91, 0x96, 0x81, 0x50, 0x87, 0x84, 0x21, 0x08, 0x40, 0x00, 0x00, 0x03, 0x00, 0x40, 0x00,
            0x00, 0x0f, 0x23, 0xc5, 0x0a, 0xa8,
        ], VideoShape { width: 321, height: 241, chroma_format: 3, luma_bits: 8, chroma_bits: 8 }),
        (VideoCodec::H265, &[
            0x42, 0x01, 0x01, 0x01, 0x60, 0x00, 0x00, 0x03, 0x00, 0x90, 0x00, 0x00, 0x03, 0x00, 0x00, 0x03, 0x00, 0x1e, 0xa0,
            0x28, 0x81, 0x07, 0x11, 0x11, 0x96, 0xe9, 0x29, 0x30, 0xb9, 0xa0, 0x20, 0x00, 0x00, 0x03, 0x00, 0x20, 0x00, 0x00,
            0x03, 0x03, 0xc1,
        ], VideoShape { width: 66, height: 50, chroma_format: 1, luma_bits: 8, chroma_bits: 8 }),
        (VideoCodec::H265, &[
            0x42, 0x01, 0x01, 0x02, 0x20, 0x00, 0x00, 0x03, 0x00, 0x90, 0x00, 0x00, 0x03, 0x00, 0x00, 0x03, 0x00, 0x1e, 0xa0,
            0x10, 0x20, 0x61, 0x36, 0x5b, 0xa4, 0xa4, 0xc2, 0xe6, 0x80, 0x80, 0x00, 0x00, 0x03, 0x00, 0x80, 0x00, 0x00, 0x0f,
            0x04,
        ], VideoShape { width: 128, height: 96, chroma_format: 1, luma_bits: 10, chroma_bits: 10 }),
    ];

    #[test]
    fn sizes_are_those_that_were_encoded() {
        for (codec, set, shape) in SETS {
            let packet = [&[0, 0, 0, 1], set].concat();
            assert_eq!(codec.shape(&packet), Some(shape));
        }
    }

    #[test]
    fn a_set_that_is_cut_off_or_random_has_a_shape_or_none() {
        for (codec, set, _) in SETS {
            for end in 0..set.len() {
                let packet = [&[0, 0, 1], &set[..end]].concat();
                let _ = codec.shape(&packet);
                for byte in 0..=255 {
                    let mut odd = [&[0, 0, 1], set].concat();
                    odd[3 + end] = byte;
                    let _ = codec.shape(&odd);
                }
            }
        }
        assert_eq!(VideoCodec::Vp9.shape(&[0, 0, 1, 0x67]), None);
    }
}
