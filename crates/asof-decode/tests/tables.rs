//! A whole source as tables: what shares one, in which order its rows are, and which types they have.

mod common;

use std::sync::Arc;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampNanosecondType};
use asof_core::{
    Batch, Batches, Channel, Message, Query, Schema, Source, SourceError, Stamp, Summary, Topics,
};
use asof_decode::{Decoder, Layers, Projection, Survey, TableOptions, Tables, TopicBatch};
use common::{cdr, channel, decode, message, recording, ros2};

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

fn open(encoding: &str) -> Channel {
    Channel {
        topic: "/v".to_owned(),
        message_encoding: encoding.to_owned(),
        ..Channel::default()
    }
}

/// The type of the column `value` of messages that have nothing else, and the messages read by it.
fn values(encoding: &str, payloads: &[&[u8]]) -> (String, Vec<String>) {
    let open = open(encoding);
    let messages: Vec<(&Channel, Vec<u8>)> =
        payloads.iter().map(|one| (&open, one.to_vec())).collect();
    let file = recording(&messages);
    let (batches, reports) = decode(&file, Layers::standard());
    assert_eq!(reports[0].failed, 0, "{:?}", reports[0].failures);
    let batch = &batches[0].batch;
    let other = batch.column_by_name("_other").expect("others");
    assert_eq!(
        (other.len(), other.null_count()),
        (payloads.len(), payloads.len())
    );
    let survey = Survey::of(&file, &Query::all()).expect("reads");
    let samples = survey.samples(&open).expect("samples");
    let mut decoder =
        Decoder::new(&open, &Projection::paths(["value"]), &samples).expect("a column");
    let shown = payloads
        .iter()
        .map(|one| decoder.json(one).expect("decodes"));
    let column = batch.column_by_name("value").expect("a column");
    (column.data_type().to_string(), shown.collect())
}

#[test]
fn messages_without_a_schema_that_are_not_objects_have_a_value() {
    for (texts, kind, shown) in [
        (&["1", " -7 "][..], "Int64", &["1", "-7"][..]),
        (&["1", "0.5"], "Float64", &["1.0", "0.5"]),
        (&["true", "null"], "Boolean", &["true", "null"]),
        (&["\"on\"", "\"off\""], "Utf8", &["\"on\"", "\"off\""]),
        (&["[1, 2]", "[]"], "List", &["[1,2]", "[]"]),
        // What no type holds is JSON text.
        (&["1", "\"on\""], "Utf8", &["1", "\"on\""]),
        (&["null", "null"], "Utf8", &["null", "null"]),
        // A field of the same name has the same column.
        (&["1", r#"{"value": 2}"#], "Int64", &["1", "2"]),
    ] {
        let payloads: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let (found, rows) = values("json", &payloads);
        // What is missing is not printed.
        let shown = shown.iter().map(|value| match *value {
            "null" => "{}".to_owned(),
            value => format!(r#"{{"value":{value}}}"#),
        });
        assert_eq!(rows, shown.collect::<Vec<_>>(), "{texts:?}");
        assert!(found.starts_with(kind), "{texts:?}: {found}");
    }
    // 5 and 0.5
    let (_, rows) = values("cbor", &[b"\x05", b"\xf9\x38\x00"]);
    assert_eq!(rows, [r#"{"value":5.0}"#, r#"{"value":0.5}"#]);
}

#[test]
fn a_value_among_objects_is_not_lost() {
    let open = open("json");
    let mut decoder = Decoder::new(&open, &Projection::All, &[br#"{"x":1}"#]).expect("columns");
    for (payload, shown) in [
        (&b" 5 "[..], r#"{"value":5}"#),
        (b"[ 1, \"a b\" ]", r#"{"value":[1,"a b"]}"#),
        (br#"{"x": 2}"#, r#"{"x":2}"#),
    ] {
        assert_eq!(decoder.json(payload).expect("decodes"), shown);
        let at = Stamp::EPOCH;
        decoder.append(&[(at, at, payload.into())], |_, error| panic!("{error}"));
    }
    let rows = decoder.take().expect("Arrow takes it").expect("rows");
    let other = rows.column_by_name("_other").expect("others");
    let other: Vec<Option<&str>> = other.as_string::<i32>().iter().collect();
    assert_eq!(
        other,
        [Some(r#"{"value":5}"#), Some(r#"{"value":[1,"a b"]}"#), None]
    );
    for broken in [&b""[..], b"hello", b"5 6", b"[1"] {
        assert!(decoder.json(broken).is_err());
        let mut failed = 0;
        let at = Stamp::EPOCH;
        decoder.append(&[(at, at, broken.into())], |_, _| failed += 1);
        assert_eq!(failed, 1, "{broken:?}");
    }
}

#[test]
fn a_topic_whose_messages_are_all_broken_has_no_value() {
    let open = open("json");
    let file = recording(&[(&open, b"{\"x".to_vec()), (&open, b"hello".to_vec())]);
    let survey = Survey::of(&file, &Query::all()).expect("reads");
    let samples = survey.samples(&open).expect("samples");
    let decoder = Decoder::new(&open, &Projection::All, &samples).expect("columns");
    assert!(decoder.schema().column_with_name("value").is_none());
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

/// Messages in memory.
struct Memory(Vec<Message>);

impl Source for Memory {
    fn summary(&self) -> Arc<Summary> {
        Arc::new(Summary::empty("memory"))
    }

    fn read(&self, _: &Query) -> Result<Batches, SourceError> {
        let batch: Batch = self.0.iter().cloned().collect();
        Ok(Box::new(std::iter::once(Ok(batch))))
    }

    fn latest_at(&self, _: &Topics, _: Stamp) -> Result<Batch, SourceError> {
        Ok(Batch::default())
    }
}

#[test]
fn tables_beyond_two_million_columns_have_payloads() {
    let number = |topic: &str| ros2(topic, "p/msg/N", "uint32 n\n");
    // A definition counts as a column for each 64 bytes; nothing reads this one.
    let large = |topic: &str, columns: usize| {
        let schema = Schema {
            name: "p/msg/Large".to_owned(),
            encoding: "abacus".to_owned(),
            data: vec![0; columns * 64].into(),
        };
        Channel {
            topic: topic.to_owned(),
            schema: Some(Arc::new(schema)),
            ..open("abacus")
        }
    };
    let layers_with = |columns: usize| {
        let channels = [
            number("/before"),
            large("/large", columns),
            number("/after"),
        ];
        let messages = channels.map(|channel| message(&channel.into(), 0, cdr(&[7, 0, 0, 0])));
        let (_, reports) = decode(&Memory(messages.into()), Layers::standard());
        let last = reports.last().expect("three tables");
        assert_eq!(&*last.assignment.channel.topic, "/after");
        let layers = reports.iter().map(|one| one.assignment.layer.as_deref());
        let layers: Vec<String> = layers.flatten().map(str::to_owned).collect();
        let reasons = last.assignment.declined.iter().map(|(_, reason)| reason);
        (layers, reasons.cloned().collect::<String>())
    };
    let (layers, _) = layers_with(1_900_000);
    assert_eq!(layers, ["reflection", "raw", "reflection"]);
    let (layers, reasons) = layers_with(2_000_000);
    assert_eq!(layers, ["reflection", "raw", "raw"]);
    assert!(reasons.contains("more than 2000000 columns"), "{reasons}");
}
