//! Recordings of a fleet, which executors open by what its catalogue has of them.
#![cfg(feature = "engine")]

#[path = "../../asof-catalogue/tests/served/mod.rs"]
mod served;

use std::sync::Arc;

use asof_catalogue::{Catalogue, FoundRecording, Search};
use asof_cluster::Roots;
use asof_core::{Source, SourceError};
use asof_sql::{FleetVersion, RecordingAddress, RecordingOpener as _};
use served::fleet::{Fleet, write};
use served::{Served, counted};

/// The recordings as a plan names them.
fn addresses(catalogue: &Catalogue) -> Vec<RecordingAddress> {
    let found = catalogue.find(&Search::default());
    let found = found.expect("a catalogue");
    let generation = found.head.expect("it was searched").generation;
    let root = catalogue.root();
    let address = |FoundRecording { row, .. }: FoundRecording| RecordingAddress {
        name: row.recording.clone(),
        address: root.address_of(&row.recording),
        size: Some(row.size),
        version: Some(FleetVersion {
            fleet: root.address(),
            generation,
            modified: row.modified.filter(|_| row.e_tag.is_none()),
            e_tag: row.e_tag,
        }),
    };
    found.recordings.into_iter().map(address).collect()
}

fn open(catalogue: &Catalogue, address: &RecordingAddress) -> Result<Arc<dyn Source>, SourceError> {
    // Each time another executor.
    let roots = Roots::new(&[catalogue.root().address()]).expect("roots");
    roots.open(address)
}

#[test]
fn a_recording_of_a_fleet_is_opened_without_asking_it() {
    let served = Served::new();
    served.put_catalogue();
    let addresses = addresses(&served.catalogue);
    let bytes = served.bytes_of("/a.mcap");
    served.put("/a.mcap", None);
    let recording = open(&served.catalogue, &addresses[0]).expect("the catalogue has its summary");
    assert_eq!(recording.summary().messages, Some(4));
    let gone = counted(&*recording).expect_err("its messages are gone");
    assert!(gone.contains("a.mcap"), "{gone}");

    // As another version: a slice of the one that was planned is not read from it.
    served.put("/a.mcap", Some(bytes));
    let recording = open(&served.catalogue, &addresses[0]).expect("the catalogue has its summary");
    let changed = counted(&*recording).expect_err("it is another version");
    assert!(changed.contains("changed"), "{changed}");
    assert_eq!(
        counted(&*open(&served.catalogue, &addresses[1]).expect("it is there")),
        Ok(4)
    );
}

#[test]
fn a_catalogue_that_does_not_help_is_done_without() {
    let served = Served::new();
    let addresses = addresses(&served.catalogue);
    // There is none on the server.
    let recording = open(&served.catalogue, &addresses[0]).expect("it is there");
    assert_eq!(counted(&*recording), Ok(4));

    // It is another than the one that was searched: what it has may be of other versions.
    write(&served.catalogue, vec![Fleet::surveyed("x.bag", 200)]);
    served.put_catalogue();
    let recording = open(&served.catalogue, &addresses[1]).expect("it is there");
    assert_eq!(counted(&*recording), Ok(4));
    served.put("/a.mcap", None);
    assert!(open(&served.catalogue, &addresses[0]).is_err());
}

#[test]
fn a_recording_on_a_disk_is_opened_from_the_catalogue_while_it_is_the_one_that_was_indexed() {
    let fleet = Fleet::new();
    fleet.record("a.mcap", 100, &["/tf", "/scan"]);
    fleet.index();
    let catalogue = fleet.catalogue();
    let address = addresses(&catalogue).remove(0);
    let path = fleet.path("a.mcap");
    let modified = |path| std::fs::metadata(path).and_then(|found| found.modified());
    let (before, bytes) = (modified(&path).expect("a time"), std::fs::read(&path));
    // Other bytes, of the same size and time: only what is not in the catalogue is read of them.
    let zeros = vec![0; bytes.expect("a file").len()];
    std::fs::write(&path, zeros).expect("it is written");
    let set = |time| {
        let file = std::fs::File::options().write(true).open(&path);
        file.and_then(|file| file.set_modified(time))
            .expect("a time");
    };
    set(before);
    let recording = open(&catalogue, &address).expect("the catalogue has its summary");
    assert_eq!(recording.summary().messages, Some(4));
    // Of another time it is another file, and is asked itself.
    set(before + std::time::Duration::from_secs(1));
    let other = open(&catalogue, &address);
    assert!(other.is_err() || other.is_ok_and(|other| other.summary().messages != Some(4)));
}

#[cfg(unix)]
#[test]
fn a_catalogue_that_lies_outside_of_the_roots_is_not_read() {
    let (fleet, outside) = (Fleet::new(), tempfile::tempdir().expect("a folder"));
    fleet.record("a.mcap", 100, &["/tf", "/scan"]);
    fleet.index();
    let address = addresses(&fleet.catalogue()).remove(0);
    let moved = outside.path().join("catalogue");
    std::fs::rename(fleet.path(".asof"), &moved).expect("it is moved");
    std::os::unix::fs::symlink(&moved, fleet.path(".asof")).expect("a link");
    // All of it but its size and time is lost, and the catalogue would not tell.
    let path = fleet.path("a.mcap");
    let found = std::fs::metadata(&path).expect("a file");
    std::fs::write(&path, vec![0; found.len() as usize]).expect("it is written");
    let file = std::fs::File::options().write(true).open(&path);
    let time = found.modified().expect("a time");
    file.and_then(|file| file.set_modified(time))
        .expect("a time");
    let other = open(&fleet.catalogue(), &address);
    assert!(other.is_err() || other.is_ok_and(|other| other.summary().messages != Some(4)));
}
