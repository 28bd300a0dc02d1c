//! Rows of Arrow batches as text: JSON, comma-separated values, and tables for people. Floats are exact, times are
//! nanoseconds, and characters that control a terminal are escaped.

mod csv;
mod escaped;
mod grid;
mod pretty;
mod values;
mod writer;

pub use csv::header;
pub use escaped::{Escaped, Escapes};
pub use grid::Grid;
pub use pretty::write_pretty;
pub use values::{Reader, write, write_csv, write_json_text};
pub use writer::{RowForm, RowWriter};
