//! The store of recent messages keeps what it promises.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use asof_core::testing::{assert_growing, assert_source};
use asof_core::{
    Batch, Channel, Follow, FollowEnd, Followed, Growth, Message, Query, Schema, Source, Stamp,
    TimeRange, Topics,
};
use asof_window::{Bounds, Recent};
use bytes::Bytes;

fn channel(topic: &str, schema: &str) -> Arc<Channel> {
    let schema = Schema {
        name: "pkg/msg/Type".to_owned(),
        encoding: "ros2msg".to_owned(),
        data: schema.to_owned().into(),
    };
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "cdr".to_owned(),
        schema: Some(Arc::new(schema)),
        ..Channel::default()
    })
}

fn message(channel: &Arc<Channel>, at: i64, payload: &str) -> Message {
    Message {
        channel: Arc::clone(channel),
        log_time: at.into(),
        publish_time: at.into(),
        sequence: 0,
        payload: payload.to_owned().into(),
    }
}

fn of_age(nanos: u64) -> Recent {
    Recent::new(Bounds::age(Duration::from_nanos(nanos)))
}

fn texts(batch: &Batch) -> Vec<(i64, String)> {
    let text = |payload: &[u8]| String::from_utf8_lossy(payload).into_owned();
    batch
        .iter()
        .map(|one| (one.log_time.nanos(), text(one.payload)))
        .collect()
}

fn all(recent: &Recent, query: &Query) -> Vec<(i64, String)> {
    let batches = recent.read(query).expect("readable");
    batches
        .flat_map(|batch| texts(&batch.expect("a batch")))
        .collect()
}

/// What a follower hands out without waiting.
fn now(follower: &mut dyn Follow) -> Vec<(i64, String)> {
    let mut came = Vec::new();
    while let Followed::Batch(batch) = follower.next(Instant::now()).expect("follows") {
        came.extend(texts(&batch));
    }
    came
}

fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

#[test]
fn it_keeps_the_contract_of_a_source() {
    let recent = of_age(500);
    assert_source(&recent, "empty");
    let channels = ["/a", "/b", "/c"].map(|topic| channel(topic, "x"));
    for at in 0..3000 {
        recent.push(message(&channels[at % 3], at as i64, &at.to_string()));
    }
    assert_source(&recent, "filled, and most of it gone");
    let mut at = 5000;
    assert_growing(&recent, "growing", &mut || {
        let mut grown = Vec::new();
        for _ in 0..7 {
            at += 1;
            let one = message(&channels[at as usize % 3], at, &at.to_string());
            recent.push(one.clone());
            grown.push(one);
        }
        grown
    });
    recent.close(FollowEnd::Closed);
    assert_eq!(recent.growth(), Growth::Finished);
}

#[test]
fn what_is_too_old_leaves_across_all_topics_and_is_counted() {
    let recent = of_age(10);
    let (a, b) = (channel("/a", "x"), channel("/b", "x"));
    for at in 0..20 {
        let channel = if at % 2 == 0 { &a } else { &b };
        recent.push(message(channel, at, &at.to_string()));
    }
    let held = all(&recent, &Query::all());
    let times: Vec<i64> = held.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, (9..20).collect::<Vec<_>>());
    assert_eq!(recent.stats().counters.evicted, 9);
    let summary = recent.summary();
    assert_eq!(summary.range, TimeRange::new(9.into(), 19.into()));
    let evicted = BTreeMap::from([("/a".to_owned(), 5), ("/b".to_owned(), 4)]);
    assert_eq!(recent.evicted_by_topic(), evicted);
    let told = summary.recent.as_ref().expect("it is recent");
    assert_eq!(told.evicted_by_topic, evicted);
}

#[test]
fn bytes_are_bounded_and_what_they_pushed_out_is_counted() {
    let recent = Recent::new(Bounds::bytes(10_000));
    let a = channel("/a", "x");
    for at in 0..100 {
        recent.push(message(&a, at, &"x".repeat(1000)));
    }
    let stats = recent.stats();
    assert!(stats.bytes <= 10_000, "{stats:?}");
    assert!(stats.messages >= 6, "{stats:?}");
    assert_eq!(stats.counters.crowded_out, 100 - stats.messages);
}

#[test]
fn the_count_is_bounded_too() {
    let recent = Recent::new(Bounds::count(10));
    let a = channel("/a", "x");
    for at in 0..100 {
        recent.push(message(&a, at, ""));
    }
    assert_eq!(recent.stats().messages, 10);
    assert_eq!(recent.stats().counters.crowded_out, 90);
}

#[test]
fn names_schemas_and_pinned_buffers_count_as_bytes() {
    let recent = Recent::new(Bounds::bytes(1 << 20));
    recent.push_weighed(message(&channel("/a", "x"), 0, "small"), 65_536);
    assert!(recent.stats().bytes >= 65_536);
    let before = recent.stats().bytes;
    recent.add_channel(&channel(&"/long".repeat(1000), &"schema".repeat(1000)));
    assert!(recent.stats().bytes >= before + 5_000 + 6_000);
}

#[test]
fn the_last_message_of_a_topic_is_known_after_it_has_left() {
    let recent = of_age(10);
    let (map, odom) = (channel("/map", "x"), channel("/odom", "x"));
    recent.push(message(&map, 0, "the map"));
    for at in 1..100 {
        recent.push(message(&odom, at, ""));
    }
    let known = recent.latest_at(&Topics::named(["/map"]), 99.into());
    assert_eq!(texts(&known.expect("readable")), [(0, "the map".into())]);
    assert!(all(&recent, &Query::topics(["/map"])).is_empty());
    let before = recent.latest_at(&Topics::named(["/odom"]), 50.into());
    assert!(before.expect("readable").is_empty(), "it has left");
}

#[test]
fn times_rise_even_where_the_clock_does_not() {
    let recent = of_age(1000);
    let a = channel("/a", "x");
    for (at, name) in [(5, "a"), (5, "b"), (3, "c"), (9, "d")] {
        recent.push(message(&a, at, name));
    }
    let expected = [(5, "a"), (6, "b"), (7, "c"), (9, "d")].map(|(at, name)| (at, name.into()));
    assert_eq!(all(&recent, &Query::all()), expected);
    assert_eq!(recent.stats().counters.late, 2);
}

#[test]
fn a_clock_that_is_set_back_starts_over_and_followers_are_told() {
    let recent = of_age(u64::MAX);
    let a = channel("/a", "x");
    recent.push(message(&a, 10_000_000_000, "before"));
    let mut follower = recent.follow(&Query::all()).expect("follows");
    assert_eq!(now(&mut *follower).len(), 1);
    recent.push(message(&a, 10_000_000_001, "unseen"));
    recent.push(message(&a, 5, "after"));
    assert_eq!(all(&recent, &Query::all()), [(5, "after".to_owned())]);
    let told = &recent.summary().problems[0].message;
    assert!(told.contains("set back by 10.0 s"), "{told}");
    let first = follower.next(Instant::now()).expect("follows");
    assert!(matches!(first, Followed::Restarted), "{first:?}");
    assert_eq!(now(&mut *follower), [(5, "after".to_owned())]);
    assert_eq!(follower.missed(), BTreeMap::from([("/a".to_owned(), 1)]));
}

#[test]
fn a_schema_that_comes_later_is_given_to_what_came_before() {
    let recent = of_age(1000);
    let (bare, whole) = (channel("/a", ""), channel("/a", "int32 data"));
    recent.push(message(&bare, 1, "first"));
    recent.push(message(&whole, 2, "second"));
    assert_eq!(recent.summary().channels.len(), 1);
    let known = recent.latest_at(&Topics::All, 1.into()).expect("readable");
    assert_eq!(known.get(0).expect("one").channel, &whole);
}

#[test]
fn a_reader_goes_on_with_what_comes_meanwhile() {
    let recent = of_age(u64::MAX);
    let a = channel("/a", "x");
    let push = |range: std::ops::Range<i64>| {
        for at in range {
            recent.push(message(&a, at, ""));
        }
    };
    push(0..2000);
    let mut batches = recent.read(&Query::all()).expect("readable");
    let first = batches.next().expect("one").expect("a batch").len();
    push(2000..2500);
    let rest: usize = batches.map(|batch| batch.expect("a batch").len()).sum();
    assert_eq!(first + rest, 2500);
}

#[test]
fn a_follower_that_is_too_slow_is_told_what_it_missed() {
    let recent = of_age(100);
    let (a, b) = (channel("/a", "x"), channel("/b", "x"));
    recent.push(message(&a, 0, ""));
    let mut follower = recent.follow(&Query::topics(["/a"])).expect("follows");
    assert_eq!(now(&mut *follower).len(), 1);
    for at in 1..=1000 {
        let channel = if at % 2 == 0 { &a } else { &b };
        recent.push(message(channel, at, ""));
    }
    let came = now(&mut *follower);
    assert_eq!(came.len(), 51);
    assert_eq!(follower.missed(), BTreeMap::from([("/a".to_owned(), 449)]));
    assert!(follower.missed().is_empty(), "told once");
}

#[test]
fn a_follower_sees_topics_that_appear_later_and_waits_for_them() {
    let recent = of_age(u64::MAX);
    let mut follower = recent.follow(&Query::topics(["/late"])).expect("follows");
    let pushed = recent.clone();
    let pushing = thread::spawn(move || {
        pushed.push(message(&channel("/other", "x"), 1, "no"));
        pushed.push(message(&channel("/late", "x"), 2, "yes"));
    });
    let came = follower.next(soon()).expect("follows");
    pushing.join().expect("pushed");
    let Followed::Batch(batch) = came else {
        panic!("{came:?}");
    };
    assert_eq!(texts(&batch), [(2, "yes".to_owned())]);
}

#[test]
fn a_range_ends_when_time_has_passed_it() {
    let recent = of_age(u64::MAX);
    let a = channel("/a", "x");
    let query = Query::all().between(Stamp::from(10)..=Stamp::from(20));
    let mut follower = recent.follow(&query).expect("follows");
    for at in [5, 10, 20] {
        recent.push(message(&a, at, ""));
    }
    assert_eq!(now(&mut *follower).len(), 2);
    let waits = follower.next(Instant::now()).expect("follows");
    assert!(matches!(waits, Followed::CaughtUp), "{waits:?}");
    recent.push(message(&a, 21, ""));
    for _ in 0..2 {
        let end = follower.next(soon()).expect("follows");
        assert!(matches!(end, Followed::End(FollowEnd::Complete)), "{end:?}");
    }
}

#[test]
fn closing_wakes_those_who_wait_after_what_is_held() {
    let recent = of_age(u64::MAX);
    recent.push(message(&channel("/a", "x"), 1, "last words"));
    let mut follower = recent.follow(&Query::all()).expect("follows");
    let closed = recent.clone();
    let closing = thread::spawn(move || closed.close(FollowEnd::Lost("the robot left".into())));
    let first = follower.next(soon()).expect("follows");
    assert!(matches!(first, Followed::Batch(_)), "{first:?}");
    let end = follower.next(soon()).expect("follows");
    closing.join().expect("closed");
    let Followed::End(FollowEnd::Lost(reason)) = end else {
        panic!("{end:?}");
    };
    assert_eq!(reason, "the robot left");
}

const MESSAGES: i64 = 20_000;

#[test]
fn followers_beside_a_writer_see_every_message_once_or_count_it() {
    let recent = Recent::new(Bounds::count(500));
    let followers: Vec<_> = (0..3)
        .map(|_| recent.follow(&Query::topics(["/a"])).expect("follows"))
        .collect();
    let reading: Vec<_> = followers
        .into_iter()
        .map(|mut follower| {
            thread::spawn(move || {
                let (mut seen, mut missed, mut last) = (0u64, 0u64, -1);
                loop {
                    match follower.next(soon()).expect("follows") {
                        Followed::Batch(batch) => {
                            for one in batch.iter() {
                                assert!(one.log_time.nanos() > last, "order");
                                last = one.log_time.nanos();
                                seen += 1;
                            }
                        }
                        Followed::End(_) => break,
                        other => panic!("{other:?}"),
                    }
                    missed += follower.missed().values().sum::<u64>();
                }
                missed += follower.missed().values().sum::<u64>();
                seen + missed
            })
        })
        .collect();
    let (a, b) = (channel("/a", "x"), channel("/b", "x"));
    for at in 0..MESSAGES {
        recent.push(message(&a, 2 * at, ""));
        recent.push(message(&b, 2 * at + 1, ""));
    }
    recent.close(FollowEnd::Closed);
    for one in reading {
        assert_eq!(one.join().expect("read"), MESSAGES as u64);
    }
}

const SECOND: i64 = 1_000_000_000;

/// A store of ten seconds with a message each second on `/a`, up to and with this one.
fn with_seconds(last: i64) -> (Recent, Arc<Channel>) {
    let recent = Recent::new(Bounds::age(Duration::from_secs(10)));
    let a = channel("/a", "x");
    for second in 1..=last {
        recent.push(message(&a, second * SECOND, &second.to_string()));
    }
    (recent, a)
}

#[test]
fn one_log_time_far_in_the_future_costs_nothing_and_is_told() {
    let (recent, a) = with_seconds(8);
    let bad = channel("/bad", "x");
    recent.push(message(&bad, 1_000_000 * SECOND, "ahead"));
    assert_eq!(recent.stats().messages, 9, "nothing is let go for it");
    assert_source(&recent, "while it is in doubt");
    recent.push(message(&a, 9 * SECOND, "9"));
    recent.push(message(&bad, 10 * SECOND, "again"));
    let payloads: Vec<_> = all(&recent, &Query::all())
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(
        payloads,
        [
            "1", "2", "3", "4", "5", "6", "7", "8", "ahead", "9", "again"
        ]
    );
    let counters = recent.stats().counters;
    assert_eq!(
        (counters.future, counters.restarts, counters.evicted),
        (1, 0, 0)
    );
    let summary = recent.summary();
    assert_eq!(
        summary.range,
        TimeRange::new(SECOND.into(), (10 * SECOND).into())
    );
    assert_eq!(summary.problems.len(), 1);
    assert_eq!(summary.problems[0].topic.as_deref(), Some("/bad"));
    assert!(
        summary.problems[0].message.contains("999992 s ahead"),
        "{:?}",
        summary.problems
    );
    assert_source(&recent, "after it was moved back");
    // As often as it happens; told once for each topic.
    for second in 11..=13 {
        recent.push(message(&bad, 1_000_000 * SECOND, "ahead"));
        recent.push(message(&a, second * SECOND, "on"));
    }
    assert_eq!(recent.stats().counters.future, 4);
    assert_eq!(recent.summary().problems.len(), 1);
    assert_source(&recent, "after many");
}

#[test]
fn a_follower_that_saw_it_misses_nothing_after_it() {
    let (recent, a) = with_seconds(3);
    let mut follower = recent.follow(&Query::all()).expect("follows");
    let until = Query::all().between(..=Stamp::from_nanos(100 * SECOND));
    let mut bounded = recent.follow(&until).expect("follows");
    recent.push(message(&a, 1_000_000 * SECOND, "ahead"));
    assert_eq!(now(&mut *follower).len(), 4);
    assert_eq!(now(&mut *bounded).len(), 3);
    recent.push(message(&a, 4 * SECOND, "4"));
    recent.push(message(&a, 5 * SECOND, "5"));
    assert_eq!(
        now(&mut *follower),
        [(4 * SECOND, "4".into()), (5 * SECOND, "5".into())]
    );
    // The end of its range has not passed.
    let texts: Vec<_> = now(&mut *bounded)
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(texts, ["ahead", "4", "5"]);
}

#[test]
fn a_clock_that_is_set_ahead_is_believed_at_the_second_message() {
    let (recent, a) = with_seconds(8);
    let ahead = 1_000_000 * SECOND;
    recent.push(message(&a, ahead, "ahead"));
    recent.push(message(&a, ahead + SECOND, "and on"));
    assert_eq!(recent.stats().messages, 2);
    let counters = recent.stats().counters;
    assert_eq!((counters.future, counters.evicted), (0, 8));
    assert_source(&recent, "a clock that was set ahead");
}

#[test]
fn a_stream_that_is_slower_than_the_age_is_still_bounded() {
    let recent = Recent::new(Bounds::age(Duration::from_secs(10)));
    let a = channel("/a", "x");
    for number in 0..200 {
        recent.push(message(&a, number * 60 * SECOND, "slow"));
        assert!(recent.stats().messages <= 6, "{:?}", recent.stats());
    }
    assert_eq!(recent.stats().counters.future, 0);
}

#[test]
fn messages_of_two_types_on_one_topic_are_counted_apart() {
    let recent = of_age(1_000);
    let scan = |name: &str| {
        let mut channel = Channel::clone(&channel("/scan", "uint8 a"));
        let schema = Schema {
            name: name.to_owned(),
            ..Schema::clone(channel.schema.as_deref().expect("a schema"))
        };
        channel.schema = Some(Arc::new(schema));
        Arc::new(channel)
    };
    let [laser, sonar] = ["pkg/msg/Laser", "pkg/msg/Sonar"].map(scan);
    for at in 0..10 {
        let channel = if at % 5 == 0 { &sonar } else { &laser };
        recent.push(message(channel, at, "x"));
    }
    let summary = recent.summary();
    let mut counts: Vec<_> = summary
        .channels
        .iter()
        .map(|entry| (entry.channel.type_name(), entry.messages))
        .collect();
    counts.sort_unstable();
    assert_eq!(
        counts,
        [("pkg/msg/Laser", Some(8)), ("pkg/msg/Sonar", Some(2))]
    );
    assert_source(&recent, "two types");
}

#[test]
fn several_wrong_log_times_in_a_row_are_all_moved_back() {
    let (recent, a) = with_seconds(8);
    let b = channel("/b", "x");
    for (channel, at) in [(&a, 1_000_000), (&b, 5_000_000), (&a, 9_000_000)] {
        recent.push(message(channel, at * SECOND, "ahead"));
    }
    recent.push(message(&b, 9 * SECOND, "9"));
    let times: Vec<i64> = all(&recent, &Query::all())
        .into_iter()
        .map(|(at, _)| at)
        .collect();
    assert_eq!(
        times[8..],
        [8 * SECOND + 1, 8 * SECOND + 2, 8 * SECOND + 3, 9 * SECOND]
    );
    assert_eq!(recent.stats().counters.future, 3);
    assert_source(&recent, "several");
}

#[test]
fn the_last_message_of_a_topic_is_known_although_its_log_time_was_wrong() {
    let recent = Recent::new(Bounds::count(1));
    let (a, map) = (channel("/a", "x"), channel("/map", "x"));
    recent.push(message(&a, SECOND, "1"));
    recent.push(message(&map, 1_000_000 * SECOND, "the map"));
    recent.push(message(&a, 2 * SECOND, "2"));
    recent.push(message(&a, 3 * SECOND, "3"));
    let known = recent
        .latest_at(&Topics::named(["/map"]), (4 * SECOND).into())
        .expect("answers");
    assert_eq!(texts(&known).len(), 1);
}

#[test]
fn log_times_of_zero_are_counted_and_refused_where_that_is_asked_for() {
    let recent = of_age(500);
    let a = channel("/a", "x");
    recent.push(message(&a, 0, "zero"));
    assert_eq!(
        (recent.stats().counters.zero, recent.stats().messages),
        (1, 1)
    );
    recent.set_stamps(asof_window::StampOptions {
        refuse_zero: true,
        ..Default::default()
    });
    recent.push(message(&a, 0, "zero"));
    let stats = recent.stats();
    assert_eq!(
        (stats.counters.zero, stats.counters.refused, stats.messages),
        (2, 1, 1)
    );
}

#[test]
fn last_messages_that_are_carried_stay_within_a_share_of_the_bytes() {
    let megabyte = 1 << 20;
    let recent = Recent::new(Bounds::bytes(10 << 20));
    for n in 0..200 {
        let large = channel(&format!("/large_{n}"), "");
        recent.push(message(&large, n, &"x".repeat(megabyte)));
    }
    let stats = recent.stats();
    assert!(stats.bytes <= 10 << 20, "{stats:?}");
    assert!(stats.carried_dropped > 180, "{stats:?}");

    let recent = Recent::new(Bounds::bytes(10 << 20));
    for n in 0..3 {
        let map = channel(&format!("/map_{n}"), "");
        recent.push(message(&map, n, &"x".repeat(4 * megabyte)));
    }
    let small = channel("/small", "");
    recent.push(message(&small, 3, "a last one"));
    let imu = channel("/imu", "");
    for n in 10..100_010 {
        recent.push(message(&imu, n, "an ordinary message of a fast sensor"));
    }
    let held = all(&recent, &Query::topics(["/imu"])).len();
    assert!(held > 20_000, "{held} of /imu are left");
    let last = recent
        .latest_at(&Topics::All, 1_000_000.into())
        .expect("there");
    assert!(
        last.iter().any(|one| one.channel.topic == "/small"),
        "the largest go first"
    );
}

#[test]
fn a_payload_is_made_for_its_first_reader_and_never_for_a_message_that_nobody_reads() {
    let recent = Recent::new(Bounds::count(3));
    let camera = channel("/camera", "x");
    let made = Arc::new(AtomicU64::new(0));
    for at in 0..10 {
        let counted = Arc::clone(&made);
        let picture = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Bytes::from(format!("picture {at}"))
        };
        recent.push_later(message(&camera, at, ""), 9, 100, picture);
    }
    assert_eq!(made.load(Ordering::Relaxed), 0);
    assert!(recent.stats().bytes >= 4 * 100, "with what is carried");
    let held = all(&recent, &Query::all());
    let expected = [7, 8, 9].map(|at| (at, format!("picture {at}")));
    assert_eq!(held, expected);
    assert_eq!(made.load(Ordering::Relaxed), 3);
    let known = recent.latest_at(&Topics::All, 6.into()).expect("readable");
    assert_eq!(texts(&known), [(6, "picture 6".to_owned())]);
    let mut follower = recent.follow(&Query::all()).expect("follows");
    assert_eq!(now(&mut *follower), expected);
}
