//! Records that claim more than they have take no more memory than they have.

mod common;

use std::io::Cursor;
use std::sync::{Arc, Mutex};

use asof_core::{Channel, Message, Query, Source};
use asof_formats::{
    ConvertOptions, MappedFile, McapFile, McapWriter, McapWriterOptions, OpenOptions, convert,
};
use common::mcaps::{record, text};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The peak is one of the process: tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Each record that has texts, as long as one of its lengths says nothing else.
fn records() -> Vec<(u8, Vec<u8>)> {
    let map = [text("key"), text("value")].concat();
    let map = [(map.len() as u32).to_le_bytes().to_vec(), map].concat();
    let body = |parts: &[Vec<u8>]| parts.concat();
    vec![
        (1, body(&[text("profile"), text("library")])),
        (
            3,
            body(&[vec![1, 0], text("name"), text("json"), text("{}")]),
        ),
        (
            4,
            body(&[vec![1, 0, 0, 0], text("/a"), text("json"), map.clone()]),
        ),
        (0x0a, body(&[vec![8; 40], text("name"), text("text/plain")])),
        (0x0c, body(&[text("name"), map])),
        (0x0d, body(&[vec![8; 16], text("name")])),
    ]
}

/// A file with the record among its data and once more in its summary.
fn file(opcode: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = mcap::MAGIC.to_vec();
    bytes.extend(record(opcode, body));
    bytes.extend(record(0x0f, &[0; 4]));
    let summary = bytes.len() as u64;
    bytes.extend(record(opcode, body));
    bytes.extend(record(2, &[&summary.to_le_bytes()[..], &[0; 12]].concat()));
    bytes.extend(mcap::MAGIC);
    bytes
}

#[test]
fn a_length_that_lies_asks_for_no_memory() {
    let _turn = TURN.lock();
    for (opcode, good) in records() {
        for place in 0..good.len().saturating_sub(3) {
            let mut body = good.clone();
            body[place..place + 4].copy_from_slice(&0xf000_0000u32.to_le_bytes());
            let bytes = file(opcode, &body);
            MEMORY.reset_peak_usage();
            if let Ok(source) = McapFile::from_bytes("lies", bytes) {
                let all = source.read(&Query::all()).expect("reads");
                assert_eq!(all.count(), 0);
                source.check(&mut |_, _| Ok(())).expect("reads");
                let mut writer =
                    McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default())
                        .expect("a writer");
                let options = ConvertOptions::default();
                convert(&source, &mut writer, &options, &mut |_| {}).expect("converts");
            }
            let peak = MEMORY.peak_usage_as_mb();
            assert!(
                peak < 100.0,
                "{peak} MB for record {opcode:#x}, byte {place}"
            );
        }
    }
}

#[test]
fn sorting_on_disk_holds_few_large_messages_at_once() {
    let _turn = TURN.lock();
    let options = McapWriterOptions::default();
    let mut writer = McapWriter::new(Cursor::new(Vec::new()), options).expect("a writer");
    let channel = Arc::new(Channel::default());
    for number in 0..24 {
        let message = Message {
            channel: Arc::clone(&channel),
            log_time: (24 - number).into(),
            publish_time: 0.into(),
            sequence: 0,
            payload: vec![0; 4 << 20].into(),
        };
        writer.write(&message).expect("writes");
    }
    let bytes = writer.finish().expect("finishes").into_inner();
    let storage = MappedFile::from_bytes("run.mcap", bytes.into());
    let options = OpenOptions {
        threads: 1,
        ..OpenOptions::default()
    };
    let source = McapFile::from_storage(Box::new(storage), &options).expect("opens");
    let mut writer =
        McapWriter::new(Cursor::new(Vec::new()), McapWriterOptions::default()).expect("a writer");
    let options = ConvertOptions {
        memory: 1 << 20,
        ..ConvertOptions::default()
    };
    MEMORY.reset_peak_usage();
    let done = convert(&source, &mut writer, &options, &mut |_| {}).expect("converts");
    assert!(done.sorted_on_disk && done.messages == 24);
    let peak = MEMORY.peak_usage_as_mb();
    assert!(peak < 70.0, "{peak} MB");
}
