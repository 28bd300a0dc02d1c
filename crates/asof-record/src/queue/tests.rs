//! What the queue keeps, drops and counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::{Channel, Message, Stamp};
use asof_formats::McapWriteError;
use asof_live::Sample;
use bytes::Bytes;
use parking_lot::Mutex;

use super::Queue;
use crate::options::{Priorities, RecordOptions};
use crate::sink::{Receipt, Sink, Tags};

fn queue(limit: u64) -> Queue {
    let important = |topic: &str| match topic {
        "/odom" => 10,
        "/image" => -10,
        _ => 0,
    };
    Queue::new(&RecordOptions {
        queue_bytes: limit,
        priorities: Priorities::new(important),
        ..RecordOptions::default()
    })
}

fn sample(topic: &str, size: usize) -> Sample {
    let channel = Channel {
        topic: topic.to_owned(),
        ..Channel::default()
    };
    Sample::new(Arc::new(channel), Bytes::from(vec![0; size]))
}

fn push(queue: &Queue, sample: Sample) {
    queue.push(&Arc::from(""), sample);
}

fn dropped(queue: &Queue) -> BTreeMap<String, u64> {
    let (topics, _) = queue.report();
    let topics = topics.into_iter();
    topics
        .map(|(topic, report)| (topic, report.dropped))
        .collect()
}

fn waiting(queue: &Queue) -> Vec<String> {
    let state = queue.state.lock();
    let samples = state.samples.iter();
    samples
        .map(|one| one.sample.channel.topic.clone())
        .collect()
}

#[test]
fn what_is_least_important_is_dropped_first_and_the_oldest_of_it() {
    let queue = queue(100_000);
    for _ in 0..4 {
        for topic in ["/image", "/scan", "/odom"] {
            push(&queue, sample(topic, 8_000));
        }
    }
    assert!(dropped(&queue).is_empty(), "there was room");
    push(&queue, sample("/odom", 20_000));
    let lost = dropped(&queue);
    assert_eq!(lost.keys().collect::<Vec<_>>(), ["/image"], "{lost:?}");
    let left = waiting(&queue);
    assert_eq!(left.iter().filter(|topic| *topic == "/odom").count(), 5);
    assert_eq!(left.last().map(String::as_str), Some("/odom"), "in order");
    // Nothing is less important than a picture.
    let before = lost["/image"];
    push(&queue, sample("/image", 90_000));
    assert_eq!(dropped(&queue)["/image"], before + 1);
}

#[test]
fn among_equals_what_comes_is_dropped() {
    let queue = queue(50_000);
    for _ in 0..10 {
        push(&queue, sample("/scan", 10_000));
    }
    let left = waiting(&queue).len() as u64;
    assert_eq!(dropped(&queue)["/scan"], 10 - left);
    assert!(left >= 4, "{left}");
}

#[test]
fn the_bytes_that_wait_never_exceed_the_limit_and_nothing_goes_uncounted() {
    let queue = queue(200_000);
    let mut pushed = 0;
    for number in 0..2_000_usize {
        let topic = ["/odom", "/scan", "/image"][number % 3];
        push(&queue, sample(topic, number * 37 % 20_000));
        pushed += 1;
        assert!(queue.report().1 <= 200_000);
    }
    let lost: u64 = dropped(&queue).values().sum();
    assert_eq!(lost + waiting(&queue).len() as u64, pushed);
    let state = queue.state.lock();
    let weights: u64 = state.samples.iter().map(|one| one.weight).sum();
    assert_eq!(state.bytes, weights);
    assert_eq!(state.by_priority.values().sum::<u64>(), weights);
}

#[test]
fn with_a_clock_of_the_robot_messages_are_logged_by_it_and_none_before_it_is_heard() {
    let queue = Queue::new(&RecordOptions {
        sim_time: true,
        ..RecordOptions::default()
    });
    push(&queue, sample("/scan", 10));
    // It comes once, and at once.
    push(&queue, sample("/tf_static", 10));
    queue.set_clock(5_000.into());
    push(&queue, sample("/scan", 10));
    let state = queue.state.lock();
    assert_eq!(state.topics["/scan"].early, 1);
    let waiting = state.samples.iter().map(|one| &one.sample);
    let waiting: Vec<_> = waiting
        .map(|sample| (sample.channel.topic.as_str(), sample.received.nanos()))
        .collect();
    assert_eq!(waiting, [("/tf_static", 5_000), ("/scan", 5_000)]);
}

#[test]
fn what_waited_for_a_clock_that_never_came_is_counted() {
    let queue = Queue::new(&RecordOptions {
        sim_time: true,
        ..RecordOptions::default()
    });
    push(&queue, sample("/tf_static", 10));
    queue.close();
    assert_eq!(queue.report().0["/tf_static"].early, 1);
}

/// Records the times that it receives.
struct TimesSink(Arc<Mutex<Vec<i64>>>);

impl Sink for TimesSink {
    fn write(&mut self, message: &Message, _: &Receipt) -> Result<(), McapWriteError> {
        self.0.lock().push(message.log_time.nanos());
        Ok(())
    }
    fn note(&mut self, _: &str, _: &Tags) -> Result<(), McapWriteError> {
        Ok(())
    }
    fn trigger(&mut self, _: &str, now: Stamp, _: Stamp) -> Result<(), McapWriteError> {
        self.0.lock().push(now.nanos());
        Ok(())
    }
    fn tick(&mut self, now: Stamp, _: Stamp) -> Result<(), McapWriteError> {
        self.0.lock().push(now.nanos());
        Ok(())
    }
    fn flush(&mut self) -> Result<(), McapWriteError> {
        Ok(())
    }
    fn finish(self: Box<Self>) -> Result<(), McapWriteError> {
        Ok(())
    }
}

#[test]
fn a_publisher_whose_clock_is_before_1970_is_recorded_by_the_time_of_receipt() {
    let queue = queue(100_000);
    for source in [Stamp::MIN, (-1).into(), Stamp::MAX, 7.into()] {
        let mut one = sample("/scan", 10);
        one.source = Some(source);
        push(&queue, one);
    }
    queue.close();
    let file = std::io::Cursor::new(Vec::new());
    let writer = asof_formats::McapWriter::new(file, asof_formats::McapWriterOptions::default());
    queue
        .write_all(Box::new(writer.expect("a writer")))
        .expect("written");
    let report = queue.report().0["/scan"];
    assert_eq!((report.written, report.refused, report.mistimed), (4, 0, 2));
}

#[test]
fn snapshots_and_chunks_go_by_the_clock_that_messages_are_logged_by() {
    let queue = Queue::new(&RecordOptions {
        sim_time: true,
        ..RecordOptions::default()
    });
    queue.set_clock(5_000.into());
    push(&queue, sample("/scan", 10));
    queue.trigger("the enter key");
    queue.close();
    let told = Arc::<Mutex<Vec<i64>>>::default();
    queue
        .write_all(Box::new(TimesSink(Arc::clone(&told))))
        .expect("written");
    let told = told.lock();
    assert!(told.len() >= 3, "{told:?}");
    assert!(told.iter().all(|time| *time == 5_000), "{told:?}");
}

#[test]
fn a_latched_topic_is_the_last_that_is_dropped() {
    let queue = queue(60_000);
    for _ in 0..7 {
        push(&queue, sample("/odom", 8_000));
    }
    push(&queue, sample("/tf_static", 8_000));
    assert!(waiting(&queue).contains(&"/tf_static".to_owned()));
    assert_eq!(dropped(&queue).keys().collect::<Vec<_>>(), ["/odom"]);
}

/// A file in memory that is looked at while it is written.
#[derive(Clone, Default)]
struct MemoryFile(Arc<Mutex<std::io::Cursor<Vec<u8>>>>);

impl crate::RecordOutput for MemoryFile {}

impl std::io::Write for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl std::io::Seek for MemoryFile {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.0.lock().seek(to)
    }
}

#[test]
fn messages_reach_the_file_within_a_moment_though_the_clock_was_set_back() {
    let queue = Arc::new(queue(1 << 20));
    let file = MemoryFile::default();
    let options = asof_formats::McapWriterOptions {
        chunk_age: None,
        ..RecordOptions::default().writer
    };
    let writer = asof_formats::McapWriter::new(file.clone(), options).expect("a writer");
    let source = Arc::clone(&queue);
    let thread = std::thread::spawn(move || source.write_all(Box::new(writer)));
    // An hour back between the two.
    for hours in [2, 1] {
        let mut one = sample("/scan", 10);
        one.received = (hours * 3_600_000_000_000).into();
        push(&queue, one);
    }
    let written = || {
        let bytes = file.0.lock().get_ref().clone();
        let found = asof_formats::McapFile::from_bytes("memory", bytes);
        found
            .ok()
            .and_then(|file| asof_core::Source::summary(&file).messages)
    };
    let deadline = Instant::now() + Duration::from_mins(1);
    while written() != Some(2) {
        assert!(Instant::now() < deadline, "{:?} written", written());
        std::thread::yield_now();
    }
    queue.close();
    thread.join().expect("ended").expect("written");
}

#[test]
fn messages_that_never_came_are_counted_by_publisher() {
    let queue = queue(1 << 20);
    for (publisher, sequence) in [(1, 1), (2, 9), (1, 2), (1, 5), (2, 10)] {
        let mut one = sample("/scan", 10);
        one.publisher = Some([publisher; 16]);
        one.sequence = Some(sequence);
        push(&queue, one);
    }
    assert_eq!(queue.report().0["/scan"].lost, 2);
}

#[test]
fn a_clock_that_is_off_by_hours_is_in_the_report() {
    let queue = queue(1 << 20);
    for hours in [2, 2, 0] {
        let mut one = sample("/scan", 10);
        one.source = Some(one.received.plus_nanos(hours * 3_600_000_000_000));
        push(&queue, one);
    }
    let stamps = queue.report().0["/scan"].stamps;
    assert_eq!((stamps.off, stamps.jumps), (2, 1), "{stamps}");
}

/// A disk that is full after some messages.
struct FullDisk(u64);

impl Sink for FullDisk {
    fn write(&mut self, _: &Message, _: &Receipt) -> Result<(), McapWriteError> {
        self.0 = self.0.checked_sub(1).ok_or(std::io::Error::other("full"))?;
        Ok(())
    }
    fn note(&mut self, _: &str, _: &Tags) -> Result<(), McapWriteError> {
        Ok(())
    }
    fn flush(&mut self) -> Result<(), McapWriteError> {
        Ok(())
    }
    fn finish(self: Box<Self>) -> Result<(), McapWriteError> {
        Ok(())
    }
}

#[test]
fn what_is_dropped_after_a_disk_error_is_counted() {
    let queue = queue(100_000);
    for _ in 0..10 {
        push(&queue, sample("/scan", 10));
    }
    assert!(queue.write_all(Box::new(FullDisk(4))).is_err());
    push(&queue, sample("/scan", 10));
    let (topics, waiting) = queue.report();
    assert_eq!((topics["/scan"].written, topics["/scan"].dropped), (4, 7));
    assert_eq!(waiting, 0);
}

/// A file on a disk that has room for so many bytes.
struct SmallDisk(std::io::Cursor<Vec<u8>>, usize);

impl crate::RecordOutput for SmallDisk {}

impl std::io::Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.get_ref().len() + bytes.len() > self.1 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl std::io::Seek for SmallDisk {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn a_chunk_that_a_full_disk_refuses_is_counted_as_dropped() {
    // The last chunk is refused when it is full, or when the recording ends.
    for chunk_size in [2_000, 1 << 20] {
        let queue = queue(1 << 20);
        for number in 0..100 {
            push(&queue, sample(["/scan", "/odom"][number % 2], 100));
        }
        let options = asof_formats::McapWriterOptions {
            compression: asof_formats::Compression::None,
            chunk_size,
            chunk_age: None,
            ..Default::default()
        };
        let disk = SmallDisk(std::io::Cursor::default(), 9_000);
        let writer = asof_formats::McapWriter::new(disk, options).expect("a writer");
        queue.close();
        assert!(queue.write_all(Box::new(writer)).is_err());
        let (topics, _) = queue.report();
        let of = |count: fn(&crate::TopicReport) -> u64| -> Vec<u64> {
            topics.values().map(count).collect()
        };
        let (written, dropped) = (of(|one| one.written), of(|one| one.dropped));
        assert_eq!((written[0] + dropped[0], written[1] + dropped[1]), (50, 50));
        if chunk_size == 2_000 {
            // Chunks of sixteen messages.
            assert_eq!(written.iter().sum::<u64>() % 16, 0, "{written:?}");
            assert!(written[0] > 0);
        } else {
            assert_eq!(written, [0, 0]);
        }
    }
}

#[test]
fn a_robots_clock_that_was_set_is_no_time_that_has_passed() {
    let clock = super::clock::RobotClock::new();
    let year = 31_536_000_000_000_000_i64;
    // Two clocks on one topic.
    for second in 0..1_000 {
        clock.set((second * 1_000_000_000).into());
        clock.set((50 * year).into());
        clock.set(i64::MAX.into());
    }
    assert_eq!(clock.advanced(), 0.into());
    for second in 0..10 {
        clock.set((year + second * 1_000_000_000).into());
    }
    assert_eq!(clock.advanced(), 9_000_000_000.into());
}

#[test]
fn with_a_clock_of_the_robot_what_was_sent_just_now_is_no_wrong_stamp() {
    let queue = Queue::new(&RecordOptions {
        sim_time: true,
        ..RecordOptions::default()
    });
    queue.set_clock(100_000_000_000.into());
    let mut one = sample("/scan", 10);
    one.source = Some(one.received.plus_nanos(-5));
    push(&queue, one);
    let state = queue.state.lock();
    let sent = state.samples[0].sample.source;
    assert_eq!(sent, Some(99_999_999_995.into()));
    assert!(!state.topics.contains_key("/scan"), "nothing is wrong");
}
