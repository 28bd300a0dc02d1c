//! One topic as a table that is decoded as it is read.

mod common;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use asof_core::{Source, Stamp, TimeRange};
use asof_decode::{RowsError, TopicOptions, TopicTable};
use common::{cdr, channel, data_folder, recording, ros2};

fn columns(names: &[&str]) -> TopicOptions {
    TopicOptions {
        columns: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..TopicOptions::default()
    }
}

fn rows(source: &dyn Source, topic: &str, options: TopicOptions) -> Vec<RecordBatch> {
    let table = TopicTable::new(source, topic, options).expect("a table");
    let batches: Vec<RecordBatch> = table
        .read(source)
        .expect("reads")
        .map(|batch| batch.expect("a batch"))
        .collect();
    assert!(
        batches
            .iter()
            .all(|batch| batch.schema_ref() == table.schema())
    );
    batches
}

fn points() -> asof_formats::McapFile {
    let goal = ros2(
        "/goal",
        "test/msg/Goal",
        "Point at\nfloat64[] list\n===\nMSG: test/Point\nfloat64 x\nfloat64 y\n",
    );
    let payload = |x: f64, list: &[f64]| {
        let mut body: Vec<u8> = [x, -x].iter().flat_map(|v| v.to_le_bytes()).collect();
        body.extend((list.len() as u32).to_le_bytes());
        if !list.is_empty() {
            body.extend([0; 4]);
        }
        body.extend(list.iter().flat_map(|v| v.to_le_bytes()));
        cdr(&body)
    };
    recording(&[
        (&goal, payload(1.0, &[5.0])),
        (&goal, payload(2.0, &[])),
        (&goal, payload(3.0, &[6.0, 7.0])),
    ])
}

#[test]
fn columns_come_in_the_order_and_by_the_names_that_were_asked_for() {
    let batches = rows(&points(), "/goal", columns(&["at.y", "log_time", "at"]));
    let names: Vec<&str> = batches[0]
        .schema_ref()
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(names, ["at.y", "log_time", "at"]);
    let y = batches[0].column(0).as_primitive::<Float64Type>();
    assert_eq!(y.values(), &[-1.0, -2.0, -3.0]);
    assert_eq!(batches[0].column(2).as_struct().num_columns(), 2);
}

#[test]
fn an_element_that_a_list_does_not_have_is_null() {
    let batches = rows(&points(), "/goal", columns(&["list[0]", "list[1]"]));
    let values = |at: usize| -> Vec<Option<f64>> {
        batches[0]
            .column(at)
            .as_primitive::<Float64Type>()
            .iter()
            .collect()
    };
    assert_eq!(values(0), [Some(5.0), None, Some(6.0)]);
    assert_eq!(values(1), [None, None, Some(7.0)]);
}

#[test]
fn times_alone_decode_nothing_else() {
    let batches = rows(&points(), "/goal", columns(&["publish_time"]));
    assert_eq!((batches[0].num_rows(), batches[0].num_columns()), (3, 1));
    let batches = rows(&points(), "/goal", columns(&[]));
    assert_eq!((batches[0].num_rows(), batches[0].num_columns()), (3, 0));
}

#[test]
fn batches_have_at_most_so_many_rows_and_a_stretch_of_time_only_its_own() {
    let options = TopicOptions {
        rows: 2,
        ..TopicOptions::default()
    };
    let sizes: Vec<usize> = rows(&points(), "/goal", options)
        .iter()
        .map(RecordBatch::num_rows)
        .collect();
    assert_eq!(sizes, [2, 1]);
    let options = TopicOptions {
        range: TimeRange::new(Stamp::from_nanos(1), Stamp::from_nanos(1)),
        ..columns(&["at.x"])
    };
    let batches = rows(&points(), "/goal", options);
    let x = batches[0].column(0).as_primitive::<Float64Type>();
    assert_eq!(x.values(), &[2.0]);
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    let error = |topic: &str, options| {
        let error = TopicTable::new(&points(), topic, options).expect_err("nothing is there");
        error.to_string()
    };
    assert_eq!(
        error("/gaol", TopicOptions::default()),
        "there is no topic /gaol; there are /goal"
    );
    let told = error("/goal", columns(&["at.z"]));
    assert!(told.contains("/goal") && told.contains("x, y"), "{told}");
    // The type has no stamp, so there is no column of that name.
    assert!(error("/goal", columns(&["stamp"])).contains("'stamp'"));
    for path in ["at..x", "at[0]", "list[].x", ""] {
        assert!(
            TopicTable::new(&points(), "/goal", columns(&[path])).is_err(),
            "{path}"
        );
    }
}

#[test]
fn channels_of_one_topic_that_differ_are_one_table_where_the_wanted_columns_do_not() {
    let first = ros2("/t", "test/msg/A", "float64 x\n");
    let second = ros2("/t", "test/msg/B", "float64 x\nfloat64 y\n");
    let body = |values: &[f64]| {
        cdr(&values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<_>>())
    };
    let source = recording(&[(&first, body(&[1.0])), (&second, body(&[2.0, 3.0]))]);
    let error = TopicTable::new(&source, "/t", TopicOptions::default()).expect_err("two types");
    assert!(matches!(error, RowsError::SeveralTables { .. }), "{error}");
    let batches = rows(&source, "/t", columns(&["x"]));
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
}

#[test]
fn json_without_a_schema_is_surveyed_before_its_columns_are_known() {
    let json = channel("/j", "json", "", "", b"");
    let source = recording(&[
        (&json, b"{\"a\":1}".to_vec()),
        (&json, b"{\"a\":0.5,\"b\":2}".to_vec()),
    ]);
    let batches = rows(&source, "/j", columns(&["a"]));
    let a = batches[0].column(0).as_primitive::<Float64Type>();
    assert_eq!(a.values(), &[1.0, 0.5]);
}

#[test]
fn messages_that_cannot_be_decoded_are_counted_and_the_others_are_rows() {
    let goal = ros2("/goal", "test/msg/P", "float64 x\n");
    let source = recording(&[(&goal, cdr(&1f64.to_le_bytes())), (&goal, cdr(&[1, 2]))]);
    let table = TopicTable::new(&source, "/goal", TopicOptions::default()).expect("a table");
    let mut batches = table.read(&source).expect("reads");
    let count: usize = batches
        .by_ref()
        .map(|batch| batch.expect("a batch").num_rows())
        .sum();
    assert_eq!((count, batches.failed()), (1, 1));
}

#[test]
fn every_topic_of_every_recording_has_the_schema_that_was_foretold() {
    let Some(folder) = data_folder() else {
        eprintln!("skipped: there are no recordings");
        return;
    };
    let mut read = 0;
    for entry in std::fs::read_dir(folder.join("recordings")).expect("a folder") {
        let Ok(source) = asof_formats::open(entry.expect("an entry").path()) else {
            continue;
        };
        for topic in source.summary().topics() {
            let Ok(table) = TopicTable::new(&*source, topic, TopicOptions::default()) else {
                continue;
            };
            for batch in table.read(&*source).expect("reads") {
                read += batch.expect(topic).num_rows();
            }
        }
    }
    assert!(read > 10_000, "{read}");
}
