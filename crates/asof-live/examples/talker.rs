//! Publishes `message 0`, `message 1`, … every 100 ms, each with its creation time in the first eight bytes.
//!
//! usage: talker [ADDRESS] [COUNT]; the address to listen on is `zenoh://?listen=127.0.0.1:7448` by default. Run
//! `window_by_transport_time` or `window_by_application_time` in another terminal.

use std::time::{Duration, SystemTime};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let address = address
        .as_deref()
        .unwrap_or("zenoh://?listen=127.0.0.1:7448");
    let count: u64 = arguments
        .next()
        .map_or(Ok(u64::MAX), |count| count.parse())?;
    let robot = asof_live::connect(address)?;
    for number in 0..count {
        let made = asof_core::Stamp::try_from(SystemTime::now())?;
        let mut payload = made.nanos().to_le_bytes().to_vec();
        payload.extend(format!("message {number}").bytes());
        robot.put("demo/talker", payload)?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
