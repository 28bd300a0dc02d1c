//! What plans that read recordings share: they have no inputs, and slices of time as their partitions.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::{Partitioning, PlanProperties};

use crate::assemble::Shape;
use crate::topic::LOG_TIME;

/// The methods of a plan without inputs that keeps its properties in a field.
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

/// The slices that the partitions of a plan read.
///
/// A few slices are a partition each, and each is in order. Of many, such as those of a fleet, only some are open at a
/// time: a partition reads neighbouring slices one after the other, and an order needs a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Partitions {
    slices: usize,
    count: usize,
}

/// More slices than this take turns.
const MAX_SINGLE_SLICES: usize = 64;
/// How many are read at a time when they take turns, unless there are more threads: they wait for disks and networks.
const MAX_OPEN_SLICES: usize = 16;

impl Partitions {
    pub fn of(slices: usize, threads: usize) -> Self {
        let count = if slices > MAX_SINGLE_SLICES.max(threads) {
            MAX_OPEN_SLICES.max(threads)
        } else {
            slices
        };
        Partitions { slices, count }
    }

    /// All slices in one partition, one after the other.
    pub fn in_one(slices: usize) -> Self {
        Partitions { slices, count: 1 }
    }

    /// How many there are: one where there is nothing to read.
    pub fn count(self) -> usize {
        self.count.max(1)
    }

    /// Whether each partition is one slice.
    pub fn are_single(self) -> bool {
        self.count == self.slices
    }

    /// The indexes of the slices that a partition reads, one after the other.
    pub fn slices(self, partition: usize) -> Result<impl Iterator<Item = usize> + Send + 'static> {
        let step = self.count();
        if partition >= step {
            return internal_err!("there is no partition {partition} of {step}");
        }
        Ok((partition..self.slices).step_by(step))
    }
}

impl fmt::Display for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slices of time", self.slices)?;
        if !self.are_single() {
            write!(f, ", {} at once", self.count)?;
        }
        Ok(())
    }
}

/// Parallel slices, each in order of the `log_time` of this topic, whose columns come first.
pub(crate) fn in_order_of(
    topic: &Shape,
    schema: &SchemaRef,
    partitions: Partitions,
) -> Arc<PlanProperties> {
    let mut columns = 0..topic.output.fields().len();
    let place = columns.find(|place| topic.is_column(*place, LOG_TIME));
    let place = place.filter(|_| partitions.are_single());
    let order = place.map(|place| {
        let column = Column::new(schema.field(place).name(), place);
        vec![PhysicalSortExpr::new_default(Arc::new(column))]
    });
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new_with_orderings(Arc::clone(schema), order),
        Partitioning::UnknownPartitioning(partitions.count()),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
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

/// The decoded fields, as shown by `EXPLAIN`.
pub(crate) fn decoded(shape: &Shape) -> String {
    if shape.paths.is_empty() {
        "nothing decoded".to_owned()
    } else {
        format!("decoded [{}]", shape.paths.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slice_is_read_once_however_many_there_are() {
        for slices in [0, 1, 2, 63, 64, 65, 1000] {
            for threads in [1, 4, 100] {
                let partitions = Partitions::of(slices, threads);
                assert!(partitions.count() <= MAX_SINGLE_SLICES.max(threads));
                let all = (0..partitions.count()).map(|one| partitions.slices(one).expect("one"));
                let mut all: Vec<usize> = all.flatten().collect();
                all.sort_unstable();
                assert_eq!(all, (0..slices).collect::<Vec<_>>());
                assert!(partitions.slices(partitions.count()).is_err());
            }
        }
    }
}
