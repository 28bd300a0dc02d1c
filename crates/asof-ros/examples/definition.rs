//! Prints the full definition of a ROS type, with those of all types in it, without a ROS installation.
//!
//! `cargo run -p asof-ros --example definition -- nav_msgs/msg/Odometry [FOLDER WITH .msg FILES]...`

use asof_ros::{Definitions, Era};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments
        .next()
        .unwrap_or_else(|| "nav_msgs/msg/Odometry".into());
    let definitions = Definitions::with_folders(arguments)?;
    let found = definitions.definition_of(&name, Era::Humble)?;
    println!("# {name}, as {}\n{}", found.encoding, found.text);
    #[cfg(feature = "hash")]
    if let Some(hash) = asof_ros::type_hash(&name, &found.text) {
        println!("# {hash}");
    }
    Ok(())
}
