//! A folder of recordings and its catalogue.

mod fleet;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::cast::AsArray as _;
use asof_catalogue::{Catalogue, CatalogueError, IndexOptions, Indexer, RecordingFilter, Search};
use asof_core::{Stamp, TimeRange};
use asof_formats::Store;

use fleet::Fleet;

fn named(search: &Search, catalogue: &Catalogue) -> Vec<String> {
    let found = catalogue.find(search).expect("a catalogue");
    found
        .recordings
        .into_iter()
        .map(|found| found.row.recording)
        .collect()
}

#[test]
fn a_second_run_opens_nothing_and_a_third_what_is_new() {
    let fleet = Fleet::new();
    fleet.record("r1/a.mcap", 1, &["/tf"]);
    fleet.record("r2/b.mcap", 2, &["/tf", "/bumper"]);
    let first = fleet.index();
    assert_eq!((first.recordings, first.opened, first.unchanged), (2, 2, 0));
    let again = fleet.index();
    assert_eq!((again.opened, again.unchanged), (0, 2));
    assert_eq!(again.generation, first.generation);
    fleet.record("r2/c.mcap", 3, &["/bumper"]);
    let third = fleet.index();
    assert_eq!((third.opened, third.unchanged), (1, 2));
    let bumper = Search {
        topics: vec!["/bumper".parse().expect("a name")],
        ..Search::default()
    };
    assert_eq!(
        named(&bumper, &fleet.catalogue()),
        ["r2/b.mcap", "r2/c.mcap"]
    );
}

#[test]
fn a_changed_recording_is_opened_again_and_keeps_its_labels() {
    let fleet = Fleet::new();
    fleet.record("a.mcap", 1, &["/tf"]);
    fleet.record("b.mcap", 2, &["/tf"]);
    fleet.index();
    let catalogue = fleet.catalogue();
    let weather = BTreeMap::from([("weather".to_owned(), "rain".to_owned())]);
    catalogue
        .label("a.mcap", weather, BTreeSet::new(), fleet::now())
        .expect("it is there");
    fleet.record("a.mcap", 5, &["/odom", "/scan"]);
    let run = fleet.index();
    assert_eq!((run.opened, run.unchanged), (1, 1));
    let rows = fleet.rows();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows["a.mcap"].tags["weather"], "rain");
    assert_eq!(rows["a.mcap"].range.start, fleet::second(5));
    let search = |topic: &str| Search {
        topics: vec![topic.parse().expect("a name")],
        ..Search::default()
    };
    assert_eq!(named(&search("/tf"), &catalogue), ["b.mcap"]);
    assert_eq!(named(&search("/odom"), &catalogue), ["a.mcap"]);
}

#[test]
fn a_recording_that_is_replaced_by_an_older_file_is_opened_again() {
    let fleet = Fleet::new();
    fleet.record("a.mcap", 1, &["/tf"]);
    fleet.record("b.mcap", 2, &["/tf"]);
    fleet.index();
    // As `mv`, `cp -p`, rsync and backups do.
    fleet.record("a.mcap", 5, &["/odom", "/scan"]);
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = fs::File::options().write(true).open(fleet.path("a.mcap"));
    file.and_then(|file| file.set_modified(old))
        .expect("it is older");
    assert_eq!(fleet.index().opened, 1);
    assert_eq!(fleet.rows()["a.mcap"].range.start, fleet::second(5));
    assert_eq!(fleet.index().opened, 0, "it is known now");
}

#[test]
fn what_is_gone_is_noted_and_comes_back_with_its_labels() {
    let fleet = Fleet::new();
    fleet.record("a.mcap", 1, &["/tf"]);
    fleet.record("b.mcap", 2, &["/tf"]);
    fleet.index();
    let kept = BTreeMap::from([("keep".to_owned(), "yes".to_owned())]);
    fleet
        .catalogue()
        .label("a.mcap", kept, BTreeSet::new(), fleet::now())
        .expect("it is there");
    let bytes = fs::read(fleet.path("a.mcap")).expect("a file");
    fs::remove_file(fleet.path("a.mcap")).expect("it goes");
    assert_eq!(fleet.index().vanished, 1);
    assert_eq!(fleet.index().vanished, 0, "it is told once");
    assert_eq!(named(&Search::default(), &fleet.catalogue()), ["b.mcap"]);
    let all = Search {
        with_vanished: true,
        ..Search::default()
    };
    assert_eq!(named(&all, &fleet.catalogue()), ["a.mcap", "b.mcap"]);
    fs::write(fleet.path("a.mcap"), bytes).expect("it is back");
    assert_eq!(fleet.index().opened, 1);
    let rows = fleet.rows();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows["a.mcap"].vanished, None);
    assert_eq!(rows["a.mcap"].tags["keep"], "yes");
}

#[test]
fn a_filter_is_asked_of_the_recordings_that_the_other_criteria_leave() {
    let fleet = Fleet::new();
    for (name, start) in [("r1/a.mcap", 1), ("r1/b.mcap", 2), ("r2/c.mcap", 3)] {
        fleet.record(name, start, &["/tf"]);
    }
    fleet.record("r2/d.mcap", 4, &["/odom"]);
    fleet.index();
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let heard = Arc::clone(&asked);
    let filter = RecordingFilter::new(vec!["recording".to_owned()], move |rows| {
        assert_eq!(rows.num_columns(), 1);
        let names = rows.column(0).as_string::<i32>().iter().flatten();
        let mut heard = heard.lock().expect("no panic before");
        names
            .map(|name| {
                heard.insert(name.to_owned());
                Some(!name.ends_with("b.mcap"))
            })
            .collect()
    });
    let search = Search {
        topics: vec!["/tf".parse().expect("a name")],
        range: TimeRange::new(fleet::second(1), fleet::second(2)),
        filter: Some(filter),
        ..Search::default()
    };
    let always = Search {
        range: Search::default().range,
        ..search.clone()
    };
    let asked = || std::mem::take(&mut *asked.lock().expect("no panic before"));
    let catalogue = fleet.catalogue();
    assert_eq!(named(&search, &catalogue), ["r1/a.mcap"]);
    assert_eq!(
        asked(),
        BTreeSet::from(["r1/a.mcap", "r1/b.mcap"].map(str::to_owned))
    );
    assert_eq!(named(&always, &catalogue), ["r1/a.mcap", "r2/c.mcap"]);
}

#[cfg(unix)]
#[test]
fn what_lies_in_a_folder_that_cannot_be_looked_into_has_not_vanished() {
    use std::os::unix::fs::PermissionsExt as _;
    let fleet = Fleet::new();
    fleet.record("r1/a.mcap", 1, &["/tf"]);
    fleet.record("b.mcap", 2, &["/tf"]);
    fleet.index();
    let folder = fleet.path("r1");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o000)).expect("it is closed");
    // The superuser looks into every folder.
    let is_closed = fs::read_dir(&folder).is_err();
    let run = fleet.index();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("it is opened");
    if is_closed {
        assert_eq!((run.vanished, run.not_listed), (0, 1));
    } else {
        assert_eq!((run.vanished, run.not_listed), (0, 0));
    }
}

#[test]
fn damaged_recordings_are_indexed_with_what_is_wrong_and_stop_nothing() {
    let fleet = Fleet::new();
    fleet.record("good.mcap", 1, &["/tf"]);
    let whole = fs::read(fleet.path("good.mcap")).expect("a file");
    fs::write(fleet.path("cut.mcap"), &whole[..whole.len() - 40]).expect("a file");
    fs::write(fleet.path("empty.mcap"), b"").expect("a file");
    fs::write(fleet.path("garbage.bag"), vec![7; 5_000]).expect("a file");
    let run = fleet.index();
    assert_eq!(
        (run.recordings, run.opened, run.damaged, run.failed),
        (4, 4, 3, 0)
    );
    let rows = fleet.rows();
    assert!(rows["good.mcap"].problems.is_empty());
    assert_eq!(rows["cut.mcap"].problems[0].kind, "truncated");
    assert_eq!(rows["empty.mcap"].problems[0].kind, "unreadable");
    assert!(
        rows["garbage.bag"].problems[0]
            .message
            .contains("garbage.bag")
    );
    assert_eq!(fleet.index().opened, 0, "they are not opened again");
}

#[test]
fn two_indexers_at_once_lose_nothing() {
    let fleet = Fleet::new();
    for number in 0..40 {
        fleet.record(&format!("{number:02}.mcap"), number, &["/tf"]);
    }
    // Each with a catalogue of its own, as two processes have it, and parts of two recordings, to meet often.
    std::thread::scope(|scope| {
        for half in 0..2 {
            let fleet = &fleet;
            scope.spawn(move || {
                let catalogue = fleet.catalogue();
                for number in (0..40).filter(|number| number % 2 == half) {
                    let indexed = Fleet::surveyed(&format!("{number:02}.mcap"), number);
                    fleet::write(&catalogue, vec![indexed]);
                }
            });
        }
    });
    assert_eq!(fleet.rows().len(), 40);
    let catalogue = fleet.catalogue();
    let everything = catalogue.recordings().expect("a catalogue");
    assert_eq!(everything.len(), 40, "and none is there twice");
    catalogue
        .compact(fleet::now())
        .expect("small parts are put together");
    assert_eq!(fleet.rows().len(), 40);
    let head = catalogue.existing_head().expect("a head");
    assert!(head.parts.len() <= 8, "{}", head.parts.len());
}

#[test]
fn two_whole_runs_at_once_find_each_recording_once() {
    let fleet = Fleet::new();
    for number in 0..60 {
        fleet.record(&format!("{number:02}.mcap"), number, &["/tf", "/odom"]);
    }
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| fleet.index());
        }
    });
    let all = fleet.catalogue().recordings().expect("a catalogue");
    assert_eq!(all.len(), 60);
    let odom = Search {
        topics: vec!["/odom".parse().expect("a name")],
        ..Search::default()
    };
    let found = fleet.catalogue().find(&odom).expect("a catalogue");
    assert_eq!(found.recordings.len(), 60);
    assert_eq!(fleet.index().opened, 0);
}

#[test]
fn an_older_version_does_not_replace_a_newer_one() {
    let fleet = Fleet::new();
    let mut late = Fleet::surveyed("a.mcap", 1);
    late.row.modified = Some(fleet::second(100));
    let mut new = Fleet::surveyed("a.mcap", 2);
    new.row.modified = Some(fleet::second(200));
    let catalogue = fleet.catalogue();
    for indexed in [new.clone(), late] {
        fleet::write(&catalogue, vec![indexed]);
    }
    assert_eq!(fleet.rows()["a.mcap"].range, new.row.range);
}

#[test]
fn a_crash_leaves_the_last_good_state_and_its_files_are_removed_a_day_later() {
    let fleet = Fleet::new();
    fleet.record("a.mcap", 1, &["/tf"]);
    fleet.index();
    // A writer that was killed: parts without a head, a file without its name, a lock that nobody holds.
    let folder = fleet.path(".asof");
    let left = [
        "recordings-00000002-0123456789abcdef.parquet",
        ".asof-x1y2z3.part",
    ];
    for name in left {
        fs::write(folder.join(name), b"half of i").expect("a file");
    }
    fs::write(folder.join("notes.txt"), b"somebody else's").expect("a file");
    assert_eq!(fleet.index().opened, 0);
    assert_eq!(fleet.rows().len(), 1);
    let catalogue = fleet.catalogue();
    assert_eq!(
        catalogue.sweep(Stamp::now()).expect("a look"),
        0,
        "it may be named soon"
    );
    let in_two_days = Stamp::now().plus_nanos(2 * 86_400_000_000_000);
    assert_eq!(
        catalogue.sweep(in_two_days).expect("a look"),
        0,
        "a clock that is set wrong takes nothing from others"
    );
    let two_days_ago = std::time::SystemTime::now() - Duration::from_hours(48);
    for name in left {
        let file = fs::File::options().write(true).open(folder.join(name));
        let file = file.expect("a file");
        file.set_modified(two_days_ago).expect("an age");
    }
    assert_eq!(catalogue.sweep(Stamp::now()).expect("a look"), 2);
    assert!(folder.join("notes.txt").exists());
    assert_eq!(fleet.rows().len(), 1);
}

#[test]
fn files_that_no_head_names_any_more_stay_for_those_who_read_an_older_one() {
    let fleet = Fleet::new();
    fleet.record("a.mcap", 1, &["/tf"]);
    fleet.index();
    let catalogue = fleet.catalogue();
    let old = catalogue.existing_head().expect("a head").parts[0]
        .recordings
        .file
        .clone();
    let label = |value: &str, at: Stamp| {
        let set = BTreeMap::from([("n".to_owned(), value.to_owned())]);
        catalogue
            .label("a.mcap", set, BTreeSet::new(), at)
            .expect("it is there");
    };
    label("1", fleet::now());
    let path = fleet.path(".asof").join(&old);
    assert!(path.exists());
    let head = catalogue.existing_head().expect("a head");
    assert!(head.retired.iter().any(|retired| retired.file == old));
    label("2", fleet::now().plus_nanos(2 * 3_600_000_000_000));
    assert!(!path.exists(), "two hours later nobody needs it");
    assert_eq!(fleet.rows()["a.mcap"].tags["n"], "2");
}

#[test]
fn robot_site_and_date_come_from_the_path_the_file_and_from_people() {
    let fleet = Fleet::new();
    fleet.record_with_metadata(
        "r7/2024-05-01/a.mcap",
        1,
        &["/tf"],
        &[("robot", "ignored"), ("operator", "day shift")],
    );
    fleet.record_with_metadata(
        "loose.mcap",
        2,
        &["/tf"],
        &[("robot_id", "r9"), ("site", "hall 3")],
    );
    let options = IndexOptions {
        patterns: Some(vec!["{robot}/{date}/…".parse().expect("a pattern")]),
        ..IndexOptions::default()
    };
    let catalogue = fleet.catalogue();
    let run = Indexer::new(&catalogue, options)
        .run(fleet::now(), &|_| {})
        .expect("it runs");
    assert_eq!(run.without_pattern, 1);
    let rows = fleet.rows();
    let first = &rows["r7/2024-05-01/a.mcap"];
    assert_eq!(
        (first.robot.as_deref(), first.date.as_deref()),
        (Some("r7"), Some("2024-05-01"))
    );
    assert_eq!(first.tags["run.operator"], "day shift");
    let second = &rows["loose.mcap"];
    assert_eq!(
        (second.robot.as_deref(), second.site.as_deref()),
        (Some("r9"), Some("hall 3"))
    );

    let set = BTreeMap::from([("robot".to_owned(), "r8".to_owned())]);
    let row = catalogue
        .label("a.mcap", set, BTreeSet::new(), fleet::now())
        .expect("one ends so");
    assert_eq!(row.robot.as_deref(), Some("r8"));
    let removed = BTreeSet::from(["robot".to_owned()]);
    let row = catalogue
        .label(
            "r7/2024-05-01/a.mcap",
            BTreeMap::new(),
            removed,
            fleet::now(),
        )
        .expect("it is there");
    assert_eq!(row.robot.as_deref(), Some("r7"), "the path speaks again");
}

#[test]
fn another_pattern_reads_all_paths_anew_without_opening_anything() {
    let fleet = Fleet::new();
    fleet.record("berlin/r7/a.mcap", 1, &["/tf"]);
    fleet.index();
    assert_eq!(fleet.rows()["berlin/r7/a.mcap"].robot, None);
    let options = IndexOptions {
        patterns: Some(vec!["{site}/{robot}/…".parse().expect("a pattern")]),
        ..IndexOptions::default()
    };
    let run = Indexer::new(&fleet.catalogue(), options)
        .run(fleet::now(), &|_| {})
        .expect("it runs");
    assert_eq!(run.opened, 0);
    let rows = fleet.rows();
    assert_eq!(rows["berlin/r7/a.mcap"].site.as_deref(), Some("berlin"));
    // From here on it is known.
    fleet.record("paris/r8/b.mcap", 2, &["/tf"]);
    fleet.index();
    assert_eq!(fleet.rows()["paris/r8/b.mcap"].robot.as_deref(), Some("r8"));
}

#[test]
fn the_catalogue_may_lie_elsewhere() {
    let fleet = Fleet::new();
    fleet.record("a.mcap", 1, &["/tf"]);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let stores = || {
        let root = Store::at(fleet.path("")).expect("a folder");
        (root, Store::at(elsewhere.path()).expect("a folder"))
    };
    let (root, store) = stores();
    let catalogue = Catalogue::elsewhere(root, store);
    Indexer::new(&catalogue, IndexOptions::default())
        .run(fleet::now(), &|_| {})
        .expect("it runs");
    assert!(!fleet.path(".asof").exists());
    assert_eq!(named(&Search::default(), &catalogue), ["a.mcap"]);
}

#[test]
fn what_is_not_a_catalogue_is_told() {
    let fleet = Fleet::new();
    let catalogue = fleet.catalogue();
    assert!(matches!(
        catalogue.find(&Search::default()),
        Err(CatalogueError::Missing { .. })
    ));
    fleet.record("a.mcap", 1, &["/tf"]);
    fleet.index();
    let head = fleet.path(".asof/head.json");
    let text = fs::read_to_string(&head).expect("a head");
    fs::write(&head, text.replace("\"version\": 1", "\"version\": 9")).expect("a file");
    assert!(matches!(
        catalogue.find(&Search::default()),
        Err(CatalogueError::TooNew { found: 9, .. })
    ));
    fs::write(&head, "{}").expect("a file");
    assert!(matches!(
        catalogue.find(&Search::default()),
        Err(CatalogueError::BadHead { .. })
    ));
    fs::write(&head, text.replace("recordings-0", "../../recordings-0")).expect("a file");
    assert!(matches!(
        catalogue.find(&Search::default()),
        Err(CatalogueError::BadHead { .. })
    ));
    fs::write(&head, &text).expect("a file");
    let part = catalogue.existing_head().expect("a head").parts[0]
        .recordings
        .file
        .clone();
    fs::write(fleet.path(".asof").join(part), b"PAR1 and no more").expect("a file");
    assert!(matches!(
        catalogue.find(&Search::default()),
        Err(CatalogueError::BadTable { .. })
    ));
}

#[test]
fn definitions_are_known_without_opening_a_recording_and_kept_once() {
    let fleet = Fleet::new();
    fleet.record("a.mcap", 1, &["/tf"]);
    fleet.index();
    fleet.record("b.mcap", 2, &["/tf", "/odom"]);
    fleet.index();
    let schemas = fleet.catalogue().schemas().expect("a catalogue");
    let names: Vec<&str> = schemas.iter().map(|schema| schema.name.as_str()).collect();
    assert_eq!(names, ["test/msg/Number"]);
    assert_eq!(schemas[0].definition, "float64 value"[..].as_bytes());
}

#[test]
fn a_search_reads_the_row_groups_that_can_hold_an_answer_and_no_others() {
    let fleet = Fleet::new();
    let catalogue = fleet.catalogue();
    // 100,000 recordings of ten robots, an hour apart each, with a topic that few have.
    for part in 0..5 {
        let mut indexed = Vec::new();
        for number in part * 20_000..(part + 1) * 20_000 {
            let robot = number % 10;
            let name = format!("r{robot}/{number}.mcap");
            let mut one = Fleet::surveyed(&name, number / 10 * 3_600);
            one.row
                .labels
                .insert("robot".to_owned(), format!("r{robot}"));
            if number == 54_321 {
                one.topics[0].topic = "/bumper".to_owned();
            }
            indexed.push(one);
        }
        fleet::write(&catalogue, indexed);
    }
    let head = catalogue.existing_head().expect("a head");
    assert_eq!(head.recordings(), 100_000);
    let bumper = Search {
        topics: vec!["/bump*".parse().expect("a name")],
        ..Search::default()
    };
    let found = catalogue.find(&bumper).expect("a catalogue");
    assert_eq!(found.recordings.len(), 1);
    assert_eq!(found.recordings[0].row.recording, "r1/54321.mcap");
    // One group of topics, and the recordings of the one part that has it.
    assert!(found.stats.groups_read <= 1 + 5, "{:?}", found.stats);
    assert!(found.stats.groups >= 15, "{:?}", found.stats);

    let hour = Search {
        robots: vec!["r7".parse().expect("a name")],
        range: TimeRange::new(
            fleet::second(5_000 * 3_600),
            fleet::second(5_001 * 3_600 - 1),
        ),
        ..Search::default()
    };
    let found = catalogue.find(&hour).expect("a catalogue");
    assert_eq!(found.recordings.len(), 1);
    assert_eq!(found.recordings[0].row.recording, "r7/50007.mcap");
    assert!(found.stats.groups_read <= 2, "{:?}", found.stats);
    assert!(found.stats.groups >= 25, "{:?}", found.stats);
}

#[test]
fn recordings_that_were_found_are_opened_when_they_are_read_and_not_before() {
    use asof_core::{Query, Source as _};
    let fleet = Fleet::new();
    for number in 0..30 {
        fleet.record(&format!("{number:02}.mcap"), number * 10, &["/tf", "/odom"]);
    }
    fleet.index();
    let catalogue = fleet.catalogue();
    let found = catalogue.find(&Search::default()).expect("a catalogue");
    let options = IndexOptions::default().open;
    let all = catalogue.open_found(&found, &options).expect("a catalogue");
    assert_eq!(all.len(), 30);
    let read = |number: usize| -> usize {
        let batches = all[number].read(&Query::topics(["/odom"])).expect("reads");
        batches.map(|batch| batch.expect("a batch").len()).sum()
    };
    // What the catalogue says is what the file says.
    let opened = asof_formats::open(fleet.path("07.mcap"))
        .expect("opens")
        .summary();
    let known = all[7].summary();
    assert_eq!(
        (known.range, known.messages),
        (opened.range, opened.messages)
    );
    assert_eq!(known.topics(), opened.topics());
    let schema = |summary: &asof_core::Summary| summary.channels[0].channel.schema.clone();
    assert_eq!(schema(&known), schema(&opened));
    assert!(!all.iter().any(asof_catalogue::CataloguedRecording::is_open));

    assert_eq!(read(7), 2);
    assert!(all[7].is_open());
    for number in 8..30 {
        read(number);
    }
    assert!(!all[7].is_open(), "what is open is bounded");
    let open = all.iter().filter(|one| one.is_open()).count();
    assert!((1..=16).contains(&open), "{open}");
    assert_eq!(read(7), 2, "and it is opened again");

    fleet.record("03.mcap", 5_000, &["/tf", "/odom", "/scan"]);
    let error = all[3].read(&Query::all()).err().expect("it has changed");
    assert!(error.to_string().contains("asof index"), "{error}");
    fs::remove_file(fleet.path("04.mcap")).expect("it goes");
    let error = all[4].read(&Query::all()).err().expect("it is gone");
    assert!(error.to_string().contains("04.mcap"), "{error}");
}

#[test]
fn a_recording_on_disk_is_opened_by_what_the_catalogue_has_of_it() {
    let fleet = Fleet::new();
    fleet.record("a.mcap", 1, &["/tf", "/odom"]);
    fleet.index();
    let head = fleet.catalogue().existing_head().expect("a head");
    let kept = head.parts[0].summaries.as_ref().map(|file| file.rows);
    assert_eq!(kept, Some(1));

    // The file keeps its size and its time, and its summary is overwritten.
    let path = fleet.path("a.mcap");
    let opened = asof_formats::open(&path).expect("opens").summary();
    let (bytes, modified) = (
        fs::read(&path).expect("a file"),
        fs::metadata(&path).and_then(|found| found.modified()),
    );
    let summary = bytes.len() / 2;
    let rest = vec![0; bytes.len() - summary];
    fs::write(&path, [&bytes[..summary], &rest].concat()).expect("written");
    let file = fs::File::options().write(true).open(&path).expect("a file");
    file.set_modified(modified.expect("a time")).expect("set");
    let catalogue = fleet.catalogue();
    let found = catalogue.find(&Search::default()).expect("found");
    let all = catalogue.open_found(&found, &asof_formats::OpenOptions::default());
    let all = all.expect("a catalogue");
    let sections = asof_core::Index::sections(&all[0]);
    assert!(all[0].is_open() && !sections.is_empty());
    let known = asof_core::Source::summary(&all[0]);
    assert_eq!(known.messages, opened.messages);
}

#[test]
fn what_a_catalogue_holds_is_the_same_from_bounds_and_from_rows() {
    let fleet = Fleet::new();
    let catalogue = fleet.catalogue();
    let hours = |first: i64, last: i64| TimeRange::new(fleet::second(first), fleet::second(last));
    let mut wanted = BTreeSet::new();
    let mut indexed = Vec::new();
    for number in 0..5_000 {
        let mut one = Fleet::surveyed(&format!("{number}.mcap"), number * 10);
        // One group has a single kind, others several, and some topics have no definition.
        one.topics[0].topic = if number < 4_000 { "/a" } else { "/b" }.to_owned();
        if number % 1_000 == 999 {
            one.topics[0].schema_hash = None;
            one.topics[0].type_name = String::new();
        }
        if number == 7 {
            one.row.format = None;
        }
        let topic = &one.topics[0];
        wanted.insert((
            topic.topic.clone(),
            topic.type_name.clone(),
            topic.schema_hash.clone(),
        ));
        indexed.push(one);
    }
    let range = indexed.iter().map(|one| one.row.range);
    let range = range.fold(TimeRange::EMPTY, TimeRange::cover);
    assert!(range.overlaps(hours(0, 10)));
    fleet::write(&catalogue, indexed);
    let contents = catalogue.contents().expect("a catalogue");
    let found: BTreeSet<_> = (contents.kinds.iter())
        .map(|kind| {
            (
                kind.topic.clone(),
                kind.type_name.clone(),
                kind.schema_hash.clone(),
            )
        })
        .collect();
    assert_eq!(found, wanted);
    assert_eq!(contents.range, range);
    assert_eq!(
        (contents.recordings, contents.vanished, contents.unreadable),
        (5_000, 0, 1)
    );
}

#[test]
fn one_recording_of_many_is_found_with_its_topics_in_a_few_row_groups() {
    let fleet = Fleet::new();
    let catalogue = fleet.catalogue();
    let mut indexed = Vec::new();
    for number in 0..20_000 {
        let mut one = Fleet::surveyed(&format!("{number}.mcap"), number * 3_600);
        one.topics[0].topic = "/tf".to_owned();
        one.topics[0].messages = Some(7);
        if number == 5 {
            one.row.problems.push(asof_catalogue::ProblemRow {
                kind: "truncated".to_owned(),
                offset: None,
                topic: None,
                message: "it is cut".to_owned(),
            });
        }
        indexed.push(one);
    }
    fleet::write(&catalogue, indexed);
    let one = Search {
        recordings: BTreeSet::from(["12345.mcap".to_owned()]),
        topics: vec!["/tf".parse().expect("a name")],
        ..Search::default()
    };
    let found = catalogue.find(&one).expect("a catalogue");
    assert_eq!(found.recordings.len(), 1);
    assert_eq!(found.recordings[0].topics["/tf"].messages, Some(7));
    assert!(found.stats.groups_read <= 4, "{:?}", found.stats);
    assert!(found.stats.groups >= 15, "{:?}", found.stats);

    // A damaged recording may hold messages that its index does not list.
    let late = Search {
        topics: vec!["/tf".parse().expect("a name")],
        range: TimeRange::new(fleet::second(19_999 * 3_600), Stamp::MAX),
        with_damaged: true,
        ..Search::default()
    };
    assert_eq!(named(&late, &catalogue), ["5.mcap", "19999.mcap"]);
    let strictly = Search {
        with_damaged: false,
        ..late
    };
    assert_eq!(named(&strictly, &catalogue), ["19999.mcap"]);
}
