//! Foxglove's WebSocket protocol: the same data for the Foxglove app and for Lichtblick.
//!
//! Subprotocols `foxglove.sdk.v1` and the older `foxglove.websocket.v1`: channels with their schemas, messages
//! and time; the newer one has playback control too. The `foxglove` crate's server wants a port of its own and
//! cannot be given a connection; the few messages that are needed are written here.
//!
//! A running robot has no controls either: its channels are advertised as they come, and so are its messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::{Batch, Channel, Source, Stamp, Topics};
use asof_player::{Event, PlayState, Player, Speed};
use axum::extract::ws::{Message as Frame, WebSocket};
use base64::Engine as _;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::client::{self, Client};
use crate::guard::Refusal;
use crate::head::Head;
use crate::outbox::{Key, Outbox};
use crate::retained::Retained;

/// The subprotocols, from the newest.
pub(crate) const PROTOCOLS: [&str; 2] = ["foxglove.sdk.v1", "foxglove.websocket.v1"];

/// What a client can ask for in text. Everything else that the protocol knows is not offered.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase")]
enum Command {
    Subscribe {
        subscriptions: Vec<Subscribe>,
    },
    #[serde(rename_all = "camelCase")]
    Unsubscribe {
        subscription_ids: Vec<u32>,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subscribe {
    id: u32,
    channel_id: u64,
}

/// What a client asks of the player, in bytes.
#[derive(Debug, PartialEq)]
struct PlaybackRequest {
    is_playing: bool,
    speed: f32,
    seek: Option<u64>,
    id: String,
}

struct Session {
    app: Arc<App>,
    outbox: Arc<Outbox>,
    feed: Feed,
    /// The channels, by number. Of a running robot's, those that have gone keep their numbers.
    channels: Vec<Arc<Channel>>,
    /// Which of a robot's channels have been looked at, and when to look at those again that had no schema yet.
    seen_channels: Option<u64>,
    look_again: Option<Instant>,
    gone: Vec<usize>,
    has_advertised: bool,
    /// Numbers by address, of those that were met.
    numbers: HashMap<usize, (Arc<Channel>, Option<u32>)>,
    /// Subscriptions and their channels.
    subscriptions: HashMap<u32, u32>,
    has_new_topics: bool,
    /// Whether the client knows playback control.
    has_controls: bool,
    told_state: Option<(PlayState, u32)>,
    told_time: Option<Stamp>,
}

/// Where messages come from.
enum Feed {
    Recorded(Player),
    Live(Head),
}

/// So long a robot's node may take to describe a type, before it is advertised without.
const PATIENCE: Duration = Duration::from_secs(3);

const MESSAGE_DATA: u8 = 1;
const TIME: u8 = 2;
const PLAYBACK_STATE: u8 = 5;
const PLAYBACK_CONTROL: u8 = 3;

/// Serves one client until it goes.
pub(crate) async fn run(app: Arc<App>, socket: WebSocket) {
    let is_new = socket.protocol().is_none_or(|name| name != PROTOCOLS[1]);
    let has_controls = is_new && app.retained.is_none();
    let start = |app: &_, outbox: &_| Session::new(app, outbox, has_controls);
    client::serve(app, socket, start).await;
}

impl Client for Session {
    fn greet(&mut self) {
        let range = self.app.cache.summary().range;
        let mut info = json!({
            "op": "serverInfo",
            "name": format!("asof: {}", self.app.name),
            "capabilities": if self.has_controls { &["time", "playbackControl"][..] } else { &["time"] },
            "supportedEncodings": [],
            "metadata": {},
            "sessionId": format!("{}-{}", self.app.start.nanos(), std::process::id()),
        });
        if !range.is_empty() && self.app.retained.is_none() {
            info["dataStartTime"] = seconds(range.start);
            info["dataEndTime"] = seconds(range.end);
        }
        self.say(&info);
        self.advertise();
    }

    fn obey(&mut self, text: &str) {
        match serde_json::from_str(text) {
            Ok(Command::Subscribe { subscriptions }) => {
                for wanted in subscriptions {
                    self.subscribe(&wanted);
                }
            }
            Ok(Command::Unsubscribe { subscription_ids }) => {
                for id in subscription_ids {
                    self.has_new_topics |= self.subscriptions.remove(&id).is_some();
                }
            }
            Ok(Command::Unknown) => self.complain("this server does not do that"),
            Err(error) => {
                self.app.refusals.note(Refusal::Malformed, text);
                self.complain(&format!("this is no message of the protocol: {error}"));
            }
        }
    }

    fn obey_bytes(&mut self, bytes: &[u8]) {
        let Some(request) = PlaybackRequest::parse(bytes) else {
            self.app
                .refusals
                .note(Refusal::Malformed, "a binary message");
            return self.complain("this is no request that the server knows");
        };
        let Feed::Recorded(player) = &mut self.feed else {
            return self.complain("this is a running robot: it cannot be played");
        };
        player.set_speed(Speed::Times(f64::from(request.speed)));
        if let Some(seek) = request.seek {
            let at = Stamp::from_unsigned_nanos(seek).unwrap_or(Stamp::MAX);
            player.seek(at);
        }
        if request.is_playing {
            player.play();
        } else {
            player.pause();
        }
        self.tell_state(Some(&request));
    }

    fn tick(&mut self) {
        if self.app.retained.is_some() {
            self.advertise();
        }
        let topics = std::mem::take(&mut self.has_new_topics).then(|| self.topics());
        match &mut self.feed {
            Feed::Live(head) => {
                let known = topics.map(|topics| head.set_topics(topics));
                let tail = head.take();
                for (topic, count) in &tail.missed {
                    self.outbox.missed(topic, *count);
                }
                if let Some(known) = known {
                    self.send(&known);
                }
                self.send(&tail.batch);
            }
            Feed::Recorded(player) => {
                if let Some(topics) = topics {
                    player.set_topics(Topics::Named(topics));
                }
                for event in player.tick(Instant::now()) {
                    match event {
                        Event::Messages(batch) | Event::Backfill(_, batch) => self.send(&batch),
                        Event::Failed(error) => self.complain(&error.to_string()),
                        _ => {}
                    }
                }
            }
        }
        let position = self.position();
        if self.told_time != Some(position) {
            self.told_time = Some(position);
            let mut bytes = vec![TIME];
            bytes.extend(position.to_unsigned_nanos().unwrap_or(0).to_le_bytes());
            self.outbox
                .push(Key::Frames, None, Frame::Binary(bytes.into()));
        }
        self.tell_state(None);
    }

    fn pause(&self) -> Duration {
        if self.has_new_topics {
            return Duration::ZERO;
        }
        let Feed::Recorded(player) = &self.feed else {
            return Duration::from_millis(5);
        };
        match player.state() {
            PlayState::Playing | PlayState::Buffering => Duration::from_millis(10),
            PlayState::Paused | PlayState::Ended => Duration::from_millis(25),
        }
    }
}

impl Session {
    fn new(app: &Arc<App>, outbox: &Arc<Outbox>, has_controls: bool) -> std::io::Result<Self> {
        app.next_session();
        let feed = if let Some(retained) = &app.retained {
            Feed::Live(Head::new(retained, app.start))
        } else {
            let mut player = Player::new(&app.cache, Topics::Named(Vec::new()))?;
            if !has_controls {
                // A client of the older protocol has no controls: it sees the recording played over and over.
                player.set_loop(true);
                player.play();
            }
            Feed::Recorded(player)
        };
        Ok(Session {
            app: Arc::clone(app),
            outbox: Arc::clone(outbox),
            feed,
            channels: Vec::new(),
            seen_channels: None,
            look_again: None,
            gone: Vec::new(),
            has_advertised: false,
            numbers: HashMap::new(),
            subscriptions: HashMap::new(),
            has_new_topics: false,
            has_controls,
            told_state: None,
            told_time: None,
        })
    }

    /// Tells of channels that are new, and of those that have gone.
    fn advertise(&mut self) {
        let now = Instant::now();
        let version = self.app.retained.as_ref().map(Retained::channels_version);
        if version != self.seen_channels {
            self.look_again = Some(now + PATIENCE);
        } else if self.look_again.is_some_and(|again| now >= again) {
            self.look_again = None;
        } else if self.has_advertised {
            return;
        }
        self.seen_channels = version;
        let summary = self.app.cache.summary();
        let current: Vec<&Arc<Channel>> = summary
            .channels
            .iter()
            .map(|entry| &entry.channel)
            .collect();
        let is_there = |one: &Arc<Channel>| current.iter().any(|other| Arc::ptr_eq(one, other));
        let gone: Vec<usize> = (0..self.channels.len())
            .filter(|&id| !is_there(&self.channels[id]) && !self.gone.contains(&id))
            .collect();
        if !gone.is_empty() {
            self.say(&json!({ "op": "unadvertise", "channelIds": gone }));
            self.subscriptions
                .retain(|_, channel| !gone.contains(&(*channel as usize)));
            self.has_new_topics = true;
            self.gone.extend(gone);
        }
        // A robot's types may still be on their way.
        let waits = self.app.retained.is_some() && self.look_again.is_some();
        let first = self.channels.len();
        for channel in current {
            let is_known = self.channels.iter().any(|one| Arc::ptr_eq(one, channel));
            if !(is_known || waits && is_bare(channel)) {
                self.channels.push(Arc::clone(channel));
            }
        }
        if self.channels.len() > first || !self.has_advertised {
            self.has_advertised = true;
            self.numbers.clear();
            let new = self.channels.iter().enumerate().skip(first);
            let channels: Vec<Value> = new.map(advertised).collect();
            self.say(&json!({ "op": "advertise", "channels": channels }));
        }
    }

    fn subscribe(&mut self, wanted: &Subscribe) {
        let channel = usize::try_from(wanted.channel_id).unwrap_or(usize::MAX);
        if channel >= self.channels.len() || self.gone.contains(&channel) {
            return self.complain(&format!("there is no channel {}", wanted.channel_id));
        }
        if self.subscriptions.len() >= self.app.limits.subscriptions {
            return self.complain("too many subscriptions; give some up first");
        }
        if self
            .subscriptions
            .insert(wanted.id, channel as u32)
            .is_some()
        {
            self.complain(&format!("subscription {} was used twice", wanted.id));
        }
        self.has_new_topics = true;
    }

    /// The topics that are subscribed, each once.
    fn topics(&self) -> Vec<String> {
        let mut topics: Vec<String> = self
            .subscriptions
            .values()
            .map(|&channel| self.channels[channel as usize].topic.clone())
            .collect();
        topics.sort();
        topics.dedup();
        topics
    }

    fn position(&self) -> Stamp {
        let position = match &self.feed {
            Feed::Recorded(player) => player.position(),
            Feed::Live(head) => head.position(),
        };
        position.max(self.app.start)
    }

    fn send(&mut self, batch: &Batch) {
        for message in batch.iter() {
            let Some(channel) = self.number_of(message.channel) else {
                continue;
            };
            let wanted = self
                .subscriptions
                .iter()
                .filter(|(_, known)| **known == channel);
            for (subscription, _) in wanted {
                let mut bytes = Vec::with_capacity(13 + message.payload.len());
                bytes.push(MESSAGE_DATA);
                bytes.extend(subscription.to_le_bytes());
                bytes.extend(
                    message
                        .log_time
                        .to_unsigned_nanos()
                        .unwrap_or(0)
                        .to_le_bytes(),
                );
                bytes.extend(message.payload);
                let topic = Some(message.channel.topic.as_str());
                self.outbox
                    .push(Key::None, topic, Frame::Binary(Bytes::from(bytes)));
            }
        }
    }

    fn number_of(&mut self, channel: &Arc<Channel>) -> Option<u32> {
        let find = || {
            let same = |known: &Arc<Channel>| Arc::ptr_eq(known, channel) || known == channel;
            self.channels.iter().position(same).map(|at| at as u32)
        };
        let entry = self.numbers.entry(Arc::as_ptr(channel) as usize);
        entry.or_insert_with(|| (Arc::clone(channel), find())).1
    }

    /// Says how it plays, where that has changed or was asked for.
    fn tell_state(&mut self, request: Option<&PlaybackRequest>) {
        let Feed::Recorded(player) = &self.feed else {
            return;
        };
        let speed = match player.speed() {
            Speed::Times(times) => times as f32,
            Speed::Unlimited => 10.0,
        };
        let state = (player.state(), speed.to_bits());
        if !self.has_controls || (request.is_none() && self.told_state == Some(state)) {
            return;
        }
        let mut bytes = vec![
            PLAYBACK_STATE,
            match player.state() {
                PlayState::Playing => 0,
                PlayState::Paused => 1,
                PlayState::Buffering => 2,
                PlayState::Ended => 3,
            },
        ];
        let id = request.map_or("", |request| &request.id);
        let did_seek = request.is_some_and(|request| request.seek.is_some());
        let position = self.position().to_unsigned_nanos().unwrap_or(0);
        bytes.extend(position.to_le_bytes());
        bytes.extend(speed.to_le_bytes());
        bytes.push(u8::from(did_seek));
        bytes.extend((id.len() as u32).to_le_bytes());
        bytes.extend(id.as_bytes());
        self.told_state = Some(state);
        self.outbox
            .push(Key::None, None, Frame::Binary(bytes.into()));
    }

    fn complain(&self, message: &str) {
        self.say(&json!({ "op": "status", "level": 1, "message": message }));
    }

    fn say(&self, value: &Value) {
        self.outbox
            .push(Key::None, None, Frame::Text(value.to_string().into()));
    }
}

impl PlaybackRequest {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&opcode, rest) = bytes.split_first()?;
        let (&command, rest) = rest.split_first()?;
        let (speed, rest) = rest.split_first_chunk()?;
        let (&has_seek, rest) = rest.split_first()?;
        let (seek, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let id = rest.get(..u32::from_le_bytes(*len) as usize)?;
        if opcode != PLAYBACK_CONTROL || command > 1 {
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

/// Whether a type is known by its name alone.
fn is_bare(channel: &Channel) -> bool {
    let schema = channel.schema.as_ref();
    schema.is_some_and(|schema| schema.data.is_empty())
}

fn advertised((id, channel): (usize, &Arc<Channel>)) -> Value {
    let empty = asof_core::Schema::default();
    let schema = channel.schema.as_deref().unwrap_or(&empty);
    // Schemas that are no text go in base64.
    let text = match (schema.encoding.as_str(), std::str::from_utf8(&schema.data)) {
        ("protobuf" | "flatbuffer", _) | (_, Err(_)) => {
            base64::engine::general_purpose::STANDARD.encode(&schema.data)
        }
        (_, Ok(text)) => text.to_owned(),
    };
    json!({
        "id": id, "topic": channel.topic, "encoding": channel.message_encoding,
        "schemaName": schema.name, "schema": text, "schemaEncoding": schema.encoding,
    })
}

fn seconds(stamp: Stamp) -> Value {
    let nanos = stamp.nanos();
    json!({ "sec": nanos.div_euclid(1_000_000_000), "nsec": nanos.rem_euclid(1_000_000_000) })
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
