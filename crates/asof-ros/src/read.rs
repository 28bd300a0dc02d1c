//! Values of a message with a known layout, read without a schema.

use asof_core::Stamp;

/// How a message is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RosEncoding {
    /// ROS 2: CDR with its four-byte header, in either byte order.
    Cdr,
    /// ROS 1.
    Ros1,
}

/// Why bytes cannot be decoded as the expected message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RosDecodeError {
    /// The message ends in the middle of a value.
    #[error("the message ends at byte {len}, inside {what}")]
    Truncated {
        /// Its length.
        len: usize,
        /// The value that was expected.
        what: &'static str,
    },
    /// An unsupported CDR header.
    #[error("the message starts with CDR header {0:#06x}, which is not one of plain CDR")]
    UnknownCdr(u16),
    /// A string that is not UTF-8.
    #[error("the text at byte {0} is not UTF-8")]
    NotText(usize),
    /// A time whose fraction is a second or more.
    #[error("the stamp at byte {0} has a fraction of one second or more")]
    BadStamp(usize),
}

/// Reads one message, value by value, in the order of its definition.
///
/// Every error names the value that was expected and where the bytes end. A count never causes an allocation.
#[derive(Debug)]
pub struct RosReader<'a> {
    encoding: RosEncoding,
    bytes: &'a [u8],
    at: usize,
    /// The origin of alignment, and the largest alignment: four bytes in CDR version 2.
    origin: usize,
    widest: usize,
    is_big: bool,
}

impl<'a> RosReader<'a> {
    /// Begins at the start of a payload.
    ///
    /// # Errors
    /// When it does not start with a header of plain CDR.
    pub fn new(encoding: RosEncoding, bytes: &'a [u8]) -> Result<Self, RosDecodeError> {
        let mut reader = RosReader {
            encoding,
            bytes,
            at: 0,
            origin: 0,
            widest: 1,
            is_big: false,
        };
        if encoding == RosEncoding::Cdr {
            let [high, low, ..] = reader.take::<4>("the CDR header")?;
            let header = u16::from_be_bytes([high, low]);
            (reader.is_big, reader.widest) = match header {
                0x0000 => (true, 8),
                0x0001 => (false, 8),
                0x0006 => (true, 4),
                0x0007 => (false, 4),
                other => return Err(RosDecodeError::UnknownCdr(other)),
            };
            reader.origin = 4;
        }
        Ok(reader)
    }

    fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], RosDecodeError> {
        let found = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk::<N>());
        let found = *found.ok_or(RosDecodeError::Truncated {
            len: self.bytes.len(),
            what,
        })?;
        self.at += N;
        Ok(found)
    }

    fn align(&mut self, to: usize) {
        let to = to.min(self.widest);
        self.at = self.origin + (self.at - self.origin).next_multiple_of(to);
    }

    /// A `uint32`; errors call it `what`.
    ///
    /// # Errors
    /// [`RosDecodeError::Truncated`].
    pub fn uint32(&mut self, what: &'static str) -> Result<u32, RosDecodeError> {
        self.align(4);
        let bytes = self.take(what)?;
        Ok(if self.is_big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    /// A `float64`; errors call it `what`.
    ///
    /// # Errors
    /// [`RosDecodeError::Truncated`].
    pub fn float64(&mut self, what: &'static str) -> Result<f64, RosDecodeError> {
        self.align(8);
        let bytes = self.take(what)?;
        Ok(if self.is_big {
            f64::from_be_bytes(bytes)
        } else {
            f64::from_le_bytes(bytes)
        })
    }

    /// Reads a `std_msgs/Header` and returns its stamp.
    ///
    /// # Errors
    /// When it is truncated, or its stamp is not a time.
    pub fn header(&mut self) -> Result<Stamp, RosDecodeError> {
        if self.encoding == RosEncoding::Ros1 {
            self.uint32("header.seq")?;
        }
        let (sec, nanosec) = (self.uint32("header.stamp")?, self.uint32("header.stamp")?);
        let at = self.at - 8;
        let stamp = match self.encoding {
            RosEncoding::Ros1 => Stamp::from_ros1(sec, nanosec),
            RosEncoding::Cdr => Stamp::from_ros2(sec as i32, nanosec),
        };
        stamp.map_err(|_| RosDecodeError::BadStamp(at))
    }

    /// A string: length and bytes; CDR counts a terminating zero.
    ///
    /// # Errors
    /// When it is truncated, or not UTF-8.
    pub fn text(&mut self, what: &'static str) -> Result<String, RosDecodeError> {
        let len = self.uint32(what)? as usize;
        let at = self.at;
        let found = at.checked_add(len).and_then(|end| self.bytes.get(at..end));
        let mut found = found.ok_or(RosDecodeError::Truncated {
            len: self.bytes.len(),
            what,
        })?;
        self.at += len;
        if self.encoding == RosEncoding::Cdr {
            found = found.strip_suffix(&[0]).unwrap_or(found);
        }
        let text = std::str::from_utf8(found).map_err(|_| RosDecodeError::NotText(at))?;
        Ok(text.to_owned())
    }
}
