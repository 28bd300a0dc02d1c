//! As-of joins in one pass: exact wherever the slices are cut, without reading more than is needed, and where stamps go
//! back.

use std::sync::Arc;

use crate::common::{Fixture, Row, database, topic, write};
use asof_core::Source;
use asof_sql::arrow::array::AsArray;
use asof_sql::arrow::datatypes::Int64Type;
use asof_sql::{Database, SqlOptions};

/// The numbers of the right side, in the order of those of the left.
fn joined(fixture: &Fixture, condition: &str) -> Vec<Option<i64>> {
    let found = fixture.rows(&join(condition));
    found.column(1).as_primitive::<Int64Type>().iter().collect()
}

fn join(condition: &str) -> String {
    format!("SELECT a.n, b.n AS m FROM a ASOF JOIN b MATCH_CONDITION ({condition}) ORDER BY a.n")
}

/// What each left row should match, by a look at all.
fn looked_up(
    left: &[Row],
    right: &[Row],
    time: fn(&Row) -> i64,
    tolerance: Option<i64>,
    is_allowed: fn(i64, i64) -> bool,
) -> Vec<Option<i64>> {
    let mut left = left.to_vec();
    left.sort_by_key(|row| row.2);
    let mut right = right.to_vec();
    right.sort_by_key(|row| row.0);
    let best = |row: &Row| {
        let at = time(row);
        let near = right.iter().enumerate().filter(|(_, other)| {
            let distance = (at - time(other)).abs();
            is_allowed(at, time(other)) && tolerance.is_none_or(|most| distance <= most)
        });
        // Of those at the same time the last to arrive, but the first where later ones match too.
        near.min_by_key(|(place, other)| {
            let other = time(other);
            let is_first = is_allowed(0, 1);
            let tie = if is_first {
                *place as i64
            } else {
                -(*place as i64)
            };
            ((at - other).abs(), other, tie)
        })
        .map(|(_, other)| other.2)
    };
    left.iter().map(best).collect()
}

/// A condition, its tolerance, and which pairs of times it allows.
type Case = (&'static str, Option<i64>, fn(i64, i64) -> bool);

const CONDITIONS: [Case; 7] = [
    ("a.{t} >= b.{t}", None, |a, b| a >= b),
    ("a.{t} > b.{t}", None, |a, b| a > b),
    ("a.{t} <= b.{t}", None, |a, b| a <= b),
    ("a.{t} < b.{t}", None, |a, b| a < b),
    (
        "a.{t} >= b.{t} AND a.{t} - b.{t} <= INTERVAL '7 ms'",
        Some(7),
        |a, b| a >= b,
    ),
    ("nearest(a.{t}, b.{t})", None, |_, _| true),
    ("nearest(a.{t}, b.{t}, INTERVAL '9 ms')", Some(9), |_, _| {
        true
    }),
];

#[test]
fn every_condition_is_exact_wherever_slices_are_cut() {
    for (seed, threads) in [(1, 1), (2, 2), (3, 5), (4, 16)] {
        // The right topic is faster, slower, and much later than the left one.
        for (period, latency) in [(3, 2), (50, 40), (10, 1500)] {
            let left = topic(seed, 400, 10, 30, true);
            let right = topic(seed + 10, 4000 / period, period, latency, true);
            let fixture = database(&[("/a", &left), ("/b", &right)], threads);
            for (condition, tolerance, is_allowed) in CONDITIONS {
                for (name, time) in [
                    ("log_time", (|row| row.0) as fn(&Row) -> i64),
                    ("stamp", |row| row.1),
                ] {
                    let condition = condition.replace("{t}", name);
                    let plan = fixture.plan(&join(&condition));
                    assert!(plan.contains("AsofScan"), "{plan}");
                    assert_eq!(
                        joined(&fixture, &condition),
                        looked_up(&left, &right, time, tolerance, is_allowed),
                        "{condition}, {threads} threads, period {period}, latency {latency}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_left_topic_whose_stamps_go_back_is_joined_exactly() {
    let left = topic(7, 500, 10, 200, false);
    let right = topic(8, 1000, 5, 30, true);
    let fixture = database(&[("/a", &left), ("/b", &right)], 4);
    for (condition, tolerance, is_allowed) in CONDITIONS {
        let condition = condition.replace("{t}", "stamp");
        assert!(fixture.plan(&join(&condition)).contains("AsofScan"));
        let wanted = looked_up(&left, &right, |row| row.1, tolerance, is_allowed);
        assert_eq!(joined(&fixture, &condition), wanted, "{condition}");
    }
}

#[test]
fn where_the_stamps_of_the_right_topic_go_back_it_is_sorted() {
    let left = topic(9, 300, 10, 20, true);
    let right = topic(10, 600, 5, 300, false);
    let fixture = database(&[("/a", &left), ("/b", &right)], 3);
    for (condition, tolerance, is_allowed) in CONDITIONS {
        let condition = condition.replace("{t}", "stamp");
        let plan = fixture.plan(&join(&condition));
        assert!(
            plan.contains("AsofJoinExec") && !plan.contains("AsofScan"),
            "{plan}"
        );
        // Which of two at the same stamp is matched is not said; the times are.
        let times = |found: Vec<Option<i64>>| -> Vec<Option<i64>> {
            let stamp = |n: i64| right.iter().find(|row| row.2 == n).map(|row| row.1);
            found.into_iter().map(|n| n.and_then(stamp)).collect()
        };
        let wanted = looked_up(&left, &right, |row| row.1, tolerance, is_allowed);
        assert_eq!(
            times(joined(&fixture, &condition)),
            times(wanted),
            "{condition}"
        );
    }
}

#[test]
fn several_joins_are_one_pass_and_each_chunk_is_decompressed_once() {
    let left = topic(11, 500, 10, 20, true);
    let (b, c) = (topic(12, 1000, 5, 10, true), topic(13, 250, 20, 10, true));
    let fixture = database(&[("/a", &left), ("/b", &b), ("/c", &c)], 1);
    let sql = "SELECT a.n, b.n AS m, c.n AS o FROM a \
        ASOF JOIN b MATCH_CONDITION (a.log_time >= b.log_time) \
        ASOF JOIN c MATCH_CONDITION (nearest(a.log_time, c.log_time, '50ms')) ORDER BY a.n";
    let plan = fixture.plan(sql);
    assert_eq!(plan.matches("AsofScan").count(), 1, "{plan}");
    assert!(!plan.contains("TopicScan"), "{plan}");
    let decompressed = || {
        fixture
            .recording
            .read_stats()
            .expect("counts")
            .decompressed_bytes
    };
    let before = decompressed();
    fixture.rows("SELECT max(n) FROM a");
    let once = decompressed() - before;
    let before = decompressed();
    let found = fixture.rows(sql);
    // All topics share all chunks, but for those before a slice and after it.
    assert!(decompressed() - before <= once * 11 / 10, "{once}");
    let column = |at: usize| -> Vec<Option<i64>> {
        found
            .column(at)
            .as_primitive::<Int64Type>()
            .iter()
            .collect()
    };
    assert_eq!(
        column(1),
        looked_up(&left, &b, |row| row.0, None, |a, b| a >= b)
    );
    assert_eq!(
        column(2),
        looked_up(&left, &c, |row| row.0, Some(50), |_, _| true)
    );
}

#[test]
fn a_stretch_of_time_is_joined_without_reading_the_rest() {
    let left = topic(14, 2000, 10, 20, true);
    let right = topic(15, 4000, 5, 10, true);
    let fixture = database(&[("/a", &left), ("/b", &right)], 1);
    let decompressed = || {
        fixture
            .recording
            .read_stats()
            .expect("counts")
            .decompressed_bytes
    };
    let all = |filter: &str| {
        format!(
            "SELECT a.n, b.n AS m FROM a ASOF JOIN b MATCH_CONDITION (a.log_time >= b.log_time) {filter} ORDER BY a.n"
        )
    };
    let before = decompressed();
    fixture.rows(&all(""));
    let whole = decompressed() - before;
    let filter = "WHERE a.log_time BETWEEN '+10s' AND '+10.5s'";
    let plan = fixture.plan(&all(filter));
    assert!(plan.contains("AsofScan: /a, log_time from"), "{plan}");
    let before = decompressed();
    let found = fixture.rows(&all(filter));
    let part = decompressed() - before;
    assert!(
        part * 10 < whole,
        "{part} of {whole} bytes were decompressed"
    );
    let start = left
        .iter()
        .chain(&right)
        .map(|row| row.0)
        .min()
        .expect("rows");
    let wanted: Vec<Row> = left
        .iter()
        .filter(|row| (start + 10_000..=start + 10_500).contains(&row.0))
        .copied()
        .collect();
    let column: Vec<Option<i64>> = found.column(1).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(
        column,
        looked_up(&wanted, &right, |row| row.0, None, |a, b| a >= b)
    );
}

#[test]
fn a_topic_is_joined_with_itself_and_with_one_that_is_silent() {
    let left = topic(16, 200, 10, 5, true);
    let fixture = database(&[("/a", &left), ("/b", &[(100_000, 100_000, 7)])], 4);
    let found = fixture.rows(
        "SELECT x.n, y.n AS m FROM a x ASOF JOIN a y MATCH_CONDITION (x.log_time > y.log_time) ORDER BY x.n",
    );
    let column: Vec<Option<i64>> = found.column(1).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(
        column,
        looked_up(&left, &left, |row| row.0, None, |a, b| a > b)
    );
    assert!(
        joined(&fixture, "a.stamp >= b.stamp")
            .iter()
            .all(Option::is_none)
    );
    assert!(
        joined(&fixture, "a.stamp <= b.stamp")
            .iter()
            .all(|m| *m == Some(7))
    );
}

#[test]
fn joined_rows_count_for_the_memory_that_a_query_may_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let left: Vec<Row> = (0..300).map(|n| (n * 10, n * 10, n)).collect();
    // Nothing comes after the first, so each left row waits for the end.
    write(&path, &[("/a", &left), ("/b", &[(0, 0, 1)])], 20_000);
    let recording: Arc<dyn Source> = Arc::from(asof_formats::open(&path).expect("opens"));
    let options = SqlOptions {
        memory: 1_000_000,
        threads: 1,
        ..SqlOptions::default()
    };
    let database = Database::new(vec![("run".to_owned(), recording)], options).expect("a database");
    let waits = "SELECT a.data, b.n FROM a ASOF JOIN b MATCH_CONDITION (a.log_time < b.log_time)";
    let error = database.collect(waits).expect_err("too much waits");
    assert!(error.to_string().contains("memory"), "{error}");
    let streams =
        "SELECT a.data, b.n FROM a ASOF JOIN b MATCH_CONDITION (a.log_time >= b.log_time)";
    let rows = database.query(streams).expect("a query");
    let count: usize = rows.map(|batch| batch.expect("rows").num_rows()).sum();
    assert_eq!(count, 300);
}
