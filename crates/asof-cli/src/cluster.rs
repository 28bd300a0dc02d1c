//! `asof cluster`

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Outcome;
use super::screen::Screen;
use super::writing::parse_size;

/// Run queries on several machines: one scheduler, any number of executors
///
/// Start a scheduler on one machine, and executors on all machines that should read recordings. Then
/// `asof sql --cluster HOST:PORT PLACE 'QUERY'` runs there. An executor opens only recordings under the roots that it was
/// started with.
///
/// Both are Apache DataFusion Ballista, with its REST interface and metrics at the scheduler's address (/api/executors,
/// /api/jobs, /api/metrics, /healthz). They listen on this machine alone, and beyond it only with a token, which every part of
/// the cluster and every client then needs. They run asof's own plans: no other scan, and nothing that writes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  export ASOF_CLUSTER_TOKEN=$(openssl rand -hex 32)           # the same on all machines
  asof cluster scheduler --listen 10.0.0.5:50050
  asof cluster executor --listen 10.0.0.6:50051 --scheduler 10.0.0.5:50050 --root s3://bucket/fleet
  asof cluster status 10.0.0.5:50050
  asof sql --cluster 10.0.0.5:50050 s3://bucket/fleet 'SELECT recording, count(*) FROM rosout GROUP BY 1'")]
pub struct Cluster {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Take queries, and distribute their parts to executors
    Scheduler(Scheduler),
    /// Read recordings for a scheduler
    Executor(Executor),
    /// List the executors of a scheduler
    Status(Status),
}

#[derive(Debug, Args)]
struct Scheduler {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50050")]
    listen: SocketAddr,

    #[command(flatten)]
    token: ClusterToken,

    /// How many seconds an executor may be silent before it counts as lost; its work is then done elsewhere
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(10..=3600))]
    executor_timeout: u64,
}

#[derive(Debug, Args)]
struct Executor {
    /// The scheduler
    #[arg(long, value_name = "HOST:PORT")]
    scheduler: String,

    /// A folder or an address: only recordings under it may be opened. May be repeated
    #[arg(long, value_name = "PLACE", required = true)]
    root: Vec<PathBuf>,

    /// Where to serve rows to other executors
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50051")]
    listen: SocketAddr,

    #[command(flatten)]
    token: ClusterToken,

    /// The name of this machine for others, if not the address that it connects from
    #[arg(long, value_name = "HOST")]
    external_host: Option<String>,

    /// How many tasks run at once; without it, one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    cores: usize,

    /// Memory limit of sorts, joins and groups over all tasks; without it, 70 % of the memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,

    /// Its name in messages
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, Args)]
struct Status {
    /// The scheduler
    #[arg(value_name = "HOST:PORT")]
    scheduler: String,

    #[command(flatten)]
    token: ClusterToken,
}

/// The secret of a cluster.
#[derive(Debug, Args)]
pub struct ClusterToken {
    /// A file with the token of the cluster, at least 16 characters; without it, ASOF_CLUSTER_TOKEN. It is sent as it is:
    /// whoever can listen on the network between the machines can read it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[cfg(feature = "cluster")]
impl ClusterToken {
    pub fn read(&self) -> anyhow::Result<Option<asof::cluster::Token>> {
        use anyhow::Context as _;

        let text = match &self.token_file {
            Some(path) => Some(
                std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the token in {}", path.display()))?,
            ),
            None => std::env::var("ASOF_CLUSTER_TOKEN").ok(),
        };
        let token = text.as_deref().map(asof::cluster::Token::new);
        Ok(token.transpose()?)
    }
}

#[cfg(not(feature = "cluster"))]
impl Cluster {
    /// Compiled without the engine.
    #[expect(clippy::unused_self, reason = "the other build has something to do")]
    pub fn run(&self, _screen: &Screen) -> anyhow::Result<Outcome> {
        Err(anyhow::anyhow!(asof::text::absent("cluster", "cluster")))
    }
}

#[cfg(feature = "cluster")]
impl Cluster {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        match &self.part {
            Part::Scheduler(scheduler) => scheduler.run(screen),
            Part::Executor(executor) => executor.run(screen),
            Part::Status(status) => status.run(screen),
        }
    }
}

#[cfg(feature = "cluster")]
impl Scheduler {
    fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        tell_log(screen);
        let options = asof::cluster::SchedulerOptions {
            listen: self.listen,
            token: self.token.read()?,
            executor_timeout: self.executor_timeout,
        };
        super::signals::on_end(|_| std::process::exit(0))?;
        let scheduler = asof::cluster::ClusterScheduler::start(&options)?;
        let address = scheduler.address();
        screen.note(format_args!("scheduler at {address}; executors: asof cluster executor --scheduler HOST:{} --root PLACE", address.port()));
        scheduler.wait()?;
        Ok(Outcome::Done)
    }
}

#[cfg(feature = "cluster")]
impl Executor {
    fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        tell_log(screen);
        let roots = asof::cluster::Roots::new(&self.root)?;
        screen.note(format_args!(
            "executor at {} for the scheduler at {}",
            self.listen, self.scheduler
        ));
        asof::cluster::ClusterExecutor::run(asof::cluster::ExecutorOptions {
            scheduler: self.scheduler.clone(),
            listen: self.listen,
            token: self.token.read()?,
            external_host: self.external_host.clone(),
            roots,
            cores: self.cores,
            memory: self.memory,
            name: self.name.clone(),
        })?;
        Ok(Outcome::Done)
    }
}

#[cfg(feature = "cluster")]
impl Status {
    fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        use std::io::Write as _;

        let executors = asof::cluster::executors(&self.scheduler, self.token.read()?.as_ref())?;
        let mut out = super::screen::output();
        for one in &executors {
            let cores = asof::text::counted(one.cores as u64, "core");
            writeln!(out, "{}  {}:{}  {cores}", one.id, one.host, one.port)?;
        }
        out.flush()?;
        if executors.is_empty() {
            screen.note("the scheduler has no executors");
            return Ok(Outcome::Failed);
        }
        Ok(Outcome::Done)
    }
}

/// Ballista's log goes to standard error: warnings, and everything with -v.
#[cfg(feature = "cluster")]
fn tell_log(screen: &Screen) {
    let told = screen.clone();
    asof::cluster::log_to(screen.is_verbose(), move |level, text| match level {
        asof::cluster::Severity::Warning => told.warning(text),
        asof::cluster::Severity::Note => told.note(text),
    });
}
