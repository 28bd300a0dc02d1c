//! Values that wait until they can be transformed.

use std::sync::Arc;
use std::time::Duration;

use asof_core::Stamp;
use asof_tf::{TransformBuffer, TransformWaitError};
use parking_lot::Mutex;

use crate::subscribe::contained;

/// Anything that waits for transforms.
pub(super) trait Poked: Send + Sync {
    fn poke(&self, is_restart: bool);
}

/// Holds values until they can be transformed; see [`LiveTransforms::filter`](crate::LiveTransforms::filter). Clones share everything.
pub struct TransformFilter<T>(pub(super) Arc<Filter<T>>);

impl<T> Clone for TransformFilter<T> {
    fn clone(&self) -> Self {
        TransformFilter(Arc::clone(&self.0))
    }
}

/// Options of a [`TransformFilter`].
#[derive(Debug, Clone)]
pub struct FilterOptions {
    /// The frames that a value must be transformable into, all of them.
    pub targets: Vec<String>,
    /// How long after a value's stamp the transforms must be known too.
    pub tolerance: Duration,
    /// The most values that wait; at least one.
    pub capacity: usize,
}

/// Why a filter dropped a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterFailure {
    /// Too many waited.
    CrowdedOut,
    /// It is older than what the buffer keeps; no transform can place it any more.
    TooOld,
    /// The robot's clock was set back.
    Restarted,
}

/// The counts of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilterStats {
    /// Values that were passed on.
    pub passed: u64,
    /// Values that wait.
    pub waiting: u64,
    /// Values that were dropped because too many waited.
    pub crowded_out: u64,
    /// Values that were dropped because they are older than what the buffer keeps.
    pub too_old: u64,
    /// Values that were dropped because the robot's clock was set back.
    pub restarted: u64,
}

pub(super) struct Filter<T> {
    buffer: TransformBuffer,
    options: FilterOptions,
    state: Mutex<FilterState<T>>,
    callback: Box<dyn Fn(T) + Send + Sync>,
    failed: Box<dyn Fn(T, FilterFailure) + Send + Sync>,
}

struct FilterState<T> {
    waiting: Vec<WaitingValue<T>>,
    stats: FilterStats,
}

struct WaitingValue<T> {
    frame: String,
    stamp: Stamp,
    value: T,
}

impl<T: Send + 'static> TransformFilter<T> {
    /// Adds a value that was measured in `frame` at `stamp`.
    pub fn push(&self, frame: &str, stamp: Stamp, value: T) {
        let filter = &self.0;
        let mut state = filter.state.lock();
        let mut dropped = None;
        if state.waiting.len() >= filter.options.capacity.max(1) {
            dropped = Some(state.waiting.remove(0));
            state.stats.crowded_out += 1;
        }
        state.waiting.push(WaitingValue {
            frame: frame.to_owned(),
            stamp,
            value,
        });
        drop(state);
        if let Some(held) = dropped {
            contained(|| (filter.failed)(held.value, FilterFailure::CrowdedOut));
        }
        filter.poke(false);
    }

    /// The counts of passed, waiting and dropped values.
    pub fn stats(&self) -> FilterStats {
        let state = self.0.state.lock();
        FilterStats {
            waiting: state.waiting.len() as u64,
            ..state.stats
        }
    }
}

impl<T> Filter<T> {
    pub fn new(
        buffer: TransformBuffer,
        options: FilterOptions,
        callback: impl Fn(T) + Send + Sync + 'static,
        failed: impl Fn(T, FilterFailure) + Send + Sync + 'static,
    ) -> Self {
        Filter {
            buffer,
            options,
            state: Mutex::new(FilterState {
                waiting: Vec::new(),
                stats: FilterStats::default(),
            }),
            callback: Box::new(callback),
            failed: Box::new(failed),
        }
    }

    /// Whether a value can be transformed, or why it never can; `None` while a transform may still come.
    fn is_ready(&self, held: &WaitingValue<T>) -> Option<Result<(), FilterFailure>> {
        let tolerance = i64::try_from(self.options.tolerance.as_nanos()).unwrap_or(i64::MAX);
        let mut ends = vec![held.stamp];
        if tolerance > 0 {
            ends.push(held.stamp.plus_nanos(tolerance));
        }
        let mut is_ready = true;
        for target in &self.options.targets {
            for stamp in &ends {
                let (target, frame) = (target.as_str(), held.frame.as_str());
                match (self.buffer).wait_for(target, frame, *stamp, Duration::ZERO) {
                    Ok(_) => {}
                    Err(TransformWaitError::Never(_)) => return Some(Err(FilterFailure::TooOld)),
                    Err(_) => is_ready = false,
                }
            }
        }
        is_ready.then_some(Ok(()))
    }
}

impl<T: Send + 'static> Poked for Filter<T> {
    fn poke(&self, is_restart: bool) {
        let mut ended = Vec::new();
        let mut state = self.state.lock();
        for held in std::mem::take(&mut state.waiting) {
            let end = if is_restart {
                Some(Err(FilterFailure::Restarted))
            } else {
                self.is_ready(&held)
            };
            let stats = &mut state.stats;
            match end {
                None => state.waiting.push(held),
                Some(end) => {
                    match end {
                        Ok(()) => stats.passed += 1,
                        Err(FilterFailure::Restarted) => stats.restarted += 1,
                        Err(_) => stats.too_old += 1,
                    }
                    ended.push((held.value, end));
                }
            }
        }
        drop(state);
        // Without the lock: the callbacks may push again.
        for (value, end) in ended {
            contained(|| match end {
                Ok(()) => (self.callback)(value),
                Err(failure) => (self.failed)(value, failure),
            });
        }
    }
}
