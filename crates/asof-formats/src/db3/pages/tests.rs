//! Compares the page reader with SQLite row by row, and runs it on tampered files.

use std::path::Path;

use asof_core::testing::Random;
use proptest::prelude::*;
use rusqlite::Connection;
use rusqlite::types::{Value, ValueRef};

use super::super::database::Database;
use super::super::mapped::MappedMessages;
use super::*;

/// What a row is made of: id, topic, time, payload.
type Found = (i64, Option<i64>, Option<i64>, Vec<u8>);

fn by_sqlite(path: &Path, first: i64, last: i64) -> Vec<Found> {
    let connection = Connection::open(path).expect("opens");
    let sql =
        "SELECT id, topic_id, timestamp, data FROM messages WHERE id >= ? AND id <= ? ORDER BY id";
    let mut statement = connection.prepare(sql).expect("prepares");
    let rows = statement.query_map([first, last], |row| {
        let data = match row.get_ref(3)? {
            ValueRef::Blob(bytes) | ValueRef::Text(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        Ok((row.get(0)?, row.get(1).ok(), row.get(2).ok(), data))
    });
    rows.expect("queries")
        .collect::<Result<_, _>>()
        .expect("reads")
}

fn by_pages(table: &Table, file: &[u8], first: i64, last: i64) -> Result<Vec<Found>, PageError> {
    table
        .rows(file, first, last)
        .map(|row| {
            let row = row?;
            let mut data = vec![0; row.payload.len as usize];
            table.assemble(file, &row.payload, &mut data, |_| {})?;
            if let Some(bytes) = row.payload.on_one_page(file) {
                assert_eq!(bytes, data);
            }
            Ok((row.id, row.topic, row.time, data))
        })
        .collect()
}

fn mapped(path: &Path) -> Result<MappedMessages, String> {
    let database = Database::open(path, "a test", true).map_err(|error| error.to_string())?;
    MappedMessages::open(&database, path, true)
}

const PLAIN: &str = "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL, data BLOB NOT NULL)";

fn create(path: &Path, page_size: u32, sql: &str) -> Connection {
    let connection = Connection::open(path).expect("opens");
    connection
        .execute_batch(&format!("PRAGMA page_size={page_size}; PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF; {sql}"))
        .expect("creates");
    connection
}

fn insert(connection: &Connection, row: (i64, Value, Value, Value)) {
    let sql = "INSERT OR REPLACE INTO messages(id, topic_id, timestamp, data) VALUES (?, ?, ?, ?)";
    let mut statement = connection.prepare_cached(sql).expect("prepares");
    statement.execute(row).expect("inserts");
}

fn assert_same(path: &Path, first: i64, last: i64) {
    let messages = mapped(path).expect("its pages are read");
    let file = messages.map().bytes();
    let found = by_pages(messages.table(), file, first, last).expect("reads");
    let expected = by_sqlite(path, first, last);
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.into_iter().zip(expected) {
        assert!(found == expected, "message id {}", expected.0);
    }
}

/// Times and ids, in order of ids.
fn assert_same_times(path: &Path, parts: usize) {
    let connection = Connection::open(path).expect("opens");
    let sql = "SELECT id, timestamp FROM messages ORDER BY id";
    let mut statement = connection.prepare(sql).expect("prepares");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    let expected: Result<Vec<(i64, i64)>, _> = rows.expect("queries").collect();
    let messages = mapped(path).expect("its pages are read");
    let root = messages.times().expect("has an index");
    let mut found = Vec::new();
    let mut walk = |part| {
        let file = messages.map().bytes();
        messages
            .table()
            .times(copied(file), root, part, parts, |time, id| {
                found.push((id, time));
                Ok(())
            })
    };
    let walked = (0..parts).try_for_each(&mut walk);
    // A time that is not a number is for a closer look.
    assert_eq!(walked.is_ok(), expected.is_ok());
    if let Ok(expected) = expected {
        found.sort_unstable();
        assert!(found == expected);
    }
}

/// Lengths from nothing to several megabytes: most are small, as on a robot, and some are just at a page's edge.
fn lengths(page_size: u32) -> impl Strategy<Value = usize> {
    let page = page_size as usize;
    prop_oneof![
        8 => 0..200usize,
        4 => 0..3 * page,
        4 => page.saturating_sub(60)..page + 60,
        2 => 0..200_000usize,
        1 => 0..5_000_000usize,
    ]
}

fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => any::<i64>().prop_map(Value::Integer),
        4 => (-3..300i64).prop_map(Value::Integer),
        2 => (any::<i64>(), 0..64u32).prop_map(|(number, shift)| Value::Integer(number >> shift)),
        1 => any::<f64>().prop_map(|number| Value::Real(number + 0.5)),
        1 => Just(Value::Text("noon".into())),
    ]
}

type Described = (i64, Value, Value, (usize, u8));

fn rows(page_size: u32) -> impl Strategy<Value = Vec<Described>> {
    let id = prop_oneof![8 => 0..5_000i64, 1 => any::<i64>()];
    let payload = (lengths(page_size), any::<u8>());
    prop::collection::vec((id, numbers(), numbers(), payload), 0..120)
}

fn payload(len: usize, seed: u8) -> Value {
    let bytes = (0..len).map(|n| seed.wrapping_mul(31).wrapping_add((n / 7) as u8));
    match seed {
        0..20 => Value::Text("é".repeat(len / 2)),
        20 => Value::Integer(len as i64),
        _ => Value::Blob(bytes.collect()),
    }
}

/// An empty file that leaves bytes at the end of each page to extensions of SQLite.
fn create_reserving(path: &Path, page_size: u32, reserved: u8) -> Connection {
    drop(create(path, page_size, "CREATE TABLE t(t); DROP TABLE t"));
    let mut bytes = std::fs::read(path).expect("reads");
    let usable = page_size - u32::from(reserved);
    bytes[20] = reserved;
    // The first page holds no cell: its cells start at its end.
    bytes[105..107].copy_from_slice(&(usable as u16).to_be_bytes());
    bytes.truncate(page_size as usize);
    // One page, and none of them free.
    bytes[28..32].copy_from_slice(&1u32.to_be_bytes());
    bytes[32..40].fill(0);
    std::fs::write(path, bytes).expect("writes");
    let connection = Connection::open(path).expect("opens");
    connection
        .execute_batch("PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF;")
        .expect("is an SQLite file");
    connection
}

/// Reads bytes that are in memory as others read a file.
fn copied(bytes: &[u8]) -> impl Fn(&mut [u8], u64) -> std::io::Result<()> {
    |to, start| {
        let from = bytes.get(start as usize..).unwrap_or_default();
        let from = from
            .get(..to.len())
            .ok_or(std::io::ErrorKind::UnexpectedEof)?;
        to.copy_from_slice(from);
        Ok(())
    }
}

fn page_sizes() -> impl Strategy<Value = u32> {
    (9..=16u32).prop_map(|bits| 1 << bits)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: match std::env::var_os("PROPTEST_CASES") {
            Some(_) => ProptestConfig::default().cases,
            None => 24,
        },
        ..ProptestConfig::default()
    })]

    #[test]
    fn pages_say_what_sqlite_says(
        (page_size, rows) in page_sizes().prop_flat_map(|size| (Just(size), rows(size))),
        reserved in prop_oneof![Just(0u8), 1..33u8],
        // One row of this many is deleted.
        deleted in prop_oneof![Just(0i64), 2..6i64],
        again in rows(4096),
        window in (0..5_000i64, 0..5_000i64),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.db3");
        let connection = create_reserving(&path, page_size, reserved);
        connection.execute_batch(PLAIN).expect("creates");
        connection.execute_batch("CREATE INDEX timestamp_idx ON messages (timestamp ASC); BEGIN").expect("creates");
        for (id, topic, time, (len, seed)) in rows {
            insert(&connection, (id, topic, time, payload(len, seed)));
        }
        connection.execute_batch("COMMIT; BEGIN").expect("commits");
        if deleted > 0 {
            connection.execute("DELETE FROM messages WHERE id % ? = 0", [deleted]).expect("deletes");
            for (id, topic, time, (len, seed)) in again {
                insert(&connection, (id, topic, time, payload(len, seed)));
            }
        }
        connection.execute_batch("COMMIT").expect("commits");
        let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checks");
        assert_eq!((sound.as_str(), std::fs::read(&path).expect("reads")[20]), ("ok", reserved));
        assert_same(&path, i64::MIN, i64::MAX);
        assert_same(&path, window.0, window.1);
        assert_same_times(&path, 1);
        assert_same_times(&path, 3);
        let messages = mapped(&path).expect("opens");
        let leaves = messages.table().leaves(messages.map().bytes()).expect("has leaves");
        assert_eq!(leaves.last().expect("has one").last, i64::MAX);
    }
}

#[test]
fn a_tree_of_several_levels_is_walked_from_any_row_to_any_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let connection = create(&path, 512, PLAIN);
    connection
        .execute_batch("CREATE INDEX timestamp_idx ON messages (timestamp ASC); BEGIN")
        .expect("begins");
    for id in 0..20_000i64 {
        insert(
            &connection,
            (
                id * 3,
                Value::Integer(id % 7),
                Value::Integer(id),
                payload(40, 30 + (id % 200) as u8),
            ),
        );
    }
    connection.execute_batch("COMMIT").expect("commits");
    assert_same(&path, i64::MIN, i64::MAX);
    let messages = mapped(&path).expect("opens");
    let parts = messages.table().parts(messages.map().bytes(), 4);
    assert_eq!(parts.len(), 4);
    let counts = parts
        .into_iter()
        .map(|part| messages.rows(*part.start(), *part.end()).count());
    let counts: Vec<usize> = counts.collect();
    assert_eq!(counts.iter().sum::<usize>(), 20_000);
    assert!(
        counts.iter().all(|count| (3_000..7_000).contains(count)),
        "{counts:?}"
    );
    for first in [0, 1, 2, 3, 29_999, 30_000, 59_997, 60_000] {
        assert_same(&path, first, first + 700);
    }
    assert_same_times(&path, 1);
    assert_same_times(&path, 4);
}

#[test]
fn the_pages_above_the_leaves_say_which_rows_are_on_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bytes, root, columns, _) = varied(&folder.path().join("run.db3"));
    let table = Table::new(&bytes, root, columns).expect("a header");
    let leaves = table.leaves(&bytes).expect("has leaves");
    let mut rows = table.rows(&bytes, i64::MIN, i64::MAX);
    let mut on = Vec::new();
    while let Some(row) = rows.next() {
        let id = row.expect("a row").id;
        let leaf = leaves.partition_point(|leaf| leaf.last < id);
        assert_eq!(leaves[leaf].page, rows.page());
        on.push(leaf);
    }
    on.dedup();
    assert!(on.len() > 10 && on.len() == leaves.len());
}

#[test]
fn only_an_index_of_all_times_and_nothing_else_is_taken_for_one() {
    let indexes = [
        ("CREATE INDEX a ON messages (timestamp DESC)", true),
        ("CREATE INDEX a ON messages (topic_id)", false),
        ("CREATE INDEX a ON messages (timestamp, topic_id)", false),
        (
            "CREATE INDEX a ON messages (timestamp) WHERE timestamp > 3",
            false,
        ),
        ("CREATE INDEX a ON messages (timestamp + 1)", false),
    ];
    for (index, is_taken) in indexes {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.db3");
        drop(create(&path, 4096, &format!("{PLAIN}; {index}")));
        let messages = mapped(&path).expect("opens");
        assert_eq!(messages.times().is_some(), is_taken, "{index}");
    }
}

#[test]
fn columns_may_stand_in_any_order_and_beside_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let sql = "CREATE TABLE messages(note TEXT, data BLOB, timestamp BIGINT, id INTEGER PRIMARY KEY, topic_id INT)";
    let connection = create(&path, 1024, sql);
    for id in 0..50i64 {
        insert(
            &connection,
            (
                id,
                Value::Integer(1),
                Value::Integer(id),
                payload(id as usize * 5, 40),
            ),
        );
    }
    assert_same(&path, i64::MIN, i64::MAX);
}

#[test]
fn tables_whose_records_hold_something_else_are_refused() {
    let refused = [
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB) WITHOUT ROWID",
        "CREATE TABLE messages(id INT PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB)",
        "CREATE TABLE messages(id INTEGER PRIMARY KEY DESC, topic_id INTEGER, timestamp INTEGER, data BLOB)",
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id REAL, timestamp INTEGER, data BLOB)",
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, two AS (2), topic_id INTEGER, timestamp INTEGER, data BLOB)",
        "CREATE TABLE m(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB); CREATE VIEW messages AS SELECT * FROM m",
        "PRAGMA encoding='UTF-16'; CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB)",
    ];
    for sql in refused {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.db3");
        drop(create(&path, 4096, sql));
        assert!(mapped(&path).is_err(), "{sql}");
    }
}

#[test]
fn a_column_that_was_added_later_is_left_to_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let connection = create(
        &path,
        4096,
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER)",
    );
    connection
        .execute_batch("INSERT INTO messages VALUES (1, 1, 1); ALTER TABLE messages ADD COLUMN data BLOB DEFAULT 'x'")
        .expect("alters");
    let messages = mapped(&path).expect("opens");
    let first = messages.rows(i64::MIN, i64::MAX).next();
    assert!(matches!(first, Some(Err(_))), "{first:?}");
}

/// A file with every kind of page, and where its table and its index of times begin.
fn varied(path: &Path) -> (Vec<u8>, u32, Columns, u32) {
    let connection = create(path, 512, PLAIN);
    connection
        .execute_batch("CREATE INDEX timestamp_idx ON messages (timestamp ASC); BEGIN")
        .expect("begins");
    for id in 0..400i64 {
        let len = [10, 100, 470, 700, 3000][(id % 5) as usize];
        insert(
            &connection,
            (id, Value::Integer(1), Value::Integer(id), payload(len, 50)),
        );
    }
    connection.execute_batch("COMMIT").expect("commits");
    drop(connection);
    let messages = mapped(path).expect("opens");
    let Table { root, columns, .. } = *messages.table();
    let times = messages.times().expect("has an index");
    (std::fs::read(path).expect("reads"), root, columns, times)
}

/// `ASOF_LONG_TESTS` enables a long run.
#[test]
fn no_damage_makes_the_page_reader_panic_or_hang() {
    let rounds = if std::env::var_os("ASOF_LONG_TESTS").is_some() {
        200_000
    } else {
        3_000
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (whole, root, columns, times) = varied(&folder.path().join("run.db3"));
    let mut random = Random::new(4);
    let (mut good, mut refused) = (0, 0);
    for _ in 0..rounds {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            let page = random.below(bytes.len() / 512) * 512;
            let at = match random.below(3) {
                // The head of a page, where its kind, its count of cells and its pointers are.
                0 => page + random.below(16),
                1 => page + random.below(512),
                _ => random.below(100),
            };
            let wide = bytes.len() / 512;
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = [0, 0xff, 5, 13][random.below(4)],
                // A page that there is: circles, and trees that share their leaves.
                2 if at + 4 <= bytes.len() => bytes[at..at + 4]
                    .copy_from_slice(&(1 + random.below(wide) as u32).to_be_bytes()),
                _ => bytes.truncate(at.max(100)),
            }
            if bytes.len() < 1024 {
                break;
            }
        }
        let Ok(table) = Table::new(&bytes, root, columns) else {
            refused += 1;
            continue;
        };
        match by_pages(&table, &bytes, i64::MIN, i64::MAX) {
            Ok(rows) => good += rows.len(),
            Err(_) => refused += 1,
        }
        let mut entries = 0;
        let walked = table.times(copied(&bytes), times, 0, 1, |_, _| {
            entries += 1;
            Ok(())
        });
        assert!(walked.is_err() || entries <= bytes.len());
        let leaves = table.leaves(&bytes).map_or(0, |leaves| leaves.len());
        assert!(leaves <= bytes.len() / 512);
    }
    assert!(
        good > 0 && refused > 0,
        "{good} rows, {refused} files refused"
    );
}

#[test]
fn a_page_that_is_its_own_child_is_no_endless_walk() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut bytes, root, columns, times) = varied(&folder.path().join("run.db3"));
    let start = (root as usize - 1) * 512;
    assert_eq!(bytes[start], INTERIOR);
    bytes[start + 8..start + 12].copy_from_slice(&root.to_be_bytes());
    let table = Table::new(&bytes, root, columns).expect("a header");
    let error = by_pages(&table, &bytes, i64::MIN, i64::MAX).expect_err("is refused");
    assert!(!error.to_string().is_empty());
    assert!(table.leaves(&bytes).is_err());
    let start = (times as usize - 1) * 512;
    bytes[start + 8..start + 12].copy_from_slice(&times.to_be_bytes());
    assert!(
        table
            .times(copied(&bytes), times, 0, 1, |_, _| Ok(()))
            .is_err()
    );
}

proptest! {
    #[test]
    fn a_number_is_read_alike_in_the_middle_of_a_page_and_at_its_end(value: u64, shift in 0u32..64, behind: [u8; 4]) {
        let value = value >> shift;
        let bytes = written(value);
        let mut page = vec![0xff; 3];
        page.extend_from_slice(&bytes);
        prop_assert_eq!(varint(&page, 3), Some((value, page.len())));
        let len = page.len();
        page.extend_from_slice(&behind);
        prop_assert_eq!(varint(&page, 3), Some((value, len)));
        prop_assert_eq!(varint(&page[..len - 1], 3), None);
    }
}

/// A number as SQLite writes it.
fn written(value: u64) -> Vec<u8> {
    let mut groups: Vec<u8> = Vec::new();
    let mut rest = value;
    if value >> 56 != 0 {
        groups.push(value as u8);
        rest >>= 8;
    }
    let is_long = !groups.is_empty();
    loop {
        let is_last = groups.is_empty();
        groups.push(rest as u8 & 0x7f | u8::from(!is_last) << 7);
        rest >>= 7;
        if rest == 0 && (!is_long || groups.len() == 9) {
            break;
        }
    }
    groups.reverse();
    groups
}
