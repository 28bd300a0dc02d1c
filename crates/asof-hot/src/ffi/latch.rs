//! The event latch.

use core::ffi::c_char;
use core::time::Duration;

use super::{boxed, close, options, tell, text};
use crate::latch::{EventLatch, LatchObserver, LatchResetter, LatchState, LatchTrigger};
use crate::shm::{Claimed, Mapped, Segment};
use crate::stamp::MonoStamp;

/// Reports events.
pub struct AsofLatchTrigger(LatchTrigger<Claimed<EventLatch>>);
/// Acknowledges events.
pub struct AsofLatchResetter(LatchResetter<Claimed<EventLatch>>);
/// Looks at events.
pub struct AsofLatchObserver(LatchObserver<Mapped<EventLatch>>);

/// What there is to say about a sensor.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsofLatchState {
    /// Nothing that was not acknowledged.
    Clear = 0,
    /// Events that were not acknowledged.
    Contact = 1,
    /// Nothing to acknowledge, but nothing was heard from the sensor for too long either.
    Silent = 2,
}

/// Events that were not acknowledged.
#[repr(C)]
#[derive(Default)]
pub struct AsofLatchContact {
    /// The count of all events so far: what to reset once these were dealt with.
    pub count: u64,
    /// How many of them are new.
    pub new_count: u64,
    /// When the first of them was.
    pub first: u64,
    /// When the last of them was. Of a silent sensor: when it was last heard, 0 if never.
    pub last: u64,
    /// Which contacts were hit in them, as bits.
    pub contacts: u32,
}

/// Opens (or makes) a latch to report events; after `silence` nanoseconds without a sign of life it is silent, 0 for never.
/// Null if it is there with another silence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_trigger_open(
    name: *const c_char,
    silence: u64,
) -> *mut AsofLatchTrigger {
    let silence = (silence != 0).then(|| Duration::from_nanos(silence));
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) };
    let opened = name.and_then(|name| options().open_or_create::<EventLatch>(name, silence));
    boxed(opened.and_then(|segment| segment.trigger().map(AsofLatchTrigger)))
}

/// Reports an event: which contacts, as bits, and when.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_trigger(
    trigger: *mut AsofLatchTrigger,
    contacts: u32,
    stamp: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { &mut *trigger }
        .0
        .trigger(contacts, MonoStamp(stamp));
}

/// Says that the sensor is alive, and that nothing was hit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_heartbeat(trigger: *mut AsofLatchTrigger, stamp: u64) {
    // SAFETY: the caller's promise.
    unsafe { &mut *trigger }.0.heartbeat(MonoStamp(stamp));
}

/// Gives the end that reports up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_trigger_close(trigger: *mut AsofLatchTrigger) {
    // SAFETY: the caller's promise.
    unsafe { close(trigger) }
}

/// Opens a latch to look at events; it must be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_observer_open(name: *const c_char) -> *mut AsofLatchObserver {
    // SAFETY: the caller's promise.
    let segment = unsafe { text(name) }.and_then(Segment::<EventLatch>::open_read_only);
    boxed(segment.map(|segment| AsofLatchObserver(segment.observer())))
}

/// Whether there are events that were not acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_is_triggered(observer: *const AsofLatchObserver) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*observer }.0.is_triggered()
}

/// How many events came since this observer last asked, acknowledged or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_new_events(observer: *mut AsofLatchObserver) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &mut *observer }.0.new_events()
}

/// How many events there were in all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_count(observer: *const AsofLatchObserver) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*observer }.0.count()
}

/// Everything there is to say as of `now`; the events, if there are some, go to `contact`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_state(
    observer: *const AsofLatchObserver,
    now: u64,
    contact: *mut AsofLatchContact,
) -> AsofLatchState {
    // SAFETY: the caller's promise.
    let state = unsafe { &*observer }.0.state(MonoStamp(now));
    let (kind, found) = match state {
        LatchState::Clear => (AsofLatchState::Clear, AsofLatchContact::default()),
        LatchState::Contact(found) => {
            let found = AsofLatchContact {
                count: found.count,
                new_count: found.new,
                first: found.first.0,
                last: found.last.0,
                contacts: found.contacts,
            };
            (AsofLatchState::Contact, found)
        }
        LatchState::Silent { heard } => {
            let found = AsofLatchContact {
                last: heard.unwrap_or_default().0,
                ..AsofLatchContact::default()
            };
            (AsofLatchState::Silent, found)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { tell(contact, found) };
    kind
}

/// Closes an end that looks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_observer_close(observer: *mut AsofLatchObserver) {
    // SAFETY: the caller's promise.
    unsafe { close(observer) }
}

/// Opens a latch to acknowledge events; it must be there, since the sensor's silence is for its trigger to say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_resetter_open(name: *const c_char) -> *mut AsofLatchResetter {
    // SAFETY: the caller's promise.
    let opened = unsafe { text(name) }.and_then(Segment::<EventLatch>::open);
    boxed(opened.and_then(|segment| segment.resetter().map(AsofLatchResetter)))
}

/// After how many nanoseconds without a sign of life the sensor counts as silent; 0 for never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_silence(observer: *const AsofLatchObserver) -> u64 {
    // SAFETY: the caller's promise.
    let silence = unsafe { &*observer }.0.silence();
    silence.map_or(0, |silence| silence.as_nanos() as u64)
}

/// Acknowledges all events up to `count`; false if more came by now, which stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_reset(resetter: *mut AsofLatchResetter, count: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &mut *resetter }.0.reset(count).is_ok()
}

/// Acknowledges what there is if the last event was at least `span` nanoseconds before `now`; whether it did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_reset_if_elapsed(
    resetter: *mut AsofLatchResetter,
    now: u64,
    span: u64,
) -> bool {
    // SAFETY: the caller's promise.
    let resetter = unsafe { &mut (*resetter).0 };
    resetter.reset_if_elapsed(MonoStamp(now), Duration::from_nanos(span))
}

/// Gives the end that acknowledges up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_resetter_close(resetter: *mut AsofLatchResetter) {
    // SAFETY: the caller's promise.
    unsafe { close(resetter) }
}
