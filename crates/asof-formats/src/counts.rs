//! Message counts by channel.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{Channel, ChannelSummary};

/// The most log times that an index returns at once: 32 MB.
pub(crate) const MOST_LOG_TIMES: usize = 4 << 20;

/// The channels of a file with their counts, sorted by their ids in the file.
pub(crate) fn counted_channels<N: Ord + Copy>(
    ids: &[N],
    channels: &[Arc<Channel>],
    counts: &BTreeMap<N, u64>,
) -> Vec<ChannelSummary> {
    let mut channels: Vec<_> = ids.iter().zip(channels).collect();
    channels.sort_by_key(|&(id, _)| *id);
    channels
        .into_iter()
        .map(|(id, channel)| ChannelSummary {
            channel: Arc::clone(channel),
            messages: Some(counts.get(id).copied().unwrap_or(0)),
        })
        .collect()
}
