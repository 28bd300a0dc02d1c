//! A cache keeps the promises of a source, over finished sources and over those that grow.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, CacheOptions, DiskOptions, HeadClass};
use asof_core::testing::{assert_growing, assert_source, violations};
use asof_core::{
    Channel, FollowEnd, Followed, Growth, Message, Query, Source, Stamp, TimeRange, Topics,
};
use asof_window::{Bounds, Recent};
use common::{Lists, Recording, Said, Shared, assert_sound};

fn said() -> Vec<Said> {
    // Ties across topics, a gap, a topic with a single message, an empty payload.
    (0..120)
        .map(|number: i64| Said {
            topic: if number == 60 { 3 } else { number as usize % 3 },
            time: number / 4 * 10 + if number > 80 { 5_000 } else { 0 },
            payload: vec![number as u8; number as usize % 40].into(),
        })
        .collect()
}

#[test]
fn over_a_recording_it_keeps_every_promise_however_small_and_however_listed() {
    let lists = [
        Lists::Counted,
        Lists::Uncounted,
        Lists::Some(2),
        Lists::Nothing,
    ];
    for (number, lists) in lists.into_iter().enumerate() {
        for budget in [0, 2_000, 10_000_000] {
            let folder = tempfile::tempdir().expect("a folder");
            let disk = (number % 2 == 0).then(|| DiskOptions {
                folder: folder.path().to_owned(),
                budget: 5_000,
                fingerprint: "a".into(),
            });
            let recording = Recording::that_lists(lists, 4, 7, &said());
            let options = CacheOptions {
                budget,
                block_bytes: 300,
                disk,
            };
            let cache = BlockCache::new(Shared(recording), options);
            let name = format!("{lists:?} with {budget} bytes");
            // Cold, and then from what was kept.
            for _ in 0..2 {
                // What the summary leaves out is the recording's fault, and not the cache's.
                let mut broken = violations(&cache);
                broken.retain(|sentence| !sentence.starts_with("its summary does not list"));
                assert!(broken.is_empty(), "{name}: {broken:?}");
                assert_sound(&cache);
            }
        }
    }
}

#[test]
fn pointers_and_layers_around_layers_keep_every_promise() {
    let recording = Recording::that_lists(Lists::Counted, 4, 7, &said());
    let shared: Arc<dyn Source> = Arc::new(Shared(recording));
    let boxed: Box<dyn Source> = Box::new(Arc::clone(&shared));
    assert_source(&boxed, "a box");
    assert_source(&Arc::new(Box::new(shared)), "pointers to pointers");
    let cache = BlockCache::new(boxed, CacheOptions::default());
    assert_source(
        &BlockCache::new(cache, CacheOptions::default()),
        "a layer around a layer",
    );
}

fn message(topic: &str, time: i64) -> Message {
    Message {
        channel: Arc::new(Channel {
            topic: topic.into(),
            ..Channel::default()
        }),
        log_time: time.into(),
        publish_time: time.into(),
        sequence: time as u32,
        payload: time.to_string().into(),
    }
}

#[test]
fn over_a_store_of_recent_messages_it_keeps_every_promise_while_that_grows() {
    let recent = Recent::new(Bounds::count(10_000));
    for time in 0..50 {
        recent.push(message(["/a", "/b"][time as usize % 2], time * 10));
    }
    let cache = BlockCache::new(recent.clone(), CacheOptions::default());
    assert_eq!(cache.growth(), Growth::Growing);
    let mut time = 500;
    assert_growing(&cache, "a cache over what is recent", &mut || {
        // A topic that nobody has heard of is among them.
        let added = ["/a", "/c"].map(|topic| {
            time += 10;
            message(topic, time)
        });
        for message in &added {
            recent.push(message.clone());
        }
        added.to_vec()
    });
    assert_source(&cache, "a cache over what is recent");
    assert_sound(&cache);
}

#[test]
fn nothing_so_far_is_not_taken_for_nothing() {
    let recent = Recent::new(Bounds::count(100));
    recent.push(message("/a", 100));
    let cache = BlockCache::new(recent.clone(), CacheOptions::default());
    let topics = Topics::named(["/a", "/b"]);
    let count = |query: &Query| -> usize {
        let batches = cache.read_as(query, HeadClass::Playback);
        batches.map(|batch| batch.expect("reads").len()).sum()
    };
    let everything = Query::all();
    let later = Query {
        topics: topics.clone(),
        range: TimeRange::new(101.into(), Stamp::MAX),
    };
    assert_eq!((count(&everything), count(&later)), (1, 0));
    let known = |at: i64| cache.latest_at(&topics, at.into()).expect("answers").len();
    assert_eq!((known(50), known(500)), (0, 1));
    assert!(cache.last_n("/b", 900.into(), 3).expect("reads").is_empty());
    recent.push(message("/b", 300));
    recent.push(message("/a", 400));
    assert_eq!((count(&everything), count(&later)), (3, 2));
    assert_eq!((known(350), known(500)), (2, 2));
    assert_eq!(cache.last_n("/b", 900.into(), 3).expect("reads").len(), 1);
    let back = cache.reverse(&everything, HeadClass::Scrub);
    assert_eq!(
        back.map(|batch| batch.expect("reads").len()).sum::<usize>(),
        3
    );
    assert!(cache.loaded(&topics).ranges.is_empty());
    assert_eq!(cache.stats().blocks, 0);
}

#[test]
fn a_source_that_has_ended_is_kept_from_then_on() {
    let recent = Recent::new(Bounds::count(100));
    recent.push(message("/a", 100));
    let cache = BlockCache::new(recent.clone(), CacheOptions::default());
    let mut follow = cache.follow(&Query::all()).expect("follows");
    let soon = || Instant::now() + Duration::from_mins(1);
    assert!(matches!(follow.next(soon()), Ok(Followed::Batch(batch)) if batch.len() == 1));
    recent.push(message("/a", 200));
    assert!(matches!(follow.next(soon()), Ok(Followed::Batch(batch)) if batch.len() == 1));
    recent.close(FollowEnd::Complete);
    assert!(matches!(
        follow.next(soon()),
        Ok(Followed::End(FollowEnd::Complete))
    ));
    assert_eq!(cache.growth(), recent.growth());
    if cache.growth() == Growth::Finished {
        for _ in 0..2 {
            assert_source(&cache, "a robot that is gone");
        }
    }
}
