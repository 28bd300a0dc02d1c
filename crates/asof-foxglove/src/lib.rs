//! Encode and parse the Foxglove WebSocket protocol, for servers and clients, without a socket.
//!
//! A server sends [`ServerText`] and [`ServerBinary`], a client [`ClientText`] and [`PlaybackRequest`]. Each is both
//! written and parsed here, so that the two sides share one implementation.
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
    ClientText, FetchAsset, ParameterValue, ProtocolTime, PublishedTopic, ServerInfo, ServerText,
    Subscribe, decline_of,
};

/// The subprotocol of the Foxglove SDK.
pub const SDK: &str = "foxglove.sdk.v1";
/// The older subprotocol, of bridges that predate the SDK.
pub const OLDER: &str = "foxglove.websocket.v1";

/// Why text or bytes are not a valid protocol message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The text is not JSON, or its JSON has an unexpected shape.
    #[error("not a message of the Foxglove protocol: {0}")]
    Text(#[from] serde_json::Error),
    /// A binary message is empty, or shorter than its opcode requires.
    #[error(
        "a binary message with opcode {opcode} has {found} bytes, expected at least {expected}"
    )]
    Short {
        /// Its first byte; 0 where the message is empty.
        opcode: u8,
        /// Its length in bytes.
        found: usize,
        /// The least number of bytes for this opcode.
        expected: usize,
    },
    /// A binary message has an unknown opcode.
    #[error("a binary message has the unknown opcode {opcode}")]
    Opcode {
        /// Its first byte.
        opcode: u8,
    },
    /// A schema that should be base64 is not valid base64.
    #[error("the schema of channel {id} ('{topic}') is not base64: {cause}")]
    Schema {
        /// The channel's identifier.
        id: u64,
        /// Its topic.
        topic: String,
        /// The base64 error.
        #[source]
        cause: base64::DecodeError,
    },
}

/// Runs the README's examples as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
