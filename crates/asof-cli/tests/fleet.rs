//! `asof index`, `asof tag` and `asof find` over a folder of recordings.

mod common;

use std::fs;

use common::Folder;
use serde_json::Value;

/// With a recording of each of two robots, one that was cut, and a file that is not a recording.
fn fleet() -> Folder {
    let folder = Folder::with_demo();
    let bytes = fs::read(folder.path("run.mcap")).expect("a recording");
    fs::remove_file(folder.path("run.mcap")).expect("it goes");
    for place in ["r7/2024-05-01", "r8/2024-05-02"] {
        fs::create_dir_all(folder.path(place)).expect("a folder");
        fs::write(folder.path(&format!("{place}/run.mcap")), &bytes).expect("a recording");
    }
    let half = &bytes[..bytes.len() / 2];
    fs::write(folder.path("r8/2024-05-02/cut.mcap"), half).expect("a recording");
    fs::write(folder.path("r8/notes.txt"), "it rained").expect("a file");
    folder
}

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn lines(&self) -> Vec<&str> {
        self.out.lines().collect()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).expect(&self.out)
    }
}

fn say(folder: &Folder, words: &[&str]) -> Said {
    let output = common::asof()
        .current_dir(folder.path("."))
        .args(words)
        .output()
        .expect("it runs");
    Said {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn a_folder_is_indexed_once_and_found_by_robot_topic_time_and_condition() {
    let folder = fleet();
    let first = say(
        &folder,
        &["index", ".", "--pattern", "{robot}/{date}/…", "--json"],
    );
    assert_eq!(first.code, Some(3), "one was cut: {}", first.err);
    let told = first.json();
    assert_eq!(
        (&told["recordings"], &told["opened"], &told["damaged"]),
        (&3.into(), &3.into(), &1.into())
    );
    assert!(first.err.contains("cut.mcap"), "{}", first.err);
    let again = say(&folder, &["index", "."]);
    assert_eq!(again.code, Some(0));
    assert!(again.out.contains("0 opened, 3 unchanged"), "{}", again.out);

    let found = |words: &[&str]| {
        let said = say(&folder, &[&["find", "."], words].concat());
        said.lines()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let r7 = "./r7/2024-05-01/run.mcap";
    assert_eq!(found(&["--robot", "r7"]), [r7]);
    assert_eq!(found(&["--robot", "r7", "--topics", "/sca*"]), [r7]);
    assert_eq!(
        found(&["--since", "2024-05-01", "--until", "2024-05-01"]).len(),
        3
    );
    assert!(found(&["--since", "2024-05-02"]).is_empty());
    assert_eq!(
        found(&["--where", "problems > 0"]),
        ["./r8/2024-05-02/cut.mcap"]
    );
    assert_eq!(found(&["--where", "robot = 'r7' AND messages > 10"]), [r7]);
    assert_eq!(found(&[]).len(), 3);
    // What was found is what other verbs take.
    assert_eq!(
        say(&folder, &["info", &found(&["--robot", "r7"])[0]]).code,
        Some(0)
    );
}

#[test]
fn what_people_say_of_a_recording_is_found_and_taken_back() {
    let folder = fleet();
    say(&folder, &["index", "."]);
    let tagged = say(
        &folder,
        &[
            "tag",
            ".",
            "r7/2024-05-01/run.mcap",
            "weather=rain",
            "robot=seven",
        ],
    );
    assert_eq!(tagged.code, Some(0), "{}", tagged.err);
    assert!(tagged.out.contains("weather=rain"), "{}", tagged.out);
    let found = say(&folder, &["find", ".", "--tag", "weather=ra*", "--json"]);
    let object = found.json();
    assert_eq!(object["robot"], "seven");
    assert_eq!(object["tags"]["weather"], "rain");
    let before = fs::metadata(folder.path("r7/2024-05-01/run.mcap")).expect("a file");
    say(&folder, &["tag", ".", "r7/2024-05-01/run.mcap", "weather="]);
    let after = fs::metadata(folder.path("r7/2024-05-01/run.mcap")).expect("a file");
    assert_eq!(
        before.modified().ok(),
        after.modified().ok(),
        "the recording is not touched"
    );
    // No recording has that tag any more; a tag that is there without that value is another matter.
    let gone = say(&folder, &["find", ".", "--tag", "weather=rain"]);
    assert_eq!((gone.code, gone.out.as_str()), (Some(2), ""));
    let other = say(&folder, &["find", ".", "--tag", "robot=eight"]);
    assert_eq!((other.code, other.out.as_str()), (Some(1), ""));
}

#[test]
fn wrong_words_are_refused_with_a_way_on() {
    let folder = fleet();
    let missing = say(&folder, &["find", ".", "--robot", "r7"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("asof index"), "{}", missing.err);
    say(&folder, &["index", "."]);
    for (words, wanted) in [
        (
            &["find", ".", "--where", "colour = 1"][..],
            "there is no column 'colour'",
        ),
        (&["find", ".", "--since", "yesterday"], "yesterday"),
        (&["find", ".", "--tag", "rain"], "key=value"),
        (&["tag", ".", "run.mcap", "rain"], "key=value"),
        (&["index", ".", "--pattern", "{robot"], "brace"),
        (&["index", ".", "--every", "5s"], "--watch"),
    ] {
        let said = say(&folder, words);
        assert_eq!(said.code, Some(2), "{words:?} {}", said.err);
        assert!(said.err.contains(wanted), "{words:?} {}", said.err);
    }
    let several = say(&folder, &["tag", ".", "run.mcap", "a=b"]);
    assert_eq!(several.code, Some(2));
    assert!(
        several.err.contains("several paths end like this"),
        "{}",
        several.err
    );
    for (words, meant) in [
        (&["find", ".", "--topics", "/odmo"][..], "/odom"),
        (&["find", ".", "--robot", "r77"], ""),
        (
            &["tag", ".", "r7/2024-05-01/rn.mcap", "a=b"],
            "r7/2024-05-01/run.mcap",
        ),
    ] {
        let said = say(&folder, words);
        assert_eq!(said.code, Some(2), "{words:?} {}", said.err);
        assert!(said.err.contains(meant), "{words:?} {}", said.err);
    }
    let table = say(&folder, &["find", ".", "-l"]);
    assert_eq!(table.lines().len(), 4, "{}", table.out);
    assert!(
        table.lines()[0].trim_start().starts_with("start"),
        "{}",
        table.out
    );
    for place in ["nowhere", "r8/notes.txt"] {
        let said = say(&folder, &["index", place]);
        assert_eq!(said.code, Some(1), "{}", said.err);
        assert!(said.err.contains(place), "{}", said.err);
    }
}

#[test]
fn annotations_are_found_in_the_recordings_that_are_meant() {
    let folder = fleet();
    say(&folder, &["index", ".", "--pattern", "{robot}/{date}/…"]);
    let note = r#"{"asof_annotations": 1, "annotations": [{"id": 1, "start": "1714564800500000000", "end": "1714564800500000000", "text": "wheel slips"}]}"#;
    for robot in ["r7/2024-05-01", "r8/2024-05-02"] {
        fs::write(
            folder.path(&format!("{robot}/run.mcap.annotations.json")),
            note,
        )
        .expect("a note");
    }
    let found = say(&folder, &["find", ".", "--robot", "r8", "--text", "slips"]);
    assert_eq!(found.lines().len(), 1, "{} {}", found.out, found.err);
    assert!(
        found.out.contains("r8/2024-05-02/run.mcap"),
        "{}",
        found.out
    );
}

#[cfg(unix)]
#[test]
fn a_catalogue_that_does_not_fit_says_the_file_and_the_cause() {
    let folder = fleet();
    let (code, told) = folder.on_full_disk(1, "index .");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains(".parquet: it cannot be written"), "{told}");
    assert!(told.contains("File too large"), "{told}");
}

#[cfg(unix)]
#[test]
fn a_catalogue_that_fits_in_part_is_not_written_at_all() {
    let folder = fleet();
    let mut failures = 0;
    for blocks in 1..64 {
        let (code, told) = folder.on_full_disk(blocks, "index .");
        if code != Some(1) {
            break;
        }
        failures += 1;
        let files = folder.names_in(".asof");
        let tables = files.iter().filter(|name| name.ends_with(".parquet"));
        assert_eq!(tables.count(), 0, "{files:?} of {blocks} kB: {told}");
    }
    assert!(failures > 1);
}
