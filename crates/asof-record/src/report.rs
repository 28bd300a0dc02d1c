//! What a recorder counts.

use std::collections::BTreeMap;

use asof_live::StampHealth;

use crate::parts::PartsReport;
use crate::snapshot::SnapshotReport;

/// The state of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordReport {
    /// The topics, by name.
    pub topics: BTreeMap<String, TopicReport>,
    /// Bytes that wait for the disk.
    pub waiting_bytes: u64,
    /// The files, for a recording in several files.
    pub parts: PartsReport,
    /// What was kept and written, for a recording in snapshots.
    pub snapshots: SnapshotReport,
}

impl RecordReport {
    /// Messages in the file.
    pub fn written(&self) -> u64 {
        self.topics.values().map(|topic| topic.written).sum()
    }

    /// Messages that were dropped because the disk was slower than the robot.
    pub fn dropped(&self) -> u64 {
        self.topics.values().map(|topic| topic.dropped).sum()
    }
}

/// The counts of one recorded topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopicReport {
    /// Messages in the file; for a recording in snapshots, messages that were kept for a while.
    pub written: u64,
    /// Messages that were dropped because the disk was slower than the robot.
    pub dropped: u64,
    /// Messages that came before the first time of the robot's clock, for a recording by that clock.
    pub early: u64,
    /// Messages that MCAP cannot hold: those logged before 1970.
    pub refused: u64,
    /// Messages that are missing in the publishers' own sequence numbers: they were lost on the way.
    pub lost: u64,
    /// How the stamps of its messages stand to their arrival.
    pub stamps: StampHealth,
    /// Messages with a publish time before 1970; their log time is written instead.
    pub mistimed: u64,
    /// Whether messages were written without a definition of their type, because none was found.
    pub is_undefined: bool,
    /// Whether that is because the local definition of that name differs from the robot's.
    pub is_defined_otherwise: bool,
}
