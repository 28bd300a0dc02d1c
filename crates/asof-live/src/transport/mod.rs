//! Transports: each discovers what a robot publishes, and delivers samples.
//!
//! A transport reports publishers to the [`Graph`](crate::graph::Graph) as they come and go, on its own thread, and
//! delivers the messages of those that are subscribed. Everything above it (windows, the store of recent messages, the
//! recorder, transforms) is independent of the transport.

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

/// Keeps a subscription alive until it is dropped.
pub(crate) type SubscriptionGuard = Box<dyn Any + Send + Sync>;

/// A transport to a robot.
pub(crate) trait Transport: Send + Sync {
    /// Whether a router, a peer or a server is connected.
    fn is_connected(&self) -> bool;

    /// Delivers the messages on a publisher's key until the returned guard is dropped; with the requested quality of
    /// service, where there is one and the transport supports it.
    fn subscribe(
        &self,
        publisher: &Publisher,
        asked: QosOverride,
        callback: Callback,
    ) -> Result<SubscriptionGuard, LiveError>;

    /// Announces a subscriber to the publisher, where the publisher needs to know.
    fn announce(&self, _publisher: &Publisher) -> Option<SubscriptionGuard> {
        None
    }

    /// Delivers the messages on all keys that an expression matches. `refused` counts dropped messages.
    fn subscribe_key(
        &self,
        key_expression: &str,
        _callback: Callback,
        _refused: &Arc<AtomicU64>,
    ) -> Result<SubscriptionGuard, LiveError> {
        Err(LiveError::NoKeys {
            key: key_expression.to_owned(),
        })
    }

    /// The ROS domain; 0 where there is none.
    fn domain(&self) -> u32 {
        0
    }

    /// The robot's description of itself.
    fn info(&self) -> RobotInfo {
        RobotInfo::default()
    }

    /// Problems so far.
    fn problems(&self) -> Vec<Problem> {
        Vec::new()
    }

    /// The Zenoh transport, for operations that need Zenoh.
    fn as_zenoh(&self) -> Option<&ZenohTransport> {
        None
    }
}

/// Opens the transport for an address. A robot that is not there yet is waited for in the background.
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

/// What a transport had to drop, by reason.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Messages above the size limit.
    pub oversized: AtomicU64,
    /// Messages that violate the protocol.
    pub malformed: AtomicU64,
    /// Channels beyond the limit.
    pub crowded: AtomicU64,
    /// Messages of publishers that were never announced.
    pub unclaimed: AtomicU64,
    /// How often the connection was lost and restored.
    pub reconnects: AtomicU64,
}

impl Losses {
    /// Counts one; returns whether it is the first.
    pub(crate) fn count(counter: &AtomicU64) -> bool {
        counter.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// The losses as problems.
    pub(crate) fn problems(&self, place: &str) -> Vec<Problem> {
        let told = [
            (
                &self.oversized,
                "messages were above the size limit; each closed the connection, which was then restored",
            ),
            (
                &self.malformed,
                "messages violated the protocol and were skipped",
            ),
            (
                &self.crowded,
                "channels were above the limit and were skipped",
            ),
            (
                &self.unclaimed,
                "messages came from publishers that were never announced and were skipped",
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
