//! Rows as a table for people.

use std::io::{self, Write};

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::values::{Reader, write};
use crate::text::{counted, shown};

/// How many rows determine the widths of the columns.
const MEASURED_ROWS: usize = 1000;

/// Writes a table whose columns are as wide as their first rows. Only these rows are held.
pub struct Grid<W: Write> {
    out: W,
    names: Vec<String>,
    is_number: Vec<bool>,
    /// The most characters of a cell.
    room: usize,
    waiting: Vec<Vec<String>>,
    widths: Option<Vec<usize>>,
    rows: u64,
}

impl<W: Write> Grid<W> {
    /// A table of these columns, on lines of at most so many characters.
    pub fn new(out: W, schema: &SchemaRef, room: usize) -> Self {
        let fields = schema.fields().iter();
        Grid {
            out,
            room,
            names: fields
                .clone()
                .map(|field| shown(field.name()).into_owned())
                .collect(),
            is_number: fields.map(|field| field.data_type().is_numeric()).collect(),
            waiting: Vec::new(),
            widths: None,
            rows: 0,
        }
    }

    /// Adds rows.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        for row in 0..batch.num_rows() {
            let columns = batch.columns().iter();
            let cells: Vec<String> = columns.map(|column| self.cell(column, row)).collect();
            self.rows += 1;
            match &self.widths {
                Some(widths) => write_row(&mut self.out, &cells, widths, &self.is_number)?,
                None => self.waiting.push(cells),
            }
            if self.waiting.len() >= MEASURED_ROWS {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Writes what is left, and returns what it was written to.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        if self.widths.is_none() {
            self.settle()?;
        }
        writeln!(self.out, "({})", counted(self.rows, "row"))?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Chooses the widths, and writes the waiting rows.
    fn settle(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut widths: Vec<usize> = self.names.iter().map(|name| name.width()).collect();
        for cells in &waiting {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.width());
            }
        }
        let left = vec![false; widths.len()];
        write_row(&mut self.out, &self.names, &widths, &left)?;
        let lines: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        writeln!(self.out, "{}", lines.join("──"))?;
        for cells in &waiting {
            write_row(&mut self.out, cells, &widths, &self.is_number)?;
        }
        self.widths = Some(widths);
        Ok(())
    }

    fn cell(&self, column: &dyn Array, row: usize) -> String {
        let mut text = Vec::new();
        write(column, row, Reader::Person, &mut text);
        let text = String::from_utf8_lossy(&text);
        cut(&shown(&text), self.room)
    }
}

fn write_row(
    out: &mut impl Write,
    cells: &[String],
    widths: &[usize],
    is_number: &[bool],
) -> io::Result<()> {
    let mut line = String::new();
    for (place, cell) in cells.iter().enumerate() {
        if place > 0 {
            line.push_str("  ");
        }
        let room = " ".repeat(widths[place].saturating_sub(cell.width()));
        if is_number[place] {
            line.push_str(&room);
            line.push_str(cell);
        } else {
            line.push_str(cell);
            line.push_str(&room);
        }
    }
    writeln!(out, "{}", line.trim_end())
}

/// A cell truncated to the available space.
fn cut(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let mut width = 0;
    let mut kept = String::new();
    for letter in text.chars() {
        width += letter.width().unwrap_or(0);
        if width >= room {
            break;
        }
        kept.push(letter);
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn table(batches: &[RecordBatch], room: usize) -> String {
        let mut out = Vec::new();
        let mut grid = Grid::new(&mut out, &batches[0].schema(), room);
        for batch in batches {
            grid.write(batch).expect("memory");
        }
        grid.finish().expect("memory");
        String::from_utf8(out).expect("text")
    }

    fn rows(from: i64, texts: &[&str]) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(
            from..from + texts.len() as i64,
        ));
        let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).expect("a batch")
    }

    #[test]
    fn columns_stand_below_each_other_whatever_the_width_of_a_letter() {
        let found = table(&[rows(9, &["日本", "a"])], 40);
        assert_eq!(
            found,
            " n  text\n────────\n 9  日本\n10  a\n(2 rows)\n".replacen(" n", "n ", 1)
        );
    }

    #[test]
    fn a_long_cell_is_cut_and_commands_to_a_terminal_are_escaped() {
        let found = table(&[rows(1, &["abcdefghij", "\x1b[31m"])], 8);
        assert!(found.contains("abcdefg…\n"), "{found}");
        assert!(!found.contains('\x1b'), "{found}");
    }

    #[test]
    fn a_table_of_nothing_has_its_names() {
        assert_eq!(table(&[rows(1, &[])], 40), "n  text\n───────\n(0 rows)\n");
    }

    #[test]
    fn all_rows_are_written_and_few_are_held() {
        let texts = vec!["x"; 700];
        let batches: Vec<RecordBatch> = (0..4).map(|at| rows(at * 700, &texts)).collect();
        let mut out = Vec::new();
        let mut grid = Grid::new(&mut out, &batches[0].schema(), 40);
        for batch in &batches {
            grid.write(batch).expect("memory");
            assert!(grid.waiting.len() < MEASURED_ROWS);
        }
        grid.finish().expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.lines().count(), 2 + 2800 + 1);
        assert!(
            text.ends_with("(2,800 rows)\n"),
            "{}",
            &text[text.len() - 20..]
        );
    }
}
