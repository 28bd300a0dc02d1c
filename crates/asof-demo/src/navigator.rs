//! Where the robot wants to go, and its velocity commands.

use crate::house::House;
use crate::pose::{PlanarPose, wrapped};
use crate::random::Random;
use crate::robot::{Command, RADIUS, Robot};

/// Metres per second on a free stretch.
const CRUISE: f64 = 1.0;
/// Metres per second close to a wall.
const CREEP: f64 = 0.32;
/// Radians per second, at most.
const TURN: f64 = 2.2;
/// Where the drive starts.
pub(crate) const START: PlanarPose = PlanarPose {
    x: 1.1,
    y: 1.5,
    heading: 0.0,
};

/// The loop through the rooms: a point, and how far from it a lap may stray.
///
/// Two of the goals are inside a wall. The robot drives up to them, touches, backs off, and
/// goes on: that is what presses the bumper.
const LOOP: [Goal; 10] = [
    Goal::via(3.2, 1.5, 0.05),
    Goal::via(4.9, 1.5, 0.05),
    Goal::wall(8.2, 1.5, 0.3),
    Goal::via(6.0, 2.2, 0.05),
    Goal::via(6.0, 3.7, 0.05),
    Goal::via(5.1, 4.5, 0.05),
    Goal::via(3.2, 4.5, 0.05),
    Goal::wall(-0.2, 4.5, 0.3),
    Goal::via(2.0, 3.7, 0.05),
    Goal::via(2.0, 2.1, 0.05),
];

#[derive(Debug, Clone, Copy)]
struct Goal {
    x: f64,
    y: f64,
    stray: f64,
    is_wall: bool,
}

impl Goal {
    const fn via(x: f64, y: f64, stray: f64) -> Goal {
        Goal {
            x,
            y,
            stray,
            is_wall: false,
        }
    }

    const fn wall(x: f64, y: f64, stray: f64) -> Goal {
        Goal {
            x,
            y,
            stray,
            is_wall: true,
        }
    }

    /// This goal on one lap: never at quite the same point.
    fn strayed(self, random: &mut Random) -> Goal {
        let along_x = if self.is_wall { 0.0 } else { self.stray };
        Goal {
            x: self.x + random.between(-along_x, along_x),
            y: self.y + random.between(-self.stray, self.stray),
            ..self
        }
    }
}

/// What the navigator is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Driving to the next goal.
    Driving,
    /// Standing still after a bump, for this many ticks.
    Stunned(u32),
    /// Driving backwards, for this many ticks.
    BackingOff(u32),
}

/// Follows the loop, tick by tick, by the robot's estimated pose.
#[derive(Debug, Clone)]
pub(crate) struct Navigator {
    pub(crate) mode: Mode,
    /// Complete loops so far.
    pub(crate) laps: u32,
    index: usize,
    goal: Goal,
    random: Random,
}

impl Navigator {
    pub(crate) fn new(mut random: Random) -> Self {
        Navigator {
            mode: Mode::Driving,
            laps: 0,
            index: 0,
            goal: LOOP[0].strayed(&mut random),
            random,
        }
    }

    /// The next command; called twenty times a second.
    pub(crate) fn tick(&mut self, robot: &Robot, house: &House) -> Command {
        match self.mode {
            Mode::Driving if robot.is_touching => {
                self.mode = Mode::Stunned(5);
                Command::default()
            }
            Mode::Driving => self.drive(robot.belief(), house),
            Mode::Stunned(0) => {
                self.mode = Mode::BackingOff(16);
                Command::default()
            }
            Mode::Stunned(left) => {
                self.mode = Mode::Stunned(left - 1);
                Command::default()
            }
            Mode::BackingOff(0) => {
                self.mode = Mode::Driving;
                if self.goal.is_wall {
                    self.advance();
                }
                Command::default()
            }
            Mode::BackingOff(left) => {
                self.mode = Mode::BackingOff(left - 1);
                Command {
                    linear: -0.3,
                    angular: 0.0,
                }
            }
        }
    }

    fn drive(&mut self, belief: PlanarPose, house: &House) -> Command {
        if !self.goal.is_wall && belief.distance_to(self.goal.x, self.goal.y) < 0.22 {
            self.advance();
        }
        let goal = self.goal;
        let bearing = belief.bearing_to(goal.x, goal.y);
        let distance = belief.distance_to(goal.x, goal.y);
        let mut linear = CRUISE * (1.0 - bearing.abs()).max(0.0);
        if goal.is_wall {
            let ahead = house.range(belief.x, belief.y, belief.heading);
            let gap = ahead.map_or(0.0, |range| range - RADIUS);
            linear = linear.min(CREEP + 1.4 * (gap - 0.15).max(0.0));
        } else {
            let next = LOOP[(self.index + 1) % LOOP.len()];
            let arriving = PlanarPose::new(goal.x, goal.y, belief.heading + bearing);
            let is_sharp = wrapped(arriving.bearing_to(next.x, next.y)).abs() > 0.6;
            if is_sharp {
                linear = linear.min(CREEP + 1.5 * distance);
            }
        }
        Command {
            linear,
            angular: (3.2 * bearing).clamp(-TURN, TURN),
        }
    }

    fn advance(&mut self) {
        self.index += 1;
        if self.index == LOOP.len() {
            self.index = 0;
            self.laps += 1;
        }
        self.goal = LOOP[self.index].strayed(&mut self.random);
    }
}
