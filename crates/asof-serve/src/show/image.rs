//! Images.

use asof_decode::{Picture, Record, VideoCodec, picture_type};

use super::Shown;

/// The longer side of a raw image; larger ones are thinned out.
const MOST_PIXELS: usize = 1280;

/// An image that a browser can draw: compressed ones unchanged, raw ones as RGBA. For video only the head: one packet
/// is not an image, and the page fetches the packets that belong together.
pub(super) fn show(record: &Record) -> Result<Shown, String> {
    if let Some(format) = record.text("format") {
        let data = record.bytes("data").ok_or("it has no field 'data'")?;
        if let Some(kind) = picture_type(&data) {
            return Ok(Shown {
                data: None,
                head: serde_json::json!({ "encoding": kind, "format": format }),
                body: data,
            });
        }
        let codec = VideoCodec::named(&format)
            .ok_or_else(|| format!("browsers do not support the image format '{format}'"))?;
        return Ok(Shown {
            data: None,
            head: serde_json::json!({
                "encoding": "video", "format": format, "codec": codec.name(), "key": codec.is_key(&data),
            }),
            body: Vec::new(),
        });
    }
    let picture = Picture::of(record).map_err(|error| error.to_string())?;
    let (width, height) = (picture.width, picture.height);
    let thin = width.max(height).div_ceil(MOST_PIXELS);
    Ok(Shown {
        data: None,
        head: serde_json::json!({
            "encoding": "rgba", "format": picture.encoding,
            "width": width.div_ceil(thin), "height": height.div_ceil(thin),
            "source_width": width, "source_height": height,
        }),
        body: picture.rgba(thin),
    })
}
