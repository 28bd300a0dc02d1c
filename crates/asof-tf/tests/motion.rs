//! Numbers against motions that are known in closed form.

use std::f64::consts::FRAC_PI_2;
use std::time::Duration;

use asof_core::Stamp;
use asof_tf::{BufferOptions, TransformBuffer};
use nalgebra::{Isometry3, Translation3, Unit, UnitQuaternion, Vector3};

const SECOND: i64 = 1_000_000_000;

fn at(nanos: i64) -> Stamp {
    Stamp::from_nanos(nanos)
}

/// A body on a circle that climbs: 3 m around, 0.8 rad/s, 0.2 m/s upwards, and turned in itself by `mount`.
struct Helix {
    mount: UnitQuaternion<f64>,
}

impl Helix {
    const RADIUS: f64 = 3.0;
    const RATE: f64 = 0.8;
    const CLIMB: f64 = 0.2;

    fn pose(&self, t: f64) -> Isometry3<f64> {
        let turn = Helix::RATE * t;
        let heading = UnitQuaternion::from_axis_angle(&Vector3::z_axis(), turn + FRAC_PI_2);
        Isometry3::from_parts(
            Translation3::new(
                Helix::RADIUS * turn.cos(),
                Helix::RADIUS * turn.sin(),
                Helix::CLIMB * t,
            ),
            heading * self.mount,
        )
    }

    /// The mean of the velocity from `t - half` to `t + half`.
    fn velocity(t: f64, half: f64) -> Vector3<f64> {
        let turn = Helix::RATE * t;
        let speed = Helix::RADIUS * (Helix::RATE * half).sin() / half;
        Vector3::new(-speed * turn.sin(), speed * turn.cos(), Helix::CLIMB)
    }

    fn buffer(&self) -> TransformBuffer {
        let buffer = TransformBuffer::new();
        for step in 0..=5_000 {
            let t = step * SECOND / 1000;
            buffer
                .update("world", "body", at(t), self.pose(t as f64 * 1e-9))
                .expect("good");
        }
        buffer
    }
}

#[test]
fn a_twist_is_that_of_the_motion_however_the_body_is_turned_in_itself() {
    for (roll, pitch, yaw) in [(0.0, 0.0, 0.0), (0.0, 0.0, FRAC_PI_2), (1.1, -0.7, 2.9)] {
        let mount = UnitQuaternion::from_euler_angles(roll, pitch, yaw);
        let buffer = Helix { mount }.buffer();
        for (t, half) in [(1.0, 0.01), (2.5, 0.05), (4.0, 0.5)] {
            let window = Duration::from_secs_f64(2.0 * half);
            let twist = buffer
                .lookup_twist("body", "world", Stamp::from_nanos((t * 1e9) as i64), window)
                .expect("is there");
            let wanted = Helix::velocity(t, half);
            assert!(
                (twist.linear - wanted).norm() < 1e-9,
                "{t} {half}: {twist:?}"
            );
            let turning = Vector3::z() * Helix::RATE;
            assert!((twist.angular - turning).norm() < 1e-9, "{twist:?}");
            // Over a short time it is the velocity of the moment.
            let moment = Helix::velocity(t, 1e-6);
            assert!((twist.linear - moment).norm() < 3.0 * 0.8 * (0.8 * half).powi(2) / 6.0 + 1e-9);
        }
    }
}

#[test]
fn a_twist_of_a_sensor_is_that_of_its_place_on_the_body() {
    let buffer = Helix {
        mount: UnitQuaternion::identity(),
    }
    .buffer();
    let arm = Vector3::new(0.4, -0.3, 0.2);
    buffer
        .update_static("body", "lidar", Isometry3::translation(arm.x, arm.y, arm.z))
        .expect("good");
    let (t, window) = (at(2 * SECOND), Duration::from_millis(2));
    let body = buffer
        .lookup_twist("body", "world", t, window)
        .expect("is there");
    let lidar = buffer
        .lookup_twist("lidar", "world", t, window)
        .expect("is there");
    let offset = buffer
        .lookup("world", "body", t)
        .expect("is there")
        .rotation
        * arm;
    assert!((body.at_offset(&offset).linear - lidar.linear).norm() < 1e-6);
    // Along its own axes the body drives straight ahead, and up.
    let world = buffer
        .lookup("body", "world", t)
        .expect("is there")
        .rotation;
    let own = body.along(&world).linear;
    let ahead = Vector3::new(Helix::RADIUS * Helix::RATE, 0.0, Helix::CLIMB);
    assert!((own - ahead).norm() < 1e-5, "{own}");
}

#[test]
fn interpolation_is_exact_to_twelve_digits_at_any_sampling_rate() {
    let axis = Unit::new_normalize(Vector3::new(0.3, -0.5, 0.8));
    let velocity = Vector3::new(1.5, -0.5, 0.25);
    let pose = |t: f64| {
        Isometry3::from_parts(
            Translation3::from(velocity * t),
            UnitQuaternion::from_axis_angle(&axis, t),
        )
    };
    let off = |found: &Isometry3<f64>, t: f64| {
        let wanted = pose(t);
        let (a, b) = (found.rotation.coords, wanted.rotation.coords);
        let turned = (a - b).norm().min((a + b).norm());
        let moved = (found.translation.vector - wanted.translation.vector).norm();
        turned.max(moved)
    };
    // 10 MHz to 1 Hz.
    for period in [100, 10_000, 1_000_000, 10_000_000, 100_000_000, SECOND] {
        let buffer = TransformBuffer::with_options(BufferOptions::unbounded());
        for step in 0..=100 {
            let t = step * period;
            buffer
                .update("world", "body", at(t), pose(t as f64 * 1e-9))
                .expect("good");
        }
        let asked: Vec<Stamp> = (0..1_000).map(|i| at(i * period / 10 + i % 7)).collect();
        let many = buffer
            .lookup_many("world", "body", &asked)
            .expect("both are known");
        assert!(many.failures.is_empty());
        for (stamp, found) in asked.iter().zip(&many.isometries) {
            let t = stamp.nanos() as f64 * 1e-9;
            assert!(
                off(found, t) < 1e-12,
                "many, {period} ns: {}",
                off(found, t)
            );
            let one = buffer.lookup("world", "body", *stamp).expect("is there");
            assert!(off(&one, t) < 1e-12, "one, {period} ns: {}", off(&one, t));
        }
    }
}

#[test]
fn a_long_chain_keeps_eleven_digits_where_each_link_turns() {
    // Each link turns with the one before it: the whole turns a hundred times as far.
    let (links, period) = (100, SECOND / 1000);
    let buffer = TransformBuffer::new();
    let pose = |t: f64| {
        Isometry3::from_parts(
            Translation3::new(0.1, 0.0, 0.0),
            UnitQuaternion::from_axis_angle(&Vector3::z_axis(), 0.01 * t),
        )
    };
    for link in 0..links {
        let (parent, child) = (format!("link_{link}"), format!("link_{}", link + 1));
        for step in 0..=20 {
            let t = step * period;
            buffer
                .update(&parent, &child, at(t), pose(t as f64 * 1e-9))
                .expect("good");
        }
    }
    for nanos in [333_333, 7_654_321, 19_999_999] {
        let found = buffer
            .lookup("link_0", "link_100", at(nanos))
            .expect("is there");
        let link = pose(nanos as f64 * 1e-9);
        let wanted = (0..links).fold(Isometry3::identity(), |sum, _| sum * link);
        assert!((found.translation.vector - wanted.translation.vector).norm() < 1e-11);
        assert!((found.rotation.coords - wanted.rotation.coords).norm() < 1e-11);
    }
}
