//! A row of columns as comma-separated values: structs are spread over columns, lists are JSON.

use crate::columns::Columns;
use crate::layout::{Group, Node, Shape};

impl Group {
    /// The names of the columns that this struct is spread over.
    pub fn csv_names(&self, prefix: &str, shown: Option<&[usize]>, out: &mut Vec<String>) {
        for (_, node) in self.chosen(shown) {
            let name = if prefix.is_empty() {
                node.name.clone()
            } else {
                format!("{prefix}.{}", node.name)
            };
            match &node.shape {
                Shape::Struct(group) => group.csv_names(&name, None, out),
                _ => out.push(name),
            }
        }
    }

    /// Writes the values of a row, each after a comma.
    pub fn csv_row(
        &self,
        columns: &Columns,
        row: Option<usize>,
        shown: Option<&[usize]>,
        out: &mut Vec<u8>,
    ) {
        for (_, node) in self.chosen(shown) {
            let here = row.filter(|&row| !node.is_absent(columns, row));
            if let Shape::Struct(group) = &node.shape {
                group.csv_row(columns, here, None, out);
                continue;
            }
            out.push(b',');
            if let Some(row) = here {
                node.csv_value(columns, row, out);
            }
        }
    }

    /// The fields that are laid out and shown, with their positions.
    pub fn chosen<'a>(
        &'a self,
        shown: Option<&'a [usize]>,
    ) -> impl Iterator<Item = (usize, &'a Node)> {
        self.fields
            .iter()
            .enumerate()
            .filter(move |(at, _)| shown.is_none_or(|shown| shown.contains(at)))
            .filter_map(|(at, node)| Some((at, node.as_ref()?)))
    }
}

impl Node {
    fn csv_value(&self, columns: &Columns, row: usize, out: &mut Vec<u8>) {
        match &self.shape {
            Shape::Text(column) => {
                let text = String::from_utf8_lossy(columns.texts[*column].get(row));
                quote(text.as_bytes(), out);
            }
            Shape::List(..) | Shape::Array(..) | Shape::Map(..) | Shape::Json(_) => {
                let mut text = Vec::new();
                self.print(columns, row, &mut text);
                quote(&text, out);
            }
            _ => {
                let mut text = Vec::new();
                self.print(columns, row, &mut text);
                // Names and base64 need no quotes here.
                let bare = text
                    .strip_prefix(b"\"")
                    .and_then(|text| text.strip_suffix(b"\""))
                    .unwrap_or(&text);
                out.extend_from_slice(bare);
            }
        }
    }
}

/// RFC 4180: quotes where needed, and quotes within doubled.
fn quote(text: &[u8], out: &mut Vec<u8>) {
    let is_special = |byte: &u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    if !text.iter().any(is_special) {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for &byte in text {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}
