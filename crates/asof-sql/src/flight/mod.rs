//! Arrow Flight SQL over a database, for clients of JDBC and ADBC. Read-only.

#![allow(
    clippy::result_large_err,
    reason = "gRPC returns errors by value, and they are rare"
)]

mod answers;
mod connections;
mod facts;
mod guard;
mod service;
mod statements;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use tokio::runtime::Runtime;
use tonic::Request;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;

use crate::database::Database;
use guard::Guard;
use service::Queries;

/// How many ports are tried when the first is taken.
const PORTS_TO_TRY: u16 = 32;
/// The longest message that a client may send: a query is a text.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// How many requests one connection may have at a time.
const MAX_CONNECTION_STREAMS: u32 = 64;
/// A client that disappears without closing is detected after this time.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Threads that plan queries, or send their rows: one for each open answer.
const BLOCKING_THREADS: usize = 32 + service::MAX_OPEN_ANSWERS;

/// How a [`FlightServer`] is set up.
#[derive(Debug, Clone)]
pub struct FlightOptions {
    /// Where it listens, without TLS.
    pub listen: SocketAddr,
    /// Whether to take the next free port when the one in `listen` is taken.
    pub any_port: bool,
    /// The secret that a client must present: as a bearer token, or as the password of any user.
    pub token: Option<String>,
    /// The most open connections; those beyond it are closed at once.
    pub connections: usize,
    /// A query whose rows are not taken for this long is cancelled.
    pub stalled_after: Duration,
}

impl Default for FlightOptions {
    /// For this machine alone, at any port, without a token.
    fn default() -> Self {
        FlightOptions {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            any_port: true,
            token: None,
            connections: 64,
            stalled_after: Duration::from_mins(1),
        }
    }
}

/// A running Flight SQL server. It ends when this is dropped.
#[derive(Debug)]
pub struct FlightServer {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl FlightServer {
    /// Starts a server over `database`.
    ///
    /// Pages in a browser cannot reach it: it accepts only HTTP/2 without TLS, which browsers do not support.
    ///
    /// # Errors
    /// When the address is not available, when other machines can reach it and there is no token, or when the system has
    /// no threads to give.
    pub fn start(database: Arc<Database>, options: &FlightOptions) -> io::Result<Self> {
        if !options.listen.ip().is_loopback() && options.token.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "other machines can connect to this address, so it needs a token",
            ));
        }
        let listener = bind(options)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("asof-flight")
            .enable_all()
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let incoming = connections::incoming(listener, options.connections);
        let guard = Guard::new(options.token.as_deref());
        let queries = Queries::new(database, guard.clone(), options.stalled_after);
        let service =
            FlightServiceServer::new(queries).max_decoding_message_size(MAX_REQUEST_BYTES);
        let service =
            InterceptedService::new(service, move |request: Request<()>| guard.check(request));
        let serving = Server::builder()
            .max_concurrent_streams(MAX_CONNECTION_STREAMS)
            .http2_keepalive_interval(Some(PING_INTERVAL))
            .http2_keepalive_timeout(Some(PING_INTERVAL))
            .add_service(service)
            .serve_with_incoming(incoming);
        // It ends with the runtime.
        runtime.spawn(serving);
        Ok(FlightServer {
            address,
            runtime: Some(runtime),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for FlightServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn bind(options: &FlightOptions) -> io::Result<TcpListener> {
    let first = TcpListener::bind(options.listen);
    let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    if !options.any_port || !first.as_ref().is_err_and(is_taken) {
        return first;
    }
    let mut address = options.listen;
    for _ in 1..PORTS_TO_TRY {
        address.set_port(address.port().wrapping_add(1));
        if let Ok(listener) = TcpListener::bind(address) {
            return Ok(listener);
        }
    }
    first
}
