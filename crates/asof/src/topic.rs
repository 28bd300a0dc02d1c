//! One topic of a recording.

use std::sync::Arc;

use asof_core::{Batches, Follow, Query, SourceError, TimeRange};
use asof_decode::{
    FieldPath, Messages, Projection, Rows, RowsError, TopicBatches, TopicOptions, TopicTable,
    messages,
};
use serde::de::DeserializeOwned;

use crate::{Error, Recording, Table, several};

/// A topic of a recording, read on demand. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Topic {
    recording: Recording,
    name: String,
    range: TimeRange,
}

impl Topic {
    pub(crate) fn new(recording: Recording, name: &str) -> Self {
        Topic {
            recording,
            name: name.to_owned(),
            range: TimeRange::ALL,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The recording.
    pub(crate) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Only its messages of these log times.
    #[must_use]
    pub fn between(mut self, range: TimeRange) -> Self {
        self.range = range;
        self
    }

    /// Its messages as a table: `log_time`, `publish_time`, `stamp`, and a column for each field. Of several recordings, the rows are
    /// merged by log time, and the first column, `recording`, names that of each; a field of the name is `recording_` then.
    ///
    /// # Errors
    /// When its messages do not form one table, or none of them can be decoded.
    pub fn read(&self) -> Result<Table, Error> {
        self.table(None)
    }

    /// Only these columns: times, paths of fields such as `pose.pose.position` or `ranges[3]`, and, of several recordings,
    /// `recording`.
    ///
    /// # Errors
    /// As [`read`](Self::read), or when there is no such field.
    pub fn columns<T: AsRef<str>>(&self, columns: &[T]) -> Result<Table, Error> {
        let columns = columns.iter().map(|column| column.as_ref().to_owned());
        self.table(Some(columns.collect()))
    }

    fn table(&self, columns: Option<Vec<String>>) -> Result<Table, Error> {
        if !self.recording.parts().is_empty() {
            return several::of_topic(&self.recording, &self.name, columns.as_deref(), self.range);
        }
        let options = TopicOptions {
            columns,
            range: self.range,
            ..TopicOptions::default()
        };
        let table = TopicTable::new(&self.recording, &self.name, options)?;
        let recording = self.recording.clone();
        let schema = Arc::clone(table.schema());
        let open = move |rows| Ok(table.clone().with_rows(rows).read(&recording)?);
        Ok(Table::counting(schema, open, TopicBatches::failed))
    }

    /// All values of a numeric field, such as `pose.pose.position.x`.
    ///
    /// # Errors
    /// When there is no such field, or it is not a number.
    pub fn f64(&self, path: &str) -> Result<Vec<f64>, Error> {
        Ok(self.rows(path)?.f64(path)?)
    }

    /// All values of a text field.
    ///
    /// # Errors
    /// When there is no such field, or it is not a text.
    pub fn text(&self, path: &str) -> Result<Vec<Option<String>>, Error> {
        Ok(self.rows(path)?.text(path)?)
    }

    fn rows(&self, path: &str) -> Result<Rows, Error> {
        let fields = FieldPath::parse(path)?.fields();
        let found = Rows::read_with(
            &self.recording,
            &self.query(),
            &Projection::any_of([fields]),
        );
        match found {
            // The error of a path names what is there instead.
            Err(RowsError::Undecodable { .. }) => Ok(Rows::read_with(
                &self.recording,
                &self.query(),
                &Projection::All,
            )?),
            found => Ok(found?),
        }
    }

    /// Its messages as structs: types of [`decode::ros`](crate::decode::ros), or your own with serde.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    pub fn messages<T: DeserializeOwned>(&self) -> Result<Messages<T>, Error> {
        Ok(messages(&self.recording, &self.query())?)
    }

    /// Its messages as they were recorded, in batches.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    pub fn batches(&self) -> Result<Batches, SourceError> {
        self.recording.read(&self.query())
    }

    /// Its messages, then new ones as they arrive.
    ///
    /// # Errors
    /// When the recording cannot be read at all.
    pub fn follow(&self) -> Result<Box<dyn Follow>, SourceError> {
        self.recording.follow(&self.query())
    }

    fn query(&self) -> Query {
        Query::topics([self.name.as_str()]).between(self.range)
    }
}
