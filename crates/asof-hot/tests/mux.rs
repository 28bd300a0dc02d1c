//! What a mux promises.
#![cfg(not(loom))]

use asof_hot::{LockOptions, MonoStamp, MuxEnds, SourceOptions, Stop, mux};
use std::time::Duration;

const NAVIGATION: usize = 0;
const TELEOP: usize = 1;
const LIMIT: Duration = Duration::from_nanos(500);

fn two_sources() -> MuxEnds<f64, 2, 1> {
    mux([SourceOptions::new(LIMIT); 2], [LockOptions::new(2)])
}

#[test]
fn nobody_commands_at_first() {
    assert_eq!(two_sources().output.read(MonoStamp(0)), Err(Stop::Nobody));
    assert_eq!(
        two_sources().output.read(MonoStamp(i64::MAX as u64)),
        Err(Stop::Nobody)
    );
}

#[test]
fn the_more_important_source_counts_while_it_is_alive() {
    let MuxEnds {
        mut sources,
        output,
        ..
    } = two_sources();
    sources[TELEOP].write(&0.1, MonoStamp(1000));
    sources[NAVIGATION].write(&0.9, MonoStamp(1400));
    let command = output.read(MonoStamp(1500)).unwrap();
    assert_eq!((command.source, command.value), (TELEOP, 0.1));
    assert_eq!(command.meta.age(MonoStamp(1500)), LIMIT);
    let command = output.read(MonoStamp(1501)).unwrap();
    assert_eq!((command.source, command.value), (NAVIGATION, 0.9));
    assert_eq!(output.read(MonoStamp(1901)), Err(Stop::Nobody));
}

#[test]
fn a_source_can_give_way_at_once() {
    let MuxEnds {
        mut sources,
        output,
        ..
    } = two_sources();
    sources[NAVIGATION].write(&0.9, MonoStamp(1000));
    sources[TELEOP].write(&0.0, MonoStamp(1000));
    sources[TELEOP].release();
    assert_eq!(output.read(MonoStamp(1000)).unwrap().source, NAVIGATION);
}

#[test]
fn a_stamp_far_ahead_is_a_broken_clock() {
    let MuxEnds {
        mut sources,
        output,
        ..
    } = two_sources();
    sources[TELEOP].write(&0.1, MonoStamp(1500));
    assert!(
        output.read(MonoStamp(1000)).is_ok(),
        "written after the reader looked at the clock"
    );
    assert_eq!(output.read(MonoStamp(999)), Err(Stop::Nobody));
}

#[test]
fn a_lock_masks_the_sources_below_it_only() {
    let MuxEnds {
        mut sources,
        mut locks,
        output,
        ..
    } = mux::<f64, 2, 1>([SourceOptions::new(LIMIT); 2], [LockOptions::new(1)]);
    sources[NAVIGATION].write(&0.9, MonoStamp(0));
    locks[0].engage();
    assert!(locks[0].is_engaged());
    assert_eq!(output.read(MonoStamp(0)), Err(Stop::Locked { lock: 0 }));
    sources[TELEOP].write(&0.1, MonoStamp(0));
    assert_eq!(output.read(MonoStamp(0)).unwrap().source, TELEOP);
    locks[0].release(MonoStamp(0));
    sources[TELEOP].release();
    assert_eq!(output.read(MonoStamp(0)).unwrap().source, NAVIGATION);
}

#[test]
fn a_lock_whose_owner_is_silent_is_engaged() {
    let MuxEnds {
        mut sources,
        mut locks,
        output,
        ..
    } = mux::<f64, 1, 1>(
        [SourceOptions::new(LIMIT)],
        [LockOptions::with_heartbeat(1, LIMIT)],
    );
    sources[0].write(&0.9, MonoStamp(1000));
    assert_eq!(
        output.read(MonoStamp(1000)),
        Err(Stop::Locked { lock: 0 }),
        "never heard"
    );
    locks[0].release(MonoStamp(900));
    assert!(output.read(MonoStamp(1400)).is_ok());
    assert_eq!(output.read(MonoStamp(1401)), Err(Stop::Locked { lock: 0 }));
}

#[test]
fn the_director_can_force_a_source_but_not_revive_it() {
    let MuxEnds {
        mut sources,
        mut director,
        output,
        ..
    } = two_sources();
    sources[TELEOP].write(&0.1, MonoStamp(1000));
    sources[NAVIGATION].write(&0.9, MonoStamp(1000));
    director.force(NAVIGATION);
    assert_eq!(output.read(MonoStamp(1000)).unwrap().source, NAVIGATION);
    assert_eq!(output.read(MonoStamp(1501)), Err(Stop::Nobody));
    director.automatic();
    assert_eq!(output.read(MonoStamp(1000)).unwrap().source, TELEOP);
}

#[test]
fn a_timeout_beyond_all_time_lasts_for_seventy_years() {
    let MuxEnds {
        mut sources,
        output,
        ..
    } = mux::<f64, 1, 0>([SourceOptions::new(Duration::MAX)], []);
    sources[0].write(&0.9, MonoStamp(5));
    assert!(
        output
            .read(MonoStamp(70 * 365 * 86_400_000_000_000))
            .is_ok()
    );
}

#[test]
fn a_release_from_a_clock_that_is_ahead_keeps_no_lock_open() {
    let MuxEnds {
        mut sources,
        mut locks,
        output,
        ..
    } = mux::<f64, 1, 1>(
        [SourceOptions::new(Duration::MAX)],
        [LockOptions::with_heartbeat(1, LIMIT)],
    );
    sources[0].write(&0.9, MonoStamp(1000));
    locks[0].release(MonoStamp(1500));
    assert!(
        output.read(MonoStamp(1000)).is_ok(),
        "released after the reader looked at the clock"
    );
    let hour = 3_600_000_000_000;
    locks[0].release(MonoStamp(1000 + hour));
    // As one who remembers the command that it followed, and as one who does not.
    for reader in [output.clone(), output] {
        for now in [1000, 2000, hour - 1] {
            assert_eq!(
                reader.read(MonoStamp(now)),
                Err(Stop::Locked { lock: 0 }),
                "at {now}"
            );
        }
    }
}

#[test]
fn a_heartbeat_beyond_all_time_is_still_one() {
    let lock = LockOptions::with_heartbeat(1, Duration::MAX);
    assert!(lock.heartbeat().is_some());
    assert_eq!(LockOptions::new(1).heartbeat(), None);
    let MuxEnds {
        mut sources,
        output,
        ..
    } = mux::<f64, 1, 1>([SourceOptions::new(LIMIT)], [lock]);
    sources[0].write(&0.9, MonoStamp(0));
    assert_eq!(
        output.read(MonoStamp(0)),
        Err(Stop::Locked { lock: 0 }),
        "never heard"
    );
}
