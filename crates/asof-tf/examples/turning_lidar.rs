//! A robot drives a circle while it turns its lidar; where did the lidar see a point?
//!
//! `cargo run -p asof-tf --example turning_lidar`

use std::error::Error;
use std::time::Duration;

use asof_core::Stamp;
use asof_tf::TransformBuffer;
use nalgebra::{Isometry3, Point3, Translation3, UnitQuaternion};

fn main() -> Result<(), Box<dyn Error>> {
    let buffer = TransformBuffer::new();
    buffer.update_static("base_link", "lidar", Isometry3::translation(0.2, 0.0, 0.3))?;

    // Odometry at 50 Hz: half a turn per second on a circle of two metres.
    for step in 0..=50_i64 {
        let angle = step as f64 / 50.0 * std::f64::consts::PI;
        let pose = Isometry3::from_parts(
            Translation3::new(2.0 * angle.sin(), 2.0 - 2.0 * angle.cos(), 0.0),
            UnitQuaternion::from_euler_angles(0.0, 0.0, angle),
        );
        buffer.update(
            "odom",
            "base_link",
            Stamp::from_nanos(step * 20_000_000),
            pose,
        )?;
    }
    print!("{}", buffer.to_tree());

    let t = Stamp::from_nanos(505_000_000);
    let seen = buffer.lookup("odom", "lidar", t)? * Point3::new(5.0, 0.0, 0.0);
    println!(
        "a point 5 m ahead of the lidar at {} s is at {seen:.3} in odom",
        t.as_seconds_text()
    );

    let twist = buffer.lookup_twist("base_link", "odom", t, Duration::from_millis(100))?;
    println!(
        "speed {:.2} m/s, turning {:.2} rad/s",
        twist.linear.norm(),
        twist.angular.z
    );

    match buffer.lookup("odom", "lidar", Stamp::from_nanos(2_000_000_000)) {
        Ok(_) => println!("the future has no transform"),
        Err(error) => println!("as expected: {error}"),
    }
    Ok(())
}
