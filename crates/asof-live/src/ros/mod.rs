//! The conventions of rmw_zenoh (keys, types, liveliness tokens, quality of service, attachments, type descriptions),
//! of `zenoh-bridge-ros2dds`, and of ROS 2 on DDS.
//!
//! No session is needed: text and bytes in, values out, so that everything can be tested and fuzzed.

mod attachment;
mod bridge;
mod dds;
mod description;
mod key;
mod qos;
mod service;
mod token;

pub use asof_ros::type_hash;
pub use attachment::{AttachmentError, SampleAttachment};
pub use bridge::{BRIDGE_TOKENS, BridgeToken};
pub use dds::{
    DISCOVERY_TOPIC, DISCOVERY_TYPE, Guid, ParticipantEntities, announced_type_hash, ros_topic_name,
};
pub use description::{
    DescriptionError, GET_TYPE_DESCRIPTION, described_as, described_schema, description_request,
};
pub use key::{TopicKey, dds_type_name, ros_type_name};
pub use qos::{Durability, History, QosError, QosOverride, QosProfile, Reliability, is_latched};
pub use service::{
    Correlation, describing_node, description_reply_topic, description_request_topic,
    split_request_id, with_request_id,
};
pub(crate) use token::publisher_token;
pub use token::{EntityKind, Token, TokenError, TopicInfo, tokens_of_domain};
