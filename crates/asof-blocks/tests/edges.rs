//! Sources that misbehave, and consumers that do.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use asof_blocks::{BlockCache, CacheOptions, HeadClass};
use asof_core::{Batch, Batches, Channel, Query, Row, Source, SourceError, Stamp, Summary, Topics};
use bytes::Bytes;
use common::{Recording, Shared, assert_sound, channels, query, read_all, seen_in};

/// Hands its batches out as they are, in whatever order that is, and panics on demand.
struct Careless {
    channels: Arc<[Arc<Channel>]>,
    batches: Vec<Vec<i64>>,
    panics: Arc<AtomicBool>,
}

impl Source for Careless {
    fn summary(&self) -> Arc<Summary> {
        Arc::new(Summary::empty("careless"))
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let channels = Arc::clone(&self.channels);
        let range = query.range;
        let panics = Arc::clone(&self.panics);
        let batches = self.batches.clone();
        Ok(Box::new(batches.into_iter().filter_map(move |times| {
            assert!(!panics.swap(false, Ordering::Relaxed), "a careless source");
            let times = times.iter().filter(|&&time| range.contains(time.into()));
            let rows: Vec<Row> = times
                .map(|&time| Row {
                    log_time: time.into(),
                    publish_time: time.into(),
                    order: time as u64,
                    offset: 0,
                    len: 1,
                    sequence: 0,
                    channel: 0,
                    buffer: 0,
                })
                .collect();
            let batch = Batch::new(Arc::clone(&channels), vec![Bytes::from_static(b"x")], rows);
            (!batch.is_empty()).then_some(Ok(batch))
        })))
    }

    fn latest_at(&self, _: &Topics, _: Stamp) -> Result<Batch, SourceError> {
        Ok(Batch::default())
    }
}

fn careless(batches: &[&[i64]]) -> (BlockCache, Arc<AtomicBool>) {
    let panics = Arc::new(AtomicBool::new(false));
    let source = Careless {
        channels: channels(1),
        batches: batches.iter().map(|batch| batch.to_vec()).collect(),
        panics: Arc::clone(&panics),
    };
    (BlockCache::new(source, CacheOptions::default()), panics)
}

fn times(cache: &BlockCache) -> Vec<i64> {
    let seen = read_all(cache, &query(&[0], 0, 1_000));
    seen.iter().map(|message| message.0).collect()
}

#[test]
fn a_source_out_of_order_loses_nothing_and_is_not_kept() {
    let (cache, _) = careless(&[&[10, 20, 30], &[15, 40], &[50, 60]]);
    for _ in 0..2 {
        let mut seen = times(&cache);
        seen.sort_unstable();
        assert_eq!(seen, [10, 15, 20, 30, 40, 50, 60]);
        assert_sound(&cache);
    }
    assert!(cache.stats().disorders > 0);
    assert!(
        cache.block_at("/t0", 15.into()).is_none(),
        "what may be incomplete is not kept"
    );
}

#[test]
fn a_panic_in_the_source_releases_everything_and_the_next_read_is_right() {
    let (cache, panics) = careless(&[&[10, 20], &[30, 40]]);
    let mut reader = cache.read_as(&query(&[0], 0, 1_000), HeadClass::Playback);
    assert!(reader.next().is_some());
    panics.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| reader.next())).is_err());
    drop(reader);
    assert_sound(&cache);
    assert_eq!(times(&cache), [10, 20, 30, 40]);
    assert_sound(&cache);
}

#[test]
fn a_panic_in_a_consumer_releases_what_its_reader_had_reserved() {
    let recording = Recording::regular(2, 100, 100);
    let cache = BlockCache::new(
        Shared(Arc::clone(&recording)),
        CacheOptions::with_budget(30_000),
    );
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        for batch in cache.read_as(&Query::all(), HeadClass::Playback) {
            assert!(
                batch.expect("reads").range().end < 300.into(),
                "a consumer's own"
            );
        }
    }));
    assert!(outcome.is_err());
    assert_sound(&cache);
    assert_eq!(
        read_all(&cache, &Query::all()),
        recording.naive(&Query::all())
    );
    cache.clear();
    assert_eq!(cache.stats().accounted, 0);
}

#[test]
fn a_small_message_does_not_keep_the_sources_buffer_alive() {
    let recording = Recording::regular(10, 50, 100);
    let cache = BlockCache::new(Shared(Arc::clone(&recording)), CacheOptions::default());
    // One topic of ten: the source's batches hold nothing else, but their buffers are larger.
    read_all(&cache, &query(&[3], 0, 1_000));
    let batch = cache.last_n("/t3", 1_000.into(), 5).expect("answers");
    assert_eq!(seen_in(&batch).len(), 5);
    let kept: usize = batch.buffers().iter().map(Bytes::len).sum();
    assert!(kept <= 50 * 100, "{kept}");
}
