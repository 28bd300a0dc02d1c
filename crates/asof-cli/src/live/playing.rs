//! `asof play`: a recording, published to a robot's network.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use asof_blocks::BlockCache;
use asof_core::{Batch, Channel, MessageRef, Source, Stamp, Topics};
use asof_decode::{Decoders, Encoder};
use asof_formats::Definitions;
use asof_live::ros::{Durability, QosProfile, is_latched};
use asof_live::{PublisherOptions, Robot, TopicPublisher};
use asof_player::{PlayState, Player, PlayerEvent, Speed};
use asof_ros::CdrWriter;
use ratatui::crossterm::event::{self, Event as Key, KeyCode, KeyModifiers};
use ratatui::crossterm::terminal;

use super::robot::TICK;
use super::{Connection, Play};
use crate::Outcome;
use crate::failure::Usage;
use crate::place::FileOpening;
use crate::screen::Screen;
use asof::text::counted;

/// How often due messages are published.
const PACE: Duration = Duration::from_millis(1);
/// How long to wait for subscribers before the first message.
const SETTLE: Duration = Duration::from_millis(500);
/// How many messages of a latched topic are kept for late subscribers: a recording merges all publishers.
const MAX_LATCHED_MESSAGES: usize = 100;
const CLOCK: &str = "/clock";
const NODE: &str = "asof_play";

pub fn run(verb: &Play, screen: &Screen) -> anyhow::Result<Outcome> {
    let connection = Connection {
        url: verb.url.clone(),
        topics: None,
        key: Vec::new(),
        msg_path: Vec::new(),
        duration: verb.duration,
    };
    if !verb.url.starts_with("zenoh://") {
        return Err(Usage::error(
            "a recording is published only to Zenoh; name an address such as zenoh://host:7447",
        ));
    }
    let opening = FileOpening::default();
    let file = opening.open_unmapped(&verb.places, screen)?;
    let summary = file.summary();
    let query = verb.select.query(&verb.places[0], &*file, screen);
    let session = connection.open(screen)?;
    let mut stage = Stage::new(&session.robot, verb);
    for entry in &summary.channels {
        if query.topics.contains(&entry.channel.topic) {
            stage.announce(&entry.channel)?;
        }
    }
    stage.tell(screen);
    if stage.lanes.is_empty() {
        return Err(anyhow!(
            "there is nothing to play: no topic can be published"
        ));
    }
    let cache = BlockCache::new(file, asof_blocks::CacheOptions::default());
    let mut player = Player::new(&cache, topics_of(&stage))?;
    player.set_speed(Speed::Times(verb.rate));
    let range = query.range.intersect(summary.range);
    player.seek(range.start);
    let settled = Instant::now() + SETTLE;
    while session.is_open() && Instant::now() < settled {
        session.wait(Instant::now() + TICK);
    }
    let keys = Keys::new();
    if !verb.paused {
        player.play();
    }
    let (mut is_over, mut lag) = (false, Lag::default());
    while session.is_open() && !is_over {
        let due = Instant::now();
        for event in player.tick(due) {
            match event {
                PlayerEvent::Messages(batch) => is_over |= stage.play(&batch, range.end)?,
                PlayerEvent::Backfill(_, batch) => stage.latch(&batch)?,
                PlayerEvent::State(PlayState::Ended) => is_over = true,
                PlayerEvent::Failed(error) => return Err(error.into()),
                _ => {}
            }
        }
        if lag.is_news(due, due.elapsed()) {
            screen.warning(format_args!(
                "behind by {:.1} s: messages are published more slowly than they are due",
                due.elapsed().as_secs_f64()
            ));
        }
        stage.tell_time(player.position().min(range.end))?;
        if is_over && verb.repeat {
            is_over = false;
            player.seek(range.start);
            player.play();
        }
        match keys.next() {
            Some(Pressed::Pause) if player.state() == PlayState::Paused => player.play(),
            Some(Pressed::Pause) => player.pause(),
            Some(Pressed::End) => break,
            None => std::thread::sleep(PACE),
        }
    }
    drop(keys);
    if lag.worst >= BEHIND {
        let worst = lag.worst.as_secs_f64();
        screen.warning(format_args!("it was behind by up to {worst:.1} s"));
    }
    Ok(stage.report(screen))
}

/// Messages that are published this much later than they are due are behind.
const BEHIND: Duration = Duration::from_millis(500);
/// How often that is said.
const LAG_INTERVAL: Duration = Duration::from_secs(1);

/// How far behind its time the playback is.
#[derive(Default)]
struct Lag {
    worst: Duration,
    told: Option<Instant>,
}

impl Lag {
    /// Notes how late the messages of an instant were; returns whether that is worth saying.
    fn is_news(&mut self, due: Instant, late: Duration) -> bool {
        self.worst = self.worst.max(late);
        let is_quiet = |told: Instant| due.saturating_duration_since(told) >= LAG_INTERVAL;
        let is_news = late >= BEHIND && self.told.is_none_or(is_quiet);
        if is_news {
            self.told = Some(due);
        }
        is_news
    }
}

fn topics_of(stage: &Stage<'_>) -> Topics {
    let mut topics: Vec<String> = stage.lanes.keys().map(|(topic, _)| topic.clone()).collect();
    topics.sort();
    topics.dedup();
    Topics::Named(topics)
}

/// What is published where.
struct Stage<'a> {
    robot: &'a Robot,
    verb: &'a Play,
    definitions: Definitions,
    /// By topic and type.
    lanes: HashMap<(String, String), Lane>,
    clock: Option<(TopicPublisher, Option<Instant>)>,
    decoders: Decoders,
    /// Topics that nothing can be made of, and why.
    left_out: Vec<String>,
    played: u64,
    undecodable: u64,
}

struct Lane {
    publisher: TopicPublisher,
    is_latched: bool,
    /// For messages in another encoding than that of ROS 2.
    encoder: Option<Encoder>,
}

impl<'a> Stage<'a> {
    fn new(robot: &'a Robot, verb: &'a Play) -> Self {
        Stage {
            robot,
            verb,
            definitions: Definitions::standard(),
            lanes: HashMap::new(),
            clock: None,
            decoders: Decoders::default(),
            left_out: Vec::new(),
            played: 0,
            undecodable: 0,
        }
    }

    /// Announces a channel of the recording; each topic and type once.
    fn announce(&mut self, channel: &Arc<Channel>) -> anyhow::Result<()> {
        if self.verb.clock.is_some() && self.clock.is_none() {
            let type_name = "rosgraph_msgs/msg/Clock";
            let definition = self.definitions.full_text(type_name);
            let options = options(CLOCK, type_name, definition.unwrap_or_default(), false);
            self.clock = Some((self.robot.publisher(&options)?, None));
        }
        // A recorded clock would differ from ours.
        if self.clock.is_some() && channel.topic == CLOCK {
            return Ok(());
        }
        let key = (channel.topic.clone(), channel.type_name().to_owned());
        if self.lanes.contains_key(&key) {
            return Ok(());
        }
        let (type_name, definition, encoder) = match self.form_of(channel) {
            Ok(form) => form,
            Err(reason) => {
                self.left_out.push(format!("{} ({reason})", channel.topic));
                return Ok(());
            }
        };
        let is_latched = is_latched(channel);
        let topic = self.verb.renamed(&channel.topic);
        let options = options(&topic, &type_name, definition, is_latched);
        let lane = Lane {
            publisher: self.robot.publisher(&options)?,
            is_latched,
            encoder,
        };
        self.lanes.insert(key, lane);
        Ok(())
    }

    /// A channel's type and definition in ROS 2, and an encoder to CDR where its messages need one.
    fn form_of(&self, channel: &Channel) -> Result<(String, String, Option<Encoder>), String> {
        let schema = channel
            .schema
            .as_deref()
            .filter(|schema| !schema.name.is_empty());
        let Some(schema) = schema else {
            return Err("it has no type".to_owned());
        };
        let text = std::str::from_utf8(&schema.data).unwrap_or_default();
        let name = ros2_name(&schema.name);
        if channel.message_encoding == "cdr" {
            let own = (schema.encoding == "ros2msg").then(|| text.to_owned());
            let definition = own.or_else(|| self.definitions.full_text(&name));
            return Ok((name, definition.unwrap_or_default(), None));
        }
        let definition = self.definitions.full_text(&name).ok_or_else(|| {
            let encoding = &channel.message_encoding;
            format!("its messages are {encoding}, and ROS 2 has no standard type {name}")
        })?;
        let target = Channel {
            topic: channel.topic.clone(),
            message_encoding: "cdr".to_owned(),
            schema: Some(Arc::new(asof_core::Schema {
                name: name.clone(),
                encoding: "ros2msg".to_owned(),
                data: definition.clone().into_bytes().into(),
            })),
            ..Channel::default()
        };
        let encoder = Encoder::new(&target).map_err(|error| error.to_string())?;
        Ok((name, definition, Some(encoder)))
    }

    /// Publishes the messages that are due; returns whether the end was reached.
    fn play(&mut self, batch: &Batch, end: Stamp) -> anyhow::Result<bool> {
        for message in batch.iter() {
            if message.log_time > end {
                return Ok(true);
            }
            self.tell_time(message.log_time)?;
            self.publish(message)?;
        }
        Ok(false)
    }

    /// Publishes what was latched before.
    fn latch(&mut self, batch: &Batch) -> anyhow::Result<()> {
        for message in batch.iter() {
            if self.lane_of(message).is_some_and(|lane| lane.is_latched) {
                self.publish(message)?;
            }
        }
        Ok(())
    }

    fn lane_of(&self, message: MessageRef<'_>) -> Option<&Lane> {
        let channel = message.channel;
        let key = (channel.topic.clone(), channel.type_name().to_owned());
        self.lanes.get(&key)
    }

    fn publish(&mut self, message: MessageRef<'_>) -> anyhow::Result<()> {
        let channel = message.channel;
        let key = (channel.topic.clone(), channel.type_name().to_owned());
        let Some(lane) = self.lanes.get(&key) else {
            return Ok(());
        };
        let payload = match &lane.encoder {
            None => message.payload.to_vec(),
            Some(encoder) => {
                let mut text = Vec::new();
                let decoded = self.decoders.write_json(message, &mut text).ok();
                let value = decoded.and_then(|()| serde_json::from_slice(&text).ok());
                let encoded = value.and_then(|value| encoder.encode(&value).ok());
                let Some(payload) = encoded else {
                    self.undecodable += 1;
                    return Ok(());
                };
                payload
            }
        };
        self.played += 1;
        // The recorded time if a clock is published; otherwise receivers would take it for very old.
        let at = match &self.clock {
            Some(_) => message.publish_time,
            None => Stamp::now(),
        };
        Ok(lane.publisher.publish(payload, at)?)
    }

    /// Publishes the time of the recording, at the requested rate.
    fn tell_time(&mut self, at: Stamp) -> anyhow::Result<()> {
        let Some((publisher, told)) = &mut self.clock else {
            return Ok(());
        };
        let period = Duration::from_secs_f64(1.0 / self.verb.clock.unwrap_or(40.0));
        if told.is_some_and(|last| last.elapsed() < period) {
            return Ok(());
        }
        *told = Some(Instant::now());
        let nanos = at.nanos();
        let mut cdr = CdrWriter::with_capacity(8);
        cdr.int32(nanos.div_euclid(1_000_000_000) as i32)
            .uint32(nanos.rem_euclid(1_000_000_000) as u32);
        Ok(publisher.publish(cdr.finish(), at)?)
    }

    fn tell(&self, screen: &Screen) {
        if !self.left_out.is_empty() {
            let listed = self.left_out.join(", ");
            screen.warning(format_args!(
                "left out, as they cannot be published: {listed}"
            ));
        }
        let topics = counted(self.lanes.len() as u64, "topic");
        screen.note(format_args!("playing {topics} to {}", self.verb.url));
    }

    fn report(self, screen: &Screen) -> Outcome {
        screen.note(format_args!(
            "{} published",
            counted(self.played, "message")
        ));
        if self.undecodable > 0 {
            let count = counted(self.undecodable, "message");
            screen.warning(format_args!("{count} left out: they could not be decoded"));
            return Outcome::Damaged;
        }
        Outcome::Done
    }
}

fn options(topic: &str, type_name: &str, definition: String, is_latched: bool) -> PublisherOptions {
    let (durability, depth) = if is_latched {
        (Durability::TransientLocal, MAX_LATCHED_MESSAGES)
    } else {
        (Durability::Volatile, 10)
    };
    PublisherOptions {
        node: NODE.to_owned(),
        topic: topic.to_owned(),
        type_name: type_name.to_owned(),
        definition,
        qos: QosProfile {
            durability,
            depth,
            ..QosProfile::default()
        },
        waits: true,
    }
}

/// `std_msgs/String` is `std_msgs/msg/String` in ROS 2.
fn ros2_name(name: &str) -> String {
    match name.split_once('/') {
        Some((package, rest)) if !rest.contains('/') => format!("{package}/msg/{rest}"),
        _ => name.to_owned(),
    }
}

enum Pressed {
    Pause,
    End,
}

/// Keys pressed at a terminal: space pauses and resumes, q quits.
struct Keys {
    is_terminal: bool,
}

impl Keys {
    fn new() -> Self {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Keys {
            is_terminal: is_terminal && terminal::enable_raw_mode().is_ok(),
        }
    }

    fn next(&self) -> Option<Pressed> {
        if !self.is_terminal || !event::poll(Duration::ZERO).ok()? {
            return None;
        }
        let Ok(Key::Key(key)) = event::read() else {
            return None;
        };
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char(' ') => Some(Pressed::Pause),
            KeyCode::Char('q') | KeyCode::Esc => Some(Pressed::End),
            KeyCode::Char('c') if is_control => Some(Pressed::End),
            _ => None,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if self.is_terminal {
            drop(terminal::disable_raw_mode());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_playback_that_is_behind_says_so_once_in_a_while() {
        let (mut lag, start) = (Lag::default(), Instant::now());
        let told =
            [(0, 5), (100, 900), (600, 900), (1_200, 700), (3_000, 499)].map(|(at, late)| {
                lag.is_news(
                    start + Duration::from_millis(at),
                    Duration::from_millis(late),
                )
            });
        assert_eq!(told, [false, true, false, true, false]);
        assert_eq!(lag.worst, Duration::from_millis(900));
    }

    #[test]
    fn names_of_ros_one_are_those_of_ros_two() {
        assert_eq!(ros2_name("std_msgs/String"), "std_msgs/msg/String");
        assert_eq!(ros2_name("std_msgs/msg/String"), "std_msgs/msg/String");
        assert_eq!(ros2_name("Pose"), "Pose");
    }

    #[test]
    fn latched_topics_are_known_by_what_each_recorder_wrote() {
        let with = |name: &str, value: &str| Channel {
            topic: "/map".to_owned(),
            metadata: [(name.to_owned(), value.to_owned())].into(),
            ..Channel::default()
        };
        for robot in ["rmw_zenoh_qos", "bridge_qos", "dds_qos"] {
            assert!(is_latched(&with(robot, ":1:,1:,:,:,,")), "{robot}");
        }
        assert!(!is_latched(&with("rmw_zenoh_qos", "::,1:,:,:,,")));
        assert!(is_latched(&with(
            "offered_qos_profiles",
            "- history: 1\n  durability: 1\n"
        )));
        assert!(!is_latched(&with(
            "offered_qos_profiles",
            "- history: 1\n  durability: 2\n"
        )));
        assert!(is_latched(&with("latching", "1")));
    }
}
