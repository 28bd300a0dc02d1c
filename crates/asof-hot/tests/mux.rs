//! What a mux promises.
#![cfg(not(loom))]

use asof_hot::{LockOptions, MonoStamp, MuxEnds, MuxOutput, SourceOptions, Stop, mux};
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

/// A reader that remembers its last decision, and one that is new each time, see the same, whatever the sources, the
/// locks, the director and the clock do.
#[test]
fn a_reader_that_remembers_decides_like_one_that_does_not() {
    let span = Duration::from_nanos;
    let sources = [
        SourceOptions::new(span(5)),
        SourceOptions::new(span(40)),
        SourceOptions::new(span(9)),
    ];
    let locks = [
        LockOptions::new(1),
        LockOptions::with_heartbeat(2, span(12)),
    ];
    let MuxEnds {
        mut sources,
        mut locks,
        mut director,
        output: unused,
    } = mux::<u64, 3, 2>(sources, locks);
    let remembers = unused.clone();
    let mut state = 88172645463325252_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let (mut now, mut followed) = (1000, 0);
    let steps = if cfg!(miri) { 1_000 } else { 200_000 };
    for step in 0..steps {
        let stamp = MonoStamp(now + random(30) - 20);
        match random(40) {
            0..3 => sources[random(3) as usize].write(&step, stamp),
            3 => sources[random(3) as usize].release(),
            4 => locks[random(2) as usize].engage(),
            5 | 6 => locks[random(2) as usize].release(stamp),
            7 => director.force(random(3) as usize),
            8 => director.automatic(),
            9 => now += random(20),
            10 => now -= random(10),
            _ => {}
        }
        let found = remembers.read(MonoStamp(now));
        let fresh: MuxOutput<u64, 3, 2> = unused.clone();
        assert_eq!(found, fresh.read(MonoStamp(now)), "step {step}");
        followed += u64::from(found.is_ok());
    }
    assert!(followed > steps / 10, "{followed} commands were followed");
}

#[test]
fn a_reader_of_the_largest_mux_notices_every_lock_and_every_source() {
    let MuxEnds {
        mut sources,
        mut locks,
        mut director,
        output,
    } = mux::<u64, 16, 16>(
        [SourceOptions::new(Duration::from_secs(1)); 16],
        [LockOptions::new(16); 16],
    );
    let now = MonoStamp(1_000);
    sources[0].write(&0, now);
    let follow = || output.read(now).map(|command| command.source);
    // An interpreter takes its time.
    let most = if cfg!(miri) { 2 } else { 16 };
    // Each state twice: as it was chosen, and as it was followed last.
    for (lock, end) in locks.iter_mut().enumerate().take(most) {
        assert_eq!((follow(), follow()), (Ok(0), Ok(0)));
        end.engage();
        assert_eq!(follow(), Err(Stop::Locked { lock }));
        end.release(now);
    }
    for (source, end) in sources.iter_mut().enumerate().take(most).skip(1) {
        assert_eq!((follow(), follow()), (Ok(0), Ok(0)));
        end.write(&7, now);
        assert_eq!((follow(), follow()), (Ok(source), Ok(source)));
        director.force(0);
        assert_eq!((follow(), follow()), (Ok(0), Ok(0)));
        director.automatic();
        assert_eq!(follow(), Ok(source));
        end.release();
    }
    assert_eq!(follow(), Ok(0));
}
