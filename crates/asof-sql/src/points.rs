//! `points("/scan")`: a row for each point of a scan or a cloud.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof_core::{Channel, Query, Source, Stamp};
use asof_decode::{Archetype, Decoders, PackedField, PackedKind, Projection, Record, Scan};
use datafusion::arrow::array::{
    Array, ArrayRef, Float64Array, RecordBatch, StringArray, TimestampNanosecondArray, UInt32Array,
    new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::Expr;
use nalgebra::{Isometry3, Point3, Quaternion, Translation3, UnitQuaternion};

use crate::adapt::adapt;
use crate::assemble::{BATCH_ROWS, external};
use crate::database::Shared;
#[cfg(feature = "distributed")]
use crate::distributed::ViewKind;
use crate::labels;
use crate::pushdown::Pushdown;
use crate::recordings::Chosen;
use crate::topic::{LOG_TIME, RECORDING, STAMP, Slice, TopicTable};
use crate::view::{Part, View, ViewTable};

pub(crate) fn register(context: &SessionContext, shared: &Arc<Shared>) {
    context.register_udtf("points", Arc::new(Points(Arc::clone(shared))));
}

/// The columns before those of the points themselves.
const FRAME: &str = "frame_id";
const INDEX: &str = "index";
const OWN: [&str; 5] = [RECORDING, LOG_TIME, STAMP, FRAME, INDEX];

/// `points(topic)`, or `points(topic, 1000)` with at most this many points of each message.
#[derive(Debug)]
struct Points(Arc<Shared>);

impl TableFunctionImpl for Points {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let (topic, limit) = match args.exprs() {
            [topic] => (topic, None),
            [topic, limit] => (topic, Some(limit)),
            _ => return plan_err!("{FORM}"),
        };
        let Expr::Literal(ScalarValue::Utf8(Some(name)) | ScalarValue::Utf8View(Some(name)), _) =
            topic
        else {
            return plan_err!("{FORM}");
        };
        let limit = match limit {
            None => usize::MAX,
            Some(Expr::Literal(limit, _)) => match limit.cast_to(&DataType::UInt64)? {
                ScalarValue::UInt64(Some(limit)) if limit > 0 => limit as usize,
                _ => return plan_err!("{FORM}"),
            },
            Some(_) => return plan_err!("{FORM}"),
        };
        let topic = self.0.topic_of(name)?;
        let topic = TopicTable::new(&self.0, &topic, &mut |_| {})?;
        let columns = columns_of(&topic)?;
        let is_taken = |name: &str| columns.iter().any(|column| column.name == name);
        let labels = labels::fields_beside(&self.0, is_taken);
        Ok(Arc::new(ViewTable(PointsTable {
            schema: schema_of(&columns, &labels),
            labels: labels.iter().map(|label| label.name().clone()).collect(),
            columns: columns.into(),
            topic,
            limit,
        })))
    }
}

const FORM: &str = "points takes a topic of scans or clouds, and optionally the most points of each message: points(\"/scan\", 1000)";

/// A column of points: its name and type.
#[derive(Debug, Clone, PartialEq)]
struct PointColumn {
    /// The name in the cloud.
    field: String,
    name: String,
    data_type: DataType,
}

/// The columns of the points of a topic, from the first message of each recording.
fn columns_of(topic: &TopicTable) -> Result<Vec<PointColumn>> {
    let mut columns: Vec<PointColumn> = Vec::new();
    let (mut why, mut has_scans) = (None, false);
    for chosen in topic.chosen(&Pushdown::default(), &[], None)? {
        let recording = &topic.shared.opened(chosen.place).recording;
        let is_scans = has_only_scans(&**recording, &topic.topic);
        if is_scans && has_scans {
            // All scans have the same columns: of many recordings, only one is opened for them.
            continue;
        }
        let query = Query::topics([&topic.topic]);
        let mut decoders = Decoders::new(Projection::All);
        for batch in recording.read(&query).map_err(external)? {
            let batch = batch.map_err(external)?;
            let first = batch.iter().find_map(|message| {
                let message = message.to_message();
                let kind = Archetype::of(message.channel.type_name()).map(|kind| kind.name);
                if !matches!(kind, Some("LaserScan" | "PointCloud")) {
                    why = Some(format!(
                        "it has messages of {}",
                        message.channel.type_name()
                    ));
                    return None;
                }
                let record = decoders.meaning(&message).ok()?;
                match fields_of(&record) {
                    Ok(fields) => Some(fields),
                    Err(lacks) => {
                        why = Some(lacks);
                        None
                    }
                }
            });
            let Some(fields) = first else { continue };
            has_scans |= is_scans;
            for (field, data_type) in fields {
                if columns.iter().all(|known| known.field != field) {
                    columns.push(PointColumn {
                        name: free_name(&field, &columns),
                        field,
                        data_type,
                    });
                }
            }
            break;
        }
    }
    if columns.is_empty() {
        let why = why.unwrap_or_else(|| "it has no messages that can be decoded".to_owned());
        return plan_err!("{} has no points: {why}", topic.topic);
    }
    Ok(columns)
}

fn has_only_scans(recording: &dyn Source, topic: &str) -> bool {
    let summary = recording.summary();
    let mut channels = summary.channels.iter().map(|entry| &entry.channel);
    let is_scan = |channel: &Arc<Channel>| {
        let kind = Archetype::of(channel.type_name());
        kind.is_some_and(|kind| kind.name == "LaserScan")
    };
    channels.all(|channel| channel.topic != topic || is_scan(channel))
}

fn free_name(field: &str, known: &[PointColumn]) -> String {
    let mut name = field.to_owned();
    while OWN.contains(&name.as_str()) || known.iter().any(|one| one.name == name) {
        name.push('_');
    }
    name
}

fn fields_of(record: &Record) -> std::result::Result<Vec<(String, DataType)>, String> {
    let named = |name: &str, data_type: DataType| (name.to_owned(), data_type);
    if record.items("ranges").is_some() {
        Scan::of(record).map_err(|error| error.to_string())?;
        let names = ["x", "y", "z", "range", "angle", "intensity"];
        return Ok(names.map(|name| named(name, DataType::Float64)).into());
    }
    let fields = PackedField::all_of(record).map_err(|error| error.to_string())?;
    let all = fields.iter().map(|field| {
        let data_type = match field.kind {
            PackedKind::I8 => DataType::Int8,
            PackedKind::U8 => DataType::UInt8,
            PackedKind::I16 => DataType::Int16,
            PackedKind::U16 => DataType::UInt16,
            PackedKind::I32 => DataType::Int32,
            PackedKind::U32 => DataType::UInt32,
            PackedKind::F32 => DataType::Float32,
            PackedKind::F64 => DataType::Float64,
        };
        named(&field.name, data_type)
    });
    Ok(all.collect())
}

fn schema_of(columns: &[PointColumn], labels: &[Field]) -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let mut fields = vec![
        Field::new(RECORDING, DataType::Utf8, false),
        Field::new(LOG_TIME, time.clone(), false),
        Field::new(STAMP, time, true),
        Field::new(FRAME, DataType::Utf8, true),
        Field::new(INDEX, DataType::UInt32, false),
    ];
    let own = columns
        .iter()
        .map(|column| Field::new(&column.name, column.data_type.clone(), true));
    fields.extend(own);
    fields.extend(labels.iter().cloned());
    Arc::new(Schema::new(fields))
}

#[derive(Debug)]
struct PointsTable {
    schema: SchemaRef,
    columns: Arc<[PointColumn]>,
    topic: TopicTable,
    limit: usize,
    labels: Vec<String>,
}

impl View for PointsTable {
    type Part = PointSlice;

    const ORDER: Option<&'static str> = Some(LOG_TIME);

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.topic.shared
    }

    fn labels(&self) -> &[String] {
        &self.labels
    }

    fn topics<'a>(&'a self, _: &'a [Expr]) -> Option<Vec<&'a str>> {
        Some(vec![&self.topic.topic])
    }

    fn parts(&self, chosen: Vec<Chosen>, wanted: &Pushdown) -> Vec<PointSlice> {
        let slices = self.topic.slices(&chosen, wanted).into_iter();
        let part = |slice| PointSlice {
            schema: Arc::clone(&self.schema),
            columns: Arc::clone(&self.columns),
            shared: Arc::clone(&self.topic.shared),
            topic: self.topic.topic.clone(),
            slice,
            limit: self.limit,
        };
        slices.map(part).collect()
    }

    #[cfg(feature = "distributed")]
    fn described(&self, _: &[Expr]) -> ViewKind {
        ViewKind::Points {
            schema: Arc::clone(&self.schema),
            fields: self.columns.iter().map(|one| one.field.clone()).collect(),
            topic: self.topic.topic.clone(),
            limit: self.limit,
        }
    }
}

/// The points of a slice of time.
#[derive(Debug)]
pub(crate) struct PointSlice {
    schema: SchemaRef,
    columns: Arc<[PointColumn]>,
    shared: Arc<Shared>,
    topic: String,
    slice: Slice,
    /// The most points of each message.
    limit: usize,
}

#[cfg(feature = "distributed")]
impl PointSlice {
    /// The points of another recording, under the columns of `schema` that follow those of every point.
    pub fn of(
        schema: &SchemaRef,
        fields: &[String],
        topic: &str,
        limit: usize,
        shared: Arc<Shared>,
        slice: Slice,
    ) -> Self {
        let columns = schema.fields().iter().skip(OWN.len()).zip(fields);
        let columns = columns.map(|(column, field)| PointColumn {
            field: field.clone(),
            name: column.name().clone(),
            data_type: column.data_type().clone(),
        });
        PointSlice {
            columns: columns.collect(),
            schema: Arc::clone(schema),
            topic: topic.to_owned(),
            shared,
            slice,
            limit,
        }
    }
}

impl Part for PointSlice {
    fn run(&self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()> {
        let recording = self.shared.opened(self.slice.recording);
        let query = Query::topics([&self.topic]).between(self.slice.range);
        let mut decoders = Decoders::new(Projection::All);
        let mut pending = Pending::new(&self.columns);
        for batch in recording.recording.read(&query).map_err(external)? {
            let batch = batch.map_err(external)?;
            self.shared
                .read
                .fetch_add(batch.len() as u64, Ordering::Relaxed);
            for message in batch.iter() {
                let message = message.to_message();
                let record = decoders
                    .meaning(&message)
                    .map_err(|error| error.to_string());
                let added =
                    record.and_then(|record| pending.add(&record, message.log_time, self.limit));
                if let Err(reason) = added {
                    let first = || Some((message.log_time, reason));
                    self.shared.tell_undecoded(&self.topic, 1, first);
                }
                while pending.rows() >= BATCH_ROWS {
                    let batch = self.labelled(pending.take(&recording.name)?)?;
                    if !send(batch) {
                        return Ok(());
                    }
                }
            }
        }
        if pending.rows() > 0 {
            send(self.labelled(pending.take(&recording.name)?)?);
        }
        Ok(())
    }

    #[cfg(feature = "distributed")]
    fn slice(&self) -> Slice {
        self.slice
    }
}

impl PointSlice {
    /// The columns of points, with the labels of their recording after them.
    fn labelled(&self, mut columns: Vec<ArrayRef>) -> Result<RecordBatch> {
        let rows = columns.first().map_or(0, Array::len);
        for field in self.schema.fields().iter().skip(columns.len()) {
            let said = (self.shared).label(self.slice.recording, field.name(), rows);
            columns.push(match said {
                Some(said) => adapt(&said, field.data_type()),
                None => new_null_array(field.data_type(), rows),
            });
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// Points that wait to become a batch.
struct Pending<'a> {
    columns: &'a [PointColumn],
    /// A message, and its number of points.
    messages: Vec<(Stamp, Option<Stamp>, Option<String>, usize)>,
    places: Vec<u32>,
    values: Vec<Vec<Option<f64>>>,
}

impl<'a> Pending<'a> {
    fn new(columns: &'a [PointColumn]) -> Self {
        Pending {
            columns,
            messages: Vec::new(),
            places: Vec::new(),
            values: vec![Vec::new(); columns.len()],
        }
    }

    fn rows(&self) -> usize {
        self.places.len()
    }

    /// Adds the points of a message, at most this many, spread over all of them.
    fn add(
        &mut self,
        record: &Record,
        log_time: Stamp,
        limit: usize,
    ) -> std::result::Result<(), String> {
        let before = self.rows();
        if record.items("ranges").is_some() {
            self.add_scan(record, limit)?;
        } else {
            self.add_cloud(record, limit)?;
        }
        let frame = record.text(FRAME);
        let count = self.rows() - before;
        self.messages.push((log_time, record.stamp(), frame, count));
        Ok(())
    }

    fn add_scan(&mut self, record: &Record, limit: usize) -> std::result::Result<(), String> {
        let scan = Scan::of(record).map_err(|error| error.to_string())?;
        let pose = pose_of(record);
        let step = scan.beams().count().div_ceil(limit).max(1);
        for beam in scan.beams().step_by(step) {
            let [x, y] = beam.end();
            let [x, y, z] = placed(pose.as_ref(), [x, y, 0.0]);
            self.push(beam.index, |field| match field {
                "x" => Some(x),
                "y" => Some(y),
                "z" => Some(z),
                "range" => Some(beam.range),
                "angle" => Some(beam.angle),
                "intensity" => beam.intensity,
                _ => None,
            });
        }
        Ok(())
    }

    fn add_cloud(&mut self, record: &Record, limit: usize) -> std::result::Result<(), String> {
        let data = record.bytes("data").ok_or("it has no field 'data'")?;
        let size = record
            .number("point_step")
            .filter(|size| *size >= 1.0)
            .ok_or("it has no valid point_step")? as usize;
        let fields = PackedField::all_of(record).map_err(|error| error.to_string())?;
        let find = |name: &str| fields.iter().find(|field| field.name == name);
        let is_big = record.number("is_bigendian") == Some(1.0);
        let axes = [find("x"), find("y"), find("z")];
        let pose = pose_of(record);
        let step = (data.len() / size).div_ceil(limit).max(1);
        for (index, point) in data.chunks_exact(size).enumerate().step_by(step) {
            let place = axes.map(|axis| axis.map_or(0.0, |axis| axis.value(point, is_big)));
            if !place.iter().all(|part| part.is_finite()) {
                continue;
            }
            let [x, y, z] = placed(pose.as_ref(), place);
            self.push(index, |field| match field {
                "x" => axes[0].map(|_| x),
                "y" => axes[1].map(|_| y),
                "z" => axes[2].map(|_| z),
                other => find(other).map(|field| field.value(point, is_big)),
            });
        }
        Ok(())
    }

    fn push(&mut self, index: usize, value: impl Fn(&str) -> Option<f64>) {
        self.places.push(index as u32);
        for (column, values) in self.columns.iter().zip(&mut self.values) {
            values.push(value(&column.field));
        }
    }

    /// All waiting points, as columns.
    fn take(&mut self, recording: &str) -> Result<Vec<ArrayRef>> {
        let messages = std::mem::take(&mut self.messages);
        let places = std::mem::take(&mut self.places);
        let count = places.len();
        let mut logged = Vec::with_capacity(count);
        let mut stamps = Vec::with_capacity(count);
        let mut frames = Vec::with_capacity(count);
        for (log_time, stamp, frame, points) in &messages {
            let stamp = stamp.map(Stamp::nanos);
            logged.resize(logged.len() + points, log_time.nanos());
            stamps.resize(stamps.len() + points, stamp);
            frames.resize(frames.len() + points, frame.as_deref());
        }
        let recordings = std::iter::repeat_n(recording, count);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(recordings)),
            Arc::new(TimestampNanosecondArray::from(logged).with_timezone("UTC")),
            Arc::new(TimestampNanosecondArray::from(stamps).with_timezone("UTC")),
            Arc::new(StringArray::from(frames)),
            Arc::new(UInt32Array::from(places)),
        ];
        for (column, values) in self.columns.iter().zip(&mut self.values) {
            let values: ArrayRef = Arc::new(Float64Array::from(std::mem::take(values)));
            columns.push(cast(&values, &column.data_type)?);
        }
        Ok(columns)
    }
}

/// The pose of a sensor within its frame, as Foxglove's messages have it.
fn pose_of(record: &Record) -> Option<Isometry3<f64>> {
    let [x, y, z, qx, qy, qz, qw] = record.pose()?;
    let rotation = UnitQuaternion::try_new(Quaternion::new(qw, qx, qy, qz), f64::EPSILON)?;
    Some(Isometry3::from_parts(Translation3::new(x, y, z), rotation))
}

fn placed(pose: Option<&Isometry3<f64>>, [x, y, z]: [f64; 3]) -> [f64; 3] {
    match pose {
        None => [x, y, z],
        Some(pose) => {
            let point = pose * Point3::new(x, y, z);
            [point.x, point.y, point.z]
        }
    }
}
