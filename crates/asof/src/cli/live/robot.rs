//! A session with a robot, as the verbs need it: connected, told about, and ended by a signal or a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use asof_core::{ProblemKind, Stamp};
use asof_live::{Address, AddressError, Mode, Publisher, Robot};

use super::Connection;
use crate::cli::failure::Usage;
use crate::cli::newfile::remove_unfinished;
use crate::cli::place::definitions_in;
use crate::cli::screen::Screen;
use crate::cli::signals;

/// How often anything is looked at between two reports.
pub const TICK: Duration = Duration::from_millis(50);
/// Nobody is missed before this long.
const GRACE: Duration = Duration::from_secs(2);

/// What a server has to say is asked for this often.
const HEARING: Duration = Duration::from_secs(1);

const UNTIL: &str = "trying again until somebody does (Ctrl-C ends it)";

/// Set by Ctrl-C and SIGTERM.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// An open session, and when to end it.
pub struct Session {
    pub robot: Robot,
    started: Instant,
    limit: Option<Duration>,
    presence: Presence,
    /// What the robot said that was told, and when that was looked at.
    said: (Vec<String>, Instant),
}

/// Whether the robot is there, and whether the person knows.
struct Presence {
    endpoints: String,
    is_there: bool,
    told: Option<bool>,
    changed: Instant,
}

impl Connection {
    /// The same of another robot.
    pub fn beside(&self, url: &str) -> Connection {
        Connection {
            url: url.to_owned(),
            topics: self.topics.clone(),
            key: Vec::new(),
            msg_path: self.msg_path.clone(),
            duration: self.duration,
        }
    }

    /// Opens the session. The robot may come later.
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
                told: None,
                changed: Instant::now(),
            },
            said: (Vec::new(), Instant::now()),
        })
    }

    /// A client has no session before its router is there, so it tries again; all others wait in the background.
    fn reach(&self, address: &Address, started: Instant, screen: &Screen) -> anyhow::Result<Robot> {
        let mut has_told = false;
        loop {
            let error = match Robot::open(address) {
                Ok(robot) => return Ok(robot),
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
                screen.note(format_args!("nobody answers at {address} yet; {UNTIL}"));
                has_told = true;
            }
            std::thread::sleep(TICK);
        }
    }

    /// Whether a topic was asked for.
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
    /// The profile of a recording. What is on Zenoh is of ROS 2; of others it is known with their topics, for which is
    /// waited a moment.
    pub fn profile(&mut self, screen: &Screen) -> &'static str {
        if self.robot.zenoh().is_ok() {
            return "ros2";
        }
        let until = Instant::now() + GRACE;
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

    /// Counts its time from now on: a robot is listened to once it is there.
    pub fn begin(&mut self) {
        self.started = Instant::now();
    }

    /// How long it may still go on, if that is limited.
    pub fn left(&self) -> Option<Duration> {
        let limit = self.limit?;
        Some(limit.saturating_sub(self.started.elapsed()))
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits, until the time is there or it is time to stop.
    pub fn wait(&self, until: Instant) {
        while self.is_open() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(TICK));
        }
    }

    /// How the connection is, in a few words.
    pub fn status(&mut self) -> String {
        self.presence.look(&self.robot);
        let (endpoints, is_there) = (&self.presence.endpoints, self.presence.is_there);
        if is_there {
            format!("connected, {endpoints}")
        } else {
            format!("nobody answers at {endpoints}; trying again")
        }
    }

    /// Tells what the robot has to say, when it is missed, and when it is back.
    pub fn tell(&mut self, screen: &Screen) {
        if self.said.1.elapsed() >= HEARING {
            self.tell_said(screen);
        }
        self.tell_presence(screen);
    }

    /// Tells what a server told a person since the last time.
    fn tell_said(&mut self, screen: &Screen) {
        let now = self.robot.info().statuses;
        let new = now.iter().filter(|text| !self.said.0.contains(text));
        for text in new {
            screen.note(format_args!("{}: {text}", self.presence.endpoints));
        }
        self.said = (now, Instant::now());
    }

    /// Tells what of the robot did not arrive here, or not as it was; whether any is missing.
    pub fn tell_problems(&mut self, screen: &Screen) -> bool {
        self.tell_said(screen);
        let problems = self.robot.problems();
        for problem in &problems {
            screen.warning(problem);
        }
        let mut problems = problems.iter();
        problems.any(|problem| problem.kind == ProblemKind::Incomplete)
    }

    fn tell_presence(&mut self, screen: &Screen) {
        self.presence.look(&self.robot);
        let Presence {
            endpoints,
            is_there,
            told,
            changed,
        } = &mut self.presence;
        // The first connection is no news, and a short gap is none either.
        let is_news = match told {
            Some(known) => *known != *is_there,
            None => !*is_there,
        };
        if !is_news || (!*is_there && changed.elapsed() < GRACE) {
            *told = told.or(is_there.then_some(true));
            return;
        }
        match (*is_there, told.is_some()) {
            (true, _) => screen.note(format_args!("connected to {endpoints}")),
            (false, false) => {
                screen.note(format_args!("nobody answers at {endpoints} yet; {UNTIL}"));
            }
            (false, true) => screen.note(format_args!(
                "the connection to {endpoints} is lost; trying again until it is back"
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
    arranged.context("cannot be told of Ctrl-C").map(drop)
}

pub fn now() -> Stamp {
    Stamp::try_from(std::time::SystemTime::now()).unwrap_or(Stamp::MAX)
}
