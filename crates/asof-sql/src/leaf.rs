//! What plans have in common that read recordings: they have no inputs, and slices of time as their partitions.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::{Partitioning, PlanProperties};

use crate::assemble::Shape;
use crate::topic::{LOG_TIME, Slice};

/// The methods of a plan without inputs that has its properties in a field.
macro_rules! leaf {
    () => {
        fn properties(&self) -> &Arc<PlanProperties> {
            &self.properties
        }

        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            Vec::new()
        }

        fn replace_children(
            self: Arc<Self>,
            _children: Vec<Arc<dyn ExecutionPlan>>,
            _options: ReplaceChildrenOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            Ok(self)
        }

        fn with_new_children(
            self: Arc<Self>,
            _children: Vec<Arc<dyn ExecutionPlan>>,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            Ok(self)
        }
    };
}
pub(crate) use leaf;

/// Slices beside each other, each in order of the `log_time` of this topic, whose columns come first.
pub(crate) fn in_order_of(topic: &Shape, schema: &SchemaRef, slices: usize) -> Arc<PlanProperties> {
    let columns = topic.output.fields().len();
    let place = (0..columns).find(|place| topic.is_column(*place, LOG_TIME));
    let order = place.map(|place| {
        let column = Column::new(schema.field(place).name(), place);
        vec![PhysicalSortExpr::new_default(Arc::new(column))]
    });
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new_with_orderings(Arc::clone(schema), order),
        Partitioning::UnknownPartitioning(slices.max(1)),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

/// The slice of a partition; none where there is nothing to read at all.
pub(crate) fn slice_of(slices: &[Slice], partition: usize, topic: &str) -> Result<Option<Slice>> {
    match slices.get(partition) {
        Some(slice) => Ok(Some(*slice)),
        None if slices.is_empty() && partition == 0 => Ok(None),
        None => internal_err!("there is no slice {partition} of {topic}"),
    }
}

/// Shows the expressions within these shapes.
pub(crate) fn show_expressions<'a>(
    shapes: impl IntoIterator<Item = &'a Shape>,
    f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
) -> Result<TreeNodeRecursion> {
    let projected = shapes.into_iter().flat_map(|shape| &shape.projected);
    for one in projected.flatten() {
        if f(&one.expr)? == TreeNodeRecursion::Stop {
            return Ok(TreeNodeRecursion::Stop);
        }
    }
    Ok(TreeNodeRecursion::Continue)
}

/// What a decoder is asked for, as `EXPLAIN` says it.
pub(crate) fn decoded(shape: &Shape) -> String {
    if shape.paths.is_empty() {
        "nothing decoded".to_owned()
    } else {
        format!("decoded [{}]", shape.paths.join(", "))
    }
}
