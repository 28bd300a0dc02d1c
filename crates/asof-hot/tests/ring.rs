//! What a ring promises.
#![cfg(not(loom))]

use asof_hot::{MonoStamp, Ring, ring, ring_drop_oldest};

#[test]
fn all_slots_of_any_capacity_are_usable() {
    fn check<const N: usize>() {
        let (mut producer, mut consumer) = ring::<usize, N>(|| 0);
        for lap in 0..3 {
            for value in 0..N {
                producer.push(lap * N + value, MonoStamp(0)).unwrap();
            }
            assert_eq!(producer.push(99, MonoStamp(0)), Err(99));
            for value in 0..N {
                assert_eq!(consumer.pop().unwrap().value, lap * N + value);
            }
            assert!(consumer.try_read().is_none());
        }
        assert_eq!(producer.refused(), 3);
    }
    check::<1>();
    check::<2>();
    check::<3>();
    check::<7>();
    check::<8>();
}

#[test]
fn a_write_slot_that_is_dropped_never_was() {
    let (mut producer, mut consumer) = ring::<u32, 2>(|| 0);
    *producer.try_write().unwrap() = 5;
    assert!(consumer.try_read().is_none());
    producer.push(6, MonoStamp(0)).unwrap();
    let sample = consumer.pop().unwrap();
    assert_eq!((sample.value, sample.generation), (6, 1));
}

#[test]
fn a_write_slot_that_is_dropped_costs_a_full_ring_nothing() {
    let (mut producer, mut consumer) = ring_drop_oldest::<u32, 2>(|| 0);
    producer.push(1, MonoStamp(0)).unwrap();
    producer.push(2, MonoStamp(0)).unwrap();
    *producer.try_write().unwrap() = 9;
    assert_eq!(producer.lost(), 0);
    assert_eq!(consumer.pop().unwrap().value, 1);
    assert_eq!(consumer.pop().unwrap().value, 2);
}

#[test]
fn a_vec_in_a_slot_keeps_its_capacity() {
    let (mut producer, mut consumer) = ring::<Vec<u8>, 1>(|| Vec::with_capacity(100));
    let mut address = None;
    for _ in 0..5 {
        let mut slot = producer.try_write().unwrap();
        slot.clear();
        slot.extend([1; 100]);
        slot.commit(MonoStamp(0));
        let slot = consumer.try_read().unwrap();
        assert_eq!(*address.get_or_insert(slot.as_ptr()), slot.as_ptr());
    }
}

#[test]
fn the_slot_being_read_is_never_dropped() {
    let (mut producer, mut consumer) = ring_drop_oldest::<u32, 2>(|| 0);
    producer.push(1, MonoStamp(10)).unwrap();
    let held = consumer.try_read().unwrap();
    for value in 2..=20 {
        producer.push(value, MonoStamp(0)).unwrap();
    }
    assert_eq!((*held, held.meta().stamp), (1, MonoStamp(10)));
    drop(held);
    let next = consumer.try_read().unwrap();
    assert_eq!((*next, next.missed()), (19, 17));
    drop(next);
    assert_eq!(consumer.pop().unwrap().value, 20);
    assert_eq!((producer.lost(), consumer.lost()), (17, 17));
}

#[test]
fn a_ring_that_drops_holds_exactly_its_capacity() {
    fn check<const N: usize>() {
        let (mut producer, mut consumer) = ring_drop_oldest::<usize, N>(|| 0);
        for pushed in 1..=4 * N {
            producer.push(pushed, MonoStamp(0)).unwrap();
        }
        for value in 3 * N + 1..=4 * N {
            assert_eq!(consumer.pop().unwrap().value, value);
        }
        assert!(consumer.pop().is_none());
        assert_eq!(consumer.lost() as usize, 3 * N);
    }
    check::<1>();
    check::<2>();
    check::<5>();
}

#[test]
fn the_latest_goes_past_older_samples_and_says_how_many() {
    let (mut producer, mut consumer) = ring::<u32, 4>(|| 0);
    for value in 1..=3 {
        producer.push(value, MonoStamp(0)).unwrap();
    }
    let latest = consumer.try_latest().unwrap();
    assert_eq!((*latest, latest.skipped()), (3, 2));
    drop(latest);
    assert!(consumer.try_latest().is_none());
    for value in 4..=7 {
        producer
            .push(value, MonoStamp(0))
            .expect("the skipped slots are free");
    }
}

#[test]
fn batches_go_through_in_order_and_wrap_around() {
    let (mut producer, mut consumer) = ring::<u32, 5>(|| 0);
    let mut next = 0;
    let mut expected = 0;
    for _ in 0..7 {
        let mut batch = producer.try_write_batch(3).unwrap();
        batch.fill(|index, value| *value = next + index as u32);
        next += batch.len() as u32;
        batch.commit(MonoStamp(3));
        let batch = consumer.try_read_batch(9).unwrap();
        batch.for_each(|value, meta| {
            assert_eq!(
                (*value, meta.generation),
                (expected, u64::from(expected) + 1)
            );
            expected += 1;
        });
    }
    assert_eq!(expected, 21);
}

#[test]
fn a_batch_that_is_dropped_never_was() {
    let (mut producer, mut consumer) = ring::<u32, 4>(|| 0);
    drop(producer.try_write_batch(4));
    assert!(consumer.try_read_batch(4).is_none());
    assert_eq!(producer.try_write_batch(4).unwrap().len(), 4);
}

#[test]
fn a_producer_that_drops_is_not_refused_while_a_batch_holds_everything() {
    let (mut producer, mut consumer) = ring_drop_oldest::<u32, 3>(|| 0);
    for value in 1..=3 {
        producer.push(value, MonoStamp(0)).unwrap();
    }
    let batch = consumer.try_read_batch(3).unwrap();
    for value in 4..=9 {
        assert!(producer.has_room());
        producer.push(value, MonoStamp(0)).unwrap();
    }
    assert_eq!((producer.refused(), producer.lost()), (0, 4));
    let mut seen = Vec::new();
    batch.for_each(|value, _| seen.push(*value));
    assert_eq!(seen, [1, 2, 3]);
    drop(batch);
    let next = consumer.try_read().unwrap();
    assert_eq!(
        (*next, next.missed()),
        (8, 4),
        "two are kept beside the batch"
    );
    drop(next);
    assert_eq!(consumer.pop().unwrap().value, 9);
}

/// 20 of 22 pushes used to be refused.
#[test]
fn a_reader_that_holds_two_of_eight_makes_a_ring_that_drops_refuse_none_of_22_pushes() {
    for held in 1..=8 {
        let (mut producer, mut consumer) = ring_drop_oldest::<u32, 8>(|| 0);
        for value in 1..=8 {
            producer.push(value, MonoStamp(0)).unwrap();
        }
        let batch = consumer.try_read_batch(held).unwrap();
        for value in 9..=30 {
            producer.push(value, MonoStamp(0)).expect("never refused");
        }
        let mut last = 0;
        batch.for_each(|value, _| {
            assert_eq!(*value, last + 1, "what is held does not change");
            last += 1;
        });
        drop(batch);
        let mut missed = 0;
        while let Some(slot) = consumer.try_read() {
            assert_eq!(u64::from(*slot), u64::from(last) + slot.missed() + 1);
            missed += slot.missed();
            last = *slot;
        }
        assert_eq!((last, missed), (30, producer.lost()));
        assert_eq!(producer.refused(), 0);
    }
}

#[test]
fn a_consumer_that_dies_with_a_batch_in_hand_makes_a_ring_that_drops_refuse_nothing() {
    use asof_hot::{Consumer, DropOldest, Producer};
    for held in 1..=4 {
        let ring = Ring::<u32, 4, DropOldest>::new(|| 0);
        // SAFETY: one end of each kind at a time; the first consumer does nothing any more when the second is made.
        let (mut producer, mut consumer) =
            unsafe { (Producer::attach(&ring), Consumer::attach(&ring)) };
        for value in 1..=4 {
            producer.push(value, MonoStamp(0)).unwrap();
        }
        std::mem::forget(consumer.try_read_batch(held).unwrap());
        std::mem::forget(consumer);
        for value in 5..=30 {
            producer.push(value, MonoStamp(0)).expect("never refused");
        }
        // SAFETY: as above.
        let mut successor = unsafe { Consumer::attach(&ring) };
        for value in 31..=40 {
            producer.push(value, MonoStamp(0)).expect("never refused");
        }
        let mut seen = Vec::new();
        while let Some(sample) = successor.pop() {
            seen.push(sample.value);
        }
        assert_eq!(seen, [37, 38, 39, 40], "all slots are in use again");
    }
}

/// What a guard gives is shared as the guard is; Miri sees the difference.
#[test]
fn a_write_slot_can_be_looked_at_twice_at_once() {
    let (mut producer, mut consumer) = ring::<[u32; 4], 2>(|| [0; 4]);
    let mut slot = producer.try_write().unwrap();
    *slot = [1, 2, 3, 4];
    let (one, other) = (&*slot, &*slot);
    assert_eq!((one[0], other[3], one[1]), (1, 4, 2));
    slot[0] = 7;
    let (first, rest) = slot.split_first_mut().unwrap();
    (*first, rest[0]) = (rest[0], *first);
    slot.commit(MonoStamp(0));
    assert_eq!(consumer.pop().unwrap().value, [2, 7, 3, 4]);
}

#[test]
fn a_ring_tells_how_many_samples_waited_at_most() {
    let (mut producer, mut consumer) = ring::<u32, 8>(|| 0);
    assert_eq!(producer.high_water(), 0);
    for (burst, most) in [(1, 1), (3, 3), (2, 3), (5, 5), (4, 5)] {
        for value in 0..burst {
            producer.push(value, MonoStamp(0)).unwrap();
        }
        while consumer.pop().is_some() {}
        assert_eq!((producer.high_water(), consumer.high_water()), (most, most));
    }
    while producer.push(0, MonoStamp(0)).is_ok() {}
    assert_eq!(producer.high_water(), 8, "before anybody came to read");

    let (mut producer, _consumer) = ring_drop_oldest::<u32, 3>(|| 0);
    for value in 0..4 {
        producer.push(value, MonoStamp(0)).unwrap();
    }
    assert_eq!(producer.high_water(), 3);
}

#[test]
fn an_end_knows_when_the_other_one_is_gone() {
    let (mut producer, mut consumer) = ring::<u32, 2>(|| 0);
    assert!(!producer.is_abandoned() && !consumer.is_abandoned());
    producer.push(5, MonoStamp(0)).unwrap();
    drop(producer);
    assert!(consumer.is_abandoned());
    assert_eq!(consumer.pop().unwrap().value, 5, "what was written stays");

    let (producer, consumer) = ring_drop_oldest::<u32, 2>(|| 0);
    drop(consumer);
    assert!(producer.is_abandoned());
    let mut place = Ring::<u32, 3>::new(|| 0);
    let (producer, consumer) = place.split();
    drop(producer);
    assert!(consumer.is_abandoned());
}

#[test]
fn a_ring_needs_no_allocator() {
    let mut place = Ring::<u32, 3>::new(|| 0);
    let (mut producer, mut consumer) = place.split();
    producer.push(1, MonoStamp(0)).unwrap();
    assert_eq!(consumer.pop().unwrap().value, 1);
}

#[test]
fn a_successor_goes_on_at_the_same_place() {
    use asof_hot::{Consumer, Producer, Refuse};
    let ring = std::sync::Arc::new(Ring::<u32, 3, Refuse>::new(|| 0));
    let mut expected = 1;
    for value in 1..50 {
        // SAFETY: each end is dropped before the next of its kind is made.
        let mut producer = unsafe { Producer::attach(ring.clone()) };
        producer.push(value, MonoStamp(0)).unwrap();
        if value % 3 != 1 {
            // SAFETY: as above.
            let mut consumer = unsafe { Consumer::attach(ring.clone()) };
            while let Some(sample) = consumer.pop() {
                assert_eq!(sample.value, expected);
                expected += 1;
            }
        }
    }
    assert_eq!(expected, 49);
}
