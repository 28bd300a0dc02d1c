//! What the writer promises, above all to those whose process is killed.

mod common;

use std::io::{Cursor, Write};
use std::sync::Arc;
use std::time::Duration;

use asof_core::{Channel, Message, Query, Source, Stamp};
use asof_formats::{Compression, McapFile, McapWriteError, McapWriter, McapWriterOptions};

fn message(log_time: i64) -> Message {
    thread_local! {
        static CHANNEL: Arc<Channel> = Arc::new(Channel { topic: "/count".into(), ..Channel::default() });
    }
    let at = Stamp::from_nanos(log_time);
    let payload = log_time.to_le_bytes().to_vec().into();
    Message {
        channel: CHANNEL.with(Arc::clone),
        log_time: at,
        publish_time: at,
        sequence: 0,
        payload,
    }
}

#[test]
fn what_is_written_is_read_and_the_doctor_is_content() {
    for compression in [Compression::Zstd, Compression::Lz4, Compression::None] {
        for level in [0, 1, 9] {
            let options = McapWriterOptions {
                compression,
                level,
                chunk_size: 4096,
                ..McapWriterOptions::default()
            };
            let mut writer = McapWriter::new(Cursor::new(Vec::new()), options).expect("a writer");
            (0..2000).for_each(|n| writer.write(&message(n * 1_000_000)).expect("written"));
            assert_eq!(writer.written(), 2000);
            let file = McapFile::from_bytes("x", writer.finish().expect("finished").into_inner())
                .expect("opens");
            assert_eq!(
                common::messages(&file, &Query::all()),
                (0..2000)
                    .map(|n| message(n * 1_000_000))
                    .collect::<Vec<_>>()
            );
            assert_eq!(file.check(&mut |_, _| Ok(())).expect("reads"), []);
            assert!(file.summary().chunks > 10);
        }
    }
}

#[test]
fn a_chunk_is_closed_when_it_is_a_second_old_however_small_it_is() {
    let mut writer =
        McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default()).expect("a writer");
    (0..50).for_each(|n| writer.write(&message(n * 100_000_000)).expect("written"));
    let file =
        McapFile::from_bytes("x", writer.finish().expect("finished").into_inner()).expect("opens");
    assert_eq!(file.summary().chunks, 5);
}

#[test]
fn a_time_before_1970_is_refused_with_its_topic() {
    let mut writer =
        McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default()).expect("a writer");
    let error = writer.write(&message(-1)).expect_err("refused");
    assert!(matches!(error, McapWriteError::BeforeEpoch { .. }));
    assert!(error.to_string().contains("/count"), "{error}");
}

#[test]
fn the_same_messages_give_the_same_bytes() {
    let write = || {
        let mut writer = McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default())
            .expect("a writer");
        (0..5000).for_each(|n| writer.write(&message(n)).expect("written"));
        writer.finish().expect("finished").into_inner()
    };
    assert!(write() == write());
}

const CHILD: &str = "ASOF_TEST_WRITE_UNTIL_KILLED";

/// Not a test of its own: what the killed process of the next test runs.
#[test]
fn write_until_killed() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    let options = McapWriterOptions {
        chunk_age: Some(Duration::from_millis(50)),
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(path, options).expect("a file");
    // Should the other test end without killing this, nobody hears it any more.
    for now in (0..).step_by(1_000_000) {
        writer.write(&message(now)).expect("written");
        writeln!(std::io::stderr(), "wrote {now}").expect("a reader");
    }
}

#[test]
fn a_killed_writer_leaves_everything_up_to_its_last_closed_chunk() {
    use std::io::BufRead;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("killed.mcap");
    let mut child = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args([
            "write_until_killed",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, &path)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("a child");
    let lines = std::io::BufReader::new(child.stderr.take().expect("its output")).lines();
    let wrote = |line: String| {
        line.strip_prefix("wrote ")
            .and_then(|time| time.parse::<i64>().ok())
    };
    // Kept to the end: a child that nobody hears ends by itself.
    let mut written = lines.map_while(Result::ok).filter_map(wrote);
    let last = written.nth(1500).expect("1500 messages");
    child.kill().expect("killed");
    child.wait().expect("gone");
    drop(written);

    let file = McapFile::open(&path).expect("opens");
    let found = common::messages(&file, &Query::all());
    let reached = found.last().expect("messages").log_time.nanos();
    // Chunks are closed after 50 ms of log time: no more than that may be missing.
    assert!(reached >= last - 51_000_000, "{reached} of {last}");
    assert!(found.is_sorted_by_key(|m| m.log_time));
    assert!(
        !file.summary().problems.is_empty(),
        "a file that was not closed says so"
    );
}
