//! All users of the as-of engine find the same rows in the same random streams. A slow oracle is the judge.
//!
//! The streams have late, equal, missing and negative stamps, log times from zero on, two keys, and sometimes an empty side.

#[path = "../../../asof-align/tests/judge/mod.rs"]
mod judge;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::common::Folder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, TimestampNanosecondType};
use arrow_array::{Array, RecordBatch};
use asof::align::{AlignOptions, On, Pick, Rule, between};
use asof::formats::{McapWriter, McapWriterOptions};
use asof::lerobot::{DatasetMap, LerobotError};
use asof::ros::CdrWriter;
use asof::window::sync::{Align, Match, Track};
use asof::window::{Bounds, Window};
use asof::{Channel, Message, Schema, Stamp, TimeRange};
use asof_align::Grid;
use asof_core::testing::Random;
use judge::{Row, oracle};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

const MILLI: i64 = 1_000_000;
const HZ: u32 = 250;
const SCHEMA: &str = "builtin_interfaces/Time stamp\nint32 k\nint32 n\nfloat64 x\n===\n\
    MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n";

/// A message of one of two topics.
#[derive(Debug, Clone, Copy)]
struct Sent {
    is_anchor: bool,
    log_time: i64,
    /// Zero where it is not set.
    stamp: i64,
    key: u8,
    n: i32,
}

impl Sent {
    fn x(self) -> f64 {
        f64::from(self.n * 31 % 17) + 0.1 * f64::from(self.n)
    }

    fn time(self, on: On) -> Option<i64> {
        on.known(Some(match on {
            On::Stamp => self.stamp,
            On::LogTime => self.log_time,
        }))
    }

    fn message(self, channel: &Arc<Channel>) -> Message {
        let mut cdr = CdrWriter::with_capacity(32);
        cdr.int32(self.stamp.div_euclid(1_000_000_000) as i32)
            .uint32(self.stamp.rem_euclid(1_000_000_000) as u32)
            .int32(self.key.into())
            .int32(self.n)
            .float64(self.x());
        let log_time = Stamp::from_nanos(self.log_time);
        Message {
            channel: Arc::clone(channel),
            log_time,
            publish_time: log_time,
            sequence: 0,
            payload: cdr.finish().into(),
        }
    }
}

/// The number of an anchor or its instant, and what goes with it: a number, and the bits of a value that may lie between two.
type Answers = BTreeMap<i64, Option<(i32, u64)>>;

/// What is asked of each user of the engine.
#[derive(Debug, Clone, Copy)]
struct Ask {
    on: On,
    rule: Rule,
    key: u8,
}

/// Two streams, as a recording: `/a` and `/b` with both keys, and a topic for each key, such as `/a0`.
struct Streams {
    sent: Vec<Sent>,
    folder: Folder,
    recording: asof::Recording,
}

impl Streams {
    fn new(seed: u64, messages: usize, others: usize) -> Self {
        let mut random = Random::new(seed);
        let mut log_time = 0;
        let each = |n: usize| {
            // `others` of ten are looked up.
            let is_anchor = random.below(10) >= others;
            let off = (random.below(121) as i64 - 60) * MILLI;
            let is_set = random.below(8) > 0;
            let sent = Sent {
                is_anchor,
                log_time,
                stamp: if is_set { log_time + off } else { 0 },
                key: random.below(2) as u8,
                n: n as i32,
            };
            log_time += random.below(4) as i64 * MILLI;
            sent
        };
        let sent: Vec<Sent> = (0..messages).map(each).collect();
        let folder = Folder::empty();
        let path = folder.path("run.mcap");
        let mut writer = McapWriter::create(&path, McapWriterOptions::default()).expect("create");
        let schema = Arc::new(Schema {
            name: "test/msg/Sent".to_owned(),
            encoding: "ros2msg".to_owned(),
            data: SCHEMA.into(),
        });
        let channel = |topic: &str| {
            Arc::new(Channel {
                topic: topic.to_owned(),
                message_encoding: "cdr".to_owned(),
                schema: Some(Arc::clone(&schema)),
                ..Channel::default()
            })
        };
        let sides =
            ["/a", "/b"].map(|side| ["", "0", "1"].map(|key| channel(&(side.to_owned() + key))));
        for channel in sides.iter().flatten() {
            writer.add_channel(channel).expect("a channel");
        }
        for one in &sent {
            let side = &sides[usize::from(!one.is_anchor)];
            for channel in [&side[0], &side[1 + usize::from(one.key)]] {
                writer.write(&one.message(channel)).expect("written");
            }
        }
        writer.finish().expect("finished");
        let recording = asof::open(&path).expect("opens");
        Streams {
            sent,
            folder,
            recording,
        }
    }

    /// The messages of a side and a key that have a time, in order of arrival.
    fn side(&self, is_anchor: bool, ask: Ask) -> Vec<(i64, Sent)> {
        let own = |sent: &&Sent| sent.is_anchor == is_anchor && sent.key == ask.key;
        let own = self.sent.iter().filter(own);
        own.filter_map(|sent| Some((sent.time(ask.on)?, *sent)))
            .collect()
    }

    /// The instants of a grid over the recording.
    fn instants(&self) -> Vec<i64> {
        let range = self.recording.summary().range;
        Grid::new(range, HZ.into()).expect("a rate").collect()
    }

    /// What the oracle finds for instants with their numbers.
    fn judged(&self, ask: Ask, instants: impl Iterator<Item = (i64, i64)>) -> Answers {
        let others = self.side(false, ask);
        let rows: Vec<Row> = others
            .iter()
            .map(|(time, sent)| (*time, sent.key))
            .collect();
        let found = |time: i64| {
            let (one, other) = oracle(&rows, (time, ask.key), ask.rule)?;
            let (one, other) = (others[one].1, other.map(|(at, part)| (others[at].1, part)));
            let x = other.map_or(one.x(), |(other, part)| {
                between::number(one.x(), other.x(), part)
            });
            Some((one.n, x.to_bits()))
        };
        instants
            .map(|(number, time)| (number, found(time)))
            .collect()
    }

    fn wanted(&self, ask: Ask) -> Answers {
        let anchors = self.side(true, ask).into_iter();
        self.judged(ask, anchors.map(|(time, sent)| (sent.n.into(), time)))
    }

    fn wanted_of_grid(&self, ask: Ask) -> Answers {
        self.judged(ask, self.instants().into_iter().map(|at| (at, at)))
    }
}

fn answer(found: &Match<Sent>) -> Option<(i32, u64)> {
    match found {
        Match::Found(one) => Some((one.value.n, one.value.x().to_bits())),
        Match::Between {
            before,
            after,
            fraction,
        } => {
            let x = between::number(before.value.x(), after.value.x(), *fraction);
            Some((before.value.n, x.to_bits()))
        }
        Match::Missing(_) => None,
    }
}

fn of_slices(streams: &Streams, ask: Ask) -> Answers {
    let others = streams.side(false, ask).into_iter();
    let track: Track<Sent> = others.map(|(time, sent)| (time.into(), sent)).collect();
    let mut cursor = track.cursor();
    let anchors = streams.side(true, ask).into_iter();
    let pick = |(time, sent): (i64, Sent)| {
        let found = cursor.pick(time.into(), ask.rule).map(|sent| *sent);
        (sent.n.into(), answer(&found))
    };
    anchors.map(pick).collect()
}

/// In order of arrival, both sides.
fn of_streams(streams: &Streams, ask: Ask) -> Answers {
    let mut align = Align::new(vec![ask.rule], 10_000).with_lateness(Duration::from_millis(500));
    let mut all = Answers::new();
    let mut emit = |row: asof::window::sync::AlignedRow<Sent>| {
        assert!(!row.is_early, "{ask:?}");
        all.insert(row.anchor.value.n.into(), answer(&row.matches[0]));
    };
    for sent in streams.sent.iter().filter(|sent| sent.key == ask.key) {
        let Some(time) = sent.time(ask.on) else {
            continue;
        };
        if sent.is_anchor {
            align.add_anchor(time.into(), *sent, &mut emit);
        } else {
            align.add(0, time.into(), *sent, &mut emit);
        }
    }
    align.finish(&mut emit);
    all
}

fn of_a_window(streams: &Streams, ask: Ask) -> Answers {
    let window = Window::new(Bounds::count(10_000));
    for (time, sent) in streams.side(false, ask) {
        window.insert(time.into(), sent);
    }
    let mut cursor = window.cursor();
    let pick = |(time, sent): (i64, Sent)| {
        let found = window.pick(time.into(), ask.rule).map(|sent| *sent);
        let by_cursor = cursor.pick(time.into(), ask.rule).map(|sent| *sent);
        assert_eq!(answer(&by_cursor), answer(&found), "{ask:?}");
        (sent.n.into(), answer(&found))
    };
    streams.side(true, ask).into_iter().map(pick).collect()
}

fn options(ask: Ask) -> AlignOptions {
    AlignOptions {
        rule: ask.rule,
        on: Some(ask.on),
        rows: 16,
        ..AlignOptions::default()
    }
}

/// The answers of rows by the columns of the anchor's number or the instant, the other's number, and its value.
fn answers(batches: &[RecordBatch], [of, n, x]: [&str; 3]) -> Answers {
    let mut all = Answers::new();
    for batch in batches {
        let column = |name: &str| batch.column_by_name(name).expect(name);
        let n = column(n).as_primitive::<Int32Type>();
        let x = column(x).as_primitive::<Float64Type>();
        for row in 0..batch.num_rows() {
            let number = match column(of).as_primitive_opt::<TimestampNanosecondType>() {
                Some(times) => times.value(row),
                None => column(of).as_primitive::<Int32Type>().value(row).into(),
            };
            let found = n
                .is_valid(row)
                .then(|| (n.value(row), x.value(row).to_bits()));
            assert_eq!(all.insert(number, found), None, "one row for {number}");
        }
    }
    all
}

fn of_a_join(streams: &Streams, ask: Ask) -> Answers {
    let [a, b] = ["/a", "/b"].map(|side| format!("{side}{}", ask.key));
    let table = streams
        .recording
        .join(&a, &[&b], options(ask))
        .expect("a table");
    let columns = [format!("{a}.n"), format!("{b}.n"), format!("{b}.x")];
    answers(
        &table.collect().expect("rows"),
        columns.each_ref().map(String::as_str),
    )
}

fn of_resampled_topics(streams: &Streams, ask: Ask) -> Answers {
    let b = format!("/b{}", ask.key);
    let table = streams.recording.resample(&[&b], HZ.into(), options(ask));
    let columns = [format!("{b}.n"), format!("{b}.x")];
    let batches = table.expect("a table").collect().expect("rows");
    answers(&batches, ["time", &columns[0], &columns[1]])
}

/// The tolerance as it is written.
fn within(rule: Rule) -> Option<String> {
    let tolerance = rule.tolerance()?;
    Some(format!("{}ms", tolerance.as_millis()))
}

/// The command, whose table is read.
fn of_the_command(streams: &Streams, ask: Ask) -> Answers {
    let [a, b] = ["/a", "/b"].map(|side| format!("{side}{}", ask.key));
    let mut line = format!(
        "join run.mcap --anchor {a} --with {b} --method {} --on {} --fields n,x -o rows.parquet --force",
        ask.rule.pick().word(),
        ask.on.word()
    );
    if let Some(within) = within(ask.rule) {
        write!(line, " --within {within}").expect("a text");
    }
    if ask.rule.has_nearest_at_ends() {
        line += " --or-nearest";
    }
    let output = streams.folder.output(&line);
    // Messages without a stamp are left out, and said so.
    let code = output.status.code();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(code == Some(0) || code == Some(3), "{line}: {said}");
    let file = std::fs::File::open(streams.folder.path("rows.parquet")).expect("a file");
    let rows = ParquetRecordBatchReader::try_new(file, 100).expect("Parquet");
    let mut all = Answers::new();
    for batch in rows {
        let batch = batch.expect("rows");
        let side = |name: &str| batch.column_by_name(name).expect(name).as_struct();
        let (ours, theirs) = (side(&a), side(&b));
        let number = |column: &str| {
            ours.column_by_name(column)
                .expect(column)
                .as_primitive::<Int32Type>()
        };
        let n = theirs
            .column_by_name("n")
            .expect("n")
            .as_primitive::<Int32Type>();
        let x = theirs
            .column_by_name("x")
            .expect("x")
            .as_primitive::<Float64Type>();
        for row in 0..batch.num_rows() {
            let found = theirs
                .is_valid(row)
                .then(|| (n.value(row), x.value(row).to_bits()));
            let known = all.insert(number("n").value(row).into(), found);
            assert_eq!(known, None, "one row for each anchor: {line}");
        }
    }
    all
}

/// The rows of a dataset: no instants, and only those where something is known.
fn of_a_dataset(streams: &Streams, ask: Ask) -> Vec<(i32, u32)> {
    let mut map = format!(
        "hz = {HZ}\nvideos = false\nmethod = \"{}\"\non = \"{}\"\nor_nearest = {}\n",
        ask.rule.pick().word(),
        ask.on.word(),
        ask.rule.has_nearest_at_ends()
    );
    if let Some(within) = within(ask.rule) {
        writeln!(map, "tolerance = \"{within}\"").expect("a text");
    }
    write!(
        map,
        "[features]\n\"observation.state\" = [\"/b{0}.n\", \"/b{0}.x\"]",
        ask.key
    )
    .expect("a text");
    let map = DatasetMap::from_toml(&map).expect("a map");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("dataset");
    let places: Vec<Vec<PathBuf>> = vec![vec![streams.folder.path("run.mcap")]];
    match asof::lerobot::export(&places, &out, &map, &mut |_| ControlFlow::Continue(())) {
        Err(LerobotError::Empty(_)) => return Vec::new(),
        made => made.expect("a dataset"),
    };
    let file = std::fs::File::open(out.join("data/chunk-000/file-000.parquet")).expect("a file");
    let rows = ParquetRecordBatchReader::try_new(file, 1000).expect("Parquet");
    let mut all = Vec::new();
    for batch in rows {
        let batch = batch.expect("rows");
        let states = batch.column_by_name("observation.state").expect("states");
        let values = states
            .as_fixed_size_list()
            .values()
            .as_primitive::<Float32Type>();
        let pairs = values.values().as_chunks::<2>().0.iter();
        all.extend(pairs.map(|[n, x]| (*n as i32, x.to_bits())));
    }
    all
}

/// All tolerances and words, in an order in which the first ones differ most.
fn rules() -> Vec<Rule> {
    let mut all = Vec::new();
    for tolerance in [None, Some(7), Some(0)] {
        for pick in Pick::ALL {
            let within = |rule: Rule| match tolerance {
                None => rule,
                Some(millis) => rule.within(Duration::from_millis(millis)),
            };
            all.push(within(Rule::new(pick)));
            if pick == Pick::Interpolate {
                all.push(within(Rule::new(pick).or_nearest()));
            }
        }
    }
    all
}

/// The streams: balanced, few anchors, an empty side to look up, no anchors.
const STREAMS: [(u64, usize, usize); 5] = [
    (1, 120, 5),
    (2, 90, 8),
    (3, 60, 0),
    (4, 40, 10),
    (5, 160, 3),
];

/// Calls with all streams, and all that is asked of them.
fn each(mut check: impl FnMut(&Streams, Ask, String)) {
    for (seed, messages, others) in STREAMS {
        let streams = Streams::new(seed, messages, others);
        for on in On::ALL {
            for key in [0, 1] {
                for rule in rules() {
                    let ask = Ask { on, rule, key };
                    check(&streams, ask, format!("seed {seed}: {ask:?}"));
                }
            }
        }
    }
}

#[test]
fn slices_streams_and_windows_find_what_the_oracle_finds() {
    each(|streams, ask, asked| {
        let wanted = streams.wanted(ask);
        assert_eq!(of_slices(streams, ask), wanted, "slices, {asked}");
        assert_eq!(of_streams(streams, ask), wanted, "streams, {asked}");
        assert_eq!(of_a_window(streams, ask), wanted, "a window, {asked}");
    });
}

#[test]
fn joined_and_resampled_topics_are_what_the_oracle_finds() {
    each(|streams, ask, asked| {
        assert_eq!(
            of_a_join(streams, ask),
            streams.wanted(ask),
            "a join, {asked}"
        );
        let grid = streams.wanted_of_grid(ask);
        assert_eq!(of_resampled_topics(streams, ask), grid, "a grid, {asked}");
    });
}

#[test]
fn the_rows_of_a_dataset_are_what_the_oracle_finds() {
    each(|streams, ask, asked| {
        let known = streams.wanted_of_grid(ask).into_values().flatten();
        let wanted: Vec<(i32, u32)> = known
            .map(|(n, x)| (n, (f64::from_bits(x) as f32).to_bits()))
            .collect();
        assert_eq!(of_a_dataset(streams, ask), wanted, "a dataset, {asked}");
    });
}

#[test]
fn the_command_joins_what_the_oracle_finds() {
    each(|streams, ask, asked| {
        // A process each: one key of each rule.
        if usize::from(ask.key) != streams.sent.len() / 10 % 2 {
            return;
        }
        assert_eq!(
            of_the_command(streams, ask),
            streams.wanted(ask),
            "the command, {asked}"
        );
    });
}

/// A part of a recording has the rows that all of it has.
#[test]
fn a_range_of_log_times_has_the_same_rows() {
    each(|streams, ask, asked| {
        let range = streams.recording.summary().range;
        let middle = |part: i64| range.start.plus_nanos(range.duration_nanos() / 3 * part);
        let options = AlignOptions {
            range: TimeRange::new(middle(1), middle(2)),
            ..options(ask)
        };
        let [a, b] = ["/a", "/b"].map(|side| format!("{side}{}", ask.key));
        let table = streams
            .recording
            .join(&a, &[&b], options.clone())
            .expect("a table");
        let columns = [format!("{a}.n"), format!("{b}.n"), format!("{b}.x")];
        let columns = columns.each_ref().map(String::as_str);
        let found = answers(&table.collect().expect("rows"), columns);
        let mut wanted = streams.wanted(ask);
        wanted.retain(|n, _| {
            let sent = streams.sent.iter().find(|sent| i64::from(sent.n) == *n);
            sent.is_some_and(|sent| options.range.contains(sent.log_time.into()))
        });
        assert_eq!(found, wanted, "{asked}");
    });
}

#[cfg(feature = "sql")]
mod in_sql {
    use super::*;

    fn rows(streams: &Streams, query: &str) -> Vec<RecordBatch> {
        let table = streams.recording.sql(query);
        let table = table.unwrap_or_else(|error| panic!("{query}: {error}"));
        table
            .collect()
            .unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// The comparison of an as-of join; there is none for interpolation.
    fn condition(ask: Ask, a: &str, b: &str) -> Option<String> {
        let on = ask.on.word();
        let (a, b) = (format!("{a}.{on}"), format!("{b}.{on}"));
        let compared = |sign: &str, difference: String| match within(ask.rule) {
            None => format!("{a} {sign} {b}"),
            Some(within) => format!("{a} {sign} {b} AND {difference} <= '{within}'"),
        };
        Some(match ask.rule.pick() {
            Pick::Last => compared(">=", format!("{a} - {b}")),
            Pick::Before => compared(">", format!("{a} - {b}")),
            Pick::Next => compared("<=", format!("{b} - {a}")),
            Pick::After => compared("<", format!("{b} - {a}")),
            Pick::Nearest => match within(ask.rule) {
                None => format!("nearest({a}, {b})"),
                Some(within) => format!("nearest({a}, {b}, '{within}')"),
            },
            Pick::Interpolate => return None,
        })
    }

    #[test]
    fn an_asof_join_finds_what_the_oracle_finds() {
        each(|streams, ask, asked| {
            let [a, b] = ["a", "b"].map(|side| format!("{side}{}", ask.key));
            let Some(plain) = condition(ask, &a, &b) else {
                return;
            };
            let select = |a: &str, b: &str, rest: &str| {
                format!(
                    "SELECT {a}.n AS a, {b}.n AS n, {b}.x AS x FROM {a} ASOF JOIN {b} MATCH_CONDITION ({rest}"
                )
            };
            let keyed = condition(ask, "a", "b").expect("the same");
            let queries = [
                // In one pass; sorted and merged; with a key.
                select(&a, &b, &format!("{plain})")),
                select(&a, &b, &format!("{plain}) ORDER BY {a}.n")),
                select(
                    "a",
                    "b",
                    &format!("{keyed}) ON a.k = b.k WHERE a.k = {}", ask.key),
                ),
            ];
            let wanted = streams.wanted(ask);
            for query in queries {
                let mut found = answers(&rows(streams, &query), ["a", "n", "x"]);
                // A row without a time stays, and matches nothing.
                for (n, row) in found.extract_if(.., |n, _| !wanted.contains_key(n)) {
                    assert_eq!(row, None, "row {n} has no time: {query}, {asked}");
                }
                assert_eq!(found, wanted, "{query}, {asked}");
            }
        });
    }

    #[test]
    fn resample_finds_what_the_oracle_finds() {
        each(|streams, ask, asked| {
            let mut query = format!(
                "SELECT time AS a, b{0}.n AS n, b{0}.x AS x FROM resample(b{0}, {HZ}, '{1}', '{2}'",
                ask.key,
                ask.rule.pick().word(),
                ask.on.word()
            );
            if let Some(within) = within(ask.rule) {
                write!(query, ", '{within}'").expect("a text");
            }
            query += if ask.rule.has_nearest_at_ends() {
                ", 'or_nearest')"
            } else {
                ")"
            };
            let found = answers(&rows(streams, &query), ["a", "n", "x"]);
            assert_eq!(found, streams.wanted_of_grid(ask), "{query}, {asked}");
        });
    }

    #[test]
    fn window_join_has_all_rows_that_are_in_the_window() {
        for (seed, messages, others) in STREAMS {
            let streams = Streams::new(seed, messages, others);
            for (on, (from, to), key) in [
                (On::Stamp, (-20, 5), 0),
                (On::LogTime, (-20, 5), 1),
                (On::Stamp, (0, 0), 1),
                (On::LogTime, (3, 9), 0),
            ] {
                let ask = Ask {
                    on,
                    rule: Rule::last(),
                    key,
                };
                let query = format!(
                    "SELECT a{key}.n AS a, b{key}.n AS n FROM window_join(a{key}, b{key}, '{from}ms', '{to}ms', '{}')",
                    on.word()
                );
                let mut found: Vec<(i32, Option<i32>)> = Vec::new();
                for batch in rows(&streams, &query) {
                    let [a, n] = [0, 1].map(|at| batch.column(at).as_primitive::<Int32Type>());
                    found.extend(a.values().iter().copied().zip(n.iter()));
                }
                found.sort_unstable();
                let mut wanted = Vec::new();
                for sent in streams
                    .sent
                    .iter()
                    .filter(|sent| sent.is_anchor && sent.key == key)
                {
                    let is_in = |at: i64| {
                        let time = sent.time(on);
                        time.is_some_and(|time| (from * MILLI..=to * MILLI).contains(&(at - time)))
                    };
                    let own = streams
                        .side(false, ask)
                        .into_iter()
                        .filter(|(at, _)| is_in(*at));
                    let own: Vec<_> = own.map(|(_, other)| (sent.n, Some(other.n))).collect();
                    if own.is_empty() {
                        wanted.push((sent.n, None));
                    }
                    wanted.extend(own);
                }
                wanted.sort_unstable();
                assert_eq!(found, wanted, "seed {seed}: {query}");
            }
        }
    }
}
