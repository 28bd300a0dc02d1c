//! The example, run as a process of its own.

use std::path::Path;
use std::process::Command;

#[test]
fn the_example_records_its_talker() {
    // target/debug/deps/examples-… → target/debug/examples/recorder, where cargo test builds it.
    let test = std::env::current_exe().expect("a path");
    let profile = test.parent().and_then(Path::parent).expect("a folder");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let output = Command::new(profile.join("examples/recorder"))
        .arg(&path)
        .output()
        .expect("the example is not built: `cargo test -p asof-record` builds it");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("messages of /battery"), "{text}");
    assert!(path.exists());
}
