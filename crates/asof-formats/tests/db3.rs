//! ROS 2 bags in SQLite: of every layout, compressed, damaged, being written.

mod common;

use asof_core::testing::assert_source;

use std::path::Path;

use asof_core::{ProblemKind, Query, Source, Stamp, Topics};
use asof_formats::{Db3File, Definitions, OpenOptions};
use common::{Dice, messages, mutate};
use rusqlite::Connection;

/// What a bag is made of: time, topic id, payload.
type Said<'a> = (i64, i64, &'a [u8]);

const SAID: [Said<'_>; 5] = [
    (30, 1, b"third"),
    (10, 1, b"first"),
    (20, 2, b"second"),
    (40, 1, b"fourth"),
    (40, 2, b"fifth"),
];

/// Tables as Humble has them.
fn create(path: &Path, said: &[Said<'_>]) -> Connection {
    let database = Connection::open(path).expect("opens");
    database
        .execute_batch(
            "CREATE TABLE schema(schema_version INTEGER PRIMARY KEY, ros_distro TEXT NOT NULL);
             INSERT INTO schema VALUES (3, 'humble');
             CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT, offered_qos_profiles TEXT);
             INSERT INTO topics VALUES (1, '/chat', 'std_msgs/msg/String', 'cdr', '- durability: 1');
             INSERT INTO topics VALUES (2, '/own', 'my_robot/msg/Wheel', 'cdr', '');
             CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);
             CREATE INDEX timestamp_idx ON messages (timestamp ASC);",
        )
        .expect("creates");
    insert(&database, said);
    database
}

fn insert(database: &Connection, said: &[Said<'_>]) {
    for (time, topic, data) in said {
        database
            .execute(
                "INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)",
                (topic, time, data),
            )
            .expect("inserts");
    }
}

fn open(path: &Path) -> Db3File {
    Db3File::open(path).expect("opens")
}

fn payloads(source: &dyn Source) -> Vec<String> {
    messages(source, &Query::all())
        .iter()
        .map(|message| String::from_utf8_lossy(&message.payload).into_owned())
        .collect()
}

const IN_ORDER: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];

#[test]
fn messages_come_in_order_of_time_then_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a #1?.db3");
    create(&path, &SAID);
    let bag = open(&path);
    assert_eq!(payloads(&bag), IN_ORDER);
    assert_eq!(bag.summary().messages, Some(5));
    assert_source(&bag, "db3");
    assert_eq!(bag.check(&mut |_, _| Ok(())).expect("reads"), []);
}

#[test]
fn standard_types_are_known_and_others_are_names_until_their_files_are_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    create(&path, &SAID);
    let bag = open(&path);
    let summary = bag.summary();
    let schema = summary.channels[0]
        .channel
        .schema
        .clone()
        .expect("a schema");
    assert_eq!(schema.encoding, "ros2msg");
    assert_eq!(&schema.data[..], b"string data\n");
    assert_eq!(
        summary.channels[1].channel.type_name(),
        "my_robot/msg/Wheel"
    );
    let unknown = summary.channels[1].channel.schema.clone().expect("a name");
    assert_eq!((unknown.encoding.as_str(), unknown.data.len()), ("", 0));
    assert_eq!(summary.problems, []);

    let package = folder.path().join("my_robot/msg");
    std::fs::create_dir_all(&package).expect("creates");
    std::fs::write(package.join("Wheel.msg"), "float64 speed\n").expect("writes");
    let definitions = Definitions::with_folders([folder.path()]).expect("reads");
    let options = OpenOptions {
        definitions,
        ..OpenOptions::default()
    };
    let bag = Db3File::open_with(&path, &options).expect("opens");
    assert_eq!(bag.summary().problems, []);
    let schema = bag.summary().channels[1]
        .channel
        .schema
        .clone()
        .expect("a schema");
    assert_eq!(&schema.data[..], b"float64 speed\n");
}

#[test]
fn payloads_compressed_one_by_one_come_out_decompressed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let large = vec![5; 300_000];
    let small = zstd::bulk::compress(b"hello", 3).expect("compresses");
    let packed = zstd::bulk::compress(&large, 3).expect("compresses");
    create(
        &path,
        &[(1, 1, &small), (2, 1, &packed), (3, 1, &packed[..20])],
    );
    let bag = open(&path);
    let found = messages(&bag, &Query::all());
    assert_eq!(found.len(), 2);
    assert_eq!(&found[0].payload[..], b"hello");
    assert_eq!(found[1].payload, large);
    let summary = bag.summary();
    let last = summary.problems.last().expect("a problem");
    assert!(last.message.contains("message id 3"), "{last}");
}

#[test]
fn a_bag_that_is_being_written_opens_with_what_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let writer = create(&path, &[]);
    writer
        .pragma_update(None, "journal_mode", "WAL")
        .expect("WAL");
    insert(&writer, &SAID[..3]);
    let early = open(&path);
    insert(&writer, &SAID[3..]);
    assert_eq!(payloads(&open(&path)), IN_ORDER);
    assert_eq!(payloads(&early), IN_ORDER[..3]);
    writer
        .execute_batch("BEGIN; DELETE FROM messages WHERE id < 0;")
        .expect("a transaction");
    assert_eq!(payloads(&open(&path)), IN_ORDER);
}

#[test]
fn a_bag_that_is_written_to_after_it_was_opened_stays_what_it_was() {
    for journal in ["DELETE", "MEMORY"] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.db3");
        let writer = create(&path, &SAID[..3]);
        writer
            .pragma_update(None, "journal_mode", journal)
            .expect("a journal");
        let early = open(&path);
        insert(&writer, &SAID[3..]);
        assert_eq!(payloads(&early), IN_ORDER[..3], "{journal}");
        assert_eq!(payloads(&open(&path)), IN_ORDER, "{journal}");
        // What is deleted is gone, and nothing else.
        writer
            .execute_batch("DELETE FROM messages WHERE id = 2; VACUUM")
            .expect("deletes");
        assert_eq!(payloads(&early), IN_ORDER[1..3], "{journal}");
    }
}

#[test]
fn what_a_killed_writer_left_half_written_is_not_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, copy) = (
        folder.path().join("run.db3"),
        folder.path().join("copy.db3"),
    );
    let writer = create(&path, &SAID);
    // A cache of a page writes into the file in the middle of the transaction.
    writer
        .execute_batch("PRAGMA journal_mode=DELETE; PRAGMA cache_size=1; BEGIN")
        .expect("begins");
    let large = vec![7; 100_000];
    insert(&writer, &[(50, 1, &large), (60, 1, &large)]);
    for ending in ["", "-journal"] {
        let from = folder.path().join(format!("run.db3{ending}"));
        std::fs::copy(from, folder.path().join(format!("copy.db3{ending}"))).expect("copies");
    }
    let bag = open(&copy);
    let found = payloads(&bag);
    assert_eq!(found, IN_ORDER);
    let told = bag
        .summary()
        .problems
        .first()
        .expect("a problem")
        .to_string();
    assert!(told.contains("-journal"), "{told}");
    let files = std::fs::read_dir(folder.path()).expect("reads").count();
    assert_eq!(files, 4, "nothing was rolled back");
}

#[test]
fn opening_leaves_no_files_beside_a_bag_that_was_closed_in_wal_mode() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let writer = create(&path, &[]);
    writer
        .pragma_update(None, "journal_mode", "WAL")
        .expect("WAL");
    insert(&writer, &SAID);
    drop(writer);
    assert_eq!(payloads(&open(&path)), IN_ORDER);
    let files = std::fs::read_dir(folder.path()).expect("reads").count();
    assert_eq!(files, 1);
}

#[test]
fn the_first_years_layout_opens_and_its_type_names_are_completed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("2019.db3");
    let database = Connection::open(&path).expect("opens");
    database
        .execute_batch(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
             INSERT INTO topics VALUES (1, '/text', 'std_msgs/String', 'cdr');
             CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);
             INSERT INTO messages VALUES (1, 1, 5, 'x');",
        )
        .expect("creates");
    let bag = open(&path);
    assert_eq!(
        bag.summary().channels[0].channel.type_name(),
        "std_msgs/msg/String"
    );
    assert_eq!(payloads(&bag), ["x"]);
    assert_eq!(bag.summary().problems, []);
}

#[test]
fn another_sqlite_file_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("contacts.db");
    let database = Connection::open(&path).expect("opens");
    database
        .execute_batch("CREATE TABLE people(name TEXT)")
        .expect("creates");
    let error = asof_formats::open(&path)
        .map(|_| ())
        .expect_err("is refused");
    assert!(error.to_string().contains("no ROS 2 bag"), "{error}");
}

#[test]
fn a_view_without_an_end_in_the_place_of_a_table_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let database = Connection::open(&path).expect("opens");
    database
        .execute_batch(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
             CREATE VIEW messages AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
             SELECT x AS id, 1 AS topic_id, x AS timestamp, x'00' AS data FROM n;",
        )
        .expect("creates");
    let error = asof_formats::open(&path)
        .map(|_| ())
        .expect_err("is refused");
    assert!(error.to_string().contains("no ROS 2 bag"), "{error}");
}

#[test]
fn messages_on_topics_that_nobody_defined_come_under_a_made_up_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    create(&path, &[(1, 1, b"known"), (2, 9, b"unknown")]);
    let bag = open(&path);
    assert_eq!(payloads(&bag), ["known", "unknown"]);
    assert_eq!(bag.summary().messages, Some(2));
    let topics: Vec<_> = bag.summary().channels.clone();
    assert_eq!(topics[2].channel.topic, "/unknown_topic_9");
    let kinds: Vec<_> = bag.summary().problems.iter().map(|p| p.kind).collect();
    assert!(kinds.contains(&ProblemKind::UnknownReference));
}

/// Enough messages for many pages and several sections.
fn large(path: &Path) -> Vec<u8> {
    let database = create(path, &[]);
    database.execute_batch("BEGIN").expect("begins");
    for id in 0..3000i64 {
        let payload = [id as u8; 900];
        insert(&database, &[(id * 10, 1 + id % 2, &payload)]);
    }
    database.execute_batch("COMMIT").expect("commits");
    drop(database);
    std::fs::read(path).expect("reads")
}

#[test]
fn a_damaged_page_costs_what_was_on_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let mut bytes = large(&path);
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0xff);
    std::fs::write(&path, bytes).expect("writes");
    let bag = open(&path);
    let found = messages(&bag, &Query::all()).len();
    assert!((2900..3000).contains(&found), "{found}");
    assert!(
        bag.summary()
            .problems
            .iter()
            .any(|p| p.message.contains("damaged after message id"))
    );
}

#[test]
fn a_file_that_was_cut_keeps_what_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let bytes = large(&path);
    // The pages that say where the others are lie behind the middle of this one.
    std::fs::write(&path, &bytes[..bytes.len() * 9 / 10]).expect("writes");
    let bag = open(&path);
    let found = messages(&bag, &Query::all()).len();
    assert!((2500..3000).contains(&found), "{found}");
    assert_eq!(bag.summary().problems[0].kind, ProblemKind::Truncated);
    std::fs::write(&path, &bytes[..bytes.len() / 4]).expect("writes");
    assert_eq!(
        open(&path).summary().problems[0].kind,
        ProblemKind::Truncated
    );
}

/// A bag whose topics lie after its messages in the file, and where they begin.
fn topics_at_the_end(path: &Path) -> (Vec<u8>, usize) {
    let database = create(path, &SAID);
    insert(&database, &[(50, 2, &vec![7; 50_000])]);
    database
        .execute_batch(
            "CREATE TABLE again AS SELECT * FROM topics; DROP TABLE topics; VACUUM;
             CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT, offered_qos_profiles TEXT);
             INSERT INTO topics SELECT * FROM again;",
        )
        .expect("moves");
    let root: u32 = database
        .query_row(
            "SELECT rootpage FROM sqlite_master WHERE name = 'topics'",
            [],
            |row| row.get(0),
        )
        .expect("a page");
    drop(database);
    (
        std::fs::read(path).expect("reads"),
        (root as usize - 1) * 4096,
    )
}

#[test]
fn messages_are_kept_under_a_made_up_name_where_the_topics_are_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let (bytes, topics) = topics_at_the_end(&path);
    // Before the page of the topics, and within it: SQLite fails on one and reads zeros of the other.
    for cut in [topics, topics + 1, topics + 100] {
        std::fs::write(&path, &bytes[..cut]).expect("writes");
        let bag = open(&path);
        assert_eq!(payloads(&bag)[..5], IN_ORDER, "cut at {cut}");
        assert_eq!(bag.summary().messages, Some(6));
        let chat = Query {
            topics: Topics::named(["/unknown_topic_1"]),
            ..Query::all()
        };
        assert_eq!(messages(&bag, &chat).len(), 3);
        let problems = bag.summary().problems.clone();
        for said in ["3 messages are on topic number 1", "topic number 2"] {
            assert!(
                problems.iter().any(|p| p.message.contains(said)),
                "cut at {cut}: {problems:?}"
            );
        }
    }
}

#[test]
fn a_file_with_more_unknown_topics_than_a_recording_has_is_counted_beyond_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let said: Vec<Said<'_>> = (0..1500).map(|id| (id, id, b"x".as_slice())).collect();
    create(&path, &said);
    let bag = open(&path);
    // The two that are defined, and a thousand others.
    assert_eq!(bag.summary().channels.len(), 1002);
    assert_eq!(messages(&bag, &Query::all()).len(), 1002);
    let problems = bag.summary().problems.clone();
    assert!(
        problems
            .iter()
            .any(|p| p.message.starts_with("498 messages")),
        "{problems:?}"
    );
}

/// Messages of every size, each of which can be told from its bytes.
fn told_apart(path: &Path) -> Vec<u8> {
    let database = create(path, &[]);
    database.execute_batch("BEGIN").expect("begins");
    for id in 0..600i64 {
        let len = [40, 900, 5000, 30_000][(id % 4) as usize];
        let payload = vec![1 + (id % 250) as u8; len];
        insert(&database, &[(id * 10, 1 + id % 2, &payload)]);
    }
    database.execute_batch("COMMIT").expect("commits");
    drop(database);
    std::fs::read(path).expect("reads")
}

#[test]
fn of_a_file_that_was_cut_no_message_is_saved_that_is_not_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let bytes = told_apart(&path);
    let whole = messages(&open(&path), &Query::all());
    let mut saved_last = 0;
    for part in 2..40 {
        // Within pages and at their ends.
        let cut = bytes.len() * part / 40 / 512 * 512 + part % 3;
        std::fs::write(&path, &bytes[..cut]).expect("writes");
        for map in [true, false] {
            let options = OpenOptions {
                map,
                map_pages: map,
                ..OpenOptions::default()
            };
            let bag = asof_formats::open_with(&path, &options).expect("opens");
            let found = messages(&*bag, &Query::all());
            for message in &found {
                let wanted = whole
                    .iter()
                    .find(|other| other.log_time == message.log_time);
                assert!(
                    wanted == Some(message),
                    "cut at {cut}: {}",
                    message.log_time
                );
            }
            assert!(found.len() >= saved_last, "cut at {cut}: {}", found.len());
            assert_eq!(bag.summary().messages, Some(found.len() as u64));
            saved_last = found.len();
        }
    }
    assert!(saved_last > whole.len() * 9 / 10, "{saved_last}");
}

#[test]
fn a_payload_whose_pages_lead_in_a_circle_is_left_out_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let database = create(&path, &[]);
    insert(
        &database,
        &[(1, 1, b"small"), (2, 1, &vec![7; 50_000]), (3, 1, b"last")],
    );
    drop(database);
    let mut bytes = std::fs::read(&path).expect("reads");
    // A page of the payload that leads on to the next one leads back to itself.
    let pages = bytes.len() / 4096;
    let circle = (2..pages)
        .find(|&page| {
            let start = page * 4096;
            let next = u32::from_be_bytes(bytes[start..start + 4].try_into().expect("four bytes"));
            next as usize == page + 2
                && bytes[start + 4..start + 4096].iter().all(|&byte| byte == 7)
        })
        .expect("a page that leads on");
    bytes[circle * 4096..circle * 4096 + 4].copy_from_slice(&(circle as u32 + 1).to_be_bytes());
    std::fs::write(&path, bytes).expect("writes");
    let bag = open(&path);
    assert_eq!(payloads(&bag), ["small", "last"]);
    let problems = bag.summary().problems.clone();
    assert!(
        problems.iter().any(|p| p.message.contains("message id 2")),
        "{problems:?}"
    );
}

#[test]
fn the_events_of_a_service_have_the_definition_of_the_service() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let database = create(&path, &SAID);
    database
        .execute_batch(
            "CREATE TABLE message_definitions(id INTEGER PRIMARY KEY, topic_type TEXT, encoding TEXT, encoded_message_definition TEXT, type_description_hash TEXT);
             INSERT INTO message_definitions VALUES (1, 'test_msgs/srv/BasicTypes', 'ros2msg', 'bool a\n---\nbool b', '');
             UPDATE topics SET type = 'test_msgs/srv/BasicTypes_Event' WHERE id = 2;",
        )
        .expect("defines");
    drop(database);
    let summary = open(&path).summary();
    let schema = summary.channels[1]
        .channel
        .schema
        .clone()
        .expect("a schema");
    assert_eq!(schema.name, "test_msgs/srv/BasicTypes_Event");
    assert_eq!(
        (schema.encoding.as_str(), &schema.data[..]),
        ("ros2msg", &b"bool a\n---\nbool b"[..])
    );
}

/// A long run is behind `ASOF_LONG_TESTS`.
#[test]
fn no_damage_makes_reading_a_db3_panic_or_hang() {
    let rounds = if std::env::var_os("ASOF_LONG_TESTS").is_some() {
        5_000
    } else {
        60
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.db3");
    let bytes = large(&path);
    let mut dice = Dice(3);
    for _ in 0..rounds {
        std::fs::write(&path, mutate(&bytes, &mut dice)).expect("writes");
        let Ok(bag) = Db3File::open(&path) else {
            continue;
        };
        let Ok(batches) = bag.read(&Query::all()) else {
            continue;
        };
        let found: usize = batches.map_while(Result::ok).map(|batch| batch.len()).sum();
        assert!(found <= 6000);
        let _ = bag.latest_at(&Topics::All, Stamp::MAX);
        let _ = bag.check(&mut |_, _| Ok(()));
    }
}

#[test]
fn every_db3_of_others_keeps_the_promises_of_a_source() {
    let Some(data) = common::test_data() else {
        return;
    };
    let mut files = Vec::new();
    common::files_below(&data.join("recordings"), &mut files);
    files.retain(|path| path.extension().is_some_and(|extension| extension == "db3"));
    assert!(files.len() > 20, "{} files", files.len());
    for path in files {
        let name = path.display().to_string();
        // 384 topics, each read by itself, are left to the folders below.
        if name.contains("384") {
            continue;
        }
        let bag = open(&path);
        assert_source(&bag, &name);
    }
}
