//! Datasets for machine learning.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use asof::lerobot::{DatasetMap, LerobotError};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::interrupt::SIGNAL_POLL_INTERVAL;
use crate::verbs::json;

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

/// Writes recordings as a dataset; returns what was written. It is JSON, and so is the map.
#[pyfunction]
pub fn export_lerobot(
    py: Python<'_>,
    recordings: Vec<Vec<PathBuf>>,
    folder: PathBuf,
    map: &str,
    append: bool,
) -> PyResult<String> {
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
    Ok(json(serde_json::to_string(&made.map_err(Failure::from)?))?)
}
