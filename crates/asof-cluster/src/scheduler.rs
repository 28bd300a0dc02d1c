//! The process that splits queries into tasks.

use std::net::SocketAddr;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;
use asof_sql::PlanCodec;
use axum::routing::get;
use axum::{Router, middleware};
use ballista_core::extension::BallistaConfigGrpcEndpoint;
use ballista_core::flight_proxy_service::BallistaFlightProxyService;
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_scheduler::api::get_routes;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::create_scheduler;
use ballista_scheduler::scheduler_server::SchedulerServer;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tonic::codegen::http::StatusCode;
use tonic::service::RoutesBuilder;

use crate::allowed::{NoLogicalPlan, SentPlan};
use crate::error::engine;
use crate::terms::{MESSAGE_BYTES, SCHEDULING, admitted, runtime};
use crate::token::admit;
use crate::{ClusterError, Token};

/// How a scheduler runs.
#[derive(Debug, Clone)]
pub struct SchedulerOptions {
    /// Where it listens: for clients, executors, and its REST interface.
    pub listen: SocketAddr,
    /// What clients and executors must know; without it only this machine is listened to.
    pub token: Option<Token>,
    /// How many seconds an executor may be silent before it counts as lost, and its tasks run elsewhere.
    pub executor_timeout: u64,
}

impl Default for SchedulerOptions {
    /// This machine alone, at Ballista's port; 20 seconds.
    fn default() -> Self {
        SchedulerOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 50050)),
            token: None,
            executor_timeout: 20,
        }
    }
}

/// A running scheduler, until it is dropped.
#[derive(Debug)]
pub struct ClusterScheduler {
    address: SocketAddr,
    runtime: Runtime,
    serving: tokio::task::JoinHandle<Result<(), ClusterError>>,
}

impl ClusterScheduler {
    /// Starts one.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(options: &SchedulerOptions) -> Result<Self, ClusterError> {
        admitted(options.listen, options.token.as_ref())?;
        let runtime = runtime("asof-scheduler")?;
        let bound = runtime.block_on(TcpListener::bind(options.listen));
        let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = bound.map_err(|cause| ClusterError::Listen {
            address: options.listen,
            cause,
        })?;
        let config = Arc::new(config(options, address));
        let scheduler = runtime.block_on(async {
            let cluster = BallistaCluster::new_from_config(&config)
                .await
                .map_err(engine)?;
            create_scheduler::<NoLogicalPlan, SentPlan>(cluster, Arc::clone(&config))
                .await
                .map_err(engine)
        })?;
        let routes = routes(scheduler, options.token.clone());
        let serving = runtime.spawn(async move {
            axum::serve(
                listener,
                routes.into_make_service_with_connect_info::<SocketAddr>(),
            )
            .await
            .map_err(engine)
        });
        Ok(ClusterScheduler {
            address,
            runtime,
            serving,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it ends, which it does only when something goes wrong.
    ///
    /// # Errors
    /// What went wrong.
    pub fn wait(self) -> Result<(), ClusterError> {
        let ended = self.runtime.block_on(self.serving);
        ended.map_err(engine)?
    }
}

/// What a scheduler serves: Ballista's services, put together here so that no request passes without the token.
fn routes(scheduler: SchedulerServer<NoLogicalPlan, SentPlan>, token: Option<Token>) -> Router {
    let limit = MESSAGE_BYTES as usize;
    let sending = token.as_ref().map(Token::sending);
    let sending = sending.map(|hook| Arc::new(BallistaConfigGrpcEndpoint::new(hook)));
    // Clients reach the scheduler, but not necessarily the executors.
    let rows = BallistaFlightProxyService::new(limit, limit, false, sending);
    let mut services = RoutesBuilder::default();
    services
        .add_service(
            SchedulerGrpcServer::new(scheduler.clone())
                .max_encoding_message_size(limit)
                .max_decoding_message_size(limit),
        )
        .add_service(
            FlightServiceServer::new(rows)
                .max_encoding_message_size(limit)
                .max_decoding_message_size(limit),
        );
    let services = services.routes().into_axum_router();
    let scheduler = Arc::new(scheduler);
    let probed = Arc::clone(&scheduler);
    let readiness = async move || {
        if probed.is_ready() {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    get_routes(scheduler)
        .merge(services.fallback(async || StatusCode::NOT_FOUND))
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(readiness))
        .layer(middleware::from_fn_with_state(token, admit))
}

fn config(options: &SchedulerOptions, address: SocketAddr) -> SchedulerConfig {
    let codec = PlanCodec::handing_on(Arc::new(BallistaPhysicalExtensionCodec::default()));
    let timeout = options.executor_timeout.max(1);
    SchedulerConfig {
        namespace: "asof".to_owned(),
        external_host: address.ip().to_string(),
        bind_host: address.ip().to_string(),
        bind_port: address.port(),
        scheduling_policy: SCHEDULING,
        // Recordings are read on all machines at once, not on the first that has room.
        task_distribution: TaskDistributionPolicy::RoundRobin,
        executor_timeout_seconds: timeout,
        expire_dead_executor_interval_seconds: (timeout / 4).max(1),
        no_executors_grace_period_seconds: timeout,
        grpc_server_max_decoding_message_size: MESSAGE_BYTES,
        grpc_server_max_encoding_message_size: MESSAGE_BYTES,
        grpc_client_max_message_size: MESSAGE_BYTES,
        override_physical_codec: Some(Arc::new(codec)),
        ..SchedulerConfig::default()
    }
}
