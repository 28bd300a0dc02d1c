//! What happens to payloads: they are dropped outside of every lock, so what they do then is their own affair.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asof_window::sync::{
    ApproximateEpsilonTime, ApproximateTime, ExactTime, LatestTime, Rule, SharedSynchronizer,
    Shifted, Sorted, Synchronizer,
};
use asof_window::{Bounds, Window};
use proptest::prelude::*;

/// A message that asks its window when it goes: under the window's lock it would wait for ever.
struct Curious {
    window: Arc<OnceLock<Window<Curious>>>,
    asked: Arc<AtomicUsize>,
}

impl Drop for Curious {
    fn drop(&mut self) {
        if let Some(window) = self.window.get() {
            let _ = (window.len(), window.nearest(0.into()).is_some());
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_message_may_ask_its_window_when_it_is_let_go() {
    let asked = Arc::new(AtomicUsize::new(0));
    let home = Arc::new(OnceLock::new());
    let window = Window::new(Bounds::count(3).and_restart_after(Duration::from_secs(1)));
    assert!(home.set(window.clone()).is_ok());
    let message = || Curious {
        window: Arc::clone(&home),
        asked: Arc::clone(&asked),
    };
    let count = || asked.swap(0, Ordering::Relaxed);
    for t in 10..15 {
        window.insert(t.into(), message());
    }
    assert_eq!(count(), 2, "evicted by the count");
    window.insert(1.into(), message());
    assert_eq!(count(), 1, "refused because it is late");
    window.set_bounds(Bounds::count(1).and_restart_after(Duration::from_secs(1)));
    assert_eq!(count(), 2, "evicted by new bounds");
    window.insert((-5_000_000_000).into(), message());
    assert_eq!(count(), 1, "let go when the clock went back");
    window.clear();
    assert_eq!(count(), 1, "cleared");
}

/// The same for a synchronizer.
struct Adding(
    Arc<OnceLock<SharedSynchronizer<Adding, ApproximateTime<Adding>>>>,
    u32,
);

impl Drop for Adding {
    fn drop(&mut self) {
        if let Some(sync) = self.0.get().filter(|_| self.1 > 0) {
            sync.add(0, 1_000.into(), Adding(Arc::clone(&self.0), self.1 - 1));
        }
    }
}

#[test]
fn a_message_may_add_to_its_synchronizer_when_it_is_let_go() {
    let home = Arc::new(OnceLock::new());
    let sets = Arc::new(AtomicUsize::new(0));
    let sink = Arc::clone(&sets);
    let sync = SharedSynchronizer::sets(ApproximateTime::new(2, 2), move |_| {
        sink.fetch_add(1, Ordering::Relaxed);
    });
    assert!(home.set(sync.clone()).is_ok());
    for t in 0..20 {
        sync.add(0, t.into(), Adding(Arc::clone(&home), 1));
    }
    for t in 100..103 {
        sync.add(1, t.into(), Adding(Arc::clone(&home), 0));
    }
    assert!(sets.load(Ordering::Relaxed) <= 3);
}

/// Calls its owner when it goes.
struct Calling(Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>);

impl Drop for Calling {
    fn drop(&mut self) {
        if let Some(call) = self.0.get() {
            call();
        }
    }
}

#[test]
fn messages_that_are_cleared_or_replaced_may_ask_their_synchronizer() {
    fn ask<S: Synchronizer<Arc<Calling>> + Send + 'static>(make: impl Fn() -> S) {
        let none = |policy| SharedSynchronizer::sets(policy, |_| {});
        for sync in [none(make()), SharedSynchronizer::new(make(), drop)] {
            let (home, asked) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
            let (own, count) = (sync.clone(), Arc::clone(&asked));
            let call: Box<dyn Fn() + Send + Sync> = Box::new(move || {
                own.stats();
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert!(home.set(call).is_ok());
            for t in 0..10 {
                sync.add(0, t.into(), Arc::new(Calling(Arc::clone(&home))));
            }
            // Several may be replaced at once.
            sync.advance(1_000.into());
            sync.clear();
            assert_eq!(asked.load(Ordering::Relaxed), 10);
        }
    }
    let nanos = Duration::from_nanos;
    ask(|| ApproximateTime::new(2, 100));
    ask(|| ApproximateEpsilonTime::new(2, 100, nanos(1)));
    ask(|| ExactTime::new(2, 100));
    ask(|| LatestTime::new(2));
    ask(|| Shifted::new(LatestTime::new(2)).with_offset(0, 5));
    ask(|| Sorted::new(ExactTime::new(2, 100), 100, nanos(5)));
    ask(|| Shifted::new(Sorted::new(LatestTime::new(2), 100, nanos(5))));
}

#[test]
fn what_nobody_wants_is_let_go_soon() {
    let sync = SharedSynchronizer::sets(ExactTime::new(2, 4), |_| {});
    let value = Arc::new(());
    for t in 0..1_000 {
        sync.add(0, t.into(), Arc::clone(&value));
        assert!(
            Arc::strong_count(&value) <= 8,
            "{}",
            Arc::strong_count(&value)
        );
    }
}

proptest! {
    #[test]
    fn a_cursor_answers_as_its_window_does(
        steps in proptest::collection::vec((0i64..40, -200i64..200, any::<bool>()), 1..400),
        count in 1usize..300,
        tolerance in 0u64..30,
    ) {
        let window = Window::new(Bounds::count(count));
        let mut cursor = window.cursor();
        let rules = [Rule::nearest(), Rule::last(), Rule::interpolate()]
            .map(|rule| rule.within(Duration::from_nanos(tolerance)));
        let mut now = 0;
        for (n, (ahead, off, is_late)) in steps.into_iter().enumerate() {
            now += ahead;
            window.insert((if is_late { now + off } else { now }).into(), n);
            // Rising for the most part, and anywhere now and then.
            let t = (if n % 7 == 0 { now + off } else { now - 10 }).into();
            prop_assert_eq!(cursor.nearest(t), window.nearest(t));
            for rule in rules {
                prop_assert_eq!(cursor.pick(t, rule), window.pick(t, rule));
            }
        }
    }
}
