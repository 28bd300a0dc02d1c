//! The book's table of names: each is in the command, in Python and in Rust.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Calls everything that the table names, so that the compiler knows it.
#[allow(dead_code, reason = "it is compiled, and never run")]
mod calls {
    use asof::check::{DoctorOptions, Expectations};
    use asof::decode::ros::Odometry;
    use asof::{Recording, Topic};

    type Any = Result<(), Box<dyn std::error::Error>>;

    pub fn of_topic(topic: &Topic) -> Any {
        let _ = (topic.read()?, topic.columns(&["stamp"])?, topic.f64("x")?);
        let _ = (topic.messages::<Odometry>()?, topic.follow()?);
        let format = asof::tf::TrajectoryFormat::Tum;
        let _ = topic.write_poses(asof::TimeRange::ALL, format, &mut std::io::stdout())?;
        Ok(())
    }

    pub fn of_recording(expectations: &Expectations) -> Any {
        let recording: Recording = asof::open("run.mcap")?;
        let summary = recording.summary();
        let _ = (recording.topics(), recording.problems());
        let _ = recording.read(&asof::Query::all())?;
        let _ = recording.follow(&asof::Query::all())?;
        let _ = (
            recording.info(&asof::Query::all())?,
            recording.shifted("/before", 0),
        );
        let _ = recording.attachment(&summary.attachments[0])?;
        let _ = recording.metadata(&summary.metadata[0])?;
        let _ = (recording.at("+1s".parse::<asof::When>()?)?, recording.tf()?);
        let options = asof::align::AlignOptions::default();
        let _ = recording.join("/odom", &["/imu"], options.clone())?;
        let _ = recording.resample(&["/odom"], 10.0, options)?;
        let _ = recording.convert("out.mcap", &asof::files::ConvertOptions::default())?;
        let cut = asof::files::Cut::Size(1_000_000);
        let _ = recording.split("out.mcap", &asof::files::SplitOptions::new(cut))?;
        let _ = recording.recover("out.mcap", &asof::files::RecoverOptions::default())?;
        let _ = recording.doctor(&DoctorOptions::default())?;
        let _ = (recording.check(expectations)?, recording.expectations()?);
        let _ = recording.diff(&recording)?;
        Ok(())
    }

    #[cfg(feature = "export")]
    pub fn of_export(
        recording: &Recording,
        options: &asof::export::ExportOptions,
        map: &asof::lerobot::DatasetMap,
    ) -> Any {
        let _ = recording.export("tables", options)?;
        let _ = recording.lerobot("dataset", map)?;
        Ok(())
    }

    #[cfg(feature = "sql")]
    pub fn of_queries(recording: &Recording, fleet: &asof::Fleet) -> Any {
        let _ = (recording.sql("SELECT 1")?, fleet.sql("SELECT 1")?);
        Ok(())
    }

    #[cfg(feature = "live")]
    pub fn of_robot(recording: &Recording) -> Any {
        let robot: asof::Robot = asof::connect("zenoh://")?;
        let window = robot.create_window::<asof::live::Sample>("/scan", 10);
        let _ = (robot.topics(), window.build()?, robot.tf());
        let _ = robot.recent(&asof::live::RecentOptions::default())?;
        let files = asof::RecordFiles::default();
        let options = asof::record::RecordOptions::default();
        let _ = robot.record("run.mcap", files, options.clone(), |_| true)?;
        let snapshots = asof::record::SnapshotOptions::default();
        let _ = robot.snapshots("run.mcap", snapshots, options, |_| true)?;
        let _ = robot.play(recording, asof::PlayOptions::default())?;
        let _ = robot.playback(recording, asof::PlayOptions::default())?;
        Ok(())
    }

    #[cfg(feature = "fleet")]
    pub fn of_fleet(options: &asof::catalogue::IndexOptions) -> Any {
        use std::ops::ControlFlow;
        let fleet: asof::Fleet = asof::fleet("s3://bucket")?;
        let search = asof::catalogue::Search::default();
        let _ = (fleet.index(options)?, fleet.find(&search)?);
        let _ = fleet.recordings(&search)?;
        let _ = fleet.tag("run.mcap", [("weather", Some("rain"))])?;
        let pause = std::time::Duration::from_secs(10);
        fleet.watch(options, pause, |_| ControlFlow::Break(()));
        Ok(())
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

/// The rows of the table: command, Python, Rust; empty for a dash.
fn rows() -> Vec<[String; 3]> {
    let page = text("docs/src/vocabulary.md");
    let lines = page.lines().filter(|line| line.starts_with("| "));
    let rows = lines.skip(1).map(|line| {
        let cells = line.trim_matches('|').split('|');
        let mut cells = cells.map(|cell| cell.trim().trim_matches(['`', '–']).to_owned());
        [(); 3].map(|()| cells.next().expect("three columns"))
    });
    rows.collect()
}

/// The public names of a Python module, and `Class.name` for what is in its classes.
fn names_in(python: &str) -> BTreeSet<String> {
    let mut class = String::new();
    let mut names = BTreeSet::new();
    for line in python.lines() {
        let name_after = |word: &str| {
            let rest = line.trim_start().strip_prefix(word)?;
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
            Some(rest[..end].to_owned())
        };
        if let Some(name) = name_after("class ") {
            class = name;
        }
        let Some(name) = name_after("def ").or_else(|| name_after("async def ")) else {
            continue;
        };
        match line.len() - line.trim_start().len() {
            0 => names.insert(name),
            4 => names.insert(format!("{class}.{name}")),
            _ => false,
        };
    }
    names
}

#[test]
fn the_table_has_the_verbs_of_the_command_and_no_others() {
    let command = text("crates/asof-cli/src/lib.rs");
    let verbs = command.split("enum Verb {").nth(1).expect("the verbs");
    let verbs = verbs.split('}').next().expect("their end");
    let verbs = verbs.lines().filter_map(|line| line.trim().split_once('('));
    let verbs: BTreeSet<String> = verbs.map(|(verb, _)| verb.to_lowercase()).collect();
    let rows = rows().into_iter();
    let named = rows.filter_map(|[verb, ..]| {
        let verb = verb.strip_prefix("asof ")?.split(' ').next()?;
        Some(verb.to_owned())
    });
    assert_eq!(named.collect::<BTreeSet<_>>(), verbs);
}

#[test]
fn each_name_of_the_table_is_called_in_rust() {
    let calls = include_str!("vocabulary.rs");
    let rows = rows();
    assert!(rows.len() > 30, "the table was not found");
    for [_, _, name] in rows.into_iter().filter(|row| !row[2].is_empty()) {
        let is_called = if name.starts_with("asof::") {
            calls.contains(&format!("{name}(\""))
        } else {
            let (of, method) = name.split_once("::").expect("a method");
            let call = format!("{}.{method}", of.to_lowercase());
            calls.contains(&format!("{call}(")) || calls.contains(&format!("{call}::<"))
        };
        assert!(is_called, "{name} is not among the calls above");
    }
}

#[test]
fn each_name_of_the_table_is_defined_in_python() {
    let folder = root().join("crates/asof-py/python/asof");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the package") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|extension| extension == "py") {
            let module = path.file_stem().expect("a name").to_string_lossy();
            let found = names_in(&fs::read_to_string(&path).expect("readable"));
            // What a module without an underscore defines is used through it; all else is in the package itself.
            let is_own = |name: &String| name.contains('.') || !name.starts_with('_');
            let found = found.into_iter().filter(is_own);
            names.extend(found.flat_map(|name| {
                let outer = if module.starts_with('_') {
                    "asof"
                } else {
                    &*module
                };
                [format!("{outer}.{name}"), name]
            }));
        }
    }
    for [_, name, _] in rows().into_iter().filter(|row| !row[1].is_empty()) {
        assert!(name.contains('.'), "{name}: say where it is");
        assert!(names.contains(&name), "Python has no {name}");
    }
}
