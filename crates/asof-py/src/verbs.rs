//! The verbs of the command over a recording. What they find is JSON.

use std::path::PathBuf;
use std::sync::Arc;

use asof::check::{DoctorOptions, Expectations};
use asof::export::{ExportFormat, ExportOptions};
use asof::files::{Cut, NewFile, RecoverOptions, SplitOptions};
use asof::formats::Compression;
use asof::tf::TrajectoryFormat;
use asof::{Error, Event, Progress, Query, Recording};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::interrupt::awaited;
use crate::source::Source;
use crate::time::{Length, Time};

/// What a verb found, as JSON, and its warnings.
type Said = (String, Vec<String>);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Source(error) => error.into(),
            Error::Rows(error) => error.into(),
            Error::Path(error) => error.into(),
            Error::Align(error) => error.into(),
            Error::Robot(error) => error.into(),
            #[cfg(feature = "sql")]
            error @ Error::Sql(_) => Failure::new("QueryError", error),
            Error::File { .. } | Error::Write(_) | Error::Record(_) | Error::Io(_) => {
                Failure::new("WriteError", error)
            }
            error => Failure::new("Error", error),
        }
    }
}

/// A progress, and the warnings that it hears.
pub fn collected() -> (Progress, Arc<Mutex<Vec<String>>>) {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&warnings);
    let progress = Progress::to(move |event| {
        if let Event::Warning(text) = event {
            let mut told = told.lock();
            told.push(text.to_owned());
        }
    });
    (progress, warnings)
}

/// The error of an option that is none of those that there are.
pub fn wrong_option(option: &str, given: &str, known: &str) -> PyErr {
    PyValueError::new_err(format!("{option}='{given}' is unknown; there are {known}"))
}

/// The compression of this name.
pub fn compression(name: &str) -> PyResult<Compression> {
    match name {
        "zstd" => Ok(Compression::Zstd),
        "lz4" => Ok(Compression::Lz4),
        "none" | "" => Ok(Compression::None),
        other => Err(wrong_option("compression", other, "zstd, lz4 and none")),
    }
}

/// Works on a recording on a thread of its own, until Ctrl-C.
fn said(
    py: Python<'_>,
    source: &Source,
    places: &[PathBuf],
    work: impl FnOnce(&Recording) -> Result<String> + Send + 'static,
) -> PyResult<Said> {
    let (progress, warnings) = collected();
    let recording = Recording::new(Arc::clone(&source.recording), places);
    let recording = recording.with_progress(progress.clone());
    let found = awaited(py, move || work(&recording)).inspect_err(|_| progress.cancel())?;
    let warnings = warnings.lock();
    Ok((found, warnings.clone()))
}

/// What was found, or why it cannot be told.
pub fn json(written: serde_json::Result<String>) -> Result<String> {
    written.map_err(|error| Failure::new("Error", error))
}

/// Checks a recording against expectations, in TOML; `name` is that of their file.
#[pyfunction]
pub fn check(
    py: Python<'_>,
    source: &Source,
    places: Vec<PathBuf>,
    name: &str,
    text: &str,
) -> PyResult<Said> {
    let wrong = |error| Failure::new("MapError", error);
    let expectations = Expectations::from_toml(name, text).map_err(wrong)?;
    said(py, source, &places, move |recording| {
        json(serde_json::to_string(&recording.check(&expectations)?))
    })
}

/// Expectations that a recording meets, in TOML.
#[pyfunction]
pub fn expectations(py: Python<'_>, source: &Source, places: Vec<PathBuf>) -> PyResult<Said> {
    said(py, source, &places, |recording| {
        Ok(recording.expectations()?.to_toml()?)
    })
}

/// The differences between two recordings.
#[pyfunction]
pub fn diff(
    py: Python<'_>,
    source: &Source,
    places: Vec<PathBuf>,
    other: &Source,
    other_places: Vec<PathBuf>,
) -> PyResult<Said> {
    let other = Recording::new(Arc::clone(&other.recording), &other_places);
    said(py, source, &places, move |recording| {
        json(serde_json::to_string(&recording.diff(&other)?))
    })
}

/// Reads all of a recording, and verifies that its parts agree.
#[pyfunction]
pub fn doctor(
    py: Python<'_>,
    source: &Source,
    places: Vec<PathBuf>,
    decode: bool,
) -> PyResult<Said> {
    said(py, source, &places, move |recording| {
        let options = DoctorOptions { decode };
        json(serde_json::to_string(&recording.doctor(&options)?))
    })
}

/// Splits a recording into files of a duration, or of a size.
#[pyfunction]
pub fn split(
    py: Python<'_>,
    source: &Source,
    places: Vec<PathBuf>,
    output: PathBuf,
    cut: (Option<Length>, Option<u64>),
    part: (Vec<String>, Option<Time>, Option<Time>),
    force: bool,
) -> PyResult<Said> {
    let cut = match cut {
        (Some(Length(every)), None) => {
            Cut::Duration(i64::try_from(every.as_nanos()).unwrap_or(i64::MAX))
        }
        (None, Some(size)) => Cut::Size(size),
        _ => {
            let message =
                "give every=, the duration of a part, or size=, about how many bytes it has";
            return Err(PyValueError::new_err(message));
        }
    };
    let options = SplitOptions {
        query: query(source, part)?,
        force,
        ..SplitOptions::new(cut)
    };
    said(py, source, &places, move |recording| {
        json(serde_json::to_string(&recording.split(&output, &options)?))
    })
}

/// Saves what a damaged recording still holds.
#[pyfunction]
pub fn recover(
    py: Python<'_>,
    source: &Source,
    places: Vec<PathBuf>,
    path: PathBuf,
    force: bool,
) -> PyResult<Said> {
    let options = RecoverOptions {
        force,
        ..RecoverOptions::default()
    };
    said(py, source, &places, move |recording| {
        json(serde_json::to_string(&recording.recover(&path, &options)?))
    })
}

/// Writes a table for each topic into a folder, or its pictures.
#[pyfunction]
pub fn export(
    py: Python<'_>,
    source: &Source,
    places: Vec<PathBuf>,
    folder: PathBuf,
    written: (String, Vec<String>),
    part: (Vec<String>, Option<Time>, Option<Time>),
    force: bool,
) -> PyResult<Said> {
    let (format, fields) = written;
    let format = match format.as_str() {
        "parquet" => ExportFormat::Parquet,
        "arrow" => ExportFormat::Arrow,
        "csv" => ExportFormat::Csv,
        "ndjson" => ExportFormat::Ndjson,
        "images" => ExportFormat::Images,
        "video" => ExportFormat::Video,
        other => {
            let known = "parquet, arrow, csv, ndjson, images and video";
            return Err(wrong_option("format", other, known));
        }
    };
    let options = ExportOptions {
        format,
        query: query(source, part)?,
        fields,
        force,
        ..ExportOptions::default()
    };
    said(py, source, &places, move |recording| {
        let is_whole = recording.export(&folder, &options)?;
        json(serde_json::to_string(&is_whole))
    })
}

/// Writes the poses of a topic of a time range into a file; how many there are.
#[pyfunction]
pub fn write_poses(
    py: Python<'_>,
    source: &Source,
    places: Vec<PathBuf>,
    topic: String,
    written: (PathBuf, String),
    part: (Option<Time>, Option<Time>),
    force: bool,
) -> PyResult<Said> {
    let (path, format) = written;
    let unknown = |_| wrong_option("format", &format, "csv, tum and kitti");
    let format: TrajectoryFormat = format.parse().map_err(unknown)?;
    let range = source.span(part.0, part.1);
    said(py, source, &places, move |recording| {
        let topic = recording.topic(&topic)?;
        let new = NewFile::create(&path, |_| force)?;
        let count = topic.write_poses(range, format, &mut new.writer()?)?;
        new.finish()?;
        json(serde_json::to_string(&count))
    })
}

/// Some topics of a time range.
fn query(
    source: &Source,
    (topics, start, end): (Vec<String>, Option<Time>, Option<Time>),
) -> Result<Query> {
    Ok(Query {
        topics: source.topics(&topics)?,
        range: source.span(start, end),
    })
}
