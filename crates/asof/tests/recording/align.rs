//! Topics side by side, against the plainest way to say the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampNanosecondType};
use arrow_array::{Array, RecordBatch};
use asof::align::{AlignError, AlignOptions, Alignment, On, Pick, Rule};
use asof::formats::{McapFile, McapWriter, McapWriterOptions};
use asof::{Channel, Message, Schema, Source, Stamp, TimeRange};
use asof_core::testing::Random;

/// A message with a stamp and a number: topic, log time, stamp, x.
type Said = (&'static str, i64, i64, f64);

fn recording(said: &[Said]) -> McapFile {
    let mut writer = McapWriter::new(
        std::io::Cursor::new(Vec::new()),
        McapWriterOptions::default(),
    )
    .expect("a writer");
    let schema = Arc::new(Schema {
        name: "test/msg/X".into(),
        encoding: "ros2msg".into(),
        data: "builtin_interfaces/Time stamp\nfloat64 x\n===\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n".into(),
    });
    let mut channels: BTreeMap<&str, Arc<Channel>> = BTreeMap::new();
    for (topic, log_time, stamp, x) in said {
        let channel = channels.entry(topic).or_insert_with(|| {
            Arc::new(Channel {
                topic: (*topic).into(),
                message_encoding: "cdr".into(),
                schema: Some(Arc::clone(&schema)),
                ..Channel::default()
            })
        });
        let mut payload = vec![0, 1, 0, 0];
        payload.extend((stamp.div_euclid(1_000_000_000) as i32).to_le_bytes());
        payload.extend((stamp.rem_euclid(1_000_000_000) as u32).to_le_bytes());
        payload.extend(x.to_le_bytes());
        let log_time = Stamp::from_nanos(*log_time);
        let message = Message {
            channel: Arc::clone(channel),
            log_time,
            publish_time: log_time,
            sequence: 0,
            payload: payload.into(),
        };
        writer.write(&message).expect("writes");
    }
    let bytes = writer.finish().expect("finishes").into_inner();
    McapFile::from_bytes("test", bytes).expect("opens")
}

/// The rows: time, offset of /b, x of /b.
fn rows(aligned: &Alignment, source: &dyn Source) -> Vec<(i64, Option<i64>, Option<f64>)> {
    let mut all = Vec::new();
    for batch in aligned.read(source).expect("reads") {
        let batch: RecordBatch = batch.expect("a batch");
        assert_eq!(batch.schema_ref(), aligned.schema());
        let column = |name: &str| batch.column_by_name(name).expect(name);
        let times = column("time").as_primitive::<TimestampNanosecondType>();
        let offsets = column("/b offset").as_primitive::<Int64Type>();
        let x = column("/b.x").as_primitive::<Float64Type>();
        for row in 0..batch.num_rows() {
            let offset = offsets.is_valid(row).then(|| offsets.value(row));
            let x = x.is_valid(row).then(|| x.value(row));
            all.push((times.value(row), offset, x));
        }
    }
    all
}

const SAID: &[Said] = &[
    ("/b", 5, 10, 1.0),
    ("/a", 6, 14, 0.0),
    ("/b", 7, 20, 2.0),
    ("/a", 8, 15, 0.0),
    ("/a", 9, 16, 0.0),
    ("/a", 10, 40, 0.0),
    // Recorded late: its stamp is before the last one.
    ("/b", 11, 15, 1.5),
    ("/a", 12, 0, 0.0),
];

fn joined(options: AlignOptions) -> Vec<(i64, Option<i64>, Option<f64>)> {
    let source = recording(SAID);
    let aligned = Alignment::join(&source, "/a", &["/b"], options).expect("a table");
    rows(&aligned, &source)
}

#[test]
fn the_nearest_by_stamp_is_found_even_if_it_was_recorded_late() {
    let found = joined(AlignOptions::default());
    let wanted = [
        (14, Some(1), Some(1.5)),
        (15, Some(0), Some(1.5)),
        (16, Some(-1), Some(1.5)),
        (40, Some(-20), Some(2.0)),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn the_last_is_what_was_measured_by_then() {
    let options = AlignOptions {
        rule: Rule::last().within(Duration::from_nanos(5)),
        ..AlignOptions::default()
    };
    let wanted = [
        (14, Some(-4), Some(1.0)),
        (15, Some(0), Some(1.5)),
        (16, Some(-1), Some(1.5)),
        (40, None, None),
    ];
    assert_eq!(joined(options), wanted);
}

#[test]
fn what_lies_between_is_interpolated_and_beyond_the_ends_is_nothing_or_the_nearest() {
    for (rule, end) in [
        (Rule::interpolate(), None),
        (Rule::interpolate().or_nearest(), Some(2.0)),
    ] {
        let found = joined(AlignOptions {
            rule,
            ..AlignOptions::default()
        });
        let x: Vec<Option<f64>> = found.iter().map(|row| row.2).collect();
        assert_eq!(x[3], end);
        for (found, wanted) in x.iter().zip([1.4, 1.5, 1.6]) {
            assert!((found.expect("between") - wanted).abs() < 1e-12, "{x:?}");
        }
    }
}

#[test]
fn log_times_are_joined_on_when_they_are_asked_for_or_a_topic_has_no_stamp() {
    let options = AlignOptions {
        on: Some(On::LogTime),
        rule: Rule::last(),
        ..AlignOptions::default()
    };
    let wanted = [(6, -1), (8, -1), (9, -2), (10, -3), (12, -1)];
    let found: Vec<(i64, i64)> = joined(options)
        .iter()
        .map(|row| (row.0, row.1.expect("one was recorded before")))
        .collect();
    assert_eq!(found, wanted);
}

#[test]
fn a_topic_whose_stamps_are_never_set_is_joined_by_log_times() {
    // The clock of /b is never set; that of /a is, but for its first message.
    let never = recording(&[
        ("/a", 6, 0, 0.0),
        ("/a", 8, 15, 0.0),
        ("/b", 5, 0, 1.0),
        ("/b", 7, 0, 2.0),
    ]);
    let join = |source: &McapFile, on| {
        let options = AlignOptions {
            on,
            ..AlignOptions::default()
        };
        Alignment::join(source, "/a", &["/b"], options)
    };
    let by_log_times = join(&never, None).expect("a join");
    assert_eq!(by_log_times.on(), On::LogTime);
    assert_eq!(rows(&by_log_times, &never)[0], (6, Some(-1), Some(1.0)));
    let refused = join(&never, Some(On::Stamp));
    assert!(matches!(refused, Err(AlignError::NoStamp { topic }) if topic == "/b"));
    let set = recording(&[
        ("/a", 6, 0, 0.0),
        ("/a", 8, 15, 0.0),
        ("/b", 5, 0, 1.0),
        ("/b", 7, 14, 2.0),
    ]);
    for on in [None, Some(On::Stamp)] {
        let by_stamps = join(&set, on).expect("a join");
        assert_eq!(by_stamps.on(), On::Stamp);
        assert_eq!(rows(&by_stamps, &set), [(15, Some(-1), Some(2.0))]);
    }
}

#[test]
fn messages_without_a_stamp_are_left_out_and_counted() {
    let source = recording(SAID);
    let aligned =
        Alignment::join(&source, "/a", &["/b"], AlignOptions::default()).expect("a table");
    let mut read = aligned.read(&source).expect("reads");
    assert_eq!(
        read.by_ref()
            .map(|batch| batch.expect("a batch").num_rows())
            .sum::<usize>(),
        4
    );
    assert_eq!(read.left_out(), 1);
}

#[test]
fn a_stretch_of_time_has_the_rows_that_all_of_it_has() {
    let said: Vec<Said> = (0..200)
        .map(|at| {
            let topic = if at % 3 == 0 { "/b" } else { "/a" };
            let stamp = at * 1_000_000_000 + (at * at * 37) % 700_000_000;
            (
                topic,
                at * 1_000_000_000 + 800_000_000,
                stamp + 1,
                at as f64,
            )
        })
        .collect();
    let source = recording(&said);
    for pick in Pick::ALL {
        for tolerance in [None, Some(Duration::from_millis(900))] {
            let rule = Rule::new(pick);
            let rule = tolerance.map_or(rule, |most| rule.within(most));
            let options = AlignOptions {
                rule,
                ..AlignOptions::default()
            };
            let all = Alignment::join(&source, "/a", &["/b"], options.clone()).expect("a table");
            let all = rows(&all, &source);
            let range = TimeRange::new(
                Stamp::from_nanos(50_000_000_000),
                Stamp::from_nanos(99_000_000_000),
            );
            let some = Alignment::join(
                &source,
                "/a",
                &["/b"],
                AlignOptions {
                    range,
                    rows: 7,
                    ..options
                },
            )
            .expect("a table");
            let some = rows(&some, &source);
            assert!(some.len() > 20);
            let first = all
                .iter()
                .position(|row| row.0 == some[0].0)
                .expect("it is one of all");
            assert_eq!(
                some,
                all[first..first + some.len()],
                "{pick:?} {tolerance:?}"
            );
        }
    }
}

#[test]
fn a_grid_does_not_drift() {
    let source = recording(&[
        ("/b", 1, 1, 1.0),
        ("/b", 10_000_000_001, 10_000_000_001, 2.0),
    ]);
    let options = AlignOptions {
        rule: Rule::interpolate(),
        rows: 64,
        ..AlignOptions::default()
    };
    let grid = Alignment::resample(&source, &["/b"], 30.0, options).expect("a grid");
    let found = rows(&grid, &source);
    assert_eq!(found.len(), 301);
    assert_eq!(found[300].0, 10_000_000_001);
    let (_, _, x) = found[150];
    assert!((x.expect("between") - 1.5).abs() < 1e-9);
}

#[test]
fn what_cannot_be_is_said() {
    let source = recording(SAID);
    for hz in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e10] {
        let error = Alignment::resample(&source, &["/b"], hz, AlignOptions::default());
        assert!(matches!(error, Err(AlignError::Rate { .. })), "{hz}");
    }
    let none: &[&str] = &[];
    assert!(matches!(
        Alignment::resample(&source, none, 1.0, AlignOptions::default()),
        Err(AlignError::NoTopics)
    ));
    let error =
        Alignment::join(&source, "/a", &["/c"], AlignOptions::default()).expect_err("no /c");
    assert_eq!(error.to_string(), "there is no topic /c; there are /a, /b");
}

/// 4,000 messages on each topic; those on /b are recorded after later ones now and then, some of them after very many.
fn long() -> Vec<Said> {
    let mut random = Random::new(11);
    let mut said: Vec<Said> = Vec::new();
    for at in 1..=4000_i64 {
        let late = match at % 500 {
            499 => 25_000,
            _ => 30 * random.below(20) as i64,
        };
        said.push(("/a", 10 * at, 10 * at + 3, at as f64));
        said.push(("/b", 10 * at + 5, (10 * at + 5 - late).max(1), at as f64));
    }
    said
}

#[test]
fn what_is_not_held_is_read_again_and_gives_the_same_rows() {
    let source = recording(&long());
    for rule in [
        Rule::last(),
        Rule::nearest().within(Duration::from_nanos(200)),
        Rule::next(),
        Rule::interpolate(),
    ] {
        for on in On::ALL {
            let of = |most_bytes, rows| {
                let options = AlignOptions {
                    rule,
                    on: Some(on),
                    most_bytes,
                    rows,
                    ..AlignOptions::default()
                };
                Alignment::join(&source, "/a", &["/b"], options).expect("a table")
            };
            let wanted = rows(&of(1 << 30, 64 << 10), &source);
            assert_eq!(wanted.len(), 4000);
            // A row at a time, some batches, and next to nothing at all.
            for (most_bytes, most_rows) in [(200_000, 100), (20_000, 7), (0, 64 << 10)] {
                let aligned = of(most_bytes, most_rows);
                assert_eq!(
                    rows(&aligned, &source),
                    wanted,
                    "{rule:?} {on:?} {most_bytes}"
                );
            }
        }
    }
}

#[test]
fn columns_are_chosen_by_topic() {
    let source = recording(SAID);
    let columns = BTreeMap::from([
        ("/a".to_owned(), vec![]),
        ("/b".to_owned(), vec!["x".to_owned(), "log_time".to_owned()]),
    ]);
    let options = AlignOptions {
        columns,
        ..AlignOptions::default()
    };
    let aligned = Alignment::join(&source, "/a", &["/b"], options).expect("a table");
    let names: Vec<&str> = aligned
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(names, ["time", "/b offset", "/b.x", "/b.log_time"]);
    assert_eq!(rows(&aligned, &source).len(), 4);
}

/// Messages without stamps, from the very first nanosecond on.
fn unstamped() -> McapFile {
    let writer = std::io::Cursor::new(Vec::new());
    let mut writer = McapWriter::new(writer, McapWriterOptions::default()).expect("a writer");
    let channel = |topic: &str| {
        Arc::new(Channel {
            topic: topic.into(),
            message_encoding: "json".into(),
            ..Channel::default()
        })
    };
    let topics = ["/a", "/b"].map(channel);
    for at in 0..10_i64 {
        for channel in &topics {
            let log_time = Stamp::from_nanos(at * 100);
            let message = Message {
                channel: Arc::clone(channel),
                log_time,
                publish_time: log_time,
                sequence: 0,
                payload: format!(r#"{{"x":{at}.5}}"#).into(),
            };
            writer.write(&message).expect("writes");
        }
    }
    let bytes = writer.finish().expect("finishes").into_inner();
    McapFile::from_bytes("test", bytes).expect("opens")
}

#[test]
fn a_log_time_of_zero_is_a_time() {
    let source = unstamped();
    let wanted: Vec<_> = (0..10)
        .map(|at| (at * 100, Some(0), Some(at as f64 + 0.5)))
        .collect();
    let options = AlignOptions::default;
    let joined = Alignment::join(&source, "/a", &["/b"], options()).expect("a table");
    assert_eq!(joined.on(), On::LogTime);
    assert_eq!(rows(&joined, &source), wanted);
    let grid = Alignment::resample(&source, &["/b"], 1e7, options()).expect("a table");
    assert_eq!(rows(&grid, &source), wanted);
    let times: Arc<[i64]> = (0..10).map(|at| at * 100).collect();
    let listed = Alignment::at(&source, times, &["/b"], options()).expect("a table");
    assert_eq!(rows(&listed, &source), wanted);
}
