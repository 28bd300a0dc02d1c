//! Fields that are read one by one are those of the message that is decoded whole.

mod common;

use asof_decode::{Decoder, FieldReader, FieldValue, PayloadError, Projection};
use common::flavours::{Flavour, Types};
use common::{cdr, channel, fields, ros2, types};

#[test]
fn every_type_of_ros_reads_the_same_field_by_field() {
    let ros = Types::parse(types::ROS);
    let mut compared = 0;
    for name in ros.names() {
        for flavour in [Flavour::Ros1, Flavour::Ros2] {
            for seed in [1, 7, 23, 1001] {
                let (channel, payload) = ros.sample(name, flavour, seed);
                let mut decoder =
                    Decoder::new(&channel, &Projection::All, &[&payload]).expect("a decoder");
                compared += fields::compare(&channel, &mut decoder, &payload).map_or(0, |()| 1);
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

const ODD: &str = "bool a\nuint8 b\nEmpty c\nstring[] d\nInner[] e\nuint8[] f\nint16[3] g\nbool[] h\nInner[2] i\n\
    byte[2] j\nfloat32[] k\nint64 last\n===\nMSG: p/Inner\nstring s\nfloat64[] x\n===\nMSG: p/Empty\n";

/// One value after the other, each aligned to its width.
fn odd_body(is_big: bool, widest: usize) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    let mut word = |bytes: &[u8]| {
        while !out.len().is_multiple_of(bytes.len().min(widest)) {
            out.push(0);
        }
        let mut bytes = bytes.to_vec();
        if is_big {
            bytes.reverse();
        }
        out.extend(bytes);
    };
    let inner = |word: &mut dyn FnMut(&[u8]), text: &[u8], numbers: &[f64]| {
        word(&(text.len() as u32).to_le_bytes());
        for byte in text {
            word(&[*byte]);
        }
        word(&(numbers.len() as u32).to_le_bytes());
        for number in numbers {
            word(&number.to_le_bytes());
        }
    };
    word(&[1]);
    word(&[200]);
    if widest > 1 {
        // A struct without fields has one byte.
        word(&[0]);
    }
    word(&2u32.to_le_bytes());
    for text in [&b"hi\0"[..], b"\xff\0"] {
        word(&(text.len() as u32).to_le_bytes());
        for byte in text {
            word(&[*byte]);
        }
    }
    word(&3u32.to_le_bytes());
    inner(&mut word, b"one\0", &[]);
    inner(&mut word, b"", &[0.5, f64::NAN]);
    inner(&mut word, b"three\0", &[f64::INFINITY]);
    word(&3u32.to_le_bytes());
    for byte in [9u8, 8, 7] {
        word(&[byte]);
    }
    for value in [-1i16, 300, -300] {
        word(&value.to_le_bytes());
    }
    word(&2u32.to_le_bytes());
    for byte in [0u8, 2] {
        word(&[byte]);
    }
    inner(&mut word, b"a\0", &[1.0]);
    inner(&mut word, b"b\0", &[]);
    for byte in [5u8, 6] {
        word(&[byte]);
    }
    word(&0u32.to_le_bytes());
    word(&i64::MIN.to_le_bytes());
    out
}

#[test]
fn lists_empty_structs_and_odd_alignments_are_stepped_over() {
    let ros1 = channel("/o", "ros1", "p/Odd", "ros1msg", ODD.as_bytes());
    let of_ros2 = ros2("/o", "p/msg/Odd", ODD);
    let big = [&[0, 0, 0, 0][..], &odd_body(true, 8)].concat();
    let payloads = [
        (&of_ros2, cdr(&odd_body(false, 8))),
        (&of_ros2, big),
        (&ros1, odd_body(false, 1)),
    ];
    for (channel, payload) in payloads {
        let mut decoder = Decoder::new(channel, &Projection::All, &[&payload]).expect("a decoder");
        assert!(decoder.json(&payload).is_ok());
        fields::compare(channel, &mut decoder, &payload).expect("it is read field by field");
        let reader = FieldReader::new(channel).expect("a reader");
        let message = reader.message(&payload).expect("a message");
        let last = reader
            .value(&payload, message, "last")
            .expect("it is there");
        assert_eq!(last, Some(FieldValue::Int(i64::MIN)));
        assert_eq!(reader.value(&payload, message, "nothing"), Ok(None));
    }
}

#[test]
fn a_damaged_message_is_refused_where_it_is_damaged() {
    let of_ros2 = ros2("/o", "p/msg/Odd", ODD);
    let payload = cdr(&odd_body(false, 8));
    let reader = FieldReader::new(&of_ros2).expect("a reader");
    let cut = &payload[..payload.len() - 1];
    let message = reader.message(cut).expect("a message");
    assert_eq!(
        reader.value(cut, message, "b"),
        Ok(Some(FieldValue::Uint(200)))
    );
    assert!(matches!(
        reader.value(cut, message, "last"),
        Err(PayloadError::Short { .. })
    ));
    // A count that the payload cannot hold takes no memory.
    let mut huge = payload.clone();
    let count = 4 + 4;
    huge[count..count + 4].fill(0xff);
    assert!(reader.value(&huge, message, "d").is_err());
}

#[test]
fn what_is_wrapped_compressed_or_of_another_encoding_is_decoded_whole() {
    let flat = ros2("/f", "p/msg/Flat", "uint8 a\n");
    let reader = FieldReader::new(&flat).expect("a reader");
    assert!(reader.message(&[0, 1, 0, 0, 7]).is_some());
    // XCDR2, compressed by zstd, and not CDR.
    for payload in [
        &[0, 7, 0, 0, 7][..],
        &[0x28, 0xb5, 0x2f, 0xfd, 0],
        &[0],
        &[9, 9, 9, 9],
    ] {
        assert!(reader.message(payload).is_none());
    }
    for channel in [
        ros2("/w", "p/msg/W", "wstring w\n"),
        ros2("/b", "p/msg/Broken", "what is this\n"),
        channel("/j", "json", "j", "jsonschema", b"{}"),
        channel(
            "/m",
            "cdr",
            "M",
            "omgidl",
            b"@mutable struct M { long a; };",
        ),
    ] {
        assert!(FieldReader::new(&channel).is_none(), "{}", channel.topic);
    }
}
