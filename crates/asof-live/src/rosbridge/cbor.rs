//! rosbridge messages in CBOR (RFC 8949), with the typed arrays of RFC 8746.

use asof_core::Stamp;
use minicbor::Decoder;
use minicbor::data::Type;
use serde_json::{Map, Value};

use super::{Body, Incoming, RosbridgeError};

/// The deepest nesting of values.
const MAX_DEPTH: usize = 64;

type Read<T> = Result<T, minicbor::decode::Error>;

pub(super) fn parse(bytes: &[u8]) -> Result<Incoming, RosbridgeError> {
    let wrong = |cause: &dyn std::fmt::Display| RosbridgeError::Cbor(cause.to_string());
    let mut decoder = Decoder::new(bytes);
    let mut told = Envelope::default();
    told.read(&mut decoder).map_err(|cause| wrong(&cause))?;
    match (told.op.as_str(), told.body) {
        ("publish", Some(body)) if !told.topic.is_empty() => Ok(Incoming::Publish {
            topic: told.topic,
            body,
        }),
        ("publish", _) => Err(wrong(&"a message has no topic or no content")),
        ("", _) => Err(wrong(&"it has no op")),
        _ => Ok(Incoming::Other),
    }
}

/// The top-level fields of a message.
#[derive(Default)]
struct Envelope {
    op: String,
    topic: String,
    body: Option<Body>,
}

impl Envelope {
    fn read(&mut self, decoder: &mut Decoder<'_>) -> Read<()> {
        each(decoder, |name, decoder| {
            match name {
                "op" => decoder.str()?.clone_into(&mut self.op),
                "topic" => decoder.str()?.clone_into(&mut self.topic),
                "msg" => self.body = Some(body(decoder)?),
                _ => decoder.skip()?,
            }
            Ok(())
        })
    }
}

/// A message: its bytes and the server's time, or its values.
fn body(decoder: &mut Decoder<'_>) -> Read<Body> {
    let mut probe = decoder.clone();
    let (mut bytes, mut seconds, mut nanos, mut others) = (None, None, None, 0);
    let looked = each(&mut probe, |name, decoder| {
        match (name, decoder.datatype()?) {
            ("bytes", Type::Bytes) => bytes = Some(decoder.bytes()?.to_vec()),
            ("secs", kind) if is_integer(kind) => seconds = Some(decoder.i64()?),
            ("nsecs", kind) if is_integer(kind) => nanos = Some(decoder.i64()?),
            _ => {
                others += 1;
                decoder.skip()?;
            }
        }
        Ok(())
    });
    if let (Ok(()), Some(bytes), Some(seconds), Some(nanos), 0) =
        (looked, bytes, seconds, nanos, others)
    {
        *decoder = probe;
        let nanos = seconds
            .checked_mul(1_000_000_000)
            .and_then(|whole| whole.checked_add(nanos));
        return Ok(Body::Raw {
            bytes,
            time: nanos.map(Stamp::from_nanos),
        });
    }
    value(decoder, 0).map(Body::Values)
}

/// Calls `read` with every name of a map; it has to read the value.
fn each<'b>(
    decoder: &mut Decoder<'b>,
    mut read: impl FnMut(&str, &mut Decoder<'b>) -> Read<()>,
) -> Read<()> {
    let mut left = decoder.map()?;
    loop {
        match &mut left {
            Some(0) => return Ok(()),
            Some(count) => *count -= 1,
            None if decoder.datatype()? == Type::Break => return decoder.skip(),
            None => {}
        }
        let name = decoder.str()?;
        read(name, decoder)?;
    }
}

fn is_integer(kind: Type) -> bool {
    matches!(
        kind,
        Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::I8 | Type::I16 | Type::I32 | Type::I64
    )
}

fn value(decoder: &mut Decoder<'_>, depth: usize) -> Read<Value> {
    if depth > MAX_DEPTH {
        return Err(minicbor::decode::Error::message("it is nested too deeply"));
    }
    let kind = decoder.datatype()?;
    Ok(match kind {
        Type::Bool => decoder.bool()?.into(),
        Type::Null => {
            decoder.null()?;
            Value::Null
        }
        Type::Undefined => {
            decoder.undefined()?;
            Value::Null
        }
        Type::U64 => decoder.u64()?.into(),
        kind if is_integer(kind) => decoder.i64()?.into(),
        Type::F32 => f64::from(decoder.f32()?).into(),
        Type::F64 => decoder.f64()?.into(),
        Type::String => decoder.str()?.into(),
        Type::Bytes => numbers(decoder.bytes()?),
        Type::Tag => {
            let tag = decoder.tag()?.as_u64();
            if decoder.datatype()? == Type::Bytes {
                typed(tag, decoder.bytes()?)
            } else {
                value(decoder, depth + 1)?
            }
        }
        Type::Array => {
            let count = decoder.array()?.unwrap_or(0);
            // The length may be wrong: memory is allocated as elements arrive.
            let mut all = Vec::new();
            for _ in 0..count {
                all.push(value(decoder, depth + 1)?);
            }
            Value::Array(all)
        }
        Type::Map => {
            let mut all = Map::new();
            each(decoder, |name, decoder| {
                all.insert(name.to_owned(), value(decoder, depth + 1)?);
                Ok(())
            })?;
            Value::Object(all)
        }
        other => {
            let text = format!("unexpected {other}");
            return Err(minicbor::decode::Error::message(text));
        }
    })
}

fn numbers(bytes: &[u8]) -> Value {
    Value::Array(bytes.iter().map(|&byte| byte.into()).collect())
}

/// A typed array: a tag of RFC 8746, little endian, as rosbridge writes them.
fn typed(tag: u64, bytes: &[u8]) -> Value {
    macro_rules! all {
        ($kind:ty) => {{
            let chunks = bytes.chunks_exact(size_of::<$kind>());
            let number = |chunk: &[u8]| {
                let bytes = chunk.try_into().unwrap_or_default();
                Value::from(<$kind>::from_le_bytes(bytes))
            };
            Value::Array(chunks.map(number).collect())
        }};
    }
    match tag {
        69 => all!(u16),
        70 => all!(u32),
        71 => all!(u64),
        72 => all!(i8),
        77 => all!(i16),
        78 => all!(i32),
        79 => all!(i64),
        85 => all!(f32),
        86 => all!(f64),
        _ => numbers(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minicbor::Encoder;
    use minicbor::data::Tag;
    use serde_json::json;

    type Written<'a> = Encoder<&'a mut Vec<u8>>;

    fn published(body: impl FnOnce(&mut Written<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes);
        encoder.map(3).expect("written");
        encoder
            .str("op")
            .and_then(|e| e.str("publish"))
            .expect("written");
        encoder
            .str("topic")
            .and_then(|e| e.str("/imu"))
            .expect("written");
        encoder.str("msg").expect("written");
        body(&mut encoder);
        bytes
    }

    fn raw(encoder: &mut Written<'_>) {
        encoder.map(3).expect("written");
        encoder.str("secs").and_then(|e| e.i32(5)).expect("written");
        encoder
            .str("nsecs")
            .and_then(|e| e.i32(7))
            .expect("written");
        encoder
            .str("bytes")
            .and_then(|e| e.bytes(&[0, 1, 0, 0, 9]))
            .expect("written");
    }

    #[test]
    fn raw_bytes_come_with_the_servers_time() {
        let expected = Incoming::Publish {
            topic: "/imu".to_owned(),
            body: Body::Raw {
                bytes: vec![0, 1, 0, 0, 9],
                time: Some(5_000_000_007.into()),
            },
        };
        assert_eq!(parse(&published(raw)).expect("read"), expected);
    }

    #[test]
    fn a_message_that_is_cut_is_an_error_at_every_length() {
        let whole = published(raw);
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn values_and_typed_arrays_are_read() {
        let bytes = published(|encoder| {
            encoder.map(4).expect("written");
            encoder
                .str("name")
                .and_then(|e| e.str("a"))
                .expect("written");
            encoder
                .str("bytes")
                .and_then(|e| e.bytes(&[1, 2]))
                .expect("written");
            let floats: Vec<u8> = [0.5_f32, 2.0]
                .iter()
                .flat_map(|n| n.to_le_bytes())
                .collect();
            encoder
                .str("ranges")
                .and_then(|e| e.tag(Tag::new(85)))
                .expect("written");
            encoder.bytes(&floats).expect("written");
            encoder
                .str("deep")
                .and_then(|e| e.array(1))
                .expect("written");
            encoder.i64(-3).expect("written");
        });
        let Incoming::Publish {
            body: Body::Values(values),
            ..
        } = parse(&bytes).expect("read")
        else {
            panic!("values");
        };
        let expected = json!({ "name": "a", "bytes": [1, 2], "ranges": [0.5, 2.0], "deep": [-3] });
        assert_eq!(values, expected);
    }

    #[test]
    fn nesting_without_end_and_lengths_that_lie_are_errors() {
        let deep = published(|encoder| {
            for _ in 0..10_000 {
                encoder.array(1).expect("written");
            }
            encoder.i8(1).expect("written");
        });
        assert!(parse(&deep).is_err());
        let lying = published(|encoder| {
            encoder.array(u64::MAX).expect("written");
        });
        assert!(parse(&lying).is_err());
    }
}
