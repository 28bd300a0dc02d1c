//! What the cache promises, a fact at a time.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, CacheOptions, HeadClass, HeadOptions, RangeWatch};
use asof_core::{Query, Source, Stamp, TimeRange, Topics};
use common::{Recording, Said, Shared, assert_sound, named, query, range, read_all, seen_in};

fn cache(recording: &Arc<Recording>) -> BlockCache {
    with(recording, CacheOptions::default())
}

fn with(recording: &Arc<Recording>, options: CacheOptions) -> BlockCache {
    BlockCache::new(Shared(Arc::clone(recording)), options)
}

#[test]
fn adding_a_topic_reads_that_topic_only() {
    let recording = Recording::regular(100, 20, 10);
    let cache = cache(&recording);
    let most: Vec<usize> = (0..99).collect();
    read_all(&cache, &query(&most, 0, 1_000));
    let before = recording.delivered();
    let all: Vec<usize> = (0..100).collect();
    let asked = query(&all, 0, 1_000);
    assert_eq!(read_all(&cache, &asked), recording.naive(&asked));
    assert_eq!(recording.delivered() - before, 20);
    assert_eq!(recording.last_asked(), Some(query(&[99], 0, 1_000)));
}

#[test]
fn removing_a_topic_reads_nothing() {
    let recording = Recording::regular(3, 20, 10);
    let cache = cache(&recording);
    read_all(&cache, &query(&[0, 1, 2], 0, 1_000));
    let fewer = query(&[0, 2], 0, 1_000);
    assert_eq!(read_all(&cache, &fewer), recording.naive(&fewer));
    assert_eq!(recording.reads(), 1);
}

#[test]
fn only_the_holes_are_asked_for_to_the_nanosecond() {
    let recording = Recording::regular(1, 100, 10);
    let cache = cache(&recording);
    for (start, end) in [(100, 199), (300, 399), (500, 599)] {
        read_all(&cache, &query(&[0], start, end));
    }
    let everything = query(&[0], 0, 999);
    assert_eq!(read_all(&cache, &everything), recording.naive(&everything));
    let asked: Vec<TimeRange> = recording.asked.lock().expect("asked")[3..]
        .iter()
        .map(|query| query.range)
        .collect();
    assert_eq!(
        asked,
        [
            range(0, 99),
            range(200, 299),
            range(400, 499),
            range(600, 999)
        ]
    );
}

#[test]
fn ties_keep_the_sources_order_when_topics_were_read_apart() {
    let said: Vec<Said> = (0..40)
        .map(|number| Said {
            topic: [2, 0, 1][number % 3],
            time: (number / 8) as i64,
            payload: vec![number as u8].into(),
        })
        .collect();
    let recording = Recording::new(3, 5, &said);
    let cache = cache(&recording);
    for topic in 0..3 {
        read_all(&cache, &query(&[topic], 0, 10));
    }
    let everything = query(&[0, 1, 2], 0, 10);
    assert_eq!(read_all(&cache, &everything), recording.naive(&everything));
    assert_eq!(recording.reads(), 3);
}

#[test]
fn a_message_larger_than_the_budget_passes_through() {
    let said = [(0, 10), (1, 5_000), (2, 10)].map(|(time, size)| Said {
        topic: 0,
        time,
        payload: vec![1; size].into(),
    });
    let recording = Recording::new(1, 8, &said);
    let cache = with(&recording, CacheOptions::with_budget(3_000));
    let asked = query(&[0], 0, 10);
    assert_eq!(read_all(&cache, &asked), recording.naive(&asked));
    assert_sound(&cache);
    assert_eq!(cache.stats().passed_through, 1);
    // Only the instant of the large one is missing.
    assert_eq!(read_all(&cache, &asked), recording.naive(&asked));
    assert_eq!(recording.last_asked(), Some(query(&[0], 1, 1)));
}

#[test]
fn a_source_error_comes_after_what_was_read_and_that_is_kept() {
    let recording = Recording::regular(1, 40, 10);
    let cache = cache(&recording);
    recording.fail_after.store(3, Ordering::Relaxed);
    let mut seen = 0;
    let mut errors = 0;
    for batch in cache.read_as(&query(&[0], 0, 1_000), HeadClass::Scrub) {
        match batch {
            Ok(batch) => seen += batch.len(),
            Err(_) => errors += 1,
        }
    }
    assert_eq!((seen, errors), (32, 1));
    assert_sound(&cache);
    let asked = query(&[0], 0, 1_000);
    assert_eq!(read_all(&cache, &asked), recording.naive(&asked));
    // All but the last stamp, of which more might have come, is not read again.
    assert_eq!(recording.last_asked(), Some(query(&[0], 310, 1_000)));
}

#[test]
fn a_failing_lookup_is_an_error_and_nothing_is_remembered() {
    let recording = Recording::regular(1, 10, 10);
    let cache = cache(&recording);
    recording.fail_latest.store(true, Ordering::Relaxed);
    assert!(cache.latest_at(&Topics::All, 50.into()).is_err());
    recording.fail_latest.store(false, Ordering::Relaxed);
    let answer = cache.latest_at(&Topics::All, 50.into()).expect("answers");
    assert_eq!(
        seen_in(&answer),
        recording.naive_latest(&Topics::All, 50.into())
    );
}

#[test]
fn backward_ranges_empty_recordings_and_far_times_are_harmless() {
    let recording = Recording::new(1, 4, &[]);
    let empty = cache(&recording);
    assert!(read_all(&empty, &Query::all()).is_empty());
    assert!(
        empty
            .latest_at(&Topics::All, Stamp::MAX)
            .expect("answers")
            .is_empty()
    );
    let recording = Recording::regular(1, 1, 10);
    let one = cache(&recording);
    assert!(read_all(&one, &query(&[0], 10, 5)).is_empty());
    assert_eq!(read_all(&one, &Query::all()).len(), 1);
    assert_eq!(one.loaded(&Topics::All).fractions, [(0.0, 1.0)]);
    assert!(read_all(&one, &query(&[0], 500, 600)).is_empty());
    assert!(read_all(&one, &query(&[0], -600, -500)).is_empty());
    assert_eq!(recording.reads(), 1);
}

#[test]
fn a_rare_topic_is_answered_from_memory_across_many_blocks() {
    let mut said = vec![Said {
        topic: 1,
        time: 0,
        payload: vec![9].into(),
    }];
    said.extend((0..1_000).map(|time| Said {
        topic: 0,
        time,
        payload: vec![1; 100].into(),
    }));
    let recording = Recording::new(2, 16, &said);
    let cache = with(
        &recording,
        CacheOptions {
            block_bytes: 500,
            ..CacheOptions::default()
        },
    );
    read_all(&cache, &query(&[0, 1], 0, 2_000));
    assert!(cache.stats().blocks > 100);
    let answer = cache.latest_at(&Topics::All, 999.into()).expect("answers");
    assert_eq!(
        seen_in(&answer),
        recording.naive_latest(&Topics::All, 999.into())
    );
    assert_eq!(recording.lookups(), 0);
}

#[test]
fn what_the_source_said_in_a_lookup_is_remembered_up_to_coverage() {
    let recording = Recording::regular(1, 100, 10);
    let cache = cache(&recording);
    cache.latest_at(&Topics::All, 505.into()).expect("answers");
    // Nothing lies in the part that is read now, so that the answer still holds at its end.
    read_all(&cache, &query(&[0], 506, 509));
    let answer = cache.latest_at(&Topics::All, 509.into()).expect("answers");
    assert_eq!(
        seen_in(&answer),
        recording.naive_latest(&Topics::All, 509.into())
    );
    assert_eq!(recording.lookups(), 1);
}

#[test]
fn stepping_back_over_a_video_is_one_call_and_reads_once() {
    let recording = Recording::regular(2, 300, 50);
    let cache = cache(&recording);
    let frames = cache.last_n("/t0", 2_000.into(), 60).expect("answers");
    assert_eq!(frames.len(), 60);
    assert_eq!(frames.range(), range(1_410, 2_000));
    let reads = recording.reads();
    let again = cache.last_n("/t0", 1_995.into(), 40).expect("answers");
    assert_eq!(again.range(), range(1_600, 1_990));
    assert_eq!(recording.reads(), reads);
}

#[test]
fn a_reverse_cursor_hands_out_everything_once_from_the_end() {
    let recording = Recording::regular(3, 200, 20);
    let cache = cache(&recording);
    let asked = query(&[0, 2], 100, 1_500);
    let mut seen = Vec::new();
    for batch in cache.reverse(&asked, HeadClass::Scrub) {
        seen.extend(seen_in(&batch.expect("reads")).into_iter().rev());
    }
    seen.reverse();
    assert_eq!(seen, recording.naive(&asked));
}

#[test]
fn topics_that_nobody_wants_go_first_then_scans() {
    let recording = Recording::regular(3, 400, 100);
    let cache = with(
        &recording,
        CacheOptions {
            budget: 40_000,
            block_bytes: 2_000,
            ..CacheOptions::default()
        },
    );
    let wanted = cache.head(&named(&[0, 2]), HeadOptions::default());
    read_all(&cache, &query(&[1], 0, 500));
    for batch in cache.read_as(&query(&[2], 0, 500), HeadClass::Scan) {
        batch.expect("reads");
    }
    let held = |topic: &str| {
        let by_topic = cache.stats().payload_by_topic;
        by_topic.get(topic).copied().unwrap_or(0)
    };
    assert_eq!(cache.stats().evictions, 0);
    let (unwanted, scanned) = (held("/t1"), held("/t2"));
    // The head reads on and on, until its own topic has to make room for itself.
    for end in (10..4_000).step_by(10) {
        for batch in wanted.read(&query(&[0], 0, end)) {
            batch.expect("reads");
        }
        let is_scan_touched = held("/t2") < scanned;
        assert!(
            !is_scan_touched || held("/t1") == 0,
            "a scan went before an unwanted topic"
        );
        let is_own_touched = cache.loaded(&named(&[0])).ranges != [range(0, end)];
        assert!(
            !is_own_touched || held("/t2") == 0,
            "a wanted block went before a scan"
        );
    }
    assert!(unwanted > 0 && scanned > 0);
    assert_eq!((held("/t1"), held("/t2")), (0, 0));
    assert_sound(&cache);
}

#[test]
fn a_topic_that_is_no_longer_wanted_leaves_blocks_that_it_shares() {
    let recording = Recording::regular(2, 400, 100);
    let cache = with(
        &recording,
        CacheOptions {
            budget: 40_000,
            block_bytes: 2_000,
            ..CacheOptions::default()
        },
    );
    let head = cache.head(&Topics::All, HeadOptions::default());
    for batch in head.read(&query(&[0, 1], 0, 900)) {
        batch.expect("reads");
    }
    head.set_topics(&named(&[0]));
    let reads = recording.reads();
    for batch in head.read(&query(&[0], 0, 1_500)) {
        batch.expect("reads");
    }
    assert!(cache.stats().trims > 0);
    assert_eq!(cache.loaded(&named(&[0])).ranges, [range(0, 1_500)]);
    assert_eq!(
        recording.reads(),
        reads + 1,
        "nothing of the wanted topic was read again"
    );
    assert_sound(&cache);
    let both = query(&[0, 1], 0, 2_000);
    assert_eq!(read_all(&cache, &both), recording.naive(&both));
}

#[test]
fn a_scan_displaces_nothing_that_others_read() {
    let recording = Recording::regular(2, 1_000, 100);
    let cache = with(
        &recording,
        CacheOptions {
            budget: 40_000,
            block_bytes: 2_000,
            ..CacheOptions::default()
        },
    );
    let head = cache.head(&named(&[0]), HeadOptions::default());
    for batch in head.read(&query(&[0], 0, 1_000)) {
        batch.expect("reads");
    }
    let before = cache.loaded(&named(&[0])).ranges;
    let seen = cache.read_as(&query(&[1], 0, 10_000), HeadClass::Scan);
    assert_eq!(
        seen.map(|batch| batch.expect("reads").len()).sum::<usize>(),
        1_000
    );
    assert_eq!(cache.loaded(&named(&[0])).ranges, before);
    assert_sound(&cache);
}

#[test]
fn the_unbroken_chain_ahead_of_a_playback_head_is_protected() {
    let recording = Recording::regular(1, 2_000, 100);
    let cache = with(
        &recording,
        CacheOptions {
            budget: 60_000,
            block_bytes: 2_000,
            ..CacheOptions::default()
        },
    );
    let player = cache.head(
        &Topics::All,
        HeadOptions {
            class: HeadClass::Playback,
            position: 1_000.into(),
            ..HeadOptions::default()
        },
    );
    read_all(&cache, &query(&[0], 1_000, 1_999));
    // Someone else reads far more than fits, close to the head and far from it.
    read_all(&cache, &query(&[0], 2_100, 20_000));
    read_all(&cache, &query(&[0], 0, 900));
    assert_eq!(
        player.held_through(&Topics::All, 1_000.into()),
        Some(1_999.into())
    );
    assert_sound(&cache);
    // Once the head has gone on, what lies behind it may go.
    player.set_position(15_000.into());
    read_all(&cache, &query(&[0], 15_000, 20_000));
    assert_eq!(player.held_through(&Topics::All, 1_000.into()), None);
}

#[test]
fn what_is_furthest_from_every_head_goes_first() {
    let recording = Recording::regular(1, 1_000, 100);
    let cache = with(
        &recording,
        CacheOptions {
            budget: 36_000,
            block_bytes: 1_000,
            ..CacheOptions::default()
        },
    );
    let at = |position: i64| {
        let options = HeadOptions {
            class: HeadClass::Scrub,
            position: position.into(),
            ..HeadOptions::default()
        };
        cache.head(&Topics::All, options)
    };
    let (early, late) = (at(1_000), at(8_000));
    for (start, end) in [
        (1_000, 1_300),
        (4_400, 4_700),
        (8_000, 8_300),
        (1_301, 1_900),
        (8_301, 8_900),
    ] {
        for batch in early.read_ahead(&query(&[0], start, end)) {
            batch.expect("reads");
        }
    }
    let ranges = cache.loaded(&Topics::All).ranges;
    let holds = |part: TimeRange| ranges.iter().any(|held| held.intersect(part) == part);
    assert!(holds(range(1_000, 1_700)), "{ranges:?}");
    assert!(holds(range(8_000, 8_700)), "{ranges:?}");
    assert!(
        !ranges.iter().any(|held| held.overlaps(range(4_400, 4_700))),
        "{ranges:?}"
    );
    drop(late);
}

#[test]
fn range_events_are_coalesced() {
    let recording = Recording::regular(1, 1_000, 10);
    let cache = with(
        &recording,
        CacheOptions {
            block_bytes: 1,
            ..CacheOptions::default()
        },
    );
    let mut watch = cache.watch(&Topics::All);
    let start = Instant::now();
    assert!(
        watch.changed(start).is_some(),
        "the first look tells what is there"
    );
    let mut events = 0;
    let mut reader = cache.read_as(&query(&[0], 0, 10_000), HeadClass::Playback);
    // A second of reading, a millisecond for every step.
    for millisecond in 0..1_000 {
        if let Some(batch) = reader.next() {
            batch.expect("reads");
        }
        let now = start + Duration::from_millis(millisecond);
        events += usize::from(watch.changed(now).is_some());
    }
    assert!((1..=61).contains(&events), "{events}");
    drop(reader);
    let last = watch.changed(start + Duration::from_secs(5) + RangeWatch::INTERVAL);
    let held = last.unwrap_or_else(|| cache.loaded(&Topics::All));
    assert_eq!(held.ranges, [range(0, 10_000)]);
    assert_eq!(held.fractions, [(0.0, 1.0)]);
}

#[test]
fn loaded_ranges_are_those_of_all_topics_together() {
    let recording = Recording::regular(2, 100, 10);
    let cache = cache(&recording);
    read_all(&cache, &query(&[0], 0, 499));
    read_all(&cache, &query(&[1], 300, 700));
    assert_eq!(cache.loaded(&named(&[0])).ranges, [range(0, 499)]);
    assert_eq!(cache.loaded(&named(&[0, 1])).ranges, [range(300, 499)]);
}

#[test]
fn threads_that_want_the_same_share_one_read() {
    let recording = Recording::regular(4, 500, 200);
    let cache = with(
        &recording,
        CacheOptions {
            block_bytes: 10_000,
            ..CacheOptions::default()
        },
    );
    recording.watcher.set(cache.clone()).expect("set once");
    let everything = Query::all();
    let expected = recording.naive(&everything);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(read_all(&cache, &everything), expected));
        }
    });
    assert_eq!(recording.delivered(), 2_000, "no message was read twice");
    assert!(recording.violations.lock().expect("violations").is_empty());
    assert_sound(&cache);
}

#[test]
fn threads_with_seeks_and_a_small_budget_see_the_source() {
    let recording = Recording::regular(5, 300, 150);
    let cache = with(
        &recording,
        CacheOptions {
            budget: 40_000,
            block_bytes: 3_000,
            ..CacheOptions::default()
        },
    );
    std::thread::scope(|scope| {
        for thread in 0..4i64 {
            let (cache, recording) = (&cache, &recording);
            scope.spawn(move || {
                for turn in 0..60 {
                    let start = (turn * 797 + thread * 313) % 3_000;
                    let topics = [(turn % 5) as usize, ((turn + thread) % 5) as usize, 4];
                    let asked = query(&topics, start, start + 400);
                    assert_eq!(read_all(cache, &asked), recording.naive(&asked));
                    let topics = named(&topics);
                    let known = cache.latest_at(&topics, start.into()).expect("answers");
                    assert_eq!(
                        seen_in(&known),
                        recording.naive_latest(&topics, start.into())
                    );
                    assert!(cache.stats().accounted <= 40_000);
                }
            });
        }
    });
    assert_sound(&cache);
}

#[test]
fn a_lowered_budget_is_kept_at_once() {
    let recording = Recording::regular(2, 200, 100);
    let cache = cache(&recording);
    read_all(&cache, &Query::all());
    assert!(cache.stats().accounted > 20_000);
    cache.set_budget(5_000);
    assert_sound(&cache);
    assert_eq!(
        read_all(&cache, &Query::all()),
        recording.naive(&Query::all())
    );
    assert_sound(&cache);
}
