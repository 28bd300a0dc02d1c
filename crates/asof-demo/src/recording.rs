//! The recording: the robot drives, and messages come out sorted by log time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use asof_core::{Channel, Message, Stamp};
use bytes::Bytes;

use crate::drive::{Drive, Event};
use crate::mapper::Mapper;
use crate::navigator::START;
use crate::pictures::Pictures;
use crate::random::Random;
use crate::readings::{Level, Log, Reading, Topic};
use crate::{DemoEncoding, DemoOptions, foxglove, ros2, sensors};

/// Nanoseconds per step.
pub(crate) const STEP_NANOS: i64 = 5_000_000;

/// The messages of a [`Demo`](crate::Demo), simulated lazily.
///
/// They are sorted by log time. Memory stays constant however long the drive is.
#[derive(Debug)]
pub struct DemoMessages {
    channels: Arc<[Arc<Channel>]>,
    encoding: DemoEncoding,
    start: Stamp,
    steps: u64,
    drive: Drive,
    mapper: Mapper,
    pictures: Pictures,
    chance: Chance,
    sequences: [u32; Topic::ALL.len()],
    /// Sent, but not yet recorded: later messages may still overtake them.
    pending: BinaryHeap<Pending>,
    order: u64,
    charge: i64,
}

/// One random stream for each thing that needs one.
#[derive(Debug)]
struct Chance {
    latency: Random,
    scan: Random,
    imu: Random,
    diagnostics: Random,
}

#[derive(Debug)]
struct Pending {
    order: u64,
    message: Message,
}

impl DemoMessages {
    pub(crate) fn new(options: &DemoOptions, channels: Arc<[Arc<Channel>]>) -> Self {
        let stream = |number| Random::new(options.seed, number);
        let nanos = i64::try_from(options.duration.as_nanos()).unwrap_or(i64::MAX);
        DemoMessages {
            channels,
            encoding: options.encoding,
            start: options.start,
            steps: (nanos as u64).div_ceil(STEP_NANOS as u64),
            drive: Drive::new(options),
            mapper: Mapper::new(),
            pictures: Pictures::new(options),
            chance: Chance {
                latency: stream(10),
                scan: stream(11),
                imu: stream(12),
                diagnostics: stream(13),
            },
            sequences: [0; Topic::ALL.len()],
            pending: BinaryHeap::new(),
            order: 0,
            charge: sensors::charge(0.0) as i64,
        }
    }

    /// Sends everything that is due now, then advances by one step.
    fn step(&mut self) {
        let step = self.drive.steps();
        let events = self.drive.decide();
        let robot = self.drive.robot.clone();
        let seconds = self.drive.seconds();
        if step == 0 {
            self.say(Topic::TfStatic, &sensors::mounts());
            self.say(Topic::Bumper, &Reading::Bumper(false));
        }
        if self.drive.is_deciding() {
            let command = robot.command;
            self.say(
                Topic::CmdVel,
                &Reading::Command(command.linear, command.angular),
            );
        }
        for event in events {
            if let Event::Touched { .. } | Event::Released = event {
                let is_pressed = matches!(event, Event::Touched { .. });
                self.say(Topic::Bumper, &Reading::Bumper(is_pressed));
            }
            self.say(Topic::Rosout, &Reading::Log(event.told()));
        }
        let imu = sensors::imu(&robot, START.heading, &mut self.chance.imu);
        self.say(Topic::Imu, &Reading::Imu(imu));
        if step.is_multiple_of(4) {
            self.say(Topic::Odom, &Reading::Odometry(sensors::odometry(&robot)));
            self.say(Topic::Tf, &Reading::Transforms(sensors::transforms(&robot)));
            self.say(
                Topic::JointStates,
                &Reading::Joints(sensors::joints(&robot)),
            );
        }
        if self.drive.is_scanning() {
            let scan = sensors::scan(&robot, &self.drive.house, &mut self.chance.scan);
            sensors::explore(&mut self.mapper, &robot, &scan);
            self.say(Topic::Scan, &Reading::Scan(scan));
        }
        if step % 200 == 8 {
            let map = sensors::map(&self.mapper, self.start);
            self.say(Topic::Map, &Reading::Map(map));
        }
        if Pictures::is_due(step) {
            let picture = self.pictures.next(&self.drive);
            self.say(Topic::Image, &Reading::Image(picture));
        }
        if step % 200 == 102 {
            let statuses = sensors::diagnostics(&robot, seconds, &mut self.chance.diagnostics);
            self.say(Topic::Diagnostics, &Reading::Diagnostics(statuses));
            self.tell_of_the_battery(seconds);
        }
        self.drive.advance();
    }

    fn tell_of_the_battery(&mut self, seconds: f64) {
        let charge = sensors::charge(seconds) as i64;
        if charge != self.charge {
            self.charge = charge;
            let log = Log {
                level: if charge < 20 {
                    Level::Warning
                } else {
                    Level::Info
                },
                name: "battery",
                message: format!("battery at {charge} %"),
                file: "battery.cpp",
                function: "poll",
                line: 58,
            };
            self.say(Topic::Rosout, &Reading::Log(log));
        }
    }

    /// Encodes a reading and sends it off; it is recorded after its topic's latency.
    fn say(&mut self, topic: Topic, reading: &Reading) {
        let sent = self.now();
        let (least, more) = topic.latency();
        let latency = self.chance.latency.between(least, least + more) * 1000.0;
        let payload: Bytes = match self.encoding {
            DemoEncoding::Cdr => ros2::encode(sent, reading),
            DemoEncoding::Protobuf => foxglove::protobuf(sent, reading),
            DemoEncoding::Json => foxglove::json(sent, reading),
        };
        let sequence = &mut self.sequences[topic as usize];
        self.pending.push(Pending {
            order: self.order,
            message: Message {
                channel: Arc::clone(&self.channels[topic as usize]),
                log_time: sent.plus_nanos(latency as i64),
                publish_time: sent,
                sequence: *sequence,
                payload,
            },
        });
        *sequence = sequence.wrapping_add(1);
        self.order += 1;
    }

    /// The time of the step that comes next.
    fn now(&self) -> Stamp {
        self.start
            .plus_nanos(self.drive.steps() as i64 * STEP_NANOS)
    }
}

impl Iterator for DemoMessages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        // Anything sent from now on is recorded after now.
        while self.drive.steps() < self.steps
            && self
                .pending
                .peek()
                .is_none_or(|first| first.message.log_time > self.now())
        {
            self.step();
        }
        self.pending.pop().map(|pending| pending.message)
    }
}

impl Pending {
    fn key(&self) -> (Stamp, u64) {
        (self.message.log_time, self.order)
    }
}

/// Reversed, since a heap returns its greatest element first.
impl Ord for Pending {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Pending {}

#[cfg(test)]
mod tests {
    use crate::{Demo, DemoOptions};
    use std::time::Duration;

    #[test]
    fn only_a_handful_of_messages_wait_however_long_the_drive_is() {
        let demo = Demo::new(DemoOptions {
            duration: Duration::MAX,
            ..DemoOptions::default()
        });
        let mut messages = demo.messages();
        for _ in 0..4000 {
            messages.next().expect("an endless drive");
            assert!(messages.pending.len() < 32, "{}", messages.pending.len());
        }
    }
}
