//! How a server is set up, and why it could not be.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use asof_core::Stamp;

use crate::frames::RobotDescription;
use crate::queries::QueryEngine;
use crate::recordings::RecordingList;
use crate::snapshots::SnapshotTaker;

/// How a [`Server`](crate::Server) is set up.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where it listens. Any other address than this machine's own needs the token.
    pub listen: SocketAddr,
    /// Whether the next free port will do, where the one in `listen` is taken.
    pub any_port: bool,
    /// The secret that a client must know; one is made up where it is needed and none is given.
    pub token: Option<String>,
    /// Names that the server goes by, beside its addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Other sites whose pages may connect, such as `https://app.foxglove.dev`.
    pub origins: Vec<String>,
    /// Folders whose files viewers may fetch: meshes of a robot's description. None by default.
    pub assets: Vec<PathBuf>,
    /// Robots of which the source has the topics, each under a prefix of its own. Without any, all topics are one robot's.
    pub robots: Vec<RobotDescription>,
    /// The file that people's notes about the recording are kept in, see [`Annotations`](crate::Annotations). Without it none
    /// can be made.
    pub annotations: Option<PathBuf>,
    /// A layout for the page, as the page saves it, or as Foxglove and Lichtblick do: JSON. Without it the page makes its own.
    pub layout: Option<String>,
    /// Where the page gets tiles of maps from: an address with `{z}`, `{x}` and `{y}`. Without it nothing is fetched from
    /// anywhere.
    pub tiles: Option<String>,
    /// Bytes for what was read: three quarters for the block cache, the rest (64 MB at least) for what a few
    /// players have read ahead and what waits to be sent.
    pub cache_bytes: u64,
    /// Times are counted from here. Without it from the start of the source, or, where one that grows holds nothing yet, from
    /// now.
    pub start: Option<Stamp>,
    /// Where what was read of a recording is kept for later. Nowhere by default.
    pub disk: Option<asof_blocks::DiskOptions>,
    /// What answers queries about the source; without it the page has no panel for them.
    pub queries: Option<Arc<dyn QueryEngine>>,
    /// What writes snapshots of a running robot when it is asked to over HTTP; without it none are written.
    pub snapshots: Option<Arc<dyn SnapshotTaker>>,
    /// Many recordings, which the page shows a list of where the source has no name; without it there is no list.
    pub recordings: Option<Arc<dyn RecordingList>>,
    /// What one client can make the server hold, and how many of them there can be.
    pub limits: ServeLimits,
}

/// What a client can cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeLimits {
    /// Open connections of all kinds.
    pub connections: usize,
    /// Open WebSockets, each with a player of its own.
    pub clients: usize,
    /// The longest message that a client may send, in bytes.
    pub message_bytes: usize,
    /// Topics that one client can subscribe to.
    pub subscriptions: usize,
    /// Bytes that wait to be sent to one client; what is older gives way.
    pub outbox_bytes: usize,
    /// Bytes that wait to be sent, over all clients: answers over HTTP, and what their WebSockets have not taken yet. Where
    /// there is no room for more, messages give way, and those clients are let go that have taken nothing for
    /// `stalled_after`. Nothing larger than this is sent at all.
    pub waiting_bytes: usize,
    /// Bytes of finished series, tracks and states, for all clients together.
    pub series_bytes: usize,
    /// The largest answer to one request, in bytes.
    pub answer_bytes: usize,
    /// The bytes of the files that can be opened from the page at once: they are copied to a temporary folder.
    pub opened_bytes: u64,
    /// The largest file that a viewer can fetch, in bytes.
    pub asset_bytes: usize,
    /// A client that takes nothing for so long is left alone: nothing is played for it, and it has to go where there is no
    /// room for what others are owed, or no place for another connection.
    pub stalled_after: Duration,
    /// A client that takes nothing for so long is disconnected.
    pub dropped_after: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        ServeLimits {
            connections: 512,
            clients: 128,
            message_bytes: 64 << 10,
            subscriptions: 512,
            outbox_bytes: 16 << 20,
            waiting_bytes: 256 << 20,
            series_bytes: 64 << 20,
            answer_bytes: 8 << 20,
            opened_bytes: 4 << 30,
            asset_bytes: 64 << 20,
            stalled_after: Duration::from_secs(3),
            dropped_after: Duration::from_mins(1),
        }
    }
}

/// The port that Foxglove and Lichtblick try by themselves.
pub const DEFAULT_PORT: u16 = 8765;

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_PORT),
            any_port: true,
            token: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            assets: Vec::new(),
            robots: Vec::new(),
            annotations: None,
            layout: None,
            tiles: None,
            cache_bytes: 600_000_000,
            start: None,
            disk: None,
            queries: None,
            snapshots: None,
            recordings: None,
            limits: ServeLimits::default(),
        }
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {cause}; choose another with --listen")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// The system refused something else.
    #[error("cannot start the server: {0}")]
    System(#[from] std::io::Error),
    /// Tiles cannot be fetched from there.
    #[error(
        "'{address}' is not an address of tiles: {reason}; give one such as https://tile.example.org/{{z}}/{{x}}/{{y}}.png"
    )]
    Tiles {
        /// What was given.
        address: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No random bytes for a token.
    #[error("cannot make a token: {0}; give one yourself")]
    Random(String),
}
