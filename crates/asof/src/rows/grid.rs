//! Rows as a table for people.

use std::io::{self, Write};

use arrow_array::{Array, RecordBatch};
use arrow_schema::{Field, SchemaRef};
use unicode_width::UnicodeWidthStr;

use super::columns::{Column, Columns, Cut, shortened};
use super::values::{Reader, write};
use crate::text::{counted, shown};

/// How many rows determine the widths of the columns.
const MEASURED_ROWS: usize = 1000;

/// Writes a table whose columns are as wide as their first rows. Only these rows are held.
pub(super) struct Grid<W: Write> {
    out: W,
    columns: Columns,
    /// The most characters of a cell.
    room: usize,
    /// The first rows, until the widths are known.
    waiting: Option<Vec<Vec<String>>>,
    rows: u64,
}

impl<W: Write> Grid<W> {
    /// A table of these columns, with cells of at most so many characters.
    pub(super) fn new(out: W, schema: &SchemaRef, room: usize) -> Self {
        let column = |field: &Field| {
            if field.data_type().is_numeric() {
                Column::RIGHT
            } else {
                Column::LEFT
            }
        };
        let fields = schema.fields().iter();
        let columns = fields.map(|field| (shown(field.name()), column(field)));
        Grid {
            out,
            columns: Columns::new(columns, usize::MAX).with_left_names(),
            room,
            waiting: Some(Vec::new()),
            rows: 0,
        }
    }

    /// Adds rows.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        for row in 0..batch.num_rows() {
            let columns = batch.columns().iter();
            let cells: Vec<String> = columns.map(|column| self.cell(column, row)).collect();
            self.rows += 1;
            let Some(waiting) = &mut self.waiting else {
                self.columns.write(&mut self.out, &cells)?;
                continue;
            };
            self.columns.measure(std::slice::from_ref(&cells));
            waiting.push(cells);
            if waiting.len() >= MEASURED_ROWS {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Writes what is left, and returns what it was written to.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.settle()?;
        writeln!(self.out, "({})", counted(self.rows, "row"))?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes the names and the waiting rows, once.
    fn settle(&mut self) -> io::Result<()> {
        let Some(waiting) = self.waiting.take() else {
            return Ok(());
        };
        self.columns.write_names(&mut self.out, &"")?;
        self.columns.write_rule(&mut self.out)?;
        for cells in &waiting {
            self.columns.write(&mut self.out, cells)?;
        }
        Ok(())
    }

    fn cell(&self, column: &dyn Array, row: usize) -> String {
        let mut text = Vec::new();
        write(column, row, Reader::Person, &mut text);
        let text = String::from_utf8_lossy(&text);
        let text = shown(&text);
        if text.width() > self.room {
            return shortened(&text, self.room, Cut::End);
        }
        text.into_owned()
    }
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
            let held = grid.waiting.as_ref().map_or(0, Vec::len);
            assert!(held < MEASURED_ROWS);
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
