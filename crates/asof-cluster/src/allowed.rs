//! The plans that a cluster runs: asof's own leaves, and operators that only compute.
//!
//! Ballista runs whatever it is sent: a scan of any file of the machine, and a sink that writes one. The scheduler refuses such a
//! plan, and so does each executor, which need not trust its scheduler.

use std::sync::Arc;

use ballista_core::JobId;
use ballista_executor::execution_engine::{
    DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor,
};
use bytes::BufMut;
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::common::{Result, plan_err};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_proto::logical_plan::{AsLogicalPlan, LogicalExtensionCodec};
use datafusion_proto::physical_plan::{AsExecutionPlan, PhysicalExtensionCodec};
use datafusion_proto::protobuf::PhysicalPlanNode;

/// Operators that compute rows from those of their inputs, leaves without any data, and asof's own leaf.
const COMPUTING: [&str; 31] = [
    "AggregateExec",
    "AsofJoinExec",
    "BoundedWindowAggExec",
    "BufferExec",
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "CrossJoinExec",
    "EmptyExec",
    "FilterExec",
    "GlobalLimitExec",
    "HashJoinExec",
    "InterleaveExec",
    "LocalLimitExec",
    "NestedLoopJoinExec",
    "NumberedExec",
    "OutputRequirementExec",
    "PartialSortExec",
    "PiecewiseMergeJoinExec",
    "PlaceholderRowExec",
    "ProjectionExec",
    "RepartitionExec",
    "ScalarSubqueryExec",
    "SliceExec",
    "SortExec",
    "SortMergeJoinExec",
    "SortPreservingMergeExec",
    "SymmetricHashJoinExec",
    "UnionExec",
    "UnnestExec",
    "WindowAggExec",
];

/// Whether a plan may run: it reads recordings and rows that are in the plan itself, and nothing else. `is_stage` is whether it
/// comes from a scheduler, which adds operators that exchange rows.
pub(crate) fn verify(plan: &Arc<dyn ExecutionPlan>, is_stage: bool) -> Result<()> {
    // A sort with a limit is named `SortExec(TopK)`.
    let name = plan.name().split('(').next().unwrap_or_default();
    let exchanges = || name.contains("Shuffle") || name == "RuntimeStatsExec";
    let is_allowed = if let Some(exec) = plan.downcast_ref::<DataSourceExec>() {
        let source: &dyn std::any::Any = exec.data_source().as_ref();
        source.is::<MemorySourceConfig>()
    } else {
        COMPUTING.contains(&name) || is_stage && exchanges()
    };
    if !is_allowed {
        return plan_err!(
            "{} is not allowed: a cluster reads recordings and writes nothing",
            plan.name()
        );
    }
    let mut inputs = plan.children().into_iter();
    inputs.try_for_each(|input| verify(input, is_stage))
}

/// Plans that clients send to a scheduler, refused where they are not allowed.
#[derive(Debug, Clone)]
pub(crate) struct SentPlan(PhysicalPlanNode);

impl AsExecutionPlan for SentPlan {
    fn try_decode(buf: &[u8]) -> Result<Self> {
        PhysicalPlanNode::try_decode(buf).map(SentPlan)
    }

    fn try_encode<B: BufMut>(&self, buf: &mut B) -> Result<()> {
        self.0.try_encode(buf)
    }

    fn try_into_physical_plan(
        &self,
        ctx: &TaskContext,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.0.try_into_physical_plan(ctx, codec)?;
        verify(&plan, false)?;
        Ok(plan)
    }

    fn try_from_physical_plan(
        plan: Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<Self> {
        PhysicalPlanNode::try_from_physical_plan(plan, codec).map(SentPlan)
    }
}

/// Logical plans, which clients of asof never send: planning one could read any file of the scheduler's machine.
#[derive(Debug, Clone)]
pub(crate) enum NoLogicalPlan {}

fn no_logical_plan<T>() -> Result<T> {
    plan_err!("this cluster runs the plans of asof; logical plans and SQL are refused")
}

impl AsLogicalPlan for NoLogicalPlan {
    fn try_decode(_: &[u8]) -> Result<Self> {
        no_logical_plan()
    }

    fn try_encode<B: BufMut>(&self, _: &mut B) -> Result<()> {
        match *self {}
    }

    fn try_into_logical_plan(
        &self,
        _: &TaskContext,
        _: &dyn LogicalExtensionCodec,
    ) -> Result<LogicalPlan> {
        match *self {}
    }

    fn try_from_logical_plan(_: &LogicalPlan, _: &dyn LogicalExtensionCodec) -> Result<Self> {
        no_logical_plan()
    }
}

/// Runs the stages that are allowed.
#[derive(Default)]
pub(crate) struct CheckedEngine(DefaultExecutionEngine);

impl ExecutionEngine for CheckedEngine {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        partitions: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        verify(&plan, true)?;
        let engine = &self.0;
        engine.create_query_stage_exec(
            job_id, stage_id, task_id, partitions, plan, work_dir, config,
        )
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::context::SessionContext;

    use super::*;

    /// An executor need not trust its scheduler: what reaches it is looked at again.
    #[test]
    fn stages_that_read_or_write_files_are_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret.csv");
        std::fs::write(&file, "a,b\n1,2\n").unwrap();
        let copy = folder.path().join("copy.csv");
        let engine = CheckedEngine::default();
        let context = SessionContext::new();
        let config = context.copied_config();
        let planned = async |sql: &str| {
            let frame = context.sql(sql).await.unwrap();
            frame.create_physical_plan().await.unwrap()
        };
        crate::terms::runtime("test").unwrap().block_on(async {
            let options = datafusion::prelude::CsvReadOptions::default();
            let path = file.to_str().unwrap();
            context.register_csv("secret", path, options).await.unwrap();
            let copied = format!("COPY secret TO '{}' STORED AS CSV", copy.display());
            for sql in ["SELECT * FROM secret", &copied] {
                let plan = planned(sql).await;
                let job = "job".to_owned().into();
                let work = folder.path().to_str().unwrap();
                let made = engine.create_query_stage_exec(job, 1, 1, vec![0], plan, work, &config);
                let told = made.err().map(|error| error.to_string());
                let told = told.unwrap_or_default();
                assert!(told.contains("is not allowed"), "{sql}: {told}");
            }
        });
    }
}
