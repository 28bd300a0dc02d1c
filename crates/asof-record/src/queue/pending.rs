//! Messages whose schema is still pending.

use std::sync::Arc;

use asof_core::Channel;

use super::state::Waiting;

/// Messages whose schema is still pending, by channel. They count against the queue's limit.
#[derive(Default)]
pub(super) struct PendingSchemas {
    channels: Vec<Vec<Waiting>>,
}

impl PendingSchemas {
    pub fn keep(&mut self, waiting: Waiting) {
        let channel = &waiting.sample.channel;
        let is_same = |one: &Waiting| Arc::ptr_eq(&one.sample.channel, channel);
        let mut channels = self.channels.iter_mut();
        match channels.find(|waiting| waiting.first().is_some_and(is_same)) {
            Some(known) => known.push(waiting),
            None => self.channels.push(vec![waiting]),
        }
    }

    /// Takes out the channels that need not wait any longer; all of them if no more messages will come.
    pub fn settled(&mut self, is_last: bool) -> Vec<(Arc<Channel>, Vec<Waiting>)> {
        let mut ready = Vec::new();
        self.channels.retain_mut(|waiting| {
            let channel = waiting.first().and_then(|one| {
                let latest = || one.sample.to_message().channel;
                one.sample.settled().or_else(|| is_last.then(latest))
            });
            let Some(channel) = channel else {
                return true;
            };
            ready.push((channel, std::mem::take(waiting)));
            false
        });
        ready
    }
}
