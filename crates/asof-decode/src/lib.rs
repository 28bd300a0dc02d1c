//! Every message a row, every topic an Arrow table.
//!
//! [`Tables`] decodes a whole source in one pass, [`Decoder`] one channel's messages, into Arrow batches or
//! into JSON. [`Layers`] decide what a channel becomes: what it means (semantic), its own fields
//! (reflection), or its bytes (raw).
//!
//! ```
//! use asof_core::{Channel, Schema, Stamp};
//! use asof_decode::{Decoder, Projection};
//!
//! let schema = Schema {
//!     name: "std_msgs/msg/String".into(),
//!     encoding: "ros2msg".into(),
//!     data: "string data".into(),
//! };
//! let channel = Channel {
//!     topic: "/chatter".into(),
//!     message_encoding: "cdr".into(),
//!     schema: Some(schema.into()),
//!     ..Channel::default()
//! };
//! let mut decoder = Decoder::new(&channel, &Projection::All, &[])?;
//! assert_eq!(decoder.json(b"\0\x01\0\0\x06\0\0\0hello\0")?, r#"{"data":"hello"}"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod arrays;
mod blend;
mod columns;
mod csv;
mod decoder;
mod error;
mod layers;
mod layout;
mod model;
mod print;
mod recycle;
mod schema;
mod tables;
mod wire;

pub use columns::Payload;
pub use decoder::{Decoder, Timed};
pub use error::{PayloadError, SchemaError};
pub use layers::{
    Archetype, Assignment, Beside, Claim, FileLayer, FileTable, Layers, MessageLayer, Table,
};
pub use layout::Projection;
pub use model::{
    Case, Constant, Enumeration, Extensibility, Field, Kind, MessageType, Scalar, Struct,
};
pub use tables::{ChannelReport, TableError, TableOptions, Tables, Timeline, TopicBatch};
