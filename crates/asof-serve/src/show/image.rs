//! Pictures.

use asof_decode::{Picture, Record, VideoCodec, picture_type};

use super::Shown;

/// The longer side of a raw picture; what is larger is thinned out.
const MOST_PIXELS: usize = 1280;

/// A picture as a browser can draw it: compressed as it is, raw ones as RGBA. Of video its head alone: one packet is not a
/// picture, and the page fetches those that belong together.
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
        let codec = VideoCodec::named(&format).ok_or_else(|| {
            format!("pictures in the format '{format}' cannot be shown by a browser")
        })?;
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
