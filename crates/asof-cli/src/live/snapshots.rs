//! `asof serve --snapshots`: the last minute of a robot, written on request over HTTP.

use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "live")]
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(feature = "live")]
use asof::RecordFiles;
#[cfg(feature = "live")]
use asof::record::{RecordOptions, Recorder, SnapshotOptions};
use asof_serve::SnapshotTaker;
use clap::Args;

use crate::failure::Usage;
use crate::length::parse_time;
use crate::place::{Opening, robots_in};
use crate::screen::Screen;
use crate::select::Patterns;
use crate::writing::parse_size;

/// Flags for snapshots of a robot that is served.
#[derive(Debug, Args)]
pub struct Snapshots {
    /// Write the last minute of the running robot to this file on `POST /api/snapshot`: run_0.mcap,
    /// run_1.mcap, …
    #[arg(long = "snapshots", id = "snapshots", value_name = "OUT.mcap", help_heading = SNAPSHOTS)]
    path: Option<PathBuf>,

    /// How much of the time before is written: seconds, or with a unit
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "60s", requires = "snapshots", help_heading = SNAPSHOTS)]
    keep: Duration,

    /// How long a snapshot continues after the request
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "30s", requires = "snapshots", help_heading = SNAPSHOTS)]
    after: Duration,

    /// Memory for snapshots: bytes, or with k, M or G
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "1G", requires = "snapshots", help_heading = SNAPSHOTS)]
    keep_size: u64,
}

const SNAPSHOTS: &str = "Snapshots of a running robot";

impl Snapshots {
    /// Starts keeping the robot's messages, if requested.
    pub fn start(
        &self,
        places: &[PathBuf],
        topics: Option<Patterns>,
        opening: &Opening,
        screen: &Screen,
    ) -> anyhow::Result<Option<Arc<dyn SnapshotTaker>>> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let robots: Vec<&PathBuf> = robots_in(places).collect();
        let [robot] = robots[..] else {
            let text = format!(
                "--snapshots is for one running robot, and {} named",
                asof::text::counted(robots.len() as u64, "robot")
            );
            return Err(Usage::error(text));
        };
        self.of_robot(&robot.to_string_lossy(), path, topics, opening, screen)
            .map(Some)
    }

    #[cfg(not(feature = "live"))]
    #[allow(clippy::unused_self, reason = "used with robots")]
    fn of_robot(
        &self,
        url: &str,
        _path: &std::path::Path,
        _topics: Option<Patterns>,
        _opening: &Opening,
        _screen: &Screen,
    ) -> anyhow::Result<Arc<dyn SnapshotTaker>> {
        Err(super::absent::absent(url))
    }

    #[cfg(feature = "live")]
    fn of_robot(
        &self,
        url: &str,
        path: &std::path::Path,
        topics: Option<Patterns>,
        opening: &Opening,
        screen: &Screen,
    ) -> anyhow::Result<Arc<dyn SnapshotTaker>> {
        let snapshots = SnapshotOptions {
            keep: self.keep,
            after: self.after,
            bytes: self.keep_size,
            ..SnapshotOptions::default()
        };
        RecordFiles::Snapshots(snapshots.clone()).check(path)?;
        let connection = super::Connection {
            url: url.to_owned(),
            topics,
            msg_path: opening.folders().to_vec(),
            ..super::Connection::default()
        };
        let mut session = connection.open(screen)?;
        let mut options = RecordOptions::default();
        session
            .profile(screen)
            .clone_into(&mut options.writer.profile);
        let chosen = connection.chooser();
        let recorder = session.robot.snapshots(path, snapshots, options, chosen)?;
        Ok(Arc::new(RobotSnapshots {
            recorder: Mutex::new(Some(recorder)),
            _session: session,
        }))
    }
}

/// A robot whose recent messages are kept.
#[cfg(feature = "live")]
struct RobotSnapshots {
    /// `None` once it has ended.
    recorder: Mutex<Option<Recorder>>,
    _session: super::robot::Session,
}

#[cfg(feature = "live")]
impl RobotSnapshots {
    fn recorder(&self) -> MutexGuard<'_, Option<Recorder>> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "live")]
impl SnapshotTaker for RobotSnapshots {
    fn write(&self, reason: &str) -> Result<(), asof_serve::Refusal> {
        match &*self.recorder() {
            Some(recorder) if recorder.is_recording() => {
                recorder.trigger(reason);
                Ok(())
            }
            _ => Err("nothing can be written any more; see the server's log".into()),
        }
    }

    fn state(&self) -> serde_json::Value {
        let report = self.recorder().as_ref().map(Recorder::report);
        asof::snapshots_as_json(&report.unwrap_or_default().snapshots)
    }

    fn finish(&self) {
        let recorder = self.recorder().take();
        if let Some(Err(error)) = recorder.map(Recorder::stop) {
            tracing::error!("snapshots: {error}");
        }
    }
}
