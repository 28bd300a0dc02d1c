//! Loom models: every interleaving, and every value that the memory model lets a load see, within bounds.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p asof-hot --test models`; with `--features mutations` and
//! `-- --ignored` also that each weakened ordering makes one of them fail. `ci/soundness` runs both.

#![cfg(loom)]

use asof_hot::{
    DropOldest, Lock, MuxEnds, Ring, Snapshot, Source, Stamp, State, Stop, event_latch, latest,
    mux, ring, ring_drop_oldest, signal, snapshot,
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
                writer.write(&whole(value), Stamp(value));
            }
        });
        let mut last = 0;
        for _ in 0..2 {
            let mut value = whole(0);
            if let Some((meta, retries)) = reader.read_counting_retries(&mut value) {
                assert_whole(value);
                assert_eq!((meta.generation, meta.stamp), (value[0], Stamp(value[0])));
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
                writer.write(&whole(value), Stamp(value));
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
            writer.write(&whole(1), Stamp(1));
            let thread = thread::spawn(move || {
                writer.write_and_die(&whole(9), Stamp(9), steps);
                // SAFETY: the writer before is gone.
                let mut successor = unsafe { asof_hot::LatestWriter::attach(shared) };
                successor.write(&whole(2), Stamp(2));
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
                    slot.commit(Stamp(value));
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
                    batch.commit(Stamp(0));
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
                slot.commit(Stamp(value));
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
        producer.push(whole(1), Stamp(1)).unwrap();
        producer.push(whole(2), Stamp(2)).unwrap();
        producer.push(whole(3), Stamp(3)).unwrap();
        let thread = thread::spawn(move || {
            producer.push(whole(4), Stamp(4)).unwrap();
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
        producer.push(whole(1), Stamp(1)).unwrap();
        let thread = thread::spawn(move || {
            for value in 2..=4 {
                let pushed = producer.push(whole(value), Stamp(value));
                assert!(pushed.is_ok(), "the reader holds one slot at a time");
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
        producer.push(whole(1), Stamp(1)).unwrap();
        producer.push(whole(2), Stamp(2)).unwrap();
        let thread = thread::spawn(move || {
            producer.push(whole(3), Stamp(3)).unwrap();
        });
        let slot = consumer.try_latest().expect("two are there");
        assert_whole(*slot);
        assert!(slot[0] >= 2);
        drop(slot);
        thread.join().unwrap();
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
            producer.push(whole(1), Stamp(1)).unwrap();
            let thread = thread::spawn(move || {
                let mut slot = producer.try_write().unwrap();
                *slot = whole(2);
                slot.commit_and_die(Stamp(2), steps);
                drop(producer);
                // SAFETY: the producer before is gone.
                let mut successor = unsafe { asof_hot::Producer::attach(shared) };
                successor.push(whole(3), Stamp(3)).expect("never refused");
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
        producer.push(whole(1), Stamp(1)).unwrap();
        let thread = thread::spawn(move || {
            for value in 2..=4 {
                producer
                    .push(whole(value), Stamp(value))
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
                writer.publish(Stamp(value));
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
                writer.publish(Stamp(value));
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
                writer.publish(Stamp(1));
                *writer.back() = whole(2);
                writer.publish_and_die(Stamp(2), steps);
                // SAFETY: the writer before is gone.
                let mut successor = unsafe { asof_hot::SnapshotWriter::attach(shared) };
                for value in 3..=4 {
                    *successor.back() = whole(value);
                    successor.publish(Stamp(value));
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

const SPAN: Duration = Duration::from_nanos(10);

#[test]
fn mux_finds_the_command_that_a_stamp_promises() {
    model(3, || {
        let MuxEnds {
            sources: [mut source],
            output,
            ..
        } = mux::<[u64; 2], 1, 0>([Source::new(SPAN)], []);
        source.write(&whole(1), Stamp(1));
        let thread = thread::spawn(move || source.write(&whole(100), Stamp(100)));
        match output.read(Stamp(100)) {
            Ok(command) => assert_eq!(
                (command.value, command.meta.stamp),
                (whole(100), Stamp(100))
            ),
            Err(stop) => assert_eq!(
                stop,
                Stop::Nobody,
                "the old command is stale, the new one is not there yet"
            ),
        }
        thread.join().unwrap();
        assert_eq!(output.read(Stamp(100)).unwrap().value, whole(100));
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
            } = mux::<[u64; 2], 2, 0>([Source::new(SPAN); 2], []);
            low.write(&whole(1), Stamp(100));
            if remembers {
                assert_eq!(output.read(Stamp(100)).unwrap().value, whole(1));
            }
            let thread = thread::spawn(move || {
                high.write(&whole(2), Stamp(100));
                low.write(&whole(3), Stamp(100));
            });
            let command = output.read(Stamp(100)).expect("someone commands");
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
            } = mux::<[u64; 2], 1, 1>([Source::new(SPAN)], [Lock::new(1)]);
            source.write(&whole(1), Stamp(100));
            if remembers {
                assert_eq!(output.read(Stamp(100)).unwrap().value, whole(1));
            }
            let thread = thread::spawn(move || {
                lock.engage();
                source.write(&whole(2), Stamp(100));
            });
            match output.read(Stamp(100)) {
                Ok(command) => assert_eq!(command.value, whole(1)),
                Err(stop) => assert_eq!(stop, Stop::Locked { lock: 0 }),
            }
            thread.join().unwrap();
            assert_eq!(output.read(Stamp(100)), Err(Stop::Locked { lock: 0 }));
        });
    }
}

#[test]
fn latch_loses_no_event_between_a_look_and_a_reset() {
    model(2, || {
        let (mut trigger, mut resetter, mut observer) = event_latch(None);
        let thread = thread::spawn(move || {
            trigger.trigger(1, Stamp(1));
            trigger.trigger(2, Stamp(2));
        });
        let mut dealt_with = 0;
        if let State::Contact(contact) = observer.state(Stamp(5)) {
            dealt_with |= contact.contacts;
            let _ = resetter.reset(contact.count);
        }
        thread.join().unwrap();
        if let State::Contact(contact) = observer.state(Stamp(5)) {
            dealt_with |= contact.contacts;
            assert!(contact.first >= Stamp(1));
        }
        assert_eq!(dealt_with, 3, "both were dealt with");
        assert_eq!(observer.new_events(), 2);
    });
}

#[test]
fn latch_acknowledgement_is_never_seen_before_the_event() {
    model(2, || {
        let (mut trigger, mut resetter, observer) = event_latch(None);
        let mut bystander = observer.clone();
        let events = thread::spawn(move || trigger.trigger(1, Stamp(1)));
        let resets = thread::spawn(move || {
            if let State::Contact(contact) = observer.state(Stamp(5)) {
                resetter.reset(contact.count).unwrap();
                return true;
            }
            false
        });
        if bystander.is_triggered() {
            assert_eq!(
                bystander.new_events(),
                1,
                "whoever sees that it was triggered sees the event"
            );
        }
        let was_reset = resets.join().unwrap();
        events.join().unwrap();
        assert_eq!(bystander.is_triggered(), !was_reset);
    });
}

#[test]
fn signal_is_never_slept_through() {
    model(3, || {
        let (mut writer, reader) = latest::<u64, 2>();
        let (notifier, sleeper) = signal();
        let thread = thread::spawn(move || {
            writer.write(&7, Stamp(0));
            notifier.notify();
        });
        assert!(sleeper.wait_until(None, || reader.generation() > 0));
        assert_eq!(reader.read().unwrap().value, 7);
        thread.join().unwrap();
    });
}

/// Every ordering weakened, one at a time, makes a model fail.
#[cfg(feature = "mutations")]
#[test]
#[ignore = "runs all models many times over; ci/soundness does"]
fn every_weakened_ordering_fails_a_model() {
    let this = std::env::current_exe().unwrap();
    let mut survivors = Vec::new();
    for (mutation, models) in asof_hot::order::mutations() {
        let output = std::process::Command::new(&this)
            .args([models, "--test-threads=2"])
            .env("ASOF_HOT_MUTATION", mutation)
            .output()
            .unwrap();
        // By the exit code: a panic in a model can also end the process, when it comes during another.
        let is_caught = !output.status.success();
        println!(
            "{mutation}: {}",
            if is_caught { "caught" } else { "SURVIVED" }
        );
        if !is_caught {
            survivors.push(mutation);
        }
    }
    assert!(survivors.is_empty(), "no model notices: {survivors:?}");
}
