//! A file that was walked as far as it went, and goes on.

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

/// What a walk has found up to a place: all that the next one needs to go on from there.
pub(super) struct Walked {
    /// Where the walk has come to.
    pub at: u64,
    pub directory: Directory,
    pub definitions: Definitions,
    pub problems: Problems,
    /// Messages by the file's channel numbers.
    pub counts: BTreeMap<u16, u64>,
    /// The number of sections, from the first, that were searched for definitions and need not be again.
    pub searched: usize,
}

impl Walked {
    /// Nothing but the magic.
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

    /// A copy of what a walk knows by now.
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

    /// A walk that goes on from here.
    fn resume<'a>(&self, storage: &'a dyn Storage) -> Scan<'a> {
        let mut scan = Scan::new(storage);
        scan.directory = self.directory.copy();
        scan.definitions = self.definitions.clone();
        scan.problems = self.problems.clone();
        scan.counts = self.counts.clone();
        scan
    }

    /// Keeps what is wrong with the part that is not walked again; that the file ended somewhere in it is not wrong any
    /// more.
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
    /// Opens a file that has grown since it was walked. What lies before `settled` will never be anything else: it is
    /// walked once, and `walked` is there afterwards. What lies after it, such as a chunk whose indexes are still to be
    /// written, is walked again when the file has grown again.
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
        // A schema that is missing by now may still be written.
        walked.definitions = file.definitions().clone();
        file.settle();
        file.summarize(false, &counts);
        walked.keep_problems(file.report.summary().problems.iter().cloned());
        Ok(file)
    }
}
