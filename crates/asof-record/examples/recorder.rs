//! Records a simulated robot: a talker in this process, and the recorder beside it.
//!
//! ```sh
//! cargo run -p asof-record --example recorder -- run.mcap
//! ```

use std::time::{Duration, Instant};

use asof_core::Stamp;
use asof_live::ros::QosProfile;
use asof_live::{PublisherOptions, connect};
use asof_record::{RecordOptions, Recorder};

const PORT: u16 = 17_447;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or("run.mcap".to_owned());
    let robot = connect(&format!("zenoh://?listen=127.0.0.1:{PORT}"))?;
    let talker = robot.publisher(&PublisherOptions {
        node: "talker".to_owned(),
        topic: "/battery".to_owned(),
        type_name: "std_msgs/msg/Float32".to_owned(),
        definition: "float32 data".to_owned(),
        qos: QosProfile::default(),
        waits: false,
    })?;
    let here = connect(&format!("zenoh://127.0.0.1:{PORT}"))?;
    let recorder = Recorder::create(&here, &path, RecordOptions::default(), |_| true)?;
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut volts = 12.6_f32;
    while recorder.report().written() < 20 && Instant::now() < deadline {
        let payload = [&[0, 1, 0, 0], &volts.to_le_bytes()[..]].concat();
        talker.publish(payload, Stamp::now())?;
        volts -= 0.01;
        std::thread::sleep(Duration::from_millis(50));
    }
    let report = recorder.stop()?;
    for (topic, counts) in &report.topics {
        println!("{path}: {} messages of {topic}", counts.written);
    }
    Ok(())
}
