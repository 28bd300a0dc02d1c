//! A catalogue as a database: the same answers as from its recordings, and nothing is loaded that no query needs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{self, Row, write};
use asof_catalogue::{Catalogue, IndexOptions, Indexer};
use asof_core::{Channel, Message, Schema, Source, Stamp};
use asof_formats::{McapWriter, McapWriterOptions, Store};
use asof_sql::arrow::util::pretty::pretty_format_batches;
use asof_sql::{Database, FleetPlace, OwnTable, RecordingLabels, SqlError, SqlOptions};

struct Fleet {
    folder: tempfile::TempDir,
}

const COUNT: i64 = 12;

impl Fleet {
    /// Recordings of three robots, one after the other in time. Each has `/x`, every third `/y`, the seventh `/z`.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let fleet = Fleet { folder };
        for number in 0..COUNT {
            fleet.record(
                number,
                if number == 7 {
                    &["/x", "/z"]
                } else if number % 3 == 0 {
                    &["/x", "/y"]
                } else {
                    &["/x"]
                },
            );
        }
        fleet.index();
        fleet
    }

    fn path(&self, number: i64) -> PathBuf {
        self.folder
            .path()
            .join(format!("r{}/{number:02}.mcap", number % 3))
    }

    fn record(&self, number: i64, topics: &[&str]) {
        let path = self.path(number);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let first = number * 100;
        let rows: Vec<Row> = (0..10)
            .map(|n| (first + n * 5, first + n * 5 - 1, first + n))
            .collect();
        let topics: Vec<(&str, &[Row])> = topics.iter().map(|&topic| (topic, &rows[..])).collect();
        write(&path, &topics, 10);
    }

    fn index(&self) {
        let options = IndexOptions {
            patterns: Some(vec!["{robot}/…".parse().expect("a pattern")]),
            ..IndexOptions::default()
        };
        let catalogue = self.catalogue();
        Indexer::new(&catalogue, options)
            .run(Stamp::now(), &|_| {})
            .expect("indexed");
    }

    fn catalogue(&self) -> Catalogue {
        Catalogue::beside(Store::at(self.folder.path()).expect("a folder")).expect("a folder")
    }

    fn database(&self) -> Database {
        self.with_tables(BTreeMap::new()).expect("a database")
    }

    fn with_tables(&self, tables: BTreeMap<String, OwnTable>) -> Result<Database, SqlError> {
        let options = SqlOptions {
            threads: 2,
            tables,
            fleets: vec![FleetPlace {
                catalogue: Arc::new(self.catalogue()),
                open: IndexOptions::default().open,
            }],
            ..SqlOptions::default()
        };
        Database::new(Vec::new(), options)
    }

    /// The same recordings, each named.
    fn named(&self) -> Database {
        let (mut recordings, mut labels) = (Vec::new(), BTreeMap::new());
        for number in 0..COUNT {
            let path = self.path(number);
            let name = path.display().to_string();
            let said = RecordingLabels {
                robot: Some(format!("r{}", number % 3)),
                ..RecordingLabels::default()
            };
            labels.insert(name.clone(), said);
            let recording: Arc<dyn Source> = Arc::from(asof_formats::open(&path).expect("opens"));
            recordings.push((name, recording));
        }
        let options = SqlOptions {
            threads: 2,
            labels,
            ..SqlOptions::default()
        };
        Database::new(recordings, options).expect("a database")
    }

    fn name(&self, number: i64) -> String {
        self.path(number).display().to_string()
    }
}

/// An instant in SQL, in milliseconds from when recordings start.
fn at(millis: i64) -> String {
    format!(
        "to_timestamp_nanos({})",
        common::START + millis * common::MILLI
    )
}

fn table(database: &Database, sql: &str) -> String {
    let rows = database.collect(sql);
    let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
    pretty_format_batches(&rows).expect("text").to_string()
}

#[test]
fn a_catalogue_answers_what_its_recordings_answer() {
    let fleet = Fleet::new();
    let (known, named) = (fleet.database(), fleet.named());
    let (third, seventh) = (fleet.name(3), fleet.name(7));
    let queries = [
        "SELECT count(*), min(n), max(n) FROM x".to_owned(),
        "SELECT count(*) FROM y".to_owned(),
        "SELECT recording, robot, count(*), sum(n) FROM x GROUP BY 1, 2 ORDER BY 1".to_owned(),
        "SELECT n FROM x WHERE robot = 'r1' ORDER BY n".to_owned(),
        "SELECT n FROM x WHERE robot IN ('r1', 'r2') AND n % 7 = 0 ORDER BY n".to_owned(),
        "SELECT n FROM x WHERE robot LIKE 'r_' AND robot <> 'r1' ORDER BY n LIMIT 5".to_owned(),
        "SELECT n FROM x WHERE robot = 'r*'".to_owned(),
        "SELECT n FROM x WHERE site IS NULL ORDER BY n LIMIT 3".to_owned(),
        "SELECT n FROM x WHERE recording LIKE '%/03.mcap' OR recording LIKE '%/05.mcap' ORDER BY n".to_owned(),
        "SELECT n FROM x WHERE upper(robot) LIKE 'R1%' ORDER BY n".to_owned(),
        "SELECT n FROM x WHERE tags['weather'] IS NULL AND robot > 'r1' ORDER BY n".to_owned(),
        "SELECT n FROM x WHERE length(recording) + cardinality(tags) < 0".to_owned(),
        format!("SELECT n FROM x WHERE recording = '{third}' ORDER BY n"),
        format!("SELECT n FROM x WHERE recording IN ('{third}', '{seventh}', 'none') ORDER BY n"),
        "SELECT n FROM x WHERE recording = 'none'".to_owned(),
        format!("SELECT n FROM z WHERE recording = '{third}'"),
        "SELECT n FROM z ORDER BY n".to_owned(),
        "SELECT n FROM x ORDER BY log_time LIMIT 15".to_owned(),
        "SELECT n FROM x LIMIT 4".to_owned(),
        format!("SELECT n FROM x WHERE log_time > {} ORDER BY n", at(1_100)),
format!("SELECT n FROM x WHERE stamp BETWEEN {} AND {} ORDER BY n", at(99), at(204)),
        "SELECT x.n, y.n FROM x ASOF JOIN y MATCH_CONDITION (x.stamp >= y.stamp) ORDER BY 1".to_owned(),
        format!("SELECT x.n, y.n FROM x ASOF JOIN y MATCH_CONDITION (x.stamp >= y.stamp) WHERE x.recording = '{third}' ORDER BY 1"),
        "SELECT x.n, y.n FROM x ASOF JOIN y MATCH_CONDITION (x.stamp >= y.stamp) WHERE x.robot = 'r0' ORDER BY 1".to_owned(),
        "SELECT topic, type, sum(messages) FROM topics GROUP BY topic, type ORDER BY topic".to_owned(),
        "SELECT recording, topic, messages, hz FROM topics ORDER BY 1, 2".to_owned(),
        "SELECT recording, format, start, \"end\", size, messages, problems FROM recordings ORDER BY 1".to_owned(),
        "SELECT count(*) FROM recordings".to_owned(),
        "SELECT count(*) FROM topics WHERE topic = '/y'".to_owned(),
        "SELECT * FROM problems".to_owned(),
        "DESCRIBE x".to_owned(),
        "SHOW TABLES".to_owned(),
    ];
    for sql in &queries {
        assert_eq!(table(&known, sql), table(&named, sql), "{sql}");
    }
}

/// A file with messages of one type on `/t`.
fn write_typed(path: &Path, definition: &str, messages: &[&str]) {
    let schema = Schema {
        name: "test.T".to_owned(),
        encoding: "jsonschema".to_owned(),
        data: definition.to_owned().into(),
    };
    let channel = Arc::new(Channel {
        topic: "/t".to_owned(),
        message_encoding: "json".to_owned(),
        schema: Some(schema.into()),
        ..Channel::default()
    });
    let mut writer = McapWriter::create(path, McapWriterOptions::default()).expect("a file");
    for (number, text) in messages.iter().enumerate() {
        let at = Stamp::from_nanos(common::START + number as i64);
        let message = Message {
            channel: Arc::clone(&channel),
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload: (*text).to_owned().into(),
        };
        writer.write(&message).expect("written");
    }
    writer.finish().expect("finished");
}

#[test]
fn a_topic_of_other_types_in_other_recordings_has_the_fields_of_all() {
    let fleet = Fleet {
        folder: tempfile::tempdir().expect("a folder"),
    };
    fs::create_dir(fleet.folder.path().join("r")).expect("a folder");
    let object = |fields: &str| format!(r#"{{"type": "object", "properties": {{{fields}}}}}"#);
    let list = |fields: &str, v: &str| {
        let items = object(fields);
        object(&format!(
            r#""list": {{"type": "array", "items": {items}}}, "v": {{"type": "{v}"}}"#
        ))
    };
    let (number, text) = (r#""a": {"type": "integer"}"#, r#""b": {"type": "string"}"#);
    let path = |name: &str| fleet.folder.path().join(format!("r/{name}.mcap"));
    write_typed(
        &path("one"),
        &list(number, "integer"),
        &[
            r#"{"v": 1, "list": [{"a": 5}, {"a": null}]}"#,
            r#"{"v": 2, "list": null}"#,
        ],
    );
    let both = list(&format!("{text}, {number}"), "number");
    write_typed(
        &path("two"),
        &both,
        &[
            r#"{"v": 1.5, "list": [{"a": 7, "b": "x"}]}"#,
            r#"{"v": null, "list": [{"b": "y"}]}"#,
        ],
    );
    fleet.index();
    let rows = table(
        &fleet.database(),
        "SELECT v, list[1]['a'] AS a, list[1]['b'] AS b, cardinality(list) AS n FROM t ORDER BY recording, log_time",
    );
    assert_eq!(
        rows,
        "\
+-----+---+---+---+
| v   | a | b | n |
+-----+---+---+---+
| 1.0 | 5 |   | 2 |
| 2.0 |   |   |   |
| 1.5 | 7 | x | 1 |
|     |   | y | 1 |
+-----+---+---+---+"
    );
    let told = table(&fleet.database(), "SELECT message FROM problems");
    assert!(!told.contains("cannot be converted"), "{told}");
}

#[test]
fn only_recordings_that_a_query_needs_are_loaded() {
    let fleet = Fleet::new();
    let loaded = |sql: &str| {
        let database = fleet.database();
        table(&database, sql);
        database.recordings_loaded()
    };
    let third = fleet.name(3);
    let early = format!("SELECT count(n) FROM x WHERE log_time < {}", at(100));
    for (sql, wanted) in [
        ("SELECT 1", 0),
        ("DESCRIBE x", 0),
        ("SHOW COLUMNS FROM z", 0),
        ("SELECT count(*) FROM topics", 0),
        ("SELECT count(*) FROM recordings", 0),
        ("SELECT * FROM z", 1),
        ("SELECT count(*) FROM y", 4),
        ("SELECT count(*) FROM x WHERE robot = 'r1'", 4),
        ("SELECT count(*) FROM y WHERE robot = 'r1'", 0),
        (&early, 1),
        (
            &format!("SELECT count(*) FROM x WHERE recording = '{third}'"),
            1,
        ),
        (
            &format!(
                "SELECT count(*) FROM x ASOF JOIN y MATCH_CONDITION (x.stamp >= y.stamp) WHERE x.recording = '{third}'"
            ),
            1,
        ),
        (
            "SELECT count(*) FROM x ASOF JOIN y MATCH_CONDITION (x.stamp >= y.stamp) WHERE x.robot = 'r0'",
            4,
        ),
        ("SELECT count(*) FROM x WHERE recording LIKE '%/07.mcap'", 1),
        (
            "SELECT count(*) FROM x WHERE recording NOT LIKE '%/0_.mcap'",
            2,
        ),
        ("SELECT count(*) FROM x WHERE robot LIKE 'r1%'", 4),
        (
            "SELECT count(*) FROM x WHERE robot <> 'r1' AND recording > 'a'",
            0,
        ),
        (
            "SELECT count(*) FROM x WHERE robot > 'r1' OR site = 'paris'",
            4,
        ),
        ("SELECT count(*) FROM x WHERE tags['weather'] LIKE 'r%'", 0),
        ("SELECT count(*) FROM x WHERE cardinality(tags) > 0", 0),
        (
            "SELECT count(*) FROM x ASOF JOIN y MATCH_CONDITION (x.stamp >= y.stamp) WHERE x.recording LIKE '%/03.mcap'",
            1,
        ),
        ("SELECT count(*) FROM x", COUNT as usize),
    ] {
        assert_eq!(loaded(sql), wanted, "{sql}");
    }
}

#[test]
fn a_database_follows_its_catalogue() {
    let fleet = Fleet::new();
    let database = fleet.database();
    let count = |sql: &str| table(&database, sql);
    assert!(count("SELECT count(*) AS c FROM x").contains("| 120 |"));
    assert!(database.collect("SELECT * FROM new").is_err());
    fleet.record(COUNT, &["/x", "/new"]);
    fleet.index();
    assert!(count("SELECT count(*) AS c FROM x").contains("| 130 |"));
    assert!(count("SELECT count(*) AS c FROM new").contains("| 10 |"));
    assert!(database.tables().contains(&"/new".to_owned()));

    // A recording that is replaced is read as it is now.
    let path = fleet.path(0);
    write(&path, &[("/x", &[(5, 5, 5_000)])], 20);
    fleet.index();
    assert!(count("SELECT count(*) AS c FROM x").contains("| 121 |"));
    assert!(count("SELECT max(n) AS c FROM x WHERE robot = 'r0'").contains("| 5000 |"));
    fs::remove_file(&path).expect("it goes");
    fleet.index();
    assert!(count("SELECT count(*) AS c FROM x").contains("| 120 |"));
    let gone = Path::new(&path).display().to_string();
    assert!(!count("SELECT recording FROM recordings").contains(&gone));
}

#[test]
fn a_table_of_ones_own_keeps_its_name_when_a_recording_comes_to_have_it() {
    let fleet = Fleet::new();
    let rows = fleet
        .named()
        .collect("SELECT n, n * 2 AS twice FROM x WHERE n < 3");
    let rows = rows.expect("rows");
    let own = || OwnTable::of_rows(rows[0].schema(), rows.clone());
    let named = |name: &str| fleet.with_tables(BTreeMap::from([(name.to_owned(), own())]));
    for name in ["x", "/x", "topics"] {
        let error = named(name).expect_err("it is taken").to_string();
        assert!(error.contains(&format!("'{name}'")), "{error}");
    }
    let database = named("mine").expect("a database");
    let joined = "SELECT count(*) AS c, sum(twice) AS s FROM x JOIN mine ON x.n = mine.n";
    let before = table(&database, joined);
    assert!(before.contains("| 3 | 6 |"), "{before}");
    let notes = "SELECT * FROM problems";
    assert!(!table(&database, notes).contains("'mine'"));

    fleet.record(COUNT, &["/mine"]);
    fleet.index();
    assert_eq!(table(&database, joined), before);
    let count = table(&database, "SELECT count(*) AS c FROM \"/mine\"");
    assert!(count.contains("| 10 |"), "{count}");
    let notes = table(&database, notes);
    assert!(notes.contains("'mine' is your own table"), "{notes}");
    assert!(named("mine").is_err());
}
