//! `asof serve`

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use asof_core::Source;
use asof_serve::{DEFAULT_PORT, ServeError, ServeOptions, Server};
use clap::Args;

use super::Outcome;
use super::failure::Usage;
use super::live::{self, is_robot};
use super::memory;
use super::place::Opening;
use super::screen::{Screen, output};
use super::select::{Patterns, parse_patterns};

/// Show recordings or a running robot in the browser, and to Foxglove and Lichtblick
///
/// Opens recordings of any size at once, several as one. Of a running robot it shows what comes, and keeps the
/// last minutes to look back at. Only this machine can connect, unless --listen names
/// another address; whoever connects then needs the token in the address that is printed. Nothing is written.
///
/// Foxglove and Lichtblick connect to the same port with ws://; pages of other sites, such as the Foxglove
/// app in a browser, only after --allow-origin.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof serve run.mcap
  asof serve run.mcap --listen 0.0.0.0:8765 --allow-origin https://app.foxglove.dev
  asof serve zenoh://192.168.1.5:7447 --window 10m")]
pub struct Serve {
    /// Recordings: files, folders; several are shown as one. Or one running robot: zenoh://host:port
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    #[command(flatten)]
    opening: Opening,

    #[command(flatten)]
    robot: OfRobot,

    #[command(flatten)]
    serving: Serving,
}

/// Flags for running robots alone.
#[derive(Debug, Args)]
#[cfg_attr(
    not(feature = "live"),
    allow(dead_code, reason = "only recordings are served")
)]
pub struct OfRobot {
    /// How much of a running robot is kept: seconds, or with a unit such as 90s, 10m, 1h. What is older leaves, and
    /// what does not fit into --cache
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_window)]
    pub window: Duration,

    /// Only these topics of a running robot: names or globs, with commas between them
    #[arg(long, value_name = "A,B", value_parser = parse_patterns)]
    pub topics: Option<Patterns>,

    /// Raw Zenoh keys of a running robot too, such as 'demo/**'
    #[arg(long, value_name = "EXPRESSION")]
    pub key: Vec<String>,
}

/// Flags of the verbs that serve.
#[derive(Debug, Args)]
pub struct Serving {
    /// Where to listen: a port of this machine, or an address with a port. 127.0.0.1:8765, or the next port that is free
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    listen: Option<SocketAddr>,

    /// Do not open the browser
    #[arg(long)]
    no_open: bool,

    /// Memory for what was read of a recording, or is kept of a robot, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    cache: u64,

    /// Let pages of this site connect
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,

    /// A name that this machine goes by, as it stands in addresses
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
}

impl Serve {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        if let Some(robot) = self.places.iter().find(|place| is_robot(place)) {
            if self.places.len() > 1 {
                let text = "a running robot is served alone; name it as the only place";
                return Err(Usage::error(text.to_owned()));
            }
            return live::serve(robot, &self.robot, &self.opening, &self.serving, screen);
        }
        let recording = self.opening.open_unmapped(&self.places, screen)?;
        let name = self.places[0].display().to_string();
        let name = match self.places.len() {
            1 => name,
            count => format!("{name} and {} more", count - 1),
        };
        self.serving.serve(recording, &name, screen)
    }
}

impl Serving {
    /// Serves until the person has had enough.
    pub fn serve(
        &self,
        source: Box<dyn asof_formats::Recording>,
        name: &str,
        screen: &Screen,
    ) -> anyhow::Result<Outcome> {
        let source: Arc<dyn Source> = Arc::new(source);
        let problems = source.summary().problems.len();
        if problems > 0 {
            screen.warning(format_args!(
                "{problems} problems in this recording; the page shows them"
            ));
        }
        let _server = self.start(screen, |options| Server::start(source, name, options))?;
        loop {
            std::thread::park();
        }
    }

    /// Bytes for what was read, or is kept.
    #[cfg(feature = "live")]
    pub fn cache_bytes(&self) -> u64 {
        self.cache.saturating_mul(1_000_000)
    }

    /// Starts a server, and says where it is.
    pub fn start(
        &self,
        screen: &Screen,
        start: impl FnOnce(&ServeOptions) -> Result<Server, ServeError>,
    ) -> anyhow::Result<Server> {
        start_log(screen);
        memory::give_back_what_is_large();
        let defaults = ServeOptions::default();
        let options = ServeOptions {
            listen: self.listen.unwrap_or(defaults.listen),
            any_port: self.listen.is_none(),
            hosts: self.allow_host.clone(),
            origins: self.allow_origin.clone(),
            cache_bytes: self.cache.saturating_mul(1_000_000),
            ..defaults
        };
        let server = start(&options)?;
        let label = screen.palette().title;
        let mut out = output();
        writeln!(out, "{label}Open{label:#} {}", server.url())?;
        writeln!(out, "Foxglove and Lichtblick: {}", server.foxglove_url())?;
        writeln!(out, "Ctrl-C ends it.")?;
        out.flush()?;
        drop(out);
        if !self.no_open && std::io::stdout().is_terminal() {
            open_browser(&server.url());
        }
        Ok(server)
    }
}

/// What was refused is told once for each sort; more with -v.
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
    // Another log may be there already, which is as good.
    drop(log.try_init());
}

/// Opens the browser where there is one; where there is none, the address has been printed.
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
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, DEFAULT_PORT));
    }
    text.parse()
        .map_err(|_| "give a port, an address, or both, such as 8080 or 0.0.0.0:8765".to_owned())
}

fn parse_window(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .unwrap_or((text, 1.0));
    let seconds: Option<f64> = number.parse().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds * unit).ok())
        .filter(|window| !window.is_zero())
        .ok_or_else(|| "give a time, such as 90s, 5m or 1h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_time_with_or_without_a_unit() {
        assert_eq!(parse_window("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(parse_window("1.5h"), Ok(Duration::from_mins(90)));
        assert_eq!(parse_window("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_window("500ms"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1m", "soon", "inf", "1e300h"] {
            assert!(parse_window(text).is_err(), "{text}");
        }
    }
}
