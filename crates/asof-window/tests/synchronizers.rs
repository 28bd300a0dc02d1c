//! What the synchronizers promise, one fact each.

mod common;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use asof_core::Stamp;
use asof_window::sync::{
    Align, ApproximateEpsilonTime, ApproximateTime, Chain, Delta, DropReason, ExactTime, Filter,
    LatestTime, Match, Missing, Of2, Of3, Overflow, PassThrough, Rule, SharedSynchronizer, Shifted,
    Sorted, Stamped, SyncEvent, SyncPolicy, Synchronizer, Throttle, TimeSequencer, Track, Typed,
    synchronize,
};
use asof_window::{Bounds, Window};
use proptest::prelude::*;

use common::feed;

type Exact = SharedSynchronizer<i64, ExactTime<i64>>;

#[test]
fn exact_time_matches_equal_stamps_and_drops_what_is_older() {
    let (sets, drops) = feed(
        &mut ExactTime::new(2, 10),
        [(0, 1), (0, 2), (1, 3), (0, 3), (1, 1)],
    );
    assert_eq!(sets, [[3, 3]]);
    assert_eq!(
        drops,
        [(0, 1, DropReason::Overtaken), (0, 2, DropReason::Overtaken)]
    );
}

#[test]
fn exact_time_replaces_a_message_with_the_same_stamp() {
    let (sets, drops) = feed(&mut ExactTime::new(2, 10), [(0, 5), (0, 5), (1, 5)]);
    assert_eq!((sets.len(), drops), (1, vec![(0, 5, DropReason::Replaced)]));
}

#[test]
fn exact_time_drops_the_oldest_when_too_many_wait() {
    let (_, drops) = feed(&mut ExactTime::new(2, 2), [(0, 1), (0, 2), (0, 3)]);
    assert_eq!(drops, [(0, 1, DropReason::QueueFull)]);
}

#[test]
fn approximate_time_waits_until_the_set_is_proven_best() {
    let mut sync = ApproximateTime::new(2, 10);
    assert!(feed(&mut sync, [(0, 100), (1, 110)]).0.is_empty());
    assert_eq!(feed(&mut sync, [(0, 200)]).0, [[100, 110]]);
}

#[test]
fn a_lower_bound_lets_approximate_time_answer_at_once() {
    let bound = Duration::from_nanos(50);
    let mut sync = ApproximateTime::new(2, 10)
        .with_lower_bound(0, bound)
        .with_lower_bound(1, bound);
    assert_eq!(feed(&mut sync, [(0, 100), (1, 110)]).0, [[100, 110]]);
}

#[test]
fn a_better_set_replaces_a_candidate_and_the_loser_is_explained() {
    let mut sync = ApproximateTime::new(2, 10);
    let (sets, drops) = feed(&mut sync, [(0, 0), (0, 90), (1, 100), (0, 200), (1, 300)]);
    assert_eq!(sets[0], [90, 100]);
    assert_eq!(drops, [(0, 0, DropReason::BetterMatch)]);
}

#[test]
fn sets_longer_than_the_maximum_interval_are_none() {
    let mut sync = ApproximateTime::new(2, 10).with_max_interval(Duration::from_nanos(5));
    let (sets, drops) = feed(&mut sync, [(0, 0), (1, 10), (0, 11), (1, 30)]);
    assert_eq!(sets, [[11, 10]]);
    assert_eq!(drops[0], (0, 0, DropReason::IntervalTooLong));
}

#[test]
fn a_full_queue_drops_its_oldest_message() {
    let (_, drops) = feed(&mut ApproximateTime::new(2, 2), [(0, 1), (0, 2), (0, 3)]);
    assert_eq!(drops, [(0, 1, DropReason::QueueFull)]);
}

#[test]
fn more_than_nine_topics_are_joined() {
    let mut sync = ApproximateTime::new(12, 10);
    let messages =
        (0..4).flat_map(|round| (0..12).map(move |topic| (topic, round * 100 + topic as i64)));
    let (sets, _) = feed(&mut sync, messages);
    assert_eq!(sets.len(), 3);
    assert_eq!(
        sets[1],
        (0..12).map(|topic| 100 + topic).collect::<Vec<_>>()
    );
}

#[test]
fn an_unknown_topic_is_given_back() {
    let (_, drops) = feed(&mut ApproximateTime::new(2, 2), [(7, 1)]);
    assert_eq!(drops, [(7, 1, DropReason::UnknownTopic)]);
}

#[test]
fn typed_tuples_keep_their_types() {
    let mut sync: Typed<Of3<u8, &str, f64>, _> = Typed::new(ExactTime::new(3, 5));
    let mut seen = Vec::new();
    let mut emit = |a: Stamped<u8>, b: Stamped<&'static str>, c: Stamped<f64>| {
        seen.push((a.value, b.value, c.value));
    };
    sync.add(1.into(), Of3::A(7), &mut emit);
    sync.add(1.into(), Of3::C(0.5), &mut emit);
    sync.add(1.into(), Of3::B("b"), &mut emit);
    assert_eq!(seen, [(7, "b", 0.5)]);
}

#[test]
fn latest_time_emits_at_the_pace_of_the_fastest_topic() {
    let mut messages = Vec::new();
    for step in 0..40i64 {
        messages.push((0, step * 10_000_000));
        if step % 4 == 0 {
            messages.push((1, step * 10_000_000 + 1));
        }
    }
    let (sets, _) = feed(&mut LatestTime::new(2), messages);
    assert!(sets.len() >= 36, "{}", sets.len());
    assert!(
        sets.iter()
            .all(|set| set[1] <= set[0] && set[0] - set[1] < 40_000_000)
    );
}

#[test]
fn latest_time_takes_topics_in_any_order_of_first_arrival() {
    let messages = [(2, 1), (2, 2), (2, 3), (0, 3), (1, 3), (2, 4)];
    let (sets, _) = feed(&mut LatestTime::new(3), messages);
    assert_eq!(sets, [[3, 3, 4]]);
}

#[test]
fn the_sequencer_drops_what_comes_after_its_turn() {
    let mut sequencer = TimeSequencer::new(Duration::from_nanos(5), 0);
    let mut out = Vec::new();
    let mut emit = |event: SyncEvent<i64>| match event {
        SyncEvent::Matched(set) => out.push((set[0].value, None)),
        SyncEvent::Dropped {
            message, reason, ..
        } => out.push((message.value, Some(reason))),
        SyncEvent::Partial(_) => panic!("one topic is never a part"),
    };
    sequencer.add(3.into(), 3, &mut emit);
    sequencer.add(1.into(), 1, &mut emit);
    sequencer.advance(7.into(), &mut emit);
    sequencer.advance(8.into(), &mut emit);
    sequencer.add(2.into(), 2, &mut emit);
    let late = (2, Some(DropReason::TooLate));
    assert_eq!(out, [(1, None), (3, None), late]);
}

#[test]
fn a_chain_runs_its_filters_in_order() {
    let mut chain = Chain::new()
        .then(PassThrough)
        .then(Throttle::new(Duration::from_nanos(10)))
        .then(Delta::new(|value: &i64| value / 100));
    let mut out = Vec::new();
    for stamp in [0, 5, 10, 60, 100, 105, 115] {
        let message = Stamped::new(stamp.into(), stamp);
        Filter::push(&mut chain, message, &mut |message| out.push(message.value));
    }
    assert_eq!(out, [0, 100]);
}

#[test]
fn a_callback_may_add_to_its_own_synchronizer() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let slot: Arc<Mutex<Option<Exact>>> = Arc::default();
    let (sink, again) = (Arc::clone(&seen), Arc::clone(&slot));
    let sync = SharedSynchronizer::new(ExactTime::new(2, 10), move |event| {
        let SyncEvent::Matched(set) = event else {
            return;
        };
        sink.lock().expect("not poisoned").push(set[0].value);
        let sync = again.lock().expect("not poisoned").clone();
        if let Some(sync) = sync.filter(|_| set[0].value < 3) {
            sync.add(0, set[0].stamp.plus_nanos(1), set[0].value + 1);
            sync.add(1, set[0].stamp.plus_nanos(1), set[0].value + 1);
        }
    });
    *slot.lock().expect("not poisoned") = Some(sync.clone());
    sync.add(0, 1.into(), 1);
    sync.add(1, 1.into(), 1);
    assert_eq!(*seen.lock().expect("not poisoned"), [1, 2, 3]);
    slot.lock().expect("not poisoned").take();
}

#[test]
fn messages_in_no_set_are_counted_whether_they_are_told_or_not() {
    let told = SharedSynchronizer::new(ExactTime::new(2, 2), |_| {});
    let untold = SharedSynchronizer::sets(ExactTime::new(2, 2), |_| {});
    for sync in [told, untold] {
        sync.add(0, 1.into(), 0);
        sync.add(1, 1.into(), 0);
        assert_eq!((sync.stats().delivered, sync.stats().unmatched), (1, 0));
        for t in 2..=6 {
            sync.add(0, t.into(), 0);
        }
        let dropped = sync.stats().unmatched;
        assert!((1..5).contains(&dropped), "{dropped}");
        sync.clear();
        assert_eq!(sync.stats().unmatched, 5);
        sync.add(9, 1.into(), 0);
        assert_eq!(sync.stats().unmatched, 6);
    }
}

#[test]
fn a_synchronizer_follows_windows() {
    let (left, right) = (
        Window::new(Bounds::count(10)),
        Window::new(Bounds::count(10)),
    );
    let pairs = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&pairs);
    let sync = SharedSynchronizer::new(ExactTime::new(2, 10), move |event| {
        if let SyncEvent::Matched(_) = event {
            *counter.lock().expect("not poisoned") += 1;
        }
    });
    let connections = [sync.follow(0, &left), sync.follow(1, &right)];
    for t in 0..5 {
        left.insert(t.into(), t);
        right.insert(t.into(), t);
    }
    drop(connections);
    left.insert(9.into(), 9);
    right.insert(9.into(), 9);
    assert_eq!(*pairs.lock().expect("not poisoned"), 5);
}

/// A callback that waits until it is told to go on, and says when it was called.
struct Slow {
    sync: Arc<SharedSynchronizer<Arc<i64>, ExactTime<Arc<i64>>>>,
    called: mpsc::Receiver<i64>,
    go_on: mpsc::Sender<()>,
}

impl Slow {
    fn new() -> Self {
        let (call, called) = mpsc::channel();
        let (go_on, gone_on) = mpsc::channel();
        let (call, gone_on) = (Mutex::new(call), Mutex::new(gone_on));
        let sync =
            SharedSynchronizer::sets(ExactTime::new(1, 1), move |set: Vec<Stamped<Arc<i64>>>| {
                let value: i64 = *set[0].value;
                call.lock()
                    .expect("not poisoned")
                    .send(value)
                    .expect("heard");
                gone_on.lock().expect("not poisoned").recv().expect("told");
            });
        Slow {
            sync: Arc::new(sync),
            called,
            go_on,
        }
    }

    /// Adds one message on another thread, whose callback is busy from then on.
    fn start(&self) -> std::thread::JoinHandle<()> {
        let sync = Arc::clone(&self.sync);
        let thread = std::thread::spawn(move || sync.add(0, 0.into(), Arc::new(0)));
        assert_eq!(self.called.recv(), Ok(0));
        thread
    }
}

#[test]
fn while_a_callback_is_busy_no_more_events_wait_than_the_outbox_holds() {
    for (overflow, wanted) in [
        (Overflow::DropOldest, [9_997, 9_998, 9_999]),
        (Overflow::DropNewest, [1, 2, 3]),
    ] {
        let slow = Slow::new();
        slow.sync.set_outbox(3, overflow);
        let thread = slow.start();
        let values: Vec<Arc<i64>> = (1..10_000).map(Arc::new).collect();
        for value in &values {
            slow.sync.add(0, (**value).into(), Arc::clone(value));
        }
        let held = values.iter().filter(|value| Arc::strong_count(value) > 1);
        assert_eq!(held.count(), 3);
        let stats = slow.sync.stats();
        assert_eq!(
            (stats.delivered, stats.waiting, stats.sets_dropped),
            (1, 3, 9_996)
        );
        for value in wanted {
            slow.go_on.send(()).expect("it waits");
            assert_eq!(slow.called.recv(), Ok(value));
        }
        slow.go_on.send(()).expect("it waits");
        thread.join().expect("no panic");
        assert_eq!(slow.sync.stats().delivered, 4);
    }
}

#[test]
fn an_outbox_holds_few_events_unless_told_otherwise() {
    let slow = Slow::new();
    let thread = slow.start();
    for value in 1..10_000 {
        slow.sync.add(0, value.into(), Arc::new(value));
    }
    let stats = slow.sync.stats();
    assert_eq!(stats.waiting as u64 + stats.sets_dropped, 9_999);
    assert!(stats.waiting <= 64, "{}", stats.waiting);
    slow.sync.set_outbox(1, Overflow::DropOldest);
    assert_eq!(slow.sync.stats().waiting, 1);
    slow.go_on.send(()).expect("it waits");
    slow.go_on.send(()).expect("it waits");
    thread.join().expect("no panic");
}

#[test]
fn windows_of_different_types_are_joined_in_one_call() {
    let bounds = Bounds::count(10);
    let camera: Window<String> = Window::new(bounds);
    let imu: Window<f64> = Window::new(bounds);
    let scan: Window<Vec<u8>> = Window::new(bounds);
    let (sender, sets) = mpsc::channel();
    // A policy for another number of topics keeps its settings.
    let policy = ApproximateTime::new(7, 10).with_max_interval(Duration::from_nanos(20));
    let joined = synchronize((&camera, &imu, &scan), policy, move |image, imu, scan| {
        let sizes = (image.len(), *imu, scan.len());
        sender.send((image.stamp, sizes)).expect("heard");
    });
    for round in 0..4 {
        let t = round * 100;
        camera.insert(t.into(), "image".to_owned());
        imu.insert((t + 1).into(), 0.5);
        scan.insert((t + if round == 1 { 30 } else { 2 }).into(), vec![0; 7]);
    }
    let found: Vec<_> = sets.try_iter().collect();
    assert_eq!(found, [0, 200].map(|t| (Stamp::from(t), (5, 0.5, 7))));
    assert_eq!(joined.stats().delivered, 2);
    drop(joined);
    for window_time in [500, 600, 700] {
        camera.insert(window_time.into(), String::new());
        imu.insert(window_time.into(), 0.0);
        scan.insert(window_time.into(), Vec::new());
    }
    assert!(sets.recv().is_err(), "the callback is gone");
}

#[test]
fn nine_windows_are_joined_by_a_policy_made_for_them() {
    let windows: [Window<i64>; 9] = std::array::from_fn(|_| Window::new(Bounds::count(4)));
    let [a, b, c, d, e, f, g, h, i] = &windows;
    let count = Arc::new(Mutex::new(0));
    let sink = Arc::clone(&count);
    synchronize(
        (a, b, c, d, e, f, g, h, i),
        |topics| ExactTime::new(topics, 10),
        move |a, b, c, d, e, f, g, h, i| {
            *sink.lock().expect("not poisoned") +=
                [a, b, c, d, e, f, g, h, i].iter().map(|n| **n).sum::<i64>();
        },
    )
    .detach();
    for (n, window) in windows.iter().enumerate() {
        window.insert(1.into(), n as i64);
    }
    assert_eq!(*count.lock().expect("not poisoned"), 36);
}

fn aligned(rule: Rule, messages: &[i64], anchor: i64) -> Match<i64> {
    let mut align = Align::new(vec![rule], 100);
    let mut rows = Vec::new();
    for &stamp in messages {
        align.add(0, stamp.into(), stamp, &mut |row| rows.push(row));
    }
    align.add_anchor(anchor.into(), anchor, &mut |row| rows.push(row));
    align.finish(&mut |row| rows.push(row));
    assert_eq!(rows.len(), 1);
    rows.remove(0).matches.remove(0)
}

#[test]
fn align_explains_what_is_missing() {
    let near = Duration::from_nanos(3);
    assert_eq!(
        aligned(Rule::nearest(), &[], 5).missing(),
        Some(Missing::Nothing)
    );
    assert_eq!(
        aligned(Rule::last(), &[7], 5).missing(),
        Some(Missing::NotYet(2))
    );
    assert_eq!(
        aligned(Rule::interpolate(), &[1], 5).missing(),
        Some(Missing::NotAnyMore(4))
    );
    assert_eq!(
        aligned(Rule::nearest().within(near), &[1, 9], 5).missing(),
        Some(Missing::TooFar(4))
    );
}

#[test]
fn align_waits_no_longer_than_it_was_told() {
    let mut align = Align::new(vec![Rule::nearest(), Rule::nearest()], 100)
        .with_max_wait(Duration::from_nanos(10));
    let mut rows = Vec::new();
    align.add_anchor(100.into(), 0, &mut |row| rows.push(row));
    align.add(0, 109.into(), 1, &mut |row| rows.push(row));
    align.add(0, 110.into(), 2, &mut |row| rows.push(row));
    assert_eq!(rows.len(), 1);
    assert!(rows[0].is_early && !rows[0].is_complete());
    assert_eq!(align.stats().absent, [0, 1]);
}

proptest! {
    #[test]
    fn streamed_windowed_and_recorded_alignment_agree(
        mut stamps in proptest::collection::vec(0i64..300, 0..80),
        mut anchors in proptest::collection::vec(-10i64..310, 1..40),
        tolerance in proptest::option::of(0u64..40),
        pick in 0usize..3,
    ) {
        stamps.sort_unstable();
        stamps.dedup();
        anchors.sort_unstable();
        let rule = [Rule::nearest(), Rule::last(), Rule::interpolate()][pick];
        let rule = tolerance.map_or(rule, |nanos| rule.within(Duration::from_nanos(nanos)));
        let window = Window::new(Bounds::count(1000));
        let track: Track<i64> = stamps.iter().map(|&s| (Stamp::from(s), s)).collect();
        let mut align = Align::new(vec![rule], 1000);
        let mut streamed = Vec::new();
        let mut emit = |row: asof_window::sync::AlignedRow<i64>| streamed.push(format!("{:?}", row.matches[0]));
        for &stamp in &stamps {
            window.insert(stamp.into(), stamp);
        }
        for &anchor in &anchors {
            align.add_anchor(anchor.into(), anchor, &mut emit);
        }
        for &stamp in &stamps {
            align.add(0, stamp.into(), stamp, &mut emit);
        }
        align.finish(&mut emit);
        let mut cursor = track.cursor();
        for (anchor, streamed) in anchors.iter().zip(&streamed) {
            let recorded = format!("{:?}", cursor.pick((*anchor).into(), rule));
            prop_assert_eq!(&format!("{:?}", window.pick((*anchor).into(), rule)), &recorded);
            prop_assert_eq!(streamed, &recorded);
            let nearest = cursor.nearest((*anchor).into()).map(|found| *found.value);
            prop_assert_eq!(nearest, window.nearest((*anchor).into()).map(|entry| *entry));
        }
    }

    #[test]
    fn any_input_in_any_order_ends_in_a_set_or_a_drop(
        messages in proptest::collection::vec((0usize..3, -50i64..50), 0..200), queue in 1usize..6,
    ) {
        let mut sync = ApproximateTime::new(3, queue);
        let (sets, drops) = feed(&mut sync, messages.clone());
        prop_assert!(sets.len() * 3 + drops.len() <= messages.len());
        prop_assert!(sets.len() * 3 + drops.len() + 3 * queue >= messages.len());
    }
}

/// The sets after a clock was set back, of two windows that start over.
fn sets_after_a_restart<P>(policy: P) -> usize
where
    P: SyncPolicy<Of2<Arc<i64>, Arc<i64>>>,
    P::Synchronizer: Send + 'static,
{
    let bounds = Bounds::count(100);
    let bounds = bounds.and_restart_after(Duration::from_secs(1));
    let windows = [(); 2].map(|()| Window::<i64>::new(bounds));
    let found = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&found);
    let joined = synchronize((&windows[0], &windows[1]), policy, move |a, _| {
        noted.lock().expect("no panic").push(*a);
    });
    let second = 1_000_000_000;
    for n in (1_000..1_300).chain(0..300_i64) {
        for window in &windows {
            window.insert((n * second / 10 + 1).into(), n);
        }
    }
    joined.clear();
    let found = found.lock().expect("no panic");
    found.iter().filter(|n| **n < 300).count()
}

#[test]
fn sets_are_found_again_after_the_clock_was_set_back() {
    assert!(sets_after_a_restart(ExactTime::new(2, 10)) >= 298);
    assert!(sets_after_a_restart(ApproximateTime::new(2, 10)) >= 297);
    assert!(sets_after_a_restart(LatestTime::new(2)) >= 290);
    let epsilon = ApproximateEpsilonTime::new(2, 10, Duration::from_millis(1));
    assert!(sets_after_a_restart(epsilon) >= 297);
}

/// The sets of some messages, with a gap for each topic that is missing, and how many messages were dropped.
fn partial_sets(
    sync: &mut impl Synchronizer<i64>,
    messages: impl IntoIterator<Item = (usize, i64)>,
) -> (Vec<Vec<Option<i64>>>, usize) {
    let (mut sets, mut dropped) = (Vec::new(), 0);
    for (topic, stamp) in messages {
        sync.add(
            topic,
            stamp.into(),
            stamp,
            &mut |event| match event.into_set() {
                Some(set) => {
                    let values = set.into_iter();
                    sets.push(values.map(|message| Some(message?.value)).collect());
                }
                None => dropped += 1,
            },
        );
    }
    (sets, dropped)
}

fn epsilon(topics: usize) -> ApproximateEpsilonTime<i64> {
    ApproximateEpsilonTime::new(topics, 100, Duration::from_nanos(5))
}

#[test]
fn a_silent_sensor_is_left_out_after_the_longest_wait() {
    let mut sync = epsilon(3).with_max_wait(Duration::from_nanos(30));
    let steps = (0..20).flat_map(|step| {
        let t = step * 10;
        let last = (step < 10).then_some((2, t + 2));
        [(0, t), (1, t + 1)].into_iter().chain(last)
    });
    let (sets, dropped) = partial_sets(&mut sync, steps);
    let (whole, partial): (Vec<_>, Vec<_>) = sets.iter().partition(|set| set[2].is_some());
    assert_eq!(whole.len(), 10);
    // The last ones still wait.
    assert_eq!(partial.len(), 7);
    assert!(
        partial
            .iter()
            .all(|set| set[0].is_some() && set[1].is_some())
    );
    let mut rest = 0;
    sync.advance(1_000.into(), &mut |event| {
        rest += usize::from(event.into_set().is_some());
    });
    assert_eq!((rest, dropped), (3, 0));
}

#[test]
fn waits_end_behind_all_layers_although_nothing_arrives() {
    let wait = Duration::from_nanos(30);
    let sorted = Sorted::new(epsilon(2).with_max_wait(wait), 10, wait);
    let shared = Shifted::new(sorted).with_offset(0, -100);
    let (sender, sets) = mpsc::channel();
    let shared = SharedSynchronizer::new(shared, move |event: SyncEvent<i64>| {
        let set = event.into_set().expect("a set").into_iter();
        let own = set.map(|one| one.map(|one| (one.stamp.nanos(), one.value)));
        sender.send(own.collect::<Vec<_>>()).expect("a listener");
    });
    shared.add(0, 110.into(), 7);
    // It is in order at 40, and waits until 70.
    for now in [39, 60, 70] {
        shared.advance(now.into());
        assert!(sets.try_recv().is_err(), "at {now}");
    }
    shared.advance(71.into());
    assert_eq!(sets.try_recv(), Ok(vec![Some((110, 7)), None]));
}

#[test]
fn one_stamp_in_the_far_future_ends_no_wait() {
    const SECOND: i64 = 1_000_000_000;
    let mut sync = epsilon(2).with_max_wait(Duration::from_secs(1));
    let messages = [(0, 1), (0, 5_000 * SECOND), (1, 2)];
    let (sets, _) = partial_sets(&mut sync, messages);
    assert_eq!(sets, [vec![Some(1), Some(2)]]);
}

#[test]
fn an_optional_topic_holds_nothing_up() {
    let mut sync = epsilon(3).with_optional(1);
    let messages = [
        (0, 10),
        (2, 11),
        (1, 19),
        (0, 20),
        (2, 21),
        (1, 30),
        (0, 40),
        (2, 41),
    ];
    let (sets, dropped) = partial_sets(&mut sync, messages);
    let expected = [
        vec![Some(10), None, Some(11)],
        vec![Some(20), Some(19), Some(21)],
        vec![Some(40), None, Some(41)],
    ];
    assert_eq!((sets.as_slice(), dropped), (&expected[..], 1));
}

#[test]
fn an_early_set_is_emitted_with_its_last_message() {
    let mut sync = ApproximateTime::new(2, 10).with_early(Duration::from_nanos(3));
    let (sets, _) = feed(&mut sync, [(0, 100), (1, 103)]);
    assert_eq!(sets, [[100, 103]]);
    // Further apart, the proof is waited for.
    assert!(feed(&mut sync, [(0, 200), (1, 204)]).0.is_empty());
    assert_eq!(feed(&mut sync, [(0, 300)]).0, [[200, 204]]);
}

proptest! {
    #[test]
    fn sorted_input_gives_the_sets_of_messages_in_order(
        steps in prop::collection::vec((0..3usize, 1..40i64, 0..50i64), 1..200),
    ) {
        let mut now = 0;
        // Each message with its arrival: up to 50 after its stamp.
        let mut messages: Vec<(i64, usize, i64)> = Vec::new();
        for (topic, step, delay) in steps {
            now += step;
            messages.push((now + delay, topic, now));
        }
        let in_order = messages.iter().map(|&(_, topic, stamp)| (topic, stamp));
        let (expected, _) = feed(&mut ApproximateTime::new(3, 100), in_order);
        messages.sort_unstable();
        let mut sync = Sorted::new(ApproximateTime::new(3, 100), 1_000, Duration::from_nanos(50));
        let arrivals = messages.iter().map(|&(_, topic, stamp)| (topic, stamp));
        let (mut sets, drops) = feed(&mut sync, arrivals);
        prop_assert!(drops.iter().all(|(_, _, reason)| *reason != DropReason::TooLate));
        sync.advance(i64::MAX.into(), &mut |_| {});
        let mut rest = Vec::new();
        // A second one confirms that time has passed.
        sync.advance(i64::MAX.into(), &mut |event| {
            if let SyncEvent::Matched(set) = event {
                rest.push(set.into_iter().map(|message| message.value).collect());
            }
        });
        sets.extend(rest);
        prop_assert_eq!(sets, expected);
    }

    #[test]
    fn no_message_is_lost_or_used_twice_by_partial_sets(
        steps in prop::collection::vec((0..3usize, 0..12i64), 1..200),
        wait in prop::option::of(0..60u64),
        optional in prop::option::of(0..3usize),
        offset in -20..20i64,
    ) {
        let mut inner = ApproximateEpsilonTime::new(3, 4, Duration::from_nanos(5));
        if let Some(wait) = wait {
            inner = inner.with_max_wait(Duration::from_nanos(wait));
        }
        if let Some(topic) = optional {
            inner = inner.with_optional(topic);
        }
        let mut sync = Shifted::new(inner).with_offset(1, offset);
        let mut now = 0;
        let (mut given, mut seen) = (Vec::new(), Vec::new());
        for (number, (topic, step)) in (0i64..).zip(steps) {
            now += step;
            given.push(number);
            sync.add(topic, now.into(), (number, now), &mut |event| {
                let set = match event {
                    SyncEvent::Dropped { topic, message, .. } => {
                        let mut set = vec![None, None, None];
                        set[topic] = Some(message);
                        set
                    }
                    event => {
                        let set = event.into_set().expect("a set");
                        let at = |topic: usize| {
                            let own = if topic == 1 { offset } else { 0 };
                            set[topic].as_ref().map(|message| message.stamp.nanos() + own)
                        };
                        let stamps = (0..3).filter_map(at);
                        let span = stamps.clone().max().zip(stamps.min());
                        assert!(span.is_some_and(|(last, first)| last - first <= 5));
                        set
                    }
                };
                for message in set.into_iter().flatten() {
                    assert_eq!(message.stamp.nanos(), message.value.1, "its own stamp");
                    seen.push(message.value.0);
                }
            });
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen.len(), count, "one was used twice");
        prop_assert!(given.len() - count <= 3 * 4, "what is not told waits in the queues");
    }
}
