//! Folders and buckets of recordings as one database.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{
    ArrayRef, RecordBatch, StringArray, TimestampNanosecondArray, UInt32Array, UInt64Array,
};
use asof::catalogue::{Found, IndexOptions, NamePattern, Search};
use asof::{Error, FleetOptions, TimeRange};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{Failure, Result};
use crate::interrupt::awaited;
use crate::source::Source;
use crate::sql::OwnTables;
use crate::table::Table;
use crate::time::{Time, from_items, range};
use crate::verbs::collected;

/// Recordings with their addresses, how many are gone, and how many cannot be read.
type FoundSources = (Vec<(String, Source)>, u64, u64);

/// A folder or bucket of recordings.
#[pyclass(frozen, module = "asof._asof")]
pub struct Fleet(asof::Fleet);

fn wrong(error: Error) -> Failure {
    match error {
        Error::Source(error) => error.into(),
        error => Failure::new("FleetError", error),
    }
}

from_items! {
    /// What a search asks for; what is not given matches everything.
    struct SearchArguments {
        topics: Vec<String>,
        since: Option<Time>,
        until: Option<Time>,
        robot: Vec<String>,
        site: Vec<String>,
        tags: BTreeMap<String, String>,
        predicate: Option<String>,
    }
}

impl SearchArguments {
    fn search(self) -> Result<Search> {
        let patterns = |names: Vec<String>| -> Vec<NamePattern> {
            names.iter().map(|name| NamePattern::new(name)).collect()
        };
        // A fleet has no start of its own for relative times.
        for time in [self.since, self.until].into_iter().flatten() {
            time.absolute()?;
        }
        let predicate = self.predicate.map(|text| text.parse()).transpose();
        let tags = self.tags.into_iter();
        Ok(Search {
            topics: patterns(self.topics),
            range: range(TimeRange::EMPTY, self.since, self.until),
            robots: patterns(self.robot),
            sites: patterns(self.site),
            tags: tags
                .map(|(name, value)| (name, NamePattern::new(&value)))
                .collect(),
            predicate: predicate.map_err(|error| Failure::new("QueryError", error))?,
            ..Search::default()
        })
    }
}

#[pymethods]
impl Fleet {
    /// The fleet of a place. Nothing is read yet.
    #[staticmethod]
    #[pyo3(signature = (place, catalogue = None))]
    fn open(place: PathBuf, catalogue: Option<PathBuf>) -> PyResult<Self> {
        let options = FleetOptions {
            catalogue,
            ..FleetOptions::default()
        };
        Ok(Fleet(asof::Fleet::new(place, options).map_err(wrong)?))
    }

    /// The address of its recordings.
    #[getter]
    fn place(&self) -> String {
        self.0.place()
    }

    /// Whether there is a catalogue.
    fn is_indexed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(|| self.0.is_indexed()).map_err(wrong)?)
    }

    /// Writes new and changed recordings to the catalogue; how many, and the warnings.
    fn index<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, Vec<String>)> {
        let (progress, warnings) = collected();
        let fleet = self.0.clone().with_progress(progress.clone());
        let index = move || fleet.index(&IndexOptions::default()).map_err(wrong);
        let run = awaited(py, index).inspect_err(|_| progress.cancel())?;
        let dict = PyDict::new(py);
        for (name, count) in [
            ("recordings", run.recordings),
            ("opened", run.opened),
            ("unchanged", run.unchanged),
            ("vanished", run.vanished),
            ("damaged", run.damaged),
            ("failed", run.failed),
        ] {
            dict.set_item(name, count)?;
        }
        let warnings = warnings.lock();
        Ok((dict, warnings.clone()))
    }

    /// The matching recordings, to be read, with their addresses, and how many are gone or cannot be read. Each is opened by its
    /// first reader.
    fn recordings(&self, py: Python<'_>, wanted: SearchArguments) -> PyResult<FoundSources> {
        let search = wanted.search()?;
        let found = py.detach(|| self.0.recordings(&search)).map_err(wrong)?;
        let recordings = found.recordings.into_iter().map(|one| {
            let place = one.recording.places().first();
            let place = place.map(|place| place.display().to_string());
            (place.unwrap_or_default(), Source::from(&one.recording))
        });
        Ok((recordings.collect(), found.gone, found.unreadable))
    }

    /// The matching recordings as a table.
    fn find(&self, py: Python<'_>, wanted: SearchArguments) -> PyResult<Table> {
        let search = wanted.search()?;
        let found = py.detach(|| self.0.find(&search)).map_err(wrong)?;
        let batch = rows(&self.0, &found).map_err(Failure::from)?;
        Ok(Table::made(batch.schema(), vec![batch]))
    }

    /// Tags a recording; a tag without a value is removed.
    fn tag(
        &self,
        py: Python<'_>,
        recording: &str,
        tags: BTreeMap<String, Option<String>>,
    ) -> PyResult<BTreeMap<String, String>> {
        let row = py.detach(|| self.0.tag(recording, tags)).map_err(wrong)?;
        Ok(row.tags)
    }

    /// The rows of an SQL query over all recordings.
    #[pyo3(signature = (query, tables = OwnTables::new()))]
    fn sql(&self, py: Python<'_>, query: &str, tables: OwnTables) -> PyResult<Table> {
        Ok(py.detach(|| crate::sql::of_fleet(&self.0, tables, query))?)
    }
}

/// The entries of recordings in the catalogue.
fn rows(
    fleet: &asof::Fleet,
    found: &Found,
) -> std::result::Result<RecordBatch, arrow_schema::ArrowError> {
    let all = &found.recordings;
    let times = |time: &dyn Fn(TimeRange) -> i64| -> ArrayRef {
        let known = all.iter().map(|one| {
            let range = one.row.range;
            (!range.is_empty()).then(|| time(range))
        });
        let times: TimestampNanosecondArray = known.collect();
        Arc::new(times.with_timezone("UTC"))
    };
    let texts = |text: &dyn Fn(usize) -> Option<String>| -> ArrayRef {
        let texts: StringArray = (0..all.len()).map(text).collect();
        Arc::new(texts)
    };
    let names = MapFieldNames {
        entry: "entries".to_owned(),
        key: "key".to_owned(),
        value: "value".to_owned(),
    };
    let mut tags = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    let mut topics = ListBuilder::new(StringBuilder::new());
    for one in all {
        for (key, value) in &one.row.tags {
            tags.keys().append_value(key);
            tags.values().append_value(value);
        }
        tags.append(true)?;
        for topic in one.topics.keys() {
            topics.values().append_value(topic);
        }
        topics.append(true);
    }
    let sizes: UInt64Array = all.iter().map(|one| Some(one.row.size)).collect();
    let messages: UInt64Array = all.iter().map(|one| one.row.messages).collect();
    let problems: UInt32Array = (all.iter())
        .map(|one| Some(one.row.problems.len() as u32))
        .collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "recording",
            texts(&|at| Some(all[at].row.recording.clone())),
        ),
        (
            "address",
            texts(&|at| Some(fleet.address_of(&all[at].row.recording))),
        ),
        ("format", texts(&|at| all[at].row.format.clone())),
        ("size", Arc::new(sizes)),
        ("start", times(&|range| range.start.nanos())),
        ("end", times(&|range| range.end.nanos())),
        ("messages", Arc::new(messages)),
        ("robot", texts(&|at| all[at].row.robot.clone())),
        ("site", texts(&|at| all[at].row.site.clone())),
        ("date", texts(&|at| all[at].row.date.clone())),
        ("tags", Arc::new(tags.finish())),
        ("topics", Arc::new(topics.finish())),
        ("problems", Arc::new(problems)),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
}
