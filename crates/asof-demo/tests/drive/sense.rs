//! The numbers make sense: sensors agree with each other, with the house and with the truth.

use std::f64::consts::{PI, TAU};
use std::time::Duration;

use asof_core::Stamp;
use asof_demo::{Demo, DemoOptions, House, PlanarPose, Room};

use crate::reader::{Cdr, TRUTH, flat, odometry, on, transforms, truth_at, turn_between};

/// Where the laser sits, as `/tf_static` says.
fn laser_mount() -> PlanarPose {
    let message = on("/tf_static").next().expect("one message");
    let mounts = transforms(message);
    let laser = mounts.iter().find(|(_, _, child, _)| *child == "laser");
    flat(laser.expect("the laser's mount").3)
}

struct Joints {
    stamp: Stamp,
    angles: Vec<f64>,
    rates: Vec<f64>,
}

fn joints() -> Vec<Joints> {
    let read = |message: &'static asof_core::Message| {
        let mut cdr = Cdr::new(&message.payload);
        let (stamp, _) = cdr.header();
        let names: Vec<&str> = (0..cdr.uint32()).map(|_| cdr.string()).collect();
        assert_eq!(names, ["left_wheel_joint", "right_wheel_joint"]);
        let (angles, rates) = (cdr.float64_sequence(), cdr.float64_sequence());
        assert!(cdr.float64_sequence().is_empty());
        cdr.end();
        Joints {
            stamp,
            angles,
            rates,
        }
    };
    on("/joint_states").map(read).collect()
}

/// Forward and to the left, each with its time.
fn commands() -> Vec<(Stamp, f64, f64)> {
    on("/cmd_vel")
        .map(|message| {
            let mut cdr = Cdr::new(&message.payload);
            let [linear, _, _] = cdr.float64s();
            let [_, _, angular] = cdr.float64s();
            cdr.end();
            (message.publish_time, linear, angular)
        })
        .collect()
}

#[test]
fn odometry_is_the_sum_of_the_wheels_motion() {
    let (odometry, joints) = (odometry(), joints());
    let mut sum = PlanarPose::default();
    for (pair, said) in joints.windows(2).zip(&odometry[1..]) {
        assert_eq!(pair[1].stamp, said.stamp);
        let rolled =
            |wheel: usize| (pair[1].angles[wheel] - pair[0].angles[wheel]) * Demo::WHEEL_RADIUS;
        let turn = (rolled(1) - rolled(0)) / Demo::WHEEL_BASE;
        let forward = f64::midpoint(rolled(0), rolled(1));
        let (sin, cos) = (sum.heading + turn / 2.0).sin_cos();
        sum = PlanarPose::new(
            sum.x + forward * cos,
            sum.y + forward * sin,
            sum.heading + turn,
        );
        assert!(sum.distance_to(said.pose.x, said.pose.y) < 0.005);
        assert!(turn_between(sum.heading, said.pose.heading).abs() < 0.001);
    }
}

#[test]
fn wheel_rates_give_the_velocity_of_the_odometry() {
    for (joints, odometry) in joints().iter().zip(&odometry()) {
        let [left, right] = [joints.rates[0], joints.rates[1]].map(|r| r * Demo::WHEEL_RADIUS);
        assert!((f64::midpoint(left, right) - odometry.linear).abs() < 1e-5);
        assert!(((right - left) / Demo::WHEEL_BASE - odometry.angular).abs() < 1e-5);
    }
}

#[test]
fn the_velocity_follows_the_command_as_fast_as_the_motors_can() {
    let (odometry, commands) = (odometry(), commands());
    let most = 1.6 * 0.02;
    let mut checked = 0;
    for pair in odometry.windows(2) {
        let latest = commands.partition_point(|(stamp, ..)| *stamp <= pair[0].stamp) - 1;
        let (_, linear, angular) = commands[latest];
        let wheels = |linear: f64, angular: f64| {
            let half = angular * Demo::WHEEL_BASE / 2.0;
            [linear - half, linear + half]
        };
        let wanted = wheels(linear, angular);
        let before = wheels(pair[0].linear, pair[0].angular);
        let after = wheels(pair[1].linear, pair[1].angular);
        // A decision may fall between the two, and a wall may stop the wheels at once.
        let is_steady = commands
            .get(latest + 1)
            .is_none_or(|next| next.0 >= pair[1].stamp);
        let is_stopped = after[0].abs() < 0.05 && after[1].abs() < 0.05;
        if !is_steady || is_stopped {
            continue;
        }
        for wheel in 0..2 {
            let expected = before[wheel] + (wanted[wheel] - before[wheel]).clamp(-most, most);
            assert!((after[wheel] - expected).abs() < 1e-4, "{}", pair[1].stamp);
        }
        checked += 1;
    }
    assert!(checked > 500, "{checked}");
}

#[test]
fn the_transform_from_odom_to_the_base_is_the_odometry() {
    for (message, odometry) in on("/tf").zip(&odometry()) {
        let transforms = transforms(message);
        let (stamp, parent, child, pose) = transforms[0];
        assert_eq!(
            (stamp, parent, child),
            (odometry.stamp, "odom", "base_link")
        );
        assert_eq!(flat(pose), odometry.pose);
    }
}

#[test]
fn the_transforms_from_the_map_to_the_base_say_where_the_robot_is() {
    for message in on("/tf") {
        let transforms = transforms(message);
        let (stamp, parent, child, correction) = transforms[1];
        assert_eq!((parent, child), ("map", "odom"));
        let believed = flat(correction).then(flat(transforms[0].3));
        let truth = truth_at(stamp);
        assert!(believed.distance_to(truth.x, truth.y) < 0.05, "{stamp}");
        assert!(turn_between(believed.heading, truth.heading).abs() < 0.05);
    }
}

#[test]
fn odometry_alone_drifts_and_the_correction_of_it_moves_slowly() {
    let start = TRUTH[0].1;
    let last = odometry().pop().expect("some odometry");
    let truth = truth_at(last.stamp);
    let wheels_only = start.then(last.pose);
    assert!(wheels_only.distance_to(truth.x, truth.y) > 0.1);
    let corrections: Vec<PlanarPose> = on("/tf").map(|m| flat(transforms(m)[1].3)).collect();
    for pair in corrections.windows(2) {
        assert!(pair[0].distance_to(pair[1].x, pair[1].y) < 0.08);
        assert!(turn_between(pair[0].heading, pair[1].heading).abs() < 0.02);
    }
}

/// Rates of turn and accelerations, with their times.
fn imu() -> Vec<(Stamp, [f64; 3], [f64; 3])> {
    let read = |message: &'static asof_core::Message| {
        let mut cdr = Cdr::new(&message.payload);
        let (stamp, frame) = cdr.header();
        assert_eq!(frame, "imu");
        let [_, _, z, w]: [f64; 4] = cdr.float64s();
        let heading = 2.0 * z.atan2(w) + TRUTH[0].1.heading;
        assert!(turn_between(heading, truth_at(stamp).heading).abs() < 1e-6);
        let _covariance: [f64; 9] = cdr.float64s();
        let rates = cdr.float64s();
        let _covariance: [f64; 9] = cdr.float64s();
        let pulls = cdr.float64s();
        let _covariance: [f64; 9] = cdr.float64s();
        cdr.end();
        (stamp, rates, pulls)
    };
    on("/imu").map(read).collect()
}

#[test]
fn the_gyro_shows_how_fast_the_robot_really_turns() {
    for (pair, (stamp, rates, _)) in TRUTH.windows(2).zip(&imu()[1..]) {
        assert_eq!(pair[1].0, *stamp);
        let turned = turn_between(pair[0].1.heading, pair[1].1.heading) / 0.005;
        assert!((rates[2] - turned).abs() < 0.012, "{stamp}");
        assert!(rates[0].abs() < 0.012 && rates[1].abs() < 0.012);
    }
}

#[test]
fn the_gyro_adds_up_to_the_turn_of_the_odometry_within_its_slip() {
    let turned: f64 = imu().iter().map(|(_, rates, _)| rates[2] * 0.005).sum();
    let said: f64 = odometry()
        .windows(2)
        .map(|pair| turn_between(pair[0].pose.heading, pair[1].pose.heading))
        .sum();
    assert!(
        (turned - said).abs() < 0.04 * said.abs(),
        "{turned} and {said}"
    );
    assert!(said > PI, "the loop is driven to the left: {said}");
}

#[test]
fn the_accelerometer_shows_gravity() {
    let imu = imu();
    let mean = imu.iter().map(|(_, _, pulls)| pulls[2]).sum::<f64>() / imu.len() as f64;
    assert!((mean - 9.80665).abs() < 0.01, "{mean}");
    assert!(
        imu.iter()
            .all(|(_, _, pulls)| (pulls[2] - 9.80665).abs() < 0.2)
    );
}

#[test]
fn the_accelerometer_adds_up_to_the_speed() {
    // Up to the first bump, whose blow is more than the sensor can show.
    let imu = imu();
    let until = imu[0].0.plus_nanos(5_000_000_000);
    let gained: f64 = imu
        .iter()
        .take_while(|(stamp, ..)| *stamp <= until)
        .map(|(_, _, pulls)| pulls[0] * 0.005)
        .sum();
    let odometry = odometry();
    let then = odometry.iter().find(|said| said.stamp >= until);
    let speed = then.expect("odometry after five seconds").linear;
    assert!((gained - speed).abs() < 0.05, "{gained} and {speed}");
}

#[test]
fn a_bump_is_felt_by_the_accelerometer() {
    let imu = imu();
    for (stamp, is_pressed) in bumper() {
        if is_pressed {
            let (_, _, pulls) = imu
                .iter()
                .find(|(at, ..)| *at == stamp)
                .expect("an IMU reading");
            assert!(pulls[0] < -20.0, "{pulls:?}");
        }
    }
}

#[test]
fn ranges_are_what_the_house_shows_from_the_true_place_of_the_laser() {
    let (house, mount) = (House::new(), laser_mount());
    let mut lost = 0;
    for message in on("/scan") {
        let mut cdr = Cdr::new(&message.payload);
        let (stamp, frame) = cdr.header();
        assert_eq!(frame, "laser");
        let angle_min = cdr.float32() as f64;
        let angle_max = cdr.float32() as f64;
        let increment = cdr.float32() as f64;
        let [_, _, range_min, range_max] = [(); 4].map(|()| cdr.float32());
        let (ranges, intensities) = (cdr.float32_sequence(), cdr.float32_sequence());
        cdr.end();
        assert_eq!((ranges.len(), intensities.len()), (360, 360));
        assert!((increment - TAU / 360.0).abs() < 1e-6);
        assert!((angle_min + 359.0 * increment - angle_max).abs() < 1e-4);
        let laser = truth_at(stamp).then(mount);
        for (beam, range) in ranges.into_iter().enumerate() {
            if range.is_infinite() {
                lost += 1;
                continue;
            }
            assert!((range_min..=range_max).contains(&range));
            let direction = laser.heading - PI + beam as f64 * TAU / 360.0;
            let seen = house.range(laser.x, laser.y, direction).expect("a wall");
            assert!((range as f64 - seen).abs() < 0.025, "{range} for {seen}");
        }
    }
    assert!((200..1000).contains(&lost), "some echoes are lost: {lost}");
}

#[test]
fn the_map_grows_and_shows_the_house() {
    let house = House::new();
    let mut known_before = 0;
    for message in on("/map") {
        let mut cdr = Cdr::new(&message.payload);
        assert_eq!(cdr.header().1, "map");
        cdr.stamp();
        let resolution = cdr.float32() as f64;
        let (width, height) = (cdr.uint32() as usize, cdr.uint32() as usize);
        let origin = cdr.pose();
        let cells = cdr.blob();
        cdr.end();
        assert_eq!(cells.len(), width * height);
        let known = cells.iter().filter(|&&cell| cell != 255).count();
        assert!(known >= known_before, "the map forgets");
        known_before = known;
        let mut wrong = 0;
        for (index, &cell) in cells.iter().enumerate() {
            let x = origin.x + ((index % width) as f64 + 0.5) * resolution;
            let y = origin.y + ((index / width) as f64 + 0.5) * resolution;
            let clearance = house.clearance(x, y);
            let is_wrong = match cell {
                100 => clearance > 1.5 * resolution,
                0 => clearance < -1.5 * resolution,
                unknown => unknown != 255,
            };
            wrong += usize::from(is_wrong);
        }
        assert!(wrong * 200 < known, "{wrong} of {known} cells are wrong");
    }
    assert!(
        known_before > 15_000,
        "most of the house was seen: {known_before}"
    );
}

/// When the bumper spoke, and whether it was pressed.
fn bumper() -> Vec<(Stamp, bool)> {
    on("/bumper")
        .map(|message| (message.publish_time, message.payload[4] == 1))
        .collect()
}

#[test]
fn the_bumper_is_pressed_when_and_only_when_the_robot_touches_something() {
    let house = House::new();
    let bumper = bumper();
    assert!(bumper.iter().filter(|(_, is_pressed)| *is_pressed).count() >= 2);
    assert!(!bumper[0].1, "it starts free");
    let mut is_pressed = false;
    let mut spoken = bumper.into_iter().peekable();
    for (stamp, pose) in TRUTH.iter() {
        while let Some((_, now)) = spoken.next_if(|(at, _)| at <= stamp) {
            is_pressed = now;
        }
        let gap = house.clearance(pose.x, pose.y) - Demo::RADIUS;
        assert!(gap > -1e-9, "the robot is inside of a wall");
        if is_pressed {
            assert!(gap < 0.0101, "pressed at a gap of {gap}");
        } else {
            assert!(gap > 1e-5, "free at a gap of {gap}");
        }
    }
}

#[test]
fn after_a_bump_the_robot_stops_backs_off_and_goes_on() {
    let (odometry, commands) = (odometry(), commands());
    for (stamp, is_pressed) in bumper().into_iter().skip(1) {
        if !is_pressed {
            continue;
        }
        let after = |nanos: i64| {
            let at = stamp.plus_nanos(nanos);
            odometry.iter().find(|said| said.stamp >= at)
        };
        assert!(after(20_000_000).expect("odometry").linear.abs() < 0.05);
        let is_backing = |(at, linear, _): &(Stamp, f64, f64)| {
            at.since(stamp) > 0 && at.since(stamp) < 1_000_000_000 && *linear < 0.0
        };
        assert!(commands.iter().any(is_backing));
        assert!(after(3_000_000_000).expect("odometry").linear > 0.0);
    }
}

/// Names and texts of the log.
fn log() -> Vec<(Stamp, u8, &'static str, &'static str)> {
    on("/rosout")
        .map(|message| {
            let mut cdr = Cdr::new(&message.payload);
            let line = (cdr.stamp(), cdr.byte(), cdr.string(), cdr.string());
            cdr.string();
            cdr.string();
            cdr.uint32();
            cdr.end();
            line
        })
        .collect()
}

#[test]
fn the_log_tells_of_the_rooms_in_the_order_of_the_loop() {
    let rooms: Vec<&str> = log()
        .iter()
        .filter_map(|(_, _, _, text)| text.strip_prefix("entering the "))
        .collect();
    assert_eq!(rooms, ["hall", "kitchen", "living room", "study", "hall"]);
    for (stamp, _, _, text) in log() {
        if let Some(name) = text.strip_prefix("entering the ") {
            let pose = truth_at(stamp);
            assert_eq!(Room::at(pose.x, pose.y).name(), name);
        }
    }
}

#[test]
fn the_log_warns_of_every_bump() {
    let told: Vec<Stamp> = log()
        .into_iter()
        .filter(|(_, level, name, _)| (*level, *name) == (30, "bumper"))
        .map(|(stamp, ..)| stamp)
        .collect();
    let felt: Vec<Stamp> = bumper()
        .into_iter()
        .filter_map(|(stamp, is_pressed)| is_pressed.then_some(stamp))
        .collect();
    assert_eq!(told, felt);
}

#[test]
fn the_battery_drains() {
    let charges: Vec<f64> = on("/diagnostics")
        .map(|message| {
            let mut cdr = Cdr::new(&message.payload);
            cdr.header();
            assert_eq!((cdr.uint32(), cdr.byte()), (3, 0));
            assert_eq!((cdr.string(), cdr.string()), ("battery", "discharging"));
            assert_eq!((cdr.string(), cdr.uint32()), ("rover-battery", 3));
            assert_eq!(cdr.string(), "charge [%]");
            cdr.string().parse().expect("a number")
        })
        .collect();
    assert!(charges.is_sorted_by(|earlier, later| earlier >= later));
    assert!(charges[0] > charges[29] && charges[29] > 80.0);
}

#[test]
fn the_static_transforms_mount_every_sensor_on_the_base() {
    let message = on("/tf_static").next().expect("one message");
    let mounts: Vec<(&str, &str)> = transforms(message)
        .iter()
        .map(|&(_, parent, child, _)| (parent, child))
        .collect();
    assert_eq!(
        mounts,
        [
            ("base_link", "laser"),
            ("base_link", "camera"),
            ("camera", "camera_optical"),
            ("base_link", "imu"),
            ("base_link", "bumper"),
        ]
    );
}

#[test]
fn every_seed_drives_through_all_rooms_touches_walls_and_never_gets_stuck() {
    let house = House::new();
    for seed in 0..12 {
        let demo = Demo::new(DemoOptions {
            seed,
            duration: Duration::from_mins(2),
            ..DemoOptions::default()
        });
        let mut entered = Vec::new();
        let mut bumps_in_30_seconds = 0;
        let mut was_touching = false;
        for (index, (_, pose)) in demo.truth().enumerate() {
            let room = Room::at(pose.x, pose.y);
            if entered.last() != Some(&room) {
                entered.push(room);
            }
            let gap = house.clearance(pose.x, pose.y) - Demo::RADIUS;
            assert!(gap > -1e-9, "seed {seed}");
            let is_touching = gap < if was_touching { 0.01 } else { 1e-4 };
            if is_touching && !was_touching && index < 6000 {
                bumps_in_30_seconds += 1;
            }
            was_touching = is_touching;
        }
        assert!(bumps_in_30_seconds >= 2, "seed {seed}");
        // Four laps and a bit, at four rooms each.
        assert!(
            (15..=20).contains(&entered.len()),
            "seed {seed}: {entered:?}"
        );
    }
}
