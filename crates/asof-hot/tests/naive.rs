//! What is wrong with the naive forms of these structures, each in the smallest run that shows it, beside ours.
//!
//! The naive ones are written to the usual description, and driven step by step by one thread: what goes wrong here is
//! the design, not a race.
#![cfg(not(loom))]
#![allow(clippy::float_cmp)] // what went in must come out

use asof_hot::{
    LatchState, LockOptions, MonoStamp, MuxEnds, SourceOptions, event_latch, latest, mux, ring,
    snapshot, triple_buffer,
};
use std::time::Duration;

mod ring_of_two_indexes {
    #[derive(Default)]
    pub struct Ring {
        slots: [u32; 8],
        head: usize,
        tail: usize,
    }
    impl Ring {
        pub fn write(&mut self, value: u32) -> bool {
            if (self.head + 1) % 8 == self.tail {
                return false;
            }
            self.slots[self.head] = value;
            self.head = (self.head + 1) % 8;
            true
        }
        pub fn read(&self) -> Option<u32> {
            (self.head != self.tail).then(|| self.slots[self.tail])
        }
        pub fn release_read(&mut self) {
            self.tail = (self.tail + 1) % 8;
        }
    }
}

#[test]
fn a_ring_of_two_indexes_holds_one_less_than_it_has() {
    let mut naive = ring_of_two_indexes::Ring::default();
    assert_eq!((0..8).filter(|value| naive.write(*value)).count(), 7);

    let (mut producer, _consumer) = ring::<u32, 8>(|| 0);
    assert_eq!(
        (0..8)
            .filter(|value| producer.push(*value, MonoStamp(0)).is_ok())
            .count(),
        8
    );
}

#[test]
fn one_release_too_many_makes_an_empty_ring_of_two_indexes_full_of_old_samples() {
    let mut naive = ring_of_two_indexes::Ring::default();
    naive.release_read();
    assert_eq!(naive.read(), Some(0), "a sample that nobody wrote");
    assert_eq!(
        (0..9).filter(|value| naive.write(*value)).count(),
        0,
        "and no room"
    );

    // Ours cannot be released too often: the guard does it, once.
    let (_producer, mut consumer) = ring::<u32, 8>(|| 0);
    drop(consumer.try_read());
    drop(consumer.try_read());
    assert!(consumer.try_read().is_none());
}

/// One slot, and a count that is odd during a write.
#[derive(Default)]
struct SeqLock {
    sequence: u64,
    value: u64,
}

impl SeqLock {
    fn begin_write(&mut self) {
        self.sequence += 1;
    }
    fn end_write(&mut self, value: u64) {
        self.value = value;
        self.sequence += 1;
    }
    fn try_read(&self) -> Option<u64> {
        self.sequence.is_multiple_of(2).then_some(self.value)
    }
}

#[test]
fn a_reader_of_a_single_slot_seqlock_waits_for_a_writer_that_died() {
    let mut naive = SeqLock::default();
    naive.begin_write();
    naive.end_write(5);
    naive.begin_write(); // and the writer dies
    assert!((0..1_000_000).all(|_| naive.try_read().is_none()));

    // Ours keeps the last whole value; what happens when a process dies in every step is in models.rs and processes.rs.
    let (mut writer, reader) = latest::<u64, 2>();
    writer.write(&5, MonoStamp(0));
    writer.update(MonoStamp(1), |_half_done| {
        assert_eq!(reader.read().unwrap().value, 5);
    });
}

#[test]
fn a_seqlock_that_was_never_written_succeeds() {
    assert_eq!(
        SeqLock::default().try_read(),
        Some(0),
        "whatever was in memory"
    );

    let (_writer, reader) = latest::<u64, 2>();
    assert!(reader.read().is_none());
}

#[test]
fn a_late_mode_switch_drives_an_old_command() {
    #[derive(Default)]
    struct PriorityBuffer {
        commands: [f64; 2],
        mode: usize,
    }
    impl PriorityBuffer {
        fn write_navigation(&mut self, command: f64) {
            self.commands[0] = command;
        }
        fn write_teleop(&mut self, command: f64) {
            self.commands[1] = command;
            self.mode = 1;
        }
        fn on_teleop_timeout(&mut self) {
            self.mode = 0;
        }
        fn read(&self) -> f64 {
            self.commands[self.mode]
        }
    }
    let mut naive = PriorityBuffer::default();
    naive.write_navigation(0.9);
    naive.write_teleop(0.0); // the operator stops the robot...
    naive.on_teleop_timeout(); // ...and a timer that ran out just before that comes late
    assert_eq!(naive.read(), 0.9, "the robot drives on");

    let limit = SourceOptions::new(Duration::from_nanos(500));
    let MuxEnds {
        sources: [mut navigation, mut teleop],
        output,
        ..
    } = mux::<f64, 2, 1>([limit; 2], [LockOptions::new(2)]);
    navigation.write(&0.9, MonoStamp(0));
    teleop.write(&0.0, MonoStamp(400));
    assert_eq!(
        output.read(MonoStamp(450)).unwrap().value,
        0.0,
        "there is no mode to switch"
    );
    assert!(
        output.read(MonoStamp(2000)).is_err(),
        "and an old command is nobody's"
    );
}

/// Two maps of two cells, an index and a flag.
#[derive(Default)]
struct DoubleBuffer {
    buffers: [[u32; 2]; 2],
    front: usize,
    is_dirty: bool,
}

impl DoubleBuffer {
    fn back(&mut self) -> &mut [u32; 2] {
        &mut self.buffers[1 - self.front]
    }
    fn swap(&mut self) {
        self.front = 1 - self.front;
        self.is_dirty = true;
    }
    fn clear_dirty(&mut self) {
        self.is_dirty = false;
    }
}

#[test]
fn two_swaps_of_a_double_buffer_write_into_the_map_being_read() {
    let mut naive = DoubleBuffer::default();
    naive.back()[0] = 1;
    naive.swap();
    let being_read = naive.front;
    for value in 2..=3 {
        naive.back()[0] = value;
        naive.swap();
    }
    assert_eq!(
        naive.buffers[being_read][0], 3,
        "the map changed under its reader"
    );

    let (mut writer, [mut reader]) = snapshot::<u32, 1>(|| 0);
    let mut publish = |value| {
        *writer.back() = value;
        writer.publish(MonoStamp(0));
    };
    publish(1);
    let being_read = reader.latest();
    publish(2);
    publish(3);
    assert_eq!(*being_read, 1);
}

#[test]
fn a_publication_before_the_dirty_flag_is_cleared_is_lost() {
    let mut naive = DoubleBuffer::default();
    naive.back()[0] = 1;
    naive.swap();
    let seen = naive.buffers[naive.front][0];
    naive.back()[0] = 2;
    naive.swap(); // between the look and its end
    naive.clear_dirty();
    assert!(!naive.is_dirty && seen == 1, "nobody will look at 2");

    let (mut writer, [mut reader]) = snapshot::<u32, 1>(|| 0);
    *writer.back() = 1;
    writer.publish(MonoStamp(0));
    let seen = reader.latest();
    *writer.back() = 2;
    writer.publish(MonoStamp(0));
    drop(seen);
    assert!(reader.has_new());
}

#[test]
fn an_edit_of_the_other_buffer_starts_from_the_map_before_last() {
    let mut naive = DoubleBuffer::default();
    for cell in 0..2 {
        naive.back()[cell] = 1;
        naive.swap();
    }
    assert_eq!(naive.buffers[naive.front], [0, 1], "the first edit is gone");

    let (mut writer, [mut reader]) = snapshot::<[u32; 2], 1>(|| [0; 2]);
    writer.edit()[0] = 1;
    writer.publish(MonoStamp(0));
    writer.edit()[1] = 1;
    writer.publish(MonoStamp(0));
    assert_eq!(*reader.latest(), [1, 1]);
}

/// A flag and a time in milliseconds.
#[derive(Default)]
struct Bumper {
    is_triggered: bool,
    stamp: u32,
}

impl Bumper {
    fn trigger(&mut self, now: u32) {
        self.is_triggered = true;
        self.stamp = now;
    }
    fn reset_if_elapsed(&mut self, now: u32, span: u32) -> bool {
        let is_over = now - self.stamp >= span;
        self.is_triggered &= !is_over;
        is_over
    }
}

#[test]
fn a_hit_between_check_and_reset_of_a_flag_is_lost() {
    let mut naive = Bumper::default();
    naive.trigger(1);
    assert!(naive.is_triggered, "the first hit is seen, and dealt with");
    naive.trigger(2);
    naive.is_triggered = false; // the reset that belongs to the first
    assert!(!naive.is_triggered, "and the second hit is gone");

    let (mut trigger, mut resetter, observer) = event_latch(None);
    trigger.trigger(1, MonoStamp(1));
    let LatchState::Contact(seen) = observer.state(MonoStamp(2)) else {
        panic!("it was triggered")
    };
    trigger.trigger(1, MonoStamp(2));
    assert!(resetter.reset(seen.count).is_err());
    assert!(matches!(
        observer.state(MonoStamp(3)),
        LatchState::Contact(_)
    ));
}

#[test]
fn an_untouched_flag_with_a_time_says_it_was_reset() {
    assert!(
        Bumper::default().reset_if_elapsed(5000, 500),
        "though nothing ever happened"
    );

    let (_trigger, mut resetter, _observer) = event_latch(None);
    assert!(!resetter.reset_if_elapsed(MonoStamp(5000), Duration::from_nanos(500)));
}

#[test]
fn a_triple_buffer_without_a_fresh_mark_runs_backwards() {
    let mut buffers = [0, 0, 0];
    let (mut write, mut middle, mut read) = (0, 1, 2);
    for value in 1..=2 {
        buffers[write] = value;
        core::mem::swap(&mut write, &mut middle);
    }
    let reads: Vec<_> = (0..3)
        .map(|_| {
            core::mem::swap(&mut middle, &mut read);
            buffers[read]
        })
        .collect();
    assert_eq!(reads, [2, 0, 2]);

    let (mut input, mut output) = triple_buffer(|| 0);
    for value in 1..=2 {
        *input.back() = value;
        input.publish(MonoStamp(0));
    }
    assert_eq!(
        [*output.latest(), *output.latest(), *output.latest()],
        [2, 2, 2]
    );
}
