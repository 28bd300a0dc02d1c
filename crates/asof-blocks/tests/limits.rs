//! What is held stays within its bounds, however it is asked for.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use asof_blocks::{BlockCache, CacheOptions, HeadClass, HeadOptions};
use asof_core::{Query, Source, TimeRange, Topics};
use common::{
    Lists, Recording, Said, Shared, assert_sound, named, query, range, read_all, seen_in,
};

fn with(recording: &Arc<Recording>, budget: u64, block_bytes: u64) -> BlockCache {
    let options = CacheOptions {
        budget,
        block_bytes,
        ..CacheOptions::default()
    };
    BlockCache::new(Shared(Arc::clone(recording)), options)
}

#[test]
fn a_lowered_budget_is_kept_while_a_playback_head_lives() {
    let recording = Recording::regular(2, 2_000, 500);
    let cache = with(&recording, 10_000_000, 50_000);
    let head = cache.head(
        &Topics::All,
        HeadOptions {
            class: HeadClass::Playback,
            position: 0.into(),
            ..HeadOptions::default()
        },
    );
    let mut reader = head.read_ahead(&Query::all());
    while cache.stats().accounted < 2_000_000 {
        reader.next().expect("more").expect("reads");
    }
    // Blocks ahead of the head, and one that is being filled.
    cache.set_budget(100_000);
    assert_sound(&cache);
    assert!(cache.stats().accounted <= 100_000);
    assert!(
        cache.block_at("/t0", 0.into()).is_some(),
        "what the head comes to first stays"
    );
    cache.set_budget(0);
    assert_sound(&cache);
    let rest: usize = reader.map(|batch| batch.expect("reads").len()).sum();
    assert!(rest > 0);
    assert_sound(&cache);
}

/// A long stretch of many messages, an hour of nothing, and the last one.
fn after_a_gap() -> Arc<Recording> {
    let hour = 3_600_000_000_000;
    let said: Vec<Said> = (0..20_000)
        .map(|number| (number * 1_000_000, 2_000))
        .chain([(hour, 10)])
        .map(|(time, size)| Said {
            topic: 0,
            time,
            payload: vec![7; size].into(),
        })
        .collect();
    Recording::new(1, 16, &said)
}

#[test]
fn the_last_message_after_a_long_gap_is_found_without_reading_what_lies_before() {
    let recording = after_a_gap();
    let cache = with(&recording, 1_000_000, 50_000);
    let at = 3_599_000_000_000;
    let last = cache.last_n("/t0", at.into(), 1).expect("answers");
    assert_eq!(
        seen_in(&last),
        recording.naive_latest(&named(&[0]), at.into())
    );
    assert!(recording.delivered() < 1_000, "{}", recording.delivered());
    let few = cache.last_n("/t0", at.into(), 30).expect("answers");
    assert_eq!(few.len(), 30);
    let kept: u64 = few.buffers().iter().map(|buffer| buffer.len() as u64).sum();
    assert!(kept < 3 * few.payload_bytes(), "{kept}");
}

#[test]
fn reading_backwards_holds_no_more_than_its_share_however_dense_it_gets() {
    let recording = after_a_gap();
    let budget = 4_000_000;
    let cache = with(&recording, budget, 100_000);
    let everything = Query::topics(["/t0"]);
    let mut seen = Vec::new();
    let mut before = 0;
    for batch in cache.reverse(&everything, HeadClass::Scrub) {
        seen.extend(seen_in(&batch.expect("reads")).into_iter().rev());
        // One call reads a look, after a few that were too long.
        let read = (recording.delivered() - before) as u64 * 2_000;
        assert!(read < 4 * budget, "{read} bytes for one call");
        before = recording.delivered();
    }
    seen.reverse();
    assert_eq!(seen, recording.naive(&everything));
}

#[test]
fn a_scan_does_not_make_the_cache_forget_what_the_source_said() {
    let recording = Recording::regular(2, 2_000, 100);
    let cache = with(&recording, 40_000, 2_000);
    let head = cache.head(&named(&[0, 1]), HeadOptions::default());
    for batch in head.read(&query(&[0], 0, 2_000)) {
        batch.expect("reads");
    }
    for at in [15_003, 15_503, 16_003] {
        cache.latest_at(&named(&[1]), at.into()).expect("answers");
    }
    let asked = recording.lookups();
    for batch in cache.read_as(&query(&[1], 0, 14_000), HeadClass::Scan) {
        batch.expect("reads");
    }
    for at in [15_003, 15_503, 16_003] {
        cache.latest_at(&named(&[1]), at.into()).expect("answers");
    }
    assert_eq!(recording.lookups(), asked, "asked twice");
    assert_sound(&cache);
}

fn said(count: i64) -> Vec<Said> {
    (0..count)
        .map(|time| Said {
            topic: time as usize % 3,
            time,
            payload: vec![time as u8; 10].into(),
        })
        .collect()
}

#[test]
fn what_a_summary_does_not_list_is_there_all_the_same() {
    for lists in [
        Lists::Nothing,
        Lists::Some(1),
        Lists::Some(2),
        Lists::Uncounted,
    ] {
        let recording = Recording::that_lists(lists, 3, 7, &said(200));
        let everything = Query::all();
        let cache = with(&recording, 1_000_000, 500);
        for _ in 0..2 {
            assert_eq!(read_all(&cache, &everything), recording.naive(&everything));
        }
        assert_eq!(
            recording.reads(),
            1,
            "{lists:?}: the second time from memory"
        );
        for at in [-1, 0, 77, 500] {
            let known = cache.latest_at(&Topics::All, at.into()).expect("answers");
            let expected = recording.naive_latest(&Topics::All, at.into());
            assert_eq!(seen_in(&known), expected, "{lists:?} at {at}");
        }
        let back: usize = cache
            .reverse(&everything, HeadClass::Scrub)
            .map(|batch| batch.expect("reads").len())
            .sum();
        assert_eq!(back, 200);
        assert_eq!(cache.loaded(&Topics::All).ranges, [TimeRange::ALL]);
        assert_sound(&cache);
    }
}

#[test]
fn what_is_not_listed_is_there_after_what_is_listed_was_read() {
    let recording = Recording::that_lists(Lists::Some(2), 3, 7, &said(200));
    let cache = with(&recording, 1_000_000, 500);
    read_all(&cache, &query(&[0, 1], 50, 120));
    let everything = Query::all();
    assert_eq!(read_all(&cache, &everything), recording.naive(&everything));
    // Where nothing else is there, that is found out once, and what is held is not read again.
    let recording = Recording::that_lists(Lists::Uncounted, 3, 7, &said(200));
    let cache = with(&recording, 1_000_000, 500);
    read_all(&cache, &query(&[0, 1, 2], 0, 1_000));
    for _ in 0..3 {
        let part = Query::all().between(range(0, 1_000));
        assert_eq!(read_all(&cache, &part), recording.naive(&part));
    }
    assert_eq!((recording.reads(), recording.lookups()), (1, 1));
}

#[test]
fn names_that_nobody_knows_are_answered_and_not_kept() {
    let recording = Recording::that_lists(Lists::Uncounted, 1, 4, &said(30)[..1]);
    let cache = with(&recording, 100_000, 1_000);
    for number in 0..500 {
        let topics = Topics::named([format!("/nowhere{number}"), "/t0".into()]);
        let known = cache.latest_at(&topics, 5.into()).expect("answers");
        assert_eq!(known.len(), 1, "{number}");
        let query = Query {
            topics,
            range: range(0, 9),
        };
        assert_eq!(read_all(&cache, &query).len(), 1, "{number}");
        assert_sound(&cache);
    }
    recording.fail_after.store(usize::MAX, Ordering::Relaxed);
}

#[test]
fn what_is_being_read_counts_as_held() {
    let recording = Recording::regular(3, 300, 10);
    let cache = with(&recording, 10_000_000, 4 << 20);
    let mut watch = cache.watch(&named(&[0]));
    watch.changed(std::time::Instant::now());
    let mut reader = cache.read_as(&query(&[0], 0, 10_000), HeadClass::Playback);
    for _ in 0..4 {
        reader.next().expect("more").expect("reads");
    }
    assert_eq!(cache.stats().blocks, 0, "nothing is sealed yet");
    let held = cache.loaded(&named(&[0])).ranges;
    assert_eq!(held.len(), 1);
    assert!(held[0].end > 400.into(), "{held:?}");
    let later = std::time::Instant::now() + asof_blocks::RangeWatch::INTERVAL * 2;
    assert_eq!(watch.changed(later).expect("a change").ranges, held);
    assert!(cache.loaded(&named(&[0, 1])).ranges.is_empty());
    watch.set_topics(&named(&[1]));
    assert!(
        watch
            .changed(later + asof_blocks::RangeWatch::INTERVAL)
            .is_none_or(|held| held.ranges.is_empty())
    );
}
