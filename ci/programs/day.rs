//! A robot's day, played faster: the recorder's memory must not grow, and every message must be written or counted as dropped.
//!
//! Usage: `day FOLDER [HOURS [MESSAGES_PER_SECOND [BYTES]]]`
//!
//! A robot on Zenoh, on this machine, publishes as fast as it is received, by its own clock. The recorder logs by that
//! clock (`/clock`), splits by it every ten minutes, and deletes files beyond a quota. A line for each hour has the
//! memory of this process, robot and recorder together.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use asof_core::Source;
use asof_formats::McapFile;
use asof_live::ros::QosProfile;
use asof_live::{PublisherOptions, Robot, TopicPublisher, connect};
use asof_record::{RecordOptions, RecordReport, Recorder, SplitOptions};

const TOPICS: u64 = 10;
const QUOTA: u64 = 200_000_000;
const PATIENCE: Duration = Duration::from_mins(1);
/// How much the memory may grow after the first hours.
const MOST_GROWTH_BYTES: u64 = 48 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("give a folder")?);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (hours, rate, bytes) = (number(24)?, number(25)?, number(20_000)? as usize);

    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let robot = connect(&format!("zenoh://?listen=127.0.0.1:{port}"))?;
    let observer = connect(&format!("zenoh://127.0.0.1:{port}"))?;
    let clock = publisher(
        &robot,
        "/clock",
        "rosgraph_msgs/msg/Clock",
        "builtin_interfaces/Time clock",
    )?;
    let publishers: Vec<TopicPublisher> = (0..TOPICS)
        .map(|topic| {
            publisher(
                &robot,
                &format!("/topic{topic}"),
                "std_msgs/msg/ByteMultiArray",
                "",
            )
        })
        .collect::<Result<_, _>>()?;
    let split = SplitOptions {
        time: Some(Duration::from_mins(10)),
        quota: Some(QUOTA),
        ..SplitOptions::default()
    };
    let options = RecordOptions {
        queue_bytes: 64 << 20,
        sim_time: true,
        ..RecordOptions::default()
    };
    let recorder = Recorder::create_parts(
        &observer,
        folder.join("day.mcap"),
        split,
        options,
        |publisher| publisher.channel.topic != "/clock",
    )?;
    wait_until_heard(&clock, &publishers, &recorder)?;
    let early = recorder.report();

    let began = Instant::now();
    let mut sent = 0_u64;
    let mut payload = vec![7; bytes.max(8)];
    let mut hourly = Vec::new();
    for second in 1..=hours * 3600 {
        tell_time(&clock, second)?;
        for _ in 0..rate {
            stir(&mut payload, sent);
            let place = (sent % TOPICS) as usize;
            publishers[place].publish(payload.clone(), 0.into())?;
            sent += 1;
        }
        if second % 3600 == 0 {
            let report = recorder.report();
            let memory = resident().unwrap_or_default();
            hourly.push(memory);
            println!(
                "hour {:2}: {} MB resident, {} written, {} dropped, {} files deleted, {:.0} s",
                second / 3600,
                memory >> 20,
                report.written(),
                report.dropped(),
                report.parts.deleted,
                began.elapsed().as_secs_f64()
            );
        }
    }
    // Wait for messages in flight: then each one is counted as written or dropped.
    let known = |report: &RecordReport| report.written() + report.dropped() - before(&early);
    let end = Instant::now() + PATIENCE;
    while known(&recorder.report()) < sent && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
    let report = recorder.stop()?;
    let (dropped, total) = (report.dropped(), known(&report));
    if total != sent {
        return Err(format!(
            "{sent} messages were sent, but only {total} are counted as written or dropped"
        )
        .into());
    }
    let mut size = 0;
    for file in &report.parts.files {
        size += std::fs::metadata(file)?.len();
        if !McapFile::open(file)?.summary().problems.is_empty() {
            return Err(format!("{} is damaged", file.display()).into());
        }
    }
    let steady = hourly
        .get(1)
        .or(hourly.first())
        .copied()
        .unwrap_or_default();
    let most = hourly.iter().copied().max().unwrap_or_default();
    println!(
        "{hours} hours of {rate} messages of {bytes} bytes a second in {:.0} s: {sent} sent, {} written, {dropped} dropped and \
         counted; {} files of {} MB are left and {} were deleted; {} MB resident after two hours, {} MB at most",
        began.elapsed().as_secs_f64(),
        sent - dropped,
        report.parts.files.len(),
        size >> 20,
        report.parts.deleted,
        steady >> 20,
        most >> 20
    );
    if most > steady + MOST_GROWTH_BYTES {
        return Err("memory grew".into());
    }
    Ok(())
}

fn publisher(
    robot: &Robot,
    topic: &str,
    type_name: &str,
    definition: &str,
) -> Result<TopicPublisher, asof_live::LiveError> {
    robot.publisher(&PublisherOptions {
        node: "robot".to_owned(),
        topic: topic.to_owned(),
        type_name: type_name.to_owned(),
        definition: definition.to_owned(),
        qos: QosProfile::default(),
        waits: true,
    })
}

fn tell_time(clock: &TopicPublisher, second: u64) -> Result<(), asof_live::LiveError> {
    let mut time = vec![0, 1, 0, 0];
    time.extend((second as u32).to_le_bytes());
    time.extend(0_u32.to_le_bytes());
    clock.publish(time, 0.into())
}

/// Publishes until every topic is recorded.
fn wait_until_heard(
    clock: &TopicPublisher,
    publishers: &[TopicPublisher],
    recorder: &Recorder,
) -> Result<(), Box<dyn Error>> {
    let end = Instant::now() + PATIENCE;
    let is_heard = |recorder: &Recorder| {
        let report = recorder.report();
        let heard = report.topics.values().filter(|topic| topic.written > 0);
        heard.count() as u64 == TOPICS
    };
    while !is_heard(recorder) {
        if Instant::now() > end {
            return Err("the recorder does not receive the robot's messages".into());
        }
        tell_time(clock, 0)?;
        for publisher in publishers {
            publisher.publish(vec![0; 8], 0.into())?;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    // Messages in flight.
    std::thread::sleep(Duration::from_secs(2));
    Ok(())
}

/// Makes a message differ from the one before: part of it is incompressible.
fn stir(payload: &mut [u8], number: u64) {
    let mut state = number | 1;
    for byte in payload.iter_mut().skip(4).take(500) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
}

/// Messages that were counted before the day began.
fn before(report: &RecordReport) -> u64 {
    report.written() + report.dropped()
}

/// The memory of this process, where the system provides it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes << 10)
}
