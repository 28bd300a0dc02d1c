//! Two sessions on 127.0.0.1, a robot and its observer, and what the tests ask of them.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use asof_core::{Message, Query, Source};
use asof_formats::McapFile;
use asof_live::ros::{Durability, QosProfile};
use asof_live::{PublisherOptions, Robot, TopicPublisher, connect};

/// Long: a machine may be slow, and a test that passes never waits for so long.
pub const SOON: Duration = Duration::from_mins(1);

pub fn pair() -> (Robot, Robot) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let robot = connect(&format!("zenoh://?listen=127.0.0.1:{port}")).expect("a listener");
    let observer = connect(&format!("zenoh://127.0.0.1:{port}")).expect("a session");
    (robot, observer)
}

/// Announces a topic whose messages are numbers.
pub fn talker(robot: &Robot, topic: &str, durability: Durability) -> TopicPublisher {
    let options = PublisherOptions {
        node: "driver".to_owned(),
        topic: topic.to_owned(),
        type_name: "std_msgs/msg/UInt32".to_owned(),
        definition: "uint32 data".to_owned(),
        qos: QosProfile {
            durability,
            ..QosProfile::default()
        },
        // A burst must not be thinned out on a busy machine.
        waits: true,
    };
    robot.publisher(&options).expect("a publisher")
}

pub fn number(value: u32) -> Vec<u8> {
    [&[0, 1, 0, 0], &value.to_le_bytes()[..]].concat()
}

/// The messages of a file.
pub fn messages(path: &Path) -> Vec<Message> {
    let file = McapFile::open(path).expect("readable");
    let batches = file.read(&Query::all()).expect("readable");
    let batches = batches.map(|batch| batch.expect("a batch"));
    let messages =
        batches.flat_map(|batch| batch.iter().map(|m| m.to_message()).collect::<Vec<_>>());
    messages.collect()
}
