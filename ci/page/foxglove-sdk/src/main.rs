//! Plays a recording through Foxglove's SDK protocol: every byte is written and read by the `foxglove` crate.
//!
//! usage: foxglove-sdk-check ADDRESS, such as 127.0.0.1:8765

use std::net::TcpStream;
use std::time::{Duration, Instant};

use foxglove::websocket::ws_protocol::client::{
    PlaybackCommand, PlaybackControlRequest, Subscribe, Subscription,
};
use foxglove::websocket::ws_protocol::server::playback_state::PlaybackStatus;
use foxglove::websocket::ws_protocol::server::{PlaybackState, ServerMessage};
use foxglove::websocket::ws_protocol::{BinaryMessage, JsonMessage};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

const SECOND: u64 = 1_000_000_000;

struct Client {
    socket: WebSocket<TcpStream>,
    /// Log times of the messages that came.
    times: Vec<u64>,
}

fn main() {
    let address = std::env::args().nth(1).expect("an address");
    let mut client = Client::connect(&address);
    let (mut range, mut scan) = (None, None);
    while range.is_none() || scan.is_none() {
        match client.text() {
            Said::Info(start, end) => range = Some((start, end)),
            Said::Channel(id) => scan = Some(id),
        }
    }
    let (start, end) = range.expect("a range");
    assert!(end - start > 4 * SECOND, "the recording's range is told");
    println!("ok: the SDK reads what is advertised, and the range that can be played");
    let wanted = Subscription::new(7, scan.expect("a channel"));
    let subscribe = Subscribe::new([wanted]).to_string();
    client.socket.send(Message::text(subscribe)).expect("sent");

    let at = start + 3 * SECOND;
    let paused = client.control(PlaybackCommand::Pause, 1.0, Some(at), "seek");
    assert_eq!(
        (paused.status, paused.current_time),
        (PlaybackStatus::Paused, at)
    );
    assert!(paused.did_seek, "a seek is told as one");
    client.until("what was known then", |client| {
        client
            .times
            .iter()
            .any(|time| (at - SECOND / 5..=at).contains(time))
    });
    println!("ok: the SDK's seek is obeyed, and what was known then comes");

    let playing = client.control(PlaybackCommand::Play, 5.0, None, "play");
    assert_eq!(playing.status, PlaybackStatus::Playing);
    assert!((playing.playback_speed - 5.0).abs() < 1e-6 && !playing.did_seek);
    client.until("messages", |client| {
        client.times.iter().any(|time| *time > at)
    });
    let paused = client.control(PlaybackCommand::Pause, 5.0, None, "pause");
    assert_eq!(paused.status, PlaybackStatus::Paused);
    println!("ok: the SDK plays faster, and pauses");

    let playing = client.control(PlaybackCommand::Play, 10.0, None, "on");
    assert_eq!(playing.status, PlaybackStatus::Playing);
    client.state(|state| state.status == PlaybackStatus::Ended);
    println!("ok: the end is told in the SDK's words");
}

enum Said {
    /// What can be played, in nanoseconds.
    Info(u64, u64),
    /// The number of the scans' channel.
    Channel(u64),
}

impl Client {
    fn connect(address: &str) -> Self {
        let mut request = format!("ws://{address}/")
            .into_client_request()
            .expect("a request");
        let protocol = "foxglove.sdk.v1".parse().expect("a value");
        request
            .headers_mut()
            .insert("sec-websocket-protocol", protocol);
        let stream = TcpStream::connect(address).expect("a connection");
        let timeout = Some(Duration::from_secs(20));
        stream.set_read_timeout(timeout).expect("a timeout");
        let (socket, _) = tungstenite::client(request, stream).expect("a WebSocket");
        Client {
            socket,
            times: Vec::new(),
        }
    }

    /// The next server message that is not a message of a topic.
    fn text(&mut self) -> Said {
        loop {
            let Message::Text(text) = self.socket.read().expect("a message") else {
                continue;
            };
            match ServerMessage::parse_json(&text).expect("a message of the protocol") {
                ServerMessage::ServerInfo(info) => {
                    let nanos = |time: Option<_>| nanos_of(&format!("{:?}", time.expect("a time")));
                    return Said::Info(nanos(info.data_start_time), nanos(info.data_end_time));
                }
                ServerMessage::Advertise(all) => {
                    let scan = all.channels.iter().find(|one| one.topic == "/scan");
                    return Said::Channel(scan.expect("scans").id);
                }
                _ => {}
            }
        }
    }

    /// Asks for something, and gives the answer to it.
    fn control(
        &mut self,
        playback_command: PlaybackCommand,
        playback_speed: f32,
        seek_time: Option<u64>,
        id: &str,
    ) -> PlaybackState {
        let request = PlaybackControlRequest {
            playback_command,
            playback_speed,
            seek_time,
            request_id: id.to_owned(),
        };
        let bytes = request.to_bytes();
        self.socket.send(Message::binary(bytes)).expect("sent");
        self.state(|state| state.request_id.as_deref() == Some(id))
    }

    fn state(&mut self, is_meant: impl Fn(&PlaybackState) -> bool) -> PlaybackState {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if let Some(state) = self.binary()
                && is_meant(&state)
            {
                return state;
            }
        }
        panic!("the server never said so");
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Client) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !holds(self) {
            assert!(Instant::now() < deadline, "never: {what}");
            self.binary();
        }
    }

    /// Reads on: notes messages, returns states.
    fn binary(&mut self) -> Option<PlaybackState> {
        let Message::Binary(bytes) = self.socket.read().expect("a message") else {
            return None;
        };
        match ServerMessage::parse_binary(&bytes).expect("a message of the protocol") {
            ServerMessage::MessageData(data) => self.times.push(data.log_time),
            ServerMessage::PlaybackState(state) => return Some(state),
            _ => {}
        }
        None
    }
}

/// A time as the SDK prints it: its fields are private.
fn nanos_of(shown: &str) -> u64 {
    let numbers: Vec<u64> = shown
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect();
    numbers[0] * SECOND + numbers[1]
}
