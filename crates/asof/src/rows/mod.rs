//! Rows of Arrow batches as text: JSON, comma-separated values, and tables for people. Floats are exact, times are
//! nanoseconds, and characters that control a terminal are escaped.

mod csv;
mod grid;
mod values;

pub use csv::header;
pub use grid::Grid;
pub use values::{Reader, write, write_csv, write_json_text};
