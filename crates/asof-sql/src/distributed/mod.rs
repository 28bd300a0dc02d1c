//! Queries whose recordings other processes read.
//!
//! A plan is made here, where the summaries of the recordings are. Then each of its leaves becomes a [`SliceExec`]: what is
//! made of the messages of a slice of time, over rows that say which slices there are, by the addresses of recordings. An
//! engine hands such rows to its processes as it does with any other, so each reads the slices that it was given, and no
//! other. [`PlanCodec`] turns plans into bytes; no file, connection or cache is ever in them.

mod codec;
mod lazy;
mod messages;
mod slices;
mod work;

use std::fmt::Debug;
use std::sync::Arc;

use asof_core::SourceError;
use asof_formats::Recording;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;

pub use codec::PlanCodec;
pub(crate) use lazy::LazyRecording;
pub(crate) use slices::{SliceExec, distributed};
pub(crate) use work::ViewKind;

/// A recording as other processes find it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordingAddress {
    /// What its rows call it.
    pub name: String,
    /// Where it is: a path or an address that every process understands alike.
    pub address: String,
    /// Bytes, where it is finished: one of another size is not the one that was planned with.
    pub size: Option<u64>,
}

/// Opens recordings for the plans that come in. It decides what may be opened at all.
pub trait RecordingOpener: Debug + Send + Sync {
    /// Opens a recording, or hands out one that is open.
    ///
    /// # Errors
    /// When it must not be opened, or cannot be.
    fn open(
        &self,
        recording: &RecordingAddress,
    ) -> std::result::Result<Arc<dyn Recording>, SourceError>;
}

/// An engine with processes of its own.
pub trait Cluster: Debug + Send + Sync {
    /// How many slices of time should be read at once.
    fn parallelism(&self) -> usize;

    /// The state that plans are made with, as the engine needs it.
    fn prepared(&self, state: SessionState) -> Result<SessionState>;

    /// Runs a plan there, from the moment that its rows are asked for.
    ///
    /// # Errors
    /// When the plan cannot be sent. What goes wrong there comes with the rows.
    fn execute(&self, plan: Arc<dyn ExecutionPlan>, config: SessionConfig) -> Result<ClusterRows>;

    /// What its processes have counted for the plans that ran.
    fn stats(&self) -> ClusterStats;
}

/// The answer of a cluster.
pub struct ClusterRows {
    /// The rows, as they come.
    pub rows: SendableRecordBatchStream,
    /// Ends the query there. It is called when nobody wants the rows any more, and does nothing once they are all there.
    pub cancel: Box<dyn FnOnce() + Send>,
}

/// What the processes of a cluster count. Each plan that reads recordings has these among its metrics.
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

/// Refuses everything: for those who make plans, or hand them on.
#[derive(Debug)]
pub(crate) struct OpensNothing;

impl RecordingOpener for OpensNothing {
    fn open(
        &self,
        recording: &RecordingAddress,
    ) -> std::result::Result<Arc<dyn Recording>, SourceError> {
        Err(SourceError::Unreadable {
            place: recording.address.clone(),
            reason: "this process plans queries and reads no recordings".to_owned(),
        })
    }
}
