//! Merging small parts, and removing unused files.

use std::collections::HashSet;

use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;
use asof_core::Stamp;

use crate::catalogue::Catalogue;
use crate::commit::Draft;
use crate::error::CatalogueError;
use crate::head::{Head, Part, PartFile};
use crate::parts::{sorted, without_recordings};
use crate::reading::{bad, read_all};
use crate::tables::{RecordingRow, Table};

/// Parts of about the same size are merged once there are this many: each merge makes one that is as many times larger, so that
/// a recording is written again once for each power of it, however many are added one by one.
const TIER: u64 = 8;
/// The most recordings, topics of them, or sections of a merged part, so that a change to it stays cheap.
const MAX_PART_RECORDINGS: u64 = 20_000;
const MAX_PART_TOPICS: u64 = 1_000_000;
const MAX_PART_SECTIONS: u64 = 2_000_000;
/// The most bytes of summaries of a merged part: they are written in one piece.
const MAX_PART_SUMMARY_BYTES: u64 = 256 << 20;
/// The age at which a file that no head names is an orphan of a killed writer: no writer takes this long.
const ORPHAN_NANOS: i64 = 24 * 3_600_000_000_000;

impl Catalogue {
    /// Merges parts of about the same size if there are many: adding recordings one by one rewrites each a few times, not all
    /// of them again and again.
    ///
    /// # Errors
    /// When files cannot be read or written: then nothing has changed.
    pub fn compact(&self, now: Stamp) -> Result<Head, CatalogueError> {
        self.change(now, |draft| {
            let parts = due_parts(&draft.head);
            if !parts.is_empty() {
                self.put_together(draft, &parts)?;
            }
            let sizes: Vec<u64> = draft.head.schemas.iter().map(|file| file.rows).collect();
            let schemas = due(&sizes);
            if !schemas.is_empty() {
                self.put_schemas_together(draft, &schemas)?;
            }
            Ok(())
        })
    }

    fn put_together(&self, draft: &mut Draft<'_>, small: &[usize]) -> Result<(), CatalogueError> {
        draft.is_changed = true;
        let parts: Vec<Part> = small
            .iter()
            .map(|&part| draft.head.parts[part].clone())
            .collect();
        let mut rows = Vec::new();
        for part in &parts {
            rows.extend(self.rows_of(&part.recordings)?);
        }
        let gone = rows.iter().filter(|row| row.vanished.is_some());
        let gone: HashSet<String> = gone.map(|row| row.recording.clone()).collect();
        let is_gone = |name: &str| gone.contains(name);
        let recordings = RecordingRow::batch(&mut rows)
            .map_err(|error| bad(&self.store, &parts[0].recordings, &error))?;
        let recordings = draft.write(Table::Recordings, &recordings)?;
        let topics: Vec<&PartFile> = parts.iter().map(|part| &part.topics).collect();
        let topics = self.merged(draft, Table::Topics, &topics, is_gone)?;
        let sections: Vec<&PartFile> = parts.iter().map(|part| &part.sections).collect();
        let sections = self.merged(draft, Table::Sections, &sections, is_gone)?;
        let summaries: Vec<&PartFile> = (parts.iter())
            .filter_map(|part| part.summaries.as_ref())
            .collect();
        let summaries = draft.write_summaries(&summaries, is_gone)?;
        for &part in small.iter().rev() {
            draft.head.parts.remove(part);
        }
        draft.head.parts.push(Part {
            recordings,
            topics,
            sections,
            summaries,
        });
        Ok(())
    }

    fn merged(
        &self,
        draft: &mut Draft<'_>,
        table: Table,
        files: &[&PartFile],
        is_gone: impl Fn(&str) -> bool,
    ) -> Result<PartFile, CatalogueError> {
        let mut batches = Vec::with_capacity(files.len());
        for file in files {
            let kept = without_recordings(&read_all(&self.store, file, table)?, &is_gone);
            batches.push(kept.map_err(|error| bad(&self.store, file, &error))?);
        }
        let all = concat_batches(&table.schema(), &batches).and_then(|all| sorted(table, &all));
        let all = all.map_err(|error: ArrowError| bad(&self.store, files[0], &error))?;
        draft.write(table, &all)
    }

    fn put_schemas_together(
        &self,
        draft: &mut Draft<'_>,
        files: &[usize],
    ) -> Result<(), CatalogueError> {
        draft.is_changed = true;
        let mut rows = Vec::new();
        for &file in files {
            rows.extend(self.schemas_of(&draft.head.schemas[file])?);
        }
        rows.sort_by(|a, b| a.hash.cmp(&b.hash));
        rows.dedup_by(|a, b| a.hash == b.hash);
        for &file in files.iter().rev() {
            draft.head.schemas.remove(file);
        }
        let merged = draft.write_schemas(&mut rows)?;
        draft.head.schemas.push(merged);
        Ok(())
    }

    /// Removes orphans: files that no head has ever named, because their writers were killed. Recent ones are kept,
    /// since they may be named soon. Returns the number of orphans.
    ///
    /// # Errors
    /// When the catalogue cannot be listed.
    pub fn sweep(&self, now: Stamp) -> Result<usize, CatalogueError> {
        let files = self.store.files()?;
        // After the listing: files that the head names by then are in use.
        let Some(head) = self.head()? else {
            return Ok(0);
        };
        let is_ours = |name: &str| {
            let tables = [
                Table::Recordings,
                Table::Topics,
                Table::Sections,
                Table::Summaries,
                Table::Schemas,
            ];
            let is_table = |table: &Table| name.starts_with(&format!("{}-", table.name()));
            // Exactly the names that asof gives; any other file is left alone.
            let stem = name.strip_suffix(".parquet");
            let is_part = stem.is_some() && tables.iter().any(is_table);
            let is_unfinished = name
                .strip_suffix(".part")
                .is_some_and(|stem| stem.starts_with(".asof-"));
            is_part || is_unfinished
        };
        // By the store's clock, taken from its newest file: with a wrong local clock, files of other writers would look
        // old while they are being written.
        let newest = files.iter().filter_map(|file| file.modified).max();
        let now = newest.map_or(now, |newest| newest.min(now));
        let orphans: Vec<&str> = files
            .iter()
            .filter(|file| is_ours(&file.path) && !head.knows(&file.path))
            .filter(|file| {
                let age = |modified: Stamp| now.nanos().saturating_sub(modified.nanos());
                file.modified
                    .is_some_and(|modified| age(modified) > ORPHAN_NANOS)
            })
            .map(|file| file.path.as_str())
            .collect();
        let count = orphans.len();
        self.discard(orphans);
        Ok(count)
    }
}

/// The measures of a part that are limited, each as a share of its limit.
fn shares(part: &Part) -> [f64; 4] {
    let summaries = part.summaries.as_ref().map_or(0, |file| file.bytes);
    [
        (part.recordings.rows, MAX_PART_RECORDINGS),
        (part.topics.rows, MAX_PART_TOPICS),
        (part.sections.rows, MAX_PART_SECTIONS),
        (summaries, MAX_PART_SUMMARY_BYTES),
    ]
    .map(|(found, most)| found as f64 / most as f64)
}

/// The parts to merge, in the order of their numbers: as many as stay within the limits together.
fn due_parts(head: &Head) -> Vec<usize> {
    let is_open = |&part: &usize| shares(&head.parts[part]).iter().all(|share| *share <= 0.5);
    let open: Vec<usize> = (0..head.parts.len()).filter(is_open).collect();
    let rows = |part: &usize| head.parts[*part].recordings.rows;
    let sizes: Vec<u64> = open.iter().map(rows).collect();
    let mut due: Vec<usize> = due(&sizes).into_iter().map(|place| open[place]).collect();
    due.sort_by_key(rows);
    let mut taken = [0.0; 4];
    let fits = |part: &usize| {
        for (sum, share) in taken.iter_mut().zip(shares(&head.parts[*part])) {
            *sum += share;
        }
        taken.iter().all(|sum| *sum <= 1.0)
    };
    let mut merged: Vec<usize> = due.into_iter().take_while(fits).collect();
    merged.sort_unstable();
    merged
}

/// What to merge of files with this many rows: the lowest tier that has enough of them, and those above that have enough together
/// with what is merged below. Nothing, or several.
fn due(sizes: &[u64]) -> Vec<usize> {
    let tier = |size: u64| size.max(1).ilog(TIER);
    let highest = sizes.iter().copied().map(tier).max().unwrap_or_default();
    let (mut chosen, mut merged) = (Vec::new(), 0);
    for level in 0..=highest {
        let is_from_below = !chosen.is_empty() && tier(merged) == level;
        let within: Vec<usize> = (0..sizes.len())
            .filter(|&file| tier(sizes[file]) == level)
            .collect();
        if (chosen.is_empty() || is_from_below)
            && within.len() as u64 + u64::from(is_from_below) >= TIER
        {
            merged += within.iter().map(|&file| sizes[file]).sum::<u64>();
            chosen.extend(within);
        } else if is_from_below {
            break;
        }
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::due;

    #[test]
    fn tiers_with_enough_files_are_merged_and_those_above_with_them() {
        assert!(due(&[]).is_empty());
        assert!(due(&[1; 7]).is_empty());
        assert_eq!(due(&[1; 8]), (0..8).collect::<Vec<_>>());
        // A large part stays as it is.
        let with_large: Vec<u64> = [20_000].into_iter().chain([1; 8]).collect();
        assert_eq!(due(&with_large), (1..9).collect::<Vec<_>>());
        // Seven of the next tier and eight small ones are one merge.
        let cascade: Vec<u64> = [[8; 7].as_slice(), &[1; 8]].concat();
        assert_eq!(due(&cascade), (0..15).collect::<Vec<_>>());
        let short: Vec<u64> = [[8; 6].as_slice(), &[1; 8]].concat();
        assert_eq!(due(&short), (6..14).collect::<Vec<_>>());
        assert_eq!(due(&[9; 8]).len(), 8);
    }
}
