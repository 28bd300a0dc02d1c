//! About how many bytes channels have, from a few sections.

use std::collections::HashMap;
use std::sync::Arc;

use asof_core::{Channel, SourceError, Summary, TimeRange, Topics};

use super::{SectionQuery, Sections};

/// The messages of this many sections, all over the file, show how large messages are.
const SAMPLED_SECTIONS: usize = 8;
/// At most this many, if channels are in none of these.
const MOST_SAMPLED_SECTIONS: usize = 64;
/// At most these bytes of them.
const MOST_SAMPLED_BYTES: u64 = 16 << 20;

/// See [`Index::payload_estimates`](asof_core::Index::payload_estimates): the mean of the messages of a few sections.
pub(crate) fn payload_estimates(
    file: &dyn Sections,
    summary: &Summary,
) -> Result<Vec<(Arc<Channel>, u64)>, SourceError> {
    if !file.is_local() {
        return Ok(Vec::new());
    }
    // Of each channel how many messages, and their bytes.
    let mut sizes: HashMap<*const Channel, (u64, u64)> = HashMap::new();
    let lacking = |sizes: &HashMap<*const Channel, (u64, u64)>| {
        let known = |channel: &Arc<Channel>| sizes.contains_key(&Arc::as_ptr(channel));
        let entries = summary.channels.iter();
        let entries = entries.filter(|entry| entry.messages != Some(0) && !known(&entry.channel));
        let topics = Topics::named(entries.map(|entry| entry.channel.topic.as_str()));
        SectionQuery::new(topics, TimeRange::ALL, &file.channels())
    };
    let everything = SectionQuery::new(Topics::All, TimeRange::ALL, &file.channels());
    let step = file.section_count().div_ceil(SAMPLED_SECTIONS).max(1);
    let all_over = (0..file.section_count()).step_by(step);
    let others = (0..file.section_count()).filter(|section| section % step != 0);
    let (mut sampled, mut room) = (0, MOST_SAMPLED_BYTES);
    let mut wanted = None;
    for section in all_over.chain(others) {
        let is_one_of_few = section % step == 0;
        if !is_one_of_few {
            let wanted = wanted.get_or_insert_with(|| lacking(&sizes));
            if sampled >= MOST_SAMPLED_SECTIONS || wanted.topics == Topics::none() {
                break;
            }
            if !file.may_hold(section, wanted) {
                continue;
            }
        }
        let Some(rest) = room.checked_sub(file.expected_bytes(section)) else {
            continue;
        };
        room = rest;
        sampled += 1;
        let rows = file.load(section, &everything)?.rows;
        let channels = file.channels();
        for row in rows {
            let channel = Arc::as_ptr(&channels[row.channel as usize]);
            let (count, sum) = sizes.entry(channel).or_default();
            *count += 1;
            *sum += row.len;
        }
        wanted = None;
    }
    let known = summary.channels.iter().filter_map(|entry| {
        let (count, sum) = sizes.get(&Arc::as_ptr(&entry.channel))?;
        let bytes = *sum as f64 / *count as f64 * entry.messages? as f64;
        Some((Arc::clone(&entry.channel), bytes.round() as u64))
    });
    Ok(known.collect())
}
