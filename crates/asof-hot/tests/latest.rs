//! What a latest value promises.
#![cfg(not(loom))]
#![allow(clippy::float_cmp)] // what went in must come out

use asof_hot::{Latest, MonoStamp, latest};

#[test]
fn nothing_is_there_before_the_first_write() {
    let (_writer, reader) = latest::<u64, 4>();
    assert!(reader.read().is_none());
    assert_eq!(reader.try_read(), Ok(None));
    assert_eq!(reader.generation(), 0);
    let mut untouched = 7;
    assert!(reader.read_into(&mut untouched).is_none());
    assert_eq!(untouched, 7);
}

#[test]
fn a_value_comes_with_its_generation_and_age() {
    let (mut writer, reader) = latest::<[f32; 9], 4>();
    for step in 1..=10 {
        writer.write(&[step as f32; 9], MonoStamp(step * 100));
        let sample = reader.read().unwrap();
        assert_eq!(sample.value, [step as f32; 9]);
        assert_eq!(sample.generation, step);
        assert_eq!(sample.age(MonoStamp(step * 100 + 5)).as_nanos(), 5);
    }
}

#[test]
fn only_what_is_newer_is_read_if_that_is_asked() {
    let (mut writer, reader) = latest::<u64, 4>();
    writer.write(&1, MonoStamp(0));
    let seen = reader.read_if_newer(0).unwrap();
    assert!(reader.read_if_newer(seen.generation).is_none());
    writer.write(&2, MonoStamp(0));
    writer.write(&3, MonoStamp(0));
    let next = reader.read_if_newer(seen.generation).unwrap();
    assert_eq!(
        (next.value, next.meta().missed_since(seen.generation)),
        (3, 1)
    );
}

#[test]
fn an_update_starts_from_the_last_value() {
    let (mut writer, reader) = latest::<[u64; 2], 4>();
    writer.update(MonoStamp(1), |value| value[0] = 5);
    writer.update(MonoStamp(2), |value| value[1] = 6);
    assert_eq!(reader.read().unwrap().value, [5, 6]);
}

#[test]
fn a_reader_is_served_while_an_update_takes_its_time() {
    let (mut writer, reader) = latest::<u64, 2>();
    writer.write(&1, MonoStamp(0));
    writer.update(MonoStamp(1), |value| {
        assert_eq!(reader.read().unwrap().value, 1);
        *value = 2;
    });
    assert_eq!(reader.read().unwrap().value, 2);
}

#[test]
fn the_last_values_are_a_short_history() {
    let (mut writer, reader) = latest::<u64, 8>();
    for value in 1..=20 {
        writer.write(&value, MonoStamp(value * 10));
    }
    assert_eq!(reader.read_at(MonoStamp(175)).unwrap().value, 17);
    assert_eq!(reader.read_at(MonoStamp(999)).unwrap().value, 20);
    assert!(reader.read_at(MonoStamp(100)).is_none(), "too long ago");
    assert_eq!(reader.read_generation(14).unwrap().value, 14);
    assert!(reader.read_generation(21).is_none(), "not yet");
    assert!(reader.read_generation(11).is_none(), "no longer");
}

#[test]
fn both_ends_can_borrow_their_memory() {
    let mut memory = Latest::<u8, 2>::new();
    let (mut writer, reader) = memory.split();
    writer.write(&3, MonoStamp(0));
    assert_eq!(reader.clone().read().unwrap().value, 3);
}

#[test]
fn a_successor_counts_on() {
    let memory = std::sync::Arc::new(Latest::<u64, 4>::new());
    for value in 1..10 {
        // SAFETY: the writer before was dropped at the end of its round.
        let mut writer = unsafe { asof_hot::LatestWriter::attach(memory.clone()) };
        writer.write(&value, MonoStamp(0));
        assert_eq!(writer.generation(), value);
    }
}

#[test]
fn a_reader_that_has_settled_sees_the_next_value_at_once() {
    let (mut writer, reader) = latest::<[u64; 18], 4>();
    let mut room = [7; 18];
    assert!(reader.read_into(&mut room).is_none());
    assert_eq!(
        room, [7; 18],
        "the room is untouched before the first value"
    );
    // Miri takes seconds for a value.
    for number in 1..=if cfg!(miri) { 4 } else { 20 } {
        writer.write(&[number; 18], MonoStamp(number));
        // More reads of one value than it takes to expect no other.
        for _ in 0..if number % 3 == 0 { 1 } else { 600 } {
            let meta = reader.read_into(&mut room).unwrap();
            assert_eq!(
                (room, meta.generation, meta.stamp),
                ([number; 18], number, MonoStamp(number))
            );
        }
    }
}
