//! Serialization of ROS messages: ROS 2's CDR, little endian (XCDR1), and ROS 1's, which is the same without padding.

use std::borrow::BorrowMut;

/// Writes one message, into a new buffer or at the end of an existing one. Numbers are aligned to their own size,
/// counted from the end of the four-byte encapsulation header.
///
/// ```
/// let mut out = vec![9];
/// asof_ros::CdrWriter::new(&mut out).byte(7).uint32(8);
/// assert_eq!(out, [9, 0, 1, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0]);
/// ```
#[derive(Debug)]
pub struct CdrWriter<B = Vec<u8>> {
    bytes: B,
    /// The origin of alignment.
    base: usize,
    is_ros1: bool,
}

/// The encapsulation header: plain CDR, little endian, no options.
const HEADER: [u8; 4] = [0, 1, 0, 0];

impl CdrWriter {
    /// A writer into a new buffer with room for a message of this size.
    pub fn with_capacity(capacity: usize) -> Self {
        CdrWriter::new(Vec::with_capacity(capacity + HEADER.len()))
    }
}

impl<B: BorrowMut<Vec<u8>>> CdrWriter<B> {
    /// Begins a message at the end of a buffer.
    pub fn new(mut bytes: B) -> Self {
        bytes.borrow_mut().extend_from_slice(&HEADER);
        let base = bytes.borrow_mut().len();
        CdrWriter {
            bytes,
            base,
            is_ros1: false,
        }
    }

    /// The same in ROS 1's serialization: no alignment, no header, no terminating zeros.
    ///
    /// ```
    /// let mut out = asof_ros::CdrWriter::ros1(Vec::new());
    /// out.byte(7).uint32(8).string("a");
    /// assert_eq!(out.finish(), [7, 8, 0, 0, 0, 1, 0, 0, 0, b'a']);
    /// ```
    pub fn ros1(bytes: B) -> Self {
        CdrWriter {
            bytes,
            base: 0,
            is_ros1: true,
        }
    }

    /// Returns the buffer with the message in it.
    pub fn finish(self) -> B {
        self.bytes
    }

    /// Pads with zeros to a multiple of `width` bytes.
    pub fn align(&mut self, width: usize) -> &mut Self {
        if self.is_ros1 {
            return self;
        }
        let bytes = self.bytes.borrow_mut();
        let body = bytes.len() - self.base;
        bytes.resize(self.base + body.next_multiple_of(width.max(1)), 0);
        self
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.borrow_mut().extend_from_slice(bytes);
        self
    }

    /// This many zero bytes.
    pub fn zeros(&mut self, len: usize) -> &mut Self {
        let bytes = self.bytes.borrow_mut();
        bytes.resize(bytes.len() + len, 0);
        self
    }

    /// A `bool`.
    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.byte(u8::from(value))
    }

    /// A byte.
    pub fn byte(&mut self, value: u8) -> &mut Self {
        self.bytes.borrow_mut().push(value);
        self
    }

    /// A `uint16`.
    pub fn uint16(&mut self, value: u16) -> &mut Self {
        self.aligned(&value.to_le_bytes())
    }

    /// An `int32`.
    pub fn int32(&mut self, value: i32) -> &mut Self {
        self.aligned(&value.to_le_bytes())
    }

    /// A `uint32`.
    pub fn uint32(&mut self, value: u32) -> &mut Self {
        self.aligned(&value.to_le_bytes())
    }

    /// A `uint64`.
    pub fn uint64(&mut self, value: u64) -> &mut Self {
        self.aligned(&value.to_le_bytes())
    }

    /// A `float32`.
    pub fn float32(&mut self, value: f32) -> &mut Self {
        self.aligned(&value.to_le_bytes())
    }

    /// A `float64`.
    pub fn float64(&mut self, value: f64) -> &mut Self {
        self.aligned(&value.to_le_bytes())
    }

    /// An array whose length is fixed by the schema.
    pub fn float64s(&mut self, values: &[f64]) -> &mut Self {
        for &value in values {
            self.float64(value);
        }
        self
    }

    /// A sequence: its length, then its elements.
    pub fn float64_sequence(&mut self, values: &[f64]) -> &mut Self {
        self.length(values.len()).float64s(values)
    }

    /// A sequence: its length, then its elements.
    pub fn float32_sequence(&mut self, values: &[f32]) -> &mut Self {
        self.length(values.len());
        for &value in values {
            self.float32(value);
        }
        self
    }

    /// A sequence of bytes.
    pub fn blob(&mut self, value: &[u8]) -> &mut Self {
        self.length(value.len()).raw(value)
    }

    /// A string: its length including the terminating zero, its bytes, the zero.
    pub fn string(&mut self, value: impl AsRef<[u8]>) -> &mut Self {
        let (value, closing) = (value.as_ref(), usize::from(!self.is_ros1));
        self.length(value.len() + closing).raw(value).zeros(closing)
    }

    /// The length of a sequence.
    pub fn length(&mut self, length: usize) -> &mut Self {
        self.uint32(length as u32)
    }

    fn aligned<const N: usize>(&mut self, value: &[u8; N]) -> &mut Self {
        self.align(N).raw(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_from_after_the_header() {
        let mut cdr = CdrWriter::with_capacity(32);
        cdr.byte(7).float64(1.0).byte(8).uint32(9);
        let bytes = cdr.finish();
        assert_eq!(bytes.len(), 4 + 8 + 8 + 4 + 4);
        assert_eq!(bytes[4], 7);
        assert_eq!(bytes[12..20], 1.0_f64.to_le_bytes());
        assert_eq!(bytes[20], 8);
        assert_eq!(bytes[24..28], 9_u32.to_le_bytes());
    }

    #[test]
    fn a_string_ends_with_a_zero_that_is_counted() {
        let mut cdr = CdrWriter::with_capacity(16);
        cdr.string("odom");
        assert_eq!(cdr.finish(), b"\0\x01\0\0\x05\0\0\0odom\0");
    }
}
