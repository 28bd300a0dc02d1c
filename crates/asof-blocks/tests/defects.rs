//! Seven ways in which an earlier cache of this kind went wrong, each with the right answer.

mod common;

use std::sync::Arc;

use asof_blocks::{BlockCache, CacheOptions, HeadClass, HeadOptions};
use asof_core::{Query, Source, Stamp, TimeRange, Topics};
use common::{Lists, Recording, Said, Shared, assert_sound, named, query, read_all, seen_in};

fn cache(recording: &Arc<Recording>, budget: u64, block_bytes: u64) -> BlockCache {
    let options = CacheOptions {
        budget,
        block_bytes,
        ..CacheOptions::default()
    };
    BlockCache::new(Shared(Arc::clone(recording)), options)
}

#[test]
fn abandoned_reads_do_not_make_the_accounts_drift() {
    let recording = Recording::regular(2, 400, 1_000);
    let cache = cache(&recording, 100_000, 10_000);
    for seek in 0..200 {
        let start = seek * 37 % 3_900;
        let mut reader = cache.read_as(&query(&[0, 1], start, 4_000), HeadClass::Playback);
        assert!(reader.next().is_some());
        drop(reader);
        assert_sound(&cache);
    }
    let before = cache.stats().accounted;
    cache.clear();
    assert!(before > 0);
    assert_eq!(cache.stats().accounted, 0);
}

#[test]
fn the_budget_holds_however_much_a_reader_wants_at_once() {
    let recording = Recording::regular(3, 300, 2_000);
    let cache = cache(&recording, 50_000, 20_000);
    let everything = Query::all();
    let mut seen = Vec::new();
    for batch in cache.read_as(&everything, HeadClass::Playback) {
        seen.extend(seen_in(&batch.expect("reads")));
        assert_sound(&cache);
    }
    assert_eq!(seen, recording.naive(&everything));
    assert!(cache.stats().peak <= 50_000);
}

#[test]
fn latest_at_after_an_abandoned_read_is_not_stale() {
    let second = 1_000_000_000;
    let said: Vec<Said> = (1..=5)
        .map(|at| Said {
            topic: 0,
            time: at * second,
            payload: vec![at as u8].into(),
        })
        .collect();
    let recording = Recording::new(1, 1, &said);
    let cache = cache(&recording, 1_000_000, 1);
    // Stops right when the message at two seconds has been read, and no further one.
    let mut reader = cache.read_as(&query(&[0], 0, 5 * second), HeadClass::Playback);
    assert!(reader.next().is_some());
    drop(reader);
    for at in [second, 2 * second, 3 * second] {
        let answer = cache.latest_at(&named(&[0]), at.into()).expect("answers");
        assert_eq!(
            seen_in(&answer),
            recording.naive_latest(&named(&[0]), at.into())
        );
    }
}

#[test]
fn two_readers_at_once_share_reads_and_never_overlap() {
    let recording = Recording::regular(2, 500, 100);
    let cache = cache(&recording, 10_000_000, 5_000);
    recording.watcher.set(cache.clone()).expect("set once");
    let everything = Query::all();
    let mut readers = [
        cache.read_as(&everything, HeadClass::Playback),
        cache.read_as(&everything, HeadClass::Scrub),
    ];
    let mut seen = [Vec::new(), Vec::new()];
    let mut is_open = true;
    while is_open {
        is_open = false;
        for (reader, seen) in readers.iter_mut().zip(&mut seen) {
            if let Some(batch) = reader.next() {
                seen.extend(seen_in(&batch.expect("reads")));
                is_open = true;
            }
        }
    }
    drop(readers);
    assert_eq!(seen[0], recording.naive(&everything));
    assert_eq!(seen[1], seen[0]);
    assert_eq!(
        recording.reads(),
        1,
        "the second reader shares the first one's read"
    );
    assert_eq!(recording.delivered(), 1000);
    let ranges = cache.loaded(&Topics::All).ranges;
    assert_eq!(ranges, [TimeRange::ALL]);
    assert!(recording.violations.lock().expect("violations").is_empty());
    assert_sound(&cache);
}

#[test]
fn one_large_message_evicts_as_many_small_ones_as_it_takes() {
    let mut said: Vec<Said> = (0..10)
        .map(|at| Said {
            topic: 0,
            time: at,
            payload: vec![1; 1_000].into(),
        })
        .collect();
    said.push(Said {
        topic: 0,
        time: 100,
        payload: vec![2; 9_500].into(),
    });
    let recording = Recording::new(1, 1, &said);
    let cache = cache(&recording, 16_000, 1_000);
    assert_eq!(read_all(&cache, &query(&[0], 0, 50)).len(), 10);
    assert_eq!(cache.stats().evictions, 0);
    // The reader's own block is being written all the while: nothing may trip over it.
    assert_eq!(read_all(&cache, &query(&[0], 99, 200)).len(), 1);
    assert!(cache.stats().evictions >= 4, "{:?}", cache.stats());
    assert_eq!(cache.stats().passed_through, 0);
    assert_sound(&cache);
    let reads = recording.reads();
    assert_eq!(read_all(&cache, &query(&[0], 99, 200)).len(), 1);
    assert_eq!(recording.reads(), reads, "the large message is held");
}

#[test]
fn a_head_far_from_every_block_does_not_break_a_read() {
    let recording = Recording::regular(1, 200, 1_000);
    let cache = cache(&recording, 20_000, 2_000);
    let head = cache.head(
        &Topics::All,
        HeadOptions {
            class: HeadClass::Playback,
            position: Stamp::from_nanos(1_000_000),
            ..HeadOptions::default()
        },
    );
    let seen: usize = head
        .read_ahead(&Query::all())
        .map(|batch| batch.expect("reads").len())
        .sum();
    assert_eq!(seen, 200);
    assert_sound(&cache);
}

#[test]
fn clearing_leaves_the_callers_topics_alone_and_accounts_for_nothing() {
    let recording = Recording::regular(2, 50, 100);
    let cache = cache(&recording, 1_000_000, 1_000);
    let asked = query(&[0, 1], 0, 1_000);
    read_all(&cache, &asked);
    cache
        .latest_at(&asked.topics, (-5).into())
        .expect("answers");
    cache.clear();
    assert_eq!(asked.topics, named(&[0, 1]));
    let statistics = cache.stats();
    assert_eq!((statistics.accounted, statistics.blocks), (0, 0));
    assert!(cache.loaded(&asked.topics).ranges.is_empty());
    assert_eq!(read_all(&cache, &asked), recording.naive(&asked));
}

#[test]
fn what_is_known_to_be_empty_is_not_asked_for_again() {
    let recording = Recording::regular(2, 10, 10);
    let cache = cache(&recording, 1_000_000, 1_000);
    let instant = query(&[0], 55, 55);
    assert!(read_all(&cache, &instant).is_empty());
    assert!(read_all(&cache, &instant).is_empty());
    assert_eq!(recording.reads(), 1);
    let nowhere = Topics::named(["/nowhere"]);
    for _ in 0..3 {
        assert!(
            cache
                .latest_at(&nowhere, 50.into())
                .expect("answers")
                .is_empty()
        );
    }
    assert_eq!(
        recording.lookups(),
        0,
        "the summary accounts for every message"
    );
    // Nor is an earlier time, which the first answer covers.
    assert!(
        cache
            .latest_at(&nowhere, 20.into())
            .expect("answers")
            .is_empty()
    );
    assert_eq!(recording.lookups(), 0);
}

#[test]
fn a_topic_that_may_exist_is_asked_about_once() {
    let said = [0, 10, 20].map(|time| Said {
        topic: 0,
        time,
        payload: vec![1].into(),
    });
    let recording = Recording::that_lists(Lists::Uncounted, 1, 4, &said);
    let cache = cache(&recording, 1_000_000, 1_000);
    let nowhere = Topics::named(["/nowhere"]);
    for at in [50, 50, 20] {
        let answer = cache.latest_at(&nowhere, at.into()).expect("answers");
        assert!(answer.is_empty());
    }
    assert_eq!(recording.lookups(), 1);
}
