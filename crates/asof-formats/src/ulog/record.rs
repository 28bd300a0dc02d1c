//! Parsing of single ULog messages from untrusted bytes.

use std::fmt::Write as _;

/// The first bytes of a file; the version follows.
pub(crate) const MAGIC: &[u8; 7] = b"ULog\x01\x12\x35";
/// Magic, version, and the time at which logging started.
pub(crate) const FILE_HEADER_LEN: u64 = 16;
/// Message header: length and kind.
pub(crate) const HEADER_LEN: u64 = 3;
/// Loggers write this now and then so that readers can resynchronise.
pub(crate) const SYNC: [u8; 8] = [0x2f, 0x73, 0x13, 0x20, 0x25, 0x0c, 0xbb, 0x12];

/// The kinds of messages, by their letters in the file.
pub(crate) mod kind {
    pub const FLAGS: u8 = b'B';
    pub const FORMAT: u8 = b'F';
    pub const INFO: u8 = b'I';
    pub const INFO_MULTIPLE: u8 = b'M';
    pub const PARAMETER: u8 = b'P';
    pub const DEFAULT_PARAMETER: u8 = b'Q';
    pub const SUBSCRIPTION: u8 = b'A';
    pub const UNSUBSCRIPTION: u8 = b'R';
    pub const DATA: u8 = b'D';
    pub const LOGGED: u8 = b'L';
    pub const LOGGED_TAGGED: u8 = b'C';
    pub const SYNC: u8 = b'S';
    pub const DROPOUT: u8 = b'O';
}

/// Kind and length of a message, and where it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub offset: u64,
    pub kind: u8,
    pub len: u64,
}

impl Head {
    /// Parses the first three bytes of `bytes`, which start at `offset` of the file.
    pub fn parse(offset: u64, bytes: &[u8]) -> Option<Self> {
        let &[low, high, kind] = bytes.first_chunk()?;
        Some(Head {
            offset,
            kind,
            len: u64::from(u16::from_le_bytes([low, high])),
        })
    }

    pub fn body(&self) -> u64 {
        self.offset + HEADER_LEN
    }

    pub fn end(&self) -> u64 {
        self.body() + self.len
    }

    /// Whether a message of this kind can have this length. Unknown kinds belong to a later version of the format; they
    /// are skipped where possible.
    pub fn is_plausible(&self) -> bool {
        match self.kind {
            kind::FLAGS => self.len >= 40,
            kind::SYNC => self.len == 8,
            kind::DROPOUT | kind::UNSUBSCRIPTION => self.len == 2,
            kind::DATA | kind::FORMAT | kind::INFO | kind::PARAMETER => self.len > 2,
            kind::SUBSCRIPTION | kind::INFO_MULTIPLE | kind::DEFAULT_PARAMETER => self.len > 3,
            kind::LOGGED => self.len >= 9,
            kind::LOGGED_TAGGED => self.len >= 11,
            _ => false,
        }
    }

    /// Whether this may be a message of a later version of the format.
    pub fn may_be_newer(&self) -> bool {
        self.kind.is_ascii_alphabetic() && self.len > 0 && !self.is_known_kind()
    }

    fn is_known_kind(&self) -> bool {
        b"BFIMPQARDLCSO".contains(&self.kind)
    }
}

/// Takes little-endian fields off the front of a message.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }
}

/// A key with its type and its value: an information message or a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair<'a> {
    pub kind: &'a str,
    pub key: &'a str,
    pub value: &'a [u8],
}

impl<'a> Pair<'a> {
    /// Length of the key, the key with its type, the value.
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let len = fields.u8()?;
        let name = std::str::from_utf8(fields.bytes(len.into())?).ok()?;
        let (kind, key) = name.split_once(' ')?;
        Some(Pair {
            kind,
            key: key.trim(),
            value: fields.0,
        })
    }

    /// The value of a parameter. There are two types, and both fit into a double without loss.
    pub fn number(&self) -> Option<f64> {
        let word = *self.value.first_chunk()?;
        match self.kind {
            "int32_t" => Some(i32::from_le_bytes(word).into()),
            "float" => Some(f32::from_le_bytes(word).into()),
            _ => None,
        }
    }

    /// The value as text, for people.
    pub fn text(&self) -> String {
        macro_rules! number {
            ($kind:ty) => {
                self.value
                    .first_chunk()
                    .map(|bytes| <$kind>::from_le_bytes(*bytes).to_string())
            };
        }
        let scalar = match self.kind {
            "bool" => self.value.first().map(|value| (*value != 0).to_string()),
            "uint8_t" => number!(u8),
            "int8_t" => number!(i8),
            "uint16_t" => number!(u16),
            "int16_t" => number!(i16),
            "uint32_t" => number!(u32),
            "int32_t" => number!(i32),
            "uint64_t" => number!(u64),
            "int64_t" => number!(i64),
            "float" => number!(f32),
            "double" => number!(f64),
            _ => None,
        };
        scalar.unwrap_or_else(|| {
            if self.kind.starts_with("char") {
                String::from_utf8_lossy(self.value).into_owned()
            } else {
                // Other bytes, such as a hash: in hexadecimal.
                let mut text = String::new();
                for byte in self.value {
                    let _ = write!(text, "{byte:02x}");
                }
                text
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_a_type_a_key_and_a_value() {
        let body = b"\x0bint32_t SYS\x07\0\0\0";
        let pair = Pair::parse(body).expect("a pair");
        assert_eq!(
            (pair.kind, pair.key, pair.number()),
            ("int32_t", "SYS", Some(7.0))
        );
        assert_eq!(pair.text(), "7");
        assert_eq!(Pair::parse(b"\x09char ver"), None);
    }
}
