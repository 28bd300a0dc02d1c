//! Converts recordings to one MCAP file.
//!
//! `cargo run -p asof-formats --example convert -- [--to-ros2] PLACE... OUT.mcap`

use asof_formats::{
    ConvertOptions, McapWriter, McapWriterOptions, OpenOptions, convert, open_all, profile_of,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut places: Vec<_> = std::env::args_os().skip(1).collect();
    let convert_options = ConvertOptions {
        to_ros2: places.first().is_some_and(|first| first == "--to-ros2"),
        ..ConvertOptions::default()
    };
    if convert_options.to_ros2 {
        places.remove(0);
    }
    let output = places
        .pop()
        .ok_or("usage: convert [--to-ros2] PLACE... OUT.mcap")?;
    let options = OpenOptions {
        // A conversion reads everything once: there is nothing to gain from a map.
        map: false,
        ..OpenOptions::default()
    };
    let recording = open_all(&places, &options)?;
    let writer_options = McapWriterOptions {
        profile: profile_of(&recording.summary(), &convert_options),
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::create(&output, writer_options)?;
    let done = convert(&*recording, &mut writer, &convert_options, &mut |_| {})?;
    writer.finish()?;
    println!("{done:?}");
    Ok(())
}
