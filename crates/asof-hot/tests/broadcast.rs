//! What a broadcast ring promises.
#![cfg(all(not(loom), target_has_atomic = "64"))]

use asof_hot::{Broadcast, BroadcastProducer, BroadcastReader, MonoStamp, broadcast};

#[test]
fn every_reader_reads_every_sample_at_its_own_pace() {
    let (mut producer, [mut quick, mut slow]) = broadcast::<u32, 4, 2>(|| 0);
    for value in 1..=4 {
        producer.push(value, MonoStamp(u64::from(value))).unwrap();
        let sample = quick.pop().unwrap();
        assert_eq!(
            (sample.value, sample.stamp),
            (value, MonoStamp(u64::from(value)))
        );
        assert!(quick.pop().is_none());
    }
    assert_eq!(slow.waiting(), 4);
    for value in 1..=4 {
        assert_eq!(slow.pop().unwrap().value, value);
    }
    assert_eq!((quick.missed(), slow.missed()), (0, 0));
    assert!(!slow.has_new());
}

#[test]
fn who_is_too_slow_misses_the_oldest_and_is_told_how_many() {
    fn check<const N: usize>() {
        let (mut producer, [mut reader]) = broadcast::<usize, N, 1>(|| 0);
        for value in 1..=10 * N {
            producer.push(value, MonoStamp(0)).expect("never refused");
        }
        let first = reader.try_read().unwrap();
        assert!(*first <= 9 * N + 1, "the last {N} are kept");
        assert_eq!(first.missed() as usize, *first - 1);
        let mut last = *first;
        drop(first);
        while let Some(sample) = reader.try_read() {
            assert_eq!((*sample, sample.missed()), (last + 1, 0));
            last = *sample;
        }
        assert_eq!(last, 10 * N);
    }
    check::<1>();
    check::<2>();
    check::<7>();
}

#[test]
fn what_is_being_read_does_not_change_and_holds_nobody_up() {
    let (mut producer, [mut holds, mut reads]) = broadcast::<u32, 2, 2>(|| 0);
    producer.push(1, MonoStamp(10)).unwrap();
    let held = holds.try_read().unwrap();
    for value in 2..=50 {
        producer.push(value, MonoStamp(0)).expect("never refused");
        if value % 3 == 0 {
            let latest = reads.try_latest().unwrap();
            assert_eq!(
                (*latest, latest.meta().generation),
                (value, u64::from(value))
            );
        }
    }
    assert_eq!((*held, held.meta().stamp), (1, MonoStamp(10)));
    drop(held);
    let next = holds.try_read().unwrap();
    assert_eq!(u64::from(*next), 2 + next.missed());
}

#[test]
fn a_producer_that_must_lose_nothing_waits_for_the_slowest() {
    let (mut producer, [mut quick, mut slow]) = broadcast::<u32, 3, 2>(|| 0);
    let mut next = 0;
    let mut fill = |producer: &mut BroadcastProducer<u32, 3, 2>| {
        let mut count = 0;
        while let Some(mut slot) = producer.try_write_lossless() {
            next += 1;
            *slot = next;
            slot.commit(MonoStamp(0));
            count += 1;
        }
        count
    };
    assert_eq!(fill(&mut producer), 3);
    while quick.pop().is_some() {}
    assert_eq!(fill(&mut producer), 0, "one has not read");
    assert_eq!(slow.pop().unwrap().value, 1);
    assert_eq!(fill(&mut producer), 1);
    assert_eq!(producer.refused(), 3);
    drop(slow);
    assert_eq!(fill(&mut producer), 2, "who is gone is not waited for");
    for value in 4..=6 {
        assert_eq!(quick.pop().unwrap().value, value);
    }
    assert_eq!(quick.missed(), 0);
}

#[test]
fn a_write_slot_that_is_dropped_never_was() {
    let (mut producer, [mut reader]) = broadcast::<u32, 2, 1>(|| 0);
    *producer.try_write().unwrap() = 5;
    assert!(reader.try_read().is_none());
    for value in 1..=9 {
        drop(producer.try_write());
        producer.push(value, MonoStamp(0)).unwrap();
        assert_eq!(reader.pop().unwrap().value, value);
    }
}

#[test]
fn a_write_slot_can_be_looked_at_twice_at_once() {
    let (mut producer, _readers) = broadcast::<[u32; 2], 2, 1>(|| [0; 2]);
    let mut slot = producer.try_write().unwrap();
    *slot = [1, 2];
    let (one, other) = (&*slot, &*slot);
    assert_eq!((one[0], other[1], one[1]), (1, 2, 2));
}

#[test]
fn a_reader_that_died_is_followed_at_its_place() {
    let ring = Broadcast::<u32, 4, 2>::new(|| 0);
    // SAFETY: one end of each kind at a time; a reader that was forgotten does nothing any more.
    let (mut producer, mut reader, mut other) = unsafe {
        (
            BroadcastProducer::attach(&ring),
            BroadcastReader::attach(&ring, 0),
            BroadcastReader::attach(&ring, 1),
        )
    };
    for value in 1..=3 {
        producer.push(value, MonoStamp(0)).unwrap();
    }
    assert_eq!(reader.pop().unwrap().value, 1);
    std::mem::forget(reader.try_read().unwrap());
    std::mem::forget(reader);
    // SAFETY: as above.
    let mut successor = unsafe { BroadcastReader::attach(&ring, 0) };
    assert_eq!(
        successor.pop().unwrap().value,
        2,
        "what was in its hand is read again"
    );
    drop(successor);
    for value in 4..=40 {
        producer.push(value, MonoStamp(0)).expect("never refused");
    }
    // SAFETY: as above.
    let mut late = unsafe { BroadcastReader::attach(&ring, 0) };
    assert!(
        late.pop().is_none(),
        "who left comes back to what is written from now on"
    );
    producer.push(41, MonoStamp(0)).unwrap();
    assert_eq!(late.pop().unwrap().value, 41);
    let mut last = 0;
    while let Some(sample) = other.pop() {
        last = sample.value;
    }
    assert_eq!(last, 41);
}

#[test]
fn an_end_knows_when_the_others_are_gone() {
    let (producer, [one, two]) = broadcast::<u32, 2, 2>(|| 0);
    drop(one);
    assert!(!producer.is_abandoned());
    assert!(!two.is_abandoned());
    drop(producer);
    assert!(two.is_abandoned());
    let (producer, readers) = broadcast::<u32, 2, 2>(|| 0);
    drop(readers);
    assert!(producer.is_abandoned());
}
