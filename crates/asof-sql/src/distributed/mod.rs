//! Queries whose recordings are read by other processes.
//!
//! A plan is made here, where the summaries of the recordings are. Then each of its leaves becomes a [`SliceExec`], which makes
//! rows from the messages of slices of time; its input is a table of slices, with the addresses of recordings. An
//! engine distributes such rows like any others, so each process reads only the slices that it was
//! given. [`PlanCodec`] turns plans into bytes; they never contain a file, connection or cache.

mod codec;
mod lazy;
mod messages;
mod slices;
mod waves;
mod work;

use std::fmt::Debug;
use std::sync::Arc;

use asof_core::{Source, SourceError, Stamp};
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;

pub use codec::PlanCodec;
pub(crate) use lazy::LazyRecording;
pub(crate) use slices::{SliceExec, distributed};
pub(crate) use waves::{one_after_the_other, waves};
pub(crate) use work::ViewKind;

/// A recording for other processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordingAddress {
    /// Its name in rows.
    pub name: String,
    /// Its path or address, the same for every process.
    pub address: String,
    /// Bytes, where it is finished: a recording of another size is not the one that was planned.
    pub size: Option<u64>,
    /// Its version in a fleet.
    pub version: Option<FleetVersion>,
}

/// A version of a recording that a fleet's catalogue describes: whoever can read the catalogue opens it from there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FleetVersion {
    /// The address of the fleet. Its catalogue lies there.
    pub fleet: String,
    /// The generation of the catalogue that was searched.
    pub generation: u64,
    /// The server's ETag of the recording; `None` on a disk.
    pub e_tag: Option<String>,
    /// When it was modified last, on a disk.
    pub modified: Option<Stamp>,
}

/// Opens recordings for incoming plans. It decides what may be opened at all.
pub trait RecordingOpener: Debug + Send + Sync {
    /// Opens a recording, or returns one that is open.
    ///
    /// # Errors
    /// When it may not or cannot be opened.
    fn open(
        &self,
        recording: &RecordingAddress,
    ) -> std::result::Result<Arc<dyn Source>, SourceError>;
}

/// An engine with its own processes.
pub trait Cluster: Debug + Send + Sync {
    /// How many slices of time should be read at once.
    fn parallelism(&self) -> usize;

    /// The state for making plans, as the engine needs it.
    fn prepared(&self, state: SessionState) -> Result<SessionState>;

    /// Runs a plan there, from the moment that its rows are requested.
    ///
    /// # Errors
    /// When the plan cannot be sent. Later errors come with the rows.
    fn execute(&self, plan: Arc<dyn ExecutionPlan>, config: SessionConfig) -> Result<ClusterRows>;

    /// The counters of its processes for the plans that ran.
    fn stats(&self) -> ClusterStats;
}

/// The answer of a cluster.
pub struct ClusterRows {
    /// The rows, as they arrive.
    pub rows: SendableRecordBatchStream,
    /// Cancels the query there. It is called when the rows are dropped, and does nothing once all have arrived.
    pub cancel: Box<dyn FnOnce() + Send>,
}

/// The counters of a cluster's processes. Each plan that reads recordings has these among its metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterStats {
    /// Messages that were read.
    pub read: u64,
    /// Messages that could not be decoded.
    pub undecoded: u64,
}

impl ClusterStats {
    /// The metric of [`ClusterStats::read`].
    pub const READ: &str = "messages_read";
    /// The metric of [`ClusterStats::undecoded`].
    pub const UNDECODED: &str = "messages_undecoded";
}

/// Rejects everything: for processes that make plans, or pass them on.
#[derive(Debug)]
pub(crate) struct OpensNothing;

impl RecordingOpener for OpensNothing {
    fn open(
        &self,
        recording: &RecordingAddress,
    ) -> std::result::Result<Arc<dyn Source>, SourceError> {
        Err(SourceError::Unreadable {
            place: recording.address.clone(),
            reason: "this process plans queries and reads no recordings".to_owned(),
        })
    }
}
