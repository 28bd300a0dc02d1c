//! `asof record`: a robot into a file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use asof::live::Publisher;
use asof::live::ros::{QosError, QosOverride};
use asof::record::{
    Priorities, RecordError, RecordOptions, RecordReport, Recorder, SnapshotOptions,
    SnapshotReport, SplitOptions, Trigger, TriggerError, started_path,
};
use asof::{RecordFiles, Robot, snapshots_as_json, tell_losses, topics_as_json, trigger_problems};
use indicatif::ProgressBar;
use serde_json::json;

use super::prompts::{Prompt, Prompts};
use super::robot::{Session, TICK, check_names};
use super::{Record, supervisor};
use crate::Outcome;
use crate::failure::Usage;
use crate::place::TopicRequest;
use crate::screen::{Screen, output};
use crate::select::Patterns;
use asof::text::quoted;
use asof::text::{bytes, counted, grouped};

/// How long topics may take to be discovered, before triggers without a topic are warned of.
const DISCOVERY: Duration = Duration::from_secs(2);
/// How often a slow disk is reported.
const DROP_REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How often a supervisor receives a status.
const SUPERVISOR_INTERVAL: Duration = Duration::from_secs(1);
/// How often the status line is updated.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);

impl Record {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        // Before waiting for a robot that may appear much later.
        let path = started_path(&self.output, super::robot::now());
        check_prefixes(self)?;
        let triggers = self.triggers()?;
        let files = self.files(&triggers);
        // Of the three kinds only one file has the time in its name already.
        let output = match files {
            RecordFiles::One { .. } => &path,
            _ => &self.output,
        };
        files.check(output)?;
        let qualities = self.qualities()?;
        let mut session = self.connection.open(screen)?;
        let mut others = self
            .others
            .iter()
            .map(|url| self.connection.beside(url).open(screen))
            .collect::<anyhow::Result<Vec<Session>>>()?;
        let mut options = RecordOptions {
            queue_bytes: self.queue.saturating_mul(1 << 20),
            tags: self.tag.iter().cloned().collect(),
            priorities: self.priorities(),
            sim_time: self.sim_time,
            ..RecordOptions::default()
        };
        session
            .profile(screen)
            .clone_into(&mut options.writer.profile);
        options.writer.level = self.level;
        options.writer.compression = self.compression;
        // With --force, a recording that is there stays until the first message comes.
        let is_there = matches!(files, RecordFiles::One { .. }) && path.is_file();
        // Recording starts when each robot has its prefix.
        let mut recorder = session.robot.record(output, files, options, |_| false)?;
        let robots = std::iter::once(&session).chain(&others);
        for (robot, number) in robots.zip(0..) {
            let qualities = qualities.clone();
            robot.robot.set_qos_overrides(move |topic| {
                let asked = last_fit(&qualities, topic);
                asked.copied().unwrap_or_default()
            });
            let prefix = self.prefix.get(number).map_or("", String::as_str);
            recorder.add_with_prefix(&robot.robot, prefix, self.chooser());
        }
        for key in &self.connection.key {
            recorder.add_key(&session.robot, key)?;
        }
        let robots = std::iter::once(&session).chain(&others);
        let prefixes = self.prefix.iter().map(String::as_str);
        let robots = robots.map(|session| session.robot.clone());
        let robots = robots.zip(prefixes.chain(std::iter::repeat("")));
        let robots: Vec<(Robot, &str)> = robots.collect();
        let lookout = || {
            for problem in trigger_problems(&triggers, &robots) {
                screen.warning(problem);
            }
        };
        supervisor::tell("READY=1");
        let sessions = (&mut session, &mut *others);
        follow(sessions, &recorder, self, &path, &lookout, screen)?;
        supervisor::tell("STOPPING=1");
        let elapsed = session.elapsed();
        let before = recorder.report();
        let report = recorder.stop();
        let report = report.map_err(|error| broken(&path, &before, error))?;
        let is_as_before = is_there && report.written() == 0;
        if is_as_before {
            let shown = path.display();
            screen.note(format_args!("no message came; {shown} stays as it was"));
        }
        let mut robots = std::iter::once(&mut session).chain(&mut others);
        let has_answered = robots.any(Session::has_answered);
        let wanted = TopicRequest::chosen(self.connection.topics.clone());
        let robots = std::iter::once(&session).chain(&others);
        // Robots that have left have no topics any more.
        let recorded: Vec<&str> = report.topics.keys().map(String::as_str).collect();
        let named = check_names(robots, &recorded, &wanted, screen);
        if report.topics.is_empty() && (!has_answered || named.is_err()) {
            // Nothing is left behind of a robot that was not there, or has no such topic.
            let parts = report.parts.files.iter();
            let is_ours = self.keep.is_none() && !self.is_split() && !is_as_before;
            let one = std::iter::once(&path).filter(|_| is_ours);
            for file in parts.chain(one).filter(|file| file.is_file()) {
                let _ = std::fs::remove_file(file);
            }
            session.answered()?;
            named?;
            return Ok(Outcome::Done);
        }
        let mut is_missing = false;
        let is_asked = |topic: &str| self.is_recorded(topic);
        for robot in std::iter::once(&mut session).chain(&mut others) {
            is_missing |= robot.tell_problems(is_asked, screen);
        }
        let outcome = tell(self, &path, &report, elapsed, screen)?;
        named?;
        // Of several robots, each has to be there.
        for robot in std::iter::once(&mut session).chain(&mut others) {
            robot.answered()?;
        }
        Ok(if is_missing {
            Outcome::Damaged
        } else {
            outcome
        })
    }
}

/// Without prefixes, topics of several robots would be merged.
fn check_prefixes(verb: &Record) -> anyhow::Result<()> {
    let robots = verb.others.len() + 1;
    let mut prefixes = verb.prefix.clone();
    prefixes.sort();
    prefixes.dedup();
    let is_good = if robots == 1 {
        verb.prefix.len() <= 1
    } else {
        verb.prefix.len() == robots && prefixes.len() == robots
    };
    if is_good {
        return Ok(());
    }
    Err(Usage::error(format!(
        "{} recorded, but there are {} different prefixes; give one --prefix for each, in the order of the addresses",
        counted(robots as u64, "robot"),
        prefixes.len(),
    )))
}

impl Record {
    fn is_split(&self) -> bool {
        self.split_size.is_some() || self.split_time.is_some()
    }

    /// The files to write.
    fn files(&self, triggers: &[Trigger]) -> RecordFiles {
        match self.keep {
            Some(keep) => RecordFiles::Snapshots(SnapshotOptions {
                keep,
                after: self.after,
                bytes: self.keep_size,
                triggers: triggers.to_vec(),
                ring: self.ring.clone(),
            }),
            None if self.is_split() => RecordFiles::Parts(SplitOptions {
                bytes: self.split_size,
                time: self.split_time,
                quota: self.quota,
            }),
            None => RecordFiles::One {
                replace: self.force,
            },
        }
    }

    /// The priorities of topics.
    fn priorities(&self) -> Priorities {
        let given = self.priority.clone();
        Priorities::new(move |topic| last_fit(&given, topic).copied().unwrap_or(0))
    }

    /// Overrides of the topics' quality of service.
    fn qualities(&self) -> anyhow::Result<Vec<(Patterns, QosOverride)>> {
        let read = |(patterns, words): &(Patterns, String)| {
            let asked: QosOverride = words
                .parse()
                .map_err(|error: QosError| Usage::error(format!("--qos: {error}")))?;
            Ok((patterns.clone(), asked))
        };
        self.qos.iter().map(read).collect()
    }

    /// The events that write snapshots.
    fn triggers(&self) -> anyhow::Result<Vec<Trigger>> {
        let read = |text: &String| text.parse();
        let triggers: Result<Vec<Trigger>, TriggerError> = self.trigger.iter().map(read).collect();
        triggers.map_err(|error| Usage::error(error.to_string()))
    }

    /// Whether a topic was selected, and not excluded.
    fn chooser(&self) -> impl Fn(&Publisher) -> bool + Send + Sync + 'static {
        let (wanted, excluded) = (self.connection.chooser(), self.exclude.clone());
        move |publisher| {
            let topic = &publisher.channel.topic;
            let is_excluded = excluded.as_ref().is_some_and(|all| all.is_match(topic));
            wanted(publisher) && !is_excluded
        }
    }

    /// The same by its name.
    fn is_recorded(&self, topic: &str) -> bool {
        let is_match =
            |patterns: &Option<Patterns>| patterns.as_ref().map(|all| all.is_match(topic));
        is_match(&self.connection.topics).unwrap_or(true)
            && !is_match(&self.exclude).unwrap_or(false)
    }
}

fn follow(
    (session, others): (&mut Session, &mut [Session]),
    recorder: &Recorder,
    verb: &Record,
    path: &PathBuf,
    lookout: &dyn Fn(),
    screen: &Screen,
) -> anyhow::Result<()> {
    let (mut stated, mut printed, mut deleted) = (Instant::now(), Instant::now(), 0);
    let bar = screen.progress(0, "{msg}");
    let (mut told, mut complained, mut renewed) = (0, None::<Instant>, None::<Instant>);
    let prompts = Prompts::listen();
    let mut snapshots = SnapshotProgress::default();
    if verb.keep.is_some() && prompts.is_terminal() {
        screen.note("press enter to write a snapshot");
    }
    let mut is_looked = false;
    while session.is_open() && recorder.is_recording() {
        session.wait(Instant::now() + TICK);
        bar.suspend(|| {
            session.tell(screen);
            for other in others.iter_mut() {
                other.tell(screen);
            }
        });
        if !is_looked && session.elapsed() >= DISCOVERY && session.has_answered() {
            is_looked = true;
            bar.suspend(|| {
                lookout();
                tell_missing(std::iter::once(&*session).chain(&*others), verb, screen);
            });
        }
        while let Some(prompt) = prompts.next() {
            obey(&prompt, recorder, verb);
        }
        let report = recorder.report();
        bar.suspend(|| snapshots.tell(&report.snapshots, screen));
        let is_due = complained.is_none_or(|last| last.elapsed() >= DROP_REPORT_INTERVAL);
        if report.dropped() > told && is_due {
            told = report.dropped();
            complained = Some(Instant::now());
            bar.suspend(|| complain(&report, screen));
        }
        if renewed.is_none_or(|last| last.elapsed() >= STATUS_INTERVAL) {
            renewed = Some(Instant::now());
            show(&bar, &report, session.elapsed(), verb, path);
        }
        if report.parts.deleted > deleted {
            let more = counted(report.parts.deleted - deleted, "file");
            deleted = report.parts.deleted;
            bar.suspend(|| {
                screen.note(format_args!(
                    "{more} deleted, the oldest ones: --quota was exceeded"
                ));
            });
        }
        if stated.elapsed() >= SUPERVISOR_INTERVAL {
            stated = Instant::now();
            supervisor::tell(&format!(
                "WATCHDOG=1\nSTATUS={} of {}, {} dropped",
                counted(report.written(), "message"),
                counted(report.topics.len() as u64, "topic"),
                grouped(report.dropped()),
            ));
        }
        if verb.status.is_some_and(|often| printed.elapsed() >= often) {
            printed = Instant::now();
            let mut out = output();
            writeln!(out, "{}", state(verb, path, &report, session.elapsed()))?;
            out.flush()?;
        }
    }
    bar.finish_and_clear();
    lookout();
    Ok(())
}

/// Says which of the chosen topics is not there yet.
fn tell_missing<'a>(sessions: impl Iterator<Item = &'a Session>, verb: &Record, screen: &Screen) {
    let topics: Vec<String> = sessions
        .flat_map(|session| session.robot.topics())
        .map(|topic| topic.name)
        .collect();
    let known: Vec<&str> = topics.iter().map(String::as_str).collect();
    let chosen = verb.connection.topics.as_ref();
    if let Some(name) = chosen.and_then(|chosen| chosen.refused(&known)) {
        screen.note(format_args!("waiting for '{name}': no robot has it yet"));
    }
}

/// The value of the last pattern that matches a topic.
fn last_fit<'a, T>(given: &'a [(Patterns, T)], topic: &str) -> Option<&'a T> {
    let mut fitting = given.iter().rev();
    let fitting = fitting.find(|(patterns, _)| patterns.is_match(topic));
    fitting.map(|(_, meant)| meant)
}

/// Executes a request.
fn obey(prompt: &Prompt, recorder: &Recorder, verb: &Record) {
    let reason = match prompt {
        Prompt::Signal => "SIGUSR1",
        Prompt::Now => "the enter key",
        Prompt::Line(text) => {
            let values = [("text".to_owned(), text.clone()), time_of_note()];
            recorder.note("note", values.into_iter().collect());
            return;
        }
    };
    if verb.keep.is_some() {
        recorder.trigger(reason);
    } else {
        let values = [("text".to_owned(), reason.to_owned()), time_of_note()];
        recorder.note("mark", values.into_iter().collect());
    }
}

fn time_of_note() -> (String, String) {
    ("time".to_owned(), super::robot::now().nanos().to_string())
}

/// The snapshots that were reported.
#[derive(Default)]
struct SnapshotProgress {
    triggered: u64,
    files: usize,
    problems: usize,
}

impl SnapshotProgress {
    /// Reports what is new.
    fn tell(&mut self, report: &SnapshotReport, screen: &Screen) {
        if report.triggered > self.triggered {
            self.triggered = report.triggered;
            let reason = report.last.as_deref().unwrap_or_default();
            screen.note(format_args!("{reason}: writing a snapshot"));
        }
        for file in report.files.iter().skip(self.files) {
            screen.note(format_args!("snapshot: {}", file.display()));
        }
        self.files = report.files.len();
        for problem in report.problems.iter().skip(self.problems) {
            screen.warning(problem);
        }
        self.problems = report.problems.len();
    }
}

/// The state for programs; the final summary has `topics`, too.
fn state(
    verb: &Record,
    path: &PathBuf,
    report: &RecordReport,
    elapsed: Duration,
) -> serde_json::Value {
    json!({
        "status": "recording", "path": path, "size": size_of(verb, path, report),
        "duration": elapsed.as_secs_f64(), "messages": report.written(), "dropped": report.dropped(),
        "waiting_bytes": report.waiting_bytes, "files": files_of(verb, report),
        "deleted_files": report.parts.deleted, "snapshots": snapshots_of(verb, report),
    })
}

/// The files that were written one after another.
fn files_of<'a>(verb: &Record, report: &'a RecordReport) -> &'a [PathBuf] {
    if verb.keep.is_some() {
        &report.snapshots.files
    } else {
        &report.parts.files
    }
}

/// What was kept and written of snapshots, for programs; `None` where they were not requested.
fn snapshots_of(verb: &Record, report: &RecordReport) -> Option<serde_json::Value> {
    verb.keep.map(|_| snapshots_as_json(&report.snapshots))
}

/// The total size of the files.
fn size_of(verb: &Record, path: &PathBuf, report: &RecordReport) -> u64 {
    let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    if verb.is_split() || verb.keep.is_some() {
        files_of(verb, report).iter().map(size).sum()
    } else {
        size(path)
    }
}

fn show(
    bar: &ProgressBar,
    report: &RecordReport,
    elapsed: Duration,
    verb: &Record,
    path: &PathBuf,
) {
    let size = size_of(verb, path, report);
    bar.set_message(format!(
        "{:.1} s · {} · {} · {} in {} · {} waiting",
        elapsed.as_secs_f64(),
        counted(report.topics.len() as u64, "topic"),
        counted(report.written(), "message"),
        bytes(size),
        path.display(),
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
    path: &PathBuf,
    report: &RecordReport,
    elapsed: Duration,
    screen: &Screen,
) -> anyhow::Result<Outcome> {
    let size = size_of(verb, path, report);
    tell_losses(report, &screen.reports(""));
    let mut out = output();
    if verb.json {
        let summary = json!({
            "status": "done", "path": path, "size": size, "files": files_of(verb, report),
            "snapshots": snapshots_of(verb, report), "deleted_files": report.parts.deleted, "duration": elapsed.as_secs_f64(),
            "messages": report.written(), "dropped": report.dropped(), "topics": topics_as_json(report),
        });
        writeln!(out, "{summary}")?;
    } else if verb.keep.is_some() {
        writeln!(
            out,
            "{}: {} written in {}, {}; {} of {} heard in {:.1} s",
            path.display(),
            counted(report.snapshots.written, "message"),
            counted(report.snapshots.files.len() as u64, "snapshot"),
            bytes(size),
            counted(report.written(), "message"),
            counted(report.topics.len() as u64, "topic"),
            elapsed.as_secs_f64(),
        )?;
    } else {
        writeln!(
            out,
            "{}: {} of {} in {:.1} s, {}",
            path.display(),
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

/// What was written before the disk failed is still there, in the last file that was begun.
fn broken(path: &Path, report: &RecordReport, error: RecordError) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    // The disk's own error is the most specific: it is full, or gone.
    let mut causes = error.chain();
    let reason = match causes.find_map(|cause| cause.downcast_ref::<std::io::Error>()) {
        Some(cause) => format!("cannot write the recording: {cause}"),
        None => error.to_string(),
    };
    let files = report.parts.files.last().or(report.snapshots.files.last());
    let dropped = match report.dropped() {
        0 => String::new(),
        dropped => format!("; {} dropped", counted(dropped, "message")),
    };
    let line = format!(
        "{reason}; the messages before are in {}: `asof recover` repairs it{dropped}",
        quoted(files.map_or(path, PathBuf::as_path)),
    );
    error.context(line)
}
