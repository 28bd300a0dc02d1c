//! The suite `live`: from publishing to visible in a window, beside a bare Zenoh subscriber's callback.
//!
//! Two sessions on 127.0.0.1, without multicast. Figures are the middle latency of a turn in nanoseconds of wall time;
//! both contenders are sent the same bytes by the same session, in turns. `discover_1000_topics` is the time in
//! milliseconds until a session that is just opened lists 1,000 topics of rmw_zenoh.

use std::cell::Cell;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::sleep;
use std::time::{Duration, Instant};

use asof_live::{Robot, Sample, connect};
use zenoh::Wait;

use crate::harness::{Bench, contender};

const KIND: &str = "sensor_msgs::msg::dds_::Image_";
const HASH: &str = "RIHS01_d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47";
/// Topics that are discovered.
const TOPICS: usize = 1_000;
const SOON: Duration = Duration::from_secs(20);

pub fn run(bench: &mut Bench) {
    let address = std::net::TcpListener::bind("127.0.0.1:0").and_then(|probe| probe.local_addr());
    let port = address.expect("a port of this machine").port();
    let robot = connect(&format!("zenoh://?listen=127.0.0.1:{port}")).expect("a publisher");
    let observer = connect(&format!("zenoh://127.0.0.1:{port}")).expect("a subscriber");
    let cases = [
        ("end_to_end_100_bytes", 100, 300, Duration::from_millis(1)),
        ("end_to_end_1_mb", 1 << 20, 40, Duration::from_millis(15)),
    ];
    for (case, size, count, pause) in cases {
        if bench.wants(case) {
            measure(bench, case, &robot, &observer, (size, count, pause));
        }
    }
    let case = "discover_1000_topics";
    if bench.wants(case) {
        discover(bench, case, &robot, port);
    }
}

/// From opening a session to a list of all topics of a robot that has many.
fn discover(bench: &Bench, case: &str, robot: &Robot, port: u16) {
    let session = robot.zenoh().expect("on Zenoh");
    let token = |number: usize| {
        let token = format!(
            "@ros2_lv/0/{}/0/{}/MP/%/%/many/%many%t{number}/{KIND}/{HASH}/::,:,:,:,,",
            session.zid(),
            number + 10,
        );
        let declared = session.liveliness().declare_token(token).wait();
        declared.expect("a token")
    };
    let _tokens: Vec<_> = (0..TOPICS).map(token).collect();
    let turn = || {
        let start = Instant::now();
        let observer = connect(&format!("zenoh://127.0.0.1:{port}")).expect("a session");
        let listed = || {
            let topics = observer.topics();
            let many = topics
                .iter()
                .filter(|topic| topic.name.starts_with("/many/"));
            many.count()
        };
        while listed() < TOPICS {
            assert!(
                start.elapsed() < SOON,
                "only {} topics were discovered",
                listed()
            );
            sleep(Duration::from_millis(1));
        }
        start.elapsed().as_secs_f64() * 1e3
    };
    bench.case(case, "ms", 5, vec![contender("asof", turn)]);
}

/// Arrivals of one contender: the number of the message, and when it was there.
struct Lane {
    key: String,
    arrivals: Receiver<(u32, Instant)>,
}

fn measure(
    bench: &Bench,
    case: &str,
    robot: &Robot,
    observer: &Robot,
    (size, count, pause): (usize, u32, Duration),
) {
    let (sender, arrivals) = mpsc::channel();
    let bare = Lane {
        key: format!("0/{case}/bare/{KIND}/{HASH}"),
        arrivals,
    };
    let _bare = observer
        .zenoh()
        .expect("on Zenoh")
        .declare_subscriber(bare.key.clone())
        .callback(move |sample| {
            let arrived = Instant::now();
            let head = sample.payload().slices().next().unwrap_or_default();
            note(&sender, head, arrived);
        })
        .wait()
        .expect("a subscriber");

    let (sender, arrivals) = mpsc::channel();
    let ours = Lane {
        key: format!("0/{case}/asof/{KIND}/{HASH}"),
        arrivals,
    };
    let token = format!(
        "@ros2_lv/0/{}/0/1/MP/%/%/bench/%{case}%asof/{KIND}/{HASH}/::,:,:,:,,",
        robot.zenoh().expect("on Zenoh").zid()
    );
    let _token = robot
        .zenoh()
        .expect("on Zenoh")
        .liveliness()
        .declare_token(token)
        .wait()
        .expect("a token");
    let window = observer
        .create_window::<Sample>(format!("/{case}/asof"), 50)
        .with_stamp(|sample: &Sample| sample.header_stamp())
        .build()
        .expect("a window");
    // Called when the message is in the window, and any reader can see it.
    let _connection = window.on_insert(move |entry| {
        let arrived = Instant::now();
        let _ = sender.send((entry.stamp.nanos() as u32, arrived));
    });
    let start = Instant::now();
    while window.keys().is_empty() {
        assert!(start.elapsed() < SOON, "the topic was not discovered");
        sleep(Duration::from_millis(10));
    }
    // Subscriptions have to reach the publisher.
    sleep(Duration::from_millis(500));

    let payload = |number: u32| {
        let mut cdr = vec![0u8; size];
        cdr[..4].copy_from_slice(&[0, 1, 0, 0]);
        // The message's number is its header's nanoseconds.
        cdr[8..12].copy_from_slice(&number.to_le_bytes());
        cdr
    };
    let publishers = [&ours, &bare].map(|lane| {
        robot
            .zenoh()
            .expect("on Zenoh")
            .declare_publisher(lane.key.clone())
            .congestion_control(zenoh::qos::CongestionControl::Block)
            .wait()
            .expect("a publisher")
    });
    // Numbers go on from turn to turn: a window refuses what is older than all that it has.
    let next = Cell::new(0);
    let turn = |lane: &Lane, publisher: &zenoh::pubsub::Publisher<'_>| -> f64 {
        let first = next.replace(next.get() + count);
        let mut sent = Vec::with_capacity(count as usize);
        for number in first..first + count {
            let payload = payload(number);
            sent.push(Instant::now());
            publisher.put(payload).wait().expect("published");
            sleep(pause);
        }
        let mut latencies: Vec<f64> = (0..count)
            .map(|_| {
                let (number, arrived) = lane.arrivals.recv_timeout(SOON).expect("a message");
                (arrived - sent[(number - first) as usize]).as_nanos() as f64
            })
            .collect();
        latencies.sort_by(f64::total_cmp);
        latencies[latencies.len() / 2]
    };
    let [to_ours, to_bare] = &publishers;
    let contenders = vec![
        contender("asof", || turn(&ours, to_ours)),
        contender("zenoh", || turn(&bare, to_bare)),
    ];
    bench.case(case, "ns", 15, contenders);
}

fn note(sender: &Sender<(u32, Instant)>, head: &[u8], arrived: Instant) {
    if let Some(number) = head.get(8..12).and_then(|bytes| bytes.try_into().ok()) {
        let _ = sender.send((u32::from_le_bytes(number), arrived));
    }
}
