//! The options of a server, and the errors of starting one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use asof_core::Stamp;

use crate::frames::RobotDescription;
use crate::queries::QueryEngine;
use crate::recordings::RecordingList;
use crate::snapshots::SnapshotTaker;

/// The options of a [`Server`](crate::Server).
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The address to listen on. Any address but this machine's own needs the token.
    pub listen: SocketAddr,
    /// Whether to take the next free port where the one in `listen` is taken.
    pub any_port: bool,
    /// The secret that clients must send; one is generated where it is needed and not given.
    pub token: Option<String>,
    /// Host names of the server, besides its addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Other origins whose pages may connect, such as `https://app.foxglove.dev`.
    pub origins: Vec<String>,
    /// Folders whose files viewers may fetch, such as meshes of a robot's description. None by default.
    pub assets: Vec<PathBuf>,
    /// The robots in the source, each under its own topic prefix. Without any, all topics belong to one robot.
    pub robots: Vec<RobotDescription>,
    /// The file for annotations of the recording, see [`Annotations`](crate::Annotations). Without it none can be
    /// made.
    pub annotations: Option<PathBuf>,
    /// A layout for the page in JSON, as saved by the page, Foxglove or Lichtblick. Without it the page chooses one.
    pub layout: Option<String>,
    /// The address of map tiles, with `{z}`, `{x}` and `{y}`. Without it the page does not fetch anything from
    /// elsewhere.
    pub tiles: Option<String>,
    /// Memory for what was read of all open recordings, in bytes: three quarters for blocks and transforms, the rest (at least 64 MB)
    /// for read-ahead of players and for data that waits to be sent.
    pub cache_bytes: u64,
    /// Times are relative to this one. By default to the start of the source, or to now where a growing source is
    /// still empty.
    pub start: Option<Stamp>,
    /// Where blocks are cached on disk. Nowhere by default.
    pub disk: Option<asof_blocks::DiskOptions>,
    /// Answers queries about the source; without it the page has no query panel.
    pub queries: Option<Arc<dyn QueryEngine>>,
    /// Writes snapshots of a running robot on request over HTTP; without it none are written.
    pub snapshots: Option<Arc<dyn SnapshotTaker>>,
    /// The folder for layouts that are kept on the server, for everyone who uses it. Without it they are kept in browsers.
    pub layouts: Option<PathBuf>,
    /// A list of recordings, which the page shows where the source has no name; without it there is no list.
    pub recordings: Option<Arc<dyn RecordingList>>,
    /// Limits on clients, and on the memory of each.
    pub limits: ServeLimits,
}

/// Limits on the resources of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeLimits {
    /// Open connections of all kinds.
    pub connections: usize,
    /// Open WebSockets, each with its own player.
    pub clients: usize,
    /// The longest message that a client may send, in bytes.
    pub message_bytes: usize,
    /// Topics that one client can subscribe to.
    pub subscriptions: usize,
    /// Bytes that may wait to be sent to one client; older messages are dropped.
    pub outbox_bytes: usize,
    /// Bytes that are made for all clients together, or wait to be sent to them: what requests decode and compute, HTTP
    /// responses, and unsent WebSocket messages. When the limit is reached, messages are dropped, requests wait, and clients
    /// that have read nothing for `stalled_after` are disconnected.
    pub waiting_bytes: usize,
    /// Bytes of computed series, tracks and states that are cached for all clients together, and as many for all
    /// recordings that were opened from the page.
    pub series_bytes: usize,
    /// The largest response to one request, in bytes.
    pub answer_bytes: usize,
    /// The bytes of all files that are opened from the page: they are copied to a temporary folder.
    pub opened_bytes: u64,
    /// The largest file that a viewer can fetch, in bytes.
    pub asset_bytes: usize,
    /// A client that sends nothing of a file for this long, or sends it far too slowly, has given up.
    pub upload_timeout: Duration,
    /// A client that reads nothing for this long is stalled: nothing is played for it, and it is disconnected when
    /// others need its memory or its connection.
    pub stalled_after: Duration,
    /// A client that reads nothing for this long is disconnected.
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
            upload_timeout: Duration::from_secs(20),
            stalled_after: Duration::from_secs(3),
            dropped_after: Duration::from_mins(1),
        }
    }
}

/// The port that Foxglove and Lichtblick try by default.
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
            layouts: None,
            recordings: None,
            limits: ServeLimits::default(),
        }
    }
}

/// Why a server cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {cause}; choose another with --listen")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        cause: std::io::Error,
    },
    /// Another error of the operating system.
    #[error("cannot start the server: {0}")]
    System(#[from] std::io::Error),
    /// The tile address is invalid.
    #[error(
        "'{address}' is not an address for map tiles: {reason}; use one such as https://tile.example.org/{{z}}/{{x}}/{{y}}.png"
    )]
    Tiles {
        /// The given address.
        address: String,
        /// Why it is invalid.
        reason: &'static str,
    },
    /// There are no random bytes for a token.
    #[error("cannot generate a token: {0}; give one yourself")]
    Random(String),
}
