//! Keeps the last 50 messages of the talker, and prints every half second those of the last 500 ms.
//!
//! usage: window_by_transport_time [ADDRESS] [TIMES]

use std::time::Duration;

use asof_core::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let robot = asof_live::connect(address.as_deref().unwrap_or("zenoh://127.0.0.1:7448"))?;
    let times: u64 = arguments
        .next()
        .map_or(Ok(u64::MAX), |times| times.parse())?;
    let window = robot.create_window::<Message>("demo/talker", 50).build()?;
    for _ in 0..times {
        window.wait_for_change(Duration::from_mins(1))?;
        std::thread::sleep(Duration::from_millis(500));
        let Some(newest) = window.newest() else {
            continue;
        };
        let recent = window.interval(newest.stamp.plus_nanos(-500_000_000), newest.stamp);
        let text = String::from_utf8_lossy(newest.payload.get(8..).unwrap_or_default());
        println!(
            "{} messages in 500 ms, the last is '{text}' of {}",
            recent.len(),
            newest.stamp
        );
    }
    Ok(())
}
