//! What a player says.

use std::collections::BTreeMap;

use asof_core::{Batch, FollowEnd, SourceError, Stamp, TimeRange};

/// How fast to play.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// Times real time, from 0.1 to 10.
    Times(f64),
    /// As fast as the messages can be read.
    Unlimited,
}

/// What a player is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayState {
    /// It stands still.
    Paused,
    /// It plays.
    Playing,
    /// It would play, and waits for the source. It goes on by itself.
    Buffering,
    /// It is at the end of a source that grows, and hands out messages as they come.
    Following,
    /// It has come to the end.
    Ended,
}

impl PlayState {
    /// Whether messages come by themselves: it plays, follows, or waits for the source to do so.
    pub const fn is_running(self) -> bool {
        matches!(
            self,
            PlayState::Playing | PlayState::Buffering | PlayState::Following
        )
    }
}

/// What a player has to say.
#[derive(Debug)]
#[non_exhaustive]
pub enum PlayerEvent {
    /// These messages have become due.
    Messages(Batch),
    /// After a seek, or for topics that were added: what was known as of then.
    Backfill(Stamp, Batch),
    /// It does something else now.
    State(PlayState),
    /// It has come to the end and starts over: from here on messages belong to a new pass, whose number this is. The
    /// first pass has the number 0.
    Looped(u64),
    /// Messages in this range of time were not handed out: a source that keeps only what is recent has let go of
    /// them, or a step was too long. Counted by topic where the source counts them.
    Skipped {
        /// When they were.
        range: TimeRange,
        /// How many of them there were, as far as that is known.
        missed: BTreeMap<String, u64>,
    },
    /// The clock of a source that grows was set back. What was derived from earlier messages belongs to another time.
    Restarted,
    /// A source that grew does not grow any more.
    Over(FollowEnd),
    /// The source failed; it is paused, and can be played on to try again.
    Failed(SourceError),
}
