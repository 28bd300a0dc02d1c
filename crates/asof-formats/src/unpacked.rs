//! Recordings that cannot be read in place, such as files that are compressed as a whole: they are written to a
//! temporary file first.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asof_core::{DerivedSummary, Problem, ProblemKind, Progress, Source, SourceError, Summary};
use tempfile::TempPath;

use crate::limits::{DecompressionLimits, LIFT};

/// A recording in a temporary file, which is removed with it.
///
/// A [layer](asof_core::SourceLayer): it adds what was wrong with the compressed file.
pub(crate) struct TemporaryRecording {
    inner: Box<dyn Source>,
    problem: Option<Problem>,
    summary: DerivedSummary,
    /// Dropped after `inner`, which reads it.
    _file: TemporaryFile,
}

/// A file that is removed with its owner, and registered for [`remove_temporary_files`] until then.
pub(crate) struct TemporaryFile(TempPath);

/// All temporary files. Locked while one is created, so that none exists without being registered.
static TEMPORARY_FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn temporary_files() -> MutexGuard<'static, Vec<PathBuf>> {
    TEMPORARY_FILES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Removes the temporary files of all recordings. They are removed when a recording is closed; call this last in a
/// program that a signal ends.
pub fn remove_temporary_files() {
    for path in temporary_files().drain(..) {
        // An error cannot be reported any more.
        let _ = std::fs::remove_file(path);
    }
}

impl TemporaryFile {
    /// A new file, open for writing, for the contents of `place`.
    pub fn create(place: &str) -> Result<(File, Self), SourceError> {
        let mut known = temporary_files();
        let made = tempfile::NamedTempFile::new();
        let (file, path) = made
            .map_err(|cause| cannot_hold(&std::env::temp_dir(), place, &cause))?
            .into_parts();
        known.push(path.to_path_buf());
        Ok((file, TemporaryFile(path)))
    }

    /// The error when writing to it fails.
    pub fn cannot_hold(&self, place: &str, cause: &io::Error) -> SourceError {
        let folder = self.0.parent().unwrap_or(&self.0);
        cannot_hold(folder, place, cause)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        temporary_files().retain(|path| *path != *self.0);
    }
}

fn cannot_hold(folder: &Path, place: &str, cause: &io::Error) -> SourceError {
    let folder = folder.display();
    SourceError::Unreadable {
        place: place.to_owned(),
        reason: format!(
            "it must be written to a temporary file in {folder} first, which failed: {cause}; set TMPDIR to a folder with enough space"
        ),
    }
}

/// Decompresses a zstd file; a damaged one as far as possible.
pub(crate) fn unpack(
    path: &Path,
    name: &str,
    limits: &DecompressionLimits,
) -> Result<(TemporaryFile, Option<Problem>), SourceError> {
    let failed = |cause| SourceError::Io {
        place: name.to_owned(),
        offset: 0,
        cause,
    };
    let packed = File::open(path).map_err(failed)?;
    let size = packed.metadata().map_err(failed)?.len();
    let allowed = limits.of_file(size);
    let mut reader = zstd::Decoder::new(packed).map_err(failed)?;
    let (mut file, temporary) = TemporaryFile::create(name)?;
    let mut buffer = vec![0; 1 << 20];
    let mut written = 0u64;
    let problem = loop {
        match reader.read(&mut buffer) {
            Ok(0) => break None,
            Ok(read) if written.saturating_add(read as u64) > allowed => {
                return Err(SourceError::Unreadable {
                    place: name.to_owned(),
                    reason: format!(
                        "its {size} bytes decompress to more than the {allowed} allowed in a temporary file: {LIFT}"
                    ),
                });
            }
            Ok(read) => {
                let kept = file.write_all(&buffer[..read]);
                kept.map_err(|cause| temporary.cannot_hold(name, &cause))?;
                written += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if written == 0 => return Err(failed(error)),
            Err(error) => {
                let message =
                    format!("the zstd file is damaged after {written} readable bytes ({error})");
                break Some(Problem::whole(ProblemKind::Truncated, message));
            }
        }
    };
    Ok((temporary, problem))
}

impl TemporaryRecording {
    pub fn new(inner: Box<dyn Source>, file: TemporaryFile, problem: Option<Problem>) -> Self {
        TemporaryRecording {
            inner,
            problem,
            summary: DerivedSummary::default(),
            _file: file,
        }
    }
}

impl asof_core::SourceLayer for TemporaryRecording {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.inner
    }

    fn summary(&self) -> Arc<Summary> {
        let summary = self.inner().summary();
        let Some(problem) = &self.problem else {
            return summary;
        };
        let problem = || problem.clone();
        self.summary
            .changed(summary, |summary| summary.problems.insert(0, problem()))
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        let mut problems = self.inner().check(progress)?;
        problems.splice(0..0, self.problem.clone());
        Ok(problems)
    }
}
