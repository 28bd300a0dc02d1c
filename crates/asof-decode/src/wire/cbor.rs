//! CBOR (RFC 8949) as JSON.

use crate::error::PayloadError;
use crate::print::{print_blob, print_float64, print_text};

/// The deepest nesting of values.
const MAX_DEPTH: usize = 64;

/// Converts the payload to JSON text: byte strings become base64, tags are ignored, undefined is null.
pub(crate) fn to_json(payload: &[u8]) -> Result<Vec<u8>, PayloadError> {
    let mut reader = Reader {
        bytes: payload,
        pos: 0,
    };
    let mut out = Vec::with_capacity(payload.len() * 2);
    reader.value(&mut out, 0)?;
    if reader.pos < payload.len() {
        return Err(PayloadError::malformed(
            reader.pos,
            "there is data after the CBOR value",
        ));
    }
    Ok(out)
}

struct Reader<'a> {
    bytes: &'a [u8],
    pos: usize,
}

const BREAK: u8 = 0xff;

impl<'a> Reader<'a> {
    fn value(&mut self, out: &mut Vec<u8>, depth: usize) -> Result<(), PayloadError> {
        if depth > MAX_DEPTH {
            return Err(PayloadError::TooDeep {
                at: self.pos,
                limit: MAX_DEPTH,
            });
        }
        let at = self.pos;
        let head = self.take(1)?[0];
        let (major, info) = (head >> 5, head & 31);
        match major {
            0 => {
                let value = self.argument(info)?;
                out.extend_from_slice(value.to_string().as_bytes());
            }
            1 => {
                let value = -1 - i128::from(self.argument(info)?);
                out.extend_from_slice(value.to_string().as_bytes());
            }
            2 => {
                let bytes = self.string(info, 2)?;
                print_blob(&bytes, out);
            }
            3 => {
                let bytes = self.string(info, 3)?;
                print_text(&bytes, out);
            }
            4 => self.array(info, out, depth)?,
            5 => self.map(info, out, depth)?,
            6 => {
                self.argument(info)?;
                self.value(out, depth + 1)?;
            }
            _ => self.simple(info, at, out)?,
        }
        Ok(())
    }

    fn array(&mut self, info: u8, out: &mut Vec<u8>, depth: usize) -> Result<(), PayloadError> {
        let count = self.count(info)?;
        out.push(b'[');
        let mut done = 0;
        while !self.is_over(count, done) {
            if done > 0 {
                out.push(b',');
            }
            self.value(out, depth + 1)?;
            done += 1;
        }
        out.push(b']');
        Ok(())
    }

    fn map(&mut self, info: u8, out: &mut Vec<u8>, depth: usize) -> Result<(), PayloadError> {
        let count = self.count(info)?;
        out.push(b'{');
        let mut done = 0;
        while !self.is_over(count, done) {
            if done > 0 {
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
            done += 1;
        }
        out.push(b'}');
        Ok(())
    }

    fn simple(&mut self, info: u8, at: usize, out: &mut Vec<u8>) -> Result<(), PayloadError> {
        match info {
            20 => out.extend_from_slice(b"false"),
            21 => out.extend_from_slice(b"true"),
            22 | 23 => out.extend_from_slice(b"null"),
            25 => {
                let bits = self.argument(25)? as u16;
                print_float64(half(bits), out);
            }
            26 => {
                let value = f32::from_bits(self.argument(26)? as u32);
                if value.is_finite() {
                    out.extend_from_slice(format!("{value:?}").as_bytes());
                } else {
                    print_float64(f64::from(value), out);
                }
            }
            27 => print_float64(f64::from_bits(self.argument(27)?), out),
            24 => {
                let value = self.argument(24)?;
                out.extend_from_slice(value.to_string().as_bytes());
            }
            0..=19 => out.extend_from_slice(info.to_string().as_bytes()),
            _ => {
                return Err(PayloadError::malformed(at, "an invalid CBOR head"));
            }
        }
        Ok(())
    }

    /// The length of a collection; `None` for an indefinite length.
    fn count(&mut self, info: u8) -> Result<Option<u64>, PayloadError> {
        if info == 31 {
            return Ok(None);
        }
        let count = self.argument(info)?;
        // Every element takes at least a byte.
        if count > (self.bytes.len() - self.pos) as u64 {
            return Err(self.short("a collection"));
        }
        Ok(Some(count))
    }

    fn is_over(&mut self, count: Option<u64>, done: u64) -> bool {
        match count {
            Some(count) => done >= count,
            None if self.bytes.get(self.pos) == Some(&BREAK) => {
                self.pos += 1;
                true
            }
            None => false,
        }
    }

    fn string(&mut self, info: u8, major: u8) -> Result<Vec<u8>, PayloadError> {
        if info != 31 {
            let len = self.argument(info)?;
            return self
                .take(usize::try_from(len).unwrap_or(usize::MAX))
                .map(<[u8]>::to_vec);
        }
        let mut joined = Vec::new();
        loop {
            let at = self.pos;
            let head = self.take(1)?[0];
            if head == BREAK {
                return Ok(joined);
            }
            if head >> 5 != major || head & 31 == 31 {
                return Err(PayloadError::malformed(
                    at,
                    "a string with chunks of another kind",
                ));
            }
            let len = self.argument(head & 31)?;
            let part = self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
            joined.extend_from_slice(part);
        }
    }

    fn argument(&mut self, info: u8) -> Result<u64, PayloadError> {
        let width = match info {
            0..=23 => return Ok(u64::from(info)),
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            _ => {
                return Err(PayloadError::malformed(self.pos, "an invalid CBOR length"));
            }
        };
        let bytes = self.take(width)?;
        Ok(bytes
            .iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], PayloadError> {
        let end = self.pos.saturating_add(len);
        match self.bytes.get(self.pos..end) {
            Some(bytes) => {
                self.pos = end;
                Ok(bytes)
            }
            None => Err(self.short("a value")),
        }
    }

    fn short(&self, what: &'static str) -> PayloadError {
        PayloadError::Short {
            what,
            at: self.pos,
            len: self.bytes.len(),
        }
    }
}

/// A 16-bit float.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
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
