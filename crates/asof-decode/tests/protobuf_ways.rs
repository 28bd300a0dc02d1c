//! Protobuf is read the quick way or the thorough way: with the same result.

mod common;

use std::sync::Arc;

use asof_core::{Channel, Stamp};
use asof_decode::{Decoder, Layers, Projection, Table};
use asof_demo::{Demo, DemoEncoding, DemoOptions};

/// Some messages of every protobuf channel of the demo.
fn samples() -> Vec<(Arc<Channel>, Vec<Vec<u8>>)> {
    let demo = Demo::new(DemoOptions {
        encoding: DemoEncoding::Protobuf,
        duration: std::time::Duration::from_millis(600),
        ..DemoOptions::default()
    });
    let mut all: Vec<(Arc<Channel>, Vec<Vec<u8>>)> = Vec::new();
    for message in demo.messages() {
        let known = all
            .iter()
            .position(|(channel, _)| Arc::ptr_eq(channel, &message.channel));
        let place = known.unwrap_or_else(|| {
            all.push((Arc::clone(&message.channel), Vec::new()));
            all.len() - 1
        });
        all[place].1.push(message.payload.to_vec());
    }
    assert!(all.len() > 5);
    all
}

/// The same message, with a field behind it that its schema does not know.
fn with_unknown_field(payload: &[u8]) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    bytes.extend([0xf8, 0xff, 0x03, 0x01]);
    bytes
}

fn rows(table: &mut dyn Table, payloads: &[Vec<u8>]) -> arrow_array::RecordBatch {
    let at = Stamp::from_nanos(5);
    for payload in payloads {
        table.append(&[(at, at, payload.as_slice().into())], &mut |_, error| {
            panic!("{error}")
        });
    }
    table.take().expect("a batch").expect("rows")
}

#[test]
fn an_unknown_field_changes_nothing_in_any_layer() {
    for (channel, payloads) in samples() {
        let thorough: Vec<Vec<u8>> = payloads.iter().map(|p| with_unknown_field(p)).collect();
        for layers in [Layers::standard(), Layers::standard().only("reflection")] {
            let table = || layers.assign(&channel, &Projection::All, &[]).1;
            let (mut one, mut other) = (table().expect("a table"), table().expect("a table"));
            assert_eq!(
                rows(&mut *one, &payloads),
                rows(&mut *other, &thorough),
                "{}",
                channel.topic
            );
        }
    }
}

#[test]
fn a_field_that_comes_twice_counts_the_second_time() {
    let (channel, payloads) = samples()
        .into_iter()
        .find(|(channel, _)| channel.type_name() == "foxglove.PoseInFrame")
        .or_else(|| samples().into_iter().next())
        .expect("a channel");
    let mut decoder = Decoder::new(&channel, &Projection::All, &[]).expect("a decoder");
    let once = decoder.json(&payloads[0]).expect("decodes");
    // The whole message twice: every field of it takes the place of the first, and lists are joined.
    let twice = [payloads[0].clone(), payloads[0].clone()].concat();
    let twice = decoder.json(&twice).expect("decodes");
    let (once, twice): (serde_json::Value, serde_json::Value) = (
        serde_json::from_str(&once).expect("JSON"),
        serde_json::from_str(&twice).expect("JSON"),
    );
    for (name, value) in once.as_object().expect("an object") {
        if !value.is_array() {
            assert_eq!(&twice[name], value, "{name}");
        }
    }
}
