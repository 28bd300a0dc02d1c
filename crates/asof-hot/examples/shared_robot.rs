//! The Rust half of two processes that share every structure; `shared_robot.cpp` is the other half.
//!
//! Either half writes (`shared_robot write [PREFIX] [SCANS]`) while the other reads (`shared_robot read ...`), and the
//! reader exits successfully if everything arrived intact and in order; ci/hot/hot-cpp runs them both ways round.

#![allow(clippy::float_cmp)] // values are copied bit by bit

use asof_hot::shm::{Segment, ShmError, remove};
use asof_hot::{
    DropOldest, EventLatch, LatchState, Latest, LockOptions, MonoStamp, Mux, Refuse, Ring,
    Snapshot, SourceOptions, Stop,
};
use std::error::Error;
use std::time::{Duration, Instant};

asof_hot::plain! {
    /// The pose and velocity of the robot.
    pub struct Odometry {
        /// x, y, z in metres.
        pub position: [f64; 3],
        /// As a quaternion.
        pub orientation: [f64; 4],
        /// Forward, left, up in m/s, then about those axes in rad/s.
        pub velocity: [f64; 6],
    }

    /// One turn of the laser.
    pub struct Scan {
        /// Its sequence number.
        pub number: u32,
        /// The number of valid ranges.
        pub count: u32,
        /// In metres.
        pub ranges: [f32; 720],
    }

    /// An occupancy grid.
    pub struct Map {
        /// Its sequence number.
        pub number: u64,
        /// Row by row.
        pub cells: [u8; 65536],
    }

    /// A velocity command.
    pub struct Velocity {
        /// Forward velocity in m/s.
        pub linear: f64,
        /// Turn rate to the left in rad/s.
        pub angular: f64,
    }
}

type Scans = Ring<Scan, 8, Refuse>;
/// Echoes are frequent, and old ones are worthless.
type Echoes = Ring<[u64; 18], 4, DropOldest>;
/// Planner and display.
type Maps = Snapshot<Map, 2>;
/// The newest camera frame only.
type Frames = Snapshot<[u64; 512], 1>;
/// Navigation, teleoperation, safety; and the emergency stop.
type Commands = Mux<Velocity, 3, 1>;

const TOPICS: [&str; 8] = [
    "odometry", "scan", "echo", "map", "frame", "command", "bumper", "answer",
];

fn limits() -> ([SourceOptions; 3], [LockOptions; 1]) {
    (
        [SourceOptions::new(Duration::from_mins(1)); 3],
        [LockOptions::new(3)],
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next().unwrap_or_default();
    let prefix = arguments.next().unwrap_or_else(|| "asof-example".into());
    let scans: u32 = arguments.next().map_or(Ok(200), |count| count.parse())?;
    let name = |topic: &str| format!("{prefix}-{topic}");
    match role.as_str() {
        "write" => write(name, scans),
        "read" => read(name, scans),
        _ => Err("usage: shared_robot write|read [PREFIX] [SCANS]".into()),
    }
}

fn write(name: impl Fn(&str) -> String, scans: u32) -> Result<(), Box<dyn Error>> {
    let odometry_segment = Segment::<Latest<Odometry>>::open_or_create(&name("odometry"), ())?;
    let mut odometry = odometry_segment.writer()?;
    let scan_segment = Segment::<Scans>::open_or_create(&name("scan"), ())?;
    let mut ring = scan_segment.producer()?;
    let bell = scan_segment.notifier()?;
    let mut echoes = Segment::<Echoes>::open_or_create(&name("echo"), ())?.producer()?;
    let mut map = Segment::<Maps>::open_or_create(&name("map"), ())?.writer()?;
    let mut frame = Segment::<Frames>::open_or_create(&name("frame"), ())?.writer()?;
    let mux = Segment::<Commands>::open_or_create(&name("command"), limits())?;
    let (mut navigation, mut teleop, mut safety) = (mux.source(0)?, mux.source(1)?, mux.source(2)?);
    let (mut stop, mut director) = (mux.lock(0)?, mux.director()?);
    let mut bumper = Segment::<EventLatch>::open_or_create(&name("bumper"), None)?.trigger()?;

    let mut number = 0;
    while number < scans {
        let now = MonoStamp::now();
        let x = f64::from(number) * 0.01;
        let pose = Odometry {
            position: [x; 3],
            orientation: [x; 4],
            velocity: [x; 6],
        };
        odometry.write(&pose, now);
        odometry_segment.beat(now)?;
        // Two scans at a time, if there is room.
        if let Some(mut batch) = ring.try_write_batch(2.min((scans - number) as usize)) {
            batch.fill(|index, scan| {
                scan.number = number + index as u32;
                scan.count = 720;
                scan.ranges.fill((number + index as u32) as f32);
            });
            number += batch.len() as u32;
            batch.commit(now);
            bell.notify();
        }
        let count = u64::from(number);
        // More than fit: the oldest are dropped.
        for _ in 0..6 {
            let _ = echoes.push([count; 18], now);
        }
        if number % 2 == 0 {
            map.back().number = count;
            map.back().cells.fill(number as u8);
        } else {
            let edited = map.edit();
            edited.number = count;
            edited.cells.fill(number as u8);
        }
        map.publish(now);
        frame.back().fill(count);
        frame.publish(now);
        navigation.write(
            &Velocity {
                linear: x,
                angular: x,
            },
            now,
        );
        if number == scans / 2 || number == scans / 2 + 1 {
            bumper.trigger(0b10, now);
        }
        std::thread::sleep(Duration::from_micros(200));
    }

    // Which source is to be followed, step by step; the reader reports its progress.
    let answer = wait_for(|| Segment::<Latest<u64>>::open_read_only(&name("answer")))?.reader();
    let settled = |step: u64| -> Result<(), Box<dyn Error>> {
        let start = Instant::now();
        while answer.read().is_none_or(|answer| answer.value < step) {
            check(start.elapsed() < Duration::from_mins(1), "no answer")?;
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    };
    for step in 0..6 {
        settled(step)?;
        match step {
            0 => teleop.write(&both(2.0), MonoStamp::now()),
            1 => safety.write(&both(3.0), MonoStamp::now()),
            2 => director.force(0),
            3 => stop.engage(),
            4 => {
                stop.release(MonoStamp::now());
                director.automatic();
            }
            _ => safety.release(),
        }
    }
    settled(7)?;
    for topic in TOPICS {
        remove(&name(topic))?;
    }
    println!(
        "Rust wrote {scans} scans, {} echoes of which {} were dropped, {} maps",
        echoes.committed(),
        echoes.lost(),
        map.generation()
    );
    Ok(())
}

fn both(value: f64) -> Velocity {
    Velocity {
        linear: value,
        angular: value,
    }
}

/// The other half may not be there yet.
fn wait_for<S>(open: impl Fn() -> Result<S, ShmError>) -> Result<S, ShmError> {
    for _ in 0..1000 {
        match open() {
            Err(ShmError::NotThere { .. }) => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened,
        }
    }
    open()
}

fn check(holds: bool, what: &str) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn read(name: impl Fn(&str) -> String, scans: u32) -> Result<(), Box<dyn Error>> {
    let odometry_segment =
        wait_for(|| Segment::<Latest<Odometry>>::open_read_only(&name("odometry")))?;
    let odometry = odometry_segment.reader();
    let scan_segment = wait_for(|| Segment::<Scans>::open(&name("scan")))?;
    let (mut ring, sleeper) = (scan_segment.consumer()?, scan_segment.sleeper()?);
    let mut echoes = wait_for(|| Segment::<Echoes>::open(&name("echo")))?.consumer()?;
    let maps = wait_for(|| Segment::<Maps>::open(&name("map")))?;
    let (mut planner, mut display) = (maps.reader(0)?, maps.reader(1)?);
    let mut camera = wait_for(|| Segment::<Frames>::open(&name("frame")))?.reader(0)?;
    let output = wait_for(|| Segment::<Commands>::open_read_only(&name("command")))?.output();
    let latch = wait_for(|| Segment::<EventLatch>::open(&name("bumper")))?;
    let (mut observer, mut resetter) = (latch.observer(), latch.resetter()?);

    let start = Instant::now();
    let (mut next, mut poses, mut seen, mut hits) = (0, 0u64, 0, 0);
    let (mut last_echo, mut echo_count, mut last_map, mut last_frame) = (0, 0u64, 0, 0);
    while next < scans {
        check(start.elapsed() < Duration::from_mins(1), "nothing comes")?;
        sleeper.wait_until(Some(Duration::from_millis(5)), || ring.has_new());
        if let Some(batch) = ring.try_read_batch(4) {
            let mut is_whole = true;
            batch.for_each(|scan, meta| {
                is_whole &= scan.number == next && meta.generation == u64::from(next) + 1;
                is_whole &= scan.ranges.iter().all(|range| *range == next as f32);
                next += 1;
            });
            check(is_whole, "a scan is missing or torn")?;
        }
        if let Some(pose) = odometry.read_if_newer(seen) {
            seen = pose.generation;
            let x = pose.value.position[0];
            check(pose.value.velocity == [x; 6], "a pose is torn")?;
            check(
                pose.age(MonoStamp::now()) < Duration::from_mins(1),
                "a pose is too old",
            )?;
            poses += 1;
        }
        while let Some(echo) = echoes.try_read() {
            check(echo.iter().all(|word| *word == echo[0]), "an echo is torn")?;
            // What was written before this reader attached does not count as missed.
            let is_next = echo.meta().generation == last_echo + 1 + echo.missed();
            check(is_next || last_echo == 0, "an echo is unaccounted for")?;
            last_echo = echo.meta().generation;
            echo_count += 1;
        }
        for reader in [&mut planner, &mut display] {
            let map = reader.latest();
            let is_whole = map.cells.iter().all(|cell| *cell == map.number as u8);
            check(
                is_whole && map.meta().generation >= last_map,
                "a map is torn",
            )?;
        }
        last_map = last_map.max(display.latest().meta().generation);
        let frame = camera.latest();
        check(
            frame.iter().all(|word| *word == frame[0]),
            "a frame is torn",
        )?;
        check(frame.meta().generation >= last_frame, "time runs backwards")?;
        last_frame = frame.meta().generation;
        if let Ok(command) = output.read(MonoStamp::now()) {
            check(
                command.value.linear == command.value.angular,
                "a command is torn",
            )?;
        }
        hits += observer.new_events();
        if let LatchState::Contact(contact) = observer.state(MonoStamp::now()) {
            check(
                contact.contacts == 0b10 && contact.first <= contact.last,
                "another bumper",
            )?;
            resetter.reset_if_elapsed(MonoStamp::now(), Duration::from_millis(1));
        }
    }
    check(
        poses > 0 && last_map > 0 && last_frame > 0 && echo_count > 0,
        "something never came",
    )?;
    check(
        odometry_segment.is_writer_alive() && odometry_segment.epoch() > 0,
        "the writer is dead",
    )?;
    check(
        odometry_segment.last_beat().0 > 0,
        "the writer sends no heartbeat",
    )?;

    // Which source is followed from now on, step by step.
    let mut answer = Segment::<Latest<u64>>::open_or_create(&name("answer"), ())?.writer()?;
    for step in 0..6 {
        answer.write(&step, MonoStamp::now());
        let start = Instant::now();
        loop {
            let holds = match (step, output.read(MonoStamp::now())) {
                (0 | 5, Ok(command)) => command.source == 1 && command.value.linear == 2.0,
                (1 | 4, Ok(command)) => command.source == 2 && command.value.linear == 3.0,
                (2, Ok(command)) => command.source == 0,
                (3, Err(stop)) => stop == Stop::Locked { lock: 0 },
                _ => false,
            };
            if holds {
                break;
            }
            check(
                start.elapsed() < Duration::from_mins(1),
                "the wrong source is followed",
            )?;
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    while observer.state(MonoStamp::now()) != LatchState::Clear {
        check(
            start.elapsed() < Duration::from_mins(1),
            "the bumper stays hit",
        )?;
        resetter.reset_if_elapsed(MonoStamp::now(), Duration::from_millis(1));
    }
    hits += observer.new_events();
    check(
        hits > 0 && hits == observer.count(),
        "the bumper was missed",
    )?;
    println!(
        "Rust read {next} scans, {poses} poses, {echo_count} echoes of {last_echo}, {last_map} maps; bumper {hits} times"
    );

    match Segment::<Latest<Scan>>::open(&name("odometry")) {
        Ok(_) => return Err("a segment of another type was opened".into()),
        Err(error) => println!("as expected: {error}"),
    }
    answer.write(&7, MonoStamp::now());
    Ok(())
}
