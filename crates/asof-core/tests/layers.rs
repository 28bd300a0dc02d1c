//! A layer changes what it names and loses nothing else.
#![cfg(feature = "testing")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use asof_core::testing::assert_source;
use asof_core::{
    AttachmentEntry, Batch, Batches, DerivedSummary, FileOrder, FileParts, Follow, FollowEnd,
    Followed, Growth, HiddenRecords, Index, MetadataEntry, Portion, Problem, ProblemKind, Progress,
    Query, ReadStats, SectionEntry, Source, SourceError, Stamp, Summary, TimeRange, Topics,
};
use bytes::Bytes;

/// Answers every question with something that no default gives.
struct Everything(Mutex<Arc<Summary>>);

fn problem() -> Problem {
    Problem::whole(ProblemKind::Incomplete, "checked")
}

fn closed() -> SourceError {
    SourceError::Cancelled
}

/// Has ended.
struct Closed;

impl Follow for Closed {
    fn next(&mut self, _: std::time::Instant) -> Result<Followed, SourceError> {
        Ok(Followed::End(FollowEnd::Closed))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Source for Everything {
    fn summary(&self) -> Arc<Summary> {
        Arc::clone(&self.0.lock().expect("a lock"))
    }

    fn read(&self, _: &Query) -> Result<Batches, SourceError> {
        Ok(Box::new(std::iter::empty()))
    }

    fn latest_at(&self, _: &Topics, _: Stamp) -> Result<Batch, SourceError> {
        Ok(Batch::default())
    }

    fn growth(&self) -> Growth {
        Growth::Growing
    }

    fn follow(&self, _: &Query) -> Result<Box<dyn Follow>, SourceError> {
        Ok(Box::new(Closed))
    }

    fn index(&self) -> Option<&dyn Index> {
        Some(self)
    }

    fn parts(&self) -> Option<&dyn FileParts> {
        Some(self)
    }

    fn file_order(&self) -> Option<&dyn FileOrder> {
        Some(self)
    }

    fn check(&self, _: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        Ok(vec![problem()])
    }

    fn verify(&self) -> Result<(), SourceError> {
        Err(closed())
    }

    fn read_stats(&self) -> Option<ReadStats> {
        Some(ReadStats::default())
    }
}

impl Index for Everything {
    fn outline(&self, _: TimeRange, _: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        Ok(Some(Vec::new()))
    }

    fn log_times(&self, _: &str, range: TimeRange) -> Result<Option<Vec<Stamp>>, SourceError> {
        Ok(Some(vec![range.start]))
    }

    fn sections(&self) -> Vec<SectionEntry> {
        Vec::new()
    }
}

impl FileParts for Everything {
    fn attachment(&self, _: &AttachmentEntry) -> Result<Bytes, SourceError> {
        Ok(Bytes::from_static(b"attached"))
    }

    fn metadata(&self, _: &MetadataEntry) -> Result<BTreeMap<String, String>, SourceError> {
        Err(closed())
    }

    fn hidden(&self, _: &Topics) -> Result<HiddenRecords, SourceError> {
        Err(closed())
    }
}

impl FileOrder for Everything {
    fn read_in_file_order(&self, _: &Query) -> Result<Batches, SourceError> {
        Err(closed())
    }

    fn bytes_held_by_order(&self, _: &Query) -> u64 {
        7
    }
}

/// Changes the summary alone.
struct Renamed {
    source: Arc<dyn Source>,
    summary: DerivedSummary,
}

impl asof_core::SourceLayer for Renamed {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        &*self.source
    }

    fn summary(&self) -> Arc<Summary> {
        self.summary.changed(self.inner().summary(), |summary| {
            summary.library = "renamed".into();
        })
    }
}

fn renamed() -> (Arc<Everything>, Renamed) {
    let within = Arc::new(Everything(Mutex::new(Arc::new(Summary::empty("all")))));
    let layer = Renamed {
        source: Arc::clone(&within) as Arc<dyn Source>,
        summary: DerivedSummary::default(),
    };
    (within, layer)
}

#[test]
fn what_a_layer_does_not_name_is_that_of_the_source_within() {
    let (_, layer) = renamed();
    // A pointer to a pointer to it, too.
    let source: &dyn Source = &Box::new(Arc::new(layer));
    assert_eq!(source.summary().format, "all");
    assert_eq!(source.summary().library, "renamed");
    assert!(source.growth().is_growing());
    let mut follow = source.follow(&Query::all()).expect("follows");
    let next = follow.next(std::time::Instant::now());
    assert!(matches!(next, Ok(Followed::End(FollowEnd::Closed))));
    let at = TimeRange::new(Stamp::EPOCH, Stamp::EPOCH);
    let outline = source.outline(at, 1).expect("an outline");
    assert_eq!(outline, Some(Vec::new()));
    let times = source.log_times("/a", at).expect("times");
    assert_eq!(times, Some(vec![Stamp::EPOCH]));
    let entry = AttachmentEntry {
        name: "a".to_owned(),
        media_type: String::new(),
        log_time: None,
        create_time: None,
        size: 8,
        offset: 0,
    };
    assert_eq!(source.attachment(&entry).expect("there"), "attached");
    assert!(source.hidden(&Topics::All).is_err());
    assert!(source.read_in_file_order(&Query::all()).is_err());
    assert_eq!(source.bytes_held_by_order(&Query::all()), 7);
    assert_eq!(
        source.check(&mut |_, _| Ok(())).expect("checks"),
        [problem()]
    );
    assert!(source.verify().is_err());
    assert!(source.read_stats().is_some());
}

#[test]
fn a_derived_summary_is_kept_until_the_one_it_is_made_from_changes() {
    let (within, layer) = renamed();
    let first = layer.summary();
    assert!(Arc::ptr_eq(&first, &layer.summary()));
    let changed = Summary {
        size: 5,
        ..Summary::empty("all")
    };
    *within.0.lock().expect("a lock") = Arc::new(changed);
    let second = layer.summary();
    assert_eq!((second.size, second.library.as_str()), (5, "renamed"));
    assert!(Arc::ptr_eq(&second, &layer.summary()));
}

#[test]
fn a_source_without_capabilities_answers_for_itself() {
    struct Empty(Arc<Summary>);
    impl Source for Empty {
        fn summary(&self) -> Arc<Summary> {
            Arc::clone(&self.0)
        }

        fn read(&self, _: &Query) -> Result<Batches, SourceError> {
            Ok(Box::new(std::iter::empty()))
        }

        fn latest_at(&self, _: &Topics, _: Stamp) -> Result<Batch, SourceError> {
            Ok(Batch::default())
        }
    }
    let source: &dyn Source = &Empty(Arc::new(Summary::empty("nothing")));
    assert_source(source, "nothing");
    assert_eq!(source.outline(TimeRange::ALL, 1).expect("an answer"), None);
    assert_eq!(
        source.log_times("/a", TimeRange::ALL).expect("an answer"),
        None
    );
    assert_eq!(source.hidden(&Topics::All).expect("none").count(), 0);
    let none = source.metadata(&MetadataEntry {
        name: "note".to_owned(),
        offset: 0,
    });
    let error = none.expect_err("none").to_string();
    assert_eq!(error, "nothing: it has no metadata 'note'");
}
