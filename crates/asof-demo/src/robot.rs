//! The robot's body: two wheels, a round base, a bumper.

use crate::house::House;
use crate::pose::{PlanarPose, wrapped};
use crate::random::Random;

/// Seconds between two steps of the simulation: the period of the IMU.
pub(crate) const STEP: f64 = 0.005;
/// The radius of the base, metres.
pub(crate) const RADIUS: f64 = 0.17;
/// Metres from wheel to wheel.
pub(crate) const WHEEL_BASE: f64 = 0.28;
/// The radius of a wheel, metres.
pub(crate) const WHEEL_RADIUS: f64 = 0.036;
/// The maximum acceleration of a wheel, metres per second squared.
pub(crate) const WHEEL_ACCELERATION: f64 = 1.6;
/// How far the bumper must come away from the wall to be released, metres.
const BUMPER_TRAVEL: f64 = 0.01;

/// A velocity command, as on `/cmd_vel`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Command {
    /// Metres per second, forward.
    pub(crate) linear: f64,
    /// Radians per second, to the left.
    pub(crate) angular: f64,
}

/// The robot: its body, and its estimate of its pose.
#[derive(Debug, Clone)]
pub(crate) struct Robot {
    /// Its true pose in the house.
    pub(crate) truth: PlanarPose,
    /// Its pose by wheel odometry, relative to the start.
    pub(crate) odometry: PlanarPose,
    /// Its estimate of the odometry's origin in the map.
    pub(crate) correction: PlanarPose,
    /// The last command.
    pub(crate) command: Command,
    /// Radians that the left and the right wheel have turned since the start.
    pub(crate) wheel_angles: [f64; 2],
    /// Metres per second at the rim of the left and the right wheel.
    pub(crate) wheel_speeds: [f64; 2],
    /// Its true turn rate, radians per second.
    pub(crate) turn_rate: f64,
    /// Metres per second squared, forward and to the left.
    pub(crate) acceleration: (f64, f64),
    /// Whether the bumper is pressed.
    pub(crate) is_touching: bool,
    /// The fraction of the wheels' motion that reaches the floor: forward and in turns.
    grip: (f64, f64),
    random: Random,
}

impl Robot {
    pub(crate) fn new(start: PlanarPose, mut random: Random) -> Self {
        Robot {
            truth: start,
            odometry: PlanarPose::default(),
            correction: start,
            command: Command::default(),
            wheel_angles: [0.0; 2],
            wheel_speeds: [0.0; 2],
            turn_rate: 0.0,
            acceleration: (0.0, 0.0),
            is_touching: false,
            grip: (random.between(0.985, 0.998), random.between(0.975, 0.995)),
            random,
        }
    }

    /// Metres per second forward and radians per second to the left, by the wheels.
    pub(crate) fn velocity(&self) -> (f64, f64) {
        let [left, right] = self.wheel_speeds;
        (f64::midpoint(left, right), (right - left) / WHEEL_BASE)
    }

    /// Its estimated pose in the map.
    pub(crate) fn belief(&self) -> PlanarPose {
        self.correction.then(self.odometry)
    }

    /// Advances by one [`STEP`] of time.
    pub(crate) fn step(&mut self, house: &House) {
        let before = self.wheel_speeds;
        let half_turn = self.command.angular * WHEEL_BASE / 2.0;
        let wanted = [
            self.command.linear - half_turn,
            self.command.linear + half_turn,
        ];
        let reach = WHEEL_ACCELERATION * STEP;
        let mut travel = [0.0; 2];
        for side in 0..2 {
            let change = (wanted[side] - before[side]).clamp(-reach, reach);
            self.wheel_speeds[side] = before[side] + change;
            travel[side] = f64::midpoint(before[side], self.wheel_speeds[side]) * STEP;
        }
        self.roll(house, travel);
        let (now, _) = self.velocity();
        let speed_before = f64::midpoint(before[0], before[1]);
        self.acceleration = ((now - speed_before) / STEP, now * self.turn_rate);
    }

    /// Corrects the estimate, as a localisation does that matches the scan with the map:
    /// a fraction each time, so that `map -> odom` moves slowly.
    pub(crate) fn localise(&mut self) {
        let belief = self.belief();
        let part = 0.3;
        let seen = PlanarPose::new(
            self.truth.x + self.random.noise(0.006),
            self.truth.y + self.random.noise(0.006),
            self.truth.heading + self.random.noise(0.003),
        );
        let better = PlanarPose::new(
            belief.x + part * (seen.x - belief.x),
            belief.y + part * (seen.y - belief.y),
            belief.heading + part * wrapped(seen.heading - belief.heading),
        );
        self.correction = better.then(self.odometry.inverse());
    }

    /// Moves by the turn of the wheels, at most up to the wall; there the wheels stall.
    fn roll(&mut self, house: &House, travel: [f64; 2]) {
        let forward = f64::midpoint(travel[0], travel[1]);
        let turn = (travel[1] - travel[0]) / WHEEL_BASE;
        let to = |part: f64| {
            self.truth
                .driven(forward * self.grip.0 * part, turn * self.grip.1 * part)
        };
        let fits = |pose: PlanarPose| house.clearance(pose.x, pose.y) >= RADIUS;
        let mut part = 1.0;
        if !fits(to(1.0)) {
            let (mut free, mut blocked) = (0.0, 1.0);
            for _ in 0..12 {
                let middle = f64::midpoint(free, blocked);
                if fits(to(middle)) {
                    free = middle;
                } else {
                    blocked = middle;
                }
            }
            part = free;
            self.wheel_speeds = [0.0; 2];
            self.is_touching = true;
        }
        self.truth = to(part);
        self.odometry = self.odometry.driven(forward * part, turn * part);
        self.turn_rate = turn * self.grip.1 * part / STEP;
        for (angle, travel) in self.wheel_angles.iter_mut().zip(travel) {
            *angle += travel * part / WHEEL_RADIUS;
        }
        if house.clearance(self.truth.x, self.truth.y) > RADIUS + BUMPER_TRAVEL {
            self.is_touching = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn robot() -> Robot {
        Robot::new(PlanarPose::new(6.0, 1.5, 0.0), Random::new(1, 0))
    }

    #[test]
    fn a_wheel_gains_speed_no_faster_than_its_motor_can() {
        let house = House::new();
        let mut robot = robot();
        robot.command.linear = 0.8;
        robot.step(&house);
        assert!((robot.velocity().0 - WHEEL_ACCELERATION * STEP).abs() < 1e-12);
        for _ in 0..200 {
            robot.step(&house);
        }
        assert!((robot.velocity().0 - 0.8).abs() < 1e-12);
    }

    #[test]
    fn a_wall_stops_the_robot_and_presses_its_bumper() {
        let house = House::new();
        let mut robot = robot();
        robot.command.linear = 0.5;
        for _ in 0..1000 {
            robot.step(&house);
        }
        assert!(robot.is_touching);
        assert!((house.clearance(robot.truth.x, robot.truth.y) - RADIUS).abs() < 1e-3);
        robot.command.linear = -0.5;
        for _ in 0..100 {
            robot.step(&house);
        }
        assert!(!robot.is_touching);
    }
}
