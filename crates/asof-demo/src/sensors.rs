//! Turns the state of the world into readings.

use std::f64::consts::{PI, TAU};

use crate::house::House;
use crate::mapper::{self, Mapper};
use crate::pose::PlanarPose;
use crate::random::Random;
use crate::readings::{
    Imu, Joints, Map, Odometry, Reading, Scan, Status, Transform, frame, rounded, yaw,
};
use crate::robot::{Robot, WHEEL_RADIUS};
use asof_core::Stamp;

/// Beams in a scan: one per degree.
pub(crate) const BEAMS: usize = 360;
/// Where the laser sits on the base.
pub(crate) const LASER: (f64, f64) = (0.03, 0.22);
/// Where the camera sits on the base: in front, on a short mast.
pub(crate) const CAMERA: (f64, f64) = (0.1, 0.45);
/// The limit of the accelerometer, in either direction: four g.
const ACCELERATION_LIMIT: f64 = 39.2;
/// Standard gravity.
pub(crate) const GRAVITY: f64 = 9.80665;

/// The laser's pose, in the frame of the robot's pose.
pub(crate) fn laser(robot: PlanarPose) -> PlanarPose {
    robot.then(PlanarPose::new(LASER.0, 0.0, 0.0))
}

/// The angle of a beam, as seen from the laser.
pub(crate) fn beam_angle(beam: usize) -> f64 {
    -PI + beam as f64 * TAU / BEAMS as f64
}

/// One turn of the laser, with a few millimetres of noise and now and then a lost echo.
pub(crate) fn scan(robot: &Robot, house: &House, random: &mut Random) -> Scan {
    let laser = laser(robot.truth);
    let mut ranges = Vec::with_capacity(BEAMS);
    let mut intensities = Vec::with_capacity(BEAMS);
    for beam in 0..BEAMS {
        let direction = laser.heading + beam_angle(beam);
        let echo = house.echo(laser.x, laser.y, direction);
        let noise = random.noise(0.006);
        let is_lost = random.unit() < 0.004;
        if let Some((range, squareness)) = echo.filter(|_| !is_lost) {
            let millimetres = ((range + noise).max(0.0) * 1000.0).round();
            ranges.push((millimetres / 1000.0) as f32);
            intensities.push((30.0 + 170.0 * squareness / (1.0 + 0.2 * range)).round() as f32);
        } else {
            ranges.push(f32::INFINITY);
            intensities.push(0.0);
        }
    }
    Scan {
        angle_min: beam_angle(0),
        angle_max: beam_angle(BEAMS - 1),
        angle_increment: TAU / BEAMS as f64,
        period: 0.1,
        range_min: 0.1,
        range_max: 12.0,
        ranges,
        intensities,
    }
}

/// Adds a scan to the map.
pub(crate) fn explore(mapper: &mut Mapper, robot: &Robot, scan: &Scan) {
    let beams = scan.ranges.iter().enumerate();
    let echoes = beams.filter(|(_, range)| range.is_finite());
    mapper.see(
        laser(robot.truth),
        echoes.map(|(beam, &range)| (beam_angle(beam), range as f64)),
    );
}

pub(crate) fn map(mapper: &Mapper, loaded: Stamp) -> Map {
    Map {
        loaded,
        resolution: mapper::RESOLUTION,
        width: mapper::COLUMNS as u32,
        height: mapper::ROWS as u32,
        origin: (mapper::ORIGIN, mapper::ORIGIN),
        cells: mapper.grid(),
    }
}

pub(crate) fn odometry(robot: &Robot) -> Odometry {
    let (linear, angular) = robot.velocity();
    Odometry {
        pose: robot.odometry,
        linear: rounded(linear),
        angular: rounded(angular),
    }
}

/// The reading of a small MEMS sensor: truth, a constant bias, noise, in steps of its resolution.
pub(crate) fn imu(robot: &Robot, start_heading: f64, random: &mut Random) -> Imu {
    let gyro = |truth: f64, offset: f64, random: &mut Random| {
        let step = 1.0 / 16_384.0;
        ((truth + offset + random.noise(0.0025)) / step).round() * step
    };
    let accelerometer = |truth: f64, random: &mut Random| {
        let step = 1.0 / 1024.0;
        let shown = truth.clamp(-ACCELERATION_LIMIT, ACCELERATION_LIMIT) + random.noise(0.03);
        (shown / step).round() * step
    };
    let (forward, left) = robot.acceleration;
    Imu {
        orientation: yaw(robot.truth.heading - start_heading),
        angular_velocity: [
            gyro(0.0, 0.0008, random),
            gyro(0.0, -0.0006, random),
            gyro(robot.turn_rate, 0.0007, random),
        ],
        linear_acceleration: [
            accelerometer(forward, random),
            accelerometer(left, random),
            accelerometer(GRAVITY, random),
        ],
    }
}

pub(crate) fn joints(robot: &Robot) -> Joints {
    Joints {
        names: ["left_wheel_joint", "right_wheel_joint"],
        positions: robot.wheel_angles.map(rounded),
        velocities: robot
            .wheel_speeds
            .map(|speed| rounded(speed / WHEEL_RADIUS)),
    }
}

/// `odom -> base_link` by the wheels, `map -> odom` by the localisation.
pub(crate) fn transforms(robot: &Robot) -> Vec<Transform> {
    let flat = |parent, child, pose: PlanarPose| Transform {
        parent,
        child,
        translation: [rounded(pose.x), rounded(pose.y), 0.0],
        rotation: yaw(pose.heading),
    };
    vec![
        flat(frame::ODOM, frame::BASE, robot.odometry),
        flat(frame::MAP, frame::ODOM, robot.correction),
    ]
}

/// The mounting poses of the sensors.
pub(crate) fn mounts() -> Reading {
    let level = [0.0, 0.0, 0.0, 1.0];
    let mount = |parent, child, translation, rotation| Transform {
        parent,
        child,
        translation,
        rotation,
    };
    Reading::Transforms(vec![
        mount(frame::BASE, frame::LASER, [LASER.0, 0.0, LASER.1], level),
        mount(frame::BASE, frame::CAMERA, [CAMERA.0, 0.0, CAMERA.1], level),
        // An optical frame looks along z, with x to the right and y down (REP 103).
        mount(
            frame::CAMERA,
            frame::CAMERA_OPTICAL,
            [0.0; 3],
            [-0.5, 0.5, -0.5, 0.5],
        ),
        mount(frame::BASE, frame::IMU, [-0.02, 0.0, 0.08], level),
        mount(frame::BASE, frame::BUMPER, [0.16, 0.0, 0.05], level),
    ])
}

/// Charge in percent: one charge lasts an hour, then a fresh battery goes in.
pub(crate) fn charge(seconds: f64) -> f64 {
    87.2 - (seconds * 0.022) % 80.0
}

/// The health of battery, motors and computer, once a second.
pub(crate) fn diagnostics(robot: &Robot, seconds: f64, random: &mut Random) -> Vec<Status> {
    let charge = charge(seconds);
    let (speed, _) = robot.velocity();
    let current = 0.9 + 2.1 * speed.abs() + random.noise(0.05);
    let voltage = 13.2 + 3.2 * charge / 100.0 - 0.08 * current;
    let motor = 24.0 + 14.0 * (1.0 - libm::exp(-seconds / 90.0)) + random.noise(0.15);
    let computer = 48.0 + 3.0 * libm::sin(seconds / 11.0) + random.noise(0.4);
    let is_low = charge < 20.0;
    vec![
        Status {
            level: u8::from(is_low),
            name: "battery",
            message: if is_low { "low" } else { "discharging" }.to_owned(),
            hardware: "rover-battery",
            values: vec![
                ("charge [%]", format!("{charge:.1}")),
                ("voltage [V]", format!("{voltage:.2}")),
                ("current [A]", format!("{current:.2}")),
            ],
        },
        Status {
            level: 0,
            name: "motors",
            message: "ok".to_owned(),
            hardware: "rover-drive",
            values: vec![("temperature [C]", format!("{motor:.1}"))],
        },
        Status {
            level: 0,
            name: "computer",
            message: "ok".to_owned(),
            hardware: "rover-computer",
            values: vec![("temperature [C]", format!("{computer:.1}"))],
        },
    ]
}
