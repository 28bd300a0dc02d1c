//! What was known as of a time: the last message of each topic, found from the back.

use std::collections::BTreeMap;

use asof_core::{Batch, Row, SourceError, Stamp, TimeRange, Topics};
use bytes::Bytes;

use super::{Sections, Wanted};

/// Sections are read from the last backwards, as long as an earlier one can hold a later message of a topic.
pub(super) fn backfill(
    file: &dyn Sections,
    topics: &Topics,
    at: Stamp,
) -> Result<Batch, SourceError> {
    let channels = file.channels();
    let range = TimeRange::from(..=at);
    let everything = Wanted::new(topics.clone(), range, &channels);
    let mut by_end = file.needed(&everything);
    by_end.sort_by_key(|&section| std::cmp::Reverse(file.range_of(section).end));
    let mut best: BTreeMap<&str, (Bytes, Row)> = BTreeMap::new();
    for section in by_end {
        let end = file.range_of(section).end;
        let lacking = channels.iter().map(|channel| channel.topic.as_str());
        let lacking = lacking.filter(|topic| {
            let may_be_later = best.get(topic).is_none_or(|(_, row)| row.log_time <= end);
            topics.contains(topic) && may_be_later
        });
        let wanted = Wanted::new(Topics::named(lacking), range, &channels);
        if !file.may_hold(section, &wanted) {
            continue;
        }
        let loaded = file.load(section, &wanted)?;
        for row in loaded.rows {
            let topic = channels[row.channel as usize].topic.as_str();
            let is_better = best
                .get(topic)
                .is_none_or(|(_, known)| (known.log_time, known.order) < (row.log_time, row.order));
            if is_better {
                best.insert(topic, (loaded.buffers[row.buffer as usize].clone(), row));
            }
        }
    }
    let (buffers, mut rows): (Vec<Bytes>, Vec<Row>) = best.into_values().unzip();
    for (index, row) in rows.iter_mut().enumerate() {
        row.buffer = index as u32;
    }
    Ok(Batch::new(channels, buffers, rows))
}
