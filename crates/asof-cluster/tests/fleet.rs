//! Recordings of a fleet on a server, which executors open by what its catalogue has of them.
#![cfg(feature = "engine")]

#[path = "../../asof-catalogue/tests/served/mod.rs"]
mod served;

use std::sync::Arc;

use asof_catalogue::{FoundRecording, Search};
use asof_cluster::Roots;
use asof_core::{Source, SourceError};
use asof_sql::{FleetVersion, RecordingAddress, RecordingOpener as _};
use served::fleet::{Fleet, write};
use served::{Served, counted};

/// The recordings as a plan names them.
fn addresses(served: &Served) -> Vec<RecordingAddress> {
    let found = served.catalogue.find(&Search::default());
    let found = found.expect("a catalogue");
    let generation = found.head.expect("it was searched").generation;
    let root = served.catalogue.root();
    let address = |FoundRecording { row, .. }: FoundRecording| RecordingAddress {
        name: row.recording.clone(),
        address: root.address_of(&row.recording),
        size: Some(row.size),
        version: row.e_tag.map(|e_tag| FleetVersion {
            fleet: root.address(),
            generation,
            e_tag,
        }),
    };
    found.recordings.into_iter().map(address).collect()
}

fn open(served: &Served, address: &RecordingAddress) -> Result<Arc<dyn Source>, SourceError> {
    // Each time another executor.
    let roots = Roots::new(&[served.catalogue.root().address()]).expect("roots");
    roots.open(address)
}

#[test]
fn a_recording_of_a_fleet_is_opened_without_asking_it() {
    let served = Served::new();
    served.put_catalogue();
    let addresses = addresses(&served);
    let bytes = served.bytes_of("/a.mcap");
    served.put("/a.mcap", None);
    let recording = open(&served, &addresses[0]).expect("the catalogue has its summary");
    assert_eq!(recording.summary().messages, Some(4));
    let gone = counted(&*recording).expect_err("its messages are gone");
    assert!(gone.contains("a.mcap"), "{gone}");

    // As another version: a slice of the one that was planned is not read from it.
    served.put("/a.mcap", Some(bytes));
    let recording = open(&served, &addresses[0]).expect("the catalogue has its summary");
    let changed = counted(&*recording).expect_err("it is another version");
    assert!(changed.contains("changed"), "{changed}");
    assert_eq!(
        counted(&*open(&served, &addresses[1]).expect("it is there")),
        Ok(4)
    );
}

#[test]
fn a_catalogue_that_does_not_help_is_done_without() {
    let served = Served::new();
    let addresses = addresses(&served);
    // There is none on the server.
    let recording = open(&served, &addresses[0]).expect("it is there");
    assert_eq!(counted(&*recording), Ok(4));

    // It is another than the one that was searched: what it has may be of other versions.
    write(&served.catalogue, vec![Fleet::surveyed("x.bag", 200)]);
    served.put_catalogue();
    let recording = open(&served, &addresses[1]).expect("it is there");
    assert_eq!(counted(&*recording), Ok(4));
    served.put("/a.mcap", None);
    assert!(open(&served, &addresses[0]).is_err());
}
