//! The drive itself: the robot, its navigator and the house, step by step.

use crate::DemoOptions;
use crate::house::{House, Room};
use crate::navigator::{Mode, Navigator, START};
use crate::pose::PlanarPose;
use crate::random::Random;
use crate::readings::{Level, Log};
use crate::robot::{Robot, STEP};

/// Steps between two decisions of the navigator: twenty a second.
const DECISION_STEPS: u64 = 10;
/// Steps between two scans, and the step of the first.
const SCAN_STEPS: (u64, u64) = (20, 6);

/// The robot on its way, without its messages.
#[derive(Debug, Clone)]
pub(crate) struct Drive {
    pub(crate) house: House,
    pub(crate) robot: Robot,
    navigator: Navigator,
    steps: u64,
    told: Report,
}

/// The state when events were last reported.
#[derive(Debug, Clone)]
struct Report {
    room: Option<Room>,
    mode: Mode,
    is_touching: bool,
    laps: Option<u32>,
    lap_start: f64,
    speed: f64,
}

/// An event for the log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Started,
    Entered(Room),
    Touched { x: f64, y: f64, speed: f64 },
    BackingOff,
    Released,
    LapDone { lap: u32, seconds: f64 },
    Corrected { centimetres: f64, degrees: f64 },
}

impl Drive {
    pub(crate) fn new(options: &DemoOptions) -> Self {
        Drive {
            house: House::new(),
            robot: Robot::new(START, Random::new(options.seed, 1)),
            navigator: Navigator::new(Random::new(options.seed, 2)),
            steps: 0,
            told: Report {
                room: None,
                mode: Mode::Driving,
                is_touching: false,
                laps: None,
                lap_start: 0.0,
                speed: 0.0,
            },
        }
    }

    /// Steps done so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.steps as f64 * STEP
    }

    /// Whether this is a step in which the navigator decides.
    pub(crate) fn is_deciding(&self) -> bool {
        self.steps.is_multiple_of(DECISION_STEPS)
    }

    /// Whether this is a step in which the laser has made a turn.
    pub(crate) fn is_scanning(&self) -> bool {
        self.steps % SCAN_STEPS.0 == SCAN_STEPS.1
    }

    /// Lets the navigator decide, if it is time, and returns the events since the last step.
    pub(crate) fn decide(&mut self) -> Vec<Event> {
        if self.is_deciding() {
            self.robot.command = self.navigator.tick(&self.robot, &self.house);
        }
        self.events()
    }

    /// Advances by one step of time.
    pub(crate) fn advance(&mut self) {
        if self.is_scanning() {
            self.robot.localise();
        }
        self.told.speed = self.robot.velocity().0;
        self.robot.step(&self.house);
        self.steps += 1;
    }

    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let PlanarPose { x, y, .. } = self.robot.belief();
        let truth = self.robot.truth;
        if self.told.laps.is_none() {
            events.push(Event::Started);
            self.told.laps = Some(0);
        }
        let room = Room::at(truth.x, truth.y);
        if self.told.room.replace(room) != Some(room) {
            events.push(Event::Entered(room));
        }
        if self.robot.is_touching != self.told.is_touching {
            self.told.is_touching = self.robot.is_touching;
            events.push(if self.robot.is_touching {
                let speed = self.told.speed;
                Event::Touched { x, y, speed }
            } else {
                Event::Released
            });
        }
        let mode = self.navigator.mode;
        let is_backing = |mode| matches!(mode, Mode::BackingOff(_));
        if is_backing(mode) && !is_backing(self.told.mode) {
            events.push(Event::BackingOff);
        }
        self.told.mode = mode;
        let lap = self.navigator.laps;
        if self.told.laps != Some(lap) {
            self.told.laps = Some(lap);
            let seconds = self.seconds() - self.told.lap_start;
            self.told.lap_start = self.seconds();
            events.push(Event::LapDone { lap, seconds });
        }
        // Every ten seconds, a little after the start.
        if self.steps % 2000 == 1007 {
            let wheels_only = START.then(self.robot.odometry);
            let turn = crate::pose::wrapped(self.robot.belief().heading - wheels_only.heading);
            events.push(Event::Corrected {
                centimetres: wheels_only.distance_to(x, y) * 100.0,
                degrees: turn.to_degrees(),
            });
        }
        events
    }
}

impl Event {
    /// The log line of the event.
    pub(crate) fn told(&self) -> Log {
        let navigator = |message: String, function, line| Log {
            level: Level::Info,
            name: "navigator",
            message,
            file: "navigator.cpp",
            function,
            line,
        };
        match self {
            Event::Started => navigator("starting the loop through the rooms".into(), "start", 41),
            Event::Entered(room) => {
                navigator(format!("entering the {}", room.name()), "track_room", 117)
            }
            Event::LapDone { lap, seconds } => navigator(
                format!("loop {lap} done in {seconds:.1} s"),
                "next_goal",
                153,
            ),
            Event::BackingOff => navigator("backing off".into(), "on_bump", 188),
            Event::Touched { x, y, speed } => Log {
                level: Level::Warning,
                name: "bumper",
                message: format!("touched a wall at ({x:.2}, {y:.2}), at {speed:.2} m/s"),
                file: "bumper.cpp",
                function: "on_contact",
                line: 33,
            },
            Event::Released => Log {
                level: Level::Info,
                name: "bumper",
                message: "free again".into(),
                file: "bumper.cpp",
                function: "on_contact",
                line: 37,
            },
            Event::Corrected {
                centimetres,
                degrees,
            } => Log {
                level: Level::Debug,
                name: "localisation",
                message: format!("odometry is off by {centimetres:.0} cm and {degrees:.1} degrees"),
                file: "localisation.cpp",
                function: "correct",
                line: 204,
            },
        }
    }
}
