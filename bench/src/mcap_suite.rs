//! Suite `mcap`: reading MCAP, beside the `mcap` crate.
//!
//! The peer `mcap` is the crate's `MessageStream`, which is what most programs use; `mcap_indexed` is its sans-io
//! indexed reader, which can also push topics and times down.

use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use asof_core::{Query, Source, Stamp, Topics};
use asof_formats::{Compression, MappedFile, McapFile, McapWriter, McapWriterOptions, OpenOptions};
use mcap::sans_io::{IndexedReadEvent, IndexedReader, IndexedReaderOptions};

use crate::harness::{Bench, Contender, contender};

pub fn run(bench: &mut Bench) {
    let files = Files::prepare();
    iterate_all(bench, "iterate_all_small", &files.small, default_threads());
    iterate_all(bench, "iterate_all_small_one_thread", &files.small, 1);
    iterate_all(bench, "iterate_all_large", &files.large, default_threads());
    one_topic(bench, &files.small);
    five_percent(bench, &files.small);
    latest_at(bench, &files.both);
    open_summary(bench, &files.small);
    peak_memory(bench, &files.both);
}

/// Recordings that the generator makes, kept between runs.
pub struct Files {
    /// 200 MB of small messages in zstd.
    pub small: PathBuf,
    /// 300 MB of pictures and clouds in lz4.
    pub large: PathBuf,
    /// 500 MB: both, one after the other, in lz4.
    both: PathBuf,
}

impl Files {
    pub fn prepare() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/data");
        std::fs::create_dir_all(&folder).expect("a folder for recordings");
        let small = || asof_demo::small_messages(7, 700 << 20);
        let large = || asof_demo::large_messages(7, 460 << 20);
        let zstd = (Compression::Zstd, 768 << 10);
        let lz4 = (Compression::Lz4, 4 << 20);
        Files {
            small: make(&folder.join("small-zstd-3.mcap"), zstd, small),
            large: make(&folder.join("large-lz4-2.mcap"), lz4, large),
            both: make(&folder.join("both-lz4-3.mcap"), lz4, || {
                let few = asof_demo::small_messages(9, 350 << 20);
                few.chain(asof_demo::large_messages(9, 580 << 20))
            }),
        }
    }
}

fn make<I: Iterator<Item = asof_core::Message>>(
    path: &Path,
    (compression, chunk_size): (Compression, u64),
    messages: impl Fn() -> I,
) -> PathBuf {
    if !path.exists() {
        eprintln!("making {}", path.display());
        let part = path.with_extension("part");
        let options = McapWriterOptions {
            compression,
            chunk_size,
            chunk_age: None,
            ..McapWriterOptions::default()
        };
        let mut writer = McapWriter::create(&part, options).expect("a new file");
        for message in messages() {
            writer.write(&message).expect("room on the disk");
        }
        writer.finish().expect("room on the disk");
        std::fs::rename(&part, path).expect("a rename");
    }
    eprintln!(
        "{}: {} MB",
        path.display(),
        std::fs::metadata(path).expect("a file").len() >> 20
    );
    path.to_owned()
}

fn default_threads() -> usize {
    OpenOptions::default().threads
}

/// A mapped file, read by so many threads.
pub fn open(path: &Path, threads: usize) -> McapFile {
    let mapped = MappedFile::open(path).expect("a file");
    McapFile::from_storage(
        Box::new(mapped),
        &OpenOptions {
            threads,
            ..OpenOptions::default()
        },
    )
    .expect("an MCAP file")
}

fn map(path: &Path) -> memmap2::Mmap {
    let file = File::open(path).expect("a file");
    // SAFETY: the file is not written while the benchmark runs.
    unsafe { memmap2::Mmap::map(&file) }.expect("a map")
}

/// Milliseconds of wall time.
pub fn wall<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    black_box(work());
    start.elapsed().as_secs_f64() * 1e3
}

/// Looks at each message: its length, and a byte of it.
pub fn look(payload: &[u8]) -> u64 {
    payload.len() as u64 + u64::from(payload.first().copied().unwrap_or(0))
}

fn ours(path: &Path, threads: usize, query: &Query) -> u64 {
    let file = open(path, threads);
    let batches = file.read(query).expect("reads");
    batches
        .map(|batch| {
            batch
                .expect("a batch")
                .iter()
                .map(|m| look(m.payload))
                .sum::<u64>()
        })
        .sum()
}

fn stream(path: &Path, is_wanted: impl Fn(&mcap::Message<'_>) -> bool) -> u64 {
    let map = map(path);
    let messages = mcap::MessageStream::new(&map).expect("an MCAP file");
    messages
        .map(|m| m.expect("a message"))
        .filter(|m| is_wanted(m))
        .map(|m| look(&m.data))
        .sum()
}

fn indexed(
    path: &Path,
    options: IndexedReaderOptions,
    mut visit: impl FnMut(u16, &[u8]) -> bool,
) -> u64 {
    let map = map(path);
    let summary = mcap::Summary::read(&map)
        .expect("an MCAP file")
        .expect("a summary");
    let mut reader = IndexedReader::new_with_options(&summary, options).expect("an index");
    let mut sum = 0;
    while let Some(event) = reader.next_event() {
        match event.expect("a readable file") {
            IndexedReadEvent::ReadChunkRequest { offset, length } => {
                let chunk = &map[offset as usize..offset as usize + length];
                reader
                    .insert_chunk_record_data(offset, chunk)
                    .expect("a chunk");
            }
            IndexedReadEvent::Message { header, data } => {
                sum += look(data);
                if !visit(header.channel_id, data) {
                    break;
                }
            }
        }
    }
    sum
}

/// A contender measured in milliseconds; all contenders must return the same answer.
fn answering<'a>(name: &'a str, answer: u64, work: impl Fn() -> u64 + 'a) -> Contender<'a> {
    contender(name, move || {
        wall(|| assert_eq!(work(), answer, "{name} reads something else"))
    })
}

fn iterate_all(bench: &Bench, case: &str, path: &Path, threads: usize) {
    if !bench.wants(case) {
        return;
    }
    let answer = stream(path, |_| true);
    let contenders = vec![
        answering("asof", answer, || ours(path, threads, &Query::all())),
        answering("mcap", answer, || stream(path, |_| true)),
        answering("mcap_indexed", answer, || {
            indexed(path, IndexedReaderOptions::new(), |_, _| true)
        }),
    ];
    bench.case(case, "ms", 7, contenders);
}

fn one_topic(bench: &Bench, path: &Path) {
    const TOPIC: &str = "/odom/wheels";
    if !bench.wants("one_topic_of_ten") {
        return;
    }
    let is_wanted = |m: &mcap::Message<'_>| m.channel.topic == TOPIC;
    let answer = stream(path, is_wanted);
    let contenders = vec![
        answering("asof", answer, || {
            ours(path, default_threads(), &Query::topics([TOPIC]))
        }),
        answering("mcap", answer, || stream(path, is_wanted)),
        answering("mcap_indexed", answer, || {
            indexed(
                path,
                IndexedReaderOptions::new().include_topics([TOPIC]),
                |_, _| true,
            )
        }),
    ];
    bench.case("one_topic_of_ten", "ms", 7, contenders);
}

fn five_percent(bench: &Bench, path: &Path) {
    if !bench.wants("five_percent_of_time") {
        return;
    }
    let range = open(path, 1).summary().range;
    let start = range.start.plus_nanos(range.duration_nanos() / 2);
    let end = start.plus_nanos(range.duration_nanos() / 20);
    let nanos = |stamp: Stamp| stamp.to_unsigned_nanos().expect("after 1970");
    let times = nanos(start)..=nanos(end);
    let is_wanted = |m: &mcap::Message<'_>| times.contains(&m.log_time);
    let answer = stream(path, is_wanted);
    let contenders = vec![
        answering("asof", answer, || {
            ours(path, default_threads(), &Query::all().between(start..=end))
        }),
        answering("mcap", answer, || stream(path, is_wanted)),
        answering("mcap_indexed", answer, || {
            let options = IndexedReaderOptions::new()
                .starting_at(nanos(start))
                .ending_at(nanos(end));
            indexed(path, options, |_, _| true)
        }),
    ];
    bench.case("five_percent_of_time", "ms", 7, contenders);
}

fn latest_at(bench: &Bench, path: &Path) {
    if !bench.wants("backfill_at_end") {
        return;
    }
    let file = open(path, default_threads());
    let (end, topics) = (file.summary().range.end, file.summary().topics().len());
    file.latest_at(&Topics::All, end).expect("reads");
    let counters = file.read_stats().expect("counts");
    eprintln!(
        "backfill of {topics} topics at the end decompresses {} chunks",
        counters.decompressed_chunks
    );
    let answer: u64 = last_messages(path)
        .values()
        .map(|payload| look(payload))
        .sum();
    let contenders = vec![
        answering("asof", answer, || {
            let file = open(path, default_threads());
            let batch = file.latest_at(&Topics::All, end).expect("reads");
            batch.iter().map(|m| look(m.payload)).sum()
        }),
        answering("mcap", answer, || {
            last_messages(path)
                .values()
                .map(|payload| look(payload))
                .sum()
        }),
        answering("mcap_indexed", answer, || {
            let mut seen = BTreeMap::new();
            let options = IndexedReaderOptions::new()
                .with_order(mcap::sans_io::indexed_reader::ReadOrder::ReverseLogTime);
            indexed(path, options, |channel, data| {
                seen.entry(channel).or_insert_with(|| look(data));
                seen.len() < topics
            });
            seen.values().sum()
        }),
    ];
    bench.case("backfill_at_end", "ms", 7, contenders);
}

fn last_messages(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let map = map(path);
    let mut last = BTreeMap::new();
    for message in mcap::MessageStream::new(&map).expect("an MCAP file") {
        let message = message.expect("a message");
        match last.get_mut(&message.channel.topic) {
            Some(known) => *known = message.data.into_owned(),
            None => drop(last.insert(message.channel.topic.clone(), message.data.into_owned())),
        }
    }
    last
}

fn open_summary(bench: &Bench, path: &Path) {
    let contenders = vec![
        contender("asof", || {
            wall(|| {
                let file = McapFile::open(path).expect("an MCAP file");
                file.summary().channels.len()
            }) * 1e3
        }),
        contender("mcap", || {
            wall(|| {
                let map = map(path);
                mcap::Summary::read(&map)
                    .expect("an MCAP file")
                    .expect("a summary")
                    .channels
                    .len()
            }) * 1e3
        }),
    ];
    bench.case("open_summary", "us", 51, contenders);
}

/// The memory that iterating takes besides the mapped file.
fn peak_memory(bench: &Bench, path: &Path) {
    let measure = || {
        let before = anonymous_memory();
        let file = open(path, default_threads());
        let mut peak = before;
        for batch in file.read(&Query::all()).expect("reads") {
            black_box(
                batch
                    .expect("a batch")
                    .iter()
                    .map(|m| look(m.payload))
                    .sum::<u64>(),
            );
            peak = peak.max(anonymous_memory());
        }
        (peak - before) / 1024.0
    };
    bench.case(
        "iterate_500_mb_peak_memory",
        "MB",
        3,
        vec![contender("asof", measure)],
    );
}

/// Kilobytes of this process's memory that belong to no file.
fn anonymous_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0.0)
}
