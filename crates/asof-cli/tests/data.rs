//! Recordings of other people's robots: each is answered, or refused in a line that says why.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn every_recording_is_answered_or_refused_in_one_line() {
    let Some(folder) = recordings() else { return };
    let mut answered = 0;
    for path in files(&folder) {
        for words in [
            &["info", "--json"][..],
            &["doctor", "--json"],
            &["cat", "--raw", "--json", "--limit", "100"],
        ] {
            let output = asof(words, &path);
            let told = String::from_utf8_lossy(&output.stderr);
            let case = format!("{} {}: {told}", words[0], path.display());
            match output.status.code() {
                Some(0 | 3) => {
                    let text = String::from_utf8(output.stdout).expect("text");
                    assert!(text.lines().all(|line| line.starts_with('{')), "{case}");
                    answered += 1;
                }
                Some(1) => {
                    assert_eq!(told.lines().count(), 1, "{case}");
                    assert!(told.starts_with("error: "), "{case}");
                    let is_mcap = path
                        .extension()
                        .is_some_and(|extension| extension == "mcap");
                    assert!(!is_mcap, "{case}");
                }
                other => panic!("exit code {other:?}: {case}"),
            }
        }
    }
    assert!(answered > 0, "no recording in {}", folder.display());
}

fn asof(words: &[&str], path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asof"));
    command.args(words).arg(path).output().expect("asof runs")
}

/// The folder that `ASOF_TEST_DATA` names, else the one beside the checkout; said so where there is none.
fn recordings() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var_os("ASOF_TEST_DATA").map_or_else(beside, PathBuf::from);
    let folder = data.join("recordings");
    if !folder.is_dir() {
        asof_core::testing::skipped(format_args!(
            "no recordings at {}; set ASOF_TEST_DATA",
            folder.display()
        ));
        return None;
    }
    Some(folder)
}

/// Every file, and every folder too: they are places that people name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).expect("folder") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                left.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}
