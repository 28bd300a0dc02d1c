//! The README's first example is the one that runs here.

mod common;

use common::Folder;

mod numbers {
    include!("readme/numbers.rs");

    pub fn run() -> Result<(), String> {
        main().map_err(|error| error.to_string())
    }
}

const README: &str = include_str!("../../../README.md");
const EXAMPLE: &str = include_str!("readme/numbers.rs");

/// The contents of the blocks of code, in order.
fn blocks(text: &str) -> Vec<&str> {
    let parts = text.split("\n```");
    // Every second part is within a pair of fences, after its language.
    let inside = parts.skip(1).step_by(2);
    inside
        .filter_map(|part| part.split_once('\n'))
        .map(|(_, code)| code)
        .collect()
}

#[test]
fn from_recording_to_numbers_is_the_first_example_and_takes_ten_lines() {
    let found = blocks(README);
    assert_eq!(found[0], EXAMPLE.trim_end());
    let heading = "From recording to numbers in ten lines";
    assert_eq!(README.matches(heading).count(), 1);
    let lines = EXAMPLE.lines().filter(|line| !line.trim().is_empty());
    assert_eq!(lines.count(), 10);
}

#[test]
fn from_recording_to_numbers_runs_on_the_demo() {
    let folder = Folder::with_demo();
    std::fs::rename(folder.path("run.mcap"), folder.path("asof-demo.mcap")).expect("renames");
    // No other test of this program looks at where it runs.
    std::env::set_current_dir(folder.path(".")).expect("a folder");
    assert_eq!(numbers::run(), Ok(()));
}
