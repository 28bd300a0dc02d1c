//! What the tests share.
#![allow(dead_code)]

pub mod fields;
pub mod flat;
pub mod flavours;
pub mod fuzz;
pub mod types;

use std::io::Cursor;
use std::sync::Arc;

use asof_core::{Channel, Message, Query, Schema, Source, Stamp};
use asof_decode::{ChannelReport, Layers, TableOptions, Tables, TopicBatch};
use asof_formats::{McapFile, McapWriter, McapWriterOptions};

pub fn channel(topic: &str, encoding: &str, name: &str, language: &str, data: &[u8]) -> Channel {
    Channel {
        topic: topic.to_owned(),
        message_encoding: encoding.to_owned(),
        schema: Some(Arc::new(Schema {
            name: name.to_owned(),
            encoding: language.to_owned(),
            data: data.to_vec().into(),
        })),
        ..Channel::default()
    }
}

pub fn ros2(topic: &str, name: &str, text: &str) -> Channel {
    channel(topic, "cdr", name, "ros2msg", text.as_bytes())
}

/// A little-endian CDR payload with this body.
pub fn cdr(body: &[u8]) -> Vec<u8> {
    let mut payload = vec![0, 1, 0, 0];
    payload.extend_from_slice(body);
    payload
}

pub fn message(channel: &Arc<Channel>, at: i64, payload: Vec<u8>) -> Message {
    Message {
        channel: Arc::clone(channel),
        log_time: Stamp::from_nanos(at),
        publish_time: Stamp::from_nanos(at),
        sequence: 0,
        payload: payload.into(),
    }
}

/// A recording of these messages, one nanosecond apart.
pub fn recording(messages: &[(&Channel, Vec<u8>)]) -> McapFile {
    let mut writer =
        McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default()).expect("a writer");
    let mut channels: Vec<(*const Channel, Arc<Channel>)> = Vec::new();
    for (at, (channel, payload)) in messages.iter().enumerate() {
        let key: *const Channel = *channel;
        let known = channels.iter().find(|(known, _)| *known == key);
        let shared = known.map(|(_, shared)| Arc::clone(shared));
        let shared = shared.unwrap_or_else(|| {
            let shared = Arc::new((*channel).clone());
            channels.push((key, Arc::clone(&shared)));
            shared
        });
        writer
            .write(&message(&shared, at as i64, payload.clone()))
            .expect("writes");
    }
    let bytes = writer.finish().expect("finishes").into_inner();
    McapFile::from_bytes("test", bytes).expect("opens")
}

pub fn decode(source: &dyn Source, layers: Layers) -> (Vec<TopicBatch>, Vec<ChannelReport>) {
    let options = TableOptions {
        layers,
        ..TableOptions::default()
    };
    let mut tables = Tables::read(source, &Query::all(), options).expect("reads");
    let batches = tables
        .by_ref()
        .map(|batch| batch.expect("a batch"))
        .collect();
    (batches, tables.report())
}

/// Where recordings of others lie, if they do.
pub fn data_folder() -> Option<std::path::PathBuf> {
    let folder = std::env::var_os("ASOF_TEST_DATA").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        std::path::PathBuf::from,
    );
    folder.join("recordings").is_dir().then_some(folder)
}
