//! Foxglove's WebSocket protocol as bytes and text, both ways, without a socket.
//!
//! A server says [`ServerText`] and [`ServerBinary`], a client [`ClientText`] and [`PlaybackRequest`]. Each is written and
//! read here, so that both sides are one piece of code.
//!
//! ```
//! use asof_foxglove::{ServerBinary, message_data};
//!
//! let frame = message_data(7, 1_000, b"payload");
//! let ServerBinary::Message { subscription, log_time, payload } = ServerBinary::parse(&frame.into())? else {
//!     panic!("a message");
//! };
//! assert_eq!((subscription, log_time, &payload[..]), (7, 1_000, &b"payload"[..]));
//! # Ok::<(), asof_foxglove::ProtocolError>(())
//! ```

#![forbid(unsafe_code)]

mod binary;
mod channel;
mod playback;
mod text;

pub use binary::{ServerBinary, asset_response, message_data, time};
pub use channel::{Advertised, advertised};
pub use playback::{PlaybackRequest, PlaybackState, PlaybackStatus, is_playback_request};
pub use text::{
    ClientText, FetchAsset, ParameterValue, PublishedTopic, ServerInfo, ServerText, Subscribe,
    Time, decline_of,
};

/// The subprotocol of the SDK.
pub const SDK: &str = "foxglove.sdk.v1";
/// The older subprotocol, of bridges before the SDK.
pub const OLDER: &str = "foxglove.websocket.v1";

/// Why text or bytes are not a message of the protocol.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The text is not JSON, or JSON of another shape.
    #[error("this is not a message of the protocol: {0}")]
    Text(#[from] serde_json::Error),
    /// A binary message is empty, or shorter than its opcode says.
    #[error("a binary message with opcode {opcode} has {found} bytes, fewer than its {expected}")]
    Short {
        /// Its first byte; 0 where there is none.
        opcode: u8,
        /// How many bytes it has.
        found: usize,
        /// How many it should have at least.
        expected: usize,
    },
    /// A binary message has an opcode that is not known.
    #[error("a binary message has opcode {opcode}, which is not known")]
    Opcode {
        /// Its first byte.
        opcode: u8,
    },
    /// A schema that should be base64 is not.
    #[error("the schema of channel {id} ('{topic}') is not base64: {cause}")]
    Schema {
        /// The channel's number.
        id: u64,
        /// Its topic.
        topic: String,
        /// What is wrong with it.
        #[source]
        cause: base64::DecodeError,
    },
}

/// The examples of the README compile, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
