//! Transforms as functions: `tf('map', 'base_link', stamp)`, and why there is none.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use asof_core::Stamp;
use asof_tf::TransformBuffer;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, StringArray, StructArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Fields, TimeUnit, TimestampNanosecondType};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::database::Shared;

pub(crate) fn register(context: &SessionContext, shared: &Arc<Shared>) {
    let transforms = Arc::new(Transforms {
        shared: Arc::clone(shared),
        buffers: OnceLock::new(),
    });
    for (name, answer) in [("tf", Answer::Transform), ("tf_error", Answer::Error)] {
        context.register_udf(ScalarUDF::new_from_impl(Lookup {
            name,
            answer,
            transforms: Arc::clone(&transforms),
            signature: Signature::any(3, Volatility::Stable),
        }));
    }
}

/// The transforms of all recordings, loaded when first asked for.
#[derive(Debug)]
struct Transforms {
    shared: Arc<Shared>,
    buffers: OnceLock<std::result::Result<Vec<TransformBuffer>, String>>,
}

impl Transforms {
    fn buffers(&self) -> Result<&[TransformBuffer]> {
        let load = || {
            let recordings = self.shared.recordings.iter();
            recordings
                .map(|opened| {
                    let loaded = TransformBuffer::from_source(&*opened.recording);
                    loaded
                        .map(|loaded| loaded.buffer)
                        .map_err(|error| error.to_string())
                })
                .collect()
        };
        match self.buffers.get_or_init(load) {
            Ok(buffers) => Ok(buffers),
            Err(error) => Err(DataFusionError::Execution(error.clone())),
        }
    }

    /// The buffer of the recording that the instant lies in; the first where none has it.
    fn buffer_at<'a>(
        &self,
        buffers: &'a [TransformBuffer],
        at: Stamp,
    ) -> Option<&'a TransformBuffer> {
        let has_it = |place: &usize| {
            let recording = &self.shared.recordings[*place].recording;
            recording.summary().range.contains(at)
        };
        let place = (0..buffers.len()).find(has_it).unwrap_or(0);
        buffers.get(place)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Answer {
    Transform,
    Error,
}

/// Looks transforms up, a row each.
#[derive(Debug)]
struct Lookup {
    name: &'static str,
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

fn vector(names: &[&str]) -> Fields {
    let field = |name: &&str| Field::new(*name, DataType::Float64, true);
    names.iter().map(field).collect()
}

fn transform_fields() -> Fields {
    Fields::from(vec![
        Field::new(
            "translation",
            DataType::Struct(vector(&["x", "y", "z"])),
            true,
        ),
        Field::new(
            "rotation",
            DataType::Struct(vector(&["x", "y", "z", "w"])),
            true,
        ),
    ])
}

impl ScalarUDFImpl for Lookup {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.answer {
            Answer::Transform => DataType::Struct(transform_fields()),
            Answer::Error => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let column = |at: usize, wanted: &DataType| -> Result<ArrayRef> {
            let array = args.args[at].clone().into_array(rows)?;
            if array.data_type() == wanted {
                return Ok(array);
            }
            Ok(cast(&array, wanted)?)
        };
        let (froms, tos) = (column(0, &DataType::Utf8)?, column(1, &DataType::Utf8)?);
        let stamps = column(2, &DataType::Timestamp(TimeUnit::Nanosecond, None))?;
        let stamps = stamps.as_primitive::<TimestampNanosecondType>();
        let (froms, tos) = (froms.as_string::<i32>(), tos.as_string::<i32>());
        let buffers = self.transforms.buffers()?;
        let mut values: [Vec<f64>; 7] = Default::default();
        let mut is_known = Vec::with_capacity(rows);
        let mut errors: Vec<Option<String>> = Vec::new();
        for row in 0..rows {
            let is_asked = froms.is_valid(row) && tos.is_valid(row) && stamps.is_valid(row);
            let found = is_asked.then(|| {
                let at = Stamp::from_nanos(stamps.value(row));
                let buffer = self.transforms.buffer_at(buffers, at);
                buffer.map_or_else(
                    || Err("there is no recording".to_owned()),
                    |buffer| {
                        buffer
                            .lookup(froms.value(row), tos.value(row), at)
                            .map_err(|error| error.to_string())
                    },
                )
            });
            let found = match found {
                Some(Ok(found)) => {
                    errors.push(None);
                    Some(found)
                }
                Some(Err(error)) => {
                    errors.push(Some(error));
                    None
                }
                None => {
                    errors.push(None);
                    None
                }
            };
            is_known.push(found.is_some());
            let parts = found.map_or([0.0; 7], |found| {
                let (t, r) = (found.translation.vector, found.rotation.coords);
                [t.x, t.y, t.z, r.x, r.y, r.z, r.w]
            });
            for (list, value) in values.iter_mut().zip(parts) {
                list.push(value);
            }
        }
        let array: ArrayRef = match self.answer {
            Answer::Error => Arc::new(StringArray::from(errors)),
            Answer::Transform => {
                let mut columns = values
                    .into_iter()
                    .map(|list| Arc::new(Float64Array::from(list)) as ArrayRef);
                let translation: Vec<ArrayRef> = columns.by_ref().take(3).collect();
                let rotation: Vec<ArrayRef> = columns.collect();
                let parts: Vec<ArrayRef> = vec![
                    Arc::new(StructArray::try_new(
                        vector(&["x", "y", "z"]),
                        translation,
                        None,
                    )?),
                    Arc::new(StructArray::try_new(
                        vector(&["x", "y", "z", "w"]),
                        rotation,
                        None,
                    )?),
                ];
                let nulls = NullBuffer::from(is_known);
                Arc::new(StructArray::try_new(
                    transform_fields(),
                    parts,
                    Some(nulls),
                )?)
            }
        };
        Ok(ColumnarValue::Array(array))
    }
}
