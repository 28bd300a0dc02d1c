//! A whole source as tables: what shares one, in which order its rows are, and which types they have.

mod common;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampNanosecondType};
use asof_core::{Channel, Query};
use asof_decode::{Layers, TableOptions, Tables, TopicBatch};
use common::{cdr, channel, decode, recording, ros2};

/// The channel as another publisher has it.
fn of_publisher(channel: &Channel, name: &str) -> Channel {
    let mut channel = channel.clone();
    channel
        .metadata
        .insert("callerid".to_owned(), name.to_owned());
    channel
}

fn log_times(batches: &[TopicBatch]) -> Vec<i64> {
    let times = batches.iter().flat_map(|batch| {
        let times = batch.batch.column_by_name("log_time").expect("times");
        times.as_primitive::<TimestampNanosecondType>().values()
    });
    times.copied().collect()
}

#[test]
fn rows_of_a_topic_with_several_publishers_are_in_order_of_time() {
    let plain = ros2("/n", "p/msg/N", "uint32 n\n");
    let (one, two) = (of_publisher(&plain, "/one"), of_publisher(&plain, "/two"));
    // The first has many rows and fills batches; the second has few, which must not come after all of them.
    let messages: Vec<(&Channel, Vec<u8>)> = (0..900u32)
        .map(|at| {
            let from = if at % 97 == 5 { &two } else { &one };
            (from, cdr(&at.to_le_bytes()))
        })
        .collect();
    let source = recording(&messages);
    for threads in [1, 4] {
        let options = TableOptions {
            rows: 50,
            threads,
            ..TableOptions::default()
        };
        let mut tables = Tables::read(&source, &Query::all(), options).expect("reads");
        let batches: Vec<TopicBatch> = tables.by_ref().map(|batch| batch.expect("rows")).collect();
        assert_eq!(log_times(&batches), (0..900).collect::<Vec<i64>>());
        let report = tables.report();
        assert_eq!(report.len(), 1);
        assert_eq!(report[0].messages, 900);
    }
}

#[test]
fn channels_of_a_topic_whose_schemas_differ_have_a_table_each() {
    // Both tables have the same columns, but what they are read from lies differently.
    let small = "uint32 n\n";
    let large = "# another text\nuint32 n\n";
    let (one, two) = (ros2("/n", "p/msg/N", small), ros2("/n", "p/msg/N", large));
    let messages: Vec<(&Channel, Vec<u8>)> = (0..20u32)
        .map(|at| {
            (
                if at % 2 == 0 { &one } else { &two },
                cdr(&at.to_le_bytes()),
            )
        })
        .collect();
    let (batches, reports) = decode(&recording(&messages), Layers::standard());
    assert_eq!((batches.len(), reports.len()), (2, 2));
    for batch in &batches {
        assert!(log_times(std::slice::from_ref(batch)).is_sorted());
    }
}

#[test]
fn what_has_no_schema_has_columns_that_hold_every_message() {
    let open = [
        channel("/a", "json", "a", "jsonschema", b"{}"),
        Channel {
            topic: "/a".to_owned(),
            message_encoding: "json".to_owned(),
            ..Channel::default()
        },
    ];
    for open in &open {
        let texts = [
            r#"{"x":0,"n":1,"list":[]}"#,
            r#"{"x":0.5,"n":2,"list":[1]}"#,
            r#"{"x":-3,"n":3,"list":[1.25],"late":"here"}"#,
        ];
        let messages = texts.iter().map(|text| (open, text.as_bytes().to_vec()));
        let messages: Vec<(&Channel, Vec<u8>)> = messages.collect();
        let (batches, reports) = decode(&recording(&messages), Layers::standard());
        assert_eq!(reports[0].failed, 0);
        let batch = &batches[0].batch;
        let x = batch.column_by_name("x").expect("x");
        assert_eq!(
            x.as_primitive::<Float64Type>().values()[..],
            [0.0, 0.5, -3.0]
        );
        let n = batch.column_by_name("n").expect("n");
        assert_eq!(n.as_primitive::<Int64Type>().values()[..], [1, 2, 3]);
        let lists = batch.column_by_name("list").expect("list");
        let last = lists.as_list::<i32>().value(2);
        assert_eq!(last.as_primitive::<Float64Type>().values()[..], [1.25]);
        let late = batch.column_by_name("late").expect("late");
        assert_eq!(late.null_count(), 2);
        // Nothing is left over.
        let other = batch.column_by_name("_other").expect("others");
        assert_eq!(other.null_count(), 3);
    }
}

#[test]
fn cbor_without_a_schema_widens_as_well() {
    let open = Channel {
        topic: "/c".to_owned(),
        message_encoding: "cbor".to_owned(),
        ..Channel::default()
    };
    // {"x": 1} and {"x": 0.5}
    let whole = vec![0xa1, 0x61, b'x', 0x01];
    let half = vec![0xa1, 0x61, b'x', 0xf9, 0x38, 0x00];
    let (batches, _) = decode(
        &recording(&[(&open, whole), (&open, half)]),
        Layers::standard(),
    );
    let x = batches[0].batch.column_by_name("x").expect("x");
    assert_eq!(x.as_primitive::<Float64Type>().values()[..], [1.0, 0.5]);
}
