//! asof's side of ci/robots/zenoh-peer: discovers, windows and records what a peer publishes.
//!
//! usage: peer_check ADDRESS RECORDING COUNT latched|plain

use std::time::{Duration, Instant};

use asof_live::Sample;
use asof_record::{RecordOptions, RecordReport, Recorder};

const SOON: Duration = Duration::from_mins(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, recording, count, kind] = &arguments[..] else {
        return Err("usage: peer_check ADDRESS RECORDING COUNT latched|plain".into());
    };
    let count: u64 = count.parse()?;
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
    if window.len() as u64 != count || window.stamp_fallbacks() > 0 {
        return Err(format!("{} messages instead of {count}", window.len()).into());
    }
    // The recorder has its own subscriptions: messages of the window may not have arrived there yet.
    let mut expected = vec![("/imu/data", count), ("/chatter", 10), ("/reading", 10)];
    if kind == "latched" {
        expected.push(("/tf_static", 1));
    }
    let deadline = Instant::now() + SOON;
    while !is_through(&recorder.report(), &expected) {
        if !recorder.is_recording() || Instant::now() > deadline {
            return Err(format!("the recorder makes no progress: {:?}", recorder.report()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("dropped by the recorder: {}", recorder.stop()?.dropped());
    Ok(())
}

/// Whether the recorder has everything that the peer publishes.
fn is_through(report: &RecordReport, expected: &[(&str, u64)]) -> bool {
    expected.iter().all(|(topic, count)| {
        let topic = report.topics.get(*topic);
        topic.is_some_and(|topic| topic.written + topic.dropped >= *count)
    })
}
