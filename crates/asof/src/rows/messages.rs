//! Messages as rows of text.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use asof_core::{Channel, MessageRef, Stamp};
use asof_decode::{Projection, Survey};

use super::values::{json_field, optional};
use super::waiting::{Cell, WaitingRows, number_field, text_field, time_field};
use super::{RowForm, RowWriter};
use crate::Progress;
use crate::export::ReportingDecoders;
use crate::text::{age as age_text, counted};

/// What rows show of messages.
#[derive(Debug, Clone, Default)]
pub struct MessageRows {
    /// Only these fields.
    pub fields: Projection,
    /// Payloads as they are, without decoding them.
    pub is_raw: bool,
    /// The time from which ages are measured, where they are shown.
    pub as_of: Option<Stamp>,
    /// The types of channels without a schema: comma-separated values need them before the first message.
    pub survey: Survey,
}

/// Writes messages as rows: with [`RowForm::Json`] an object for each, with all that a message has; with
/// [`RowForm::Csv`] its times and its fields, structs spread over columns; and otherwise a line for people. What cannot be
/// decoded is counted; it has its reason instead of data, and no line among comma-separated values.
///
/// The columns of comma-separated values are those of the first message; messages with others are counted.
///
/// ```
/// use asof::rows::{MessageRows, MessageWriter, RowForm};
/// # let channel = asof::Channel { topic: "/x".into(), message_encoding: "json".into(), ..Default::default() };
/// # let at = asof::Stamp::from_nanos(1);
/// # let batch: asof::Batch = [asof::Message { channel: channel.into(), log_time: at, publish_time: at, sequence: 0, payload: "{\"v\":1}".into() }].into_iter().collect();
/// let mut rows = MessageWriter::new(Vec::new(), RowForm::Json, MessageRows::default());
/// for message in batch.iter() {
///     rows.write(message)?;
/// }
/// let (out, is_complete) = rows.finish(&asof::Progress::default())?;
/// assert!(is_complete && out.ends_with(b"\"encoding\":\"json\",\"data\":{\"v\":1}}\n"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct MessageWriter<W: Write> {
    /// The output, until a message shows the columns.
    out: Option<W>,
    rows: Option<(RowWriter<W>, WaitingRows)>,
    form: RowForm,
    is_raw: bool,
    as_of: Option<Stamp>,
    decoders: ReportingDecoders,
    data: Vec<u8>,
    /// The names of the columns of comma-separated values.
    names: Option<Vec<String>>,
    /// The channel of the last message, and whether its columns are those of the first.
    last: Option<(Arc<Channel>, bool)>,
    /// Messages with other columns.
    others: u64,
}

/// The times of every message.
pub(crate) const TIMES: [&str; 2] = ["log_time", "publish_time"];
/// Bytes of payload that a line for people shows.
const SHOWN_BYTES: usize = 16;

impl<W: Write> MessageWriter<W> {
    /// A writer of messages in a form.
    pub fn new(out: W, form: RowForm, options: MessageRows) -> Self {
        MessageWriter {
            out: Some(out),
            rows: None,
            form,
            is_raw: options.is_raw,
            as_of: options.as_of,
            decoders: ReportingDecoders::new(options.fields).with_survey(options.survey),
            data: Vec::new(),
            names: None,
            last: None,
            others: 0,
        }
    }

    /// Writes a message; it may wait for others until [`flush`](Self::flush).
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, message: MessageRef<'_>) -> io::Result<()> {
        match self.form {
            RowForm::Csv => self.push_cells(message)?,
            RowForm::Json => self.push_object(message)?,
            _ => self.push_line(message)?,
        }
        match &mut self.rows {
            Some((rows, waiting)) if waiting.is_full() => waiting.write_to(rows),
            _ => Ok(()),
        }
    }

    /// Writes what waits, and flushes the output.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.rows {
            Some((rows, waiting)) => {
                waiting.write_to(rows)?;
                rows.flush()
            }
            None => Ok(()),
        }
    }

    /// Ends the rows and reports what is missing; returns the output, and whether nothing is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self, progress: &Progress) -> io::Result<(W, bool)> {
        let out = match (self.rows, self.out) {
            (Some((mut rows, mut waiting)), _) => {
                waiting.write_to(&mut rows)?;
                rows.finish()?
            }
            (None, Some(mut out)) => {
                out.flush()?;
                out
            }
            (None, None) => return Err(io::Error::other("the first line could not be written")),
        };
        if self.others > 0 {
            progress.warning(format_args!(
                "{} left out: their type has other fields than that of the first; --json prints them all",
                counted(self.others, "message")
            ));
        }
        let is_damaged = self.decoders.tell(progress) || self.others > 0;
        Ok((out, !is_damaged))
    }

    /// Starts the rows, unless they have been.
    fn start(&mut self, fields: impl FnOnce(&Self) -> Vec<Field>) -> io::Result<()> {
        if self.out.is_none() {
            return Ok(());
        }
        let waiting = WaitingRows::new(fields(self));
        if let Some(out) = self.out.take() {
            let rows = RowWriter::new(out, self.form, waiting.schema())?;
            self.rows = Some((rows, waiting));
        }
        Ok(())
    }

    /// Adds the times and the fields of a message.
    fn push_cells(&mut self, message: MessageRef<'_>) -> io::Result<()> {
        if !self.has_same_columns(message) {
            self.others += 1;
            return Ok(());
        }
        let Ok(texts) = self.decoders.cells(message) else {
            return Ok(());
        };
        self.start(|this| csv_fields(&TIMES, this.names.iter().flatten()))?;
        if let Some((_, waiting)) = &mut self.rows {
            let times = [message.log_time, message.publish_time].map(Cell::Time);
            waiting.push(times.into_iter().chain(texts.cells()));
        }
        Ok(())
    }

    /// Whether a message fits the columns, which are those of the first one.
    fn has_same_columns(&mut self, message: MessageRef<'_>) -> bool {
        if let Some((channel, is_same)) = &self.last
            && Arc::ptr_eq(channel, message.channel)
        {
            return *is_same;
        }
        let names = self.decoders.cell_names(message.channel, message.payload);
        let is_same = match (names, &self.names) {
            // The decoder counts it.
            (Err(_), _) => true,
            (Ok(names), Some(first)) => names == *first,
            (Ok(names), None) => {
                self.names = Some(names);
                true
            }
        };
        self.last = Some((Arc::clone(message.channel), is_same));
        is_same
    }

    /// Adds all that a message has.
    fn push_object(&mut self, message: MessageRef<'_>) -> io::Result<()> {
        self.start(|this| {
            let mut fields = head_fields(this.as_of.map(|_| number_field("age")));
            if this.is_raw {
                fields.push(Field::new("data", DataType::Binary, true));
            } else {
                fields.extend(data_fields());
            }
            fields
        })?;
        let error = self.decode(message);
        let times = [message.log_time, message.publish_time];
        let age = self
            .as_of
            .map(|at| Cell::Number(at.since(message.log_time)));
        let mut cells = head_cells(message.channel, times, Some(message.sequence), age);
        if self.is_raw {
            cells.push(Cell::Bytes(message.payload));
        } else {
            cells.extend(data_cells(&self.data, error.as_deref()));
        }
        if let Some((_, waiting)) = &mut self.rows {
            waiting.push(cells);
        }
        Ok(())
    }

    /// Adds what a line for people shows of a message.
    fn push_line(&mut self, message: MessageRef<'_>) -> io::Result<()> {
        self.start(|this| {
            let age = this.as_of.map(|_| "age");
            let names = ["log_time"].into_iter().chain(age);
            let names = names.chain(["topic", "type"]).map(text_field);
            if this.is_raw {
                names.chain(["size", "data"].map(text_field)).collect()
            } else {
                names.chain(data_fields()).collect()
            }
        })?;
        let error = self.decode(message).map(|error| format!("({error})"));
        let channel = message.channel;
        let kind = Some(channel.type_name()).filter(|kind| !kind.is_empty());
        let age = self.as_of.map(|at| at.since(message.log_time));
        let mut cells = vec![Cell::text(format!("{:.9}", message.log_time))];
        cells.extend(age.map(|nanos| Cell::text(format!("{} old", age_text(nanos)))));
        cells.extend([&*channel.topic, kind.unwrap_or("-")].map(Cell::text));
        if self.is_raw {
            let shown = message.payload.iter().take(SHOWN_BYTES);
            let shown: Vec<String> = shown.map(|byte| format!("{byte:02x}")).collect();
            let is_cut = message.payload.len() > SHOWN_BYTES;
            let shown = shown.join(" ") + if is_cut { " …" } else { "" };
            let size = format!("{} B", message.payload.len());
            cells.extend([size, shown].map(Cell::text));
        } else {
            cells.extend(data_cells(&self.data, error.as_deref()));
        }
        if let Some((_, waiting)) = &mut self.rows {
            waiting.push(cells);
        }
        Ok(())
    }

    /// Decodes a message as JSON, unless payloads stay as they are; returns why that fails.
    fn decode(&mut self, message: MessageRef<'_>) -> Option<String> {
        self.data.clear();
        if self.is_raw {
            return None;
        }
        self.decoders.json(message, &mut self.data).err()
    }
}

/// Columns of comma-separated values: times, and the fields of messages.
pub(crate) fn csv_fields<'a>(
    times: &[&str],
    names: impl IntoIterator<Item = &'a String>,
) -> Vec<Field> {
    let times = times.iter().map(|&name| time_field(name));
    times.chain(names.into_iter().map(text_field)).collect()
}

/// What an object has before the data of a message.
pub(crate) fn head_fields(age: Option<Field>) -> Vec<Field> {
    let mut fields = vec![text_field("topic")];
    fields.extend(TIMES.map(time_field));
    fields.push(number_field("sequence"));
    fields.extend(age);
    fields.extend(["type", "encoding"].map(text_field));
    fields
}

/// The values of these columns.
pub(crate) fn head_cells<'a>(
    channel: &'a Channel,
    times: [Stamp; 2],
    sequence: Option<u32>,
    age: Option<Cell<'a>>,
) -> Vec<Cell<'a>> {
    let mut cells = vec![Cell::text(&*channel.topic)];
    cells.extend(times.map(Cell::Time));
    cells.push(sequence.map_or(Cell::Null, |number| Cell::Number(number.into())));
    cells.extend(age);
    cells.extend([channel.type_name(), &*channel.message_encoding].map(Cell::text));
    cells
}

/// The data of a message as JSON, or why it has none.
pub(crate) fn data_fields() -> [Field; 2] {
    [json_field("data"), optional(text_field("error"))]
}

/// The values of these columns.
pub(crate) fn data_cells<'a>(json: &'a [u8], error: Option<&'a str>) -> [Cell<'a>; 2] {
    let data = error.is_none().then(|| String::from_utf8_lossy(json));
    [Cell::of(data), Cell::of(error)]
}

#[cfg(test)]
mod tests {
    use asof_core::{Batch, Channel, Message};

    use super::*;

    const LINES: RowForm = RowForm::Lines {
        room: usize::MAX,
        is_pretty: false,
    };

    fn written(message: Message, form: RowForm, options: MessageRows) -> String {
        let batch: Batch = [message].into_iter().collect();
        let mut rows = MessageWriter::new(Vec::new(), form, options);
        for message in batch.iter() {
            rows.write(message).expect("memory");
        }
        let (out, _) = rows.finish(&Progress::default()).expect("memory");
        String::from_utf8(out).expect("text")
    }

    fn raw() -> MessageRows {
        MessageRows {
            is_raw: true,
            ..MessageRows::default()
        }
    }

    fn message() -> Message {
        Message {
            channel: Arc::new(Channel {
                topic: "/quote\"d".into(),
                message_encoding: "cdr".into(),
                ..Channel::default()
            }),
            log_time: Stamp::from_nanos(1_700_000_000_250_000_000),
            publish_time: Stamp::from_nanos(-1),
            sequence: 7,
            payload: vec![0xff, 0, 1, 2].into(),
        }
    }

    #[test]
    fn a_message_in_json_has_every_field_in_order() {
        let expected = r#"{"topic":"/quote\"d","log_time":1700000000250000000,"publish_time":-1,"sequence":7,"type":"","encoding":"cdr","data":"/wABAg=="}"#;
        let found = written(message(), RowForm::Json, raw());
        assert_eq!(found.trim_end(), expected);
    }

    #[test]
    fn a_message_for_people_starts_with_a_time_that_parses_back() {
        assert_eq!(
            written(message(), LINES, raw()),
            "2023-11-14T22:13:20.250000000Z  /quote\"d  -  4 B  ff 00 01 02\n"
        );
    }

    #[test]
    fn an_age_is_counted_from_the_time_that_was_asked_about() {
        let as_of = Some(message().log_time.plus_nanos(1_500_000_000));
        for (form, wanted) in [
            (RowForm::Json, "\"age\":1500000000,"),
            (LINES, "  1.500 s old  "),
        ] {
            let text = written(message(), form, MessageRows { as_of, ..raw() });
            assert!(text.contains(wanted), "{text}");
        }
    }

    #[test]
    fn comma_separated_values_tell_an_empty_text_from_a_missing_one_and_count_other_columns() {
        let json = |topic: &str, payload: &'static str| Message {
            channel: Arc::new(Channel {
                topic: topic.into(),
                message_encoding: "json".into(),
                ..Channel::default()
            }),
            payload: payload.into(),
            ..message()
        };
        let messages = [
            json("/t", r#"{"a":"","b":[1,2],"log_time":"x\"y"}"#),
            json("/t", r#"{"a":"p,q","b":[],"log_time":""}"#),
            json("/u", r#"{"other":1}"#),
        ];
        let mut rows = MessageWriter::new(Vec::new(), RowForm::Csv, MessageRows::default());
        for message in messages {
            let batch: Batch = [message].into_iter().collect();
            rows.write(batch.get(0).expect("a message"))
                .expect("memory");
        }
        let (out, is_complete) = rows.finish(&Progress::default()).expect("memory");
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("log_time,publish_time,a,b,log_time_"),
            "{text}"
        );
        let times = "1700000000250000000,-1";
        assert!(
            lines[1].starts_with(&format!("{times},\"\",\"[1,2]\",\"x\"\"y\"")),
            "{text}"
        );
        assert!(
            lines[2].starts_with(&format!("{times},\"p,q\",[],\"\"")),
            "{text}"
        );
        assert_eq!((lines.len(), is_complete), (3, false), "{text}");
        let none: MessageWriter<Vec<u8>> =
            MessageWriter::new(Vec::new(), RowForm::Csv, MessageRows::default());
        let (out, is_complete) = none.finish(&Progress::default()).expect("memory");
        assert!(out.is_empty() && is_complete);
    }

    #[test]
    fn what_cannot_be_decoded_has_its_reason_instead_of_data() {
        let json = written(message(), RowForm::Json, MessageRows::default());
        assert!(json.contains("\"data\":null,\"error\":\""), "{json}");
        let line = written(message(), LINES, MessageRows::default());
        assert!(line.contains("  -  (") && line.ends_with(")\n"), "{line}");
        let good = Message {
            channel: Arc::new(Channel {
                message_encoding: "json".into(),
                ..Channel::default()
            }),
            payload: "{\"a\":\"\u{9b}\",\"b\":[0.5,2.5]}".into(),
            ..message()
        };
        let json = written(good.clone(), RowForm::Json, MessageRows::default());
        assert!(
            json.ends_with("\"data\":{\"a\":\"\u{9b}\",\"b\":[0.5,2.5]}}\n"),
            "{json}"
        );
        let short = RowForm::Lines {
            room: 5,
            is_pretty: false,
        };
        let line = written(good.clone(), short, MessageRows::default());
        assert!(line.ends_with("  {\"a\": …\n"), "{line}");
        let pretty = RowForm::Lines {
            room: 5,
            is_pretty: true,
        };
        let lines = written(good, pretty, MessageRows::default());
        assert!(
            lines.ends_with("b: [0.5,2.5]\n") && !lines.contains('\u{9b}'),
            "{lines}"
        );
    }

    #[test]
    fn a_payload_of_nothing_is_an_empty_text() {
        let empty = Message {
            payload: vec![].into(),
            ..message()
        };
        assert!(written(empty, RowForm::Json, raw()).ends_with("\"data\":\"\"}\n"));
    }
}
