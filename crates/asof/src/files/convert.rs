//! One new MCAP file of a recording.

use std::path::{Path, PathBuf};

use asof_core::Problem;
use asof_formats::McapWriterOptions;
use serde::Serialize;

use super::bag_metadata::{place_beside, write_beside};
use super::new_file::folder_of;
use super::writing::{ConvertReport, refuse_input, refuse_other_format, write};
use crate::problems::problems_as_json;
use crate::{Error, Recording};

/// How a recording is converted.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// What is written: topics, times, names, dialect.
    pub conversion: asof_formats::ConvertOptions,
    /// How it is written: chunks and compression.
    pub writer: McapWriterOptions,
    /// Whether an existing file is replaced.
    pub force: bool,
    /// Whether the `metadata.yaml` that rosbag2 expects is written beside it.
    pub metadata_yaml: bool,
}

/// How a damaged recording is saved.
#[derive(Debug, Clone, Default)]
pub struct RecoverOptions {
    /// How it is written: chunks and compression.
    pub writer: McapWriterOptions,
    /// Whether an existing file is replaced.
    pub force: bool,
}

/// What was saved of a recording.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct RecoverReport {
    /// The recording.
    pub path: String,
    /// The new file.
    pub output: PathBuf,
    /// Its size, in bytes.
    pub size: u64,
    /// Its messages.
    pub messages: u64,
    /// Its attachments.
    pub attachments: u64,
    /// Its metadata records.
    pub metadata: u64,
    /// Messages that the recording declares but that cannot be read.
    pub lost: u64,
    /// What is wrong with the recording.
    #[serde(serialize_with = "problems_as_json")]
    pub problems: Vec<Problem>,
}

impl Recording {
    /// Writes it into a new MCAP file, in order of time. The file appears when it is complete.
    ///
    /// # Errors
    /// When the file exists, cannot be written, or is the recording itself.
    pub fn convert(
        &self,
        path: impl AsRef<Path>,
        options: &ConvertOptions,
    ) -> Result<ConvertReport, Error> {
        let path = path.as_ref();
        self.refuse(path, "converted")?;
        let beside = options
            .metadata_yaml
            .then(|| place_beside(path, options.force))
            .transpose()?;
        let mut conversion = options.conversion.clone();
        // Temporary files may be as large as the output; there is room for them beside it.
        conversion.temporary.get_or_insert_with(|| folder_of(path));
        let written = write(
            self,
            path,
            options.force,
            options.writer.clone(),
            &conversion,
        )?;
        if let Some(place) = &beside {
            write_beside(path, place)?;
        }
        Ok(written)
    }

    /// Saves what a damaged recording still holds into a new MCAP file, with new indexes.
    ///
    /// # Errors
    /// When the file exists, cannot be written, or is the recording itself.
    pub fn recover(
        &self,
        path: impl AsRef<Path>,
        options: &RecoverOptions,
    ) -> Result<RecoverReport, Error> {
        let path = path.as_ref();
        self.refuse(path, "recovered")?;
        let all = asof_formats::ConvertOptions::default();
        let ConvertReport { size, converted } =
            write(self, path, options.force, options.writer.clone(), &all)?;
        let summary = self.summary();
        let declared = summary.messages.unwrap_or(0);
        Ok(RecoverReport {
            path: self.place_names().into_iter().next().unwrap_or_default(),
            output: path.to_owned(),
            size,
            messages: converted.messages,
            attachments: converted.attachments,
            metadata: converted.metadata,
            lost: declared.saturating_sub(converted.messages),
            problems: [summary.problems.clone(), converted.problems].concat(),
        })
    }

    /// Refuses a path that is not for an MCAP file, or that the recording itself is at.
    fn refuse(&self, path: &Path, word: &str) -> Result<(), Error> {
        refuse_other_format(path)?;
        let mut places = self.places().iter();
        places.try_for_each(|place| refuse_input(place, path, word))
    }
}
