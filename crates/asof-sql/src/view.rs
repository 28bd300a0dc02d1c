//! Tables whose rows are made from messages, with a thread for each part.

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

use crate::database::Shared;
#[cfg(feature = "distributed")]
use crate::distributed::{SliceExec, ViewKind};
use crate::labels;
use crate::leaf::Partitions;
use crate::pushdown::Pushdown;
use crate::recordings::Chosen;
#[cfg(feature = "distributed")]
use crate::topic::Slice;

/// Rows that are made from messages.
pub(crate) trait View: Debug + Send + Sync + 'static {
    /// A part of the rows.
    type Part: Part;

    fn schema(&self) -> &SchemaRef;

    fn shared(&self) -> &Arc<Shared>;

    /// The columns that are labels of recordings.
    fn labels(&self) -> &[String] {
        &[]
    }

    /// Which of these filters the parts apply, besides those that are about recordings alone.
    fn pushdown(&self, filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
        Pushdown::pushdown(filters)
    }

    /// The topics whose messages it is made from, under the accepted filters; `None` where recordings need none.
    fn topics<'a>(&'a self, filters: &'a [Expr]) -> Option<Vec<&'a str>>;

    /// The parts of these recordings; `wanted` is what the accepted filters determine of times.
    fn parts(&self, chosen: Vec<Chosen>, wanted: &Pushdown) -> Vec<Self::Part>;

    /// The time column that each part is ordered by.
    const ORDER: Option<&'static str>;

    /// The work for a process that reads the recordings elsewhere, under the accepted filters.
    #[cfg(feature = "distributed")]
    fn described(&self, filters: &[Expr]) -> ViewKind;
}

/// Rows that one thread makes.
pub(crate) trait Part: Debug + Send + Sync + 'static {
    /// Sends the rows, until there are no more or `send` returns false.
    fn run(&self, send: &mut dyn FnMut(RecordBatch) -> bool) -> Result<()>;

    /// Its recording and time range.
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
        let mut support = self.0.pushdown(filters);
        for (support, filter) in support.iter_mut().zip(filters) {
            if labels::is_about_recordings(filter, self.0.labels()) {
                *support = TableProviderFilterPushDown::Exact;
            }
        }
        Ok(support)
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.0.schema();
        let wanted = Pushdown::of(filters);
        let about = labels::about_recordings(filters, self.0.labels());
        let (shared, topics) = (self.0.shared(), self.0.topics(filters));
        let mut chosen = shared.select(topics.as_deref(), &wanted, &about, Some(session))?;
        shared.retain_readable(&mut chosen, |one| one.place);
        let parts = self.0.parts(chosen, &wanted);
        let order = V::ORDER.and_then(|time| order_of(schema, projection, time));
        #[cfg(feature = "distributed")]
        if self.0.shared().is_distributed {
            let slices: Vec<Slice> = parts.iter().map(Part::slice).collect();
            let order = order.map(|(place, _)| place);
            let kind = self.0.described(filters);
            let exec = SliceExec::of_view(kind, projection, order, self.0.shared(), &slices)?;
            return Ok(Arc::new(exec));
        }
        let turns = Partitions::of(parts.len(), self.0.shared().options.threads);
        let order = order.filter(|_| turns.are_single());
        let parts: Vec<Arc<V::Part>> = parts.into_iter().map(Arc::new).collect();
        let mut partitions: Vec<Arc<dyn PartitionStream>> = Vec::new();
        if !parts.is_empty() {
            for partition in 0..turns.count() {
                let own = turns
                    .slices(partition)?
                    .map(|place| Arc::clone(&parts[place]));
                partitions.push(Arc::new(Threaded {
                    schema: Arc::clone(schema),
                    parts: own.collect(),
                }));
            }
        }
        let exec = StreamingTableExec::try_new(
            Arc::clone(schema),
            partitions,
            projection,
            order.map(|(_, order)| order),
            false,
            limit,
        )?;
        Ok(Arc::new(exec))
    }
}

/// The order by a time column, where that is among the columns: its index there.
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

/// Parts one after the other, on a thread of their own.
#[derive(Debug)]
struct Threaded<P: ?Sized> {
    schema: SchemaRef,
    parts: Vec<Arc<P>>,
}

/// The rows of a part, made on a thread of its own.
#[cfg(feature = "distributed")]
pub(crate) fn rows_of(
    part: Arc<dyn Part>,
    schema: SchemaRef,
    context: Arc<TaskContext>,
) -> SendableRecordBatchStream {
    let parts = vec![part];
    Threaded { schema, parts }.execute(context)
}

impl<P: Part + ?Sized> PartitionStream for Threaded<P> {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), 2);
        let sender = builder.tx();
        let parts = self.parts.clone();
        builder.spawn_blocking(move || {
            for part in parts {
                if sender.is_closed() {
                    break;
                }
                part.run(&mut |batch| sender.blocking_send(Ok(batch)).is_ok())?;
            }
            Ok(())
        });
        builder.build()
    }
}
