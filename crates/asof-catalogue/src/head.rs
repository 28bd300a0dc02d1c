//! The head, which lists the current files of the catalogue.

use std::collections::BTreeSet;

use asof_core::Stamp;
use serde::{Deserialize, Serialize};

/// The head of a catalogue: the only file that is ever replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Always [`Head::FORMAT`].
    pub format: String,
    /// The version of the layout.
    pub version: u64,
    /// How often the head has been replaced.
    pub generation: u64,
    /// When it was written, in nanoseconds since the epoch.
    pub written_ns: i64,
    /// The root of the recordings, as the last indexer named it.
    pub root: String,
    /// The patterns that take robot, site and date from paths.
    #[serde(default)]
    pub patterns: Vec<String>,
    /// The files by table, for readers without asof. Made from `parts` and `schemas`.
    #[serde(default)]
    pub tables: Tables,
    /// Sets of recordings.
    pub parts: Vec<Part>,
    /// Definitions of message types; a definition may be in several files.
    pub schemas: Vec<PartFile>,
    /// Files that an older head named.
    #[serde(default)]
    pub retired: Vec<Retired>,
}

/// File names by table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tables {
    /// A row per recording.
    pub recordings: Vec<String>,
    /// A row per recording and topic.
    pub topics: Vec<String>,
    /// A row per chunk.
    pub sections: Vec<String>,
    /// A row per recording whose summary is stored.
    #[serde(default)]
    pub summaries: Vec<String>,
    /// A row per definition.
    pub schemas: Vec<String>,
}

/// A set of recordings, with their topics and sections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// A row per recording.
    pub recordings: PartFile,
    /// A row per recording and topic.
    pub topics: PartFile,
    /// A row per chunk.
    pub sections: PartFile,
    /// A row per recording whose summary is stored; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summaries: Option<PartFile>,
}

/// A file of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartFile {
    /// Its name.
    pub file: String,
    /// Its rows.
    pub rows: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A file that is no longer part of the catalogue and will be removed later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    /// Its name.
    pub file: String,
    /// When it was retired, in nanoseconds since the epoch.
    pub since_ns: i64,
}

impl Head {
    /// The value of [`Head::format`] in every head.
    pub const FORMAT: &str = "asof catalogue";
    /// The version of the layout that this crate writes.
    pub const VERSION: u64 = 1;

    /// An empty head.
    pub(crate) fn empty(root: String) -> Self {
        Head {
            format: Self::FORMAT.to_owned(),
            version: Self::VERSION,
            generation: 0,
            written_ns: 0,
            root,
            patterns: Vec::new(),
            tables: Tables::default(),
            parts: Vec::new(),
            schemas: Vec::new(),
            retired: Vec::new(),
        }
    }

    /// The names of all files that make up the catalogue.
    pub fn files(&self) -> impl Iterator<Item = &PartFile> {
        let parts = self.parts.iter();
        let of_parts = parts.flat_map(|part| {
            let tables = [&part.recordings, &part.topics, &part.sections];
            tables.into_iter().chain(&part.summaries)
        });
        of_parts.chain(&self.schemas)
    }

    /// The number of recordings, including vanished ones.
    pub fn recordings(&self) -> u64 {
        self.parts.iter().map(|part| part.recordings.rows).sum()
    }

    /// Whether it names a file, as current or as retired.
    pub(crate) fn knows(&self, file: &str) -> bool {
        self.files().any(|known| known.file == file)
            || self.retired.iter().any(|retired| retired.file == file)
    }

    /// The head after `before`: files that it no longer names are retired, and those retired long ago are dropped.
    pub(crate) fn following(
        mut self,
        before: &Head,
        forgotten: &BTreeSet<String>,
        now: Stamp,
    ) -> Self {
        self.generation = before.generation + 1;
        self.written_ns = now.nanos();
        let current: BTreeSet<&str> = self.files().map(|file| file.file.as_str()).collect();
        let mut retired: Vec<Retired> = before
            .retired
            .iter()
            .filter(|retired| !forgotten.contains(&retired.file))
            .cloned()
            .collect();
        retired.extend(
            before
                .files()
                .filter(|file| !current.contains(file.file.as_str()))
                .map(|file| Retired {
                    file: file.file.clone(),
                    since_ns: now.nanos(),
                }),
        );
        self.retired = retired;
        let names = |of: fn(&Part) -> &PartFile| {
            self.parts
                .iter()
                .map(|part| of(part).file.clone())
                .collect()
        };
        self.tables = Tables {
            recordings: names(|part| &part.recordings),
            topics: names(|part| &part.topics),
            sections: names(|part| &part.sections),
            summaries: (self.parts.iter())
                .filter_map(|part| Some(part.summaries.as_ref()?.file.clone()))
                .collect(),
            schemas: self.schemas.iter().map(|file| file.file.clone()).collect(),
        };
        self
    }
}
