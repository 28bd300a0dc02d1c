//! Message counts by channel and time, from the indexes alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use asof_core::{Channel, Portion, Schema, SourceError, Stamp, TimeRange};

use super::Mcap;
use super::chunk::MessageTimes;
use super::directory::{Contents, Section};
use super::record::{HEADER_LEN, MESSAGE_HEADER_LEN};
use crate::counts::MOST_LOG_TIMES;
use crate::sections::Tally;

/// A message index record without its entries: opcode, length, channel, and the length of the entries.
const EMPTY_INDEX: u64 = 15;
/// Bytes of an entry of a message index: a time and an offset.
const ENTRY: u64 = 16;
/// The indexes of this many chunks, all over the file, show how large messages are.
const SAMPLED_CHUNKS: usize = 8;
/// At most this many, if channels are in none of these.
const MOST_SAMPLED_CHUNKS: usize = 64;

impl Mcap {
    /// Counts come from the offsets of the message indexes, which are in the summary; where a chunk is longer than
    /// `grain`, from the indexes themselves. `None` where a section has no index.
    pub(super) fn indexed_portions(
        &self,
        range: TimeRange,
        grain: u64,
    ) -> Result<Option<Vec<Portion>>, SourceError> {
        let table = self.table();
        let mut tally = Tally::new(grain);
        let sections = self.directory.sections.iter();
        for section in sections.filter(|section| section.range.overlaps(range)) {
            let Contents::Indexed(entries) = &section.contents else {
                return Ok(None);
            };
            let is_long = section.range.duration_nanos().unsigned_abs() > grain;
            let counts = if is_long { None } else { counts(section) };
            for (place, &(id, offset)) in entries.iter().enumerate() {
                let Some(channel) = table.index_of(id) else {
                    continue;
                };
                let channel = &table.channels[channel as usize];
                if let Some(counts) = &counts {
                    tally.add(channel, section.range, counts[place]);
                    continue;
                }
                let Some(times) = self.message_index(id, offset)? else {
                    return Ok(None);
                };
                for (time, _) in times.iter() {
                    if let Ok(time) = Stamp::from_unsigned_nanos(time)
                        && range.contains(time)
                    {
                        tally.add_one(channel, time);
                    }
                }
            }
        }
        Ok(Some(tally.finish()))
    }

    /// See [`Index::log_times`](asof_core::Index::log_times).
    pub(super) fn indexed_times(
        &self,
        topic: &str,
        range: TimeRange,
    ) -> Result<Option<Vec<Stamp>>, SourceError> {
        let Some(places) = self.indexes_of(topic, range) else {
            return Ok(None);
        };
        let mut times = Vec::new();
        for (id, offset) in places {
            let Some(index) = self.message_index(id, offset)? else {
                return Ok(None);
            };
            // Times that do not fit a stamp are not returned by readers either.
            let found = index
                .iter()
                .map(|(time, _)| Stamp::from_unsigned_nanos(time));
            times.extend(found.flatten().filter(|time| range.contains(*time)));
        }
        if !times.is_sorted() {
            times.sort_unstable();
        }
        Ok(Some(times))
    }

    /// See [`Index::payload_estimates`](asof_core::Index::payload_estimates): the mean distance of messages from the records after them.
    pub(super) fn indexed_bytes(&self) -> Result<Vec<(Arc<Channel>, u64)>, SourceError> {
        let mut sizes: BTreeMap<u16, Sizes> = BTreeMap::new();
        let table = self.table();
        if !self.storage().is_local() {
            return Ok(Vec::new());
        }
        for section in self.sampled() {
            let Contents::Indexed(entries) = &section.contents else {
                continue;
            };
            let mut places = Vec::new();
            for &(id, offset) in entries {
                let index = self.message_index(id, offset)?;
                let found = index.iter().flat_map(MessageTimes::iter);
                places.extend(found.map(|(_, place)| (place, id)));
            }
            let end = section.uncompressed_size;
            note_sizes(
                places,
                end,
                |id| table.get(id).map(|one| &**one),
                &mut sizes,
            );
        }
        let summary = self.report.summary();
        let entries = summary.channels.iter();
        let messages: HashMap<*const Channel, Option<u64>> = entries
            .map(|entry| (Arc::as_ptr(&entry.channel), entry.messages))
            .collect();
        let estimate = |(id, sizes): (u16, Sizes)| {
            let channel = table.get(id)?;
            let messages = (*messages.get(&Arc::as_ptr(channel))?)?;
            let bytes = sizes.mean()? * messages as f64;
            Some((Arc::clone(channel), bytes.round() as u64))
        };
        Ok(sizes.into_iter().filter_map(estimate).collect())
    }

    /// A few chunks, and of each channel that is in none of them the first.
    fn sampled(&self) -> Vec<&Section> {
        let sections = &self.directory.sections;
        let step = sections.len().div_ceil(SAMPLED_CHUNKS).max(1);
        let summary = self.report.summary();
        let channels = summary.channels.iter();
        let channels = channels.filter(|entry| entry.messages != Some(0)).count();
        let mut seen = BTreeSet::new();
        let mut sampled: Vec<&Section> = sections.iter().step_by(step).collect();
        let indexed = |section: &'_ Section| match &section.contents {
            Contents::Indexed(entries) => entries.iter().map(|entry| entry.0).collect(),
            _ => Vec::new(),
        };
        for section in &sampled {
            seen.extend(indexed(section));
        }
        for section in sections {
            if seen.len() >= channels || sampled.len() >= MOST_SAMPLED_CHUNKS {
                break;
            }
            if indexed(section).into_iter().any(|id| !seen.contains(&id)) {
                seen.extend(indexed(section));
                sampled.push(section);
            }
        }
        sampled
    }

    /// The message indexes of a topic in a range, by channel id and offset; `None` if they are unreliable or too many.
    fn indexes_of(&self, topic: &str, range: TimeRange) -> Option<Vec<(u16, u64)>> {
        let summary = self.report.summary();
        if !self.storage().is_local() || !summary.problems.is_empty() {
            return None;
        }
        let own = summary.channels.iter();
        let own = own.filter(|entry| entry.channel.topic == topic);
        let all: u64 = own.map(|entry| entry.messages).sum::<Option<u64>>()?;
        let table = self.table();
        let is_wanted = |id: u16| table.get(id).is_some_and(|channel| channel.topic == topic);
        let (mut places, mut counted, mut wanted) = (Vec::new(), 0, 0);
        for section in &self.directory.sections {
            let Contents::Indexed(entries) = &section.contents else {
                return None;
            };
            if !entries.iter().any(|&(id, _)| is_wanted(id)) {
                continue;
            }
            for (&(id, offset), count) in entries.iter().zip(counts(section)?) {
                if !is_wanted(id) {
                    continue;
                }
                counted += count;
                if section.range.overlaps(range) {
                    wanted += count;
                    places.push((id, offset));
                }
            }
        }
        (counted == all && wanted <= MOST_LOG_TIMES as u64).then_some(places)
    }
}

/// The number of messages of each channel of a chunk, from the lengths of its message indexes; `None` if the indexes
/// are not contiguous.
fn counts(section: &Section) -> Option<Vec<u64>> {
    let Contents::Indexed(entries) = &section.contents else {
        return None;
    };
    let mut places: Vec<u64> = entries.iter().map(|&(_, place)| place).collect();
    places.push(section.indexes_end);
    places.sort_unstable();
    let count = |&(_, place): &(u16, u64)| {
        let after = places.partition_point(|&other| other <= place);
        let len = places.get(after)?.checked_sub(place)?;
        let entries = len.checked_sub(EMPTY_INDEX)?;
        entries.is_multiple_of(ENTRY).then_some(entries / ENTRY)
    };
    entries.iter().map(count).collect()
}

/// The sizes of some messages of a channel.
#[derive(Default)]
struct Sizes {
    /// How many, and their sum: those that another message follows, and those that a definition may follow.
    sure: (u64, u64),
    other: (u64, u64),
}

impl Sizes {
    fn mean(&self) -> Option<f64> {
        let (count, sum) = if self.sure.0 > 0 {
            self.sure
        } else {
            self.other
        };
        (count > 0).then(|| sum as f64 / count as f64)
    }
}

/// Adds the sizes of the messages of a chunk that begin at these places. Before the first message of a channel there may be its
/// definition, which is no part of the message before it where there is room for both.
fn note_sizes<'a>(
    mut places: Vec<(u64, u16)>,
    end: u64,
    channel: impl Fn(u16) -> Option<&'a Channel>,
    sizes: &mut BTreeMap<u16, Sizes>,
) {
    places.sort_unstable();
    let (mut begun, mut described) = (BTreeSet::new(), BTreeSet::new());
    let mut definition = |id: u16| -> u64 {
        let Some(channel) = channel(id) else { return 0 };
        let schema = channel.schema.as_ref();
        let schema = schema.filter(|schema| described.insert(Arc::as_ptr(schema)));
        channel_record(channel) + schema.map_or(0, |schema| schema_record(schema))
    };
    for (at, &(place, id)) in places.iter().enumerate() {
        if begun.insert(id) && at == 0 {
            definition(id);
        }
        let next = places.get(at + 1);
        let len = next.map_or(end, |next| next.0).saturating_sub(place);
        let payload = len.saturating_sub(HEADER_LEN + MESSAGE_HEADER_LEN);
        let first = next.map(|next| next.1).filter(|next| !begun.contains(next));
        let sizes = sizes.entry(id).or_default();
        let ((count, sum), beside) = match first {
            None => (&mut sizes.sure, 0),
            Some(next) => (&mut sizes.other, definition(next)),
        };
        *count += 1;
        *sum += payload.checked_sub(beside).unwrap_or(payload);
    }
}

/// The length of the record that defines a channel: two ids, and texts with their lengths.
fn channel_record(channel: &Channel) -> u64 {
    let metadata = channel.metadata.iter();
    let metadata = metadata.map(|(key, value)| 8 + key.len() + value.len());
    let texts = channel.topic.len() + channel.message_encoding.len();
    HEADER_LEN + (4 + 12 + texts + metadata.sum::<usize>()) as u64
}

/// The same of a schema.
fn schema_record(schema: &Schema) -> u64 {
    HEADER_LEN + (2 + 12 + schema.name.len() + schema.encoding.len() + schema.data.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::super::directory::{Origin, SectionKind};
    use super::*;
    use asof_core::TimeRange;

    fn section(entries: &[(u16, u64)], indexes_end: u64) -> Section {
        Section {
            kind: SectionKind::Chunk,
            offset: 0,
            end: 100,
            range: TimeRange::EMPTY,
            contents: Contents::Indexed(entries.into()),
            indexes_end,
            uncompressed_size: 0,
            compression: Arc::default(),
            origin: Origin::Index,
        }
    }

    #[test]
    fn the_places_of_message_indexes_tell_how_many_messages_each_has() {
        // Two messages, none, three. The summary may list them in any order.
        let places = [(7, 147), (1, 100), (2, 162)];
        let chunk = section(&places, 162 + 15 + 48);
        assert_eq!(counts(&chunk), Some(vec![0, 2, 3]));
    }

    #[test]
    fn definitions_between_messages_do_not_count_as_messages() {
        // Its definition takes 9 + 16 + 2 + 4 bytes, that of its schema 9 + 14 + 1 + 3 + 5.
        let schema = Arc::new(Schema {
            name: "T".into(),
            encoding: "any".into(),
            data: "12345".into(),
        });
        let channel = Channel {
            topic: "/a".into(),
            message_encoding: "json".into(),
            schema: Some(schema),
            ..Channel::default()
        };
        let mut sizes = BTreeMap::new();
        let sized = |payload: u64| HEADER_LEN + MESSAGE_HEADER_LEN + payload;
        // The only messages of 1 and 2 are before definitions, the first of which has the schema.
        let mut places = vec![(0, 1)];
        for (id, between) in [(2, 63), (3, 31), (3, 0), (4, 10)] {
            let before = places.last().expect("one").0;
            places.push((before + sized(10) + between, id));
        }
        let end = places.last().expect("one").0 + sized(10);
        places.reverse();
        note_sizes(
            places,
            end,
            |id| [2, 3].contains(&id).then_some(&channel),
            &mut sizes,
        );
        let means = sizes.values().map(Sizes::mean).collect::<Vec<_>>();
        assert_eq!(means, [Some(10.0), Some(10.0), Some(10.0), Some(10.0)]);
    }

    #[test]
    fn places_that_cannot_be_right_tell_nothing() {
        assert_eq!(counts(&section(&[(1, 100)], 90)), None);
        assert_eq!(counts(&section(&[(1, 100)], 100 + 15 + 17)), None);
        assert_eq!(counts(&section(&[(1, 100), (2, 100)], 110)), None);
    }
}
