//! Rows as comma-separated values.

use std::io::Write;
use std::sync::Arc;

use asof::Source;
use asof::window::sync::AlignedRow;
use serde_json::Value;

use super::fields::{Fields, sample};
use super::lines::Shown;
use super::text::Text;
use super::{Item, Join, Sink, offset};
use crate::screen::Screen;
use asof::text::{counted, shown};

/// Writes one line per row, below a header.
///
/// The columns are those of the first channel of each topic; messages of another type are left empty and counted.
pub(super) struct Separated {
    out: Text,
    fields: Fields,
    /// The anchor, then the others.
    sides: Vec<Side>,
    line: Vec<u8>,
}

struct Side {
    topic: String,
    names: Vec<String>,
    last: Option<(Item, Vec<u8>)>,
    /// Messages with other columns.
    misfits: u64,
}

impl Separated {
    pub(super) fn start(
        mut out: Text,
        join: &Join,
        file: &dyn Source,
        mut fields: Fields,
    ) -> anyhow::Result<Self> {
        let topics = [&join.anchor].into_iter().chain(&join.with);
        let side = |topic: &String| Side {
            topic: topic.clone(),
            names: sample(file, topic)
                .map(|message| fields.names(&message).to_vec())
                .unwrap_or_default(),
            last: None,
            misfits: 0,
        };
        let sides: Vec<Side> = topics.map(side).collect();
        let mut header = b"time".to_vec();
        for (number, side) in sides.iter().enumerate() {
            if number > 0 {
                put_cell(&format!("{} offset", side.topic), &mut header);
            }
            for name in &side.names {
                put_cell(&format!("{}.{name}", side.topic), &mut header);
            }
        }
        header.push(b'\n');
        out.write_all(&header)?;
        Ok(Separated {
            out,
            fields,
            sides,
            line: Vec::new(),
        })
    }

    /// The cells of a message, each after a comma.
    fn put_message(&mut self, number: usize, item: &Item) {
        let side = &mut self.sides[number];
        if let Some((last, cells)) = &side.last
            && Arc::ptr_eq(last, item)
        {
            self.line.extend_from_slice(cells);
            return;
        }
        let mut cells = Vec::new();
        let fits = self.fields.names(item) == side.names;
        side.misfits += u64::from(!fits);
        if !fits || self.fields.csv(item, &mut cells).is_err() {
            cells = vec![b','; side.names.len()];
        }
        self.line.extend_from_slice(&cells);
        side.last = Some((Arc::clone(item), cells));
    }
}

impl Sink for Separated {
    fn write(&mut self, row: &AlignedRow<Item>) -> anyhow::Result<()> {
        let at = row.anchor.stamp;
        self.line.clear();
        write!(self.line, "{}", at.nanos())?;
        self.put_message(0, &row.anchor.value);
        for (number, found) in row.matches.iter().enumerate() {
            let number = number + 1;
            let one = match Shown::of(found, at, &mut self.fields) {
                Shown::Nothing => {
                    let cells = self.sides[number].names.len() + 1;
                    self.line.extend(std::iter::repeat_n(b',', cells));
                    continue;
                }
                Shown::Between(data) => {
                    let data: Value = serde_json::from_slice(&data)?;
                    self.line.extend_from_slice(b",0");
                    for name in &self.sides[number].names {
                        put_value(&data, name, &mut self.line);
                    }
                    continue;
                }
                Shown::One(message) => message,
            };
            write!(self.line, ",{}", offset(one.stamp, at))?;
            self.put_message(number, &one.value);
        }
        self.line.push(b'\n');
        Ok(self.out.write_all(&self.line)?)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(self.out.flush()?)
    }

    fn finish(self: Box<Self>, screen: &Screen) -> anyhow::Result<bool> {
        self.out.close()?;
        let mut has_damage = self.fields.tell(screen);
        for side in self.sides.iter().filter(|side| side.misfits > 0) {
            has_damage = true;
            screen.warning(format_args!(
                "{} on {} left empty: they have other fields than the topic's last message",
                counted(side.misfits, "message"),
                shown(&side.topic)
            ));
        }
        Ok(has_damage)
    }
}

/// The value at a path of a JSON message, as a cell.
fn put_value(data: &Value, path: &str, line: &mut Vec<u8>) {
    let found = path
        .split('.')
        .try_fold(data, |value, name| value.get(name));
    match found {
        None | Some(Value::Null) => line.push(b','),
        Some(Value::String(text)) => put_cell(text, line),
        Some(value) => put_cell(&value.to_string(), line),
    }
}

/// A cell after a comma, quoted where needed.
fn put_cell(text: &str, line: &mut Vec<u8>) {
    line.push(b',');
    if !text.contains([',', '"', '\n', '\r']) {
        line.extend_from_slice(text.as_bytes());
        return;
    }
    line.push(b'"');
    line.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    line.push(b'"');
}
