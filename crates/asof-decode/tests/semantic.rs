//! What a message means has the same numbers as its own fields.

mod common;

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, TimestampNanosecondType};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use asof_core::Source;
use asof_decode::Layers;
use asof_formats::{McapFile, McapWriter, McapWriterOptions};
use common::{channel, data_folder, decode, recording};

/// Every number in an array, in order, as bits; text and bytes by their length.
fn numbers(array: &ArrayRef, out: &mut Vec<u64>) {
    match array.data_type() {
        DataType::Float64 => out.extend(
            array
                .as_primitive::<Float64Type>()
                .values()
                .iter()
                .map(|v| v.to_bits()),
        ),
        DataType::Float32 => out.extend(
            array
                .as_primitive::<Float32Type>()
                .values()
                .iter()
                .map(|v| u64::from(v.to_bits())),
        ),
        DataType::Struct(_) => array
            .as_struct()
            .columns()
            .iter()
            .for_each(|inner| numbers(inner, out)),
        DataType::List(_) => numbers(array.as_list::<i32>().values(), out),
        DataType::FixedSizeList(..) => numbers(array.as_fixed_size_list().values(), out),
        _ => {}
    }
}

fn floats_by_topic(source: &dyn Source, layers: Layers) -> BTreeMap<String, (usize, Vec<u64>)> {
    let mut all: BTreeMap<String, (usize, Vec<u64>)> = BTreeMap::new();
    for batch in decode(source, layers).0 {
        let entry = all.entry(batch.channel.topic.clone()).or_default();
        entry.0 += usize::from(&*batch.layer == "semantic");
        for column in batch.batch.columns() {
            numbers(column, &mut entry.1);
        }
    }
    // A vector's components lie side by side in one, apart in the other.
    for (_, numbers) in all.values_mut() {
        numbers.sort_unstable();
    }
    all
}

fn assert_same(source: &dyn Source, name: &str) -> usize {
    let semantic = floats_by_topic(source, Layers::standard());
    let reflected = floats_by_topic(source, Layers::standard().without("semantic"));
    let mut compared = 0;
    for (topic, (is_semantic, numbers)) in &semantic {
        if *is_semantic > 0 {
            let (_, expected) = &reflected[topic];
            assert_eq!(numbers.len(), expected.len(), "{name} {topic}");
            assert_eq!(numbers, expected, "{name} {topic}");
            compared += 1;
        }
    }
    compared
}

fn demo(encoding: asof_demo::DemoEncoding) -> McapFile {
    let demo = asof_demo::Demo::new(asof_demo::DemoOptions {
        encoding,
        duration: std::time::Duration::from_secs(2),
        ..Default::default()
    });
    let mut writer = McapWriter::new(
        std::io::Cursor::new(Vec::new()),
        McapWriterOptions::default(),
    )
    .expect("a writer");
    for message in demo.messages() {
        writer.write(&message).expect("writes");
    }
    let bytes = writer.finish().expect("finishes").into_inner();
    McapFile::from_bytes("demo", bytes).expect("opens")
}

#[test]
fn the_demo_robot_says_the_same_in_both_layers_and_every_encoding() {
    for encoding in [
        asof_demo::DemoEncoding::Cdr,
        asof_demo::DemoEncoding::Protobuf,
        asof_demo::DemoEncoding::Json,
    ] {
        let compared = assert_same(&demo(encoding), &format!("{encoding:?}"));
        assert!(compared >= 4, "{encoding:?}: {compared}");
    }
}

#[test]
fn every_type_of_the_recordings_says_the_same_in_both_layers() {
    let Some(folder) = data_folder() else {
        eprintln!("skipped: there are no recordings; set ASOF_TEST_DATA");
        return;
    };
    let file = asof_formats::open(folder.join("recordings/types94.mcap")).expect("opens");
    let compared = assert_same(&file, "types94");
    assert!(compared > 40, "{compared}");
}

#[test]
fn each_transform_is_a_row_with_its_own_stamp_in_double_precision() {
    let file = demo(asof_demo::DemoEncoding::Cdr);
    let (batches, _) = decode(&file, Layers::standard());
    let transforms = batches
        .iter()
        .find(|b| b.channel.topic == "/tf")
        .expect("/tf");
    let batch = &transforms.batch;
    let stamps = batch.column_by_name("stamp").expect("stamp");
    assert!(
        stamps
            .as_primitive::<TimestampNanosecondType>()
            .null_count()
            == 0
    );
    let translation = batch.column_by_name("translation").expect("translation");
    assert!(
        translation.data_type().to_string().contains("Float64"),
        "{}",
        translation.data_type()
    );
    let messages = file
        .summary()
        .channels
        .iter()
        .find(|c| c.channel.topic == "/tf")
        .and_then(|c| c.messages);
    assert!(batch.num_rows() as u64 >= messages.unwrap_or(0));
}

/// The numbers of a column of vectors, in order.
fn components(source: &dyn Source, column: &str) -> Vec<f64> {
    let (batches, _) = decode(source, Layers::standard());
    let batch = &batches.first().expect("a batch").batch;
    let column = batch.column_by_name(column).expect("the column");
    let vectors = column.as_fixed_size_list().values();
    vectors.as_primitive::<Float64Type>().values().to_vec()
}

#[test]
fn a_vectors_components_come_in_the_usual_order_whatever_the_schemas_is() {
    let number = |name: &str| format!("\"{name}\":{{\"type\":\"number\"}}");
    let object = |names: &[&str]| {
        let fields: Vec<String> = names.iter().map(|name| number(name)).collect();
        format!(
            "{{\"type\":\"object\",\"properties\":{{{}}}}}",
            fields.join(",")
        )
    };
    let schema = format!(
        "{{\"type\":\"object\",\"properties\":{{\"frame_id\":{{\"type\":\"string\"}},\"pose\":{{\"type\":\"object\",\
         \"properties\":{{\"position\":{},\"orientation\":{}}}}}}}}}",
        object(&["z", "y", "x"]),
        object(&["w", "x", "y", "z"])
    );
    let payload = br#"{"frame_id":"map","pose":{"position":{"z":3,"y":2,"x":1},"orientation":{"w":0.8,"x":0.1,"y":0.2,"z":0.3}}}"#;
    for language in ["jsonschema", ""] {
        let text = if language.is_empty() { "" } else { &schema };
        let pose = channel(
            "/pose",
            "json",
            "foxglove.PoseInFrame",
            language,
            text.as_bytes(),
        );
        let file = recording(&[(&pose, payload.to_vec())]);
        assert_eq!(
            components(&file, "orientation"),
            [0.1, 0.2, 0.3, 0.8],
            "{language:?}"
        );
        assert_eq!(
            components(&file, "position"),
            [1.0, 2.0, 3.0],
            "{language:?}"
        );
    }
}
