//! loom models of the interleavings of a window's readers and writers; `ci/hot/loom` runs them.
//!
//! A run holds three messages here, and the lock is a mutex. What is left to explore is the order in which threads get
//! the lock, and which reader still has a run that a writer wants to change.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::{Bounds, Insertion, Window};

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

/// A window of three with these messages; each is ten times its stamp.
fn with(stamps: &[i64]) -> Window<i64> {
    let window = Window::new(Bounds::count(3));
    for stamp in stamps {
        window.insert((*stamp).into(), stamp * 10);
    }
    window
}

fn stamps(view: &crate::View<i64>) -> Vec<i64> {
    let message = |(stamp, value): (asof_core::Stamp, &i64)| {
        assert_eq!(*value, stamp.nanos() * 10, "another message's value");
        stamp.nanos()
    };
    view.iter().map(message).collect()
}

#[test]
fn a_view_is_one_moment_of_the_window_and_never_changes() {
    check(|| {
        let window = with(&[1, 2, 3]);
        let writer = window.clone();
        let thread = thread::spawn(move || {
            writer.insert(4.into(), 40);
            writer.insert(5.into(), 50);
        });
        let view = window.snapshot();
        let seen = stamps(&view);
        let moments = [[1, 2, 3], [2, 3, 4], [3, 4, 5]];
        assert!(moments.iter().any(|moment| seen == moment), "{seen:?}");
        thread.join().expect("no panic");
        assert_eq!(stamps(&view), seen);
        assert_eq!(stamps(&window.snapshot()), [3, 4, 5]);
    });
}

#[test]
fn a_late_message_is_seen_in_its_place_or_not_at_all() {
    check(|| {
        let window = with(&[1, 5]);
        let before = window.snapshot();
        let writer = window.clone();
        let thread = thread::spawn(move || writer.insert(3.into(), 30));
        let seen = stamps(&window.snapshot());
        assert!(seen == [1, 5] || seen == [1, 3, 5], "{seen:?}");
        drop(before);
        assert_eq!(thread.join().expect("no panic"), Insertion::Kept);
        assert_eq!(stamps(&window.snapshot()), [1, 3, 5]);
    });
}

#[test]
fn a_handle_outlives_the_eviction_of_its_message() {
    check(|| {
        let window = with(&[1, 2, 3]);
        let writer = window.clone();
        let thread = thread::spawn(move || {
            writer.set_bounds(Bounds::count(1));
            writer.insert(9.into(), 90);
        });
        let found = window.nearest(1.into()).expect("there always is one");
        assert_eq!(*found, found.stamp.nanos() * 10);
        assert!([1, 3, 9].contains(&found.stamp.nanos()));
        thread.join().expect("no panic");
        assert_eq!(window.len(), 1);
        assert_eq!(*found, found.stamp.nanos() * 10);
    });
}

#[test]
fn writers_take_turns_and_lose_nothing() {
    check(|| {
        let window = with(&[2]);
        let writer = window.clone();
        let thread = thread::spawn(move || writer.insert(1.into(), 10));
        window.insert(3.into(), 30);
        thread.join().expect("no panic");
        assert_eq!(stamps(&window.snapshot()), [1, 2, 3]);
        assert_eq!(window.stats().inserted, 3);
    });
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn who_waits_is_woken_by_the_message_or_finds_it() {
    check(|| {
        let window = with(&[1]);
        let writer = window.clone();
        let thread = thread::spawn(move || {
            writer.insert(2.into(), 20);
            writer.insert(3.into(), 30);
        });
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut reached = pin!(window.reached(3.into()));
        let first = reached.as_mut().poll(&mut context);
        thread.join().expect("no panic");
        match first {
            Poll::Ready(found) => assert_eq!(*found.expect("not closed"), 30),
            Poll::Pending => {
                assert!(woken.0.load(Ordering::Acquire), "the waiter was not woken");
                let again = reached.as_mut().poll(&mut context);
                assert!(matches!(again, Poll::Ready(Ok(found)) if *found == 30));
            }
        }
    });
}
