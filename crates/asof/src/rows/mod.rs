//! Rows of Arrow batches as text: JSON, comma-separated values, and tables for people. Floats are exact, times are
//! nanoseconds, and characters that control a terminal are escaped.

mod columns;
mod escaped;
mod grid;
mod messages;
mod pretty;
mod values;
mod waiting;
mod writer;

pub use columns::{Column, Columns, wrapped, write_columns};
pub use escaped::{EscapeWriter, Escapes};
pub use messages::{MessageRows, MessageWriter};
pub(crate) use messages::{TIMES, csv_fields, data_cells, data_fields, head_cells, head_fields};
pub use pretty::write_pretty;
pub(crate) use values::spread;
pub use values::{Reader, json_field, optional, write, write_csv, write_json_text};
pub(crate) use waiting::{Cell, CellTexts, WaitingRows, number_field, text_field};
pub use writer::{RowForm, RowWriter};
