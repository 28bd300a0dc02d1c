//! The window against a model that is too simple to be wrong.

use std::time::Duration;

use asof_core::Stamp;
use asof_window::{Bounds, Entry, Insertion, MessageFiltersCache, Window};
use proptest::prelude::*;

/// A sorted list. Equal stamps in order of arrival.
#[derive(Default, Clone)]
struct Model {
    list: Vec<(i64, u32, u64)>,
    count: Option<usize>,
    age: Option<i64>,
    bytes: Option<u64>,
}

impl Model {
    fn insert(&mut self, stamp: i64, id: u32, size: u64) -> bool {
        if self.bytes.is_some_and(|bytes| size > bytes) || self.count == Some(0) {
            return false;
        }
        let at = self.list.iter().filter(|(s, ..)| *s <= stamp).count();
        self.list.insert(at, (stamp, id, size));
        self.evict();
        self.list.iter().any(|(_, i, _)| *i == id)
    }

    fn evict(&mut self) {
        while !self.list.is_empty() {
            let span = self.list[self.list.len() - 1].0 - self.list[0].0;
            let fits = self.count.is_none_or(|count| self.list.len() <= count)
                && self.age.is_none_or(|age| span <= age)
                && self.bytes.is_none_or(|bytes| self.bytes() <= bytes);
            if fits {
                return;
            }
            self.list.remove(0);
        }
    }

    fn bytes(&self) -> u64 {
        self.list.iter().map(|(.., size)| size).sum()
    }

    fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::count(self.count.unwrap_or(usize::MAX));
        if let Some(age) = self.age {
            bounds = bounds.and_age(Duration::from_nanos(age as u64));
        }
        if let Some(bytes) = self.bytes {
            bounds = bounds.and_bytes(bytes);
        }
        bounds
    }

    fn ids(&self, keep: impl Fn(i64) -> bool) -> Vec<u32> {
        let kept = self.list.iter().filter(|(stamp, ..)| keep(*stamp));
        kept.map(|(_, id, _)| *id).collect()
    }

    fn nearest(&self, t: i64) -> Option<u32> {
        let nearest = self.list.iter().min_by_key(|(stamp, ..)| stamp.abs_diff(t));
        nearest.map(|(_, id, _)| *id)
    }

    /// As message_filters of ROS 1 walks it.
    fn surrounding(&self, start: i64, end: i64) -> Vec<u32> {
        let Some(mut first) = self.list.len().checked_sub(1) else {
            return Vec::new();
        };
        while first > 0 && self.list[first].0 > start {
            first -= 1;
        }
        let mut last = first;
        while last < self.list.len() - 1 && self.list[last].0 < end {
            last += 1;
        }
        self.list[first..=last]
            .iter()
            .map(|(_, id, _)| *id)
            .collect()
    }
}

type Item = (u32, u64);

fn id(entry: Option<Entry<Item>>) -> Option<u32> {
    entry.map(|entry| entry.0)
}

fn ids(entries: &[Entry<Item>]) -> Vec<u32> {
    entries.iter().map(|entry| entry.0).collect()
}

fn check(window: &Window<Item>, model: &Model, t: i64, u: i64) {
    let at = Stamp::from_nanos;
    assert_eq!(window.len(), model.list.len());
    assert_eq!(window.bytes(), model.bytes());
    assert_eq!(
        ids(&window.interval(Stamp::MIN, Stamp::MAX)),
        model.ids(|_| true)
    );
    assert_eq!(
        ids(&window.interval(at(t), at(u))),
        model.ids(|s| t <= s && s <= u)
    );
    assert_eq!(
        window.view(at(t), at(u)).len(),
        model.ids(|s| t <= s && s <= u).len()
    );
    assert_eq!(
        id(window.before(at(t))),
        model.ids(|s| s <= t).last().copied()
    );
    assert_eq!(
        id(window.strictly_before(at(t))),
        model.ids(|s| s < t).last().copied()
    );
    assert_eq!(
        id(window.after(at(t))),
        model.ids(|s| s >= t).first().copied()
    );
    assert_eq!(
        id(window.strictly_after(at(t))),
        model.ids(|s| s > t).first().copied()
    );
    assert_eq!(id(window.nearest(at(t))), model.nearest(t));
    assert_eq!(
        ids(&window.get_surrounding_interval(at(t), at(u))),
        model.surrounding(t, u)
    );
    let count = (u.unsigned_abs() % 40) as usize;
    let all = model.ids(|_| true);
    assert_eq!(
        ids(&window.latest(count)),
        all[all.len().saturating_sub(count)..]
    );
    assert_eq!(id(window.oldest()), all.first().copied());
    assert_eq!(id(window.newest()), all.last().copied());
    let bracket = window
        .bracket(at(t))
        .map(|b| (b.before.stamp, b.after.stamp));
    let below = model.list.iter().rev().find(|(s, ..)| *s <= t);
    let above = model.list.iter().find(|(s, ..)| *s >= t);
    assert_eq!(bracket, below.zip(above).map(|(a, b)| (at(a.0), at(b.0))));
    for entry in window.latest(3) {
        let known = model
            .list
            .iter()
            .any(|(s, i, _)| *s == entry.stamp.nanos() && *i == entry.0);
        assert!(known, "entries carry their own stamps");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert {
        stamp: i64,
        size: u64,
    },
    Ask {
        t: i64,
        u: i64,
    },
    Hold {
        t: i64,
        u: i64,
    },
    Release,
    Bound {
        count: Option<usize>,
        age: Option<i64>,
        bytes: Option<u64>,
    },
    Clear,
}

fn steps(span: i64) -> impl Strategy<Value = Vec<Step>> {
    let bound = (
        proptest::option::of(0usize..400),
        proptest::option::of(0..span),
        proptest::option::of(0u64..3000),
    );
    let step = prop_oneof![
        60 => (0..span, 0u64..20).prop_map(|(stamp, size)| Step::Insert { stamp, size }),
        20 => (-5..span + 5, -5..span + 5).prop_map(|(t, u)| Step::Ask { t, u }),
        8 => (-5..span + 5, -5..span + 5).prop_map(|(t, u)| Step::Hold { t, u }),
        6 => Just(Step::Release),
        2 => bound.prop_map(|(count, age, bytes)| Step::Bound { count, age, bytes }),
        1 => Just(Step::Clear),
    ];
    proptest::collection::vec(step, 1..800)
}

fn run(steps: Vec<Step>, drift: i64) {
    let mut model = Model::default();
    let window = Window::weighed(model.bounds(), |item: &Item| item.1);
    let mut views = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        let base = number as i64 * drift;
        match step {
            Step::Insert { stamp, size } => {
                let kept = model.insert(stamp + base, number as u32, size);
                let outcome = window.insert((stamp + base).into(), (number as u32, size));
                assert_eq!(outcome == Insertion::Kept, kept);
            }
            Step::Ask { t, u } => check(&window, &model, t + base, u + base),
            Step::Hold { t, u } => {
                let view = window.view((t + base).into(), (u + base).into());
                let expected = model.ids(|s| t + base <= s && s <= u + base);
                views.push((view, expected));
            }
            Step::Release => {
                views.pop();
            }
            Step::Bound { count, age, bytes } => {
                (model.count, model.age, model.bytes) = (count, age, bytes);
                model.evict();
                if count == Some(0) {
                    model.list.clear();
                }
                window.set_bounds(model.bounds());
            }
            Step::Clear => {
                model.list.clear();
                window.clear();
            }
        }
        for (view, expected) in &views {
            let seen: Vec<u32> = view.iter().map(|(_, item)| item.0).collect();
            assert_eq!(&seen, expected, "a view never changes");
        }
    }
    check(&window, &model, 3, 30);
}

proptest! {
    #[test]
    fn random_stamps_with_many_equal_ones_agree_with_the_model(steps in steps(60)) {
        run(steps, 0);
    }

    #[test]
    fn a_stream_that_moves_on_agrees_with_the_model(steps in steps(2_000)) {
        run(steps, 7);
    }
}

#[test]
fn a_message_late_by_any_number_of_places_is_put_where_it_belongs() {
    const COUNT: i64 = 500;
    let window = Window::new(Bounds::count(2 * COUNT as usize));
    for stamp in 1..=COUNT {
        window.insert((10 * stamp).into(), 10 * stamp);
    }
    for late in 0..COUNT {
        let stamp = 10 * (COUNT - late) - 5;
        assert_eq!(window.insert(stamp.into(), stamp), Insertion::Kept);
    }
    let found = window.interval(Stamp::MIN, Stamp::MAX);
    let found: Vec<i64> = found.iter().map(|entry| **entry).collect();
    let wanted: Vec<i64> = (1..=2 * COUNT).map(|number| 5 * number).collect();
    assert_eq!(found, wanted);
}

#[test]
fn a_bound_on_age_holds_at_both_ends_of_time() {
    for (oldest, newest) in [(i64::MIN, i64::MIN + 7), (i64::MAX - 7, i64::MAX)] {
        for (age, left) in [(7, 2), (6, 1)] {
            let bounds = Bounds::count(10).and_age(Duration::from_nanos(age));
            let window = Window::new(bounds);
            window.insert(oldest.into(), 0);
            window.insert(newest.into(), 1);
            assert_eq!(window.len(), left, "{oldest} {newest} {age}");
        }
    }
}
