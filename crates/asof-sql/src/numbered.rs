//! Rows with their numbers, in order of arrival: a sort by time alone may swap equal ones.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use futures_util::StreamExt;

/// Room for the rows of one partition. Those of a recording are in the order of its time.
const PARTITION: u64 = 1 << 40;

/// The column of the numbers, which is the last one.
const NUMBER: &str = "__number";

/// Adds the number of each row.
#[derive(Debug)]
pub(crate) struct NumberedExec {
    input: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl NumberedExec {
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let fields = input.schema();
        let number = Arc::new(Field::new(NUMBER, DataType::UInt64, false));
        let fields = fields.fields().iter().cloned().chain([number]);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut orders: Vec<LexOrdering> = input.output_ordering().cloned().into_iter().collect();
        orders.extend(LexOrdering::new(number_of(&schema)));
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::clone(&schema), orders),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        NumberedExec {
            input,
            schema,
            properties: Arc::new(properties),
        }
    }
}

/// The order of the numbers, where rows have them.
pub(crate) fn number_of(schema: &Schema) -> Option<PhysicalSortExpr> {
    let last = schema.fields().len().checked_sub(1)?;
    let is_number = schema.field(last).name() == NUMBER;
    let number: Arc<dyn PhysicalExpr> = Arc::new(Column::new(NUMBER, last));
    is_number.then(|| PhysicalSortExpr::new(number, SortOptions::default()))
}

/// The columns without the numbers.
pub(crate) fn without_number(schema: &SchemaRef) -> SchemaRef {
    if number_of(schema).is_none() {
        return Arc::clone(schema);
    }
    let fields = schema.fields();
    Arc::new(Schema::new(fields[..fields.len() - 1].to_vec()))
}

impl DisplayAs for NumberedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NumberedExec")
    }
}

impl ExecutionPlan for NumberedExec {
    fn name(&self) -> &'static str {
        "NumberedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// Rows that were dealt out to more partitions would have lost their order.
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[Arc<dyn ExecutionPlan>; 1]>::try_from(children) else {
            return plan_err!("rows are numbered of one input");
        };
        Ok(Arc::new(NumberedExec::new(input)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions {
                children_properties: ChildrenPropertiesMode::Recompute,
            },
        )
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, context)?;
        let schema = Arc::clone(&self.schema);
        let mut next = partition as u64 * PARTITION;
        let numbered = rows.map(move |batch| {
            let batch = batch?;
            let first = next;
            next += batch.num_rows() as u64;
            let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(first..next));
            let columns = batch.columns().iter().cloned().chain([numbers]).collect();
            Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
        });
        let schema = Arc::clone(&self.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, numbered)))
    }
}
