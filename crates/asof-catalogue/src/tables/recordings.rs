//! The table of recordings.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow_array::builder::{
    Int64Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder, StructBuilder,
};
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef};
use asof_core::{Problem, Stamp, TimeRange};

use super::{
    RangeColumns, as_int, column, int, micros, micros_type, range_at, range_fields, text,
    wrong_type,
};

/// A recording.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordingRow {
    /// Its path from the root: the key of every table.
    pub recording: String,
    /// Its address when it was indexed.
    pub address: String,
    /// The server's ETag of this version; `None` on disk.
    pub e_tag: Option<String>,
    /// Size in bytes.
    pub size: u64,
    /// When it was last modified.
    pub modified: Option<Stamp>,
    /// `mcap`, `bag`, …; `None` if it could not be opened.
    pub format: Option<String>,
    /// From the first message to the last.
    pub range: TimeRange,
    /// The number of messages; `None` if only reading could count them.
    pub messages: Option<u64>,
    /// The robot that made it.
    pub robot: Option<String>,
    /// The site where it was made.
    pub site: Option<String>,
    /// The day, as spelled in the path or the metadata.
    pub date: Option<String>,
    /// All other labels, from users, the path and the metadata. See [`RecordingRow::settle`].
    pub tags: BTreeMap<String, String>,
    /// Labels that users gave it. They take precedence, and are kept when the file changes.
    pub labels: BTreeMap<String, String>,
    /// Names and values in its path.
    pub from_path: BTreeMap<String, String>,
    /// Names and values in its own metadata.
    pub from_file: BTreeMap<String, String>,
    /// The problems found in it.
    pub problems: Vec<ProblemRow>,
    /// When it was indexed; `None` if it could not be read for a transient reason.
    pub indexed: Option<Stamp>,
    /// When it was found missing.
    pub vanished: Option<Stamp>,
}

impl Default for RecordingRow {
    /// An empty row.
    fn default() -> Self {
        RecordingRow {
            recording: String::new(),
            address: String::new(),
            e_tag: None,
            size: 0,
            modified: None,
            format: None,
            range: TimeRange::EMPTY,
            messages: None,
            robot: None,
            site: None,
            date: None,
            tags: BTreeMap::new(),
            labels: BTreeMap::new(),
            from_path: BTreeMap::new(),
            from_file: BTreeMap::new(),
            problems: Vec::new(),
            indexed: None,
            vanished: None,
        }
    }
}

/// A problem found in a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemRow {
    /// The name of an [`asof_core::ProblemKind`], or `unreadable`, or `unread`.
    pub kind: String,
    /// Byte offset in the file.
    pub offset: Option<u64>,
    /// The topic that it concerns.
    pub topic: Option<String>,
    /// What happened, in a sentence.
    pub message: String,
}

impl ProblemRow {
    /// The kind of a recording that holds nothing readable.
    pub const UNREADABLE: &str = "unreadable";
    /// The kind of a recording that could not be fetched; the next run tries again.
    pub const UNREAD: &str = "unread";
}

impl From<&Problem> for ProblemRow {
    fn from(problem: &Problem) -> Self {
        ProblemRow {
            kind: problem.kind.name().to_owned(),
            offset: problem.offset,
            topic: problem.topic.clone(),
            message: problem.message.clone(),
        }
    }
}

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    let int = |name: &str, nullable| Field::new(name, DataType::Int64, nullable);
    let [start, end, start_ns, end_ns] = range_fields();
    Arc::new(Schema::new(vec![
        text("recording", false),
        text("address", false),
        text("etag", true),
        int("size", false),
        Field::new("modified", micros_type(), true),
        int("modified_ns", true),
        text("format", true),
        start,
        end,
        start_ns,
        end_ns,
        int("messages", true),
        text("robot", true),
        text("site", true),
        text("date", true),
        Field::new("tags", map_type(), false),
        Field::new("labels", map_type(), false),
        Field::new("from_path", map_type(), false),
        Field::new("from_file", map_type(), false),
        Field::new("problems", DataType::List(problem_field()), false),
        Field::new("indexed", micros_type(), true),
        Field::new("vanished", micros_type(), true),
    ]))
});

fn map_type() -> DataType {
    let entries = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Utf8, true),
    ]);
    let entries = Field::new("key_value", DataType::Struct(entries), false);
    DataType::Map(Arc::new(entries), false)
}

fn problem_fields() -> Fields {
    Fields::from(vec![
        Field::new("kind", DataType::Utf8, false),
        Field::new("offset", DataType::Int64, true),
        Field::new("topic", DataType::Utf8, true),
        Field::new("message", DataType::Utf8, false),
    ])
}

fn problem_field() -> Arc<Field> {
    Arc::new(Field::new(
        "element",
        DataType::Struct(problem_fields()),
        false,
    ))
}

type Texts = MapBuilder<StringBuilder, StringBuilder>;

fn texts() -> Texts {
    let names = MapFieldNames {
        entry: "key_value".to_owned(),
        key: "key".to_owned(),
        value: "value".to_owned(),
    };
    MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
}

impl RecordingRow {
    pub(crate) fn schema() -> SchemaRef {
        Arc::clone(&SCHEMA)
    }

    /// Rows as a table, sorted by robot, then start.
    pub(crate) fn batch(rows: &mut [RecordingRow]) -> Result<RecordBatch, ArrowError> {
        rows.sort_by(|a, b| {
            let key = |row: &RecordingRow| (row.robot.clone(), row.range.start);
            key(a)
                .cmp(&key(b))
                .then_with(|| a.recording.cmp(&b.recording))
        });
        let mut columns = Columns::new();
        for row in &*rows {
            columns.append(row)?;
        }
        columns.finish()
    }

    /// Derives robot, site, date and tags from labels, path and metadata, in this order of precedence.
    pub fn settle(&mut self) {
        let mut all = self.from_file.clone();
        all.extend(self.from_path.clone());
        all.extend(self.labels.clone());
        self.robot = all.remove("robot");
        self.site = all.remove("site");
        self.date = all.remove("date");
        self.tags = all;
    }

    /// All rows of a table.
    pub(crate) fn rows(batch: &RecordBatch) -> Result<Vec<RecordingRow>, ArrowError> {
        (0..batch.num_rows())
            .map(|row| Self::at(batch, row))
            .collect()
    }

    /// A row of a table.
    pub(crate) fn at(batch: &RecordBatch, row: usize) -> Result<RecordingRow, ArrowError> {
        let owned = |name| Ok::<_, ArrowError>(text(batch, name, row)?.map(str::to_owned));
        let count =
            |name| Ok::<_, ArrowError>(int(batch, name, row)?.and_then(|n| u64::try_from(n).ok()));
        Ok(RecordingRow {
            recording: owned("recording")?.unwrap_or_default(),
            address: owned("address")?.unwrap_or_default(),
            e_tag: owned("etag")?,
            size: count("size")?.unwrap_or_default(),
            modified: int(batch, "modified_ns", row)?.map(Stamp::from_nanos),
            format: owned("format")?,
            range: range_at(batch, row)?,
            messages: count("messages")?,
            robot: owned("robot")?,
            site: owned("site")?,
            date: owned("date")?,
            tags: map_at(batch, "tags", row)?,
            labels: map_at(batch, "labels", row)?,
            from_path: map_at(batch, "from_path", row)?,
            from_file: map_at(batch, "from_file", row)?,
            problems: problems_at(batch, row)?,
            indexed: micros_at(batch, "indexed", row)?,
            vanished: micros_at(batch, "vanished", row)?,
        })
    }
}

struct Columns {
    texts: [StringBuilder; 7],
    size: Int64Builder,
    modified: arrow_array::builder::TimestampMicrosecondBuilder,
    modified_ns: Int64Builder,
    range: RangeColumns,
    messages: Int64Builder,
    maps: [Texts; 4],
    problems: ListBuilder<StructBuilder>,
    indexed: arrow_array::builder::TimestampMicrosecondBuilder,
    vanished: arrow_array::builder::TimestampMicrosecondBuilder,
}

impl Columns {
    fn new() -> Self {
        let problem = StructBuilder::from_fields(problem_fields(), 0);
        Columns {
            texts: std::array::from_fn(|_| StringBuilder::new()),
            size: Int64Builder::new(),
            modified: micros(),
            modified_ns: Int64Builder::new(),
            range: RangeColumns::new(),
            messages: Int64Builder::new(),
            maps: std::array::from_fn(|_| texts()),
            problems: ListBuilder::new(problem).with_field(problem_field()),
            indexed: micros(),
            vanished: micros(),
        }
    }

    fn append(&mut self, row: &RecordingRow) -> Result<(), ArrowError> {
        let values = [
            Some(&row.recording),
            Some(&row.address),
            row.e_tag.as_ref(),
            row.format.as_ref(),
            row.robot.as_ref(),
            row.site.as_ref(),
            row.date.as_ref(),
        ];
        for (column, value) in self.texts.iter_mut().zip(values) {
            column.append_option(value);
        }
        self.size.append_option(as_int(Some(row.size)));
        let in_micros = |stamp: Option<Stamp>| stamp.map(|stamp| stamp.nanos().div_euclid(1_000));
        self.modified.append_option(in_micros(row.modified));
        self.modified_ns
            .append_option(row.modified.map(Stamp::nanos));
        self.range.append(row.range);
        self.messages.append_option(as_int(row.messages));
        let maps = [&row.tags, &row.labels, &row.from_path, &row.from_file];
        for (column, map) in self.maps.iter_mut().zip(maps) {
            append_map(column, map)?;
        }
        for problem in &row.problems {
            append_problem(self.problems.values(), problem);
        }
        self.problems.append(true);
        self.indexed.append_option(in_micros(row.indexed));
        self.vanished.append_option(in_micros(row.vanished));
        Ok(())
    }

    fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let [recording, address, e_tag, format, robot, site, date] = self
            .texts
            .each_mut()
            .map(|column| Arc::new(column.finish()));
        let [start, end, start_ns, end_ns] = self.range.finish();
        let [tags, labels, from_path, from_file] =
            self.maps.each_mut().map(|column| Arc::new(column.finish()));
        RecordBatch::try_new(
            RecordingRow::schema(),
            vec![
                recording,
                address,
                e_tag,
                Arc::new(self.size.finish()),
                Arc::new(self.modified.finish()),
                Arc::new(self.modified_ns.finish()),
                format,
                start,
                end,
                start_ns,
                end_ns,
                Arc::new(self.messages.finish()),
                robot,
                site,
                date,
                tags,
                labels,
                from_path,
                from_file,
                Arc::new(self.problems.finish()),
                Arc::new(self.indexed.finish()),
                Arc::new(self.vanished.finish()),
            ],
        )
    }
}

fn append_map(column: &mut Texts, map: &BTreeMap<String, String>) -> Result<(), ArrowError> {
    for (key, value) in map {
        column.keys().append_value(key);
        column.values().append_value(value);
    }
    column.append(true)
}

fn append_problem(column: &mut StructBuilder, problem: &ProblemRow) {
    let texts = [
        (0, Some(problem.kind.as_str())),
        (2, problem.topic.as_deref()),
        (3, Some(problem.message.as_str())),
    ];
    for (place, value) in texts {
        if let Some(field) = column.field_builder::<StringBuilder>(place) {
            field.append_option(value);
        }
    }
    if let Some(field) = column.field_builder::<Int64Builder>(1) {
        field.append_option(as_int(problem.offset));
    }
    column.append(true);
}

/// A map of a row.
pub(crate) fn map_at(
    batch: &RecordBatch,
    name: &str,
    row: usize,
) -> Result<BTreeMap<String, String>, ArrowError> {
    let wrong = || wrong_type(name, "maps of texts");
    let column = column(batch, name)?.as_map_opt().ok_or_else(wrong)?;
    if column.is_null(row) {
        return Ok(BTreeMap::new());
    }
    let entries = column.value(row);
    let keys = entries.column(0).as_string_opt::<i32>().ok_or_else(wrong)?;
    let values = entries.column(1).as_string_opt::<i32>().ok_or_else(wrong)?;
    let pair = |at: usize| (keys.value(at).to_owned(), values.value(at).to_owned());
    Ok((0..entries.len()).map(pair).collect())
}

fn problems_at(batch: &RecordBatch, row: usize) -> Result<Vec<ProblemRow>, ArrowError> {
    let wrong = || wrong_type("problems", "lists of problems");
    let column = column(batch, "problems")?
        .as_list_opt::<i32>()
        .ok_or_else(wrong)?;
    if column.is_null(row) {
        return Ok(Vec::new());
    }
    let list = column.value(row);
    let list = list.as_struct_opt().ok_or_else(wrong)?;
    let text = |name: &str| list.column_by_name(name)?.as_string_opt::<i32>();
    let (kind, topic, message) = (text("kind"), text("topic"), text("message"));
    let offset = list
        .column_by_name("offset")
        .and_then(|column| column.as_primitive_opt::<Int64Type>());
    let (Some(kind), Some(topic), Some(message), Some(offset)) = (kind, topic, message, offset)
    else {
        return Err(wrong());
    };
    let problem = |at: usize| ProblemRow {
        kind: kind.value(at).to_owned(),
        offset: offset.is_valid(at).then(|| offset.value(at).unsigned_abs()),
        topic: topic.is_valid(at).then(|| topic.value(at).to_owned()),
        message: message.value(at).to_owned(),
    };
    Ok((0..list.len()).map(problem).collect())
}

pub(crate) fn micros_at(
    batch: &RecordBatch,
    name: &str,
    row: usize,
) -> Result<Option<Stamp>, ArrowError> {
    let column = column(batch, name)?
        .as_primitive_opt::<arrow_array::types::TimestampMicrosecondType>()
        .ok_or_else(|| wrong_type(name, "times"))?;
    let stamp = |micros: i64| Stamp::from_nanos(micros.saturating_mul(1_000));
    Ok(column.is_valid(row).then(|| stamp(column.value(row))))
}
