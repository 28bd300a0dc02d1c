//! The progress of a stream.

/// A leap ahead of more than this has to be confirmed by a second message.
///
/// Otherwise one message with a stamp in the far future would settle every waiting row.
const MAX_UNCONFIRMED_NANOS: u64 = 10_000_000_000;

/// The largest trusted stamp of a stream: one far ahead of all others counts when a second confirms it.
///
/// ```
/// use asof_align::Progress;
///
/// let mut progress = Progress::default();
/// for stamp in [1, 2, i64::MAX, 3] {
///     progress.note(stamp);
/// }
/// assert_eq!(progress.newest(), Some(3));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    newest: Option<i64>,
    leap: Option<i64>,
    /// Whether there was one stamp so far: nothing has confirmed it.
    is_first: bool,
}

/// What a stamp did to the progress of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is within the usual range.
    Usual,
    /// It is far ahead and needs a second one to confirm it.
    Leap,
    /// The stream continues where it was: the message far ahead was wrong.
    LeapDenied,
}

impl Progress {
    /// The largest trusted stamp; `None` before the first one.
    pub fn newest(&self) -> Option<i64> {
        self.newest
    }

    /// The same, but not a first stamp that is far ahead of `others`, the progress of all streams.
    pub(crate) fn trusted(&self, others: Option<i64>) -> Option<i64> {
        let is_ahead = |newest: i64| others.is_some_and(|others| is_leap(others, newest));
        self.newest
            .filter(|newest| !(self.is_first && is_ahead(*newest)))
    }

    /// Notes a stamp; returns what it did.
    pub fn note(&mut self, stamp: i64) -> Step {
        let Some(newest) = self.newest else {
            (self.newest, self.is_first) = (Some(stamp), true);
            return Step::Usual;
        };
        if std::mem::take(&mut self.is_first) && is_leap(stamp, newest) {
            self.newest = Some(stamp);
            return Step::LeapDenied;
        }
        if !is_leap(newest, stamp) {
            self.newest = Some(newest.max(stamp));
            return match self.leap.take() {
                Some(_) if stamp >= newest => Step::LeapDenied,
                // A late message does not show where the stream is now.
                leap => {
                    self.leap = leap;
                    Step::Usual
                }
            };
        }
        match self.leap {
            Some(leap) if stamp.abs_diff(leap) <= MAX_UNCONFIRMED_NANOS => {
                self.newest = Some(stamp.max(leap));
                self.leap = None;
                Step::Usual
            }
            _ => {
                self.leap = Some(stamp);
                Step::Leap
            }
        }
    }
}

fn is_leap(from: i64, to: i64) -> bool {
    to > from && to.abs_diff(from) > MAX_UNCONFIRMED_NANOS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn one_stamp_far_ahead_is_not_believed() {
        let mut progress = Progress::default();
        let steps = [0, SECOND, 3_000 * SECOND, 2 * SECOND, 3 * SECOND].map(|t| progress.note(t));
        assert_eq!(steps[2..4], [Step::Leap, Step::LeapDenied]);
        assert_eq!(progress.newest(), Some(3 * SECOND));
    }

    #[test]
    fn a_first_stamp_far_ahead_is_denied_by_the_second() {
        let mut progress = Progress::default();
        progress.note(3_000 * SECOND);
        assert_eq!(progress.trusted(None), Some(3_000 * SECOND));
        assert_eq!(progress.trusted(Some(2_995 * SECOND)), Some(3_000 * SECOND));
        assert_eq!(progress.trusted(Some(SECOND)), None);
        assert_eq!(progress.note(SECOND), Step::LeapDenied);
        assert_eq!(progress.note(2 * SECOND), Step::Usual);
        assert_eq!(progress.trusted(Some(0)), Some(2 * SECOND));
    }

    #[test]
    fn a_second_stamp_confirms_a_leap() {
        let mut progress = Progress::default();
        for t in [0, 3_000 * SECOND, 3_001 * SECOND] {
            progress.note(t);
        }
        assert_eq!(progress.newest(), Some(3_001 * SECOND));
    }

    #[test]
    fn a_late_stamp_denies_no_leap() {
        let mut progress = Progress::default();
        let steps = [5, 3_000 * SECOND, 4, 3_000 * SECOND].map(|t| progress.note(t));
        assert_eq!(steps[2], Step::Usual);
        assert_eq!(progress.newest(), Some(3_000 * SECOND));
    }
}
