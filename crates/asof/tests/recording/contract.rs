//! A recording, and each that is made from it, keeps the promises of a source.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use asof::decode::{TableOptions, Tables};
use asof::export::{ExportFormat, ExportOptions};
use asof::files::ConvertOptions;
use asof::formats::{McapFile, McapWriter, McapWriterOptions, Merged};
use asof::window::Bounds;
use asof::window::Recent;
use asof::{
    Channel, FollowEnd, Followed, Message, Progress, Query, Recording, Source, SourceError, Stamp,
    TimeRange, Topics,
};
use asof_core::testing::{assert_growing, assert_source};

fn message(topic: &str, at: i64, value: u64) -> Message {
    let channel = Channel {
        topic: topic.to_owned(),
        message_encoding: "json".to_owned(),
        ..Channel::default()
    };
    Message {
        channel: Arc::new(channel),
        log_time: Stamp::from_nanos(at),
        publish_time: Stamp::from_nanos(at),
        sequence: value as u32,
        payload: format!("{{\"value\":{value}}}").into(),
    }
}

/// Sixty messages on three topics in small chunks; `/late` starts in the middle.
fn recording(start: i64) -> Recording {
    let options = McapWriterOptions {
        chunk_size: 200,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::new(std::io::Cursor::new(Vec::new()), options).expect("a writer");
    for round in 0..30 {
        let at = start + round * 10;
        for (after, topic) in ["/a", "b", "/late"].iter().enumerate() {
            if *topic != "/late" || (10..20).contains(&round) {
                let message = message(topic, at + after as i64, round as u64);
                writer.write(&message).expect("written");
            }
        }
    }
    let bytes = writer.finish().expect("finished").into_inner();
    let file = McapFile::from_bytes("run.mcap".to_owned(), bytes).expect("a file");
    Recording::new(Arc::new(file) as Arc<dyn Source>, &["run.mcap".into()])
}

fn keeps_promises(recording: &Recording, name: &str) {
    assert_source(&**recording.source(), name);
    assert_source(recording, name);
}

fn topics_and_times(recording: &Recording, query: &Query) -> Vec<(String, i64)> {
    let batches = recording.read(query).expect("reads");
    batches
        .flat_map(|batch| {
            let batch = batch.expect("a batch");
            let one = |message: asof::MessageRef<'_>| {
                (message.channel.topic.clone(), message.log_time.nanos())
            };
            batch.iter().map(one).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn a_recording_keeps_them() {
    keeps_promises(&recording(1000), "a recording");
}

#[test]
fn a_shifted_one_keeps_them_with_other_topics_and_times() {
    let (own, shifted) = (recording(1000), recording(1000).shifted("/x", -400));
    keeps_promises(&shifted, "shifted");
    keeps_promises(&own.shifted("", 5), "shifted in time alone");
    let wanted: Vec<(String, i64)> = topics_and_times(&own, &Query::all())
        .into_iter()
        .map(|(topic, at)| (format!("/x/{}", topic.trim_start_matches('/')), at - 400))
        .collect();
    assert_eq!(topics_and_times(&shifted, &Query::all()), wanted);
    let range = TimeRange::new(Stamp::from_nanos(700), Stamp::from_nanos(751));
    let some: Vec<_> = wanted
        .iter()
        .filter(|(topic, at)| topic == "/x/b" && (700..=751).contains(at))
        .cloned()
        .collect();
    assert_eq!(some.len(), 6);
    let asked = Query::topics(["/x/b"]).between(range);
    assert_eq!(topics_and_times(&shifted, &asked), some);
    // A name without the prefix is not one of its topics.
    assert_eq!(topics_and_times(&shifted, &Query::topics(["/a"])), []);
}

#[test]
fn a_selection_keeps_them_and_spans_its_own_messages() {
    let all = recording(1000);
    keeps_promises(&all.selected(|_| true), "all channels");
    keeps_promises(&all.selected(|_| false), "no channel");
    let late = all.selected(|channel| channel.topic == "/late");
    keeps_promises(&late, "one channel");
    assert_eq!(late.topics(), ["/late"]);
    assert_eq!(late.summary().messages, Some(10));
    assert_eq!(late.start().map(Stamp::nanos), Some(1102));
    assert_eq!(late.end().map(Stamp::nanos), Some(1192));
}

#[test]
fn one_with_more_metadata_keeps_them() {
    let values: BTreeMap<String, String> = [("0".to_owned(), "a bump".to_owned())].into();
    let one = recording(1000).with_metadata("notes", values.clone());
    let both = one.with_metadata("site", BTreeMap::new());
    keeps_promises(&both, "with metadata");
    let summary = both.summary();
    let names: Vec<&str> = summary
        .metadata
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["notes", "site"]);
    assert_eq!(both.metadata(&summary.metadata[0]).expect("there"), values);
}

#[test]
fn several_side_by_side_keep_them() {
    let (before, after) = (recording(1000), recording(9000));
    let part = |name: &str, recording: Recording| {
        let source: Box<dyn Source> = Box::new(recording);
        (name.to_owned(), source)
    };
    let parts = vec![
        part("before", before.shifted("/before", 0)),
        part("after", after.shifted("/after", -8000)),
    ];
    let both = Recording::new(Arc::new(Merged::new(parts)) as Arc<dyn Source>, &[]);
    keeps_promises(&both, "side by side");
    assert_eq!(both.summary().messages, Some(140));
    assert_eq!(both.topics().len(), 6);
}

/// A store of recent messages that grows, in the layers of a recording.
#[test]
fn layers_keep_them_while_a_source_grows() {
    type Layer = fn(&Recording) -> Recording;
    let layers: [(&str, Layer); 4] = [
        ("a growing recording", Recording::clone),
        ("shifted", |one| one.shifted("/x", 7)),
        ("selected", |one| {
            one.selected(|channel| channel.topic != "/b")
        }),
        ("with metadata", |one| {
            one.with_metadata("notes", BTreeMap::new())
        }),
    ];
    for (name, layer) in layers {
        let recent = Recent::new(Bounds::count(1000));
        let plain = Recording::new(Arc::new(recent.clone()) as Arc<dyn Source>, &[]);
        let recording = layer(&plain);
        let mut at = 1000;
        let mut grow = || {
            let before = recording.read(&Query::all()).expect("reads");
            let before: usize = before.map(|batch| batch.expect("a batch").len()).sum();
            for topic in ["/a", "/b", "/a"] {
                at += 10;
                recent.push(message(topic, at, at as u64));
            }
            let all = recording.read(&Query::all()).expect("reads");
            let all = all.flat_map(|batch| {
                let batch = batch.expect("a batch");
                batch.iter().map(|one| one.to_message()).collect::<Vec<_>>()
            });
            all.skip(before).collect::<Vec<_>>()
        };
        assert!(!grow().is_empty());
        assert_growing(&recording, name, &mut grow);
        recent.close(FollowEnd::Complete);
        recent.push(message("/a", 9000, 1));
        assert_source(&recording, name);
    }
}

#[test]
fn a_read_answers_from_what_is_held_and_a_cancelled_follower_ends() {
    let recent = Recent::new(Bounds::count(1000));
    recent.push(message("/a", 1000, 1));
    let progress = Progress::default();
    let recording = Recording::new(Arc::new(recent) as Arc<dyn Source>, &[]);
    let recording = recording.with_progress(progress.clone());
    assert_eq!(topics_and_times(&recording, &Query::all()).len(), 1);
    let mut follow = recording.follow(&Query::all()).expect("follows");
    let first = follow.next(Instant::now());
    assert!(matches!(first, Ok(Followed::Batch(batch)) if batch.len() == 1));
    let late = std::thread::spawn(move || {
        let far = Instant::now() + std::time::Duration::from_mins(5);
        let error = follow.next(far).expect_err("cancelled");
        (error, follow.next(far))
    });
    progress.cancel();
    let (error, again) = late.join().expect("no panic");
    assert!(matches!(error, SourceError::Cancelled), "{error}");
    assert!(matches!(again, Ok(Followed::End(_))));
}

/// Pushes messages while something follows, and ends the stream once they were seen.
fn while_it_grows<T: Send>(work: impl FnOnce(Recording) -> T + Send) -> T {
    let recent = Recent::new(Bounds::count(1000));
    for at in 0..10 {
        recent.push(message("/a", 1000 + at, at as u64));
    }
    let recording = Recording::new(Arc::new(recent.clone()) as Arc<dyn Source>, &[]);
    std::thread::scope(|threads| {
        let done = threads.spawn(|| work(recording));
        for at in 10..20 {
            recent.push(message("/a", 1000 + at, at as u64));
        }
        recent.close(FollowEnd::Complete);
        done.join().expect("no panic")
    })
}

#[test]
fn an_export_and_a_conversion_follow_a_source_until_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    for format in [
        ExportFormat::Csv,
        ExportFormat::Ndjson,
        ExportFormat::Parquet,
    ] {
        let tables = folder.path().join(format!("{format:?}"));
        let options = ExportOptions {
            format,
            follow: true,
            ..ExportOptions::default()
        };
        let is_complete = while_it_grows(|recording| recording.export(&tables, &options));
        assert!(is_complete.expect("exported"));
        let lines = |name: &str| {
            let text = std::fs::read_to_string(tables.join(name)).expect("a table");
            text.lines().count()
        };
        match format {
            ExportFormat::Csv => assert_eq!(lines("a.csv"), 21),
            ExportFormat::Ndjson => assert_eq!(lines("a.ndjson"), 20),
            _ => assert!(tables.join("a.parquet").is_file()),
        }
    }
    let path = folder.path().join("run.mcap");
    let mut options = ConvertOptions::default();
    options.conversion.follow = true;
    let written = while_it_grows(|recording| recording.convert(&path, &options));
    assert_eq!(written.expect("converted").converted.messages, 20);
    let rows = while_it_grows(|recording| {
        let options = TableOptions {
            follow: true,
            ..TableOptions::default()
        };
        let tables = Tables::read(&recording, &Query::all(), options).expect("tables");
        let rows = tables.map(|batch| batch.expect("a batch").batch.num_rows());
        rows.sum::<usize>()
    });
    assert_eq!(rows, 20);
    assert!(
        asof::open(&path)
            .expect("opens")
            .latest_at(&Topics::All, Stamp::MAX)
            .is_ok()
    );
}
