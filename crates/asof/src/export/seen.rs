//! The contents of a message: a picture, or a video packet.

use asof_decode::{Picture, Pixels, Record, VideoCodec, picture_type};

/// The contents of a message.
pub enum PictureContents {
    /// A picture as the contents of a file, with its extension.
    Picture(Vec<u8>, &'static str),
    /// Numbers that were scaled to be visible.
    Scaled(Vec<u8>),
    /// A video packet.
    Packet(Vec<u8>, VideoCodec),
}

impl PictureContents {
    pub fn of(record: &Record) -> Result<Self, String> {
        let Some(format) = record.text("format") else {
            let picture = Picture::of(record).map_err(|error| error.to_string())?;
            // Depths and colours keep all 16 bits.
            let bytes = Pixels::from(&picture).to_png();
            let bytes = bytes.map_err(|error| error.to_string())?;
            return Ok(if picture.is_scaled() && picture.values().is_none() {
                PictureContents::Scaled(bytes)
            } else {
                PictureContents::Picture(bytes, "png")
            });
        };
        let data = record.bytes("data").ok_or("it has no field 'data'")?;
        if let Some(kind) = picture_type(&data) {
            let extension = kind.trim_start_matches("image/");
            let extension = if extension == "jpeg" {
                "jpg"
            } else {
                extension
            };
            return Ok(PictureContents::Picture(data, extension));
        }
        match VideoCodec::named(&format) {
            Some(codec) => Ok(PictureContents::Packet(data, codec)),
            None => Err(format!(
                "pictures in the format '{format}' are not supported; `asof export --layer raw` writes their bytes"
            )),
        }
    }
}

/// What happened to a message.
pub enum Placement {
    Written,
    /// It configures a decoder, and shows nothing itself.
    Nothing,
    /// It precedes the first packet that a decoder can start with.
    Early,
    Failed(String),
}
