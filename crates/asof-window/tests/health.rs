//! Stamps that cannot be right, and stamps that are there twice.

use std::time::Duration;

use asof_core::Stamp;
use asof_window::{Bounds, Duplicates, Insertion, StampOptions, Window};
use proptest::prelude::*;

const MILLI: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MILLI;
/// A morning in 2026.
const NOW: i64 = 1_780_000_000 * SECOND;

fn bounds() -> [Bounds; 3] {
    [
        Bounds::age(Duration::from_secs(1)),
        Bounds::age(Duration::from_secs(10)).and_bytes(10_000),
        Bounds::age(Duration::from_millis(200)).and_count(50),
    ]
}

#[test]
fn one_stamp_in_the_far_future_makes_no_window_refuse_the_rest() {
    for bounds in bounds() {
        for ahead in [
            20 * SECOND,
            3600 * SECOND,
            100 * 365 * 24 * 3600 * SECOND,
            i64::MAX - NOW,
        ] {
            for bad in [1, 10, 500] {
                let window = Window::new(bounds);
                let mut refused = 0;
                for n in 0..1_000 {
                    let stamp = NOW + n * 10 * MILLI;
                    let stamp = stamp.saturating_add(if n == bad { ahead } else { 0 });
                    refused += u64::from(window.insert(stamp.into(), n) != Insertion::Kept);
                }
                let counters = window.stats();
                assert_eq!((refused, counters.refused, counters.future), (0, 0, 1));
                assert_eq!(window.newest().as_deref(), Some(&999));
                assert!(window.len() > 15, "{}", window.len());
            }
        }
    }
}

#[test]
fn a_first_stamp_in_the_far_future_costs_one_message() {
    let window = Window::new(Bounds::age(Duration::from_secs(1)));
    window.insert((NOW + 1_000 * SECOND).into(), -1);
    for n in 0..1_000 {
        window.insert((NOW + n * 10 * MILLI).into(), n);
    }
    let counters = window.stats();
    assert_eq!((counters.refused, counters.future), (0, 1));
    assert_eq!(window.newest().as_deref(), Some(&999));
}

#[test]
fn two_stamps_in_the_far_future_cost_two_messages_wherever_they_are() {
    for first in [0, 1, 50] {
        for apart in [0, 1, 10 * MILLI, 100 * SECOND] {
            if first == 0 && apart > SECOND {
                // Three times that agree with none of the others.
                continue;
            }
            let window = Window::new(Bounds::age(Duration::from_secs(1)));
            for n in 0..1_000 {
                if n == first {
                    window.insert((NOW + 1_000 * SECOND).into(), -1);
                    window.insert((NOW + 1_000 * SECOND + apart).into(), -2);
                }
                window.insert((NOW + n * 10 * MILLI).into(), n);
            }
            let counters = window.stats();
            let shown = format!("{apart} apart before {first}: {counters:?}");
            assert_eq!((counters.refused, counters.future), (0, 2), "{shown}");
            assert_eq!(window.newest().as_deref(), Some(&999), "{shown}");
            assert_eq!(window.len(), 101, "{shown}");
        }
    }
}

#[test]
fn stamps_that_never_change_are_all_kept() {
    for stamp in [0, -5, NOW, i64::MAX, i64::MIN] {
        let window = Window::new(Bounds::age(Duration::from_secs(1)).and_count(50));
        for n in 0..1_000 {
            window.insert(stamp.into(), n);
        }
        assert_eq!((window.len(), window.stats().refused), (50, 0), "{stamp}");
        assert_eq!(window.newest().as_deref(), Some(&999));
    }
}

#[test]
fn a_window_bounded_by_age_alone_is_bounded_while_stamps_stand_still() {
    let window = Window::weighed(Bounds::age(Duration::from_secs(1)), |_| 1 << 20);
    for n in 0..1_100 {
        window.insert(NOW.into(), n);
    }
    let counters = window.stats();
    assert_eq!((window.len(), counters.refused), (1_024, 0));
    assert_eq!((counters.evicted, counters.crowded_out), (76, 76));
    let window = Window::new(Bounds::age(Duration::from_secs(1)));
    for n in 0..(1 << 20) + 5 {
        window.insert(NOW.into(), n);
    }
    assert_eq!((window.len(), window.stats().crowded_out), (1 << 20, 5));
    assert_eq!(window.newest().as_deref(), Some(&((1 << 20) + 4)));
    // Those that are only too old are not crowded out.
    window.insert((NOW + 2 * SECOND).into(), 0);
    window.insert((NOW + 2 * SECOND).into(), 0);
    window.insert((NOW + 2 * SECOND).into(), 0);
    assert_eq!((window.len(), window.stats().crowded_out), (3, 5 + 2));
}

#[test]
fn a_clock_that_is_wrong_at_first_or_set_back_later_is_followed() {
    let all = bounds().into_iter().chain([Bounds::count(100)]);
    for (bounds, wrong) in all.flat_map(|bounds| [3, 4, 9, 30, 500].map(|wrong| (bounds, wrong))) {
        let window = Window::new(bounds);
        let mut most = 0;
        for n in 0..2_000 {
            most = most.max(if n == wrong { window.len() as u64 } else { 0 });
            // Two hours ahead until it is set.
            let ahead = if n < wrong { 7_200 * SECOND } else { 0 };
            window.insert((NOW + ahead + n * 10 * MILLI).into(), n);
        }
        let counters = window.stats();
        let shown = format!("{wrong} wrong in {bounds:?}: {counters:?}");
        assert_eq!((counters.restarts, counters.future), (1, 0), "{shown}");
        assert!(counters.refused < most.max(10), "{shown}");
        assert_eq!(window.newest().as_deref(), Some(&1_999), "{shown}");
        assert!(window.len() > 15, "{shown}");
    }
}

#[test]
fn a_publisher_whose_clock_is_behind_does_not_set_back_another() {
    let window = Window::new(Bounds::age(Duration::from_secs(1)));
    for n in 0..1_000 {
        window.insert((NOW + n * 10 * MILLI).into(), n);
        // It is in no majority, once there is a stream.
        for behind in 0..if n > 100 { 20 } else { 0 } {
            let stamp = NOW + n * 10 * MILLI + behind * MILLI - 100 * SECOND;
            assert_eq!(window.insert(stamp.into(), -1), Insertion::TooLate);
        }
    }
    // One that stands still is not a clock.
    for _ in 0..1_000 {
        assert_eq!(window.insert(NOW.into(), -1), Insertion::TooLate);
    }
    assert_eq!((window.len(), window.stats().restarts), (101, 0));
}

#[test]
fn a_topic_that_pauses_is_believed() {
    let window = Window::new(Bounds::age(Duration::from_secs(1)));
    // A message a minute: each is far ahead of all others when it comes.
    for n in 0..10 {
        assert_eq!(
            window.insert((NOW + n * 60 * SECOND).into(), n),
            Insertion::Kept
        );
        assert_eq!(window.newest().as_deref(), Some(&n));
        // None of the others is dropped while it is in doubt.
        assert!(window.len() <= 3, "{}", window.len());
    }
    assert_eq!(window.stats().future, 0);
    // A straggler from before the pause denies nothing.
    assert_eq!(
        window.insert((NOW + 5 * SECOND).into(), 5),
        Insertion::TooLate
    );
    assert_eq!(window.newest().as_deref(), Some(&9));
}

#[test]
fn a_leap_that_is_confirmed_stays() {
    let window = Window::new(Bounds::age(Duration::from_secs(1)));
    for t in [0, 1, 2, 100, 101, 102] {
        window.insert((NOW + t * SECOND).into(), t);
    }
    assert_eq!(
        window.insert((NOW + 3 * SECOND).into(), 3),
        Insertion::TooLate
    );
    assert_eq!(window.newest().as_deref(), Some(&102));
    assert_eq!(window.stats().future, 0);
}

#[test]
fn without_an_age_only_a_leap_of_an_hour_is_doubted() {
    let window = Window::new(Bounds::count(100));
    for t in [0, 1, 1800, 2, 10_000, 3] {
        window.insert((NOW + t * SECOND).into(), t);
    }
    let kept: Vec<i64> = window.iter().map(|entry| *entry.value).collect();
    assert_eq!(kept, [0, 1, 2, 3, 1800, 10_000]);
    let window = Window::new(Bounds::count(100));
    for t in [0, 1, 10_000, 2] {
        window.insert((NOW + t * SECOND).into(), t);
    }
    assert_eq!(window.newest().as_deref(), Some(&2));
    assert_eq!(window.stats().future, 1);
}

#[test]
fn how_far_ahead_a_stamp_may_be_can_be_told() {
    let window = Window::new(Bounds::count(100));
    window.set_stamps(StampOptions {
        max_ahead: Some(Duration::from_millis(100)),
        ..StampOptions::default()
    });
    for t in [0, 10, 500, 20, 30] {
        window.insert((NOW + t * MILLI).into(), t);
    }
    assert_eq!(window.newest().as_deref(), Some(&30));
}

#[test]
fn zero_stamps_are_counted_and_refused_when_told() {
    let window = Window::new(Bounds::count(10));
    assert_eq!(window.insert(0.into(), 1), Insertion::Kept);
    window.set_stamps(StampOptions {
        refuse_zero: true,
        ..StampOptions::default()
    });
    assert_eq!(window.insert(0.into(), 2), Insertion::ZeroStamp);
    let counters = window.stats();
    assert_eq!((window.len(), counters.zero, counters.refused), (1, 2, 1));
}

#[test]
fn headers_that_nobody_filled_in_deny_nothing() {
    let window = Window::new(Bounds::age(Duration::from_secs(1)));
    for n in 0..100 {
        window.insert(0.into(), n);
        assert_eq!(
            window.insert((NOW + n * 10 * MILLI).into(), n),
            Insertion::Kept
        );
    }
    assert_eq!(window.len(), 100);
    assert_eq!(window.stats().future, 0);
}

#[test]
fn equal_stamps_are_treated_as_told() {
    for (duplicates, wanted) in [
        (Duplicates::KeepAll, vec![1, 2, 3]),
        (Duplicates::LastWins, vec![3]),
        (Duplicates::FirstWins, vec![1]),
    ] {
        let window = Window::new(Bounds::count(10));
        window.set_duplicates(duplicates);
        for value in [1, 2, 3] {
            window.insert(5.into(), value);
        }
        let kept: Vec<i32> = window.iter().map(|entry| *entry.value).collect();
        assert_eq!(kept, wanted);
        let counted = if duplicates == Duplicates::KeepAll {
            0
        } else {
            2
        };
        assert_eq!(window.stats().duplicates, counted);
    }
}

proptest! {
    #[test]
    fn a_window_without_duplicates_is_a_map(
        inserts in proptest::collection::vec((0i64..200, 1u64..9), 0..500),
        count in 1usize..300,
        bytes in 9u64..600,
        is_last in any::<bool>(),
    ) {
        let duplicates = if is_last { Duplicates::LastWins } else { Duplicates::FirstWins };
        let bounds = Bounds::count(count).and_bytes(bytes);
        let window = Window::weighed(bounds, |(_, weight): &(usize, u64)| *weight);
        window.set_duplicates(duplicates);
        let view = window.snapshot();
        let mut map = std::collections::BTreeMap::new();
        for (place, (stamp, weight)) in inserts.into_iter().enumerate() {
            // A reader that holds a run makes the window change a copy of it.
            let _held = (place % 3 == 0).then(|| window.snapshot());
            window.insert(stamp.into(), (place, weight));
            let was_there = map.contains_key(&stamp);
            if is_last || !was_there {
                map.insert(stamp, (place, weight));
            }
            let sum = |map: &std::collections::BTreeMap<i64, (usize, u64)>| {
                map.values().map(|(_, weight)| weight).sum::<u64>()
            };
            while map.len() > count || sum(&map) > bytes {
                map.pop_first();
            }
            let kept: Vec<(i64, usize)> = window
                .iter()
                .map(|entry| (entry.stamp.nanos(), entry.value.0))
                .collect();
            let wanted: Vec<(i64, usize)> = map.iter().map(|(stamp, (place, _))| (*stamp, *place)).collect();
            prop_assert_eq!(kept, wanted);
            prop_assert_eq!(window.bytes(), sum(&map));
        }
        prop_assert_eq!(view.len(), 0);
    }

    #[test]
    fn outliers_come_and_go_and_the_rest_is_kept(
        steps in proptest::collection::vec((1i64..40, 0u8..20, 30i64..1_000_000), 10..300),
        is_lent in any::<bool>(),
    ) {
        let window = Window::new(Bounds::age(Duration::from_secs(10)));
        let mut now = NOW;
        let (mut outliers, mut was_outlier) = (0, true);
        let mut good = Vec::new();
        for (ahead, dice, far) in steps {
            now += ahead * MILLI;
            let _held = is_lent.then(|| window.snapshot());
            if dice == 0 && !was_outlier {
                window.insert((now + far * SECOND).into(), 0);
                outliers += 1;
                was_outlier = true;
                continue;
            }
            was_outlier = false;
            prop_assert_eq!(window.insert(now.into(), now), Insertion::Kept);
            good.push(now);
            good.retain(|stamp| now - stamp <= 10 * SECOND);
            let kept: Vec<i64> = window.iter().map(|entry| *entry.value).collect();
            prop_assert_eq!(&kept, &good);
            let found = window.nearest(Stamp::from(now)).map(|entry| *entry.value);
            prop_assert_eq!(found, Some(now));
        }
        prop_assert!(window.stats().future + 1 >= outliers);
    }
}

#[test]
fn stamps_in_the_far_future_evict_nothing_while_they_are_on_probation() {
    let second = 1_000_000_000;
    for odd in 1..=2 {
        let window = Window::new(Bounds::age(Duration::from_secs(1)));
        for n in 0..100 {
            window.insert((second + n * 1_000_000).into(), n);
        }
        for n in 0..odd {
            window.insert((3600 * second + n).into(), -1);
        }
        assert_eq!(
            window.len(),
            100 + odd as usize,
            "{odd}: nothing is evicted"
        );
        for n in 100..1_100 {
            window.insert((second + n * 1_000_000).into(), n);
        }
        let stats = window.stats();
        assert_eq!((stats.refused, stats.future), (0, odd as u64), "{stats:?}");
        assert_eq!(window.newest().map(|entry| *entry), Some(1_099));
    }
}

#[test]
fn a_burst_of_stamps_in_the_far_future_costs_ten_messages_and_not_the_rest() {
    for burst in [3, 10, 200] {
        let window = Window::new(Bounds::age(Duration::from_secs(1)));
        let insert = |from: i64, count: i64| {
            for n in from..from + count {
                window.insert((SECOND + n * MILLI).into(), n);
            }
        };
        insert(0, 100);
        insert(3_600_000, burst);
        insert(100, 1_000);
        let stats = window.stats();
        assert_eq!((stats.refused, stats.restarts), (9, 1), "{stats:?}");
        assert_eq!(window.newest().map(|entry| *entry), Some(1_099));
        // A second time.
        insert(3_700_000, burst);
        insert(1_100, 1_000);
        assert_eq!(window.stats().restarts, 2);
        assert_eq!(window.len(), 1_000 - 9);
    }
}

#[test]
fn stragglers_of_a_clock_that_was_set_forward_do_not_bring_it_back() {
    let window = Window::new(Bounds::age(Duration::from_secs(1)));
    for n in 0..100_i64 {
        window.insert((SECOND + n).into(), n);
    }
    // A publisher that still has the old time, beside one that has the new one.
    for n in 0..1_000_i64 {
        window.insert((3_600 * SECOND + n).into(), n);
        if n > 10 {
            window.insert((SECOND + 100 + n).into(), -1);
        }
    }
    let stats = window.stats();
    assert_eq!((window.len(), stats.restarts), (1_000, 0), "{stats:?}");
}

#[test]
fn a_clock_that_is_set_forward_is_followed() {
    let window = Window::new(Bounds::age(Duration::from_secs(1)));
    for n in 0..100_i64 {
        window.insert((1_000_000_000 + n).into(), n);
    }
    for n in 0..100_i64 {
        window.insert((3_600_000_000_000 + n).into(), n);
    }
    assert_eq!((window.len(), window.stats().refused), (100, 0));
}
