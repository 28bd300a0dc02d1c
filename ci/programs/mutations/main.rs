//! Runs every verb that reads a recording on damaged recordings: no panic, at most 10 s and 1 GB, and an exit code that fits
//! the output. `ci/files/mutations` runs it.
//!
//! `mutations SEEDS COUNT [FROM [FORMAT]]` damages the files of the folder SEEDS, COUNT times for each format, and asks
//! every verb about each. The number of a damaged file determines the damage: FROM is the first, and
//! `mutations SEEDS 1 NUMBER FORMAT` makes the same one again.
//!
//! A worker calls the command within its own process, thousands of times, so a verb takes a fraction of a millisecond. It
//! announces each verb before it runs it. The system limits its memory: a verb that exceeds the limit, or overflows the stack,
//! ends the worker, and the next worker continues after it.

mod damage;
mod worker;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The most CPU time of a verb.
const MOST_CPU: Duration = Duration::from_secs(10);
/// The most wall time of a verb: one that waits forever uses no CPU time.
const MOST_WAIT: Duration = Duration::from_mins(2);
/// The memory limit of a worker, in kilobytes, as for `ulimit`.
const MOST_KILOBYTES: u64 = 1 << 20;
/// Damaged files of one format that a worker is given.
const AT_ONCE: u64 = 500;
const FORMATS: [&str; 4] = ["mcap", "bag", "db3", "ulg"];

fn main() -> Outcome<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["work", seeds, format, from, to, folder] => {
            let job = worker::Job {
                seeds: seeds.into(),
                format: format.to_owned(),
                numbers: from.parse()?..to.parse()?,
                folder: folder.into(),
            };
            job.run()?;
            Ok(ExitCode::SUCCESS)
        }
        [seeds, count] => supervise(seeds, count.parse()?, 0, &FORMATS),
        [seeds, count, from] => supervise(seeds, count.parse()?, from.parse()?, &FORMATS),
        [seeds, count, from, format] => supervise(seeds, count.parse()?, from.parse()?, &[format]),
        _ => Err("usage: mutations SEEDS COUNT [FROM [FORMAT]]".into()),
    }
}

/// What all workers have found and done so far.
#[derive(Default)]
struct Tally {
    wrong: u64,
    /// How often each verb of each format ended with which exit code.
    codes: BTreeMap<(String, String, u8), u64>,
    /// The peak memory of a worker, in kilobytes.
    most: u64,
}

fn supervise(seeds: &str, count: u64, from: u64, formats: &[&str]) -> Outcome<ExitCode> {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        tempfile::tempdir_in(memory)?
    } else {
        tempfile::tempdir()?
    };
    let mut tally = Tally::default();
    let (began, mut told) = (Instant::now(), Instant::now());
    for start in (from..from + count).step_by(AT_ONCE as usize) {
        let end = (start + AT_ONCE).min(from + count);
        for format in formats {
            let mut next = start;
            while next < end {
                next = work(seeds, format, next, end, folder.path(), &mut tally)?;
            }
        }
        if told.elapsed() > Duration::from_mins(1) {
            told = Instant::now();
            tally.print(began.elapsed());
        }
    }
    tally.print(began.elapsed());
    if tally.wrong > 0 {
        println!("{} wrong answers", tally.wrong);
        return Ok(ExitCode::FAILURE);
    }
    println!("no panic, nothing over 10 s or 1 GB, no exit code that does not fit");
    Ok(ExitCode::SUCCESS)
}

impl Tally {
    fn add(&mut self, format: &str, folder: &Path) -> Outcome<()> {
        let faults = fs::read_to_string(folder.join("faults")).unwrap_or_default();
        for line in faults.lines() {
            self.wrong += 1;
            println!("{line}");
        }
        let codes = fs::read_to_string(folder.join("codes")).unwrap_or_default();
        for line in codes.lines() {
            let mut words = line.split('\t');
            let (Some(verb), Some(code)) = (words.next(), words.next()) else {
                continue;
            };
            if verb == "most" {
                self.most = self.most.max(code.parse()?);
                continue;
            }
            let key = (format.to_owned(), verb.to_owned(), code.parse()?);
            *self.codes.entry(key).or_default() += 1;
        }
        Ok(())
    }

    fn print(&self, time: Duration) {
        println!(
            "after {} s, {} MB resident at the most; verb by verb, how often which exit code:",
            time.as_secs(),
            self.most >> 10
        );
        let mut lines: BTreeMap<(&str, &str), String> = BTreeMap::new();
        for ((format, verb, code), count) in &self.codes {
            let line = lines.entry((format, verb)).or_default();
            let _ = write!(line, "  {code}: {count}");
        }
        for ((format, verb), line) in lines {
            println!("  {format:<5} {verb:<10}{line}");
        }
    }
}

/// Runs a worker until it ends; returns the number at which the next one continues.
fn work(
    seeds: &str,
    format: &str,
    from: u64,
    to: u64,
    folder: &Path,
    tally: &mut Tally,
) -> Outcome<u64> {
    let _ = fs::remove_dir_all(folder.join("work"));
    let folder = folder.join("work");
    fs::create_dir(&folder)?;
    let appended = |name: &str| -> Outcome<File> {
        let path = folder.join(name);
        Ok(OpenOptions::new().create(true).append(true).open(path)?)
    };
    let mut worker = Command::new("sh")
        .args([
            "-c",
            &format!("ulimit -c 0; ulimit -d {MOST_KILOBYTES} && exec \"$0\" \"$@\""),
        ])
        .arg(std::env::current_exe()?)
        .args(["work", seeds, format])
        .args([from.to_string(), to.to_string()])
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(appended("out")?)
        .stderr(appended("err")?)
        .spawn()?;
    let ended = watch(&mut worker, &folder)?;
    tally.add(format, &folder)?;
    let reason = match ended {
        Ok(status) if status.success() => return Ok(to),
        Ok(status) => status.to_string(),
        Err(reason) => reason,
    };
    let now = fs::read_to_string(folder.join("now")).unwrap_or_default();
    let said = fs::read(folder.join("err")).unwrap_or_default();
    // The reason comes first; where it happened may be long.
    let said = String::from_utf8_lossy(&said[..said.len().min(300)]).into_owned();
    let (number, verb) = now
        .trim()
        .split_once(' ')
        .ok_or_else(|| format!("a worker ended before it began, with {reason}: {said}"))?;
    tally.wrong += 1;
    println!("{verb} of {format} {number}: {reason}: {said:?}");
    Ok(number.parse::<u64>()? + 1)
}

/// Waits for a worker, or for a verb that takes too much time; why it was ended then.
fn watch(worker: &mut Child, folder: &Path) -> Outcome<Result<ExitStatus, String>> {
    let stat = PathBuf::from(format!("/proc/{}/stat", worker.id()));
    let (mut last, mut since, mut cpu_then) = (String::new(), Instant::now(), Duration::ZERO);
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(status) = worker.try_wait()? {
            return Ok(Ok(status));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
        let now = fs::read_to_string(folder.join("now")).unwrap_or_default();
        let cpu = cpu_of(&stat);
        if now != last {
            (last, since, cpu_then) = (now, Instant::now(), cpu);
        }
        let used = cpu.saturating_sub(cpu_then);
        if used > MOST_CPU || since.elapsed() > MOST_WAIT {
            worker.kill()?;
            worker.wait()?;
            let (used, waited) = (used.as_secs(), since.elapsed().as_secs());
            return Ok(Err(format!(
                "not done after {used} s of CPU, {waited} s in all"
            )));
        }
    }
}

/// CPU time of a process, by the system's hundredths of a second.
fn cpu_of(stat: &Path) -> Duration {
    let text = fs::read_to_string(stat).unwrap_or_default();
    // The name of the program is in parentheses, and may hold anything.
    let fields = text.rsplit(')').next().unwrap_or("").split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .filter_map(|n| n.parse::<u64>().ok())
        .sum();
    Duration::from_millis(10 * ticks)
}
