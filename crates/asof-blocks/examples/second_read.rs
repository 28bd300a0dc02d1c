//! Reads a recording twice through a cache and shows the cost of the second read.
//!
//! `cargo run --release -p asof-blocks --example second_read -- recording.mcap`

use std::time::Instant;

use asof_blocks::{BlockCache, CacheOptions};
use asof_core::{Query, Source, Topics};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(path) = std::env::args().nth(1) else {
        return Err("usage: second_read RECORDING".into());
    };
    let cache = BlockCache::new(asof_formats::open(path)?, CacheOptions::default());
    for turn in ["first", "second"] {
        let start = Instant::now();
        let mut messages = 0;
        for batch in cache.read(&Query::all())? {
            messages += batch?.len();
        }
        println!(
            "{turn} read: {messages} messages in {:.1?}",
            start.elapsed()
        );
    }
    let middle = cache.summary().range;
    let middle = middle.start.plus_nanos(middle.duration_nanos() / 2);
    let start = Instant::now();
    let known = cache.latest_at(&Topics::All, middle)?;
    println!(
        "as of {middle}: {} topics known, found in {:.1?}",
        known.len(),
        start.elapsed()
    );
    let statistics = cache.stats();
    println!(
        "{} blocks, {} of {} bytes, {} hits, {} misses, {} reads of the source",
        statistics.blocks,
        statistics.accounted,
        statistics.budget,
        statistics.hits,
        statistics.misses,
        statistics.source_reads
    );
    Ok(())
}
