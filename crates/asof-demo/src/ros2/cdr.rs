//! ROS 2's wire format: CDR, little endian (XCDR1).

/// Writes one message. Numbers are aligned to their own size, counted from after the four bytes
/// of the encapsulation header.
#[derive(Debug)]
pub(crate) struct CdrWriter {
    bytes: Vec<u8>,
}

/// The encapsulation header: plain CDR, little endian, no options.
const HEADER: [u8; 4] = [0, 1, 0, 0];

impl CdrWriter {
    /// A writer with room for a message of this size.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity + HEADER.len());
        bytes.extend_from_slice(&HEADER);
        CdrWriter { bytes }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn boolean(&mut self, value: bool) -> &mut Self {
        self.byte(u8::from(value))
    }

    pub(crate) fn byte(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    pub(crate) fn int32(&mut self, value: i32) -> &mut Self {
        self.aligned(&value.to_le_bytes())
    }

    pub(crate) fn uint32(&mut self, value: u32) -> &mut Self {
        self.aligned(&value.to_le_bytes())
    }

    pub(crate) fn float32(&mut self, value: f32) -> &mut Self {
        self.aligned(&value.to_le_bytes())
    }

    pub(crate) fn float64(&mut self, value: f64) -> &mut Self {
        self.aligned(&value.to_le_bytes())
    }

    /// An array of a length that the schema knows.
    pub(crate) fn float64s(&mut self, values: &[f64]) -> &mut Self {
        for &value in values {
            self.float64(value);
        }
        self
    }

    /// A sequence: its length, then its elements.
    pub(crate) fn float64_sequence(&mut self, values: &[f64]) -> &mut Self {
        self.length(values.len()).float64s(values)
    }

    /// A sequence: its length, then its elements.
    pub(crate) fn float32_sequence(&mut self, values: &[f32]) -> &mut Self {
        self.length(values.len());
        for &value in values {
            self.float32(value);
        }
        self
    }

    /// A sequence of bytes.
    pub(crate) fn blob(&mut self, value: &[u8]) -> &mut Self {
        self.length(value.len()).bytes.extend_from_slice(value);
        self
    }

    /// A string: its length with the closing zero, its bytes, the zero.
    pub(crate) fn string(&mut self, value: &str) -> &mut Self {
        self.length(value.len() + 1);
        self.bytes.extend_from_slice(value.as_bytes());
        self.byte(0)
    }

    /// The length of a sequence.
    pub(crate) fn length(&mut self, length: usize) -> &mut Self {
        self.uint32(length as u32)
    }

    fn aligned<const N: usize>(&mut self, value: &[u8; N]) -> &mut Self {
        let body = self.bytes.len() - HEADER.len();
        let end = body.next_multiple_of(N) + HEADER.len();
        self.bytes.resize(end, 0);
        self.bytes.extend_from_slice(value);
        self
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
