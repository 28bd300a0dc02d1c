//! Tables of the user's own, beside those of recordings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asof_sql::arrow::array::{Int64Array, RecordBatch, StringArray};
use asof_sql::arrow::util::pretty::pretty_format_batches;
use asof_sql::{Database, OwnTable, SqlError, SqlOptions};

fn labels() -> RecordBatch {
    let at: Arc<_> = Arc::new(Int64Array::from(vec![Some(1), Some(2), None]));
    let label: Arc<_> = Arc::new(StringArray::from(vec![Some("up"), None, Some("down")]));
    RecordBatch::try_from_iter([("at", at as _), ("label", label as _)]).expect("a table")
}

fn database(name: &str, own: OwnTable) -> Result<Database, SqlError> {
    let options = SqlOptions {
        tables: BTreeMap::from([(name.to_owned(), own)]),
        ..SqlOptions::default()
    };
    Database::new(Vec::new(), options)
}

fn shown(database: &Database, sql: &str) -> String {
    let rows = database.collect(sql).expect("rows");
    pretty_format_batches(&rows).expect("a table").to_string()
}

#[test]
fn an_own_table_is_read_by_each_query() {
    let opened = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&opened);
    let own = OwnTable::new(labels().schema(), move || {
        count.fetch_add(1, Ordering::Relaxed);
        // Rows come in parts.
        let parts = [labels().slice(0, 2), labels().slice(2, 1)];
        Ok(Box::new(parts.into_iter().map(Ok)))
    });
    let database = database("labels", own).expect("a database");
    assert!(database.tables().contains(&"labels".to_owned()));
    assert!(shown(&database, "SHOW TABLES").contains("| labels "));
    let columns = shown(&database, "DESCRIBE labels");
    assert!(columns.contains("| label "), "{columns}");
    // Neither of them reads the rows.
    assert_eq!(opened.load(Ordering::Relaxed), 0);
    for round in 1..=2 {
        let found = shown(
            &database,
            "SELECT count(*) AS n, count(at) AS known, max(label) AS last FROM labels",
        );
        assert!(found.contains("| 3 | 2     | up   |"), "{found}");
        assert_eq!(opened.load(Ordering::Relaxed), round);
    }
    let found = shown(
        &database,
        "SELECT a.label FROM labels a JOIN labels b ON a.at = b.at - 1",
    );
    assert!(found.contains("| up    |"), "{found}");
}

#[test]
fn what_cannot_be_read_is_said() {
    let own = OwnTable::new(labels().schema(), || {
        Ok(Box::new([Err("the disk is gone".into())].into_iter()))
    });
    let database = database("labels", own).expect("a database");
    let error = database
        .collect("SELECT * FROM labels")
        .expect_err("no rows");
    assert!(error.to_string().contains("the disk is gone"), "{error}");
}

#[test]
fn an_own_table_takes_no_name_that_is_taken_and_is_not_written() {
    let own = || OwnTable::of_rows(labels().schema(), vec![labels()]);
    let error = database("topics", own()).expect_err("it is taken");
    assert!(error.to_string().contains("'topics'"), "{error}");
    let database = database("labels", own()).expect("a database");
    for sql in [
        "INSERT INTO labels VALUES (1, 'x')",
        "DROP TABLE labels",
        "COPY labels TO '/tmp/x.csv'",
    ] {
        assert!(database.query(sql).is_err(), "{sql}");
    }
}
