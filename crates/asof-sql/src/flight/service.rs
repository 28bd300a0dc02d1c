//! The requests of Flight SQL.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, CommandGetCatalogs, CommandGetCrossReference,
    CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys,
    CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest,
    CommandStatementQuery, CommandStatementUpdate, DoPutPreparedStatementResult, ProstMessageExt,
    SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse, IpcMessage,
    SchemaAsIpc, Ticket,
};
use bytes::Bytes;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use datafusion::common::ScalarValue;
use futures_util::{Stream, TryStreamExt, stream};
use prost::Message;
use tokio::sync::Semaphore;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};

use super::answers::{self, Answer, Turns, answered, failed, info, nothing, refused};
use super::facts::{self, CATALOG, SCHEMA, TABLE};
use super::guard::Guard;
use super::statements::{Statement, Statements};
use crate::database::Database;
use crate::error::SqlError;
use crate::parameters::Described;

/// How many queries make rows at once; others wait.
const MAX_CONCURRENT_QUERIES: usize = 4;
/// How many answers are open at once, also those whose clients take no rows. More are refused.
pub const MAX_OPEN_ANSWERS: usize = 64;
/// How many queries are planned at once.
const PLANNED_AT_ONCE: usize = 4;
/// The limit of statements that clients have prepared and not closed, in bytes.
const PREPARED_BYTES: usize = 32 << 20;

/// The service.
pub struct Queries {
    database: Arc<Database>,
    guard: Guard,
    stalled_after: Duration,
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
    plans: Semaphore,
    statements: Statements,
}

impl Queries {
    pub fn new(database: Arc<Database>, guard: Guard, stalled_after: Duration) -> Self {
        Queries {
            database,
            guard,
            stalled_after,
            turns: Arc::new(Semaphore::new(MAX_CONCURRENT_QUERIES)),
            places: Arc::new(Semaphore::new(MAX_OPEN_ANSWERS)),
            plans: Semaphore::new(PLANNED_AT_ONCE),
            statements: Statements::new(PREPARED_BYTES),
        }
    }

    /// The columns and parameters of a statement, without running it.
    async fn described(&self, statement: Statement) -> Result<Described, Status> {
        let _turn = self.plans.acquire().await.map_err(failed)?;
        let database = Arc::clone(&self.database);
        let planning = move || database.describe(&statement.sql, &statement.parameters);
        let planned = tokio::task::spawn_blocking(planning).await;
        planned.map_err(failed)?.map_err(|error| refused(&error))
    }

    async fn run(&self, statement: Statement) -> Answer {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| {
            Status::resource_exhausted(format!(
                "{MAX_OPEN_ANSWERS} answers are open, and no more are; take their rows, or close them"
            ))
        })?;
        let turns = Turns::first(Arc::clone(&self.turns), place).await?;
        let database = Arc::clone(&self.database);
        answers::run(database, statement, self.stalled_after, turns).await
    }
}

fn without_parameters(sql: String) -> Statement {
    Statement {
        sql,
        parameters: Vec::new(),
    }
}

fn ticket_of(command: &impl ProstMessageExt) -> Vec<u8> {
    command.as_any().encode_to_vec()
}

fn ipc(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let message: Result<IpcMessage, ArrowError> = SchemaAsIpc::new(schema, &options).try_into();
    let IpcMessage(bytes) = message.map_err(failed)?;
    Ok(bytes)
}

/// The error of a request that would write.
fn not_reading(what: &str) -> Status {
    refused(&SqlError::NotReading(what.to_owned()))
}

/// The values that a client sends for the parameters of a statement: one row.
async fn values_in(request: Request<PeekableFlightDataStream>) -> Result<Vec<ScalarValue>, Status> {
    let data = request.into_inner().into_peekable();
    let data = data.map_err(|status| FlightError::Tonic(Box::new(status)));
    let mut batches = FlightRecordBatchStream::new_from_flight_data(data);
    let mut values = Vec::new();
    let mut rows = 0;
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows();
        if rows > 1 {
            return Err(Status::invalid_argument(
                "a query takes one row of parameters; there are several",
            ));
        }
        if batch.num_rows() == 1 {
            let value = |column: &ArrayRef| ScalarValue::try_from_array(column, 0);
            let found: Result<_, _> = batch.columns().iter().map(value).collect();
            values = found.map_err(|error| Status::invalid_argument(error.to_string()))?;
        }
    }
    Ok(values)
}

type Handshakes = Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>;
type Info = Result<Response<FlightInfo>, Status>;

#[tonic::async_trait]
impl FlightSqlService for Queries {
    type FlightService = Queries;

    /// A user with a password becomes one with a token.
    async fn do_handshake(
        &self,
        _request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Handshakes>, Status> {
        // The request would have been rejected without the token.
        let token = self.guard.token();
        let answer = HandshakeResponse {
            protocol_version: 0,
            payload: Bytes::copy_from_slice(token.as_bytes()),
        };
        let mut response: Response<Handshakes> =
            Response::new(Box::pin(stream::iter([Ok(answer)])));
        let bearer = MetadataValue::try_from(format!("Bearer {token}")).map_err(failed)?;
        response.metadata_mut().insert("authorization", bearer);
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let statement = without_parameters(query.query.clone());
        let described = self.described(statement).await?;
        // A statement is its own ticket, so nothing has to be stored.
        let ticket = TicketStatementQuery {
            statement_handle: query.query.into_bytes().into(),
        };
        info(&described.columns, ticket_of(&ticket), request)
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        _request: Request<Ticket>,
    ) -> Answer {
        let sql = String::from_utf8(ticket.statement_handle.to_vec());
        let sql = sql.map_err(|_| {
            Status::invalid_argument("this ticket is not a query that this server has planned")
        })?;
        self.run(without_parameters(sql)).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        _request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        if query.transaction_id.is_some() {
            return Err(Status::invalid_argument(
                "this server has no transactions: nothing is written",
            ));
        }
        let statement = without_parameters(query.query.clone());
        let described = self.described(statement).await?;
        Ok(ActionCreatePreparedStatementResult {
            dataset_schema: ipc(&described.columns)?,
            parameter_schema: ipc(&described.parameters)?,
            prepared_statement_handle: self.statements.keep(query.query).into(),
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        query: ActionClosePreparedStatementRequest,
        _request: Request<Action>,
    ) -> Result<(), Status> {
        self.statements.close(&query.prepared_statement_handle);
        Ok(())
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let handle = query.prepared_statement_handle;
        let values = values_in(request).await?;
        self.statements.bind(&handle, values)?;
        Ok(DoPutPreparedStatementResult {
            prepared_statement_handle: Some(handle),
        })
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let statement = self.statements.get(&query.prepared_statement_handle)?;
        let described = self.described(statement).await?;
        info(&described.columns, ticket_of(&query), request)
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        _request: Request<Ticket>,
    ) -> Answer {
        let statement = self.statements.get(&query.prepared_statement_handle)?;
        self.run(statement).await
    }

    async fn do_put_statement_update(
        &self,
        _ticket: CommandStatementUpdate,
        _request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        Err(not_reading("an update"))
    }

    async fn do_put_prepared_statement_update(
        &self,
        _query: CommandPreparedStatementUpdate,
        _request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        Err(not_reading("an update"))
    }

    async fn do_put_statement_ingest(
        &self,
        _ticket: CommandStatementIngest,
        _request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        Err(not_reading("an ingest"))
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let ticket = ticket_of(&query);
        info(&query.into_builder().schema(), ticket, request)
    }

    async fn do_get_catalogs(
        &self,
        query: CommandGetCatalogs,
        _request: Request<Ticket>,
    ) -> Answer {
        let mut rows = query.into_builder();
        rows.append(CATALOG);
        answered(rows.build())
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let ticket = ticket_of(&query);
        info(&query.into_builder().schema(), ticket, request)
    }

    async fn do_get_schemas(
        &self,
        query: CommandGetDbSchemas,
        _request: Request<Ticket>,
    ) -> Answer {
        let mut rows = query.into_builder();
        rows.append(CATALOG, SCHEMA);
        answered(rows.build())
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let ticket = ticket_of(&query);
        info(&query.into_builder().schema(), ticket, request)
    }

    async fn do_get_tables(&self, query: CommandGetTables, _request: Request<Ticket>) -> Answer {
        let mut rows = query.into_builder();
        for table in self.database.tables() {
            if let Some(schema) = self.database.columns(&table) {
                rows.append(CATALOG, SCHEMA, &table, TABLE, &schema)?;
            }
        }
        answered(rows.build())
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let ticket = ticket_of(&query);
        info(&query.into_builder().schema(), ticket, request)
    }

    async fn do_get_table_types(
        &self,
        query: CommandGetTableTypes,
        _request: Request<Ticket>,
    ) -> Answer {
        let mut rows = query.into_builder();
        rows.append(TABLE);
        answered(rows.build())
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let ticket = ticket_of(&query);
        let facts = facts::server()?;
        info(&query.into_builder(&facts).schema(), ticket, request)
    }

    async fn do_get_sql_info(&self, query: CommandGetSqlInfo, _request: Request<Ticket>) -> Answer {
        answered(query.into_builder(&facts::server()?).build())
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let ticket = ticket_of(&query);
        let types = facts::types()?;
        info(&query.into_builder(&types).schema(), ticket, request)
    }

    async fn do_get_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        _request: Request<Ticket>,
    ) -> Answer {
        answered(query.into_builder(&facts::types()?).build())
    }

    // Recordings have no keys; clients that show tables request them, and expect an answer without rows.

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Info {
        info(&facts::primary_keys(), ticket_of(&query), request)
    }

    async fn do_get_primary_keys(
        &self,
        _query: CommandGetPrimaryKeys,
        _request: Request<Ticket>,
    ) -> Answer {
        nothing(&facts::primary_keys())
    }

    async fn get_flight_info_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Info {
        info(&facts::foreign_keys(), ticket_of(&query), request)
    }

    async fn do_get_exported_keys(
        &self,
        _query: CommandGetExportedKeys,
        _request: Request<Ticket>,
    ) -> Answer {
        nothing(&facts::foreign_keys())
    }

    async fn get_flight_info_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Info {
        info(&facts::foreign_keys(), ticket_of(&query), request)
    }

    async fn do_get_imported_keys(
        &self,
        _query: CommandGetImportedKeys,
        _request: Request<Ticket>,
    ) -> Answer {
        nothing(&facts::foreign_keys())
    }

    async fn get_flight_info_cross_reference(
        &self,
        query: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Info {
        info(&facts::foreign_keys(), ticket_of(&query), request)
    }

    async fn do_get_cross_reference(
        &self,
        _query: CommandGetCrossReference,
        _request: Request<Ticket>,
    ) -> Answer {
        nothing(&facts::foreign_keys())
    }

    async fn register_sql_info(&self, _id: i32, _result: &SqlInfo) {}
}
