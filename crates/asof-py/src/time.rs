//! Times and durations from Python.

use std::time::Duration;

use asof::{Stamp, TimeRange, When};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

use crate::errors::Failure;

/// An instant: every form of the command line, integers of nanoseconds, floats of seconds, `datetime`, and the types of
/// numpy and pandas.
#[derive(Debug, Clone, Copy)]
pub struct Time(pub When);

impl Time {
    /// The instant, which must not be relative to a recording.
    pub fn absolute(self) -> Result<Stamp, Failure> {
        match self.0 {
            When::At(stamp) => Ok(stamp),
            relative => Err(Failure::new(
                "TimeError",
                format_args!(
                    "'{relative}' is relative to a recording, and there is none here; give an absolute time"
                ),
            )),
        }
    }
}

impl FromPyObject<'_, '_> for Time {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = given.cast::<PyString>() {
            let when: When = text.to_str()?.parse().map_err(Failure::from)?;
            return Ok(Time(when));
        }
        if given.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err("a bool is not a time"));
        }
        if given.is_instance_of::<PyInt>() {
            return Ok(Time(When::At(nanos(&given)?)));
        }
        if let Ok(seconds) = given.cast::<PyFloat>() {
            let seconds = seconds.value();
            if !seconds.is_finite() || seconds.abs() > MOST_SECONDS {
                let message = format_args!("{seconds} s is not a time between 1677 and 2262");
                return Err(Failure::new("TimeError", message).into());
            }
            return Ok(Time(When::At(Stamp::from_seconds(seconds))));
        }
        let helper = given.py().import("asof._time")?.getattr("nanos")?;
        Ok(Time(When::At(nanos(&helper.call1((given,))?)?)))
    }
}

/// The range of a 64-bit count of nanoseconds, in seconds.
const MOST_SECONDS: f64 = 9_223_372_036.0;

fn nanos(given: &Bound<'_, PyAny>) -> PyResult<Stamp> {
    let nanos: i64 = given.extract().map_err(|_| {
        let message = format_args!("{given} ns is not a time between 1677 and 2262");
        PyErr::from(Failure::new("TimeError", message))
    })?;
    Ok(Stamp::from_nanos(nanos))
}

/// A duration: `50ms`, seconds as a number, `timedelta`, and those of numpy and pandas.
#[derive(Debug, Clone, Copy)]
pub struct Length(pub Duration);

impl FromPyObject<'_, '_> for Length {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let refused = || {
            let shown: &Bound<'_, PyAny> = &given;
            let message = format_args!("{shown} is not a duration, such as '50ms' or 1.5");
            PyErr::from(Failure::new("TimeError", message))
        };
        if let Ok(text) = given.cast::<PyString>() {
            let text = text.to_str()?;
            let is_signed = text.trim_start().starts_with(['+', '-']);
            return match format!("+{}", text.trim()).parse() {
                Ok(When::AfterStart(nanos)) if !is_signed => {
                    Ok(Length(Duration::from_nanos(nanos.unsigned_abs())))
                }
                _ => Err(refused()),
            };
        }
        if given.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err("a bool is not a duration"));
        }
        if given.is_instance_of::<PyInt>() || given.is_instance_of::<PyFloat>() {
            let seconds: f64 = given.extract()?;
            let length = Duration::try_from_secs_f64(seconds);
            return length.map(Length).map_err(|_| refused());
        }
        let helper = given.py().import("asof._time")?.getattr("length")?;
        let nanos: i64 = helper.call1((given,))?.extract()?;
        let nanos = u64::try_from(nanos).map_err(|_| refused())?;
        Ok(Length(Duration::from_nanos(nanos)))
    }
}

/// The time range between two instants of a recording, both inclusive; open where one is not given.
pub fn range(recording: TimeRange, start: Option<Time>, end: Option<Time>) -> TimeRange {
    let instant = |time: Option<Time>, otherwise: Stamp| {
        time.map_or(otherwise, |time| time.0.resolve(recording))
    };
    TimeRange::new(instant(start, Stamp::MIN), instant(end, Stamp::MAX))
}

/// Options from a dict with a key for each field. The error of one is returned unchanged: it names what is wrong.
macro_rules! from_items {
    ($(#[$about:meta])* $seen:vis struct $type:ident { $($(#[$of:meta])* $field:ident: $kind:ty,)+ }) => {
        $(#[$about])*
        $seen struct $type {
            $($(#[$of])* $field: $kind,)+
        }

        impl FromPyObject<'_, '_> for $type {
            type Error = PyErr;

            fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
                Ok($type { $($field: given.get_item(stringify!($field))?.extract()?,)+ })
            }
        }
    };
}
pub(crate) use from_items;
