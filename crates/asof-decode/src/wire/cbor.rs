//! CBOR (RFC 8949) as JSON.

use minicbor::Decoder;
use minicbor::data::Type;
use minicbor::decode::Error;

use crate::error::PayloadError;
use crate::print::{print_blob, print_float64, print_text};

/// The deepest nesting of values.
const MAX_DEPTH: usize = 64;

/// Converts the payload to JSON text: byte strings become base64, tags are ignored, undefined is null.
pub(crate) fn to_json(payload: &[u8]) -> Result<Vec<u8>, PayloadError> {
    let mut reader = Reader(Decoder::new(payload));
    let mut out = Vec::with_capacity(payload.len() * 2);
    let read = reader.value(&mut out, 0);
    let pos = reader.0.position();
    read.map_err(|failure| failure.of(pos, payload.len()))?;
    if pos < payload.len() {
        return Err(PayloadError::malformed(
            pos,
            "there is data after the CBOR value",
        ));
    }
    Ok(out)
}

enum Failure {
    Cbor(Error),
    TooDeep,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Cbor(error)
    }
}

impl Failure {
    fn of(self, pos: usize, len: usize) -> PayloadError {
        match self {
            Failure::TooDeep => PayloadError::TooDeep {
                at: pos,
                limit: MAX_DEPTH,
            },
            Failure::Cbor(error) => {
                let at = error.position().unwrap_or(pos);
                if error.is_end_of_input() {
                    let what = "a value";
                    return PayloadError::Short { what, at, len };
                }
                PayloadError::malformed(at, error.to_string())
            }
        }
    }
}

struct Reader<'a>(Decoder<'a>);

impl Reader<'_> {
    fn value(&mut self, out: &mut Vec<u8>, depth: usize) -> Result<(), Failure> {
        if depth > MAX_DEPTH {
            return Err(Failure::TooDeep);
        }
        let cbor = &mut self.0;
        match cbor.datatype()? {
            Type::Bool => out.extend_from_slice(cbor.bool()?.to_string().as_bytes()),
            Type::Null | Type::Undefined => {
                cbor.skip()?;
                out.extend_from_slice(b"null");
            }
            Type::F16 => print_float64(cbor.f16()?.into(), out),
            Type::F32 => {
                let value = cbor.f32()?;
                if value.is_finite() {
                    out.extend_from_slice(format!("{value:?}").as_bytes());
                } else {
                    print_float64(value.into(), out);
                }
            }
            Type::F64 => print_float64(cbor.f64()?, out),
            Type::Simple => out.extend_from_slice(cbor.simple()?.to_string().as_bytes()),
            Type::Bytes | Type::BytesIndef => {
                let parts: Result<Vec<&[u8]>, Error> = cbor.bytes_iter()?.collect();
                print_blob(&parts?.concat(), out);
            }
            Type::String | Type::StringIndef => {
                let parts: Result<Vec<&str>, Error> = cbor.str_iter()?.collect();
                print_text(parts?.concat().as_bytes(), out);
            }
            Type::Array | Type::ArrayIndef => {
                let mut left = cbor.array()?;
                out.push(b'[');
                let start = out.len();
                while self.has_next(&mut left)? {
                    if out.len() > start {
                        out.push(b',');
                    }
                    self.value(out, depth + 1)?;
                }
                out.push(b']');
            }
            Type::Map | Type::MapIndef => {
                let mut left = cbor.map()?;
                out.push(b'{');
                let start = out.len();
                while self.has_next(&mut left)? {
                    if out.len() > start {
                        out.push(b',');
                    }
                    let mut key = Vec::new();
                    self.value(&mut key, depth + 1)?;
                    if key.starts_with(b"\"") {
                        out.extend_from_slice(&key);
                    } else {
                        print_text(&key, out);
                    }
                    out.push(b':');
                    self.value(out, depth + 1)?;
                }
                out.push(b'}');
            }
            Type::Tag => {
                cbor.tag()?;
                self.value(out, depth + 1)?;
            }
            // All others are integers, or an error.
            _ => out.extend_from_slice(cbor.int()?.to_string().as_bytes()),
        }
        Ok(())
    }

    /// Whether a collection has one more item; `left` is `None` for an indefinite length.
    fn has_next(&mut self, left: &mut Option<u64>) -> Result<bool, Failure> {
        let Some(left) = left else {
            let is_over = self.0.datatype()? == Type::Break;
            if is_over {
                self.0.skip()?;
            }
            return Ok(!is_over);
        };
        let has_next = *left > 0;
        *left = left.saturating_sub(1);
        Ok(has_next)
    }
}

#[cfg(test)]
mod tests {
    use super::to_json;

    #[test]
    fn the_examples_of_the_standard_are_read() {
        // RFC 8949, appendix A.
        for (cbor, json) in [
            (
                &b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff"[..],
                "18446744073709551615",
            ),
            (
                b"\x3b\xff\xff\xff\xff\xff\xff\xff\xff",
                "-18446744073709551616",
            ),
            (b"\xf9\x3e\x00", "1.5"),
            (b"\xf9\x7c\x00", "\"Infinity\""),
            (b"\xfb\x3f\xf1\x99\x99\x99\x99\x99\x9a", "1.1"),
            (b"\xa2\x61a\x01\x61b\x82\x02\x03", r#"{"a":1,"b":[2,3]}"#),
            (
                b"\xbf\x63Fun\xf5\x63Amt\x21\xff",
                r#"{"Fun":true,"Amt":-2}"#,
            ),
            (b"\x44\x01\x02\x03\x04", "\"AQIDBA==\""),
            (b"\xc1\x1a\x51\x4b\x67\xb0", "1363896240"),
        ] {
            let text = to_json(cbor).expect("reads");
            assert_eq!(String::from_utf8_lossy(&text), json);
        }
    }
}
