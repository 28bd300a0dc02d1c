//! What a snapshot promises.
#![cfg(not(loom))]

use asof_hot::{MonoStamp, Snapshot, snapshot, triple_buffer};

#[test]
fn a_held_value_does_not_change_however_much_is_published() {
    let (mut writer, [mut reader]) = snapshot::<Vec<u32>, 1>(|| vec![0; 100]);
    writer.back().fill(1);
    writer.publish(MonoStamp(1));
    let held = reader.latest();
    for value in 2..50 {
        writer.back().fill(value);
        writer.publish(MonoStamp(value.into()));
        assert!(held.iter().all(|&cell| cell == 1));
    }
    assert_eq!(held.meta().generation, 1);
    drop(held);
    assert!(reader.latest().iter().all(|&cell| cell == 49));
}

#[test]
fn readers_hold_different_values_at_the_same_time() {
    let (mut writer, [mut a, mut b, mut c]) = snapshot::<u32, 3>(|| 0);
    let mut publish = |value| {
        *writer.back() = value;
        writer.publish(MonoStamp(value.into()));
    };
    publish(1);
    let a = a.latest();
    publish(2);
    let b = b.latest();
    publish(3);
    let c = c.latest();
    for value in 4..20 {
        publish(value);
    }
    assert_eq!((*a, *b, *c), (1, 2, 3));
}

#[test]
fn an_edit_starts_from_what_was_published_last() {
    let (mut writer, [mut reader]) = snapshot::<Vec<usize>, 1>(|| vec![0; 10]);
    for cell in 0..10 {
        writer.edit()[cell] = 1;
        writer.publish(MonoStamp(0));
        if cell % 3 == 0 {
            assert_eq!(reader.latest().iter().sum::<usize>(), cell + 1);
        }
    }
}

#[test]
fn a_publication_between_a_look_and_its_end_is_new_afterwards() {
    let (mut writer, [mut reader]) = snapshot::<u32, 1>(|| 0);
    assert!(!reader.has_new());
    *writer.back() = 1;
    writer.publish(MonoStamp(1));
    assert!(reader.has_new());
    let guard = reader.latest();
    *writer.back() = 2;
    writer.publish(MonoStamp(2));
    drop(guard);
    assert!(reader.has_new());
    assert_eq!(*reader.latest_if_new().unwrap(), 2);
    assert!(reader.latest_if_new().is_none());
    assert_eq!(*reader.current(), 2);
}

#[test]
fn a_triple_buffer_never_goes_back() {
    let (mut input, mut output) = triple_buffer(|| 0u32);
    for value in 1..=2 {
        *input.back() = value;
        input.publish(MonoStamp(0));
    }
    assert_eq!(
        [*output.latest(), *output.latest(), *output.latest()],
        [2, 2, 2]
    );
}

#[test]
fn a_snapshot_needs_no_allocator() {
    let mut place = Snapshot::<[u8; 16], 2>::new(|| [0; 16]);
    let (mut writer, [mut one, mut two]) = place.split();
    writer.back()[3] = 9;
    writer.publish(MonoStamp(1));
    assert_eq!((one.latest()[3], two.latest()[3]), (9, 9));
}

#[test]
fn successors_find_everything_as_it_was() {
    use asof_hot::{SnapshotReader, SnapshotWriter};
    let memory = std::sync::Arc::new(Snapshot::<u64, 2>::new(|| 0));
    for value in 1..30 {
        // SAFETY: each end is dropped before the next of its kind is made.
        let (mut writer, mut reader) = unsafe {
            (
                SnapshotWriter::attach(memory.clone()),
                SnapshotReader::attach(memory.clone(), (value % 2) as usize),
            )
        };
        assert_eq!(*writer.front(), value - 1);
        *writer.back() = value;
        writer.publish(MonoStamp(value));
        assert_eq!((*reader.latest(), writer.generation()), (value, value));
    }
}

#[test]
fn nothing_is_new_after_a_writer_only_attached() {
    use asof_hot::{Snapshot, SnapshotReader, SnapshotWriter};
    let memory = std::sync::Arc::new(Snapshot::<u32, 2>::new(|| 0));
    // SAFETY: one end of each kind at a time.
    let (mut one, mut two, writer) = unsafe {
        (
            SnapshotReader::attach(memory.clone(), 0),
            SnapshotReader::attach(memory.clone(), 1),
            SnapshotWriter::attach(memory.clone()),
        )
    };
    assert!(!one.has_new() && !two.has_new());
    assert!(one.latest_if_new().is_none());
    drop(writer);
    // SAFETY: the writer before is gone.
    let mut writer = unsafe { SnapshotWriter::attach(memory.clone()) };
    *writer.back() = 7;
    writer.publish(MonoStamp(1));
    assert_eq!(*one.latest(), 7);
    drop(writer);
    // SAFETY: as above.
    let mut writer = unsafe { SnapshotWriter::attach(memory) };
    assert!(!one.has_new(), "it has the newest already");
    assert!(two.has_new(), "this one does not");
    for number in 8..20 {
        *writer.back() = number;
        writer.publish(MonoStamp(1));
        assert_eq!(*two.latest(), number);
    }
    assert_eq!(*one.latest(), 19);
}
