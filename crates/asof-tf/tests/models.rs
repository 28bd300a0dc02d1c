//! Every order in which a writer and a reader can meet, as far as loom can tell: `ci/hot/loom` runs these.
//!
//! A sample is two words here, a chunk one sample, and a reader tries once before it takes the latch. Word
//! one is made from the stamp: a sample whose words do not belong together is torn.

#![cfg(loom)]
#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    reason = "the models use a part of the core"
)]

// The concurrent core, built with loom's atomics and by itself.
#[path = "../src/history/mod.rs"]
mod history;
#[path = "../src/pool.rs"]
mod pool;
#[path = "../src/shelf.rs"]
mod shelf;
#[path = "../src/sync.rs"]
mod sync;

use loom::sync::Arc;
use loom::thread;

use crate::history::{Bounds, Fixed, History, Inserted, Neighbours, Slot, Words};
use crate::pool::Pool;
use crate::sync::AtomicU64;

const UNBOUNDED: Bounds = Bounds {
    window: i64::MAX,
    count: u64::MAX,
};

fn sample(stamp: u64) -> Words {
    [stamp, stamp * 10]
}

fn insert(shared: &(Pool, History), bounds: Bounds, words: Words) -> Inserted {
    let held = shared.1.hold();
    shared
        .1
        .insert(&held, &shared.0, bounds, (&words, 0), |_| ())
}

/// A history with these samples, for two threads.
fn with(stamps: &[u64]) -> Arc<(Pool, History)> {
    let shared = Arc::new((Pool::new(u64::MAX), History::new((), (), 0)));
    for stamp in stamps {
        insert(&shared, UNBOUNDED, sample(*stamp));
    }
    shared
}

fn newest(shared: &(Pool, History)) -> Option<Words> {
    let (pool, history) = shared;
    if let Some(words) = history.newest_once(pool, |slot| slot.words()) {
        return Some(words);
    }
    history
        .read(pool, |view| {
            if view.len() == 0 {
                return Some((None, view.tail()));
            }
            let (slot, index) = view.newest()?;
            Some((Some(slot.words()), index))
        })
        .flatten()
}

/// The samples around `t`: one, two or none.
fn around(shared: &(Pool, History), t: i64) -> Vec<Words> {
    let (pool, history) = shared;
    // As a lookup does: where they are expected, or else with care.
    if let Some(view) = history.glance(pool)
        && let Some((a, b, lowest)) = view.expected(t)
    {
        let words = vec![a.words(), b.words()];
        if history.is_whole(&view, lowest) {
            return words;
        }
    }
    let found = history.read(pool, |view| {
        let (place, lowest) = view.place(t)?;
        let words = match place {
            Neighbours::At(slot) => vec![slot.words()],
            Neighbours::Between(a, b) => vec![a.words(), b.words()],
            _ => Vec::new(),
        };
        Some((words, lowest))
    });
    found.unwrap_or_default()
}

fn assert_whole(words: &Words) {
    assert_eq!(words[1], words[0] * 10, "torn: {words:?}");
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

#[test]
fn a_reader_of_the_newest_sees_whole_samples_while_chunks_are_recycled() {
    check(|| {
        let shared = with(&[1, 2]);
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let two = Bounds {
                count: 2,
                ..UNBOUNDED
            };
            insert(&writer, two, sample(3));
            insert(&writer, two, sample(4));
        });
        let found = newest(&shared).expect("there always is one");
        assert_whole(&found);
        assert!((2..=4).contains(&found[0]));
        thread.join().expect("no panic");
        assert_eq!(newest(&shared), Some(sample(4)));
    });
}

#[test]
fn a_reader_between_two_samples_sees_both_whole_or_neither_when_they_are_evicted() {
    check(|| {
        let shared = with(&[1, 3]);
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let two = Bounds {
                count: 2,
                ..UNBOUNDED
            };
            insert(&writer, two, sample(5));
            insert(&writer, two, sample(7));
        });
        let found = around(&shared, 2);
        found.iter().for_each(assert_whole);
        assert!(
            found.is_empty() || found == [sample(1), sample(3)],
            "{found:?}"
        );
        thread.join().expect("no panic");
        assert_eq!(around(&shared, 6), [sample(5), sample(7)]);
    });
}

#[test]
fn a_late_sample_is_seen_in_its_place_or_not_at_all() {
    check(|| {
        let shared = with(&[1, 5]);
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            assert_eq!(insert(&writer, UNBOUNDED, sample(3)), Inserted::InPlace);
        });
        let found = around(&shared, 4);
        found.iter().for_each(assert_whole);
        assert!(
            found == [sample(1), sample(5)] || found == [sample(3), sample(5)],
            "{found:?}"
        );
        thread.join().expect("no panic");
        assert_eq!(around(&shared, 2), [sample(1), sample(3)]);
    });
}

#[test]
fn a_replaced_sample_is_seen_old_or_new() {
    check(|| {
        let shared = with(&[1]);
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            assert_eq!(insert(&writer, UNBOUNDED, [1, 77]), Inserted::Replaced);
        });
        let found = newest(&shared).expect("there always is one");
        assert!(found == [1, 10] || found == [1, 77], "{found:?}");
        thread.join().expect("no panic");
    });
}

#[test]
fn writers_on_one_edge_take_turns() {
    check(|| {
        let shared = with(&[1]);
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || insert(&writer, UNBOUNDED, sample(3)));
        insert(&shared, UNBOUNDED, sample(2));
        thread.join().expect("no panic");
        assert_eq!(shared.1.len(), 3);
        assert_eq!(newest(&shared), Some(sample(3)));
        assert_eq!(around(&shared, 2), [sample(2)]);
    });
}

#[test]
fn a_static_pose_is_seen_old_or_new() {
    check(|| {
        let shared = Arc::new((
            Slot::of(&sample(1)),
            AtomicU64::new(0),
            History::new((), (), 0),
        ));
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let (slot, seq, history) = &*writer;
            let held = history.hold();
            Fixed { seq, slot }.set(&held, &sample(2));
        });
        let (slot, seq, history): &(Slot, AtomicU64, History) = &shared;
        let found = Fixed { seq, slot }.read(history, |slot| slot.words());
        assert_whole(&found);
        thread.join().expect("no panic");
    });
}

#[test]
fn a_chunk_that_another_history_got_is_never_taken_for_ones_own() {
    check(|| {
        let shared = with(&[1, 3, 5, 7]);
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let (pool, history) = &*writer;
            let held = history.hold();
            assert!(history.give_up_chunk(&held, pool));
            drop(held);
            let other = History::new((), (), 0);
            let held = other.hold();
            other.insert(&held, pool, UNBOUNDED, (&sample(2), 0), |_| ());
        });
        let found = around(&shared, 2);
        assert!(
            found.is_empty() || found == [sample(1), sample(3)],
            "{found:?}"
        );
        thread.join().expect("no panic");
        assert_eq!(around(&shared, 4), [sample(3), sample(5)]);
    });
}

#[test]
fn the_newest_sample_is_found_again_by_its_stamp() {
    check(|| {
        let shared = with(&[1]);
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            insert(&writer, UNBOUNDED, sample(2));
            insert(&writer, UNBOUNDED, sample(3));
        });
        let found = newest(&shared).expect("there always is one");
        assert_eq!(around(&shared, found[0] as i64), [found]);
        thread.join().expect("no panic");
    });
}

/// The sample at or before `t`, and its parent.
fn with_parent(shared: &(Pool, History), t: i64) -> Option<(Words, Option<u32>)> {
    let (pool, history) = shared;
    history
        .read(pool, |view| {
            let (place, lowest) = view.place(t)?;
            let words = match place {
                Neighbours::At(slot) | Neighbours::Between(slot, _) => slot.words(),
                _ => return Some((None, lowest)),
            };
            let parent = if history.is_mixed() {
                Some(view.parent(lowest)?)
            } else {
                None
            };
            Some((Some((words, parent)), lowest))
        })
        .flatten()
}

#[test]
fn a_sample_is_seen_with_its_own_parent_while_others_come_and_go() {
    check(|| {
        // Given in frame 7, as long as no parent is noted.
        let shared = with(&[1, 2]);
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let (pool, history) = &*writer;
            let two = Bounds {
                count: 2,
                ..UNBOUNDED
            };
            let held = history.hold();
            history.mix(&held, pool, 7);
            history.insert(&held, pool, two, (&sample(3), 8), |_| ());
            history.insert(&held, pool, two, (&sample(4), 8), |_| ());
            assert!(history.is_settled());
            history.settle(&held);
        });
        if let Some((words, parent)) = with_parent(&shared, 3) {
            assert_whole(&words);
            let wanted = if words[0] == 3 { 8 } else { 7 };
            assert!(
                parent.is_none_or(|parent| parent == wanted),
                "{words:?} {parent:?}"
            );
        }
        thread.join().expect("no panic");
        assert_eq!(with_parent(&shared, 3), Some((sample(3), None)));
    });
}

#[test]
fn many_late_samples_are_seen_all_or_not_at_all() {
    check(|| {
        let shared = with(&[1, 7]);
        let writer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let (pool, history) = &*writer;
            let held = history.hold();
            let late = [sample(3), sample(5)];
            let refused = history.merge(&held, pool, UNBOUNDED, (&late, 0), |_| (), &mut |_| ());
            assert_eq!(refused, 0);
        });
        let found = around(&shared, 4);
        found.iter().for_each(assert_whole);
        assert!(
            found == [sample(1), sample(7)] || found == [sample(3), sample(5)],
            "{found:?}"
        );
        thread.join().expect("no panic");
        assert_eq!(around(&shared, 6), [sample(5), sample(7)]);
    });
}
