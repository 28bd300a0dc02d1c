//! A recording is played to a robot's network, and recorded from it.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use asof::live::RecentOptions;
use asof::live::ros::QosProfile;
use asof::live::{PublisherOptions, TopicPublisher};
use asof::record::{RecordOptions, SnapshotOptions};
use asof::{
    Error, FollowEnd, Followed, LiveSession, Message, PlayOptions, Progress, Query, RecordFiles,
    Recording, Robot, Source,
};
use asof_core::testing::{assert_growing, assert_source, eventually};

/// Two sessions of one network.
fn pair() -> (Robot, Robot) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let robot = asof::connect(&format!("zenoh://?listen=127.0.0.1:{port}")).expect("a robot");
    let observer = asof::connect(&format!("zenoh://127.0.0.1:{port}")).expect("an observer");
    (robot, observer)
}

fn talker(robot: &Robot, topic: &str) -> TopicPublisher {
    let options = PublisherOptions {
        node: "driver".to_owned(),
        topic: topic.to_owned(),
        type_name: "std_msgs/msg/UInt32".to_owned(),
        definition: "uint32 data".to_owned(),
        qos: QosProfile::default(),
        waits: true,
    };
    robot.publisher(&options).expect("a publisher")
}

fn publish(talker: &TopicPublisher, count: u32) {
    for value in 1..=count {
        let payload = [&[0, 1, 0, 0], &value.to_le_bytes()[..]].concat();
        let at = (i64::from(value) * 1_000_000).into();
        talker.publish(payload, at).expect("published");
    }
}

fn numbers(recording: &Recording, topic: &str) -> Vec<f64> {
    recording
        .topic(topic)
        .and_then(|topic| topic.f64("data"))
        .expect("numbers")
}

#[test]
fn what_was_recorded_is_played_and_recorded_again() {
    let (robot, observer) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let recorder = observer
        .record(
            &path,
            RecordFiles::default(),
            RecordOptions::default(),
            |publisher| publisher.channel.topic == "/count",
        )
        .expect("a recorder");
    let count = talker(&robot, "/count");
    eventually("a subscriber", || count.is_heard());
    publish(&count, 20);
    eventually("twenty messages", || recorder.report().written() == 20);
    recorder.stop().expect("a file");
    drop(count);
    let expected: Vec<f64> = (1..=20).map(f64::from).collect();
    let recording = asof::open(&path).expect("a recording");
    assert_eq!(numbers(&recording, "/count"), expected);
    let error = observer
        .record(
            &path,
            RecordFiles::default(),
            RecordOptions::default(),
            |_| true,
        )
        .err()
        .expect("it exists");
    assert!(matches!(error, Error::File { .. }), "{error}");

    let again = folder.path().join("again.mcap");
    let recorder = observer
        .record(
            &again,
            RecordFiles::One { replace: true },
            RecordOptions::default(),
            |publisher| publisher.channel.topic == "/echo",
        )
        .expect("a recorder");
    let options = PlayOptions {
        names: [("/count".to_owned(), "/echo".to_owned())].into(),
        paused: true,
        ..PlayOptions::default()
    };
    let mut playback = robot.playback(&recording, options).expect("a playback");
    assert_eq!(playback.topics(), 1);
    eventually("the topic", || {
        observer.topics().iter().any(|topic| topic.name == "/echo")
    });
    playback.tick(Instant::now()).expect("nothing is due");
    assert!(playback.is_paused() && playback.report().published == 0);
    playback.resume();
    eventually("the end", || {
        playback.tick(Instant::now()).expect("published");
        playback.is_ended()
    });
    assert_eq!(playback.report().published, 20);
    eventually("twenty messages", || recorder.report().written() == 20);
    recorder.stop().expect("a file");
    let copy = asof::open(&again).expect("a recording");
    assert_eq!(numbers(&copy, "/echo"), expected);
}

#[test]
fn a_recording_that_repeats_is_played_until_it_is_cancelled() {
    let (robot, observer) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let recorder = observer
        .record(
            &path,
            RecordFiles::default(),
            RecordOptions::default(),
            |_| true,
        )
        .expect("a recorder");
    let count = talker(&robot, "/count");
    eventually("a subscriber", || count.is_heard());
    publish(&count, 3);
    eventually("three messages", || recorder.report().written() == 3);
    recorder.stop().expect("a file");
    let recording = asof::open(&path).expect("a recording");
    let recent = observer
        .recent(&RecentOptions::default())
        .expect("a source");
    assert!(recent.is_growing());
    let progress = Progress::default();
    let player = robot.clone().with_progress(progress.clone());
    let options = PlayOptions {
        rate: 1000.0,
        repeat: true,
        ..PlayOptions::default()
    };
    let playing = std::thread::spawn(move || player.play(&recording, options));
    eventually("more than it holds", || {
        recent.summary().messages.unwrap_or(0) > 10
    });
    progress.cancel();
    let report = playing.join().expect("no panic").expect("played");
    assert!(report.published > 10, "{report:?}");
    assert_eq!(report.undecoded, 0);
}

#[test]
fn what_cannot_be_published_is_an_error_that_says_why() {
    let (robot, _observer) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let mut writer =
        asof::formats::McapWriter::create(&path, asof::formats::McapWriterOptions::default())
            .expect("a file");
    let channel = asof::Channel {
        topic: "/odd".to_owned(),
        message_encoding: "json".to_owned(),
        ..asof::Channel::default()
    };
    let at = asof::Stamp::from_nanos(1);
    let message = Message {
        channel: channel.into(),
        log_time: at,
        publish_time: at,
        sequence: 0,
        payload: "{}".into(),
    };
    writer.write(&message).expect("written");
    writer.finish().expect("finished");
    let recording = asof::open(&path).expect("a recording");
    let error = robot.play(&recording, PlayOptions::default());
    let error = error.expect_err("nothing to play").to_string();
    assert!(error.contains("/odd (it has no type)"), "{error}");
    let none = PlayOptions {
        query: Query::topics(["/none"]),
        ..PlayOptions::default()
    };
    assert!(robot.play(&recording, none).is_err());
}

#[test]
fn a_snapshot_holds_the_time_before_its_reason() {
    let (robot, observer) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let snapshots = SnapshotOptions {
        after: Duration::from_millis(1),
        ..SnapshotOptions::default()
    };
    let recorder = observer
        .snapshots(
            folder.path().join("crash.mcap"),
            snapshots,
            RecordOptions::default(),
            |_| true,
        )
        .expect("a recorder");
    let count = talker(&robot, "/count");
    eventually("a subscriber", || count.is_heard());
    publish(&count, 5);
    eventually("five messages", || recorder.report().snapshots.kept >= 5);
    recorder.trigger("a test");
    eventually("a snapshot", || recorder.report().snapshots.triggered == 1);
    let report = recorder.stop().expect("a file");
    let [file] = &report.snapshots.files[..] else {
        panic!("one snapshot: {report:?}");
    };
    let recording = asof::open(file).expect("a recording");
    assert_eq!(numbers(&recording, "/count").len(), 5);
}

#[test]
fn a_session_with_a_robot_keeps_the_promises_of_a_source_and_ends_when_it_is_told() {
    let (robot, observer) = pair();
    let heard = observer.session().recent(&RecentOptions::default());
    let goes_on = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&goes_on);
    let robots = vec![("a robot".to_owned(), heard.expect("a source"))];
    let session = LiveSession::new(robots, vec![], move || asked.load(Ordering::Relaxed));
    let count = talker(&robot, "/count");
    eventually("a subscriber", || count.is_heard());
    assert!(session.wait_for_topics(Instant::now() + Duration::from_mins(1)));
    let all = |session: &LiveSession| -> Vec<Message> {
        let batches = Source::read(session, &Query::all()).expect("reads");
        let batches = batches.map(|batch| batch.expect("a batch"));
        let messages = batches.flat_map(|batch| {
            let messages = batch.iter().map(|message| message.to_message());
            messages.collect::<Vec<_>>()
        });
        messages.collect()
    };
    let mut grow = || {
        let before = all(&session).len();
        publish(&count, 5);
        eventually("five messages", || all(&session).len() == before + 5);
        all(&session).split_off(before)
    };
    assert_eq!(grow().len(), 5);
    assert_growing(&session, "a session", &mut grow);
    session.wait_for_messages(Instant::now() + Duration::from_mins(1));
    let mut follow = Source::follow(&session, &Query::all()).expect("follows");
    goes_on.store(false, Ordering::Relaxed);
    assert!(!session.is_open());
    let mut followed = 0;
    let far = Instant::now() + Duration::from_mins(1);
    let end = loop {
        match follow.next(far).expect("followed") {
            Followed::Batch(batch) => followed += batch.len(),
            Followed::End(end) => break end,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((followed, end), (all(&session).len(), FollowEnd::Closed));
    // A session that is closed is a finished recording, whatever the robot still sends.
    session.close();
    let held = all(&session).len();
    publish(&count, 5);
    assert_source(&session, "what was heard");
    assert_eq!(all(&session).len(), held);
    assert!(!Source::growth(&session).is_growing());
}
