//! Converts recordings to one MCAP file.
//!
//! `cargo run -p asof-formats --example convert -- PLACE... OUT.mcap`

use asof_formats::{ConvertOptions, McapWriter, McapWriterOptions, OpenOptions, convert, open_all};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut places: Vec<_> = std::env::args_os().skip(1).collect();
    let output = places.pop().ok_or("usage: convert PLACE... OUT.mcap")?;
    let options = OpenOptions {
        // A conversion reads everything once: there is nothing to gain from a map.
        map: false,
        ..OpenOptions::default()
    };
    let recording = open_all(&places, &options)?;
    let writer_options = McapWriterOptions {
        profile: recording.summary().profile.clone(),
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(&output, writer_options)?;
    let done = convert(
        &*recording,
        &mut writer,
        &ConvertOptions::default(),
        &mut |_| {},
    )?;
    writer.finish()?;
    println!("{done:?}");
    Ok(())
}
