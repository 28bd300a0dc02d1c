//! `asof record`: a robot into a file.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use asof_formats::Compression;
use asof_live::{LiveError, RecordOptions, RecordReport, Recorder, TopicReport};
use indicatif::ProgressBar;
use serde_json::json;

use super::Record;
use super::robot::{Session, TICK};
use crate::cli::Outcome;
use crate::cli::numbers::{bytes, counted, grouped};
use crate::cli::place::quoted;
use crate::cli::screen::{Screen, output};

/// A slow disk is told of this often.
const COMPLAINT: Duration = Duration::from_secs(1);
/// The status line is renewed this often.
const NEWS: Duration = Duration::from_millis(250);

pub fn run(verb: &Record, screen: &Screen) -> anyhow::Result<Outcome> {
    // Before anybody waits for a robot that may come much later.
    check(&verb.output, verb.force)?;
    let mut session = verb.connection.open(screen)?;
    // Written in place from the start: whatever happens, what was recorded is where it was asked for.
    let file = create(&verb.output, verb.force)?;
    let mut options = RecordOptions {
        queue_bytes: verb.queue.saturating_mul(1 << 20),
        ..RecordOptions::default()
    };
    options.writer.compression = match verb.compression.as_str() {
        "none" => Compression::None,
        "lz4" => Compression::Lz4,
        _ => Compression::Zstd,
    };
    let chooser = verb.connection.chooser();
    let file = Straight {
        file: BufWriter::with_capacity(1 << 17, file),
        position: 0,
    };
    let mut recorder = Recorder::start(&session.robot, file, options, chooser)?;
    for key in &verb.connection.key {
        recorder.add_key(&session.robot, key)?;
    }
    follow(&mut session, &recorder, verb, screen);
    let elapsed = session.elapsed();
    let report = recorder.stop().map_err(|error| broken(verb, error))?;
    tell(verb, &report, elapsed, screen)
}

fn follow(session: &mut Session, recorder: &Recorder, verb: &Record, screen: &Screen) {
    let bar = screen.progress(0, "{msg}");
    let (mut told, mut complained, mut renewed) = (0, None::<Instant>, None::<Instant>);
    while session.is_open() && recorder.is_recording() {
        session.wait(Instant::now() + TICK);
        bar.suspend(|| session.tell(screen));
        let report = recorder.report();
        let is_due = complained.is_none_or(|last| last.elapsed() >= COMPLAINT);
        if report.dropped() > told && is_due {
            told = report.dropped();
            complained = Some(Instant::now());
            bar.suspend(|| complain(&report, screen));
        }
        if renewed.is_none_or(|last| last.elapsed() >= NEWS) {
            renewed = Some(Instant::now());
            show(&bar, &report, session.elapsed(), verb);
        }
    }
    bar.finish_and_clear();
}

fn show(bar: &ProgressBar, report: &RecordReport, elapsed: Duration, verb: &Record) {
    let size = std::fs::metadata(&verb.output).map_or(0, |found| found.len());
    bar.set_message(format!(
        "{:.1} s · {} · {} · {} in {} · {} waiting",
        elapsed.as_secs_f64(),
        counted(report.topics.len() as u64, "topic"),
        counted(report.written(), "message"),
        bytes(size),
        verb.output.display(),
        bytes(report.waiting_bytes),
    ));
}

fn complain(report: &RecordReport, screen: &Screen) {
    let mut worst: Vec<_> = report
        .topics
        .iter()
        .filter(|(_, topic)| topic.dropped > 0)
        .collect();
    worst.sort_by_key(|(_, topic)| std::cmp::Reverse(topic.dropped));
    let named = worst.iter().take(5);
    let named: Vec<_> = named
        .map(|(name, topic)| format!("{} of {name}", grouped(topic.dropped)))
        .collect();
    screen.warning(format_args!(
        "the disk is slower than the robot: {} dropped so far ({}); record fewer topics, or with --compression none",
        counted(report.dropped(), "message"),
        named.join(", "),
    ));
}

fn tell(
    verb: &Record,
    report: &RecordReport,
    elapsed: Duration,
    screen: &Screen,
) -> anyhow::Result<Outcome> {
    let size = std::fs::metadata(&verb.output).map_or(0, |found| found.len());
    let named = |is_meant: fn(&TopicReport) -> bool| -> Vec<&str> {
        let topics = report.topics.iter();
        let meant = topics.filter(|(_, topic)| is_meant(topic));
        meant.map(|(name, _)| name.as_str()).collect()
    };
    let other = named(|topic| topic.is_defined_otherwise);
    if !other.is_empty() {
        screen.warning(format_args!(
            "the types of {} are not the ones of those names that are known here (their hashes differ), and no node \
             described them: they are recorded but cannot be decoded; give a folder of the robot's .msg files with --msg-path",
            other.join(", ")
        ));
    }
    let undefined = named(|topic| topic.is_undefined && !topic.is_defined_otherwise);
    if !undefined.is_empty() {
        screen.note(format_args!(
            "no definition of the types of {} could be had, so they are recorded but cannot be decoded; \
             give a folder of .msg files with --msg-path",
            undefined.join(", ")
        ));
    }
    for (name, topic) in &report.topics {
        if topic.dropped > 0 {
            let dropped = counted(topic.dropped, "message");
            screen.warning(format_args!(
                "{dropped} of {name} dropped: the disk was slower than the robot"
            ));
        }
        if topic.refused > 0 {
            let refused = counted(topic.refused, "message");
            screen.warning(format_args!(
                "{refused} of {name} left out: their times are before 1970"
            ));
        }
    }
    if report.topics.is_empty() {
        screen.note(
            "nothing was recorded: no topic was seen; `asof live` shows what is there, raw Zenoh keys are \
             recorded with --key",
        );
    }
    let mut out = output();
    if verb.json {
        let topics: Vec<_> = report
            .topics
            .iter()
            .map(|(name, topic)| {
                json!({
                    "topic": name, "messages": topic.written, "dropped": topic.dropped, "refused": topic.refused,
                })
            })
            .collect();
        let summary = json!({
            "path": verb.output, "size": size, "duration": elapsed.as_secs_f64(),
            "messages": report.written(), "dropped": report.dropped(), "topics": topics,
        });
        writeln!(out, "{summary}")?;
    } else {
        writeln!(
            out,
            "{}: {} of {} in {:.1} s, {}",
            verb.output.display(),
            counted(report.written(), "message"),
            counted(report.topics.len() as u64, "topic"),
            elapsed.as_secs_f64(),
            bytes(size),
        )?;
    }
    out.flush()?;
    let has_losses = report
        .topics
        .values()
        .any(|topic| topic.dropped + topic.refused > 0);
    Ok(if has_losses {
        Outcome::Damaged
    } else {
        Outcome::Done
    })
}

/// Written from front to back: its position is known without asking, which a pipe could not answer.
struct Straight {
    file: BufWriter<File>,
    position: u64,
}

impl Write for Straight {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.position += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Straight {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let is_here = matches!(to, SeekFrom::Current(0)) || to == SeekFrom::Start(self.position);
        if !is_here {
            self.position = self.file.seek(to)?;
        }
        Ok(self.position)
    }
}

fn create(path: &Path, force: bool) -> anyhow::Result<File> {
    let mut options = File::options();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    options.open(path).map_err(|error| refused(path, error))
}

/// What can be known to be in the way without making the file.
fn check(path: &Path, force: bool) -> anyhow::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let in_the_way = if folder.is_some_and(|folder| !folder.exists()) {
        ErrorKind::NotFound
    } else if !force && path.exists() {
        ErrorKind::AlreadyExists
    } else {
        return Ok(());
    };
    Err(refused(path, in_the_way.into()))
}

fn refused(path: &Path, error: std::io::Error) -> anyhow::Error {
    let shown = path.display();
    let line = match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{shown} exists already; name another file with -o, or replace it with --force")
        }
        ErrorKind::NotFound => {
            format!("cannot write {shown}: there is no such folder; make it first")
        }
        ErrorKind::PermissionDenied => {
            format!("cannot write {shown}: permission denied; choose another folder with -o")
        }
        _ => format!("cannot write {shown}: {error}"),
    };
    anyhow!(error).context(line)
}

/// What was written before the disk failed is there all the same.
fn broken(verb: &Record, error: LiveError) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    // The disk's own words say most: it is full, or gone.
    let mut causes = error.chain();
    let reason = match causes.find_map(|cause| cause.downcast_ref::<std::io::Error>()) {
        Some(cause) => format!("cannot write the recording: {cause}"),
        None => error.to_string(),
    };
    let line = format!(
        "{reason}; what came before is in {}: `asof recover` makes it whole",
        quoted(&verb.output)
    );
    error.context(line)
}
