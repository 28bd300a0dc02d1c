use asof::{Query, Rows, decode::ros::Odometry, messages};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let recording = asof::open("asof-demo.mcap")?;
    let x = Rows::read(&*recording, "/odom")?.f64("pose.pose.position.x")?;
    println!("{} poses, x from {:?} m on", x.len(), x.first());
    for odometry in messages::<Odometry>(&*recording, &Query::topics(["/odom"]))? {
        println!("{:?}", odometry?.message.pose.pose.position);
    }
    Ok(())
}
