//! Schema languages, each parsed into a [`MessageType`](crate::model::MessageType).

pub(crate) mod flatbuffer;
pub(crate) mod idl;
mod idl_tokens;
pub(crate) mod jsonschema;
pub(crate) mod proto;
pub(crate) mod rosmsg;
pub(crate) mod shape;
