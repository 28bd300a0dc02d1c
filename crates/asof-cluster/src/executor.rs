//! The processes that read recordings.

use std::net::SocketAddr;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;
use asof_sql::PlanCodec;
use ballista_core::error::BallistaError;
use ballista_core::extension::SessionConfigExt as _;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use ballista_core::utils::{GrpcServerConfig, create_grpc_server, default_config_producer};
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_executor::flight_service::BallistaFlightService;
use ballista_executor::shutdown::Shutdown;
use datafusion::execution::SessionStateDefaults;
use tonic::Request;
use tonic::service::interceptor::InterceptedService;

use crate::allowed::CheckedEngine;
use crate::error::engine;
use crate::rows::Rows;
use crate::state::executors;
use crate::terms::{MESSAGE_BYTES, SCHEDULING, admitted, host_and_port, runtime};
use crate::token::{is_known, unknown};
use crate::{ClusterError, Roots, Token};

/// How many seconds to wait for a scheduler, so that both can be started at once.
const CONNECT_TIMEOUT_SECONDS: u16 = 60;
/// How many seconds rows for other executors are kept after their query.
const ROW_LIFETIME_SECONDS: u64 = 3600;

/// How an executor runs.
#[derive(Debug)]
pub struct ExecutorOptions {
    /// The scheduler, as host and port.
    pub scheduler: String,
    /// The address at which it serves rows to other executors.
    pub listen: SocketAddr,
    /// What the scheduler and the other executors know; without it only this machine is listened to.
    pub token: Option<Token>,
    /// The name of its machine for others; the address that it connects from by default.
    pub external_host: Option<String>,
    /// What it may open.
    pub roots: Roots,
    /// How many slices it reads at once; 0 for one per core.
    pub cores: usize,
    /// Memory limit of sorts, joins and groups over all tasks, in bytes; 70 % of the machine's memory by default.
    pub memory: Option<u64>,
    /// Its name in messages; made of host and port by default.
    pub name: Option<String>,
}

/// An executor.
#[derive(Debug)]
pub struct ClusterExecutor;

impl ClusterExecutor {
    /// Runs one until the process is asked to end, or something goes wrong.
    ///
    /// # Errors
    /// When the scheduler cannot be reached, or it cannot listen.
    pub fn run(options: ExecutorOptions) -> Result<(), ClusterError> {
        let (host, port) = host_and_port(&options.scheduler)?;
        let listen = options.listen;
        let token = options.token;
        admitted(listen, token.as_ref())?;
        // A scheduler that is not up yet is waited for; one that refuses the token will not change its mind.
        if let Err(refused @ ClusterError::Refused(_)) =
            executors(&options.scheduler, token.as_ref())
        {
            return Err(refused);
        }
        let sending = token.as_ref().map(Token::sending);
        std::net::TcpListener::bind(listen).map_err(|cause| ClusterError::Listen {
            address: listen,
            cause,
        })?;
        // Removed when this ends; after a crash it stays in the system's temporary folder.
        let folder = tempfile::Builder::new()
            .prefix("asof-executor-")
            .tempdir()
            .map_err(ClusterError::Start)?;
        let others = Arc::new(BallistaPhysicalExtensionCodec::default());
        let codec = PlanCodec::new(Arc::new(options.roots), others);
        let shown_host = options.external_host.clone();
        let shown_host = shown_host.unwrap_or_else(|| listen.ip().to_string());
        let config = ExecutorProcessConfig {
            executor_id: options.name.unwrap_or_else(|| {
                format!("{shown_host}:{}-{}", listen.port(), std::process::id())
            }),
            bind_host: listen.ip().to_string(),
            external_host: options.external_host,
            port: listen.port(),
            scheduler_host: host,
            scheduler_port: port,
            scheduler_connect_timeout_seconds: CONNECT_TIMEOUT_SECONDS,
            vcores: options.cores,
            work_dir: Some(folder.path().display().to_string()),
            job_data_ttl_seconds: ROW_LIFETIME_SECONDS,
            job_data_clean_up_interval_seconds: ROW_LIFETIME_SECONDS / 4,
            grpc_max_decoding_message_size: MESSAGE_BYTES,
            grpc_max_encoding_message_size: MESSAGE_BYTES,
            task_scheduling_policy: SCHEDULING,
            memory_pool_size: options.memory,
            override_physical_codec: Some(Arc::new(codec)),
            override_execution_engine: Some(Arc::new(CheckedEngine::default())),
            override_function_registry: Some(Arc::new(functions())),
            override_create_grpc_client_endpoint: sending.clone(),
            override_config_producer: Some(Arc::new(move || {
                let config = default_config_producer();
                match sending.clone() {
                    Some(hook) => config.with_ballista_override_create_grpc_client_endpoint(hook),
                    None => config,
                }
            })),
            override_arrow_flight_service: Some(Arc::new(move |folder, address, stop, server| {
                tokio::spawn(serve_rows(folder, address, stop, server, token.clone()))
            })),
            ..ExecutorProcessConfig::default()
        };
        let scheduler = options.scheduler.clone();
        runtime("asof-executor")?
            .block_on(start_executor_process(Arc::new(config)))
            .map_err(|error| match error.to_string() {
                text if text.contains("connect to scheduler") => ClusterError::Unreachable {
                    address: scheduler,
                    reason: format!("there was no answer for {CONNECT_TIMEOUT_SECONDS} seconds"),
                },
                text => engine(text),
            })
    }
}

/// Serves rows to the scheduler and to other executors.
async fn serve_rows(
    folder: String,
    address: SocketAddr,
    mut stop: Shutdown,
    server: GrpcServerConfig,
    token: Option<Token>,
) -> Result<(), BallistaError> {
    let rows = FlightServiceServer::new(Rows(BallistaFlightService::new(folder)))
        .max_decoding_message_size(MESSAGE_BYTES as usize)
        .max_encoding_message_size(MESSAGE_BYTES as usize);
    let admitted = move |request: Request<()>| {
        let headers = request.metadata().clone().into_headers();
        if is_known(token.as_ref(), &headers) {
            Ok(request)
        } else {
            Err(unknown())
        }
    };
    let served = create_grpc_server(&server)
        .add_service(InterceptedService::new(rows, admitted))
        .serve_with_shutdown(address, stop.recv());
    served.await.map_err(BallistaError::TonicError)
}

/// All functions that a query may call by name. Ballista's own list lacks those of lists and structs; functions over recordings
/// come with the plan.
fn functions() -> BallistaFunctionRegistry {
    let mut functions = BallistaFunctionRegistry::default();
    let scalars = SessionStateDefaults::default_scalar_functions().into_iter();
    functions
        .scalar_functions
        .extend(scalars.map(|function| (function.name().to_owned(), function)));
    let aggregates = SessionStateDefaults::default_aggregate_functions().into_iter();
    functions
        .aggregate_functions
        .extend(aggregates.map(|function| (function.name().to_owned(), function)));
    functions
}
