//! A recording that is opened from a catalogue keeps the promises of a source.

mod fleet;

use asof_catalogue::Search;
use asof_core::Source;
use asof_core::testing::assert_source;
use asof_formats::OpenOptions;
use fleet::Fleet;

#[test]
fn a_catalogued_recording_keeps_them_whole_or_damaged() {
    let fleet = Fleet::new();
    let topics: Vec<String> = (0..20).map(|number| format!("/topic_{number}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    fleet.record("a.mcap", 1, &topics);
    fleet.record("b.mcap", 2, &["/tf", "/tf", "/bumper"]);
    fleet.record("empty.mcap", 3, &[]);
    fleet.record("cut.mcap", 4, &topics);
    let bytes = std::fs::read(fleet.path("cut.mcap")).expect("a file");
    std::fs::write(fleet.path("cut.mcap"), &bytes[..bytes.len() * 2 / 3]).expect("cut");
    fleet.index();
    let catalogue = fleet.catalogue();
    let found = catalogue.find(&Search::default()).expect("found");
    let recordings = catalogue.open_found(&found, &OpenOptions::default());
    let recordings = recordings.expect("recordings");
    assert_eq!(recordings.len(), 4);
    for recording in &recordings {
        // Before its file is open, and after.
        assert!(!recording.is_open());
        recording.summary();
        for _ in 0..2 {
            assert_source(recording, recording.place());
        }
    }
}
