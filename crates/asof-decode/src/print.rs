//! A row of columns as JSON, exactly.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::columns::Columns;
use crate::layout::{Group, Node, Shape};
use crate::model::Scalar;

impl Group {
    /// Writes the row at `row` as a JSON object.
    pub fn print(&self, columns: &Columns, row: usize, out: &mut Vec<u8>) {
        self.print_shown(columns, row, None, out);
    }

    /// The same with only some of the fields.
    pub fn print_shown(
        &self,
        columns: &Columns,
        row: usize,
        shown: Option<&[usize]>,
        out: &mut Vec<u8>,
    ) {
        out.push(b'{');
        let mut is_first = true;
        for (_, node) in self.chosen(shown) {
            if node.is_absent(columns, row) {
                continue;
            }
            if !is_first {
                out.push(b',');
            }
            is_first = false;
            print_text(node.name.as_bytes(), out);
            out.push(b':');
            node.print(columns, row, out);
        }
        out.push(b'}');
    }
}

impl Node {
    pub fn is_absent(&self, columns: &Columns, row: usize) -> bool {
        self.presence
            .is_some_and(|column| columns.w1[column][row] == 0)
    }

    pub fn print(&self, columns: &Columns, row: usize, out: &mut Vec<u8>) {
        match &self.shape {
            Shape::Scalar(scalar, column) => print_scalar(columns, *scalar, *column, row, out),
            Shape::Enum(names, column) => {
                let number = number_at(columns, names.scalar(), *column, row);
                match names.name_of(number) {
                    Some(name) => print_text(name.as_bytes(), out),
                    None => print_display(number, out),
                }
            }
            Shape::Text(column) => print_text(columns.texts[*column].get(row), out),
            Shape::Json(column) => out.extend_from_slice(columns.texts[*column].get(row)),
            Shape::Blob(column) => print_blob(columns.blobs[*column].get(row), out),
            Shape::FixedBlob(size, column) => {
                let size = *size as usize;
                print_blob(&columns.w1[*column][row * size..(row + 1) * size], out);
            }
            Shape::Struct(group) => group.print(columns, row, out),
            Shape::List(ends, item) => {
                let ends = &columns.ends[*ends];
                item.print_run(columns, ends[row] as usize..ends[row + 1] as usize, out);
            }
            Shape::Array(size, item) => {
                let size = *size as usize;
                item.print_run(columns, row * size..(row + 1) * size, out);
            }
            Shape::Map(ends, key, value) => {
                let ends = &columns.ends[*ends];
                print_map(
                    columns,
                    ends[row] as usize..ends[row + 1] as usize,
                    key,
                    value,
                    out,
                );
            }
        }
    }

    fn print_run(&self, columns: &Columns, rows: std::ops::Range<usize>, out: &mut Vec<u8>) {
        out.push(b'[');
        for (at, row) in rows.enumerate() {
            if at > 0 {
                out.push(b',');
            }
            if self.is_absent(columns, row) {
                out.extend_from_slice(b"null");
            } else {
                self.print(columns, row, out);
            }
        }
        out.push(b']');
    }
}

/// A map is an object; of entries with the same key the last counts.
fn print_map(
    columns: &Columns,
    rows: std::ops::Range<usize>,
    key: &Node,
    value: &Node,
    out: &mut Vec<u8>,
) {
    let mut entries: Vec<(Vec<u8>, usize)> = Vec::with_capacity(rows.len());
    let mut places = rustc_hash::FxHashMap::default();
    for row in rows {
        let mut name = Vec::new();
        key.print(columns, row, &mut name);
        if !name.starts_with(b"\"") {
            name.insert(0, b'"');
            name.push(b'"');
        }
        if let Some(&place) = places.get(&name) {
            entries[place] = (name, row);
        } else {
            places.insert(name.clone(), entries.len());
            entries.push((name, row));
        }
    }
    out.push(b'{');
    for (at, (name, row)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&name);
        out.push(b':');
        value.print(columns, row, out);
    }
    out.push(b'}');
}

/// The number that an integer column holds at `row`.
pub(crate) fn number_at(columns: &Columns, scalar: Scalar, column: usize, row: usize) -> i64 {
    match scalar {
        Scalar::Bool | Scalar::Uint8 => i64::from(columns.w1[column][row]),
        Scalar::Int8 => i64::from(columns.w1[column][row] as i8),
        Scalar::Int16 => i64::from(columns.w2[column][row] as i16),
        Scalar::Uint16 => i64::from(columns.w2[column][row]),
        Scalar::Int32 => i64::from(columns.w4[column][row] as i32),
        Scalar::Uint32 | Scalar::Float32 => i64::from(columns.w4[column][row]),
        Scalar::Int64 | Scalar::Uint64 | Scalar::Float64 => columns.w8[column][row] as i64,
    }
}

fn print_scalar(columns: &Columns, scalar: Scalar, column: usize, row: usize, out: &mut Vec<u8>) {
    match scalar {
        Scalar::Bool => {
            let text: &[u8] = if columns.w1[column][row] == 0 {
                b"false"
            } else {
                b"true"
            };
            out.extend_from_slice(text);
        }
        Scalar::Uint64 => print_display(columns.w8[column][row], out),
        Scalar::Float32 => print_float32(f32::from_bits(columns.w4[column][row]), out),
        Scalar::Float64 => print_float64(f64::from_bits(columns.w8[column][row]), out),
        integer => print_display(number_at(columns, integer, column, row), out),
    }
}

fn print_display(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{value}");
}

pub(crate) fn print_float64(value: f64, out: &mut Vec<u8>) {
    if value.is_finite() {
        let _ = write!(out, "{value:?}");
    } else {
        print_unusual(value.is_nan(), value > 0.0, out);
    }
}

fn print_float32(value: f32, out: &mut Vec<u8>) {
    if value.is_finite() {
        // The shortest text that parses to exactly this float32.
        let _ = write!(out, "{value:?}");
    } else {
        print_unusual(value.is_nan(), value > 0.0, out);
    }
}

fn print_unusual(is_nan: bool, is_positive: bool, out: &mut Vec<u8>) {
    let text: &[u8] = match (is_nan, is_positive) {
        (true, _) => b"\"NaN\"",
        (_, true) => b"\"Infinity\"",
        _ => b"\"-Infinity\"",
    };
    out.extend_from_slice(text);
}

pub(crate) fn print_blob(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    out.push(b'"');
}

/// Text in quotes; invalid UTF-8 becomes U+FFFD.
pub(crate) fn print_text(text: &[u8], out: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(text);
    // Writing to a vector cannot fail, and text is always valid JSON.
    let _ = serde_json::to_writer(&mut *out, &*text);
}
