//! The attachment that rmw_zenoh adds to every message.

use asof_core::Stamp;

/// A message's sequence number, publish time and publisher, as its publisher set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleAttachment {
    /// The publisher's sequence number.
    pub sequence: i64,
    /// When it was published, by the publisher's clock.
    pub source_timestamp: Stamp,
    /// The publisher's identifier. Opaque: it is made differently by different versions.
    pub gid: [u8; 16],
}

/// Why bytes are not an attachment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachmentError {
    /// It is too short.
    #[error("the attachment has {0} bytes, expected at least 33")]
    Short(usize),
    /// The publisher's identifier has another length.
    #[error("the attachment's publisher id has {0} bytes, not 16")]
    Gid(u8),
}

impl SampleAttachment {
    /// The length of an attachment in bytes.
    pub const LEN: usize = 33;

    /// Parses an attachment: sequence number and nanoseconds as little-endian i64, then the identifier with its
    /// length. The format of 2024, which has the fields' names in between, is accepted too.
    pub fn parse(bytes: &[u8]) -> Result<Self, AttachmentError> {
        let short = || AttachmentError::Short(bytes.len());
        let mut rest = bytes;
        let mut number = |name: &[u8]| {
            skip_name(&mut rest, name);
            let (head, tail) = rest.split_first_chunk().ok_or_else(short)?;
            rest = tail;
            Ok(i64::from_le_bytes(*head))
        };
        let sequence = number(b"sequence_number")?;
        let source_timestamp = Stamp::from_nanos(number(b"source_timestamp")?);
        skip_name(&mut rest, b"source_gid");
        let (&len, rest) = rest.split_first().ok_or_else(short)?;
        if len != 16 {
            return Err(AttachmentError::Gid(len));
        }
        let gid = *rest.first_chunk().ok_or_else(short)?;
        Ok(SampleAttachment {
            sequence,
            source_timestamp,
            gid,
        })
    }

    /// Encodes it as rmw_zenoh does.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.source_timestamp.nanos().to_le_bytes());
        bytes[16] = 16;
        bytes[17..].copy_from_slice(&self.gid);
        bytes
    }
}

/// Skips a length-prefixed field name, if it is there.
fn skip_name(rest: &mut &[u8], name: &[u8]) {
    if let Some((&len, tail)) = rest.split_first()
        && usize::from(len) == name.len()
        && let Some(behind) = tail.strip_prefix(name)
    {
        *rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_form_with_names_is_read_too() {
        let attachment = SampleAttachment {
            sequence: 7,
            source_timestamp: 9.into(),
            gid: [3; 16],
        };
        let plain = attachment.to_bytes();
        let mut named = Vec::new();
        let parts: [(&[u8], _); 3] = [
            (b"sequence_number", 0..8),
            (b"source_timestamp", 8..16),
            (b"source_gid", 16..33),
        ];
        for (name, range) in parts {
            named.push(name.len() as u8);
            named.extend_from_slice(name);
            named.extend_from_slice(&plain[range]);
        }
        assert_eq!(SampleAttachment::parse(&named), Ok(attachment));
    }

    #[test]
    fn too_few_bytes_and_a_wrong_id_are_told_apart() {
        assert_eq!(
            SampleAttachment::parse(&[0; 10]),
            Err(AttachmentError::Short(10))
        );
        let mut bytes = [0; 33];
        bytes[16] = 4;
        assert_eq!(
            SampleAttachment::parse(&bytes),
            Err(AttachmentError::Gid(4))
        );
    }

    proptest! {
        #[test]
        fn an_attachment_parses_back(sequence: i64, nanos: i64, gid: [u8; 16]) {
            let attachment = SampleAttachment { sequence, source_timestamp: nanos.into(), gid };
            prop_assert_eq!(SampleAttachment::parse(&attachment.to_bytes()), Ok(attachment));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = SampleAttachment::parse(&bytes);
        }
    }
}
