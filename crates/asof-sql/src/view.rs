//! Tables whose rows are made of messages, a thread for each part.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

use crate::pushdown::Wanted;
use crate::topic::LOG_TIME;

/// Rows that are made of messages.
pub(crate) trait View: Debug + Send + Sync + 'static {
    /// A part of the rows.
    type Part: Part;

    fn schema(&self) -> &SchemaRef;

    /// Which of these filters the parts take into account.
    fn pushdown(&self, filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
        Wanted::pushdown(filters)
    }

    /// The parts with the rows that pass the filters that were taken.
    fn parts(&self, filters: &[Expr]) -> Vec<Self::Part>;

    /// Whether each part is in order of `log_time`.
    const IS_IN_ORDER: bool;
}

/// Rows that one thread makes.
pub(crate) trait Part: Debug + Send + Sync + 'static {
    /// Hands out the rows, until there are no more or `send` says that none are wanted.
    fn run(&self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()>;
}

/// Such rows as a table.
#[derive(Debug)]
pub(crate) struct ViewTable<V>(pub V);

#[async_trait]
impl<V: View> TableProvider for ViewTable<V> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.0.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(self.0.pushdown(filters))
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.0.schema();
        let parts = self.0.parts(filters).into_iter().map(|part| {
            Arc::new(Threaded {
                schema: Arc::clone(schema),
                part: Arc::new(part),
            }) as Arc<dyn PartitionStream>
        });
        let order = V::IS_IN_ORDER
            .then(|| order_of(schema, projection))
            .flatten();
        let exec = StreamingTableExec::try_new(
            Arc::clone(schema),
            parts.collect(),
            projection,
            order,
            false,
            limit,
        )?;
        Ok(Arc::new(exec))
    }
}

/// In order of `log_time`, where that is among the columns.
fn order_of(schema: &SchemaRef, projection: Option<&Vec<usize>>) -> Option<LexOrdering> {
    let time = schema.index_of(LOG_TIME).ok()?;
    let place = match projection {
        None => time,
        Some(columns) => columns.iter().position(|column| *column == time)?,
    };
    let column = Arc::new(Column::new(LOG_TIME, place));
    LexOrdering::new([PhysicalSortExpr::new_default(column)])
}

/// A part on a thread of its own.
#[derive(Debug)]
struct Threaded<P> {
    schema: SchemaRef,
    part: Arc<P>,
}

impl<P: Part> PartitionStream for Threaded<P> {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let sender = builder.tx();
        let part = Arc::clone(&self.part);
        builder
            .spawn_blocking(move || part.run(&mut |batch| sender.blocking_send(Ok(batch)).is_ok()));
        builder.build()
    }
}
