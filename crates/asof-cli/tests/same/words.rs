//! Which message matches, and by which time, is said with the same words on the command line, in TOML and in SQL. Those of Python are
//! tried in `crates/asof-py/tests/test_align.py`.

use crate::common::Folder;
use asof::align::{On, Pick};
use asof::lerobot::DatasetMap;

/// Each word of these, with the other spellings of it.
fn spellings<T: Copy>(
    all: impl IntoIterator<Item = T>,
    word: fn(T) -> &'static str,
    others: fn(T) -> &'static [&'static str],
) -> Vec<(T, &'static str)> {
    let each = |one: T| {
        let words = std::iter::once(word(one)).chain(others(one).iter().copied());
        words.map(move |word| (one, word))
    };
    all.into_iter().flat_map(each).collect()
}

fn picks() -> Vec<(Pick, &'static str)> {
    spellings(Pick::ALL, Pick::word, Pick::other_words)
}

fn times() -> Vec<(On, &'static str)> {
    spellings(On::ALL, On::word, On::other_words)
}

#[test]
fn the_command_line_takes_every_word() {
    let folder = Folder::with_demo();
    let rows = |method: &str, on: &str| {
        let line =
            format!("join run.mcap --anchor /scan --with /odom --method {method} --on {on} --json");
        folder.stdout(&line)
    };
    for (pick, word) in picks() {
        assert_eq!(rows(word, "stamp"), rows(pick.word(), "stamp"), "{word}");
    }
    for (on, word) in times() {
        assert_eq!(rows("last", word), rows("last", on.word()), "{word}");
    }
    // The order of the words is that of the rules; an unknown one is answered with all of them.
    let said =
        folder.output("join run.mcap --anchor /scan --with /odom --method nearst --on stamp");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    for pick in Pick::ALL {
        assert!(said.contains(pick.word()), "{said}");
    }
    assert_eq!(
        folder.exit_code("join run.mcap --anchor /scan --with /odom --on logged"),
        2
    );
}

#[test]
fn a_map_of_a_dataset_takes_every_word() {
    let map = |method: &str, on: &str| {
        let text = format!(
            "hz = 30\nmethod = \"{method}\"\non = \"{on}\"\n[features]\nx = {{ paths = [\"/odom.x\"], method = \"{method}\" }}"
        );
        DatasetMap::from_toml(&text)
    };
    for (pick, word) in picks() {
        let found = map(word, "stamp").expect(word);
        assert_eq!(found.method, pick, "{word}");
        assert_eq!(found, map(pick.word(), "stamp").expect("a word"));
    }
    for (on, word) in times() {
        assert_eq!(map("last", word).expect(word).on, on, "{word}");
    }
    assert!(map("nearst", "stamp").is_err() && map("last", "logged").is_err());
}

/// Beyond the ends nothing is interpolated, unless the nearest is asked for.
#[test]
fn beyond_the_ends_the_command_has_nothing_or_the_nearest() {
    let folder = Folder::with_demo();
    let offsets = |more: &str| {
        let line = format!(
            "join run.mcap --anchor /imu --with /odom --method interpolate --on log_time --fields orientation.w --json {more}"
        );
        let rows = folder.stdout(&line);
        let missing = rows.matches(r#""with":{"/odom":null}"#).count();
        (rows.lines().count(), missing)
    };
    let (all, missing) = offsets("");
    assert!(missing > 0 && missing < all, "{missing} of {all}");
    assert_eq!(offsets("--or-nearest"), (all, 0));
}

#[cfg(feature = "sql")]
#[test]
fn sql_takes_every_word() {
    let folder = Folder::with_demo();
    let recording = asof::open(folder.path("run.mcap")).expect("opens");
    let rows = |method: &str, on: &str| {
        let query = format!(
            "SELECT time, odom.log_time, odom.pose.pose FROM resample(odom, 20, '{method}', '{on}')"
        );
        let table = recording
            .sql(&query)
            .unwrap_or_else(|error| panic!("{query}: {error}"));
        table.collect().expect("rows")
    };
    for (pick, word) in picks() {
        assert_eq!(rows(word, "stamp"), rows(pick.word(), "stamp"), "{word}");
    }
    for (on, word) in times() {
        assert_eq!(rows("last", word), rows("last", on.word()), "{word}");
    }
    for wrong in [
        "resample(odom, 20, 'nearst')",
        "resample(odom, 20, 'last', 'logged')",
    ] {
        assert!(
            recording.sql(&format!("SELECT * FROM {wrong}")).is_err(),
            "{wrong}"
        );
    }
}
