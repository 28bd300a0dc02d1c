//! A page's WebSocket: its player, its subscriptions, and its messages. `API.md` describes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_blocks::RangeWatch;
use asof_core::{Batch, Channel, Message, Source, Stamp, Topics};
use asof_decode::Decoders;
use asof_player::{PlayState, Player, PlayerEvent, Speed};
use axum::extract::ws::{Message as Frame, WebSocket};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::app::{App, Together, problems, topics};
use crate::client::{self, Client};
use crate::foxglove::over_text;
use crate::frames::EdgeAt;
use crate::guard::Refusal;
use crate::outbox::{Key, Outbox};
use crate::show::{Form, ShowOptions, Shown};
use crate::waiting::{Connection, Reservation};

/// The page's own subprotocol.
pub(crate) const PROTOCOL: &str = "asof.v1";

/// A command of the page.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Command {
    Play,
    Pause,
    /// To the newest message of a running robot, and follow it.
    Follow,
    Seek {
        t: i64,
    },
    /// Without a factor: as fast as possible.
    Speed {
        times: Option<f64>,
    },
    Loop {
        on: bool,
    },
    /// By one message, or by this many nanoseconds.
    Step {
        by: Option<i64>,
        #[serde(default)]
        back: bool,
    },
    Subscribe {
        topic: String,
        form: Form,
        /// Every message, not only the latest.
        #[serde(default)]
        every: bool,
        /// Options of the subscription.
        #[serde(flatten)]
        wish: ShowOptions,
    },
    Unsubscribe {
        topic: String,
        form: Form,
    },
    /// Whether to send the poses of frames.
    Frames {
        on: bool,
    },
    /// Whether to share the play head.
    Together {
        on: bool,
    },
}

const TOPICS_EVERY: Duration = Duration::from_secs(2);
const WINDOW_EVERY: Duration = Duration::from_millis(200);

#[allow(clippy::struct_excessive_bools)] // Each is a question of its own.
struct Session {
    id: u64,
    app: Arc<App>,
    outbox: Arc<Outbox>,
    /// The shared play head.
    together: watch::Receiver<Together>,
    player: Player,
    decoders: Decoders,
    /// By topic and form.
    subscriptions: BTreeMap<(String, Form), Subscription>,
    next_key: u32,
    /// Whether subscriptions have changed since the player was updated.
    has_new_topics: bool,
    /// A seek whose answer has not come yet.
    awaits_latest: bool,
    is_looping: bool,
    wants_frames: bool,
    is_together: bool,
    watch: RangeWatch,
    told_channels: Vec<Arc<Channel>>,
    told_topics: Instant,
    told_window: Instant,
    told_state: Option<Value>,
    told_frames_at: Option<Stamp>,
    told_problems: Option<usize>,
    looked: Instant,
}

struct Subscription {
    key: Key,
    every: bool,
    wish: ShowOptions,
    /// When a message was last sent.
    told: Option<Instant>,
    /// The latest message that came too soon after that.
    held: Option<Message>,
    /// How many messages were replaced by a later one since then.
    left_out: u64,
}

impl Subscription {
    fn is_due(&self, now: Instant) -> bool {
        let pause = self.wish.pause();
        self.told
            .is_none_or(|told| now.duration_since(told) >= pause)
    }
}

/// The latest message of a topic, and how many it replaces.
struct Latest {
    message: Message,
    count: u64,
}

/// Serves one page until it disconnects.
pub(crate) async fn run(app: Arc<App>, socket: (WebSocket, Arc<Connection>)) {
    client::serve(app, socket, Session::new).await;
}

impl Client for Session {
    fn greet(&mut self) {
        let hello = json!({ "op": "hello", "session": self.id, "summary": self.app.summary() });
        self.say(Key::None, &hello);
        self.told_problems = Some(self.app.cache.summary().problems.len());
    }

    fn obey(&mut self, text: &str) {
        match commands(text) {
            Ok(commands) => commands.into_iter().for_each(|one| self.do_one(one)),
            Err(error) => {
                self.app.refusals.note(Refusal::Malformed, text);
                self.fail(&error.to_string());
            }
        }
    }

    fn obey_bytes(&mut self, _: &[u8]) {
        let refused = "a binary message";
        self.app.refusals.note(Refusal::Malformed, refused);
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.together.has_changed().is_ok_and(|has| has) {
            self.follow();
        }
        self.tell_near_frames();
        self.take_played(now);
        self.tell_held(now);
        self.tell_state();
        self.tell_frames();
        if now.duration_since(self.looked) >= Duration::from_millis(100) {
            self.looked = now;
            if self.app.is_live {
                self.tell_window(now);
            } else if let Some(loaded) = self.watch.changed(now) {
                let loaded = json!({ "op": "loaded", "ranges": loaded.fractions });
                self.say(Key::Loaded, &loaded);
            }
            let summary = self.app.cache.summary();
            if self.told_problems != Some(summary.problems.len()) {
                self.told_problems = Some(summary.problems.len());
                self.say(
                    Key::Problems,
                    &json!({ "op": "problems", "problems": problems(&summary) }),
                );
            }
        }
    }

    fn pause(&self) -> Duration {
        if self.has_new_topics {
            return Duration::ZERO;
        }
        if self.awaits_latest {
            return Duration::from_millis(2);
        }
        match self.player.state() {
            PlayState::Playing | PlayState::Buffering | PlayState::Following => {
                Duration::from_millis(16)
            }
            PlayState::Paused | PlayState::Ended => Duration::from_millis(100),
        }
    }
}

impl Session {
    fn new(app: &Arc<App>, outbox: &Arc<Outbox>) -> std::io::Result<Self> {
        let mut player = Player::new(&app.cache, Topics::none())?;
        if app.is_live {
            player.follow();
        }
        let now = Instant::now();
        Ok(Session {
            id: app.next_session(),
            app: Arc::clone(app),
            outbox: Arc::clone(outbox),
            together: app.together.subscribe(),
            player,
            told_channels: Vec::new(),
            told_topics: now,
            told_window: now,
            decoders: Decoders::default(),
            subscriptions: BTreeMap::new(),
            next_key: 0,
            has_new_topics: false,
            awaits_latest: false,
            is_looping: false,
            wants_frames: false,
            is_together: false,
            watch: app.cache.watch(&Topics::All),
            told_state: None,
            told_frames_at: None,
            told_problems: None,
            looked: now,
        })
    }

    fn do_one(&mut self, command: Command) {
        let is_control = matches!(
            command,
            Command::Play
                | Command::Pause
                | Command::Seek { .. }
                | Command::Speed { .. }
                | Command::Step { .. }
        );
        match command {
            Command::Play => self.player.play(),
            Command::Pause => self.player.pause(),
            Command::Follow => self.follow_newest(),
            Command::Seek { t } => self.seek(self.app.absolute(t)),
            Command::Speed { times } => {
                self.player
                    .set_speed(times.map_or(Speed::Unlimited, Speed::Times));
            }
            Command::Loop { on } => {
                self.is_looping = on;
                self.player.set_loop(on);
            }
            Command::Step { by, back } => tokio::task::block_in_place(|| self.step(by, back)),
            Command::Subscribe {
                topic,
                form,
                every,
                wish,
            } => self.subscribe(&topic, form, every, wish),
            Command::Unsubscribe { topic, form } => self.unsubscribe(topic, form),
            Command::Frames { on } => {
                self.wants_frames = on;
                self.told_frames_at = None;
            }
            Command::Together { on } if on && self.app.is_live => {
                self.fail(
                    "pages of a running robot cannot share a play head; each can follow the robot",
                );
            }
            Command::Together { on } => self.is_together = on,
        }
        if is_control && self.is_together {
            self.lead();
        }
    }

    /// This client's position.
    fn position(&self) -> Stamp {
        let position = self.player.position();
        // Without any message, a player has no position.
        if self.app.is_live && self.app.cache.summary().range.is_empty() {
            return position.max(self.app.start);
        }
        position
    }

    /// Goes to the newest message of a growing source, and follows it.
    fn follow_newest(&mut self) {
        if !self.app.is_live {
            return self.fail("this recording is complete; there is nothing to follow");
        }
        if self.player.state() != PlayState::Following {
            self.player.follow();
            self.awaits_latest = !self.subscriptions.is_empty();
        }
    }

    /// The subscribed topics, each once.
    fn topics(&self) -> Topics {
        Topics::named(self.subscriptions.keys().map(|(topic, _)| topic))
    }

    fn seek(&mut self, at: Stamp) {
        self.player.seek(at);
        self.awaits_latest = !self.subscriptions.is_empty();
    }

    fn step(&mut self, by: Option<i64>, back: bool) {
        let by = by.map(|nanos| Duration::from_nanos(nanos.unsigned_abs().min(3_600_000_000_000)));
        let stepped = match (by, back) {
            (None, false) => self.player.step_forward(),
            (None, true) => self.player.step_back(),
            (Some(by), false) => self.player.step_forward_by(by),
            (Some(by), true) => self.player.step_back_by(by),
        };
        match stepped {
            Ok(events) => self.take(events),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn subscribe(&mut self, topic: &str, form: Form, every: bool, wish: ShowOptions) {
        if self.subscriptions.len() >= self.app.limits.subscriptions {
            return self.fail("too many subscriptions; unsubscribe from some first");
        }
        let is_new_topic = !self.player.topics().contains(topic);
        let name = (topic.to_owned(), form);
        let is_running = self.player.state().is_running();
        if let Some(known) = self.subscriptions.get_mut(&name)
            && known.every == every
            && known.wish.rate != wish.rate
            && (is_running || known.wish.looks_like(&wish))
        {
            // What was sent already looks the same, or the next message comes soon.
            known.wish = wish;
            return;
        }
        self.next_key += 1;
        let subscription = Subscription {
            key: Key::Topic(self.next_key),
            every,
            wish,
            told: None,
            held: None,
            left_out: 0,
        };
        self.subscriptions.insert(name, subscription);
        if is_new_topic {
            self.has_new_topics = true;
            return;
        }
        // The player has already sent what it knows of this topic.
        let position = self.position();
        let known = tokio::task::block_in_place(|| {
            self.app.cache.latest_at(&Topics::named([topic]), position)
        });
        match known {
            Ok(known) => {
                if let Some(message) = known.get(0) {
                    self.tell(&message.to_message(), Some(form));
                }
            }
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn unsubscribe(&mut self, topic: String, form: Form) {
        if let Some(gone) = self.subscriptions.remove(&(topic, form)) {
            self.outbox.forget(&gone.key);
            self.has_new_topics = true;
        }
    }

    /// Publishes this client's action to the shared play head.
    fn lead(&self) {
        let speed = match self.player.speed() {
            Speed::Times(times) => Some(times),
            Speed::Unlimited => None,
        };
        let state = self.player.state();
        self.app.together.send_replace(Together {
            by: self.id,
            is_playing: state.is_running(),
            speed,
            position: self.player.position(),
            since: Instant::now(),
        });
    }

    /// Applies the action of another client to this one.
    fn follow(&mut self) {
        let other = *self.together.borrow_and_update();
        if !self.is_together || other.by == self.id {
            return;
        }
        let mut position = other.position;
        if let (true, Some(speed)) = (other.is_playing, other.speed) {
            let passed = other.since.elapsed().as_nanos() as f64 * speed;
            position = position.plus_nanos(passed as i64);
        }
        self.player
            .set_speed(other.speed.map_or(Speed::Unlimited, Speed::Times));
        self.seek(position);
        if other.is_playing {
            self.player.play();
        } else {
            self.player.pause();
        }
    }

    /// Processes the player's events.
    fn take_played(&mut self, now: Instant) {
        if std::mem::take(&mut self.has_new_topics) {
            let topics = self.topics();
            if *self.player.topics() != topics {
                let mut names = self.subscriptions.keys().map(|(topic, _)| topic);
                let is_more = names.any(|topic| !self.player.topics().contains(topic));
                // The timeline shows what is cached of this client's topics.
                self.watch.set_topics(if self.subscriptions.is_empty() {
                    &Topics::All
                } else {
                    &topics
                });
                self.player.set_topics(topics);
                self.awaits_latest |= is_more;
            }
        }
        let events = self.player.tick(now);
        self.take(events);
    }

    fn take(&mut self, events: Vec<PlayerEvent>) {
        let mut latest: BTreeMap<String, Latest> = BTreeMap::new();
        for event in events {
            match event {
                PlayerEvent::Messages(batch) => self.take_messages(&batch, &mut latest),
                PlayerEvent::Latest(_, batch) => {
                    self.awaits_latest = false;
                    // Messages from before a seek are outdated.
                    latest.clear();
                    self.take_latest(&batch);
                }
                PlayerEvent::Skipped { missed, .. } => {
                    for (topic, count) in &missed {
                        self.outbox.missed(topic, *count);
                    }
                }
                PlayerEvent::Restarted => {
                    // Messages from before belong to another time.
                    latest.clear();
                    self.told_frames_at = None;
                    self.say(Key::None, &json!({ "op": "restarted" }));
                }
                PlayerEvent::Over(end) => {
                    let message = over_text(&end);
                    self.say(Key::None, &json!({ "op": "over", "message": message }));
                }
                PlayerEvent::Failed(error) => {
                    // What was known is no longer valid: not until it is requested again.
                    self.awaits_latest = false;
                    self.fail(&error.to_string());
                }
                _ => {}
            }
        }
        for latest in latest.into_values() {
            self.tell_latest(&latest);
        }
    }

    /// Keeps the latest message of each topic; sends each where every message is subscribed.
    fn take_messages(&mut self, batch: &Batch, latest: &mut BTreeMap<String, Latest>) {
        let wants_every = |topic: &str| {
            let mut all = self.subscriptions.iter();
            all.any(|((known, _), subscription)| known == topic && subscription.every)
        };
        let every: Vec<bool> = batch
            .channels()
            .iter()
            .map(|channel| wants_every(&channel.topic))
            .collect();
        let mut last: Vec<Option<(usize, u64)>> = vec![None; batch.channels().len()];
        for (index, row) in batch.rows().iter().enumerate() {
            let channel = row.channel as usize;
            if every[channel]
                && let Some(message) = batch.get(index)
            {
                self.tell_every(&message.to_message());
            }
            let before = last[channel].map_or(0, |(_, count)| count);
            last[channel] = Some((index, before + 1));
        }
        for (index, count) in last.into_iter().flatten() {
            let Some(message) = batch.get(index) else {
                continue;
            };
            let topic = &message.channel.topic;
            if let Some(known) = latest.get_mut(topic) {
                known.count += count;
                if known.message.log_time <= message.log_time {
                    known.message = message.to_message();
                }
            } else {
                let message = message.to_message();
                latest.insert(topic.clone(), Latest { message, count });
            }
        }
    }

    fn take_latest(&mut self, batch: &Batch) {
        for message in batch.iter() {
            self.tell(&message.to_message(), None);
        }
        let told: Vec<String> = batch
            .iter()
            .map(|message| message.channel.topic.clone())
            .collect();
        let at = self.position();
        let position = self.app.relative(at);
        let silent: Vec<(String, Form, Key)> = self
            .subscriptions
            .iter()
            .filter(|((topic, _), _)| !told.contains(topic))
            .map(|((topic, form), subscription)| (topic.clone(), *form, subscription.key.clone()))
            .collect();
        for (topic, form, key) in silent {
            // A topic that was there before is not part of the answer for new ones.
            let is_known = matches!(
                self.app.cache.latest_at(&Topics::named([topic.clone()]), at),
                Ok(batch) if !batch.is_empty()
            );
            if !is_known {
                self.say(
                    key,
                    &json!({ "op": "nothing", "topic": topic, "form": form, "t": position }),
                );
            }
        }
    }

    /// Sends a message in all subscribed forms, or in one of them.
    fn tell(&mut self, message: &Message, only: Option<Form>) {
        self.tell_those(message, |form, _| only.is_none_or(|only| only == form));
    }

    /// Sends the latest message to subscriptions of the latest only, within their rate.
    fn tell_latest(&mut self, latest: &Latest) {
        let (topic, now) = (&latest.message.channel.topic, Instant::now());
        for form in Form::ALL {
            let known = self.subscriptions.get_mut(&(topic.clone(), form));
            let Some(known) = known.filter(|known| !known.every) else {
                continue;
            };
            // A message that was held back is replaced by this one.
            let held = known.held.take();
            known.left_out += latest.count - 1 + u64::from(held.is_some());
            if !known.is_due(now) {
                known.held = Some(latest.message.clone());
            }
        }
        let is_meant = |_, known: &Subscription| !known.every && known.held.is_none();
        self.tell_those(&latest.message, is_meant);
    }

    /// Sends messages that came too soon, once it is time; at once where no later one will come.
    fn tell_held(&mut self, now: Instant) {
        let is_over = !self.player.state().is_running();
        let is_due = |known: &Subscription| is_over || known.is_due(now);
        let due: Vec<(Message, Form)> = self
            .subscriptions
            .iter_mut()
            .filter(|(_, known)| is_due(known))
            .filter_map(|((_, form), known)| Some((known.held.take()?, *form)))
            .collect();
        for (message, form) in due {
            self.tell(&message, Some(form));
        }
    }

    /// Sends a message to subscriptions of every message.
    fn tell_every(&mut self, message: &Message) {
        self.tell_those(message, |_, subscription| subscription.every);
    }

    fn tell_those(&mut self, message: &Message, is_meant: impl Fn(Form, &Subscription) -> bool) {
        let topic = &message.channel.topic;
        for form in Form::ALL {
            let subscription = self.subscriptions.get_mut(&(topic.clone(), form));
            let Some(subscription) = subscription.filter(|one| is_meant(form, one)) else {
                continue;
            };
            let key = if subscription.every {
                Key::None
            } else {
                subscription.key.clone()
            };
            let wish = subscription.wish.clone();
            // The message that was held back belongs to another time.
            subscription.held = None;
            let left_out = std::mem::take(&mut subscription.left_out);
            subscription.told = Some(Instant::now());
            // Reserved before the frame is made: many clients make theirs at once.
            let Some(room) = self.outbox.room(topic, message.payload.len()) else {
                continue;
            };
            let mut show = self.app.show(&mut self.decoders);
            show.wish = wish;
            let mut shown = show.show(message, form);
            if let (1.., Some(head)) = (left_out, shown.head.as_object_mut()) {
                head.insert("left_out".into(), left_out.into());
            }
            self.outbox.push(key, topic, frame_of(&shown, form), room);
        }
    }

    /// Sends the window of a growing source, and its topics.
    fn tell_window(&mut self, now: Instant) {
        let summary = self.app.cache.summary();
        let current = summary.channels.iter().map(|entry| &entry.channel);
        let is_known = current.clone().count() == self.told_channels.len()
            && current
                .clone()
                .zip(&self.told_channels)
                .all(|(one, other)| Arc::ptr_eq(one, other));
        let is_due = now.duration_since(self.told_topics) >= TOPICS_EVERY;
        if !is_known || is_due {
            (self.told_channels, self.told_topics) = (current.cloned().collect(), now);
            let topics = json!({
                "op": "topics", "topics": topics(&summary), "frame_topics": self.app.frames.topics(),
            });
            self.say(Key::Topics, &topics);
        }
        if now.duration_since(self.told_window) >= WINDOW_EVERY {
            self.told_window = now;
            let mut window = self.app.window(&summary);
            window["op"] = "window".into();
            self.say(Key::Window, &window);
        }
    }

    fn tell_state(&mut self) {
        let state = match self.player.state() {
            PlayState::Paused => "paused",
            PlayState::Playing | PlayState::Following => "playing",
            PlayState::Buffering => "buffering",
            PlayState::Ended => "ended",
        };
        let speed = match self.player.speed() {
            Speed::Times(times) => json!(times),
            Speed::Unlimited => Value::Null,
        };
        let position = self.position();
        let mut state = json!({
            "op": "state", "state": state, "speed": speed, "loop": self.is_looping, "together": self.is_together,
            "t": self.app.relative(position),
            "dropped": self.outbox.dropped(),
        });
        if self.app.is_live {
            let range = self.app.cache.summary().range;
            // A player right before the first message has not lost anything.
            let is_gone = !range.is_empty() && position < range.start.plus_nanos(-1);
            state["following"] = (self.player.state() == PlayState::Following).into();
            state["gone"] = is_gone.into();
        } else {
            // A player starts right before the first message.
            state["t"] = self.app.relative(position).max(0).into();
        }
        if self.told_state.as_ref() != Some(&state) {
            let told = self.told_state.as_ref().map(|told| &told["state"]);
            if told != Some(&state["state"]) {
                // A new state goes after the messages before it: the end after the last message.
                self.outbox.forget(&Key::State);
            }
            self.say(Key::State, &state);
            self.told_state = Some(state);
        }
    }

    /// Sends what moves right around this time before anything is read that takes longer. The complete answer follows.
    fn tell_near_frames(&mut self) {
        let at = self.position().max(self.app.start);
        if !self.wants_frames || self.told_frames_at == Some(at) {
            return;
        }
        let Some(found) = self.app.frames.near(at) else {
            return;
        };
        // Without room, the complete answer alone is sent, later.
        let Some(room) = self.outbox.room_for_answer(found.bytes()) else {
            return;
        };
        let edges = found.edges();
        if edges.iter().any(|edge| !edge.is_static) {
            self.say_frames(at, &edges, room, true);
        }
    }

    fn tell_frames(&mut self) {
        let at = self.position().max(self.app.start);
        if !self.wants_frames || self.told_frames_at == Some(at) {
            return;
        }
        // Where there is no room now, they are sent with a later turn.
        let found = self.app.frames.at(at);
        let Some(room) = self.outbox.room_for_answer(found.bytes()) else {
            return;
        };
        self.told_frames_at = Some(at);
        self.say_frames(at, &found.edges(), room, false);
    }

    /// Sends the poses of frames.
    fn say_frames(&self, at: Stamp, edges: &[EdgeAt], room: Reservation, partial: bool) {
        let frames = FramesAt {
            op: "frames",
            t: self.app.relative(at),
            edges,
            partial,
        };
        if let Ok(text) = serde_json::to_string(&frames) {
            self.outbox
                .answer(Key::Frames, Frame::Text(text.into()), Some(room));
        }
    }

    fn fail(&self, message: &str) {
        self.say(Key::None, &json!({ "op": "error", "message": message }));
    }

    fn say(&self, key: Key, value: &Value) {
        self.outbox.say(key, Frame::Text(value.to_string().into()));
    }
}

/// The poses of frames, as they are sent.
#[derive(Serialize)]
struct FramesAt<'a> {
    op: &'static str,
    t: i64,
    edges: &'a [EdgeAt],
    /// Whether the complete answer follows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

/// One command, or several that belong together.
fn commands(text: &str) -> Result<Vec<Command>, serde_json::Error> {
    if text.starts_with('[') {
        serde_json::from_str(text)
    } else {
        serde_json::from_str(text).map(|one| vec![one])
    }
}

/// Text for JSON, bytes for everything else.
fn frame_of(shown: &Shown, form: Form) -> Frame {
    if form == Form::Json || shown.body.is_empty() {
        Frame::Text(shown.text().into())
    } else {
        Frame::Binary(shown.to_bytes().into())
    }
}
