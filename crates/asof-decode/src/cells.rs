//! A row of columns as one text for each value: structs are spread over columns, lists are JSON.

use crate::columns::Columns;
use crate::layout::{Group, Node, Shape};

impl Group {
    /// The names of the columns that this struct is spread over.
    pub fn cell_names(&self, prefix: &str, shown: Option<&[usize]>, out: &mut Vec<String>) {
        for (_, node) in self.chosen(shown) {
            let name = if prefix.is_empty() {
                node.name.clone()
            } else {
                format!("{prefix}.{}", node.name)
            };
            match &node.shape {
                Shape::Struct(group) => group.cell_names(&name, None, out),
                _ => out.push(name),
            }
        }
    }

    /// Passes on the text of each value of a row; `None` where there is none.
    pub fn cells(
        &self,
        columns: &Columns,
        row: Option<usize>,
        shown: Option<&[usize]>,
        each: &mut dyn FnMut(Option<&str>),
    ) {
        for (_, node) in self.chosen(shown) {
            let here = row.filter(|&row| !node.is_absent(columns, row));
            match (&node.shape, here) {
                (Shape::Struct(group), here) => group.cells(columns, here, None, each),
                (_, Some(row)) => node.cell(columns, row, each),
                (_, None) => each(None),
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
    fn cell(&self, columns: &Columns, row: usize, each: &mut dyn FnMut(Option<&str>)) {
        let mut printed = Vec::new();
        let text = match &self.shape {
            Shape::Text(column) => columns.texts[*column].get(row),
            Shape::List(..) | Shape::Array(..) | Shape::Map(..) | Shape::Json(_) => {
                self.print(columns, row, &mut printed);
                &printed
            }
            _ => {
                self.print(columns, row, &mut printed);
                // Names, base64 and numbers that are not finite are in quotes only within JSON.
                let bare = printed.strip_prefix(b"\"");
                bare.and_then(|text| text.strip_suffix(b"\""))
                    .unwrap_or(&printed)
            }
        };
        each(Some(&String::from_utf8_lossy(text)));
    }
}
