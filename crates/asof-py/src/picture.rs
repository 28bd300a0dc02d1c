//! Compressed pictures.

use arrow_buffer::Buffer;
use asof::decode::Pixels;
use pyo3::prelude::*;
use pyo3_arrow::buffer::PyArrowBuffer;

use crate::errors::Failure;

/// Pixels, the type of their numbers as numpy has it, height, width and channels.
type Shaped = (PyArrowBuffer, &'static str, (usize, usize, usize));

/// A JPEG or PNG as pixels: grey, RGB or RGBA, 8 or 16 bits.
#[pyfunction]
pub fn picture(py: Python<'_>, data: PyArrowBuffer) -> PyResult<Shaped> {
    let bytes: &[u8] = data.as_ref();
    let pixels = py.detach(|| Pixels::unpack(bytes));
    let pixels = pixels.map_err(|error| Failure::new("DecodeError", error))?;
    let kind = if pixels.bits == 16 { "=u2" } else { "=u1" };
    let shape = (pixels.height, pixels.width, pixels.channels);
    Ok((
        PyArrowBuffer::new(Buffer::from_vec(pixels.data)),
        kind,
        shape,
    ))
}
