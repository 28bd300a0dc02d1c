//! Running robots as the verbs see them: a recording that grows until they stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use asof::live::{LiveSource, RecentOptions};
use asof::text::counted;
use asof::window::Bounds;
use asof::{LiveSession, Source, SourceError, Stamp, Summary, When};
use parking_lot::Mutex;

use super::robot::{Session, TICK, check_names};
use super::{Connection, Place};
use crate::place::{Opening, TopicRequest};
use crate::screen::{Screen, show_at_once};

/// How long a robot is listened to by verbs that look at it.
const LISTEN_TIME: Duration = Duration::from_secs(2);
/// A bit longer than it takes to discover all topics.
const DISCOVERY_TIME: Duration = Duration::from_millis(300);

/// Running robots that are listened to, merged with the recordings beside them, until Ctrl-C or the end of `--for`.
pub struct Robots {
    session: LiveSession,
    connections: Arc<Connections>,
}

/// The connections to all robots, in the order of their addresses.
struct Connections {
    sessions: Mutex<Vec<Session>>,
    screen: Screen,
    /// The topics that were asked for.
    wanted: TopicRequest,
    /// Whether it was said that one of them is waited for.
    has_told_missing: AtomicBool,
}

/// Opens robots, and waits for the wanted topics.
pub fn listen(
    places: Vec<Place>,
    opening: &Opening,
    wanted: &TopicRequest,
    screen: &Screen,
) -> anyhow::Result<Robots> {
    // Output that is printed live is flushed by line.
    show_at_once();
    let robots = places
        .iter()
        .filter(|place| matches!(place, Place::Robot(_)));
    let bytes = wanted.bytes / robots.count().max(1) as u64;
    let (mut robots, mut sessions, mut recordings) = (Vec::new(), Vec::new(), Vec::new());
    for place in places {
        match place {
            Place::Robot(url) => {
                let (session, source) = connect(&url, bytes, opening, wanted, screen)?;
                robots.push((url, source));
                sessions.push(session);
            }
            Place::Recording(name, recording) => recordings.push((name, recording)),
        }
    }
    let connections = Arc::new(Connections {
        sessions: Mutex::new(sessions),
        screen: screen.clone(),
        wanted: wanted.clone(),
        has_told_missing: AtomicBool::new(false),
    });
    let open = Arc::clone(&connections);
    let robots = Robots {
        session: LiveSession::new(robots, recordings, move || open.are_open()),
        connections,
    };
    robots.discover(wanted)?;
    robots.connections.begin();
    Ok(robots)
}

/// Opens one robot, of which at most this many bytes are kept.
fn connect(
    url: &str,
    bytes: u64,
    opening: &Opening,
    wanted: &TopicRequest,
    screen: &Screen,
) -> anyhow::Result<(Session, LiveSource)> {
    let of_robot = opening.robot();
    let connection = Connection {
        url: url.to_owned(),
        msg_path: opening.folders().to_vec(),
        duration: of_robot.duration,
        ..Connection::default()
    };
    let session = connection.open(screen)?;
    let is_wanted = wanted.filter();
    let mut options = RecentOptions::default()
        .with_bounds(Bounds::age(of_robot.window).and_bytes(bytes))
        .with_topics(move |publisher| is_wanted(&publisher.channel));
    for key in &of_robot.key {
        options = options.with_key(key);
    }
    let source = session.robot.session().recent(&options)?;
    Ok((session, source))
}

impl Robots {
    /// Waits for topics; for named topics without limit, until it is time to stop. A robot that does not answer meanwhile is
    /// an error.
    fn discover(&self, wanted: &TopicRequest) -> anyhow::Result<()> {
        if wanted.patience.is_zero() {
            return Ok(());
        }
        let started = Instant::now();
        let needs_names = !wanted.names().is_empty();
        while self.session.is_open() {
            let has_topics = self
                .session
                .wait_for_topics(Instant::now() + DISCOVERY_TIME);
            let summary = Source::summary(&self.session);
            let topics = summary.topics();
            let is_there = |name: &String| topics.contains(&name.as_str());
            let is_complete = needs_names || !self.session.is_discovering();
            if has_topics && is_complete && wanted.names().iter().all(is_there) {
                return Ok(());
            }
            if has_topics && needs_names {
                self.connections.tell_missing(&topics);
            }
            let is_late = started.elapsed() >= wanted.patience;
            if is_late {
                self.connections.answered()?;
            }
            if is_late && !needs_names {
                self.tell_discovery();
                return Ok(());
            }
        }
        self.connections.answered()?;
        // It ended before the topics came that it waited for.
        self.connections
            .check_names(&Source::summary(&self.session))
    }

    /// Says so when topics still appear.
    fn tell_discovery(&self) {
        if self.session.is_discovering() {
            let topics = Source::summary(&self.session).topics().len() as u64;
            let topics = counted(topics, "topic");
            let screen = &self.connections.screen;
            screen.note(format_args!("still discovering: {topics} so far"));
        }
    }

    /// The source as it is: it grows until it is time to stop.
    pub fn growing(self) -> Box<dyn Source> {
        let connections = Arc::clone(&self.connections);
        self.session.at_end(move |summary| {
            let checked = connections.check_names(summary);
            checked.map_err(|error| {
                connections.screen.set_verdict(error);
                SourceError::Cancelled
            })
        });
        Box::new(self.session)
    }

    /// Waits for topics that were asked for and have not been discovered, as on a busy machine: for as long as the robot is
    /// listened to, or else for as long as for its first topics.
    fn wait_for_missing(&self) {
        let wanted = &self.connections.wanted;
        let patience = self.connections.limit().unwrap_or(wanted.patience);
        let (until, mut has_waited) = (Instant::now() + patience, false);
        while self.session.is_open() && Instant::now() < until {
            let summary = Source::summary(&self.session);
            if !self.connections.tell_missing(&summary.topics()) {
                if has_waited {
                    self.connections.begin();
                }
                return;
            }
            has_waited = true;
            self.session.wait(until.min(Instant::now() + TICK));
        }
    }

    /// Listens for a while; the result holds what was heard, and does not grow.
    pub fn listened(self) -> anyhow::Result<Box<dyn Source>> {
        self.wait_for_missing();
        let limit = self.connections.limit();
        if limit.is_none() {
            // A robot that connects late is listened to from its first message on.
            self.session.wait_for_first(Instant::now() + LISTEN_TIME);
        }
        self.session
            .wait(Instant::now() + limit.unwrap_or(LISTEN_TIME));
        self.closed()
    }

    /// Listens long enough to know the state at a time: without one, now. The result does not grow.
    pub fn listened_until(self, time: Option<When>) -> anyhow::Result<(Box<dyn Source>, Stamp)> {
        self.wait_for_missing();
        let patience = Instant::now() + self.connections.limit().unwrap_or(LISTEN_TIME);
        let at = self.session.wait_to_know(time, patience);
        Ok((self.closed()?, at))
    }

    fn closed(self) -> anyhow::Result<Box<dyn Source>> {
        self.session.close();
        self.tell_discovery();
        self.connections
            .check_names(&Source::summary(&self.session))?;
        if Source::summary(&self.session).channels.is_empty() {
            let sessions = self.connections.sessions.lock();
            let first = sessions.first();
            let words = first.map_or("no topic was found", Session::without_topics);
            self.connections.screen.note(words);
        }
        Ok(Box::new(self.session))
    }
}

impl Connections {
    /// Whether to go on listening; reports the state of the connections.
    fn are_open(&self) -> bool {
        let mut sessions = self.sessions.lock();
        for session in sessions.iter_mut() {
            session.tell(&self.screen);
        }
        sessions.iter().all(Session::is_open)
    }

    /// An error unless all robots have answered.
    fn answered(&self) -> anyhow::Result<()> {
        let mut sessions = self.sessions.lock();
        sessions.iter_mut().try_for_each(Session::answered)
    }

    /// Counts the time of the robots from now on.
    fn begin(&self) {
        let mut sessions = self.sessions.lock();
        sessions.iter_mut().for_each(Session::begin);
    }

    /// Whether a topic that was asked for is not there; says so once.
    fn tell_missing(&self, known: &[&str]) -> bool {
        let missing = self.wanted.missing(known);
        if let Some(name) = missing
            && !self.has_told_missing.swap(true, Ordering::Relaxed)
        {
            self.screen
                .note(format_args!("waiting for '{name}': no robot has it yet"));
        }
        missing.is_some()
    }

    fn limit(&self) -> Option<Duration> {
        self.sessions.lock().first().and_then(Session::left)
    }

    /// An error where a topic was named that no robot has had, with the one that may be meant.
    fn check_names(&self, summary: &Summary) -> anyhow::Result<()> {
        let sessions = self.sessions.lock();
        check_names(&*sessions, &summary.topics(), &self.wanted, &self.screen)
    }
}
