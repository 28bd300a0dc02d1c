//! Any text at all, as a robot's description: its joints become edges, or it is refused, without a panic.

#![no_main]

use asof_tf::ros::JointPositions;
use asof_tf::{RobotModel, TransformBuffer};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(robot) = RobotModel::from_urdf(text) else {
        return;
    };
    let buffer = TransformBuffer::new();
    robot.publish_fixed(&buffer);
    let names: Vec<String> = robot.movable_joints().map(str::to_owned).collect();
    let state = JointPositions {
        stamp: 1.into(),
        positions: (0..names.len()).map(|i| i as f64 * 0.1).collect(),
        names,
    };
    robot.move_joints(&buffer, &state);
    drop((buffer.to_tree(), buffer.to_dot()));
});
