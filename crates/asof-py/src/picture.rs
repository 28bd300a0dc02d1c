//! Compressed pictures.

use std::io::Cursor;

use arrow_buffer::Buffer;
use pyo3::prelude::*;
use pyo3_arrow::buffer::PyArrowBuffer;

use crate::errors::{Failure, Result};

/// A picture has at most this many bytes.
const MOST_BYTES: usize = 1 << 30;

/// Pixels, the type of their numbers as numpy has it, height, width and channels.
type Pixels = (PyArrowBuffer, &'static str, (usize, usize, usize));

/// A JPEG or PNG as pixels: grey, RGB or RGBA, 8 or 16 bits.
#[pyfunction]
pub fn picture(py: Python<'_>, data: PyArrowBuffer) -> PyResult<Pixels> {
    let bytes: &[u8] = data.as_ref();
    Ok(py.detach(|| {
        if bytes.starts_with(&[0xff, 0xd8]) {
            return jpeg(bytes);
        }
        // ROS's compressed depth has a few bytes of its own before the PNG.
        let head = &bytes[..bytes.len().min(64)];
        match head.windows(8).position(|eight| eight == SIGNATURE) {
            Some(start) => png(&bytes[start..]),
            None => Err(refused("it is neither a JPEG nor a PNG")),
        }
    })?)
}

const SIGNATURE: [u8; 8] = [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'];

fn refused(reason: impl std::fmt::Display) -> Failure {
    Failure::new(
        "DecodeError",
        format_args!("the picture cannot be decoded: {reason}"),
    )
}

fn jpeg(bytes: &[u8]) -> Result<Pixels> {
    let mut decoder = zune_jpeg::JpegDecoder::new(Cursor::new(bytes));
    decoder
        .decode_headers()
        .map_err(|error| refused(format_args!("{error:?}")))?;
    let info = decoder.info().ok_or_else(|| refused("it has no header"))?;
    let (width, height) = (usize::from(info.width), usize::from(info.height));
    if width * height * 4 > MOST_BYTES {
        return Err(refused(format_args!("it has {width} x {height} pixels")));
    }
    let pixels = decoder
        .decode()
        .map_err(|error| refused(format_args!("{error:?}")))?;
    let channels = pixels.len() / (width * height).max(1);
    shaped(pixels, "<u1", 1, (height, width, channels))
}

fn png(bytes: &[u8]) -> Result<Pixels> {
    let limits = png::Limits { bytes: MOST_BYTES };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(refused)?;
    let size = reader
        .output_buffer_size()
        .filter(|size| *size <= MOST_BYTES);
    let mut pixels = vec![0; size.ok_or_else(|| refused("it is too large"))?];
    let frame = reader.next_frame(&mut pixels).map_err(refused)?;
    pixels.truncate(frame.buffer_size());
    let shape = (
        frame.height as usize,
        frame.width as usize,
        frame.color_type.samples(),
    );
    if frame.bit_depth == png::BitDepth::Sixteen {
        return shaped(pixels, ">u2", 2, shape);
    }
    shaped(pixels, "<u1", 1, shape)
}

fn shaped(
    pixels: Vec<u8>,
    kind: &'static str,
    width: usize,
    shape: (usize, usize, usize),
) -> Result<Pixels> {
    if pixels.is_empty() || pixels.len() != shape.0 * shape.1 * shape.2 * width {
        return Err(refused("it does not have the pixels that it says"));
    }
    Ok((PyArrowBuffer::new(Buffer::from_vec(pixels)), kind, shape))
}
