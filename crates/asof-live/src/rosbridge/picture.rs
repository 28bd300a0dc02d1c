//! Text that a server packed into the pixels of a PNG (RFC 2083).
//!
//! Reads only what rosbridge writes: eight bits per sample, not interlaced. An image library would add colours,
//! palettes and animations; all that is needed here is to undo the row filters.

use std::io::Read;

use flate2::read::ZlibDecoder;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The header of a PNG.
struct Shape {
    width: usize,
    height: usize,
    /// Bytes per pixel.
    channels: usize,
}

/// The bytes of all pixels, row by row; at most `most` of them.
pub(super) fn pixels(file: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let mut rest = file.strip_prefix(SIGNATURE).ok_or("not a PNG")?;
    let mut shape = None;
    let mut packed = Vec::new();
    loop {
        let (kind, data, after) = chunk(rest).ok_or("it is truncated")?;
        rest = after;
        match (kind, &shape) {
            (b"IHDR", None) => shape = Some(Shape::read(data)?),
            (b"IDAT", Some(_)) => packed.extend_from_slice(data),
            (b"IEND", Some(_)) => break,
            (_, None) => return Err("it does not start with its header (IHDR)".to_owned()),
            _ => {}
        }
    }
    let shape = shape.ok_or("it has no header (IHDR)")?;
    let row = shape.width * shape.channels;
    let size = (row + 1).checked_mul(shape.height);
    let size = size.filter(|size| *size <= most.saturating_add(shape.height));
    let size = size.ok_or_else(|| format!("it decodes to more than {most} bytes"))?;
    // Memory is allocated as data arrives: the header may be wrong.
    let mut rows = Vec::new();
    let mut limited = ZlibDecoder::new(&packed[..]).take(size as u64 + 1);
    let read = limited.read_to_end(&mut rows);
    read.map_err(|cause| cause.to_string())?;
    if rows.len() != size {
        let found = rows.len();
        return Err(format!(
            "its rows have {found} bytes, not the {size} of its header"
        ));
    }
    unfilter(&rows, row, shape.channels)
}

impl Shape {
    fn read(data: &[u8]) -> Result<Self, String> {
        let number = |at: usize| {
            let bytes = data.get(at..at + 4)?.first_chunk()?;
            usize::try_from(u32::from_be_bytes(*bytes)).ok()
        };
        let (width, height) = number(0).zip(number(4)).ok_or("its header is truncated")?;
        let rest = data.get(8..13).ok_or("its header is truncated")?;
        let channels = match rest[1] {
            0 => 1,
            2 => 3,
            4 => 2,
            6 => 4,
            other => return Err(format!("its colour type {other} is not supported")),
        };
        if rest[0] != 8 || rest[2..5] != [0, 0, 0] || width == 0 || height == 0 {
            return Err("it is not eight bits per sample without interlacing".to_owned());
        }
        if width
            .checked_mul(channels)
            .is_none_or(|row| row == usize::MAX)
        {
            return Err("its rows are too long".to_owned());
        }
        Ok(Shape {
            width,
            height,
            channels,
        })
    }
}

/// The first chunk's type and data, and the rest. Its checksum is ignored: zlib has its own.
fn chunk(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (kind, rest) = rest.split_first_chunk()?;
    let (data, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
    let (_sum, rest) = rest.split_first_chunk::<4>()?;
    Some((kind, data, rest))
}

/// Undoes the filter of each row.
fn unfilter(rows: &[u8], row: usize, pixel: usize) -> Result<Vec<u8>, String> {
    let mut out: Vec<u8> = Vec::with_capacity(rows.len());
    for line in rows.chunks_exact(row + 1) {
        let start = out.len();
        for (at, &byte) in line[1..].iter().enumerate() {
            let left = at.checked_sub(pixel).map_or(0, |at| out[start + at]);
            let above = (start + at).checked_sub(row).map_or(0, |at| out[at]);
            let corner = match (at.checked_sub(pixel), start.checked_sub(row)) {
                (Some(at), Some(before)) => out[before + at],
                _ => 0,
            };
            let guess = match line[0] {
                0 => 0,
                1 => left,
                2 => above,
                3 => u8::midpoint(left, above),
                4 => nearest(left, above, corner),
                other => return Err(format!("a row has the unknown filter {other}")),
            };
            out.push(byte.wrapping_add(guess));
        }
    }
    Ok(out)
}

/// The Paeth predictor.
fn nearest(left: u8, above: u8, corner: u8) -> u8 {
    let expected = i16::from(left) + i16::from(above) - i16::from(corner);
    let distance = |one: u8| (expected - i16::from(one)).abs();
    if distance(left) <= distance(above) && distance(left) <= distance(corner) {
        left
    } else if distance(above) <= distance(corner) {
        above
    } else {
        corner
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use std::io::Write;

    /// A picture whose rows go through each filter in turn.
    pub(in super::super) fn picture(bytes: &[u8], row: usize, channels: usize) -> Vec<u8> {
        let mut padded = bytes.to_vec();
        while padded.is_empty() || !padded.len().is_multiple_of(row) {
            padded.push(b'\n');
        }
        let mut rows = Vec::new();
        for (number, line) in padded.chunks(row).enumerate() {
            let filter = (number % 5) as u8;
            rows.push(filter);
            for (at, byte) in line.iter().enumerate() {
                let start = number * row;
                let left = at.checked_sub(channels).map_or(0, |at| padded[start + at]);
                let above = (start + at).checked_sub(row).map_or(0, |at| padded[at]);
                let corner = match (at.checked_sub(channels), start.checked_sub(row)) {
                    (Some(at), Some(before)) => padded[before + at],
                    _ => 0,
                };
                let average = u8::midpoint(left, above);
                let guesses = [0, left, above, average, nearest(left, above, corner)];
                rows.push(byte.wrapping_sub(guesses[usize::from(filter)]));
            }
        }
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&rows).expect("packed");
        let packed = packed.finish().expect("packed");
        let (width, height) = (row / channels, padded.len() / row);
        let mut head = Vec::new();
        head.extend((width as u32).to_be_bytes());
        head.extend((height as u32).to_be_bytes());
        head.extend([8, if channels == 3 { 2 } else { 0 }, 0, 0, 0]);
        let mut file = SIGNATURE.to_vec();
        for (kind, data) in [(b"IHDR", &head[..]), (b"IDAT", &packed), (b"IEND", b"")] {
            file.extend((data.len() as u32).to_be_bytes());
            file.extend(kind);
            file.extend(data);
            file.extend([0; 4]);
        }
        file
    }

    #[test]
    fn every_filter_is_undone() {
        let text: Vec<u8> = (0..1_200_u32).map(|n| (n * 7 % 251) as u8).collect();
        for (row, channels) in [(60, 1), (60, 3), (1_200, 1), (3, 3)] {
            let found = pixels(&picture(&text, row, channels), 1 << 20);
            assert_eq!(found.expect("read"), text, "{row} {channels}");
        }
    }

    #[test]
    fn what_is_cut_too_large_or_lies_is_an_error() {
        let whole = picture(b"hello hello hello", 17, 1);
        for len in 0..whole.len() - 4 {
            assert!(pixels(&whole[..len], 1 << 20).is_err(), "{len} bytes");
        }
        assert!(pixels(&whole, 10).is_err(), "larger than allowed");
        let mut lying = whole.clone();
        // Four thousand million rows.
        lying[20..24].fill(0xff);
        assert!(pixels(&lying, 1 << 20).is_err());
    }
}
