//! Every memory ordering that a protocol depends on, by name.
//!
//! In one place, so that each can be weakened on its own: with the feature `mutations`, the one that the environment
//! variable `ASOF_HOT_MUTATION` names (`site=weaker`) is, and `ci/soundness` shows that a loom model then fails. An
//! ordering that can be weakened with no model failing is either not needed or not tested; both are bugs.
//! Accesses that are written `Relaxed` where they stand have nothing to weaken.

use crate::sync::{Ordering, fence};

macro_rules! orderings {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident = $strong:ident, not $($weak:ident)|+, or $model:literal fails;
    )*) => {
        $(
            $(#[doc = $doc])*
            #[inline(always)]
            pub(crate) fn $name() -> Ordering {
                $(if is_mutated(concat!(stringify!($name), "=", stringify!($weak))) {
                    return Ordering::$weak;
                })+
                Ordering::$strong
            }
        )*
        /// Orderings that can be weakened: the name of the mutation, and the model that fails under it.
        const WEAKER_ORDERINGS: &[(&str, &str)] = &[
            $($((concat!(stringify!($name), "=", stringify!($weak)), $model)),+),*
        ];
    };
}

macro_rules! fences {
    ($(
        $(#[$doc:meta])*
        $name:ident = $strong:ident, or $model:literal fails;
    )*) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            #[cfg_attr(not(feature = "std"), allow(dead_code))] // waiting needs std
            pub(crate) fn $name() {
                if !is_mutated(concat!(stringify!($name), "=Missing")) {
                    fence(Ordering::$strong);
                }
            }
        )*
        const MISSING_FENCES: &[(&str, &str)] = &[
            $((concat!(stringify!($name), "=Missing"), $model)),*
        ];
    };
}

orderings! {
    /// Shows, with a slot that is being taken, that the head has passed it by far.
    latest_mark_store = Release, not Relaxed, or "latest" fails;
    /// Publishes a slot: whoever sees the new head sees the slot's contents.
    latest_head_store = Release, not Relaxed, or "latest" fails;
    /// Sees what was written before the head moved.
    latest_head_load = Acquire, not Relaxed, or "latest" fails;

    /// Gives a filled slot to the consumer.
    ring_ready_store = Release, not Relaxed, or "ring" fails;
    /// Takes a filled slot, with its contents.
    ring_ready_load = Acquire, not Relaxed, or "ring_refuse" fails;
    /// Gives a slot that was read back to the producer: the reads are done.
    ring_free_store = Release, not Relaxed, or "ring" fails;
    /// Takes a free slot: the consumer's reads are done.
    ring_free_load = Acquire, not Relaxed, or "ring" fails;
    /// Takes a filled slot before the producer can drop it, with its contents (acquire); whoever sees it taken sees that
    /// the one before was given back (release).
    ring_claim = AcqRel, not Acquire | Release, or "ring_drop_oldest" fails;
    /// Drops a sample: whoever finds it gone finds the one that it made way for.
    ring_drop = Release, not Relaxed, or "ring_drop_oldest" fails;
    /// Looks for the oldest sample that was not dropped.
    ring_scan_load = Acquire, not Relaxed, or "ring_drop_oldest" fails;
    /// Tells the newest position, after the slot was marked.
    ring_head_store = Release, not Relaxed, or "ring_drop_oldest_lapped" fails;
    /// Sees the newest position, and the mark of its slot.
    ring_head_load = Acquire, not Relaxed, or "ring_drop_oldest_lapped" fails;

    /// Learns that a reader has taken the last offer: its reads of the buffer before that are done.
    snapshot_taken_load = Acquire, not Relaxed, or "snapshot" fails;
    /// Gives a buffer to a reader, with its contents.
    snapshot_offer_store = Release, not Relaxed, or "snapshot" fails;
    /// Gives a buffer to a reader in place of one that it has not taken.
    snapshot_exchange = Release, not Relaxed, or "snapshot" fails;
    /// Takes the newest buffer (acquire), and lets go of the last one (release).
    snapshot_take = AcqRel, not Acquire | Release, or "snapshot" fails;

    /// Tells when a level was last commanded, after the command was written.
    mux_stamp_store = Release, not Relaxed, or "mux" fails;
    /// Sees the command that belongs to a level's time, or a newer one.
    mux_stamp_load = Acquire, not Relaxed, or "mux" fails;

    /// Acknowledges events after they were looked at.
    latch_ack = Release, not Relaxed, or "latch" fails;
    /// Sees an acknowledgement with all that its writer had seen: the events themselves.
    latch_ack_load = Acquire, not Relaxed, or "latch" fails;
}

fences! {
    /// Keeps the contents of a slot from being written before its mark says so.
    latest_claim_fence = Release, or "latest" fails;
    /// Keeps a slot's mark from being checked before its contents were read.
    latest_check_fence = Acquire, or "latest" fails;

    /// Keeps a publication from passing the look for sleepers.
    signal_publish_fence = SeqCst, or "signal" fails;
    /// Keeps the last look from passing the announcement that one is about to sleep.
    signal_sleep_fence = SeqCst, or "signal" fails;
}

/// All mutations: their names, and the name (or how it begins) of the models that fail under each.
#[cfg(feature = "mutations")]
pub fn mutations() -> impl Iterator<Item = (&'static str, &'static str)> {
    WEAKER_ORDERINGS.iter().chain(MISSING_FENCES).copied()
}

#[cfg(not(feature = "mutations"))]
const _: [&[(&str, &str)]; 2] = [WEAKER_ORDERINGS, MISSING_FENCES];

#[cfg(not(feature = "mutations"))]
#[inline(always)]
const fn is_mutated(_name: &str) -> bool {
    false
}

#[cfg(feature = "mutations")]
fn is_mutated(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<std::string::String>> = std::sync::OnceLock::new();
    CHOSEN
        .get_or_init(|| std::env::var("ASOF_HOT_MUTATION").ok())
        .as_deref()
        == Some(name)
}
