//! Frames that change their parents, and trees that change their shape.

// Numbers that must come out as they went in are compared as they are.
#![allow(clippy::float_cmp)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use asof_core::Stamp;
use asof_tf::{
    BufferOptions, Conflicts, LookupError, TransformBuffer, TransformWaitError, UpdateError,
};
use nalgebra::Isometry3;

const SECOND: i64 = 1_000_000_000;
const LONG: Duration = Duration::from_mins(1);

fn shift(x: f64) -> Isometry3<f64> {
    Isometry3::translation(x, 0.0, 0.0)
}

fn at(nanos: i64) -> Stamp {
    Stamp::from_nanos(nanos)
}

fn x(found: Result<Isometry3<f64>, LookupError>) -> f64 {
    found.expect("there is a transform").translation.x
}

/// As tf2 has it: the last word counts.
fn like_tf2() -> TransformBuffer {
    TransformBuffer::with_options(BufferOptions::unbounded().conflicts(Conflicts::LastWins))
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn each_time_has_the_parent_of_its_sample() {
    let buffer = like_tf2();
    for (parent, t) in [("a", 10), ("b", 20), ("a", 30), ("b", 40), ("b", 50)] {
        buffer
            .update(parent, "box", at(t), shift(t as f64))
            .expect("the last word counts");
    }
    buffer
        .update_static("world", "a", shift(100.0))
        .expect("good");
    buffer
        .update_static("world", "b", shift(200.0))
        .expect("good");
    // Between two samples of different parents the older one counts, as in tf2.
    for (t, wanted) in [
        (10, 110.0),
        (15, 110.0),
        (20, 220.0),
        (29, 220.0),
        (30, 130.0),
        (39, 130.0),
        (40, 240.0),
        (45, 245.0),
        (50, 250.0),
    ] {
        assert_eq!(x(buffer.lookup("world", "box", at(t))), wanted, "{t}");
        let mut path = buffer.path("world", "box").expect("known");
        assert_eq!(x(path.lookup(at(t))), wanted, "{t}");
        let many = path.lookup_many(&[at(t); 3]);
        assert_eq!(many.isometries[2].translation.x, wanted, "{t}");
    }
    assert_eq!(buffer.parent("box").expect("known").as_deref(), Some("b"));
}

#[test]
fn a_late_sample_of_an_old_parent_goes_where_it_belongs() {
    let buffer = TransformBuffer::new();
    buffer.update("a", "box", at(10), shift(1.0)).expect("good");
    buffer
        .reparent("b", "box", at(30), shift(3.0))
        .expect("moves");
    buffer
        .reparent("a", "box", at(20), shift(2.0))
        .expect("late");
    assert_eq!(x(buffer.lookup("a", "box", at(15))), 1.5);
    assert_eq!(x(buffer.lookup("a", "box", at(29))), 2.0);
    assert_eq!(x(buffer.lookup("b", "box", at(30))), 3.0);
    assert_eq!(buffer.parent("box").expect("known").as_deref(), Some("b"));
    let error = buffer.lookup("a", "box", at(30)).expect_err("is under b");
    assert_eq!(error.kind(), "disconnected");
}

#[test]
fn two_frames_that_change_places_are_found_at_all_times() {
    let buffer = like_tf2();
    buffer.update("a", "b", at(10), shift(1.0)).expect("good");
    buffer
        .update("world", "b", at(20), shift(5.0))
        .expect("good");
    buffer.update("b", "a", at(20), shift(2.0)).expect("good");
    assert_eq!(x(buffer.lookup("a", "b", at(10))), 1.0);
    assert_eq!(x(buffer.lookup("b", "a", at(10))), -1.0);
    assert_eq!(x(buffer.lookup("world", "a", at(20))), 7.0);
    // The other way round, so that there is a circle for a moment.
    let buffer = like_tf2();
    buffer.update("a", "b", at(10), shift(1.0)).expect("good");
    buffer.update("b", "a", at(20), shift(2.0)).expect("good");
    assert_eq!(x(buffer.lookup("a", "b", at(10))), 1.0);
    buffer
        .update("world", "b", at(20), shift(5.0))
        .expect("good");
    assert_eq!(x(buffer.lookup("a", "b", at(10))), 1.0);
    assert_eq!(x(buffer.lookup("world", "a", at(20))), 7.0);
}

#[test]
fn a_circle_is_told_and_harms_no_other_lookup() {
    let buffer = like_tf2();
    buffer.update("a", "b", at(10), shift(1.0)).expect("good");
    buffer.update("b", "c", at(10), shift(1.0)).expect("good");
    buffer
        .update("c", "a", at(10), shift(1.0))
        .expect("a circle");
    buffer
        .update("b", "leaf", at(10), shift(1.0))
        .expect("good");
    buffer.update("x", "y", at(10), shift(1.0)).expect("good");
    assert_eq!(
        buffer
            .lookup("y", "leaf", at(10))
            .expect_err("circle")
            .kind(),
        "circle"
    );
    assert_eq!(x(buffer.lookup("x", "y", at(10))), 1.0);
    // Two frames on the circle are still found in each other, as in tf2.
    assert_eq!(x(buffer.lookup("a", "c", at(10))), 2.0);
    assert!(buffer.to_tree().contains('y'));
    let mut path = buffer.path("x", "leaf").expect("known");
    assert!(path.lookup(at(10)).is_err());
    let strict = TransformBuffer::new();
    strict.update("a", "b", at(10), shift(1.0)).expect("good");
    let error = strict
        .update("b", "a", at(10), shift(1.0))
        .expect_err("circle");
    assert!(matches!(error, UpdateError::Cycle { .. }));
}

#[test]
fn samples_of_old_parents_leave_with_the_window_and_count_in_the_budget() {
    let buffer = TransformBuffer::with_options(BufferOptions::default().bytes(1 << 20));
    for n in 0..4_000 {
        let parent = format!("place_{}", n % 7);
        buffer
            .reparent(&parent, "robot", at(n * SECOND), shift(n as f64))
            .expect("moves");
    }
    let stats = buffer.stats();
    assert!(stats.bytes <= 1 << 20, "{stats:?}");
    assert_eq!(stats.samples, 11);
    assert_eq!(
        x(buffer.lookup("place_2", "robot", at(3_999 * SECOND))),
        3_999.0
    );
    let gone = buffer
        .lookup("place_0", "robot", at(0))
        .expect_err("4,000 s back");
    assert_ne!(gone.kind(), "unknown_frame");
    // With one parent for a window long, it is an edge like any other again.
    for n in 4_000..4_020 {
        buffer
            .update("place_2", "robot", at(n * SECOND), shift(n as f64))
            .expect("in order");
    }
    assert_eq!(
        x(buffer.lookup("place_2", "robot", at(4_015 * SECOND))),
        4_015.0
    );
}

#[test]
fn a_failed_reparent_leaves_no_frame_behind() {
    let buffer =
        TransformBuffer::with_options(BufferOptions::default().window(Duration::from_nanos(5)));
    buffer.update("a", "b", at(100), shift(0.0)).expect("good");
    buffer.update("b", "c", at(100), shift(0.0)).expect("good");
    buffer.update_static("c", "d", shift(0.0)).expect("good");
    let refused = [
        buffer.reparent("new", "b", at(1), shift(0.0)),
        buffer.reparent("new", "d", at(100), shift(0.0)),
        buffer.reparent("c", "b", at(101), shift(0.0)),
        buffer.reparent("new", "b", at(101), shift(f64::NAN)),
        buffer.reparent("", "b", at(101), shift(0.0)),
        buffer.reparent("b", "b", at(101), shift(0.0)),
        buffer.reparent_static("new", "b", shift(0.0)),
    ];
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    assert_eq!(buffer.frames(), ["a", "b", "c", "d"]);
}

#[test]
fn a_static_edge_moves_for_all_times() {
    let buffer = TransformBuffer::new();
    buffer
        .update_static("base", "tool", shift(1.0))
        .expect("good");
    let mut path = buffer.path("base", "tool").expect("known");
    assert_eq!(x(path.lookup(at(0))), 1.0);
    let error = buffer
        .update_static("arm", "tool", shift(2.0))
        .expect_err("second");
    assert!(matches!(error, UpdateError::SecondParent { .. }));
    buffer
        .reparent_static("arm", "tool", shift(2.0))
        .expect("explicit");
    assert_eq!(x(buffer.lookup("arm", "tool", at(0))), 2.0);
    assert_eq!(
        path.lookup(at(0)).expect_err("apart").kind(),
        "disconnected"
    );
}

#[test]
fn an_edge_without_samples_takes_any_parent_and_kind() {
    let buffer = TransformBuffer::new();
    buffer.update("a", "b", at(10), shift(1.0)).expect("good");
    buffer.clear();
    buffer
        .update_static("a", "b", shift(2.0))
        .expect("was cleared");
    assert_eq!(x(buffer.lookup("a", "b", at(99))), 2.0);
    let buffer = TransformBuffer::new();
    buffer.update("a", "b", at(10), shift(1.0)).expect("good");
    buffer.clear();
    buffer
        .update("c", "b", at(5), shift(3.0))
        .expect("was cleared");
    assert_eq!(x(buffer.lookup("c", "b", at(5))), 3.0);
}

#[test]
fn a_change_of_kind_drops_what_there_was_if_the_last_word_counts() {
    let buffer = like_tf2();
    buffer.update("a", "b", at(10), shift(1.0)).expect("good");
    buffer.update("a", "b", at(20), shift(2.0)).expect("good");
    buffer.update_static("a", "b", shift(9.0)).expect("good");
    assert_eq!(x(buffer.lookup("a", "b", at(15))), 9.0);
    buffer.update("c", "b", at(30), shift(3.0)).expect("good");
    assert_eq!(x(buffer.lookup("c", "b", at(30))), 3.0);
    assert!(buffer.lookup("a", "b", at(15)).is_err());
    assert_eq!(buffer.stats().samples, 1);
}

#[test]
fn a_wait_is_woken_when_its_edge_comes_under_another_parent() {
    let buffer = TransformBuffer::new();
    buffer.update("a", "b", at(10), shift(1.0)).expect("good");
    buffer.update_static("a", "c", shift(0.0)).expect("good");
    let mut wait = Box::pin(buffer.wait("c", "b", at(20), None));
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    assert!(wait.as_mut().poll(&mut context).is_pending());
    buffer
        .reparent("c", "b", at(20), shift(4.0))
        .expect("moves");
    assert!(count.0.load(Ordering::SeqCst) > 0);
    let Poll::Ready(Ok(found)) = wait.as_mut().poll(&mut context) else {
        panic!("it is there");
    };
    assert_eq!(found.translation.x, 4.0);
}

#[test]
fn a_wait_for_frames_that_are_not_connected_is_pending_whatever_the_time() {
    let buffer = TransformBuffer::new();
    buffer.update("a", "b", at(100), shift(1.0)).expect("good");
    buffer.update("x", "y", at(100), shift(1.0)).expect("good");
    // Before the oldest sample, and not connected.
    for t in [50, 100, 150] {
        let mut wait = Box::pin(buffer.wait("y", "b", at(t), None));
        let waker = Waker::noop();
        let polled = wait.as_mut().poll(&mut Context::from_waker(waker));
        assert!(polled.is_pending(), "{t}");
    }
    let error = buffer
        .wait_for("y", "b", at(50), Duration::from_millis(5))
        .expect_err("never comes");
    assert!(
        matches!(error, TransformWaitError::TimedOut { .. }),
        "{error}"
    );
    // The same where a frame has had several parents.
    buffer
        .reparent("c", "b", at(200), shift(1.0))
        .expect("moves");
    for t in [50, 100, 200, 300] {
        let mut wait = Box::pin(buffer.wait("y", "b", at(t), None));
        let waker = Waker::noop();
        let polled = wait.as_mut().poll(&mut Context::from_waker(waker));
        assert!(polled.is_pending(), "{t}");
    }
}

#[test]
fn a_wait_for_the_past_ends_with_a_late_sample_or_when_none_can_come() {
    let buffer = TransformBuffer::new();
    let second = |n: i64| at(n * SECOND);
    buffer
        .update("a", "b", second(100), shift(1.0))
        .expect("good");
    let wait = || buffer.wait_for("a", "b", second(95), LONG);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(wait);
        std::thread::yield_now();
        buffer
            .update("a", "b", second(94), shift(0.0))
            .expect("inside");
        assert!(waiting.join().expect("no panic").is_ok());
        // 93 s can still come; after a sample at 104 s it cannot.
        let waiting = scope.spawn(|| buffer.wait_for("a", "b", second(93), LONG));
        std::thread::yield_now();
        buffer
            .update("a", "b", second(104), shift(0.0))
            .expect("good");
        let error = waiting.join().expect("no panic").expect_err("too late");
        assert!(matches!(error, TransformWaitError::Never(_)), "{error}");
    });
}

#[test]
fn frames_can_be_removed_and_others_take_their_room() {
    let buffer = TransformBuffer::with_options(BufferOptions {
        max_frames: 100,
        ..BufferOptions::default()
    });
    buffer
        .update_static("map", "robot", shift(0.0))
        .expect("good");
    for n in 0..5_000 {
        let name = format!("object_{n}");
        buffer
            .update("map", &name, at(n), shift(n as f64))
            .expect("there is room");
        buffer
            .update_static(&name, &format!("{name}/grip"), shift(1.0))
            .expect("good");
        if n % 40 == 39 {
            assert_eq!(buffer.remove_older(at(n)), 78 + usize::from(n > 40) * 2);
        }
    }
    let stats = buffer.stats();
    assert!(stats.bytes < 100 * 2 * 4160, "{stats:?}");
    assert_eq!(buffer.frames().len(), 4);
    assert_eq!(
        x(buffer.lookup("map", "object_4999/grip", at(4_999))),
        5_000.0
    );
    let gone = buffer
        .lookup("map", "object_7", at(7))
        .expect_err("is gone");
    assert_eq!(gone.kind(), "unknown_frame");
    // One that comes back is as new.
    buffer
        .update("robot", "object_7", at(9_000), shift(3.0))
        .expect("again");
    assert_eq!(x(buffer.lookup("map", "object_7", at(9_000))), 3.0);
    assert_eq!(buffer.remove("map"), Ok(5));
    assert!(buffer.frames().is_empty());
    assert!(buffer.remove("map").is_err());
}

#[test]
fn a_chain_made_from_its_end_is_found_and_takes_no_time() {
    let buffer = TransformBuffer::with_options(BufferOptions::unbounded());
    let count = if cfg!(miri) { 50 } else { 50_000 };
    for n in (0..count).rev() {
        let (parent, child) = (format!("f{n}"), format!("f{}", n + 1));
        buffer
            .update_static(&parent, &child, shift(1.0))
            .expect("good");
    }
    let last = format!("f{count}");
    assert_eq!(x(buffer.lookup("f0", &last, at(0))), f64::from(count));
    assert_eq!(x(buffer.lookup(&last, "f1", at(0))), 1.0 - f64::from(count));
}

#[test]
fn readers_beside_one_that_reparents_see_one_parent_or_the_other() {
    let buffer = TransformBuffer::with_options(BufferOptions::default().count(50));
    buffer
        .update_static("world", "left", shift(1_000.0))
        .expect("good");
    buffer
        .update_static("world", "right", shift(-1_000.0))
        .expect("good");
    buffer
        .update("left", "box", at(0), shift(-1_000.0))
        .expect("good");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let rounds = if cfg!(miri) { 30 } else { 20_000 };
            for n in 1..rounds {
                // For some time with either, and for some to and fro.
                let is_left = (n / 100) % 2 == 0 || n % 3 == 0;
                let parent = if is_left { "left" } else { "right" };
                // So that it is at n in the world, whatever its parent.
                let offset = if is_left { -1_000.0 } else { 1_000.0 };
                let pose = shift(n as f64 + offset);
                buffer.reparent(parent, "box", at(n), pose).expect("moves");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut path = buffer.path("world", "box").expect("known");
                let mut count = 0;
                while !is_over.load(Ordering::Relaxed) || count < 10 {
                    count += 1;
                    let Ok(Some(newest)) = buffer.latest_common_time("world", "box") else {
                        panic!("there always is one");
                    };
                    let t = at(newest.nanos() - count % 40);
                    let found = match count % 3 {
                        0 => path.lookup(t),
                        1 => buffer.lookup("world", "box", t),
                        _ => path
                            .lookup_many(&[t])
                            .get(0)
                            .expect("one")
                            .cloned()
                            .map_err(Clone::clone),
                    };
                    match found {
                        Ok(found) => {
                            let off = found.translation.x - t.nanos() as f64;
                            assert!(off.abs() < 1e-6, "{off} at {t:?}");
                        }
                        Err(LookupError::Extrapolation { asked, oldest, .. }) => {
                            assert!(asked < oldest);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
}
