//! Topics as lines: for pipes, and with `--plain`.

use std::io::{self, Write};

use asof::Stamp;
use asof::live::TopicRate;

use crate::screen::Palette;
use asof::rows::{Column, Columns};
use asof::text::{bytes, grouped, hertz, shown};

/// The names of the columns.
pub const HEAD: [&str; 7] = ["topic", "type", "Hz", "bandwidth", "jitter", "age", "drops"];

/// The widest column: one topic with a very long name must not push the numbers of all others out of sight.
pub const MAX_COLUMN_WIDTH: usize = 60;

/// The cells of a topic, in the order of [`HEAD`].
pub fn cells(rate: &TopicRate, now: Stamp) -> [String; 7] {
    let known = rate.messages > 1;
    let dash = || "-".to_owned();
    [
        shown(&rate.topic).into_owned(),
        if rate.type_name.is_empty() {
            dash()
        } else {
            shown(&rate.type_name).into_owned()
        },
        if known { hertz(rate.hertz) } else { dash() },
        if known {
            format!("{}/s", bytes(rate.bytes_per_second as u64))
        } else {
            dash()
        },
        if known { seconds(rate.jitter) } else { dash() },
        rate.age(now).map_or_else(dash, seconds),
        grouped(rate.lost),
    ]
}

/// `120 µs`, `3.4 ms`, `12.0 s`, `3 min`
fn seconds(seconds: f64) -> String {
    if seconds < 0.000_999_5 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 0.099_95 {
        format!("{:.1} ms", seconds * 1e3)
    } else if seconds < 0.9995 {
        format!("{:.0} ms", seconds * 1e3)
    } else if seconds < 120.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} min", seconds / 60.0)
    }
}

/// Prints topics repeatedly, with a header whenever there are new ones.
pub struct Plain {
    palette: Palette,
    known: Vec<String>,
    columns: Columns,
}

impl Plain {
    pub fn new(palette: Palette) -> Self {
        let column = |(place, name)| match place {
            0 | 1 => (name, Column::LEFT),
            _ => (name, Column::RIGHT),
        };
        Plain {
            palette,
            known: Vec::new(),
            columns: Columns::new(HEAD.into_iter().enumerate().map(column), MAX_COLUMN_WIDTH),
        }
    }

    pub fn print(
        &mut self,
        out: &mut impl Write,
        rates: &[TopicRate],
        now: Stamp,
    ) -> io::Result<()> {
        let rows: Vec<_> = rates.iter().map(|rate| cells(rate, now)).collect();
        self.columns.measure(&rows);
        let names: Vec<_> = rates.iter().map(|rate| rate.topic.clone()).collect();
        if names != self.known {
            self.known = names;
            self.columns.write_names(out, &self.palette.title)?;
        }
        rows.iter()
            .try_for_each(|row| self.columns.write(out, row).map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_the_unit_that_tells_something() {
        let texts = [0.0, 0.000_12, 0.003_4, 0.25, 12.0, 180.0].map(seconds);
        assert_eq!(
            texts,
            ["0 µs", "120 µs", "3.4 ms", "250 ms", "12.0 s", "3 min"]
        );
    }

    fn rate(topic: &str) -> TopicRate {
        TopicRate {
            topic: topic.to_owned(),
            type_name: String::new(),
            messages: 9,
            bytes: 900,
            hertz: 10.0,
            bytes_per_second: 1000.0,
            jitter: 0.001,
            last: Some(Stamp::from_nanos(0)),
            lost: 2,
            stamps: asof::live::StampHealth::default(),
        }
    }

    #[test]
    fn a_very_long_name_makes_its_own_line_long_and_no_other() {
        let mut plain = Plain::new(Palette::plain());
        let mut out = Vec::new();
        let rates = [rate("/a"), rate(&"/long".repeat(1000))];
        let now = Stamp::from_nanos(50_000_000);
        plain.print(&mut out, &rates, now).expect("written");
        let text = String::from_utf8(out).expect("text");
        let lengths: Vec<_> = text.lines().map(str::len).collect();
        assert!(lengths[1] < 130 && lengths[2] > 5_000, "{lengths:?}");
    }

    #[test]
    fn names_stand_above_when_topics_are_new() {
        let mut plain = Plain::new(Palette::plain());
        let mut out = Vec::new();
        let now = Stamp::from_nanos(50_000_000);
        for _ in 0..2 {
            plain.print(&mut out, &[rate("/a")], now).expect("written");
        }
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            [
                "/a", "-", "10.0", "1.0", "kB/s", "1.0", "ms", "50.0", "ms", "2"
            ]
        );
    }
}
