//! Pictures that were not compressed, as pixels.

use crate::Record;

/// Why there are no pixels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PictureError {
    /// The message lacks a field that every picture has.
    #[error("it has no field '{0}'")]
    NoField(&'static str),
    /// Nothing is known about how such pixels lie.
    #[error("pixels of the encoding '{0}' are not known")]
    UnknownEncoding(String),
    /// There are fewer bytes than the picture's size needs.
    #[error("a picture of {width} by {height} in {encoding} does not fit into its {bytes} bytes")]
    TooShort {
        /// Pixels of a row.
        width: usize,
        /// Rows.
        height: usize,
        /// How the pixels are encoded.
        encoding: String,
        /// The bytes that there are.
        bytes: usize,
    },
    /// A compressed picture that cannot be unpacked.
    #[cfg(feature = "pictures")]
    #[error("the picture cannot be decoded: {0}")]
    Broken(String),
}

/// A picture in the words of the archetype `Image`: `sensor_msgs/Image`, `foxglove/RawImage`.
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
    data: Vec<u8>,
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// How the pixels are encoded, as the sender says it.
    pub encoding: String,
    step: usize,
    layout: Layout,
    is_big: bool,
}

/// How the pixels lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Mono8,
    Mono16,
    Float,
    /// Channels, the bytes of each, and which are red, green and blue.
    Color(usize, usize, [usize; 3]),
    /// The colours of the first two pixels of the first two rows (0 red, 1 green, 2 blue), and the bytes of a pixel.
    Bayer([u8; 4], usize),
    /// Two pixels in four bytes; whether the first byte is brightness.
    Yuv(bool),
    /// All brightness, then pairs of colour, each for so many pixels by as many; whether blue comes first.
    Planes {
        share: usize,
        blue_first: bool,
    },
}

impl Picture {
    /// The picture of a message.
    ///
    /// # Errors
    /// When a field is missing, its encoding is not known, or its bytes are too few.
    pub fn of(record: &Record) -> Result<Self, PictureError> {
        let data = record.bytes("data").ok_or(PictureError::NoField("data"))?;
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
        let row = width.checked_mul(layout.bytes()).ok_or_else(too_short)?;
        let said = size("step").ok().filter(|&step| step >= row);
        // Senders disagree on what a row of planes is; one that does not fit is not meant.
        let steps = [said.unwrap_or(row), row];
        let step = steps
            .into_iter()
            .find(|&step| layout.fits(width, height, step, data.len()));
        let Some(step) = step.filter(|_| width > 0 && height > 0) else {
            return Err(too_short());
        };
        Ok(Picture {
            is_big: record.number("is_bigendian") == Some(1.0),
            data,
            width,
            height,
            encoding,
            step,
            layout,
        })
    }

    /// Red, green, blue and 255 for every pixel, row by row; of every `thin`th row and column alone.
    ///
    /// Depths and temperatures have no scale of their own: the least that is there is black, the most is white.
    pub fn rgba(&self, thin: usize) -> Vec<u8> {
        let range = match self.layout {
            Layout::Mono16 | Layout::Float => self.range(thin),
            _ => (0.0, 1.0),
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

    /// The values themselves, row by row, where each pixel is one number of 16 bits: depths in millimetres, as a rule.
    pub fn values(&self) -> Option<Vec<u16>> {
        if self.layout != Layout::Mono16 {
            return None;
        }
        let rows = 0..self.height;
        let value = |(x, y): (usize, usize)| self.word(y * self.step + 2 * x);
        Some(
            rows.flat_map(|y| (0..self.width).map(move |x| (x, y)))
                .map(value)
                .collect(),
        )
    }

    /// Whether [`rgba`](Self::rgba) shows numbers that have no colour, scaled to what is there.
    pub fn is_scaled(&self) -> bool {
        matches!(self.layout, Layout::Mono16 | Layout::Float)
    }

    fn word(&self, at: usize) -> u16 {
        let bytes = [self.data[at], self.data[at + 1]];
        if self.is_big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }
    }

    fn pixel(&self, x: usize, y: usize, (low, high): (f32, f32)) -> [u8; 3] {
        let at = |x: usize, y: usize| y * self.step + x * self.layout.bytes();
        match self.layout {
            Layout::Mono8 => [self.data[at(x, y)]; 3],
            Layout::Mono16 | Layout::Float => {
                let value = self.depth(x, y);
                let part = ((value - low) / (high - low).max(f32::EPSILON)).clamp(0.0, 1.0);
                // Not-a-number becomes black.
                [(part * 255.0) as u8; 3]
            }
            Layout::Color(_, wide, order) => {
                order.map(|channel| self.high(at(x, y) + channel * wide, wide))
            }
            Layout::Bayer(pattern, wide) => self.bayer(x, y, pattern, wide),
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

    /// The eight highest bits of a number.
    fn high(&self, at: usize, wide: usize) -> u8 {
        let by = usize::from(wide == 2 && !self.is_big);
        self.data[at + by]
    }

    /// The nearest of each colour: in the square of two by two that the pixel is in.
    fn bayer(&self, x: usize, y: usize, pattern: [u8; 4], wide: usize) -> [u8; 3] {
        let (left, top) = (
            (x & !1).min(self.width.saturating_sub(2)),
            (y & !1).min(self.height.saturating_sub(2)),
        );
        let mut color = [0; 3];
        for (place, which) in pattern.iter().enumerate() {
            let (x, y) = (left + place % 2, top + place / 2);
            if x < self.width && y < self.height {
                color[*which as usize] = self.high(y * self.step + x * wide, wide);
            }
        }
        color
    }

    fn depth(&self, x: usize, y: usize) -> f32 {
        let at = y * self.step + x * self.layout.bytes();
        if self.layout != Layout::Float {
            return f32::from(self.word(at));
        }
        let bytes = [0, 1, 2, 3].map(|index| self.data[at + index]);
        if self.is_big {
            f32::from_be_bytes(bytes)
        } else {
            f32::from_le_bytes(bytes)
        }
    }

    /// The least and the most that is there.
    fn range(&self, thin: usize) -> (f32, f32) {
        let mut range = (f32::INFINITY, f32::NEG_INFINITY);
        for y in (0..self.height).step_by(thin.max(1)) {
            for x in (0..self.width).step_by(thin.max(1)) {
                let value = self.depth(x, y);
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
        let rgb = [0, 1, 2];
        let bgr = [2, 1, 0];
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
            "mono8" | "8uc1" | "8sc1" => Layout::Mono8,
            "mono16" | "16uc1" | "16sc1" => Layout::Mono16,
            "32fc1" => Layout::Float,
            "rgb8" => Layout::Color(3, 1, rgb),
            "bgr8" | "8uc3" => Layout::Color(3, 1, bgr),
            "rgba8" => Layout::Color(4, 1, rgb),
            "bgra8" | "8uc4" => Layout::Color(4, 1, bgr),
            "rgb16" => Layout::Color(3, 2, rgb),
            "bgr16" | "16uc3" => Layout::Color(3, 2, bgr),
            "rgba16" => Layout::Color(4, 2, rgb),
            "bgra16" | "16uc4" => Layout::Color(4, 2, bgr),
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
            Layout::Mono8 | Layout::Planes { .. } => 1,
            Layout::Mono16 | Layout::Yuv(_) => 2,
            Layout::Float => 4,
            Layout::Color(channels, wide, _) => channels * wide,
            Layout::Bayer(_, wide) => wide,
        }
    }

    /// Whether a picture lies within so many bytes, its rows `step` apart.
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

/// The media type of a compressed picture by its first bytes, whatever the sender says: those that every browser draws.
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
    // ROS's compressedDepth puts twelve bytes of its own before the PNG.
    types
        .into_iter()
        .find_map(|(is_it, name)| is_it.then_some(name))
}

/// Brightness and two differences of colour, as ITU-R BT.601 has them, over the full range.
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
            data: data.to_vec(),
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
    }
}
