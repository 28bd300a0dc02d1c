//! Pictures of messages.

use arrow_buffer::Buffer;
use asof::decode::{Picture, PixelNumber, Pixels, Record, VideoCodec, picture_type};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::message::Message;
use crate::ndarray::from_buffer;

/// Bytes, the numpy type of their numbers, height, width and channels, the bytes of a row, and whether blue comes before red.
type Shaped<'py> = (
    Bound<'py, PyAny>,
    &'static str,
    (usize, usize, usize),
    usize,
    bool,
);

/// The picture of a message, raw or compressed: the numbers within the message, or decoded ones.
#[pyfunction]
pub fn picture<'py>(py: Python<'py>, message: &Message) -> PyResult<Shaped<'py>> {
    let shaped = py.detach(|| {
        let record = message.meaning()?;
        shape(&record).map_err(|reason| message.refused(&reason))
    });
    let (buffer, kind, shape, step, is_reversed) = shaped?;
    let bytes = from_buffer(py, buffer, "u1")?;
    Ok((bytes, kind, shape, step, is_reversed))
}

/// The codec of a message of video, whether a decoder can start with it, whether it has a picture, and its bytes. None for
/// other messages.
#[pyfunction]
pub fn video_packet<'py>(py: Python<'py>, message: &Message) -> PyResult<Option<Packet<'py>>> {
    let record = py.detach(|| message.meaning())?;
    let (Some(format), Some(data)) = (record.text("format"), record.buffer("data")) else {
        return Ok(None);
    };
    let codec = VideoCodec::named(&format).filter(|_| picture_type(&data).is_none());
    Ok(codec.map(|codec| {
        let bytes = PyBytes::new(py, &data);
        (
            codec.name(),
            codec.is_key(&data),
            codec.has_picture(&data),
            bytes,
        )
    }))
}

/// A packet of video.
type Packet<'py> = (&'static str, bool, bool, Bound<'py, PyBytes>);

/// The bytes at a path of a message; in JSON they are text, or a list of numbers.
#[pyfunction]
pub fn bytes_at<'py>(
    py: Python<'py>,
    message: &Message,
    path: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let found = py.detach(|| {
        let bytes = message.meaning()?.buffer(path);
        bytes.ok_or_else(|| message.refused(&format_args!("it has no bytes at '{path}'")))
    });
    from_buffer(py, found?, "u1")
}

type Found = (Buffer, &'static str, (usize, usize, usize), usize, bool);

fn shape(record: &Record) -> Result<Found, String> {
    if let Some(format) = record.text("format") {
        let data = record.buffer("data").ok_or("it has no field 'data'")?;
        if picture_type(&data).is_none()
            && let Some(codec) = VideoCodec::named(&format)
        {
            return Err(format!(
                "it is a packet of {} video, which is not a picture by itself; `asof export --format video` writes the video",
                codec.name()
            ));
        }
        let pixels = Pixels::unpack(&data);
        return Ok(decoded(
            pixels.map_err(|error| format!("format '{format}': {error}"))?,
        ));
    }
    if record.text("encoding").is_none() {
        return Err("it is not a picture".to_owned());
    }
    let picture = Picture::of(record).map_err(|error| error.to_string())?;
    let Some(numbers) = picture.numbers() else {
        return Ok(decoded(Pixels::from(&picture)));
    };
    let kind = match (numbers.number, numbers.is_big) {
        (PixelNumber::U8, _) => "u1",
        (PixelNumber::I8, _) => "i1",
        (PixelNumber::U16, false) => "<u2",
        (PixelNumber::U16, true) => ">u2",
        (PixelNumber::I16, false) => "<i2",
        (PixelNumber::I16, true) => ">i2",
        (PixelNumber::I32, false) => "<i4",
        (PixelNumber::I32, true) => ">i4",
        (PixelNumber::F32, false) => "<f4",
        (PixelNumber::F32, true) => ">f4",
        (PixelNumber::F64, false) => "<f8",
        (PixelNumber::F64, true) => ">f8",
    };
    let shape = (picture.height, picture.width, numbers.channels);
    Ok((numbers.data, kind, shape, numbers.step, numbers.is_reversed))
}

/// Pixels in contiguous rows, red first.
fn decoded(pixels: Pixels) -> Found {
    let kind = if pixels.bits == 16 { "=u2" } else { "u1" };
    let step = pixels.width * pixels.channels * (pixels.bits / 8);
    let shape = (pixels.height, pixels.width, pixels.channels);
    (Buffer::from_vec(pixels.data), kind, shape, step, false)
}
