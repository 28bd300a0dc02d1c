//! Suite `sql`: queries over an MCAP file in place, in CPU seconds of all threads.
//!
//! `decompress` is what any reader must spend on the chunks that a query touches. `duckdb_export_and_query` and
//! `polars_export_and_join` are `asof export` of the recording to Parquet and then the same query there; the variants with
//! `_of_topics_` export only the topics of the query, which must be known beforehand, and `duckdb_query` has its tables
//! already. `rerun_load_and_query` is Rerun's dataframe reader. DuckDB, polars and Rerun run in processes of
//! their own, and are there if `peers/sql.sh` and `peers/rerun` could be set up.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use asof_core::{Source, Stamp};
use asof_formats::{McapWriter, McapWriterOptions};
use asof_sql::{Database, SqlOptions};
use asof_tf::TransformBuffer;

use crate::chunks::{cpu, decompress};
use crate::decode::files::Files;
use crate::export::export_topics;
use crate::harness::{Bench, Contender, contender};
use crate::python;
use crate::rerun::Rerun;

const ROUNDS: usize = 5;

/// The topic with most messages, 400 Hz, and one of 100 Hz.
const FAST: &str = "/imu/front";
const SLOW: &str = "/odom/wheels";
const THIRD: &str = "/arm/joint_states";

pub fn run(bench: &mut Bench) {
    // Small messages on ten topics, in zstd.
    let small = Files::prepare(|part| part == "a_").a;
    let peers = Peers::prepare();
    let rerun = Rerun::prepare();
    count_star(bench, &small);
    one_column(bench, &small, &rerun);
    five_percent(bench, &small);
    group_by(bench, &small, &peers);
    asof_join(bench, &small, &peers);
    asof_join_with_tolerance(bench, &small, &rerun);
    transforms(bench);
}

fn count_star(bench: &Bench, path: &Path) {
    let sql = format!("SELECT count(*) FROM \"{SLOW}\"");
    let contenders = vec![
        contender("asof", || cpu(|| query(path, &sql))),
        contender("decompress", || cpu(|| decompress(path, None))),
    ];
    bench.case("count_star_of_a_topic", "CPU s", ROUNDS, contenders);
}

fn average(filter: &str) -> String {
    format!("SELECT avg(angular_velocity.z) FROM \"{FAST}\" {filter}")
}

fn one_column(bench: &Bench, path: &Path, rerun: &Rerun) {
    let sql = average("");
    let mut contenders: Vec<Contender<'_>> = vec![
        contender("asof", || cpu(|| query(path, &sql))),
        contender("decompress", || cpu(|| decompress(path, Some(&[FAST])))),
    ];
    if rerun.is_there() {
        contenders.push(contender("rerun_load_and_query", || {
            rerun.query(path, &[FAST])
        }));
    }
    bench.case("one_column_of_one_topic", "CPU s", ROUNDS, contenders);
}

fn five_percent(bench: &Bench, path: &Path) {
    let range = open(path).summary().range;
    let length = range.duration_nanos();
    let (from, to) = (length / 2, length / 2 + length / 20);
    let part = average(&format!("WHERE log_time BETWEEN '+{from}ns' AND '+{to}ns'"));
    let whole = average("");
    let contenders = vec![
        contender("asof", || cpu(|| query(path, &part))),
        contender("one_column_of_one_topic", || cpu(|| query(path, &whole))),
    ];
    bench.case("five_percent_of_time", "CPU s", ROUNDS, contenders);
}

fn group_by(bench: &Bench, path: &Path, peers: &Peers) {
    let topics = [FAST, SLOW, THIRD];
    let each = topics.map(|topic| format!("SELECT log_time FROM \"{topic}\""));
    let sql = format!(
        "SELECT date_trunc('second', log_time) AS second, count(*) FROM ({}) GROUP BY 1",
        each.join(" UNION ALL ")
    );
    let mut contenders: Vec<Contender<'_>> = vec![contender("asof", || cpu(|| query(path, &sql)))];
    if peers.are_there() {
        contenders.push(contender("duckdb_export_and_query", || {
            peers.export_and("duckdb", path, &[], &topics)
        }));
        contenders.push(contender("duckdb_export_of_topics_and_query", || {
            peers.export_and("duckdb", path, &topics, &topics)
        }));
        let folder = tempfile::tempdir().expect("a folder");
        let tables = folder.path().join("tables");
        export_topics(path, &tables, &topics);
        contenders.push(contender("duckdb_query", move || {
            let _kept = &folder;
            peers.query("duckdb", &tables, &topics)
        }));
    }
    bench.case("group_by_over_three_topics", "CPU s", ROUNDS, contenders);
}

fn asof_join(bench: &Bench, path: &Path, peers: &Peers) {
    let sql = format!(
        "SELECT count(i.angular_velocity.z), count(o.pose.pose.position.x) FROM \"{FAST}\" i \
         ASOF JOIN \"{SLOW}\" o MATCH_CONDITION (i.log_time >= o.log_time)"
    );
    let mut contenders: Vec<Contender<'_>> = vec![
        contender("asof", || cpu(|| query(path, &sql))),
        contender("decompress", || {
            cpu(|| decompress(path, Some(&[FAST, SLOW])))
        }),
    ];
    if peers.are_there() {
        contenders.push(contender("polars_export_and_join", || {
            peers.export_and("polars", path, &[], &[FAST, SLOW])
        }));
        contenders.push(contender("polars_export_of_topics_and_join", || {
            peers.export_and("polars", path, &[FAST, SLOW], &[FAST, SLOW])
        }));
    }
    bench.case("asof_join_2_topics", "CPU s", ROUNDS, contenders);
}

fn asof_join_with_tolerance(bench: &Bench, path: &Path, rerun: &Rerun) {
    let sql = format!(
        "SELECT count(i.angular_velocity.z), count(o.pose.pose.position.x), count(j.log_time) FROM \"{FAST}\" i \
         ASOF JOIN \"{SLOW}\" o MATCH_CONDITION (i.log_time >= o.log_time AND i.log_time - o.log_time <= INTERVAL '20 ms') \
         ASOF JOIN \"{THIRD}\" j MATCH_CONDITION (nearest(i.log_time, j.log_time, INTERVAL '20 ms'))"
    );
    let mut contenders: Vec<Contender<'_>> = vec![contender("asof", || cpu(|| query(path, &sql)))];
    if rerun.is_there() {
        contenders.push(contender("rerun_load_and_query", || {
            rerun.query(path, &[FAST, SLOW, THIRD])
        }));
    }
    bench.case("asof_join_3_topics_tolerance", "CPU s", ROUNDS, contenders);
}

/// A hundred thousand stamps in a table, each looked up by `tf` and by the buffer itself. Loading is part of neither.
fn transforms(bench: &Bench) {
    const CASE: &str = "tf_of_100000_stamps";
    if !bench.wants(CASE) {
        return;
    }
    let (_folder, path) = demo_file();
    let recording: Arc<dyn Source> = Arc::from(asof_formats::open(&path).expect("opens"));
    let database = database(vec![("demo".to_owned(), Arc::clone(&recording))]);
    let buffer = TransformBuffer::from_source(&*recording)
        .expect("reads")
        .buffer;
    let range = recording.summary().range;
    let step = range.duration_nanos() / 100_001;
    let stamps: Vec<Stamp> = (0..100_000)
        .map(|at| range.start.plus_nanos(at * step))
        .collect();
    let (from, to) = (range.start.nanos(), step);
    let sql = format!(
        "SELECT count(tf('map', 'base_link', arrow_cast({from} + value * {to}, 'Timestamp(Nanosecond, Some(\"UTC\"))'))) \
         FROM generate_series(0, 99999)"
    );
    // The transforms are loaded once, before anything is measured.
    answer(&database, &sql);
    let contenders = vec![
        contender("asof", || cpu(|| answer(&database, &sql))),
        contender("lookup_many", || {
            cpu(|| black_box(buffer.lookup_many("map", "base_link", &stamps)))
        }),
    ];
    bench.case(CASE, "CPU s", ROUNDS, contenders);
}

/// Opens the file anew, and runs a query to its end.
fn query(path: &Path, sql: &str) -> usize {
    let database = database(vec![("small".to_owned(), open(path))]);
    answer(&database, sql)
}

fn answer(database: &Database, sql: &str) -> usize {
    let rows = database.query(sql).expect(sql);
    rows.map(|batch| black_box(batch.expect(sql)).num_rows())
        .sum()
}

fn open(path: &Path) -> Arc<dyn Source> {
    Arc::from(asof_formats::open(path).expect("an MCAP file"))
}

fn database(recordings: Vec<(String, Arc<dyn Source>)>) -> Database {
    Database::new(recordings, SqlOptions::default()).expect("a database")
}

/// Two minutes of the demo robot, whose frames move.
fn demo_file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("demo.mcap");
    let options = asof_demo::DemoOptions {
        duration: std::time::Duration::from_mins(2),
        ..asof_demo::DemoOptions::default()
    };
    let mut writer = McapWriter::create(&path, McapWriterOptions::default()).expect("a file");
    for message in asof_demo::Demo::new(options).messages() {
        writer.write(&message).expect("room on the disk");
    }
    writer.finish().expect("room on the disk");
    (folder, path)
}

/// Engines that need the tables as Parquet first.
struct Peers {
    python: Option<PathBuf>,
}

impl Peers {
    fn prepare() -> Self {
        Peers {
            python: python::with_polars(),
        }
    }

    fn are_there(&self) -> bool {
        self.python.is_some()
    }

    /// CPU seconds of the export of some topics, of all where none are named, and of the query over it.
    fn export_and(&self, peer: &str, path: &Path, exported: &[&str], topics: &[&str]) -> f64 {
        let folder = tempfile::tempdir().expect("a folder");
        let tables = folder.path().join("tables");
        cpu(|| export_topics(path, &tables, exported)) + self.query(peer, &tables, topics)
    }

    /// CPU seconds of a query over tables in Parquet.
    fn query(&self, peer: &str, tables: &Path, topics: &[&str]) -> f64 {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/sql_peer.py");
        let output = Command::new(self.python.as_ref().expect("are there"))
            .arg(script)
            .arg(peer)
            .arg(tables)
            .args(topics)
            .output()
            .expect("python runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.trim().lines().last();
        match last.and_then(|line| line.parse::<f64>().ok()) {
            Some(seconds) => seconds,
            None => panic!("{peer}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}
