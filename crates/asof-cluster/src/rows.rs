//! What an executor serves to others: the rows of its tasks.

use std::pin::Pin;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use ballista_core::serde::decode_protobuf;
use ballista_core::serde::scheduler::Action as Fetch;
use ballista_executor::flight_service::BallistaFlightService;
use futures_util::Stream;
use tonic::{Request, Response, Status, Streaming};

/// Ballista's service without what nobody asks for. A query's id becomes a folder's name there: one that leads elsewhere is refused.
pub(crate) struct Rows(pub BallistaFlightService);

type Sent<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Answer<T> = Result<Response<T>, Status>;

/// Whether a request for rows stays within the executor's folder.
fn verify(request: &[u8]) -> Result<(), Status> {
    let wrong = |_| Status::invalid_argument("this is not a request for rows of a query");
    let Fetch::FetchPartition { job_id, .. } = decode_protobuf(request).map_err(wrong)?;
    let id = job_id.as_str();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if id.is_empty() || !id.bytes().all(is_name) {
        return Err(Status::invalid_argument("this is not the id of a query"));
    }
    Ok(())
}

fn absent<T>() -> Answer<T> {
    Err(Status::unimplemented("an executor only serves rows"))
}

#[tonic::async_trait]
impl FlightService for Rows {
    type DoActionStream = Sent<arrow_flight::Result>;
    type DoExchangeStream = Sent<FlightData>;
    type DoGetStream = Sent<FlightData>;
    type DoPutStream = Sent<PutResult>;
    type HandshakeStream = Sent<HandshakeResponse>;
    type ListActionsStream = Sent<ActionType>;
    type ListFlightsStream = Sent<FlightInfo>;

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        verify(&request.get_ref().ticket)?;
        self.0.do_get(request).await
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Self::DoActionStream> {
        verify(&request.get_ref().body)?;
        self.0.do_action(request).await
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        absent()
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        absent()
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<PollInfo> {
        absent()
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        absent()
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        absent()
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        absent()
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Answer<Self::DoExchangeStream> {
        absent()
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<Self::ListActionsStream> {
        absent()
    }
}
