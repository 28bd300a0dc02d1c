//! A large fleet that grows by one recording a minute.

mod fleet;

use std::collections::HashSet;

use asof_catalogue::{Catalogue, IndexedRecording, TopicRow};
use asof_core::Stamp;

use fleet::Fleet;

const BEFORE: i64 = 20_000;
const MINUTES: i64 = 24 * 60;
const TOPICS: [&str; 4] = ["/imu", "/odom", "/scan", "/tf"];

fn made(number: i64) -> IndexedRecording {
    let mut made = Fleet::surveyed(&format!("2026/run-{number:06}.mcap"), number * 60);
    let topic = made.topics.pop().expect("a topic");
    made.topics = TOPICS
        .map(|name| TopicRow {
            topic: name.to_owned(),
            ..topic.clone()
        })
        .into();
    made
}

fn add(catalogue: &Catalogue, made: Vec<IndexedRecording>, now: Stamp) {
    let changes = asof_catalogue::Changes {
        indexed: made,
        ..Default::default()
    };
    catalogue.commit(&changes, now).expect("it is written");
}

/// The bytes of a catalogue's files that are new since the last look, and those of its head, which is new each time.
struct Written<'a> {
    fleet: &'a Fleet,
    seen: HashSet<String>,
}

impl Written<'_> {
    fn look(&mut self) -> u64 {
        let folder = std::fs::read_dir(self.fleet.path(".asof")).expect("a catalogue");
        let mut bytes = 0;
        for entry in folder {
            let entry = entry.expect("a file");
            let name = entry.file_name().into_string().expect("a name");
            if name == "head.json" || self.seen.insert(name) {
                bytes += entry.metadata().expect("a file").len();
            }
        }
        bytes
    }
}

#[test]
fn a_day_of_recordings_one_a_minute_writes_few_times_its_own_bytes() {
    let fleet = Fleet::in_memory();
    let catalogue = fleet.catalogue();
    for batch in 0..BEFORE / 2_000 {
        let numbers = batch * 2_000..(batch + 1) * 2_000;
        add(&catalogue, numbers.map(made).collect(), fleet::now());
    }
    catalogue.compact(fleet::now()).expect("it is put together");
    let mut written = Written {
        fleet: &fleet,
        seen: HashSet::new(),
    };
    written.look();
    let (mut own, mut again) = (0, 0);
    for minute in 0..MINUTES {
        let now = Stamp::from_nanos(fleet::now().nanos() + minute * 60_000_000_000);
        add(&catalogue, vec![made(BEFORE + minute)], now);
        own += written.look();
        catalogue.compact(now).expect("it is put together");
        again += written.look();
    }
    let head = catalogue.existing_head().expect("a head");
    assert_eq!(head.recordings(), (BEFORE + MINUTES) as u64);
    assert!(head.parts.len() < 40, "{} parts", head.parts.len());
    let share = again as f64 / own as f64;
    println!(
        "{own} bytes added, {again} written again ({share:.2} times), {} parts",
        head.parts.len()
    );
    assert!(again <= 10 * own, "{again} bytes for {own}");

    // What was merged, merged again, and left alone holds each recording once.
    let rows = catalogue.recordings().expect("rows");
    let names: HashSet<&str> = rows.iter().map(|row| row.recording.as_str()).collect();
    assert_eq!((rows.len(), names.len()), (21_440, 21_440));
    assert_eq!(head.schemas.len(), 1);
}
