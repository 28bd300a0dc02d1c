//! What is not needed is not decompressed.

use std::sync::Arc;

use crate::common::{Fixture, MILLI, Row, START, topic, write};
use asof_core::Source;
use asof_sql::arrow::array::AsArray;
use asof_sql::arrow::datatypes::Int64Type;
use asof_sql::{Database, SqlOptions};

/// Large messages: what is read ahead is a small part of them all.
const BYTES: usize = 20_000;

fn large(topics: &[(&str, &[Row])], threads: usize) -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    write(&path, topics, BYTES);
    Fixture::over(folder, &path, threads)
}

/// What a query found, and the bytes that were decompressed for it.
fn asked(fixture: &Fixture, sql: &str) -> (Vec<i64>, u64) {
    let before = fixture.decompressed();
    let found = fixture.rows(sql);
    let numbers = found.column(0).as_primitive::<Int64Type>();
    (numbers.values().to_vec(), fixture.decompressed() - before)
}

fn at(milliseconds: i64) -> String {
    let nanos = START + milliseconds * MILLI;
    format!("arrow_cast({nanos}, 'Timestamp(Nanosecond, Some(\"UTC\"))')")
}

#[test]
fn a_limit_ends_the_reading() {
    let rows: Vec<Row> = (0..1000).map(|n| (n * 10, n * 10, n)).collect();
    let fixture = large(&[("/a", &rows)], 2);
    let (all, whole) = asked(&fixture, "SELECT n FROM a");
    assert_eq!(all.len(), 1000);
    assert!(whole > 1000 * BYTES as u64);
    let sql = "SELECT n FROM a LIMIT 3";
    let (few, part) = asked(&fixture, sql);
    assert_eq!(few.len(), 3);
    assert!(part < whole / 3, "{part} of {whole} bytes");
    let plan = fixture.plan(sql);
    assert!(plan.contains("at most 3 rows"), "{plan}");
    // In order, the first slice alone has the rows.
    let (first, part) = asked(&fixture, "SELECT n FROM a ORDER BY log_time LIMIT 3");
    assert_eq!(first, [0, 1, 2]);
    assert!(part < whole / 3, "{part} of {whole} bytes");
}

#[test]
fn other_topics_and_other_times_stay_compressed() {
    let early: Vec<Row> = (0..500).map(|n| (n * 10, n * 10, n)).collect();
    let late: Vec<Row> = (500..1000).map(|n| (n * 10, n * 10, n)).collect();
    let fixture = large(&[("/early", &early), ("/late", &late)], 2);
    let (_, one) = asked(&fixture, "SELECT sum(n) FROM early");
    let (_, other) = asked(&fixture, "SELECT sum(n) FROM late");
    let all = 1000 * BYTES as u64;
    // One chunk may have both.
    assert!(
        one < all * 11 / 20 && other < all * 11 / 20,
        "{one} {other}"
    );
    let sql = format!(
        "SELECT n FROM early WHERE log_time < {} ORDER BY n",
        at(500)
    );
    let (found, part) = asked(&fixture, &sql);
    assert_eq!(found, (0..50).collect::<Vec<_>>());
    assert!(part < one / 3, "{part} of {one} bytes");
}

#[test]
fn the_ends_of_a_topic_are_looked_up() {
    let rows: Vec<Row> = (0..1000).map(|n| (n * 10, n * 10, n)).collect();
    let fixture = large(&[("/a", &rows), ("/b", &rows[..1])], 2);
    let before = fixture.decompressed();
    let found = fixture.rows("SELECT min(log_time), max(log_time) FROM a");
    assert_eq!(found.num_rows(), 1);
    let part = fixture.decompressed() - before;
    assert!(part < 1000 * BYTES as u64 / 3, "{part} bytes");
}

#[test]
fn another_recording_stays_compressed() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows: Vec<Row> = (0..100).map(|n| (n * 10, n * 10, n)).collect();
    let mut recordings: Vec<(String, Arc<dyn Source>)> = Vec::new();
    for name in ["one", "other"] {
        let path = folder.path().join(format!("{name}.mcap"));
        write(&path, &[("/a", &rows)], BYTES);
        let recording = asof_formats::open(&path).expect("opens");
        recordings.push((name.to_owned(), Arc::from(recording)));
    }
    let database = Database::new(recordings.clone(), SqlOptions::default()).expect("opens");
    let found = database.collect("SELECT sum(n) FROM a WHERE recording = 'one'");
    assert_eq!(found.expect("a row").len(), 1);
    let decompressed = |place: usize| {
        let counters = recordings[place].1.read_stats().expect("counts");
        counters.decompressed_bytes
    };
    assert!(decompressed(0) > 0);
    assert_eq!(decompressed(1), 0);
}

/// No index has stamps. After all of them were seen once, they tell which messages need not be read.
#[test]
fn stamps_narrow_what_is_read_once_they_are_known() {
    for (seed, latency, is_in_order) in [(1, 30, true), (2, 200, false)] {
        let rows = topic(seed, 1000, 10, latency, is_in_order);
        let fixture = large(&[("/a", &rows)], 3);
        let sql = |from: i64, to: i64| {
            let (from, to) = (at(from), at(to));
            format!("SELECT n FROM a WHERE stamp >= {from} AND stamp < {to} ORDER BY n")
        };
        let expected = |from: i64, to: i64| -> Vec<i64> {
            let within = |row: &&Row| (from..to).contains(&row.1);
            rows.iter().filter(within).map(|row| row.2).collect()
        };
        let plan = fixture.plan(&sql(2000, 3000));
        assert!(plan.contains("in no index"), "{plan}");
        let (found, whole) = asked(&fixture, &sql(2000, 3000));
        assert_eq!(found, expected(2000, 3000));
        assert!(whole > 1000 * BYTES as u64, "{whole}");
        for (from, to) in [(2000, 3000), (-500, 100), (9000, 20_000), (5000, 5001)] {
            let (found, part) = asked(&fixture, &sql(from, to));
            assert_eq!(found, expected(from, to), "{from} to {to}");
            assert!(part < whole / 2, "{part} of {whole} bytes");
        }
        let plan = fixture.plan(&sql(2000, 3000));
        assert!(plan.contains("as earlier queries saw"), "{plan}");
        assert!(!plan.contains("in no index"), "{plan}");
    }
}

/// A part of the messages tells nothing about the others.
#[test]
fn stamps_that_were_not_all_seen_leave_nothing_out() {
    let mut rows: Vec<Row> = (0..1000).map(|n| (n * 10, n * 10, n)).collect();
    // One message was measured long before the others, or its clock was not set.
    rows[900].1 = -1_000_000;
    let fixture = large(&[("/a", &rows)], 2);
    let early = format!("SELECT n FROM a WHERE stamp < {}", at(-10));
    for part in [
        "SELECT n, stamp FROM a LIMIT 5".to_owned(),
        format!("SELECT n, stamp FROM a WHERE log_time < {}", at(100)),
        "SELECT n FROM a".to_owned(),
    ] {
        fixture.rows(&part);
        let plan = fixture.plan(&early);
        assert!(plan.contains("in no index"), "{part}: {plan}");
    }
    assert_eq!(asked(&fixture, &early).0, [900]);
    // Now they are known, and that one with them.
    assert_eq!(asked(&fixture, &early).0, [900]);
    let late = format!("SELECT n FROM a WHERE stamp >= {} ORDER BY n", at(9990));
    assert_eq!(asked(&fixture, &late).0, [999]);
}

#[test]
fn a_join_over_a_range_of_stamps_is_the_same_before_and_after_they_are_known() {
    let left = topic(5, 300, 10, 40, false);
    let right = topic(6, 300, 7, 40, false);
    let fixture = large(&[("/a", &left), ("/b", &right)], 3);
    let sql = format!(
        "SELECT a.n, b.n AS m FROM a ASOF JOIN b MATCH_CONDITION (a.stamp >= b.stamp) \
         WHERE a.stamp >= {} AND a.stamp < {} ORDER BY a.n",
        at(500),
        at(900)
    );
    let before = fixture.rows(&sql);
    assert!(before.num_rows() > 10);
    for topic in ["a", "b"] {
        fixture.rows(&format!("SELECT max(stamp) FROM {topic}"));
        fixture.rows(&format!("SELECT stamp FROM {topic}"));
    }
    assert_eq!(fixture.rows(&sql), before);
}

#[test]
fn log_times_come_from_the_indexes() {
    // Out of order within and across chunks.
    let rows: Vec<Row> = (0..1000)
        .map(|n| ((n * 10) ^ 0x18, (n * 10) ^ 0x18, n))
        .collect();
    let other: Vec<Row> = (0..1000).map(|n| (n * 10 + 1, n * 10 + 1, n)).collect();
    for threads in [1, 3] {
        let fixture = large(&[("/a", &rows), ("/b", &other)], threads);
        // Between which times a topic lies is looked up once, when a query is planned.
        fixture.rows("SELECT min(log_time), max(log_time) FROM a");
        for (by_index, by_reading) in [
            (
                "SELECT count(*) FROM a WHERE log_time BETWEEN {from} AND {to}",
                "SELECT count(n) FROM a WHERE log_time BETWEEN {from} AND {to}",
            ),
            (
                "SELECT count(*) FROM a GROUP BY date_trunc('second', log_time) ORDER BY 1",
                "SELECT count(n) FROM a GROUP BY date_trunc('second', log_time) ORDER BY 1",
            ),
            (
                "SELECT arrow_cast(log_time, 'Int64') FROM a ORDER BY log_time LIMIT 20",
                "SELECT arrow_cast(log_time, 'Int64') FROM a WHERE n >= 0 ORDER BY log_time LIMIT 20",
            ),
        ] {
            let filled = |sql: &str| {
                sql.replace("{from}", &at(1_005))
                    .replace("{to}", &at(7_777))
            };
            let (indexed, bytes) = asked(&fixture, &filled(by_index));
            let (read, whole) = asked(&fixture, &filled(by_reading));
            assert_eq!(indexed, read, "{by_index}");
            assert_eq!(bytes, 0, "{by_index}");
            assert!(whole > 0, "{by_reading}");
        }
        // What no index has is read.
        let (_, bytes) = asked(&fixture, "SELECT arrow_cast(publish_time, 'Int64') FROM a");
        assert!(bytes > 0);
    }
}
