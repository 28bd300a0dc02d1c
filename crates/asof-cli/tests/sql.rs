//! `asof sql`: every topic a table.

mod common;

use common::Folder;
#[cfg(feature = "sql")]
use common::asof;

#[cfg(not(feature = "sql"))]
#[test]
fn a_build_without_sql_says_how_to_get_one_with_it() {
    let folder = Folder::with_demo();
    for line in ["sql run.mcap SELECT", "serve run.mcap --no-open --flight"] {
        let output = folder.output(line);
        assert_eq!(output.status.code(), Some(1));
        let told = String::from_utf8(output.stderr).expect("text");
        assert!(told.contains("the Debian package"), "{told}");
        assert!(told.contains("--features sql"), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[cfg(feature = "sql")]
mod with_engine {
    use std::fs::File;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Output, Stdio};

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
    use serde_json::Value;

    use super::*;

    fn sql(folder: &Folder, words: &[&str]) -> Output {
        let mut command = asof();
        command.arg("sql").args(words).current_dir(folder.path(""));
        command.stdin(Stdio::null()).output().expect("asof runs")
    }

    fn text(output: &Output) -> String {
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        String::from_utf8(output.stdout.clone()).expect("text")
    }

    fn refused(folder: &Folder, words: &[&str], code: i32) -> String {
        let output = sql(folder, words);
        let told = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        told
    }

    const COUNT: &str = "SELECT count(*) AS n, max(twist.twist.linear.x) > 0 AS moves FROM odom";

    #[test]
    fn an_answer_comes_in_every_form() {
        let folder = Folder::with_demo();
        let info: Value =
            serde_json::from_str(&folder.stdout("info run.mcap --json")).expect("JSON");
        let topics = info["topics"].as_array().expect("topics");
        let odom = topics.iter().find(|topic| topic["topic"] == "/odom");
        let count = odom.expect("/odom")["messages"].as_i64().expect("counted");
        let json: Value =
            serde_json::from_str(&text(&sql(&folder, &["run.mcap", "--json", COUNT])))
                .expect("JSON");
        assert_eq!(json, serde_json::json!({"n": count, "moves": true}));
        let csv = text(&sql(&folder, &["run.mcap", "--csv", COUNT]));
        assert_eq!(csv, format!("n,moves\n{count},true\n"));
        let table = text(&sql(&folder, &["run.mcap", COUNT]));
        assert!(
            table.contains(&count.to_string()) && table.ends_with("(1 row)\n"),
            "{table}"
        );
        text(&sql(
            &folder,
            &["run.mcap", "--parquet", "out.parquet", COUNT],
        ));
        let file = File::open(folder.path("out.parquet")).expect("a file");
        let batch = ParquetRecordBatchReader::try_new(file, 10)
            .expect("Parquet")
            .next();
        let batch = batch.expect("rows").expect("rows");
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), count);
        let there = refused(&folder, &["run.mcap", "--parquet", "out.parquet", COUNT], 1);
        assert!(there.contains("--force"), "{there}");
        text(&sql(
            &folder,
            &["run.mcap", "--force", "--parquet", "out.parquet", COUNT],
        ));
        text(&sql(&folder, &["run.mcap", "--arrow", "out.arrow", COUNT]));
        assert!(folder.read("out.arrow").starts_with(b"ARROW1"));
        let stream = sql(&folder, &["run.mcap", "--arrow", "-", COUNT]).stdout;
        assert!(stream.starts_with(&[0xff; 4]), "no Arrow stream");
    }

    #[test]
    fn arrays_are_short_and_pictures_are_not_printed_in_a_table() {
        let folder = Folder::with_demo();
        let table = text(&sql(
            &folder,
            &["run.mcap", "SELECT ranges FROM scan LIMIT 1"],
        ));
        assert!(table.contains("in all]"), "{table}");
        let picture = text(&sql(
            &folder,
            &["run.mcap", "SELECT data FROM camera_image LIMIT 1"],
        ));
        assert!(picture.contains(" bytes>"), "{picture}");
        let json = text(&sql(
            &folder,
            &["run.mcap", "--json", "SELECT ranges FROM scan LIMIT 1"],
        ));
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert!(json["ranges"].as_array().expect("all of them").len() > 100);
    }

    #[test]
    fn queries_come_from_a_file_and_from_the_input() {
        let folder = Folder::with_demo();
        let queries = "-- two; of them\nSELECT 1 AS a;\nSELECT ';' AS b";
        std::fs::write(folder.path("q.sql"), queries).expect("written");
        let found = text(&sql(&folder, &["run.mcap", "--csv", "-f", "q.sql"]));
        assert_eq!(found, "a\n1\nb\n;\n");
        let mut child = asof()
            .args(["sql", "run.mcap", "--csv"])
            .current_dir(folder.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("asof runs");
        let mut input = child.stdin.take().expect("piped");
        input.write_all(b"\\d imu;SELECT 2 AS c").expect("written");
        drop(input);
        let found = text(&child.wait_with_output().expect("ends"));
        assert!(
            found.contains("angular_velocity") && found.ends_with("c\n2\n"),
            "{found}"
        );
        let missing = refused(&folder, &["run.mcap", "-f", "none.sql"], 1);
        assert!(missing.contains("none.sql"), "{missing}");
        let none = refused(&folder, &["run.mcap"], 2);
        assert!(none.contains("there is no query"), "{none}");
    }

    #[test]
    fn a_mistake_is_told_with_its_place_and_the_nearest_name() {
        let folder = Folder::with_demo();
        let told = |query: &str| refused(&folder, &["run.mcap", query], 2);
        for (query, place, meant) in [
            ("SELECT *\nFROM odmo", "line 2, column 6", "odom"),
            ("SELECT * FROM \"/odmo\"", "column 15", "\"/odom\""),
            ("SELECT log_tme FROM odom", "line 1, column 8", "log_time"),
            ("SELECT o.stmp FROM odom o", "column 8", "stamp"),
            (
                "SELECT pose.pose.postion.x FROM odom",
                "line 1, column",
                "position",
            ),
            (
                "SELECT medain(sequence) FROM odom",
                "line 1, column",
                "median",
            ),
            ("SELECT 1 FRM odom", "line 1, column", ""),
            ("SELEC 1", "line 1, column 1", ""),
        ] {
            let line = told(query);
            assert!(
                line.contains(place) && line.contains(meant),
                "{query}: {line}"
            );
        }
        assert!(told("DROP TABLE odom").contains("not allowed"));
        let alone = refused(&folder, &["SELECT 1"], 2);
        assert!(alone.contains("name a recording"), "{alone}");
        let place = refused(&folder, &["none.mcap", "SELECT 1"], 1);
        assert!(place.contains("no such file"), "{place}");
    }

    #[test]
    fn several_recordings_are_one_database() {
        let folder = Folder::with_demo();
        std::fs::copy(folder.path("run.mcap"), folder.path("b.mcap")).expect("copied");
        let query = "SELECT recording, count(*) AS n FROM \"/odom\" GROUP BY 1 ORDER BY 1";
        let found = text(&sql(
            &folder,
            &["run.mcap", "b.mcap", "run.mcap", "--csv", query],
        ));
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines.len(), 4, "{found}");
        assert!(
            lines[1].starts_with("b.mcap,") && lines[2].starts_with("run.mcap,"),
            "{found}"
        );
    }

    #[test]
    fn a_damaged_recording_answers_as_far_as_it_goes() {
        let folder = Folder::with_cut_demo();
        let output = sql(
            &folder,
            &["cut.mcap", "--csv", "SELECT count(*) > 5 AS some FROM odom"],
        );
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "some\ntrue\n");
        assert!(String::from_utf8_lossy(&output.stderr).contains("warning"));
        let query = "SELECT count(*) > 0 AS some FROM problems";
        let output = sql(&folder, &["cut.mcap", "--csv", query]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "some\ntrue\n");
    }

    #[test]
    fn one_damaged_recording_of_a_fleet_is_named_where_its_topics_are_asked_for_and_nowhere_else() {
        let folder = Folder::with_demo();
        folder.stdout("convert run.mcap -o imu.mcap --topics /imu");
        let whole = folder.read("imu.mcap");
        std::fs::create_dir(folder.path("fleet")).expect("a folder");
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path(name), bytes).expect("written");
        };
        write("fleet/good.mcap", &folder.read("run.mcap"));
        write("fleet/bad.mcap", &whole[..whole.len() * 2 / 3]);
        assert_eq!(folder.exit_code("index fleet"), 3);
        let other = sql(&folder, &["fleet", "SELECT count(*) FROM odom"]);
        let told = String::from_utf8_lossy(&other.stderr);
        assert_eq!((other.status.code(), &*told), (Some(0), ""));
        let asked = sql(&folder, &["fleet", "SELECT count(*) FROM imu"]);
        let told = String::from_utf8_lossy(&asked.stderr);
        assert_eq!(asked.status.code(), Some(3), "{told}");
        assert!(told.contains("bad.mcap"), "{told}");
        assert!(!told.contains("good.mcap"), "{told}");
    }

    #[test]
    fn times_are_written_as_everywhere() {
        let folder = Folder::with_demo();
        let query = "SELECT count(*) AS n FROM imu WHERE log_time BETWEEN '+0.25s' AND '+0.5s'";
        let found = text(&sql(&folder, &["run.mcap", "--csv", query]));
        let wanted = folder.stdout("cat run.mcap --topics /imu --start +0.25s --end +0.5s --json");
        assert_eq!(found, format!("n\n{}\n", wanted.lines().count()));
    }

    #[test]
    fn what_needs_too_much_memory_says_which_flag_gives_more() {
        let folder = Folder::with_demo();
        let query = "SELECT count(*) FROM (SELECT DISTINCT a.log_time, b.log_time AS o FROM scan a, imu b, imu c)";
        let told = refused(&folder, &["run.mcap", "--memory", "100k", query], 1);
        assert!(told.contains("--memory"), "{told}");
    }

    #[cfg(unix)]
    #[test]
    fn a_query_of_a_billion_rows_ends_at_ctrl_c_and_leaves_no_file() {
        let folder = Folder::with_demo();
        let query = "SELECT count(*) FROM imu a, imu b, imu c, imu d, imu e WHERE a.sequence + b.sequence + c.sequence + d.sequence + e.sequence = -1";
        let child = asof()
            .args(["sql", "run.mcap", "--parquet", "out.parquet", query])
            .current_dir(folder.path(""))
            .stderr(Stdio::piped())
            .spawn()
            .expect("asof runs");
        // The file in the making is there once the query runs.
        asof_core::testing::eventually("the file in the making", || folder.names().len() == 2);
        let process = child.id().to_string();
        let killed = std::process::Command::new("kill")
            .args(["-INT", &process])
            .status();
        assert!(killed.expect("kill runs").success());
        let output = child.wait_with_output().expect("ends");
        assert_eq!(output.status.code(), Some(130));
        assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
        assert_eq!(folder.names(), ["run.mcap"]);
    }

    /// The lines that a server greets with.
    fn greeted(folder: &Folder, line: &str) -> (std::process::Child, Vec<String>) {
        let mut child = asof()
            .args(line.split(' '))
            .current_dir(folder.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("asof runs");
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().expect("an output")).lines() {
            let line = line.expect("text");
            let is_last = line.contains("Ctrl-C");
            lines.push(line);
            if is_last {
                break;
            }
        }
        (child, lines)
    }

    #[test]
    fn serve_says_where_clients_of_flight_connect_and_what_they_need() {
        let folder = Folder::with_demo();
        let line = "serve run.mcap --no-open --listen 0 --flight=0";
        let (mut child, lines) = greeted(&folder, line);
        let address = lines
            .iter()
            .find_map(|line| line.strip_prefix("Flight SQL: grpc://"));
        let connected = address.map(std::net::TcpStream::connect);
        child.kill().expect("ended");
        child.wait().expect("ended");
        assert!(connected.is_some_and(|one| one.is_ok()), "{lines:?}");

        // Where others can connect, the page and Flight want the same token.
        let line = "serve run.mcap --no-open --listen 0 --flight=0.0.0.0:0";
        let (mut child, lines) = greeted(&folder, line);
        child.kill().expect("ended");
        child.wait().expect("ended");
        let token = |start: &str, before: &str| {
            let line = lines.iter().find(|line| line.starts_with(start));
            let (_, token) = line?.split_once(before)?;
            Some(token.trim_end_matches(')').to_owned())
        };
        let own = token("Flight SQL: grpc://0.0.0.0:", "(token ");
        assert!(own.as_ref().is_some_and(|own| own.len() == 32), "{lines:?}");
        assert_eq!(token("Open ", "?token="), own);
    }

    #[test]
    fn tables_of_ones_own_are_named_with_the_command() {
        let folder = Folder::with_demo();
        let csv = "topic,owner\n/odom,ada\n/scan,\n";
        std::fs::write(folder.path("owners.csv"), csv).expect("written");
        let own = ["run.mcap", "--table", "owners=owners.csv", "--csv"];
        let asked = |query: &str| text(&sql(&folder, &[&own[..], &[query]].concat()));
        let joined =
            "SELECT t.topic, o.owner FROM topics t JOIN owners o ON t.topic = o.topic ORDER BY 1";
        assert_eq!(asked(joined), "topic,owner\n/odom,ada\n/scan,\n");
        let listed = asked("SHOW TABLES");
        assert!(listed.contains("\nowners,"), "{listed}");
        folder.stdout("index .");
        let of_fleet = [".", "--table", "owners=owners.csv", "--csv", joined];
        assert_eq!(text(&sql(&folder, &of_fleet)), asked(joined));
        for (given, code, word) in [
            ("odom=owners.csv", 2, "'odom'"),
            ("owners.csv", 2, "labels=labels.parquet"),
            ("=owners.csv", 2, "labels=labels.parquet"),
            ("owners=nothing.csv", 1, "nothing.csv"),
            ("owners=run.mcap", 2, "run.mcap is not a .parquet"),
        ] {
            let told = refused(&folder, &["run.mcap", "--table", given, joined], code);
            assert!(told.contains(word), "{told}");
        }
    }

    #[test]
    fn a_fleet_is_asked_by_clients_of_flight_too() {
        let folder = Folder::with_demo();
        folder.stdout("index .");
        let (mut child, lines) = greeted(&folder, "serve . --no-open --listen 0 --flight=0");
        let address = lines
            .iter()
            .find_map(|line| line.strip_prefix("Flight SQL: grpc://"));
        let connected = address.map(std::net::TcpStream::connect);
        child.kill().expect("ended");
        child.wait().expect("ended");
        assert!(connected.is_some_and(|one| one.is_ok()), "{lines:?}");
    }

    #[test]
    fn flight_is_refused_where_it_can_answer_nothing() {
        let folder = Folder::with_demo();
        for (line, word) in [
            ("serve --no-open --flight", "recordings"),
            ("serve zenoh://127.0.0.1:1 --no-open --flight", "recordings"),
            ("serve run.mcap --no-open --flight=nowhere", "32010"),
        ] {
            let output = folder.output(line);
            assert_eq!(output.status.code(), Some(2), "{line}");
            let told = String::from_utf8(output.stderr).expect("text");
            assert!(told.contains(word), "{told}");
        }
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("a port").port();
        let line = format!("serve run.mcap --no-open --listen 0 --flight={port}");
        let output = folder.output(&line);
        assert_eq!(output.status.code(), Some(1));
        let told = String::from_utf8(output.stderr).expect("text");
        assert!(told.contains("--flight=ADDRESS"), "{told}");
    }

    /// Two recordings that begin a day apart, and one that cannot be read.
    fn two_days() -> Folder {
        let folder = Folder::with_demo();
        std::fs::create_dir(folder.path("fleet")).expect("a folder");
        std::fs::rename(folder.path("run.mcap"), folder.path("fleet/a.mcap")).expect("moved");
        let good = asof::open(folder.path("fleet/a.mcap")).expect("opens");
        let path = folder.path("fleet/b.mcap");
        let mut writer =
            asof::formats::McapWriter::create(path, asof::formats::McapWriterOptions::default())
                .expect("a file");
        for batch in good.read(&asof::Query::all()).expect("reads") {
            for message in batch.expect("a batch").iter() {
                let mut message = message.to_message();
                let later = message.log_time.nanos() + 86_400_000_000_000;
                message.log_time = asof::Stamp::from_nanos(later);
                writer.write(&message).expect("written");
            }
        }
        writer.finish().expect("a file");
        folder
    }

    #[test]
    fn a_folder_is_many_recordings_with_a_catalogue_and_without() {
        let folder = two_days();
        // Relative to the start of each recording.
        let late = "SELECT recording, count(*) AS n FROM odom WHERE log_time >= '+0.5s' GROUP BY 1 ORDER BY 1";
        let pairs = "SELECT count(*) FROM odom a ASOF JOIN imu b MATCH_CONDITION (a.log_time >= b.log_time)";
        let names = "SELECT recording, start, messages FROM recordings ORDER BY 1";
        let answers = || {
            let answer = |query| text(&sql(&folder, &["fleet", "--csv", query]));
            [late, pairs, names].map(answer)
        };
        let without = answers();
        let rows: Vec<&str> = without[0].lines().collect();
        assert_eq!(rows.len(), 3, "{}", without[0]);
        assert!(rows[1].starts_with("fleet/a.mcap,"), "{}", rows[1]);
        assert_eq!(rows[1].replace("/a.", "/b."), rows[2], "{}", without[0]);
        folder.stdout("index fleet");
        assert_eq!(answers(), without);

        // One that cannot be read is left out and reported, and the others answer.
        std::fs::write(folder.path("fleet/c.mcap"), "nothing").expect("a file");
        for index in [false, true] {
            if index {
                folder.output("index fleet");
            } else {
                std::fs::rename(folder.path("fleet/.asof"), folder.path("kept")).expect("moved");
            }
            let short = sql(&folder, &["fleet", "--csv", late]);
            let told = String::from_utf8_lossy(&short.stderr).into_owned();
            assert_eq!(short.status.code(), Some(3), "{told}");
            assert!(told.contains("left out"), "{told}");
            assert_eq!(String::from_utf8(short.stdout).expect("text"), without[0]);
        }
    }

    #[test]
    fn the_folder_of_a_bag_is_one_recording() {
        let folder = two_days();
        let described = "rosbag2_bagfile_information:\n  relative_file_paths: [a.mcap, b.mcap]\n";
        std::fs::write(folder.path("fleet/metadata.yaml"), described).expect("a file");
        let answer = text(&sql(
            &folder,
            &["fleet", "--csv", "SELECT DISTINCT recording FROM odom"],
        ));
        assert_eq!(answer, "recording\nfleet\n");
    }
}
