//! Compressed images, JPEG and PNG, as pixels.

use std::io::Cursor;

use crate::{Picture, PictureError};

/// The bytes that an image may always become, and those that none may: the size in a file cannot be trusted.
const ALWAYS_BYTES: usize = 128 << 20;
const MOST_BYTES: usize = 1 << 30;
/// Between the two, an image may become this many times its file. Photographs become 10 to 30 times theirs.
const MOST_RATIO: usize = 64;

/// The signature of a PNG.
const PNG: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

/// The numbers of an image, row by row, pixel by pixel, channel by channel.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use asof_decode::Pixels;
///
/// let grey = Pixels { width: 2, height: 1, channels: 1, bits: 8, data: vec![0, 200] };
/// let file = grey.to_png()?;
/// assert_eq!(Pixels::unpack(&file)?, grey);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels {
    /// The width in pixels.
    pub width: usize,
    /// The height in pixels.
    pub height: usize,
    /// Channels of a pixel: 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA.
    pub channels: usize,
    /// Bits per channel: 8, or 16 in native byte order.
    pub bits: usize,
    /// The numbers.
    pub data: Vec<u8>,
}

impl Pixels {
    /// Decodes a JPEG or PNG, detected by its first bytes. compressedDepth of ROS, a PNG after a few bytes of its own,
    /// is supported too.
    ///
    /// # Errors
    /// When it is neither, is damaged, or would become more than 128 MiB and 64 times its file, or more than 1 GiB.
    pub fn unpack(file: &[u8]) -> Result<Self, PictureError> {
        if file.starts_with(&[0xff, 0xd8]) {
            return jpeg(file);
        }
        let head = &file[..file.len().min(64)];
        match head.windows(PNG.len()).position(|eight| eight == PNG) {
            Some(start) => png(&file[start..]),
            None => Err(broken("not a JPEG or PNG")),
        }
    }

    /// Converts it to RGB of eight bits; 16 bits lose the lower eight, and alpha is dropped.
    #[must_use]
    pub fn to_rgb(&self) -> Pixels {
        let wide = self.bits / 8;
        let high = |number: &[u8]| {
            if cfg!(target_endian = "little") {
                number[wide - 1]
            } else {
                number[0]
            }
        };
        let mut data = Vec::with_capacity(self.width * self.height * 3);
        for pixel in self.data.chunks_exact(self.channels * wide) {
            let at = |channel: usize| high(&pixel[channel * wide..(channel + 1) * wide]);
            if self.channels < 3 {
                data.extend([at(0); 3]);
            } else {
                data.extend([at(0), at(1), at(2)]);
            }
        }
        Pixels {
            channels: 3,
            bits: 8,
            data,
            ..*self
        }
    }

    /// Encodes it as a PNG.
    ///
    /// # Errors
    /// When the number of values does not match the size.
    pub fn to_png(&self) -> Result<Vec<u8>, PictureError> {
        let mut file = Vec::new();
        let size = |pixels: usize| u32::try_from(pixels).map_err(broken);
        let mut encoder = png::Encoder::new(&mut file, size(self.width)?, size(self.height)?);
        encoder.set_compression(png::Compression::Fast);
        encoder.set_color(match self.channels {
            1 => png::ColorType::Grayscale,
            2 => png::ColorType::GrayscaleAlpha,
            3 => png::ColorType::Rgb,
            _ => png::ColorType::Rgba,
        });
        let swapped: Vec<u8>;
        let data = if self.bits == 16 {
            encoder.set_depth(png::BitDepth::Sixteen);
            let big = |two: [u8; 2]| u16::from_ne_bytes(two).to_be_bytes();
            swapped = self
                .data
                .as_chunks()
                .0
                .iter()
                .copied()
                .flat_map(big)
                .collect();
            &swapped
        } else {
            encoder.set_depth(png::BitDepth::Eight);
            &self.data
        };
        let mut writer = encoder.write_header().map_err(broken)?;
        writer.write_image_data(data).map_err(broken)?;
        writer.finish().map_err(broken)?;
        Ok(file)
    }
}

impl From<&Picture> for Pixels {
    /// 16-bit depths and colours at full depth; everything else as RGB of eight bits.
    fn from(picture: &Picture) -> Self {
        let (width, height) = (picture.width, picture.height);
        let deep = |channels: usize, values: &[u16]| Pixels {
            width,
            height,
            channels,
            bits: 16,
            data: values
                .iter()
                .flat_map(|value| value.to_ne_bytes())
                .collect(),
        };
        if let Some(values) = picture.values() {
            return deep(1, &values);
        }
        if let Some(colors) = picture.deep_colors() {
            return deep(3, colors.as_flattened());
        }
        let rgba = picture.rgba(1);
        let colors = rgba.as_chunks::<4>().0.iter();
        Pixels {
            width,
            height,
            channels: 3,
            bits: 8,
            data: colors.flat_map(|&[r, g, b, _]| [r, g, b]).collect(),
        }
    }
}

fn broken(reason: impl std::fmt::Display) -> PictureError {
    PictureError::Broken(reason.to_string())
}

/// How many bytes of pixels a file may become.
fn most_bytes(file: &[u8]) -> usize {
    let likely = file.len().saturating_mul(MOST_RATIO);
    likely.clamp(ALWAYS_BYTES, MOST_BYTES)
}

fn refuse_large(becomes: usize, file: &[u8]) -> Result<(), PictureError> {
    let (len, most) = (file.len(), most_bytes(file));
    if becomes > most {
        return Err(broken(format_args!(
            "its {len} bytes become {becomes}, more than the limit of {most}"
        )));
    }
    Ok(())
}

fn jpeg(file: &[u8]) -> Result<Pixels, PictureError> {
    let wrong = |error| broken(format_args!("{error:?}"));
    let mut decoder = zune_jpeg::JpegDecoder::new(Cursor::new(file));
    decoder.decode_headers().map_err(wrong)?;
    let info = decoder.info().ok_or_else(|| broken("it has no header"))?;
    let (width, height) = (usize::from(info.width), usize::from(info.height));
    refuse_large(decoder.output_buffer_size().unwrap_or(usize::MAX), file)?;
    let data = decoder.decode().map_err(wrong)?;
    let channels = data.len() / (width * height).max(1);
    whole(Pixels {
        width,
        height,
        channels,
        bits: 8,
        data,
    })
}

fn png(file: &[u8]) -> Result<Pixels, PictureError> {
    let limits = png::Limits {
        bytes: most_bytes(file),
    };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(file), limits);
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(broken)?;
    let size = reader.output_buffer_size().unwrap_or(usize::MAX);
    refuse_large(size, file)?;
    let mut data = vec![0; size];
    let frame = reader.next_frame(&mut data).map_err(broken)?;
    data.truncate(frame.buffer_size());
    let bits = if frame.bit_depth == png::BitDepth::Sixteen {
        for two in data.as_chunks_mut().0 {
            *two = u16::from_be_bytes(*two).to_ne_bytes();
        }
        16
    } else {
        8
    };
    whole(Pixels {
        width: frame.width as usize,
        height: frame.height as usize,
        channels: frame.color_type.samples(),
        bits,
        data,
    })
}

/// Refuses an image whose data does not match its size.
fn whole(pixels: Pixels) -> Result<Pixels, PictureError> {
    let said = pixels.width * pixels.height * pixels.channels * (pixels.bits / 8);
    if pixels.data.is_empty() || pixels.data.len() != said {
        return Err(broken("its data does not match its size"));
    }
    Ok(pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixels(channels: usize, bits: usize, data: &[u8]) -> Pixels {
        let width = data.len() / (channels * bits / 8);
        Pixels {
            width,
            height: 1,
            channels,
            bits,
            data: data.to_vec(),
        }
    }

    #[test]
    fn every_kind_of_png_comes_back_as_it_was() {
        for (channels, bits) in [(1, 8), (2, 8), (3, 8), (4, 8), (1, 16), (3, 16)] {
            let data: Vec<u8> = (0..24).map(|n| n * 9).collect();
            let whole = pixels(channels, bits, &data);
            let file = whole.to_png().expect("a PNG");
            assert_eq!(Pixels::unpack(&file), Ok(whole), "{channels} x {bits}");
        }
    }

    #[test]
    fn a_png_after_bytes_of_its_sender_is_found() {
        let depth = pixels(1, 16, &0x1234_u16.to_ne_bytes());
        let file = depth.to_png().expect("a PNG");
        let sent = [&[0; 12][..], &file].concat();
        assert_eq!(Pixels::unpack(&sent), Ok(depth));
    }

    #[test]
    fn colours_are_the_high_bits_without_alpha() {
        assert_eq!(pixels(1, 8, &[7, 9]).to_rgb().data, [7, 7, 7, 9, 9, 9]);
        assert_eq!(pixels(4, 8, &[1, 2, 3, 4]).to_rgb().data, [1, 2, 3]);
        let deep = 0x1234_u16.to_ne_bytes();
        assert_eq!(pixels(1, 16, &deep).to_rgb().data, [0x12; 3]);
    }

    #[test]
    fn a_small_file_that_becomes_a_large_picture_is_refused_before_it_does() {
        let mut png = pixels(1, 8, &[7; 100]).to_png().expect("a PNG");
        png[16..24].copy_from_slice(&[0, 0, 0x2e, 0xe0, 0, 0, 0x2e, 0xe0]);
        // The checksum of the header, which is compared.
        png[29..33].copy_from_slice(&[0x74, 0x2e, 0xd3, 0x2d]);
        // The markers and the header of a JPEG of as many pixels, in one colour.
        let jpeg = [
            &[
                0xff, 0xd8, 0xff, 0xc0, 0, 11, 8, 0x2e, 0xe0, 0x2e, 0xe0, 1, 1, 0x11, 0,
            ][..],
            &[0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0],
        ]
        .concat();
        let refused = |file: &[u8]| match Pixels::unpack(file) {
            Err(error) => error.to_string(),
            Ok(pixels) => panic!("{} by {}", pixels.width, pixels.height),
        };
        for file in [&png, &jpeg] {
            let error = refused(file);
            assert!(error.contains("000000, more than the limit of"), "{error}");
        }
        // Of a larger file it is the size of a photograph, which is only cut off here.
        png.resize(3 << 20, 0);
        let error = refused(&png);
        assert!(!error.contains("limit"), "{error}");
    }

    #[test]
    fn what_is_not_a_picture_or_cut_off_is_refused() {
        let file = pixels(3, 8, &[1; 3000]).to_png().expect("a PNG");
        for end in [0, 1, 8, 20, file.len() / 2] {
            assert!(Pixels::unpack(&file[..end]).is_err(), "{end}");
        }
        assert!(Pixels::unpack(&[0xff, 0xd8, 0xff]).is_err());
        // A header that declares far more than there is.
        let mut huge = file.clone();
        huge[16..24].copy_from_slice(&[0x7f; 8]);
        assert!(Pixels::unpack(&huge).is_err());
        // Fewer numbers than the size declares cannot be written.
        let short = Pixels {
            height: 9,
            ..pixels(1, 8, &[1])
        };
        assert!(short.to_png().is_err());
    }
}
