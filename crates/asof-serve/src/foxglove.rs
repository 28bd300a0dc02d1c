//! The Foxglove WebSocket protocol, for the Foxglove app and Lichtblick.
//!
//! Subprotocols `foxglove.sdk.v1` and the older `foxglove.websocket.v1`: channels with their schemas, messages and
//! time; the newer one has playback control too. The server of the `foxglove` crate needs its own port and cannot take
//! over a connection, so messages are encoded and parsed by asof-foxglove.
//!
//! A recording is played in a loop to a client that does not control it, whether it could or not: Lichtblick offers
//! the newer protocol but has no controls. The first playback request ends the loop.
//!
//! A source that grows, such as a running robot, has no playback control: its channels and messages are sent as they
//! come.

mod channels;
mod graph;
mod parameters;

pub(crate) use parameters::{PARAMETER_BYTES, values_as_of};

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::{Batch, Channel, FollowEnd, Source, Stamp, Summary, Topics};
use asof_foxglove::{
    ClientText, FetchAsset, PlaybackRequest, PlaybackState, PlaybackStatus, ProtocolTime,
    ServerInfo, ServerText, Subscribe, asset_response, decline_of, is_playback_request,
    message_data,
};
use asof_player::{PlayState, Player, PlayerEvent, Speed};
use axum::extract::ws::{Message as Frame, WebSocket};
use bytes::Bytes;

use crate::app::App;
use crate::assets;
use crate::client::{self, Client};
use crate::guard::Refusal;
use crate::outbox::{Key, Outbox};
use crate::waiting::Connection;
use channels::{Offers, is_bare};

pub(crate) use asof_foxglove::{OLDER, SDK};

#[allow(clippy::struct_excessive_bools)] // Each is a question of its own.
struct Session {
    app: Arc<App>,
    outbox: Arc<Outbox>,
    player: Player,
    offers: Offers,
    /// The channels that have been seen, when to look for new ones, and when to check those again that had no schema
    /// yet.
    seen_channels: Vec<Arc<Channel>>,
    looked: Instant,
    look_again: Option<Instant>,
    has_advertised: bool,
    /// Subscriptions and their channels.
    subscriptions: HashMap<u32, u32>,
    has_new_topics: bool,
    /// The topics of the connection graph that the client was told, if it wants the graph.
    graph: Option<BTreeSet<String>>,
    /// Whether the client can control the player, and whether it has.
    has_controls: bool,
    is_controlled: bool,
    told_state: Option<(PlayState, u32)>,
    /// The client's clock. It goes back only after a jump: viewers treat that as a seek.
    clock: Option<Stamp>,
    has_jumped: bool,
}

/// Why a state is sent.
enum Occasion<'a> {
    /// If it has changed.
    Changed,
    /// Playback starts over.
    Looped,
    /// In response to a request.
    Answer(&'a PlaybackRequest),
}

/// How long a robot's node may take to describe a type, before it is advertised without a schema.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(3);
/// How often new channels are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The most topics that are named in one status.
const MOST_NAMED: usize = 10;

/// Serves one client until it disconnects.
pub(crate) async fn run(app: Arc<App>, socket: (WebSocket, Arc<Connection>), protocol: &str) {
    let has_controls = protocol == SDK && !app.is_live;
    let start = |app: &_, outbox: &_| Session::new(app, outbox, has_controls);
    client::serve(app, socket, start).await;
}

/// A time message, which sets a client's clock.
pub(crate) fn time_frame(nanos: u64) -> Frame {
    Frame::Binary(asof_foxglove::time(nanos).into())
}

impl Client for Session {
    fn greet(&mut self) {
        let summary = self.app.cache.summary();
        let range = summary.range;
        let has_range = !range.is_empty() && !self.app.is_live;
        let capabilities = self.capabilities(&summary);
        self.say_text(&ServerText::ServerInfo(ServerInfo {
            name: format!("asof: {}", self.app.name),
            capabilities: capabilities.into_iter().map(str::to_owned).collect(),
            session_id: Some(format!("{}-{}", self.app.start.nanos(), std::process::id())),
            data_start_time: has_range.then(|| seconds(range.start)),
            data_end_time: has_range.then(|| seconds(range.end)),
            ..ServerInfo::default()
        }));
        self.advertise();
    }

    fn obey(&mut self, text: &str) {
        match ClientText::parse(text) {
            Ok(ClientText::Subscribe { subscriptions }) => {
                for wanted in subscriptions {
                    self.subscribe(&wanted);
                }
            }
            Ok(ClientText::Unsubscribe { subscription_ids }) => {
                for id in subscription_ids {
                    self.has_new_topics |= self.subscriptions.remove(&id).is_some();
                }
            }
            Ok(ClientText::FetchAsset(wanted)) => {
                tokio::task::block_in_place(|| self.fetch(&wanted));
            }
            Ok(ClientText::GetParameters {
                parameter_names,
                id,
            }) => tokio::task::block_in_place(|| self.tell_parameters(&parameter_names, id)),
            Ok(ClientText::SubscribeConnectionGraph) => {
                self.graph = Some(BTreeSet::new());
                self.tell_graph(&self.app.cache.summary());
            }
            Ok(ClientText::UnsubscribeConnectionGraph) => self.graph = None,
            Ok(ClientText::Unknown) => self.decline(text),
            Err(error) => {
                self.app.refusals.note(Refusal::Malformed, text);
                self.complain(&error.to_string());
            }
        }
    }

    fn obey_bytes(&mut self, bytes: &[u8]) {
        if !self.has_controls && is_playback_request(bytes) {
            return self.complain(if self.app.is_live {
                "this source is live: it cannot be played, paused or seeked"
            } else {
                "foxglove.websocket.v1 has no playback control; connect with foxglove.sdk.v1 to play, pause and seek"
            });
        }
        let Some(request) = PlaybackRequest::parse(bytes) else {
            self.app
                .refusals
                .note(Refusal::Malformed, "a binary message");
            let opcode = bytes.first().map_or("nothing".to_owned(), u8::to_string);
            return self.complain(&format!(
                "binary messages with opcode {opcode} and {} bytes are not supported",
                bytes.len()
            ));
        };
        self.control(&request);
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.app.is_live && now.duration_since(self.looked) >= POLL_INTERVAL {
            self.looked = now;
            self.advertise();
        }
        if std::mem::take(&mut self.has_new_topics) {
            self.player.set_topics(self.topics());
        }
        for event in self.player.tick(now) {
            self.take(event);
        }
        let now = self.set_clock(self.position());
        self.outbox.tell_time(now);
        self.tell_state(&Occasion::Changed);
    }

    fn pause(&self) -> Duration {
        if self.has_new_topics {
            return Duration::ZERO;
        }
        match self.player.state() {
            PlayState::Following => Duration::from_millis(5),
            PlayState::Playing | PlayState::Buffering => Duration::from_millis(10),
            PlayState::Paused | PlayState::Ended => Duration::from_millis(25),
        }
    }
}

impl Session {
    fn new(app: &Arc<App>, outbox: &Arc<Outbox>, has_controls: bool) -> std::io::Result<Self> {
        app.next_session();
        let mut player = Player::new(&app.cache, Topics::none())?;
        if app.is_live {
            player.follow();
        } else {
            player.set_loop(true);
            player.play();
        }
        Ok(Session {
            app: Arc::clone(app),
            outbox: Arc::clone(outbox),
            player,
            offers: Offers::default(),
            seen_channels: Vec::new(),
            looked: Instant::now(),
            look_again: None,
            has_advertised: false,
            subscriptions: HashMap::new(),
            has_new_topics: false,
            graph: None,
            has_controls,
            is_controlled: false,
            told_state: None,
            clock: None,
            has_jumped: false,
        })
    }

    fn tell_graph(&mut self, summary: &Summary) {
        if let Some(told) = &mut self.graph {
            let update = graph::update(summary, told);
            self.say_text(&update);
        }
    }

    /// Advertises new channels, and withdraws those that are gone.
    fn advertise(&mut self) {
        let now = Instant::now();
        let summary = self.app.cache.summary();
        let current = summary.channels.iter().map(|entry| &entry.channel);
        let is_known = current.clone().count() == self.seen_channels.len()
            && current
                .clone()
                .zip(&self.seen_channels)
                .all(|(one, other)| Arc::ptr_eq(one, other));
        if !is_known {
            self.look_again = Some(now + DESCRIBE_TIMEOUT);
        } else if self.look_again.is_some_and(|again| now >= again) {
            self.look_again = None;
        } else if self.has_advertised {
            return;
        }
        if !is_known {
            self.seen_channels = current.clone().cloned().collect();
            self.tell_graph(&summary);
        }
        // A robot's types may still be pending.
        let waits = self.app.is_live && self.look_again.is_some();
        let changes = self
            .offers
            .update(current, |channel| waits && is_bare(channel));
        if !changes.gone.is_empty() {
            let channel_ids = changes.gone.iter().map(|&id| u64::from(id)).collect();
            self.say_text(&ServerText::Unadvertise { channel_ids });
            self.subscriptions
                .retain(|_, channel| !changes.gone.contains(channel));
            self.has_new_topics = true;
        }
        if !changes.new.is_empty() || !self.has_advertised {
            self.has_advertised = true;
            self.say_text(&ServerText::Advertise {
                channels: changes.new,
            });
        }
        if !changes.undescribed.is_empty() {
            self.tell_undescribed(&changes.undescribed);
        }
    }

    /// One status for all of them: viewers show each status as an alert.
    fn tell_undescribed(&self, topics: &[String]) {
        let mut named = topics[..topics.len().min(MOST_NAMED)].join(", ");
        if topics.len() > MOST_NAMED {
            named.push_str(", …");
        }
        let text = format!(
            "{} topics are not advertised, because the recording has no schema for them: {named}",
            topics.len()
        );
        self.tell_status(0, &text);
    }

    fn subscribe(&mut self, wanted: &Subscribe) {
        if self.offers.topic(wanted.channel_id).is_none() {
            return self.complain(&format!("there is no channel {}", wanted.channel_id));
        }
        if self.subscriptions.len() >= self.app.limits.subscriptions {
            return self.complain("too many subscriptions; unsubscribe from some first");
        }
        let channel = wanted.channel_id as u32;
        if self.subscriptions.insert(wanted.id, channel).is_some() {
            self.complain(&format!("subscription {} is already in use", wanted.id));
        }
        self.has_new_topics = true;
    }

    /// The server's capabilities, which depend on the source and the options.
    fn capabilities(&self, summary: &Summary) -> Vec<&'static str> {
        let has_graph = !graph::publishers(summary).is_empty();
        let has_parameters = !parameters::topics(summary).is_empty();
        let all = [
            ("time", true),
            ("playbackControl", self.has_controls),
            ("assets", !self.app.assets.is_empty()),
            ("connectionGraph", has_graph),
            ("parameters", has_parameters),
        ];
        let those = all.into_iter().filter(|(_, is_there)| *is_there);
        those.map(|(name, _)| name).collect()
    }

    /// Sends a requested file.
    fn fetch(&self, wanted: &FetchAsset) {
        let read = || {
            let most = self.app.limits.asset_bytes;
            let (path, size) = assets::sized(&self.app.assets, &wanted.uri, most)?;
            // The response holds a copy of it.
            let room = self.outbox.room_for_answer(2 * size);
            let room = room.ok_or("too much data is waiting to be sent; try again later")?;
            let bytes = std::fs::read(&path).map_err(|error| error.to_string())?;
            Ok::<_, String>((bytes, room))
        };
        let (answer, room) = match read() {
            Ok((bytes, room)) => (asset_response(wanted.request_id, Ok(&bytes)), Some(room)),
            Err(error) => {
                let shown: String = wanted.uri.chars().take(200).collect();
                let error = format!("{shown}: {error}");
                (asset_response(wanted.request_id, Err(&error)), None)
            }
        };
        let frame = Frame::Binary(answer.into());
        self.outbox.answer(Key::None, frame, room);
    }

    /// Sends the parameters as of now.
    fn tell_parameters(&self, names: &[String], id: Option<String>) {
        // While they are made.
        let Some(_room) = self.outbox.room_for_answer(PARAMETER_BYTES) else {
            return self.complain("too much data is waiting to be sent; try again later");
        };
        match parameters::as_of(&self.app, self.position(), names) {
            Ok((parameters, cut)) => {
                self.say_text(&ServerText::ParameterValues { parameters, id });
                if let Some(cut) = cut {
                    self.complain(&cut);
                }
            }
            Err(error) => self.complain(&format!("cannot read parameters: {error}")),
        }
    }

    /// Declines an unsupported operation.
    fn decline(&self, text: &str) {
        let op = decline_of(text);
        let why = match op.as_str() {
            "advertise" | "unadvertise" => ": clients cannot publish messages",
            "subscribeParameterUpdates" | "unsubscribeParameterUpdates" | "setParameters" => {
                ": parameters cannot be changed here"
            }
            _ => "",
        };
        self.complain(&format!("this server does not support '{op}'{why}"));
    }

    /// Executes a playback request.
    fn control(&mut self, request: &PlaybackRequest) {
        let player = &mut self.player;
        if !self.is_controlled {
            self.is_controlled = true;
            player.set_loop(false);
        }
        player.set_speed(Speed::Times(f64::from(request.speed)));
        if let Some(seek) = request.seek {
            let at = Stamp::from_unsigned_nanos(seek).unwrap_or(Stamp::MAX);
            player.seek(at);
            self.has_jumped = true;
        }
        if request.is_playing {
            player.play();
        } else {
            player.pause();
        }
        self.tell_state(&Occasion::Answer(request));
    }

    fn take(&mut self, event: PlayerEvent) {
        match event {
            PlayerEvent::Messages(batch) => self.send(&batch, None),
            PlayerEvent::Latest(at, batch) => {
                let first = self.app.cache.summary().range.start;
                self.send(&batch, Some(at.max(first)));
            }
            PlayerEvent::Looped(_) => {
                // The clock goes back before the first message of the new pass: what was drawn is not part of it.
                self.has_jumped = true;
                let now = self.set_clock(self.position());
                self.outbox.tell_time(now);
                self.tell_state(&Occasion::Looped);
            }
            // The next message sets the clock back, which viewers treat as a seek.
            PlayerEvent::Restarted => self.has_jumped = true,
            PlayerEvent::Skipped { missed, .. } => {
                for (topic, count) in &missed {
                    self.outbox.missed(topic, *count);
                }
            }
            PlayerEvent::Over(end) => self.complain(&over_text(&end)),
            PlayerEvent::Failed(error) => self.complain(&error.to_string()),
            _ => {}
        }
    }

    /// The subscribed topics, each once.
    fn topics(&self) -> Topics {
        let topic = |channel: &u32| self.offers.topic(u64::from(*channel));
        Topics::named(self.subscriptions.values().filter_map(topic))
    }

    fn position(&self) -> Stamp {
        let position = self.player.position();
        // A player starts right before the first message; without any message it has no position.
        if self.app.is_live && !self.app.cache.summary().range.is_empty() {
            position
        } else {
            position.max(self.app.start)
        }
    }

    /// The client's clock for this time: not before the last one, unless there was a jump.
    fn set_clock(&mut self, at: Stamp) -> u64 {
        let may_go_back = std::mem::take(&mut self.has_jumped);
        let before = self.clock.filter(|_| !may_go_back);
        let now = before.map_or(at, |before| before.max(at));
        self.clock = Some(now);
        now.to_unsigned_nanos().unwrap_or(0)
    }

    /// Sends messages, each at its own time; or all at `known_at`.
    fn send(&mut self, batch: &Batch, known_at: Option<Stamp>) {
        for message in batch.iter() {
            let Some(channel) = self.offers.number_of(message.channel) else {
                continue;
            };
            let wanted = self.subscriptions.iter();
            let wanted: Vec<u32> = wanted
                .filter(|(_, known)| **known == channel)
                .map(|(subscription, _)| *subscription)
                .collect();
            for subscription in wanted {
                let len = 13 + message.payload.len();
                let topic = message.channel.topic.as_str();
                let Some(room) = self.outbox.room(topic, len) else {
                    continue;
                };
                let logged = message.log_time.to_unsigned_nanos().unwrap_or(0);
                let bytes = message_data(subscription, logged, message.payload);
                let time = self.set_clock(known_at.unwrap_or(message.log_time));
                self.outbox
                    .push_at(time, topic, Frame::Binary(Bytes::from(bytes)), room);
            }
        }
    }

    /// Sends the playback state, where it has changed or was requested.
    fn tell_state(&mut self, told: &Occasion<'_>) {
        let player = &self.player;
        let speed = match player.speed() {
            Speed::Times(times) => times as f32,
            Speed::Unlimited => 10.0,
        };
        let state = (player.state(), speed.to_bits());
        let is_news = !matches!(told, Occasion::Changed) || self.told_state != Some(state);
        if !self.has_controls || !is_news {
            return;
        }
        let (did_seek, id) = match told {
            Occasion::Changed => (false, ""),
            Occasion::Looped => (true, ""),
            Occasion::Answer(request) => (request.seek.is_some(), request.id.as_str()),
        };
        let bytes = PlaybackState {
            status: match player.state() {
                PlayState::Playing | PlayState::Following => PlaybackStatus::Playing,
                PlayState::Paused => PlaybackStatus::Paused,
                PlayState::Buffering => PlaybackStatus::Buffering,
                PlayState::Ended => PlaybackStatus::Ended,
            },
            position: self.position().to_unsigned_nanos().unwrap_or(0),
            speed,
            did_seek,
            id,
        }
        .to_bytes();
        self.told_state = Some(state);
        self.outbox.say(Key::None, Frame::Binary(bytes.into()));
    }

    fn complain(&self, message: &str) {
        self.tell_status(1, message);
    }

    fn tell_status(&self, level: u8, message: &str) {
        self.say_text(&ServerText::Status {
            level,
            message: message.to_owned(),
            id: None,
        });
    }

    fn say_text(&self, said: &ServerText) {
        self.outbox
            .say(Key::None, Frame::Text(said.to_text().into()));
    }
}

/// Why no more messages come.
pub(crate) fn over_text(end: &FollowEnd) -> String {
    match end {
        FollowEnd::Complete => "the recording is complete: no more messages will come".to_owned(),
        FollowEnd::Closed => "the source was closed: no more messages will come".to_owned(),
        FollowEnd::Lost(reason) => format!("no more messages will come: {reason}"),
    }
}

fn seconds(stamp: Stamp) -> ProtocolTime {
    let nanos = stamp.nanos();
    ProtocolTime {
        sec: nanos.div_euclid(1_000_000_000),
        nsec: nanos.rem_euclid(1_000_000_000) as u32,
    }
}
