//! A session with a robot, as the verbs need it: connected, reported, and ended by a signal or a time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use asof::live::{self, Address, AddressError, Mode, Publisher};
use asof::{ProblemKind, Robot, Stamp};

use super::Connection;
use crate::failure::Usage;
use crate::place::{TopicRequest, definitions_in};
use crate::screen::Screen;
use crate::signals;
use asof::files::remove_unfinished;

/// How often the session is checked between two reports.
pub const TICK: Duration = Duration::from_millis(50);
/// How long a missing connection is not reported.
const MISSING_AFTER: Duration = Duration::from_secs(2);

/// How often a server's messages are read.
const SERVER_MESSAGE_INTERVAL: Duration = Duration::from_secs(1);

const RETRYING: &str = "retrying (press Ctrl-C to stop)";

/// An error where a topic was named that no robot has had, with the one that may be meant.
pub fn check_names<'a>(
    sessions: impl IntoIterator<Item = &'a Session>,
    others: &[impl AsRef<str>],
    wanted: &TopicRequest,
    screen: &Screen,
) -> anyhow::Result<()> {
    let (mut known, mut place) = (Vec::new(), None);
    for session in sessions {
        place.get_or_insert(&session.presence.endpoints);
        known.extend(session.robot.topics().into_iter().map(|topic| topic.name));
    }
    let known: Vec<&str> = known
        .iter()
        .map(String::as_str)
        .chain(others.iter().map(AsRef::as_ref))
        .collect();
    let place = place.map_or("", String::as_str);
    wanted.check(Path::new(place), &known, screen)
}

/// Set by Ctrl-C and SIGTERM.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// An open session, and when to end it.
pub struct Session {
    pub robot: Robot,
    started: Instant,
    limit: Option<Duration>,
    presence: Presence,
    /// The robot's messages that were reported, and when they were last read.
    said: (Vec<String>, Instant),
}

/// Whether the robot is connected, and whether that was reported.
struct Presence {
    endpoints: String,
    is_there: bool,
    /// Whether it ever was.
    has_answered: bool,
    told: Option<bool>,
    changed: Instant,
}

impl Connection {
    /// The same for another robot.
    pub fn beside(&self, url: &str) -> Connection {
        Connection {
            url: url.to_owned(),
            topics: self.topics.clone(),
            key: Vec::new(),
            msg_path: self.msg_path.clone(),
            duration: self.duration,
        }
    }

    /// Opens the session. The robot may appear later.
    pub fn open(&self, screen: &Screen) -> anyhow::Result<Session> {
        let address: Address = self
            .url
            .parse()
            .map_err(|error: AddressError| Usage::error(error.to_string()))?;
        let definitions = definitions_in(&self.msg_path, screen)?;
        stop_on_signals()?;
        let started = Instant::now();
        let robot = self.reach(&address, started, screen)?;
        robot.set_definitions(definitions);
        let endpoints = address.to_string();
        Ok(Session {
            robot,
            started,
            limit: self.duration,
            presence: Presence {
                endpoints,
                is_there: false,
                has_answered: false,
                told: None,
                changed: Instant::now(),
            },
            said: (Vec::new(), Instant::now()),
        })
    }

    /// A client has no session before its router runs, so it retries; all others wait in the background.
    fn reach(&self, address: &Address, started: Instant, screen: &Screen) -> anyhow::Result<Robot> {
        let mut has_told = false;
        loop {
            let error = match live::Robot::open(address) {
                Ok(session) => {
                    let robot = Robot::new(session, address.to_string());
                    return Ok(robot.with_progress(screen.reports("")));
                }
                Err(error) => error,
            };
            let is_over = self
                .duration
                .is_some_and(|limit| started.elapsed() >= limit);
            let is_client = matches!(address, Address::Zenoh(zenoh) if zenoh.mode == Mode::Client);
            if !is_client || is_over || INTERRUPTED.load(Ordering::Relaxed) {
                return Err(error.into());
            }
            if !has_told {
                screen.note(format_args!("no answer from {address} yet; {RETRYING}"));
                has_told = true;
            }
            std::thread::sleep(TICK);
        }
    }

    /// Whether a topic was selected.
    pub fn chooser(&self) -> impl Fn(&Publisher) -> bool + Send + Sync + 'static {
        let patterns = self.topics.clone().map(Arc::new);
        move |publisher| {
            let topic = &publisher.channel.topic;
            patterns
                .as_ref()
                .is_none_or(|patterns| patterns.is_match(topic))
        }
    }
}

impl Session {
    /// The profile of a recording. Zenoh carries ROS 2; for others the topics decide, for which it
    /// waits a moment.
    pub fn profile(&mut self, screen: &Screen) -> &'static str {
        if self.robot.zenoh().is_ok() {
            return "ros2";
        }
        let until = Instant::now() + MISSING_AFTER;
        while self.is_open() && Instant::now() < until && self.robot.topics().is_empty() {
            self.tell(screen);
            self.wait(Instant::now() + TICK);
        }
        self.robot.profile()
    }

    /// Whether to go on.
    pub fn is_open(&self) -> bool {
        !INTERRUPTED.load(Ordering::Relaxed)
            && self
                .limit
                .is_none_or(|limit| self.started.elapsed() < limit)
    }

    /// Counts its time from now on: the time of a robot starts once it is connected.
    pub fn begin(&mut self) {
        self.started = Instant::now();
    }

    /// How long it may still go on, if limited.
    pub fn left(&self) -> Option<Duration> {
        let limit = self.limit?;
        Some(limit.saturating_sub(self.started.elapsed()))
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits until the time, or until it is time to stop.
    pub fn wait(&self, until: Instant) {
        while self.is_open() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(TICK));
        }
    }

    /// Whether a robot has ever answered.
    pub fn has_answered(&mut self) -> bool {
        self.presence.look(&self.robot);
        self.presence.has_answered
    }

    /// An error unless a robot has ever answered: for all transports alike.
    pub fn answered(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.has_answered(),
            "no robot answered at {}",
            self.presence.endpoints
        );
        Ok(())
    }

    /// What to say when a robot has no topics.
    pub fn without_topics(&self) -> &'static str {
        if self.robot.zenoh().is_ok() {
            "no topic was found; on Zenoh, ROS 2 topics are found by their tokens, and other keys need --key"
        } else {
            "no topic was found"
        }
    }

    /// The state of the connection, in a few words.
    pub fn status(&mut self) -> String {
        self.presence.look(&self.robot);
        let (endpoints, is_there) = (&self.presence.endpoints, self.presence.is_there);
        if is_there {
            format!("connected, {endpoints}")
        } else {
            format!("no answer from {endpoints}; retrying")
        }
    }

    /// Reports the robot's messages, a lost connection, and when it is back.
    pub fn tell(&mut self, screen: &Screen) {
        if self.said.1.elapsed() >= SERVER_MESSAGE_INTERVAL {
            self.tell_said(screen);
        }
        self.tell_presence(screen);
    }

    /// Reports a server's messages since the last time.
    fn tell_said(&mut self, screen: &Screen) {
        let now = self.robot.info().statuses;
        let new = now.iter().filter(|text| !self.said.0.contains(text));
        for text in new {
            screen.note(format_args!("{}: {text}", self.presence.endpoints));
        }
        self.said = (now, Instant::now());
    }

    /// Reports what did not arrive from the robot, or arrived changed; returns whether anything is missing. A problem of a
    /// topic that was not asked for is a note.
    pub fn tell_problems(&mut self, is_asked: impl Fn(&str) -> bool, screen: &Screen) -> bool {
        self.tell_said(screen);
        let mut is_missing = false;
        for problem in self.robot.problems() {
            if problem.topic.as_deref().is_none_or(&is_asked) {
                is_missing |= problem.kind == ProblemKind::Incomplete;
                screen.warning(problem);
            } else {
                screen.note(problem);
            }
        }
        is_missing
    }

    fn tell_presence(&mut self, screen: &Screen) {
        self.presence.look(&self.robot);
        let Presence {
            endpoints,
            is_there,
            told,
            changed,
            ..
        } = &mut self.presence;
        // The first connection is not worth reporting, nor is a short gap.
        let is_news = match told {
            Some(known) => *known != *is_there,
            None => !*is_there,
        };
        if !is_news || (!*is_there && changed.elapsed() < MISSING_AFTER) {
            *told = told.or(is_there.then_some(true));
            return;
        }
        match (*is_there, told.is_some()) {
            (true, _) => screen.note(format_args!("connected to {endpoints}")),
            (false, false) => {
                screen.note(format_args!("no answer from {endpoints} yet; {RETRYING}"));
            }
            (false, true) => screen.note(format_args!(
                "the connection to {endpoints} is lost; retrying until it is back"
            )),
        }
        *told = Some(*is_there);
    }
}

impl Presence {
    fn look(&mut self, robot: &Robot) {
        let is_there = robot.is_connected();
        if is_there != self.is_there {
            self.changed = Instant::now();
            self.is_there = is_there;
        }
        self.has_answered |= is_there || !robot.topics().is_empty();
    }
}

/// The first signal ends the verb in order, the second at once.
pub fn stop_on_signals() -> anyhow::Result<()> {
    let arranged = signals::on_end(|code| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            remove_unfinished();
            std::process::exit(code);
        }
    });
    arranged.context("cannot listen for Ctrl-C").map(drop)
}

pub fn now() -> Stamp {
    Stamp::try_from(std::time::SystemTime::now()).unwrap_or(Stamp::MAX)
}
