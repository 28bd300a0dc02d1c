//! Events that must not be missed: bumpers, cliffs, emergency buttons.
//!
//! Events are counted, not flagged. A reset acknowledges a count, so an event between a read and a reset is still there
//! after it, and observers do not hide events from each other.

use core::time::Duration;

use crate::handle::{Handle, Owned};
use crate::latest::{self, Latest, LatestReader};
use crate::order;
use crate::plain;
use crate::stamp::{MonoStamp, nanos};
use crate::stamp_cell::StampCell;
use crate::steps::Whole;
use crate::sync::{AtomicCounter, AtomicMark, Ordering, Padded, Word};

/// No heartbeat yet.
const NEVER: u64 = u64::MAX;
/// The number of events kept individually.
const MAX_KEPT_EVENTS: usize = 16;

plain! {
    /// One event, with the unacknowledged events before it as known to the trigger.
    struct Event {
        first_stamp: u64,
        first_count: u64,
        contacts: u32,
        contacts_since_first: u32,
    }
}

/// The memory of a latch.
#[repr(C)]
pub struct EventLatch {
    /// The generation is the count of events.
    events: Latest<Event, MAX_KEPT_EVENTS>,
    /// The count of acknowledged events.
    acknowledged: Padded<AtomicMark>,
    heart: Padded<StampCell>,
    /// Written when the latch is created, never again.
    silence: u64,
}

/// Creates a latch. If the trigger has given no sign of life for `silence`, not even a heartbeat, the state is
/// [`LatchState::Silent`]; `None` if it has no heartbeat. A heartbeat stamped further than that ahead of "now" comes
/// from a broken clock and is ignored.
///
/// ```
/// use asof_hot::{event_latch, MonoStamp, LatchState};
/// use std::time::Duration;
///
/// let (mut trigger, mut resetter, observer) = event_latch(None);
/// assert_eq!(observer.state(MonoStamp(50)), LatchState::Clear);
/// trigger.trigger(0b01, MonoStamp(100));
/// let LatchState::Contact(contact) = observer.state(MonoStamp(300)) else { unreachable!() };
/// assert_eq!(contact.elapsed(MonoStamp(300)), Duration::from_nanos(200));
///
/// trigger.trigger(0b10, MonoStamp(310)); // between the read and the reset
/// assert!(resetter.reset(contact.count).is_err(), "something new came");
/// assert!(matches!(observer.state(MonoStamp(320)), LatchState::Contact(_)), "and is not lost");
/// ```
///
/// There are three answers, so none of them is a bool: a loop that asks whether the bumper is hit, and drives on if it
/// is not, would drive on with a dead sensor.
///
/// ```compile_fail,E0308
/// # let (_trigger, _resetter, observer) = asof_hot::event_latch(None);
/// if observer.state(asof_hot::MonoStamp(300)) {
///     panic!("stop");
/// }
/// ```
#[cfg(feature = "alloc")]
pub fn event_latch(silence: Option<Duration>) -> (LatchTrigger, LatchResetter, LatchObserver) {
    let memory = Owned::new(EventLatch::new(silence));
    // SAFETY: the memory is new, so these are its only ends.
    unsafe {
        (
            LatchTrigger::attach(memory.clone()),
            LatchResetter::attach(memory.clone()),
            LatchObserver::attach(memory),
        )
    }
}

impl EventLatch {
    /// No event yet.
    pub fn new(silence: Option<Duration>) -> Self {
        EventLatch {
            events: Latest::new(),
            acknowledged: Padded(AtomicMark::new(0)),
            heart: Padded(StampCell::new(NEVER)),
            // A heartbeat of any length differs from no heartbeat.
            silence: silence.map_or(NEVER, |silence| nanos(silence).min(NEVER - 1)),
        }
    }

    /// How long after its last sign of life the sensor counts as silent; `None`: never.
    pub fn silence(&self) -> Option<Duration> {
        (self.silence != NEVER).then(|| Duration::from_nanos(self.silence))
    }

    /// The ends, which borrow this.
    pub fn split(
        &mut self,
    ) -> (
        LatchTrigger<&Self>,
        LatchResetter<&Self>,
        LatchObserver<&Self>,
    ) {
        let this = &*self;
        // SAFETY: borrowed mutably, so no other end is alive.
        unsafe {
            (
                LatchTrigger::attach(this),
                LatchResetter::attach(this),
                LatchObserver::attach(this),
            )
        }
    }

    /// The count of acknowledged events, then the count of events: in this order the first is never the larger.
    #[inline(always)]
    fn counts(&self) -> (Word, Word) {
        let acknowledged = self.acknowledged.load(order::latch_ack_load());
        let count = latest::Memory::head(&self.events).load(order::latest_head_load());
        #[cfg(loom)]
        assert!(
            acknowledged <= count,
            "an acknowledgement was seen before its event"
        );
        (acknowledged, count)
    }

    /// What came after the event number `acknowledged`, which was loaded with [`order::latch_ack_load`].
    fn contact(&self, acknowledged: Word) -> Option<Contact> {
        let acknowledged = acknowledged as u64;
        let events = LatestReader::attach(&self.events);
        let last = events.read()?;
        if last.generation <= acknowledged {
            return None;
        }
        let mut first = MonoStamp(last.value.first_stamp);
        let mut contacts = last.value.contacts_since_first;
        if last.value.first_count != acknowledged + 1 {
            // The acknowledgement came while the trigger read: its summary reaches too far back. The events themselves
            // are exact, as far as they are kept.
            contacts = last.value.contacts;
            for count in (acknowledged + 1..last.generation).rev() {
                let Some(event) = events.read_generation(count) else {
                    break;
                };
                first = event.stamp;
                contacts |= event.value.contacts;
            }
            if last.generation == acknowledged + 1 {
                first = last.stamp;
            }
        }
        Some(Contact {
            count: last.generation,
            new: last.generation - acknowledged,
            contacts,
            first,
            last: last.stamp,
        })
    }
}

/// The end that reports events. There is one.
pub struct LatchTrigger<H = Owned<EventLatch>> {
    memory: H,
    count: Word,
}

impl<H: Handle<Target = EventLatch>> LatchTrigger<H> {
    /// Becomes the trigger; continues counting where the last one stopped.
    ///
    /// # Safety
    /// No other trigger of this memory is alive.
    pub unsafe fn attach(memory: H) -> Self {
        let count = latest::Memory::head(&memory.events).load(Ordering::Relaxed);
        LatchTrigger { memory, count }
    }

    /// Reports an event: the contacts that were hit, as bits, and the time.
    #[inline]
    pub fn trigger(&mut self, contacts: u32, stamp: MonoStamp) {
        let memory = &*self.memory;
        let next = self.count as u64 + 1;
        let mut event = Event {
            first_stamp: stamp.0,
            first_count: next,
            contacts,
            contacts_since_first: contacts,
        };
        let acknowledged = memory.acknowledged.load(order::latch_ack_load()) as u64;
        if acknowledged + 1 < next
            && let Some(last) = LatestReader::attach(&memory.events).read()
        {
            event.first_stamp = last.value.first_stamp;
            event.first_count = last.value.first_count;
            event.contacts_since_first |= last.value.contacts_since_first;
            if last.value.first_count <= acknowledged {
                // Some of the events summarized by the last one were acknowledged since.
                event.first_stamp = last.stamp.0;
                event.first_count = next - 1;
                event.contacts_since_first = contacts | last.value.contacts;
            }
        }
        // SAFETY: we are the only writer, and the source is an event.
        self.count = unsafe {
            latest::publish(
                &memory.events,
                self.count,
                (&raw const event).cast(),
                stamp,
                &mut Whole,
            )
        };
        self.heartbeat(stamp);
    }

    /// A sign of life of the sensor: nothing was hit.
    #[inline]
    pub fn heartbeat(&mut self, stamp: MonoStamp) {
        self.memory
            .heart
            .store(stamp.0.min(NEVER - 1), Ordering::Relaxed);
    }

    /// The number of events reported.
    pub fn count(&self) -> u64 {
        self.count as u64
    }
}

/// The end that acknowledges events. There is one.
pub struct LatchResetter<H = Owned<EventLatch>> {
    memory: H,
}

/// There are newer events that were not seen; the latch stays triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEvents {
    /// The number of newer events.
    pub new: u64,
}

impl core::fmt::Display for NewEvents {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} newer events were not seen: handle them first",
            self.new
        )
    }
}

impl core::error::Error for NewEvents {}

impl<H: Handle<Target = EventLatch>> LatchResetter<H> {
    /// Becomes the resetter.
    ///
    /// # Safety
    /// No other resetter of this memory is alive.
    pub unsafe fn attach(memory: H) -> Self {
        LatchResetter { memory }
    }

    /// Acknowledges all events up to the count `seen`.
    ///
    /// # Errors
    /// [`NewEvents`] if there are newer ones; the seen ones are acknowledged all the same.
    pub fn reset(&mut self, seen: u64) -> Result<(), NewEvents> {
        let (acknowledged, count) = self.memory.counts();
        // Future events cannot be acknowledged.
        let seen = (seen as Word).min(count).max(acknowledged);
        self.memory.acknowledged.store(seen, order::latch_ack());
        match count - seen {
            0 => Ok(()),
            new => Err(NewEvents { new: new as u64 }),
        }
    }

    /// Acknowledges all events if the last was at least `span` ago; returns whether it did and the latch is clear.
    pub fn reset_if_elapsed(&mut self, now: MonoStamp, span: Duration) -> bool {
        let (acknowledged, _) = self.memory.counts();
        match self.memory.contact(acknowledged) {
            Some(contact) if contact.elapsed(now) >= span => self.reset(contact.count).is_ok(),
            _ => false,
        }
    }
}

/// The state of a sensor: only [`Clear`](Self::Clear) says that it is there and reports nothing.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatchState {
    /// No unacknowledged events.
    Clear,
    /// Events that were not acknowledged.
    Contact(Contact),
    /// Nothing to acknowledge, but the sensor has been silent for too long, or its clock is ahead.
    Silent {
        /// Its last sign of life, if any; by its clock.
        heard: Option<MonoStamp>,
    },
}

/// Events that were not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// The count of all events so far: pass it to [`reset`](LatchResetter::reset) after handling them.
    pub count: u64,
    /// The number of new ones.
    pub new: u64,
    /// The contacts that were hit, as bits.
    pub contacts: u32,
    /// The time of the first. If more than fifteen came while one of them was being acknowledged, it may be the time of
    /// an older one.
    pub first: MonoStamp,
    /// The time of the last.
    pub last: MonoStamp,
}

impl Contact {
    /// How long ago the last event was.
    pub const fn elapsed(&self, now: MonoStamp) -> Duration {
        self.last.age(now)
    }

    /// How long ago the first event was.
    pub const fn elapsed_since_first(&self, now: MonoStamp) -> Duration {
        self.first.age(now)
    }
}

/// An observing end. It only loads, so there may be any number.
pub struct LatchObserver<H = Owned<EventLatch>> {
    memory: H,
    seen: Word,
    /// The count of acknowledged events when this observer last read it; it may have grown since, but not beyond the
    /// count of events. Not part of the protocol, so the processor's atomic also in a model.
    acknowledged: AtomicCounter,
}

impl<H: Clone> Clone for LatchObserver<H> {
    fn clone(&self) -> Self {
        LatchObserver {
            memory: self.memory.clone(),
            seen: self.seen,
            acknowledged: AtomicCounter::new(self.acknowledged.load(Ordering::Relaxed)),
        }
    }
}

impl<H: Handle<Target = EventLatch>> LatchObserver<H> {
    /// A new observer.
    pub fn attach(memory: H) -> Self {
        LatchObserver {
            memory,
            seen: 0,
            acknowledged: AtomicCounter::new(0),
        }
    }

    /// The number of events since this observer's last call, acknowledged or not.
    #[inline(always)]
    pub fn new_events(&mut self) -> u64 {
        let count = latest::Memory::head(&self.memory.events).load(order::latest_head_load());
        let new = count.wrapping_sub(self.seen);
        self.seen = count;
        new as u64
    }

    /// The total number of events.
    pub fn count(&self) -> u64 {
        self.memory.counts().1 as u64
    }

    /// How long after its last sign of life the sensor counts as silent; `None`: never.
    pub fn silence(&self) -> Option<Duration> {
        self.memory.silence()
    }

    /// The state at `now`: two loads of shared memory while there are no new events.
    #[inline(always)]
    pub fn state(&self, now: MonoStamp) -> LatchState {
        // Nothing is read based on this, and acknowledgements do not exceed the events: if there are no more events
        // than were known to be acknowledged, there is nothing to acquire.
        let count = latest::Memory::head(&self.memory.events).load(Ordering::Relaxed);
        if count != self.acknowledged.load(Ordering::Relaxed) as Word
            && let Some(contact) = self.unacknowledged()
        {
            return LatchState::Contact(contact);
        }
        let silence = self.memory.silence;
        if silence != NEVER {
            let heard = self.memory.heart.load(Ordering::Relaxed);
            if heard == NEVER || !MonoStamp(heard).is_near(now, silence) {
                let heard = (heard != NEVER).then_some(MonoStamp(heard));
                return LatchState::Silent { heard };
            }
        }
        LatchState::Clear
    }

    #[cold]
    fn unacknowledged(&self) -> Option<Contact> {
        let (acknowledged, _) = self.memory.counts();
        self.acknowledged
            .store(acknowledged as _, Ordering::Relaxed);
        self.memory.contact(acknowledged)
    }
}
