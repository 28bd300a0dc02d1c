//! What a latch promises.
#![cfg(not(loom))]

use asof_hot::{LatchObserver, LatchState, MonoStamp, NewEvents, event_latch};
use std::time::Duration;

fn is_hit(observer: &LatchObserver) -> bool {
    matches!(observer.state(MonoStamp(0)), LatchState::Contact(_))
}

#[test]
fn every_observer_sees_every_event() {
    let (mut trigger, mut resetter, mut one) = event_latch(None);
    let mut two = one.clone();
    trigger.trigger(1, MonoStamp(1));
    assert_eq!(one.new_events(), 1);
    resetter.reset(1).unwrap();
    trigger.trigger(1, MonoStamp(2));
    assert_eq!((one.new_events(), two.new_events()), (1, 2));
    assert_eq!((one.new_events(), two.new_events()), (0, 0));
}

#[test]
fn an_event_between_look_and_reset_stays() {
    let (mut trigger, mut resetter, observer) = event_latch(None);
    trigger.trigger(0b01, MonoStamp(10));
    let LatchState::Contact(seen) = observer.state(MonoStamp(20)) else {
        panic!("it was triggered")
    };
    trigger.trigger(0b10, MonoStamp(30));
    assert_eq!(resetter.reset(seen.count), Err(NewEvents { new: 1 }));
    let LatchState::Contact(left) = observer.state(MonoStamp(40)) else {
        panic!("one is left")
    };
    assert_eq!(
        (left.new, left.contacts, left.first, left.last),
        (1, 0b10, MonoStamp(30), MonoStamp(30))
    );
    resetter.reset(left.count).unwrap();
    assert_eq!(observer.state(MonoStamp(40)), LatchState::Clear);
}

#[test]
fn the_time_of_the_first_contact_is_kept_through_many() {
    let (mut trigger, mut resetter, observer) = event_latch(None);
    trigger.trigger(0b1000, MonoStamp(5));
    resetter.reset(1).unwrap();
    for event in 0..100 {
        trigger.trigger(1 << (event % 3), MonoStamp(100 + event));
    }
    let LatchState::Contact(contact) = observer.state(MonoStamp(300)) else {
        panic!("it was triggered")
    };
    assert_eq!(
        (contact.count, contact.new, contact.contacts),
        (101, 100, 0b111)
    );
    assert_eq!(
        (contact.first, contact.last),
        (MonoStamp(100), MonoStamp(199))
    );
    assert_eq!(contact.elapsed_since_first(MonoStamp(300)).as_nanos(), 200);
}

#[test]
fn a_reset_waits_for_quiet() {
    let (mut trigger, mut resetter, observer) = event_latch(None);
    let span = Duration::from_nanos(50);
    assert!(
        !resetter.reset_if_elapsed(MonoStamp(1000), span),
        "there is nothing to reset"
    );
    trigger.trigger(1, MonoStamp(100));
    trigger.trigger(1, MonoStamp(120));
    assert!(!resetter.reset_if_elapsed(MonoStamp(169), span));
    assert!(is_hit(&observer));
    assert!(resetter.reset_if_elapsed(MonoStamp(170), span));
    assert_eq!(observer.state(MonoStamp(170)), LatchState::Clear);
}

#[test]
fn an_event_that_never_was_cannot_be_acknowledged() {
    let (mut trigger, mut resetter, observer) = event_latch(None);
    trigger.trigger(1, MonoStamp(0));
    resetter.reset(1000).unwrap();
    trigger.trigger(1, MonoStamp(1));
    assert!(is_hit(&observer));
}

#[test]
fn a_silent_sensor_is_not_a_clear_one() {
    let (mut trigger, _, observer) = event_latch(Some(Duration::from_nanos(100)));
    assert_eq!(
        observer.state(MonoStamp(0)),
        LatchState::Silent { heard: None }
    );
    trigger.heartbeat(MonoStamp(1000));
    assert_eq!(observer.state(MonoStamp(1100)), LatchState::Clear);
    assert_eq!(
        observer.state(MonoStamp(1101)),
        LatchState::Silent {
            heard: Some(MonoStamp(1000))
        }
    );
    trigger.trigger(1, MonoStamp(1200));
    assert!(
        matches!(observer.state(MonoStamp(9999)), LatchState::Contact(_)),
        "a contact outlives the sensor"
    );
}

#[test]
fn times_do_not_wrap_within_centuries() {
    let (mut trigger, _, observer) = event_latch(None);
    let years = Duration::from_hours(100 * 365 * 24);
    trigger.trigger(1, MonoStamp(0));
    let now = MonoStamp(0).after(years);
    let LatchState::Contact(contact) = observer.state(now) else {
        panic!("it was triggered")
    };
    assert_eq!(contact.elapsed(now), years);
}

#[test]
fn a_heartbeat_from_a_clock_that_is_ahead_makes_no_sensor_clear() {
    let (mut trigger, _, observer) = event_latch(Some(Duration::from_nanos(100)));
    trigger.heartbeat(MonoStamp(1100));
    assert_eq!(
        observer.state(MonoStamp(1000)),
        LatchState::Clear,
        "heard after the observer looked at the clock"
    );
    let heard = Some(MonoStamp(1_000_000));
    trigger.heartbeat(MonoStamp(1_000_000));
    for now in [1000, 1101, 999_899] {
        assert_eq!(observer.state(MonoStamp(now)), LatchState::Silent { heard });
    }
}

#[test]
fn a_silence_beyond_all_time_is_still_one() {
    let (_trigger, _, observer) = event_latch(Some(Duration::MAX));
    assert_eq!(
        observer.state(MonoStamp(0)),
        LatchState::Silent { heard: None }
    );
}

#[test]
fn a_stamp_from_a_clock_that_is_ahead_is_not_fresh() {
    let limit = Duration::from_nanos(100);
    assert!(
        MonoStamp(900).is_fresh(MonoStamp(1000), limit)
            && MonoStamp(1100).is_fresh(MonoStamp(1000), limit)
    );
    assert!(!MonoStamp(899).is_fresh(MonoStamp(1000), limit));
    assert!(!MonoStamp(1101).is_fresh(MonoStamp(1000), limit));
    assert!(
        MonoStamp(1101).age(MonoStamp(1000)).is_zero(),
        "age cannot tell"
    );
}

#[test]
fn an_observer_that_has_looked_before_sees_events_and_resets_all_the_same() {
    let (mut trigger, mut resetter, observer) = event_latch(None);
    for count in 1..=5 {
        assert!(!is_hit(&observer) && !is_hit(&observer));
        trigger.trigger(1, MonoStamp(count));
        let other = observer.clone();
        assert!(is_hit(&observer) && is_hit(&other));
        resetter.reset(count).unwrap();
        assert!(!is_hit(&other));
    }
    // Hit, reset and hit again between two looks.
    trigger.trigger(1, MonoStamp(6));
    resetter.reset(6).unwrap();
    trigger.trigger(1, MonoStamp(7));
    assert!(is_hit(&observer));
}

#[test]
fn an_observer_that_has_looked_before_notices_that_the_sensor_dies() {
    let (mut trigger, mut resetter, observer) = event_latch(Some(Duration::from_nanos(100)));
    trigger.trigger(1, MonoStamp(1000));
    assert!(is_hit(&observer));
    resetter.reset(1).unwrap();
    assert_eq!(observer.state(MonoStamp(1050)), LatchState::Clear);
    assert_eq!(observer.state(MonoStamp(1050)), LatchState::Clear);
    let heard = Some(MonoStamp(1000));
    assert_eq!(
        observer.state(MonoStamp(1101)),
        LatchState::Silent { heard }
    );
}

#[test]
fn a_stamp_converts_to_signed_nanoseconds_and_back() {
    for nanos in [0, 1, 1_700_000_000_250_000_000, i64::MAX] {
        assert_eq!(MonoStamp::from_nanos(nanos).nanos(), nanos);
    }
    assert_eq!(
        MonoStamp::from_nanos(-5),
        MonoStamp(0),
        "before the clock's beginning"
    );
    assert_eq!(MonoStamp(u64::MAX).nanos(), i64::MAX);
}
