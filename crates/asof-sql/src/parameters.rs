//! Parameters of queries.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DataFusionError, ParamValues, ScalarValue, plan_err};
use datafusion::logical_expr::LogicalPlan;

/// The columns and parameters of a query, before it runs.
#[derive(Debug, Clone)]
pub struct Described {
    /// Its columns.
    pub columns: SchemaRef,
    /// The parameters, in their order; a text where the type is not determined.
    pub parameters: SchemaRef,
}

pub(crate) fn with_values(
    plan: LogicalPlan,
    parameters: &[ScalarValue],
) -> Result<LogicalPlan, DataFusionError> {
    if parameters.is_empty() {
        return Ok(plan);
    }
    plan.with_param_values(ParamValues::from(parameters.to_vec()))
}

/// The parameters of a plan, by their numbers.
pub(crate) fn parameters_of(plan: &LogicalPlan) -> Result<SchemaRef, DataFusionError> {
    let mut wanted = BTreeMap::new();
    for (name, field) in plan.get_parameter_fields()? {
        let number = name.strip_prefix('$').and_then(|rest| rest.parse().ok());
        let Some(number) = number.filter(|number| (1..=MOST_PARAMETERS).contains(number)) else {
            return plan_err!(
                "'{name}' is not a parameter; parameters are written ?, or $1, $2 and so on"
            );
        };
        wanted.insert(number, field.map(|field| field.data_type().clone()));
    }
    let count = wanted.keys().next_back().copied().unwrap_or_default();
    let fields = (1..=count).map(|number: usize| {
        let kind = wanted.remove(&number).flatten().unwrap_or(DataType::Utf8);
        Field::new(format!("${number}"), kind, true)
    });
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// The most parameters of a query; a mistyped number must not create that many.
const MOST_PARAMETERS: usize = 1000;
