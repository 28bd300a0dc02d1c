//! Messages into Arrow.

mod arrays;
mod columns;
mod csv;
mod decoder;
mod error;
mod layers;
mod layout;
mod model;
mod print;
mod schema;
mod tables;
mod wire;

pub use columns::Payload;
pub use decoder::{Decoder, Timed};
pub use error::{PayloadError, SchemaError};
pub use layers::{Archetype, Assignment, Claim, FileLayer, Layers, MessageLayer, Table};
pub use layout::Projection;
pub use model::{
    Case, Constant, Enumeration, Extensibility, Field, Kind, MessageType, Scalar, Struct,
};
pub use tables::{ChannelReport, TableError, TableOptions, Tables, TopicBatch};
