//! `asof serve`

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use asof_core::Source;
use asof_serve::{DEFAULT_PORT, ServeOptions, Server};
use clap::Args;

use super::Outcome;
use super::place::Opening;
use super::screen::{Screen, output};

/// Show recordings in the browser, and to Foxglove and Lichtblick
///
/// Opens recordings of any size at once, several as one. Only this machine can connect, unless --listen names
/// another address; whoever connects then needs the token in the address that is printed. Nothing is written.
///
/// Foxglove and Lichtblick connect to the same port with ws://; pages of other sites, such as the Foxglove
/// app in a browser, only after --allow-origin.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof serve run.mcap
  asof serve run.mcap --listen 0.0.0.0:8765 --allow-origin https://app.foxglove.dev")]
pub struct Serve {
    /// Recordings: files, folders; several are shown as one
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    #[command(flatten)]
    opening: Opening,

    #[command(flatten)]
    serving: Serving,
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

    /// Memory for what was read, in megabytes
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
        let recording = self.opening.open_unmapped(&self.places)?;
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
        start_log(screen);
        let defaults = ServeOptions::default();
        let options = ServeOptions {
            listen: self.listen.unwrap_or(defaults.listen),
            any_port: self.listen.is_none(),
            hosts: self.allow_host.clone(),
            origins: self.allow_origin.clone(),
            cache_bytes: self.cache.saturating_mul(1_000_000),
            ..defaults
        };
        let source: Arc<dyn Source> = Arc::new(source);
        let problems = source.summary().problems.len();
        if problems > 0 {
            screen.warning(format_args!(
                "{problems} problems in this recording; the page shows them"
            ));
        }
        let server = Server::start(source, name, &options)?;
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
        loop {
            std::thread::park();
        }
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
