//! Files of lines: comma-separated values, or a JSON object for each message.

use std::collections::HashMap;
use std::io::BufWriter;

use asof_core::MessageRef;
use asof_decode::ByChannel;

use super::decoders::ReportingDecoders;
use crate::Error;
use crate::files::{Appender, NewFile};
use crate::rows::{
    Cell, CellTexts, RowForm, RowWriter, TIMES, WaitingRows, csv_fields, json_field, spread,
};

/// One file for each topic; for comma-separated values, one for each set of columns of a topic.
pub struct LineFiles<Start> {
    is_csv: bool,
    times: [bool; 2],
    decoders: ReportingDecoders,
    start: Start,
    files: Vec<LineFile>,
    places: ByChannel<Option<usize>>,
    /// The same by topic and, for comma-separated values, the names of the columns.
    known: HashMap<(String, Vec<String>), usize>,
    /// Files whose rows wait.
    waiting: Vec<usize>,
    object: Vec<u8>,
}

struct LineFile {
    new: NewFile,
    rows: RowWriter<BufWriter<Appender>>,
    waiting: WaitingRows,
}

impl LineFile {
    fn write_waiting(&mut self) -> Result<(), Error> {
        let written = self.waiting.write_to(&mut self.rows);
        written.map_err(|error| self.new.failed(error))
    }
}

impl<Start: FnMut(&str) -> Result<NewFile, Error>> LineFiles<Start> {
    /// `times` selects `log_time` and `publish_time`; `start` makes the file of a topic.
    pub fn new(is_csv: bool, times: [bool; 2], decoders: ReportingDecoders, start: Start) -> Self {
        LineFiles {
            is_csv,
            times,
            decoders,
            start,
            files: Vec::new(),
            places: ByChannel::default(),
            known: HashMap::new(),
            waiting: Vec::new(),
            object: Vec::new(),
        }
    }

    /// Adds messages; one that cannot be decoded is counted and skipped.
    pub fn write<'a>(
        &mut self,
        messages: impl Iterator<Item = MessageRef<'a>>,
    ) -> Result<(), Error> {
        for message in messages {
            self.push(message)?;
        }
        // There may be a file for each of thousands of topics: no rows wait for the next batch.
        for place in self.waiting.drain(..) {
            self.files[place].write_waiting()?;
        }
        Ok(())
    }

    fn push(&mut self, message: MessageRef<'_>) -> Result<(), Error> {
        self.object.clear();
        let texts = if self.is_csv {
            self.decoders.cells(message)
        } else {
            let decoded = self.decoders.json(message, &mut self.object);
            decoded.map(|()| CellTexts::default())
        };
        let Ok(texts) = texts else {
            return Ok(());
        };
        let place = self.place_of(message)?;
        let file = &mut self.files[place];
        if file.waiting.is_empty() {
            self.waiting.push(place);
        }
        let times = [message.log_time, message.publish_time].into_iter();
        let times = times.zip(self.times).filter(|(_, is_wanted)| *is_wanted);
        let times = times.map(|(time, _)| Cell::Time(time));
        let object = (!self.is_csv).then(|| Cell::text(String::from_utf8_lossy(&self.object)));
        file.waiting.push(times.chain(texts.cells()).chain(object));
        if file.waiting.is_full() {
            file.write_waiting()?;
        }
        Ok(())
    }

    /// Finishes all files; returns how many there are, and the decoders, for a report of what could not be decoded.
    pub fn finish(self) -> Result<(u64, ReportingDecoders), Error> {
        let count = self.files.len() as u64;
        for file in self.files {
            let written = file.rows.finish();
            written.map_err(|error| file.new.failed(error))?;
            file.new.finish()?;
        }
        Ok((count, self.decoders))
    }

    fn place_of(&mut self, message: MessageRef<'_>) -> Result<usize, Error> {
        let channel = message.channel;
        if let Some(place) = self.places.get(channel, || None) {
            return Ok(*place);
        }
        let names = if self.is_csv {
            let names = self.decoders.cell_names(channel, message.payload);
            names.unwrap_or_default()
        } else {
            Vec::new()
        };
        let key = (channel.topic.clone(), names);
        let place = if let Some(place) = self.known.get(&key) {
            *place
        } else {
            let times = TIMES.into_iter().zip(self.times);
            let times: Vec<&str> = times.filter_map(|(name, is)| is.then_some(name)).collect();
            let mut fields = csv_fields(&times, &key.1);
            let form = if self.is_csv {
                RowForm::Csv
            } else {
                fields.push(spread(json_field("data")));
                RowForm::Json
            };
            let new = (self.start)(&channel.topic)?;
            let waiting = WaitingRows::new(fields);
            self.files.push(LineFile {
                rows: RowWriter::new(new.appender(), form, waiting.schema())?,
                waiting,
                new,
            });
            self.known.insert(key, self.files.len() - 1);
            self.files.len() - 1
        };
        *self.places.get(channel, || None) = Some(place);
        Ok(place)
    }
}
