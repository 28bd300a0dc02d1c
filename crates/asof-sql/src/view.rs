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

#[cfg(feature = "distributed")]
use crate::database::Shared;
#[cfg(feature = "distributed")]
use crate::distributed::{SliceExec, ViewKind};
use crate::pushdown::Wanted;
#[cfg(feature = "distributed")]
use crate::topic::Slice;

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

    /// The column of times that each part is in order of.
    const ORDER: Option<&'static str>;

    /// The recordings, and what is made of them under the filters that were taken, for a process that reads them elsewhere.
    #[cfg(feature = "distributed")]
    fn described(&self, filters: &[Expr]) -> (&Arc<Shared>, ViewKind);
}

/// Rows that one thread makes.
pub(crate) trait Part: Debug + Send + Sync + 'static {
    /// Hands out the rows, until there are no more or `send` says that none are wanted.
    fn run(&self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()>;

    /// Of which recording and time it is made.
    #[cfg(feature = "distributed")]
    fn slice(&self) -> Slice;
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
        let order = V::ORDER.and_then(|time| order_of(schema, projection, time));
        #[cfg(feature = "distributed")]
        if let (shared, kind) = self.0.described(filters)
            && shared.is_distributed
        {
            let slices: Vec<Slice> = self.0.parts(filters).iter().map(Part::slice).collect();
            let order = order.map(|(place, _)| place);
            let exec = SliceExec::of_view(kind, projection, order, shared, &slices)?;
            return Ok(Arc::new(exec));
        }
        let parts = self.0.parts(filters).into_iter().map(|part| {
            Arc::new(Threaded {
                schema: Arc::clone(schema),
                part: Arc::new(part),
            }) as Arc<dyn PartitionStream>
        });
        let exec = StreamingTableExec::try_new(
            Arc::clone(schema),
            parts.collect(),
            projection,
            order.map(|(_, order)| order),
            false,
            limit,
        )?;
        Ok(Arc::new(exec))
    }
}

/// In order of a time, where that is among the columns: its place there.
fn order_of(
    schema: &SchemaRef,
    projection: Option<&Vec<usize>>,
    time: &str,
) -> Option<(usize, LexOrdering)> {
    let column = schema.index_of(time).ok()?;
    let place = match projection {
        None => column,
        Some(columns) => columns.iter().position(|one| *one == column)?,
    };
    let column = Arc::new(Column::new(time, place));
    let order = LexOrdering::new([PhysicalSortExpr::new_default(column)])?;
    Some((place, order))
}

/// A part on a thread of its own.
#[derive(Debug)]
struct Threaded<P: ?Sized> {
    schema: SchemaRef,
    part: Arc<P>,
}

/// The rows of a part, made on a thread of its own.
#[cfg(feature = "distributed")]
pub(crate) fn rows_of(
    part: Arc<dyn Part>,
    schema: SchemaRef,
    context: Arc<TaskContext>,
) -> SendableRecordBatchStream {
    Threaded { schema, part }.execute(context)
}

impl<P: Part + ?Sized> PartitionStream for Threaded<P> {
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
