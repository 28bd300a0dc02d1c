//! asof for Python: the extension module under the package `asof`.
//!
//! It is thin: recordings, tables and transforms are implemented in the crates of asof; here they get Python types. The
//! public API is in `python/asof`, which is built on this.

mod align;
mod errors;
mod fields;
mod fleet;
mod interrupt;
mod json;
mod lerobot;
mod live;
mod message;
mod ndarray;
mod picture;
mod robot;
mod source;
mod sql;
mod sync;
mod table;
mod tf;
mod time;
mod value;
mod verbs;
mod writer;

use pyo3::prelude::*;

/// The internals of `asof`. Not for direct use: its names change.
#[pymodule]
mod _asof {
    use std::process::ExitCode;

    use pyo3::prelude::*;

    #[pymodule_export]
    use super::fields::Fields;
    #[pymodule_export]
    use super::fleet::Fleet;
    #[pymodule_export]
    use super::lerobot::export_lerobot;
    #[pymodule_export]
    use super::live::{Robot, Window};
    #[pymodule_export]
    use super::message::{Message, Messages, message_of};
    #[pymodule_export]
    use super::picture::{bytes_at, picture, video_packet};
    #[pymodule_export]
    use super::robot::{Playback, Recorder, record, snapshots};
    #[pymodule_export]
    use super::source::Source;
    #[pymodule_export]
    use super::sync::Synchronized;
    #[pymodule_export]
    use super::table::{Batch, Batches, Table};
    #[pymodule_export]
    use super::tf::{Filled, Transform, TransformBuffer};
    #[pymodule_export]
    use super::verbs::{check, diff, doctor, expectations, export, recover, split, write_poses};
    #[pymodule_export]
    use super::writer::Writer;

    /// The version of asof.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name is Python's")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Nanoseconds since 1970, now.
    #[pyfunction]
    fn now() -> i64 {
        asof::Stamp::now().nanos()
    }

    /// A time as nanoseconds since 1970; a relative time needs a recording, and is rejected.
    #[pyfunction]
    fn nanos(time: super::time::Time) -> PyResult<i64> {
        Ok(time.absolute()?.nanos())
    }

    /// A duration in nanoseconds.
    #[pyfunction]
    fn length(span: super::time::Length) -> i64 {
        i64::try_from(span.0.as_nanos()).unwrap_or(i64::MAX)
    }

    /// How many decoders were made in this process: each parses a schema.
    #[pyfunction]
    fn decoders_made() -> u64 {
        asof::decode::decoders_made()
    }

    /// Runs the command `asof` with these arguments, and returns its exit code.
    #[pyfunction]
    fn main(py: Python<'_>, words: Vec<std::ffi::OsString>) -> u8 {
        let code = py.detach(|| asof_cli::main_with(words));
        // An exit code does not expose its number.
        let mut codes = 0..=u8::MAX;
        let found = codes.find(|number| ExitCode::from(*number) == code);
        found.unwrap_or(1)
    }
}
