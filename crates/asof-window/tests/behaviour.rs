//! What a window promises, one fact each; the behaviour of both originals among it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use asof_core::Stamp;
use asof_window::{Bounds, Entry, Insertion, MessageFiltersCache, WaitError, Window, ZCache};

fn at(nanos: i64) -> Stamp {
    Stamp::from_nanos(nanos)
}

fn filled(count: usize, stamps: &[i64]) -> Window<i64> {
    let window = Window::new(Bounds::count(count));
    for &stamp in stamps {
        window.insert(at(stamp), stamp);
    }
    window
}

fn values(entries: &[Entry<i64>]) -> Vec<i64> {
    entries.iter().map(|entry| **entry).collect()
}

fn all(window: &Window<i64>) -> Vec<i64> {
    values(&window.interval(Stamp::MIN, Stamp::MAX))
}

#[test]
fn the_smallest_stamp_goes_first_whatever_the_order_of_arrival() {
    assert_eq!(all(&filled(3, &[30, 10, 40, 20, 50])), [30, 40, 50]);
}

#[test]
fn equal_stamps_are_all_kept_in_order_of_arrival() {
    let window = Window::new(Bounds::count(10));
    for name in ["a", "b", "c"] {
        window.insert(at(5), name);
    }
    let seen: Vec<_> = window.iter().map(|entry| *entry).collect();
    assert_eq!(seen, ["a", "b", "c"]);
}

#[test]
fn a_late_message_into_a_full_window_never_costs_a_newer_one() {
    let window = filled(3, &[10, 20, 30]);
    assert_eq!(window.insert(at(5), 5), Insertion::TooLate);
    assert_eq!(all(&window), [10, 20, 30]);
    assert_eq!(window.stats().refused, 1);
}

#[test]
fn a_late_message_finds_its_place_while_a_reader_holds_what_an_eviction_left() {
    // As many as a run of the store can have: what comes in order, and some late ones.
    let mut stamps: Vec<i64> = (0..112).map(|number| number * 100).collect();
    stamps.extend((1..=16).map(|late| 11_000 + late));
    for left in [1, 2, 63, 64, 65, 127] {
        let window = filled(200, &stamps);
        window.set_bounds(Bounds::count(left));
        let held = window.view(Stamp::MIN, Stamp::MAX);
        let before = all(&window);
        window.set_bounds(Bounds::count(200));
        window.insert(at(11_050), 11_050);
        let mut after = before.clone();
        after.push(11_050);
        after.sort_unstable();
        assert_eq!(all(&window), after);
        assert!(held.iter().map(|(_, value)| *value).eq(before));
    }
}

#[test]
fn a_capacity_of_zero_keeps_nothing() {
    let window = filled(0, &[1, 2]);
    assert!(window.is_empty());
    assert_eq!(window.stats().refused, 2);
}

#[test]
fn age_counts_from_the_newest_stamp() {
    let window = Window::new(Bounds::age(Duration::from_nanos(10)));
    for stamp in [0, 5, 10, 11] {
        window.insert(at(stamp), stamp);
    }
    assert_eq!(all(&window), [5, 10, 11]);
    assert_eq!(window.insert(at(0), 0), Insertion::TooLate);
}

#[test]
fn bytes_are_what_the_weigher_says() {
    let window = Window::weighed(Bounds::bytes(100), |image: &Vec<u8>| image.len() as u64);
    window.insert(at(1), vec![0; 60]);
    window.insert(at(2), vec![0; 40]);
    assert_eq!(window.bytes(), 100);
    window.insert(at(3), vec![0; 10]);
    assert_eq!((window.len(), window.bytes()), (2, 50));
    assert_eq!(window.insert(at(4), vec![0; 101]), Insertion::TooLarge);
    assert_eq!(window.len(), 2);
}

#[test]
fn bounds_change_at_run_time_and_at_once() {
    let window = filled(10, &[1, 2, 3, 4]);
    window.set_bounds(Bounds::count(2));
    assert_eq!(all(&window), [3, 4]);
    assert_eq!(window.stats().evicted, 2);
}

#[test]
fn a_clock_that_goes_back_restarts_the_window_if_asked_to() {
    let bounds = Bounds::count(3).and_restart_after(Duration::from_nanos(50));
    let window = Window::new(bounds);
    for stamp in [100, 110, 120, 10, 20] {
        window.insert(at(stamp), stamp);
    }
    assert_eq!(all(&window), [10, 20]);
    assert_eq!(window.stats().restarts, 1);
}

#[test]
fn nearest_prefers_the_earlier_of_two_equidistant_messages() {
    let window = filled(10, &[10, 20]);
    assert_eq!(window.nearest(at(15)).map(|entry| *entry), Some(10));
    assert_eq!(window.nearest(at(16)).map(|entry| *entry), Some(20));
    assert_eq!(window.nearest_within(at(25), Duration::from_nanos(4)), None);
}

#[test]
fn nearest_does_not_overflow_at_the_ends_of_time() {
    let window = filled(10, &[i64::MIN, i64::MAX]);
    assert_eq!(
        window.nearest(Stamp::MAX).map(|entry| *entry),
        Some(i64::MAX)
    );
    assert_eq!(window.nearest(at(-1)).map(|entry| *entry), Some(i64::MIN));
    assert_eq!(
        window.before(Stamp::MAX).map(|entry| *entry),
        Some(i64::MAX)
    );
    assert_eq!(window.strictly_after(Stamp::MAX), None);
}

#[test]
fn an_interval_that_ends_before_it_starts_is_empty() {
    let window = filled(10, &[1, 2, 3]);
    assert!(window.interval(at(3), at(1)).is_empty());
    assert!(window.surrounding(at(3), at(1)).is_empty());
}

#[test]
fn interpolation_lies_between_both_sides() {
    let window = Window::new(Bounds::count(10));
    window.insert(at(0), 0.0);
    window.insert(at(10), 5.0);
    assert_eq!(window.interpolate(at(4)), Some(2.0));
    assert_eq!(window.interpolate(at(10)), Some(5.0));
    assert_eq!(window.interpolate(at(11)), None);
}

#[test]
fn zcache_names_are_inclusive() {
    let window = Window::new(Bounds::count(10));
    let time = |n: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(n);
    for second in [1, 2, 3] {
        let stamp = Stamp::try_from(time(second)).expect("in range");
        window.insert(stamp, second);
    }
    assert_eq!(window.get_before(time(2)).map(|entry| *entry), Some(2));
    assert_eq!(window.get_after(time(2)).map(|entry| *entry), Some(2));
    assert_eq!(window.get_nearest(time(9)).map(|entry| *entry), Some(3));
    assert_eq!(ZCache::get_interval(&window, time(1), time(2)).len(), 2);
    assert!(ZCache::get_interval(&window, time(2), time(1)).is_empty());
}

#[test]
fn message_filters_names_are_exclusive() {
    let window = filled(10, &[10, 20, 30]);
    let value = |entry: Option<Entry<i64>>| entry.map(|entry| *entry);
    assert_eq!(value(window.get_elem_before_time(at(20))), Some(10));
    assert_eq!(value(window.get_elem_after_time(at(20))), Some(30));
    assert_eq!(value(window.get_elem_before_time(at(10))), None);
    assert_eq!(value(window.get_elem_after_time(at(30))), None);
    assert_eq!(
        (window.get_oldest_time(), window.get_latest_time()),
        (at(10), at(30))
    );
    assert_eq!(filled(1, &[]).get_latest_time(), Stamp::EPOCH);
}

#[test]
fn the_surrounding_interval_is_that_of_ros_1_and_of_ros_2_until_2025() {
    let window = filled(10, &[10, 20, 30, 40]);
    let around = |a, b| values(&window.get_surrounding_interval(at(a), at(b)));
    assert_eq!(around(15, 35), [10, 20, 30, 40]);
    assert_eq!(around(20, 30), [20, 30]);
    assert_eq!(around(5, 45), [10, 20, 30, 40]);
    assert_eq!(around(50, 60), [40]);
    assert_eq!(around(1, 2), [10]);
    assert_eq!(around(35, 15), [30]);
    assert!(
        filled(1, &[])
            .get_surrounding_interval(at(1), at(2))
            .is_empty()
    );
}

#[test]
fn a_window_of_images_hands_out_the_same_image() {
    let window = Window::new(Bounds::count(4));
    let image = Arc::new(vec![0u8; 1 << 20]);
    window.insert_shared(at(1), Arc::clone(&image));
    let seen = window.nearest(at(0)).expect("one image");
    assert!(Arc::ptr_eq(&seen.value, &image));
    assert_eq!(Arc::strong_count(&image), 3);
}

#[test]
fn what_is_evicted_is_freed_even_while_its_neighbours_stay() {
    let window = Window::new(Bounds::count(1));
    let first = Arc::new(1);
    window.insert_shared(at(1), Arc::clone(&first));
    window.insert(at(2), 2);
    assert_eq!(Arc::strong_count(&first), 1);
}

#[test]
fn a_callback_may_ask_insert_and_disconnect() {
    let window = filled(100, &[]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let connection = window.on_insert({
        let (window, seen) = (window.clone(), Arc::clone(&seen));
        move |entry| {
            seen.lock().expect("not poisoned").push(**entry);
            assert!(window.nearest(entry.stamp).is_some());
            if **entry < 3 {
                window.insert(entry.stamp.plus_nanos(1), **entry + 1);
            }
        }
    });
    window.insert(at(1), 1);
    connection.disconnect();
    window.insert(at(9), 9);
    assert_eq!(*seen.lock().expect("not poisoned"), [1, 2, 3]);
}

#[test]
fn a_callback_that_panics_costs_no_other_callback_a_message() {
    let window = filled(10, &[]);
    let called = Arc::new(AtomicU64::new(0));
    let connections = [true, false].map(|panics| {
        let called = Arc::clone(&called);
        window.on_insert(move |_| {
            called.fetch_add(1, Ordering::Relaxed);
            assert!(!panics, "a panic that is meant");
        })
    });
    assert_eq!(window.insert(at(1), 1), Insertion::Kept);
    assert_eq!(window.insert(at(2), 2), Insertion::Kept);
    assert_eq!(called.load(Ordering::Relaxed), 4);
    drop(connections);
}

#[test]
fn refused_messages_reach_no_callback() {
    let window = filled(1, &[10]);
    let calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&calls);
    let connection = window.on_insert(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    window.insert(at(5), 5);
    connection.detach();
    window.insert(at(11), 11);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn wait_for_returns_at_once_what_is_there() {
    let window = filled(10, &[10, 20]);
    assert_eq!(
        window.wait_for(at(15), Duration::ZERO).map(|entry| *entry),
        Ok(20)
    );
    assert_eq!(
        window.wait_for(at(25), Duration::ZERO),
        Err(WaitError::Timeout)
    );
}

#[test]
fn wait_for_wakes_when_the_stamp_is_reached_and_not_before() {
    let window = filled(10, &[]);
    let writer = window.clone();
    let inserting = thread::spawn(move || {
        for stamp in 1..=50 {
            writer.insert(at(stamp), stamp);
            thread::yield_now();
        }
    });
    let reached = window.wait_for(at(50), Duration::from_mins(1));
    assert_eq!(reached.map(|entry| *entry), Ok(50));
    inserting.join().expect("no panic");
}

#[test]
fn closing_ends_every_wait() {
    let window = filled(10, &[]);
    let waiting = thread::spawn({
        let window = window.clone();
        move || window.wait_for(at(1), Duration::from_mins(1))
    });
    let changing = thread::spawn({
        let window = window.clone();
        move || window.wait_for_change(Duration::from_mins(1))
    });
    window.close();
    assert_eq!(waiting.join().expect("no panic"), Err(WaitError::Closed));
    assert_eq!(changing.join().expect("no panic"), Err(WaitError::Closed));
}

#[test]
fn a_loop_over_changed_since_misses_nothing() {
    let window = filled(10_000, &[]);
    let reader = thread::spawn({
        let window = window.clone();
        move || {
            let mut seen = 0;
            while seen < 1000 {
                seen = block_on(window.changed_since(seen)).expect("not closed");
            }
            seen
        }
    });
    for stamp in 0..1000 {
        window.insert(at(stamp), stamp);
    }
    assert_eq!(reader.join().expect("no panic"), 1000);
}

/// The smallest executor there is.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}
