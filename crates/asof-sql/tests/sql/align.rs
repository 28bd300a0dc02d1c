//! SQL matches rows by computed times and keys as the judge of all users of the as-of engine does; NULL matches nothing. The users
//! beside each other are in `crates/asof-cli/tests/same/alignment.rs`.

#[path = "../../../asof-align/tests/judge/mod.rs"]
mod judge;

use std::io::{Seek, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::common::random;
use asof_align::{Pick, Rule};
use asof_core::{Channel, Message, Schema, Source, Stamp};
use asof_formats::{McapWriter, McapWriterOptions};
use asof_sql::arrow::array::{Array, AsArray, RecordBatch};
use asof_sql::arrow::compute::{cast, concat_batches};
use asof_sql::arrow::datatypes::{DataType, Float64Type, Int64Type};
use asof_sql::{Database, SqlOptions};
use judge::{Row, oracle};

/// A row: its time and its key, if it has them.
type Open = (Option<i64>, Option<u8>);

/// Rows in order of arrival: late, equal, missing and negative times, two keys and none.
fn rows(seed: u64, count: i64) -> Vec<Open> {
    let mut random = random(seed);
    let mut row = || {
        let time = (random(12) > 0).then(|| random(120) - 60);
        let key = (random(10) > 0).then(|| u8::try_from(random(2)).expect("a key"));
        (time, key)
    };
    (0..count).map(|_| row()).collect()
}

/// What is measured at a time. It is the same for equal rows, whose order a query does not say.
fn value((time, key): Row) -> f64 {
    f64::from(i32::try_from(time * 7 % 11).expect("small")) + f64::from(key) * 100.0
}

fn write<W: Write + Seek>(writer: &mut McapWriter<W>, topic: &str, rows: &[Open]) {
    let schema = Schema {
        name: "test.Row".to_owned(),
        encoding: "jsonschema".to_owned(),
        data: r#"{"type": "object", "properties": {"n": {"type": "integer"}, "t": {"type": "integer"}, "k": {"type": "integer"}, "v": {"type": "number"}}}"#.into(),
    };
    let channel = Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "json".to_owned(),
        schema: Some(schema.into()),
        ..Channel::default()
    });
    for (n, (time, key)) in rows.iter().enumerate() {
        let number = |number: Option<i64>| number.map_or("null".to_owned(), |one| one.to_string());
        let v = time.zip(*key).map_or(0.0, value);
        let text = format!(
            r#"{{"n": {n}, "t": {}, "k": {}, "v": {v:?}}}"#,
            number(*time),
            number(key.map(i64::from)),
        );
        let at = Stamp::from_nanos(1_000 + n as i64);
        let message = Message {
            channel: Arc::clone(&channel),
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload: text.into(),
        };
        writer.write(&message).expect("written");
    }
}

fn database(folder: &std::path::Path, left: &[Open], right: &[Open]) -> Database {
    let path = folder.join("run.mcap");
    let mut writer = McapWriter::create(&path, McapWriterOptions::default()).expect("a file");
    // A row of its own, so that a side without rows is a table too.
    write(&mut writer, "/a", &[left, &[(None, None)]].concat());
    write(&mut writer, "/b", &[right, &[(None, None)]].concat());
    writer.finish().expect("finished");
    let recording: Arc<dyn Source> = Arc::from(asof_formats::open(&path).expect("opens"));
    Database::new(vec![("run".to_owned(), recording)], SqlOptions::default()).expect("a database")
}

fn answer(database: &Database, sql: &str) -> RecordBatch {
    let query = database
        .query(sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let schema = query.schema();
    let batches: Result<Vec<_>, _> = query.collect();
    concat_batches(&schema, &batches.expect(sql)).expect("one batch")
}

/// A condition in SQL.
fn condition(rule: Rule) -> String {
    let within = rule
        .tolerance()
        .map(|most| format!("'{}ns'", most.as_nanos()));
    let bounded = |comparison: &str, difference: &str| match &within {
        None => comparison.to_owned(),
        Some(within) => format!("{comparison} AND {difference} <= {within}"),
    };
    match rule.pick() {
        Pick::Last => bounded("a.at >= b.at", "a.at - b.at"),
        Pick::Before => bounded("a.at > b.at", "a.at - b.at"),
        Pick::Next => bounded("a.at <= b.at", "b.at - a.at"),
        Pick::After => bounded("a.at < b.at", "b.at - a.at"),
        _ => match &within {
            None => "nearest(a.at, b.at)".to_owned(),
            Some(within) => format!("nearest(a.at, b.at, {within})"),
        },
    }
}

#[test]
fn a_join_with_keys_finds_what_the_oracle_finds() {
    for (seed, sizes) in [
        (1, (40, 60)),
        (2, (60, 30)),
        (3, (30, 0)),
        (4, (0, 30)),
        (5, (50, 50)),
    ] {
        let (left, right) = (rows(seed, sizes.0), rows(seed + 100, sizes.1));
        let folder = tempfile::tempdir().expect("a folder");
        let database = database(folder.path(), &left, &right);
        let known: Vec<Row> = right.iter().filter_map(|row| row.0.zip(row.1)).collect();
        for pick in Pick::ALL
            .into_iter()
            .filter(|pick| *pick != Pick::Interpolate)
        {
            for tolerance in [None, Some(0), Some(9)] {
                let rule = Rule::new(pick);
                let rule = tolerance.map_or(rule, |most| rule.within(Duration::from_nanos(most)));
                let table = |name: &str| {
                    format!("(SELECT n, k, v, t, to_timestamp_nanos(t) AS at FROM {name}) {name}")
                };
                let sql = format!(
                    "SELECT a.n, b.t, b.v FROM {} ASOF JOIN {} MATCH_CONDITION ({}) ON a.k = b.k ORDER BY a.n",
                    table("a"),
                    table("b"),
                    condition(rule)
                );
                let found = answer(&database, &sql);
                assert_eq!(found.num_rows(), left.len() + 1, "{sql}");
                let times = cast(found.column(1), &DataType::Int64).expect("numbers");
                let times = times.as_primitive::<Int64Type>();
                let values = cast(found.column(2), &DataType::Float64).expect("numbers");
                let values = values.as_primitive::<Float64Type>();
                for (n, row) in left.iter().enumerate() {
                    let wanted = row.0.zip(row.1);
                    let wanted = wanted.and_then(|row| oracle(&known, row, rule));
                    let wanted = wanted.map(|(place, _)| known[place]);
                    let found = times.is_valid(n).then(|| (times.value(n), values.value(n)));
                    let wanted = wanted.map(|row| (row.0, value(row)));
                    assert_eq!(found, wanted, "{sql}, row {n}: {row:?}, seed {seed}");
                }
            }
        }
    }
}
