//! Indexes the recordings of a folder or bucket, then lists those that hold a topic, without opening any of them.
//!
//! `cargo run -p asof-catalogue --example find -- FOLDER [TOPIC]`, for example `-- recordings '/battery*'`

use asof_catalogue::{Catalogue, IndexOptions, Indexer, Search};
use asof_core::Stamp;
use asof_formats::Store;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let root = words.next().ok_or("usage: find FOLDER [TOPIC]")?;
    let topic = words.next().unwrap_or_else(|| "*".to_owned());

    let catalogue = Catalogue::beside(Store::at(&root)?)?;
    let run = Indexer::new(&catalogue, IndexOptions::default()).run(Stamp::now(), &|_| {})?;
    println!("{} recordings are new or changed", run.opened);

    let search = Search {
        topics: vec![topic.parse()?],
        ..Search::default()
    };
    let found = catalogue.find(&search)?;
    for recording in found.recordings {
        let topics: Vec<String> = recording.topics.into_keys().collect();
        println!("{}: {}", recording.row.recording, topics.join(" "));
    }
    Ok(())
}
