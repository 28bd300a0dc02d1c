//! A scheduler and two executors on loopback, against one process.
#![cfg(feature = "engine")]

use std::mem::ManuallyDrop;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_cluster::{
    ClusterClient, ClusterError, ClusterExecutor, ClusterScheduler, ExecutorOptions, Roots,
    SchedulerOptions, executors,
};
use asof_demo::{Demo, DemoOptions};
use asof_formats::{McapWriter, McapWriterOptions, Recording};
use asof_sql::arrow::util::pretty::pretty_format_batches;
use asof_sql::{Cluster as _, Database, RecordingAddress, SqlError, SqlOptions};
use datafusion::prelude::{CsvReadOptions, SessionContext};
use futures_util::StreamExt as _;

/// A cluster that reads the recordings of a folder.
struct Fixture {
    folder: tempfile::TempDir,
    /// It stays up until the process ends: Ballista takes the end of one executor for that of all in its process, and an
    /// executor ends with its scheduler.
    scheduler: ManuallyDrop<ClusterScheduler>,
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A port that is free.
fn free_port() -> SocketAddr {
    let listener = TcpListener::bind(loopback()).expect("a port");
    listener.local_addr().expect("its address")
}

fn write_demo(path: &Path, seed: u64) {
    let mut writer = McapWriter::create(path, McapWriterOptions::default()).expect("a file");
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(3),
        seed,
        ..DemoOptions::default()
    });
    for message in demo.messages() {
        writer.write(&message).expect("a message");
    }
    writer.finish().expect("a file");
}

impl Fixture {
    fn new(executors_wanted: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = SchedulerOptions {
            listen: loopback(),
            ..SchedulerOptions::default()
        };
        let scheduler = ClusterScheduler::start(&options).expect("a scheduler");
        let scheduler = ManuallyDrop::new(scheduler);
        let fixture = Fixture { folder, scheduler };
        for _ in 0..executors_wanted {
            let options = ExecutorOptions {
                scheduler: fixture.address(),
                listen: free_port(),
                trusts_network: false,
                external_host: None,
                roots: Roots::new(&[fixture.folder.path()]).expect("roots"),
                cores: 1,
                memory: Some(100_000_000),
                name: None,
            };
            std::thread::spawn(move || ClusterExecutor::run(options).expect("an executor"));
        }
        let until = Instant::now() + Duration::from_mins(1);
        while executors(&fixture.address()).expect("a scheduler").len() < executors_wanted {
            assert!(Instant::now() < until, "executors do not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        fixture
    }

    fn address(&self) -> String {
        self.scheduler.address().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same recordings, read here and there.
    fn databases(&self, paths: &[PathBuf]) -> (Database, Database) {
        let open = |path: &PathBuf| -> Arc<dyn Recording> {
            Arc::from(asof_formats::open(path).expect("a recording"))
        };
        let name = |path: &PathBuf| path.display().to_string();
        let here = paths.iter().map(|path| (name(path), open(path)));
        let here = Database::new(here.collect(), SqlOptions::default()).expect("a database");
        let there = paths.iter().map(|path| {
            let recording = open(path);
            let address = RecordingAddress {
                name: name(path),
                address: name(path),
                size: Some(recording.summary().size),
            };
            (address, recording)
        });
        let cluster = Arc::new(ClusterClient::connect(&self.address()).expect("a cluster"));
        let there = Database::on_cluster(there.collect(), SqlOptions::default(), cluster);
        (here, there.expect("a database"))
    }
}

fn table(database: &Database, sql: &str) -> String {
    let rows = database.collect(sql);
    let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
    pretty_format_batches(&rows).expect("text").to_string()
}

#[test]
fn two_executors_answer_as_one_process_does() {
    let fixture = Fixture::new(2);
    // More slices than executors: one that reads more than it was given counts twice.
    let paths: Vec<PathBuf> = (1..=5)
        .map(|n| fixture.path(&format!("{n}.mcap")))
        .collect();
    for (path, seed) in paths.iter().zip(1..) {
        write_demo(path, seed);
    }
    let (here, there) = fixture.databases(&paths);
    for sql in [
        "SELECT count(*) FROM imu",
        "SELECT count(*) FROM imu WHERE angular_velocity.z > -1000",
        "SELECT recording, count(*), max(stamp) FROM odom GROUP BY 1 ORDER BY 1",
        "SELECT s.recording, s.stamp, o.pose.pose.position.x FROM scan s ASOF JOIN odom o MATCH_CONDITION (s.stamp >= o.stamp) ORDER BY 1, 2",
        "SELECT o.recording, count(i.stamp) FROM window_join(o => odom, i => imu, '-20ms', '0s') GROUP BY 1 ORDER BY 1",
        "SELECT recording, count(*) FROM points(scan, 10) GROUP BY 1 ORDER BY 1",
        "SELECT recording, topic, count(*) FROM transforms GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT recording, stamp, tf('odom', 'base_link', stamp, recording) FROM scan ORDER BY 1, 2 LIMIT 7",
        "SELECT r.recording, r.time, odom.stamp FROM resample(odom, 2) r ORDER BY 1, 2",
        "SELECT count(*) FROM odom WHERE twist.twist.linear.x > (SELECT avg(twist.twist.linear.x) FROM odom)",
        "SELECT topic, sum(messages) FROM topics GROUP BY 1 ORDER BY 1",
    ] {
        assert_eq!(table(&there, sql), table(&here, sql), "{sql}");
    }
    assert!(there.messages_read() > 0, "executors tell what they read");
}

#[test]
fn what_lies_elsewhere_is_refused_and_what_changed_is_told() {
    let fixture = Fixture::new(1);
    let outside = tempfile::tempdir().expect("a folder");
    let (good, secret) = (
        fixture.path("good.mcap"),
        outside.path().join("secret.mcap"),
    );
    write_demo(&good, 1);
    write_demo(&secret, 2);
    let sql = "SELECT sum(angular_velocity.z) FROM imu";
    let failure = |database: &Database| database.collect(sql).expect_err("a refusal").to_string();
    let (_, there) = fixture.databases(&[good.clone(), secret]);
    let refused = failure(&there);
    assert!(refused.contains("under its roots"), "{refused}");
    assert!(refused.contains("secret.mcap"), "{refused}");
    let (_, there) = fixture.databases(std::slice::from_ref(&good));
    assert!(there.collect(sql).is_ok());
    let (_, there) = fixture.databases(std::slice::from_ref(&good));
    write_longer(&good);
    let changed = failure(&there);
    assert!(
        changed.contains("has changed since the query was planned"),
        "{changed}"
    );
    std::fs::remove_file(&good).expect("a file");
    let gone = failure(&there);
    assert!(gone.contains("good.mcap"), "{gone}");
}

fn write_longer(path: &Path) {
    let mut writer = McapWriter::create(path, McapWriterOptions::default()).expect("a file");
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(4),
        ..DemoOptions::default()
    });
    for message in demo.messages() {
        writer.write(&message).expect("a message");
    }
    writer.finish().expect("a file");
}

#[test]
fn a_cluster_without_executors_says_so() {
    let fixture = Fixture::new(0);
    let none = ClusterClient::connect(&fixture.address()).expect_err("none");
    assert!(matches!(none, ClusterError::NoExecutors(_)), "{none}");
    let nobody = ClusterClient::connect(&free_port().to_string()).expect_err("nobody");
    assert!(
        matches!(nobody, ClusterError::Unreachable { .. }),
        "{nobody}"
    );
    let nonsense = ClusterClient::connect("nonsense").expect_err("nonsense");
    assert!(matches!(nonsense, ClusterError::Address(_)), "{nonsense}");
}

#[test]
fn a_query_that_is_wrong_has_the_same_sentence() {
    let fixture = Fixture::new(1);
    let path = fixture.path("a.mcap");
    write_demo(&path, 1);
    let (here, there) = fixture.databases(&[path]);
    for sql in ["SELECT nothing FROM imu", "SELECT FROM", "DROP TABLE imu"] {
        let sentence = |database: &Database| match database.collect(sql) {
            Ok(_) => panic!("{sql} has an answer"),
            Err(error) => error.to_string(),
        };
        assert_eq!(sentence(&there), sentence(&here), "{sql}");
    }
    let analyzed = there.collect("EXPLAIN ANALYZE SELECT count(*) FROM imu");
    assert!(
        matches!(analyzed, Err(SqlError::Query { .. })),
        "{analyzed:?}"
    );
}

/// The error of a plan that is sent as it is.
fn refusal(fixture: &Fixture, sql: &str, folder: &Path) -> String {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let client = ClusterClient::connect(&fixture.address()).expect("a cluster");
    runtime.block_on(async {
        let context = SessionContext::new();
        let secret = folder.join("secret.csv").display().to_string();
        let options = CsvReadOptions::default();
        context
            .register_csv("secret", secret, options)
            .await
            .expect("a table");
        let frame = context.sql(sql).await.expect(sql);
        let plan = frame.create_physical_plan().await.expect(sql);
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
            format!("COPY secret TO '{copy}' STORED AS CSV"),
            format!("COPY (SELECT 1 AS a) TO '{copy}' STORED AS CSV"),
            "EXPLAIN ANALYZE SELECT * FROM secret".to_owned(),
        ] {
            let error = refusal(&fixture, &sql, folder);
            assert!(error.contains("is not allowed"), "{sql}: {error}");
        }
        assert!(!Path::new(&copy).exists(), "{copy} was written");
    }
}

#[test]
fn nobody_listens_beyond_the_machine_unasked() {
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
    let refused = ClusterExecutor::run(ExecutorOptions {
        scheduler: "127.0.0.1:1".to_owned(),
        listen: everywhere,
        trusts_network: false,
        external_host: None,
        roots: Roots::new(&[std::env::temp_dir()]).expect("roots"),
        cores: 1,
        memory: None,
        name: None,
    });
    assert!(matches!(refused, Err(ClusterError::Open(_))), "{refused:?}");
    assert!(SchedulerOptions::default().listen.ip().is_loopback());
}
