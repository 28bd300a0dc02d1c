//! Any bytes at all, as messages that carry transforms: in ROS 1, in CDR, and in Foxglove's JSON through a whole
//! recording. Whatever is taken from them, lookups and pictures work on it without a panic.

#![no_main]

#[path = "../../crates/asof-tf/tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use asof_core::{Channel, Message, Schema, Stamp};
use asof_tf::TransformBuffer;
use asof_tf::ros::{RosEncoding, joint_state, tf_message};
use common::Recording;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for encoding in [RosEncoding::Ros1, RosEncoding::Cdr] {
        let _ = joint_state(encoding, bytes);
        let _ = tf_message(encoding, bytes);
    }
    let channels = [
        ("tf2_msgs/TFMessage", "ros1", "/tf"),
        ("tf2_msgs/msg/TFMessage", "cdr", "/tf_static"),
        ("foxglove.FrameTransform", "json", "/pose"),
        ("foxglove.FrameTransforms", "json", "/poses"),
    ];
    let messages = channels.map(|(schema, encoding, topic)| Message {
        channel: Arc::new(Channel {
            topic: topic.into(),
            message_encoding: encoding.into(),
            schema: Some(Arc::new(Schema {
                name: schema.into(),
                ..Schema::default()
            })),
            ..Channel::default()
        }),
        log_time: Stamp::EPOCH,
        publish_time: Stamp::EPOCH,
        sequence: 0,
        payload: bytes.to_vec().into(),
    });
    let Ok(loaded) = TransformBuffer::from_source(&Recording(messages.to_vec())) else {
        return;
    };
    let buffer = loaded.buffer;
    let frames = buffer.frames();
    for target in frames.iter().take(8) {
        for source in frames.iter().take(8) {
            let _ = buffer.lookup_latest(target, source);
            let _ = buffer.lookup(target, source, Stamp::from_nanos(1));
        }
    }
    drop((
        buffer.to_tree(),
        buffer.to_dot(),
        buffer.to_yaml(),
        buffer.to_mermaid(),
    ));
});
