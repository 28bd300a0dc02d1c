//! Prints every message of a recording: log time, topic, type and payload in hexadecimal, separated by tabs.
//!
//! `cargo run -p asof-formats --example dump -- PLACE...`

use std::fmt::Write as _;
use std::io::Write as _;

use asof_core::Query;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for place in std::env::args_os().skip(1) {
        let recording = asof_formats::open(&place)?;
        for batch in recording.read(&Query::all())? {
            for message in batch?.iter() {
                let mut line = format!(
                    "{}\t{}\t{}\t",
                    message.log_time.nanos(),
                    message.channel.topic,
                    message.channel.type_name()
                );
                for byte in message.payload {
                    write!(line, "{byte:02x}")?;
                }
                writeln!(out, "{line}")?;
            }
        }
        for problem in &recording.summary().problems {
            eprintln!("{}: {problem}", place.display());
        }
    }
    out.flush()?;
    Ok(())
}
