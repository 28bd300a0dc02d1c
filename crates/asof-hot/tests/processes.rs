//! Structures between processes, and what is left of them when a process is killed.
#![cfg(all(feature = "shm", target_os = "linux", not(loom), not(miri)))]

use asof_hot::shm::{Segment, ShmError, remove};
use asof_hot::{
    DropOldest, EventLatch, LatchState, Latest, LockOptions, MonoStamp, Mux, Refuse, Ring,
    Snapshot, SourceOptions, Stop,
};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

type Value = [u64; 18];
type Odometry = Latest<Value, 4>;
type Scans = Ring<Value, 4, DropOldest>;
type Commands = Ring<Value, 4, Refuse>;
type Map = Snapshot<[u64; 512], 2>;
type Drive = Mux<[u64; 9], 2, 1>;

/// A name of its own for each test, removed at its end.
struct Name(String);

impl Name {
    fn new(test: &str) -> Self {
        Name(format!("asof-hot-test-{}-{test}", std::process::id()))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        for suffix in [
            "",
            ".odometry",
            ".scans",
            ".commands",
            ".map",
            ".drive",
            ".bumper",
        ] {
            let _ = remove(&format!("{}{suffix}", self.0));
        }
    }
}

/// All that is shared in the kill tests.
struct Robot {
    odometry: Segment<Odometry>,
    scans: Segment<Scans>,
    commands: Segment<Commands>,
    map: Segment<Map>,
    drive: Segment<Drive>,
    bumper: Segment<EventLatch>,
}

impl Robot {
    fn open(name: &str) -> Self {
        let limits = (
            [SourceOptions::new(Duration::from_hours(1)); 2],
            [LockOptions::new(2)],
        );
        Robot {
            odometry: Segment::open_or_create(&format!("{name}.odometry"), ()).unwrap(),
            scans: Segment::open_or_create(&format!("{name}.scans"), ()).unwrap(),
            commands: Segment::open_or_create(&format!("{name}.commands"), ()).unwrap(),
            map: Segment::open_or_create(&format!("{name}.map"), ()).unwrap(),
            drive: Segment::open_or_create(&format!("{name}.drive"), limits).unwrap(),
            bumper: Segment::open_or_create(&format!("{name}.bumper"), None).unwrap(),
        }
    }
}

/// Not a test: what the child processes of the tests below run.
#[test]
fn child() {
    let Ok(name) = std::env::var("ASOF_HOT_TEST_SEGMENTS") else {
        return;
    };
    let robot = Robot::open(&name);
    match std::env::var("ASOF_HOT_TEST_ROLE").as_deref() {
        Ok("writer") => write_for_ever(&robot),
        Ok("reader") => read_for_ever(&robot),
        Ok("sleeper") => sleep_for_ever(&robot),
        other => panic!("unknown role {other:?}"),
    }
}

fn write_for_ever(robot: &Robot) {
    let mut odometry = robot.odometry.writer().unwrap();
    let mut scans = robot.scans.producer().unwrap();
    let mut commands = robot.commands.producer().unwrap();
    let mut map = robot.map.writer().unwrap();
    let mut drive = robot.drive.source(1).unwrap();
    let mut bumper = robot.bumper.trigger().unwrap();
    for number in odometry.generation().. {
        odometry.write(&[number; 18], MonoStamp(number));
        let mut slot = scans.try_write().expect("never refused");
        *slot = [number; 18];
        slot.commit(MonoStamp(number));
        if let Some(mut slot) = commands.try_write() {
            *slot = [number; 18];
            slot.commit(MonoStamp(number));
        }
        map.back().fill(number);
        map.publish(MonoStamp(number));
        drive.write(&[number; 9], MonoStamp(number));
        bumper.trigger(1, MonoStamp(number));
    }
}

fn read_for_ever(robot: &Robot) {
    let mut scans = robot.scans.consumer().unwrap();
    let mut commands = robot.commands.consumer().unwrap();
    let mut map = robot.map.reader(0).unwrap();
    for round in 0u64.. {
        // One at a time or several, so that a kill finds any number of them in hand.
        match round % 6 {
            0 => {
                if let Some(scan) = scans.try_read() {
                    assert_whole(&*scan);
                }
            }
            1 => {
                if let Some(scan) = scans.try_latest() {
                    assert_whole(&*scan);
                }
            }
            most => {
                if let Some(batch) = scans.try_read_batch(most as usize - 1) {
                    batch.for_each(|scan, _| assert_whole(scan));
                }
            }
        }
        if let Some(command) = commands.try_read() {
            assert_whole(&*command);
        }
        assert_whole(&*map.latest());
    }
}

fn sleep_for_ever(robot: &Robot) {
    let reader = robot.odometry.reader();
    let sleeper = robot.odometry.sleeper().unwrap();
    let mut seen = 0;
    loop {
        sleeper.wait_until(None, || reader.generation() > seen);
        seen = reader.generation();
    }
}

fn assert_whole(value: &[u64]) {
    assert!(
        value.iter().all(|word| *word == value[0]),
        "torn: {value:?}"
    );
}

fn spawn(name: &Name, role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("ASOF_HOT_TEST_SEGMENTS", &name.0)
        .env("ASOF_HOT_TEST_ROLE", role)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// As many kills as the environment asks for, else as the issue is worth.
fn kills() -> u64 {
    std::env::var("ASOF_HOT_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(200)
}

/// Waits for the child to do something, then a little longer, a different time for each.
fn let_it_run(kill: u64, child: &mut Child, mut progress: impl FnMut() -> u64) {
    let start = Instant::now();
    let before = progress();
    while progress() == before {
        assert!(
            child.try_wait().unwrap().is_none(),
            "the child died by itself"
        );
        assert!(
            start.elapsed() < Duration::from_mins(1),
            "the child does nothing"
        );
        std::thread::yield_now();
    }
    let more = Duration::from_nanos((kill * 7919 * 7919) % 1_000_000);
    let start = Instant::now();
    while start.elapsed() < more {
        progress();
    }
}

#[test]
fn a_writer_killed_at_any_moment_leaves_no_reader_stuck_and_none_torn() {
    let name = Name::new("kill-writer");
    let robot = Robot::open(&name.0);
    let odometry = robot.odometry.reader();
    let mut scans = robot.scans.consumer().unwrap();
    let mut commands = robot.commands.consumer().unwrap();
    let mut map = robot.map.reader(1).unwrap();
    let (output, observer) = (robot.drive.output(), robot.bumper.observer());
    let mut events = 0;
    let mut seen = 0;
    let mut last_scan = 0;
    let mut last_command = 0;
    let mut reads = 0u64;
    let mut look = || {
        // One attempt each: nothing here may wait for anybody.
        if let Ok(Some(sample)) = odometry.try_read() {
            assert_whole(&sample.value);
            assert!(sample.generation >= seen);
            seen = sample.generation;
        }
        if let Some(scan) = scans.try_read() {
            assert_whole(&*scan);
            assert!(scan.meta().generation > last_scan);
            last_scan = scan.meta().generation;
        }
        if let Some(command) = commands.try_read() {
            assert_whole(&*command);
            assert_eq!(
                command.meta().generation,
                last_command + 1,
                "nothing is lost, nothing comes twice"
            );
            last_command = command.meta().generation;
        }
        assert_whole(&*map.latest());
        match output.read(MonoStamp(seen)) {
            Ok(command) => assert_whole(&command.value),
            Err(stop) => assert_eq!(stop, Stop::Nobody, "before the first command"),
        }
        if let LatchState::Contact(contact) = observer.state(MonoStamp(seen)) {
            assert!(contact.count >= events && contact.first <= contact.last);
            events = contact.count;
        }
        reads += 1;
        seen
    };
    for kill in 0..kills() {
        let mut child = spawn(&name, "writer");
        let_it_run(kill, &mut child, &mut look);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!robot.odometry.is_writer_alive());
        // All is there that was, with nobody to help.
        let before = look();
        let after = look();
        assert!(before > 0 && before == after);
        assert_whole(&odometry.read().expect("the last whole value").value);
    }
    assert_eq!(robot.odometry.epoch(), kills());
    println!("{} kills, {reads} rounds of reads", kills());
}

#[test]
fn a_reader_killed_at_any_moment_stops_no_writer_and_its_successor_goes_on() {
    let name = Name::new("kill-reader");
    let robot = Robot::open(&name.0);
    let mut scans = robot.scans.producer().unwrap();
    let mut commands = robot.commands.producer().unwrap();
    let mut map = robot.map.writer().unwrap();
    let mut number = 0;
    let mut write = || {
        number += 1;
        scans
            .push([number; 18], MonoStamp(number))
            .expect("never refused");
        // Refused while nobody makes room: what is committed tells that the consumer is at work.
        let _ = commands.push([number; 18], MonoStamp(number));
        map.back().fill(number);
        map.publish(MonoStamp(number));
        commands.committed()
    };
    for kill in 0..kills() / 4 {
        for _ in 0..8 {
            write();
        }
        let mut child = spawn(&name, "reader");
        let_it_run(kill, &mut child, &mut write);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!robot.scans.is_reader_alive());
    }
}

/// A dead sleeper used to make every notification take microseconds, for good.
#[test]
fn a_sleeper_that_is_killed_costs_one_wake_up() {
    let name = Name::new("kill-sleeper");
    let robot = Robot::open(&name.0);
    let notifier = robot.odometry.notifier().unwrap();
    let mut writer = robot.odometry.writer().unwrap();
    for number in 1..=5 {
        let mut child = spawn(&name, "sleeper");
        let start = Instant::now();
        while !notifier.has_sleepers() {
            assert!(
                start.elapsed() < Duration::from_mins(1),
                "it does not sleep"
            );
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        writer.write(&[number; 18], MonoStamp(number));
        notifier.notify();
        assert!(!notifier.has_sleepers(), "nobody is left");
    }
}

#[test]
fn a_producer_that_is_killed_at_any_moment_makes_its_successor_refuse_nothing() {
    let name = Name::new("kill-producer");
    let robot = Robot::open(&name.0);
    let mut scans = robot.scans.consumer().unwrap();
    for kill in 0..kills() / 8 {
        let mut child = spawn(&name, "writer");
        let held = kill % 4;
        let mut seen = 0;
        let_it_run(kill, &mut child, || {
            // Each time some are in hand while the producer goes on.
            if let Some(batch) = scans.try_read_batch(held as usize + 1) {
                batch.for_each(|scan, meta| {
                    assert_whole(scan);
                    assert!(meta.generation > seen);
                    seen = meta.generation;
                });
            }
            seen
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let batch = scans.try_read_batch(held as usize);
        let mut successor = robot.scans.producer().unwrap();
        for number in 0..46 {
            successor
                .push([number; 18], MonoStamp(0))
                .expect("never refused");
        }
        assert_eq!(successor.refused(), 0);
        drop(batch);
        let mut left = Vec::new();
        while let Some(scan) = scans.try_read() {
            left.push(scan[0]);
        }
        assert_eq!(left.last(), Some(&45));
        assert!(left.is_sorted_by(|one, next| one + 1 == *next), "{left:?}");
    }
}

#[test]
fn settings_that_disagree_are_refused_and_told() {
    let name = Name::new("settings");
    let millis = Duration::from_millis;
    let sources = [SourceOptions::new(millis(500)); 2];
    let lock = LockOptions::with_heartbeat(2, millis(100));
    let made = Segment::<Drive>::create(&name.0, (sources, [lock])).unwrap();
    assert_eq!(made.structure().settings(), (sources, [lock]));
    let same = Segment::<Drive>::open_or_create(&name.0, (sources, [lock])).unwrap();
    assert_eq!(same.structure().settings(), (sources, [lock]));
    let others = [
        (
            (
                [
                    SourceOptions::new(millis(500)),
                    SourceOptions::new(millis(900)),
                ],
                [lock],
            ),
            "source 1 has a timeout of 500ms there, 900ms here",
        ),
        (
            (sources, [LockOptions::with_heartbeat(1, millis(100))]),
            "lock 0 masks 2 sources there, 1 here",
        ),
        (
            (sources, [LockOptions::new(2)]),
            "lock 0 has a heartbeat of 100ms there, none here",
        ),
    ];
    for (config, told) in others {
        let error = Segment::<Drive>::open_or_create(&name.0, config).err();
        let Some(ShmError::Settings { what, .. }) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(what, told);
    }
    assert!(Segment::<Drive>::open(&name.0).is_ok(), "as it is");
    remove(&name.0).unwrap();

    let resets_first = Segment::<EventLatch>::open_or_create(&name.0, None).unwrap();
    let sensor = Segment::<EventLatch>::open_or_create(&name.0, Some(millis(100)));
    let told = sensor.err().unwrap().to_string();
    assert!(
        told.contains("the sensor's heartbeat is none there, 100ms here"),
        "{told}"
    );
    assert_eq!(resets_first.structure().silence(), None);
}

#[test]
fn a_mux_knows_which_of_its_sources_are_alive() {
    let name = Name::new("alive");
    let limits = (
        [SourceOptions::new(Duration::from_secs(1)); 2],
        [LockOptions::new(2)],
    );
    let segment = Segment::<Drive>::create(&name.0, limits).unwrap();
    let there = Segment::<Drive>::open_read_only(&name.0).unwrap();
    assert!(!there.is_writer_alive());
    let source = segment.source(1).unwrap();
    assert!(there.is_writer_alive());
    assert!(there.is_source_alive(1) && !there.is_source_alive(0) && !there.is_source_alive(7));
    assert_eq!(there.epoch(), 1);
    drop(source);
    assert!(!there.is_writer_alive());
    let _lock = segment.lock(0).unwrap();
    assert!(there.is_lock_alive(0) && !there.is_writer_alive());
}

#[test]
fn the_readers_of_a_snapshot_are_told_alive() {
    let name = Name::new("readers");
    let segment = Segment::<Map>::create(&name.0, ()).unwrap();
    assert!(!segment.is_reader_alive());
    let reader = segment.reader(1).unwrap();
    assert!(segment.is_reader_alive());
    drop(reader);
    assert!(!segment.is_reader_alive());
}

#[test]
fn an_end_knows_when_the_other_process_is_gone() {
    let name = Name::new("abandoned");
    let robot = Robot::open(&name.0);
    let mut scans = robot.scans.consumer().unwrap();
    assert!(scans.is_abandoned(), "nobody has come yet");
    let mut child = spawn(&name, "writer");
    let_it_run(1, &mut child, || {
        scans.pop().map_or(0, |scan| scan.generation)
    });
    assert!(!scans.is_abandoned());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(scans.is_abandoned());
}

#[test]
fn a_changed_struct_is_told_with_what_to_do() {
    mod before {
        asof_hot::plain! {
            pub struct Odometry { pub x: f64, pub y: f64 }
        }
    }
    mod larger {
        asof_hot::plain! {
            pub struct Odometry { pub x: f64, pub y: f64, pub yaw: f64 }
        }
    }
    mod turned {
        asof_hot::plain! {
            pub struct Odometry { pub y: f64, pub x: f64 }
        }
    }
    let name = Name::new("changed");
    drop(Segment::<Latest<before::Odometry>>::create(&name.0, ()).unwrap());
    assert!(Segment::<Latest<before::Odometry>>::open(&name.0).is_ok());
    let larger = Segment::<Latest<larger::Odometry>>::open(&name.0).err();
    let turned = Segment::<Latest<turned::Odometry>>::open(&name.0).err();
    for error in [larger, turned] {
        let told = error.expect("another struct").to_string();
        assert!(told.contains("the struct Odometry has changed"), "{told}");
        assert!(
            told.contains(&format!("rm /dev/shm/{}", name.0)),
            "what to do: {told}"
        );
        assert!(told.contains("Odometry (16 bytes, aligned to 8"), "{told}");
    }
}

#[test]
fn permissions_are_as_they_are_set() {
    use asof_hot::shm::SegmentOptions;
    use std::os::unix::fs::PermissionsExt;
    let name = Name::new("permissions");
    let mode = || {
        let file = std::fs::metadata(format!("/dev/shm/{}", name.0)).unwrap();
        file.permissions().mode() & 0o777
    };
    drop(Segment::<Odometry>::create(&name.0, ()).unwrap());
    assert_eq!(mode(), 0o600, "nobody else, if nothing is said");
    remove(&name.0).unwrap();
    for wanted in [0o660, 0o644, 0o666] {
        let options = SegmentOptions::new().permissions(wanted);
        drop(options.open_or_create::<Odometry>(&name.0, ()).unwrap());
        assert_eq!(mode(), wanted);
        remove(&name.0).unwrap();
        drop(options.create::<Odometry>(&name.0, ()).unwrap());
        assert_eq!(mode(), wanted);
        remove(&name.0).unwrap();
    }
    for wrong in [0o060, 0o400, 0o1600] {
        let options = SegmentOptions::new().permissions(wrong);
        let error = options.create::<Odometry>(&name.0, ()).err();
        assert!(matches!(error, Some(ShmError::Invalid(_))), "{error:?}");
    }
}

#[test]
fn a_shared_map_is_edited_by_tiles() {
    type Grid = Snapshot<[u8; 1 << 20], 2>;
    let name = Name::new("tiles");
    let segment = Segment::<Grid>::create(&name.0, ()).unwrap();
    let mut reader = segment.reader(0).unwrap();
    let mut slow = segment.reader(1).unwrap();
    let mut writer = segment.tile_writer::<u8>(4096).unwrap();
    assert_eq!(writer.tiles(), 256);
    assert!(matches!(
        segment.tile_writer::<u8>(0).err(),
        Some(ShmError::Invalid(_))
    ));
    let mut expected = vec![0; 1 << 20];
    let whole_once = 3 * 256;
    for step in 0..200usize {
        let tile = step * 7 % 256;
        writer.tile_mut(tile)[step % 4096] = step as u8 | 1;
        expected[tile * 4096 + step % 4096] = step as u8 | 1;
        writer.publish(MonoStamp(step as u64));
        assert!(reader.latest()[..] == expected[..]);
        if step % 50 == 49 {
            assert!(slow.latest()[..] == expected[..]);
        }
    }
    // Each edit of one tile costs that tile and those that the back buffer has missed, not the 256 of the map.
    assert!(
        writer.copied_tiles() < whole_once + 200 * 4,
        "{} tiles copied",
        writer.copied_tiles()
    );
    drop(writer);
    let mut successor = segment.tile_writer::<u8>(4096).unwrap();
    successor.overwrite_tile(3).fill(9);
    expected[3 * 4096..4 * 4096].fill(9);
    successor.publish(MonoStamp(0));
    assert!(
        reader.latest()[..] == expected[..],
        "goes on with what was there"
    );
}

/// Waits for a file as an event loop does; whether it is readable by then.
fn poll(file: &impl std::os::fd::AsRawFd, timeout: Duration) -> bool {
    // SAFETY: the calls take integers, and events that live through them.
    unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        assert!(epoll >= 0);
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 7,
        };
        let file = file.as_raw_fd();
        assert_eq!(
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, file, &raw mut event),
            0
        );
        let found = libc::epoll_wait(epoll, &raw mut event, 1, timeout.as_millis() as i32);
        libc::close(epoll);
        found == 1
    }
}

#[test]
fn an_event_loop_is_woken_by_another_process() {
    let name = Name::new("relay");
    let robot = Robot::open(&name.0);
    let reader = robot.odometry.reader();
    let relay = robot.odometry.sleeper().unwrap().relay().unwrap();
    let writer = {
        let segment = robot.odometry.clone();
        std::thread::spawn(move || {
            let notifier = segment.notifier().unwrap();
            let mut writer = segment.writer().unwrap();
            for number in 1..=200 {
                writer.write(&[number; 18], MonoStamp(number));
                notifier.notify();
                if number % 3 == 0 {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        })
    };
    let mut seen = 0;
    while seen < 200 {
        assert!(poll(&relay, Duration::from_mins(1)), "slept through {seen}");
        relay.event_fd().clear().unwrap();
        seen = reader.generation();
    }
    writer.join().unwrap();
    // Only what is published is told.
    while poll(&relay, Duration::from_millis(20)) {
        relay.event_fd().clear().unwrap();
    }
    assert_eq!(reader.generation(), 200);
}

#[test]
fn a_notifier_rings_a_file_of_someone_who_waits_and_no_other() {
    let (mut writer, reader) = asof_hot::latest::<u64, 8>();
    let (mut notifier, sleeper) = asof_hot::signal();
    let bell = asof_hot::EventFd::new().unwrap();
    notifier.ring_also(&bell);
    notifier.notify();
    assert!(
        !poll(&bell, Duration::ZERO),
        "nobody has said that they wait"
    );
    assert!(!sleeper.prepare(|| reader.generation() > 0));
    writer.write(&1, MonoStamp(0));
    notifier.notify();
    assert!(poll(&bell, Duration::from_mins(1)));
    assert_eq!(bell.clear().unwrap(), 1);
    assert_eq!(bell.clear().unwrap(), 0);
    assert!(
        sleeper.prepare(|| reader.generation() > 0),
        "it is there already"
    );
}

#[test]
fn a_segment_says_what_it_holds() {
    let name = Name::new("mismatch");
    let made = Segment::<Latest<u64, 4>>::create(&name.0, ()).unwrap();
    assert!(matches!(
        Segment::<Latest<u64, 4>>::create(&name.0, ()),
        Err(ShmError::AlreadyThere { .. })
    ));
    for wrong in [
        Segment::<Latest<u64, 8>>::open(&name.0).err(),
        Segment::<Latest<i64, 4>>::open(&name.0).err(),
        Segment::<Latest<[u64; 2], 4>>::open(&name.0).err(),
        Segment::<Ring<u64, 4>>::open(&name.0).err(),
        Segment::<Latest<u64, 8>>::open_or_create(&name.0, ()).err(),
    ] {
        assert!(
            matches!(wrong, Some(ShmError::Mismatch { .. })),
            "{wrong:?}"
        );
    }
    drop(made);
    assert!(
        Segment::<Latest<u64, 4>>::open(&name.0).is_ok(),
        "it outlives those who use it"
    );
}

#[test]
fn a_segment_that_is_not_there_cannot_be_opened() {
    let missing = Segment::<Latest<u64, 4>>::open("asof-hot-test-missing").err();
    assert!(matches!(missing, Some(ShmError::NotThere { .. })));
    for name in ["", "a/b", ".hidden", "two words", &"x".repeat(201)] {
        assert!(
            matches!(
                Segment::<Latest<u64, 4>>::open(name).err(),
                Some(ShmError::BadName(_))
            ),
            "{name}"
        );
    }
}

#[test]
fn other_files_and_unfinished_segments_are_told_apart() {
    let name = Name::new("other");
    let path = format!("/dev/shm/{}", name.0);
    std::fs::write(&path, [7; 100]).unwrap();
    assert!(matches!(
        Segment::<Latest<u64, 4>>::open(&name.0).err(),
        Some(ShmError::NotASegment { .. })
    ));
    std::fs::write(&path, [0; 10_000]).unwrap();
    assert!(matches!(
        Segment::<Latest<u64, 4>>::open(&name.0).err(),
        Some(ShmError::Unfinished { .. })
    ));
    let segment = Segment::<Latest<u64, 4>>::open_or_create(&name.0, ())
        .expect("finishes what another began");
    assert!(segment.reader().read().is_none());
}

#[test]
fn a_segment_cut_short_is_refused() {
    let name = Name::new("short");
    drop(Segment::<Latest<[u64; 4096], 4>>::create(&name.0, ()).unwrap());
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(format!("/dev/shm/{}", name.0))
        .unwrap();
    file.set_len(8192).unwrap();
    let short = Segment::<Latest<[u64; 4096], 4>>::open(&name.0).err();
    assert!(
        matches!(short, Some(ShmError::Mismatch { .. })),
        "{short:?}"
    );
}

#[test]
fn each_end_is_held_once_and_free_again_when_dropped() {
    let name = Name::new("ends");
    let segment = Segment::<Map>::create(&name.0, ()).unwrap();
    let elsewhere = Segment::<Map>::open(&name.0).unwrap();
    let writer = segment.writer().unwrap();
    assert!(matches!(segment.writer().err(), Some(ShmError::Taken)));
    assert!(matches!(elsewhere.writer().err(), Some(ShmError::Taken)));
    assert!(elsewhere.is_writer_alive());
    drop(writer);
    assert!(!elsewhere.is_writer_alive());
    let _writer = elsewhere.writer().unwrap();
    let _reader = segment.reader(0).unwrap();
    assert!(matches!(elsewhere.reader(0).err(), Some(ShmError::Taken)));
    assert!(elsewhere.reader(1).is_ok());
    assert!(matches!(
        segment.reader(2).err(),
        Some(ShmError::NoSuchEnd {
            number: 2,
            count: 2
        })
    ));
    assert_eq!(segment.epoch(), 2);
}

/// A copy of this process, as a process that starts another one is until the other program runs. Killed at the end.
struct Fork(libc::pid_t);

impl Fork {
    /// What the copy does may call nothing that takes a lock: other threads held theirs when it was made.
    fn new(does: impl FnOnce()) -> Self {
        // SAFETY: the copy calls `does`, and then only what is allowed there.
        match unsafe { libc::fork() } {
            -1 => panic!("{}", std::io::Error::last_os_error()),
            0 => {
                does();
                loop {
                    // SAFETY: the call takes nothing, and may be made in a copy.
                    unsafe { libc::pause() };
                }
            }
            copy => Fork(copy),
        }
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        // SAFETY: the copy is this one's, and has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn an_end_that_is_dropped_is_free_whatever_copies_its_process_has() {
    let name = Name::new("copied");
    let segment = Segment::<Map>::create(&name.0, ()).unwrap();
    let elsewhere = Segment::<Map>::open(&name.0).unwrap();
    let writer = segment.writer().unwrap();
    let _copy = Fork::new(|| ());
    drop(writer);
    assert!(!elsewhere.is_writer_alive());
    let _writer = elsewhere.writer().unwrap();
}

#[test]
fn a_copy_of_a_process_does_not_free_its_ends() {
    let name = Name::new("kept");
    let segment = Segment::<Map>::create(&name.0, ()).unwrap();
    let done = Segment::<EventLatch>::create(&format!("{}.bumper", name.0), None).unwrap();
    let (mut trigger, dropped) = (done.trigger().unwrap(), done.observer());
    let mut writer = Some(segment.writer().unwrap());
    let copy = Fork::new(|| {
        drop(writer.take());
        trigger.trigger(1, MonoStamp(1));
    });
    while dropped.state(MonoStamp(1)) == LatchState::Clear {
        std::thread::yield_now();
    }
    assert!(segment.is_writer_alive());
    assert!(matches!(segment.writer().err(), Some(ShmError::Taken)));
    drop(copy);
    assert!(segment.is_writer_alive());
    drop(writer);
    assert!(!segment.is_writer_alive());
}

#[test]
fn a_reader_needs_no_right_to_write() {
    let name = Name::new("read-only");
    let segment = Segment::<Odometry>::create(&name.0, ()).unwrap();
    let read_only = Segment::<Odometry>::open_read_only(&name.0).unwrap();
    assert!(matches!(read_only.writer().err(), Some(ShmError::ReadOnly)));
    assert!(matches!(
        read_only.beat(MonoStamp(1)).err(),
        Some(ShmError::ReadOnly)
    ));
    let reader = read_only.reader();
    let mut writer = segment.writer().unwrap();
    writer.write(&[5; 18], MonoStamp(9));
    segment.beat(MonoStamp(11)).unwrap();
    assert_eq!(reader.read().unwrap().value, [5; 18]);
    assert!(read_only.is_writer_alive());
    assert_eq!(read_only.last_beat(), MonoStamp(11));
}

#[test]
fn commands_and_events_are_shared_too() {
    let name = Name::new("mux");
    let limits = (
        [SourceOptions::new(Duration::from_nanos(100)); 2],
        [LockOptions::new(2)],
    );
    let commands = Segment::<Mux<u64, 2, 1>>::create(&name.0, limits).unwrap();
    let there = Segment::<Mux<u64, 2, 1>>::open(&name.0).unwrap();
    commands.source(1).unwrap().write(&7, MonoStamp(50));
    assert_eq!(there.output().read(MonoStamp(60)).unwrap().value, 7);
    assert!(there.lock(1).is_err());
    there.lock(0).unwrap().engage();
    assert_eq!(
        commands.output().read(MonoStamp(60)),
        Err(Stop::Locked { lock: 0 })
    );
    commands.director().unwrap().force(0);
    remove(&name.0).unwrap();

    let latch = Segment::<EventLatch>::create(&name.0, None).unwrap();
    latch.trigger().unwrap().trigger(1, MonoStamp(5));
    let there = Segment::<EventLatch>::open(&name.0).unwrap();
    let LatchState::Contact(contact) = there.observer().state(MonoStamp(6)) else {
        panic!("it was triggered")
    };
    there.resetter().unwrap().reset(contact.count).unwrap();
    assert_eq!(latch.observer().state(MonoStamp(6)), LatchState::Clear);
}

#[test]
fn a_sleeper_is_woken_through_the_segment() {
    let name = Name::new("sleep");
    let segment = Segment::<Odometry>::create(&name.0, ()).unwrap();
    let there = Segment::<Odometry>::open(&name.0).unwrap();
    let sleeper = there.sleeper().unwrap();
    let reader = there.reader();
    assert!(!sleeper.wait_until(Some(Duration::from_millis(5)), || reader.generation() > 0));
    let thread = std::thread::spawn(move || {
        sleeper
            .spinning(10)
            .wait_until(Some(Duration::from_mins(1)), || reader.generation() > 0)
    });
    std::thread::sleep(Duration::from_millis(20));
    segment.writer().unwrap().write(&[1; 18], MonoStamp(1));
    segment.notifier().unwrap().notify();
    assert!(thread.join().unwrap());
}
