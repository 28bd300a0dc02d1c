//! The policies of message_filters beside exact and approximate time, by the streams of its own tests.

mod common;

use std::time::Duration;

use asof_window::Duplicates;
use asof_window::sync::{
    AlignerEvent, ApproximateEpsilonTime, DropReason, ExactTime, InputAligner, InputStats,
    LatestTime, RateOptions, Stamped, Synchronizer,
};

use common::feed;

/// A step of its clock, as message_filters' tests move it.
const STEP: i64 = 20_000_000;

/// Feeds (topic, value) pairs at each step; what came out by the end of each: how many sets, and the last of them.
fn latest(steps: &[Vec<(usize, i64)>]) -> Vec<(usize, Option<Vec<i64>>)> {
    let mut sync = LatestTime::new(3);
    let (mut count, mut last) = (0, None);
    let mut seen = Vec::new();
    for (step, messages) in steps.iter().enumerate() {
        for &(topic, value) in messages {
            let now = step as i64 * STEP;
            sync.add(topic, now.into(), value, &mut |event| {
                if let asof_window::sync::SyncEvent::Matched(set) = event {
                    count += 1;
                    last = Some(set.iter().map(|message| message.value).collect());
                }
            });
        }
        seen.push((count, last.clone()));
    }
    seen
}

#[test]
fn latest_time_follows_the_fastest_topic_from_its_second_message_on() {
    let steps: Vec<_> = (0..8)
        .map(|step| {
            let mut messages = Vec::new();
            if step % 2 == 0 {
                messages.push((1, step));
            }
            if step % 4 == 0 {
                messages.push((2, step));
            }
            messages.push((0, step));
            messages
        })
        .collect();
    for (step, (count, last)) in latest(&steps).into_iter().enumerate() {
        assert_eq!(count, step);
        let step = step as i64;
        let wanted = (step > 0).then(|| vec![step, step / 2 * 2, step / 4 * 4]);
        assert_eq!(last, wanted, "step {step}");
    }
}

#[test]
fn latest_time_starts_when_the_slowest_topic_was_seen() {
    let steps: Vec<_> = (0..8)
        .map(|step| {
            let mut messages = Vec::new();
            if step % 2 == 1 {
                messages.push((1, step));
            }
            if step % 4 == 3 {
                messages.push((2, step));
            }
            messages.push((0, step));
            messages
        })
        .collect();
    for (step, (count, last)) in latest(&steps).into_iter().enumerate() {
        assert_eq!(count, step.saturating_sub(2));
        let step = step as i64;
        let wanted = (step > 2).then(|| vec![step, (step - 1) / 2 * 2 + 1, (step - 3) / 4 * 4 + 3]);
        assert_eq!(last, wanted, "step {step}");
    }
}

/// message_filters' ChangeRateLeading: the fastest topic slows down to every third step.
#[test]
fn latest_time_changes_its_pivot_when_the_fastest_topic_slows_down() {
    let mut next = 3;
    let steps: Vec<_> = (0..12)
        .map(|step| {
            let mut messages = Vec::new();
            if step % 2 == 0 {
                messages.push((1, step / 2));
            }
            if step % 4 == 0 {
                messages.push((2, step / 4));
            }
            if step < 4 {
                messages.push((0, step));
            } else if step % 3 == 0 {
                next += 1;
                messages.push((0, next));
            }
            messages
        })
        .collect();
    for (step, (count, last)) in latest(&steps).into_iter().enumerate() {
        let n = step as i64;
        let wanted = match step {
            0 => (0, None),
            1..4 => (step, Some(vec![n, n / 2, 0])),
            // Not late yet when the next fastest looks.
            4..6 => (3, Some(vec![3, 1, 0])),
            // The second topic is the pivot, and the others come after it.
            _ => (step / 2 + 1, Some(vec![n / 2, n / 2, (n - 2) / 4])),
        };
        assert_eq!((count, last), wanted, "step {step}");
    }
}

/// message_filters' ChangeRateTrailing.
#[test]
fn latest_time_changes_its_pivot_where_slow_topics_trail() {
    let mut next = 3;
    let steps: Vec<_> = (0..12)
        .map(|step| {
            let mut messages = Vec::new();
            if step % 2 == 1 {
                messages.push((1, (step - 1) / 2));
            }
            if step % 4 == 3 {
                messages.push((2, (step - 3) / 4));
            }
            if step < 4 {
                messages.push((0, step));
            } else if step % 3 == 1 {
                next += 1;
                messages.push((0, next));
            }
            messages
        })
        .collect();
    for (step, (count, last)) in latest(&steps).into_iter().enumerate() {
        let n = step as i64;
        let wanted = match step {
            0..3 => (0, None),
            3..5 => (step - 2, Some(vec![n, (n - 1) / 2, (n - 3) / 4])),
            5..7 => (2, Some(vec![4, 1, 0])),
            _ => {
                let set = vec![(n + 1) / 2, (n - 1) / 2, (n - 5) / 4];
                ((step - 1) / 2, Some(set))
            }
        };
        assert_eq!((count, last), wanted, "step {step}");
    }
}

#[test]
fn a_topic_that_receives_twice_at_one_time_emits_nothing() {
    let (sets, _) = feed(
        &mut LatestTime::new(1),
        [(0, 10), (0, 20), (0, 20), (0, 30)],
    );
    assert_eq!(sets, [[20], [30]]);
}

#[test]
fn a_larger_step_factor_keeps_a_slow_pivot() {
    let messages: Vec<(usize, i64)> = (0..10)
        .flat_map(|step| [(0, step * 1000 + step % 2), (1, step * 2000 + 1)])
        .collect();
    let mut in_order = messages;
    in_order.sort_by_key(|(_, stamp)| *stamp);
    let count = |factor| {
        let options = RateOptions {
            step_factor: factor,
            ..RateOptions::default()
        };
        let mut sync = LatestTime::new(2).with_rates(options);
        feed(&mut sync, in_order.iter().copied()).0.len()
    };
    assert!(count(1e9) < count(10.0), "{} {}", count(1e9), count(10.0));
}

#[test]
fn epsilon_time_takes_what_is_near_enough_at_once() {
    let near = Duration::from_nanos(15);
    let mut sync = ApproximateEpsilonTime::new(2, 10, near);
    // a.xb..c. and .A...B.C, ten nanoseconds a step.
    let messages = [(0, 0), (1, 10), (0, 20), (0, 30), (1, 40), (0, 60), (1, 70)];
    let (sets, drops) = feed(&mut sync, messages);
    assert_eq!(sets, [[0, 10], [30, 40], [60, 70]]);
    assert_eq!(drops, [(0, 20, DropReason::IntervalTooLong)]);
}

#[test]
fn epsilon_is_included() {
    let near = Duration::from_nanos(10);
    let make = || ApproximateEpsilonTime::new(2, 10, near);
    assert_eq!(feed(&mut make(), [(0, 0), (1, 10)]).0, [[0, 10]]);
    assert!(feed(&mut make(), [(0, 0), (1, 11)]).0.is_empty());
}

#[test]
fn epsilon_time_drops_the_oldest_of_a_full_queue() {
    let mut sync = ApproximateEpsilonTime::new(2, 2, Duration::from_nanos(1));
    let (_, drops) = feed(&mut sync, [(0, 1), (0, 2), (0, 3)]);
    assert_eq!(drops, [(0, 1, DropReason::QueueFull)]);
}

#[test]
fn exact_time_treats_equal_stamps_as_told() {
    let messages = [(0, 5, "a"), (0, 5, "b"), (1, 5, "c"), (1, 5, "d")];
    let sets = |duplicates| {
        let mut sync = ExactTime::new(2, 10).with_duplicates(duplicates);
        let mut sets = Vec::new();
        for (topic, stamp, value) in messages {
            sync.add(topic, stamp.into(), value, &mut |event| {
                if let asof_window::sync::SyncEvent::Matched(set) = event {
                    sets.push(set.iter().map(|message| message.value).collect::<String>());
                }
            });
        }
        sets
    };
    assert_eq!(sets(Duplicates::LastWins), ["bc"]);
    assert_eq!(sets(Duplicates::FirstWins), ["ac"]);
    assert_eq!(sets(Duplicates::KeepAll), ["ac", "bd"]);
}

#[test]
fn exact_time_holds_no_more_of_one_stamp_than_its_queue() {
    let mut sync = ExactTime::new(2, 10).with_duplicates(Duplicates::KeepAll);
    let (sets, drops) = feed(&mut sync, (0..1_000).map(|_| (0, 5)));
    assert_eq!((sets.len(), drops.len()), (0, 1_000 - 11));
    assert!(drops.iter().all(|drop| drop.2 == DropReason::QueueFull));
    let (sets, _) = feed(&mut sync, (0..20).map(|_| (1, 5)));
    assert_eq!(sets.len(), 11);
}

struct Aligned {
    aligner: InputAligner<i64>,
    out: Vec<i64>,
    dropped: Vec<(i64, DropReason)>,
}

impl Aligned {
    /// Periods and timeout in milliseconds.
    fn new(topics: usize, timeout: u64, period: u64) -> Self {
        let millis = Duration::from_millis;
        let aligner = InputAligner::new(topics, 100, millis(timeout));
        let aligner = (0..topics).fold(aligner, |aligner, topic| {
            aligner.with_period(topic, millis(period))
        });
        Aligned {
            aligner,
            out: Vec::new(),
            dropped: Vec::new(),
        }
    }

    fn add(&mut self, messages: &[(usize, i64)]) -> &mut Self {
        for &(topic, millis) in messages {
            let stamp = (millis * 1_000_000).into();
            self.aligner
                .add(topic, stamp, millis, &mut |event| match event {
                    AlignerEvent::Dropped {
                        message, reason, ..
                    } => self.dropped.push((message.value, reason)),
                    AlignerEvent::Passed { .. } => unreachable!("nothing is passed on yet"),
                });
        }
        self.aligner.dispatch(&mut |event| {
            if let AlignerEvent::Passed { message, .. } = event {
                self.out.push(message.value);
            }
        });
        self
    }
}

#[test]
fn the_aligner_puts_topics_in_order() {
    let mut aligned = Aligned::new(4, 1000, 4);
    aligned.add(&[
        (2, 3),
        (0, 1),
        (2, 7),
        (0, 5),
        (3, 2),
        (0, 9),
        (1, 4),
        (1, 8),
        (3, 6),
    ]);
    assert_eq!(aligned.out, (1..=9).collect::<Vec<i64>>());
}

#[test]
fn the_aligner_does_not_wait_for_a_topic_that_never_sent() {
    let mut aligned = Aligned::new(3, 1000, 2);
    aligned.add(&[(2, 2), (1, 1), (2, 4), (1, 3), (1, 5)]);
    assert_eq!(aligned.out, [1, 2, 3, 4, 5]);
}

#[test]
fn the_aligner_waits_for_a_topic_until_it_is_behind_by_the_timeout() {
    let mut aligned = Aligned::new(2, 10, 2);
    let mut messages: Vec<(usize, i64)> = (0..8).map(|n| (0, 2 * n + 1)).collect();
    messages.extend([(1, 2), (1, 4)]);
    aligned.add(&messages);
    assert_eq!(aligned.out, [1, 2, 3, 4, 5]);
    aligned.add(&[(0, 17)]);
    assert_eq!(aligned.out[5..], [7, 9, 11, 13, 15, 17]);
}

#[test]
fn the_aligner_drops_what_comes_after_its_turn() {
    let mut aligned = Aligned::new(2, 1000, 2);
    aligned.add(&[(1, 4), (0, 3)]);
    assert_eq!(aligned.out, [3, 4]);
    aligned.add(&[(0, 1), (0, 5), (0, 7), (1, 2), (1, 6)]);
    assert_eq!(aligned.out, [3, 4, 5, 6, 7]);
    let late = DropReason::TooLate;
    assert_eq!(aligned.dropped, [(1, late), (2, late)]);
}

#[test]
fn without_periods_the_aligner_waits_for_the_next_message() {
    let mut aligned = Aligned::new(3, 10, 0);
    aligned.add(&[(0, 6), (2, 2), (2, 4), (1, 1), (1, 3), (1, 5)]);
    assert_eq!(aligned.out, [1, 2, 3, 4]);
    aligned.add(&[(0, 16)]);
    assert_eq!(aligned.out.len(), 7);
}

#[test]
fn the_aligner_says_how_its_topics_are_doing() {
    let mut aligned = Aligned::new(2, 10, 2);
    let stats = |is_active, waiting, passed, dropped| {
        Some(InputStats {
            is_active,
            waiting,
            passed,
            dropped,
        })
    };
    aligned.add(&[(1, 2), (0, 3), (0, 5)]);
    assert_eq!(aligned.aligner.stats(0), stats(true, 1, 1, 0));
    assert_eq!(aligned.aligner.stats(1), stats(true, 0, 1, 0));
    aligned.add(&[(0, 1), (0, 17)]);
    assert_eq!(aligned.aligner.stats(0), stats(true, 0, 3, 1));
    assert_eq!(aligned.aligner.stats(1), stats(false, 0, 1, 0));
    assert_eq!(aligned.aligner.stats(2), None);
}

#[test]
fn the_aligner_holds_no_more_than_its_queues() {
    let mut aligner = InputAligner::new(2, 3, Duration::from_secs(1_000));
    let mut dropped = Vec::new();
    for stamp in 0..10 {
        aligner.add(0, stamp.into(), stamp, &mut |event| {
            if let AlignerEvent::Dropped {
                message: Stamped { value, .. },
                reason,
                ..
            } = event
            {
                dropped.push((value, reason));
            }
        });
        assert!(aligner.stats(0).is_some_and(|stats| stats.waiting <= 3));
    }
    let full = DropReason::QueueFull;
    assert_eq!(dropped, (0..7).map(|t| (t, full)).collect::<Vec<_>>());
}
