//! What a message may declare without having its bytes, and what one message leaves to the next.

mod common;

use std::fmt::Write as _;

use asof_core::{Channel, Stamp};
use asof_decode::{Decoder, Layers, PayloadError, Projection, SchemaError};
use common::{cdr, channel, decode, recording, ros2};

const AT: Stamp = Stamp::from_nanos(7);

/// Appends payloads as one run, and returns what failed.
fn append(decoder: &mut Decoder, payloads: &[&[u8]]) -> Vec<(usize, PayloadError)> {
    let run: Vec<_> = payloads.iter().map(|p| (AT, AT, (*p).into())).collect();
    let mut failed = Vec::new();
    decoder.append(&run, |at, error| failed.push((at, error)));
    failed
}

fn text(bytes: &[u8]) -> Vec<u8> {
    let len = (bytes.len() as u32).to_le_bytes();
    cdr(&[&len[..], bytes].concat())
}

#[test]
fn a_text_is_the_same_whatever_came_before_it() {
    let channel = ros2("/t", "std_msgs/msg/String", "string data\n");
    let terminated = text(b"abcd\0");
    let bare = text(b"vwxyz");
    let expect = |first: &[u8], second: &[u8], wanted: [&str; 2]| {
        let mut decoder = Decoder::new(&channel, &Projection::All, &[]).expect("a decoder");
        let mut run = vec![first; 20];
        run.extend([second; 20]);
        assert_eq!(append(&mut decoder, &run), []);
        let batch = decoder.take().expect("takes").expect("rows");
        let texts = batch.column_by_name("data").expect("data");
        let texts: &arrow_array::StringArray = arrow_array::cast::AsArray::as_string(texts);
        for (row, text) in texts.iter().enumerate() {
            assert_eq!(text, Some(wanted[row / 20]), "row {row}");
        }
    };
    expect(&terminated, &bare, ["abcd", "vwxyz"]);
    expect(&bare, &terminated, ["vwxyz", "abcd"]);
}

fn ros1(topic: &str, text: &str) -> Channel {
    channel(topic, "ros1", "t/T", "ros1msg", text.as_bytes())
}

const SEPARATOR: &str =
    "================================================================================";

/// A list of messages without fields, which take no bytes.
fn empties() -> Channel {
    ros1("/empties", &format!("t/E[] list\n{SEPARATOR}\nMSG: t/E\n"))
}

#[test]
fn more_elements_than_a_batch_can_count_are_refused_one_by_one() {
    let payload = 65_536u32.to_le_bytes();
    let mut decoder = Decoder::new(&empties(), &Projection::All, &[]).expect("a decoder");
    let failed = append(&mut decoder, &vec![&payload[..]; 60_000]);
    assert_eq!((decoder.rows(), failed.len()), (32_767, 60_000 - 32_767));
    assert!(matches!(failed[0], (32_767, PayloadError::TooLarge { .. })));
    let batch = decoder.take().expect("takes").expect("rows");
    assert_eq!(batch.num_rows(), 32_767);
}

#[test]
fn a_table_is_cut_into_batches_before_its_elements_are_too_many() {
    let channel = empties();
    let payload = 65_536u32.to_le_bytes().to_vec();
    let source = recording(&vec![(&channel, payload); 60_000]);
    let (batches, report) = decode(&source, Layers::standard());
    let rows: usize = batches.iter().map(|batch| batch.batch.num_rows()).sum();
    assert_eq!((rows, report[0].failed), (60_000, 0));
}

#[test]
fn all_lists_of_a_message_share_one_limit_of_elements_without_bytes() {
    let text = format!("t/L[] lists\n{SEPARATOR}\nMSG: t/L\nt/E[] list\n{SEPARATOR}\nMSG: t/E\n");
    let mut decoder = Decoder::new(&ros1("/l", &text), &Projection::All, &[]).expect("a decoder");
    let lists = |count: u32, each: u32| {
        let mut payload = count.to_le_bytes().to_vec();
        (0..count).for_each(|_| payload.extend(each.to_le_bytes()));
        payload
    };
    let (good, bad) = (lists(2, 32_768), lists(2, 32_769));
    let failed = append(&mut decoder, &[&good, &bad, &good]);
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].0, decoder.rows()), (1, 2));
}

/// Arrays of arrays of a message without bytes, this many levels.
fn nested(levels: usize, len: usize) -> String {
    let mut text = format!("uint8 first\nt/L0[{len}] nested\nuint8 last\n");
    for level in 1..levels {
        let inner = level - 1;
        let _ = write!(
            text,
            "{SEPARATOR}\nMSG: t/L{inner}\nt/L{level}[{len}] inner\n"
        );
    }
    text + &format!("{SEPARATOR}\nMSG: t/L{}\n", levels - 1)
}

#[test]
fn the_product_of_arrays_without_bytes_is_limited() {
    for (levels, len) in [(2, 65_536), (6, 4096), (20, 10)] {
        let channel = ros1("/n", &nested(levels, len));
        let error = Decoder::new(&channel, &Projection::All, &[]).err();
        assert!(
            matches!(error, Some(SchemaError::TooLarge { .. })),
            "{error:?}"
        );
        // What is not asked for is passed over at once.
        let projection = Projection::paths(["last"]);
        let mut decoder = Decoder::new(&channel, &projection, &[]).expect("a decoder");
        assert_eq!(decoder.json(&[1, 2]).expect("decodes"), r#"{"last":2}"#);
    }
    let channel = ros1("/n", &nested(2, 4));
    let mut decoder = Decoder::new(&channel, &Projection::All, &[]).expect("a decoder");
    let json = decoder.json(&[1, 2]).expect("decodes");
    assert_eq!(json.matches("{}").count(), 16, "{json}");
}

#[test]
fn elements_of_a_list_cannot_each_have_many_parts_without_bytes() {
    let inner = format!("{SEPARATOR}\nMSG: t/L\nuint8 x\nt/E[65536] e\n{SEPARATOR}\nMSG: t/E\n");
    let channel = ros1("/l", &format!("t/L[] list\n{inner}"));
    let error = Decoder::new(&channel, &Projection::All, &[]).err();
    assert!(
        matches!(error, Some(SchemaError::TooLarge { .. })),
        "{error:?}"
    );
}

#[test]
fn one_payload_that_is_too_large_costs_itself_alone() {
    let channel = ros2("/t", "std_msgs/msg/String", "string data\n");
    let good = text(b"abcd\0");
    let short = cdr(&[9, 0, 0, 0]);
    // Nothing of it is touched.
    let large = vec![0; (1 << 30) + 1];
    let mut decoder = Decoder::new(&channel, &Projection::All, &[]).expect("a decoder");
    let failed = append(&mut decoder, &[&good, &large, &good, &short, &large, &good]);
    let places: Vec<usize> = failed.iter().map(|(at, _)| *at).collect();
    assert_eq!(places, [1, 3, 4]);
    assert_eq!(decoder.rows(), 3);
    assert!(matches!(failed[0].1, PayloadError::TooLarge { .. }));
    assert!(matches!(failed[1].1, PayloadError::Short { .. }));
    let batch = decoder.take().expect("takes").expect("rows");
    assert_eq!(batch.num_rows(), 3);
}
