//! The event latch.

use core::ffi::c_char;
use core::time::Duration;

use super::{boxed, close, options, text};
use crate::latch::{EventLatch, LatchObserver, LatchResetter, LatchState, LatchTrigger};
use crate::shm::{Claimed, Mapped, Segment};
use crate::stamp::MonoStamp;

/// Reports events.
pub struct AsofLatchTrigger(LatchTrigger<Claimed<EventLatch>>);
/// Acknowledges events.
pub struct AsofLatchResetter(LatchResetter<Claimed<EventLatch>>);
/// Observes events.
pub struct AsofLatchObserver(LatchObserver<Mapped<EventLatch>>);

/// What a sensor says.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsofLatchKind {
    /// No unacknowledged events.
    Clear = 0,
    /// Events that were not acknowledged.
    Contact = 1,
    /// Nothing to acknowledge, but the sensor has been silent for too long.
    Silent = 2,
}

/// Events that were not acknowledged.
#[repr(C)]
#[derive(Default)]
pub struct AsofLatchContact {
    /// The count of all events so far: pass it to `asof_latch_reset` after handling these.
    pub count: u64,
    /// The number of new ones.
    pub new_count: u64,
    /// The time of the first.
    pub first: u64,
    /// The time of the last. For a silent sensor: its last sign of life, 0 if never.
    pub last: u64,
    /// The contacts that were hit, as bits.
    pub contacts: u32,
}

/// The state of a sensor. A struct, so that nobody asks it as a bool: of the two answers that are no contact, one is a
/// dead sensor.
#[repr(C)]
pub struct AsofLatchState {
    /// What it says: only `Clear` is a sensor that is there and reports nothing.
    pub kind: AsofLatchKind,
    /// The unacknowledged events.
    pub contact: AsofLatchContact,
}

/// Opens or creates a latch for reporting events; it is silent after `silence` nanoseconds without a sign of life, 0
/// for never. Null if it exists with another silence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_trigger_open(
    name: *const c_char,
    silence: u64,
) -> *mut AsofLatchTrigger {
    let silence = (silence != 0).then(|| Duration::from_nanos(silence));
    // SAFETY: upheld by the caller.
    let name = unsafe { text(name) };
    let opened = name.and_then(|name| options().open_or_create::<EventLatch>(name, silence));
    boxed(opened.and_then(|segment| segment.trigger().map(AsofLatchTrigger)))
}

/// Reports an event: the contacts, as bits, and the time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_trigger(
    trigger: *mut AsofLatchTrigger,
    contacts: u32,
    stamp: u64,
) {
    // SAFETY: upheld by the caller.
    unsafe { &mut *trigger }
        .0
        .trigger(contacts, MonoStamp(stamp));
}

/// A sign of life of the sensor: nothing was hit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_heartbeat(trigger: *mut AsofLatchTrigger, stamp: u64) {
    // SAFETY: upheld by the caller.
    unsafe { &mut *trigger }.0.heartbeat(MonoStamp(stamp));
}

/// Closes the reporting end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_trigger_close(trigger: *mut AsofLatchTrigger) {
    // SAFETY: upheld by the caller.
    unsafe { close(trigger) }
}

/// Opens an existing latch for observing events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_observer_open(name: *const c_char) -> *mut AsofLatchObserver {
    // SAFETY: upheld by the caller.
    let segment = unsafe { text(name) }.and_then(Segment::<EventLatch>::open_read_only);
    boxed(segment.map(|segment| AsofLatchObserver(segment.observer())))
}

/// The number of events since this observer's last call, acknowledged or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_new_events(observer: *mut AsofLatchObserver) -> u64 {
    // SAFETY: upheld by the caller.
    unsafe { &mut *observer }.0.new_events()
}

/// The total number of events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_count(observer: *const AsofLatchObserver) -> u64 {
    // SAFETY: upheld by the caller.
    unsafe { &*observer }.0.count()
}

/// The state at `now`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_state(
    observer: *const AsofLatchObserver,
    now: u64,
) -> AsofLatchState {
    let mut contact = AsofLatchContact::default();
    // SAFETY: upheld by the caller.
    let kind = match unsafe { &*observer }.0.state(MonoStamp(now)) {
        LatchState::Clear => AsofLatchKind::Clear,
        LatchState::Contact(found) => {
            contact = AsofLatchContact {
                count: found.count,
                new_count: found.new,
                first: found.first.0,
                last: found.last.0,
                contacts: found.contacts,
            };
            AsofLatchKind::Contact
        }
        LatchState::Silent { heard } => {
            contact.last = heard.unwrap_or_default().0;
            AsofLatchKind::Silent
        }
    };
    AsofLatchState { kind, contact }
}

/// Closes an observing end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_observer_close(observer: *mut AsofLatchObserver) {
    // SAFETY: upheld by the caller.
    unsafe { close(observer) }
}

/// Opens an existing latch for acknowledging events; only its trigger creates it, since that sets the silence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_resetter_open(name: *const c_char) -> *mut AsofLatchResetter {
    // SAFETY: upheld by the caller.
    let opened = unsafe { text(name) }.and_then(Segment::<EventLatch>::open);
    boxed(opened.and_then(|segment| segment.resetter().map(AsofLatchResetter)))
}

/// The nanoseconds without a sign of life after which the sensor counts as silent; 0 for never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_silence(observer: *const AsofLatchObserver) -> u64 {
    // SAFETY: upheld by the caller.
    let silence = unsafe { &*observer }.0.silence();
    silence.map_or(0, |silence| silence.as_nanos() as u64)
}

/// Acknowledges all events up to `count`; false if there are newer ones, which stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_reset(resetter: *mut AsofLatchResetter, count: u64) -> bool {
    // SAFETY: upheld by the caller.
    unsafe { &mut *resetter }.0.reset(count).is_ok()
}

/// Acknowledges all events if the last was at least `span` nanoseconds before `now`; returns whether it did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_reset_if_elapsed(
    resetter: *mut AsofLatchResetter,
    now: u64,
    span: u64,
) -> bool {
    // SAFETY: upheld by the caller.
    let resetter = unsafe { &mut (*resetter).0 };
    resetter.reset_if_elapsed(MonoStamp(now), Duration::from_nanos(span))
}

/// Closes the acknowledging end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_latch_resetter_close(resetter: *mut AsofLatchResetter) {
    // SAFETY: upheld by the caller.
    unsafe { close(resetter) }
}
