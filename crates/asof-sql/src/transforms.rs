//! Transforms as functions: `tf('map', 'base_link', stamp)`, and the reason when there is none; points and poses in other frames.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use asof_core::{Stamp, TimeRange};
use asof_tf::TransformBuffer;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, StringArray, StructArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, Fields, Float64Type, TimeUnit, TimestampNanosecondType,
};
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use nalgebra::{Isometry3, Point3, Quaternion, Translation3, UnitQuaternion};

use crate::database::Shared;
use crate::topic::Opened;

pub(crate) fn register(context: &SessionContext, shared: &Arc<Shared>) {
    let transforms = Arc::new(Transforms::of(shared));
    for answer in ANSWERS {
        context.register_udf(function(answer, &transforms));
    }
}

const ANSWERS: [Answer; 4] = [
    Answer::Transform,
    Answer::Error,
    Answer::Point,
    Answer::Pose,
];

fn function(answer: Answer, transforms: &Arc<Transforms>) -> ScalarUDF {
    let least = answer.least_arguments();
    let counts = [TypeSignature::Any(least), TypeSignature::Any(least + 1)];
    ScalarUDF::new_from_impl(Lookup {
        answer,
        transforms: Arc::clone(transforms),
        signature: Signature::one_of(counts.to_vec(), Volatility::Stable),
    })
}

/// The function of this name over other recordings.
#[cfg(feature = "distributed")]
pub(crate) fn function_named(name: &str, transforms: &Arc<Transforms>) -> Option<ScalarUDF> {
    let answer = ANSWERS.into_iter().find(|answer| answer.name() == name)?;
    Some(function(answer, transforms))
}

/// The recordings in which a function looks up transforms, if it is one of these.
#[cfg(feature = "distributed")]
pub(crate) fn recordings_of(function: &ScalarUDF) -> Option<&Arc<Shared>> {
    let lookup = function.inner().downcast_ref::<Lookup>()?;
    Some(&lookup.transforms.shared)
}

/// The transforms of recordings, each loaded at its first use.
#[derive(Debug)]
pub(crate) struct Transforms {
    shared: Arc<Shared>,
    buffers: Vec<OnceLock<std::result::Result<TransformBuffer, String>>>,
}

impl Transforms {
    pub fn of(shared: &Arc<Shared>) -> Self {
        Transforms {
            shared: Arc::clone(shared),
            buffers: shared.recordings.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    fn buffer(&self, recording: usize) -> Result<Option<&TransformBuffer>> {
        let opened = self.shared.recordings.get(recording);
        let Some((opened, buffer)) = opened.zip(self.buffers.get(recording)) else {
            return Ok(None);
        };
        let load = || {
            let loaded = TransformBuffer::from_source(&*opened.recording);
            loaded
                .map(|loaded| loaded.buffer)
                .map_err(|error| error.to_string())
        };
        match buffer.get_or_init(load) {
            Ok(buffer) => Ok(Some(buffer)),
            Err(error) => Err(DataFusionError::Execution(error.clone())),
        }
    }

    /// The time ranges of the recordings; empty where there is only one, which all times belong to.
    fn ranges(&self) -> Vec<TimeRange> {
        match &self.shared.recordings[..] {
            [_] => Vec::new(),
            recordings => recordings.iter().map(Opened::range).collect(),
        }
    }

    /// The recording of a row: the one that it names, or the one that contains its time.
    fn recording_of(&self, name: Option<&str>, at: Stamp, ranges: &[TimeRange]) -> Result<usize> {
        if let Some(name) = name {
            let mut recordings = self.shared.recordings.iter();
            let place = recordings.position(|opened| opened.name == name);
            return place.map_or_else(|| exec_err!("there is no recording '{name}'"), Ok);
        }
        let mut having = (0..ranges.len()).filter(|place| ranges[*place].contains(at));
        let first = having.next();
        if having.next().is_some() {
            return exec_err!(
                "several recordings contain {at}: choose one with a last argument, such as tf('map', 'base_link', stamp, recording)"
            );
        }
        Ok(first.unwrap_or(0))
    }
}

/// The result of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Answer {
    Transform,
    Error,
    Point,
    Pose,
}

impl Answer {
    fn name(self) -> &'static str {
        match self {
            Answer::Transform => "tf",
            Answer::Error => "tf_error",
            Answer::Point => "transform_point",
            Answer::Pose => "transform_pose",
        }
    }

    /// Two frames and a stamp, and the value to transform; the recording may follow.
    fn least_arguments(self) -> usize {
        match self {
            Answer::Transform | Answer::Error => 3,
            Answer::Point | Answer::Pose => 4,
        }
    }
}

/// Looks up transforms, one per row.
#[derive(Debug)]
struct Lookup {
    answer: Answer,
    transforms: Arc<Transforms>,
    signature: Signature,
}

impl PartialEq for Lookup {
    fn eq(&self, other: &Self) -> bool {
        self.answer == other.answer && Arc::ptr_eq(&self.transforms, &other.transforms)
    }
}

impl Eq for Lookup {}

impl Hash for Lookup {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.answer.hash(state);
    }
}

const POINT: [&str; 3] = ["x", "y", "z"];
const ROTATION: [&str; 4] = ["x", "y", "z", "w"];

fn numbers(names: &[&str]) -> Fields {
    let field = |name: &&str| Field::new(*name, DataType::Float64, true);
    names.iter().map(field).collect()
}

/// A position and a rotation, under these names.
fn pose_fields(place: &str, rotation: &str) -> Fields {
    Fields::from(vec![
        Field::new(place, DataType::Struct(numbers(&POINT)), true),
        Field::new(rotation, DataType::Struct(numbers(&ROTATION)), true),
    ])
}

impl ScalarUDFImpl for Lookup {
    fn name(&self) -> &str {
        self.answer.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.answer {
            Answer::Transform => DataType::Struct(pose_fields("translation", "rotation")),
            Answer::Error => DataType::Utf8,
            Answer::Point => DataType::Struct(numbers(&POINT)),
            Answer::Pose => DataType::Struct(pose_fields("position", "orientation")),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut found = self.look_up(&args)?;
        let array: ArrayRef = match self.answer {
            Answer::Error => Arc::new(StringArray::from(found.errors)),
            Answer::Transform => poses("translation", "rotation", &found.transforms)?,
            Answer::Point => {
                let value = args.args[3].clone().into_array(args.number_rows)?;
                let points = Columns::of(&value, &POINT, "a point")?;
                let moved = found.transforms.iter().enumerate().map(|(row, transform)| {
                    let [x, y, z] = points.row(row)?;
                    let moved = transform.as_ref()? * Point3::new(x, y, z);
                    Some([moved.x, moved.y, moved.z])
                });
                Arc::new(structs(&POINT, &moved.collect::<Vec<_>>())?)
            }
            Answer::Pose => {
                let value = args.args[3].clone().into_array(args.number_rows)?;
                let (places, rotations) =
                    (child(&value, "position")?, child(&value, "orientation")?);
                let places = Columns::of(&places, &POINT, "a position")?;
                let rotations = Columns::of(&rotations, &ROTATION, "an orientation")?;
                for (row, transform) in found.transforms.iter_mut().enumerate() {
                    let pose = places.row(row).zip(rotations.row(row));
                    let pose = pose.and_then(|([x, y, z], [i, j, k, w])| {
                        let rotation = Quaternion::new(w, i, j, k);
                        let rotation = UnitQuaternion::try_new(rotation, f64::EPSILON)?;
                        Some(Isometry3::from_parts(Translation3::new(x, y, z), rotation))
                    });
                    *transform = transform
                        .zip(pose)
                        .map(|(transform, pose)| transform * pose);
                }
                poses("position", "orientation", &found.transforms)?
            }
        };
        Ok(ColumnarValue::Array(array))
    }
}

/// The transforms, one per row.
struct Found {
    transforms: Vec<Option<Isometry3<f64>>>,
    /// Why there is none; only where requested.
    errors: Vec<Option<String>>,
}

impl Lookup {
    fn look_up(&self, args: &ScalarFunctionArgs) -> Result<Found> {
        let rows = args.number_rows;
        let column = |at: usize, wanted: &DataType| -> Result<ArrayRef> {
            let array = args.args[at].clone().into_array(rows)?;
            if array.data_type() == wanted {
                return Ok(array);
            }
            Ok(cast(&array, wanted)?)
        };
        let stamps = column(2, &DataType::Timestamp(TimeUnit::Nanosecond, None))?;
        let stamps = stamps.as_primitive::<TimestampNanosecondType>();
        let last = self.answer.least_arguments();
        let names = (args.args.len() > last).then(|| column(last, &DataType::Utf8));
        let names = names.transpose()?;
        let names = names.as_ref().map(AsArray::as_string::<i32>);
        let wants_errors = self.answer == Answer::Error;
        let mut found = Found {
            transforms: vec![None; rows],
            errors: vec![None; if wants_errors { rows } else { 0 }],
        };
        let ranges = self.transforms.ranges();
        let frames = (column(0, &DataType::Utf8)?, column(1, &DataType::Utf8)?);
        let (froms, tos) = (frames.0.as_string::<i32>(), frames.1.as_string::<i32>());
        let is_asked =
            |row: usize| froms.is_valid(row) && tos.is_valid(row) && stamps.is_valid(row);
        // Consecutive rows mostly use the same frames of the same recording, and are looked up together.
        let mut runs: Vec<Run> = Vec::new();
        for row in (0..rows).filter(|row| is_asked(*row)) {
            let at = Stamp::from_nanos(stamps.value(row));
            let name = names.filter(|names| names.is_valid(row));
            let name = name.map(|names| names.value(row));
            let recording = self.transforms.recording_of(name, at, &ranges)?;
            let (from, to) = (froms.value(row), tos.value(row));
            match runs.last_mut() {
                Some(run) if run.is_of(recording, from, to) => {
                    run.rows.push(row);
                    run.stamps.push(at);
                }
                _ => runs.push(Run {
                    recording,
                    from,
                    to,
                    rows: vec![row],
                    stamps: vec![at],
                }),
            }
        }
        for run in runs {
            if let Some(buffer) = self.transforms.buffer(run.recording)? {
                run.look_up(buffer, &mut found, wants_errors);
            }
        }
        Ok(found)
    }
}

/// Rows with the same frames of one recording.
struct Run<'a> {
    recording: usize,
    from: &'a str,
    to: &'a str,
    rows: Vec<usize>,
    /// The time of each row.
    stamps: Vec<Stamp>,
}

impl Run<'_> {
    fn is_of(&self, recording: usize, from: &str, to: &str) -> bool {
        self.recording == recording && self.from == from && self.to == to
    }

    fn look_up(&self, buffer: &TransformBuffer, found: &mut Found, wants_errors: bool) {
        match buffer.lookup_many(self.from, self.to, &self.stamps) {
            Ok(many) => {
                for (row, transform) in self.rows.iter().zip(&many.isometries) {
                    found.transforms[*row] = Some(*transform);
                }
                for (place, error) in many.failures {
                    let row = self.rows[place];
                    found.transforms[row] = None;
                    if wants_errors {
                        found.errors[row] = Some(error.to_string());
                    }
                }
            }
            Err(error) if wants_errors => {
                for row in &self.rows {
                    found.errors[*row] = Some(error.to_string());
                }
            }
            Err(_) => {}
        }
    }
}

/// Numbers of structs, by their names.
struct Columns<const N: usize> {
    columns: Vec<Float64Array>,
}

impl<const N: usize> Columns<N> {
    fn of(value: &ArrayRef, names: &[&str; N], what: &str) -> Result<Self> {
        let fields = value.as_struct_opt();
        let column = |name: &&str| -> Result<Float64Array> {
            let found = fields.and_then(|fields| fields.column_by_name(name));
            let Some(found) = found else {
                return exec_err!(
                    "{what} is a struct of {}, not {}",
                    names.join(", "),
                    value.data_type()
                );
            };
            let mut numbers = cast(found, &DataType::Float64)?;
            if let Some(nulls) = value.nulls() {
                // A null struct has no numbers either.
                let own = NullBuffer::union(Some(nulls), numbers.nulls());
                let values = numbers.as_primitive::<Float64Type>().values().clone();
                numbers = Arc::new(Float64Array::new(values, own));
            }
            Ok(numbers.as_primitive::<Float64Type>().clone())
        };
        let columns = names.iter().map(column).collect::<Result<_>>()?;
        Ok(Columns { columns })
    }

    fn row(&self, row: usize) -> Option<[f64; N]> {
        let mut values = [0.0; N];
        for (value, column) in values.iter_mut().zip(&self.columns) {
            *value = column.is_valid(row).then(|| column.value(row))?;
        }
        Some(values)
    }
}

fn child(value: &ArrayRef, name: &str) -> Result<ArrayRef> {
    let found = value
        .as_struct_opt()
        .and_then(|fields| fields.column_by_name(name));
    if let Some(found) = found {
        return Ok(Arc::clone(found));
    }
    exec_err!(
        "a pose is a struct of position and orientation, not {}",
        value.data_type()
    )
}

fn poses(place: &str, rotation: &str, all: &[Option<Isometry3<f64>>]) -> Result<ArrayRef> {
    let nulls = known(all);
    let number = |of: &dyn Fn(&Isometry3<f64>) -> f64| -> ArrayRef {
        let numbers = all.iter().map(|one| one.as_ref().map_or(0.0, of));
        Arc::new(Float64Array::from_iter_values(numbers))
    };
    let places = (0..3).map(|axis| number(&|one| one.translation.vector[axis]));
    let rotations = (0..4).map(|axis| number(&|one| one.rotation.coords[axis]));
    let part = |names: &[&str], columns: Vec<ArrayRef>| -> Result<ArrayRef> {
        let made = StructArray::try_new(numbers(names), columns, nulls.clone());
        Ok(Arc::new(made?))
    };
    let parts = vec![
        part(&POINT, places.collect())?,
        part(&ROTATION, rotations.collect())?,
    ];
    let fields = pose_fields(place, rotation);
    Ok(Arc::new(StructArray::try_new(fields, parts, nulls)?))
}

fn structs<const N: usize>(names: &[&str; N], rows: &[Option<[f64; N]>]) -> Result<StructArray> {
    let column = |at: usize| -> ArrayRef {
        let values = rows.iter().map(|row| row.map_or(0.0, |row| row[at]));
        Arc::new(Float64Array::from_iter_values(values))
    };
    let columns = (0..N).map(column).collect();
    Ok(StructArray::try_new(numbers(names), columns, known(rows))?)
}

/// Which of them exist; `None` where all do.
fn known<T>(all: &[Option<T>]) -> Option<NullBuffer> {
    let is_known = || all.iter().map(Option::is_some);
    if is_known().all(|is_known| is_known) {
        return None;
    }
    Some(is_known().collect())
}
