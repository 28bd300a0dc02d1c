//! A recording of 2 GB with a budget of 200 MB: a thousand seeks.
//!
//! It writes 2 GB to the temporary folder, once, so it runs only when it is asked for by name:
//! `--case 2gb`.

use std::path::PathBuf;
use std::time::Instant;

use asof_blocks::{BlockCache, CacheOptions, HeadClass, HeadOptions};
use asof_core::{Query, Source, Stamp, TimeRange, Topics};
use asof_formats::{Compression, McapFile, McapWriter, McapWriterOptions};

use crate::harness::{Bench, contender};

const FILE_BYTES: u64 = 2_000_000_000;
const BUDGET: u64 = 200_000_000;
const SEEKS: usize = 1000;

pub fn run(bench: &Bench) {
    if !bench
        .only
        .as_deref()
        .is_some_and(|only| only.contains("2gb"))
    {
        return;
    }
    let path = recording();
    let file = McapFile::open(&path).expect("the recording opens");
    let cache = BlockCache::new(file, CacheOptions::with_budget(BUDGET));
    let range = cache.summary().range;
    let head = cache.head(
        &Topics::All,
        HeadOptions {
            class: HeadClass::Playback,
            ..HeadOptions::default()
        },
    );
    let mut dice = super::dice(21);
    let mut latencies = Vec::new();
    let mut resident = 0;
    for _ in 0..SEEKS {
        let at = range.start.plus_nanos(dice(range.duration_nanos()));
        let start = Instant::now();
        let known = cache.latest_at(&Topics::All, at).expect("answers");
        let next = Stamp::from_nanos(at.nanos() + 1);
        let query = Query::all().between(TimeRange::new(next, at.plus_nanos(100_000_000)));
        super::drain(head.read(&query));
        latencies.push(start.elapsed().as_micros() as f64);
        resident = resident.max(resident_bytes());
        drop(known);
        assert!(cache.audit().is_sound());
    }
    latencies.sort_by(f64::total_cmp);
    let at = |part: f64| latencies[((SEEKS - 1) as f64 * part) as usize];
    bench.case(
        "seek_2gb_200mb_p50",
        "us",
        1,
        vec![contender("asof", || at(0.5))],
    );
    bench.case(
        "seek_2gb_200mb_p99",
        "us",
        1,
        vec![contender("asof", || at(0.99))],
    );
    let megabytes = resident as f64 / 1e6;
    bench.case(
        "seek_2gb_200mb_resident",
        "MB",
        1,
        vec![contender("asof", || megabytes)],
    );
    let statistics = cache.stats();
    eprintln!(
        "{} hits, {} misses, {} evictions, {} passed through, peak {} bytes",
        statistics.hits,
        statistics.misses,
        statistics.evictions,
        statistics.passed_through,
        statistics.peak
    );
}

/// The recording, written if it is not there yet: pictures and clouds, with small messages among them.
fn recording() -> PathBuf {
    let path = std::env::temp_dir().join("asof-bench-2gb.mcap");
    if std::fs::metadata(&path).is_ok_and(|file| file.len() >= FILE_BYTES) {
        return path;
    }
    eprintln!("writing {}", path.display());
    let unfinished = path.with_extension("unfinished");
    let options = McapWriterOptions {
        compression: Compression::None,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(&unfinished, options).expect("the temporary folder");
    let mut small = asof_demo::small_messages(2, FILE_BYTES).peekable();
    for large in asof_demo::large_messages(1, FILE_BYTES) {
        while let Some(message) = small.next_if(|small| small.log_time <= large.log_time) {
            writer.write(&message).expect("writes");
        }
        writer.write(&large).expect("writes");
    }
    writer.finish().expect("finishes");
    std::fs::rename(&unfinished, &path).expect("renames");
    path
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
