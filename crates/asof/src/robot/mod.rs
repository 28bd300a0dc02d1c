//! Running robots.

mod play;
mod record;
mod report;
mod session;

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use asof_live::{LiveTransforms, RecentOptions};

use crate::{Error, Progress, Recording};

pub use play::{PlayOptions, PlayReport, Playback};
pub use record::RecordFiles;
pub use report::{
    snapshots_as_json, stamps_as_json, tell_losses, topics_as_json, trigger_problems,
};
pub use session::LiveSession;

/// A running robot; made by [`connect`](crate::connect). Cheap to clone.
///
/// It is a session of [`live`](crate::live), with all its methods: topics, windows, subscriptions and publishers. Beside them
/// it can be [recorded](Self::record), a recording can be [played](Self::play) to it, and its newest messages are a
/// [`Recording`] that grows ([`recent`](Self::recent)).
#[derive(Clone)]
pub struct Robot {
    session: asof_live::Robot,
    address: String,
    progress: Progress,
}

/// How long topics are waited for before what is there counts as the robot.
const DISCOVERY_TIME: Duration = Duration::from_secs(2);

impl Robot {
    /// Opens a session, see [`connect`](crate::connect).
    pub(crate) fn open(address: &str) -> Result<Self, Error> {
        let session = asof_live::connect(address)?;
        Ok(Robot::new(session, address))
    }

    /// The robot of a session that is open already.
    pub fn new(session: asof_live::Robot, address: impl Into<String>) -> Self {
        Robot {
            session,
            address: address.into(),
            progress: Progress::default(),
        }
    }

    /// The same, whose long work reports there and can be cancelled.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// The address that was connected to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The session itself.
    pub fn session(&self) -> &asof_live::Robot {
        &self.session
    }

    /// Its newest messages as a recording that grows: of all topics, five minutes, within 600 MB, unless the options choose
    /// others. Waits up to two seconds for the topics to be discovered.
    ///
    /// # Errors
    /// When a raw key expression is not valid.
    pub fn recent(&self, options: &RecentOptions) -> Result<Recording, Error> {
        let source = self.session.recent(options)?;
        source.wait_for_topics(Instant::now() + DISCOVERY_TIME);
        let source: Box<dyn asof_core::Source> = Box::new(source);
        let recording = Recording::new(source, &[PathBuf::from(&self.address)]);
        Ok(recording.with_progress(self.progress.clone()))
    }

    /// Its transforms in a buffer with tf2's queries, kept current as they arrive.
    pub fn tf(&self) -> LiveTransforms {
        self.session.transforms()
    }
}

impl Deref for Robot {
    type Target = asof_live::Robot;

    fn deref(&self) -> &Self::Target {
        &self.session
    }
}

impl fmt::Debug for Robot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Robot")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
