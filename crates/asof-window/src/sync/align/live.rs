//! A position in a live window that moves along with an anchor.

use std::fmt;
use std::sync::Arc;

use asof_core::Stamp;

use super::{Match, Pick, Rule, within};
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
        if rule.pick != Pick::Nearest {
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
