//! Windows of recent messages, and the synchronizer that joins topics by approximate time.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use asof_window::sync::{ApproximateTime, SharedStats, SharedSynchronizer};
use asof_window::{
    Bounds, Entry, Insertion, Interpolate, PoseSample, Rotation, Window, WindowStats,
};

use crate::border::{
    AsofStatus, Failure, Outcome, array_mut, call, free, given, hand_out, held, put,
};
use crate::tf::AsofTransform;

/// Is called once for a value that is no longer needed, on any thread. It must not throw.
pub type AsofRelease = Option<unsafe extern "C" fn(value: *mut c_void)>;

/// Is called with one message of each topic, in the order of the topics, on the thread that added the last of them. The values stay
/// until it returns. It must not throw.
pub type AsofSetCallback =
    Option<unsafe extern "C" fn(context: *mut c_void, set: *const AsofEntry, count: usize)>;

/// The newest part of a stream of messages, by their stamps. Any number of threads may use it at once.
pub struct AsofWindow {
    window: Window<Item>,
}

/// Joins topics by approximate time, as message_filters does. Any number of threads may use it at once.
pub struct AsofSynchronizer {
    shared: SharedSynchronizer<Item, ApproximateTime<Item>>,
    topics: usize,
}

/// A message of a window. It stays after the window has dropped it, until `asof_entry_release`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AsofEntry {
    /// Its stamp.
    pub stamp: i64,
    /// The value that was inserted.
    pub value: *mut c_void,
    /// What keeps it; NULL if nothing has to be released.
    pub hold: *const c_void,
}

/// How much a window keeps. 0 is without a bound; one of the three is needed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AsofWindowBounds {
    /// The most messages.
    pub count: u64,
    /// How much older than the newest the oldest may be, in nanoseconds.
    pub age: u64,
    /// Starts over when a message is older than the newest by more than this: for clocks that go back.
    pub restart_after: u64,
}

/// Counts of what a window holds and of what it did not keep.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct AsofWindowStats {
    /// Messages in it.
    pub messages: u64,
    /// Messages that were inserted.
    pub inserted: u64,
    /// Of those, the ones that came after a message with a later stamp.
    pub late: u64,
    /// Messages dropped to stay within the bounds.
    pub evicted: u64,
    /// Messages that were refused: too late or too large.
    pub refused: u64,
    /// How often the clock went back and the window started over.
    pub restarts: u64,
    /// Messages dropped because their stamp was far ahead of all others while the stream continued where it was.
    pub future: u64,
    /// Messages with stamp zero, inserted or not.
    pub zero: u64,
    /// Messages refused or replaced because another has the same stamp.
    pub duplicates: u64,
}

/// Counts of what a synchronizer told, and of what it did not.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct AsofSynchronizerStats {
    /// Sets that the callback was called with, or is being called with.
    pub sets: u64,
    /// Sets that wait for the callback.
    pub waiting: u64,
    /// Sets dropped because too many waited for a busy callback.
    pub sets_dropped: u64,
    /// Messages that are in no set: another one fitted better, too many waited, or it was cleared.
    pub unmatched: u64,
}

/// A value of the caller's.
struct Item {
    value: *mut c_void,
    release: AsofRelease,
    pose: Option<PoseSample>,
}

// SAFETY: the caller promises that values may be used and released on any thread; here they are only passed on.
unsafe impl Send for Item {}
// SAFETY: as above.
unsafe impl Sync for Item {}

impl Drop for Item {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the caller promises that it can be called with the value, and this is the one time.
            unsafe { release(self.value) }
        }
    }
}

impl From<&Window<Item>> for AsofWindowStats {
    fn from(window: &Window<Item>) -> Self {
        let WindowStats {
            inserted,
            late,
            evicted,
            // Of those that were evicted.
            crowded_out: _,
            refused,
            restarts,
            future,
            zero,
            duplicates,
        } = window.stats();
        AsofWindowStats {
            messages: window.len() as u64,
            inserted,
            late,
            evicted,
            refused,
            restarts,
            future,
            zero,
            duplicates,
        }
    }
}

impl From<SharedStats> for AsofSynchronizerStats {
    fn from(stats: SharedStats) -> Self {
        AsofSynchronizerStats {
            sets: stats.delivered,
            waiting: stats.waiting as u64,
            sets_dropped: stats.sets_dropped,
            unmatched: stats.unmatched,
        }
    }
}

fn lend(entry: Entry<Item>) -> AsofEntry {
    AsofEntry {
        stamp: entry.stamp.nanos(),
        value: entry.value.value,
        hold: Arc::into_raw(entry.value).cast(),
    }
}

/// A new window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_window_new(
    bounds: *const AsofWindowBounds,
    window: *mut *mut AsofWindow,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let given = unsafe { given(bounds) }.ok_or(Failure::invalid("the bounds are NULL"))?;
        if given.count == 0 && given.age == 0 {
            return Err(Failure::invalid(
                "a window needs a bound: a count or an age",
            ));
        }
        let count = usize::try_from(given.count).unwrap_or(usize::MAX);
        let mut bounds = Bounds::count(if count == 0 { usize::MAX } else { count });
        if given.age > 0 {
            bounds = bounds.and_age(Duration::from_nanos(given.age));
        }
        if given.restart_after > 0 {
            bounds = bounds.and_restart_after(Duration::from_nanos(given.restart_after));
        }
        let window_of = AsofWindow {
            window: Window::new(bounds),
        };
        // SAFETY: upheld by the caller.
        unsafe { hand_out(window, window_of) }
    })
}

/// Frees a window. Entries that were taken out of it stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_window_free(window: *mut *mut AsofWindow) {
    // SAFETY: upheld by the caller.
    unsafe { free(window) }
}

/// Inserts a value. It belongs to the window, also if it is refused: `release`, which may be NULL, is called when it is no longer
/// needed. `ASOF_STATUS_TOO_OLD` if it is older than everything in a full window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_window_insert(
    window: *const AsofWindow,
    stamp: i64,
    value: *mut c_void,
    release: AsofRelease,
) -> AsofStatus {
    // Before the handle is looked at, so that it is released in any case.
    let item = Item {
        value,
        release,
        pose: None,
    };
    // SAFETY: upheld by the caller.
    call(|| insert(unsafe { held(window) }?, stamp, item))
}

/// Inserts a pose, for `asof_window_interpolate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_window_insert_pose(
    window: *const AsofWindow,
    stamp: i64,
    pose: *const AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (window, pose) = unsafe { (held(window)?, given(pose)) };
        let pose = pose.ok_or(Failure::invalid("the pose is NULL"))?;
        let square: f64 = pose.rotation.iter().map(|part| part * part).sum();
        let is_finite = pose.translation.iter().all(|part| part.is_finite());
        // As in the transform buffer; NaN is refused too.
        let is_unit = (square - 1.0).abs() < 0.01;
        if !(is_finite && is_unit) {
            return Err(Failure::invalid(
                "the pose is not finite, or its rotation is not a unit quaternion",
            ));
        }
        let item = Item {
            value: null_mut(),
            release: None,
            pose: Some(PoseSample {
                position: pose.translation,
                rotation: Rotation(pose.rotation),
            }),
        };
        insert(window, stamp, item)
    })
}

fn insert(window: &AsofWindow, stamp: i64, item: Item) -> Outcome {
    let (status, text) = match window.window.insert(stamp.into(), item) {
        Insertion::Kept => return Ok(()),
        Insertion::TooLate => (
            AsofStatus::TooOld,
            "the message is older than everything in the full window",
        ),
        Insertion::TooLarge => (AsofStatus::Full, "the message is larger than the window"),
        Insertion::Duplicate => (AsofStatus::Refused, "another message has its stamp"),
        Insertion::ZeroStamp => (AsofStatus::Refused, "its stamp is zero"),
    };
    Err(Failure::fixed(status, text))
}

/// The value of an entry, or that there is none.
///
/// # Safety
/// The place is NULL or valid for writing.
unsafe fn found(entry: Option<Entry<Item>>, place: *mut AsofEntry) -> Outcome {
    if place.is_null() {
        return Err(Failure::invalid("the place for the entry is NULL"));
    }
    let entry = entry.ok_or(Failure::fixed(
        AsofStatus::NoData,
        "the window has no such message",
    ))?;
    // SAFETY: upheld by the caller.
    unsafe { put(place, lend(entry)) }
}

/// The message whose stamp is nearest to a time. `ASOF_STATUS_NO_DATA` if there is none; else `asof_entry_release` is due, as for
/// all entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_window_nearest(
    window: *const AsofWindow,
    stamp: i64,
    entry: *mut AsofEntry,
) -> AsofStatus {
    // SAFETY: upheld by the caller.
    call(|| unsafe { found(held(window)?.window.nearest(stamp.into()), entry) })
}

/// The last message at or before a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_window_before(
    window: *const AsofWindow,
    stamp: i64,
    entry: *mut AsofEntry,
) -> AsofStatus {
    // SAFETY: upheld by the caller.
    call(|| unsafe { found(held(window)?.window.before(stamp.into()), entry) })
}

/// The first message at or after a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_window_after(
    window: *const AsofWindow,
    stamp: i64,
    entry: *mut AsofEntry,
) -> AsofStatus {
    // SAFETY: upheld by the caller.
    call(|| unsafe { found(held(window)?.window.after(stamp.into()), entry) })
}

/// The messages from one time to another, both in: the first `room` of them. `count` is how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_window_interval(
    window: *const AsofWindow,
    start: i64,
    end: i64,
    entries: *mut AsofEntry,
    room: usize,
    count: *mut usize,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (window, places) = unsafe { (held(window)?, array_mut(entries, room)?) };
        let between = window.window.interval(start.into(), end.into());
        // SAFETY: upheld by the caller.
        unsafe { put(count, between.len()) }?;
        for (place, entry) in places.iter_mut().zip(between) {
            *place = lend(entry);
        }
        Ok(())
    })
}

/// The pose at a time, between those that `asof_window_insert_pose` inserted before and after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_window_interpolate(
    window: *const AsofWindow,
    stamp: i64,
    pose: *mut AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let window = unsafe { held(window) }?;
        let bracket = window.window.bracket(stamp.into()).ok_or(Failure::fixed(
            AsofStatus::NoData,
            "the window has no messages around that time",
        ))?;
        let poses = (bracket.before.pose, bracket.after.pose);
        let (Some(before), Some(after)) = poses else {
            return Err(Failure::invalid(
                "the messages around that time are not poses",
            ));
        };
        let between = before.interpolate(&after, bracket.fraction);
        let found = AsofTransform {
            rotation: between.rotation.0,
            translation: between.position,
        };
        // SAFETY: upheld by the caller.
        unsafe { put(pose, found) }
    })
}

/// Drops all messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_window_clear(window: *const AsofWindow) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        unsafe { held(window) }?.window.clear();
        Ok(())
    })
}

/// Counts of what is held and what was not kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_window_stats(
    window: *const AsofWindow,
    stats: *mut AsofWindowStats,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        unsafe { put(stats, (&held(window)?.window).into()) }
    })
}

/// Gives an entry back. NULL, and one that was given back, are fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_entry_release(entry: *mut AsofEntry) {
    if entry.is_null() {
        return;
    }
    // SAFETY: the place is valid by the crate's contract.
    let hold = unsafe {
        let hold = (*entry).hold;
        (*entry).hold = null_mut();
        (*entry).value = null_mut();
        hold
    };
    if !hold.is_null() {
        // SAFETY: it came from `Arc::into_raw` in `lend`, and is given back once.
        let item = unsafe { Arc::from_raw(hold.cast::<Item>()) };
        call(|| {
            drop(item);
            Ok(())
        });
    }
}

/// The callback of a synchronizer and its context.
struct Receiver {
    callback: unsafe extern "C" fn(*mut c_void, *const AsofEntry, usize),
    context: *mut c_void,
}

// SAFETY: the caller promises that the callback may be called with its context on any thread.
unsafe impl Send for Receiver {}
// SAFETY: as above; sets are delivered one at a time.
unsafe impl Sync for Receiver {}

impl Receiver {
    fn tell(&self, set: &[AsofEntry]) {
        // SAFETY: upheld by the caller, who gave both.
        unsafe { (self.callback)(self.context, set.as_ptr(), set.len()) }
    }
}

/// A synchronizer of `topics` topics, each with at most `queue` messages waiting. A set is not wider than `max_interval`
/// nanoseconds; 0 for any width.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_synchronizer_new(
    topics: usize,
    queue: usize,
    max_interval: u64,
    callback: AsofSetCallback,
    context: *mut c_void,
    synchronizer: *mut *mut AsofSynchronizer,
) -> AsofStatus {
    call(|| {
        if !(1..=1024).contains(&topics) || !(1..=1 << 24).contains(&queue) {
            return Err(Failure::invalid(
                "a synchronizer has 1 to 1024 topics, and 1 to 16777216 messages waiting",
            ));
        }
        let callback = callback.ok_or(Failure::invalid("the callback is NULL"))?;
        let mut approximate = ApproximateTime::new(topics, queue);
        if max_interval > 0 {
            approximate = approximate.with_max_interval(Duration::from_nanos(max_interval));
        }
        let receiver = Receiver { callback, context };
        let shared = SharedSynchronizer::sets(approximate, move |set| {
            let entry = |message: &asof_window::sync::Stamped<Item>| AsofEntry {
                stamp: message.stamp.nanos(),
                value: message.value.value,
                hold: null_mut(),
            };
            receiver.tell(&set.iter().map(entry).collect::<Vec<_>>());
        });
        // SAFETY: upheld by the caller.
        unsafe { hand_out(synchronizer, AsofSynchronizer { shared, topics }) }
    })
}

/// Frees a synchronizer. No other thread may be adding to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_synchronizer_free(synchronizer: *mut *mut AsofSynchronizer) {
    // SAFETY: upheld by the caller.
    unsafe { free(synchronizer) }
}

/// Adds a message of a topic, counted from 0. The value belongs to the synchronizer, also on failure: see `asof_window_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_synchronizer_add(
    synchronizer: *const AsofSynchronizer,
    topic: usize,
    stamp: i64,
    value: *mut c_void,
    release: AsofRelease,
) -> AsofStatus {
    let item = Item {
        value,
        release,
        pose: None,
    };
    call(|| {
        // SAFETY: upheld by the caller.
        let synchronizer = unsafe { held(synchronizer) }?;
        if topic >= synchronizer.topics {
            return Err(Failure::invalid("the synchronizer has no such topic"));
        }
        synchronizer.shared.add(topic, stamp.into(), item);
        Ok(())
    })
}

/// Drops all messages that wait for a set, as for a clock that was set back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_synchronizer_clear(
    synchronizer: *const AsofSynchronizer,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        unsafe { held(synchronizer) }?.shared.clear();
        Ok(())
    })
}

/// Counts of what was told and what was not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_synchronizer_stats(
    synchronizer: *const AsofSynchronizer,
    stats: *mut AsofSynchronizerStats,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        unsafe { put(stats, held(synchronizer)?.shared.stats().into()) }
    })
}
