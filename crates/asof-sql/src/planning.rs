//! Plans as-of joins: filters go below them, and topics of the same recordings are read in one pass.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, Extension, Filter, LogicalPlan, Projection, UserDefinedLogicalNode,
    UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};

use crate::asof::{AsofJoin, is_of};
use crate::fused::{AsofScan, Condition};
use crate::labels;
use crate::merge::{AsofJoinExec, in_order};
use crate::numbered::NumberedExec;
use crate::pushdown::Pushdown;
use crate::scan::TopicScan;
use crate::topic::RECORDING;

/// Pushes comparisons of times down to the left side of as-of joins: every row of it has exactly one row in the answer.
/// Other filters stay above, where they are not between a join and its topics.
#[derive(Debug)]
pub(crate) struct AsofFilterRule;

impl OptimizerRule for AsofFilterRule {
    fn name(&self) -> &'static str {
        "asof_filter"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = &plan else {
            return Ok(Transformed::no(plan));
        };
        // A projection that only drops columns may be between them.
        let between = match &*filter.input {
            LogicalPlan::Projection(between) => Some(between).filter(|between| {
                let mut exprs = between.expr.iter();
                exprs.all(|expr| matches!(expr, Expr::Column(_)))
            }),
            _ => None,
        };
        let below = between.map_or(&filter.input, |between| &between.input);
        let LogicalPlan::Extension(Extension { node }) = &**below else {
            return Ok(Transformed::no(plan));
        };
        let Some(join) = node.as_any().downcast_ref::<AsofJoin>() else {
            return Ok(Transformed::no(plan));
        };
        let parts = split_conjunction_owned(filter.predicate.clone());
        let (pushed, kept): (Vec<Expr>, Vec<Expr>) = parts
            .into_iter()
            .partition(|part| is_of(part, join.left.schema()) && is_taken(part));
        let on_right = conjunction(pushed.iter().filter_map(|part| mirrored(part, join)));
        let Some(pushed) = conjunction(pushed) else {
            return Ok(Transformed::no(plan));
        };
        let left = Filter::try_new(pushed, Arc::new(join.left.clone()))?;
        let right = match on_right {
            Some(same) => LogicalPlan::Filter(Filter::try_new(same, Arc::new(join.right.clone()))?),
            None => join.right.clone(),
        };
        let inputs = vec![LogicalPlan::Filter(left), right];
        let exprs = UserDefinedLogicalNodeCore::expressions(join);
        let node = UserDefinedLogicalNodeCore::with_exprs_and_inputs(join, exprs, inputs)?;
        let node: Arc<dyn UserDefinedLogicalNode> = Arc::new(node);
        let mut below = LogicalPlan::Extension(Extension { node });
        if let Some(between) = between {
            let exprs = between.expr.clone();
            below = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(below))?);
        }
        Ok(Transformed::yes(match conjunction(kept) {
            Some(kept) => LogicalPlan::Filter(Filter::try_new(kept, Arc::new(below))?),
            None => below,
        }))
    }
}

/// Whether a topic handles a filter completely, so that nothing is between it and a join.
fn is_taken(filter: &Expr) -> bool {
    Pushdown::default().narrow(filter) || labels::is_about_recordings(filter, &labels::names())
}

/// A filter on the recordings of the left side, for the right: rows match only within a recording.
fn mirrored(filter: &Expr, join: &AsofJoin) -> Option<Expr> {
    let is_recording =
        |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == RECORDING);
    let mut keys = join.on.iter();
    let (one, other) = keys.find(|(one, other)| is_recording(one) && is_recording(other))?;
    let (Expr::Column(own), Expr::Column(key)) = (one, other) else {
        return None;
    };
    let columns = filter.column_refs();
    let is_by_name = columns.iter().all(|column| column.name == RECORDING);
    let has_labels = is_by_name || is_topic(&join.left) && is_topic(&join.right);
    if !has_labels
        || !labels::is_about_recordings(filter, &labels::names())
        || columns.iter().any(|column| column.relation != own.relation)
    {
        return None;
    }
    let moved = filter.clone().transform(|expr| {
        Ok(match expr {
            Expr::Column(column) => {
                let moved = datafusion::common::Column::new(key.relation.clone(), column.name);
                Transformed::yes(Expr::Column(moved))
            }
            other => Transformed::no(other),
        })
    });
    let moved = moved.ok()?.data;
    is_of(&moved, join.right.schema()).then_some(moved)
}

/// Whether the columns of a plan are those of a table, or of one joined with others.
fn is_topic(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_topic(&alias.input),
        LogicalPlan::Filter(filter) => is_topic(&filter.input),
        LogicalPlan::Projection(projection) => {
            let mut exprs = projection.expr.iter();
            exprs.all(|expr| matches!(expr, Expr::Column(_))) && is_topic(&projection.input)
        }
        LogicalPlan::Extension(Extension { node }) => {
            let join = node.as_any().downcast_ref::<AsofJoin>();
            join.is_some_and(|join| is_topic(&join.left))
        }
        _ => false,
    }
}

/// Plans queries with as-of joins.
#[derive(Debug)]
pub(crate) struct AsofPlanner;

#[async_trait]
impl QueryPlanner for AsofPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner =
            DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(AsofExtension)]);
        planner.create_physical_plan(plan, session).await
    }
}

struct AsofExtension;

#[async_trait]
impl ExtensionPlanner for AsofExtension {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        planning: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(join) = node.as_any().downcast_ref::<AsofJoin>() else {
            return Ok(None);
        };
        let ([left, right], [left_plan, right_plan]) = (physical_inputs, logical_inputs) else {
            return Err(DataFusionError::Internal(
                "an as-of join has two sides".into(),
            ));
        };
        let create = |expr: &Expr, plan: &LogicalPlan| {
            planner.create_physical_expr(expr, plan.schema(), session, planning)
        };
        let left_time = create(&join.left_time, left_plan)?;
        let right_time = create(&join.right_time, right_plan)?;
        let schema = Arc::new(join.schema.as_arrow().clone());
        if let Some(times) = place_of(&left_time).zip(place_of(&right_time))
            && is_within_recordings(&join.on)
        {
            let condition = Condition {
                left_time: times.0,
                right_time: times.1,
                how: join.how,
            };
            let (left, right) = (absorbed(left), absorbed(right));
            let right = right.downcast_ref::<TopicScan>();
            let fused = right
                .and_then(|right| AsofScan::fuse(&*left, right, condition, Arc::clone(&schema)));
            if let Some(fused) = fused {
                return Ok(Some(Arc::new(fused)));
            }
        }
        let mut keys = Vec::new();
        for (one, other) in &join.on {
            keys.push((create(one, left_plan)?, create(other, right_plan)?));
        }
        // Of equal ones the order of arrival counts, which a sort by time would lose.
        let mut right = Arc::clone(right);
        let order = in_order(&right_time, &right);
        let order = order.map(|order| right.equivalence_properties().ordering_satisfy(order));
        if !order.transpose()?.unwrap_or(false) {
            right = Arc::new(NumberedExec::new(right));
        }
        let exec = AsofJoinExec::new(
            Arc::clone(left),
            right,
            left_time,
            right_time,
            keys,
            join.how,
            schema,
        );
        Ok(Some(Arc::new(exec)))
    }
}

/// Whether the only key is the recording.
fn is_within_recordings(on: &[(Expr, Expr)]) -> bool {
    let is_recording =
        |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == RECORDING);
    matches!(on, [(one, other)] if is_recording(one) && is_recording(other))
}

fn place_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let column = expr.as_ref().downcast_ref::<Column>()?;
    Some(column.index())
}

/// A scan with the projection above it absorbed.
fn absorbed(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let projection = plan.downcast_ref::<ProjectionExec>();
    let scan = projection.and_then(|projection| {
        let scan = projection.input().downcast_ref::<TopicScan>()?;
        scan.with_projection(projection)
    });
    scan.map_or_else(|| Arc::clone(plan), |scan| Arc::new(scan) as _)
}
