//! The doctor: reads everything and verifies it.

use std::collections::BTreeMap;
use std::sync::Arc;

use asof_core::{Problem, ProblemKind, Progress, Row, SourceError, Stamp, TimeRange, Topics};
use mcap::records::Statistics;

use super::directory::{Contents, Section, SectionKind, clamped_range};
use super::record::MAGIC_LEN;
use super::scan::Scan;
use super::{Mcap, open};
use crate::sections::{Loaded, PLACE_BITS, Prefetch, SectionQuery, Sections};

impl Mcap {
    /// Reads the whole file and checks its parts against each other: records, checksums, chunks, indexes, statistics.
    /// Returns all problems, those of opening included.
    ///
    /// # Errors
    /// When the file cannot be read at all, or the callback ends the work.
    pub(super) fn check_all(
        self: &Arc<Self>,
        progress: Progress<'_>,
    ) -> Result<Vec<Problem>, SourceError> {
        for doubt in &self.directory.doubts {
            self.report(doubt.clone());
        }
        self.check_framing(progress)?;
        self.check_sections(progress)?;
        for entry in &self.directory.attachments {
            if let Err(SourceError::Unreadable { reason, .. }) = self.read_attachment(entry) {
                self.report(Problem::at(ProblemKind::BadIndex, entry.offset, reason));
            }
        }
        for entry in &self.directory.metadata {
            if let Err(SourceError::Unreadable { reason, .. }) = self.read_metadata(entry) {
                self.report(Problem::at(ProblemKind::BadIndex, entry.offset, reason));
            }
        }
        Ok(self.report.summary().problems.clone())
    }
}

/// Counts and times of the messages themselves, to compare with the statistics.
#[derive(Default)]
struct Tally {
    messages: u64,
    by_channel: BTreeMap<u16, u64>,
    range: Option<TimeRange>,
}

impl Mcap {
    /// Checks that the records are contiguous from the first to the last, and the checksum of the data section. This is
    /// the first half of the progress; the sections are the second.
    fn check_framing(&self, progress: Progress<'_>) -> Result<(), SourceError> {
        let storage = self.storage();
        let total = storage.size();
        let mut scan = Scan::new(storage);
        scan.walk(MAGIC_LEN, open::records_end(storage)?)?;
        for problem in scan.problems.to_vec() {
            self.report(problem);
        }
        let found: Vec<u64> = scan
            .directory
            .sections
            .iter()
            .map(|section| section.offset)
            .collect();
        for section in &self.directory.sections {
            if found.binary_search(&section.offset).is_err() {
                let message =
                    "an index puts a chunk here, but the records of the file do not lead to it";
                self.report(Problem::at(ProblemKind::BadIndex, section.offset, message));
            }
        }
        let Some((offset, declared)) = scan.data_end.filter(|&(_, crc)| crc != 0) else {
            return Ok(());
        };
        let mut crc = crc32fast::Hasher::new();
        let mut at = 0;
        while at < offset {
            let part = storage.get(at, (8 << 20).min(offset - at))?;
            crc.update(&part);
            at += part.len().max(1) as u64;
            progress(at / 2, total)?;
        }
        if crc.finalize() != declared {
            let message = "the checksum of the whole data section is wrong";
            self.report(Problem::at(ProblemKind::BadChecksum, offset, message));
        }
        Ok(())
    }

    fn check_sections(self: &Arc<Self>, progress: Progress<'_>) -> Result<(), SourceError> {
        let total = self.storage().size();
        let everything = SectionQuery::new(Topics::All, TimeRange::ALL, &self.table().channels);
        let plan: Vec<usize> = (0..self.directory.sections.len()).collect();
        let sections: Arc<dyn Sections> = Arc::<Self>::clone(self);
        let mut loads = Prefetch::new(&sections, everything, plan);
        let mut tally = Tally::default();
        for (index, section) in self.directory.sections.iter().enumerate() {
            let Some(loaded) = loads.next() else { break };
            let loaded = loaded?;
            self.count(&loaded, &mut tally);
            if section.kind == SectionKind::Chunk {
                self.check_header(section)?;
                self.check_message_indexes(index, &loaded)?;
            }
            progress(u64::midpoint(section.end.min(total), total), total)?;
        }
        if let Some(statistics) = &self.statistics {
            self.check_statistics(statistics, &tally);
        }
        progress(total, total)
    }

    fn count(&self, loaded: &Loaded, tally: &mut Tally) {
        let table = self.table();
        tally.messages += loaded.rows.len() as u64;
        for row in &loaded.rows {
            *tally
                .by_channel
                .entry(table.ids[row.channel as usize])
                .or_default() += 1;
            tally.range = Some(
                tally
                    .range
                    .unwrap_or(TimeRange::EMPTY)
                    .cover_stamp(row.log_time),
            );
        }
    }

    /// Checks that the chunk's header agrees with its index.
    fn check_header(&self, section: &Section) -> Result<(), SourceError> {
        let Some((header, _)) = self.chunk_data(section)? else {
            return Ok(());
        };
        let is_same = clamped_range(header.start_time, header.end_time) == section.range
            && header.uncompressed_size == section.uncompressed_size
            && *header.compression == *section.compression;
        // Where the file had to be scanned, the range was taken from the messages.
        if !is_same && !matches!(section.contents, Contents::Listed(_)) {
            let message =
                "the chunk's own times, size or compression are not those that its index gives";
            self.report(Problem::at(ProblemKind::BadIndex, section.offset, message));
        }
        Ok(())
    }

    /// Checks that the message indexes list exactly the messages of the chunk.
    fn check_message_indexes(&self, index: usize, loaded: &Loaded) -> Result<(), SourceError> {
        let section = &self.directory.sections[index];
        let Contents::Indexed(entries) = &section.contents else {
            return Ok(());
        };
        let table = self.table();
        let place = |row: &Row| row.order & ((1 << PLACE_BITS) - 1);
        let mut there: BTreeMap<u16, Vec<(Stamp, u64)>> = BTreeMap::new();
        for row in &loaded.rows {
            there
                .entry(table.ids[row.channel as usize])
                .or_default()
                .push((row.log_time, place(row)));
        }
        for &(id, offset) in entries {
            let mut found = there.remove(&id).unwrap_or_default();
            found.sort_unstable();
            let Some(times) = self.message_index(id, offset)? else {
                let message = format!(
                    "there is no message index of channel {id} here, although the chunk's index says so"
                );
                self.report(Problem::at(ProblemKind::BadIndex, offset, message));
                continue;
            };
            let representable =
                |(time, place)| Some((Stamp::from_unsigned_nanos(time).ok()?, place));
            let mut listed: Vec<_> = times.iter().filter_map(representable).collect();
            listed.sort_unstable();
            if listed != found {
                let message = format!(
                    "the message index of channel {id} lists {} messages, and not just the {} that are there",
                    listed.len(),
                    found.len()
                );
                self.report(Problem::at(ProblemKind::BadIndex, offset, message));
            }
        }
        if !there.is_empty() {
            let message = format!(
                "{} channels have messages in the chunk but no message index",
                there.len()
            );
            self.report(Problem::at(ProblemKind::BadIndex, section.offset, message));
        }
        Ok(())
    }

    fn check_statistics(&self, statistics: &Statistics, tally: &Tally) {
        let compare = |what: &str, declared: u64, found: u64| {
            if declared != found {
                let message =
                    format!("the statistics count {declared} {what}, but there are {found}");
                self.report(Problem::whole(ProblemKind::BadStatistics, message));
            }
        };
        let chunks = self
            .directory
            .sections
            .iter()
            .filter(|section| section.kind == SectionKind::Chunk)
            .count();
        let table = self.table();
        compare("messages", statistics.message_count, tally.messages);
        compare("chunks", statistics.chunk_count.into(), chunks as u64);
        // Some writers count all their channels, others only those with messages.
        let (used, known) = (tally.by_channel.len() as u64, table.channels.len() as u64);
        if !(used..=known).contains(&statistics.channel_count.into()) {
            compare("channels", statistics.channel_count.into(), known);
        }
        compare(
            "attachments",
            statistics.attachment_count.into(),
            self.directory.attachments.len() as u64,
        );
        compare(
            "metadata records",
            statistics.metadata_count.into(),
            self.directory.metadata.len() as u64,
        );
        for (&id, &declared) in &statistics.channel_message_counts {
            let found = tally.by_channel.get(&id).copied().unwrap_or(0);
            compare(&format!("messages on channel {id}"), declared, found);
        }
        let declared = clamped_range(statistics.message_start_time, statistics.message_end_time);
        if tally.range.is_some_and(|range| range != declared) {
            let message =
                "the statistics' start and end are not those of the first and last message";
            self.report(Problem::whole(ProblemKind::BadStatistics, message));
        }
    }
}
