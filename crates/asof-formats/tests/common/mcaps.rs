//! MCAP records by hand.

use std::io::Write as _;

pub fn record(opcode: u8, body: &[u8]) -> Vec<u8> {
    [&[opcode][..], &(body.len() as u64).to_le_bytes(), body].concat()
}

pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

pub fn channel(id: u16, topic: &str) -> Vec<u8> {
    let no_metadata = 0u32.to_le_bytes();
    let ids = [id.to_le_bytes(), [0, 0]].concat();
    record(
        4,
        &[ids, text(topic), text("json"), no_metadata.to_vec()].concat(),
    )
}

pub fn message(channel: u16, time: u64, payload: &[u8]) -> Vec<u8> {
    let ids = [&channel.to_le_bytes()[..], &[0; 4]].concat();
    let times = [time.to_le_bytes(), time.to_le_bytes()].concat();
    record(5, &[&ids, &times, payload].concat())
}

/// A chunk of records.
pub fn chunk(compression: &str, records: &[u8], times: (u64, u64)) -> Vec<u8> {
    let data = match compression {
        "zstd" => zstd::bulk::compress(records, 3).expect("compresses"),
        "lz4" => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(records).expect("compresses");
            encoder.finish().expect("compresses")
        }
        _ => records.to_vec(),
    };
    let numbers = [times.0, times.1, records.len() as u64].map(u64::to_le_bytes);
    let body = [
        numbers.concat(),
        vec![0; 4],
        text(compression),
        (data.len() as u64).to_le_bytes().to_vec(),
        data,
    ];
    record(6, &body.concat())
}

/// A file without a summary.
pub fn file(parts: &[Vec<u8>]) -> Vec<u8> {
    let magic = b"\x89MCAP0\r\n".to_vec();
    let head = record(1, &[text(""), text("")].concat());
    let end = [record(15, &[0; 4]), record(2, &[0; 20]), magic.clone()].concat();
    [magic, head, parts.concat(), end].concat()
}
