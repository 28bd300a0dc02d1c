//! A robot's description from a file, as if it had been recorded.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use asof::formats::{McapFile, McapWriter, McapWriterOptions, Merged, Recording};
use asof::ros::CdrWriter;
use asof::{Channel, Message, Schema, Stamp};

use super::failure::Usage;

/// The topic of a description when none was recorded.
const TOPIC: &str = "/robot_description";
/// The topic of a description beside a recorded one.
const OTHER_TOPIC: &str = "/urdf/robot_description";

/// The recording, with the description of its robot as its first message: transforms, page and viewers find it where
/// robots publish it.
pub fn described(
    recording: Box<dyn Recording>,
    name: &str,
    file: &Path,
) -> anyhow::Result<Box<dyn Recording>> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    if let Err(error) = asof::tf::RobotModel::from_urdf(&text) {
        let hint = if text.contains("xacro:") {
            "; it is a xacro, so run it through `xacro` first"
        } else {
            ""
        };
        return Err(Usage::error(format!("--urdf {shown}: {error}{hint}")));
    }
    let summary = recording.summary();
    let is_taken = summary.topics().contains(&TOPIC);
    let topic = if is_taken { OTHER_TOPIC } else { TOPIC };
    let start = if summary.range.is_empty() {
        Stamp::EPOCH
    } else {
        summary.range.start
    };
    let mut writer = McapWriter::new(
        std::io::Cursor::new(Vec::new()),
        McapWriterOptions::default(),
    )?;
    writer.write(&message(topic, &text, start))?;
    let bytes = writer.finish()?.into_inner();
    let description = McapFile::from_bytes(shown.to_string(), bytes)?;
    Ok(Box::new(Merged::new(vec![
        (name.to_owned(), recording),
        (shown.to_string(), Box::new(description)),
    ])))
}

/// The text as a `std_msgs/msg/String` in CDR.
fn message(topic: &str, text: &str, at: Stamp) -> Message {
    let schema = Schema {
        name: "std_msgs/msg/String".to_owned(),
        encoding: "ros2msg".to_owned(),
        data: b"string data\n"[..].into(),
    };
    let channel = Channel {
        topic: topic.to_owned(),
        message_encoding: "cdr".to_owned(),
        schema: Some(Arc::new(schema)),
        ..Channel::default()
    };
    let mut payload = CdrWriter::with_capacity(text.len() + 5);
    payload.string(text);
    Message {
        channel: Arc::new(channel),
        log_time: at,
        publish_time: at,
        sequence: 0,
        payload: payload.finish().into(),
    }
}
