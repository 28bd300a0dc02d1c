//! A camera at 30 Hz and an IMU at 400 Hz: for each frame, the IMU's value at the frame's own time.

use asof_window::sync::Rule;
use asof_window::{Bounds, Window};
use std::time::Duration;

fn main() {
    let imu = Window::new(Bounds::age(Duration::from_secs(1)));
    for sample in 0..400i64 {
        let stamp = sample * 2_500_000;
        imu.insert(stamp.into(), [(stamp as f64 * 1e-9).sin(), 0.0, 9.81]);
    }
    let rule = Rule::interpolate().within(Duration::from_millis(5));
    for frame in 0..31i64 {
        let stamp = asof_core::Stamp::from_nanos(frame * 33_333_333);
        let found = imu.pick(stamp, rule);
        match (found.value::<[f64; 3]>(), found.missing()) {
            (Some(value), _) => println!("{}: {value:?}", stamp.as_seconds_text()),
            (None, Some(why)) => println!("{}: {why}", stamp.as_seconds_text()),
            (None, None) => {}
        }
    }
}
