//! The layers: which takes what, and what files say about themselves.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampNanosecondType, UInt64Type};
use arrow_array::{Array, RecordBatch};
use asof_core::{
    AttachmentEntry, Batch, Batches, Channel, FileParts, HiddenRecords, MetadataEntry, Query,
    Source, SourceError, Stamp, Summary, Topics,
};
use asof_decode::{
    Claim, Decoder, FileLayer, FileTable, Layers, MessageLayer, Projection, TableOptions,
};
use asof_formats::McapFile;
use bytes::Bytes;
use common::{cdr, decode, recording, ros2};

/// One message, two sets of text of the same name, one attachment.
fn with_extras() -> Vec<u8> {
    let mut writer = mcap::WriteOptions::new()
        .create(std::io::Cursor::new(Vec::new()))
        .expect("a writer");
    let id = writer
        .add_schema("std_msgs/msg/Int32", "ros2msg", b"int32 data\n")
        .expect("a schema");
    let id = writer
        .add_channel(id, "/n", "cdr", &BTreeMap::new())
        .expect("a channel");
    let header = mcap::records::MessageHeader {
        channel_id: id,
        sequence: 1,
        log_time: 5,
        publish_time: 5,
    };
    writer
        .write_to_known_channel(&header, &cdr(&7i32.to_le_bytes()))
        .expect("writes");
    for place in ["hall", "yard"] {
        writer
            .write_metadata(&mcap::records::Metadata {
                name: "where".into(),
                metadata: BTreeMap::from([("place".into(), place.into())]),
            })
            .expect("writes");
    }
    writer
        .attach(&mcap::Attachment {
            log_time: 3,
            create_time: 2,
            name: "notes.txt".into(),
            media_type: "text/plain".into(),
            data: b"it rained".into(),
        })
        .expect("writes");
    writer.finish().expect("finishes");
    writer.into_inner().into_inner()
}

fn tables(file: &McapFile, layers: &Layers) -> BTreeMap<String, RecordBatch> {
    let tables = layers.file_tables(file, file.parts());
    tables
        .map(|table| table.map(|(name, table)| (name.to_owned(), table)))
        .collect::<Result<_, _>>()
        .expect("tables")
}

#[test]
fn a_file_says_what_is_in_it_in_tables() {
    let file = McapFile::from_bytes("test", with_extras()).expect("opens");
    let tables = tables(&file, &Layers::standard());
    let names: Vec<&str> = tables.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "attachments",
            "channels",
            "metadata",
            "recording",
            "statistics"
        ]
    );
    let start = tables["recording"].column_by_name("start").expect("start");
    assert_eq!(start.as_primitive::<TimestampNanosecondType>().value(0), 5);
    let channels = &tables["channels"];
    let schema = channels.column_by_name("schema_data").expect("schemas");
    assert_eq!(schema.as_binary::<i32>().value(0), b"int32 data\n");
    let messages = tables["statistics"]
        .column_by_name("messages")
        .expect("messages");
    assert_eq!(messages.as_primitive::<UInt64Type>().value(0), 1);
}

#[test]
fn attachments_come_with_their_contents() {
    let file = McapFile::from_bytes("test", with_extras()).expect("opens");
    let table = &tables(&file, &Layers::standard())["attachments"];
    let data = table.column_by_name("data").expect("data");
    assert_eq!(data.as_binary::<i64>().value(0), b"it rained");
    assert!(table.column_by_name("error").expect("errors").is_null(0));
}

/// Attachments of these sizes, listed by a source that has nothing else.
struct Listed(Vec<u64>);

impl Source for Listed {
    fn summary(&self) -> Arc<Summary> {
        let entry = |(at, &size): (usize, &u64)| AttachmentEntry {
            name: format!("{at}.bin"),
            media_type: String::new(),
            log_time: None,
            create_time: None,
            size,
            offset: 0,
        };
        Arc::new(Summary {
            attachments: self.0.iter().enumerate().map(entry).collect(),
            ..Summary::empty("none")
        })
    }

    fn read(&self, _: &Query) -> Result<Batches, SourceError> {
        Ok(Box::new(std::iter::empty()))
    }

    fn latest_at(&self, _: &Topics, _: Stamp) -> Result<Batch, SourceError> {
        Ok(Batch::default())
    }
}

impl FileParts for Listed {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        Ok(vec![7; entry.size as usize].into())
    }

    fn metadata(&self, _: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        Ok(BTreeMap::new())
    }

    fn hidden(&self, _: &Topics) -> Result<HiddenRecords, SourceError> {
        Ok(Box::new(std::iter::empty()))
    }
}

#[test]
fn attachments_come_a_few_at_a_time_and_what_is_too_large_is_told() {
    let source = Listed(vec![300_000, 300_000, 5_000_000, 10, 3 << 30, 20]);
    let layers = Layers::standard().only("attachments");
    let batches: Vec<RecordBatch> = layers
        .file_tables(&source, Some(&source))
        .map(|batch| batch.expect("a batch").1)
        .collect();
    let rows: Vec<usize> = batches.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(rows, [2, 1, 1, 1, 1]);
    assert!(
        batches
            .iter()
            .all(|batch| batch.schema() == batches[0].schema())
    );
    let data = batches[1].column_by_name("data").expect("data");
    assert_eq!(data.as_binary::<i64>().value(0).len(), 5_000_000);
    let large = &batches[3];
    assert!(large.column_by_name("data").expect("data").is_null(0));
    let error = large.column_by_name("error").expect("errors");
    assert!(
        error
            .as_string::<i32>()
            .value(0)
            .contains("4.bin has 3221225472 bytes")
    );
}

#[test]
fn metadata_of_one_name_is_all_kept() {
    let file = McapFile::from_bytes("test", with_extras()).expect("opens");
    let table = &tables(&file, &Layers::standard())["metadata"];
    let entries = table.column_by_name("entries").expect("entries").as_map();
    let places: Vec<String> = (0..2)
        .map(|row| {
            let entry = entries.value(row);
            entry.column(1).as_string::<i32>().value(0).to_owned()
        })
        .collect();
    assert_eq!(places, ["hall", "yard"]);
}

#[test]
fn an_attachment_that_cannot_be_read_costs_its_contents_alone() {
    let file = McapFile::from_bytes("test", with_extras()).expect("opens");
    let layers = Layers::standard().only("attachments");
    let table = layers.file_tables(&file, None).next().expect("a table");
    let (_, table) = table.expect("a table");
    assert!(table.column_by_name("data").expect("data").is_null(0));
    let error = table.column_by_name("error").expect("errors");
    assert!(error.as_string::<i32>().value(0).contains("notes.txt"));
}

#[test]
fn a_file_layer_is_switched_off_by_name_and_taken_alone() {
    let standard = Layers::standard();
    assert!(
        !standard
            .clone()
            .without("attachments")
            .file_names()
            .contains(&"attachments")
    );
    let alone = standard.only("metadata");
    assert_eq!(alone.file_names(), ["metadata"]);
    assert!(alone.names().is_empty());
}

/// Takes one topic, and reads its bytes as the raw layer would.
struct Mine;

impl MessageLayer for Mine {
    fn name(&self) -> &'static str {
        "mine"
    }

    fn claim(&self, channel: &Channel, projection: &Projection, samples: &[&[u8]]) -> Claim {
        if channel.topic != "/mine" {
            return Claim::Declines("it is not mine".to_owned());
        }
        match Decoder::new(channel, projection, samples) {
            Ok(decoder) => Claim::Takes {
                reason: "it is mine".to_owned(),
                table: Box::new(decoder),
            },
            Err(error) => Claim::Declines(error.to_string()),
        }
    }
}

#[test]
fn a_layer_of_ones_own_takes_what_it_wants_before_the_others() {
    let mine = ros2("/mine", "std_msgs/msg/Int32", "int32 data\n");
    let other = ros2("/other", "std_msgs/msg/Int32", "int32 data\n");
    let file = recording(&[
        (&mine, cdr(&1i32.to_le_bytes())),
        (&other, cdr(&2i32.to_le_bytes())),
    ]);
    let layers = Layers::standard().with_first(Arc::new(Mine));
    let plan = layers.plan(&file.summary());
    assert_eq!(plan[0].layer.as_deref(), Some("mine"));
    assert_eq!(plan[0].reason, "it is mine");
    assert_eq!(plan[1].layer.as_deref(), Some("semantic"));
    assert_eq!(
        plan[1].declined,
        [("mine".into(), "it is not mine".to_owned())]
    );
    let (batches, report) = decode(&file, layers);
    assert_eq!(batches.len(), 2);
    assert_eq!(report[0].assignment.layer.as_deref(), Some("mine"));
}

/// How many channels there are, as a table.
struct Count;

impl FileLayer for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn table<'a>(&'a self, source: &'a dyn Source, _: Option<&'a dyn FileParts>) -> FileTable<'a> {
        let count = source.summary().channels.len() as u64;
        let column: arrow_array::ArrayRef = Arc::new(arrow_array::UInt64Array::from(vec![count]));
        Box::new(
            RecordBatch::try_from_iter([("count", column)])
                .map(Ok)
                .into_iter(),
        )
    }
}

#[test]
fn a_file_layer_can_be_added() {
    let file = McapFile::from_bytes("test", with_extras()).expect("opens");
    let layers = Layers::standard().with_file(Arc::new(Count));
    assert_eq!(tables(&file, &layers)["count"].num_rows(), 1);
}

#[test]
fn layers_are_asked_in_the_order_that_is_given() {
    let channel = ros2("/n", "std_msgs/msg/Int32", "int32 data\n").into();
    let layers = Layers::standard().in_order(&["reflection"]);
    assert_eq!(layers.names(), ["reflection", "semantic", "raw"]);
    let (assignment, _) = layers.assign(&channel, &Projection::All, &[]);
    assert_eq!(assignment.layer.as_deref(), Some("reflection"));
}

#[test]
fn cbor_is_decoded_without_a_schema() {
    let channel = Channel {
        topic: "/c".into(),
        message_encoding: "cbor".into(),
        ..Channel::default()
    };
    // {"a": 1.5, "b": [2, -3], "c": h'0102', "d": true}
    let payload = b"\xa4\x61a\xf9\x3e\x00\x61b\x82\x02\x22\x61c\x42\x01\x02\x61d\xf5";
    let file = recording(&[(&channel, payload.to_vec())]);
    let (batches, report) = decode(&file, Layers::standard());
    assert_eq!(report[0].failed, 0, "{:?}", report[0].failures);
    assert_eq!(&*batches[0].layer, "reflection");
    let mut decoder = Decoder::new(&channel, &Projection::All, &[payload]).expect("a shape");
    assert_eq!(
        decoder.json(payload).expect("decodes"),
        r#"{"a":1.5,"b":[2,-3],"c":"AQI=","d":true}"#
    );
}

#[test]
fn times_are_chosen_by_their_names() {
    let channel = ros2("/n", "std_msgs/msg/Int32", "int32 data\n");
    let file = recording(&[(&channel, cdr(&1i32.to_le_bytes()))]);
    let options = TableOptions {
        timelines: vec![asof_decode::Timeline::LogTime],
        ..TableOptions::default()
    };
    let mut tables = asof_decode::Tables::read(&file, &Query::all(), options).expect("reads");
    let batch = tables.next().expect("a batch").expect("a batch").batch;
    let names: Vec<_> = batch
        .schema()
        .fields()
        .iter()
        .map(|f| f.name().clone())
        .collect();
    assert_eq!(names, ["log_time", "value"]);
}

#[test]
fn byte_fields_stay_in_their_chunk_or_come_alone_as_is_asked() {
    let large = ros2("/large", "p/msg/Large", "uint8[] data\n");
    let bytes = |len: u32| {
        let body = [&len.to_le_bytes()[..], &vec![7; len as usize]].concat();
        cdr(&body)
    };
    let file = recording(&[(&large, bytes(100_000))]);
    let held = |shares_buffers| {
        let options = TableOptions {
            shares_buffers,
            ..TableOptions::default()
        };
        let mut tables = asof_decode::Tables::read(&file, &Query::all(), options).expect("reads");
        let batch = tables.next().expect("a batch").expect("a batch").batch;
        let data = batch.column_by_name("data").expect("data").as_binary_view();
        assert!(data.value(0) == vec![7; 100_000]);
        data.data_buffers()[0].len()
    };
    assert_eq!(held(false), 100_000);
    assert_eq!(held(true), 0, "nothing is copied");
}
