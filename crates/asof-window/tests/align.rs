//! Alignment against an oracle that sees all messages at once. No input is sorted by stamp.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asof_window::sync::{Align, AlignStats, AlignedRow, Match, Missing, Pick, Rule};
use asof_window::{Bounds, Duplicates, Window};
use proptest::prelude::*;

/// A message of a topic, or of the anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    Anchor(i64),
    Message(usize, i64),
}

impl Arrival {
    fn stamp(self) -> i64 {
        match self {
            Arrival::Anchor(stamp) | Arrival::Message(_, stamp) => stamp,
        }
    }
}

/// What a row says: the place of its anchor among the arrivals, the matches by place, and whether it is early.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    anchor: usize,
    /// How many arrivals there were when it was emitted.
    after: usize,
    matches: Vec<Match<usize>>,
    is_early: bool,
}

const NO_LIMIT: usize = 10_000;

/// The values are the places of the messages in the order of arrival, so that equal stamps can be told apart.
fn run(align: &mut Align<usize>, arrivals: &[Arrival]) -> Vec<Found> {
    let mut rows = Vec::new();
    for (place, arrival) in arrivals.iter().enumerate() {
        let mut emit = |row: AlignedRow<usize>| rows.push(found(row, place + 1));
        match *arrival {
            Arrival::Anchor(stamp) => align.add_anchor(stamp.into(), place, &mut emit),
            Arrival::Message(topic, stamp) => align.add(topic, stamp.into(), place, &mut emit),
        }
    }
    align.finish(&mut |row| rows.push(found(row, arrivals.len())));
    rows
}

fn found(row: AlignedRow<usize>, after: usize) -> Found {
    Found {
        anchor: row.anchor.value,
        after,
        matches: row.matches,
        is_early: row.is_early,
    }
}

/// What a window says that holds exactly these messages.
fn oracle(messages: impl Iterator<Item = (i64, usize)>, t: i64, rule: Rule) -> Match<usize> {
    let window = Window::new(Bounds::count(NO_LIMIT));
    for (stamp, place) in messages {
        window.insert(stamp.into(), place);
    }
    window.pick(t.into(), rule).map(|place| *place)
}

/// Two matches say the same. A row need not wait for the exact reason why there is nothing: how far the first message
/// after the anchor is, or the nearest beyond the tolerance.
fn agree(ours: &Match<usize>, wanted: &Match<usize>, rule: Rule, has_tolerance: bool) -> bool {
    let is_loose = has_tolerance || matches!(rule.pick(), Pick::Last | Pick::Before);
    ours == wanted || (is_loose && ours.missing().is_some() && wanted.missing().is_some())
}

fn rules() -> impl Strategy<Value = (Vec<Rule>, bool)> {
    let one = (0..Pick::ALL.len(), any::<bool>()).prop_map(|(pick, or_nearest)| {
        let rule = Rule::new(Pick::ALL[pick]);
        if or_nearest { rule.or_nearest() } else { rule }
    });
    let tolerance = proptest::option::of(0u64..40);
    (proptest::collection::vec(one, 1..4), tolerance).prop_map(|(rules, tolerance)| {
        let near = |rule: Rule| match tolerance {
            Some(nanos) => rule.within(Duration::from_nanos(nanos)),
            None => rule,
        };
        (rules.into_iter().map(near).collect(), tolerance.is_some())
    })
}

/// Topic 0 is the anchor here; stamps in any order.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let one = (0usize..4, 0i64..300).prop_map(|(topic, stamp)| match topic {
        0 => Arrival::Anchor(stamp),
        topic => Arrival::Message(topic - 1, stamp),
    });
    proptest::collection::vec(one, 0..150)
}

/// Which messages come before every one whose stamp is later by more than the lateness.
fn in_time(arrivals: &[Arrival], lateness: i64, topics: usize) -> Vec<bool> {
    let mut now = i64::MIN;
    let is_in_time = |arrival: &Arrival| {
        let stamp = arrival.stamp();
        let is_in_time = stamp >= now.saturating_sub(lateness);
        if !matches!(arrival, Arrival::Message(topic, _) if *topic >= topics) {
            now = now.max(stamp);
        }
        is_in_time
    };
    arrivals.iter().map(is_in_time).collect()
}

fn messages_of<'a>(
    arrivals: &'a [Arrival],
    topic: usize,
    counts: impl Fn(usize) -> bool + 'a,
) -> impl Iterator<Item = (i64, usize)> + 'a {
    let places = arrivals.iter().enumerate();
    places.filter_map(move |(place, arrival)| match arrival {
        Arrival::Message(other, stamp) if *other == topic && counts(place) => Some((*stamp, place)),
        _ => None,
    })
}

proptest! {
    #[test]
    fn rows_are_right_when_all_messages_are_within_the_lateness(
        (rules, has_tolerance) in rules(),
        events in arrivals(),
        delays in proptest::collection::vec(0i64..=50, 150),
        lateness in 0i64..=50,
    ) {
        // Each comes up to the lateness after its stamp: out of order, but not too late.
        let delay = |place: usize| delays[place] % (lateness + 1);
        let mut by_arrival: Vec<(i64, Arrival)> = events
            .iter()
            .enumerate()
            .map(|(place, event)| (event.stamp() + delay(place), *event))
            .collect();
        by_arrival.sort_by_key(|(at, _)| *at);
        let arrivals: Vec<Arrival> = by_arrival.into_iter().map(|(_, arrival)| arrival).collect();
        let mut align = Align::new(rules.clone(), NO_LIMIT)
            .with_lateness(Duration::from_nanos(lateness as u64));
        let rows = run(&mut align, &arrivals);
        let anchors = arrivals.iter().filter(|arrival| matches!(arrival, Arrival::Anchor(_)));
        prop_assert_eq!(rows.len(), anchors.count());
        let mut last = i64::MIN;
        for row in rows {
            let t = arrivals[row.anchor].stamp();
            prop_assert!(t >= last && !row.is_early);
            last = t;
            for (topic, rule) in rules.iter().enumerate() {
                let wanted = oracle(messages_of(&arrivals, topic, |_| true), t, *rule);
                prop_assert!(
                    agree(&row.matches[topic], &wanted, *rule, has_tolerance),
                    "{rule:?} at {t}: {:?} instead of {wanted:?}", row.matches[topic]
                );
            }
        }
        let counters = align.stats();
        prop_assert_eq!(counters.late.iter().sum::<u64>() + counters.late_anchors, 0);
    }

    #[test]
    fn in_any_order_a_row_lacks_nothing_but_what_is_counted_as_late(
        (rules, has_tolerance) in rules(),
        arrivals in arrivals(),
        lateness in 0i64..200,
    ) {
        let mut align = Align::new(rules.clone(), NO_LIMIT)
            .with_lateness(Duration::from_nanos(lateness as u64));
        let rows = run(&mut align, &arrivals);
        let is_in_time = in_time(&arrivals, lateness, rules.len());
        for row in &rows {
            let t = arrivals[row.anchor].stamp();
            prop_assert!(!row.is_early);
            for (topic, rule) in rules.iter().enumerate() {
                // All that is in time, whenever it comes, and what was late but there already.
                let counts = |place: usize| is_in_time[place] || place < row.after;
                let wanted = oracle(messages_of(&arrivals, topic, counts), t, *rule);
                let ours = &row.matches[topic];
                let is_forgotten = ours.missing() == Some(Missing::Forgotten);
                prop_assert!(
                    agree(ours, &wanted, *rule, has_tolerance) || (is_forgotten && !is_in_time[row.anchor]),
                    "{rule:?} at {t}: {ours:?} instead of {wanted:?}"
                );
            }
        }
        let late = |wanted: &dyn Fn(&Arrival) -> bool| {
            let places = arrivals.iter().zip(&is_in_time);
            places.filter(|(arrival, is_in_time)| !**is_in_time && wanted(arrival)).count() as u64
        };
        let counters = align.stats();
        prop_assert_eq!(counters.late_anchors, late(&|arrival| matches!(arrival, Arrival::Anchor(_))));
        for topic in 0..rules.len() {
            let wanted = late(&|arrival| matches!(arrival, Arrival::Message(other, _) if *other == topic));
            prop_assert_eq!(counters.late[topic], wanted);
        }
    }

    #[test]
    fn without_a_lateness_topics_may_be_behind_each_other_by_any_amount(
        (rules, _) in rules(),
        arrivals in arrivals(),
    ) {
        // Each topic is put in order, and the anchor is not; between the topics anything goes.
        let mut sorted: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        for arrival in &arrivals {
            if let Arrival::Message(topic, stamp) = arrival {
                sorted.entry(*topic).or_default().push(*stamp);
            }
        }
        for stamps in sorted.values_mut() {
            stamps.sort_unstable_by(|a, b| b.cmp(a));
        }
        let next = |arrival: &Arrival| match arrival {
            Arrival::Message(topic, _) => {
                let stamp = sorted.get_mut(topic).and_then(Vec::pop).unwrap_or_default();
                Arrival::Message(*topic, stamp)
            }
            anchor @ Arrival::Anchor(_) => *anchor,
        };
        let arrivals: Vec<Arrival> = arrivals.iter().map(next).collect();
        let mut align = Align::new(rules.clone(), NO_LIMIT);
        for row in run(&mut align, &arrivals) {
            let t = arrivals[row.anchor].stamp();
            for (topic, rule) in rules.iter().enumerate() {
                let wanted = oracle(messages_of(&arrivals, topic, |_| true), t, *rule);
                // Of several with exactly one stamp any may be taken: the row does not wait for the last of them.
                let stamps = |found: &Match<usize>| match found {
                    Match::Found(message) => (Some(message.stamp), None, None),
                    Match::Between { before, after, .. } => (Some(before.stamp), Some(after.stamp), None),
                    Match::Missing(why) => (None, None, Some(*why)),
                };
                prop_assert_eq!(stamps(&row.matches[topic]), stamps(&wanted), "{:?} at {}", rule, t);
            }
        }
        prop_assert_eq!(align.stats().late.iter().sum::<u64>(), 0);
    }

    #[test]
    fn every_anchor_gives_a_row_and_no_bound_is_passed(
        (rules, _) in rules(),
        arrivals in arrivals(),
        queue in 2usize..6,
        bytes in 1u64..200,
        lateness in proptest::option::of(0i64..400),
        duplicates in 0usize..3,
    ) {
        const LARGEST: u64 = 9;
        let weigh = |place: &usize| (*place as u64 % LARGEST) + 1;
        let duplicates = [Duplicates::KeepAll, Duplicates::LastWins, Duplicates::FirstWins][duplicates];
        let mut align = Align::new(rules.clone(), queue)
            .with_max_bytes(bytes, weigh)
            .with_duplicates(duplicates);
        if let Some(lateness) = lateness {
            align = align.with_lateness(Duration::from_nanos(lateness as u64));
        }
        let (mut rows, mut anchors, mut early) = (0, 0, 0);
        for (place, arrival) in arrivals.iter().enumerate() {
            let mut emit = |row: AlignedRow<usize>| {
                rows += 1;
                early += u64::from(row.is_early);
            };
            match *arrival {
                Arrival::Anchor(stamp) => {
                    anchors += 1;
                    align.add_anchor(stamp.into(), place, &mut emit);
                }
                Arrival::Message(topic, stamp) => align.add(topic, stamp.into(), place, &mut emit),
            }
            prop_assert!(align.held() <= queue * (rules.len() + 1));
            prop_assert!(align.bytes() <= bytes.max(rules.len() as u64 * LARGEST));
        }
        align.finish(&mut |_| rows += 1);
        prop_assert_eq!(rows, anchors);
        prop_assert_eq!(align.stats().early, early);
    }
}

fn stamps_of(rows: &[AlignedRow<i64>]) -> Vec<(i64, Option<i64>)> {
    let found = |row: &AlignedRow<i64>| row.matches[0].found().map(|found| found.value);
    rows.iter()
        .map(|row| (row.anchor.value, found(row)))
        .collect()
}

#[test]
fn a_late_anchor_is_answered_from_what_is_held() {
    for rule in [Rule::nearest(), Rule::last()] {
        let mut align = Align::new(vec![rule], 100);
        let mut rows = Vec::new();
        for stamp in [40, 49, 95, 100] {
            align.add(0, stamp.into(), stamp, &mut |row| rows.push(row));
        }
        for anchor in [100, 50] {
            align.add_anchor(anchor.into(), anchor, &mut |row| rows.push(row));
        }
        assert_eq!(stamps_of(&rows), [(100, Some(100)), (50, Some(49))]);
        assert_eq!(align.stats().late_anchors, 1);
    }
}

#[test]
fn an_anchor_later_than_what_is_held_says_so() {
    let mut align = Align::new(vec![Rule::nearest()], 100).with_lateness(Duration::from_nanos(10));
    let mut rows = Vec::new();
    for stamp in [40, 49, 95, 100] {
        align.add(0, stamp.into(), stamp, &mut |row| rows.push(row));
    }
    align.add_anchor(45.into(), 45, &mut |row| rows.push(row));
    assert_eq!(rows[0].matches[0].missing(), Some(Missing::Forgotten));
    assert_eq!(align.stats().forgotten, [1]);
}

#[test]
fn a_message_that_comes_after_its_row_is_counted() {
    let mut align = Align::new(vec![Rule::nearest()], 100);
    let mut rows = Vec::new();
    align.add(0, 40.into(), 40, &mut |row| rows.push(row));
    align.add_anchor(50.into(), 50, &mut |row| rows.push(row));
    align.add(0, 60.into(), 60, &mut |row| rows.push(row));
    align.add(0, 51.into(), 51, &mut |row| rows.push(row));
    assert_eq!(stamps_of(&rows), [(50, Some(40))]);
    assert_eq!(align.stats().late, [1]);
}

#[test]
fn with_a_lateness_last_waits_for_no_topic() {
    let mut align = Align::new(vec![Rule::last()], NO_LIMIT).with_lateness(Duration::from_nanos(3));
    let (mut rows, mut most) = (0, 0);
    align.add(0, 0.into(), 0, &mut |_| {});
    for t in 1..10_000 {
        align.add_anchor(t.into(), t, &mut |row| {
            assert_eq!(row.matches[0].found().map(|found| found.value), Some(0));
            assert!(!row.is_early);
            rows += 1;
        });
        most = most.max(align.held());
    }
    assert!(rows > 9_990 && most < 10, "{rows} rows, {most} held");
}

#[test]
fn a_silent_topic_holds_no_more_than_the_queues() {
    for rule in [Rule::nearest(), Rule::last(), Rule::interpolate()] {
        let value = Arc::new(());
        let mut align = Align::new(vec![rule, Rule::nearest()], 100);
        let (mut rows, mut early) = (0, 0);
        let mut emit = |row: AlignedRow<Arc<()>>| {
            rows += 1;
            early += u64::from(row.is_early);
        };
        align.add(0, 0.into(), Arc::clone(&value), &mut emit);
        for t in 1..10_000 {
            align.add_anchor(t.into(), Arc::clone(&value), &mut emit);
            align.add(1, t.into(), Arc::clone(&value), &mut emit);
            assert!(Arc::strong_count(&value) <= 1 + 1 + 2 * 101);
        }
        assert_eq!((align.stats().rows, align.stats().early), (rows, early));
        assert!(rows >= 9_899, "{rows}");
    }
}

#[test]
fn a_topic_that_has_ended_is_waited_for_no_more() {
    let mut align = Align::new(vec![Rule::nearest()], 100);
    let mut rows = Vec::new();
    align.add(0, 1.into(), 1, &mut |row| rows.push(row));
    align.add_anchor(5.into(), 5, &mut |row| rows.push(row));
    assert!(rows.is_empty());
    assert_eq!(align.waits_for().collect::<Vec<_>>(), [0]);
    align.end(0, &mut |row| rows.push(row));
    assert_eq!(stamps_of(&rows), [(5, Some(1))]);
    assert!(!rows[0].is_early);
}

#[test]
fn a_message_looked_up_ahead_settles_rows_of_its_topic_alone() {
    let mut align =
        Align::new(vec![Rule::nearest(), Rule::nearest()], 100).with_lateness(Duration::ZERO);
    let mut rows = Vec::new();
    let mut emit = |row: AlignedRow<i64>| rows.push(row);
    align.add(0, 0.into(), 0, &mut emit);
    for t in 1..50 {
        align.add_anchor(t.into(), t, &mut emit);
        align.add(1, t.into(), t, &mut emit);
    }
    // The nearest of a sparse topic is known when time has gone on by as much as it is away.
    assert_eq!(align.waiting(), 25);
    assert_eq!(align.waits_for().collect::<Vec<_>>(), [0]);
    align.add_ahead(0, 60.into(), 60, &mut emit);
    assert_eq!(align.waiting(), 0);
    align.add_anchor(50.into(), 50, &mut emit);
    align.add(1, 51.into(), 51, &mut emit);
    assert_eq!(align.stats().late, [0, 0]);
    let found: Vec<i64> = stamps_of(&rows)
        .iter()
        .filter_map(|(_, found)| *found)
        .collect();
    assert!(
        found
            .iter()
            .zip(1..)
            .all(|(found, t)| *found == if t <= 30 { 0 } else { 60 })
    );
    assert_eq!(found.len(), 50);
}

#[test]
fn where_nothing_is_on_both_sides_the_nearest_may_do() {
    let rule = Rule::interpolate()
        .or_nearest()
        .within(Duration::from_nanos(10));
    let mut align = Align::new(vec![rule], 100).with_lateness(Duration::ZERO);
    let mut rows = Vec::new();
    let mut emit = |row: AlignedRow<i64>| rows.push(row);
    for t in [5, 20, 27, 50] {
        align.add_anchor(t.into(), t, &mut emit);
        if t != 50 {
            let next = [(5, 10), (20, 22), (27, 38)]
                .into_iter()
                .find(|(at, _)| *at == t);
            let next = next.expect("one").1;
            align.add(0, next.into(), next, &mut emit);
        }
    }
    align.finish(&mut emit);
    let found: Vec<Option<i64>> = stamps_of(&rows)
        .into_iter()
        .map(|(_, found)| found)
        .collect();
    // Between 10 and 22 at 20; the nearest before the first, and where the other side is too far.
    assert_eq!(found, [Some(10), None, Some(22), None]);
    assert!(matches!(rows[1].matches[0], Match::Between { .. }));
}

#[test]
fn one_stamp_in_the_far_future_settles_nothing() {
    const SECOND: i64 = 1_000_000_000;
    for lateness in [None, Some(Duration::from_millis(100))] {
        let mut align = Align::new(vec![Rule::nearest()], 1000);
        if let Some(lateness) = lateness {
            align = align.with_lateness(lateness);
        }
        let mut rows = Vec::new();
        for step in 0..20 {
            let t = step * SECOND / 10;
            align.add_anchor(t.into(), t, &mut |row| rows.push(row));
            if step == 10 {
                let far = 10_000 * SECOND;
                align.add(0, far.into(), far, &mut |row| rows.push(row));
            }
            let near = t + 1;
            align.add(0, near.into(), near, &mut |row| rows.push(row));
        }
        assert!(rows.len() >= 18, "{}", rows.len());
        for (anchor, found) in stamps_of(&rows) {
            assert_eq!(found, Some(anchor + 1));
        }
        assert_eq!(align.stats().future, 1);
        assert_eq!(align.stats().late, [0]);
    }
}

#[test]
fn a_first_stamp_in_the_far_future_settles_nothing() {
    const SECOND: i64 = 1_000_000_000;
    for lateness in [None, Some(Duration::from_millis(100))] {
        for (is_anchor, at) in [(false, 0), (false, 5), (true, 0)] {
            let mut align = Align::new(vec![Rule::nearest()], 1000);
            if let Some(lateness) = lateness {
                align = align.with_lateness(lateness);
            }
            let mut rows = Vec::new();
            let far = 10_000 * SECOND;
            for step in 0..20 {
                let t = step * SECOND / 10;
                if step == at && is_anchor {
                    align.add_anchor(far.into(), far, &mut |row| rows.push(row));
                } else if step == at {
                    align.add(0, far.into(), far, &mut |row| rows.push(row));
                }
                align.add_anchor(t.into(), t, &mut |row| rows.push(row));
                let near = t + 1;
                if step >= at {
                    align.add(0, near.into(), near, &mut |row| rows.push(row));
                }
            }
            assert!(rows.len() >= 18, "{}", rows.len());
            assert!(rows.iter().all(|row| !row.is_early));
            for (anchor, found) in stamps_of(&rows) {
                assert_eq!(found, Some(anchor.max(at * SECOND / 10) + 1));
            }
            let AlignStats {
                late, late_anchors, ..
            } = align.stats();
            assert_eq!((late.as_slice(), *late_anchors), (&[0][..], 0));
        }
    }
}

#[test]
fn a_clock_that_goes_back_starts_anew() {
    let mut align = Align::new(vec![Rule::last()], 100)
        .with_lateness(Duration::from_nanos(5))
        .with_restart_after(Duration::from_nanos(500));
    let mut rows = Vec::new();
    for _ in 0..2 {
        for t in 0..1000 {
            align.add(0, t.into(), t, &mut |row| rows.push(row));
            align.add_anchor(t.into(), t, &mut |row| rows.push(row));
        }
    }
    align.finish(&mut |row| rows.push(row));
    assert_eq!(rows.len(), 2000);
    assert!(stamps_of(&rows).iter().all(|(t, found)| *found == Some(*t)));
    let AlignStats {
        restarts,
        late_anchors,
        ..
    } = *align.stats();
    assert_eq!((restarts, late_anchors), (1, 0));
}

#[test]
fn time_that_passes_settles_rows_although_nothing_comes() {
    let mut align = Align::new(vec![Rule::last()], 100).with_lateness(Duration::from_nanos(5));
    let mut rows = Vec::new();
    align.add(0, 1.into(), 1, &mut |row| rows.push(row));
    align.add_anchor(2.into(), 2, &mut |row| rows.push(row));
    align.advance(7.into(), &mut |row| rows.push(row));
    assert!(rows.is_empty());
    align.advance(8.into(), &mut |row| rows.push(row));
    assert_eq!(stamps_of(&rows), [(2, Some(1))]);
}

#[test]
fn of_equal_stamps_the_chosen_one_counts() {
    for (duplicates, wanted) in [
        (Duplicates::KeepAll, 3),
        (Duplicates::LastWins, 3),
        (Duplicates::FirstWins, 1),
    ] {
        let mut align = Align::new(vec![Rule::last()], 100).with_duplicates(duplicates);
        let mut rows = Vec::new();
        for value in [1, 2, 3] {
            align.add(0, 5.into(), value, &mut |row| rows.push(row));
        }
        align.add_anchor(5.into(), 5, &mut |row| rows.push(row));
        assert_eq!(stamps_of(&rows), [(5, Some(wanted))]);
        let counted = if duplicates == Duplicates::KeepAll {
            0
        } else {
            2
        };
        assert_eq!(align.stats().duplicates, [counted]);
    }
}
