//! A plan as several that run one after the other, so that rows arrive before all slices have been read.
//!
//! An engine that runs a plan returns its rows once all of it is done. Where each row comes from one slice, whatever the others hold, a
//! plan over some of the slices returns its rows earlier.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use futures_util::{StreamExt as _, stream};

use super::{ClusterRows, SliceExec};

/// Plans that make each of their rows from one row of their input, and need no other.
const ROW_BY_ROW: [&str; 7] = [
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "FilterExec",
    "ProjectionExec",
    "RepartitionExec",
    "UnnestExec",
];

/// How many plans run at once: one whose rows are fetched, and the next.
const AT_ONCE: usize = 2;

/// The plans whose rows together are those of a plan, for a cluster of this many cores: the first reads a slice on each core, the next
/// twice as many, and so on. The plan itself where its rows need all slices, or there are few.
pub(crate) fn waves(
    plan: Arc<dyn ExecutionPlan>,
    cores: usize,
) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    let Some(leaf) = only_leaf(&plan) else {
        return Ok(vec![plan]);
    };
    let Some(slices) = leaf.partitions() else {
        return Ok(vec![plan]);
    };
    let mut plans = Vec::new();
    let (mut left, mut size) = (slices, cores.max(1));
    while !left.is_empty() {
        // A last wave of a few slices would leave most cores idle.
        let taken = if left.len() < size * 2 {
            left.len()
        } else {
            size
        };
        let (now, later) = left.split_at(taken);
        plans.push(over(&plan, &leaf.over(now)?)?);
        (left, size) = (later, size * 2);
    }
    if plans.len() < 2 {
        return Ok(vec![plan]);
    }
    Ok(plans)
}

/// The only leaf, where each row comes from one of its slices.
fn only_leaf(plan: &Arc<dyn ExecutionPlan>) -> Option<&SliceExec> {
    if let Some(leaf) = plan.downcast_ref::<SliceExec>() {
        return leaf.is_row_by_row().then_some(leaf);
    }
    let children = plan.children();
    match children[..] {
        [only] if ROW_BY_ROW.contains(&plan.name()) && plan.fetch().is_none() => only_leaf(only),
        _ => None,
    }
}

/// The plan over another leaf.
fn over(
    plan: &Arc<dyn ExecutionPlan>,
    leaf: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if plan.is::<SliceExec>() {
        return Ok(Arc::clone(leaf));
    }
    let children = plan.children().into_iter();
    let children = children
        .map(|child| over(child, leaf))
        .collect::<Result<_>>()?;
    replace_children_if_necessary(Arc::clone(plan), children)
}

/// The rows of plans, one after the other; the next runs while the rows of one are fetched.
pub(crate) fn one_after_the_other(mut started: Vec<ClusterRows>) -> ClusterRows {
    if started.len() == 1
        && let Some(only) = started.pop()
    {
        return only;
    }
    let schema = started.first().map(|one| one.rows.schema());
    let schema = schema.unwrap_or_else(|| Arc::new(datafusion::arrow::datatypes::Schema::empty()));
    let (rows, cancel): (Vec<_>, Vec<_>) = started
        .into_iter()
        .map(|one| (one.rows, one.cancel))
        .unzip();
    let begun = stream::iter(rows).map(|mut rows| async move {
        let first = rows.next().await;
        stream::iter(first).chain(rows)
    });
    let rows = begun.buffered(AT_ONCE).flatten();
    ClusterRows {
        rows: Box::pin(RecordBatchStreamAdapter::new(schema, rows)),
        cancel: Box::new(move || cancel.into_iter().for_each(|cancel| cancel())),
    }
}
