//! Whether the stamps of a topic are in the order in which its messages were logged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use asof_core::Query;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit, TimestampNanosecondType};
use datafusion::common::Result;

use crate::assemble::{Assembler, Shape, external, runs};
use crate::database::Shared;
use crate::topic::STAMP;

/// Recordings up to this size are scanned before a join by stamp relies on their order. For larger ones the order is
/// assumed until a join finds otherwise: scanning would take as long as the query.
const MAX_SURVEYED_BYTES: u64 = 32 << 20;

/// The known order of stamps.
#[derive(Debug, Default)]
pub(crate) struct StampOrder {
    /// By recording and topic.
    known: Mutex<BTreeMap<(usize, String), bool>>,
    /// The topics that are in no order in some recording.
    disordered: Mutex<BTreeSet<String>>,
}

impl StampOrder {
    fn known(&self, key: &(usize, String)) -> Option<bool> {
        let disordered = self
            .disordered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if disordered.contains(&key.1) {
            return Some(false);
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).copied()
    }

    fn set(&self, key: (usize, String), is_in_order: bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key, is_in_order);
    }

    fn set_all(&self, topic: &str) {
        let disordered = self.disordered.lock();
        let mut disordered = disordered.unwrap_or_else(PoisonError::into_inner);
        disordered.insert(topic.to_owned());
    }
}

impl Shared {
    /// Whether a join may rely on the stamps of a topic never going back.
    pub fn has_stamps_in_order(self: &Arc<Self>, recording: usize, topic: &str) -> bool {
        let key = (recording, topic.to_owned());
        if let Some(known) = self.stamp_order.known(&key) {
            return known;
        }
        // Other processes read them, and report it.
        #[cfg(feature = "distributed")]
        if self.is_distributed {
            return true;
        }
        let size = self.opened(recording).described().size;
        if size > MAX_SURVEYED_BYTES {
            return true;
        }
        // A read error is reported by the query itself.
        let is_in_order = look_through(self, recording, topic).unwrap_or(false);
        self.stamp_order.set(key, is_in_order);
        is_in_order
    }

    /// From here on, joins by the stamps of this topic sort.
    pub fn tell_stamps_go_back(&self, topic: &str) {
        self.stamp_order.set_all(topic);
    }
}

fn look_through(shared: &Arc<Shared>, recording: usize, topic: &str) -> Result<bool> {
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let schema = Schema::new(vec![Field::new(STAMP, time, true)]);
    let shape = Shape::new(topic, Arc::new(schema));
    let mut assembler = Assembler::new(shared, recording, &shape);
    let source = &shared.opened(recording).recording;
    let mut newest = i64::MIN;
    let mut rows = Vec::new();
    for batch in source.read(&Query::topics([topic])).map_err(external)? {
        let batch = batch.map_err(external)?;
        for run in runs(&batch) {
            assembler.add(&batch, run, &mut rows)?;
        }
        assembler.flush(&mut rows)?;
        for stamps in rows.drain(..) {
            let stamps = stamps
                .batch
                .column(0)
                .as_primitive::<TimestampNanosecondType>();
            for stamp in stamps.iter().flatten() {
                if stamp < newest {
                    return Ok(false);
                }
                newest = stamp;
            }
        }
    }
    Ok(true)
}
