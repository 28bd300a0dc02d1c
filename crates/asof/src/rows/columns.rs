//! Tables for people: aligned, and cut to the width of the terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A column of a table for people.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    is_right: bool,
    /// Where its cells are cut, and the least width that they are cut to; `None` if they are never cut.
    cut: Option<(Cut, usize)>,
}

/// Where a text that is too long loses characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Middle,
    End,
}

impl Column {
    /// Of texts.
    pub const LEFT: Column = Column {
        is_right: false,
        cut: None,
    };
    /// Of numbers.
    pub const RIGHT: Column = Column {
        is_right: true,
        cut: None,
    };

    /// The same for names, which lose their middle where the line is too long: start and end tell them apart.
    #[must_use]
    pub const fn cut_in_the_middle(self, least: usize) -> Self {
        let cut = Some((Cut::Middle, least));
        Column { cut, ..self }
    }

    /// The same for contents, which lose their end.
    #[must_use]
    pub const fn cut_at_the_end(self, least: usize) -> Self {
        let cut = Some((Cut::End, least));
        Column { cut, ..self }
    }
}

/// The widest column where there is no terminal. A longer cell widens only its own line.
const MAX_COLUMN_WIDTH: usize = 120;
/// The space before each line of a whole table, and between two columns.
const GAP: usize = 2;

/// The lines of a table for people: cells below each other under the names of their columns, as wide as those that were measured.
#[derive(Debug)]
pub struct Columns {
    names: Vec<String>,
    kinds: Vec<Column>,
    widths: Vec<usize>,
    /// No column becomes wider. A longer cell widens only its own line.
    most: usize,
    indent: usize,
    /// Whether the lines have to fit, and cells are cut.
    is_fitted: bool,
    /// Whether names of numbers stand left as well.
    has_left_names: bool,
}

impl Columns {
    /// Columns under these names, which are at most so wide.
    pub fn new<N: Into<String>>(
        columns: impl IntoIterator<Item = (N, Column)>,
        most: usize,
    ) -> Self {
        let columns = columns.into_iter();
        let (names, kinds): (Vec<String>, Vec<Column>) =
            columns.map(|(name, column)| (name.into(), column)).unzip();
        Columns {
            widths: names.iter().map(|name| name.width().min(most)).collect(),
            names,
            kinds,
            most,
            indent: 0,
            is_fitted: false,
            has_left_names: false,
        }
    }

    /// The same with all names at the left of their columns.
    pub(super) fn with_left_names(self) -> Self {
        Columns {
            has_left_names: true,
            ..self
        }
    }

    /// Widens the columns to the cells of these rows.
    pub fn measure(&mut self, rows: &[impl AsRef<[String]>]) {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row.as_ref()) {
                *width = (*width).max(cell.width().min(self.most));
            }
        }
    }

    /// Narrows the columns until a line has at most so many characters, as far as they can be cut.
    fn fit(&mut self, room: usize) {
        self.is_fitted = true;
        while self.widths.iter().map(|width| GAP + width).sum::<usize>() > room {
            let is_wide = |&place: &usize| matches!(self.kinds[place].cut, Some((_, least)) if self.widths[place] > least);
            // The widest gives way first, as long as it can.
            let widest = (0..self.kinds.len()).filter(is_wide);
            let Some(place) = widest.max_by_key(|&place| self.widths[place]) else {
                return;
            };
            self.widths[place] -= 1;
        }
    }

    /// Writes the names, in a style: what it displays is written before them, and its alternate form after them.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write_names(&self, out: &mut impl Write, style: &dyn Display) -> io::Result<()> {
        let is_right = |column: &Column| column.is_right && !self.has_left_names;
        let (line, _) = self.line(&self.names, is_right);
        writeln!(out, "{style}{line}{style:#}")
    }

    /// Writes a line below the names.
    pub(super) fn write_rule(&self, out: &mut impl Write) -> io::Result<()> {
        let lines: Vec<String> = self.widths.iter().map(|width| "─".repeat(*width)).collect();
        writeln!(out, "{}", lines.join(&"─".repeat(GAP)))
    }

    /// Writes the cells of a row; returns whether one was cut.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&self, out: &mut impl Write, cells: &[String]) -> io::Result<bool> {
        let (line, is_cut) = self.line(cells, |column| column.is_right);
        writeln!(out, "{line}")?;
        Ok(is_cut)
    }

    fn line(&self, cells: &[String], is_right: impl Fn(&Column) -> bool) -> (String, bool) {
        let (mut line, mut is_cut) = (" ".repeat(self.indent), false);
        for (place, ((column, cell), &width)) in
            self.kinds.iter().zip(cells).zip(&self.widths).enumerate()
        {
            if place > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            let short = match column.cut {
                Some((cut, _)) if self.is_fitted && cell.width() > width => {
                    is_cut = true;
                    Cow::Owned(shortened(cell, width, cut))
                }
                _ => Cow::Borrowed(cell.as_str()),
            };
            let padding = " ".repeat(width.saturating_sub(short.width()));
            if is_right(column) {
                line.extend([&*padding, &*short]);
            } else {
                line.extend([&*short, &*padding]);
            }
        }
        line.truncate(line.trim_end().len());
        (line, is_cut)
    }
}

/// Writes a whole table under the names of its columns, within so many characters; returns whether something was cut. The names are
/// in a style: see [`Columns::write_names`].
///
/// # Errors
/// When it cannot be written.
pub fn write_columns(
    out: &mut impl Write,
    columns: &[(&str, Column)],
    rows: &[Vec<String>],
    room: Option<usize>,
    style: &dyn Display,
) -> io::Result<bool> {
    let most = room.unwrap_or(MAX_COLUMN_WIDTH);
    let mut table = Columns::new(columns.iter().copied(), most);
    table.indent = GAP;
    table.measure(rows);
    if let Some(room) = room {
        table.fit(room);
    }
    table.write_names(out, style)?;
    rows.iter()
        .try_fold(false, |is_cut, row| Ok(table.write(out, row)? || is_cut))
}

/// A text without its middle or its end, in so many columns of the terminal.
pub(super) fn shortened(text: &str, width: usize, cut: Cut) -> String {
    let room = width.saturating_sub(1);
    let front = match cut {
        // The end of a name says more than its start.
        Cut::Middle => room / 3,
        Cut::End => room,
    };
    let taken = |letters: &mut dyn Iterator<Item = char>, room: usize| {
        let mut left = room;
        let fits = |letter: &char| {
            let width = letter.width().unwrap_or(0);
            let is_room = width <= left;
            left = left.saturating_sub(width);
            is_room
        };
        letters.take_while(fits).collect::<Vec<char>>()
    };
    let start = taken(&mut text.chars(), front);
    let mut end = match cut {
        Cut::Middle => taken(&mut text.chars().rev(), room - front),
        Cut::End => Vec::new(),
    };
    end.reverse();
    start.iter().chain(&['…']).chain(&end).collect()
}

/// A text over several lines of so many characters, the later ones indented: broken at spaces.
pub fn wrapped(text: &str, indent: usize, room: Option<usize>) -> String {
    let Some(room) = room.filter(|room| *room > indent + 20) else {
        return text.to_owned();
    };
    let mut lines = String::new();
    let mut at = indent;
    for (place, word) in text.split(' ').enumerate() {
        let width = word.width();
        if place > 0 && at + 1 + width > room {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            at = indent;
        } else if place > 0 {
            lines.push(' ');
            at += 1;
        }
        lines.push_str(word);
        at += width;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [(&str, Column); 3] = [
        ("topic", Column::LEFT.cut_in_the_middle(12)),
        ("type", Column::LEFT.cut_in_the_middle(12)),
        ("messages", Column::RIGHT),
    ];

    fn table(
        columns: &[(&str, Column)],
        rows: &[[&str; 3]],
        room: Option<usize>,
    ) -> (String, bool) {
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(ToString::to_string).collect())
            .collect();
        let mut out = Vec::new();
        let is_cut = write_columns(&mut out, columns, &rows, room, &"").expect("memory");
        (String::from_utf8(out).expect("text"), is_cut)
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let rows = [
            ["/odom", "nav_msgs/msg/Odometry", "1,000"],
            ["/é", "-", "2"],
        ];
        let wanted = "  topic  type                   messages\n  /odom  nav_msgs/msg/Odometry     1,000\n  /é     -                             2\n";
        for room in [None, Some(80), Some(40)] {
            assert_eq!(table(&NAMES, &rows, room), (wanted.to_owned(), false));
        }
    }

    #[test]
    fn no_line_is_longer_than_the_terminal_and_names_keep_both_ends() {
        let topic = "/robot1/camera/front/left/image_rect_color/compressed";
        let rows = [[topic, "geometry_msgs/msg/PoseWithCovarianceStamped", "12"]];
        for room in [80, 60, 41] {
            let (text, is_cut) = table(&NAMES, &rows, Some(room));
            assert!(is_cut);
            assert!(
                text.lines().all(|line| line.width() <= room),
                "{room}: {text}"
            );
            assert!(text.contains("/rob") && text.contains("pressed"), "{text}");
            assert!(text.contains("…") && text.contains("Stamped"), "{text}");
        }
        assert!(table(&NAMES, &rows, None).0.contains(topic));
    }

    #[test]
    fn contents_lose_their_end_and_wide_letters_count_twice() {
        assert_eq!(shortened("{\"x\":1.25}", 6, Cut::End), "{\"x\":…");
        assert_eq!(shortened("日本語の話題", 6, Cut::End).width(), 5);
        assert_eq!(shortened("abc", 1, Cut::Middle), "…");
        assert_eq!(shortened("abc", 0, Cut::Middle), "…");
    }

    #[test]
    fn a_long_sentence_goes_on_below_its_start() {
        let text = "written by a library with quite a long name";
        assert_eq!(
            wrapped(text, 4, Some(30)),
            "written by a library with\n    quite a long name"
        );
        assert_eq!(wrapped(text, 4, None), text);
    }
}
