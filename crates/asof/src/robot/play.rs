//! A recording, published to a robot's network.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, CacheOptions};
use asof_core::{Batch, Channel, MessageRef, Query, Schema, Stamp, TimeRange, Topics};
use asof_decode::{Decoders, Encoder};
use asof_formats::Definitions;
use asof_live::ros::{Durability, QosProfile, is_latched};
use asof_live::{PublisherOptions, TopicPublisher};
use asof_player::{PlayState, Player, PlayerEvent, Speed};
use asof_ros::CdrWriter;

use super::Robot;
use crate::{Error, Progress, Recording};

/// How often due messages are published.
const PACE: Duration = Duration::from_millis(1);
/// How long subscribers have to connect before the first message.
const SETTLE: Duration = Duration::from_millis(500);
/// How many messages of a latched topic are kept for late subscribers: a recording merges all publishers.
const MAX_LATCHED_MESSAGES: usize = 100;
/// Messages that are published this much later than they are due are behind.
const BEHIND: Duration = Duration::from_millis(500);
/// How often that is reported.
const LAG_INTERVAL: Duration = Duration::from_secs(1);
const CLOCK: &str = "/clock";
const NODE: &str = "asof_play";

/// How a recording is played to a robot.
#[derive(Debug, Clone)]
pub struct PlayOptions {
    /// The topics and times that are played.
    pub query: Query,
    /// The speed, as a multiple of the recorded one.
    pub rate: f64,
    /// Whether it starts over at the end.
    pub repeat: bool,
    /// The names that topics are published under, where these are others.
    pub names: BTreeMap<String, String>,
    /// How many times per second the recording's time is published on `/clock`; `None` for never.
    pub clock: Option<f64>,
    /// Whether it waits for [`Playback::resume`].
    pub paused: bool,
}

impl Default for PlayOptions {
    fn default() -> Self {
        PlayOptions {
            query: Query::all(),
            rate: 1.0,
            repeat: false,
            names: BTreeMap::new(),
            clock: None,
            paused: false,
        }
    }
}

/// What was played.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlayReport {
    /// Messages that were published.
    pub published: u64,
    /// Messages that could not be decoded, and were left out.
    pub undecoded: u64,
    /// Topics that cannot be published, and why.
    pub left_out: Vec<String>,
    /// How much later than due messages were published, at most.
    pub behind: Duration,
}

impl Robot {
    /// Publishes a recording as if the robot ran, until its end or until it is cancelled. Messages of ROS 1 and others are
    /// converted where ROS 2 has a standard type of the same name.
    ///
    /// # Errors
    /// When the recording cannot be read, nothing in it can be published, or the robot is not reached over Zenoh.
    pub fn play(&self, recording: &Recording, options: PlayOptions) -> Result<PlayReport, Error> {
        let mut playback = self.playback(recording, options)?;
        while !playback.is_ended() && !self.progress.is_cancelled() {
            playback.tick(Instant::now())?;
            std::thread::sleep(PACE);
        }
        Ok(playback.report())
    }

    /// The same in your own loop: call [`Playback::tick`] about every millisecond. The topics are announced at once; the
    /// first message is published half a second later, when subscribers have connected.
    ///
    /// # Errors
    /// As [`play`](Self::play).
    pub fn playback(&self, recording: &Recording, options: PlayOptions) -> Result<Playback, Error> {
        let summary = recording.summary();
        let mut stage = Stage::new(self.session.clone(), options.names, options.clock);
        for entry in &summary.channels {
            if options.query.topics.contains(&entry.channel.topic) {
                stage.announce(&entry.channel)?;
            }
        }
        if stage.lanes.is_empty() {
            let mut message = "there is nothing to play: no topic can be published".to_owned();
            if !stage.left_out.is_empty() {
                message = format!("{message}: {}", stage.left_out.join(", "));
            }
            return Err(Error::Invalid(message));
        }
        let cache = BlockCache::new(recording.clone(), CacheOptions::default());
        let mut player = Player::new(&cache, stage.topics())?;
        player.set_speed(Speed::Times(options.rate));
        let range = options.query.range.intersect(summary.range);
        player.seek_before(range.start);
        Ok(Playback {
            player,
            stage,
            range,
            repeat: options.repeat,
            starts: Instant::now() + SETTLE,
            wants_to_run: !options.paused,
            is_ended: false,
            lag: Lag::default(),
            progress: self.progress.clone(),
        })
    }
}

/// A recording that is being published; made by [`Robot::playback`].
pub struct Playback {
    player: Player,
    stage: Stage,
    range: TimeRange,
    repeat: bool,
    /// The time of the first message.
    starts: Instant,
    wants_to_run: bool,
    is_ended: bool,
    lag: Lag,
    progress: Progress,
}

impl Playback {
    /// Publishes what is due.
    ///
    /// # Errors
    /// When the recording cannot be read, or a message cannot be published.
    pub fn tick(&mut self, now: Instant) -> Result<(), Error> {
        if self.is_ended || now < self.starts {
            return Ok(());
        }
        if self.wants_to_run && self.player.state() == PlayState::Paused {
            self.player.play();
        }
        let mut is_over = false;
        for event in self.player.tick(now) {
            match event {
                PlayerEvent::Messages(batch) => {
                    is_over |= self.stage.play(&batch, self.range.end)?;
                }
                PlayerEvent::Latest(_, batch) => self.stage.latch(&batch)?,
                PlayerEvent::State(PlayState::Ended) => is_over = true,
                PlayerEvent::Failed(error) => return Err(error.into()),
                _ => {}
            }
        }
        if self.lag.is_news(now, now.elapsed()) {
            self.progress.warning(format_args!(
                "behind by {:.1} s: messages are published more slowly than they are due",
                now.elapsed().as_secs_f64()
            ));
        }
        self.stage.tell_time(self.position())?;
        if is_over && self.repeat {
            self.player.seek_before(self.range.start);
            self.player.play();
        } else {
            self.is_ended = is_over;
        }
        Ok(())
    }

    /// Stops publishing until [`resume`](Self::resume).
    pub fn pause(&mut self) {
        self.wants_to_run = false;
        self.player.pause();
    }

    /// Continues.
    pub fn resume(&mut self) {
        self.wants_to_run = true;
    }

    /// Whether it was paused.
    pub fn is_paused(&self) -> bool {
        !self.wants_to_run
    }

    /// Whether the end was reached.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// The time of the recording that is played.
    pub fn position(&self) -> Stamp {
        self.player.position().min(self.range.end)
    }

    /// How many topics are published.
    pub fn topics(&self) -> usize {
        self.stage.lanes.len()
    }

    /// What was played so far.
    pub fn report(&self) -> PlayReport {
        PlayReport {
            published: self.stage.published,
            undecoded: self.stage.undecoded,
            left_out: self.stage.left_out.clone(),
            behind: if self.lag.worst >= BEHIND {
                self.lag.worst
            } else {
                Duration::ZERO
            },
        }
    }
}

/// How late messages are published.
#[derive(Default)]
struct Lag {
    worst: Duration,
    told: Option<Instant>,
}

impl Lag {
    /// Notes how late the messages of an instant were; returns whether that is worth a report.
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

/// What is published where.
struct Stage {
    robot: asof_live::Robot,
    names: BTreeMap<String, String>,
    definitions: Definitions,
    /// By topic and type.
    lanes: HashMap<(String, String), Lane>,
    /// The time between two messages on `/clock`.
    clock_period: Option<Duration>,
    clock: Option<(TopicPublisher, Option<Instant>)>,
    decoders: Decoders,
    left_out: Vec<String>,
    published: u64,
    undecoded: u64,
}

struct Lane {
    publisher: TopicPublisher,
    is_latched: bool,
    /// For messages in another encoding than that of ROS 2.
    encoder: Option<Encoder>,
}

impl Stage {
    fn new(robot: asof_live::Robot, names: BTreeMap<String, String>, clock: Option<f64>) -> Self {
        let period = |hz: f64| Duration::try_from_secs_f64(1.0 / hz).unwrap_or(Duration::MAX);
        Stage {
            robot,
            names,
            definitions: Definitions::standard(),
            lanes: HashMap::new(),
            clock_period: clock.map(period),
            clock: None,
            decoders: Decoders::default(),
            left_out: Vec::new(),
            published: 0,
            undecoded: 0,
        }
    }

    fn topics(&self) -> Topics {
        Topics::named(self.lanes.keys().map(|(topic, _)| topic))
    }

    /// Announces a channel of the recording; each topic and type once.
    fn announce(&mut self, channel: &Arc<Channel>) -> Result<(), Error> {
        if self.clock_period.is_some() && self.clock.is_none() {
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
        let topic = self.names.get(&channel.topic).unwrap_or(&channel.topic);
        let options = options(topic, &type_name, definition, is_latched);
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
            schema: Some(Arc::new(Schema {
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
    fn play(&mut self, batch: &Batch, end: Stamp) -> Result<bool, Error> {
        for message in batch.iter() {
            if message.log_time > end {
                return Ok(true);
            }
            self.tell_time(message.log_time)?;
            self.publish(message, false)?;
        }
        Ok(false)
    }

    /// Publishes what was latched before.
    fn latch(&mut self, batch: &Batch) -> Result<(), Error> {
        batch
            .iter()
            .try_for_each(|message| self.publish(message, true))
    }

    fn publish(&mut self, message: MessageRef<'_>, only_latched: bool) -> Result<(), Error> {
        let channel = message.channel;
        let key = (channel.topic.clone(), channel.type_name().to_owned());
        let Some(lane) = self.lanes.get(&key) else {
            return Ok(());
        };
        if only_latched && !lane.is_latched {
            return Ok(());
        }
        let payload = match &lane.encoder {
            None => message.payload.to_vec(),
            Some(encoder) => {
                let mut text = Vec::new();
                let decoded = self.decoders.write_json(message, &mut text).ok();
                let value = decoded.and_then(|()| serde_json::from_slice(&text).ok());
                let encoded = value.and_then(|value| encoder.encode(&value).ok());
                let Some(payload) = encoded else {
                    self.undecoded += 1;
                    return Ok(());
                };
                payload
            }
        };
        self.published += 1;
        // The recorded time if a clock is published; otherwise receivers would take it for very old.
        let at = match &self.clock {
            Some(_) => message.publish_time,
            None => Stamp::now(),
        };
        Ok(lane.publisher.publish(payload, at)?)
    }

    /// Publishes the time of the recording, at the requested rate.
    fn tell_time(&mut self, at: Stamp) -> Result<(), Error> {
        let (Some((publisher, told)), Some(period)) = (&mut self.clock, self.clock_period) else {
            return Ok(());
        };
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
