//! Decode robot messages into Arrow: every message is a row, every topic a table.
//!
//! - [`Rows`] is one topic as columns of numbers.
//! - [`TopicTable`] is one topic as Arrow batches, decoded as they are read.
//! - [`messages`] iterates over messages as your own structs ([`TypedDecoder`]).
//! - [`Tables`] decodes a whole source in one pass.
//! - [`FieldReader`] reads single fields out of a message.
//! - [`Decoder`] decodes one channel's messages, into Arrow batches or JSON.
//!
//! [`Layers`] decide what a channel becomes: its meaning (semantic), its own fields (reflection), or its bytes (raw).
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
mod cells;
mod columns;
mod decoder;
mod decoders;
mod encoder;
mod error;
mod grid_map;
mod layers;
mod layout;
mod log_level;
mod model;
mod numbers;
mod path;
mod picture;
#[cfg(feature = "pictures")]
mod pixels;
mod points;
mod print;
mod record;
mod recycle;
#[cfg(feature = "ros-types")]
pub mod ros;
mod rows;
mod schema;
mod stamps;
mod survey;
mod tables;
mod topic;
mod typed;
mod video;
mod video_shape;
mod wire;

pub use arrays::structs;
pub use columns::Payload;
pub use decoder::{Decoder, Timed, decoders_made};
pub use decoders::{ByChannel, ChannelFailures, Decoders};
pub use encoder::{EncodeError, Encoder};
pub use error::{DecodeError, PayloadError, SchemaError};
pub use grid_map::{GridLayer, GridLayerError};
pub use layers::{Archetype, Assignment, Claim, FileLayer, FileTable, Layers, MessageLayer, Table};
pub use layout::Projection;
pub use log_level::{LogLevel, LogLevelError};
pub use model::{
    Case, Constant, Enumeration, Extensibility, Field, Kind, MessageType, Scalar, Struct,
};
pub use numbers::{is_number, number_at, numbers};
pub use path::{FieldPath, PathColumn, PathError, PathPart};
pub use picture::{Picture, PictureError, PixelNumber, PixelNumbers, picture_type};
#[cfg(feature = "pictures")]
pub use pixels::Pixels;
pub use points::{Beam, PackedField, PackedFieldError, PackedKind, Scan, ScanError};
pub use record::Record;
pub use rows::{Rows, RowsError};
pub use stamps::{stamps_of, time_parts};
pub use survey::Survey;
pub use tables::{ChannelReport, TableError, TableOptions, Tables, Timeline, TopicBatch};
pub use topic::{TopicBatches, TopicOptions, TopicTable};
pub use typed::{Messages, StampedMessage, TypedDecoder, TypedError, bytes, messages};
pub use video::VideoCodec;
pub use video_shape::VideoShape;
pub use wire::cdr_fields::{FieldReader, FieldValue, NumberList, StructPlace};

/// The version of Arrow that this crate uses, for readers of its batches.
pub mod arrow {
    pub use arrow_array as array;
    pub use arrow_schema as schema;
}

/// Runs the README's examples as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
