//! Message counts by channel and time span.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{Channel, Portion, Stamp, TimeRange};

/// Collects the portions of an outline.
pub(crate) struct Tally {
    grain: u64,
    portions: Vec<Portion>,
    /// By channel and number of the grain: the time range of its messages, and their count.
    single: BTreeMap<(usize, i64), (Arc<Channel>, TimeRange, u64)>,
}

impl Tally {
    /// Messages that are added one by one are grouped by spans of `grain` nanoseconds.
    pub fn new(grain: u64) -> Self {
        Tally {
            grain: grain.max(1),
            portions: Vec::new(),
            single: BTreeMap::new(),
        }
    }

    pub fn add(&mut self, channel: &Arc<Channel>, range: TimeRange, messages: u64) {
        if messages > 0 {
            self.portions.push(Portion {
                channel: Arc::clone(channel),
                range,
                messages,
            });
        }
    }

    pub fn add_one(&mut self, channel: &Arc<Channel>, at: Stamp) {
        let grain = i64::try_from(self.grain).unwrap_or(i64::MAX);
        let key = (Arc::as_ptr(channel) as usize, at.nanos().div_euclid(grain));
        let (_, range, messages) = self
            .single
            .entry(key)
            .or_insert_with(|| (Arc::clone(channel), TimeRange::EMPTY, 0));
        *range = range.cover_stamp(at);
        *messages += 1;
    }

    pub fn finish(self) -> Vec<Portion> {
        let mut portions = self.portions;
        portions.extend(
            self.single
                .into_values()
                .map(|(channel, range, messages)| Portion {
                    channel,
                    range,
                    messages,
                }),
        );
        portions
    }
}
