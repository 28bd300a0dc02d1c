//! Ways to a robot: each discovers what is published, and delivers samples.
//!
//! A transport tells the [`Graph`](crate::graph::Graph) of publishers as they come and go, on a thread of its own, and
//! delivers the messages of those that are subscribed. Everything above (windows, the store of recent messages, the
//! recorder, transforms) knows nothing else of it.

#[cfg(feature = "dds")]
mod dds;
mod foxglove;
mod hub;
mod rosbridge;
mod served;
mod socket;
mod zenoh;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asof_core::{Problem, ProblemKind};

use crate::graph::Graph;
use crate::ros::QosOverride;
use crate::subscribe::Callback;
use crate::{Address, LiveError, Publisher, RobotInfo};

#[cfg(feature = "dds")]
pub(crate) use self::dds::DdsTopic;
pub(crate) use self::zenoh::ZenohTransport;

/// What keeps a subscription alive.
pub(crate) type Held = Box<dyn Any + Send + Sync>;

/// A way to a robot.
pub(crate) trait Transport: Send + Sync {
    /// Whether anybody is there.
    fn is_connected(&self) -> bool;

    /// Delivers the messages on a publisher's key, until what is returned is dropped; with the quality of service that was
    /// asked for, where it was and the transport has one.
    fn subscribe(
        &self,
        publisher: &Publisher,
        asked: QosOverride,
        callback: Callback,
    ) -> Result<Held, LiveError>;

    /// Tells a publisher that somebody listens, where it has to know.
    fn announce(&self, _publisher: &Publisher) -> Option<Held> {
        None
    }

    /// Delivers the messages on all keys that an expression matches. `refused` counts what is left out.
    fn subscribe_key(
        &self,
        key_expression: &str,
        _callback: Callback,
        _refused: &Arc<AtomicU64>,
    ) -> Result<Held, LiveError> {
        Err(LiveError::NoKeys {
            key: key_expression.to_owned(),
        })
    }

    /// The ROS domain; 0 where there is none.
    fn domain(&self) -> u32 {
        0
    }

    /// What the robot says of itself.
    fn info(&self) -> RobotInfo {
        RobotInfo::default()
    }

    /// What went wrong on the way so far.
    fn problems(&self) -> Vec<Problem> {
        Vec::new()
    }

    /// The Zenoh transport, for what only Zenoh can do.
    fn as_zenoh(&self) -> Option<&ZenohTransport> {
        None
    }
}

/// Opens the transport that an address names. A robot that is not there yet is waited for in the background.
pub(crate) fn open(address: &Address, graph: &Arc<Graph>) -> Result<Box<dyn Transport>, LiveError> {
    match address {
        Address::Zenoh(address) => Ok(Box::new(ZenohTransport::open(address, graph)?)),
        Address::Foxglove(address) => Ok(Box::new(foxglove::open(address, graph)?)),
        Address::Rosbridge(address) => Ok(Box::new(rosbridge::open(address, graph)?)),
        #[cfg(feature = "dds")]
        Address::Dds(address) => Ok(Box::new(dds::DdsTransport::open(address, graph)?)),
        #[cfg(not(feature = "dds"))]
        Address::Dds(_) => Err(LiveError::WithoutDds),
    }
}

/// What a transport had to leave out, by reason.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Messages of more bytes than are taken.
    pub oversized: AtomicU64,
    /// Messages that are not of the protocol.
    pub malformed: AtomicU64,
    /// Channels beyond the number that is followed.
    pub crowded: AtomicU64,
    /// How often the connection was lost and made anew.
    pub reconnects: AtomicU64,
}

impl Losses {
    /// Counts one; whether it is the first.
    pub(crate) fn count(counter: &AtomicU64) -> bool {
        counter.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// What was lost, as problems.
    pub(crate) fn problems(&self, place: &str) -> Vec<Problem> {
        let told = [
            (
                &self.oversized,
                "messages were larger than is taken; the connection was made anew each time",
            ),
            (
                &self.malformed,
                "messages were not of the protocol, and were left out",
            ),
            (
                &self.crowded,
                "channels are more than are followed, and were left out",
            ),
        ];
        let told = told.into_iter().filter_map(|(counter, text)| {
            let count = counter.load(Ordering::Relaxed);
            let text = format!("{place}: {count} {text}");
            (count > 0).then(|| incomplete(text))
        });
        told.collect()
    }
}

fn incomplete(text: String) -> Problem {
    Problem::whole(ProblemKind::Incomplete, text)
}
