//! Writes recordings into new MCAP files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use asof_formats::{
    ConvertCounts, ConvertError, ConvertOptions, McapWriteError, McapWriter, McapWriterOptions,
    convert, profile_of,
};

use super::new_file::{NewFile, folder_of, refuse_same};
use crate::text::quoted;
use crate::{Error, Recording, is_address};

/// What was written: the size in bytes, and the counts.
#[derive(Debug, Clone)]
pub struct ConvertReport {
    /// The size of the file, in bytes.
    pub size: u64,
    /// The counts.
    pub converted: ConvertCounts,
}

/// Writes a recording to a file that appears when it is complete, reporting progress.
pub(crate) fn write(
    recording: &Recording,
    path: &Path,
    force: bool,
    mut writer_options: McapWriterOptions,
    options: &ConvertOptions,
) -> Result<ConvertReport, Error> {
    let summary = recording.summary();
    writer_options.profile = profile_of(&summary, options);
    let failed = |error: McapWriteError| Error::from(error).at(path);
    let total = summary.messages.unwrap_or(0);
    let new = NewFile::create(path, |_| force)?;
    let mut writer = McapWriter::new(new.writer()?, writer_options).map_err(failed)?;
    let converted = convert(recording, &mut writer, options, &mut |done| {
        recording.progress().done(done, total);
    });
    let converted = converted.map_err(|error| match error {
        ConvertError::Write(_) | ConvertError::Sort(_) => Error::from(error).at(path),
        other => other.into(),
    })?;
    writer.finish().map_err(failed)?;
    new.finish()?;
    let found = std::fs::metadata(path);
    let found = found
        .map_err(|error| Error::file(format!("cannot find {} any more", path.display()), error))?;
    Ok(ConvertReport {
        size: found.len(),
        converted,
    })
}

/// Refuses to overwrite the input, also where that is a file in a folder, or described by one.
///
/// # Errors
/// When the output is one of them. `word` goes into the name that is suggested instead.
pub fn refuse_input(place: &Path, output: &Path, word: &str) -> Result<(), Error> {
    // A file that does not exist yet cannot be an input.
    if std::fs::metadata(output).is_err() {
        return Ok(());
    }
    refuse_same(place, output, word)?;
    let is_description = place
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.ends_with("metadata.yaml"));
    let folder = if is_description {
        folder_of(place)
    } else {
        place.to_owned()
    };
    refuse_any_in(&folder, output, word, &mut HashSet::new())
}

/// Refuses names with the extension of another format than MCAP.
///
/// # Errors
/// When it has one, is an address, or a pipe.
pub fn refuse_other_format(output: &Path) -> Result<(), Error> {
    if output == Path::new("-") {
        return Err(Error::Option(
            "an MCAP file cannot be written to a pipe; name a file with -o".to_owned(),
        ));
    }
    if is_address(output) {
        return Err(Error::Option(format!(
            "cannot write to {}: name a file on this machine with -o, and upload it",
            output.display()
        )));
    }
    let extension = output.extension().and_then(|extension| extension.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("bag" | "active" | "db3" | "ulg" | "zst" | "zstd") => Err(Error::Option(format!(
            "the output is MCAP, but {} is named like another format; name it {}",
            output.display(),
            quoted(&output.with_extension("mcap"))
        ))),
        _ => Ok(()),
    }
}

/// Links may form cycles, so each folder is visited once.
fn refuse_any_in(
    folder: &Path,
    output: &Path,
    word: &str,
    known: &mut HashSet<PathBuf>,
) -> Result<(), Error> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    if !known.insert(real) {
        return Ok(());
    }
    entries.flatten().try_for_each(|entry| {
        refuse_same(&entry.path(), output, word)?;
        refuse_any_in(&entry.path(), output, word, known)
    })
}
