//! The contract suite runs on the sources of the workspace: a new one cannot stay out of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the suite runs on each type.
const COVERED: [(&str, &str); 17] = [
    ("Arc", "crates/asof-blocks/tests/contract.rs"),
    ("BlockCache", "crates/asof-blocks/tests/contract.rs"),
    ("Box", "crates/asof-blocks/tests/contract.rs"),
    (
        "CataloguedRecording",
        "crates/asof-catalogue/tests/contract.rs",
    ),
    ("ExtraMetadata", "crates/asof/tests/recording/contract.rs"),
    ("FormatFile", "crates/asof-formats/tests/contract.rs"),
    ("GrowingMcapFile", "crates/asof-formats/tests/growing.rs"),
    // What implements `Source` for every layer.
    ("L", "crates/asof-blocks/tests/contract.rs"),
    ("LazyRecording", "crates/asof-sql/src/distributed/lazy.rs"),
    ("LiveSession", "crates/asof/tests/recording/robot.rs"),
    ("LiveSource", "crates/asof-live/tests/loopback.rs"),
    ("Merged", "crates/asof-formats/tests/contract.rs"),
    ("Recent", "crates/asof-window/tests/recent.rs"),
    ("Recording", "crates/asof/tests/recording/contract.rs"),
    ("Selection", "crates/asof/tests/recording/contract.rs"),
    ("Shift", "crates/asof/tests/recording/contract.rs"),
    (
        "TemporaryRecording",
        "crates/asof-formats/tests/contract.rs",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn visit(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            visit(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("text");
            let blocks = text.lines().filter(|line| line.starts_with("impl"));
            let names = blocks.filter_map(|line| {
                let (trait_name, name) = line.split_once(" for ")?;
                let is_source =
                    trait_name.ends_with("Source") || trait_name.ends_with("SourceLayer");
                let name = name.split(['<', ' ']).next()?;
                is_source.then(|| name.to_owned())
            });
            found.extend(names);
        }
    }
}

#[test]
fn every_source_of_the_workspace_is_listed_and_no_other() {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates"))
        .expect("crates")
        .flatten()
    {
        let source = entry.path().join("src");
        if source.is_dir() {
            visit(&source, &mut found);
        }
    }
    let listed = COVERED.iter().map(|(name, _)| (*name).to_owned());
    let listed: BTreeSet<String> = listed.collect();
    assert_eq!(
        found, listed,
        "run the contract suite on it, and list it here"
    );
}

#[test]
fn the_suite_runs_where_the_list_says() {
    for (name, place) in COVERED {
        let text = fs::read_to_string(root().join(place)).expect(place);
        let runs = text.contains("assert_source(") || text.contains("assert_growing(");
        assert!(runs, "{name}: no call of the suite in {place}");
    }
}
