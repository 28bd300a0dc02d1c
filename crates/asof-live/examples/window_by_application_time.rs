//! Keeps the last 50 messages of the talker, indexed by the time in the messages, and queries the one nearest to 200
//! ms before the newest.
//!
//! usage: window_by_application_time [ADDRESS] [TIMES]

use std::time::Duration;

use asof_core::Stamp;
use asof_live::{FromSample, Sample, SampleError};

/// A message of the talker.
struct Spoken {
    made: Stamp,
    text: String,
}

impl FromSample for Spoken {
    fn from_sample(sample: Sample) -> Result<Self, SampleError> {
        let bytes = sample.payload.bytes();
        let (made, text) = bytes.split_first_chunk().ok_or("fewer than eight bytes")?;
        Ok(Spoken {
            made: i64::from_le_bytes(*made).into(),
            text: String::from_utf8(text.to_vec())?,
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let robot = asof_live::connect(address.as_deref().unwrap_or("zenoh://127.0.0.1:7448"))?;
    let times: u64 = arguments
        .next()
        .map_or(Ok(u64::MAX), |times| times.parse())?;
    let window = robot
        .create_window::<Spoken>("demo/talker", 50)
        .with_stamp(|spoken: &Spoken| Some(spoken.made))
        .build()?;
    for _ in 0..times {
        window.wait_for_change(Duration::from_mins(1))?;
        std::thread::sleep(Duration::from_millis(500));
        let Some(newest) = window.newest() else {
            continue;
        };
        let asked = newest.stamp.plus_nanos(-200_000_000);
        if let Some(nearest) = window.nearest(asked) {
            println!("nearest to {asked}: '{}' of {}", nearest.text, nearest.made);
        }
    }
    Ok(())
}
