//! Tables for people: aligned, and cut to the width of the terminal.

use std::fmt::Display;
use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A column of a table for people.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    name: &'static str,
    is_right: bool,
    /// Where its cells are cut, and the least width that they are cut to; `None` if they are never cut.
    cut: Option<(Cut, usize)>,
}

/// Where a text that is too long loses characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Middle,
    End,
}

impl Column {
    /// Of texts.
    pub const fn left(name: &'static str) -> Self {
        Column {
            name,
            is_right: false,
            cut: None,
        }
    }

    /// Of numbers.
    pub const fn right(name: &'static str) -> Self {
        Column {
            is_right: true,
            ..Column::left(name)
        }
    }

    /// The same for names, which lose their middle where the line is too long: start and end tell them apart.
    #[must_use]
    pub const fn cut_in_the_middle(self, least: usize) -> Self {
        Column {
            cut: Some((Cut::Middle, least)),
            ..self
        }
    }

    /// The same for contents, which lose their end.
    #[must_use]
    pub const fn cut_at_the_end(self, least: usize) -> Self {
        Column {
            cut: Some((Cut::End, least)),
            ..self
        }
    }
}

/// The widest column where there is no terminal. A longer cell widens only its own line.
const MAX_COLUMN_WIDTH: usize = 120;
/// The space before each line, and between two columns.
const GAP: usize = 2;

/// Writes a table under the names of its columns, within so many characters; returns whether something was cut. The title
/// is shown in a style: what it displays is written before it, and its alternate form after it.
///
/// # Errors
/// When it cannot be written.
pub fn write_columns(
    out: &mut impl Write,
    columns: &[Column],
    rows: &[Vec<String>],
    room: Option<usize>,
    title: &dyn Display,
) -> io::Result<bool> {
    let names: Vec<String> = columns
        .iter()
        .map(|column| column.name.to_owned())
        .collect();
    let widths = widths(columns, rows.iter().chain([&names]), room);
    write_row(out, columns, &names, &widths, room, title)?;
    let mut is_cut = false;
    for row in rows {
        is_cut |= write_row(out, columns, row, &widths, room, &"")?;
    }
    Ok(is_cut)
}

/// The widths of the columns: those of their cells, less where the line would be too long.
fn widths<'a>(
    columns: &[Column],
    rows: impl Iterator<Item = &'a Vec<String>>,
    room: Option<usize>,
) -> Vec<usize> {
    let most = room.unwrap_or(MAX_COLUMN_WIDTH);
    let mut widths = vec![0; columns.len()];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width()).min(most);
        }
    }
    let Some(room) = room else { return widths };
    let length = |widths: &[usize]| widths.iter().map(|width| GAP + width).sum::<usize>();
    while length(&widths) > room {
        // The widest gives way first, as long as it can.
        let widest = (0..columns.len())
            .filter(
                |&place| matches!(columns[place].cut, Some((_, least)) if widths[place] > least),
            )
            .max_by_key(|&place| widths[place]);
        match widest {
            Some(place) => widths[place] -= 1,
            None => break,
        }
    }
    widths
}

fn write_row(
    out: &mut impl Write,
    columns: &[Column],
    cells: &[String],
    widths: &[usize],
    room: Option<usize>,
    style: &dyn Display,
) -> io::Result<bool> {
    let mut is_cut = false;
    let mut line = String::new();
    for ((column, cell), &width) in columns.iter().zip(cells).zip(widths) {
        let short = match column.cut {
            Some((cut, _)) if room.is_some() && cell.width() > width => {
                is_cut = true;
                shortened(cell, width, cut)
            }
            _ => cell.clone(),
        };
        let padding = " ".repeat(width.saturating_sub(short.width()));
        line.extend([" ".repeat(GAP).as_str()]);
        if column.is_right {
            line.extend([padding.as_str(), &short]);
        } else {
            line.extend([short.as_str(), &padding]);
        }
    }
    let line = line.trim_end();
    writeln!(out, "{style}{line}{style:#}")?;
    Ok(is_cut)
}

/// A text without its middle or its end, in so many columns of the terminal.
fn shortened(text: &str, width: usize, cut: Cut) -> String {
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
    let mut end = taken(&mut text.chars().rev(), room - front);
    end.reverse();
    let dots = ['…'];
    start.iter().chain(&dots).chain(&end).collect()
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

    const NAMES: [Column; 3] = [
        Column::left("topic").cut_in_the_middle(12),
        Column::left("type").cut_in_the_middle(12),
        Column::right("messages"),
    ];

    fn table(columns: &[Column], rows: &[[&str; 3]], room: Option<usize>) -> (String, bool) {
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
