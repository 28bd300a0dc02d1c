//! Sends rows to a client.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tonic::{Request, Response, Status};

use super::statements::Statement;
use crate::database::{Database, Waited};
use crate::error::SqlError;

/// How often a running query checks whether its client is still connected.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Messages for a client.
pub type Messages = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;
pub type Answer = Result<Response<Messages>, Status>;

type Batch = Result<RecordBatch, FlightError>;

/// Runs a statement. It ends when the client disconnects, or takes no rows for this long.
pub async fn run(
    database: Arc<Database>,
    statement: Statement,
    stalled_after: Duration,
    turns: Turns,
) -> Answer {
    let (started, start) = oneshot::channel();
    let (sender, coming) = mpsc::channel(2);
    let given_up = Arc::new(OnceLock::new());
    let handing = Handing {
        sender,
        stalled_after,
        given_up: Arc::clone(&given_up),
        turns,
    };
    tokio::task::spawn_blocking(move || handing.hand_on(&database, statement, started));
    let schema = start
        .await
        .map_err(|_| Status::internal("the query could not be started"))?
        .map_err(|error| refused(&error))?;
    let rows = stream::unfold(coming, |mut coming: mpsc::Receiver<Batch>| async {
        Some((coming.recv().await?, coming))
    });
    // Without this, an answer that breaks off would look complete.
    let reason = std::iter::once_with(move || given_up.get().cloned()).flatten();
    let reason = reason.map(|status: Status| Err(FlightError::Tonic(Box::new(status))));
    Ok(encoded(&schema, rows.chain(stream::iter(reason))))
}

/// Sends rows of a query to a client.
struct Handing {
    sender: mpsc::Sender<Batch>,
    stalled_after: Duration,
    /// Why the client gets no more.
    given_up: Arc<OnceLock<Status>>,
    turns: Turns,
}

/// The right to make rows. It is returned while a client takes none, so that slow readers keep nobody else waiting.
pub struct Turns {
    all: Arc<Semaphore>,
    current: Option<OwnedSemaphorePermit>,
    /// The place among the open answers.
    _place: OwnedSemaphorePermit,
}

impl Turns {
    /// Waits for the first turn.
    pub async fn first(all: Arc<Semaphore>, place: OwnedSemaphorePermit) -> Result<Self, Status> {
        let current = Arc::clone(&all).acquire_owned().await.map_err(failed)?;
        Ok(Turns {
            all,
            current: Some(current),
            _place: place,
        })
    }

    /// Waits for the next turn, unless this one goes on. Returns whether there is one: the client may be gone first.
    async fn next(&mut self, client: &mpsc::Sender<Batch>) -> bool {
        if self.current.is_none() {
            tokio::select! {
                turn = Arc::clone(&self.all).acquire_owned() => self.current = turn.ok(),
                () = client.closed() => {}
            }
        }
        self.current.is_some()
    }
}

impl Handing {
    /// Sends rows until there are none, or the client is gone.
    fn hand_on(
        mut self,
        database: &Database,
        statement: Statement,
        started: oneshot::Sender<Result<SchemaRef, SqlError>>,
    ) {
        let rows = database.query_with(&statement.sql, statement.parameters);
        let mut rows = match rows {
            Ok(rows) => rows,
            Err(error) => return drop(started.send(Err(error))),
        };
        if started.send(Ok(rows.schema())).is_err() {
            return;
        }
        loop {
            if !Handle::current().block_on(self.turns.next(&self.sender)) {
                return;
            }
            let rows = match rows.wait(POLL_INTERVAL) {
                Waited::End => return,
                Waited::Nothing if self.sender.is_closed() => return,
                Waited::Nothing => continue,
                Waited::Rows(rows) => rows,
            };
            let rows = rows.map_err(|error| FlightError::Tonic(Box::new(refused(&error))));
            let rows = match self.sender.try_send(rows) {
                Ok(()) => continue,
                Err(TrySendError::Closed(_)) => return,
                Err(TrySendError::Full(rows)) => rows,
            };
            self.turns.current = None;
            let sent =
                Handle::current().block_on(self.sender.send_timeout(rows, self.stalled_after));
            match sent {
                Ok(()) => {}
                Err(SendTimeoutError::Closed(_)) => return,
                Err(SendTimeoutError::Timeout(_)) => {
                    let text = format!(
                        "the query was cancelled: its rows were not taken for {} s",
                        self.stalled_after.as_secs_f32()
                    );
                    // Set once, here.
                    drop(self.given_up.set(Status::deadline_exceeded(text)));
                    return;
                }
            }
        }
    }
}

/// An error of a query as a gRPC status.
pub fn refused(error: &SqlError) -> Status {
    let text = error.to_string();
    match error {
        SqlError::Query { .. } => Status::invalid_argument(text),
        SqlError::NotReading(_) => Status::permission_denied(text),
        SqlError::Memory(_) => Status::resource_exhausted(text),
        _ => Status::internal(text),
    }
}

pub fn failed(error: impl std::error::Error) -> Status {
    Status::internal(error.to_string())
}

/// An answer from memory.
pub fn answered(batch: Result<RecordBatch, FlightError>) -> Answer {
    let batch = batch.map_err(failed)?;
    Ok(encoded(&batch.schema(), stream::iter([Ok(batch)])))
}

/// An answer without rows.
pub fn nothing(schema: &SchemaRef) -> Answer {
    answered(Ok(RecordBatch::new_empty(Arc::clone(schema))))
}

/// How to get an answer: with `ticket`.
pub fn info(
    schema: &SchemaRef,
    ticket: Vec<u8>,
    request: Request<FlightDescriptor>,
) -> Result<Response<FlightInfo>, Status> {
    // The schema as it will be sent.
    let sent = FlightDataEncoderBuilder::new()
        .with_schema(plain_schema(schema))
        .build(stream::empty())
        .known_schema();
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket));
    let info = FlightInfo::new()
        .try_with_schema(sent.as_deref().unwrap_or(schema))
        .map_err(failed)?
        .with_endpoint(endpoint)
        .with_descriptor(request.into_inner());
    Ok(Response::new(info))
}

fn encoded(
    schema: &SchemaRef,
    rows: impl Stream<Item = Batch> + Send + 'static,
) -> Response<Messages> {
    let schema = plain_schema(schema);
    let sent = Arc::clone(&schema);
    let rows = rows.map(move |batch| Ok(plain(&batch?, &sent)?));
    let data = FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .build(rows)
        .map_err(Status::from);
    Response::new(Box::pin(data))
}

/// Columns of texts and bytes in the form that every client supports: views are newer than most clients.
fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    let plain = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8View => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        DataType::BinaryView => Arc::new(field.as_ref().clone().with_data_type(DataType::Binary)),
        _ => Arc::clone(field),
    };
    let fields: Vec<_> = schema.fields().iter().map(plain).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn plain(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match column.data_type() {
        DataType::Utf8View | DataType::BinaryView => cast(column, field.data_type()),
        _ => Ok(Arc::clone(column)),
    });
    let columns = columns.collect::<Result<_, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows)
}
