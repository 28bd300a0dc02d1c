//! Writes a recording whose messages are in random order, to measure sorting.
//!
//! usage: shuffled OUT.mcap MEGABYTES

use std::sync::Arc;

use asof_core::{Channel, Message, Stamp};
use asof_formats::{Compression, McapWriter, McapWriterOptions};

const PAYLOAD: usize = 2000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: shuffled OUT.mcap MEGABYTES";
    let mut arguments = std::env::args().skip(1);
    let output = arguments.next().ok_or(usage)?;
    let megabytes: usize = arguments.next().ok_or(usage)?.parse()?;
    let count = megabytes * 1_000_000 / PAYLOAD;
    let options = McapWriterOptions {
        compression: Compression::None,
        chunk_age: None,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(output, options)?;
    let channels = ["/a", "/b", "/c"].map(|topic| {
        Arc::new(Channel {
            topic: topic.into(),
            ..Channel::default()
        })
    });
    // Xorshift: the same recording every time.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut roll = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut payload = vec![0; PAYLOAD];
    for index in 0..count {
        for word in payload.chunks_exact_mut(8) {
            word.copy_from_slice(&roll().to_le_bytes());
        }
        let time = Stamp::from_nanos((roll() % (count as u64 * 1000)) as i64);
        writer.write(&Message {
            channel: Arc::clone(&channels[index % 3]),
            log_time: time,
            publish_time: time,
            sequence: index as u32,
            payload: payload.clone().into(),
        })?;
    }
    writer.finish()?;
    Ok(())
}
