//! ZCache's storage, as it is described: a BTreeMap of Arc under a parking_lot RwLock, compiled with our flags.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;

pub struct ZCache<T> {
    capacity: usize,
    map: RwLock<BTreeMap<SystemTime, Arc<T>>>,
}

impl<T> ZCache<T> {
    pub fn new(capacity: usize) -> Self {
        ZCache {
            capacity,
            map: RwLock::new(BTreeMap::new()),
        }
    }

    pub fn insert(&self, stamp: SystemTime, value: T) {
        let value = Arc::new(value);
        let mut map = self.map.write();
        map.insert(stamp, value);
        while map.len() > self.capacity {
            map.pop_first();
        }
    }

    pub fn before(&self, t: SystemTime) -> Option<Arc<T>> {
        let map = self.map.read();
        map.range(..=t)
            .next_back()
            .map(|(_, value)| Arc::clone(value))
    }

    pub fn nearest(&self, t: SystemTime) -> Option<Arc<T>> {
        let map = self.map.read();
        let before = map.range(..=t).next_back();
        let after = map.range(t..).next();
        let distance = |stamp: &SystemTime| -> Duration {
            stamp
                .duration_since(t)
                .unwrap_or_else(|earlier| earlier.duration())
        };
        match (before, after) {
            (Some(before), Some(after)) => {
                let is_before = distance(before.0) <= distance(after.0);
                Some(Arc::clone(if is_before { before.1 } else { after.1 }))
            }
            (Some((_, value)), None) | (None, Some((_, value))) => Some(Arc::clone(value)),
            (None, None) => None,
        }
    }

    pub fn interval(&self, a: SystemTime, b: SystemTime) -> Vec<Arc<T>> {
        if a > b {
            return Vec::new();
        }
        let map = self.map.read();
        map.range(a..=b)
            .map(|(_, value)| Arc::clone(value))
            .collect()
    }

    pub fn newest_stamp(&self) -> Option<SystemTime> {
        self.map.read().last_key_value().map(|(stamp, _)| *stamp)
    }
}
