//! Pictures.

use super::Shown;
use asof_decode::Record;

/// The longer side of a raw picture; what is larger is thinned out.
const MOST_PIXELS: usize = 1280;

/// A picture as a browser can draw it: compressed as it is, raw ones as RGBA.
pub(super) fn show(record: &Record) -> Result<Shown, String> {
    let data = record.bytes("data").ok_or("it has no field 'data'")?;
    if let Some(format) = record.text("format") {
        let kind = sniff(&data).ok_or_else(|| {
            format!("pictures in the format '{format}' cannot be shown by a browser")
        })?;
        return Ok(Shown {
            data: None,
            head: serde_json::json!({ "encoding": kind, "format": format }),
            body: data,
        });
    }
    let size = |name: &str| record.number(name).map(|size| size as usize);
    let (width, height) = (
        size("width").ok_or("it has no field 'width'")?,
        size("height").ok_or("it has no field 'height'")?,
    );
    let encoding = record
        .text("encoding")
        .ok_or("it has no field 'encoding'")?;
    let layout = Layout::of(&encoding)
        .ok_or_else(|| format!("pixels of the encoding '{encoding}' are not known"))?;
    let row = width
        .checked_mul(layout.bytes())
        .ok_or("its width cannot be")?;
    let step = size("step").filter(|&step| step >= row).unwrap_or(row);
    let is_whole = height
        .checked_sub(1)
        .and_then(|last| last.checked_mul(step))
        .and_then(|start| start.checked_add(row))
        .is_some_and(|end| end <= data.len());
    if width == 0 || height == 0 || !is_whole {
        return Err(format!(
            "a picture of {width} by {height} in {encoding} does not fit into its {} bytes",
            data.len()
        ));
    }
    let is_big = record.number("is_bigendian") == Some(1.0);
    let thin = width.max(height).div_ceil(MOST_PIXELS);
    let picture = Picture {
        data: &data,
        width,
        height,
        step,
        layout,
        is_big,
    };
    let (columns, rows) = (width.div_ceil(thin), height.div_ceil(thin));
    Ok(Shown {
        data: None,
        head: serde_json::json!({
            "encoding": "rgba", "format": encoding, "width": columns, "height": rows,
            "source_width": width, "source_height": height,
        }),
        body: picture.rgba(thin, columns, rows),
    })
}

/// What the bytes are, whatever the sender says: the formats that every browser draws.
fn sniff(data: &[u8]) -> Option<&'static str> {
    match data {
        [0xff, 0xd8, ..] => Some("image/jpeg"),
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        [b'G', b'I', b'F', ..] => Some("image/gif"),
        [b'B', b'M', ..] => Some("image/bmp"),
        [
            _,
            _,
            _,
            _,
            b'f',
            b't',
            b'y',
            b'p',
            b'a',
            b'v',
            b'i',
            b'f',
            ..,
        ] => Some("image/avif"),
        // ROS's compressedDepth puts twelve bytes of its own before the PNG.
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Mono8,
    Mono16,
    Float,
    /// Three or four channels, and where red, green, blue are.
    Color(usize, [usize; 3]),
    /// The colours of the first two pixels of the first two rows: 0 red, 1 green, 2 blue.
    Bayer([u8; 4]),
    /// Two pixels in four bytes; whether the first byte is brightness.
    Yuv(bool),
}

impl Layout {
    fn of(encoding: &str) -> Option<Self> {
        Some(match encoding.to_ascii_lowercase().as_str() {
            "mono8" | "8uc1" | "8sc1" => Layout::Mono8,
            "mono16" | "16uc1" | "16sc1" => Layout::Mono16,
            "32fc1" => Layout::Float,
            "rgb8" => Layout::Color(3, [0, 1, 2]),
            "bgr8" | "8uc3" => Layout::Color(3, [2, 1, 0]),
            "rgba8" => Layout::Color(4, [0, 1, 2]),
            "bgra8" | "8uc4" => Layout::Color(4, [2, 1, 0]),
            "bayer_rggb8" => Layout::Bayer([0, 1, 1, 2]),
            "bayer_bggr8" => Layout::Bayer([2, 1, 1, 0]),
            "bayer_gbrg8" => Layout::Bayer([1, 2, 0, 1]),
            "bayer_grbg8" => Layout::Bayer([1, 0, 2, 1]),
            "yuv422" | "uyvy" => Layout::Yuv(false),
            "yuv422_yuy2" | "yuyv" => Layout::Yuv(true),
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            Layout::Mono8 | Layout::Bayer(_) => 1,
            Layout::Mono16 | Layout::Yuv(_) => 2,
            Layout::Float => 4,
            Layout::Color(channels, _) => channels,
        }
    }
}

struct Picture<'a> {
    data: &'a [u8],
    width: usize,
    height: usize,
    step: usize,
    layout: Layout,
    is_big: bool,
}

impl Picture<'_> {
    fn rgba(&self, thin: usize, columns: usize, rows: usize) -> Vec<u8> {
        let range = match self.layout {
            Layout::Mono16 | Layout::Float => self.range(thin),
            _ => (0.0, 1.0),
        };
        let mut out = Vec::with_capacity(columns * rows * 4);
        for y in (0..self.height).step_by(thin) {
            for x in (0..self.width).step_by(thin) {
                let [r, g, b] = self.pixel(x, y, range);
                out.extend([r, g, b, 255]);
            }
        }
        out
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
            Layout::Color(_, order) => order.map(|channel| self.data[at(x, y) + channel]),
            Layout::Bayer(pattern) => {
                // The nearest of each colour: in the square of two by two that the pixel is in.
                let (left, top) = (
                    (x & !1).min(self.width.saturating_sub(2)),
                    (y & !1).min(self.height.saturating_sub(2)),
                );
                let mut color = [0; 3];
                for (place, which) in pattern.iter().enumerate() {
                    let (dx, dy) = (place % 2, place / 2);
                    if left + dx < self.width && top + dy < self.height {
                        color[*which as usize] = self.data[at(left + dx, top + dy)];
                    }
                }
                color
            }
            Layout::Yuv(starts_bright) => {
                let pair = at((x & !1).min(self.width.saturating_sub(2)), y);
                let byte = |index: usize| {
                    f32::from(self.data.get(pair + index).copied().unwrap_or_default())
                };
                let (bright, u, v) = if starts_bright {
                    (byte((x & 1) * 2), byte(1), byte(3))
                } else {
                    (byte((x & 1) * 2 + 1), byte(0), byte(2))
                };
                let (u, v) = (u - 128.0, v - 128.0);
                [
                    (bright + 1.402 * v) as u8,
                    (bright - 0.344 * u - 0.714 * v) as u8,
                    (bright + 1.772 * u) as u8,
                ]
            }
        }
    }

    fn depth(&self, x: usize, y: usize) -> f32 {
        let at = y * self.step + x * self.layout.bytes();
        let byte = |index: usize| self.data[at + index];
        match (self.layout, self.is_big) {
            (Layout::Float, false) => f32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]),
            (Layout::Float, true) => f32::from_be_bytes([byte(0), byte(1), byte(2), byte(3)]),
            (_, false) => f32::from(u16::from_le_bytes([byte(0), byte(1)])),
            (_, true) => f32::from(u16::from_be_bytes([byte(0), byte(1)])),
        }
    }

    /// The darkest and the brightest that is there: depths have no scale of their own.
    fn range(&self, thin: usize) -> (f32, f32) {
        let mut range = (f32::INFINITY, f32::NEG_INFINITY);
        for y in (0..self.height).step_by(thin) {
            for x in (0..self.width).step_by(thin) {
                let value = self.depth(x, y);
                if value.is_finite() {
                    range = (range.0.min(value), range.1.max(value));
                }
            }
        }
        if range.0 > range.1 { (0.0, 1.0) } else { range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixel(layout: Layout, data: &[u8], width: usize, at: (usize, usize)) -> [u8; 3] {
        let step = width * layout.bytes();
        let picture = Picture {
            data,
            width,
            height: data.len() / step,
            step,
            layout,
            is_big: false,
        };
        picture.pixel(at.0, at.1, (0.0, 1000.0))
    }

    #[test]
    fn colours_come_out_in_order() {
        let bgr = Layout::of("bgr8").expect("known");
        assert_eq!(pixel(bgr, &[1, 2, 3, 4, 5, 6], 2, (1, 0)), [6, 5, 4]);
        let bayer = Layout::of("bayer_rggb8").expect("known");
        assert_eq!(pixel(bayer, &[9, 8, 8, 7], 2, (1, 1)), [9, 8, 7]);
        let yuv = Layout::of("yuv422").expect("known");
        assert_eq!(pixel(yuv, &[128, 50, 128, 200], 2, (1, 0)), [200, 200, 200]);
    }

    #[test]
    fn depths_are_scaled() {
        let depth = Layout::of("16UC1").expect("known");
        assert_eq!(pixel(depth, &[0xf4, 0x01], 1, (0, 0)), [127; 3]);
    }
}
