//! Recordings checked, as tests check code.

mod diff;
mod doctor;
mod expectations;
mod judge;
mod propose;
mod queries;
mod report;
mod survey;

pub use diff::Difference;
pub use doctor::{Diagnosis, DoctorOptions, UnknownMessages};
pub use expectations::{Bounds, Expectations, OfQuery, OfTopic, OfTransform, Path, Span};
pub use judge::{ExpectationFailure, Ruling, Verdict};
pub use report::{CheckReport, junit};

use crate::{Error, Recording};

impl Recording {
    /// Checks it against expectations of topics, transforms and queries.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub fn check(&self, expectations: &Expectations) -> Result<CheckReport, Error> {
        let (mut verdicts, undecoded) = judge::judge(expectations, self)?;
        verdicts.extend(queries::judge(&expectations.sql, self)?);
        Ok(CheckReport::new(self.name(), verdicts, undecoded))
    }

    /// Expectations that it and others like it meet: what was measured, with a margin.
    ///
    /// # Errors
    /// When it cannot be read at all.
    pub fn expectations(&self) -> Result<Expectations, Error> {
        propose::propose(self)
    }
}

impl Expectations {
    /// Reads them from TOML.
    ///
    /// # Errors
    /// When something in it is unknown or wrong, with its line. `name` is the name of the file.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| {
                text[..span.start.min(text.len())].matches('\n').count() + 1
            });
            let message = error.message().replace('\n', "; ");
            Error::Invalid(format!("{name}, line {line}: {message}"))
        })
    }

    /// Writes them as TOML.
    ///
    /// # Errors
    /// When a number cannot be written.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self)
            .map_err(|error| Error::Invalid(format!("cannot write expectations as TOML: {error}")))
    }
}
