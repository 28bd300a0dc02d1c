//! asof's side of ci/zenoh-peer: discovers, windows and records what a peer publishes.
//!
//! usage: peer_check ADDRESS RECORDING COUNT latched|plain

use std::time::Duration;

use asof_live::{RecordOptions, Recorder, Sample};

const SOON: Duration = Duration::from_mins(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, recording, count, kind] = &arguments[..] else {
        return Err("usage: peer_check ADDRESS RECORDING COUNT latched|plain".into());
    };
    let count: i64 = count.parse()?;
    let robot = asof_live::connect(address)?;
    let topic = robot
        .wait_for_topic("/imu/data", SOON)
        .ok_or("/imu/data was not discovered")?;
    let window = robot
        .create_window::<Sample>("/imu/data", 1000)
        .with_stamp(|sample: &Sample| sample.header_stamp())
        .build()?;
    let recorder = Recorder::create(&robot, recording, RecordOptions::default(), |_| true)?;
    while window.keys().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("ready");
    if kind == "latched" {
        let latched = robot.create_window::<Sample>("/tf_static", 10).build()?;
        if latched.is_empty() {
            latched.wait_for_change(SOON)?;
        }
        println!(
            "discovered: /tf_static, {} message of its history",
            latched.len()
        );
    }
    let last = asof_core::Stamp::from_ros2(1_700_000_000 + i32::try_from(count)?, 500)?;
    let entry = window.wait_for(last, SOON)?;
    println!(
        "discovered: {} of type {}",
        topic.name,
        topic.types.join(", ")
    );
    println!(
        "windowed: {} messages, the last is number {:?}",
        window.len(),
        entry.sequence
    );
    if window.len() as i64 != count || window.stamp_fallbacks() > 0 {
        return Err(format!("{} messages instead of {count}", window.len()).into());
    }
    while recorder.is_recording() && recorder.report().waiting_bytes > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("dropped by the recorder: {}", recorder.stop()?.dropped());
    Ok(())
}
