//! The head: which files make up the catalogue now.

use std::collections::BTreeSet;

use asof_core::Stamp;
use serde::{Deserialize, Serialize};

/// The only file of a catalogue that is ever replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Always [`Head::FORMAT`].
    pub format: String,
    /// The version of the layout.
    pub version: u64,
    /// How often the head was replaced.
    pub generation: u64,
    /// When it was written, in nanoseconds since the epoch.
    pub written_ns: i64,
    /// Where the recordings lie, as the last indexer named it.
    pub root: String,
    /// The patterns that robot, site and date were taken from the paths by.
    #[serde(default)]
    pub patterns: Vec<String>,
    /// The files by table, for those who read them without asof. Made from `parts` and `schemas`.
    #[serde(default)]
    pub tables: Tables,
    /// Sets of recordings.
    pub parts: Vec<Part>,
    /// Definitions of message types; a definition may be in several.
    pub schemas: Vec<PartFile>,
    /// Files that an older head named.
    #[serde(default)]
    pub retired: Vec<Retired>,
}

/// Names of files by table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tables {
    /// A row per recording.
    pub recordings: Vec<String>,
    /// A row per recording and topic.
    pub topics: Vec<String>,
    /// A row per chunk.
    pub sections: Vec<String>,
    /// A row per recording whose summary is kept.
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
    /// A row per recording whose summary is kept; `None` where none is.
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

/// A file that no longer belongs to the catalogue, and is removed a while later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    /// Its name.
    pub file: String,
    /// Since when, in nanoseconds since the epoch.
    pub since_ns: i64,
}

impl Head {
    /// What every head says that it is.
    pub const FORMAT: &str = "asof catalogue";
    /// The version of the layout that is written here.
    pub const VERSION: u64 = 1;

    /// A head of nothing.
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

    /// How many rows there are for recordings, those that vanished among them.
    pub fn recordings(&self) -> u64 {
        self.parts.iter().map(|part| part.recordings.rows).sum()
    }

    /// Whether a file is named, as current or as retired.
    pub(crate) fn knows(&self, file: &str) -> bool {
        self.files().any(|known| known.file == file)
            || self.retired.iter().any(|retired| retired.file == file)
    }

    /// The head that follows `before`: what it no longer names is retired, and what was retired long ago is forgotten.
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
