//! Tables and lines of messages that are hard to put into some: without fields, with names that are taken, of two
//! types on one topic, or not decodable at all.

mod common;

use std::sync::Arc;

use asof::formats::{McapWriter, McapWriterOptions};
use asof::{Channel, Schema};
use common::{Folder, ros2};

fn json(topic: &str) -> Arc<Channel> {
    let schema = Schema {
        name: "any".to_owned(),
        encoding: "jsonschema".to_owned(),
        data: "{}".into(),
    };
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "json".to_owned(),
        schema: Some(Arc::new(schema)),
        ..Channel::default()
    })
}

fn cdr(words: &[u32]) -> Vec<u8> {
    let mut payload = vec![0, 1, 0, 0];
    payload.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    payload
}

fn text(folder: &Folder, name: &str) -> String {
    String::from_utf8(folder.read(name)).expect("text")
}

#[test]
fn a_struct_without_fields_does_not_stop_an_export() {
    let constants =
        "uint32 a\nModes modes\nModes[] list\n===\nMSG: p/Modes\nuint8 OFF=0\nuint8 ON=1\n";
    let odd = ros2("/odd", "p/msg/Odd", constants);
    let plain = ros2("/plain", "p/msg/Plain", "uint32 n\n");
    // An empty struct takes a byte in CDR.
    let mut payload = cdr(&[7]);
    payload.extend([0, 0, 0, 0, 2, 0, 0, 0, 0, 0]);
    let folder = Folder::with_messages(0, &[(&odd, payload), (&plain, cdr(&[1]))]);
    for format in ["parquet", "arrow", "csv", "ndjson"] {
        let output = folder.output(&format!("export run.mcap -o {format} --format {format}"));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{format}: {told}");
        let names = [format!("odd.{format}"), format!("plain.{format}")];
        assert_eq!(folder.names_in(format), names);
    }
}

#[test]
fn what_stays_undecoded_is_counted_and_has_exit_code_3() {
    let broken = ros2("/broken", "p/msg/B", "uint32[] n\n");
    let unreadable = ros2("/unreadable", "p/msg/U", "uint32 = n ?\n");
    let unknown = Arc::new(Channel {
        topic: "/unknown".to_owned(),
        message_encoding: "abacus".to_owned(),
        ..Channel::default()
    });
    let undefined = ros2("/undefined", "p/msg/V", "");
    let undefined = Arc::new(Channel {
        schema: Some(Arc::new(Schema {
            name: "p/msg/V".to_owned(),
            ..Schema::default()
        })),
        ..(*undefined).clone()
    });
    for bad in [&broken, &unreadable, &unknown, &undefined] {
        let good = ros2("/good", "p/msg/G", "uint32[] n\n");
        let folder = Folder::with_messages(
            0,
            &[(&good, cdr(&[1, 5])), (bad, cdr(&[9])), (bad, cdr(&[9]))],
        );
        for verb in [
            "cat run.mcap",
            "cat run.mcap --json",
            "at run.mcap --time +9s",
            "export run.mcap -o parquet",
            "export run.mcap -o csv --format csv",
            "export run.mcap -o ndjson --format ndjson",
            "export run.mcap -o without --without raw",
            "JOIN --anchor /good --with BAD --json",
            "JOIN --anchor BAD --with /good",
            "JOIN --anchor BAD --with /good --csv",
            "JOIN --anchor BAD --with /good -o joined.parquet",
            "doctor run.mcap",
            "doctor run.mcap --decode",
        ] {
            let verb = &verb.replace("JOIN", "join run.mcap --on log");
            let verb = &verb.replace("BAD", &bad.topic);
            let output = folder.output(verb);
            let told = [output.stdout, output.stderr].concat();
            let told = String::from_utf8_lossy(&told).into_owned();
            let topic = &bad.topic;
            assert_eq!(output.status.code(), Some(3), "{verb} of {topic}: {told}");
            // As of one time there is one message, and one is nearest to the only anchor.
            let is_single = verb.starts_with("at ") || verb.contains("--anchor /good");
            let count = if is_single { "1 message" } else { "2 messages" };
            assert!(told.contains(count), "{verb} of {topic}: {told}");
        }
        // Without decoding there is nothing wrong with the file, and that is said.
        let said = folder.stdout("doctor run.mcap --no-decode");
        assert!(said.contains("payloads were not decoded"), "{said}");
        assert_eq!(folder.exit_code("doctor run.mcap --no-decode"), 0);
        assert_eq!(folder.exit_code("cat run.mcap --raw"), 0);
    }
    // What is broken is a problem of the file; what asof has no decoder for is told beside them.
    for (bad, is_problem) in [
        (&broken, true),
        (&unreadable, true),
        (&unknown, false),
        (&undefined, false),
    ] {
        let folder = Folder::with_messages(0, &[(bad, cdr(&[9])), (bad, cdr(&[9]))]);
        let said = folder.stdout("doctor run.mcap");
        assert!(said.contains("2 messages cannot be decoded"), "{said}");
        assert!(said.contains("2 not decoded"), "{said}");
        let said = folder.stdout("doctor run.mcap --json");
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(said["healthy"], false, "{said}");
        assert_eq!(said["damaged"], false, "{said}");
        assert_eq!(said["undecoded"], 2, "{said}");
        let lists = ["problems", "unknown"].map(|name| said[name].as_array().map(Vec::len));
        let expected = if is_problem { [1, 0] } else { [0, 1] };
        assert_eq!(lists, expected.map(Some), "{said}");
    }
}

#[test]
fn a_schema_that_no_message_uses_is_checked_too() {
    let unreadable = ros2("/unreadable", "p/msg/U", "uint32 = n ?\n");
    let good = ros2("/good", "p/msg/G", "uint32[] n\n");
    for (unused, code) in [(&unreadable, 3), (&good, 0), (&json("/json"), 0)] {
        let folder = Folder::empty();
        let options = McapWriterOptions::default();
        let mut writer = McapWriter::create(folder.path("run.mcap"), options).expect("create");
        writer.add_channel(unused).expect("adds");
        writer.finish().expect("finishes");
        let said = folder.stdout("doctor run.mcap");
        assert_eq!(folder.exit_code("doctor run.mcap"), code, "{said}");
        assert_eq!(said.contains("its schema cannot be read"), code == 3);
    }
}

#[test]
fn comma_separated_values_of_two_types_on_one_topic_are_two_tables() {
    let (one, two) = (
        ros2("/t", "p/msg/A", "uint32 a\n"),
        ros2("/t", "p/msg/B", "uint32 b\nuint32 c\n"),
    );
    let folder = Folder::with_messages(
        0,
        &[(&one, cdr(&[1])), (&two, cdr(&[2, 3])), (&one, cdr(&[4]))],
    );
    assert_eq!(folder.exit_code("export run.mcap -o csv --format csv"), 0);
    assert_eq!(
        text(&folder, "csv/t.csv"),
        "log_time,publish_time,a\n0,0,1\n2000000000,2000000000,4\n"
    );
    assert_eq!(
        text(&folder, "csv/t-2.csv"),
        "log_time,publish_time,b,c\n1000000000,1000000000,2,3\n"
    );
    // Under one line of names there is one type; the others are counted.
    let output = folder.output("cat run.mcap --csv --topics /t");
    assert_eq!(output.status.code(), Some(3));
    let (printed, told) = (
        output.stdout,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(printed, folder.read("csv/t.csv"));
    assert!(told.contains("1 message"), "{told}");
}

#[test]
fn comma_separated_values_of_several_topics_are_refused_before_a_line_is_printed() {
    let folder = Folder::with_demo();
    let output = folder.output("cat run.mcap --csv");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(output.stdout, b"");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("--topics"), "{told}");
}

#[test]
fn a_field_with_the_name_of_a_time_has_a_name_of_its_own() {
    let own = ros2("/t", "p/msg/T", "uint32 log_time\nuint32 x\n");
    let folder = Folder::with_messages(0, &[(&own, cdr(&[7, 8])), (&own, cdr(&[9, 10]))]);
    let header = "log_time,publish_time,log_time_,x";
    let csv = folder.stdout("cat run.mcap --csv");
    assert_eq!(csv.lines().next(), Some(header));
    for format in ["csv", "ndjson", "parquet"] {
        let command = format!("export run.mcap -o {format} --format {format}");
        assert_eq!(folder.exit_code(&command), 0);
    }
    assert_eq!(text(&folder, "csv/t.csv").lines().next(), Some(header));
    assert_eq!(
        text(&folder, "ndjson/t.ndjson").lines().next(),
        Some(r#"{"log_time":0,"publish_time":0,"log_time_":7,"x":8}"#)
    );
}

#[test]
fn json_with_an_empty_schema_keeps_every_number() {
    let open = json("/j");
    let folder = Folder::with_messages(
        0,
        &[
            (&open, br#"{"x":0}"#.to_vec()),
            (&open, br#"{"x":0.5,"y":1}"#.to_vec()),
        ],
    );
    let csv = "log_time,publish_time,x,y,_other\n0,0,0.0,,\n1000000000,1000000000,0.5,1,\n";
    assert_eq!(folder.stdout("cat run.mcap --csv"), csv);
    assert_eq!(folder.exit_code("export run.mcap -o csv --format csv"), 0);
    assert_eq!(text(&folder, "csv/j.csv"), csv);
}
