//! Fetches the rows of a finished query from the executors that hold them.

use std::sync::Arc;

use ballista_core::client::BallistaClient;
use ballista_core::extension::BallistaConfigGrpcEndpoint;
use ballista_core::serde::protobuf::PartitionLocation;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures_util::StreamExt as _;

use crate::Token;
use crate::client::Place;
use crate::terms::{MESSAGE_BYTES, host_and_port};

/// How often an executor that does not answer is retried, and after how many milliseconds.
const RETRIES: u8 = 3;
const PAUSE: u64 = 500;

/// The rows of a partition, through the scheduler: clients need not reach executors.
pub(crate) async fn fetch(
    scheduler: Place,
    part: PartitionLocation,
) -> Result<SendableRecordBatchStream> {
    let layout = part.layout();
    let (Some(executor), Some(place)) = (part.executor_meta, part.partition_id) else {
        return Err(DataFusionError::Execution(
            "the cluster does not report where the rows are".to_owned(),
        ));
    };
    let name = executor.id.clone();
    let lost = move |why: &dyn std::fmt::Display| {
        DataFusionError::Execution(format!(
            "the rows of executor {name} cannot be fetched: {why}; if it has died, run the query again"
        ))
    };
    let (host, port) = host_and_port(&scheduler.address)
        .map_err(|error| DataFusionError::Execution(error.to_string()))?;
    let limit = MESSAGE_BYTES as usize;
    let sending = scheduler.token.as_ref().map(Token::sending);
    let sending = sending.map(|hook| Arc::new(BallistaConfigGrpcEndpoint::new(hook)));
    let client =
        BallistaClient::try_new(&host, port, limit, false, sending, RETRIES, PAUSE, 0, 0).await;
    let mut client = client.map_err(|error| lost(&error))?;
    let rows = client
        .fetch_partition_proxied(
            &executor.id,
            &place.into(),
            part.file_id,
            layout,
            &executor.host,
            executor.port as u16,
            true,
        )
        .await
        .map_err(|error| lost(&error))?;
    let schema = rows.schema();
    let rows = rows.map(move |rows| rows.map_err(|error| lost(&error)));
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
}
