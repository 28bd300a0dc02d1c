//! A robot's transforms, published.

use asof_ros::{CdrWriter, Definitions};
use asof_tf::ros::StampedTransform;
use parking_lot::Mutex;

use crate::robot::now;
use crate::ros::{Durability, QosProfile};
use crate::{LiveError, PublisherOptions, Robot, TopicPublisher};

impl Robot {
    /// Announces a node that publishes transforms on `/tf` and `/tf_static`, as the broadcasters of ROS 2 do.
    ///
    /// # Errors
    /// When the session is closed.
    pub fn broadcaster(&self, node: &str) -> Result<Broadcaster, LiveError> {
        Ok(Broadcaster {
            moving: voice(self, node, "/tf")?,
            fixed: voice(self, node, "/tf_static")?,
            held: Mutex::default(),
        })
    }
}

/// Publishes transforms as the broadcasters of ROS 2 do; made by [`Robot::broadcaster`].
pub struct Broadcaster {
    moving: TopicPublisher,
    fixed: TopicPublisher,
    /// All static transforms so far: late joiners receive only the last message.
    held: Mutex<Vec<StampedTransform>>,
}

impl Broadcaster {
    /// Publishes transforms on `/tf`.
    ///
    /// # Errors
    /// When the session is closed.
    pub fn send(&self, transforms: &[StampedTransform]) -> Result<(), LiveError> {
        self.moving.publish(encoded(transforms), now())
    }

    /// Publishes static transforms on `/tf_static`, together with all that were sent before, so that late joiners
    /// receive them too. A transform replaces an earlier one of the same child.
    ///
    /// # Errors
    /// When the session is closed.
    pub fn send_static(&self, transforms: &[StampedTransform]) -> Result<(), LiveError> {
        let mut held = self.held.lock();
        for one in transforms {
            match held.iter_mut().find(|known| known.child == one.child) {
                Some(known) => known.clone_from(one),
                None => held.push(one.clone()),
            }
        }
        self.fixed.publish(encoded(&held), now())
    }
}

/// A publisher of one of the two transform topics.
fn voice(robot: &Robot, node: &str, topic: &str) -> Result<TopicPublisher, LiveError> {
    let type_name = "tf2_msgs/msg/TFMessage";
    let definition = Definitions::standard().full_text(type_name);
    let is_static = topic.ends_with("static");
    robot.publisher(&PublisherOptions {
        node: node.to_owned(),
        topic: topic.to_owned(),
        type_name: type_name.to_owned(),
        definition: definition.unwrap_or_default(),
        // Static transforms are kept for late joiners.
        qos: QosProfile {
            durability: if is_static {
                Durability::TransientLocal
            } else {
                Durability::Volatile
            },
            depth: if is_static { 1 } else { 100 },
            ..QosProfile::default()
        },
        // A robot does not wait for a slow subscriber.
        waits: false,
    })
}

/// `tf2_msgs/msg/TFMessage` as CDR, little endian.
pub(super) fn encoded(transforms: &[StampedTransform]) -> Vec<u8> {
    let mut cdr = CdrWriter::with_capacity(transforms.len() * 120);
    cdr.length(transforms.len());
    for one in transforms {
        let (sec, nanosec) = one.stamp.to_ros2().unwrap_or((0, 0));
        cdr.int32(sec).uint32(nanosec);
        cdr.string(&one.parent).string(&one.child);
        let (t, q) = (
            one.isometry.translation.vector,
            one.isometry.rotation.coords,
        );
        cdr.float64s(&[t.x, t.y, t.z, q.x, q.y, q.z, q.w]);
    }
    cdr.finish()
}
