//! Binary messages of a server: an opcode, then little-endian fields.

use bytes::Bytes;

use crate::ProtocolError;

const MESSAGE_DATA: u8 = 1;
const TIME: u8 = 2;
const ASSET: u8 = 4;

/// A server's binary message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerBinary {
    /// A message of a channel.
    Message {
        /// The client's identifier for the subscription.
        subscription: u32,
        /// When the server received it, in nanoseconds since the epoch.
        log_time: u64,
        /// The encoded message.
        payload: Bytes,
    },
    /// The server's clock, in nanoseconds since the epoch.
    Time(u64),
    /// Any other opcode: assets, service responses, playback states. Clients that did not request them ignore them.
    Other(u8),
}

impl ServerBinary {
    /// Parses a server's binary message. The payload is a slice of `bytes`.
    ///
    /// # Errors
    /// When it is empty, or shorter than its opcode requires.
    pub fn parse(bytes: &Bytes) -> Result<Self, ProtocolError> {
        let opcode = bytes.first().copied().unwrap_or(0);
        let short = |expected| ProtocolError::Short {
            opcode,
            found: bytes.len(),
            expected,
        };
        match opcode {
            MESSAGE_DATA => {
                let number = bytes.get(1..5).and_then(<[u8]>::first_chunk);
                let time = bytes.get(5..13).and_then(<[u8]>::first_chunk);
                let (number, time) = number.zip(time).ok_or_else(|| short(13))?;
                Ok(ServerBinary::Message {
                    subscription: u32::from_le_bytes(*number),
                    log_time: u64::from_le_bytes(*time),
                    payload: bytes.slice(13..),
                })
            }
            TIME => {
                let time = bytes.get(1..9).and_then(<[u8]>::first_chunk);
                let time = time.ok_or_else(|| short(9))?;
                Ok(ServerBinary::Time(u64::from_le_bytes(*time)))
            }
            3..=5 => Ok(ServerBinary::Other(opcode)),
            0 if bytes.is_empty() => Err(short(1)),
            _ => Err(ProtocolError::Opcode { opcode }),
        }
    }
}

/// Encodes a message of a channel, under the client's subscription identifier.
pub fn message_data(subscription: u32, log_time: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(13 + payload.len());
    bytes.push(MESSAGE_DATA);
    bytes.extend(subscription.to_le_bytes());
    bytes.extend(log_time.to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// Encodes the server's clock.
pub fn time(nanos: u64) -> Vec<u8> {
    let mut bytes = vec![TIME];
    bytes.extend(nanos.to_le_bytes());
    bytes
}

/// Encodes a requested file, or the reason why it cannot be served.
pub fn asset_response(request: u32, asset: Result<&[u8], &str>) -> Vec<u8> {
    let (status, error, data) = match asset {
        Ok(data) => (0, "", data),
        Err(error) => (1, error, &[][..]),
    };
    let mut bytes = Vec::with_capacity(10 + error.len() + data.len());
    bytes.push(ASSET);
    bytes.extend(request.to_le_bytes());
    bytes.push(status);
    bytes.extend((error.len() as u32).to_le_bytes());
    bytes.extend(error.as_bytes());
    bytes.extend(data);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_that_is_cut_is_an_error_at_every_length() {
        let whole = Bytes::from(message_data(7, 9, b""));
        for len in 0..whole.len() {
            let cut = ServerBinary::parse(&whole.slice(..len));
            assert!(cut.is_err(), "{len} bytes");
        }
        let clock = Bytes::from(time(9));
        assert_eq!(
            ServerBinary::parse(&clock).expect("read"),
            ServerBinary::Time(9)
        );
        assert!(ServerBinary::parse(&clock.slice(..8)).is_err());
    }

    #[test]
    fn an_opcode_that_nobody_knows_is_named() {
        let error = ServerBinary::parse(&Bytes::from_static(&[200, 1])).expect_err("unknown");
        assert!(error.to_string().contains("200"), "{error}");
    }

    #[test]
    fn answers_say_what_is_wrong_or_hold_the_file() {
        assert_eq!(
            asset_response(7, Ok(b"ab")),
            [4, 7, 0, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']
        );
        assert_eq!(
            asset_response(7, Err("no")),
            [4, 7, 0, 0, 0, 1, 2, 0, 0, 0, b'n', b'o']
        );
    }

    proptest! {
        #[test]
        fn a_message_reads_back(subscription: u32, log_time: u64, payload: Vec<u8>) {
            let bytes = Bytes::from(message_data(subscription, log_time, &payload));
            let expected = ServerBinary::Message { subscription, log_time, payload: payload.into() };
            prop_assert_eq!(ServerBinary::parse(&bytes).expect("read"), expected);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = ServerBinary::parse(&bytes.into());
        }
    }
}
