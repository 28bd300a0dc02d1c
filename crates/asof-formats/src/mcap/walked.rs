//! The state of a scan of a growing file, to continue from.

use std::collections::BTreeMap;

use asof_core::{Problem, SourceError};

use super::Mcap;
use super::definitions::Definitions;
use super::directory::Directory;
use super::record::MAGIC_LEN;
use super::scan::{Scan, no_footer};
use crate::Storage;
use crate::options::OpenOptions;
use crate::problems::Problems;

/// What a scan has found up to an offset: all that the next one needs to continue there.
pub(super) struct Walked {
    /// How far the scan has come.
    pub at: u64,
    pub directory: Directory,
    pub definitions: Definitions,
    pub problems: Problems,
    /// Message counts by the file's channel ids.
    pub counts: BTreeMap<u16, u64>,
    /// The number of sections, from the first, that were searched for definitions and need not be again.
    pub searched: usize,
}

impl Walked {
    /// A file of which only the magic was read.
    pub fn start() -> Self {
        Walked {
            at: MAGIC_LEN,
            directory: Directory::default(),
            definitions: Definitions::default(),
            problems: Problems::default(),
            counts: BTreeMap::new(),
            searched: 0,
        }
    }

    /// A copy of what a scan has found so far.
    fn of(scan: &Scan<'_>, at: u64, searched: usize) -> Self {
        Walked {
            at,
            directory: scan.directory.copy(),
            definitions: scan.definitions.clone(),
            problems: scan.problems.clone(),
            counts: scan.counts.clone(),
            searched,
        }
    }

    /// A scan that continues from here.
    fn resume<'a>(&self, storage: &'a dyn Storage) -> Scan<'a> {
        let mut scan = Scan::new(storage);
        scan.directory = self.directory.copy();
        scan.definitions = self.definitions.clone();
        scan.problems = self.problems.clone();
        scan.counts = self.counts.clone();
        scan
    }

    /// Keeps the problems of the part that is not scanned again, except that the file ended within it, which is no
    /// longer true.
    pub fn keep_problems(&mut self, problems: impl IntoIterator<Item = Problem>) {
        let at = self.at;
        let is_here = |problem: &Problem| {
            let offset = problem.offset.filter(|&offset| offset < at);
            offset.is_some_and(|offset| *problem != no_footer(offset))
        };
        self.problems
            .extend(problems.into_iter().filter(|problem| is_here(problem)));
    }
}

impl Mcap {
    /// Opens a file that has grown since it was scanned. The part before `settled` is final: it is scanned once, and
    /// `walked` ends there afterwards. The part after it, such as a chunk whose indexes are not written yet, is scanned
    /// again when the file has grown further.
    pub(super) fn open_grown(
        storage: Box<dyn Storage>,
        options: &OpenOptions,
        walked: &mut Walked,
        settled: u64,
    ) -> Result<Self, SourceError> {
        let mut scan = walked.resume(&*storage);
        scan.walk(walked.at, settled)?;
        *walked = Walked::of(&scan, settled, walked.searched);
        scan.walk(settled, storage.size())?;
        let mut found = Walked::of(&scan, storage.size(), walked.searched);
        found.problems.push(no_footer(storage.size()));
        let (mut file, mut counts) = Mcap::of_walk(storage, options, found, None);
        let settled_sections = walked.directory.sections.len();
        for (index, glanced) in file.look_into_untold()? {
            for (channel, messages) in glanced {
                *counts.entry(channel).or_default() += messages;
                if index < settled_sections {
                    *walked.counts.entry(channel).or_default() += messages;
                }
            }
            if let Some(section) = walked.directory.sections.get_mut(index) {
                section.clone_from(&file.directory.sections[index]);
            }
        }
        if file.find_missing_channels(walked.searched)? {
            walked.searched = settled_sections;
        }
        // A schema that is still missing may be written later.
        walked.definitions = file.definitions().clone();
        file.settle();
        file.summarize(false, &counts);
        walked.keep_problems(file.report.summary().problems.iter().cloned());
        Ok(file)
    }
}
