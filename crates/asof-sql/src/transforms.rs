//! Transforms as functions: `tf('map', 'base_link', stamp)`, and the reason when there is none; points and poses in other frames.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use asof_core::{Stamp, TimeRange};
use asof_decode::structs;
use asof_tf::TransformBuffer;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, StringArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Field, Fields, Float64Type, TimeUnit, TimestampNanosecondType,
};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DataFusionError, Result, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use nalgebra::{Isometry3, Point3, Quaternion, Translation3, UnitQuaternion};

use crate::database::Shared;
use crate::pushdown::Pushdown;
use crate::topic::RECORDING;

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

/// The arguments of a function of this name before the recording; `None` for other functions. The third one is the stamp.
pub(crate) fn least_arguments(name: &str) -> Option<usize> {
    let answer = ANSWERS.into_iter().find(|answer| answer.name() == name);
    answer.map(Answer::least_arguments)
}

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

/// Passes the recording of each row to the functions that look up transforms, where the query does not name one: a stamp
/// alone does not tell it. Recordings overlap, and the stamps of a simulator are in the log range of none.
#[derive(Debug)]
pub(crate) struct RecordingOfRow;

impl AnalyzerRule for RecordingOfRow {
    fn name(&self) -> &'static str {
        "recording_of_row"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let found = plan.transform_up_with_subqueries(|plan| {
            let inputs = plan.inputs();
            let mut columns = Vec::new();
            for input in inputs {
                let all = input.schema().columns().into_iter();
                columns.extend(all.filter(|column| column.name == RECORDING));
            }
            if columns.is_empty() {
                return Ok(Transformed::no(plan));
            }
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let named = expr.transform_up(|expr| Ok(with_recording(expr, &columns)))?;
                Ok(named.update_data(|expr| name.restore(expr)))
            })
        });
        Ok(found?.data)
    }
}

/// A call with the recording of its row as the last argument: that of the table which the stamp is from.
fn with_recording(expr: Expr, columns: &[Column]) -> Transformed<Expr> {
    let Expr::ScalarFunction(mut call) = expr else {
        return Transformed::no(expr);
    };
    let lookup = call.func.inner().downcast_ref::<Lookup>();
    let is_open = lookup.is_some_and(|lookup| call.args.len() == lookup.answer.least_arguments());
    if is_open {
        let stamp = call.args[2].column_refs();
        let of_stamp = columns
            .iter()
            .find(|own| stamp.iter().any(|column| column.relation == own.relation));
        let only = || Some(columns).filter(|all| all.len() == 1)?.first();
        if let Some(own) = of_stamp.or_else(only) {
            call.args.push(Expr::Column(own.clone()));
            return Transformed::yes(Expr::ScalarFunction(call));
        }
    }
    Transformed::no(Expr::ScalarFunction(call))
}

/// The transforms of recordings, each loaded at its first use.
#[derive(Debug)]
pub(crate) struct Transforms {
    shared: Arc<Shared>,
    /// The buffers that were used last, by recording.
    buffers: Mutex<VecDeque<(usize, Arc<Loaded>)>>,
}

/// The transforms of a recording, or why they cannot be read.
type Loaded = OnceLock<std::result::Result<TransformBuffer, String>>;

/// For so many recordings transforms stay loaded.
const MOST_BUFFERS: usize = 64;

impl Transforms {
    pub fn of(shared: &Arc<Shared>) -> Self {
        Transforms {
            shared: Arc::clone(shared),
            buffers: Mutex::default(),
        }
    }

    #[cfg(feature = "distributed")]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn buffer(&self, recording: usize) -> Arc<Loaded> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = buffers.iter().position(|(place, _)| *place == recording);
        let known = known.and_then(|at| buffers.remove(at));
        let (_, buffer) = known.unwrap_or_default();
        buffers.push_back((recording, Arc::clone(&buffer)));
        if buffers.len() > MOST_BUFFERS {
            buffers.pop_front();
        }
        buffer
    }

    fn with_buffer(&self, recording: usize, look_up: impl FnOnce(&TransformBuffer)) -> Result<()> {
        let opened = self.shared.opened(recording);
        let buffer = self.buffer(recording);
        let load = || {
            let loaded = TransformBuffer::from_source(&*opened.recording);
            loaded
                .map(|loaded| loaded.buffer)
                .map_err(|error| error.to_string())
        };
        match buffer.get_or_init(load) {
            Ok(buffer) => {
                look_up(buffer);
                Ok(())
            }
            Err(error) => Err(DataFusionError::Execution(error.clone())),
        }
    }

    /// The recording of a row: the one that it names, or the one that contains its time. Of a single one, all times are.
    fn recording_of(&self, name: Option<&str>, at: Stamp) -> Result<usize> {
        if let Some(name) = name {
            let place = self.shared.place_of(name)?;
            return place.map_or_else(|| exec_err!("there is no recording '{name}'"), Ok);
        }
        if !self.shared.has_many() {
            return Ok(0);
        }
        let wanted = Pushdown {
            range: TimeRange::new(at, at),
            ..Pushdown::default()
        };
        let chosen = self.shared.select(None, &wanted, &[], None)?.into_iter();
        let mut having = chosen
            .map(|one| one.place)
            .filter(|place| self.shared.opened(*place).range().contains(at));
        let first = having.next();
        let why = match (first, having.next()) {
            (Some(only), None) => return Ok(only),
            (None, _) => "no recording contains",
            (Some(_), Some(_)) => "several recordings contain",
        };
        exec_err!(
            "{why} {at}: name the one that is meant with a last argument, such as tf('map', 'base_link', stamp, recording)"
        )
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
                vectors(&POINT, &moved.collect::<Vec<_>>())?
            }
            Answer::Pose => {
                let value = args.args[3].clone().into_array(args.number_rows)?;
                let places = part_of_pose(&value, "position")?;
                let places = Columns::of(&places, &POINT, "a position")?;
                let rotations = part_of_pose(&value, "orientation")?;
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
            // A text that is no time would be NULL otherwise, as what is missing is.
            let strictly = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            Ok(cast_with_options(&array, wanted, &strictly)?)
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
        let frames = (column(0, &DataType::Utf8)?, column(1, &DataType::Utf8)?);
        let (froms, tos) = (frames.0.as_string::<i32>(), frames.1.as_string::<i32>());
        // A recording that is NULL is none: that of an outer join without a match is not any that contains the stamp.
        let is_asked = |row: usize| {
            let is_named = names.is_none_or(|names| names.is_valid(row));
            froms.is_valid(row) && tos.is_valid(row) && stamps.is_valid(row) && is_named
        };
        // Consecutive rows mostly use the same frames of the same recording, and are looked up together.
        let mut runs: Vec<Run> = Vec::new();
        let mut last: Option<(Option<&str>, usize)> = None;
        for row in (0..rows).filter(|row| is_asked(*row)) {
            let at = Stamp::from_nanos(stamps.value(row));
            let name = names.map(|names| names.value(row));
            // A row without a name looks for its own time.
            let recording = match &last {
                Some((known, place)) if name.is_some() && *known == name => *place,
                _ => self.transforms.recording_of(name, at)?,
            };
            last = Some((name, recording));
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
            let look_up = |buffer: &TransformBuffer| run.look_up(buffer, &mut found, wants_errors);
            self.transforms.with_buffer(run.recording, look_up)?;
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
        if value.data_type() == &DataType::Null {
            let column = Float64Array::new_null(value.len());
            return Ok(Columns {
                columns: vec![column; N],
            });
        }
        let column = |name: &&str| -> Result<Float64Array> {
            let Some(found) = child(value, name) else {
                return exec_err!(
                    "{what} is a struct of {}, not {}",
                    names.join(", "),
                    value.data_type()
                );
            };
            let numbers = cast(&found, &DataType::Float64)?;
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

/// A field of structs, null where they are, whoever made them.
fn child(value: &ArrayRef, name: &str) -> Option<ArrayRef> {
    let (fields, arrays, nulls) = value.as_struct_opt()?.clone().into_parts();
    let made = structs(fields, arrays, nulls, value.len()).ok()?;
    made.column_by_name(name).cloned()
}

fn part_of_pose(value: &ArrayRef, name: &str) -> Result<ArrayRef> {
    if value.data_type() == &DataType::Null {
        return Ok(Arc::clone(value));
    }
    if let Some(found) = child(value, name) {
        return Ok(found);
    }
    exec_err!(
        "a pose is a struct of position and orientation, not {}",
        value.data_type()
    )
}

fn poses(place: &str, rotation: &str, all: &[Option<Isometry3<f64>>]) -> Result<ArrayRef> {
    let places = all
        .iter()
        .map(|one| one.map(|one| one.translation.vector.into()));
    let rotations = all
        .iter()
        .map(|one| one.map(|one| one.rotation.coords.into()));
    let parts = vec![
        vectors(&POINT, &places.collect::<Vec<Option<[f64; 3]>>>())?,
        vectors(&ROTATION, &rotations.collect::<Vec<Option<[f64; 4]>>>())?,
    ];
    let nulls = all.iter().map(Option::is_some).collect();
    let fields = pose_fields(place, rotation);
    Ok(Arc::new(structs(fields, parts, Some(nulls), all.len())?))
}

fn vectors<const N: usize>(names: &[&str; N], rows: &[Option<[f64; N]>]) -> Result<ArrayRef> {
    let column = |at: usize| -> ArrayRef {
        let values = rows.iter().map(|row| row.map(|row| row[at]));
        Arc::new(values.collect::<Float64Array>())
    };
    let columns = (0..N).map(column).collect();
    let nulls = rows.iter().map(Option::is_some).collect();
    Ok(Arc::new(structs(
        numbers(names),
        columns,
        Some(nulls),
        rows.len(),
    )?))
}
