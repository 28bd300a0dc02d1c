//! Hashes that other people's robots announced, held against those that are worked out from the definitions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use asof_core::Source;
use asof_live::ros::type_hash;

fn folder() -> PathBuf {
    match std::env::var_os("ASOF_TEST_DATA") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    }
}

#[test]
fn the_hashes_in_recordings_are_those_of_their_definitions() {
    let Ok(entries) = std::fs::read_dir(folder().join("recordings")) else {
        asof_core::testing::skipped(format_args!("no recordings in {}", folder().display()));
        return;
    };
    let mut found = BTreeMap::new();
    for entry in entries.flatten() {
        let Ok(recording) = asof_formats::open(entry.path()) else {
            continue;
        };
        for channel in recording.summary().channels.iter().map(|one| &one.channel) {
            let (Some(hash), Some(schema)) = (
                channel.metadata.get("topic_type_hash"),
                channel.schema.as_ref(),
            ) else {
                continue;
            };
            let text = String::from_utf8_lossy(&schema.data);
            // Services are made of several parts, which no `.msg` file has.
            let is_message = schema.encoding == "ros2msg" && schema.name.contains("/msg/");
            if hash.starts_with("RIHS01_") && is_message && !text.is_empty() {
                let own = type_hash(&schema.name, &text);
                found.insert((schema.name.clone(), hash.clone()), own);
            }
        }
    }
    let wrong: Vec<_> = found
        .iter()
        .filter(|((_, hash), own)| own.as_ref() != Some(hash))
        .collect();
    println!("{} types, {} differ: {wrong:#?}", found.len(), wrong.len());
    assert!(wrong.is_empty());
    // The standard types that are known here are those that robots have.
    let standard = asof_formats::Definitions::default();
    let (mut same, mut other) = (0, Vec::new());
    for (name, hash) in found.keys() {
        let Some(text) = standard.full_text(name) else {
            continue;
        };
        if type_hash(name, &text).as_ref() == Some(hash) {
            same += 1;
        } else {
            other.push(name);
        }
    }
    println!("{same} standard types are the same, these are not: {other:?}");
    assert!(same > other.len());
}
