//! Running robots as a source with an end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use asof_core::{
    DerivedSummary, Follow, FollowEnd, Followed, Problem, ProblemKind, Query, Source, SourceError,
    Stamp, Summary, When,
};
use asof_formats::Merged;
use asof_live::LiveSource;

use crate::text::counted;

/// Running robots that are listened to until it is time to stop, merged with the recordings beside them.
///
/// A read answers from what is held; a follower includes what arrives, and ends when it is time to stop. Once it is
/// [closed](Self::close) it is a finished recording of what was heard.
///
/// ```no_run
/// use std::time::{Duration, Instant};
/// use asof::{LiveSession, Recording};
/// let robot = asof::connect("zenoh://192.168.1.5:7447")?;
/// let until = Instant::now() + Duration::from_secs(30);
/// let heard = robot.session().recent(&Default::default())?;
/// let robots = vec![(robot.address().to_owned(), heard)];
/// let session = LiveSession::new(robots, vec![], move || Instant::now() < until);
/// let recording = Recording::new(Box::new(session) as Box<dyn asof::Source>, &[]);
/// let options = asof::export::ExportOptions { follow: true, ..Default::default() };
/// recording.export("tables", &options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LiveSession(Arc<Shared>);

struct Shared {
    robots: Vec<Arc<LiveSource>>,
    /// The robots and the recordings beside them, merged.
    source: Box<dyn Source>,
    /// Whether to go on; asked often.
    goes_on: Box<dyn Fn() -> bool + Send + Sync>,
    /// Whether the end of a follower is right.
    at_end: OnceLock<Box<EndCheck>>,
    missed: Mutex<MissedMessages>,
    is_closed: AtomicBool,
}

type EndCheck = dyn Fn(&Summary) -> Result<(), SourceError> + Send + Sync;

/// Messages that were evicted before a follower reached them, by topic, and the summary that counts them.
#[derive(Default)]
struct MissedMessages {
    counts: BTreeMap<String, u64>,
    summary: DerivedSummary,
}

/// How often it is asked whether to go on.
const TICK: Duration = Duration::from_millis(50);

impl LiveSession {
    /// Listens to robots while `goes_on`, with recordings beside them; each has a name, for messages.
    pub fn new(
        robots: Vec<(String, LiveSource)>,
        recordings: Vec<(String, Box<dyn Source>)>,
        goes_on: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let (names, robots): (Vec<_>, Vec<_>) = robots
            .into_iter()
            .map(|(name, robot)| (name, Arc::new(robot)))
            .unzip();
        let sources = robots.iter().map(|robot| Box::new(Arc::clone(robot)) as _);
        let mut parts: Vec<(String, Box<dyn Source>)> = names.into_iter().zip(sources).collect();
        parts.extend(recordings);
        let source = match parts.len() {
            1 => parts.remove(0).1,
            _ => Box::new(Merged::new(parts)),
        };
        LiveSession(Arc::new(Shared {
            robots,
            source,
            goes_on: Box::new(goes_on),
            at_end: OnceLock::new(),
            missed: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// What a follower ends with if the summary at its end is not as it has to be. The first one that is set counts.
    pub fn at_end(
        &self,
        check: impl Fn(&Summary) -> Result<(), SourceError> + Send + Sync + 'static,
    ) {
        let _ = self.0.at_end.set(Box::new(check));
    }

    /// Whether it goes on.
    pub fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// Waits until the topics have been discovered, until `deadline` at the latest. Returns whether all robots have any.
    pub fn wait_for_topics(&self, deadline: Instant) -> bool {
        let mut robots = self.0.robots.iter();
        robots.all(|robot| robot.wait_for_topics(deadline))
    }

    /// Whether topics of any robot still appear.
    pub fn is_discovering(&self) -> bool {
        self.0.robots.iter().any(|robot| robot.is_discovering())
    }

    /// Waits until the time, or until it is time to stop.
    pub fn wait(&self, until: Instant) {
        while self.is_open() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            thread::sleep(left.min(TICK));
        }
    }

    /// Waits for the first message of any robot.
    pub fn wait_for_first(&self, until: Instant) {
        let is_silent = || self.0.source.summary().messages.unwrap_or(0) == 0;
        while self.is_open() && Instant::now() < until && is_silent() {
            thread::sleep(TICK);
        }
    }

    /// Waits until each topic has had a message.
    pub fn wait_for_messages(&self, until: Instant) {
        while self.is_open() && Instant::now() < until {
            let soon = Instant::now() + TICK;
            let mut robots = self.0.robots.iter();
            if robots.all(|robot| robot.wait_for_messages(soon)) {
                return;
            }
        }
    }

    /// Listens long enough to know the state at a time: without one, now. Returns that time. Topics without a message are
    /// waited for until `patience`.
    pub fn wait_to_know(&self, time: Option<When>, patience: Instant) -> Stamp {
        self.wait_for_messages(patience);
        let range = self.0.source.summary().range;
        match time {
            None => Stamp::now(),
            Some(When::BeforeEnd(nanos)) => {
                let back = Duration::from_nanos(nanos.unsigned_abs());
                // The robot's state is known from then on.
                self.wait(Instant::now() + back);
                Stamp::now() - back
            }
            Some(When::AfterStart(nanos)) if range.is_empty() => {
                self.wait_for_time(Stamp::now().plus_nanos(nanos))
            }
            Some(time) => self.wait_for_time(time.resolve(range)),
        }
    }

    /// Waits for a time in the future.
    fn wait_for_time(&self, at: Stamp) -> Stamp {
        let ahead = at.since(Stamp::now());
        if ahead > 0 {
            self.wait(Instant::now() + Duration::from_nanos(ahead.unsigned_abs()));
        }
        at
    }

    /// Stops listening: what was heard is a finished recording from here on.
    pub fn close(&self) {
        self.0.is_closed.store(true, Ordering::Relaxed);
        self.0.robots.iter().for_each(|robot| robot.close());
    }
}

impl Shared {
    fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed) && (self.goes_on)()
    }

    fn missed(&self) -> MutexGuard<'_, MissedMessages> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl asof_core::SourceLayer for LiveSession {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.0.source
    }

    fn summary(&self) -> Arc<Summary> {
        let summary = self.inner().summary();
        let missed = self.0.missed();
        if missed.counts.is_empty() {
            return summary;
        }
        missed.summary.changed(summary, |summary| {
            let problems = missed.counts.iter().map(|(topic, &count)| {
                let count = counted(count, "message");
                let text =
                    format!("{count} left out: they arrived faster than they could be processed");
                Problem::whole(ProblemKind::Incomplete, text).on_topic(topic)
            });
            summary.problems.extend(problems);
        })
    }

    /// Ends when it is time to stop.
    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        Ok(Box::new(SessionFollow {
            shared: Arc::clone(&self.0),
            follow: self.inner().follow(query)?,
            ended: None,
            missed: BTreeMap::new(),
        }))
    }
}

/// Follows a robot until it is time to stop: what arrived until then is still returned.
struct SessionFollow {
    shared: Arc<Shared>,
    follow: Box<dyn Follow>,
    /// The time at which to stop.
    ended: Option<Stamp>,
    /// What was missed since it was last asked.
    missed: BTreeMap<String, u64>,
}

impl Follow for SessionFollow {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        if self.ended.is_none() && !self.shared.is_open() {
            self.ended = Some(Stamp::now());
        }
        let deadline = match self.ended {
            Some(_) => Instant::now(),
            None => deadline.min(Instant::now() + TICK),
        };
        let followed = self.follow.next(deadline)?;
        let newly_missed = self.follow.missed();
        if !newly_missed.is_empty() {
            let mut missed = self.shared.missed();
            missed.summary = DerivedSummary::default();
            for (topic, count) in newly_missed {
                *missed.counts.entry(topic.clone()).or_default() += count;
                *self.missed.entry(topic).or_default() += count;
            }
        }
        let Some(ended) = self.ended else {
            return Ok(followed);
        };
        match followed {
            Followed::Batch(batch) if batch.range().start <= ended => Ok(Followed::Batch(batch)),
            Followed::Batch(_) | Followed::CaughtUp => {
                if let Some(check) = self.shared.at_end.get() {
                    check(&self.shared.source.summary())?;
                }
                Ok(Followed::End(FollowEnd::Closed))
            }
            other => Ok(other),
        }
    }

    fn missed(&mut self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.missed)
    }
}
