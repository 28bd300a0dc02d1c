//! What the tests of the synchronizers share.

use asof_window::sync::{DropReason, SyncEvent, Synchronizer};

/// The values of every set, in the order of the topics.
pub type Sets = Vec<Vec<i64>>;
/// Topic, value and reason of every message that ended up in no set.
pub type Drops = Vec<(usize, i64, DropReason)>;

/// Adds messages whose values are their stamps, one after the other.
pub fn feed<S: Synchronizer<i64> + ?Sized>(
    sync: &mut S,
    messages: impl IntoIterator<Item = (usize, i64)>,
) -> (Sets, Drops) {
    let (mut sets, mut drops) = (Vec::new(), Vec::new());
    for (topic, stamp) in messages {
        sync.add(topic, stamp.into(), stamp, &mut |event| match event {
            SyncEvent::Matched(set) => sets.push(set.into_iter().map(|s| s.value).collect()),
            SyncEvent::Partial(_) => panic!("nobody asked for partial sets"),
            SyncEvent::Dropped {
                topic,
                message,
                reason,
            } => drops.push((topic, message.value, reason)),
        });
    }
    (sets, drops)
}
