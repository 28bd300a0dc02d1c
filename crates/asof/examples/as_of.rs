//! What was known, as of a time: `cargo run --example as_of -- run.mcap +12.5s`

use asof::{Topics, When};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(path), Some(when)) = (words.next(), words.next()) else {
        return Err("name a recording and a time, such as: run.mcap +12.5s".into());
    };
    let recording = asof::open(path)?;
    let at = when.parse::<When>()?.resolve(recording.summary().range);
    println!("as of {at}:");
    for message in recording.latest_at(&Topics::All, at)?.iter() {
        let age = at.since(message.log_time) as f64 / 1e9;
        let (topic, bytes) = (&message.channel.topic, message.payload.len());
        println!("  {topic:<24} {bytes:>8} bytes, {age:.3} s old");
    }
    Ok(())
}
