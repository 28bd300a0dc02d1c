//! The match of a live window, and a position in one that moves along with an anchor.

use std::fmt;
use std::sync::Arc;

use asof_align::{Match, Pick, Rule, Side, Stamped};
use asof_core::Stamp;

use crate::runs::Hint;
use crate::{Entry, Window};

/// A window with the position of the last query.
///
/// Its results are those of the window, with its current messages. It searches from the last position, which
/// saves most of the search for ascending instants such as those of an anchor topic.
///
/// ```
/// use asof_window::sync::Rule;
/// use asof_window::{Bounds, Window};
///
/// let imu = Window::new(Bounds::count(100));
/// let mut cursor = imu.cursor();
/// imu.insert(10.into(), "a");
/// imu.insert(20.into(), "b");
/// let matched = cursor.pick(14.into(), Rule::nearest());
/// assert_eq!(matched.found().map(|message| *message.value), Some("a"));
/// ```
pub struct LiveCursor<T> {
    window: Window<T>,
    hint: Hint,
}

impl<T> Window<T> {
    /// A cursor for queries with ascending instants.
    pub fn cursor(&self) -> LiveCursor<T> {
        LiveCursor {
            window: self.clone(),
            hint: Hint::default(),
        }
    }
}

impl<T> Clone for LiveCursor<T> {
    fn clone(&self) -> Self {
        LiveCursor {
            window: self.window.clone(),
            hint: self.hint,
        }
    }
}

impl<T> fmt::Debug for LiveCursor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveCursor")
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

impl<T> LiveCursor<T> {
    /// The window's match for the instant `t`, by a rule, like [`Window::pick`].
    #[inline]
    pub fn pick(&mut self, t: Stamp, rule: Rule) -> Match<Arc<T>> {
        if rule.pick() != Pick::Nearest {
            return self.window.pick(t, rule);
        }
        let state = self.window.lock();
        let nearest = state.runs.nearest_near(t.nanos(), &mut self.hint);
        within(rule, t.nanos(), nearest)
    }

    /// The message whose stamp is nearest to `t`, like [`Window::nearest`].
    #[inline]
    pub fn nearest(&mut self, t: Stamp) -> Option<Entry<T>> {
        let state = self.window.lock();
        let nearest = state.runs.nearest_near(t.nanos(), &mut self.hint);
        nearest.map(|(stamp, value)| Entry::new(stamp.into(), Arc::clone(value)))
    }

    /// The window that it belongs to.
    pub fn window(&self) -> &Window<T> {
        &self.window
    }
}

impl<T> Window<T> {
    /// The match of this window for the instant `t`, by a rule. To align live topics, pick from each of
    /// them.
    ///
    /// ```
    /// use asof_window::sync::{Match, Rule};
    /// use asof_window::{Bounds, Window};
    /// use std::time::Duration;
    ///
    /// let imu = Window::new(Bounds::count(100));
    /// imu.insert(10.into(), 1.0);
    /// imu.insert(20.into(), 3.0);
    /// let camera = 15.into();
    /// assert_eq!(imu.pick(camera, Rule::interpolate()).value(), Some(2.0));
    /// let strict = Rule::nearest().within(Duration::from_nanos(4));
    /// assert_eq!(
    ///     imu.pick(camera, strict).missing().map(|why| why.to_string()).as_deref(),
    ///     Some("the matching message is 0.000000 s away, more than the tolerance"),
    /// );
    /// ```
    #[inline]
    pub fn pick(&self, t: Stamp, rule: Rule) -> Match<Arc<T>> {
        if rule.pick() != Pick::Nearest {
            return self.pick_side(t, rule);
        }
        let state = self.lock();
        within(rule, t.nanos(), state.runs.nearest(t.nanos()))
    }

    fn pick_side(&self, t: Stamp, rule: Rule) -> Match<Arc<T>> {
        let state = self.lock();
        let runs = &state.runs;
        let nanos = t.nanos();
        let after = if rule.pick().is_split_after_equal() {
            runs.first_after(nanos)
        } else {
            runs.first_from(nanos)
        };
        let before = runs.previous(after);
        let stamps = (before.and_then(|at| runs.stamp(at)), runs.stamp(after));
        let take = |side| {
            let at = match side {
                Side::Before => before,
                Side::After => Some(after),
            };
            let found = at.and_then(|at| runs.get(at));
            found.map(|(stamp, value)| Stamped::new(stamp.into(), Arc::clone(value)))
        };
        rule.decide(nanos, stamps.0, stamps.1).into_match(take)
    }
}

/// The nearest message, if it is near enough.
#[inline]
fn within<T>(rule: Rule, t: i64, nearest: Option<(i64, &Arc<T>)>) -> Match<Arc<T>> {
    let nearest = nearest.map(|(stamp, value)| Stamped::new(stamp.into(), Arc::clone(value)));
    rule.of_nearest(t, nearest)
}
