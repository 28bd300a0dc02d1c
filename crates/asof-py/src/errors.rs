//! Errors of asof as Python exceptions, with the same messages.

use std::io::ErrorKind;

use asof::decode::{DecodeError, PathError, RowsError, TableError};
use asof::{SourceError, StampError};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// An exception that is not raised yet: the class in `asof.errors`, and the message. It can be created without Python.
#[derive(Debug)]
pub struct Failure {
    pub(crate) class: &'static str,
    pub(crate) message: String,
}

/// The result type of functions that Python calls.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// An exception of this class.
    pub fn new(class: &'static str, message: impl ToString) -> Self {
        Failure {
            class,
            message: message.to_string(),
        }
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| {
            if failure.class == "KeyboardInterrupt" {
                return PyKeyboardInterrupt::new_err(());
            }
            let class = py
                .import("asof.errors")
                .and_then(|errors| errors.getattr(failure.class))
                .and_then(|class| Ok(class.cast_into::<PyType>()?));
            match class {
                Ok(class) => PyErr::from_type(class, failure.message),
                Err(_) => PyRuntimeError::new_err(failure.message),
            }
        })
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        let kind = match &error {
            SourceError::Io { cause, .. } => Some(cause.kind()),
            _ => None,
        };
        let class = match kind {
            Some(ErrorKind::NotFound) => "NotFoundError",
            Some(ErrorKind::Interrupted) => "KeyboardInterrupt",
            _ => "SourceError",
        };
        Failure::new(class, error)
    }
}

impl From<RowsError> for Failure {
    fn from(error: RowsError) -> Self {
        match error {
            RowsError::NoSuchTopic { .. } => Failure::new("TopicError", error),
            RowsError::Path { .. } => Failure::new("FieldError", error),
            RowsError::Table(TableError::Source(source)) => source.into(),
            error => Failure::new("DecodeError", error),
        }
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Failure::new("FieldError", error)
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Failure::new("DecodeError", error)
    }
}

impl From<StampError> for Failure {
    fn from(error: StampError) -> Self {
        Failure::new("TimeError", error)
    }
}

impl From<arrow_schema::ArrowError> for Failure {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Failure::new("DecodeError", error)
    }
}
