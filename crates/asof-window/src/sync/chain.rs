//! Filters of one topic, one after the other.

use std::time::Duration;

use asof_core::Stamp;

use super::Stamped;

/// Takes messages of one topic and passes on none, one or several for each.
pub trait Filter<V>: Send {
    /// Takes a message and calls `next` with the results.
    fn push(&mut self, message: Stamped<V>, next: &mut dyn FnMut(Stamped<V>));
}

/// Filters that run one after the other. An empty chain passes everything on.
///
/// ```
/// use asof_window::sync::{Chain, Delta, Keep, Stamped};
///
/// let mut chain = Chain::new().then(Keep::new(|m: &Stamped<i32>| m.value > 0)).then(Delta::new(|v: &i32| *v));
/// let mut out = Vec::new();
/// for (stamp, value) in [(1, 5), (2, 5), (3, -1), (4, 6)] {
///     chain.push(Stamped::new(stamp.into(), value), &mut |message| out.push(message.value));
/// }
/// assert_eq!(out, [5, 6]);
/// ```
pub struct Chain<V> {
    filters: Vec<Box<dyn Filter<V>>>,
}

impl<V> Chain<V> {
    /// A chain without filters.
    pub fn new() -> Self {
        Chain {
            filters: Vec::new(),
        }
    }

    /// The same with one more filter at the end.
    #[must_use]
    pub fn then(mut self, filter: impl Filter<V> + 'static) -> Self {
        self.filters.push(Box::new(filter));
        self
    }

    /// Takes a message and calls `next` with the output of the last filter.
    pub fn push(&mut self, message: Stamped<V>, next: &mut dyn FnMut(Stamped<V>)) {
        run(&mut self.filters, message, next);
    }

    /// The number of filters.
    pub fn len(&self) -> usize {
        self.filters.len()
    }

    /// Whether it has no filters.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }
}

impl<V> Default for Chain<V> {
    fn default() -> Self {
        Chain::new()
    }
}

impl<V> Filter<V> for Chain<V> {
    fn push(&mut self, message: Stamped<V>, next: &mut dyn FnMut(Stamped<V>)) {
        run(&mut self.filters, message, next);
    }
}

fn run<V>(
    filters: &mut [Box<dyn Filter<V>>],
    message: Stamped<V>,
    next: &mut dyn FnMut(Stamped<V>),
) {
    match filters {
        [] => next(message),
        [first, rest @ ..] => first.push(message, &mut |message| run(rest, message, next)),
    }
}

/// Passes everything on.
#[derive(Debug, Clone, Copy, Default)]
pub struct PassThrough;

impl<V> Filter<V> for PassThrough {
    fn push(&mut self, message: Stamped<V>, next: &mut dyn FnMut(Stamped<V>)) {
        next(message);
    }
}

/// Passes on the messages that meet a condition.
pub struct Keep<F>(F);

impl<F> Keep<F> {
    /// Keeps the messages for which `condition` is true.
    pub fn new<V>(condition: F) -> Self
    where
        F: FnMut(&Stamped<V>) -> bool,
    {
        Keep(condition)
    }
}

impl<V, F: FnMut(&Stamped<V>) -> bool + Send> Filter<V> for Keep<F> {
    fn push(&mut self, message: Stamped<V>, next: &mut dyn FnMut(Stamped<V>)) {
        if (self.0)(&message) {
            next(message);
        }
    }
}

/// Passes on a replacement for each message.
pub struct Map<F>(F);

impl<F> Map<F> {
    /// Replaces each message by the result of `change`.
    pub fn new<V>(change: F) -> Self
    where
        F: FnMut(Stamped<V>) -> Stamped<V>,
    {
        Map(change)
    }
}

impl<V, F: FnMut(Stamped<V>) -> Stamped<V> + Send> Filter<V> for Map<F> {
    fn push(&mut self, message: Stamped<V>, next: &mut dyn FnMut(Stamped<V>)) {
        next((self.0)(message));
    }
}

/// Passes on a message whose key differs from that of the last one passed on; the first always passes.
pub struct Delta<F, K> {
    key: F,
    last: Option<K>,
}

impl<F, K> Delta<F, K> {
    /// Compares the messages by `key`; return a tuple to compare several fields.
    pub fn new<V>(key: F) -> Self
    where
        F: FnMut(&V) -> K,
    {
        Delta { key, last: None }
    }
}

impl<V, K: PartialEq + Send, F: FnMut(&V) -> K + Send> Filter<V> for Delta<F, K> {
    fn push(&mut self, message: Stamped<V>, next: &mut dyn FnMut(Stamped<V>)) {
        let key = (self.key)(&message.value);
        if self.last.as_ref() != Some(&key) {
            self.last = Some(key);
            next(message);
        }
    }
}

/// Passes on at most one message per period, by stamp.
#[derive(Debug, Clone, Copy)]
pub struct Throttle {
    period: i64,
    last: Option<Stamp>,
}

impl Throttle {
    /// Passes on the first message, and then each that is `period` or more after the last one passed on.
    pub fn new(period: Duration) -> Self {
        Throttle {
            period: i64::try_from(period.as_nanos()).unwrap_or(i64::MAX),
            last: None,
        }
    }
}

impl<V> Filter<V> for Throttle {
    fn push(&mut self, message: Stamped<V>, next: &mut dyn FnMut(Stamped<V>)) {
        let is_due = self.last.is_none_or(|last| {
            // A clock that goes back restarts the period.
            message.stamp < last || message.stamp.since(last) >= self.period
        });
        if is_due {
            self.last = Some(message.stamp);
            next(message);
        }
    }
}
