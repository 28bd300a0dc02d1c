//! Datasets for machine learning.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use asof::lerobot::{DatasetMap, Exported, LerobotError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;
use crate::interrupt::SIGNAL_POLL_INTERVAL;

impl From<LerobotError> for Failure {
    fn from(error: LerobotError) -> Self {
        match error {
            LerobotError::Source(error) => error.into(),
            LerobotError::Align(error) => error.into(),
            LerobotError::NoTopic { .. } => Failure::new("TopicError", error),
            LerobotError::NoPath { .. }
            | LerobotError::NoJoint { .. }
            | LerobotError::NotNumbers { .. }
            | LerobotError::Uneven { .. } => Failure::new("FieldError", error),
            LerobotError::Map(_) => Failure::new("MapError", error),
            LerobotError::NoPicture { .. }
            | LerobotError::Codec { .. }
            | LerobotError::Changed { .. } => Failure::new("DecodeError", error),
            error => Failure::new("WriteError", error),
        }
    }
}

/// Writes recordings as a dataset; returns what was written. The map is JSON.
#[pyfunction]
pub fn export_lerobot<'py>(
    py: Python<'py>,
    recordings: Vec<Vec<PathBuf>>,
    folder: PathBuf,
    map: &str,
    append: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let map = DatasetMap::from_json(map).map_err(Failure::from)?;
    let mut interrupt: Option<PyErr> = None;
    let made = py.detach(|| {
        let mut last = Instant::now();
        let write = if append {
            asof::lerobot::append
        } else {
            asof::lerobot::export
        };
        write(&recordings, &folder, &map, &mut |_| {
            if last.elapsed() < SIGNAL_POLL_INTERVAL {
                return ControlFlow::Continue(());
            }
            last = Instant::now();
            match Python::attach(|py| py.check_signals()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    interrupt = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
    });
    if let Some(interrupt) = interrupt {
        return Err(interrupt);
    }
    report(py, &made.map_err(Failure::from)?)
}

fn report<'py>(py: Python<'py>, made: &Exported) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("episodes", made.episodes)?;
    dict.set_item("frames", made.frames)?;
    dict.set_item("left_out", made.left_out)?;
    dict.set_item("cuts", made.cuts)?;
    dict.set_item("empty", made.empty)?;
    dict.set_item("unusable", made.unusable)?;
    dict.set_item("without_statistics", &made.unseen)?;
    let features = PyDict::new(py);
    for (name, kind) in &made.features {
        features.set_item(name, kind)?;
    }
    dict.set_item("features", features)?;
    Ok(dict)
}
