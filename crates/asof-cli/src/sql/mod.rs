//! `asof sql`

#[cfg(feature = "sql")]
mod answers;
#[cfg(feature = "cluster")]
mod clustered;
#[cfg(feature = "sql")]
mod flight;
#[cfg(feature = "sql")]
mod page;
#[cfg(feature = "sql")]
mod prompt;
#[cfg(feature = "sql")]
mod running;
#[cfg(feature = "sql")]
mod statements;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use asof_serve::QueryEngine;
use clap::Args;

#[cfg(feature = "sql")]
pub use flight::{Flight, FlightService};

#[cfg(not(feature = "sql"))]
use super::Outcome;
use super::cluster::ClusterToken;
use super::fleet::CataloguePlace;
use super::place::Opening;
use super::screen::Screen;
use super::writing::parse_size;

/// The query engines over the served places.
#[derive(Default)]
pub struct PlaceQueries {
    /// For the page; `None` for running robots, which grow while they are queried.
    pub page: Option<Arc<dyn QueryEngine>>,
    /// For clients of Flight SQL.
    pub flight: Option<Flight>,
}

impl PlaceQueries {
    /// Over these places, by their catalogues where they have one; also for clients of Flight SQL, if `flight` is set.
    #[cfg(feature = "sql")]
    pub fn over(
        places: (&[PathBuf], &CataloguePlace),
        opening: &Opening,
        screen: &Screen,
        flight: Option<FlightChoice>,
    ) -> anyhow::Result<Self> {
        let page = page::PageQueries::over(places, opening, screen);
        let flight = flight.map(|wish| Flight::over(page.as_deref(), wish));
        Ok(PlaceQueries {
            flight: flight.transpose()?,
            page: page.map(|page| page as Arc<dyn QueryEngine>),
        })
    }

    /// Compiled without the engine.
    #[cfg(not(feature = "sql"))]
    pub fn over(
        _: (&[PathBuf], &CataloguePlace),
        _: &Opening,
        _: &Screen,
        flight: Option<FlightChoice>,
    ) -> anyhow::Result<Self> {
        match flight {
            Some(_) => Err(no_sql()),
            None => Ok(PlaceQueries::default()),
        }
    }
}

/// The default port of Flight SQL.
pub const FLIGHT_PORT: u16 = 32010;

/// A request for Flight SQL: at this address, or at the default port of the page's.
pub type FlightChoice = Option<SocketAddr>;

/// Compiled without the engine: there is none.
#[cfg(not(feature = "sql"))]
#[derive(Debug)]
pub enum Flight {}

#[cfg(not(feature = "sql"))]
impl Flight {
    pub fn address(&self, _page: SocketAddr) -> SocketAddr {
        match *self {}
    }

    pub fn start(&self, _page: SocketAddr, _token: Option<&str>) -> anyhow::Result<FlightService> {
        match *self {}
    }
}

/// Compiled without the engine: there is none.
#[cfg(not(feature = "sql"))]
pub enum FlightService {}

#[cfg(not(feature = "sql"))]
impl FlightService {
    pub fn greeting(&self) -> String {
        match *self {}
    }
}

#[cfg(not(feature = "sql"))]
fn no_sql() -> anyhow::Error {
    anyhow::anyhow!(asof::text::absent("SQL", "sql"))
}

/// Query recordings in SQL: every topic is a table
///
/// A topic is a table by its name in quotes ("/odom"), or by a plain one where that is unique (odom, camera_image).
/// Columns are recording, log_time, publish_time, stamp, sequence, and the fields of its messages, nested ones by dots:
/// pose.pose.position.x. There are also the tables topics, recordings, problems, metadata and attachments. Nothing is
/// converted first, and only the data that a query uses is read.
///
/// With a catalogue of a folder or bucket (`asof index`), topics also have the columns robot, site and tags: recordings that
/// `WHERE robot = 'r7' AND tags['weather'] = 'rain'` excludes are never opened.
///
/// `a ASOF JOIN b MATCH_CONDITION (a.stamp >= b.stamp)` joins by time. Times may be written as everywhere in asof:
/// '+12.5s', '-3s', RFC 3339. Without a query there is a prompt, or standard input is read if it is not a terminal.
///
/// JSON and CSV have times as nanoseconds since the epoch.
#[derive(Debug, Args)]
#[cfg_attr(
    not(feature = "sql"),
    allow(dead_code, reason = "without the engine nothing is done with them")
)]
#[command(
    override_usage = "asof sql [OPTIONS] <PLACE>... ['QUERY' | -f FILE]",
    after_help = "\
Examples:
  asof sql run.mcap 'SELECT max(twist.twist.linear.x) FROM odom'
  asof sql a.mcap b.mcap --csv 'SELECT recording, count(*) FROM \"/scan\" GROUP BY 1'
  asof sql run.mcap --table labels=labels.csv \\
      'SELECT l.label, avg(o.twist.twist.linear.x) FROM odom o JOIN labels l ON o.stamp BETWEEN l.start AND l.stop GROUP BY 1'
  asof sql run.mcap --parquet joined.parquet \\
      'SELECT s.stamp, o.pose.pose.position.x FROM scan s ASOF JOIN odom o MATCH_CONDITION (s.stamp >= o.stamp)'"
)]
pub struct Sql {
    /// Recordings, which form one database; after them the query
    #[arg(value_name = "PLACE", required = true)]
    words: Vec<String>,

    /// Read the queries from this file, separated by semicolons
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Print a JSON object for each row
    #[arg(long, conflicts_with_all = ["csv", "parquet", "arrow"])]
    json: bool,

    /// Print comma-separated values, with a header
    #[arg(long, conflicts_with_all = ["parquet", "arrow"])]
    csv: bool,

    /// Write the rows to a Parquet file
    #[arg(long, value_name = "OUT", conflicts_with = "arrow")]
    parquet: Option<PathBuf>,

    /// Write the rows to an Arrow file; `-` is a stream to standard output
    #[arg(long, value_name = "OUT")]
    arrow: Option<PathBuf>,

    /// Replace an existing file
    #[arg(long)]
    force: bool,

    /// Memory limit of sorts, joins and groups; beyond it they use the disk, or fail
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    memory: u64,

    /// A table of your own beside those of the recordings: a local Parquet, CSV or Arrow file; may be given several times
    #[arg(long, value_name = "NAME=FILE", conflicts_with = "cluster")]
    table: Vec<String>,

    /// Run queries on the cluster of this scheduler (`asof cluster`), whose executors read the recordings at the same
    /// paths and addresses
    #[arg(long, value_name = "HOST:PORT")]
    cluster: Option<String>,

    #[command(flatten)]
    token: ClusterToken,

    #[command(flatten)]
    catalogue: CataloguePlace,

    #[command(flatten)]
    opening: Opening,
}

impl Sql {
    /// Compiled without the engine.
    #[cfg(not(feature = "sql"))]
    #[expect(clippy::unused_self, reason = "the other build has something to do")]
    pub fn run(&self, _screen: &Screen) -> anyhow::Result<Outcome> {
        Err(no_sql())
    }
}
