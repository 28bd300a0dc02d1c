//! A cluster on this machine: a scheduler, an executor and a client in one process, and a query over a folder of recordings.
//!
//! `cargo run --release -p asof-cluster --features engine --example one_machine -- FOLDER 'SELECT count(*) FROM imu'`

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use asof_cluster::{
    ClusterClient, ClusterExecutor, ClusterScheduler, ExecutorOptions, Roots, SchedulerOptions,
    executors,
};
use asof_core::Source;
use asof_sql::arrow::util::pretty::pretty_format_batches;
use asof_sql::{Database, RecordingAddress, SqlOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(question)) = (arguments.next(), arguments.next()) else {
        return Err("usage: one_machine FOLDER QUERY".into());
    };
    // An executor's addresses are absolute.
    let folder = std::fs::canonicalize(folder)?;
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let scheduler = ClusterScheduler::start(&SchedulerOptions {
        listen: any_port,
        ..SchedulerOptions::default()
    })?;
    let address = scheduler.address().to_string();
    let executor = ExecutorOptions {
        token: None,
        scheduler: address.clone(),
        listen: TcpListener::bind(any_port)?.local_addr()?,
        external_host: None,
        roots: Roots::new(&[&folder])?,
        cores: 2,
        memory: None,
        name: None,
    };
    std::thread::spawn(move || ClusterExecutor::run(executor));
    while executors(&address, None)?.is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }

    let mut recordings: Vec<(RecordingAddress, Arc<dyn Source>)> = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        let recording: Arc<dyn Source> = Arc::from(asof_formats::open(&path)?);
        let name = path.display().to_string();
        let of_recording = RecordingAddress {
            address: name.clone(),
            size: Some(recording.summary().size),
            version: None,
            name,
        };
        recordings.push((of_recording, recording));
    }
    let cluster = Arc::new(ClusterClient::connect(&address, None)?);
    let database = Database::on_cluster(recordings, SqlOptions::default(), cluster)?;
    println!("{}", pretty_format_batches(&database.collect(&question)?)?);
    // Ballista ends an executor with its process.
    std::process::exit(0);
}
