//! A cluster in this process.
#![allow(dead_code, reason = "each test file uses a part")]

use std::mem::ManuallyDrop;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_cluster::{
    ClusterClient, ClusterExecutor, ClusterScheduler, ExecutorOptions, Roots, SchedulerOptions,
    Token, executors,
};
use asof_core::Source;
use asof_demo::{Demo, DemoOptions};
use asof_formats::{McapWriter, McapWriterOptions};
use asof_sql::{Database, RecordingAddress, SqlOptions};

/// A cluster that reads the recordings of a folder.
pub struct Fixture {
    pub folder: tempfile::TempDir,
    /// It stays up until the process ends: Ballista takes the end of one executor for that of all in its process, and an
    /// executor ends with its scheduler.
    scheduler: ManuallyDrop<ClusterScheduler>,
    pub token: Option<Token>,
}

pub fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A port that is free.
pub fn free_port() -> SocketAddr {
    let listener = TcpListener::bind(loopback()).expect("a port");
    listener.local_addr().expect("its address")
}

pub fn write_demo(path: &Path, seed: u64) {
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
    pub fn new(executors_wanted: usize) -> Self {
        Self::with_token(executors_wanted, None)
    }

    pub fn with_token(executors_wanted: usize, token: Option<Token>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = SchedulerOptions {
            listen: loopback(),
            token: token.clone(),
            ..SchedulerOptions::default()
        };
        let scheduler = ClusterScheduler::start(&options).expect("a scheduler");
        let scheduler = ManuallyDrop::new(scheduler);
        let fixture = Fixture {
            folder,
            scheduler,
            token,
        };
        for _ in 0..executors_wanted {
            let options = ExecutorOptions {
                scheduler: fixture.address(),
                listen: free_port(),
                token: fixture.token.clone(),
                external_host: None,
                roots: Roots::new(&[fixture.folder.path()]).expect("roots"),
                cores: 1,
                memory: Some(100_000_000),
                name: None,
            };
            std::thread::spawn(move || ClusterExecutor::run(options).expect("an executor"));
        }
        let until = Instant::now() + Duration::from_mins(1);
        let ready = || executors(&fixture.address(), fixture.token.as_ref()).expect("a scheduler");
        while ready().len() < executors_wanted {
            assert!(Instant::now() < until, "executors do not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        fixture
    }

    pub fn address(&self) -> String {
        self.scheduler.address().to_string()
    }

    pub fn client(&self) -> ClusterClient {
        ClusterClient::connect(&self.address(), self.token.clone()).expect("a cluster")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same recordings, read here and there.
    pub fn databases(&self, paths: &[PathBuf]) -> (Database, Database) {
        let open = |path: &PathBuf| -> Arc<dyn Source> {
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
                version: None,
            };
            (address, recording)
        });
        let cluster = Arc::new(self.client());
        let there = Database::on_cluster(there.collect(), SqlOptions::default(), cluster);
        (here, there.expect("a database"))
    }
}
