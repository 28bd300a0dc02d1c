//! What clients and neighbours try that a cluster refuses.
#![cfg(feature = "engine")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use arrow_flight::Ticket;
use arrow_flight::flight_service_client::FlightServiceClient;
use asof_cluster::{
    ClusterClient, ClusterError, ClusterExecutor, ClusterScheduler, ExecutorOptions, Roots,
    SchedulerOptions, Token, executors,
};
use asof_sql::Cluster as _;
use asof_sql::arrow::util::pretty::pretty_format_batches;
use ballista_core::serde::protobuf;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    CancelJobParams, CleanJobDataParams, CreateUpdateSessionParams, ExecuteQueryParams,
    ExecutorStoppedParams, GetJobMetricsParams, GetJobStatusParams, HeartBeatParams,
    PollWorkParams, RegisterExecutorParams, RemoveSessionParams, UpdateTaskStatusParams,
};
use ballista_core::serde::scheduler::{Action, PartitionId, ShuffleFileKind, ShuffleLayout};
use ballista_core::version::insert_version_header;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{CsvReadOptions, SessionContext};
use datafusion_proto::bytes::{logical_plan_to_bytes, physical_plan_to_bytes};
use futures_util::StreamExt as _;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use common::{Fixture, loopback, write_demo};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn token(text: &str) -> Token {
    Token::new(text).expect("a token")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("threads")
}

/// A session that has a table of a file of `folder`.
async fn session(folder: &Path) -> SessionContext {
    let context = SessionContext::new();
    let secret = folder.join("secret.csv").display().to_string();
    let read = context.register_csv("secret", secret, CsvReadOptions::default());
    read.await.expect("a table");
    context
}

async fn planned(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    let frame = context.sql(sql).await.expect(sql);
    frame.create_physical_plan().await.expect(sql)
}

/// The error of a plan that is sent as it is.
fn refusal(fixture: &Fixture, sql: &str, folder: &Path) -> String {
    let client = fixture.client();
    runtime().block_on(async {
        let context = session(folder).await;
        let plan = planned(&context, sql).await;
        let started = client
            .execute(plan, context.copied_config())
            .expect("it is sent");
        let rows: Vec<_> = started.rows.collect().await;
        let error = rows.into_iter().find_map(Result::err);
        error.unwrap_or_else(|| panic!("{sql} has run")).to_string()
    })
}

#[test]
fn plans_that_read_or_write_other_files_are_refused() {
    let fixture = Fixture::new(1);
    // Beside the root, and within it.
    let beside = tempfile::tempdir().expect("a folder");
    for folder in [beside.path(), fixture.folder.path()] {
        std::fs::write(folder.join("secret.csv"), "a,b\n1,2\n").expect("a file");
        let copy = folder.join("copy.csv").display().to_string();
        for sql in [
            "SELECT * FROM secret".to_owned(),
            "SELECT sum(a) FROM secret GROUP BY b".to_owned(),
            "SELECT 1 WHERE EXISTS (SELECT * FROM secret WHERE a > 0)".to_owned(),
            "SELECT * FROM secret UNION ALL SELECT 1, 2".to_owned(),
            format!("COPY secret TO '{copy}' STORED AS CSV"),
            format!("COPY (SELECT 1 AS a) TO '{copy}' STORED AS CSV"),
            "EXPLAIN ANALYZE SELECT * FROM secret".to_owned(),
        ] {
            let error = refusal(&fixture, &sql, folder);
            assert!(error.contains("is not allowed"), "{sql}: {error}");
        }
        assert!(!Path::new(&copy).exists(), "{copy} was written");
        let kept = std::fs::read_to_string(folder.join("secret.csv")).expect("a file");
        assert_eq!(kept, "a,b\n1,2\n");
    }
}

/// A scheduler's services, asked with this secret.
async fn channel(address: &str, secret: Option<&str>) -> Channel {
    let mut endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    if let Some(secret) = secret {
        let name = format!("asof-token/{secret}");
        endpoint = endpoint.user_agent(name).expect("a name");
    }
    endpoint.connect().await.expect("a connection")
}

/// What a query is answered with: the first error, whether of the call or within its answer.
async fn sent(channel: Channel, query: Query) -> Result<String, Status> {
    let mut asked = tonic::Request::new(ExecuteQueryParams {
        query: Some(query),
        session_id: "somebody".to_owned(),
        operation_id: "anything".to_owned(),
        ..ExecuteQueryParams::default()
    });
    insert_version_header(asked.metadata_mut());
    let answer = SchedulerGrpcClient::new(channel)
        .execute_query_push(asked)
        .await?;
    let mut updates = answer.into_inner();
    while let Some(update) = updates.message().await? {
        let status = format!("{:?}", update.status);
        if status.contains("Failed") || status.contains("Successful") {
            return Ok(status);
        }
    }
    Ok("ended".to_owned())
}

/// A plan that makes a table, reads one, or writes a file, as a logical plan.
async fn logical(folder: &Path, sql: &str) -> Vec<u8> {
    let context = session(folder).await;
    let plan: LogicalPlan = context.state().create_logical_plan(sql).await.expect(sql);
    logical_plan_to_bytes(&plan).expect(sql).to_vec()
}

#[test]
fn logical_plans_are_refused_whatever_they_say() {
    let fixture = Fixture::new(1);
    let folder = fixture.folder.path();
    std::fs::write(folder.join("secret.csv"), "a,b\n1,2\n").expect("a file");
    let (file, copy) = (folder.join("secret.csv"), folder.join("copy.csv"));
    let (file, copy) = (file.display(), copy.display());
    runtime().block_on(async {
        let external = format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{file}'");
        let queries = [
            Query::LogicalPlan(logical(folder, "SELECT 1").await),
            Query::LogicalPlan(logical(folder, "SELECT * FROM secret").await),
            Query::LogicalPlan(logical(folder, &external).await),
            Query::LogicalPlan(logical(folder, "CREATE VIEW v AS SELECT * FROM secret").await),
            Query::LogicalPlan(
                logical(folder, &format!("COPY secret TO '{copy}' STORED AS CSV")).await,
            ),
            Query::LogicalPlan(vec![0xff; 64]),
            Query::SubstraitPlan(vec![1, 2, 3]),
            Query::PhysicalPlan(vec![0xff; 64]),
            Query::PhysicalPlan(Vec::new()),
        ];
        for query in queries {
            let shown = format!("{query:.60?}");
            let answer = sent(channel(&fixture.address(), None).await, query).await;
            assert!(
                answer.as_ref().is_err()
                    || answer.as_ref().is_ok_and(|text| text.contains("Failed")),
                "{shown}: {answer:?}"
            );
        }
        // The plan of the report: a scan of a file and a sink of another.
        let context = session(folder).await;
        let copied = format!("COPY secret TO '{copy}' STORED AS CSV");
        let plan = physical_plan_to_bytes(planned(&context, &copied).await).expect("bytes");
        let answer = sent(
            channel(&fixture.address(), None).await,
            Query::PhysicalPlan(plan.to_vec()),
        );
        let answer = format!("{:?}", answer.await);
        assert!(answer.contains("is not allowed"), "{answer}");
    });
    assert!(!folder.join("copy.csv").exists());
}

/// Everything that a scheduler can be asked, with the code of each answer.
async fn codes(channel: Channel) -> Vec<(&'static str, Code)> {
    fn code<T>(answer: Result<T, Status>) -> Code {
        answer.err().map_or(Code::Ok, |status| status.code())
    }
    let mut one = SchedulerGrpcClient::new(channel.clone());
    let mut rows = FlightServiceClient::new(channel);
    vec![
        ("poll", code(one.poll_work(PollWorkParams::default()).await)),
        (
            "register",
            code(
                one.register_executor(RegisterExecutorParams::default())
                    .await,
            ),
        ),
        (
            "heart beat",
            code(
                one.heart_beat_from_executor(HeartBeatParams::default())
                    .await,
            ),
        ),
        (
            "update",
            code(
                one.update_task_status(UpdateTaskStatusParams::default())
                    .await,
            ),
        ),
        (
            "session",
            code(
                one.create_update_session(CreateUpdateSessionParams::default())
                    .await,
            ),
        ),
        (
            "no session",
            code(one.remove_session(RemoveSessionParams::default()).await),
        ),
        (
            "push",
            code(one.execute_query_push(ExecuteQueryParams::default()).await),
        ),
        (
            "query",
            code(one.execute_query(ExecuteQueryParams::default()).await),
        ),
        (
            "status",
            code(one.get_job_status(GetJobStatusParams::default()).await),
        ),
        (
            "metrics",
            code(one.get_job_metrics(GetJobMetricsParams::default()).await),
        ),
        (
            "stopped",
            code(one.executor_stopped(ExecutorStoppedParams::default()).await),
        ),
        (
            "cancel",
            code(one.cancel_job(CancelJobParams::default()).await),
        ),
        (
            "clean",
            code(one.clean_job_data(CleanJobDataParams::default()).await),
        ),
        ("rows", code(rows.do_get(Ticket::default()).await)),
    ]
}

/// The first line of the answer to a plain HTTP request.
fn http(address: &str, request: &str, header: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(stream, "{request} HTTP/1.0\r\nHost: a\r\n{header}\r\n").expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn nobody_without_the_token_is_served() {
    let fixture = Fixture::with_token(2, Some(token(SECRET)));
    let address = fixture.address();
    let wrong = "0123456789abcdef0123456789abcdeX";
    let all = executors(&address, fixture.token.as_ref()).expect("executors");
    runtime().block_on(async {
        for secret in [None, Some(wrong), Some(&SECRET[..31])] {
            for (what, code) in codes(channel(&address, secret).await).await {
                assert_eq!(code, Code::Unauthenticated, "{what} with {secret:?}");
            }
            for one in &all {
                let executor = format!("{}:{}", one.host, one.port);
                let mut rows = FlightServiceClient::new(channel(&executor, secret).await);
                let refused = refused_by(rows.do_get(Ticket::default()).await);
                assert_eq!(refused.code(), Code::Unauthenticated, "{secret:?}");
            }
        }
        let known = codes(channel(&address, Some(SECRET)).await).await;
        assert!(
            known.iter().all(|(_, code)| *code != Code::Unauthenticated),
            "{known:?}"
        );
    });
    for request in [
        "GET /api/executors",
        "GET /api/state",
        "GET /api/jobs",
        "GET /api/metrics",
        "GET /",
        "PATCH /api/job/1",
        "GET /nothing",
        "GET /api/../healthz",
        "POST /healthz/x",
    ] {
        for header in [
            String::new(),
            format!("Authorization: Bearer {wrong}\r\n"),
            format!("Authorization: Basic {SECRET}\r\n"),
            format!("Cookie: token={SECRET}\r\n"),
        ] {
            let line = http(&address, request, &header);
            assert!(line.contains("401"), "{request} {header:?}: {line}");
        }
    }
    let bearer = format!("Authorization: Bearer {SECRET}\r\n");
    assert!(http(&address, "GET /api/executors", &bearer).contains("200"));
    assert!(http(&address, "GET /healthz", "").contains("200"));

    for bad in [None, Some(token(wrong))] {
        let refused = ClusterClient::connect(&address, bad.clone()).expect_err("a refusal");
        assert!(matches!(refused, ClusterError::Refused(_)), "{refused}");
        let refused = ClusterExecutor::run(executor(&address, loopback(), bad));
        assert!(
            matches!(refused, Err(ClusterError::Refused(_))),
            "{refused:?}"
        );
    }
}

#[test]
fn those_with_the_token_are_answered_as_in_one_process() {
    let fixture = Fixture::with_token(2, Some(token(SECRET)));
    let paths: Vec<_> = (1..=3)
        .map(|n| fixture.path(&format!("{n}.mcap")))
        .collect();
    for (path, seed) in paths.iter().zip(1..) {
        write_demo(path, seed);
    }
    let (here, there) = fixture.databases(&paths);
    // Rows are exchanged between executors, and come through the scheduler.
    for sql in [
        "SELECT recording, count(*) FROM imu GROUP BY 1 ORDER BY 1",
        "SELECT stamp FROM odom ORDER BY stamp DESC LIMIT 3",
    ] {
        let rows = |database: &asof_sql::Database| {
            let rows = database.collect(sql).expect(sql);
            pretty_format_batches(&rows).expect("text").to_string()
        };
        assert_eq!(rows(&there), rows(&here), "{sql}");
    }
}

/// A request for the rows of a query.
fn ticket(job: &str) -> Ticket {
    let wanted = PartitionId::new(&job.to_owned().into(), 1, 0);
    let action = Action::FetchPartition {
        job_id: wanted.job_id,
        stage_id: 1,
        partition_id: 0,
        host: "127.0.0.1".to_owned(),
        port: 1,
        file_id: None,
        layout: ShuffleLayout::Passthrough,
        file_kind: ShuffleFileKind::Data,
        byte_ranges: Vec::new(),
    };
    let action: protobuf::Action = action.try_into().expect("a message");
    let mut bytes = Vec::new();
    prost::Message::encode(&action, &mut bytes).expect("bytes");
    Ticket {
        ticket: bytes.into(),
    }
}

#[test]
fn rows_of_other_folders_are_not_served() {
    let fixture = Fixture::new(1);
    let outside = tempfile::tempdir().expect("a folder");
    let folder = outside.path().join("1").join("0");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("data.arrow"), b"anything").expect("a file");
    let all = executors(&fixture.address(), None).expect("executors");
    let executor = format!("{}:{}", all[0].host, all[0].port);
    runtime().block_on(async {
        let mut rows = FlightServiceClient::new(channel(&executor, None).await);
        let outside = outside.path().display().to_string();
        for job in [outside.as_str(), "../x", "..", "", "a/b"] {
            let refused = refused_by(rows.do_get(ticket(job)).await);
            assert!(
                refused.message().contains("not the id of a query"),
                "{job}: {refused}"
            );
        }
        let refused = rows
            .do_get(Ticket {
                ticket: vec![0xff; 9].into(),
            })
            .await;
        assert_eq!(refused_by(refused).code(), Code::InvalidArgument);
    });
}

fn executor(scheduler: &str, listen: SocketAddr, token: Option<Token>) -> ExecutorOptions {
    ExecutorOptions {
        scheduler: scheduler.to_owned(),
        listen,
        token,
        external_host: None,
        roots: Roots::new(&[std::env::temp_dir()]).expect("roots"),
        cores: 1,
        memory: None,
        name: None,
    }
}

#[test]
fn nobody_listens_beyond_the_machine_without_a_token() {
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let options = SchedulerOptions {
        listen: everywhere,
        ..SchedulerOptions::default()
    };
    let refused = ClusterScheduler::start(&options).err();
    assert!(
        matches!(refused, Some(ClusterError::Open(_))),
        "{refused:?}"
    );
    let refused = ClusterExecutor::run(executor("127.0.0.1:1", everywhere, None));
    assert!(matches!(refused, Err(ClusterError::Open(_))), "{refused:?}");
    assert!(SchedulerOptions::default().listen.ip().is_loopback());
    let options = SchedulerOptions {
        token: Some(token(SECRET)),
        ..options
    };
    assert!(ClusterScheduler::start(&options).is_ok());
}

/// Why something was refused.
fn refused_by<T>(answer: Result<T, Status>) -> Status {
    match answer {
        Ok(_) => panic!("it was not refused"),
        Err(status) => status,
    }
}
