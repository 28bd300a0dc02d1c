//! Message counts by channel and time, from the indexes alone.

use asof_core::{Portion, SourceError, Stamp, TimeRange};

use super::Mcap;
use super::directory::{Contents, Section};
use crate::counts::MOST_LOG_TIMES;
use crate::sections::Tally;

/// A message index record without its entries: opcode, length, channel, and the length of the entries.
const EMPTY_INDEX: u64 = 15;
/// Bytes of an entry of a message index: a time and an offset.
const ENTRY: u64 = 16;

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
            compression: String::new(),
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
    fn places_that_cannot_be_right_tell_nothing() {
        assert_eq!(counts(&section(&[(1, 100)], 90)), None);
        assert_eq!(counts(&section(&[(1, 100)], 100 + 15 + 17)), None);
        assert_eq!(counts(&section(&[(1, 100), (2, 100)], 110)), None);
    }
}
