//! A simulated robot that publishes as rmw_zenoh does. It drives through its rooms until it is stopped.
//!
//! usage: robot [ADDRESS] [SECONDS]; the address to listen on is `zenoh://?listen=127.0.0.1:7447` by default. In
//! another terminal: `asof serve zenoh://127.0.0.1:7447`, or `asof live`, or `asof record`.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use asof_core::{Channel, Stamp};
use asof_demo::{Demo, DemoOptions};
use asof_live::Robot;
use asof_live::ros::{SampleAttachment, TopicKey, dds_type_name};
use zenoh::Wait;
use zenoh_ext::{AdvancedPublisher, AdvancedPublisherBuilderExt, CacheConfig};

/// ROS 2 Humble has this instead of a hash.
const NO_HASH: &str = "TypeHashNotSupported";

fn main() -> zenoh::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let address = address
        .as_deref()
        .unwrap_or("zenoh://?listen=127.0.0.1:7447");
    let seconds = arguments.next().map_or(Ok(3600), |text| text.parse())?;
    let robot = asof_live::connect(address)?;
    let demo = Demo::new(DemoOptions {
        start: Stamp::try_from(SystemTime::now())?,
        duration: Duration::from_secs(seconds),
        ..DemoOptions::default()
    });
    let mut publishers = HashMap::new();
    for (number, channel) in demo.channels().iter().enumerate() {
        let declared = declare(&robot, number + 1, channel)?;
        publishers.insert(channel.topic.clone(), declared);
    }
    let began = Instant::now();
    // Each publisher numbers its messages: a gap is a lost message.
    let mut counts: HashMap<String, i64> = HashMap::new();
    for message in demo.messages() {
        let due = message.log_time.since(demo.options().start).max(0);
        sleep(Duration::from_nanos(due as u64).saturating_sub(began.elapsed()));
        let count = counts.entry(message.channel.topic.clone()).or_default();
        *count += 1;
        let attachment = SampleAttachment {
            sequence: *count,
            source_timestamp: message.publish_time,
            gid: [7; 16],
        };
        if let Some((publisher, _token)) = publishers.get(&message.channel.topic) {
            publisher
                .put(message.payload.to_vec())
                .attachment(attachment.to_bytes().to_vec())
                .wait()?;
        }
    }
    Ok(())
}

type Declared = (
    AdvancedPublisher<'static>,
    zenoh::liveliness::LivelinessToken,
);

/// A publisher, and its liveliness token. Messages that are sent once are kept for late joiners.
fn declare(robot: &Robot, number: usize, channel: &Channel) -> zenoh::Result<Declared> {
    let key = TopicKey {
        domain: 0,
        topic: channel.topic.clone(),
        dds_type: dds_type_name(channel.type_name()),
        type_hash: NO_HASH.to_owned(),
    };
    let is_latched = ["/tf_static", "/map"].contains(&channel.topic.as_str());
    let kept = CacheConfig::default().max_samples(1);
    let builder = robot
        .zenoh()?
        .declare_publisher(key.to_string())
        .cache(kept);
    let publisher = builder.publisher_detection().wait()?;
    let token = format!(
        "@ros2_lv/0/{}/0/{number}/MP/%/%/robot/{}/{}/{NO_HASH}/{}",
        robot.zenoh()?.zid(),
        channel.topic.replace('/', "%"),
        key.dds_type,
        if is_latched {
            ":1:,1:,:,:,,"
        } else {
            "::,:,:,:,,"
        },
    );
    let token = robot.zenoh()?.liveliness().declare_token(token).wait()?;
    Ok((publisher, token))
}
