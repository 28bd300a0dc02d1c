//! What came of recording a robot: what is missing, for people and for programs.

use asof_live::StampHealth;
use asof_record::{RecordReport, SnapshotReport, TopicReport, Trigger};
use serde_json::json;

use super::Robot;
use crate::Progress;
use crate::text::counted;

/// Reports what is missing in a recording of a robot, or cannot be decoded, and why.
pub fn tell_losses(report: &RecordReport, progress: &Progress) {
    let named = |is_meant: fn(&TopicReport) -> bool| -> Vec<&str> {
        let topics = report.topics.iter();
        let meant = topics.filter(|(_, topic)| is_meant(topic));
        meant.map(|(name, _)| name.as_str()).collect()
    };
    let other = named(|topic| topic.is_defined_otherwise);
    if !other.is_empty() {
        progress.warning(format_args!(
            "the types of {} differ from the known types of those names (their hashes differ), and no node \
             described them: they are recorded but cannot be decoded; give a folder of the robot's .msg files with --msg-path",
            other.join(", ")
        ));
    }
    let undefined = named(|topic| topic.is_undefined && !topic.is_defined_otherwise);
    if !undefined.is_empty() {
        progress.note(format_args!(
            "no definition of the types of {} was found, so they are recorded but cannot be decoded; \
             give a folder of .msg files with --msg-path",
            undefined.join(", ")
        ));
    }
    for (name, topic) in &report.topics {
        if topic.dropped > 0 {
            let dropped = counted(topic.dropped, "message");
            progress.warning(format_args!(
                "{dropped} of {name} dropped: the disk was slower than the robot"
            ));
        }
        if topic.lost > 0 {
            let lost = counted(topic.lost, "message");
            progress.note(format_args!(
                "{lost} of {name} never arrived: they are missing in the sequence numbers of its publishers"
            ));
        }
        if !topic.stamps.is_good() {
            progress.note(format_args!("{name}: {}", topic.stamps));
        }
        if topic.early > 0 {
            let early = counted(topic.early, "message");
            progress.note(format_args!(
                "{early} of {name} left out: they arrived before the robot's clock"
            ));
        }
        if topic.mistimed > 0 {
            let mistimed = counted(topic.mistimed, "message");
            progress.warning(format_args!(
                "{mistimed} of {name} have times before 1970: they are recorded with the time of receipt"
            ));
        }
        if topic.refused > 0 {
            let refused = counted(topic.refused, "message");
            progress.warning(format_args!(
                "{refused} of {name} left out: their times are before 1970"
            ));
        }
    }
    if report.snapshots.crowded_out > 0 {
        progress.note(format_args!(
            "{} did not stay for the time of --keep: they exceed --keep-size",
            counted(report.snapshots.crowded_out, "message"),
        ));
    }
    if report.topics.is_empty() {
        progress.note("nothing was recorded: no topic was seen; `asof live` shows what is there");
    }
}

/// The topics of a recording of a robot, for programs.
pub fn topics_as_json(report: &RecordReport) -> serde_json::Value {
    let topics = report.topics.iter().map(|(name, topic)| {
        json!({
            "topic": name, "messages": topic.written, "dropped": topic.dropped, "refused": topic.refused, "mistimed": topic.mistimed,
            "early": topic.early, "lost": topic.lost, "stamps": stamps_as_json(&topic.stamps),
        })
    });
    topics.collect()
}

/// How the stamps of a topic stand to the arrival of its messages, for programs.
pub fn stamps_as_json(stamps: &StampHealth) -> serde_json::Value {
    json!({"off": stamps.off, "offset": stamps.offset, "zero": stamps.zero, "jumps": stamps.jumps})
}

/// What was kept and written of snapshots, for programs.
pub fn snapshots_as_json(snapshots: &SnapshotReport) -> serde_json::Value {
    json!({
        "triggered": snapshots.triggered, "last": snapshots.last, "is_writing": snapshots.is_writing,
        "files": snapshots.files, "written": snapshots.written, "kept": snapshots.kept,
        "kept_bytes": snapshots.kept_bytes, "crowded_out": snapshots.crowded_out, "problems": snapshots.problems,
    })
}

/// Why triggers cannot fire on these robots, whose topics are recorded with these prefixes: their topic or their field does
/// not exist.
pub fn trigger_problems(triggers: &[Trigger], robots: &[(Robot, &str)]) -> Vec<String> {
    let named = |(robot, prefix): &(Robot, &str)| {
        let topics = robot.topics().into_iter();
        let named = topics.map(|topic| (format!("{prefix}{}", topic.name), topic.publishers));
        named.collect::<Vec<_>>()
    };
    let published: Vec<_> = robots.iter().flat_map(named).collect();
    let mut problems = Vec::new();
    for trigger in triggers {
        let Some(topic) = trigger.topic() else {
            continue;
        };
        let mut found = published
            .iter()
            .filter(|(name, _)| name == topic)
            .peekable();
        if found.peek().is_none() {
            problems.push(format!(
                "the trigger '{trigger}' cannot fire: {topic} is not published"
            ));
        }
        let channels = found.flat_map(|(_, publishers)| publishers);
        let mut defined = channels.filter(|one| {
            let schema = one.channel.schema.as_deref();
            schema.is_some_and(|schema| !schema.data.is_empty())
        });
        problems.extend(defined.find_map(|one| trigger.problem_on(&one.channel)));
    }
    problems
}
