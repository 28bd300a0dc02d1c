use asof::decode::ros::Odometry;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let odom = asof::open("asof-demo.mcap")?.topic("/odom")?;
    let x = odom.f64("pose.pose.position.x")?;
    println!("{} poses, x from {:?} m on", x.len(), x.first());
    for odometry in odom.messages::<Odometry>()? {
        println!("{:?}", odometry?.message.pose.pose.position);
    }
    Ok(())
}
