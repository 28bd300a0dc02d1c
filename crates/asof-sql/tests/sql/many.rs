//! Many recordings are read in turns: only so many are open at a time, and each is read once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Row, write};
use asof_core::{Batch, Batches, Query, Source, SourceError};
use asof_sql::arrow::array::{AsArray, RecordBatch};
use asof_sql::arrow::compute::concat_batches;
use asof_sql::arrow::datatypes::{Int64Type, TimestampNanosecondType};
use asof_sql::{Database, SqlOptions};

/// How many recordings are being read, and how many were at most.
#[derive(Default)]
struct Reading {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A recording that says when it is read.
struct Watched {
    recording: Box<dyn Source>,
    reading: Arc<Reading>,
}

struct Reads {
    batches: Batches,
    reading: Arc<Reading>,
}

impl Iterator for Reads {
    type Item = Result<Batch, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        // So long that others would start meanwhile, if they were let.
        std::thread::sleep(Duration::from_millis(2));
        self.batches.next()
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.reading.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl asof_core::SourceLayer for Watched {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.recording
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let now = self.reading.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.reading.most.fetch_max(now, Ordering::SeqCst);
        Ok(Box::new(Reads {
            batches: self.inner().read(query)?,
            reading: Arc::clone(&self.reading),
        }))
    }
}

const ROWS: i64 = 10;

struct Fleet {
    database: Database,
    reading: Arc<Reading>,
    _folder: tempfile::TempDir,
}

/// So many recordings, of the same time all of them.
fn fleet(recordings: i64) -> Fleet {
    let folder = tempfile::tempdir().expect("a folder");
    let reading = Arc::new(Reading::default());
    let recording = |number: i64| {
        let path = folder.path().join(format!("{number}.mcap"));
        let row = |n: i64| (n * 100 + number % 7, n * 100, number * ROWS + n);
        let rows: Vec<Row> = (0..ROWS).map(row).collect();
        write(&path, &[("/x", &rows), ("/y", &rows)], 10);
        let watched: Arc<dyn Source> = Arc::new(Watched {
            recording: asof_formats::open(&path).expect("a recording"),
            reading: Arc::clone(&reading),
        });
        (format!("{number}"), watched)
    };
    let named = (0..recordings).map(recording).collect();
    let options = SqlOptions {
        threads: 2,
        ..SqlOptions::default()
    };
    Fleet {
        database: Database::new(named, options).expect("a database"),
        reading,
        _folder: folder,
    }
}

impl Fleet {
    fn rows(&self, sql: &str) -> RecordBatch {
        let query = self.database.query(sql);
        let query = query.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let schema = query.schema();
        let batches: Result<Vec<_>, _> = query.collect();
        concat_batches(&schema, &batches.expect(sql)).expect("one batch")
    }
}

#[test]
fn of_many_recordings_only_some_are_open_at_a_time() {
    let fleet = fleet(200);
    let all = 200 * ROWS;
    let joined =
        "SELECT count(*), sum(x.n) FROM x ASOF JOIN y MATCH_CONDITION (x.log_time >= y.log_time)";
    for sql in ["SELECT count(*), sum(n) FROM x WHERE n >= 0", joined] {
        fleet.reading.most.store(0, Ordering::SeqCst);
        let rows = fleet.rows(sql);
        let number = |column: usize| rows.column(column).as_primitive::<Int64Type>().value(0);
        assert_eq!((number(0), number(1)), (all, all * (all - 1) / 2), "{sql}");
        let most = fleet.reading.most.load(Ordering::SeqCst);
        assert!((1..=16).contains(&most), "{most} at once: {sql}");
    }
}

#[test]
fn many_recordings_are_in_the_order_that_is_asked_for() {
    let fleet = fleet(100);
    let rows = fleet.rows("SELECT log_time, n FROM x ORDER BY log_time");
    let times = rows.column(0).as_primitive::<TimestampNanosecondType>();
    assert_eq!(rows.num_rows() as i64, 100 * ROWS);
    assert!(times.values().is_sorted());
    let first = fleet.rows("SELECT n FROM x ORDER BY log_time DESC, n DESC LIMIT 1");
    // The last of those whose messages are late the most.
    assert_eq!(first.column(0).as_primitive::<Int64Type>().value(0), 979);
    assert_eq!(fleet.rows("SELECT n FROM x LIMIT 25").num_rows(), 25);
    // Of these no message is read, only indexes.
    let times = fleet.rows("SELECT log_time FROM x ORDER BY log_time");
    assert_eq!(times.num_rows() as i64, 100 * ROWS);
}

#[test]
fn few_recordings_are_read_side_by_side_and_in_order() {
    let fleet = fleet(20);
    let plan = fleet.rows("EXPLAIN SELECT log_time FROM x ORDER BY log_time");
    let plan = plan.column(1).as_string::<i32>().iter().flatten();
    let plan: String = plan.collect();
    assert!(!plan.contains("SortExec"), "{plan}");
}
