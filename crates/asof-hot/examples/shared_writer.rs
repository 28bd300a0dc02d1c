//! The Rust half of two processes: writes odometry, scans and bumper events that `shared_reader.cpp` reads.
//!
//! `cargo run -p asof-hot --example shared_writer [PREFIX] [SCANS]`, then the C++ half; ci/hot-cpp runs both.

use asof_hot::shm::{Segment, remove};
use asof_hot::{EventLatch, Latest, Ring, Stamp};
use std::time::Duration;

asof_hot::plain! {
    /// Where the robot is and how it moves.
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
        /// The how-manieth.
        pub number: u32,
        /// How many of the ranges there are.
        pub count: u32,
        /// In metres.
        pub ranges: [f32; 720],
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let prefix = arguments.next().unwrap_or_else(|| "asof-example".into());
    let scans: u32 = arguments.next().map_or(Ok(200), |count| count.parse())?;
    let names = ["odometry", "scan", "bumper"].map(|topic| format!("{prefix}-{topic}"));

    let mut odometry = Segment::<Latest<Odometry>>::open_or_create(&names[0], ())?.writer()?;
    let mut ring = Segment::<Ring<Scan, 8>>::open_or_create(&names[1], ())?.producer()?;
    let mut bumper = Segment::<EventLatch>::open_or_create(&names[2], None)?.trigger()?;

    let mut number = 0;
    while number < scans {
        let x = f64::from(number) * 0.01;
        odometry.write(
            &Odometry {
                position: [x; 3],
                orientation: [x; 4],
                velocity: [x; 6],
            },
            Stamp::now(),
        );
        if let Some(mut scan) = ring.try_write() {
            scan.number = number;
            scan.count = 720;
            scan.ranges.fill(number as f32);
            scan.commit(Stamp::now());
            number += 1;
        }
        if number == scans / 2 {
            bumper.trigger(0b10, Stamp::now());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    // The reader empties the ring; then the names can go.
    std::thread::sleep(Duration::from_millis(300));
    for name in names {
        remove(&name)?;
    }
    println!("wrote {scans} scans");
    Ok(())
}
