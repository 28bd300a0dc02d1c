//! Playback control of the SDK's subprotocol: requests and states.

const CONTROL: u8 = 3;
const STATE: u8 = 5;

/// A client's request to the player.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaybackRequest {
    /// Whether to play or pause.
    pub is_playing: bool,
    /// The playback speed; 1 is as recorded.
    pub speed: f32,
    /// Where to seek first, in nanoseconds since the epoch.
    pub seek: Option<u64>,
    /// The request's identifier, repeated in the response.
    pub id: String,
}

/// The status of a player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaybackStatus {
    /// Playing.
    Playing,
    /// Paused.
    Paused,
    /// Waiting for data.
    Buffering,
    /// At the end.
    Ended,
}

/// The state of a player.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaybackState<'a> {
    /// Its status.
    pub status: PlaybackStatus,
    /// Its position, in nanoseconds since the epoch.
    pub position: u64,
    /// The playback speed; 1 is as recorded.
    pub speed: f32,
    /// Whether it has jumped; a viewer then clears what it has drawn.
    pub did_seek: bool,
    /// The request that this answers; empty for none.
    pub id: &'a str,
}

/// Whether these bytes have the opcode of a playback request.
pub fn is_playback_request(bytes: &[u8]) -> bool {
    bytes.first() == Some(&CONTROL)
}

impl PlaybackRequest {
    /// Parses a request; `None` where the bytes are not one, or are truncated.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&opcode, rest) = bytes.split_first()?;
        let (&command, rest) = rest.split_first()?;
        let (speed, rest) = rest.split_first_chunk()?;
        let (&has_seek, rest) = rest.split_first()?;
        let (seek, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let id = rest.get(..u32::from_le_bytes(*len) as usize)?;
        if opcode != CONTROL || command > 1 {
            return None;
        }
        Some(PlaybackRequest {
            is_playing: command == 0,
            speed: f32::from_le_bytes(*speed),
            seek: (has_seek != 0).then(|| u64::from_le_bytes(*seek)),
            id: std::str::from_utf8(id).ok()?.to_owned(),
        })
    }
}

impl PlaybackState<'_> {
    /// Encodes the state.
    pub fn to_bytes(&self) -> Vec<u8> {
        let state = match self.status {
            PlaybackStatus::Playing => 0,
            PlaybackStatus::Paused => 1,
            PlaybackStatus::Buffering => 2,
            PlaybackStatus::Ended => 3,
        };
        let mut bytes = vec![STATE, state];
        bytes.extend(self.position.to_le_bytes());
        bytes.extend(self.speed.to_le_bytes());
        bytes.push(u8::from(self.did_seek));
        bytes.extend((self.id.len() as u32).to_le_bytes());
        bytes.extend(self.id.as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_playback_request_is_read_and_a_cut_one_is_not() {
        let mut bytes = vec![3, 1];
        bytes.extend(2.0_f32.to_le_bytes());
        bytes.push(1);
        bytes.extend(7_u64.to_le_bytes());
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(b"id");
        let expected = PlaybackRequest {
            is_playing: false,
            speed: 2.0,
            seek: Some(7),
            id: "id".to_owned(),
        };
        assert_eq!(PlaybackRequest::parse(&bytes), Some(expected));
        for len in 0..bytes.len() {
            assert_eq!(PlaybackRequest::parse(&bytes[..len]), None);
        }
    }
}
