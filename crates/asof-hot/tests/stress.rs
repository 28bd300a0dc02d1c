//! Real threads at full speed: nothing torn, nothing lost, nobody waits.
//!
//! `ASOF_HOT_STRESS` says how many rounds; ci/hot/soundness asks for more than `cargo test`, Miri for fewer.
#![cfg(not(loom))]

use asof_hot::{
    LatchState, LockOptions, MonoStamp, MuxEnds, SourceOptions, Stop, event_latch, latest, mux,
    ring, ring_drop_oldest, signal, snapshot,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn rounds() -> u64 {
    let asked = std::env::var("ASOF_HOT_STRESS")
        .ok()
        .and_then(|rounds| rounds.parse().ok());
    asked.unwrap_or(if cfg!(miri) { 60 } else { 50_000 })
}

/// Lets the others run. Under Miri a thread that spins has nothing to wait for but its turn, and each of its rounds is
/// a thousand times dearer than on a processor; on real cores spinning is the point.
fn pause() {
    if cfg!(miri) {
        thread::yield_now();
    }
}

fn assert_whole(value: &[u64]) {
    assert!(
        value.iter().all(|word| *word == value[0]),
        "torn: {value:?}"
    );
}

/// Says that a thread is done when it ends, be it by a failure: nobody is to wait for it for ever.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn latest_values_are_whole_and_retries_are_few() {
    let (mut writer, reader) = latest::<[u64; 18], 8>();
    writer.write(&[0; 18], MonoStamp(0));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in [reader.clone(), reader] {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut value = [0; 18];
                let (mut last, mut most) = (0, 0);
                while !is_over.load(Ordering::Relaxed) {
                    let (meta, retries) = reader
                        .read_counting_retries(&mut value)
                        .expect("it was written");
                    assert_whole(&value);
                    assert_eq!(meta.stamp.0, value[0]);
                    assert!(meta.generation >= last);
                    last = meta.generation;
                    most = most.max(retries);
                    pause();
                }
                // A retry takes seven whole writes during one copy: a reader that is sent off its core has one, and
                // one that runs has next to none. A single-slot lock needs millions.
                assert!(most <= 64, "{most} retries");
            });
        }
        for number in 1..=rounds() {
            writer.write(&[number; 18], MonoStamp(number));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn every_sample_goes_through_a_ring_once() {
    let (mut producer, mut consumer) = ring::<Vec<u64>, 5>(|| vec![0; 20]);
    let total = rounds();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut number = 1;
            while number <= total {
                if number % 7 == 0 {
                    if let Some(mut batch) = producer.try_write_batch(3) {
                        batch.fill(|index, slot| slot.fill(number + index as u64));
                        number += batch.len() as u64;
                        batch.commit(MonoStamp(0));
                        continue;
                    }
                } else if let Some(mut slot) = producer.try_write() {
                    slot.fill(number);
                    slot.commit(MonoStamp(number));
                    number += 1;
                    continue;
                }
                thread::yield_now();
            }
        });
        let mut expected = 1;
        while expected <= total {
            if expected % 3 == 0 {
                if let Some(batch) = consumer.try_read_batch(4) {
                    batch.for_each(|slot, meta| {
                        assert_whole(slot);
                        assert_eq!((slot[0], meta.generation), (expected, expected));
                        expected += 1;
                    });
                    continue;
                }
            } else if let Some(slot) = consumer.try_read() {
                assert_whole(&slot);
                assert_eq!((slot[0], slot.meta().generation), (expected, expected));
                expected += 1;
                continue;
            }
            thread::yield_now();
        }
    });
}

#[test]
fn a_ring_that_drops_accounts_for_every_sample() {
    let (mut producer, mut consumer) = ring_drop_oldest::<[u64; 18], 4>(|| [0; 18]);
    let total = rounds();
    let (mut read, mut missed, mut skipped, mut last) = (0, 0, 0, 0);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = Done(&is_done);
        let producer = scope.spawn(move || {
            let _done = done;
            for number in 1..=total {
                let mut slot = producer.try_write().expect("never refused");
                *slot = [number; 18];
                slot.commit(MonoStamp(number));
                if number % 64 == 0 {
                    thread::yield_now();
                }
            }
            producer.lost()
        });
        while last < total {
            // Looked up in this order: whatever a producer that is done has committed is there.
            let is_done = is_done.load(Ordering::Acquire);
            assert!(consumer.has_new() || !is_done, "the producer gave up");
            let slot = if read % 5 == 0 {
                consumer.try_latest()
            } else {
                consumer.try_read()
            };
            let Some(slot) = slot else {
                thread::yield_now();
                continue;
            };
            assert_whole(&*slot);
            assert_eq!(slot[0], slot.meta().generation);
            assert!(slot[0] > last);
            last = slot[0];
            read += 1;
            missed += slot.missed();
            skipped += slot.skipped() as u64;
        }
        assert_eq!(read + missed + skipped, total);
        assert_eq!(producer.join().unwrap(), missed);
    });
}

#[test]
fn snapshots_hold_still_for_two_readers() {
    let (mut writer, readers) = snapshot::<Vec<u64>, 2>(|| vec![0; 64]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for mut reader in readers {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut last = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let guard = reader.latest();
                    assert_whole(&guard);
                    assert_eq!(guard.meta().generation, guard[0]);
                    assert!(guard[0] >= last);
                    last = guard[0];
                    assert_whole(&guard);
                    drop(guard);
                    pause();
                }
            });
        }
        for number in 1..=rounds() {
            writer.back().fill(number);
            writer.publish(MonoStamp(number));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_mux_follows_the_lock_at_once() {
    let MuxEnds {
        sources: [mut low, mut high],
        locks: [mut lock],
        output,
        ..
    } = mux::<[u64; 9], 2, 1>(
        [SourceOptions::new(Duration::from_secs(1)); 2],
        [LockOptions::new(2)],
    );
    low.write(&[0; 9], MonoStamp(0));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        scope.spawn(move || {
            for number in 1..=rounds() {
                high.write(&[number << 1 | 1; 9], MonoStamp(0));
                if number % 3 == 0 {
                    high.release();
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        scope.spawn(move || {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                low.write(&[number << 1; 9], MonoStamp(0));
                pause();
            }
        });
        while !is_over.load(Ordering::Relaxed) {
            match output.read(MonoStamp(0)) {
                Ok(command) => {
                    assert_whole(&command.value);
                    assert_eq!(command.value[0] & 1, command.source as u64);
                }
                Err(stop) => assert_eq!(stop, Stop::Unsettled),
            }
            pause();
        }
        lock.engage();
        assert_eq!(output.read(MonoStamp(0)), Err(Stop::Locked { lock: 0 }));
    });
}

#[test]
fn a_latch_counts_every_event_however_often_it_is_reset() {
    let (mut trigger, mut resetter, mut observer) = event_latch(None);
    let total = rounds();
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 1..=total {
                trigger.trigger(1, MonoStamp(number));
                if number % 64 == 0 {
                    thread::yield_now();
                }
            }
        });
        let (mut dealt_with, mut counted) = (0, 0);
        while dealt_with < total {
            counted += observer.new_events();
            if let LatchState::Contact(contact) = observer.state(MonoStamp(total)) {
                assert_eq!(contact.count - contact.new, dealt_with);
                assert!(contact.first <= contact.last && contact.last.0 == contact.count);
                let _ = resetter.reset(contact.count);
                dealt_with = contact.count;
            }
            pause();
        }
        assert_eq!(counted + observer.new_events(), total);
    });
}

#[test]
#[cfg(all(feature = "std", target_os = "linux"))]
fn a_sleeper_misses_nothing() {
    let (mut writer, reader) = latest::<u64, 8>();
    let (notifier, sleeper) = signal();
    let total = rounds() / 20;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut seen = 0;
            while seen < total {
                let woken =
                    sleeper.wait_until(Some(Duration::from_mins(1)), || reader.generation() > seen);
                assert!(
                    woken,
                    "slept through {} with {seen} seen",
                    reader.generation()
                );
                seen = reader.generation();
            }
        });
        for number in 1..=total {
            writer.write(&number, MonoStamp(0));
            notifier.notify();
            if number % 3 == 0 {
                thread::yield_now();
            }
        }
    });
}
