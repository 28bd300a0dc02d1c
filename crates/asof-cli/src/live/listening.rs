//! A running robot as the verbs see it: a recording that grows until they stop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use asof::formats::Merged;
use asof::live::{LiveSource, RecentOptions};
use asof::window::Bounds;
use asof::{
    Batches, Follow, FollowEnd, Followed, Problem, ProblemKind, Query, Source, SourceError, Stamp,
    Summary, TimeRange, When,
};
use parking_lot::Mutex;

use super::robot::{Session, TICK};
use super::{Connection, Place};
use crate::place::{Opening, Wanted};
use crate::screen::{Screen, show_at_once};
use asof::text::counted;

/// How long a robot is listened to by verbs that look at it.
const LISTEN_TIME: Duration = Duration::from_secs(2);
/// A bit longer than it takes to discover all topics.
const DISCOVERY_TIME: Duration = Duration::from_millis(300);

/// The message when the clock of a robot goes back.
pub const SET_BACK: &str =
    "the robot's clock was set back: messages from here on are from another time";

/// Running robots that are listened to, merged with the recordings beside them.
///
/// A read includes what arrives meanwhile, until Ctrl-C or the end of `--for`, so that a verb that reads a recording
/// from front to back does so with a robot. After [`Listening::listened`], or
/// with [`Listening::looked_at`], a read ends with what is held.
pub struct Listening {
    shared: Arc<Shared>,
    reading: Reading,
}

/// Where a read of robots ends.
#[derive(Clone, Copy)]
enum Reading {
    /// When the verb stops.
    Verb,
    /// With what is held at the time of the query.
    Held,
    /// With what arrived until this time.
    Heard(Stamp),
}

struct Shared {
    robots: Vec<Arc<LiveSource>>,
    /// The robots and the recordings beside them, merged.
    source: Box<dyn Source>,
    /// One for each robot.
    sessions: Mutex<Vec<Session>>,
    screen: Screen,
    /// Messages that were evicted before they could be read, by topic.
    missed: Mutex<BTreeMap<String, u64>>,
    /// Whether listening is over.
    is_over: AtomicBool,
}

/// Opens robots, and waits for the wanted topics.
pub fn listen(
    places: Vec<Place>,
    opening: &Opening,
    wanted: &Wanted,
    screen: &Screen,
) -> anyhow::Result<Listening> {
    // Output that is printed live is flushed by line.
    show_at_once();
    let robots = places
        .iter()
        .filter(|place| matches!(place, Place::Robot(_)));
    let bytes = wanted.bytes / robots.count().max(1) as u64;
    let (mut robots, mut sessions, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for place in places {
        match place {
            Place::Robot(url) => {
                let (session, source) = connect(&url, bytes, opening, wanted, screen)?;
                let source = Arc::new(source);
                robots.push(Arc::clone(&source));
                sessions.push(session);
                parts.push((url, Box::new(source) as Box<dyn Source>));
            }
            Place::Recording(name, recording) => parts.push((name, recording)),
        }
    }
    let source = if parts.len() == 1 {
        parts.remove(0).1
    } else {
        Box::new(Merged::new(parts))
    };
    let listening = Listening {
        shared: Arc::new(Shared {
            robots,
            source,
            sessions: Mutex::new(sessions),
            screen: screen.clone(),
            missed: Mutex::default(),
            is_over: AtomicBool::new(false),
        }),
        reading: Reading::Verb,
    };
    listening.discover(wanted)?;
    for session in listening.shared.sessions.lock().iter_mut() {
        session.begin();
    }
    Ok(listening)
}

/// Opens one robot, of which at most this many bytes are kept.
fn connect(
    url: &str,
    bytes: u64,
    opening: &Opening,
    wanted: &Wanted,
    screen: &Screen,
) -> anyhow::Result<(Session, LiveSource)> {
    let of_robot = opening.robot();
    let connection = Connection {
        url: url.to_owned(),
        topics: None,
        key: Vec::new(),
        msg_path: opening.folders().to_vec(),
        duration: of_robot.duration,
    };
    let session = connection.open(screen)?;
    let chosen = wanted.clone();
    let mut options = RecentOptions::default()
        .with_bounds(Bounds::age(of_robot.window).and_bytes(bytes))
        .with_topics(move |publisher| chosen.is_match(&publisher.channel));
    for key in &of_robot.key {
        options = options.with_key(key);
    }
    let source = session.robot.session().recent(&options)?;
    Ok((session, source))
}

impl Listening {
    /// Waits for topics; for named topics without limit, until it is time to stop. A robot that does not answer meanwhile is
    /// an error.
    fn discover(&self, wanted: &Wanted) -> anyhow::Result<()> {
        let shared = &self.shared;
        let started = Instant::now();
        let needs_names = !wanted.names().is_empty();
        while !wanted.patience.is_zero() && shared.is_open() {
            let until = Instant::now() + DISCOVERY_TIME;
            let mut robots = shared.robots.iter();
            let has_topics = robots.all(|robot| robot.wait_for_topics(until));
            let summary = shared.source.summary();
            let topics = summary.topics();
            let is_there = |name: &String| topics.contains(&name.as_str());
            if has_topics && wanted.names().iter().all(is_there) {
                return Ok(());
            }
            let is_late = started.elapsed() >= wanted.patience;
            if is_late {
                shared.answered()?;
            }
            if is_late && !needs_names {
                self.tell_discovery();
                return Ok(());
            }
        }
        if wanted.patience.is_zero() {
            return Ok(());
        }
        shared.answered()
    }

    /// Says so when topics still appear.
    fn tell_discovery(&self) {
        let shared = &self.shared;
        if shared.robots.iter().any(|robot| robot.is_discovering()) {
            let topics = shared.source.summary().topics().len() as u64;
            let topics = counted(topics, "topic");
            shared
                .screen
                .note(format_args!("still discovering: {topics} so far"));
        }
    }

    /// Listens for a while; the result holds what was heard, and does not grow.
    pub fn listened(self) -> Self {
        let shared = &self.shared;
        // A robot that connects late is listened to from its first message on.
        let limit = shared.limit();
        let patience = Instant::now() + LISTEN_TIME;
        let is_silent = || shared.source.summary().messages.unwrap_or(0) == 0;
        while limit.is_none() && shared.is_open() && Instant::now() < patience && is_silent() {
            std::thread::sleep(TICK);
        }
        shared.wait(Instant::now() + limit.unwrap_or(LISTEN_TIME));
        self.over()
    }

    /// The same, with what was heard already.
    pub fn listened_already(self) -> Self {
        self.over()
    }

    /// The same while it grows, for readers that read what is held and follow what arrives.
    pub fn looked_at(self) -> Self {
        let reading = Reading::Held;
        Listening { reading, ..self }
    }

    fn over(self) -> Self {
        let shared = &self.shared;
        shared.is_over.store(true, Ordering::Relaxed);
        if shared.source.summary().channels.is_empty() {
            let sessions = shared.sessions.lock();
            let first = sessions.first();
            let words = first.map_or("no topic was found", Session::without_topics);
            shared.screen.note(words);
        }
        let reading = Reading::Heard(Stamp::now());
        Listening { reading, ..self }
    }

    /// Listens long enough to know the state at a time: without one, now.
    pub fn listen_until(&self, time: Option<When>) -> Stamp {
        let shared = &self.shared;
        let patience = Instant::now() + shared.limit().unwrap_or(LISTEN_TIME);
        match time {
            None => {
                shared.hear_all(patience);
                Stamp::now()
            }
            Some(When::BeforeEnd(nanos)) => {
                let back = Duration::from_nanos(nanos.unsigned_abs());
                // The robot's state is known from then on.
                shared.hear_all(patience);
                shared.wait(Instant::now() + back);
                Stamp::now() - back
            }
            Some(When::AfterStart(nanos)) => {
                shared.hear_all(patience);
                let range = shared.source.summary().range;
                let at = if range.is_empty() {
                    Stamp::now()
                } else {
                    range.start
                };
                shared.wait_for(at.plus_nanos(nanos))
            }
            Some(When::At(at)) => {
                shared.hear_all(patience);
                shared.wait_for(at)
            }
        }
    }

    fn following(&self, query: &Query) -> Result<Ending, SourceError> {
        Ok(Ending {
            shared: Arc::clone(&self.shared),
            follow: self.shared.source.follow(query)?,
            ended: None,
        })
    }
}

impl Shared {
    /// Whether to go on listening; reports the state of the connection.
    fn is_open(&self) -> bool {
        let mut sessions = self.sessions.lock();
        for session in sessions.iter_mut() {
            session.tell(&self.screen);
        }
        sessions.iter().all(Session::is_open) && !self.is_over.load(Ordering::Relaxed)
    }

    /// An error unless all robots have answered.
    fn answered(&self) -> anyhow::Result<()> {
        let mut sessions = self.sessions.lock();
        sessions.iter_mut().try_for_each(Session::answered)
    }

    fn limit(&self) -> Option<Duration> {
        self.sessions.lock().first().and_then(Session::left)
    }

    fn wait(&self, until: Instant) {
        while self.is_open() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(TICK));
        }
    }

    /// Waits for a time in the future.
    fn wait_for(&self, at: Stamp) -> Stamp {
        let ahead = at.since(Stamp::now());
        if ahead > 0 {
            self.wait(Instant::now() + Duration::from_nanos(ahead.unsigned_abs()));
        }
        at
    }

    /// Waits until each topic has had a message.
    fn hear_all(&self, until: Instant) {
        while self.is_open() && Instant::now() < until {
            let soon = Instant::now() + TICK;
            let mut robots = self.robots.iter();
            if robots.all(|robot| robot.wait_for_messages(soon)) {
                return;
            }
        }
    }

    fn count_missed(&self, follow: &mut dyn Follow) {
        let mut missed = self.missed.lock();
        for (topic, count) in follow.missed() {
            *missed.entry(topic).or_default() += count;
        }
    }
}

impl asof::SourceLayer for Listening {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.shared.source
    }

    fn summary(&self) -> Arc<Summary> {
        let summary = self.inner().summary();
        let missed = self.shared.missed.lock();
        if missed.is_empty() {
            return summary;
        }
        let mut summary = Summary::clone(&summary);
        summary
            .problems
            .extend(missed.iter().map(|(topic, &count)| {
                let count = counted(count, "message");
                let text =
                    format!("{count} left out: they arrived faster than they could be processed");
                Problem::whole(ProblemKind::Incomplete, text).on_topic(topic)
            }));
        Arc::new(summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        match self.reading {
            Reading::Held => return self.inner().read(query),
            Reading::Heard(until) => {
                let end = query.range.end.min(until);
                let query = Query {
                    range: TimeRange::new(query.range.start, end),
                    ..query.clone()
                };
                return self.inner().read(&query);
            }
            Reading::Verb => {}
        }
        let mut heard = self.following(query)?;
        let screen = self.shared.screen.clone();
        Ok(Box::new(std::iter::from_fn(move || {
            loop {
                match heard.next(Instant::now() + TICK) {
                    Ok(Followed::Batch(batch)) => return Some(Ok(batch)),
                    Ok(Followed::CaughtUp) => {}
                    Ok(Followed::Restarted) => screen.note(SET_BACK),
                    Ok(Followed::End(_)) => return None,
                    Err(error) => return Some(Err(error)),
                }
            }
        })))
    }

    /// Ends when it is time to stop.
    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        Ok(Box::new(self.following(query)?))
    }
}

/// Follows a robot until it is time to stop: what arrived until then is still returned.
struct Ending {
    shared: Arc<Shared>,
    follow: Box<dyn Follow>,
    /// The time at which to stop.
    ended: Option<Stamp>,
}

impl Follow for Ending {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        if self.ended.is_none() && !self.shared.is_open() {
            self.ended = Some(Stamp::now());
        }
        let deadline = match self.ended {
            Some(_) => Instant::now(),
            None => deadline.min(Instant::now() + TICK),
        };
        let followed = self.follow.next(deadline)?;
        self.shared.count_missed(&mut *self.follow);
        let Some(ended) = self.ended else {
            return Ok(followed);
        };
        Ok(match followed {
            Followed::Batch(batch) if batch.range().start <= ended => Followed::Batch(batch),
            Followed::Restarted => Followed::Restarted,
            _ => Followed::End(FollowEnd::Closed),
        })
    }
}
