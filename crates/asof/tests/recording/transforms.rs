//! Transforms of recordings from other people's robots.

use std::path::PathBuf;

use asof::tf::TransformBuffer;

#[test]
fn of_recordings_of_others_all_is_read_or_the_trouble_is_told() {
    let folder = std::env::var_os("ASOF_TEST_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let mut tried = 0;
    for folder in [
        folder.join("recordings"),
        folder.join("recordings/generated"),
    ] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(recording) = asof::open(entry.path()) else {
                continue;
            };
            let kinds = ["TFMessage", "tfMessage", "FrameTransform"];
            let has_transforms = recording.summary().channels.iter().any(|entry| {
                let name = entry.channel.type_name();
                entry.messages != Some(0) && kinds.iter().any(|kind| name.contains(kind))
            });
            let Ok(loaded) = TransformBuffer::from_source(&recording) else {
                continue;
            };
            tried += 1;
            assert!(
                !has_transforms || loaded.transforms > 0 || !loaded.problems.is_empty(),
                "{}",
                entry.path().display()
            );
        }
    }
    if tried == 0 {
        eprintln!("skipped: there are no recordings to try");
    }
}
