//! Waiting for transforms, and watching them come.

// Numbers that must come out as they went in are compared as they are.
#![allow(clippy::float_cmp)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use asof_core::Stamp;
use asof_tf::{BufferOptions, TransformBuffer, TransformWaitError};
use nalgebra::Isometry3;

const LONG: Duration = Duration::from_mins(1);

fn shift(x: f64) -> Isometry3<f64> {
    Isometry3::translation(x, 0.0, 0.0)
}

fn at(nanos: i64) -> Stamp {
    Stamp::from_nanos(nanos)
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_wait_ends_when_the_last_missing_thing_arrives() {
    let buffer = TransformBuffer::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| buffer.wait_for("map", "lidar", at(10), LONG));
        buffer
            .update("odom", "base", at(0), shift(0.0))
            .expect("good");
        std::thread::yield_now();
        buffer
            .update_static("base", "lidar", shift(5.0))
            .expect("good");
        buffer
            .update("odom", "base", at(20), shift(2.0))
            .expect("good");
        buffer
            .update_static("map", "odom", shift(100.0))
            .expect("good");
        let found = waiting.join().expect("no panic").expect("it came");
        assert_eq!(found.translation.x, 106.0);
    });
}

/// Each step of it is missing in turn: a frame, an edge, a sample, a time that both edges have.
#[test]
fn a_wait_for_the_latest_ends_when_there_is_a_time_that_all_edges_have() {
    let rounds = if cfg!(miri) { 2 } else { 2_000 };
    for round in 0..rounds {
        let options = BufferOptions::default().window(Duration::from_nanos(40));
        let buffer = TransformBuffer::with_options(options);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| buffer.wait_for_latest("a", "c", LONG));
            // A little later in each round, so that it meets every step of the registration.
            for _ in 0..round % 500 {
                std::hint::spin_loop();
            }
            let set = |parent, child, t: i64| {
                buffer
                    .update(parent, child, at(t), shift(t as f64))
                    .expect("good");
            };
            set("b", "c", 50);
            set("a", "b", 100);
            set("b", "c", 60);
            assert!(buffer.lookup_latest("a", "c").is_err());
            set("b", "c", 100);
            let found = waiting.join().expect("no panic").expect("it came");
            assert_eq!(found.stamp, Some(at(100)));
            assert_eq!(found.isometry.translation.x, 200.0);
        });
    }
}

#[test]
fn a_wait_for_the_latest_tells_what_was_missing() {
    let buffer = TransformBuffer::new();
    let wait = || buffer.wait_for_latest("a", "b", Duration::from_millis(5));
    let TransformWaitError::TimedOut { missing, .. } = wait().expect_err("never comes") else {
        panic!("there may always be a later time")
    };
    assert_eq!(missing.kind(), "unknown_frame");
    buffer.update_static("a", "b", shift(1.0)).expect("good");
    assert_eq!(wait().expect("there").stamp, None);
}

#[test]
fn a_wait_that_cannot_come_true_says_so_at_once() {
    let options = BufferOptions::default().window(Duration::from_nanos(40));
    let buffer = TransformBuffer::with_options(options);
    buffer.update("a", "b", at(100), shift(0.0)).expect("good");
    let error = buffer
        .wait_for("a", "b", at(59), LONG)
        .expect_err("is past");
    assert!(matches!(error, TransformWaitError::Never(_)));
    // Nor where there is no room before the oldest.
    let buffer = TransformBuffer::with_options(BufferOptions::default().count(1));
    buffer.update("a", "b", at(100), shift(0.0)).expect("good");
    let error = buffer
        .wait_for("a", "b", at(99), LONG)
        .expect_err("is past");
    assert!(matches!(error, TransformWaitError::Never(_)));
}

#[test]
fn a_wait_in_vain_tells_what_was_missing() {
    let buffer = TransformBuffer::new();
    buffer.update("a", "b", at(100), shift(0.0)).expect("good");
    let error = buffer
        .wait_for("a", "b", at(150), Duration::from_millis(5))
        .expect_err("never comes");
    let TransformWaitError::TimedOut { missing, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(missing.kind(), "extrapolation_future");
}

#[test]
fn a_future_is_woken_by_its_own_edge_and_by_no_other() {
    let buffer = TransformBuffer::new();
    buffer.update("a", "b", at(0), shift(0.0)).expect("good");
    buffer.update("a", "c", at(0), shift(0.0)).expect("good");
    let mut wait = Box::pin(buffer.wait("a", "b", at(10), None));
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    assert!(wait.as_mut().poll(&mut context).is_pending());
    buffer
        .update("a", "c", at(10), shift(0.0))
        .expect("another edge");
    buffer.update("a", "b", at(5), shift(0.0)).expect("not yet");
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    buffer
        .update("a", "b", at(15), shift(3.0))
        .expect("this is it");
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(matches!(
        wait.as_mut().poll(&mut context),
        Poll::Ready(Ok(_))
    ));
}

#[test]
fn a_wait_does_not_depend_on_edges_above_where_the_frames_meet() {
    let buffer = TransformBuffer::new();
    buffer
        .update("map", "odom", at(0), shift(0.0))
        .expect("good");
    for t in [0, 30] {
        buffer
            .update("odom", "arm", at(t), shift(1.0))
            .expect("good");
    }
    buffer
        .update("odom", "base", at(0), shift(3.0))
        .expect("good");
    // Neither map to odom nor odom to base has anything at 20; only the latter is needed.
    let mut wait = Box::pin(buffer.wait("arm", "base", at(20), None));
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    assert!(wait.as_mut().poll(&mut context).is_pending());
    buffer
        .update("odom", "base", at(25), shift(3.0))
        .expect("good");
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(wait.as_mut().poll(&mut context).is_ready());
}

#[test]
fn a_future_with_a_timeout_is_woken_when_time_is_up() {
    let buffer = TransformBuffer::new();
    let mut wait = Box::pin(buffer.wait("a", "b", at(10), Some(Duration::from_millis(5))));
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    while wait.as_mut().poll(&mut context).is_pending() {
        while count.0.swap(0, Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_dropped_future_is_forgotten() {
    let buffer = TransformBuffer::new();
    buffer.update("a", "b", at(0), shift(0.0)).expect("good");
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut wait = Box::pin(buffer.wait("a", "b", at(10), None));
    assert!(
        wait.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(wait);
    buffer.update("a", "b", at(20), shift(0.0)).expect("good");
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    assert_eq!(Arc::strong_count(&count), 2);
}

/// A wait that is registered while what it waits for arrives is woken, or finds it: with an edge that is missing as
/// well but not needed, and without. Nothing here depends on how long anything takes.
#[test]
fn a_sample_that_arrives_while_a_wait_is_registered_wakes_it() {
    let rounds = if cfg!(miri) { 4 } else { 20_000 };
    for has_more_above in [false, true] {
        let buffer = TransformBuffer::new();
        let set = |parent, child, t| {
            buffer
                .update(parent, child, at(t), shift(0.0))
                .expect("good");
        };
        if has_more_above {
            // Nothing above the frame in which the two meet is ever there at the times that are waited for.
            set("map", "a", -1);
        }
        set("a", "b", 0);
        let (asked, stored) = (AtomicI64::new(0), AtomicI64::new(0));
        let mut is_lost = false;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    while asked.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                    // A little later in each round, so that it meets every step of the registration.
                    for _ in 0..round % 200 {
                        std::hint::spin_loop();
                    }
                    set("a", "b", round);
                    stored.store(round, Ordering::Release);
                }
            });
            for round in 1..=rounds {
                let count = Arc::new(Count::default());
                let waker = Waker::from(Arc::clone(&count));
                let mut wait = Box::pin(buffer.wait("a", "b", at(round), None));
                asked.store(round, Ordering::Release);
                let poll = wait.as_mut().poll(&mut Context::from_waker(&waker));
                while stored.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
                is_lost |= poll.is_pending() && count.0.load(Ordering::SeqCst) == 0;
            }
        });
        // Not in the loop: a panic there would leave the writer waiting.
        assert!(!is_lost, "a wait for a sample that is there is not woken");
    }
}

#[test]
fn many_waits_and_a_writer_miss_nothing() {
    let rounds = if cfg!(miri) { 3 } else { 300 };
    let buffer = TransformBuffer::new();
    std::thread::scope(|scope| {
        for waiter in 0..3_i64 {
            let buffer = &buffer;
            scope.spawn(move || {
                for round in 0..rounds {
                    let t = at(round * 10 + waiter);
                    buffer.wait_for("a", "b", t, LONG).expect("comes");
                }
            });
        }
        for step in 0..=rounds {
            buffer
                .update("a", "b", at(step * 10), shift(0.0))
                .expect("good");
            std::thread::yield_now();
        }
    });
}

#[test]
fn an_observer_gets_the_latest_of_every_edge_and_then_every_update() {
    let buffer = TransformBuffer::new();
    buffer
        .update("odom", "base", at(0), shift(0.0))
        .expect("good");
    buffer
        .update("odom", "base", at(10), shift(1.0))
        .expect("good");
    buffer
        .update_static("base", "lidar", shift(5.0))
        .expect("good");
    let mut observer = buffer.observe(16);
    buffer
        .update("odom", "base", at(20), shift(2.0))
        .expect("good");
    buffer
        .update_static("base", "camera", shift(6.0))
        .expect("good");
    let seen: Vec<_> = observer
        .drain()
        .into_iter()
        .map(|u| (u.child.to_string(), u.stamp))
        .collect();
    let wanted = [
        ("base", Some(at(10))),
        ("lidar", None),
        ("base", Some(at(20))),
        ("camera", None),
    ];
    assert_eq!(seen, wanted.map(|(child, stamp)| (child.to_owned(), stamp)));
    assert_eq!(observer.missed(), 0);
    assert!(observer.try_next().is_none());
}

#[test]
fn a_slow_observer_misses_the_oldest_and_knows_how_many() {
    let buffer = TransformBuffer::new();
    let mut observer = buffer.observe(2);
    for t in 0..10 {
        buffer.update("a", "b", at(t), shift(0.0)).expect("good");
    }
    assert_eq!(observer.missed(), 8);
    let left: Vec<_> = observer
        .drain()
        .into_iter()
        .filter_map(|u| u.stamp)
        .collect();
    assert_eq!(left, [at(8), at(9)]);
}

#[test]
fn an_observer_is_told_of_nothing_that_was_refused() {
    let options = BufferOptions::default()
        .window(Duration::from_nanos(50))
        .count(20);
    let buffer = TransformBuffer::with_options(options);
    buffer.update("a", "b", at(100), shift(0.0)).expect("good");
    let mut observer = buffer.observe(1_000);
    observer.drain();
    let samples = (0..100).map(|t| (at(t), shift(0.0)));
    // 50 to 99 are inside of the window, and 19 of them fit.
    assert_eq!(buffer.extend_edge("a", "b", samples), Ok(81));
    assert_eq!(buffer.stats().too_old, 81);
    let told: Vec<_> = observer.drain().iter().filter_map(|u| u.stamp).collect();
    assert_eq!(told, (81..100).map(at).collect::<Vec<_>>());
    let refused = buffer.extend_edge("a", "b", (0..3).map(|t| (at(t), shift(0.0))));
    assert_eq!(refused, Ok(3));
    assert!(observer.drain().is_empty());
    buffer
        .update("a", "b", at(1), shift(0.0))
        .expect_err("too old");
    buffer
        .reparent("c", "b", at(1), shift(0.0))
        .expect_err("too old");
    assert!(observer.drain().is_empty());
}

#[test]
fn an_observer_that_registers_in_the_middle_sees_every_stamp_once() {
    let last = if cfg!(miri) { 30 } else { 3_000 };
    let buffer = TransformBuffer::new();
    buffer.update("a", "b", at(0), shift(0.0)).expect("good");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for t in 1..=last {
                buffer.update("a", "b", at(t), shift(0.0)).expect("good");
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let mut observer = buffer.observe(10_000);
        let mut seen = Vec::new();
        while seen.last() != Some(&at(last)) {
            seen.extend(observer.next_within(LONG).and_then(|update| update.stamp));
        }
        let first = seen[0].nanos();
        let wanted: Vec<_> = (first..=last).map(at).collect();
        assert_eq!(seen, wanted);
    });
    assert!(is_over.load(Ordering::SeqCst));
}

#[test]
fn a_dropped_observer_costs_nothing_more() {
    let buffer = TransformBuffer::new();
    drop(buffer.observe(4));
    buffer.update("a", "b", at(0), shift(0.0)).expect("good");
    assert!(buffer.lookup("a", "b", at(0)).is_ok());
}

#[test]
fn a_callback_that_panics_stops_neither_the_timer_nor_a_writer() {
    let buffer = TransformBuffer::new();
    buffer
        .update("a", "b", 0.into(), Isometry3::identity())
        .expect("good");
    let (send, receive) = std::sync::mpsc::channel();
    let moment = Some(Duration::from_millis(1));
    let failing = buffer.on_transform("a", "b", 5.into(), moment, |_| panic!("on the timer"));
    while failing.is_pending() {
        std::thread::yield_now();
    }
    let sender = send.clone();
    let timed = buffer.on_transform("a", "b", 5.into(), moment, move |found| {
        let _ = sender.send(found.is_err());
    });
    assert_eq!(receive.recv_timeout(Duration::from_mins(1)), Ok(true));
    let first = buffer.on_transform("a", "b", 5.into(), None, |_| panic!("on a writer"));
    let second = buffer.on_transform("a", "b", 5.into(), None, move |found| {
        let _ = send.send(found.is_ok());
    });
    buffer
        .update("a", "b", 9.into(), Isometry3::identity())
        .expect("the writer goes on");
    assert_eq!(receive.recv_timeout(Duration::from_mins(1)), Ok(true));
    drop((failing, timed, first, second));
}

#[test]
fn a_callback_that_panics_at_once_does_not_reach_who_asked() {
    let buffer = TransformBuffer::new();
    buffer
        .update("a", "b", 0.into(), Isometry3::identity())
        .expect("good");
    let known = buffer.on_transform("a", "b", 0.into(), None, |_| panic!("known at once"));
    let late = buffer.on_transform("a", "b", 5.into(), Some(Duration::ZERO), |_| {
        panic!("late at once")
    });
    assert!(!known.is_pending());
    assert!(!late.is_pending());
}

#[test]
fn a_waker_may_own_another_wait() {
    /// Ends a wait when it is dropped.
    struct Owner(#[allow(dead_code)] std::sync::Mutex<asof_tf::Wait>);
    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }
    let buffer = TransformBuffer::new();
    buffer.update("a", "b", at(0), shift(1.0)).expect("good");
    let (done, ended) = std::sync::mpsc::channel();
    let other = buffer.clone();
    // Under a lock it would wait for ever.
    std::thread::spawn(move || {
        for timeout in [None, Some(LONG)] {
            let mut inner = other.wait("a", "b", at(9), timeout);
            let counted = Waker::from(Arc::<Count>::default());
            let polled = std::pin::Pin::new(&mut inner).poll(&mut Context::from_waker(&counted));
            assert!(polled.is_pending());
            let waker = Waker::from(Arc::new(Owner(std::sync::Mutex::new(inner))));
            let mut outer = other.wait("a", "b", at(9), timeout);
            let polled = std::pin::Pin::new(&mut outer).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            drop(waker);
            drop(outer);
        }
        done.send(()).expect("a listener");
    });
    assert_eq!(ended.recv_timeout(LONG), Ok(()));
}

#[test]
fn a_wait_goes_on_when_its_frames_are_removed_and_come_back() {
    let buffer = TransformBuffer::new();
    buffer.update("a", "b", at(0), shift(1.0)).expect("good");
    let (send, found) = std::sync::mpsc::channel();
    let waiting = buffer.on_transform("a", "b", at(20), None, move |pose| {
        send.send(pose.expect("a pose").translation.x)
            .expect("a listener");
    });
    let blocked = {
        let buffer = buffer.clone();
        std::thread::spawn(move || buffer.wait_for_latest("a", "c", LONG))
    };
    buffer.remove("b").expect("it is there");
    assert!(waiting.is_pending());
    // Another edge takes its room.
    buffer.update("x", "y", at(20), shift(7.0)).expect("good");
    buffer.update("a", "b", at(30), shift(3.0)).expect("good");
    assert!(waiting.is_pending(), "nothing before it is there");
    buffer.clear();
    buffer.update("a", "b", at(10), shift(1.0)).expect("good");
    assert!(waiting.is_pending());
    buffer.update("a", "b", at(30), shift(3.0)).expect("good");
    assert_eq!(found.try_recv(), Ok(2.0));
    buffer.update("b", "c", at(40), shift(1.0)).expect("good");
    buffer.remove("c").expect("it is there");
    buffer.update("b", "c", at(25), shift(1.0)).expect("good");
    let latest = blocked.join().expect("no panic").expect("a pose");
    assert!(latest.stamp.is_some_and(|stamp| stamp <= at(30)));
}
