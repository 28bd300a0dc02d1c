//! Events and states of a player.

use std::collections::BTreeMap;

use asof_core::{Batch, FollowEnd, SourceError, Stamp, TimeRange};

/// How fast to play.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// A multiple of real time, from 0.1 to 10.
    Times(f64),
    /// As fast as the messages can be read.
    Unlimited,
}

/// The state of a player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayState {
    /// Paused.
    Paused,
    /// Playing.
    Playing,
    /// Waiting for the source to play on. Resumes by itself.
    Buffering,
    /// At the end of a growing source, handing out messages as they arrive.
    Following,
    /// At the end of the source.
    Ended,
}

impl PlayState {
    /// Whether messages come without further calls than `tick`: playing, following or buffering.
    pub const fn is_running(self) -> bool {
        matches!(
            self,
            PlayState::Playing | PlayState::Buffering | PlayState::Following
        )
    }
}

/// An event of a player.
#[derive(Debug)]
#[non_exhaustive]
pub enum PlayerEvent {
    /// These messages have become due.
    Messages(Batch),
    /// After a seek, or for added topics: the last message of each topic as of this time.
    Latest(Stamp, Batch),
    /// The state has changed.
    State(PlayState),
    /// A loop starts over: messages from here on belong to the pass with this number. The first pass has number 0.
    Looped(u64),
    /// Messages in this time range were not handed out: a source that keeps only recent messages has dropped them, or
    /// a step was too long. Counted by topic if the source counts them.
    Skipped {
        /// Their time range.
        range: TimeRange,
        /// Their number by topic, as far as it is known.
        missed: BTreeMap<String, u64>,
    },
    /// The clock of a growing source was set back. Discard state derived from earlier messages.
    Restarted,
    /// A growing source has ended.
    Over(FollowEnd),
    /// The source failed. The player is paused; [`Player::play`](crate::Player::play) tries again.
    Failed(SourceError),
}
