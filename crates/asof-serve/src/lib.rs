//! Recordings in the browser: a web page, and a server for Foxglove and Lichtblick.
//!
//! A [`Server`] opens a port on this machine and shows one source there: a page with a timeline, plots,
//! pictures and a 3D view at `/`, an API of its own under `/api` and `/ws` (described in `API.md`), and
//! Foxglove's WebSocket protocol for whoever speaks it. One block cache holds what was read, for all clients;
//! each has a player of its own. Nothing is ever written to the source.
//!
//! A running robot is served the same way: [`Server::start_live`] shows what a [`Retained`] holds of it, the last
//! minutes, and what comes.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//! use asof_serve::{ServeOptions, Server};
//! # use asof_core::{Channel, Message, Stamp};
//! # use asof_formats::{McapWriter, McapWriterOptions};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("run.mcap");
//! # let mut writer = McapWriter::create(&path, McapWriterOptions::default())?;
//! # let channel = Arc::new(Channel { topic: "/odom".into(), ..Channel::default() });
//! # let at = Stamp::from_nanos(7);
//! # writer.write(&Message { channel, log_time: at, publish_time: at, sequence: 0, payload: "x".into() })?;
//! # writer.finish()?;
//!
//! let recording = asof_formats::open(&path)?;
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

mod app;
mod client;
mod foxglove;
mod frames;
mod guard;
mod head;
mod options;
mod outbox;
mod page;
mod record;
mod retained;
mod routes;
mod series;
mod server;
mod session;
mod show;
mod tracks;
mod wire;

pub use options::{DEFAULT_PORT, Limits, ServeError, ServeOptions};
pub use retained::{Retained, RetainedCounts, Retention};
pub use server::Server;
