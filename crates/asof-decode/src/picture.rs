//! Uncompressed images as pixels.

use arrow_buffer::Buffer;

use crate::Record;

/// Why an image has no pixels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PictureError {
    /// A required field is missing.
    #[error("it has no field '{0}'")]
    NoField(&'static str),
    /// The pixel encoding is not supported.
    #[error(
        "the pixel encoding '{0}' is not supported; supported encodings of ROS are mono8, rgb8, bgr8, 16UC1, 32FC1, bayer_rggb8, nv12 …"
    )]
    UnknownEncoding(String),
    /// The width or the height is zero.
    #[error("it has no pixels: its size is {width} by {height}")]
    Empty {
        /// The width in pixels.
        width: usize,
        /// The height in pixels.
        height: usize,
    },
    /// There are fewer bytes than the image's size needs.
    #[error(
        "an image of {width} by {height} pixels in {encoding} needs more than its {bytes} bytes"
    )]
    TooShort {
        /// The width in pixels.
        width: usize,
        /// The height in pixels.
        height: usize,
        /// The pixel encoding.
        encoding: String,
        /// The length of its data.
        bytes: usize,
    },
    /// A compressed image that cannot be decoded.
    #[cfg(feature = "pictures")]
    #[error("the image cannot be decoded: {0}")]
    Broken(String),
}

/// An image of the archetype `Image`: `sensor_msgs/Image`, `foxglove/RawImage`.
///
/// ```
/// use asof_core::{Channel, Message, Schema, Stamp};
/// use asof_decode::{Decoders, Picture};
///
/// let schema = Schema { name: "sensor_msgs/Image".into(), encoding: "jsonschema".into(), data: "{}".into() };
/// let channel = Channel { message_encoding: "json".into(), schema: Some(schema.into()), ..Channel::default() };
/// let message = Message {
///     channel: channel.into(),
///     log_time: Stamp::EPOCH,
///     publish_time: Stamp::EPOCH,
///     sequence: 0,
///     payload: br#"{"width":1,"height":1,"encoding":"bgr8","step":3,"data":[1,2,3]}"#[..].into(),
/// };
/// let picture = Picture::of(&Decoders::default().meaning(&message)?)?;
/// assert_eq!(picture.rgba(1), [3, 2, 1, 255]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Picture {
    data: Buffer,
    /// The width in pixels.
    pub width: usize,
    /// The height in pixels.
    pub height: usize,
    /// The pixel encoding, as the message names it.
    pub encoding: String,
    step: usize,
    layout: Layout,
    is_big: bool,
}

/// The number type of a pixel's channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are Rust's own names")]
pub enum PixelNumber {
    U8,
    I8,
    U16,
    I16,
    I32,
    F32,
    F64,
}

impl PixelNumber {
    /// Its size in bytes.
    pub fn size(self) -> usize {
        match self {
            PixelNumber::U8 | PixelNumber::I8 => 1,
            PixelNumber::U16 | PixelNumber::I16 => 2,
            PixelNumber::I32 | PixelNumber::F32 => 4,
            PixelNumber::F64 => 8,
        }
    }
}

/// The numbers of an image in place: nothing is decoded or copied.
#[derive(Debug, Clone)]
pub struct PixelNumbers {
    /// The bytes of the message, from its first pixel on.
    pub data: Buffer,
    /// The number type.
    pub number: PixelNumber,
    /// Whether numbers are big-endian.
    pub is_big: bool,
    /// Channels of a pixel: 1 grey, 3 RGB, 4 RGBA.
    pub channels: usize,
    /// Whether the order is BGR instead of RGB.
    pub is_reversed: bool,
    /// The bytes from one row to the next.
    pub step: usize,
}

/// The layout of the pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Grey(PixelNumber),
    /// Channels, their number type, and whether the order is BGR instead of RGB.
    Color(usize, PixelNumber, bool),
    /// The colours of the first two pixels of the first two rows (0 red, 1 green, 2 blue), and the bytes of a pixel.
    Bayer([u8; 4], usize),
    /// Two pixels in four bytes; whether luma is the first byte.
    Yuv(bool),
    /// A luma plane, then pairs of chroma, each for a square of this many pixels a side; whether blue comes first.
    Planes {
        share: usize,
        blue_first: bool,
    },
}

impl Picture {
    /// Reads the image of a message.
    ///
    /// # Errors
    /// When a field is missing, its encoding is not supported, or it has too few bytes.
    pub fn of(record: &Record) -> Result<Self, PictureError> {
        let data = record.buffer("data").ok_or(PictureError::NoField("data"))?;
        let size = |name: &'static str| {
            let size = record.number(name).map(|size| size as usize);
            size.ok_or(PictureError::NoField(name))
        };
        let (width, height) = (size("width")?, size("height")?);
        let encoding = record
            .text("encoding")
            .ok_or(PictureError::NoField("encoding"))?;
        let layout =
            Layout::of(&encoding).ok_or_else(|| PictureError::UnknownEncoding(encoding.clone()))?;
        let too_short = || PictureError::TooShort {
            width,
            height,
            encoding: encoding.clone(),
            bytes: data.len(),
        };
        if width == 0 || height == 0 {
            return Err(PictureError::Empty { width, height });
        }
        let row = width.checked_mul(layout.bytes()).ok_or_else(too_short)?;
        let said = size("step").ok().filter(|&step| step >= row);
        // Senders disagree on the step of planar images; one that does not fit is ignored.
        let steps = [said.unwrap_or(row), row];
        let step = steps
            .into_iter()
            .find(|&step| layout.fits(width, height, step, data.len()));
        Ok(Picture {
            step: step.ok_or_else(too_short)?,
            is_big: record.number("is_bigendian") == Some(1.0),
            data,
            width,
            height,
            encoding,
            layout,
        })
    }

    /// RGBA of every pixel, row by row, with alpha 255; only every `thin`th row and column.
    ///
    /// Depths and temperatures are scaled: the minimum is black, the maximum is white.
    pub fn rgba(&self, thin: usize) -> Vec<u8> {
        let range = if self.is_scaled() {
            self.range(thin)
        } else {
            (0.0, 1.0)
        };
        let thin = thin.max(1);
        let mut out =
            Vec::with_capacity(self.width.div_ceil(thin) * self.height.div_ceil(thin) * 4);
        for y in (0..self.height).step_by(thin) {
            for x in (0..self.width).step_by(thin) {
                let [r, g, b] = self.pixel(x, y, range);
                out.extend([r, g, b, 255]);
            }
        }
        out
    }

    /// The values, row by row, where each pixel is one 16-bit number: usually depths in millimetres. Negative values
    /// are zero.
    pub fn values(&self) -> Option<Vec<u16>> {
        let Layout::Grey(PixelNumber::U16 | PixelNumber::I16) = self.layout else {
            return None;
        };
        let value = |(x, y): (usize, usize)| self.number(x, y) as u16;
        Some(self.places().map(value).collect())
    }

    /// Its numbers in place, if each belongs to one pixel. Bayer patterns and YUV have to be decoded, with
    /// [`rgba`](Self::rgba), or at full depth as [`Pixels`](crate::Pixels).
    pub fn numbers(&self) -> Option<PixelNumbers> {
        let (channels, number, is_reversed) = match self.layout {
            Layout::Grey(number) => (1, number, false),
            Layout::Color(channels, number, is_reversed) => (channels, number, is_reversed),
            Layout::Bayer(..) | Layout::Yuv(_) | Layout::Planes { .. } => return None,
        };
        Some(PixelNumbers {
            data: self.data.clone(),
            number,
            is_big: self.is_big,
            channels,
            is_reversed,
            step: self.step,
        })
    }

    /// RGB of every pixel, row by row, where channels have 16 bits.
    pub fn deep_colors(&self) -> Option<Vec<[u16; 3]>> {
        match self.layout {
            Layout::Color(_, PixelNumber::U16, _) => {
                let color = |(x, y)| [0, 1, 2].map(|color| self.color(x, y, color) as u16);
                Some(self.places().map(color).collect())
            }
            Layout::Bayer(pattern, 2) => {
                let color = |(x, y)| self.bayer(x, y, pattern);
                Some(self.places().map(color).collect())
            }
            _ => None,
        }
    }

    /// Whether [`rgba`](Self::rgba) scales values that are not colours.
    pub fn is_scaled(&self) -> bool {
        matches!(self.layout, Layout::Grey(number) if number != PixelNumber::U8)
    }

    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        let width = self.width;
        (0..self.height).flat_map(move |y| (0..width).map(move |x| (x, y)))
    }

    fn pixel(&self, x: usize, y: usize, (low, high): (f64, f64)) -> [u8; 3] {
        let at = |x: usize, y: usize| y * self.step + x * self.layout.bytes();
        match self.layout {
            Layout::Grey(PixelNumber::U8) => [self.data[at(x, y)]; 3],
            Layout::Grey(_) => {
                let part = (self.number(x, y) - low) / (high - low).max(f64::EPSILON);
                // NaN becomes black.
                [(part.clamp(0.0, 1.0) * 255.0) as u8; 3]
            }
            Layout::Color(_, PixelNumber::U8, is_reversed) => {
                let order = if is_reversed { [2, 1, 0] } else { [0, 1, 2] };
                order.map(|channel| self.data[at(x, y) + channel])
            }
            Layout::Color(_, number, _) => {
                // The eight highest bits; for floats, 1 is the brightest.
                let scale = match number {
                    PixelNumber::U16 => 1.0 / 256.0,
                    PixelNumber::F32 | PixelNumber::F64 => 255.0,
                    _ => 1.0,
                };
                [0, 1, 2].map(|color| (self.color(x, y, color) * scale) as u8)
            }
            Layout::Bayer(pattern, wide) => {
                let shift = if wide == 2 { 8 } else { 0 };
                self.bayer(x, y, pattern)
                    .map(|color| (color >> shift) as u8)
            }
            Layout::Yuv(starts_bright) => {
                let pair = at((x & !1).min(self.width.saturating_sub(2)), y);
                let byte = |index: usize| self.data.get(pair + index).copied().unwrap_or_default();
                if starts_bright {
                    from_yuv(byte((x & 1) * 2), byte(1), byte(3))
                } else {
                    from_yuv(byte((x & 1) * 2 + 1), byte(0), byte(2))
                }
            }
            Layout::Planes { share, blue_first } => {
                let wide = self.step.div_ceil(share) * 2;
                let pair = self.step * self.height + (y / share) * wide + (x / share) * 2;
                let byte = |index: usize| self.data.get(pair + index).copied().unwrap_or(128);
                let (u, v) = if blue_first { (0, 1) } else { (1, 0) };
                from_yuv(self.data[at(x, y)], byte(u), byte(v))
            }
        }
    }

    /// A pixel of a Bayer pattern: its own colour, and the mean of the nearest pixels of the others. The image is
    /// mirrored at its border, which preserves the pattern.
    fn bayer(&self, x: usize, y: usize, pattern: [u8; 4]) -> [u16; 3] {
        const GREEN: u8 = 1;
        let mirrored = |at: usize, most: usize| {
            let before = at.checked_sub(1).unwrap_or(1.min(most));
            let after = if at < most {
                at + 1
            } else {
                most.saturating_sub(1)
            };
            [before, after]
        };
        let (columns, rows) = (mirrored(x, self.width - 1), mirrored(y, self.height - 1));
        let sample = |x: usize, y: usize| u32::from(self.sample(x, y));
        let beside = columns.map(|x| sample(x, y));
        let above = rows.map(|y| sample(x, y));
        let mean = |values: &[u32]| {
            let count = values.len() as u32;
            ((values.iter().sum::<u32>() + count / 2) / count) as u16
        };
        let place = (y & 1) * 2 + (x & 1);
        let mut color = [0; 3];
        color[usize::from(pattern[place])] = self.sample(x, y);
        if pattern[place] == GREEN {
            color[usize::from(pattern[place ^ 1])] = mean(&beside);
            color[usize::from(pattern[place ^ 2])] = mean(&above);
        } else {
            let corners = rows.map(|y| columns.map(|x| sample(x, y)));
            color[usize::from(GREEN)] = mean([beside, above].as_flattened());
            color[usize::from(pattern[place ^ 3])] = mean(corners.as_flattened());
        }
        color
    }

    /// The number at a position of a Bayer pattern.
    fn sample(&self, x: usize, y: usize) -> u16 {
        match self.layout.bytes() {
            1 => u16::from(self.data[y * self.step + x]),
            _ => self.read(
                y * self.step + 2 * x,
                u16::from_le_bytes,
                u16::from_be_bytes,
            ),
        }
    }

    /// The number of a grey pixel.
    fn number(&self, x: usize, y: usize) -> f64 {
        let Layout::Grey(number) = self.layout else {
            return f64::NAN;
        };
        self.value(y * self.step + x * number.size(), number)
    }

    /// Red, green or blue of an interleaved pixel.
    fn color(&self, x: usize, y: usize, color: usize) -> f64 {
        let Layout::Color(_, number, is_reversed) = self.layout else {
            return f64::NAN;
        };
        let channel = if is_reversed { 2 - color } else { color };
        let at = y * self.step + x * self.layout.bytes() + channel * number.size();
        self.value(at, number)
    }

    fn value(&self, at: usize, number: PixelNumber) -> f64 {
        match number {
            PixelNumber::U8 => self.data[at].into(),
            PixelNumber::I8 => self.data[at].cast_signed().into(),
            PixelNumber::U16 => self.read(at, u16::from_le_bytes, u16::from_be_bytes).into(),
            PixelNumber::I16 => self.read(at, i16::from_le_bytes, i16::from_be_bytes).into(),
            PixelNumber::I32 => self.read(at, i32::from_le_bytes, i32::from_be_bytes).into(),
            PixelNumber::F32 => self.read(at, f32::from_le_bytes, f32::from_be_bytes).into(),
            PixelNumber::F64 => self.read(at, f64::from_le_bytes, f64::from_be_bytes),
        }
    }

    fn read<const N: usize, T>(
        &self,
        at: usize,
        little: fn([u8; N]) -> T,
        big: fn([u8; N]) -> T,
    ) -> T {
        let bytes = std::array::from_fn(|index| self.data[at + index]);
        if self.is_big {
            big(bytes)
        } else {
            little(bytes)
        }
    }

    /// The minimum and the maximum.
    fn range(&self, thin: usize) -> (f64, f64) {
        let mut range = (f64::INFINITY, f64::NEG_INFINITY);
        for y in (0..self.height).step_by(thin.max(1)) {
            for x in (0..self.width).step_by(thin.max(1)) {
                let value = self.number(x, y);
                if value.is_finite() {
                    range = (range.0.min(value), range.1.max(value));
                }
            }
        }
        if range.0 > range.1 { (0.0, 1.0) } else { range }
    }
}

impl Layout {
    fn of(encoding: &str) -> Option<Self> {
        use PixelNumber::{F32, F64, I8, I16, I32, U8, U16};
        let (rgb, bgr) = (false, true);
        let lower = encoding.to_ascii_lowercase();
        if let Some(rest) = lower.strip_prefix("bayer_") {
            let pattern = match rest.get(..4)? {
                "rggb" => [0, 1, 1, 2],
                "bggr" => [2, 1, 1, 0],
                "gbrg" => [1, 2, 0, 1],
                "grbg" => [1, 0, 2, 1],
                _ => return None,
            };
            let wide = match rest.get(4..)? {
                "8" => 1,
                "16" => 2,
                _ => return None,
            };
            return Some(Layout::Bayer(pattern, wide));
        }
        Some(match lower.as_str() {
            "mono8" | "8uc1" => Layout::Grey(U8),
            "8sc1" => Layout::Grey(I8),
            "mono16" | "16uc1" => Layout::Grey(U16),
            "16sc1" => Layout::Grey(I16),
            "32sc1" => Layout::Grey(I32),
            "32fc1" => Layout::Grey(F32),
            "64fc1" => Layout::Grey(F64),
            "rgb8" => Layout::Color(3, U8, rgb),
            "bgr8" | "8uc3" => Layout::Color(3, U8, bgr),
            "rgba8" => Layout::Color(4, U8, rgb),
            "bgra8" | "8uc4" => Layout::Color(4, U8, bgr),
            "rgb16" => Layout::Color(3, U16, rgb),
            "bgr16" | "16uc3" => Layout::Color(3, U16, bgr),
            "rgba16" => Layout::Color(4, U16, rgb),
            "bgra16" | "16uc4" => Layout::Color(4, U16, bgr),
            "32fc3" => Layout::Color(3, F32, rgb),
            "yuv422" | "uyvy" => Layout::Yuv(false),
            "yuv422_yuy2" | "yuyv" => Layout::Yuv(true),
            "nv12" => Layout::Planes {
                share: 2,
                blue_first: true,
            },
            "nv21" => Layout::Planes {
                share: 2,
                blue_first: false,
            },
            "nv24" => Layout::Planes {
                share: 1,
                blue_first: true,
            },
            _ => return None,
        })
    }

    /// The bytes of a pixel in its row.
    fn bytes(self) -> usize {
        match self {
            Layout::Planes { .. } => 1,
            Layout::Yuv(_) => 2,
            Layout::Grey(number) => number.size(),
            Layout::Color(channels, number, _) => channels * number.size(),
            Layout::Bayer(_, wide) => wide,
        }
    }

    /// Whether an image fits into this many bytes, with its rows `step` apart.
    fn fits(self, width: usize, height: usize, step: usize, bytes: usize) -> bool {
        let end = if let Layout::Planes { share, .. } = self {
            let bright = height.checked_mul(step);
            let wide = step.div_ceil(share).saturating_mul(2);
            let colors = height.div_ceil(share).checked_mul(wide);
            bright.zip(colors).and_then(|(a, b)| a.checked_add(b))
        } else {
            let rows = height
                .checked_sub(1)
                .and_then(|last| last.checked_mul(step));
            let row = width.checked_mul(self.bytes());
            rows.zip(row).and_then(|(a, b)| a.checked_add(b))
        };
        end.is_some_and(|end| end <= bytes)
    }
}

/// The media type of a compressed image by its first bytes, whatever the sender declares; only types that every browser
/// can draw.
///
/// ```
/// assert_eq!(asof_decode::picture_type(&[0xff, 0xd8, 0xff]), Some("image/jpeg"));
/// assert_eq!(asof_decode::picture_type(b"text"), None);
/// ```
pub fn picture_type(data: &[u8]) -> Option<&'static str> {
    let at =
        |place: usize, sign: &[u8]| data.get(place..).is_some_and(|rest| rest.starts_with(sign));
    let types: [(bool, &str); 6] = [
        (at(0, &[0xff, 0xd8]), "image/jpeg"),
        (at(0, b"\x89PNG"), "image/png"),
        (at(0, b"RIFF") && at(8, b"WEBP"), "image/webp"),
        (at(0, b"GIF"), "image/gif"),
        (at(0, b"BM"), "image/bmp"),
        (at(4, b"ftypavif"), "image/avif"),
    ];
    // compressedDepth of ROS puts twelve bytes of its own before the PNG.
    types
        .into_iter()
        .find_map(|(is_it, name)| is_it.then_some(name))
}

/// YUV of ITU-R BT.601, full range, to RGB.
fn from_yuv(bright: u8, u: u8, v: u8) -> [u8; 3] {
    let (bright, u, v) = (
        f32::from(bright),
        f32::from(u) - 128.0,
        f32::from(v) - 128.0,
    );
    [
        (bright + 1.402 * v) as u8,
        (bright - 0.344 * u - 0.714 * v) as u8,
        (bright + 1.772 * u) as u8,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(encoding: &str, data: &[u8], width: usize, height: usize) -> Picture {
        let layout = Layout::of(encoding).expect("known");
        let step = width * layout.bytes();
        assert!(layout.fits(width, height, step, data.len()), "{encoding}");
        assert!(
            !layout.fits(width, height, step, data.len() - 1),
            "{encoding}"
        );
        Picture {
            data: Buffer::from(data),
            width,
            height,
            encoding: encoding.to_owned(),
            step,
            layout,
            is_big: false,
        }
    }

    fn pixel(encoding: &str, data: &[u8], width: usize, at: (usize, usize)) -> [u8; 3] {
        let bytes = Layout::of(encoding).expect("known").bytes();
        let height = data.len() / (width * bytes);
        picture(encoding, data, width, height).pixel(at.0, at.1, (0.0, 1000.0))
    }

    #[test]
    fn colours_come_out_in_order() {
        assert_eq!(pixel("bgr8", &[1, 2, 3, 4, 5, 6], 2, (1, 0)), [6, 5, 4]);
        assert_eq!(pixel("bayer_rggb8", &[9, 8, 8, 7], 2, (1, 1)), [9, 8, 7]);
        let bayer = [0, 9, 0, 8, 0, 8, 0, 7];
        assert_eq!(pixel("bayer_rggb16", &bayer, 2, (1, 1)), [9, 8, 7]);
        assert_eq!(
            pixel("yuv422", &[128, 50, 128, 200], 2, (1, 0)),
            [200, 200, 200]
        );
    }

    #[test]
    fn colours_that_a_bayer_pixel_lacks_are_the_mean_of_its_neighbours() {
        // r g r g
        // g b g b
        // r g r g
        let data = [10, 1, 20, 3, 5, 100, 7, 200, 30, 9, 40, 11];
        let found = |x, y| pixel("bayer_rggb8", &data, 4, (x, y));
        assert_eq!(found(1, 1), [25, 6, 100], "blue: four corners, four sides");
        assert_eq!(found(2, 1), [30, 7, 150], "green: above and beside");
        assert_eq!(found(0, 0), [10, 3, 100], "a corner, mirrored");
        assert_eq!(found(3, 2), [40, 11, 200], "the other corner");
        let wide: Vec<u8> = data.iter().flat_map(|&n| [0x55, n]).collect();
        let deep = picture("bayer_rggb16", &wide, 4, 3);
        assert_eq!(deep.pixel(1, 1, (0.0, 1.0)), [25, 5, 100]);
        let all = deep.deep_colors().expect("16 bits");
        assert_eq!(all[5][2], 0x6455, "with all their bits");
        // Too narrow for neighbours: the nearest that there is.
        assert_eq!(pixel("bayer_grbg8", &[9], 1, (0, 0)), [9, 9, 9]);
    }

    #[test]
    fn numbers_are_told_where_they_lie() {
        let data = Buffer::from([1, 2, 3, 4, 5, 6].as_slice());
        let mut shown = picture("bgr8", &data, 2, 1);
        shown.data = data.clone();
        let numbers = shown.numbers().expect("they lie in rows");
        assert_eq!(numbers.data.as_ptr(), data.as_ptr());
        assert!(numbers.is_reversed && numbers.channels == 3 && numbers.step == 6);
        assert!(picture("bayer_rggb8", &[1; 4], 2, 2).numbers().is_none());
        assert!(picture("yuv422", &[1; 4], 2, 1).numbers().is_none());
    }

    #[test]
    fn sixteen_bits_are_seen_by_their_highest_eight() {
        let rgb = [0xff, 1, 0xff, 2, 0xff, 3];
        assert_eq!(pixel("rgb16", &rgb, 1, (0, 0)), [1, 2, 3]);
        let mut big = picture("bgr16", &rgb, 1, 1);
        assert_eq!(big.pixel(0, 0, (0.0, 1.0)), [3, 2, 1]);
        big.is_big = true;
        assert_eq!(big.pixel(0, 0, (0.0, 1.0)), [0xff; 3]);
    }

    #[test]
    fn planes_share_their_colours() {
        // Four by two pixels of brightness, then two pairs of colour: the right half is red.
        let bright = [100; 8];
        let data = |pairs: [u8; 4]| [&bright[..], &pairs].concat();
        let nv12 = picture("nv12", &data([128, 128, 90, 240]), 4, 2);
        assert_eq!(nv12.pixel(1, 1, (0.0, 1.0)), [100; 3]);
        let [r, g, b] = nv12.pixel(2, 1, (0.0, 1.0));
        assert!(r > 250 && g < 40 && b < 40, "{r} {g} {b}");
        let nv21 = picture("nv21", &data([128, 128, 240, 90]), 4, 2);
        assert_eq!(nv21.pixel(3, 0, (0.0, 1.0)), [r, g, b]);
        // An odd picture has colours for its last row and column as well.
        let odd = picture("nv12", &[[9; 9].as_slice(), &[128; 8]].concat(), 3, 3);
        assert_eq!(odd.pixel(2, 2, (0.0, 1.0)), [9; 3]);
    }

    #[test]
    fn depths_are_scaled_and_their_values_kept() {
        assert_eq!(pixel("16UC1", &[0xf4, 0x01], 1, (0, 0)), [127; 3]);
        let depth = picture("16UC1", &[0xf4, 0x01, 7, 0], 1, 2);
        assert_eq!(depth.values(), Some(vec![500, 7]));
        assert_eq!(picture("mono8", &[1], 1, 1).values(), None);
        let signed = picture("16SC1", &[0xff, 0xff, 7, 0], 1, 2);
        assert_eq!(signed.values(), Some(vec![0, 7]));
        let fractions = [0.5_f32, 2.0, -1.0].map(f32::to_le_bytes);
        let shown = picture("32FC3", fractions.as_flattened(), 1, 1);
        assert_eq!(shown.pixel(0, 0, (0.0, 1.0)), [127, 255, 0]);
        let far = [1.0_f64, 3.0].map(f64::to_le_bytes);
        let shown = picture("64FC1", far.as_flattened(), 2, 1);
        assert_eq!(shown.rgba(1), [0, 0, 0, 255, 255, 255, 255, 255]);
    }
}
