//! A robot's description from a file, as if it had been recorded.

use std::path::Path;
use std::sync::Arc;

use asof_core::{Channel, Message, Schema, Source, Stamp};
use asof_formats::{McapFile, McapWriter, McapWriterOptions, Merged};
use asof_ros::CdrWriter;

use crate::{Error, Recording};

/// The topic of a description when none was recorded.
const TOPIC: &str = "/robot_description";
/// The topic of a description beside a recorded one.
const OTHER_TOPIC: &str = "/urdf/robot_description";

impl Recording {
    /// The same with the description of its robot, a URDF file, as its first message: transforms, page and viewers find it
    /// where robots publish it.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a description.
    pub fn with_description(&self, file: impl AsRef<Path>) -> Result<Recording, Error> {
        let file = file.as_ref();
        let shown = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|error| Error::file(format!("cannot read {shown}"), error))?;
        if let Err(error) = asof_tf::RobotModel::from_urdf(&text) {
            let hint = if text.contains("xacro:") {
                "; it is a xacro, so run it through `xacro` first"
            } else {
                ""
            };
            return Err(Error::Option(format!("{shown}: {error}{hint}")));
        }
        let summary = self.summary();
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
        let parts: Vec<(String, Box<dyn Source>)> = vec![
            (self.name(), Box::new(Arc::clone(self.source()))),
            (shown.to_string(), Box::new(description)),
        ];
        let merged: Arc<dyn Source> = Arc::new(Merged::new(parts));
        Ok(Recording::new(merged, self.places()).with_progress(self.progress().clone()))
    }
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
