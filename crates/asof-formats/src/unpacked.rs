//! Recordings that were compressed as a whole file: unpacked beside the system's other temporary files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use asof_core::{
    AttachmentEntry, Batch, Batches, MetadataEntry, Problem, ProblemKind, Query, Source,
    SourceError, Stamp, Summary, Topics,
};
use bytes::Bytes;
use tempfile::TempPath;

use crate::McapCounters;
use crate::recording::{Progress, Recording};

/// A recording in a temporary file, which goes with it.
pub(crate) struct Unpacked {
    inner: Box<dyn Recording>,
    problem: Option<Problem>,
    /// Dropped after `inner`, which reads it.
    _file: TempPath,
}

/// Decompresses a zstd file; a damaged one as far as it goes.
pub(crate) fn unpack(path: &Path) -> Result<(TempPath, Option<Problem>), SourceError> {
    let failed = |cause| SourceError::Io {
        place: path.display().to_string(),
        offset: 0,
        cause,
    };
    let mut reader = zstd::Decoder::new(File::open(path).map_err(failed)?).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new().map_err(failed)?;
    let mut buffer = vec![0; 1 << 20];
    let mut written = 0u64;
    let problem = loop {
        match reader.read(&mut buffer) {
            Ok(0) => break None,
            Ok(read) => {
                file.write_all(&buffer[..read]).map_err(failed)?;
                written += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if written == 0 => return Err(failed(error)),
            Err(error) => {
                let message =
                    format!("the zstd file is damaged behind {written} readable bytes ({error})");
                break Some(Problem::whole(ProblemKind::Truncated, message));
            }
        }
    };
    Ok((file.into_temp_path(), problem))
}

impl Unpacked {
    pub fn new(inner: Box<dyn Recording>, file: TempPath, problem: Option<Problem>) -> Self {
        Unpacked {
            inner,
            problem,
            _file: file,
        }
    }
}

impl Source for Unpacked {
    fn summary(&self) -> Arc<Summary> {
        let summary = self.inner.summary();
        let Some(problem) = &self.problem else {
            return summary;
        };
        let mut summary = Summary::clone(&summary);
        summary.problems.insert(0, problem.clone());
        Arc::new(summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        self.inner.read(query)
    }

    fn backfill(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.inner.backfill(topics, at)
    }
}

impl Recording for Unpacked {
    fn attachment(&self, entry: &AttachmentEntry) -> Result<Bytes, SourceError> {
        self.inner.attachment(entry)
    }

    fn metadata(&self, entry: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        self.inner.metadata(entry)
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        let mut problems = self.inner.check(progress)?;
        problems.splice(0..0, self.problem.clone());
        Ok(problems)
    }

    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        self.inner.read_in_file_order(query)
    }

    fn bytes_held_by_order(&self, query: &Query) -> u64 {
        self.inner.bytes_held_by_order(query)
    }
    fn counters(&self) -> Option<McapCounters> {
        self.inner.counters()
    }
}
