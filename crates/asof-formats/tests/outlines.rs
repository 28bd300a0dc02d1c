//! How many messages lie where, told without reading any.

mod common;

use std::collections::BTreeMap;

use asof_core::{Query, Source};
use asof_formats::{McapFile, OpenOptions, Recording};

const SECOND: u64 = 1_000_000_000;

/// Messages by topic.
fn told(source: &dyn Source, grain: u64) -> Option<BTreeMap<String, u64>> {
    let portions = source.outline(grain).expect("readable")?;
    let mut counts = BTreeMap::new();
    for portion in portions {
        assert!(!portion.range.is_empty() && portion.messages > 0);
        *counts.entry(portion.channel.topic.clone()).or_default() += portion.messages;
    }
    Some(counts)
}

fn read(source: &dyn Source) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for message in common::messages(source, &Query::all()) {
        *counts.entry(message.channel.topic.clone()).or_default() += 1;
    }
    counts
}

#[test]
fn an_outline_counts_every_message_and_opens_no_chunk() {
    let bytes = common::demo_file(3.0, common::small_chunks());
    let file = McapFile::from_bytes("demo.mcap", bytes).expect("opens");
    let outlines = [1, SECOND / 100, SECOND, 100 * SECOND].map(|grain| told(&file, grain));
    assert_eq!(file.counters().expect("counts").chunks, 0);
    let wanted = read(&file);
    for counts in outlines {
        assert_eq!(counts.as_ref(), Some(&wanted));
    }
}

#[test]
fn a_fine_outline_says_when_each_message_came() {
    // All of it in one chunk: its own range would say nothing.
    let bytes = common::demo_file(3.0, mcap::WriteOptions::default());
    let file = McapFile::from_bytes("demo.mcap", bytes).expect("opens");
    let portions = file.outline(SECOND / 10).expect("readable");
    for portion in portions.expect("an index") {
        let long = portion.range.duration_nanos().unsigned_abs();
        assert!(long <= SECOND / 10, "{portion:?}");
    }
}

#[test]
fn real_recordings_are_told_as_they_are_read() {
    let Some(data) = common::test_data() else {
        return;
    };
    let mut files = Vec::new();
    common::files_below(&data.join("recordings"), &mut files);
    let mut told_of = 0;
    for path in files {
        let size = std::fs::metadata(&path).map_or(0, |found| found.len());
        let is_meant = path
            .extension()
            .is_some_and(|ending| ending == "mcap" || ending == "bag");
        if !is_meant || size > 4 << 20 {
            continue;
        }
        let Ok(file) = asof_formats::open_with(&path, &OpenOptions::default()) else {
            continue;
        };
        // What is damaged has less than its index says.
        if !file.summary().problems.is_empty() {
            continue;
        }
        for grain in [SECOND / 50, 1000 * SECOND] {
            let Some(counts) = told(&*file, grain) else {
                continue;
            };
            let read = read(&*file);
            if file.summary().problems.is_empty() {
                assert_eq!(counts, read, "{} at {grain}", path.display());
                told_of += 1;
            }
        }
    }
    assert!(told_of > 20, "{told_of}");
}
