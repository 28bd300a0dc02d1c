//! How many messages lie where, told without reading any.

mod common;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asof_core::{Channel, Index, Query, Source, Stamp, TimeRange};
use asof_formats::{MappedFile, McapFile, Merged, OpenOptions, Storage};
use bytes::Bytes;

const SECOND: u64 = 1_000_000_000;

/// Messages by topic.
fn told(source: &dyn Source, grain: u64) -> Option<BTreeMap<String, u64>> {
    let portions = source.outline(TimeRange::ALL, grain).expect("readable")?;
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
    assert_eq!(file.read_stats().expect("counts").chunks, 0);
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
    let portions = file.outline(TimeRange::ALL, SECOND / 10).expect("readable");
    for portion in portions.expect("an index") {
        let long = portion.range.duration_nanos().unsigned_abs();
        assert!(long <= SECOND / 10, "{portion:?}");
    }
}

/// When the messages of a topic were logged, by reading them.
fn logged(source: &dyn Source, topic: &str, range: TimeRange) -> Vec<Stamp> {
    let query = Query::topics([topic]).between(range);
    let messages = common::messages(source, &query);
    messages.iter().map(|message| message.log_time).collect()
}

/// All of the time, its middle, an instant of it, and none of it.
fn ranges(whole: TimeRange) -> [TimeRange; 4] {
    let third = whole.duration_nanos() / 3;
    let (start, end) = (whole.start.plus_nanos(third), whole.end.plus_nanos(-third));
    let after = whole.end.plus_nanos(1);
    [
        TimeRange::ALL,
        TimeRange::new(start, end),
        TimeRange::new(whole.end, whole.end),
        TimeRange::new(after, after),
    ]
}

#[test]
fn log_times_come_from_the_indexes_and_open_no_chunk() {
    let bytes = common::demo_file(3.0, common::small_chunks());
    let file = McapFile::from_bytes("demo.mcap", bytes).expect("opens");
    let other = McapFile::from_bytes("again", common::demo_file(3.0, common::small_chunks()));
    let other = other.expect("opens");
    for range in ranges(file.summary().range) {
        for topic in ["/odom", "/tf", "/map", "/nothing"] {
            let told = file.log_times(topic, range).expect("readable");
            assert_eq!(file.read_stats().expect("counts").chunks, 0);
            let wanted = logged(&other, topic, range);
            assert_eq!(told, Some(wanted), "{topic} in {range:?}");
        }
    }
}

/// A file that counts the bytes that are read of it.
struct CountedReads {
    storage: MappedFile,
    bytes: Arc<AtomicU64>,
}

impl Storage for CountedReads {
    fn name(&self) -> &str {
        self.storage.name()
    }

    fn size(&self) -> u64 {
        self.storage.size()
    }

    fn fetch(&self, offset: u64, len: u64) -> io::Result<Bytes> {
        self.bytes.fetch_add(len, Ordering::Relaxed);
        self.storage.fetch(offset, len)
    }
}

/// Two recordings that overlap, as one.
fn two() -> Merged {
    let part = |seconds: f64| -> Box<dyn Source> {
        let bytes = common::demo_file(seconds, common::small_chunks());
        Box::new(McapFile::from_bytes("part.mcap", bytes).expect("opens"))
    };
    Merged::new(vec![
        ("one".to_owned(), part(3.0)),
        ("two".to_owned(), part(1.0)),
    ])
}

#[test]
fn several_as_one_are_counted_by_their_indexes_and_open_no_chunk() {
    let (all, other) = (two(), two());
    let whole = all.summary().range;
    for range in ranges(whole) {
        for topic in ["/odom", "/tf", "/map", "/nothing"] {
            let told = all.log_times(topic, range).expect("readable");
            let wanted = logged(&other, topic, range);
            assert_eq!(told, Some(wanted), "{topic} in {range:?}");
        }
    }
    let wanted = read(&other);
    assert_eq!(told(&all, SECOND / 10), Some(wanted));
    let sections = all.sections();
    assert!(sections.len() > 2);
    let channels = &all.summary().channels;
    let is_known = |one: &Arc<Channel>| channels.iter().any(|c| Arc::ptr_eq(&c.channel, one));
    let named = sections
        .iter()
        .filter_map(|section| section.channels.as_ref());
    assert!(named.flatten().all(is_known), "the channels of all parts");
    assert_eq!(all.read_stats().expect("counts").chunks, 0);
    assert!(other.read_stats().expect("counts").chunks > 0);
}

#[test]
fn bytes_of_several_are_the_sum_of_all_that_have_the_channel() {
    let bytes = |source: &dyn Source| -> BTreeMap<String, u64> {
        let known = source.payload_estimates().expect("indexes");
        let count = known.len();
        let named = known
            .into_iter()
            .map(|(channel, bytes)| (channel.topic.clone(), bytes));
        let named: BTreeMap<_, _> = named.collect();
        assert_eq!(named.len(), count, "each channel once");
        named
    };
    let part = || -> Box<dyn Source> {
        let file = common::demo_file(2.0, common::small_chunks());
        Box::new(McapFile::from_bytes("part.mcap", file).expect("opens"))
    };
    let one = bytes(&*part());
    assert!(!one.is_empty());
    let both = ["one", "two"].map(|name| (name.to_owned(), part()));
    let twice = bytes(&Merged::new(both.into()));
    let doubled: BTreeMap<_, _> = one
        .into_iter()
        .map(|(topic, bytes)| (topic, 2 * bytes))
        .collect();
    assert_eq!(twice, doubled);
}

#[test]
fn an_outline_of_a_narrow_range_reads_the_indexes_of_that_range_alone() {
    let bytes = common::demo_file(3.0, common::small_chunks());
    let storage = CountedReads {
        storage: MappedFile::from_bytes("demo.mcap", bytes.into()),
        bytes: Arc::default(),
    };
    let read = Arc::clone(&storage.bytes);
    let file = McapFile::from_storage(Box::new(storage), &OpenOptions::default()).expect("opens");
    let whole = file.summary().range;
    let costs = [
        whole,
        TimeRange::new(whole.start, whole.start.plus_nanos(1_000_000)),
    ]
    .map(|range| {
        let before = read.load(Ordering::Relaxed);
        let portions = file.outline(range, 1).expect("readable").expect("an index");
        assert!(portions.iter().all(|one| one.range.overlaps(range)));
        read.load(Ordering::Relaxed) - before
    });
    let [all, some] = costs;
    assert!(some * 10 < all, "{some} of {all} bytes");
}

#[test]
fn indexes_that_do_not_add_up_tell_no_log_times() {
    let mut bytes = common::demo_file(3.0, common::small_chunks());
    let count = {
        let file = McapFile::from_bytes("demo.mcap", bytes.clone()).expect("opens");
        let summary = file.summary();
        let mut odom = summary.channels.iter();
        let odom = odom.find(|entry| entry.channel.topic == "/odom");
        odom.and_then(|entry| entry.messages).expect("counted")
    };
    // The statistics count one more message on the channel than the indexes have.
    let from = bytes.len() - 20_000.min(bytes.len());
    let places = bytes[from..].windows(8);
    let is_count = |word: &[u8]| word == count.to_le_bytes();
    let found: Vec<usize> = (places.enumerate())
        .filter_map(|(place, word)| is_count(word).then_some(from + place))
        .collect();
    assert!(!found.is_empty(), "the summary counts messages by channel");
    for place in found {
        bytes[place] += 1;
    }
    let file = McapFile::from_bytes("demo.mcap", bytes).expect("opens");
    let told = file.log_times("/odom", TimeRange::ALL).expect("readable");
    assert_eq!(told, None);
}

/// The small recordings of the data folder with one of these endings, as far as they open; nothing without that folder.
fn real_recordings(endings: &[&str]) -> Option<Vec<(PathBuf, Box<dyn Source>)>> {
    let mut files = Vec::new();
    common::files_below(&common::test_data()?.join("recordings"), &mut files);
    let is_meant = |path: &PathBuf| {
        let size = std::fs::metadata(path).map_or(0, |found| found.len());
        let ending = path.extension();
        ending.is_some_and(|ending| endings.iter().any(|one| ending == *one)) && size <= 4 << 20
    };
    let files = files.into_iter().filter(is_meant);
    let opened = files.filter_map(|path| asof_formats::open(&path).ok().map(|file| (path, file)));
    Some(opened.collect())
}

#[test]
fn real_recordings_have_the_log_times_that_are_read() {
    let Some(recordings) = real_recordings(&["mcap"]) else {
        return;
    };
    let mut told_of = 0;
    for (path, file) in recordings {
        for entry in &file.summary().channels {
            let topic = &entry.channel.topic;
            for range in ranges(file.summary().range) {
                if let Some(told) = file.log_times(topic, range).expect("readable") {
                    let wanted = logged(&*file, topic, range);
                    assert_eq!(told, wanted, "{}: {topic}", path.display());
                    told_of += 1;
                }
            }
        }
    }
    assert!(told_of > 20, "{told_of}");
}

#[test]
fn real_recordings_are_told_as_they_are_read() {
    let Some(recordings) = real_recordings(&["mcap", "bag"]) else {
        return;
    };
    let mut told_of = 0;
    for (path, file) in recordings {
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
