//! The `metadata.yaml` that rosbag2 expects beside a recording.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use asof_core::{Source as _, Summary};
use asof_formats::McapFile;

use super::new_file::NewFile;
use crate::Error;

/// The path of the metadata of a recording: `metadata.yaml` in its folder. An error when one exists that may not be
/// replaced.
pub fn place_beside(recording: &Path, may_replace: bool) -> Result<PathBuf, Error> {
    let place = recording.with_file_name("metadata.yaml");
    if place.exists() && !may_replace {
        let shown = place.display();
        return Err(Error::Option(format!(
            "{shown} is there already; --force replaces it, or write into a folder of its own"
        )));
    }
    Ok(place)
}

/// Writes the metadata of a recording that has just been written.
pub fn write_beside(recording: &Path, place: &Path) -> Result<(), Error> {
    let summary = McapFile::open(recording)?.summary();
    let name = recording.file_name().unwrap_or_default().to_string_lossy();
    let text = metadata(&summary, &name);
    NewFile::create(place, |_| true)?.write(text.as_bytes())
}

/// Version 5, which rosbag2 reads since Galactic.
fn metadata(summary: &Summary, file: &str) -> String {
    let (start, duration) = if summary.range.is_empty() {
        (0, 0)
    } else {
        (summary.range.start.nanos(), summary.range.duration_nanos())
    };
    let messages = summary.messages.unwrap_or(0);
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut text = format!(
        "rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: mcap\n  duration:\n    nanoseconds: {duration}\n  \
         starting_time:\n    nanoseconds_since_epoch: {start}\n  message_count: {messages}\n  topics_with_message_count:\n"
    );
    for entry in &summary.channels {
        let channel = &entry.channel;
        let qos = channel.metadata.get("offered_qos_profiles");
        let _ = write!(
            text,
            "    - topic_metadata:\n        name: {}\n        type: {}\n        serialization_format: {}\n        \
             offered_qos_profiles: {}\n      message_count: {}\n",
            quoted(&channel.topic),
            quoted(channel.type_name()),
            quoted(&channel.message_encoding),
            quoted(qos.map_or("", String::as_str)),
            entry.messages.unwrap_or(0),
        );
    }
    if summary.channels.is_empty() {
        text.truncate(text.len() - 1);
        text.push_str(" []\n");
    }
    let file = quoted(file);
    let _ = write!(
        text,
        "  compression_format: \"\"\n  compression_mode: \"\"\n  relative_file_paths:\n    - {file}\n  files:\n    - path: {file}\n      \
         starting_time:\n        nanoseconds_since_epoch: {start}\n      duration:\n        nanoseconds: {duration}\n      message_count: {messages}\n"
    );
    text
}
