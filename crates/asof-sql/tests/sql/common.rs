//! Recordings of numbered messages, written for a test.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::Path;
use std::sync::Arc;

use asof_core::{Channel, Message, Schema, Source, Stamp};
use asof_formats::{McapWriter, McapWriterOptions};
use asof_sql::arrow::array::{AsArray, RecordBatch};
use asof_sql::arrow::compute::concat_batches;
use asof_sql::{Database, SqlOptions};

pub const START: i64 = 1_714_564_800_000_000_000;
pub const MILLI: i64 = 1_000_000;

const COUNTED: &str = "\
std_msgs/Header header
int64 n
uint8[] data
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
";

/// A message: when it was logged and measured, in milliseconds, and its number.
pub type Row = (i64, i64, i64);

pub fn channel(topic: &str) -> Arc<Channel> {
    let schema = Schema {
        name: "test_msgs/msg/Counted".to_owned(),
        encoding: "ros2msg".to_owned(),
        data: COUNTED.into(),
    };
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "cdr".to_owned(),
        schema: Some(schema.into()),
        ..Channel::default()
    })
}

pub fn message(channel: &Arc<Channel>, (logged, measured, n): Row, bytes: usize) -> Message {
    let stamp = START + measured * MILLI;
    let mut payload = vec![0, 1, 0, 0];
    payload.extend(((stamp / 1_000_000_000) as i32).to_le_bytes());
    payload.extend(((stamp % 1_000_000_000) as u32).to_le_bytes());
    payload.extend(1u32.to_le_bytes());
    payload.extend([0; 4]);
    payload.extend(n.to_le_bytes());
    payload.extend((bytes as u32).to_le_bytes());
    payload.extend((0..bytes).map(|at| (at as i64 * 31 + n) as u8));
    let log_time = Stamp::from_nanos(START + logged * MILLI);
    Message {
        channel: Arc::clone(channel),
        log_time,
        publish_time: log_time,
        sequence: n as u32,
        payload: payload.into(),
    }
}

/// Writes topics of such rows, in small chunks.
pub fn write(path: &Path, topics: &[(&str, &[Row])], bytes: usize) {
    let options = McapWriterOptions {
        chunk_size: 2 << 10,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(path, options).expect("a file");
    let mut messages = Vec::new();
    for (topic, rows) in topics {
        let channel = channel(topic);
        messages.extend(rows.iter().map(|row| message(&channel, *row, bytes)));
    }
    messages.sort_by_key(|message| message.log_time);
    for message in &messages {
        writer.write(message).expect("written");
    }
    writer.finish().expect("finished");
}

pub struct Fixture {
    _folder: tempfile::TempDir,
    pub recording: Arc<dyn Source>,
    pub database: Arc<Database>,
}

pub fn database(topics: &[(&str, &[Row])], threads: usize) -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    write(&path, topics, 40);
    Fixture::over(folder, &path, threads)
}

impl Fixture {
    /// A database of the recording at `path`.
    pub fn over(folder: tempfile::TempDir, path: &Path, threads: usize) -> Self {
        let recording: Arc<dyn Source> = Arc::from(asof_formats::open(path).expect("opens"));
        let options = SqlOptions {
            threads,
            ..SqlOptions::default()
        };
        let named = vec![("run.mcap".to_owned(), Arc::clone(&recording))];
        Fixture {
            _folder: folder,
            recording,
            database: Arc::new(Database::new(named, options).expect("a database")),
        }
    }

    pub fn rows(&self, sql: &str) -> RecordBatch {
        let query = self.database.query(sql);
        let query = query.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let schema = query.schema();
        let batches: Result<Vec<_>, _> = query.collect();
        concat_batches(&schema, &batches.expect(sql)).expect("one batch")
    }

    /// Bytes that were decompressed so far.
    pub fn decompressed(&self) -> u64 {
        let counters = self.recording.read_stats().expect("counts");
        counters.decompressed_bytes
    }

    pub fn plan(&self, sql: &str) -> String {
        let plan = self.rows(&format!("EXPLAIN {sql}"));
        let texts = plan.column(1).as_string::<i32>();
        texts.iter().flatten().collect::<Vec<_>>().join("\n")
    }
}

/// Numbers that look random and are the same in each run.
pub fn random(seed: u64) -> impl FnMut(i64) -> i64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as i64
    }
}

/// Messages with a latency of their own each; in order of stamp if so.
pub fn topic(seed: u64, count: i64, period: i64, latency: i64, is_in_order: bool) -> Vec<Row> {
    let mut random = random(seed);
    let mut last = i64::MIN;
    (0..count)
        .map(|n| {
            let logged = n * period + random(period.max(2));
            let mut measured = logged - random(latency + 1);
            if is_in_order {
                measured = measured.max(last);
            }
            last = measured;
            (logged, measured, n)
        })
        .collect()
}
