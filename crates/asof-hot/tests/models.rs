//! Loom models: every interleaving, and every value that the memory model lets a load see, within bounds.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p asof-hot --test models`; with `--features mutations` and
//! `-- --ignored` also that each weakened ordering makes one of them fail. `ci/hot/soundness` runs both.

#![cfg(loom)]

use asof_hot::{
    Broadcast, DropOldest, Kernel, LatchState, LockOptions, MonoStamp, MuxEnds, Notifier, Refuse,
    Ring, Signal, Sleeper, Snapshot, SourceOptions, Stop, broadcast, event_latch, latest, mux,
    ring, ring_drop_oldest, snapshot,
};
use loom::thread;
use std::time::Duration;

/// Explores with so many preemptions at most; more than the bugs of these protocols need (the mutations show it).
fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(body);
}

/// A value whose two words agree.
fn whole(value: u64) -> [u64; 2] {
    [value, value]
}

fn assert_whole(value: [u64; 2]) {
    assert_eq!(value[0], value[1], "torn");
}

#[test]
fn latest_is_never_torn_and_never_goes_back() {
    model(3, || {
        let (mut writer, reader) = latest::<[u64; 2], 2>();
        let thread = thread::spawn(move || {
            for value in 1..=3 {
                writer.write(&whole(value), MonoStamp(value));
            }
        });
        let mut last = 0;
        for _ in 0..2 {
            let mut value = whole(0);
            if let Some((meta, retries)) = reader.read_counting_retries(&mut value) {
                assert_whole(value);
                assert_eq!(
                    (meta.generation, meta.stamp),
                    (value[0], MonoStamp(value[0]))
                );
                assert!(meta.generation >= last);
                // With two slots a retry takes one whole write, and there are three; one more as a late look at the head.
                assert!(retries <= 4);
                last = meta.generation;
            } else {
                assert_eq!(last, 0);
            }
        }
        thread.join().unwrap();
        assert_eq!(reader.read().unwrap().value, whole(3));
    });
}

#[test]
fn latest_serves_two_readers() {
    model(2, || {
        let (mut writer, reader) = latest::<[u64; 2], 2>();
        let other = reader.clone();
        let look = |reader: asof_hot::LatestReader<[u64; 2], 2>| {
            if let Ok(Some(sample)) = reader.try_read() {
                assert_whole(sample.value);
                assert_eq!(sample.generation, sample.value[0]);
            }
        };
        let readers = thread::spawn(move || look(other));
        let writer = thread::spawn(move || {
            for value in 1..=3 {
                writer.write(&whole(value), MonoStamp(value));
            }
        });
        look(reader);
        readers.join().unwrap();
        writer.join().unwrap();
    });
}

#[test]
fn latest_survives_a_writer_that_dies_at_any_step_and_its_successor() {
    for steps in 0..5 {
        model(2, move || {
            let shared = std::sync::Arc::new(asof_hot::Latest::<[u64; 2], 2>::new());
            let reader = asof_hot::LatestReader::attach(shared.clone());
            // SAFETY: one writer at a time: the next is made after this one is gone.
            let mut writer = unsafe { asof_hot::LatestWriter::attach(shared.clone()) };
            writer.write(&whole(1), MonoStamp(1));
            let thread = thread::spawn(move || {
                writer.write_and_die(&whole(9), MonoStamp(9), steps);
                // SAFETY: the writer before is gone.
                let mut successor = unsafe { asof_hot::LatestWriter::attach(shared) };
                successor.write(&whole(2), MonoStamp(2));
            });
            let seen = reader
                .read()
                .expect("the last whole value is there whatever the writer does");
            assert_whole(seen.value);
            assert_eq!(seen.stamp.0, seen.value[0]);
            thread.join().unwrap();
            assert_eq!(reader.read().unwrap().value, whole(2));
        });
    }
}

#[test]
fn ring_refuse_hands_over_every_sample_once_in_order() {
    model(3, || {
        let (mut producer, mut consumer) = ring::<[u64; 2], 2>(|| whole(0));
        let thread = thread::spawn(move || {
            let mut written = 0;
            for value in 1..=3 {
                if let Some(mut slot) = producer.try_write() {
                    *slot = whole(value);
                    slot.commit(MonoStamp(value));
                    written += 1;
                }
            }
            (written, producer.refused())
        });
        let mut last = (0, 0);
        let mut read = 0;
        let mut look = |consumer: &mut asof_hot::Consumer<[u64; 2], 2>| {
            while let Some(slot) = consumer.try_read() {
                assert_whole(*slot);
                assert!(slot[0] > last.0);
                assert_eq!(slot.meta().generation, last.1 + 1);
                last = (slot[0], slot.meta().generation);
                read += 1;
            }
        };
        look(&mut consumer);
        let (written, refused) = thread.join().unwrap();
        look(&mut consumer);
        assert_eq!(read, written);
        assert_eq!(written + refused, 3);
    });
}

#[test]
fn ring_batches_are_whole() {
    model(2, || {
        let (mut producer, mut consumer) = ring::<[u64; 2], 2>(|| whole(0));
        let thread = thread::spawn(move || {
            let mut next = 1;
            for _ in 0..2 {
                if let Some(mut batch) = producer.try_write_batch(2) {
                    batch.fill(|index, value| *value = whole(next + index as u64));
                    next += batch.len() as u64;
                    batch.commit(MonoStamp(0));
                }
            }
            next - 1
        });
        let mut last = 0;
        let mut look = |consumer: &mut asof_hot::Consumer<[u64; 2], 2>| {
            while let Some(batch) = consumer.try_read_batch(2) {
                batch.for_each(|value, meta| {
                    assert_whole(*value);
                    assert_eq!((value[0], meta.generation), (last + 1, last + 1));
                    last += 1;
                });
            }
        };
        look(&mut consumer);
        let written = thread.join().unwrap();
        look(&mut consumer);
        assert_eq!(last, written);
    });
}

#[test]
fn ring_drop_oldest_never_touches_what_is_read_and_counts_the_rest() {
    model(2, || {
        let (mut producer, mut consumer) = ring_drop_oldest::<[u64; 2], 1>(|| whole(0));
        let thread = thread::spawn(move || {
            for value in 1..=3 {
                let mut slot = producer.try_write().expect("never refused");
                *slot = whole(value);
                slot.commit(MonoStamp(value));
            }
            producer.lost()
        });
        let mut last = 0;
        let mut missed = 0;
        let mut read = 0;
        let mut look = |consumer: &mut asof_hot::Consumer<[u64; 2], 1, DropOldest>| {
            if let Some(slot) = consumer.try_read() {
                assert_whole(*slot);
                assert_eq!(slot[0], slot.meta().generation);
                assert!(slot[0] > last);
                assert_eq!(slot.missed(), slot[0] - last - 1);
                last = slot[0];
                missed += slot.missed();
                read += 1;
            }
        };
        look(&mut consumer);
        let lost = thread.join().unwrap();
        look(&mut consumer);
        assert_eq!(last, 3, "the newest is never dropped");
        assert_eq!((missed, read + missed), (lost, 3));
    });
}

#[test]
fn ring_drop_oldest_lapped_consumer_finds_what_it_is_told_of() {
    model(2, || {
        let (mut producer, mut consumer) = ring_drop_oldest::<[u64; 2], 1>(|| whole(0));
        producer.push(whole(1), MonoStamp(1)).unwrap();
        producer.push(whole(2), MonoStamp(2)).unwrap();
        producer.push(whole(3), MonoStamp(3)).unwrap();
        let thread = thread::spawn(move || {
            producer.push(whole(4), MonoStamp(4)).unwrap();
        });
        let mut last = 0;
        for _ in 0..2 {
            if consumer.has_new() {
                let slot = consumer
                    .try_read()
                    .expect("it said that there is something new");
                assert_whole(*slot);
                assert!(slot[0] > last);
                last = slot[0];
            }
        }
        assert!(last >= 3);
        thread.join().unwrap();
    });
}

#[test]
fn ring_drop_oldest_always_has_room_beside_a_reader() {
    model(2, || {
        let (mut producer, mut consumer) = ring_drop_oldest::<[u64; 2], 1>(|| whole(0));
        producer.push(whole(1), MonoStamp(1)).unwrap();
        let thread = thread::spawn(move || {
            for value in 2..=4 {
                let lost = producer.lost();
                drop(
                    producer
                        .try_write()
                        .expect("the reader holds one slot at a time"),
                );
                assert_eq!(producer.lost(), lost, "and nothing is dropped for a slot");
                producer.push(whole(value), MonoStamp(value)).unwrap();
            }
        });
        drop(consumer.try_read());
        let held = consumer.try_read();
        thread.join().unwrap();
        drop(held);
    });
}

#[test]
fn ring_drop_oldest_latest_is_the_newest_of_those_seen() {
    model(2, || {
        let (mut producer, mut consumer) = ring_drop_oldest::<[u64; 2], 2>(|| whole(0));
        producer.push(whole(1), MonoStamp(1)).unwrap();
        producer.push(whole(2), MonoStamp(2)).unwrap();
        let thread = thread::spawn(move || {
            producer.push(whole(3), MonoStamp(3)).unwrap();
        });
        let slot = consumer.try_latest().expect("two are there");
        assert_whole(*slot);
        assert!(slot[0] >= 2);
        drop(slot);
        thread.join().unwrap();
    });
}

#[test]
fn ring_drop_oldest_of_two_accounts_for_every_sample() {
    model(2, || {
        let (mut producer, mut consumer) = ring_drop_oldest::<[u64; 2], 2>(|| whole(0));
        producer.push(whole(1), MonoStamp(1)).unwrap();
        producer.push(whole(2), MonoStamp(2)).unwrap();
        let thread = thread::spawn(move || {
            for value in 3..=4 {
                let mut slot = producer.try_write().expect("never refused");
                *slot = whole(value);
                slot.commit(MonoStamp(value));
            }
            producer.lost()
        });
        let (mut last, mut missed) = (0, 0);
        let mut look = |consumer: &mut asof_hot::Consumer<[u64; 2], 2, DropOldest>| {
            if let Some(slot) = consumer.try_read() {
                assert_whole(*slot);
                assert_eq!(slot[0], last + slot.missed() + 1);
                last = slot[0];
                missed += slot.missed();
            }
        };
        look(&mut consumer);
        look(&mut consumer);
        let lost = thread.join().unwrap();
        while consumer.has_new() {
            look(&mut consumer);
        }
        assert_eq!((last, missed), (4, lost));
    });
}

#[test]
fn ring_beside_a_batch_always_has_room() {
    model(2, || {
        let (mut producer, mut consumer) = ring_drop_oldest::<[u64; 2], 2>(|| whole(0));
        for value in 1..=4 {
            producer.push(whole(value), MonoStamp(value)).unwrap();
        }
        let thread = thread::spawn(move || {
            for value in 5..=6 {
                let pushed = producer.push(whole(value), MonoStamp(value));
                assert!(pushed.is_ok(), "the reader holds no more than all");
            }
        });
        drop(consumer.try_read_batch(1));
        let Some(held) = consumer.try_read_batch(2) else {
            return thread.join().unwrap(); // the newest was the one before
        };
        held.for_each(|value, meta| {
            assert_whole(*value);
            assert_eq!(value[0], meta.generation);
        });
        thread.join().unwrap();
        let mut last = 0;
        held.for_each(|value, meta| {
            assert_eq!(*value, whole(meta.generation));
            last = meta.generation;
        });
        drop(held);
        while let Some(slot) = consumer.try_read() {
            last = slot[0];
        }
        assert_eq!(last, 6);
    });
}

/// 38 of 46 pushes used to be refused: two samples shared a page of the book.
#[test]
fn ring_drop_oldest_successor_of_a_producer_killed_at_any_step_refuses_nothing() {
    for steps in 0..4 {
        for pushed in [0, 1, 7, 8, 9, 20] {
            model(0, move || {
                let shared = std::sync::Arc::new(Ring::<u64, 8, DropOldest>::new(|| 0));
                // SAFETY: one end of each kind at a time.
                let (mut producer, mut consumer) = unsafe {
                    (
                        asof_hot::Producer::attach(shared.clone()),
                        asof_hot::Consumer::attach(shared.clone()),
                    )
                };
                for value in 1..=pushed {
                    producer.push(value, MonoStamp(0)).unwrap();
                }
                let mut slot = producer.try_write().unwrap();
                *slot = 99;
                slot.commit_and_die(MonoStamp(0), steps);
                drop(producer);
                // SAFETY: the producer before is gone.
                let mut successor = unsafe { asof_hot::Producer::attach(shared) };
                let before = successor.committed();
                for value in 1..=46 {
                    successor.push(value, MonoStamp(0)).expect("never refused");
                }
                let mut seen = Vec::new();
                while let Some(sample) = consumer.pop() {
                    seen.push(sample.generation);
                }
                let newest = before + 46;
                assert_eq!(seen, (newest - 7..=newest).collect::<Vec<_>>());
            });
        }
    }
}

#[test]
fn ring_takeover_refuse_overlooks_no_sample() {
    model(3, || {
        let shared = std::sync::Arc::new(Ring::<[u64; 2], 2, Refuse>::new(|| whole(0)));
        // SAFETY: one end of each kind at a time.
        let (mut producer, mut consumer) = unsafe {
            (
                asof_hot::Producer::attach(shared.clone()),
                asof_hot::Consumer::attach(shared.clone()),
            )
        };
        producer.push(whole(1), MonoStamp(1)).unwrap();
        assert_eq!(consumer.pop().unwrap().value, whole(1));
        drop(consumer);
        let thread = thread::spawn(move || {
            producer.push(whole(2), MonoStamp(2)).unwrap();
            producer.push(whole(3), MonoStamp(3)).unwrap();
        });
        // SAFETY: the consumer before is gone.
        let mut successor = unsafe { asof_hot::Consumer::attach(shared) };
        let mut seen = Vec::new();
        while let Some(slot) = successor.try_read() {
            assert_whole(*slot);
            seen.push(slot[0]);
        }
        thread.join().unwrap();
        while let Some(slot) = successor.try_read() {
            seen.push(slot[0]);
        }
        assert_eq!(seen, [2, 3]);
    });
}

#[test]
fn ring_takeover_drop_oldest_tells_what_can_be_found() {
    for steps in 1..4 {
        model(3, move || {
            let shared = std::sync::Arc::new(Ring::<[u64; 2], 2, DropOldest>::new(|| whole(0)));
            // SAFETY: one end of each kind at a time.
            let (mut producer, mut consumer) = unsafe {
                (
                    asof_hot::Producer::attach(shared.clone()),
                    asof_hot::Consumer::attach(shared.clone()),
                )
            };
            let thread = thread::spawn(move || {
                let mut slot = producer.try_write().unwrap();
                *slot = whole(1);
                slot.commit_and_die(MonoStamp(1), steps);
                drop(producer);
                // SAFETY: the producer before is gone.
                drop(unsafe { asof_hot::Producer::attach(shared) });
            });
            if consumer.has_new() {
                let slot = consumer.try_read().expect("it said that there is one");
                assert_eq!(*slot, whole(1));
                drop(slot);
                assert!(!consumer.has_new());
            }
            thread.join().unwrap();
        });
    }
}

#[test]
fn abandoned_ring_has_given_all_that_it_had() {
    model(3, || {
        let (mut producer, mut consumer) = ring::<[u64; 2], 2>(|| whole(0));
        let thread = thread::spawn(move || {
            producer.push(whole(1), MonoStamp(1)).unwrap();
        });
        if consumer.is_abandoned() {
            assert_eq!(consumer.pop().expect("all is there").value, whole(1));
        }
        thread.join().unwrap();
        assert!(consumer.is_abandoned());
    });
}

#[test]
fn ring_survives_a_producer_that_dies_at_any_step_and_its_successor() {
    for steps in 0..4 {
        model(2, move || {
            let shared = std::sync::Arc::new(Ring::<[u64; 2], 1, DropOldest>::new(|| whole(0)));
            // SAFETY: one end of each kind at a time.
            let (mut producer, mut consumer) = unsafe {
                (
                    asof_hot::Producer::attach(shared.clone()),
                    asof_hot::Consumer::attach(shared.clone()),
                )
            };
            producer.push(whole(1), MonoStamp(1)).unwrap();
            let thread = thread::spawn(move || {
                let mut slot = producer.try_write().unwrap();
                *slot = whole(2);
                slot.commit_and_die(MonoStamp(2), steps);
                drop(producer);
                // SAFETY: the producer before is gone.
                let mut successor = unsafe { asof_hot::Producer::attach(shared) };
                successor
                    .push(whole(3), MonoStamp(3))
                    .expect("never refused");
            });
            let mut last = 0;
            let mut look = |consumer: &mut asof_hot::Consumer<[u64; 2], 1, DropOldest, _>| {
                while let Some(slot) = consumer.try_read() {
                    assert_whole(*slot);
                    assert!(slot[0] > last);
                    last = slot[0];
                }
            };
            look(&mut consumer);
            thread.join().unwrap();
            look(&mut consumer);
            assert_eq!(last, 3);
        });
    }
}

#[test]
fn ring_survives_a_consumer_that_dies_with_a_slot_in_hand() {
    model(2, || {
        let shared = std::sync::Arc::new(Ring::<[u64; 2], 1, DropOldest>::new(|| whole(0)));
        // SAFETY: one end of each kind at a time.
        let (mut producer, mut consumer) = unsafe {
            (
                asof_hot::Producer::attach(shared.clone()),
                asof_hot::Consumer::attach(shared.clone()),
            )
        };
        producer.push(whole(1), MonoStamp(1)).unwrap();
        let thread = thread::spawn(move || {
            for value in 2..=4 {
                producer
                    .push(whole(value), MonoStamp(value))
                    .expect("never refused");
            }
        });
        let mut last = 0;
        if let Some(slot) = consumer.try_read() {
            last = slot[0];
            slot.die();
        }
        // SAFETY: the consumer before does nothing any more.
        let mut successor = unsafe { asof_hot::Consumer::attach(shared) };
        thread.join().unwrap();
        while let Some(slot) = successor.try_read() {
            assert_whole(*slot);
            assert!(slot[0] > last);
            last = slot[0];
        }
        assert_eq!(last, 4);
    });
}

#[test]
fn snapshot_is_never_written_while_two_readers_hold_it() {
    model(2, || {
        let (mut writer, [mut one, mut two]) = snapshot::<[u64; 2], 2>(|| whole(0));
        let look = |reader: &mut asof_hot::SnapshotReader<[u64; 2], 2>| {
            let mut last = 0;
            for _ in 0..2 {
                let guard = reader.latest();
                assert_whole(*guard);
                assert_eq!(guard.meta().generation, guard[0]);
                assert!(guard[0] >= last);
                last = guard[0];
            }
        };
        let thread = thread::spawn(move || look(&mut one));
        let writer = thread::spawn(move || {
            for value in 1..=2 {
                *writer.back() = whole(value);
                writer.publish(MonoStamp(value));
            }
        });
        look(&mut two);
        thread.join().unwrap();
        writer.join().unwrap();
        assert_eq!(*two.latest(), whole(2));
    });
}

#[test]
fn snapshot_triple_buffer_hands_over_whole_frames() {
    model(3, || {
        let (mut writer, [mut reader]) = snapshot::<[u64; 2], 1>(|| whole(0));
        let thread = thread::spawn(move || {
            for value in 1..=3 {
                *writer.back() = whole(value);
                writer.publish(MonoStamp(value));
            }
        });
        let mut last = 0;
        for _ in 0..3 {
            let guard = reader.latest();
            assert_whole(*guard);
            assert!(guard[0] >= last);
            last = guard[0];
        }
        thread.join().unwrap();
        assert_eq!(*reader.latest(), whole(3));
    });
}

#[test]
fn snapshot_survives_a_writer_that_dies_at_any_step_and_its_successor() {
    for steps in 0..3 {
        model(2, move || {
            let shared = std::sync::Arc::new(Snapshot::<[u64; 2], 2>::new(|| whole(0)));
            // SAFETY: one end of each kind at a time.
            let (mut writer, mut one, mut two) = unsafe {
                (
                    asof_hot::SnapshotWriter::attach(shared.clone()),
                    asof_hot::SnapshotReader::attach(shared.clone(), 0),
                    asof_hot::SnapshotReader::attach(shared.clone(), 1),
                )
            };
            let thread = thread::spawn(move || {
                *writer.back() = whole(1);
                writer.publish(MonoStamp(1));
                *writer.back() = whole(2);
                writer.publish_and_die(MonoStamp(2), steps);
                // SAFETY: the writer before is gone.
                let mut successor = unsafe { asof_hot::SnapshotWriter::attach(shared) };
                for value in 3..=4 {
                    *successor.back() = whole(value);
                    successor.publish(MonoStamp(value));
                }
            });
            for reader in [&mut one, &mut two] {
                let guard = reader.latest();
                assert_whole(*guard);
            }
            thread.join().unwrap();
            assert_eq!((*one.latest(), *two.latest()), (whole(4), whole(4)));
        });
    }
}

#[test]
fn snapshot_successor_never_writes_what_is_being_read() {
    model(3, || {
        let shared = std::sync::Arc::new(Snapshot::<[u64; 2], 1>::new(|| whole(0)));
        // SAFETY: one end of each kind at a time.
        let (mut writer, mut reader) = unsafe {
            (
                asof_hot::SnapshotWriter::attach(shared.clone()),
                asof_hot::SnapshotReader::attach(shared.clone(), 0),
            )
        };
        *writer.back() = whole(1);
        writer.publish(MonoStamp(1));
        drop(writer);
        let thread = thread::spawn(move || {
            // SAFETY: the writer before is gone.
            let mut successor = unsafe { asof_hot::SnapshotWriter::attach(shared) };
            *successor.back() = whole(2);
            successor.publish(MonoStamp(2));
        });
        assert_whole(*reader.current());
        assert_whole(*reader.latest());
        assert_whole(*reader.latest());
        thread.join().unwrap();
        assert_eq!(*reader.latest(), whole(2));
    });
}

#[test]
fn broadcast_is_never_written_while_it_is_read_and_accounts_for_the_rest() {
    model(2, || {
        let (mut producer, [mut one, mut two]) = broadcast::<[u64; 2], 1, 2>(|| whole(0));
        producer.push(whole(1), MonoStamp(1)).unwrap();
        let writes = thread::spawn(move || {
            for value in 2..=4 {
                let mut slot = producer.try_write().expect("never refused");
                *slot = whole(value);
                slot.commit(MonoStamp(value));
            }
        });
        let look = |reader: &mut asof_hot::BroadcastReader<[u64; 2], 1, 2>, last: &mut u64| {
            if let Some(guard) = reader.try_read() {
                assert_whole(*guard);
                assert_eq!(guard.meta().generation, guard[0]);
                assert_eq!(guard[0], *last + guard.missed() + 1);
                *last = guard[0];
            }
        };
        let reads = thread::spawn(move || {
            let mut last = 0;
            look(&mut two, &mut last);
        });
        let mut last = 0;
        look(&mut one, &mut last);
        look(&mut one, &mut last);
        writes.join().unwrap();
        reads.join().unwrap();
        while one.has_new() {
            look(&mut one, &mut last);
        }
        assert_eq!(last, 4, "the newest is never given up");
    });
}

#[test]
fn broadcast_of_two_finds_what_it_tells_of() {
    model(2, || {
        let (mut producer, [mut reader]) = broadcast::<[u64; 2], 2, 1>(|| whole(0));
        for value in 1..=4 {
            producer.push(whole(value), MonoStamp(value)).unwrap();
        }
        let thread = thread::spawn(move || {
            producer.push(whole(5), MonoStamp(5)).unwrap();
            producer.push(whole(6), MonoStamp(6)).unwrap();
        });
        let mut last = 0;
        for _ in 0..2 {
            if reader.has_new() {
                let guard = reader.try_read().expect("it said that there is one");
                assert_whole(*guard);
                assert_eq!(guard[0], last + guard.missed() + 1);
                last = guard[0];
            }
        }
        thread.join().unwrap();
    });
}

#[test]
fn broadcast_take_back_leads_a_lapped_reader_to_newer_samples() {
    model(2, || {
        let (mut producer, [mut reader]) = broadcast::<[u64; 2], 1, 1>(|| whole(0));
        for value in 1..=3 {
            producer.push(whole(value), MonoStamp(value)).unwrap();
        }
        let thread = thread::spawn(move || {
            for value in 4..=6 {
                producer.push(whole(value), MonoStamp(value)).unwrap();
            }
        });
        assert!(reader.has_new());
        let guard = reader.try_read().expect("it said that there is one");
        assert_whole(*guard);
        drop(guard);
        thread.join().unwrap();
    });
}

#[test]
fn broadcast_take_back_waits_for_a_reader_that_comes_and_goes() {
    model(3, || {
        let (mut producer, [mut reader]) = broadcast::<[u64; 2], 1, 1>(|| whole(0));
        for value in 1..=3 {
            producer.push(whole(value), MonoStamp(value)).unwrap();
        }
        let thread = thread::spawn(move || producer.push(whole(4), MonoStamp(4)).unwrap());
        let guard = reader.try_read().expect("there are three");
        assert_whole(*guard);
        drop(guard);
        thread.join().unwrap();
    });
}

#[test]
fn broadcast_to_an_empty_reader_is_found_when_it_is_told() {
    model(3, || {
        let (mut producer, [mut reader]) = broadcast::<[u64; 2], 2, 1>(|| whole(0));
        let thread = thread::spawn(move || {
            producer.push(whole(1), MonoStamp(1)).unwrap();
            producer.push(whole(2), MonoStamp(2)).unwrap();
        });
        let mut last = 0;
        for _ in 0..2 {
            if reader.has_new() {
                let guard = reader.try_read().expect("it said that there is one");
                assert_eq!(*guard, whole(last + 1));
                last += 1;
            }
        }
        thread.join().unwrap();
    });
}

#[test]
fn broadcast_always_has_room_beside_its_readers() {
    model(2, || {
        let (mut producer, [mut one, mut two]) = broadcast::<[u64; 2], 1, 2>(|| whole(0));
        for value in 1..=3 {
            producer.push(whole(value), MonoStamp(value)).unwrap();
        }
        let held = two.try_read().expect("there is one");
        let thread = thread::spawn(move || {
            for value in 4..=6 {
                let pushed = producer.push(whole(value), MonoStamp(value));
                assert!(pushed.is_ok(), "each reader holds one at a time");
            }
        });
        drop(one.try_read());
        let other = one.try_read();
        thread.join().unwrap();
        assert_whole(*held);
        drop(other);
    });
}

#[test]
fn broadcast_always_has_room_beside_a_reader_of_the_latest() {
    model(2, || {
        let (mut producer, [mut reader]) = broadcast::<[u64; 2], 1, 1>(|| whole(0));
        for value in 1..=2 {
            producer.push(whole(value), MonoStamp(value)).unwrap();
        }
        let thread = thread::spawn(move || {
            for value in 3..=5 {
                let pushed = producer.push(whole(value), MonoStamp(value));
                assert!(pushed.is_ok(), "a reader holds one at a time");
            }
        });
        if let Some(guard) = reader.try_latest() {
            assert_whole(*guard);
            assert!(guard[0] >= 2, "what was the newest before is not older now");
            assert_eq!(guard[0], guard.missed() + 1);
        }
        thread.join().unwrap();
        if let Some(guard) = reader.try_latest() {
            assert_eq!(*guard, whole(5));
        }
        assert!(!reader.has_new());
    });
}

#[test]
fn broadcast_lossless_is_missed_by_nobody() {
    model(2, || {
        let (mut producer, [mut reader]) = broadcast::<[u64; 2], 1, 1>(|| whole(0));
        let thread = thread::spawn(move || {
            let mut written = 0;
            for _ in 0..3 {
                if let Some(mut slot) = producer.try_write_lossless() {
                    written += 1;
                    *slot = whole(written);
                    slot.commit(MonoStamp(0));
                }
            }
            written
        });
        let mut last = 0;
        let mut look = |reader: &mut asof_hot::BroadcastReader<[u64; 2], 1, 1>| {
            if let Some(guard) = reader.try_read() {
                assert_eq!((*guard, guard.missed()), (whole(last + 1), 0));
                last += 1;
            }
        };
        look(&mut reader);
        look(&mut reader);
        let written = thread.join().unwrap();
        while reader.has_new() {
            look(&mut reader);
        }
        assert_eq!(last, written);
    });
}

#[test]
fn broadcast_survives_a_reader_that_dies_with_a_slot_in_hand() {
    model(3, || {
        let shared = std::sync::Arc::new(Broadcast::<[u64; 2], 1, 1>::new(|| whole(0)));
        // SAFETY: one end of each kind at a time.
        let (mut producer, mut reader) = unsafe {
            (
                asof_hot::BroadcastProducer::attach(shared.clone()),
                asof_hot::BroadcastReader::attach(shared.clone(), 0),
            )
        };
        producer.push(whole(1), MonoStamp(1)).unwrap();
        let thread = thread::spawn(move || {
            for value in 2..=4 {
                producer
                    .push(whole(value), MonoStamp(value))
                    .expect("never refused");
            }
        });
        if let Some(guard) = reader.try_read() {
            assert_whole(*guard);
            guard.die();
        }
        std::mem::forget(reader);
        // SAFETY: the reader before does nothing any more.
        let mut successor = unsafe { asof_hot::BroadcastReader::attach(shared, 0) };
        thread.join().unwrap();
        let mut last = 0;
        while let Some(guard) = successor.try_read() {
            assert_whole(*guard);
            assert!(guard[0] > last);
            last = guard[0];
        }
        assert_eq!(last, 4);
    });
}

#[test]
fn broadcast_survives_a_producer_that_dies_at_any_step_and_its_successor() {
    for steps in 0..2 {
        model(3, move || {
            let shared = std::sync::Arc::new(Broadcast::<[u64; 2], 2, 1>::new(|| whole(0)));
            // SAFETY: one end of each kind at a time.
            let (mut producer, mut reader) = unsafe {
                (
                    asof_hot::BroadcastProducer::attach(shared.clone()),
                    asof_hot::BroadcastReader::attach(shared.clone(), 0),
                )
            };
            let thread = thread::spawn(move || {
                let mut slot = producer.try_write().unwrap();
                *slot = whole(1);
                slot.commit_and_die(MonoStamp(1), steps);
                drop(producer);
                // SAFETY: the producer before is gone.
                let successor = unsafe { asof_hot::BroadcastProducer::attach(shared) };
                assert_eq!(successor.committed(), steps as u64);
            });
            if reader.has_new() {
                let guard = reader.try_read().expect("it said that there is one");
                assert_eq!(*guard, whole(1));
            }
            thread.join().unwrap();
            assert!(reader.waiting() <= steps as u64);
        });
    }
}

const SPAN: Duration = Duration::from_nanos(10);

#[test]
fn mux_finds_the_command_that_a_stamp_promises() {
    model(3, || {
        let MuxEnds {
            sources: [mut source],
            output,
            ..
        } = mux::<[u64; 2], 1, 0>([SourceOptions::new(SPAN)], []);
        source.write(&whole(1), MonoStamp(1));
        let thread = thread::spawn(move || source.write(&whole(100), MonoStamp(100)));
        match output.read(MonoStamp(100)) {
            Ok(command) => assert_eq!(
                (command.value, command.meta.stamp),
                (whole(100), MonoStamp(100))
            ),
            Err(stop) => assert_eq!(
                stop,
                Stop::Nobody,
                "the old command is stale, the new one is not there yet"
            ),
        }
        thread.join().unwrap();
        assert_eq!(output.read(MonoStamp(100)).unwrap().value, whole(100));
    });
}

#[test]
fn mux_never_follows_a_command_given_after_a_more_important_one() {
    for remembers in [false, true] {
        model(3, move || {
            let MuxEnds {
                sources: [mut low, mut high],
                output,
                ..
            } = mux::<[u64; 2], 2, 0>([SourceOptions::new(SPAN); 2], []);
            low.write(&whole(1), MonoStamp(100));
            if remembers {
                assert_eq!(output.read(MonoStamp(100)).unwrap().value, whole(1));
            }
            let thread = thread::spawn(move || {
                high.write(&whole(2), MonoStamp(100));
                low.write(&whole(3), MonoStamp(100));
            });
            let command = output.read(MonoStamp(100)).expect("someone commands");
            assert_whole(command.value);
            assert_ne!(
                command.value,
                whole(3),
                "the more important source was alive before that"
            );
            assert_eq!(command.source, usize::from(command.value == whole(2)));
            thread.join().unwrap();
        });
    }
}

#[test]
fn mux_never_follows_a_command_given_after_a_lock() {
    for remembers in [false, true] {
        model(3, move || {
            let MuxEnds {
                sources: [mut source],
                locks: [mut lock],
                output,
                ..
            } = mux::<[u64; 2], 1, 1>([SourceOptions::new(SPAN)], [LockOptions::new(1)]);
            source.write(&whole(1), MonoStamp(100));
            if remembers {
                assert_eq!(output.read(MonoStamp(100)).unwrap().value, whole(1));
            }
            let thread = thread::spawn(move || {
                lock.engage();
                source.write(&whole(2), MonoStamp(100));
            });
            match output.read(MonoStamp(100)) {
                Ok(command) => assert_eq!(command.value, whole(1)),
                Err(stop) => assert_eq!(stop, Stop::Locked { lock: 0 }),
            }
            thread.join().unwrap();
            assert_eq!(output.read(MonoStamp(100)), Err(Stop::Locked { lock: 0 }));
        });
    }
}

#[test]
fn latch_loses_no_event_between_a_look_and_a_reset() {
    model(2, || {
        let (mut trigger, mut resetter, mut observer) = event_latch(None);
        let thread = thread::spawn(move || {
            trigger.trigger(1, MonoStamp(1));
            trigger.trigger(2, MonoStamp(2));
        });
        let mut dealt_with = 0;
        if let LatchState::Contact(contact) = observer.state(MonoStamp(5)) {
            dealt_with |= contact.contacts;
            let _ = resetter.reset(contact.count);
        }
        thread.join().unwrap();
        if let LatchState::Contact(contact) = observer.state(MonoStamp(5)) {
            dealt_with |= contact.contacts;
            assert!(contact.first >= MonoStamp(1));
        }
        assert_eq!(dealt_with, 3, "both were dealt with");
        assert_eq!(observer.new_events(), 2);
    });
}

#[test]
fn latch_acknowledgement_is_never_seen_before_the_event() {
    model(2, || {
        let (mut trigger, mut resetter, observer) = event_latch(None);
        trigger.trigger(1, MonoStamp(1));
        let bystander = observer.clone();
        let sees_one = || matches!(bystander.state(MonoStamp(5)), LatchState::Contact(_));
        assert!(sees_one());
        let events = thread::spawn(move || trigger.trigger(1, MonoStamp(2)));
        let resets = thread::spawn(move || {
            let LatchState::Contact(contact) = observer.state(MonoStamp(5)) else {
                unreachable!("nobody else resets");
            };
            let _ = resetter.reset(contact.count);
            contact.count
        });
        sees_one();
        sees_one();
        let dealt_with = resets.join().unwrap();
        events.join().unwrap();
        assert_eq!(sees_one(), dealt_with < 2);
    });
}

/// The ends of a signal, on a kernel that can do so much.
fn signal(kernel: Kernel) -> (Notifier, Sleeper) {
    let memory = std::sync::Arc::new(Signal::with_kernel(kernel));
    (Notifier::attach(memory.clone()), Sleeper::attach(memory))
}

#[test]
fn signal_is_never_slept_through() {
    for kernel in [
        Kernel::without_fences,
        Kernel::with_fences,
        Kernel::with_unregistered_notifiers,
    ] {
        model(3, move || {
            let (mut writer, reader) = latest::<u64, 2>();
            let (notifier, sleeper) = signal(kernel());
            let thread = thread::spawn(move || {
                notifier.may_be_fenced();
                writer.write(&7, MonoStamp(0));
                notifier.notify();
            });
            assert!(sleeper.wait_until(None, || reader.generation() > 0));
            assert_eq!(reader.read().unwrap().value, 7);
            thread.join().unwrap();
        });
    }
}

#[test]
fn signal_is_heard_at_once_by_one_who_sees_the_turn() {
    model(3, || {
        let (mut writer, reader) = latest::<u64, 2>();
        let (notifier, sleeper) = signal(Kernel::with_fences());
        let thread = thread::spawn(move || {
            notifier.may_be_fenced();
            writer.write(&7, MonoStamp(0));
            notifier.notify();
        });
        assert!(sleeper.wait_until(None, || reader.generation() > 0));
        thread.join().unwrap();
        assert!(sleeper.fences_asked() <= 1, "one publication wakes it once");
    });
}

#[test]
fn signal_wakes_a_sleeper_that_goes_back_to_sleep() {
    for kernel in [Kernel::without_fences, Kernel::with_fences] {
        model(2, move || {
            let (mut writer, reader) = latest::<u64, 2>();
            let (notifier, sleeper) = signal(kernel());
            let thread = thread::spawn(move || {
                for value in 1..=2 {
                    notifier.may_be_fenced();
                    writer.write(&value, MonoStamp(0));
                    notifier.notify();
                }
            });
            assert!(sleeper.wait_until(None, || reader.generation() > 1));
            thread.join().unwrap();
        });
    }
}

#[test]
fn signal_wakes_a_sleeper_beside_another_that_comes_and_goes() {
    model(2, || {
        let (mut writer, reader) = latest::<u64, 2>();
        let (notifier, sleeper) = signal(Kernel::without_fences());
        let (other_sleeper, other_reader) = (sleeper.clone(), reader.clone());
        let notifies = thread::spawn(move || {
            writer.write(&1, MonoStamp(0));
            notifier.notify();
        });
        // Leaves its mark, of whichever turn, and never sleeps: as one does that waits for a file, or that is killed.
        let comes = thread::spawn(move || other_sleeper.prepare(|| other_reader.generation() > 0));
        assert!(sleeper.wait_until(None, || reader.generation() > 0));
        notifies.join().unwrap();
        comes.join().unwrap();
    });
}

#[test]
fn signal_given_twice_wakes_two_sleepers() {
    model(2, || {
        let (mut writer, reader) = latest::<u64, 2>();
        let (notifier, sleeper) = signal(Kernel::without_fences());
        let (other_sleeper, other_reader) = (sleeper.clone(), reader.clone());
        let notifies = thread::spawn(move || {
            for value in 1..=2 {
                writer.write(&value, MonoStamp(0));
                notifier.notify();
            }
        });
        let other =
            thread::spawn(move || other_sleeper.wait_until(None, || other_reader.generation() > 1));
        assert!(sleeper.wait_until(None, || reader.generation() > 1));
        notifies.join().unwrap();
        assert!(other.join().unwrap());
    });
}

#[test]
fn signal_of_two_notifiers_is_heard_from_both() {
    model(2, || {
        let memory = std::sync::Arc::new(Signal::with_kernel(Kernel::without_fences()));
        let sleeper = Sleeper::attach(memory.clone());
        let mut readers = Vec::new();
        let mut threads = Vec::new();
        for _ in 0..2 {
            let (mut writer, reader) = latest::<u64, 2>();
            let notifier = Notifier::attach(memory.clone());
            readers.push(reader);
            threads.push(thread::spawn(move || {
                writer.write(&1, MonoStamp(0));
                notifier.notify();
            }));
        }
        assert!(sleeper.wait_until(None, || {
            readers.iter().all(|reader| reader.generation() > 0)
        }));
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn signal_survives_a_notifier_that_dies_at_any_step() {
    for steps in 0..3 {
        model(2, move || {
            let memory = std::sync::Arc::new(Signal::with_kernel(Kernel::without_fences()));
            let sleeper = Sleeper::attach(memory.clone());
            let (mut writer, reader) = latest::<u64, 2>();
            let thread = thread::spawn(move || {
                writer.write(&1, MonoStamp(0));
                Notifier::attach(memory.clone()).notify_and_die(steps);
                writer.write(&2, MonoStamp(0));
                Notifier::attach(memory).notify();
            });
            assert!(sleeper.wait_until(None, || reader.generation() > 1));
            thread.join().unwrap();
        });
    }
}

/// Every ordering weakened, one at a time, makes a model fail.
#[cfg(feature = "mutations")]
#[test]
#[ignore = "runs all models many times over; ci/hot/soundness does"]
fn every_weakened_ordering_fails_a_model() {
    let this = std::env::current_exe().unwrap();
    let run = |model: &str, mutation: &str| {
        std::process::Command::new(&this)
            .args(["--exact", model])
            .env("ASOF_HOT_MUTATION", mutation)
            .output()
            .unwrap()
    };
    let list = std::process::Command::new(&this).arg("--list").output();
    let list = String::from_utf8(list.unwrap().stdout).unwrap();
    let names: Vec<&str> = list
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .collect();
    // While one works on them: only those whose names begin so.
    let only = std::env::var("ASOF_HOT_MUTATIONS").unwrap_or_default();
    let mut survivors = Vec::new();
    for (mutation, models) in asof_hot::order::mutations() {
        if !mutation.starts_with(&only) {
            continue;
        }
        // By the exit code: a panic in a model can also end the process, when it comes during another.
        let is_caught_by = |model: &&&str| !run(model, mutation).status.success();
        // One is enough, and the models that fail do so long before their end.
        let matching = names.iter().filter(|name| name.starts_with(models));
        let caught = matching.clone().find(is_caught_by);
        assert!(matching.count() > 0, "no model is called {models}");
        match caught {
            Some(model) => println!("{mutation}: caught by {model}"),
            None => {
                println!("{mutation}: SURVIVED");
                survivors.push(mutation);
            }
        }
    }
    assert!(survivors.is_empty(), "no model notices: {survivors:?}");
}
