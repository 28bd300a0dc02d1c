//! Publishing as a ROS 2 node does, so that other nodes receive it: a key, a token, and a cache for late joiners.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use asof_core::Stamp;
use zenoh::Wait;
use zenoh::liveliness::LivelinessToken;
use zenoh::qos::CongestionControl;
use zenoh_ext::{AdvancedPublisher, AdvancedPublisherBuilderExt, CacheConfig};

use crate::error::said;
use crate::ros::{
    Durability, QosProfile, SampleAttachment, TopicKey, dds_type_name, publisher_token, type_hash,
};
use crate::{LiveError, Robot};

/// Numbers the publishers of this process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The options of a publisher: its topic, its type, and its quality of service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherOptions {
    /// The name of the publishing node: `player`.
    pub node: String,
    /// The topic, with its leading slash.
    pub topic: String,
    /// The type in its usual spelling: `sensor_msgs/msg/Imu`.
    pub type_name: String,
    /// The type's definition with those it refers to, for its hash; empty where it is not known, which nodes of Humble
    /// understand.
    pub definition: String,
    /// The quality of service.
    pub qos: QosProfile,
    /// Whether to wait for a slow subscriber, instead of dropping messages.
    pub waits: bool,
}

/// A publisher of one topic; made by [`Robot::publisher`]. Dropping it withdraws the topic.
pub struct TopicPublisher {
    publisher: AdvancedPublisher<'static>,
    _token: LivelinessToken,
    count: AtomicI64,
    gid: [u8; 16],
    topic: String,
}

impl Robot {
    /// Announces a publisher, as a node of `rmw_zenoh` does.
    ///
    /// # Errors
    /// When the robot is not reached over Zenoh, the topic is not a valid name, or the session is closed.
    pub fn publisher(&self, options: &PublisherOptions) -> Result<TopicPublisher, LiveError> {
        let topic = &options.topic;
        let failed = |cause: zenoh::Error| LiveError::Zenoh {
            what: format!("cannot publish {topic}"),
            cause: said(&cause),
        };
        let hash = type_hash(&options.type_name, &options.definition);
        let key = TopicKey {
            domain: self.domain(),
            topic: topic.clone(),
            dds_type: dds_type_name(&options.type_name),
            type_hash: hash.unwrap_or_else(|| "TypeHashNotSupported".to_owned()),
        };
        let session = self.zenoh()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let builder = session
            .declare_publisher(key.to_string())
            .congestion_control(if options.waits {
                CongestionControl::Block
            } else {
                CongestionControl::Drop
            });
        // The cache for late joiners, for topics that have one.
        let is_kept = options.qos.durability == Durability::TransientLocal;
        let depth = if is_kept { options.qos.depth.max(1) } else { 1 };
        let builder = builder
            .cache(CacheConfig::default().max_samples(depth))
            .publisher_detection();
        let publisher = builder.wait().map_err(failed)?;
        let zid = session.zid();
        let token = publisher_token(&key, &zid.to_string(), number, &options.node, options.qos);
        let token = session.liveliness().declare_token(token).wait();
        // Unique within the session: gaps are counted per publisher.
        let mut gid = zid.to_le_bytes();
        for (byte, mixed) in gid[8..].iter_mut().zip(number.to_le_bytes()) {
            *byte ^= mixed;
        }
        Ok(TopicPublisher {
            publisher,
            _token: token.map_err(failed)?,
            count: AtomicI64::new(0),
            gid,
            topic: topic.clone(),
        })
    }
}

impl TopicPublisher {
    /// Publishes an encoded message with its publish time.
    ///
    /// # Errors
    /// When the session is closed.
    pub fn publish(
        &self,
        payload: impl Into<zenoh::bytes::ZBytes>,
        at: Stamp,
    ) -> Result<(), LiveError> {
        let attachment = SampleAttachment {
            sequence: self.count.fetch_add(1, Ordering::Relaxed) + 1,
            source_timestamp: at,
            gid: self.gid,
        };
        self.publisher
            .put(payload)
            .attachment(attachment.to_bytes().to_vec())
            .wait()
            .map_err(|cause| LiveError::Zenoh {
                what: format!("cannot publish on {}", self.topic),
                cause: said(&cause),
            })
    }

    /// Whether there is a subscriber.
    pub fn is_heard(&self) -> bool {
        let status = self.publisher.matching_status().wait();
        status.is_ok_and(|status| status.matching())
    }
}
