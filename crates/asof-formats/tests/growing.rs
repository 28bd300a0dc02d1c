//! A file that is being written is a source that grows, alone and among others.

mod common;

use std::fs::OpenOptions as FileOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::testing::{assert_growing, assert_source};
use asof_core::{Channel, FollowEnd, Followed, Growth, Message, Query, Source, Stamp};
use asof_formats::{Compression, McapWriter, McapWriterOptions, Merged, OpenOptions, open_with};

/// A recorder: what it writes is whole in the file when it says so.
struct Recorder {
    path: PathBuf,
    writer: McapWriter<std::io::BufWriter<std::fs::File>>,
    channels: [Arc<Channel>; 2],
    second: i64,
}

impl Recorder {
    fn new(path: &Path, compression: Compression) -> Self {
        let options = McapWriterOptions {
            compression,
            chunk_age: Some(Duration::from_nanos(1)),
            ..McapWriterOptions::default()
        };
        let channel = |topic: &str| {
            Arc::new(Channel {
                topic: topic.into(),
                message_encoding: "json".into(),
                ..Channel::default()
            })
        };
        Recorder {
            path: path.to_owned(),
            writer: McapWriter::create(path, options).expect("creates"),
            channels: [channel("/a"), channel("/b")],
            second: 0,
        }
    }

    /// Writes so many messages, a second apart, and sees to it that they are in the file.
    fn say(&mut self, count: i64) -> Vec<Message> {
        let mut said = Vec::new();
        for _ in 0..count {
            self.second += 1;
            let at = Stamp::from_nanos(self.second * 1_000_000_000);
            let message = Message {
                channel: Arc::clone(&self.channels[(self.second % 2) as usize]),
                log_time: at,
                publish_time: at,
                sequence: self.second as u32,
                payload: format!("{}", self.second).into(),
            };
            self.writer.write(&message).expect("written");
            said.push(message);
        }
        self.writer.tick(Stamp::MAX).expect("written");
        self.writer.flush().expect("flushed");
        said
    }

    fn finish(self) -> PathBuf {
        self.writer.finish().expect("finished");
        self.path
    }
}

fn open_growing(path: &Path) -> Box<dyn Source> {
    let options = OpenOptions {
        growing: true,
        ..OpenOptions::default()
    };
    open_with(path, &options).expect("opens")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

#[test]
fn a_file_that_is_being_written_keeps_what_a_growing_source_promises() {
    let folder = tempfile::tempdir().expect("a folder");
    for compression in [Compression::Zstd, Compression::None] {
        let path = folder.path().join("run.mcap");
        let mut recorder = Recorder::new(&path, compression);
        recorder.say(0);
        // From the very first bytes on, and once there is something.
        assert_growing(&*open_growing(&path), "from the start", &mut || {
            recorder.say(3)
        });
        assert_growing(&*open_growing(&path), "in the middle", &mut || {
            recorder.say(5)
        });
        let file = open_growing(&path);
        assert_eq!(file.growth(), Growth::Growing);
        assert_eq!(file.summary().problems, []);
        let mut follower = file.follow(&Query::topics(["/a"])).expect("followed");
        recorder.finish();
        let mut seen = 0;
        loop {
            match follower.next(soon()).expect("reads") {
                Followed::Batch(batch) => seen += batch.len(),
                Followed::End(end) => {
                    assert_eq!(end, FollowEnd::Complete);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, 12);
        assert_eq!(file.growth(), Growth::Finished);
        assert_source(&*file, "after its end");
        assert!(!open_growing(&path).growth().is_growing());
    }
}

#[test]
fn a_merge_grows_with_its_parts() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut finished = Recorder::new(&folder.path().join("before.mcap"), Compression::Zstd);
    finished.say(4);
    let finished = finished.finish();
    let paths = [
        folder.path().join("one.mcap"),
        folder.path().join("two.mcap"),
    ];
    let mut recorders = paths
        .clone()
        .map(|path| Recorder::new(&path, Compression::Zstd));
    recorders[0].say(2);
    recorders[1].say(0);
    let parts = [&finished, &paths[0], &paths[1]];
    let parts = parts.map(|path| (path.display().to_string(), open_growing(path)));
    let merged = Merged::new(parts.into());
    assert_eq!(merged.growth(), Growth::Growing);
    let before = merged.summary();
    assert!(Arc::ptr_eq(&before, &merged.summary()));
    recorders[0].say(1);
    let after = merged.summary();
    assert_eq!(
        after.messages,
        before.messages.map(|before| before + 1),
        "a part has grown"
    );
    assert!(Arc::ptr_eq(&after, &merged.summary()));
    let mut turn = 0;
    // Later than everything before, so that the order is that of arrival.
    recorders[1].second = 100;
    assert_growing(&merged, "merged", &mut || {
        turn += 1;
        recorders[0].second = recorders[0].second.max(recorders[1].second);
        recorders[1].second = recorders[0].second + 10;
        recorders[turn % 2].say(3)
    });
    let mut follower = merged.follow(&Query::all()).expect("followed");
    for recorder in recorders {
        recorder.finish();
    }
    let end = loop {
        if let Followed::End(end) = follower.next(soon()).expect("reads") {
            break end;
        }
    };
    assert_eq!(end, FollowEnd::Complete);
    assert_eq!(merged.growth(), Growth::Finished);
}

#[test]
fn a_file_that_goes_away_is_lost_and_one_without_an_end_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let mut recorder = Recorder::new(&path, Compression::Zstd);
    recorder.say(3);
    let file = open_growing(&path);
    let mut follower = file.follow(&Query::all()).expect("followed");
    let mut seen = 0;
    while let Followed::Batch(batch) = follower.next(Instant::now()).expect("reads") {
        seen += batch.len();
    }
    assert_eq!(seen, 3);
    // Half a record: nothing is wrong, and nothing is there.
    let mut raw = FileOptions::new().append(true).open(&path).expect("opens");
    raw.write_all(&[6, 100, 0, 0]).expect("writes");
    assert!(matches!(
        follower.next(Instant::now()),
        Ok(Followed::CaughtUp)
    ));
    assert_eq!(file.summary().problems, []);
    assert_source(&*file, "half a record");
    std::fs::remove_file(&path).expect("removes");
    let lost = follower.next(soon()).expect("says so");
    assert!(
        matches!(lost, Followed::End(FollowEnd::Lost(_))),
        "{lost:?}"
    );
    assert!(matches!(follower.next(soon()), Ok(Followed::End(_))));
}

#[test]
fn a_range_that_has_passed_ends_the_following() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let mut recorder = Recorder::new(&path, Compression::Zstd);
    recorder.say(3);
    let file = open_growing(&path);
    let until = Stamp::from_nanos(5_000_000_000);
    let mut follower = file
        .follow(&Query::all().between(..=until))
        .expect("followed");
    recorder.say(5);
    let mut seen = 0;
    loop {
        match follower.next(soon()).expect("reads") {
            Followed::Batch(batch) => seen += batch.len(),
            Followed::End(FollowEnd::Complete) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, 5);
}

#[test]
fn only_who_says_so_opens_a_file_without_its_end_as_one_that_grows() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let mut recorder = Recorder::new(&path, Compression::Zstd);
    recorder.say(3);
    let cut = asof_formats::open(&path).expect("opens");
    assert_eq!(cut.growth(), Growth::Finished);
    assert!(!cut.summary().problems.is_empty());
}
