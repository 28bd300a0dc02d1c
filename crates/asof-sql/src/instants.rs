//! Times relative to a recording, as a function of its row: of several recordings, each has its own zero.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use asof_core::When;
use datafusion::arrow::array::{Array, AsArray, TimestampNanosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::database::Shared;
use crate::topic::RECORDING;

/// The function that `'+12.5s'` becomes: of this text, and the recording of the row.
pub(crate) const INSTANT: &str = "__instant";

pub(crate) fn register(context: &SessionContext, shared: &Arc<Shared>) {
    context.register_udf(function(shared));
}

pub(crate) fn function(shared: &Arc<Shared>) -> ScalarUDF {
    ScalarUDF::new_from_impl(Instant {
        shared: Arc::clone(shared),
        signature: Signature::any(2, Volatility::Stable),
    })
}

/// The recordings that a function looks up, if it is this one.
#[cfg(feature = "distributed")]
pub(crate) fn recordings_of(function: &ScalarUDF) -> Option<&Arc<Shared>> {
    let instant = function.inner().downcast_ref::<Instant>()?;
    Some(&instant.shared)
}

/// The relative time of a call, which is of the row's own recording.
pub(crate) fn relative_of(expr: &Expr) -> Option<When> {
    let Expr::ScalarFunction(call) = expr else {
        return None;
    };
    let [Expr::Literal(text, _), Expr::Column(recording)] = &call.args[..] else {
        return None;
    };
    let is_own = call.func.name() == INSTANT && recording.name == RECORDING;
    text.try_as_str().flatten().filter(|_| is_own)?.parse().ok()
}

#[derive(Debug)]
struct Instant {
    shared: Arc<Shared>,
    signature: Signature,
}

impl PartialEq for Instant {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Instant {}

impl Hash for Instant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        INSTANT.hash(state);
    }
}

impl ScalarUDFImpl for Instant {
    fn name(&self) -> &'static str {
        INSTANT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(
            TimeUnit::Nanosecond,
            Some("UTC".into()),
        ))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(text), names] = &args.args[..] else {
            return exec_err!("{INSTANT} takes a text and a recording");
        };
        let (ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text))) = text else {
            return exec_err!("{INSTANT} takes a text and a recording");
        };
        let when = text.parse::<When>();
        let when = when.map_err(|error| DataFusionError::Execution(error.to_string()))?;
        let names = names.clone().into_array(args.number_rows)?;
        let names = cast(&names, &DataType::Utf8)?;
        let names = names.as_string::<i32>();
        let mut last: Option<(&str, i64)> = None;
        let mut instants = Vec::with_capacity(names.len());
        for row in 0..names.len() {
            let name = names.is_valid(row).then(|| names.value(row));
            let found = match (name, last) {
                (None, _) => None,
                (Some(name), Some((known, at))) if name == known => Some(at),
                (Some(name), _) => {
                    let place = self.shared.place_of(name)?;
                    let range = place.map(|place| self.shared.opened(place).range());
                    let range = range.filter(|range| !range.is_empty());
                    let at = range.map(|range| when.resolve(range).nanos());
                    last = at.map(|at| (name, at));
                    at
                }
            };
            instants.push(found);
        }
        let instants = TimestampNanosecondArray::from(instants).with_timezone("UTC");
        Ok(ColumnarValue::Array(Arc::new(instants)))
    }
}
