//! Writes the inputs that the fuzz targets of payloads and schemas start from; `ci/files/fuzz` runs it.
//!
//! usage: fuzz_seeds FOLDER

#[path = "mod.rs"]
mod common;

fn main() {
    let folder = std::env::args_os()
        .nth(1)
        .expect("usage: fuzz_seeds FOLDER");
    let write = |target: String, seeds: Vec<Vec<u8>>| {
        let folder = std::path::Path::new(&folder).join(target);
        std::fs::create_dir_all(&folder).expect("a folder");
        for (at, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{at}")), seed).expect("a file");
        }
    };
    for encoding in ["cdr", "ros1", "protobuf", "json", "flatbuffer", "cbor"] {
        let seeds = common::fuzz::seeds(|channel| channel.message_encoding == encoding, false);
        write(format!("payload_{encoding}"), seeds);
    }
    for (target, languages) in [
        ("rosmsg", &["ros1msg", "ros2msg"][..]),
        ("idl", &["ros2idl", "omgidl"]),
        ("protobuf", &["protobuf"]),
        ("jsonschema", &["jsonschema"]),
        ("flatbuffer", &["flatbuffer"]),
    ] {
        let is_wanted = |channel: &asof_core::Channel| {
            let schema = channel.schema.as_ref();
            schema.is_some_and(|schema| languages.contains(&schema.encoding.as_str()))
        };
        write(
            format!("schema_{target}"),
            common::fuzz::seeds(is_wanted, true),
        );
    }
}
