//! Joined rows as text: a line for people, an object or comma-separated values for each.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use asof_align::On;
use asof_core::{Source, Stamp};
use asof_window::sync::{AlignedRow, Match, Stamped};
use serde_json::Value;

use super::fields::{Fields, sample};
use super::text::Text;
use super::{Item, JoinedForm, JoinedOptions, Sink, nearer};
use crate::rows::{
    Cell, CellTexts, RowForm, RowWriter, WaitingRows, data_cells, data_fields, head_cells,
    head_fields, json_field, number_field, optional, text_field,
};
use crate::text::{counted, shown};
use crate::{Error, Progress};

/// Writes rows in one of the forms.
pub(super) struct TextRows {
    rows: RowWriter<Text>,
    waiting: WaitingRows,
    form: JoinedForm,
    on: On,
    fields: Fields,
    /// The anchor, then the others.
    sides: Vec<Side>,
}

struct Side {
    topic: String,
    /// The names of its columns, for comma-separated values.
    names: Vec<String>,
    /// A message in many rows is decoded once, for the first of them.
    last: Option<(Item, Content)>,
    /// Messages with other columns.
    misfits: u64,
}

/// What a row has of a message.
enum Content {
    Json(Vec<u8>),
    Error(String),
    Cells(CellTexts),
}

/// What a row has of a topic.
enum SideRow<'a> {
    Nothing,
    /// A message, whose content its side has.
    One(&'a Stamped<Item>),
    /// An interpolated message.
    Between(&'a Stamped<Item>, &'a Stamped<Item>, Content),
}

impl TextRows {
    pub(super) fn start(
        out: Text,
        form: JoinedForm,
        source: &dyn Source,
        options: JoinedOptions,
        mut fields: Fields,
    ) -> Result<Self, Error> {
        let side = |topic: String| Side {
            names: match form {
                JoinedForm::Csv => sample(source, &topic)
                    .map(|message| fields.names(&message).to_vec())
                    .unwrap_or_default(),
                _ => Vec::new(),
            },
            topic,
            last: None,
            misfits: 0,
        };
        let sides: Vec<Side> = options.topics.into_iter().map(side).collect();
        let (columns, row_form) = match form {
            JoinedForm::Csv => (csv_columns(&sides), RowForm::Csv),
            JoinedForm::Json => (object_columns(&sides, options.on), RowForm::Json),
            JoinedForm::Lines { room } => {
                let is_pretty = false;
                (line_columns(&sides), RowForm::Lines { room, is_pretty })
            }
        };
        let waiting = WaitingRows::new(columns);
        Ok(TextRows {
            rows: RowWriter::new(out, row_form, waiting.schema())?,
            waiting,
            form,
            on: options.on,
            fields,
            sides,
        })
    }

    /// What a row has of a topic; of two messages that cannot be interpolated, the nearer one.
    fn side_row<'a>(
        &mut self,
        number: usize,
        found: &'a Match<Item>,
        at: Stamp,
    ) -> Result<SideRow<'a>, Error> {
        let one = match found {
            Match::Missing(_) => return Ok(SideRow::Nothing),
            Match::Found(one) => one,
            Match::Between {
                before,
                after,
                fraction,
            } => {
                let mut json = Vec::new();
                let pair = (&*before.value, &*after.value);
                if self.fields.json_between(pair, *fraction, &mut json) {
                    let content = match self.form {
                        JoinedForm::Csv => cells_of(&json, &self.sides[number].names)?,
                        _ => Content::Json(json),
                    };
                    return Ok(SideRow::Between(before, after, content));
                }
                nearer(before, after, at)
            }
        };
        self.sides[number].decode(&one.value, self.form, &mut self.fields);
        Ok(SideRow::One(one))
    }
}

impl Sink for TextRows {
    fn write(&mut self, row: &AlignedRow<Item>) -> Result<(), Error> {
        self.sides[0].decode(&row.anchor.value, self.form, &mut self.fields);
        let others = row.matches.iter().enumerate();
        let others = others
            .map(|(place, found)| self.side_row(place + 1, found, row.anchor.stamp))
            .collect::<Result<Vec<_>, _>>()?;
        self.waiting.push(match self.form {
            JoinedForm::Csv => csv_cells(row, &others, &self.sides),
            JoinedForm::Json => object_cells(row, &others, &self.sides, self.on),
            JoinedForm::Lines { .. } => line_cells(row, &others, &self.sides),
        });
        if self.waiting.is_full() {
            self.waiting.write_to(&mut self.rows)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.waiting.write_to(&mut self.rows)?;
        Ok(self.rows.flush()?)
    }

    fn finish(mut self: Box<Self>, progress: &Progress) -> Result<bool, Error> {
        self.waiting.write_to(&mut self.rows)?;
        self.rows.finish()?.close()?;
        let mut has_damage = self.fields.tell(progress);
        for side in self.sides.iter().filter(|side| side.misfits > 0) {
            has_damage = true;
            progress.warning(format_args!(
                "{} on {} left empty: they have other fields than the topic's last message",
                counted(side.misfits, "message"),
                shown(&side.topic)
            ));
        }
        Ok(!has_damage)
    }
}

impl Side {
    /// Decodes a message, unless it was the last.
    fn decode(&mut self, item: &Item, form: JoinedForm, fields: &mut Fields) {
        if matches!(&self.last, Some((last, _)) if Arc::ptr_eq(last, item)) {
            return;
        }
        let content = if form == JoinedForm::Csv {
            let fits = fields.names(item) == self.names;
            self.misfits += u64::from(!fits);
            let texts = fits.then(|| fields.cells(item).ok()).flatten();
            Content::Cells(texts.unwrap_or_else(|| CellTexts::missing(self.names.len())))
        } else {
            let mut json = Vec::new();
            match fields.json(item, &mut json) {
                Ok(()) => Content::Json(json),
                Err(error) => Content::Error(error),
            }
        };
        self.last = Some((Arc::clone(item), content));
    }

    /// What a row has of the last message.
    fn content(&self) -> Option<&Content> {
        self.last.as_ref().map(|(_, content)| content)
    }
}

impl Content {
    /// The values of the columns.
    fn cells(&self) -> Vec<Cell<'_>> {
        match self {
            Content::Cells(texts) => texts.cells().collect(),
            Content::Json(_) | Content::Error(_) => Vec::new(),
        }
    }

    /// The values of [`data_fields`].
    fn data(&self) -> [Cell<'_>; 2] {
        match self {
            Content::Json(json) => data_cells(json, None),
            Content::Error(error) => data_cells(&[], Some(error)),
            Content::Cells(_) => [Cell::Null, Cell::Null],
        }
    }
}

fn csv_columns(sides: &[Side]) -> Vec<Field> {
    let mut columns = vec![number_field("time")];
    for (number, side) in sides.iter().enumerate() {
        if number > 0 {
            columns.push(number_field(format!("{} offset", side.topic)));
        }
        let names = side.names.iter();
        columns.extend(names.map(|name| text_field(format!("{}.{name}", side.topic))));
    }
    columns
}

fn csv_cells<'a>(
    row: &AlignedRow<Item>,
    others: &'a [SideRow<'_>],
    sides: &'a [Side],
) -> Vec<Cell<'a>> {
    let at = row.anchor.stamp;
    let mut cells = vec![Cell::Number(at.nanos())];
    cells.extend(sides[0].content().into_iter().flat_map(Content::cells));
    for (side, other) in sides[1..].iter().zip(others) {
        match other {
            SideRow::Nothing => cells.extend((0..=side.names.len()).map(|_| Cell::Null)),
            SideRow::One(one) => {
                cells.push(Cell::Number(one.stamp.since(at)));
                cells.extend(side.content().into_iter().flat_map(Content::cells));
            }
            SideRow::Between(_, _, content) => {
                cells.push(Cell::Number(0));
                cells.extend(content.cells());
            }
        }
    }
    cells
}

/// The members of a message; `extra` are those after its data.
fn object_fields(on: On, extra: impl IntoIterator<Item = Field>) -> Vec<Field> {
    let stamp = (on == On::Stamp).then(|| optional(number_field("stamp")));
    let fields = head_fields(None).into_iter().chain(data_fields());
    fields.chain(stamp).chain(extra).collect()
}

fn object_columns(sides: &[Side], on: On) -> Vec<Field> {
    let others = sides[1..].iter().map(|side| {
        let extra = [number_field("offset"), optional(json_field("between"))];
        let kind = DataType::Struct(object_fields(on, extra).into());
        Field::new(&side.topic, kind, true)
    });
    let with = DataType::Struct(others.collect());
    let early = optional(json_field("early"));
    object_fields(on, [Field::new("with", with, true), early])
}

fn object_cells<'a>(
    row: &'a AlignedRow<Item>,
    others: &'a [SideRow<'_>],
    sides: &'a [Side],
    on: On,
) -> Vec<Cell<'a>> {
    let at = row.anchor.stamp;
    let object = |one: &'a Stamped<Item>, side: &'a Side| {
        let message = &one.value;
        let times = [message.log_time, message.publish_time];
        let mut cells = head_cells(&message.channel, times, Some(message.sequence), None);
        cells.extend(side.content().into_iter().flat_map(Content::data));
        cells.extend((on == On::Stamp).then(|| Cell::Number(one.stamp.nanos())));
        cells
    };
    let with = sides[1..]
        .iter()
        .zip(others)
        .map(|(side, other)| match other {
            SideRow::Nothing => Cell::Null,
            SideRow::One(one) => {
                let mut cells = object(one, side);
                cells.push(Cell::Number(one.stamp.since(at)));
                Cell::Struct(cells)
            }
            SideRow::Between(before, after, content) => {
                let times = [row.anchor.value.log_time; 2];
                let mut cells = head_cells(&before.value.channel, times, None, None);
                cells.extend(content.data());
                cells.extend((on == On::Stamp).then_some(Cell::Null));
                cells.push(Cell::Number(0));
                let between = (before.stamp.nanos(), after.stamp.nanos());
                cells.push(Cell::text(format!("[{},{}]", between.0, between.1)));
                Cell::Struct(cells)
            }
        });
    let with = Cell::Struct(with.collect());
    let mut cells = object(&row.anchor, &sides[0]);
    cells.push(with);
    cells.push(Cell::of(row.is_early.then_some("true")));
    cells
}

fn line_columns(sides: &[Side]) -> Vec<Field> {
    let columns = ["time", "topic"].map(text_field).into_iter();
    let mut columns: Vec<Field> = columns.chain(data_fields()).collect();
    for side in &sides[1..] {
        columns.push(text_field(&side.topic));
        columns.extend(data_fields());
    }
    columns
}

fn line_cells<'a>(
    row: &'a AlignedRow<Item>,
    others: &'a [SideRow<'_>],
    sides: &'a [Side],
) -> Vec<Cell<'a>> {
    let at = row.anchor.stamp;
    let data = |content: Option<&'a Content>| match content {
        Some(Content::Error(error)) => [Cell::Null, Cell::text(format!("({error})"))],
        Some(content) => content.data(),
        None => [Cell::Null, Cell::Null],
    };
    let mut cells = vec![
        Cell::text(format!("{at:.9}")),
        Cell::text(&*row.anchor.value.channel.topic),
    ];
    cells.extend(data(sides[0].content()));
    for (side, other) in sides[1..].iter().zip(others) {
        let mut head = format!("|  {}  ", side.topic);
        let content = match other {
            SideRow::Nothing => {
                head.push('-');
                None
            }
            SideRow::One(one) => {
                let millis = one.stamp.since(at) as f64 / 1e6;
                // Writing to a text cannot fail.
                let _ = write!(head, "{millis:+.3}ms");
                side.content()
            }
            SideRow::Between(_, _, content) => {
                head.push_str("between");
                Some(content)
            }
        };
        cells.push(Cell::text(head));
        cells.extend(data(content));
    }
    cells
}

/// The values of an interpolated message, each at its path in the JSON.
fn cells_of(json: &[u8], names: &[String]) -> Result<Content, Error> {
    let json: Value = serde_json::from_slice(json).map_err(io::Error::from)?;
    let mut texts = CellTexts::default();
    for path in names {
        let mut names = path.split('.');
        match names.try_fold(&json, |value, name| value.get(name)) {
            None | Some(Value::Null) => texts.push(None),
            Some(Value::String(text)) => texts.push(Some(text)),
            Some(value) => texts.push(Some(&value.to_string())),
        }
    }
    Ok(Content::Cells(texts))
}
