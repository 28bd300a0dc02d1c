//! Merging small parts, and removing unused files.

use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use asof_core::Stamp;

use crate::catalogue::Catalogue;
use crate::commit::Draft;
use crate::error::CatalogueError;
use crate::head::{Head, Part, PartFile};
use crate::parts::sorted;
use crate::reading::{bad, read_all};
use crate::tables::{RecordingRow, SectionRow, Table, TopicRow};

/// With more small parts than this, they are merged.
const MAX_SMALL_PARTS: usize = 8;
/// The most recordings, or sections, of a merged part, so that a change to it stays cheap.
const MAX_PART_RECORDINGS: u64 = 20_000;
const MAX_PART_SECTIONS: u64 = 2_000_000;
/// The most bytes of summaries of a merged part: they are written in one piece.
const MAX_PART_SUMMARY_BYTES: u64 = 256 << 20;
/// The age at which a file that no head names is an orphan of a killed writer: no writer takes this long.
const ORPHAN_NANOS: i64 = 24 * 3_600_000_000_000;

impl Catalogue {
    /// Merges small parts if there are many.
    ///
    /// # Errors
    /// When files cannot be read or written: then nothing has changed.
    pub fn compact(&self, now: Stamp) -> Result<Head, CatalogueError> {
        self.change(now, |draft| {
            let small = small_parts(&draft.head);
            if small.len() > MAX_SMALL_PARTS {
                self.put_together(draft, &small)?;
            }
            if draft.head.schemas.len() > MAX_SMALL_PARTS {
                self.put_schemas_together(draft)?;
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
        let recordings = RecordingRow::batch(&mut rows)
            .map_err(|error| bad(&self.store, &parts[0].recordings, &error))?;
        let recordings = draft.write(Table::Recordings, &recordings)?;
        let topics: Vec<&PartFile> = parts.iter().map(|part| &part.topics).collect();
        let topics = self.merged(draft, Table::Topics, &TopicRow::schema(), &topics)?;
        let sections: Vec<&PartFile> = parts.iter().map(|part| &part.sections).collect();
        let sections = self.merged(draft, Table::Sections, &SectionRow::schema(), &sections)?;
        let summaries: Vec<&PartFile> = (parts.iter())
            .filter_map(|part| part.summaries.as_ref())
            .collect();
        let summaries = draft.write_summaries(&summaries, |_| false)?;
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
        schema: &SchemaRef,
        files: &[&PartFile],
    ) -> Result<PartFile, CatalogueError> {
        let mut batches = Vec::with_capacity(files.len());
        for file in files {
            batches.push(read_all(&self.store, file, schema)?);
        }
        let all = concat_batches(schema, &batches).and_then(|all| sorted(table, &all));
        let all = all.map_err(|error: ArrowError| bad(&self.store, files[0], &error))?;
        draft.write(table, &all)
    }

    fn put_schemas_together(&self, draft: &mut Draft<'_>) -> Result<(), CatalogueError> {
        draft.is_changed = true;
        let mut rows = Vec::new();
        for file in &draft.head.schemas {
            rows.extend(self.schemas_of(file)?);
        }
        rows.sort_by(|a, b| a.hash.cmp(&b.hash));
        rows.dedup_by(|a, b| a.hash == b.hash);
        draft.head.schemas = vec![draft.write_schemas(&mut rows)?];
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

/// The parts to merge, smallest first, in the order of their numbers.
fn small_parts(head: &Head) -> Vec<usize> {
    let size = |&part: &usize| head.parts[part].recordings.rows;
    let mut by_size: Vec<usize> = (0..head.parts.len()).collect();
    by_size.sort_by_key(size);
    let mut small = Vec::new();
    let (mut recordings, mut sections, mut summaries) = (0, 0, 0);
    for part in by_size {
        recordings += head.parts[part].recordings.rows;
        sections += head.parts[part].sections.rows;
        summaries += head.parts[part]
            .summaries
            .as_ref()
            .map_or(0, |file| file.bytes);
        let is_much = recordings > MAX_PART_RECORDINGS
            || sections > MAX_PART_SECTIONS
            || summaries > MAX_PART_SUMMARY_BYTES;
        if is_much {
            break;
        }
        small.push(part);
    }
    small.sort_unstable();
    small
}
