//! How far a stream has come.

/// A leap ahead of more than this is believed when a second message confirms it.
///
/// One message with a stamp in the far future would otherwise settle every row that waits, with what is there.
const LEAP: u64 = 10_000_000_000;

/// The largest stamp of a stream, as far as it can be believed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    newest: Option<i64>,
    leap: Option<i64>,
}

/// What a stamp did to the progress of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It is within what is known.
    Usual,
    /// It is far ahead, and waits for a second one.
    Leap,
    /// The stream goes on where it was: the message that was far ahead was wrong.
    LeapDenied,
}

impl Progress {
    pub(super) fn newest(&self) -> Option<i64> {
        self.newest
    }

    pub(super) fn note(&mut self, stamp: i64) -> Step {
        let Some(newest) = self.newest else {
            self.newest = Some(stamp);
            return Step::Usual;
        };
        let is_ahead = stamp > newest && stamp.abs_diff(newest) > LEAP;
        if !is_ahead {
            self.newest = Some(newest.max(stamp));
            return match self.leap.take() {
                Some(_) if stamp >= newest => Step::LeapDenied,
                // A late message says nothing about where the stream is now.
                leap => {
                    self.leap = leap;
                    Step::Usual
                }
            };
        }
        match self.leap {
            Some(leap) if stamp.abs_diff(leap) <= LEAP => {
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
