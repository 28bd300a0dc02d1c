//! A robot that is reached through a WebSocket server: the common part of all protocols.

use std::sync::{Arc, Weak};

use asof_core::Problem;
use parking_lot::Mutex;

use super::hub::Hub;
use super::socket::{self, Caller, Conversation};
use super::{SubscriptionGuard, Transport};
use crate::graph::Graph;
use crate::ros::QosOverride;
use crate::subscribe::Callback;
use crate::{LiveError, Publisher, RobotInfo, SocketAddress};

/// The state of a server.
pub(super) trait About: Default + Send + 'static {
    /// As the robot's description of itself.
    fn info(&self) -> RobotInfo;

    /// Problems beyond those of the connection.
    fn problems(&self, _place: &str) -> Vec<Problem> {
        Vec::new()
    }
}

/// A server, and the connection to it.
pub(super) struct Served<A> {
    caller: Caller,
    hub: Arc<Hub>,
    about: Arc<Mutex<A>>,
    place: String,
}

impl<A: About> Served<A> {
    /// Connects to the server at an address; the server may come up later.
    pub fn call<C: Conversation>(
        address: &SocketAddress,
        graph: &Arc<Graph>,
        client: impl FnOnce(Weak<Graph>, Arc<Hub>, Arc<Mutex<A>>) -> C,
    ) -> Result<Self, LiveError> {
        let (hub, about) = (Arc::new(Hub::default()), Arc::<Mutex<A>>::default());
        let client = client(Arc::downgrade(graph), Arc::clone(&hub), Arc::clone(&about));
        Ok(Served {
            caller: socket::call(address, client)?,
            hub,
            about,
            place: address.to_string(),
        })
    }
}

impl<A: About> Transport for Served<A> {
    fn is_connected(&self) -> bool {
        self.caller.0.is_connected()
    }

    fn subscribe(
        &self,
        publisher: &Publisher,
        _asked: QosOverride,
        callback: Callback,
    ) -> Result<SubscriptionGuard, LiveError> {
        Ok(self.hub.subscribe(&publisher.key, &callback))
    }

    fn info(&self) -> RobotInfo {
        self.about.lock().info()
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = self.caller.0.problems(&self.place);
        problems.extend(self.about.lock().problems(&self.place));
        problems
    }
}
