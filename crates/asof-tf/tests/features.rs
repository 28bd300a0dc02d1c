//! What serde makes of updates and options: `ci/ros/tf2-compare` builds this.

#![cfg(feature = "serde")]

use asof_core::Stamp;
use asof_tf::{BufferOptions, Conflicts, TransformBuffer, Update};
use nalgebra::{Isometry3, Translation3, UnitQuaternion};

fn pose() -> Isometry3<f64> {
    Isometry3::from_parts(
        Translation3::new(1.0, -2.0, 3.0),
        UnitQuaternion::from_euler_angles(0.1, 0.2, 0.3),
    )
}

#[test]
fn updates_and_options_come_back_as_they_went() {
    let buffer = TransformBuffer::new();
    let mut observer = buffer.observe(10);
    buffer
        .update("odom", "base", Stamp::from_nanos(7), pose())
        .expect("good");
    let update = observer.try_next().expect("was told");
    let text = serde_json::to_string(&update).expect("is plain");
    let back: Update = serde_json::from_str(&text).expect("is the same");
    assert_eq!((&back.parent, back.stamp), (&update.parent, update.stamp));
    let options = BufferOptions::default().conflicts(Conflicts::LastWins);
    let text = serde_json::to_string(&options).expect("is plain");
    assert_eq!(
        serde_json::from_str::<BufferOptions>(&text).expect("is the same"),
        options
    );
    // What was written before there were conflicts.
    let before = text.replace(",\"conflicts\":\"LastWins\"", "");
    assert_ne!(before, text);
    let read: BufferOptions = serde_json::from_str(&before).expect("has a default");
    assert_eq!(read.conflicts, Conflicts::Refuse);
}
