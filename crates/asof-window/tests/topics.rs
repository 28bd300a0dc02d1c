//! Synchronizers of every size: two to nine topics and more, with types and without, and every reason for a drop.

mod common;

use std::sync::Arc;
use std::time::Duration;

use asof_window::sync::{
    ApproximateTime, DropReason, ExactTime, LatestTime, Of2, Of3, Of4, Of5, Of6, Of7, Of8, Of9,
    SharedSynchronizer, Stamped, SyncEvent, Synchronizer, TimeSequencer, Typed,
};

use common::{Drops, Sets, feed};

type Make = fn() -> Box<dyn Synchronizer<i64>>;

/// Every topic at 10 Hz, each a millisecond after the one before it.
fn staggered(topics: usize, rounds: i64) -> Vec<(usize, i64)> {
    let round =
        |n: i64| (0..topics).map(move |topic| (topic, n * 100_000_000 + topic as i64 * 1_000_000));
    (0..rounds).flat_map(round).collect()
}

#[test]
fn approximate_time_joins_two_to_nine_topics_and_more() {
    for topics in 2..=20 {
        let (sets, _) = feed(&mut ApproximateTime::new(topics, 5), staggered(topics, 4));
        // The last round waits for what may come yet.
        assert_eq!(sets.len(), 3, "{topics} topics");
        for (n, set) in sets.iter().enumerate() {
            let wanted: Vec<i64> = (0..topics)
                .map(|topic| n as i64 * 100_000_000 + topic as i64 * 1_000_000)
                .collect();
            assert_eq!(*set, wanted, "{topics} topics");
        }
    }
}

#[test]
fn exact_time_joins_two_to_nine_topics_and_more() {
    for topics in 2..=20 {
        let messages = (0..3).flat_map(|n| (0..topics).rev().map(move |topic| (topic, n)));
        let (sets, drops) = feed(&mut ExactTime::new(topics, 5), messages);
        let wanted: Vec<Vec<i64>> = (0..3).map(|n| vec![n; topics]).collect();
        assert_eq!((sets, drops), (wanted, Vec::new()), "{topics} topics");
    }
}

#[test]
fn latest_time_joins_two_to_nine_topics_and_more() {
    for topics in 2..=20 {
        let (sets, _) = feed(&mut LatestTime::new(topics), staggered(topics, 4));
        assert!(!sets.is_empty(), "{topics} topics");
        assert!(sets.iter().all(|set| set.len() == topics));
    }
}

#[test]
fn tuples_of_two_to_nine_types_keep_them() {
    /// Adds one message of every type, the last first, and checks the tuple that comes out.
    macro_rules! check {
        ($one_of:ident, $count:literal, $($variant:ident $name:ident $kind:ty = $value:expr),*) => {{
            let mut sync: Typed<$one_of<$($kind),*>, _> = Typed::new(ApproximateTime::new($count, 5));
            let mut seen = Vec::new();
            let mut emit = |$($name: Stamped<$kind>),*| seen.push(($($name.value),*));
            for t in [100, 200] {
                let mut messages = vec![$($one_of::$variant($value)),*];
                messages.reverse();
                for message in messages {
                    sync.add(t.into(), message, &mut emit);
                }
            }
            assert_eq!(seen.first(), Some(&($($value),*)));
        }};
    }
    check!(Of2, 2, A a u8 = 1, B b &'static str = "b");
    check!(Of3, 3, A a u8 = 1, B b &'static str = "b", C c f64 = 0.5);
    check!(Of4, 4, A a u8 = 1, B b &'static str = "b", C c f64 = 0.5, D d char = 'd');
    check!(Of5, 5, A a u8 = 1, B b &'static str = "b", C c f64 = 0.5, D d char = 'd', E e i64 = -5);
    check!(Of6, 6, A a u8 = 1, B b &'static str = "b", C c f64 = 0.5, D d char = 'd', E e i64 = -5, F f bool = true);
    check!(Of7, 7, A a u8 = 1, B b &'static str = "b", C c f64 = 0.5, D d char = 'd', E e i64 = -5, F f bool = true,
        G g u16 = 7);
    check!(Of8, 8, A a u8 = 1, B b &'static str = "b", C c f64 = 0.5, D d char = 'd', E e i64 = -5, F f bool = true,
        G g u16 = 7, H h [u8; 2] = [8, 8]);
    check!(Of9, 9, A a u8 = 1, B b &'static str = "b", C c f64 = 0.5, D d char = 'd', E e i64 = -5, F f bool = true,
        G g u16 = 7, H h [u8; 2] = [8, 8], I i u64 = 9);
}

#[test]
fn a_penalty_on_age_keeps_the_earlier_of_two_sets_that_are_nearly_as_good() {
    // (0, 10) spans 10 and (12, 10) spans 2, but ends 2 later: is that worth it?
    let messages = [(0, 0), (1, 10), (0, 12), (1, 100), (0, 110), (1, 200)];
    let best = |penalty| {
        let mut sync = ApproximateTime::new(2, 10).with_age_penalty(penalty);
        feed(&mut sync, messages).0[0].clone()
    };
    assert_eq!(best(10.0), [0, 10]);
    assert_eq!(best(0.1), [12, 10]);
}

#[test]
fn every_drop_has_its_reason() {
    let reasons = |drops: Drops| drops.into_iter().map(|(.., reason)| reason);
    let mut told = Vec::new();
    // Too many wait on one topic, and then nothing can be proven until it has caught up.
    let mut approximate = ApproximateTime::new(2, 1);
    told.extend(reasons(
        feed(
            &mut approximate,
            [
                (0, 1),
                (0, 2),
                (0, 3),
                (1, 1),
                (1, 2),
                (0, 4),
                (1, 5),
                (0, 9),
            ],
        )
        .1,
    ));
    let mut approximate = ApproximateTime::new(2, 10).with_max_interval(Duration::from_nanos(5));
    told.extend(reasons(
        feed(
            &mut approximate,
            [(0, 0), (0, 19), (1, 20), (0, 40), (1, 41)],
        )
        .1,
    ));
    let mut approximate = ApproximateTime::new(2, 10);
    told.extend(reasons(
        feed(
            &mut approximate,
            [(0, 0), (0, 9), (1, 10), (0, 30), (1, 31)],
        )
        .1,
    ));
    let mut exact = ExactTime::new(2, 10);
    told.extend(reasons(
        feed(&mut exact, [(0, 1), (0, 2), (0, 2), (1, 2), (7, 3)]).1,
    ));
    let mut sequencer = TimeSequencer::new(Duration::from_nanos(5), 0);
    let mut tell = |event: SyncEvent<i64>| {
        if let SyncEvent::Dropped { reason, .. } = event {
            told.push(reason);
        }
    };
    sequencer.add(10.into(), 10, &mut tell);
    sequencer.advance(20.into(), &mut tell);
    sequencer.add(3.into(), 3, &mut tell);
    for reason in [
        DropReason::QueueFull,
        DropReason::AfterLoss,
        DropReason::IntervalTooLong,
        DropReason::BetterMatch,
        DropReason::Overtaken,
        DropReason::Replaced,
        DropReason::UnknownTopic,
        DropReason::TooLate,
    ] {
        assert!(told.contains(&reason), "{reason:?} is not among {told:?}");
    }
}

#[test]
fn the_same_arrival_order_gives_the_same_sets_and_drops() {
    let mut seed = 5_u64;
    let mut random = |limit: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % limit
    };
    let mut now = 0;
    let messages: Vec<(usize, i64)> = (0..2_000)
        .map(|_| {
            now += random(20) as i64;
            (random(3) as usize, now - random(30) as i64)
        })
        .collect();
    let makers: [Make; 3] = [
        || Box::new(ApproximateTime::new(3, 4)),
        || Box::new(ExactTime::new(3, 4)),
        || Box::new(LatestTime::new(3)),
    ];
    for make in makers {
        let run = || feed(&mut *make(), messages.iter().copied());
        let first = run();
        assert!(!first.0.is_empty() || !first.1.is_empty());
        assert_eq!(first, run());
    }
}

#[test]
fn a_topic_that_is_not_there_is_given_back_with_its_stamp() {
    let (_, drops) = feed(&mut LatestTime::new(2), [(2, 5)]);
    assert_eq!(drops, [(2, 5, DropReason::UnknownTopic)]);
}

/// Streams of three topics with jitter and losses; values are counted up, so that each is told from the others.
fn uneven() -> Vec<(usize, i64)> {
    let mut random = 7u64;
    let mut below = move |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % limit) as i64
    };
    let mut next = [0, 3, 5];
    let mut messages = Vec::new();
    while messages.len() < 5_000 {
        let topic = (0..3).min_by_key(|&topic| next[topic]).unwrap_or(0);
        let stamp = next[topic];
        next[topic] += [33, 10, 5][topic] + below(4);
        if below(20) > 0 {
            messages.push((topic, stamp));
        }
    }
    messages
}

#[test]
fn who_wants_sets_only_gets_the_same_ones_and_every_other_message_back() {
    let makes: [Make; 3] = [
        || Box::new(ApproximateTime::new(3, 10)),
        || Box::new(ApproximateTime::new(3, 2)),
        || Box::new(ExactTime::new(3, 10)),
    ];
    for make in makes {
        let (sets, drops) = feed(&mut *make(), uneven());
        let (mut found, mut gone) = (Sets::new(), Vec::new());
        let mut sync = make();
        for (topic, stamp) in uneven() {
            let mut take = |set: Vec<Stamped<i64>>| {
                found.push(set.into_iter().map(|message| message.value).collect());
            };
            sync.add_for_sets(topic, stamp.into(), stamp, &mut take, &mut gone);
        }
        assert!(sets.len() > 3 && drops.len() > 3);
        assert_eq!(found, sets);
        let dropped: Vec<i64> = drops.into_iter().map(|(_, value, _)| value).collect();
        assert_eq!(gone, dropped);
    }
}

/// As one who keeps an eye on memory sees it: the handles that are still held.
#[test]
fn a_shared_synchronizer_holds_no_more_messages_than_its_queues() {
    let value = Arc::new(());
    let sync = SharedSynchronizer::sets(ApproximateTime::new(3, 10), drop);
    for (topic, stamp) in uneven() {
        sync.add(topic, stamp.into(), Arc::clone(&value));
        assert!(Arc::strong_count(&value) <= 1 + 3 * 10);
    }
}
