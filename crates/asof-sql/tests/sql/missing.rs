//! Queries about what is not there: unknown transforms, null structs, other recordings, and conditions that are refused.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{self, START};
use asof_core::{Batch, Batches, Channel, Message, Query, Source, SourceError, Stamp, Topics};
use asof_formats::{McapWriter, McapWriterOptions};
use asof_sql::arrow::array::{ArrayRef, AsArray, RecordBatch};
use asof_sql::arrow::compute::concat_batches;
use asof_sql::arrow::datatypes::{Float64Type, Int64Type};
use asof_sql::arrow::util::pretty::pretty_format_batches;
use asof_sql::{Database, SqlOptions};

fn write(path: &Path, messages: impl IntoIterator<Item = Message>) {
    let options = McapWriterOptions::default();
    let mut writer = McapWriter::create(path, options).expect("a file");
    for message in messages {
        writer.write(&message).expect("written");
    }
    writer.finish().expect("finished");
}

fn opened(path: &Path) -> Arc<dyn Source> {
    Arc::from(asof_formats::open(path).expect("opens"))
}

fn demo(folder: &Path, name: &str, seed: u64) -> (String, Arc<dyn Source>) {
    let path = folder.join(name);
    let demo = asof_demo::Demo::new(asof_demo::DemoOptions {
        duration: Duration::from_secs(3),
        seed,
        ..asof_demo::DemoOptions::default()
    });
    write(&path, demo.messages());
    (name.to_owned(), opened(&path))
}

fn rows(database: &Database, sql: &str) -> RecordBatch {
    let query = database.query(sql);
    let query = query.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let schema = query.schema();
    let batches: Result<Vec<_>, _> = query.collect();
    let batches = batches.unwrap_or_else(|error| panic!("{sql}: {error}"));
    concat_batches(&schema, &batches).expect("one batch")
}

fn ints(array: &ArrayRef) -> Vec<Option<i64>> {
    array.as_primitive::<Int64Type>().iter().collect()
}

fn floats(array: &ArrayRef) -> Vec<Option<f64>> {
    array.as_primitive::<Float64Type>().iter().collect()
}

#[test]
fn the_fields_of_what_is_unknown_are_null_in_every_function() {
    let folder = tempfile::tempdir().expect("a folder");
    let named = vec![demo(folder.path(), "one", 1)];
    let database = Database::new(named, SqlOptions::default()).expect("a database");
    for (what, paths) in [
        (
            "tf('map', 'nowhere', stamp)",
            ["['translation']['x']", "['rotation']['w']"],
        ),
        (
            "transform_point('map', 'nowhere', stamp, pose.pose.position)",
            ["['x']", "['z']"],
        ),
        (
            "transform_pose('map', 'nowhere', stamp, pose.pose)",
            ["['position']['x']", "['orientation']['w']"],
        ),
        // A pose that is not there, in frames that are.
        (
            "transform_pose('odom', 'base_link', stamp, CASE WHEN sequence < 0 THEN pose.pose END)",
            ["['position']['x']", "['orientation']['w']"],
        ),
        (
            "transform_point('odom', 'base_link', stamp, CASE WHEN sequence < 0 THEN pose.pose.position END)",
            ["['x']", "['y']"],
        ),
        // A stamp that is not there.
        (
            "tf('odom', 'base_link', CASE WHEN sequence < 0 THEN stamp END)",
            ["['translation']['x']", "['rotation']['w']"],
        ),
    ] {
        for path in paths {
            let sql = format!(
                "SELECT count(*), count({what}), count({what}{path}), count(*) FILTER (WHERE {what}{path} = 0) FROM odom"
            );
            let found = rows(&database, &sql);
            let found: Vec<_> = found.columns().iter().map(|one| ints(one)[0]).collect();
            assert!(found[0] > Some(0), "{sql}");
            assert_eq!(found[1..], [Some(0); 3], "{sql}");
        }
    }
    let known = rows(
        &database,
        "SELECT count(tf('odom', 'base_link', stamp)), count(tf('odom', 'base_link', stamp)['translation']['x']) FROM odom",
    );
    assert!(ints(known.column(0))[0] > Some(0), "some are known");
    assert_eq!(ints(known.column(0)), ints(known.column(1)));
}

/// A recording of JSON texts without a schema, a microsecond apart.
fn of_texts(folder: &Path, texts: &[String]) -> Database {
    let path = folder.join("run.mcap");
    let channel = Arc::new(Channel {
        topic: "/pose".to_owned(),
        message_encoding: "json".to_owned(),
        ..Channel::default()
    });
    let messages = texts.iter().zip(0..).map(|(text, n)| Message {
        channel: Arc::clone(&channel),
        log_time: Stamp::from_nanos(START + n),
        publish_time: Stamp::from_nanos(START + n),
        sequence: n as u32,
        payload: text.as_bytes().to_vec().into(),
    });
    write(&path, messages);
    let named = vec![("run.mcap".to_owned(), opened(&path))];
    Database::new(named, SqlOptions::default()).expect("a database")
}

#[test]
fn a_field_has_the_type_of_all_its_values_where_there_is_no_schema() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut texts = vec![r#"{"x": 0}"#.to_owned(); 30_000];
    texts[29_998] = r#"{"x": 0.5, "late": 7}"#.to_owned();
    texts[29_999] = "not JSON".to_owned();
    let database = of_texts(folder.path(), &texts);
    let all = rows(
        &database,
        "SELECT CAST(sum(x) * 2 AS BIGINT), sum(late), count(x) FROM pose",
    );
    assert_eq!(ints(all.column(0)), [Some(1)]);
    assert_eq!(ints(all.column(1)), [Some(7)]);
    assert_eq!(ints(all.column(2)), [Some(29_999)]);
}

#[test]
fn the_fields_of_a_null_struct_of_a_message_are_null() {
    let folder = tempfile::tempdir().expect("a folder");
    let texts = [
        r#"{"pose": {"at": {"x": 1.5}, "names": ["a"], "who": "a"}, "n": 1}"#,
        r#"{"pose": null, "n": 2}"#,
        r#"{"n": 3}"#,
        r#"{"pose": {"at": null}, "n": 4}"#,
    ]
    .map(str::to_owned);
    let database = of_texts(folder.path(), &texts);
    for (field, wanted) in [
        ("pose.at.x", 1),
        ("pose.who", 1),
        ("pose.names", 1),
        ("n", 4),
    ] {
        let sql = format!("SELECT count({field}), count(*) FROM pose");
        let found = rows(&database, &sql);
        assert_eq!(ints(found.column(0)), [Some(wanted)], "{field}");
        assert_eq!(ints(found.column(1)), [Some(4)], "{field}");
    }
}

#[test]
fn a_condition_that_is_not_supported_is_refused_with_its_place() {
    let one: &[common::Row] = &[(0, 0, 0), (100, 100, 1)];
    let fixture = common::database(&[("/a", one), ("/b", one)], 2);
    for (good, bad) in [
        (
            "a.stamp >= b.stamp AND ",
            "a.stamp - b.stamp >= INTERVAL '20 ms'",
        ),
        (
            "a.stamp >= b.stamp AND ",
            "a.stamp - b.stamp > INTERVAL '1 hour'",
        ),
        (
            "a.stamp >= b.stamp AND ",
            "a.stamp - b.stamp < INTERVAL '20 ms'",
        ),
        (
            "a.stamp >= b.stamp AND ",
            "b.stamp - a.stamp <= INTERVAL '20 ms'",
        ),
        (
            "a.stamp >= b.stamp AND ",
            "a.log_time - b.stamp <= INTERVAL '20 ms'",
        ),
        ("a.stamp >= b.stamp AND ", "a.log_time > b.log_time"),
        ("", "a.stamp = b.stamp"),
        (
            "nearest(a.stamp, b.stamp) AND ",
            "a.stamp - b.stamp <= INTERVAL '1 ms'",
        ),
        ("nearest(a.stamp, b.stamp) AND ", "a.stamp >= b.stamp"),
        (
            "a.stamp >= b.stamp AND a.stamp - b.stamp <= INTERVAL '1 ms' AND ",
            "a.stamp - b.stamp <= INTERVAL '2 ms'",
        ),
        ("", "a.stamp - b.stamp <= INTERVAL '1 ms'"),
        ("", "a.stamp >= b.stamp OR a.stamp < b.stamp"),
    ] {
        let start = r#"SELECT a.n, b.n AS m FROM "/a" a ASOF JOIN "/b" b MATCH_CONDITION ("#;
        let sql = format!("{start}{good}{bad})");
        let error = fixture.database.query(&sql).err();
        let error = error.unwrap_or_else(|| panic!("{good}{bad} is accepted"));
        let place = format!("(line 1, column {})", (start.len() + good.len() + 1));
        assert!(
            error.to_string().contains(&place),
            "{place}, {bad}: {error}"
        );
    }
    for condition in [
        "a.stamp >= b.stamp AND a.stamp - b.stamp <= INTERVAL '20 ms'",
        "b.stamp <= a.stamp AND (a.stamp - b.stamp) <= INTERVAL '20 ms'",
        "a.stamp <= b.stamp AND INTERVAL '20 ms' >= b.stamp - a.stamp",
        "nearest(a.stamp, b.stamp, INTERVAL '20 ms')",
    ] {
        let sql = format!(
            r#"SELECT a.n, b.n AS m FROM "/a" a ASOF JOIN "/b" b MATCH_CONDITION ({condition}) ORDER BY 1"#
        );
        assert_eq!(
            ints(fixture.rows(&sql).column(1)),
            [Some(0), Some(1)],
            "{condition}"
        );
    }
}

#[test]
fn a_transform_is_that_of_the_recording_of_its_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = vec![demo(folder.path(), "one", 1), demo(folder.path(), "two", 2)];
    let both = Database::new(all.clone(), SqlOptions::default()).expect("a database");
    let x = "tf('odom', 'base_link', o.stamp)['translation']['x']";
    let mut differ = Vec::new();
    for (name, recording) in all {
        let named = vec![(name.clone(), recording)];
        let alone = Database::new(named, SqlOptions::default()).expect("a database");
        let sql =
            format!("SELECT {x} AS x FROM odom o WHERE recording = '{name}' ORDER BY log_time");
        let wanted = floats(rows(&alone, &sql).column(0));
        assert_eq!(floats(rows(&both, &sql).column(0)), wanted);
        // In a filter, below a join, and grouped.
        let sql = format!("SELECT count(*) FROM odom o WHERE {x} > 0.5 AND recording = '{name}'");
        assert_eq!(
            ints(rows(&both, &sql).column(0)),
            ints(rows(&alone, &sql).column(0))
        );
        let sql = format!(
            "SELECT max({x}) FROM odom o ASOF JOIN imu i MATCH_CONDITION (o.stamp >= i.stamp) WHERE o.recording = '{name}'"
        );
        assert_eq!(
            floats(rows(&both, &sql).column(0)),
            floats(rows(&alone, &sql).column(0))
        );
        differ.push(wanted);
    }
    assert_ne!(differ[0], differ[1], "the recordings differ");
    let header = rows(
        &both,
        "SELECT tf('odom', 'base_link', stamp) FROM odom LIMIT 1",
    )
    .schema();
    assert!(!header.field(0).name().contains("recording"), "{header}");
    // A time without a row has no recording.
    for (time, why) in [
        ("1970-01-01T00:00:01Z", "no recording contains"),
        ("+1s", "several"),
    ] {
        let sql = format!(
            "SELECT tf('odom', 'base_link', max(log_time)) FROM odom WHERE log_time <= '{time}'"
        );
        let sql = if why == "several" {
            sql
        } else {
            format!("SELECT tf('odom', 'base_link', TIMESTAMP '{time}')")
        };
        let answer = both
            .query(&sql)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>);
        assert!(answer.expect_err(&sql).to_string().contains(why), "{sql}");
    }
}

#[test]
fn what_a_function_is_given_that_is_null_gives_null() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = vec![demo(folder.path(), "one", 1), demo(folder.path(), "two", 2)];
    let database = Database::new(all, SqlOptions::default()).expect("a database");
    let point = "pose.pose.position";
    for call in [
        "tf(NULL, 'base_link', stamp)".to_owned(),
        "tf('odom', NULL, stamp)".to_owned(),
        "tf('odom', 'base_link', NULL)".to_owned(),
        // No recording is not the one that contains the stamp.
        "tf('odom', 'base_link', stamp, NULL)".to_owned(),
        "tf_error('odom', 'nowhere', stamp, NULL)".to_owned(),
        "transform_point('odom', 'base_link', stamp, NULL)".to_owned(),
        "transform_pose('odom', 'base_link', stamp, NULL)".to_owned(),
        format!("transform_point('odom', 'base_link', stamp, {point}, NULL)"),
        "transform_point('odom', 'base_link', stamp, named_struct('x', 1, 'y', NULL, 'z', 1))"
            .to_owned(),
        format!(
            "transform_pose('odom', 'base_link', stamp, named_struct('position', {point}, 'orientation', NULL))"
        ),
    ] {
        let sql = format!("SELECT count(*), count({call}) FROM odom WHERE recording = 'one'");
        let found = rows(&database, &sql);
        assert!(ints(found.column(0))[0] > Some(0), "{sql}");
        assert_eq!(ints(found.column(1)), [Some(0)], "{sql}");
    }
    // The row of an outer join that has no match: its transform is not that of another recording.
    let sql = "SELECT count(o.stamp), count(tf('odom', 'base_link', o.stamp, n.recording)) FROM odom o \
        ASOF JOIN imu n MATCH_CONDITION (o.log_time <= n.log_time AND n.log_time - o.log_time <= '0s') \
        WHERE n.recording IS NULL";
    let found = rows(&database, sql);
    assert!(ints(found.column(0))[0] > Some(0), "{sql}");
    assert_eq!(ints(found.column(1)), [Some(0)], "{sql}");
}

#[test]
fn a_text_that_is_no_time_is_refused_and_not_null() {
    let folder = tempfile::tempdir().expect("a folder");
    let named = vec![demo(folder.path(), "one", 1)];
    let database = Database::new(named, SqlOptions::default()).expect("a database");
    let error = database.collect("SELECT tf('odom', 'base_link', 'noon') FROM odom");
    let error = error.expect_err("no time").to_string();
    assert!(error.contains("noon"), "{error}");
    let found = rows(&database, "SELECT count(tf('odom', 'base_link', '+1s'))");
    assert_eq!(ints(found.column(0)), [Some(1)]);
}

#[test]
fn a_query_of_any_depth_is_answered_or_refused() {
    let fixture = common::database(&[("/a", &[(0, 0, 0)])], 2);
    let found = fixture.rows(&format!("SELECT 1{} AS n", " + 1".repeat(300)));
    assert_eq!(ints(found.column(0)), [Some(301)]);
    let either = |count: usize| {
        let each: Vec<String> = (0..count).map(|n| format!("n = {n}")).collect();
        format!("SELECT n FROM a WHERE {}", each.join(" OR "))
    };
    assert_eq!(ints(fixture.rows(&either(100)).column(0)), [Some(0)]);
    for (sql, why) in [
        (format!("SELECT 1{}", "+1".repeat(200_000)), "nested"),
        (
            format!("SELECT CAST(1{} AS INT)", "+1".repeat(100_000)),
            "nested",
        ),
        (
            format!("EXPLAIN SELECT -1{}", "*2".repeat(100_000)),
            "nested",
        ),
        (either(20_000), "nested"),
        (
            format!("SELECT {}1{}", "(".repeat(9_000), ")".repeat(9_000)),
            "limit",
        ),
        (
            format!("SELECT 1{}", "\nUNION ALL SELECT 1".repeat(20_000)),
            "(line 1001, column 11)",
        ),
        (
            format!("SELECT 1 FROM a{}", ",\na".repeat(20_000)),
            "(line 1000, column 1)",
        ),
        (format!("SELECT '{}'", "x".repeat(1 << 20)), "bytes"),
    ] {
        let error = fixture.database.query(&sql).err().expect("it is refused");
        let error = error.to_string();
        assert!(error.contains(why) && error.len() < 400, "{error}");
    }
}

#[test]
fn what_rows_cannot_be_sorted_by_is_told_with_its_place_and_a_way_on() {
    let all: Vec<common::Row> = (0..40).map(|n| (n, n, n)).collect();
    let fixture = common::database(&[("/a", &all)], 2);
    for (sql, place) in [
        (
            "SELECT n FROM a ORDER BY abs(n) > 3 LIMIT 1",
            "line 1, column 17",
        ),
        (
            "SELECT n\nFROM a ORDER BY unnest([2, 1])",
            "line 2, column 17",
        ),
        (
            "SELECT n FROM a WHERE unnest([2, 1]) = n",
            "line 1, column 23",
        ),
    ] {
        let error = fixture.database.collect(sql).expect_err("there is no plan");
        let error = error.to_string();
        assert!(
            error.contains("name in SELECT") || error.contains("name there"),
            "{error}"
        );
        assert!(error.contains(place) && error.len() < 200, "{error}");
    }
    for sql in [
        "SELECT n, abs(n) > 3 AS far FROM a ORDER BY far LIMIT 1",
        "SELECT n, unnest([2, 1]) AS u FROM a ORDER BY u LIMIT 1",
    ] {
        assert_eq!(ints(fixture.rows(sql).column(0)).len(), 1, "{sql}");
    }
}

#[test]
fn recordings_of_one_name_are_two() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, one) = demo(folder.path(), "one", 1);
    let (_, two) = demo(folder.path(), "two", 2);
    let named = |name: &str, recording: &Arc<dyn Source>| (name.to_owned(), Arc::clone(recording));
    let same = vec![named("run", &one), named("run", &two)];
    let same = Database::new(same, SqlOptions::default()).expect("a database");
    let other = vec![named("run", &one), named("run'", &two)];
    let other = Database::new(other, SqlOptions::default()).expect("a database");
    let sql = "SELECT o.recording, max(tf('odom', 'base_link', o.stamp)['translation']['x']), min(tf('odom', 'base_link', o.stamp)['translation']['y']), count(i.stamp) \
        FROM odom o ASOF JOIN imu i MATCH_CONDITION (o.stamp >= i.stamp) GROUP BY 1 ORDER BY 1";
    let (found, wanted) = (rows(&same, sql), rows(&other, sql));
    assert_eq!(found, wanted);
    assert_eq!(found.num_rows(), 2);
}

#[test]
fn a_relative_time_is_that_of_the_recording_of_its_row_wherever_it_stands() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut all = Vec::new();
    for (name, first) in [("early", 0), ("late", 86_400_000)] {
        let path = folder.path().join(name);
        let times = |period: i64| (0..30).map(move |n| (first + n * period, first + n * period, n));
        let (a, b): (Vec<_>, Vec<_>) = (times(100).collect(), times(50).collect());
        common::write(&path, &[("/a", &a), ("/b", &b)], 4);
        all.push((name.to_owned(), opened(&path)));
    }
    let both = Database::new(all.clone(), SqlOptions::default()).expect("a database");
    let alone = all.into_iter().map(|one| {
        let database = Database::new(vec![one], SqlOptions::default());
        database.expect("a database")
    });
    let alone: Vec<Database> = alone.collect();
    for (from, wanted) in [
        ("a WHERE log_time >= '+1s'", 20),
        ("a WHERE (log_time) >= ('+1s')", 20),
        ("a WHERE '+1s' <= a.log_time AND stamp < '-1s'", 9),
        ("a WHERE log_time IN ('+1s', '+2s', '+2.05s')", 2),
        ("a WHERE log_time NOT IN ('+1s', '+2s')", 28),
        ("a WHERE log_time BETWEEN '+1s' AND '+2s'", 11),
        ("a WHERE log_time NOT BETWEEN '+1s' AND '+2s'", 19),
        ("a WHERE log_time IS NOT DISTINCT FROM '+1s'", 1),
        ("a WHERE log_time IS DISTINCT FROM '+1s'", 29),
        (
            "a WHERE CASE log_time WHEN '+1s' THEN true WHEN '+2s' THEN true ELSE false END",
            2,
        ),
        (
            "a WHERE CASE WHEN log_time < '+1s' THEN n < 5 ELSE n > 28 END",
            6,
        ),
        (
            "(SELECT recording, log_time FROM a) q WHERE log_time >= '+1s'",
            20,
        ),
        ("resample(a, 10) WHERE time >= '+1s'", 20),
        ("resample(a, b, 10) r WHERE r.time >= '+1s'", 20),
        ("resample(a, b, 10) WHERE time BETWEEN '+1s' AND '+2s'", 11),
        ("resample(a, 10) WHERE log_time >= '+1s'", 20),
        (
            "window_join(a, b, '-1ms', '0s') WHERE a.log_time >= '+1s'",
            20,
        ),
        (
            "a ASOF JOIN b MATCH_CONDITION (a.log_time >= b.log_time) WHERE b.log_time >= '+1s'",
            20,
        ),
        (
            "a ASOF JOIN b MATCH_CONDITION (a.log_time >= b.log_time) USING (recording) WHERE a.log_time >= '+1s'",
            20,
        ),
        ("a WHERE tf_error('x', 'y', '+1s') IS NOT NULL", 30),
    ] {
        let sql = format!("SELECT count(*) FROM {from}");
        assert_eq!(
            ints(rows(&both, &sql).column(0)),
            [Some(2 * wanted)],
            "{sql}"
        );
        for one in &alone {
            assert_eq!(ints(rows(one, &sql).column(0)), [Some(wanted)], "{sql}");
        }
    }
    // Without a recording there is no zero, and that is told.
    let error = both
        .collect("SELECT tf('x', 'y', '+1s')")
        .expect_err("no recording");
    assert!(error.to_string().contains("recording"), "{error}");
}

#[test]
fn a_key_of_using_is_one_column_wherever_it_stands() {
    let one: Vec<common::Row> = (0..20).map(|n| (n, n, n)).collect();
    let fixture = common::database(&[("/a", &one), ("/b", &one)], 2);
    let join = "ASOF JOIN b MATCH_CONDITION (a.stamp >= b.stamp) USING (recording, n)";
    for (sql, wanted) in [
        (
            format!("SELECT a.stamp, n FROM a {join} ORDER BY recording, n DESC LIMIT 1"),
            19,
        ),
        (
            format!("SELECT recording, n FROM a {join} WHERE n > 3 ORDER BY n LIMIT 1"),
            4,
        ),
        // A name that the query gives is meant first.
        (
            format!("SELECT recording, -n AS n FROM a {join} ORDER BY n LIMIT 1"),
            -19,
        ),
        // The columns of a subquery are its own.
        (
            format!(
                "SELECT recording, n FROM (SELECT recording, stamp, n FROM a WHERE recording = 'run.mcap' AND n > 2) a {join} \
                WHERE recording IN (SELECT recording FROM b WHERE n < 5) ORDER BY n LIMIT 1"
            ),
            3,
        ),
        (
            format!(
                "SELECT recording, max(n) FROM a {join} GROUP BY recording HAVING max(n) > 1 ORDER BY recording"
            ),
            19,
        ),
    ] {
        assert_eq!(ints(fixture.rows(&sql).column(1)), [Some(wanted)], "{sql}");
    }
}

#[test]
fn what_people_write_first_works() {
    let one: Vec<common::Row> = (0..3000).map(|n| (n, n, n)).collect();
    let other: Vec<common::Row> = (0..300).map(|n| (n * 10, n * 10, n)).collect();
    let fixture = common::database(&[("/a", &one), ("/b", &other)], 3);
    let found = fixture.rows(r#"SELECT CAST(log_time AS BIGINT) FROM "/a" ORDER BY log_time"#);
    let wanted: Vec<_> = (0..3000).map(|n| Some(START + n * common::MILLI)).collect();
    assert_eq!(ints(found.column(0)), wanted);
    // A limit without an order has the first rows in time.
    for (sql, first) in [
        (r#"SELECT n FROM "/a" LIMIT 5"#, 0),
        (r#"SELECT n FROM "/a" LIMIT 5 OFFSET 7"#, 7),
        (r#"SELECT n FROM "/a" WHERE n >= 1234 LIMIT 5"#, 1234),
        (
            r#"SELECT n FROM (SELECT n, header FROM "/a") WHERE n > 17 LIMIT 5"#,
            18,
        ),
    ] {
        for _ in 0..5 {
            let found = ints(fixture.rows(sql).column(0));
            assert_eq!(
                found,
                (first..first + 5).map(Some).collect::<Vec<_>>(),
                "{sql}"
            );
        }
    }
    let found = fixture.rows(r#"SELECT n FROM "/a" WHERE log_time IN ('+1s', '+2s') ORDER BY n"#);
    assert_eq!(ints(found.column(0)), [Some(1000), Some(2000)]);
    let found = fixture.rows(
        r#"SELECT recording, n, count(*) AS c FROM (SELECT recording, b.n FROM "/a" a ASOF JOIN "/b" b MATCH_CONDITION (a.stamp >= b.stamp) USING (recording)) GROUP BY recording, n HAVING n < 2 ORDER BY n"#,
    );
    assert_eq!(ints(found.column(2)), [Some(10), Some(10)]);
    let found = fixture.rows(
        r#"SELECT * FROM "/a" a ASOF JOIN "/b" b MATCH_CONDITION (a.stamp >= b.stamp) USING (recording, n) WHERE recording = 'run.mcap' ORDER BY n LIMIT 2"#,
    );
    let names = found.schema();
    let names = names
        .fields()
        .iter()
        .filter(|field| field.name() == "n" || field.name() == "recording");
    assert_eq!(
        names.count(),
        2,
        "{}",
        pretty_format_batches(&[found]).expect("text")
    );
    let found = fixture.rows(
        "SELECT pair[1].n, pair[2].n AS m FROM (SELECT make_array(named_struct('n', n), named_struct('n', 2)) AS pair FROM a LIMIT 1)",
    );
    assert_eq!(found.schema().field(0).name(), "pair[1].n");
    assert_eq!(
        (ints(found.column(0)), ints(found.column(1))),
        (vec![Some(0)], vec![Some(2)])
    );
    let found = fixture.rows(r#"SELECT header.frame_id, a.n FROM "/a" a LIMIT 1"#);
    let names: Vec<_> = found
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    assert_eq!(names, ["header.frame_id", "n"]);
}

/// A recording that is another one than its catalogue describes.
struct Changed(Arc<dyn Source>);

impl asof_core::SourceLayer for Changed {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.0
    }

    fn read(&self, _: &Query) -> Result<Batches, SourceError> {
        Err(asof_core::SourceLayer::verify(self).expect_err("it has changed"))
    }

    fn latest_at(&self, _: &Topics, _: Stamp) -> Result<Batch, SourceError> {
        Err(asof_core::SourceLayer::verify(self).expect_err("it has changed"))
    }

    fn verify(&self) -> Result<(), SourceError> {
        Err(SourceError::Unreadable {
            place: "b.mcap".to_owned(),
            reason: "it has changed".to_owned(),
        })
    }
}

/// A recording that changes after the first look at it.
struct Changing(Arc<dyn Source>, AtomicBool);

impl asof_core::SourceLayer for Changing {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.0
    }

    fn read(&self, _: &Query) -> Result<Batches, SourceError> {
        Err(asof_core::SourceLayer::verify(self).expect_err("it has changed"))
    }

    fn latest_at(&self, _: &Topics, _: Stamp) -> Result<Batch, SourceError> {
        Err(asof_core::SourceLayer::verify(self).expect_err("it has changed"))
    }

    fn verify(&self) -> Result<(), SourceError> {
        if self.1.swap(true, Ordering::Relaxed) {
            Source::verify(&Changed(Arc::clone(&self.0)))
        } else {
            Ok(())
        }
    }
}

#[test]
fn a_recording_that_changes_while_others_are_read_is_left_out_and_told() {
    let folder = tempfile::tempdir().expect("a folder");
    for sql in [
        r#"SELECT count(*) FROM "/n" WHERE n >= 0"#,
        r#"SELECT n FROM "/n" WHERE n >= 0 LIMIT 3"#,
        r#"SELECT count(*) FROM "/n" a ASOF JOIN "/n" b MATCH_CONDITION (a.stamp >= b.stamp)"#,
    ] {
        let mut named = Vec::new();
        for name in ["a.mcap", "b.mcap"] {
            let path = folder.path().join(name);
            common::write(&path, &[("/n", &[(0, 0, 1)])], 4);
            named.push((name.to_owned(), opened(&path)));
        }
        named[1].1 = Arc::new(Changing(Arc::clone(&named[1].1), AtomicBool::default()));
        let database = Database::new(named, SqlOptions::default()).expect("a database");
        assert_eq!(ints(rows(&database, sql).column(0)), [Some(1)], "{sql}");
        let told = database.left_out();
        assert!(told["b.mcap"].contains("it has changed"), "{sql}: {told:?}");
    }
}

#[test]
fn a_recording_that_has_changed_is_left_out_and_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut named = Vec::new();
    for name in ["a.mcap", "b.mcap", "c.mcap"] {
        let path = folder.path().join(name);
        let (one, three): (&[common::Row], &[common::Row]) =
            (&[(0, 0, 0)], &[(0, 0, 0), (1, 1, 1), (2, 2, 2)]);
        let topic = if name == "c.mcap" { "/other" } else { "/n" };
        common::write(
            &path,
            &[(topic, if name == "a.mcap" { one } else { three })],
            4,
        );
        named.push((name.to_owned(), opened(&path)));
    }
    named[1].1 = Arc::new(Changed(Arc::clone(&named[1].1)));
    let database = Database::new(named, SqlOptions::default()).expect("a database");
    rows(&database, "SELECT count(*) FROM other");
    assert!(database.left_out().is_empty(), "it has no such topic");
    assert_eq!(
        database.recordings_used().into_keys().collect::<Vec<_>>(),
        ["c.mcap"]
    );
    for sql in [
        r#"SELECT count(*) FROM "/n""#,
        r#"SELECT count(n) FROM "/n""#,
        r#"SELECT count(*) FROM "/n" WHERE n >= 0"#,
        "SELECT count(*) FROM at('+1s') WHERE topic = '/n'",
        r#"SELECT count(*) FROM "/n" a ASOF JOIN "/n" b MATCH_CONDITION (a.stamp >= b.stamp)"#,
    ] {
        assert_eq!(ints(rows(&database, sql).column(0)), [Some(1)], "{sql}");
        assert!(
            database.left_out()["b.mcap"].contains("it has changed"),
            "{sql}"
        );
    }
}
