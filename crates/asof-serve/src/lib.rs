//! Serve recordings and running robots on one port: a web page, and the WebSocket protocol of Foxglove and Lichtblick.
//!
//! A [`Server`] opens a port on this machine and serves one source: at `/` a page with a timeline, plots, images and a 3D
//! view, under `/api` and `/ws` the page's own API (described in `API.md`), and Foxglove's WebSocket protocol for any client
//! that asks for it. One block cache serves all clients; each client has its own player. The source is never written to.
//! Annotations go into a file next to it, where [`ServeOptions::annotations`] names one.
//!
//! Recordings of a list and dropped files are opened by the same server, each under a path of its own (`/r/…`), within one
//! budget of memory.
//!
//! A source that [grows](asof_core::Growth) is served the same way: clients see what it holds, follow new messages, and scroll
//! back.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//! use asof_serve::{ServeOptions, Server};
//! # use asof_core::{Channel, Message, Stamp};
//! # let recording = asof_window::Recent::default();
//! # let channel = Arc::new(Channel { topic: "/odom".into(), ..Channel::default() });
//! # let at = Stamp::from_nanos(7);
//! # recording.push(Message { channel, log_time: at, publish_time: at, sequence: 0, payload: "x".into() });
//!
//! // Any source: `asof::open("run.mcap")?`, or a running robot.
//! let server = Server::start(Arc::new(recording), "run.mcap", &ServeOptions::default())?;
//! println!("open {}", server.url());
//!
//! let mut stream = std::net::TcpStream::connect(server.address())?;
//! write!(stream, "GET /api/summary HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! assert!(answer.contains("/odom"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod annotations;
mod app;
mod assets;
mod changes;
mod client;
mod foxglove;
mod frames;
mod guard;
mod latest;
mod layouts;
mod opened;
mod options;
mod outbox;
mod page;
mod plots;
mod policy;
mod queries;
mod record;
mod recordings;
mod refusal;
mod reply;
mod routes;
mod series;
mod server;
mod session;
mod show;
mod snapshots;
mod sound;
mod stream;
mod tracks;
mod video;
mod waiting;
mod wire;

pub use annotations::{Annotation, AnnotationError, Annotations};
pub use asof_blocks::{DiskOptions, fingerprint_of_file};
pub use changes::Opener;
pub use frames::RobotDescription;
pub use opened::OpenedRecording;
pub use options::{DEFAULT_PORT, ServeError, ServeLimits, ServeOptions};
pub use queries::{QueryAnswer, QueryColumn, QueryEngine, QueryKind, QueryLimits};
pub use recordings::{
    ListProgress, ListedRecording, RecordingList, RecordingsAsked, RecordingsFound, newest_first,
};
pub use refusal::Refusal;
pub use server::{Server, make_token};
pub use snapshots::SnapshotTaker;

/// Runs the README's examples as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
