//! `asof tf`: what it says, held by snapshots, and its exit codes.

mod common;

use common::Folder;
use insta::assert_snapshot;

#[test]
fn tf_shows_the_tree() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("tf run.mcap"));
    assert_eq!(
        folder.stdout("tf run.mcap"),
        folder.stdout("tf run.mcap --tree")
    );
}

#[test]
fn tf_draws_for_graphviz_mermaid_and_tf2() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("tf run.mcap --dot"));
    assert_snapshot!(folder.run("tf run.mcap --mermaid"));
    assert_snapshot!(folder.run("tf run.mcap --yaml"));
}

#[test]
fn tf_answers_where_a_frame_was() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("tf run.mcap --from odom --to base_link --at +0.5s"));
    assert_snapshot!(folder.run("tf run.mcap --from odom --to base_link --at +0.5s --json"));
    assert_snapshot!(folder.run("tf run.mcap --from odom --to base_link --json"));
}

#[test]
fn tf_without_an_answer_says_why() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("tf run.mcap --from odom --to nowhere --json"));
    assert_snapshot!(folder.run("tf run.mcap --from odom --to base_link --at +9s"));
    assert_eq!(
        folder.exit_code("tf run.mcap --from odom --to nowhere --json"),
        2
    );
    assert_eq!(
        folder.exit_code("tf run.mcap --from odom --to base_link --at +9s"),
        1
    );
}

#[test]
fn tf_writes_trajectories_for_other_programs() {
    let folder = Folder::with_demo();
    for format in ["csv", "tum", "kitti"] {
        let line = format!(
            "tf run.mcap --from odom --to base_link --every 100ms --format {format} --end +0.35s"
        );
        assert_snapshot!(folder.run(&line));
    }
}

#[test]
fn tf_takes_no_flags_that_make_no_sense_together() {
    let folder = Folder::with_demo();
    for line in [
        "tf run.mcap --from odom",
        "tf run.mcap --at +1s",
        "tf run.mcap --every 10ms",
        "tf run.mcap --from odom --to base_link --every 0s",
        "tf run.mcap --from odom --to base_link --every 10ms --format xml",
        "tf run.mcap --dot --yaml",
    ] {
        assert_eq!(folder.exit_code(line), 2, "{line}");
    }
}

#[test]
fn tf_names_the_frames_that_someone_may_have_meant() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("tf run.mcap --from odom --to base_lnk"));
}

#[test]
fn tf_prints_the_tree_as_json_and_reads_several_places_as_one() {
    let folder = Folder::with_demo();
    assert_snapshot!(folder.run("tf run.mcap --json"));
    assert_eq!(
        folder.stdout("tf run.mcap run.mcap --tree"),
        folder.stdout("tf run.mcap --tree")
    );
    assert_eq!(folder.exit_code("tf nowhere.mcap"), 1);
    assert_eq!(folder.exit_code("tf run.mcap --json --dot"), 2);
    assert_eq!(folder.exit_code("tf run.mcap --draw tree.txt"), 1);
}

#[test]
fn tf_reads_the_topics_that_are_asked_for() {
    let folder = Folder::with_demo();
    let fixed = folder.stdout("tf run.mcap --topics /tf_static --json");
    assert!(fixed.contains("\"static\":true") && !fixed.contains("\"static\":false"));
    let moving = folder.stdout("tf run.mcap --topics /tf --json");
    assert!(moving.contains("\"static\":false") && !moving.contains("\"static\":true"));
    assert_eq!(
        folder.stdout("tf run.mcap --topics /tf*"),
        folder.stdout("tf run.mcap")
    );
}
