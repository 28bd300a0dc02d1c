//! `asof serve`

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use asof::formats::{McapFile, McapWriter, McapWriterOptions};
use asof::{Follow, FollowEnd, Followed, Query, Recording, Source, Stamp};
use asof_serve::{
    Annotations, DEFAULT_PORT, DiskOptions, RobotDescription, ServeError, ServeOptions, Server,
    SnapshotTaker, make_token,
};
use clap::Args;

use super::Outcome;
use super::compare::Compare;
use super::disk::DiskPlace;
use super::dropped::DropOpener;
use super::failure::Usage;
use super::fleet::{CataloguePlace, FleetList};
use super::live::Snapshots;
use super::memory;
use super::place::{Opening, Purpose, TopicRequest, robots_in, shown_name};
use super::screen::{Screen, output};
use super::select::{Patterns, parse_patterns};
use super::signals;
use super::signals::clean_up_on_interrupt;
use super::sql::{FLIGHT_PORT, Flight, FlightService, PlaceQueries};
use asof::files::remove_unfinished;

/// Show recordings or a running robot in the browser, and to Foxglove and Lichtblick
///
/// Opens recordings of any size at once; several that are named become one. A running robot is shown live, and its last
/// minutes are kept to look back at. Only this machine can connect, unless --listen names
/// another address; clients then need the token in the printed address. Nothing is written except your
/// annotations in the page (run.mcap.annotations.json beside run.mcap, which `asof convert` copies), with --layouts the
/// layouts that are saved on the server, and, with --snapshots, the last minute of a robot on
/// `POST /api/snapshot?reason=…`.
///
/// For a folder or bucket, the page shows the list of recordings: search, filter, open one. With a catalogue
/// (`asof index`) the list is there at once; otherwise it grows while the recordings are looked into. An opened recording is a path of the same server, /r/…; all of them share the memory of --cache, and the
/// least recently used one is closed where it does not suffice.
///
/// Foxglove and Lichtblick connect to the same port with ws://; pages of other sites, such as the Foxglove
/// app in a browser, only after --allow-origin.
///
/// With --flight, clients of Arrow Flight SQL (JDBC, ADBC, DBeaver, Grafana) can query recordings as `asof sql`
/// does, at a separate port. They need the same token: as a bearer token, or as the password of any user.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof serve run.mcap
  asof serve runs
  asof serve runs/monday_0.mcap runs/monday_1.mcap
  asof serve s3://bucket/fleet
  asof serve runs --listen 0.0.0.0:8765 --layouts
  asof serve run.mcap --listen 0.0.0.0:8765 --allow-origin https://app.foxglove.dev
  asof serve zenoh://192.168.1.5:7447 --window 10m
  asof serve zenoh:// --snapshots crash.mcap --keep 60s --after 30s; curl -X POST localhost:8765/api/snapshot
  asof serve run.mcap --flight
  asof serve before.mcap after.mcap --prefix before,after --align start
  asof serve yesterday.mcap zenoh://192.168.1.5:7447")]
pub struct Serve {
    /// Recordings: files, or one folder for the list of what is in it; and running robots: zenoh://host:port. Several are
    /// shown as one. Without any, the page waits for a file to be dropped onto it
    #[arg(value_name = "PLACE")]
    places: Vec<PathBuf>,

    #[command(flatten)]
    compare: Compare,

    #[command(flatten)]
    opening: Opening,

    /// Only these topics of a running robot: names or globs, separated by commas
    #[arg(long, value_name = "A,B", value_parser = parse_patterns)]
    topics: Option<Patterns>,

    /// Also serve Arrow Flight SQL at this address: port 32010 of the address of the page, or the next free
    /// one. Needs a build with the feature `sql`
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, value_parser = parse_flight_address)]
    #[expect(clippy::option_option, reason = "with an address, or without")]
    flight: Option<Option<SocketAddr>>,

    #[command(flatten)]
    snapshots: Snapshots,

    /// Keep layouts of the page on the server too, for everyone who uses it: in this folder, or in `layouts` beside the
    /// recordings
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "with a folder, or without")]
    layouts: Option<Option<PathBuf>>,

    #[command(flatten)]
    catalogue: CataloguePlace,

    #[command(flatten)]
    serving: ServeFlags,
}

/// Flags of the verbs that serve the page.
#[derive(Debug, Args)]
pub struct ServeFlags {
    /// Where to listen: a port of this machine, or an address with a port. 127.0.0.1:8765 or the next free port by default
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    listen: Option<SocketAddr>,

    /// Do not open the browser
    #[arg(long)]
    no_open: bool,

    /// Memory for cached recordings, or for a robot's recent messages, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    cache: u64,

    /// Also keep the cache in this folder, for the next time: for recordings on a
    /// slow disk or on the network. Recordings and servers can share a folder
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,

    /// Maximum size of that folder, in megabytes; the oldest data is removed first
    #[arg(long, value_name = "MB", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    cache_dir_size: u64,

    /// Allow pages of this site to connect
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,

    /// Another name of this machine in addresses
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,

    /// A folder with one or several ROS packages whose files the page and viewers may fetch: meshes that a robot's
    /// description names by package:// or file://
    #[arg(long = "package", visible_alias = "assets", value_name = "DIR")]
    assets: Vec<PathBuf>,

    /// Show maps under GPS positions, with tiles of this server: https://tile.example.org/{z}/{x}/{y}.png. The page
    /// fetches them, so that server learns where the robot was; without this, nothing is fetched from anywhere
    #[arg(long, value_name = "URL")]
    tiles: Option<String>,

    /// Start with this layout: a file saved by the page, or a layout of Foxglove or Lichtblick
    #[arg(long, value_name = "FILE")]
    layout: Option<PathBuf>,

    /// The robot's description, where the recording has none on /robot_description
    #[arg(long, value_name = "FILE")]
    urdf: Option<PathBuf>,
}

impl Serve {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let has_robot = robots_in(&self.places).next().is_some();
        if self.topics.is_some() && !has_robot {
            screen.note("--topics is for running robots, and has no effect on recordings");
        }
        if self.serving.urdf.is_some() && has_robot {
            let text = "--urdf is for recordings; a running robot publishes its description on /robot_description";
            return Err(Usage::error(text.to_owned()));
        }
        if self.compare.is_wanted() && (has_robot || self.places.is_empty()) {
            let text = "--prefix and --align are for recordings, and need some";
            return Err(Usage::error(text.to_owned()));
        }
        if self.flight.is_some() && (has_robot || self.places.is_empty()) {
            let text = "--flight is for recordings, and needs some";
            return Err(Usage::error(text.to_owned()));
        }
        let layouts = self.layouts()?;
        // Before anything that is only cleaned up on an interrupt.
        let interrupt = Interrupt::arrange(&self.serving, has_robot);
        if let Some(fleet) = self.fleet(screen)? {
            let mut queries = PlaceQueries::default();
            if self.flight.is_some() {
                // The page queries what is open in it; nothing of the list is yet.
                queries.flight = self.served(screen)?.flight;
            }
            let view = ViewOptions {
                fleet: Some(fleet),
                layouts,
                queries,
                ..ViewOptions::default()
            };
            // The page shows the list where nothing is open.
            return self
                .serving
                .serve_view(nothing()?, "", view, &interrupt, screen);
        }
        // A robot may appear later, and the page shows when it does.
        let wanted = TopicRequest::chosen(self.topics.clone())
            .within(self.serving.cache_bytes())
            .at_once();
        let (recording, robots) = self.open(&wanted, screen)?;
        let disk = self.disk().and_then(|disk| {
            if has_robot {
                screen.note("nothing of a running robot is kept in --cache-dir; use `asof record` to record it");
                return None;
            }
            let disk = disk.of(&self.places, &*recording);
            disk.map_err(|error| screen.warning(format_args!("{error:#}")))
                .ok()
        });
        let name = self.places.first().map(|place| shown_name(place));
        let name = match (name, self.places.len()) {
            (Some(name), 1) => name,
            (Some(name), count) => format!("{name} and {} more", count - 1),
            // Tells the page that nothing is open.
            (None, _) => String::new(),
        };
        let view = ViewOptions {
            disk,
            robots,
            annotations: self.annotations(),
            queries: self.served(screen)?,
            snapshots: self.snapshots.start(
                &self.places,
                self.topics.clone(),
                &self.opening,
                screen,
            )?,
            fleet: None,
            layouts,
        };
        self.serving
            .serve_view(recording, &name, view, &interrupt, screen)
    }

    /// The query engine over the named places.
    fn served(&self, screen: &Screen) -> anyhow::Result<PlaceQueries> {
        let places = (self.places.as_slice(), &self.catalogue);
        PlaceQueries::over(places, &self.opening, screen, self.flight)
    }

    /// What is shown, and the robots in it.
    fn open(
        &self,
        wanted: &TopicRequest,
        screen: &Screen,
    ) -> anyhow::Result<(Box<dyn Source>, Vec<RobotDescription>)> {
        if self.places.is_empty() {
            return Ok((nothing()?, Vec::new()));
        }
        if !self.compare.is_wanted() {
            let recording = self
                .opening
                .open(&self.places, wanted, Purpose::Serve, screen)?;
            return Ok((recording, Vec::new()));
        }
        let compared = self.compare.open(&self.places, |place| {
            self.opening
                .open(std::slice::from_ref(place), wanted, Purpose::Serve, screen)
        })?;
        Ok((compared.recording, compared.robots))
    }

    /// The recordings of the one named place, if it is a folder or a bucket: then the page shows their list.
    fn fleet(&self, screen: &Screen) -> anyhow::Result<Option<FleetList>> {
        let [place] = self.places.as_slice() else {
            return Ok(None);
        };
        if self.compare.is_wanted() && !self.catalogue.is_named() {
            return Ok(None);
        }
        let open = self.opening.options(Purpose::Serve, screen)?;
        let list = self.catalogue.list(place, open, screen)?;
        Ok(list.map(|list| {
            list.with_description(self.serving.urdf.clone())
                .with_disk(self.disk())
        }))
    }

    /// The folder of the cache, if one was named.
    fn disk(&self) -> Option<DiskPlace> {
        Some(DiskPlace {
            folder: self.serving.cache_dir.clone()?,
            budget: self.serving.cache_dir_size.saturating_mul(1_000_000),
            view: format!("{:?} limits {}", self.compare, self.opening.has_limits()),
            description: self.serving.urdf.clone(),
        })
    }

    /// The folder for layouts: the named one, or `layouts` beside the recordings.
    fn layouts(&self) -> anyhow::Result<Option<PathBuf>> {
        let Some(named) = &self.layouts else {
            return Ok(None);
        };
        if let Some(folder) = named {
            return Ok(Some(folder.clone()));
        }
        let beside = match self.places.as_slice() {
            [place, ..] if place.is_dir() => Some(place.as_path()),
            [place, ..] if place.is_file() => place.parent(),
            _ => None,
        };
        let text = "--layouts: the recordings are not in a folder of this machine; name one with --layouts=DIR";
        let beside = beside.ok_or_else(|| Usage::error(text.to_owned()))?;
        Ok(Some(beside.join("layouts")))
    }

    /// Where annotations are kept: beside a recording that is one file on this machine.
    fn annotations(&self) -> Option<PathBuf> {
        let [place] = self.places.as_slice() else {
            return None;
        };
        place.is_file().then(|| Annotations::beside(place))
    }
}

/// An empty recording.
fn nothing() -> anyhow::Result<Box<dyn Source>> {
    let out = std::io::Cursor::new(Vec::new());
    let writer = McapWriter::new(out, McapWriterOptions::default())?;
    let bytes = writer.finish()?.into_inner();
    Ok(Box::new(McapFile::from_bytes("nothing".to_owned(), bytes)?))
}

/// What is served beside the messages, and where the cache and annotations are kept.
#[derive(Default)]
struct ViewOptions {
    disk: Option<DiskOptions>,
    robots: Vec<RobotDescription>,
    annotations: Option<PathBuf>,
    queries: PlaceQueries,
    snapshots: Option<Arc<dyn SnapshotTaker>>,
    fleet: Option<FleetList>,
    /// The folder for layouts that are kept on the server.
    layouts: Option<PathBuf>,
}

impl ServeFlags {
    /// Serves a recording that is one file on this machine, until interrupted.
    pub fn serve_file(
        &self,
        source: Box<dyn Source>,
        file: &Path,
        screen: &Screen,
    ) -> anyhow::Result<Outcome> {
        let view = ViewOptions {
            annotations: Some(Annotations::beside(file)),
            ..ViewOptions::default()
        };
        let name = file.display().to_string();
        self.serve_view(source, &name, view, &Interrupt::default(), screen)
    }

    fn serve_view(
        &self,
        source: Box<dyn Source>,
        name: &str,
        view: ViewOptions,
        interrupt: &Interrupt,
        screen: &Screen,
    ) -> anyhow::Result<Outcome> {
        let mut source: Arc<dyn Source> = Arc::from(source);
        if let Some(file) = &self.urdf {
            let recording = Recording::new(Arc::clone(&source), &[PathBuf::from(name)]);
            let described = recording
                .with_description(file)
                .map_err(|error| match error {
                    asof::Error::Option(text) => Usage::error(format!("--urdf {text}")),
                    other => other.into(),
                })?;
            // Beside a list nothing is open, and each recording of it gets the description when it is opened.
            if view.fleet.is_none() {
                source = Arc::new(described);
            }
        }
        let problems = source.summary().problems.len();
        if problems > 0 {
            screen.warning(format_args!(
                "{problems} problems in this recording; the page shows them"
            ));
        }
        // What a recording was unpacked into is removed with the server.
        clean_up_on_interrupt();
        // A growing source is shown from now on, with the past to look back at.
        let is_growing = source.growth().is_growing();
        let start = is_growing.then(Stamp::now);
        let mut end = End::of(&source, is_growing)?;
        let PlaceQueries { page, flight } = view.queries;
        let (server, flying) = self.start(screen, flight.as_ref(), |options| {
            let options = ServeOptions {
                disk: view.disk,
                robots: view.robots,
                annotations: view.annotations,
                queries: page,
                snapshots: view.snapshots,
                start,
                layouts: view.layouts,
                recordings: view.fleet.map(|fleet| Arc::new(fleet) as _),
                ..options.clone()
            };
            let opener = Arc::new(DropOpener::new());
            Server::start_with(source, name, &options, Some(opener))
        })?;
        let code = loop {
            if end.has_come()? {
                drop((server, flying));
                return Ok(Outcome::Done);
            }
            let wait = if is_growing {
                POLL_INTERVAL
            } else {
                KEEP_EVERY
            };
            match interrupt.wait(wait) {
                Some(code) => break code,
                None if is_growing => {}
                None => server.keep_on_disk(),
            }
        };
        // Dropping it writes the rest.
        drop((server, flying));
        remove_unfinished();
        std::process::exit(code);
    }

    /// Bytes of the cache, or of recent messages.
    fn cache_bytes(&self) -> u64 {
        self.cache.saturating_mul(1_000_000)
    }

    /// Whether an address to listen on was named.
    pub fn is_addressed(&self) -> bool {
        self.listen.is_some()
    }

    /// Starts a server, and prints its address.
    fn start(
        &self,
        screen: &Screen,
        flight: Option<&Flight>,
        start: impl FnOnce(&ServeOptions) -> Result<Server, ServeError>,
    ) -> anyhow::Result<(Server, Option<FlightService>)> {
        start_log(screen);
        memory::give_back_what_is_large();
        let defaults = ServeOptions::default();
        let listen = self.listen.unwrap_or(defaults.listen);
        let addresses = [Some(listen), flight.map(|flight| flight.address(listen))];
        let is_open = |address: &SocketAddr| !address.ip().is_loopback();
        let is_open = addresses.iter().flatten().any(is_open);
        let options = ServeOptions {
            listen,
            any_port: self.listen.is_none(),
            // The page and Flight share one token.
            token: is_open.then(make_token).transpose()?,
            hosts: self.allow_host.clone(),
            origins: self.allow_origin.clone(),
            assets: self.assets.clone(),
            layout: self.layout.as_deref().map(layout_in).transpose()?,
            tiles: self.tiles.clone(),
            cache_bytes: self.cache_bytes(),
            ..defaults
        };
        let server = start(&options)?;
        let token = options.token.as_deref();
        let flying = flight
            .map(|flight| flight.start(listen, token))
            .transpose()?;
        let label = screen.palette().title;
        let (url, foxglove) = (server.url(), server.foxglove_url());
        let flight = flying
            .as_ref()
            .map(FlightService::greeting)
            .unwrap_or_default();
        let greeting = format!(
            "{label}Open{label:#} {url}\nFoxglove and Lichtblick: {foxglove}\n{flight}Press Ctrl-C to stop.\n"
        );
        let mut out = output();
        let said = out.write_all(greeting.as_bytes());
        match said.and_then(|()| out.flush()) {
            // The server goes on when a reader of its address closes the pipe.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            said => said?,
        }
        drop(out);
        if is_open {
            screen.warning(format_args!(
                "this is plain HTTP: anyone who can listen on the network between here and a client reads the token and the data; \
                 where that matters, listen on 127.0.0.1 and let an SSH tunnel or a proxy with TLS connect"
            ));
        }
        if !self.no_open && std::io::stdout().is_terminal() {
            open_browser(&server.url());
        }
        Ok((server, flying))
    }
}

/// The text of a layout, if it is valid.
fn layout_in(file: &Path) -> anyhow::Result<String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    if text.len() > MOST_LAYOUT {
        let text = format!(
            "--layout {shown}: it has {} bytes, and a layout has {MOST_LAYOUT} at most",
            text.len()
        );
        return Err(Usage::error(text));
    }
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(serde_json::Value::Object(_)) => Ok(text),
        Ok(_) => Err(Usage::error(format!(
            "--layout {shown}: it is JSON, but not a layout"
        ))),
        Err(error) => Err(Usage::error(format!(
            "--layout {shown}: it is not JSON: {error}"
        ))),
    }
}

/// The largest layout, which is sent to every page.
const MOST_LAYOUT: usize = 1 << 20;

/// How often the cache is written to its folder: a server that is killed loses no more than that.
const KEEP_EVERY: Duration = Duration::from_secs(20);

/// How often a robot is checked for a request to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The end of listening: Ctrl-C, or the time of `--for`. A file that its writer has closed is still shown.
struct End(Option<Box<dyn Follow>>);

impl End {
    fn of(source: &Arc<dyn Source>, is_growing: bool) -> anyhow::Result<Self> {
        if !is_growing {
            return Ok(End(None));
        }
        let nothing = Query::topics(Vec::<String>::new());
        Ok(End(Some(source.follow(&nothing)?)))
    }

    fn has_come(&mut self) -> anyhow::Result<bool> {
        let Some(follow) = &mut self.0 else {
            return Ok(false);
        };
        let next = follow.next(Instant::now())?;
        Ok(matches!(next, Followed::End(FollowEnd::Closed)))
    }
}

/// A request to stop a server, which may have something to save first. It holds the exit code.
#[derive(Debug, Default)]
struct Interrupt {
    wished: Arc<(Mutex<Option<i32>>, Condvar)>,
}

impl Interrupt {
    /// Installs it where something is kept; elsewhere the server ends at once, as it does at the second request.
    fn arrange(serving: &ServeFlags, has_robot: bool) -> Self {
        let interrupt = Interrupt::default();
        // A robot ends in order by itself.
        if serving.cache_dir.is_some() && !has_robot {
            let wished = Arc::clone(&interrupt.wished);
            let arranged = signals::on_end(move |code| {
                let mut known = wished.0.lock().unwrap_or_else(PoisonError::into_inner);
                if known.replace(code).is_some() {
                    remove_unfinished();
                    std::process::exit(code);
                }
                wished.1.notify_all();
            });
            if let Err(error) = arranged {
                tracing::debug!("an interrupt ends it at once: {error}");
            }
        }
        interrupt
    }

    /// Waits for it up to this long.
    fn wait(&self, time: Duration) -> Option<i32> {
        let (wished, changed) = &*self.wished;
        let wished = wished.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(wished, time, |wished| wished.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Rejections are logged once for each kind; more with -v.
fn start_log(screen: &Screen) {
    let level = if screen.is_verbose() {
        tracing::Level::DEBUG
    } else {
        tracing::Level::WARN
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    // If another logger is installed already, that one is used.
    drop(log.try_init());
}

/// Opens the browser if there is one; otherwise the address has been printed.
fn open_browser(url: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else if cfg!(windows) {
        "explorer"
    } else {
        let has_screen = ["DISPLAY", "WAYLAND_DISPLAY"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
        if !has_screen {
            return;
        }
        "xdg-open"
    };
    let opened = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = opened {
        tracing::debug!("cannot open a browser: {error}");
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    address_in(text, DEFAULT_PORT)
}

fn parse_flight_address(text: &str) -> Result<SocketAddr, String> {
    address_in(text, FLIGHT_PORT)
}

fn address_in(text: &str, usual_port: u16) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, usual_port));
    }
    text.parse().map_err(|_| {
        format!("give a port, an address, or both, such as 8080 or 0.0.0.0:{usual_port}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_called_by_its_own_name() {
        for (place, name) in [
            ("/home/me/secret/run.mcap", "run.mcap"),
            ("run.bag", "run.bag"),
            ("runs/monday/", "monday"),
            (".", "."),
            (
                "https://me:pw@host.example/a/run.mcap?sig=SECRET",
                "run.mcap",
            ),
            ("s3://bucket/a/run.mcap", "run.mcap"),
            ("https://me:pw@host.example", "host.example"),
            ("https://host.example?sig=/SECRET", "host.example"),
        ] {
            assert_eq!(shown_name(Path::new(place)), name);
        }
    }
}
