//! DDS messages as bytes, whatever their type.

use bytes::Bytes;
use rustdds::RepresentationIdentifier as Id;
use rustdds::no_key::{
    DataWriter, Decode, DefaultDecoder, DeserializerAdapter, SerializerAdapter, SimpleDataReader,
};

/// A reader of bytes.
pub(super) type RawReader = SimpleDataReader<Raw, Undecoded>;
/// A writer of bytes.
pub(super) type RawWriter = DataWriter<Raw, Undecoded>;

/// A message, with its encapsulation.
#[derive(Debug, Clone)]
pub(super) struct Raw(pub Bytes);

/// Keeps the bytes as they come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Undecoded;

impl DeserializerAdapter<Raw> for Undecoded {
    type Error = std::convert::Infallible;
    type Decoded = Raw;

    fn supported_encodings() -> &'static [Id] {
        &[
            Id::CDR_LE,
            Id::CDR_BE,
            Id::PL_CDR_LE,
            Id::PL_CDR_BE,
            Id::XCDR2_LE,
            Id::XCDR2_BE,
            Id::D_CDR2_LE,
            Id::D_CDR2_BE,
            Id::PL_XCDR2_LE,
            Id::PL_XCDR2_BE,
            Id::CDR2_LE,
            Id::CDR2_BE,
            Id::PL_CDR2_LE,
            Id::PL_CDR2_BE,
            Id::D_CDR_LE,
            Id::D_CDR_BE,
            Id::XML,
        ]
    }

    fn transform_decoded(decoded: Raw) -> Raw {
        decoded
    }
}

impl DefaultDecoder<Raw> for Undecoded {
    type Decoder = Undecoded;
    const DECODER: Undecoded = Undecoded;
}

impl Decode<'_, Raw> for Undecoded {
    type Error = std::convert::Infallible;

    fn decode_bytes(self, input: &[u8], encoding: Id) -> Result<Raw, Self::Error> {
        let mut bytes = Vec::with_capacity(4 + input.len());
        bytes.extend(encoding.to_bytes());
        // The options field, which ROS does not use.
        bytes.extend([0, 0]);
        bytes.extend_from_slice(input);
        Ok(Raw(bytes.into()))
    }
}

impl SerializerAdapter<Raw> for Undecoded {
    type Error = std::convert::Infallible;

    /// The encapsulation of messages that we write: little-endian CDR.
    fn output_encoding() -> Id {
        Id::CDR_LE
    }

    fn to_bytes(value: &Raw) -> Result<Bytes, Self::Error> {
        Ok(value.0.slice(value.0.len().min(4)..))
    }
}
