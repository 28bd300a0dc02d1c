//! Every memory ordering that a protocol depends on, by name.
//!
//! In one place, so that each can be weakened individually: the feature `mutations` weakens the one named by the
//! environment variable `ASOF_HOT_MUTATION` (`site=weaker`), and `ci/hot/soundness` shows that a loom model then fails.
//! An ordering that can be weakened with no model failing is either not needed or not tested; both are bugs. Accesses
//! written as `Relaxed` in place have nothing to weaken.

use crate::sync::{Ordering, fence};

macro_rules! orderings {
    ($($model:literal fails unless {$(
        $(#[doc = $doc:literal])*
        $name:ident = $strong:ident, not $($weak:ident)|+;
    )*})*) => {
        $($(
            $(#[doc = $doc])*
            #[inline(always)]
            #[cfg_attr(
                not(all(feature = "std", target_has_atomic = "64")),
                allow(dead_code) // waiting needs std, broadcasting 64 bits
            )]
            pub(crate) fn $name() -> Ordering {
                $(if is_mutated(concat!(stringify!($name), "=", stringify!($weak))) {
                    return Ordering::$weak;
                })+
                Ordering::$strong
            }
        )*)*
        /// Orderings that can be weakened: the name of the mutation, and the model that fails under it.
        const WEAKER_ORDERINGS: &[(&str, &str)] = &[
            $($($((concat!(stringify!($name), "=", stringify!($weak)), $model),)+)*)*
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
    "latest_is_never_torn" fails unless {
        /// A reader that sees a reused slot also sees that the head has passed it by far.
        latest_mark_store = Release, not Relaxed;
        /// Publishes a slot: a thread that sees the new head sees the slot's contents.
        latest_head_store = Release, not Relaxed;
        /// Sees what was written before the head moved.
        latest_head_load = Acquire, not Relaxed;
    }

    "ring_refuse" fails unless {
        /// Gives a filled slot to the consumer.
        ring_ready_store = Release, not Relaxed;
        /// Takes a filled slot, with its contents.
        ring_ready_load = Acquire, not Relaxed;
        /// Returns a read slot to the producer: the reads are done.
        ring_free_store = Release, not Relaxed;
        /// Takes a free slot: the consumer's reads are done.
        ring_free_load = Acquire, not Relaxed;
    }

    "ring_drop_oldest" fails unless {
        /// Takes a filled slot before the producer can drop it, with its contents (acquire); a thread that sees it
        /// taken sees that the one before was returned (release).
        ring_claim = AcqRel, not Acquire | Release;
    }

    "ring_drop_oldest_lapped" fails unless {
        /// Drops a sample: a thread that finds it gone finds the one that replaced it.
        ring_drop = Release, not Relaxed;
        /// Searches for the oldest sample that was not dropped.
        ring_scan_load = Acquire, not Relaxed;
        /// Publishes the newest position, after the slot was marked.
        ring_head_store = Release, not Relaxed;
        /// Sees the newest position, and the mark of its slot.
        ring_head_load = Acquire, not Relaxed;
    }

    "ring_takeover_drop_oldest" fails unless {
        /// On takeover, publishes the newest position of a ring whose last producer may have died before it could.
        ring_takeover_head_store = Release, not Relaxed;
    }

    "ring_survives_a_consumer" fails unless {
        /// Returns what a dead consumer was reading: its reads are done.
        ring_takeover_free_store = Release, not Relaxed;
    }

    "ring_takeover_refuse" fails unless {
        /// On takeover, searches for the oldest sample: none before one that was seen is missed.
        ring_takeover_load = Acquire, not Relaxed;
    }

    "snapshot" fails unless {
        /// Sees that a reader has taken the last offer: its reads of the previous buffer are done.
        snapshot_taken_load = Acquire, not Relaxed;
        /// Gives a buffer to a reader, with its contents.
        snapshot_offer_store = Release, not Relaxed;
        /// Gives a buffer to a reader in place of one that it has not taken.
        snapshot_exchange = Release, not Relaxed;
        /// Takes the newest buffer (acquire) and releases the last one (release).
        snapshot_take = AcqRel, not Acquire | Release;
        /// On takeover, sees what a reader has taken: its reads of the previous buffer are done.
        snapshot_takeover_load = Acquire, not Relaxed;
    }

    "broadcast_lossless" fails unless {
        /// Gives a filled slot to all readers.
        broadcast_ready_store = Release, not Relaxed;
    }

    "broadcast" fails unless {
        /// Begins to read a sample, with its contents (acquire); a thread that sees that also sees that the one before
        /// was returned (release).
        broadcast_pin = AcqRel, not Acquire | Release;
    }

    "broadcast_take_back" fails unless {
        /// Ends reading a sample: the reads are done.
        broadcast_unpin = Release, not Relaxed;
        /// Takes a slot out of use: the reads of all its readers are done (acquire); a thread that finds it gone finds
        /// the newer ones (release).
        broadcast_take_back = AcqRel, not Acquire | Release;
        /// Searches for the oldest sample, and for a slot that is not needed.
        broadcast_scan_load = Acquire, not Relaxed;
    }

    "broadcast_survives_a_reader" fails unless {
        /// Ends the reading of a dead reader: its reads are done.
        broadcast_takeover_unpin = Release, not Relaxed;
    }

    "broadcast_to_an_empty" fails unless {
        /// Publishes the newest position, after the slot was marked.
        broadcast_head_store = Release, not Relaxed;
        /// Sees the newest position, and the mark of its slot.
        broadcast_head_load = Acquire, not Relaxed;
    }

    "broadcast_survives_a_producer" fails unless {
        /// On takeover, publishes the newest position of a ring whose last producer may have died before it could.
        broadcast_takeover_head_store = Release, not Relaxed;
    }

    "mux" fails unless {
        /// Publishes when a level was last commanded, after the command was written.
        mux_stamp_store = Release, not Relaxed;
        /// Sees the command that belongs to a level's time, or a newer one.
        mux_stamp_load = Acquire, not Relaxed;
    }

    "latch" fails unless {
        /// Acknowledges events after they were read.
        latch_ack = Release, not Relaxed;
        /// Sees an acknowledgement with everything that its writer had seen: the events themselves.
        latch_ack_load = Acquire, not Relaxed;
    }

    "abandoned" fails unless {
        /// Publishes that an end was dropped, after everything that it did.
        end_leave_store = Release, not Relaxed;
        /// Sees that an end was dropped, and everything that it did.
        end_leave_load = Acquire, not Relaxed;
    }

    "signal_is_heard_at_once" fails unless {
        /// Begins a turn: a thread that sees it sees what was published before, and needs no second check.
        signal_wake = Release, not Relaxed;
        /// Sees a turn, with the publication that began it.
        signal_turn_load = Acquire, not Relaxed;
    }
}

fences! {
    /// Keeps the contents of a slot from being written before its mark says so.
    latest_claim_fence = Release, or "latest_is_never_torn" fails;
    /// Keeps a slot's mark from being checked before its contents were read.
    latest_check_fence = Acquire, or "latest_is_never_torn" fails;

    /// Keeps a publication from being reordered after the check for sleepers.
    signal_publish_fence = SeqCst, or "signal_is_never" fails;
    /// Keeps the last check from being reordered before the announcement of a sleeper.
    signal_sleep_fence = SeqCst, or "signal_is_never" fails;
}

/// Steps of a protocol that can be left out: a system call that acts as a fence, and a comparison.
const MISSING_STEPS: &[(&str, &str)] = &[
    ("signal_membarrier=Missing", "signal_is_never"),
    ("signal_newer_mark=Missing", "signal_given_twice"),
];

/// Whether a step is left out.
#[cfg(loom)]
pub(crate) fn is_left_out(step: &str) -> bool {
    is_mutated(step)
}

/// All mutations: their names, and the name (or its prefix) of the models that fail under each.
#[cfg(feature = "mutations")]
pub fn mutations() -> impl Iterator<Item = (&'static str, &'static str)> {
    WEAKER_ORDERINGS
        .iter()
        .chain(MISSING_FENCES)
        .chain(MISSING_STEPS)
        .copied()
}

#[cfg(not(feature = "mutations"))]
const _: [&[(&str, &str)]; 3] = [WEAKER_ORDERINGS, MISSING_FENCES, MISSING_STEPS];

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
