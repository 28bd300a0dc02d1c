//! What was known as of a time: the last message of every topic in a recording.
//!
//! `cargo run -p asof-formats --example known_at -- run.mcap 12.5` asks for 12.5 seconds after its start.

use asof_core::{Source, Topics, When};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: known_at FILE [SECONDS]")?;
    let moment: When = format!("+{}s", arguments.next().as_deref().unwrap_or("0")).parse()?;
    let recording = asof_formats::open(path)?;
    let at = moment.resolve(recording.summary().range);
    println!("as of {at}:");
    for message in recording.backfill(&Topics::All, at)?.iter() {
        let age = at.since(message.log_time) as f64 / 1e9;
        println!(
            "  {:<24} {:>8} bytes, {age:.3} s old",
            message.channel.topic,
            message.payload.len()
        );
    }
    Ok(())
}
