//! A small robot in five threads that communicate through the structures of this crate.
//!
//! The parser turns the robot's data into scans, odometry, maps and bumper events; navigation drives along the map; an
//! operator takes over for a while; the safety thread stops everything at a bump; motor control follows the selected
//! command. `cargo run --release -p asof-hot --example turtlebot`

use asof_hot::{
    LatchState, LockOptions, MonoStamp, MuxEnds, SourceOptions, Stop, event_latch, latest, mux,
    ring_drop_oldest, tile_map,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

asof_hot::plain! {
    /// The robot's odometry: 144 bytes.
    struct Odometry { pose: [f64; 7], twist: [f64; 6], variance: [f64; 5] }
    /// A velocity command: 72 bytes.
    struct Velocity { linear: [f64; 3], angular: [f64; 3], limits: [f64; 3] }
}

impl Velocity {
    fn forward(speed: f64) -> Self {
        Velocity {
            linear: [speed, 0.0, 0.0],
            angular: [0.0; 3],
            limits: [0.5; 3],
        }
    }
}

/// One turn of the laser.
struct Scan {
    ranges: Vec<f32>,
}

const NAVIGATION: usize = 0;
const TELEOP: usize = 1;
const RUN: Duration = Duration::from_secs(2);
const MAP_CELLS: usize = 1024 * 1024;

fn main() {
    let (mut scans, mut scans_out) = ring_drop_oldest::<Scan, 8>(|| Scan {
        ranges: Vec::with_capacity(720),
    });
    let (mut odometry, odometry_out) = latest::<Odometry, 8>();
    let (mut map, [mut map_out]) = tile_map::<u8, 1>(MAP_CELLS, 4096, 255);
    let (mut bumper, mut bumper_reset, bumper_out) = event_latch(Some(Duration::from_millis(500)));
    let MuxEnds {
        sources: [mut navigation, mut teleop],
        locks: [mut stop],
        output,
        ..
    } = mux::<Velocity, 2, 1>(
        [
            SourceOptions::new(Duration::from_millis(200)),
            SourceOptions::new(Duration::from_millis(500)),
        ],
        [LockOptions::new(2)],
    );
    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    let start = MonoStamp::now();
    let running = |period: Duration| {
        thread::sleep(period);
        !is_over.load(Ordering::Relaxed)
    };

    thread::scope(|scope| {
        scope.spawn(move || {
            let mut step = 0u32;
            while running(Duration::from_millis(5)) {
                step += 1;
                let now = MonoStamp::now();
                let x = f64::from(step) * 0.001;
                odometry.write(
                    &Odometry {
                        pose: [x; 7],
                        twist: [0.2; 6],
                        variance: [0.01; 5],
                    },
                    now,
                );
                bumper.heartbeat(now);
                if step.is_multiple_of(4)
                    && let Some(mut scan) = scans.try_write()
                {
                    scan.ranges.clear();
                    scan.ranges
                        .extend((0..720).map(|beam| 1.0 + (beam + step) as f32 * 0.001));
                    scan.commit(now);
                }
                if step.is_multiple_of(40) {
                    map.tile_mut(step as usize % map.tiles()).fill(0);
                    map.publish(now);
                }
                if start.age(now) > Duration::from_millis(1200) && bumper.count() == 0 {
                    bumper.trigger(0b001, now);
                }
            }
            println!(
                "parser: {step} steps, {} scans, {} of them dropped unread",
                scans.committed(),
                scans.lost()
            );
        });

        scope.spawn(move || {
            let (mut used, mut maps, mut nearest) = (0, 0, f32::MAX);
            while running(Duration::from_millis(20)) {
                while let Some(scan) = scans_out.try_read() {
                    nearest = scan.ranges.iter().copied().fold(f32::MAX, f32::min);
                    used += 1;
                }
                if let Some(map) = map_out.latest_if_new() {
                    maps += usize::from(map.contains(&0));
                }
                let Some(pose) = odometry_out.read() else {
                    continue;
                };
                let is_fresh = pose.age(MonoStamp::now()) < Duration::from_millis(100);
                if is_fresh && nearest > 0.5 {
                    navigation.write(&Velocity::forward(0.3), MonoStamp::now());
                }
            }
            println!("navigation: {used} scans, {maps} maps, nearest obstacle {nearest:.2} m");
        });

        scope.spawn(move || {
            let mut commands = 0;
            while running(Duration::from_millis(50)) {
                let since = start.age(MonoStamp::now());
                if (400..800).contains(&since.as_millis()) {
                    teleop.write(&Velocity::forward(0.1), MonoStamp::now());
                    commands += 1;
                }
            }
            println!("teleop: {commands} commands, then released");
        });

        scope.spawn(move || {
            let (mut bumps, mut slowest) = (0, Duration::ZERO);
            while running(Duration::from_millis(1)) {
                let now = MonoStamp::now();
                match bumper_out.state(now) {
                    LatchState::Contact(contact) => {
                        stop.engage();
                        if contact.count > bumps {
                            bumps = contact.count;
                            slowest = slowest.max(contact.elapsed(now));
                        }
                        if bumper_reset.reset_if_elapsed(now, Duration::from_millis(300)) {
                            stop.release(now);
                        }
                    }
                    LatchState::Silent { .. } => stop.engage(),
                    LatchState::Clear => stop.release(now),
                }
            }
            println!("safety: {bumps} bumps, the slowest seen after {slowest:?}");
        });

        scope.spawn(move || {
            let (mut by, mut stopped, mut locked) = ([0; 2], 0, 0);
            while running(Duration::from_millis(10)) {
                match output.read(MonoStamp::now()) {
                    Ok(command) => by[command.source] += 1,
                    Err(Stop::Locked { .. }) => locked += 1,
                    Err(_) => stopped += 1,
                }
            }
            println!(
                "motors: {} by navigation, {} by teleop, {locked} locked, {stopped} without a command",
                by[NAVIGATION], by[TELEOP]
            );
        });

        thread::sleep(RUN);
        is_over.store(true, Ordering::Relaxed);
    });
}
