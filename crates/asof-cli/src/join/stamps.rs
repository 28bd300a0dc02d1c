//! The stamps of messages.

use std::sync::Arc;

use asof::decode::{Decoders, Projection};
use asof::{Channel, MessageRef, Stamp};

/// Reads only the stamps of messages.
pub(super) struct Stamps(Decoders);

impl Default for Stamps {
    fn default() -> Self {
        Stamps(Decoders::new(Projection::stamp()))
    }
}

impl Stamps {
    /// The stamp of a message; `None` where it has none, or zero: an unset header.
    pub(super) fn of(&mut self, message: MessageRef<'_>) -> Option<Stamp> {
        let stamp = self.0.stamp(message).ok().flatten();
        stamp.filter(|stamp| *stamp != Stamp::EPOCH)
    }

    /// Whether the type of a channel has a stamp.
    pub(super) fn has_stamp(&mut self, channel: &Arc<Channel>) -> bool {
        let decoder = self.0.of(channel, &[]);
        decoder.is_ok_and(|decoder| decoder.has_stamp())
    }
}
