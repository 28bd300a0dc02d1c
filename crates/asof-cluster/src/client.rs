//! The client of a cluster: plans queries and sends them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use asof_sql::{Cluster, ClusterRows, ClusterStats, PlanCodec};
use ballista_core::BALLISTA_VERSION;
use ballista_core::extension::{SessionConfigExt as _, SessionConfigHelperExt as _};
use ballista_core::ids::new_instance_id;
use ballista_core::optimizer::with_ballista_optimizer_rules;
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::operator_metric::Metric;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    CancelJobParams, ExecuteQueryParams, GetJobMetricsParams, SuccessfulJob, job_status,
};
use ballista_core::version::{check_compatibility, insert_version_header, version_from_metadata};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionConfig;
use datafusion_proto::physical_plan::AsExecutionPlan as _;
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures_util::{StreamExt as _, TryStreamExt, stream};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::fetching::fetch;
use crate::state::executors;
use crate::terms::{MESSAGE_BYTES, host_and_port};
use crate::{ClusterError, Token};

/// How long connecting to a scheduler may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type Scheduler = SchedulerGrpcClient<Channel>;

/// A cluster that runs queries.
#[derive(Debug)]
pub struct ClusterClient {
    place: Place,
    cores: usize,
    codec: PlanCodec,
    counted: Arc<Counted>,
}

/// Where a scheduler is, and what it wants to be told.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub address: String,
    pub token: Option<Token>,
}

/// The counters of the executors.
#[derive(Debug, Default)]
struct Counted {
    read: AtomicU64,
    undecoded: AtomicU64,
}

impl ClusterClient {
    /// Connects to a scheduler, and reads how many cores its executors have.
    ///
    /// # Errors
    /// When there is no scheduler at that address, it has another token, or no executors.
    pub fn connect(address: &str, token: Option<Token>) -> Result<Self, ClusterError> {
        host_and_port(address)?;
        let executors = executors(address, token.as_ref())?;
        if executors.is_empty() {
            return Err(ClusterError::NoExecutors(address.to_owned()));
        }
        let others = Arc::new(BallistaPhysicalExtensionCodec::default());
        Ok(ClusterClient {
            place: Place {
                address: address.to_owned(),
                token,
            },
            cores: executors.iter().map(|one| one.cores).sum(),
            codec: PlanCodec::handing_on(others),
            counted: Arc::default(),
        })
    }

    /// How many cores its executors had at the time of connecting.
    pub fn cores(&self) -> usize {
        self.cores
    }
}

/// A query in progress.
struct Job {
    place: Place,
    /// Its id at the scheduler, while it runs.
    id: Arc<Mutex<Option<String>>>,
    counted: Arc<Counted>,
}

impl Job {
    fn failed(&self, what: impl std::fmt::Display) -> DataFusionError {
        DataFusionError::External(format!("the cluster at {} {what}", self.place.address).into())
    }

    fn set_id(&self, id: Option<String>) {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }

    /// Sends a plan, and waits until it has run.
    async fn run(self, plan: Vec<u8>, config: SessionConfig) -> Result<SuccessfulJob> {
        let mut scheduler = connected(&self.place)
            .await
            .map_err(|error| self.failed(format_args!("cannot be reached: {error}")))?;
        let mut request = Request::new(ExecuteQueryParams {
            query: Some(Query::PhysicalPlan(plan)),
            settings: config.to_key_value_pairs(),
            session_id: new_instance_id(),
            operation_id: new_instance_id(),
        });
        insert_version_header(request.metadata_mut());
        let answer = scheduler.execute_query_push(request).await;
        let answer = answer.map_err(|status| {
            self.failed(format_args!("rejects the query: {}", status.message()))
        })?;
        let version = version_from_metadata(answer.metadata());
        check_compatibility(Some(BALLISTA_VERSION), version)
            .map_err(|why| self.failed(format_args!("has another version: {why}")))?;
        let mut updates = answer.into_inner();
        loop {
            let update = updates.message().await;
            let update = update.map_err(|status| {
                let why = status.message();
                self.failed(format_args!("disconnected while it ran the query: {why}"))
            })?;
            let Some(update) = update else {
                return Err(self.failed("disconnected while it ran the query"));
            };
            let Some(status) = update.status else {
                continue;
            };
            match status.status {
                Some(job_status::Status::Failed(failed)) => {
                    self.set_id(None);
                    return Err(self.failed(format_args!("failed: {}", sentence(&failed.error))));
                }
                Some(job_status::Status::Successful(done)) => {
                    self.set_id(None);
                    self.counted.add(&mut scheduler, status.job_id).await;
                    return Ok(done);
                }
                _ => self.set_id(Some(status.job_id)),
            }
        }
    }
}

impl Counted {
    /// Adds the counters of the executors of a job. Its rows are valid without them, so a scheduler that does not report them is
    /// not an error.
    async fn add(&self, scheduler: &mut Scheduler, job_id: String) {
        let asked = GetJobMetricsParams { job_id };
        let Ok(metrics) = scheduler.get_job_metrics(asked).await else {
            return;
        };
        let stages = metrics.into_inner().stages.into_iter();
        let operators = stages.flat_map(|stage| stage.operators);
        for metric in operators.flat_map(|operator| operator.metrics) {
            let Some(Metric::Count(count)) = metric.metric else {
                continue;
            };
            let counter = match count.name.as_str() {
                ClusterStats::READ => &self.read,
                ClusterStats::UNDECODED => &self.undecoded,
                _ => continue,
            };
            counter.fetch_add(count.value, Ordering::Relaxed);
        }
    }
}

impl Cluster for ClusterClient {
    fn parallelism(&self) -> usize {
        self.cores
    }

    fn prepared(&self, state: SessionState) -> Result<SessionState> {
        let config = state.config().clone().upgrade_for_ballista();
        let rules = with_ballista_optimizer_rules(state.optimizers());
        Ok(SessionStateBuilder::new_from_existing(state)
            .with_config(config)
            .with_optimizer_rules(rules)
            .build())
    }

    fn execute(&self, plan: Arc<dyn ExecutionPlan>, config: SessionConfig) -> Result<ClusterRows> {
        let schema = plan.schema();
        let mut bytes = Vec::new();
        PhysicalPlanNode::try_from_physical_plan(plan, &self.codec)?.try_encode(&mut bytes)?;
        if bytes.len() >= MESSAGE_BYTES as usize {
            return Err(DataFusionError::Plan(format!(
                "the plan has {} bytes, more than the limit of {MESSAGE_BYTES}; select fewer recordings",
                bytes.len()
            )));
        }
        let job = Job {
            place: self.place.clone(),
            id: Arc::default(),
            counted: Arc::clone(&self.counted),
        };
        let (place, id) = (self.place.clone(), Arc::clone(&job.id));
        let fetched = place.clone();
        let rows = stream::once(job.run(bytes, config)).map_ok(move |done| {
            let place = fetched.clone();
            let parts = stream::iter(done.partition_location);
            let parts = parts.map(move |part| stream::once(fetch(place.clone(), part)));
            parts.flat_map(TryStreamExt::try_flatten)
        });
        let rows = RecordBatchStreamAdapter::new(schema, rows.try_flatten());
        Ok(ClusterRows {
            rows: Box::pin(rows),
            cancel: Box::new(move || cancel(place, &id)),
        })
    }

    fn stats(&self) -> ClusterStats {
        ClusterStats {
            read: self.counted.read.load(Ordering::Relaxed),
            undecoded: self.counted.undecoded.load(Ordering::Relaxed),
        }
    }
}

async fn connected(place: &Place) -> Result<Scheduler, Box<dyn std::error::Error + Send + Sync>> {
    let mut endpoint = Endpoint::from_shared(format!("http://{}", place.address))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(CONNECT_TIMEOUT)
        .keep_alive_while_idle(true);
    if let Some(token) = &place.token {
        endpoint = token.sending()(endpoint)?;
    }
    let limit = MESSAGE_BYTES as usize;
    Ok(SchedulerGrpcClient::new(endpoint.connect().await?)
        .max_encoding_message_size(limit)
        .max_decoding_message_size(limit))
}

/// Cancels a job at a scheduler, if it is running.
fn cancel(place: Place, id: &Mutex<Option<String>>) {
    let id = id.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(job_id) = id else { return };
    // The caller may be inside a runtime, where blocking on another is not allowed.
    let thread = std::thread::Builder::new().spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let cancelled = async {
                if let Ok(mut scheduler) = connected(&place).await {
                    drop(scheduler.cancel_job(CancelJobParams { job_id }).await);
                }
            };
            drop(tokio::time::timeout(CONNECT_TIMEOUT, cancelled).await);
        });
        Ok::<_, std::io::Error>(())
    });
    if let Ok(thread) = thread {
        drop(thread.join());
    }
}

/// The message of an error without its wrappers, which are formatted as Rust values with the message in quotes.
fn sentence(text: &str) -> String {
    let quoted = ["Execution(\"", "ResourcesExhausted(\"", "Plan(\""];
    let begin = quoted.iter().filter_map(|layer| {
        let place = text.rfind(layer)?;
        Some(place + layer.len())
    });
    let Some(begin) = begin.max() else {
        return text.lines().next().unwrap_or_default().to_owned();
    };
    let mut sentence = String::new();
    let mut letters = text[begin..].chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            '\\' => match letters.next() {
                Some('n') | None => break,
                Some(escaped) => sentence.push(escaped),
            },
            other => sentence.push(other),
        }
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn a_failure_is_told_in_its_own_words() {
        let nested = r#"Job failed: DataFusionError(Shared(External(DataFusionError(Execution("cannot open \"a\\b.mcap\": it is gone")))))"#;
        assert_eq!(sentence(nested), r#"cannot open "a\b.mcap": it is gone"#);
        let memory = r#"DataFusionError(ResourcesExhausted("too much\nfor one"))"#;
        assert_eq!(sentence(memory), "too much");
        assert_eq!(sentence("no executors\nare left"), "no executors");
        assert_eq!(sentence(r#"Execution("cut off"#), "cut off");
        assert_eq!(sentence(""), "");
    }
}
