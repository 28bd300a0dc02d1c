//! Folders of recordings as one database.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use asof::catalogue::{IndexOptions, NamePattern, Search};
use asof::formats::{McapWriter, McapWriterOptions};
use asof::{Channel, Event, Fleet, FleetOptions, Message, Progress, Stamp, When};
use tempfile::TempDir;

/// A recording with a number each second, from `start` on.
fn record(path: &Path, topic: &str, start: i64) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let mut writer = McapWriter::create(path, McapWriterOptions::default()).expect("a file");
    let channel = Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "json".to_owned(),
        ..Channel::default()
    });
    for second in start..start + 3 {
        let at = Stamp::from_nanos(second * 1_000_000_000);
        let payload = format!("{{\"value\": {second}}}").into();
        let channel = Arc::clone(&channel);
        let message = Message {
            channel,
            log_time: at,
            publish_time: at,
            sequence: 0,
            payload,
        };
        writer.write(&message).expect("written");
    }
    writer.finish().expect("finished");
}

/// Three recordings of two robots.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    record(&folder.path().join("r7/a.mcap"), "/battery", 10);
    record(&folder.path().join("r7/b.mcap"), "/bumper", 20);
    record(&folder.path().join("r8/c.mcap"), "/battery", 30);
    folder
}

fn options() -> IndexOptions {
    IndexOptions {
        patterns: Some(vec!["{robot}/…".parse().expect("a pattern")]),
        ..IndexOptions::default()
    }
}

fn on(topic: &str) -> Search {
    Search {
        topics: vec![NamePattern::new(topic)],
        ..Search::default()
    }
}

#[test]
fn a_folder_is_indexed_once_and_found_by_topic_and_tag() {
    let folder = folder();
    let fleet = asof::fleet(folder.path()).expect("a fleet");
    assert!(!fleet.is_indexed().expect("readable"));
    let run = fleet.index(&options()).expect("a run");
    assert_eq!((run.recordings, run.opened), (3, 3));
    let run = fleet.index(&options()).expect("a run");
    assert_eq!((run.opened, run.unchanged), (0, 3));

    let found = fleet.find(&on("/battery")).expect("an answer");
    let names: Vec<&str> = found
        .recordings
        .iter()
        .map(|one| &*one.row.recording)
        .collect();
    assert_eq!(names, ["r7/a.mcap", "r8/c.mcap"]);
    let json = fleet.found_as_json(&found.recordings[1]);
    assert_eq!(
        (&json["robot"], &json["messages"]),
        (&"r8".into(), &3.into())
    );
    assert_eq!(json["topics"][0]["start"], 30_000_000_000_i64);

    let row = fleet
        .tag("c.mcap", [("weather", Some("rain")), ("robot", Some("r9"))])
        .expect("tagged");
    assert_eq!(
        (row.robot.as_deref(), row.tags["weather"].as_str()),
        (Some("r9"), "rain")
    );
    let row = fleet
        .tag("c.mcap", [("weather", None::<&str>)])
        .expect("tagged");
    assert!(!row.tags.contains_key("weather"));
    assert!(fleet.tag("c.mcap", [(" ", Some("x"))]).is_err());
}

#[test]
fn the_bytes_of_a_topic_are_estimated_by_the_indexes() {
    let folder = folder();
    let fleet = asof::fleet(folder.path()).expect("a fleet");
    fleet.index(&options()).expect("a run");
    // Three messages of {"value": 10}.
    let found = fleet.find(&on("/battery")).expect("found");
    let bytes = found
        .recordings
        .iter()
        .map(|found| found.topics["/battery"].bytes_estimate);
    assert_eq!(bytes.collect::<Vec<_>>(), [Some(39), Some(39)]);
    let json = fleet.found_as_json(&found.recordings[0]);
    assert_eq!(json["topics"][0]["bytes_estimate"], 39);
    assert_eq!(json["topics"][0]["messages"], 3);
    #[cfg(feature = "sql")]
    {
        let query = "SELECT sum(bytes_estimate) AS bytes FROM topics";
        let rows = |table: asof::Table| {
            let mut out = Vec::new();
            table
                .write(&mut out, asof::rows::RowForm::Json)
                .expect("rows");
            String::from_utf8(out).expect("text")
        };
        let all = fleet.sql(query).expect("a query");
        assert_eq!(rows(all), "{\"bytes\":117}\n");
        let one = asof::open(folder.path().join("r7/b.mcap")).expect("a recording");
        assert_eq!(rows(one.sql(query).expect("a query")), "{\"bytes\":39}\n");
    }
}

#[test]
fn recordings_of_a_fleet_are_read_like_any_other() {
    let folder = folder();
    let fleet = asof::fleet(folder.path()).expect("a fleet");
    fleet.index(&options()).expect("a run");
    std::fs::remove_file(folder.path().join("r7/b.mcap")).expect("it goes");
    fleet.index(&options()).expect("a run");
    let all = fleet.recordings(&Search::default()).expect("an answer");
    assert_eq!((all.recordings.len(), all.gone, all.unreadable), (2, 1, 0));
    let last = &all.recordings[1];
    assert_eq!(last.row.robot.as_deref(), Some("r8"));
    let known = last.recording.at("+1.5s".parse::<When>().expect("a time"));
    let known = known.expect("an answer");
    assert_eq!(
        known.get(0).map(|one| one.payload),
        Some(&b"{\"value\": 31}"[..])
    );
    let one = fleet.recording("a.mcap").expect("a recording");
    assert_eq!(one.topics(), ["/battery"]);
    let error = fleet
        .recording("nothing.mcap")
        .expect_err("no such recording");
    assert!(error.to_string().contains("nothing.mcap"), "{error}");
}

#[test]
fn a_run_reports_its_progress_and_the_first_problems() {
    let folder = tempfile::tempdir().expect("a folder");
    for number in 0..12 {
        let path = folder.path().join(format!("{number:02}.mcap"));
        record(&path, "/battery", number);
        let bytes = std::fs::read(&path).expect("readable");
        std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("cut");
    }
    let heard = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let into = Arc::clone(&heard);
    let progress = Progress::to(move |event| {
        let mut heard = into.lock().expect("not poisoned");
        match event {
            Event::Done { done, total } => heard.0.push((done, total)),
            Event::Warning(text) => heard.1.push(text.to_owned()),
            _ => {}
        }
    });
    let fleet = asof::fleet(folder.path())
        .expect("a fleet")
        .with_progress(progress);
    let run = fleet.index(&options()).expect("a run");
    assert_eq!(run.damaged, 12);
    let (steps, warnings) = &*heard.lock().expect("not poisoned");
    assert_eq!(*steps, (1..=12).map(|done| (done, 12)).collect::<Vec<_>>());
    assert_eq!(warnings.len(), 11, "ten, and how many more");
    assert!(warnings[10].contains("2 more"), "{}", warnings[10]);
}

#[test]
fn a_run_that_is_cancelled_keeps_what_it_read_and_the_next_one_reads_the_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    for number in 0..200 {
        record(
            &folder.path().join(format!("{number}.mcap")),
            "/battery",
            number,
        );
    }
    let stop = Arc::new(Mutex::new(None::<Progress>));
    let inside = Arc::clone(&stop);
    let progress = Progress::to(move |event| {
        if let (Event::Done { done: 5, .. }, Some(stop)) =
            (event, &*inside.lock().expect("not poisoned"))
        {
            stop.cancel();
        }
    });
    *stop.lock().expect("not poisoned") = Some(progress.clone());
    let fleet = asof::fleet(folder.path()).expect("a fleet");
    let error = fleet.clone().with_progress(progress).index(&options());
    assert!(error.expect_err("it was cancelled").is_cancelled());
    let kept = fleet
        .find(&Search::default())
        .expect("a catalogue")
        .recordings
        .len();
    assert!((5..200).contains(&kept), "{kept} recordings");
    let run = fleet.index(&options()).expect("a run");
    assert_eq!(run.opened, 200 - kept as u64);
    assert_eq!(run.recordings, 200);
}

#[test]
fn a_watched_folder_is_indexed_until_it_is_cancelled() {
    let folder = folder();
    let progress = Progress::default();
    let fleet = asof::fleet(folder.path())
        .expect("a fleet")
        .with_progress(progress.clone());
    let mut runs = Vec::new();
    fleet.watch(&options(), Duration::from_millis(1), |run| {
        runs.push(run.expect("a run").opened);
        match runs.len() {
            1 => record(&folder.path().join("r9/d.mcap"), "/battery", 40),
            2 => progress.cancel(),
            _ => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    });
    assert_eq!(runs, [3, 1]);
}

#[test]
fn a_catalogue_may_be_elsewhere_and_a_file_has_none() {
    let folder = folder();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let options = FleetOptions {
        catalogue: Some(elsewhere.path().to_owned()),
        ..FleetOptions::default()
    };
    let fleet = Fleet::new(folder.path(), options.clone()).expect("a fleet");
    fleet.index(&IndexOptions::default()).expect("a run");
    assert!(!folder.path().join(".asof").exists());
    let indexed = |place: &Path, options: FleetOptions| {
        let fleet = Fleet::if_indexed(place, options);
        fleet.expect("readable").is_some()
    };
    assert!(indexed(folder.path(), options.clone()));
    assert!(!indexed(folder.path(), FleetOptions::default()));
    assert!(!indexed(&folder.path().join("r7/a.mcap"), options));
}

#[cfg(feature = "sql")]
#[test]
fn a_query_sees_all_recordings_with_their_labels() {
    let folder = folder();
    let fleet = asof::fleet(folder.path()).expect("a fleet");
    fleet.index(&options()).expect("a run");
    let table = fleet
        .sql("SELECT robot, count(*) AS n FROM battery GROUP BY robot ORDER BY robot")
        .expect("a query");
    assert_eq!(table.columns(), ["robot", "n"]);
    let rows = table.collect().expect("rows");
    let counts: usize = rows.iter().map(arrow_array::RecordBatch::num_rows).sum();
    assert_eq!(counts, 2);
}
