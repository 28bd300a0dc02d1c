//! Encodings down to their bytes.

mod common;

use asof_decode::{Decoder, Projection};
use common::{cdr, channel, ros2};

fn json(channel: &asof_core::Channel, payload: &[u8]) -> String {
    let mut decoder = Decoder::new(channel, &Projection::All, &[payload]).expect("a schema");
    decoder.json(payload).expect("decodes")
}

const MIXED: &str = "uint8 a\nfloat64 b\nstring c\nuint16[] d\nInner[] e\nuint8[4] f\nbool g\n===\n\
    MSG: p/Inner\nint64 x\nstring s\n";

fn mixed_body(is_big: bool, widest: usize) -> Vec<u8> {
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
    word(&[7]);
    word(&(-0.5f64).to_le_bytes());
    word(&3u32.to_le_bytes());
    for byte in [b'h', b'i', 0] {
        word(&[byte]);
    }
    word(&2u32.to_le_bytes());
    word(&1u16.to_le_bytes());
    word(&65535u16.to_le_bytes());
    word(&1u32.to_le_bytes());
    word(&i64::MIN.to_le_bytes());
    word(&1u32.to_le_bytes());
    word(&[0]);
    for byte in [1, 2, 3, 4] {
        word(&[byte]);
    }
    word(&[1]);
    out
}

const MIXED_JSON: &str = r#"{"a":7,"b":-0.5,"c":"hi","d":[1,65535],"e":[{"x":-9223372036854775808,"s":""}],"f":"AQIDBA==","g":true}"#;

#[test]
fn xcdr1_is_read_in_both_byte_orders() {
    let mixed = ros2("/m", "p/msg/Mixed", MIXED);
    for (is_big, head) in [(false, [0, 1, 0, 0]), (true, [0, 0, 0, 0])] {
        let mut payload = head.to_vec();
        payload.extend(mixed_body(is_big, 8));
        assert_eq!(json(&mixed, &payload), MIXED_JSON);
    }
}

#[test]
fn xcdr2_aligns_to_four_bytes_and_delimits_sequences_of_structs() {
    let flat = ros2("/f", "p/msg/Flat", "uint8 a\nfloat64 b\nuint32 c\n");
    for head in [[0, 7, 0, 0], [0, 0x11, 0, 0]] {
        let mut payload = head.to_vec();
        payload.extend_from_slice(&[7, 0, 0, 0]);
        payload.extend_from_slice(&1.25f64.to_le_bytes());
        payload.extend_from_slice(&9u32.to_le_bytes());
        assert_eq!(json(&flat, &payload), r#"{"a":7,"b":1.25,"c":9}"#);
    }
    let listed = ros2(
        "/l",
        "p/msg/List",
        "I[] i\nuint8 end\n===\nMSG: p/I\nuint16 x\n",
    );
    let mut payload = vec![0, 7, 0, 0];
    payload.extend_from_slice(&8u32.to_le_bytes());
    payload.extend_from_slice(&2u32.to_le_bytes());
    payload.extend_from_slice(&[1, 0, 2, 0, 5]);
    assert_eq!(
        json(&listed, &payload),
        r#"{"i":[{"x":1},{"x":2}],"end":5}"#
    );
}

#[test]
fn delimited_structs_of_older_writers_are_filled_up() {
    let flat = ros2("/f", "p/msg/Flat", "uint32 a\nuint32 b\nstring c\n");
    let mut payload = vec![0, 9, 0, 0];
    payload.extend_from_slice(&4u32.to_le_bytes());
    payload.extend_from_slice(&6u32.to_le_bytes());
    assert_eq!(json(&flat, &payload), r#"{"a":6,"b":0,"c":""}"#);
}

/// The error of a payload in XCDR2, appendable, that is made of these words.
fn refused(channel: &asof_core::Channel, kind: u8, words: &[u32]) -> String {
    let mut payload = vec![0, kind, 0, 0];
    payload.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    let mut decoder = Decoder::new(channel, &Projection::All, &[]).expect("a schema");
    match decoder.json(&payload) {
        Ok(json) => panic!("{words:?} was read as {json}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn nothing_is_read_past_the_length_that_is_given_for_it() {
    let nested = "uint32 a\nI i\nuint32 b\n===\nMSG: p/I\nuint32 x\nuint64 y\n";
    let nested = ros2("/n", "p/msg/N", nested);
    // The struct within is said to have four bytes and a half of its second number.
    let error = refused(&nested, 9, &[24, 1, 8, 2, 3, 4, 5]);
    assert!(error.contains("reaches past byte 24"), "{error}");
    // A text that is longer than the struct that it is in.
    let text = ros2("/t", "p/msg/T", "I i\nuint32 b\n===\nMSG: p/I\nstring s\n");
    let error = refused(&text, 9, &[20, 6, 8, 0x6161_6161, 0x0061_6161, 7]);
    assert!(error.contains("text reaches past byte 18"), "{error}");
    // More elements than the list has room for.
    let list = "I[] i\nuint32 b\n===\nMSG: p/I\nuint32 x\n";
    let list = ros2("/l", "p/msg/L", list);
    let error = refused(&list, 9, &[24, 12, 2, 4, 1, 4, 2]);
    assert!(error.contains("past byte"), "{error}");
    // A member of four bytes whose type has eight.
    let idl = "@mutable struct M { @id(3) long long a; @id(5) long b; };";
    let mutable = channel("/m", "cdr", "M", "omgidl", idl.as_bytes());
    let error = refused(&mutable, 0x0b, &[16, 2 << 28 | 3, 1, 2 << 28 | 5, 2]);
    assert!(error.contains("past byte"), "{error}");
}

#[test]
fn a_length_far_short_of_the_payload_is_refused() {
    let flat = ros2(
        "/f",
        "p/msg/Flat",
        "uint32 a\nuint32 b\nuint32 c\nuint32 d\n",
    );
    let error = refused(&flat, 9, &[4, 1, 2, 3, 4]);
    assert!(error.contains("12 bytes follow"), "{error}");
    // What a transport pads with is none.
    let mut payload = vec![0, 9, 0, 0];
    payload.extend([8, 1, 2].iter().flat_map(|word: &u32| word.to_le_bytes()));
    payload.extend([0; 4]);
    assert_eq!(json(&flat, &payload), r#"{"a":1,"b":2,"c":0,"d":0}"#);
}

#[test]
fn mutable_members_come_in_any_order_and_unknown_ones_are_skipped() {
    let idl = "@mutable struct M { @id(3) long a; @id(5) @optional string b; @id(9) octet c; };";
    let mutable = channel("/m", "cdr", "M", "omgidl", idl.as_bytes());
    let mut body = Vec::new();
    // c, one byte; then an unknown member of four; then a.
    body.extend_from_slice(&9u32.to_le_bytes());
    body.extend_from_slice(&[8, 0, 0, 0]);
    body.extend_from_slice(&(2u32 << 28 | 0x4d).to_le_bytes());
    body.extend_from_slice(&[1, 1, 1, 1]);
    body.extend_from_slice(&(2u32 << 28 | 3).to_le_bytes());
    body.extend_from_slice(&(-4i32).to_le_bytes());
    let mut payload = vec![0, 0x0b, 0, 0];
    payload.extend_from_slice(&(body.len() as u32).to_le_bytes());
    payload.extend_from_slice(&body);
    assert_eq!(json(&mutable, &payload), r#"{"a":-4,"c":8}"#);
}

#[test]
fn wide_text_is_read_in_every_form_that_writers_use() {
    let wide = ros2("/w", "p/msg/W", "wstring text\nuint8 end\n");
    let text: Vec<u16> = "hé€".encode_utf16().collect();
    let four: Vec<u8> = text
        .iter()
        .flat_map(|unit| u32::from(*unit).to_le_bytes())
        .collect();
    let two: Vec<u8> = text.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    for units in [four, two] {
        let mut body = 3u32.to_le_bytes().to_vec();
        body.extend(units);
        body.push(9);
        assert_eq!(json(&wide, &cdr(&body)), "{\"text\":\"hé€\",\"end\":9}");
    }
}

#[test]
fn floats_print_as_the_shortest_text_that_is_the_same_bits() {
    let floats = ros2("/f", "p/msg/F", "float32 s\nfloat32[3] t\nfloat64 d\n");
    let mut body = 0.1f32.to_le_bytes().to_vec();
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        body.extend_from_slice(&value.to_le_bytes());
    }
    body.extend_from_slice(&1e300f64.to_le_bytes());
    assert_eq!(
        json(&floats, &cdr(&body)),
        r#"{"s":0.1,"t":["NaN","Infinity","-Infinity"],"d":1e300}"#
    );
}

#[test]
fn an_empty_message_is_an_empty_object() {
    let empty = ros2("/e", "std_msgs/msg/Empty", "");
    assert_eq!(json(&empty, &cdr(&[0])), "{}");
}

#[test]
fn json_keeps_its_numbers_and_the_order_of_its_names() {
    let free = asof_core::Channel {
        topic: "/j".into(),
        message_encoding: "json".into(),
        ..Default::default()
    };
    let text = br#" { "b" : 18446744073709551616 , "a": [1.0, 1e2, "x \" y"] } "#;
    assert_eq!(
        json(&free, text),
        r#"{"b":18446744073709551616,"a":[1.0,1e2,"x \" y"]}"#
    );
}

#[test]
fn json_may_have_a_field_of_the_name_that_is_ours() {
    let declared = br#"{"properties":{"_other":{"type":"number"},"in":{"properties":{"_other":{"type":"number"}}}}}"#;
    for schema in [None, Some(&declared[..])] {
        let channel = asof_core::Channel {
            topic: "/j".into(),
            message_encoding: "json".into(),
            schema: schema.map(|data| {
                std::sync::Arc::new(asof_core::Schema {
                    name: "j".into(),
                    encoding: "jsonschema".into(),
                    data: data.into(),
                })
            }),
            ..Default::default()
        };
        let text: &[u8] = br#"{"_other":4.5,"in":{"_other":2}}"#;
        let mut decoder = Decoder::new(&channel, &Projection::All, &[text]).expect("a schema");
        let at = asof_core::Stamp::EPOCH;
        decoder.append(&[(at, at, text.into())], |_, error| panic!("{error}"));
        let batch = decoder.take().expect("Arrow takes it").expect("a row");
        let inner: &arrow_array::StructArray =
            arrow_array::cast::AsArray::as_struct(batch.column_by_name("in").expect("a column"));
        assert!(
            inner
                .column_by_name("_other")
                .is_some_and(|it| it.is_valid(0))
        );
        let other = batch.column_by_name("_other").expect("a column");
        assert!(format!("{other:?}").contains("4.5"), "{other:?}");
    }
}

#[test]
fn only_the_chosen_fields_are_decoded() {
    let mixed = ros2("/m", "p/msg/Mixed", MIXED);
    let payload = cdr(&mixed_body(false, 8));
    let mut decoder =
        Decoder::new(&mixed, &Projection::paths(["b", "e.x"]), &[]).expect("a schema");
    let expected = r#"{"b":-0.5,"e":[{"x":-9223372036854775808}]}"#;
    assert_eq!(decoder.json(&payload).expect("decodes"), expected);
    assert!(Decoder::new(&mixed, &Projection::paths(["b", "nothing"]), &[]).is_err());

    let mut decoder =
        Decoder::new(&mixed, &Projection::any_of(["nothing", "b"]), &[]).expect("a schema");
    assert_eq!(decoder.json(&payload).expect("decodes"), r#"{"b":-0.5}"#);
    assert!(Decoder::new(&mixed, &Projection::any_of(["nothing"]), &[]).is_err());
}

#[test]
fn arrays_of_fixed_length_stay_so_in_arrow() {
    let imu = ros2("/i", "p/msg/Imu", "float64[9] covariance\nuint8[16] id\n");
    let decoder = Decoder::new(&imu, &Projection::All, &[]).expect("a schema");
    let kinds: Vec<String> = decoder
        .schema()
        .fields()
        .iter()
        .map(|field| field.data_type().to_string())
        .collect();
    assert!(kinds[2].starts_with("FixedSizeList(9"), "{kinds:?}");
    assert!(kinds[3].starts_with("FixedSizeBinary(16"), "{kinds:?}");
}

#[test]
fn messages_that_are_shown_and_forgotten_leave_nothing_behind() {
    let bytes = ros2("/b", "p/msg/B", "uint8[] data\nstring[] names\n");
    let mut payload = vec![0, 1, 0, 0];
    payload.extend(1000u32.to_le_bytes());
    payload.extend([7; 1000]);
    payload.extend(1u32.to_le_bytes());
    payload.extend(2u32.to_le_bytes());
    payload.extend(b"a\0");
    let mut decoder = Decoder::new(&bytes, &Projection::All, &[]).expect("a schema");
    decoder.json(&payload).expect("decodes");
    let before = decoder.bytes();
    for _ in 0..100 {
        decoder.json(&payload).expect("decodes");
        decoder.cells(&payload, |_| {}).expect("decodes");
        decoder.json(&payload[..900]).expect_err("it is cut");
    }
    assert_eq!(decoder.bytes(), before);
}
