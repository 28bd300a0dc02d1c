//! Tables of the user's own, beside those of recordings.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::PartitionStream;

/// A table that is not of a recording, such as labels. Queries only read it; each reads it anew.
#[derive(Clone)]
pub struct OwnTable {
    schema: SchemaRef,
    open: Arc<Open>,
}

/// The rows of an [`OwnTable`].
pub type OwnRows = Box<dyn Iterator<Item = Result<RecordBatch, OwnTableError>> + Send>;
/// Why the rows of an [`OwnTable`] cannot be read.
pub type OwnTableError = Box<dyn std::error::Error + Send + Sync>;
type Open = dyn Fn() -> Result<OwnRows, OwnTableError> + Send + Sync;

impl OwnTable {
    /// A table with these columns, and a way to read its rows.
    pub fn new(
        schema: SchemaRef,
        open: impl Fn() -> Result<OwnRows, OwnTableError> + Send + Sync + 'static,
    ) -> Self {
        OwnTable {
            schema,
            open: Arc::new(open),
        }
    }

    /// A table of rows in memory.
    pub fn of_rows(schema: SchemaRef, rows: Vec<RecordBatch>) -> Self {
        OwnTable::new(schema, move || {
            Ok(Box::new(rows.clone().into_iter().map(Ok)))
        })
    }
}

impl OwnTable {
    /// As the engine reads it: once for each query, in one part.
    pub(crate) fn for_engine(&self) -> Result<StreamingTable, DataFusionError> {
        let rows: Arc<dyn PartitionStream> = Arc::new(self.clone());
        StreamingTable::try_new(Arc::clone(&self.schema), vec![rows])
    }
}

impl fmt::Debug for OwnTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnTable")
            .field("columns", &self.schema.fields().len())
            .finish_non_exhaustive()
    }
}

impl PartitionStream for OwnTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), 1);
        let (rows, open) = (stream.tx(), Arc::clone(&self.open));
        stream.spawn_blocking(move || {
            for batch in open().map_err(DataFusionError::External)? {
                let batch = batch.map_err(DataFusionError::External);
                // Nobody wants more of them.
                if rows.blocking_send(batch).is_err() {
                    break;
                }
            }
            Ok(())
        });
        stream.build()
    }
}
