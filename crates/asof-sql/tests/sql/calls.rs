//! Calls in `FROM`: windows, grids of instants, points; and what is not read for an answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, Fixture, MILLI, Row, START, database, topic};
use asof_core::{Query, Source};
use asof_decode::{Decoders, Projection};
use asof_formats::{McapWriter, McapWriterOptions};
use asof_sql::arrow::array::{ArrayRef, AsArray, RecordBatch};
use asof_sql::arrow::datatypes::{Float64Type, Int64Type, TimestampNanosecondType};
use asof_sql::{Database, SqlError, SqlOptions};

fn integers(array: &ArrayRef) -> Vec<Option<i64>> {
    array.as_primitive::<Int64Type>().iter().collect()
}

fn floats(array: &ArrayRef) -> Vec<Option<f64>> {
    array.as_primitive::<Float64Type>().iter().collect()
}

fn times(array: &ArrayRef) -> Vec<Option<i64>> {
    let times = array.as_primitive::<TimestampNanosecondType>();
    times.iter().collect()
}

/// For each left number, all right numbers within its window.
fn windows(
    left: &[Row],
    right: &[Row],
    time: fn(&Row) -> i64,
    (from, to): (i64, i64),
) -> BTreeMap<i64, Vec<i64>> {
    let window = |row: &Row| {
        let at = time(row);
        let within = right
            .iter()
            .filter(|other| (at + from..=at + to).contains(&time(other)));
        let mut found: Vec<i64> = within.map(|other| other.2).collect();
        found.sort_unstable();
        (row.2, found)
    };
    left.iter().map(window).collect()
}

fn found_windows(rows: &RecordBatch) -> BTreeMap<i64, Vec<i64>> {
    let mut found: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (left, right) in integers(rows.column(0))
        .iter()
        .zip(integers(rows.column(1)))
    {
        let window = found.entry(left.expect("a number")).or_default();
        window.extend(right);
    }
    for window in found.values_mut() {
        window.sort_unstable();
    }
    found
}

#[test]
fn a_window_has_all_that_lies_in_it_and_a_row_without_any_stays() {
    let left = topic(21, 300, 40, 30, false);
    let right = topic(22, 2000, 5, 90, false);
    let fixture = database(&[("/a", &left), ("/b", &right)], 3);
    for (from, to) in [(-500, 0), (-20, 20), (0, 0), (3, 70), (-100_000, 100_000)] {
        for (name, time) in [
            ("log_time", (|row| row.0) as fn(&Row) -> i64),
            ("stamp", |row| row.1),
        ] {
            let sql = format!(
                "SELECT a.n, b.n AS m FROM window_join(a, b, '{from}ms', '{to}ms', '{name}')"
            );
            let wanted = windows(&left, &right, time, (from, to));
            assert_eq!(found_windows(&fixture.rows(&sql)), wanted, "{sql}");
        }
    }
    let lonely = fixture.rows("SELECT count(*), count(b.n) FROM window_join(a, b, '1h', '2h')");
    assert_eq!(integers(lonely.column(0)), [Some(300)]);
    assert_eq!(integers(lonely.column(1)), [Some(0)]);
}

#[test]
fn the_sides_of_a_window_have_names() {
    let left = topic(23, 50, 40, 3, true);
    let fixture = database(&[("/a", &left), ("/b", &left)], 2);
    let by_name = "SELECT b.n, avg(w.n) AS m FROM window_join(b => \"/a\", \"/b\", '-500ms', '0s') w GROUP BY 1 ORDER BY 1";
    assert_eq!(fixture.rows(by_name).num_rows(), 50);
    let quoted = "SELECT \"/a\".n, count(\"/b\".n) AS m FROM window_join('/a', '/b', INTERVAL '-500 ms', '0s') GROUP BY 1";
    assert_eq!(fixture.rows(quoted).num_rows(), 50);
    let itself = "SELECT count(*) FROM window_join(x => a, y => a, '0s', '0s') WHERE x.n = y.n";
    assert_eq!(integers(fixture.rows(itself).column(0)), [Some(50)]);
    let error = |sql: &str| fixture.database.collect(sql).expect_err(sql).to_string();
    assert!(error("SELECT 1 FROM window_join(a, a, '0s', '1s')").contains("another name"));
    assert!(error("SELECT 1 FROM window_join(a, b, '1s', '0s')").contains("ends before it starts"));
    assert!(error("SELECT 1 FROM window_join(a, b, 'x', '0s')").contains("window_join(bumper"));
    assert!(error("SELECT 1 FROM window_join(a)").contains("window_join(bumper"));
    assert!(error("SELECT 1 FROM window_join(a, missing, '0s', '1s')").contains("missing"));
}

#[test]
fn a_window_counts_for_the_memory_that_a_query_may_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let rows: Vec<Row> = (0..400).map(|n| (n * 10, n * 10, n)).collect();
    common::write(&path, &[("/a", &rows), ("/b", &rows)], 20_000);
    let recording: Arc<dyn Source> = Arc::from(asof_formats::open(&path).expect("opens"));
    let options = SqlOptions {
        memory: 2_000_000,
        threads: 1,
        ..SqlOptions::default()
    };
    let database = Database::new(vec![("run".to_owned(), recording)], options).expect("a database");
    let sql = |from: &str| {
        format!(
            "SELECT a.n, b.data FROM window_join(a, b, '{from}', '0s', 'log_time') WHERE a.n >= 0"
        )
    };
    let error = database
        .collect(&sql("-1h"))
        .expect_err("all of it is held");
    assert!(matches!(error, SqlError::Memory(_)), "{error}");
}

/// What is known at each instant, by a look at all.
fn resampled(rows: &[Row], start: i64, end: i64, period: i64) -> Vec<Option<i64>> {
    let instants = (0..)
        .map(|n| start + n * period)
        .take_while(|at| *at <= end);
    let last = |at: i64| rows.iter().rev().find(|row| row.0 <= at).map(|row| row.2);
    instants.map(last).collect()
}

#[test]
fn topics_are_resampled_on_a_grid_of_the_recording() {
    let (a, b) = (topic(24, 500, 7, 3, true), topic(25, 40, 90, 3, true));
    let fixture = database(&[("/a", &a), ("/b", &b)], 2);
    let all = || a.iter().chain(&b).map(|row| row.0);
    let (start, end) = (all().min().expect("rows"), all().max().expect("rows"));
    for topics in ["a, b", "['/a', '/b']", "'/a, /b'", "\"/a\", '/b'"] {
        let names = if topics.contains('/') {
            ["\"/a\"", "\"/b\""]
        } else {
            ["a", "b"]
        };
        let sql = format!(
            "SELECT time, {}.n, {}.n AS m FROM resample({topics}, 20, 'last') ORDER BY time",
            names[0], names[1]
        );
        let found = fixture.rows(&sql);
        assert_eq!(
            integers(found.column(1)),
            resampled(&a, start, end, 50),
            "{sql}"
        );
        assert_eq!(
            integers(found.column(2)),
            resampled(&b, start, end, 50),
            "{sql}"
        );
        let instants = times(found.column(0));
        assert_eq!(instants[3], Some(START + (start + 150) * MILLI));
    }
    let near = fixture.rows("SELECT count(b.n) FROM resample(b, 1000, 'nearest', '1ms')");
    let few = integers(near.column(0))[0].expect("a count");
    assert!((40..=120).contains(&few), "{few}");
    let part = "SELECT count(*) FROM resample(a, 10) r WHERE r.time BETWEEN '+1s' AND '+2s'";
    assert_eq!(integers(fixture.rows(part).column(0)), [Some(11)]);
    let error = |sql: &str| fixture.database.collect(sql).expect_err(sql).to_string();
    assert!(error("SELECT 1 FROM resample(a, 0, 'last')").contains("a rate is more than 0"));
    assert!(error("SELECT 1 FROM resample(a, -1, 'last')").contains("a rate is more than 0"));
    assert!(error("SELECT 1 FROM resample(a, 10, 'mean')").contains("'interpolate'"));
    assert!(error("SELECT 1 FROM resample(10, 'last')").contains("resample(odom"));
}

/// The demo robot, whose sensors agree with each other.
fn demo() -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("demo.mcap");
    let options = McapWriterOptions {
        chunk_size: 64 << 10,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(&path, options).expect("a file");
    let demo = asof_demo::Demo::new(asof_demo::DemoOptions {
        duration: Duration::from_secs(6),
        ..asof_demo::DemoOptions::default()
    });
    for message in demo.messages() {
        writer.write(&message).expect("written");
    }
    writer.finish().expect("finished");
    Fixture::over(folder, &path, 3)
}

#[test]
fn what_lies_between_two_messages_does_not_depend_on_what_is_selected() {
    let fixture = demo();
    let sql = |what: &str| {
        format!(
            "SELECT time, {what} FROM resample(odom, 37, 'interpolate', 'log_time') ORDER BY time"
        )
    };
    let xs = floats(
        fixture
            .rows(&sql("odom.pose.pose.position.x AS x"))
            .column(1),
    );
    let logged =
        fixture.rows("SELECT log_time, pose.pose.position.x AS x FROM odom ORDER BY log_time");
    let (known, values) = (times(logged.column(0)), floats(logged.column(1)));
    let instants = times(fixture.rows(&sql("1 AS one")).column(0));
    let mut between = 0;
    for (at, x) in instants.iter().zip(&xs) {
        let after = known.partition_point(|time| time <= at);
        if after == 0 || after == known.len() {
            continue;
        }
        let [t0, t1] = [known[after - 1], known[after]].map(|time| time.expect("a time"));
        let [x0, x1] = [values[after - 1], values[after]].map(|value| value.expect("a number"));
        let part = (at.expect("a time") - t0) as f64 / (t1 - t0) as f64;
        let wanted = x0 + (x1 - x0) * part;
        assert!((x.expect("between two") - wanted).abs() < 1e-9);
        between += 1;
    }
    assert!(between > 150, "{between}");
    let one = fixture.rows(&sql("odom.pose.pose.orientation.z AS z"));
    let whole = fixture.rows(&sql("odom.pose AS pose"));
    let pose = whole.column(1).as_struct();
    let rotation = pose.column_by_name("pose").expect("a pose").as_struct();
    let rotation = rotation
        .column_by_name("orientation")
        .expect("there")
        .as_struct();
    let z = rotation.column_by_name("z").expect("there");
    assert_eq!(floats(one.column(1)), floats(z));
}

#[test]
fn a_scan_is_a_row_for_each_beam_that_came_back() {
    let fixture = demo();
    let found = fixture.rows(
        "SELECT log_time, index, x, y, range, angle FROM points(scan) ORDER BY log_time, index",
    );
    let mut decoders = Decoders::new(Projection::All);
    let mut wanted = Vec::new();
    for batch in fixture
        .recording
        .read(&Query::topics(["/scan"]))
        .expect("reads")
    {
        for message in batch.expect("a batch").iter() {
            let record = decoders.meaning(&message.to_message()).expect("decodes");
            let scan = asof_decode::Scan::of(&record).expect("a scan");
            wanted.extend(scan.beams().map(|beam| (message.log_time.nanos(), beam)));
        }
    }
    assert_eq!(found.num_rows(), wanted.len());
    assert!(wanted.len() > 1000);
    let (xs, ranges) = (floats(found.column(2)), floats(found.column(4)));
    let logged = times(found.column(0));
    for (row, (at, beam)) in wanted.iter().enumerate() {
        assert_eq!(logged[row], Some(*at));
        assert!((xs[row].expect("a place") - beam.end()[0]).abs() < 1e-12);
        assert!((ranges[row].expect("a range") - beam.range).abs() < 1e-12);
    }
    let few =
        "SELECT max(n) FROM (SELECT log_time, count(*) AS n FROM points('/scan', 10) GROUP BY 1)";
    let most = integers(fixture.rows(few).column(0))[0].expect("a count");
    assert!((5..=10).contains(&most), "{most}");
    let before = fixture.decompressed();
    fixture.rows("SELECT count(*) FROM points(scan) WHERE log_time BETWEEN '+1s' AND '+1.2s'");
    let part = fixture.decompressed() - before;
    let before = fixture.decompressed();
    fixture.rows("SELECT count(*) FROM points(scan)");
    let whole = fixture.decompressed() - before;
    assert!(
        part * 3 < whole,
        "{part} of {whole} bytes were decompressed"
    );
    let error = |sql: &str| fixture.database.collect(sql).expect_err(sql).to_string();
    assert!(error("SELECT 1 FROM points(odom)").contains("has no points"));
    assert!(error("SELECT 1 FROM points(nothing)").contains("no table 'nothing'"));
    assert!(error("SELECT 1 FROM points(scan, 0)").contains("points takes"));
}

#[test]
fn the_first_and_the_last_time_come_without_what_lies_between() {
    let fixture = demo();
    let before = fixture.decompressed();
    fixture.rows("SELECT max(sequence) FROM odom");
    let whole = fixture.decompressed() - before;
    let before = fixture.decompressed();
    let sql = "SELECT min(log_time), max(log_time), count(*) FROM odom";
    let found = fixture.rows(sql);
    let part = fixture.decompressed() - before;
    assert!(
        part * 4 < whole,
        "{part} of {whole} bytes were decompressed"
    );
    let all = fixture.rows("SELECT log_time FROM odom ORDER BY log_time");
    let all = times(all.column(0));
    assert_eq!(times(found.column(0)), [all[0]]);
    assert_eq!(times(found.column(1)), [all[all.len() - 1]]);
    assert_eq!(integers(found.column(2)), [Some(all.len() as i64)]);
    let plan = fixture.plan(sql);
    assert!(!plan.contains("TopicScan: "), "{plan}");
}

#[test]
fn what_a_query_does_not_need_is_not_decompressed() {
    let fixture = demo();
    let bytes = |sql: &str| {
        let before = fixture.decompressed();
        fixture.rows(sql);
        fixture.decompressed() - before
    };
    let whole = bytes("SELECT avg(twist.twist.linear.x) FROM odom");
    for sql in [
        "SELECT count(*) FROM odom",
        "SELECT count(*) FROM odom WHERE recording = 'run.mcap'",
        "SELECT count(*) FROM odom WHERE recording = 'another'",
        "SELECT * FROM topics",
        "SELECT max(pose.pose.position.x) FROM odom WHERE recording = 'another'",
        "SELECT max(pose.pose.position.x) FROM odom WHERE log_time > '2100-01-01T00:00:00Z'",
    ] {
        assert_eq!(bytes(sql), 0, "{sql}");
    }
    for sql in [
        "SELECT avg(twist.twist.linear.x) FROM odom WHERE log_time BETWEEN '+1s' AND '+1.1s'",
        "SELECT * FROM logs WHERE log_time < '+0.1s'",
        "SELECT * FROM \"/odom\" FOR SYSTEM_TIME AS OF '+3s'",
    ] {
        let part = bytes(sql);
        assert!(part * 2 < whole, "{sql}: {part} of {whole} bytes");
    }
}
