//! What is said of recordings is known without opening one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Row, write};
use asof_core::{Batch, Batches, Query, Source, SourceError, Stamp, Topics};
use asof_formats::{McapWriter, McapWriterOptions};
use asof_sql::arrow::util::pretty::pretty_format_batches;
use asof_sql::{Database, RecordingLabels, SqlOptions};

/// A recording that counts how often it is read.
struct Counted {
    recording: Box<dyn Source>,
    reads: Arc<AtomicU64>,
}

impl asof_core::SourceLayer for Counted {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.recording
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner().read(query)
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner().latest_at(topics, at)
    }
}

struct Fleet {
    database: Database,
    reads: BTreeMap<String, Arc<AtomicU64>>,
    _folder: tempfile::TempDir,
}

fn opened(path: &Path) -> (Arc<dyn Source>, Arc<AtomicU64>) {
    let recording = asof_formats::open(path).expect("a recording");
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Counted {
        recording,
        reads: Arc::clone(&reads),
    };
    (Arc::new(counted), reads)
}

/// Recordings of two robots; nothing is said of the last one.
fn fleet() -> Fleet {
    fleet_of(|path, place| {
        let first = place as i64 * 100;
        let rows: Vec<Row> = (0..10).map(|n| (first + n, first + n, n)).collect();
        write(path, &[("/x", &rows), ("/y", &rows)], 10);
    })
}

/// The same of a robot that tells transforms, scans, logs and diagnostics.
fn fleet_of_demos() -> Fleet {
    fleet_of(|path, place| {
        let demo = asof_demo::Demo::new(asof_demo::DemoOptions {
            seed: place as u64,
            duration: Duration::from_secs(2),
            ..asof_demo::DemoOptions::default()
        });
        let mut writer = McapWriter::create(path, McapWriterOptions::default()).expect("a file");
        for message in demo.messages() {
            writer.write(&message).expect("written");
        }
        writer.finish().expect("finished");
    })
}

fn fleet_of(record: impl Fn(&Path, usize)) -> Fleet {
    let folder = tempfile::tempdir().expect("a folder");
    let said = [
        ("a", Some(("r1", "berlin", "rain"))),
        ("b", Some(("r2", "berlin", "sun"))),
        ("c", Some(("r2", "paris", "rain"))),
        ("d", None),
    ];
    let (mut recordings, mut reads) = (Vec::new(), BTreeMap::new());
    let mut labels = BTreeMap::new();
    for (place, (name, said)) in said.into_iter().enumerate() {
        let path = folder.path().join(format!("{name}.mcap"));
        record(&path, place);
        let (recording, counted) = opened(&path);
        recordings.push((name.to_owned(), recording));
        reads.insert(name.to_owned(), counted);
        if let Some((robot, site, weather)) = said {
            let tags = BTreeMap::from([("weather".to_owned(), weather.to_owned())]);
            let said = RecordingLabels {
                robot: Some(robot.to_owned()),
                site: Some(site.to_owned()),
                tags,
            };
            labels.insert(name.to_owned(), said);
        }
    }
    let options = SqlOptions {
        labels,
        threads: 2,
        ..SqlOptions::default()
    };
    Fleet {
        database: Database::new(recordings, options).expect("a database"),
        reads,
        _folder: folder,
    }
}

impl Fleet {
    fn table(&self, sql: &str) -> String {
        let rows = self.database.collect(sql);
        let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
        pretty_format_batches(&rows).expect("text").to_string()
    }

    /// The recordings that a query reads.
    fn read_for(&self, sql: &str) -> String {
        for reads in self.reads.values() {
            reads.store(0, Ordering::Relaxed);
        }
        self.table(sql);
        let read = self.reads.iter();
        let read = read.filter(|(_, reads)| reads.load(Ordering::Relaxed) > 0);
        read.map(|(name, _)| name.as_str()).collect()
    }
}

#[test]
fn a_filter_over_labels_opens_no_other_recording() {
    let fleet = fleet();
    for (filter, expected) in [
        ("robot = 'r2'", "bc"),
        ("'r1' = robot", "a"),
        ("robot IN ('r1', 'r3')", "a"),
        ("robot LIKE 'r%' AND site <> 'paris'", "ab"),
        ("robot = 'r1' OR site = 'paris'", "ac"),
        ("robot IS NULL", "d"),
        ("tags['weather'] = 'rain'", "ac"),
        ("tags['nothing'] = 'rain'", ""),
        ("tags['weather'] = 'rain' AND robot = 'r2' AND n > 3", "c"),
        ("recording > 'b'", "cd"),
        ("recording IN ('a', 'd') AND robot = 'r1'", "a"),
        ("recording = 'b' AND robot = 'r1'", ""),
        // What is about messages as well takes all of them.
        ("robot = 'r1' OR n = 3", "abcd"),
    ] {
        let sql = format!("SELECT count(*), sum(n) FROM x WHERE {filter}");
        assert_eq!(fleet.read_for(&sql), expected, "{filter}");
    }
    let joined = "SELECT x.n, y.n FROM x ASOF JOIN y MATCH_CONDITION (x.log_time >= y.log_time) WHERE x.robot = 'r1'";
    assert_eq!(fleet.read_for(joined), "a");
}

#[test]
fn labels_are_columns_and_what_nothing_is_said_of_has_none() {
    let fleet = fleet();
    let rows = fleet.table(
        "SELECT recording, robot, site, tags['weather'] AS weather, count(*) AS n FROM x GROUP BY 1, 2, 3, 4 ORDER BY 1",
    );
    assert_eq!(
        rows,
        "\
+-----------+-------+--------+---------+----+
| recording | robot | site   | weather | n  |
+-----------+-------+--------+---------+----+
| a         | r1    | berlin | rain    | 10 |
| b         | r2    | berlin | sun     | 10 |
| c         | r2    | paris  | rain    | 10 |
| d         |       |        |         | 10 |
+-----------+-------+--------+---------+----+"
    );
}

/// The tables of what messages mean.
const MEANINGS: [&str; 4] = ["transforms", "logs", "diagnostics", "points('/scan', 5)"];

#[test]
fn what_messages_mean_has_labels_too() {
    let fleet = fleet_of_demos();
    for table in MEANINGS {
        let rows = fleet.table(&format!(
            "SELECT DISTINCT recording, robot, site, tags['weather'] AS weather FROM {table} ORDER BY 1"
        ));
        assert_eq!(
            rows,
            "\
+-----------+-------+--------+---------+
| recording | robot | site   | weather |
+-----------+-------+--------+---------+
| a         | r1    | berlin | rain    |
| b         | r2    | berlin | sun     |
| c         | r2    | paris  | rain    |
| d         |       |        |         |
+-----------+-------+--------+---------+",
            "{table}"
        );
    }
}

#[test]
fn a_filter_over_labels_leaves_recordings_closed_for_meanings_too() {
    let fleet = fleet_of_demos();
    for table in MEANINGS {
        // The columns of points are those of a first message.
        let first = if table.starts_with("points") { "a" } else { "" };
        for (filter, expected) in [
            ("robot = 'r2'", "bc"),
            ("tags['weather'] = 'rain' AND site = 'paris'", "c"),
            ("recording > 'b' AND recording < 'd'", "c"),
            ("robot IS NULL", "d"),
        ] {
            let sql = format!("SELECT count(*) FROM {table} WHERE {filter}");
            assert_eq!(fleet.read_for(&sql), format!("{first}{expected}"), "{sql}");
        }
        let counted = fleet.table(&format!(
            "SELECT count(*) > 0 AND count(DISTINCT recording) = 2 AS two FROM {table} WHERE robot = 'r2'"
        ));
        assert!(counted.contains("true"), "{table}: {counted}");
    }
}
