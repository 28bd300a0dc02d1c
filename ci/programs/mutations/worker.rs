//! Asks every verb about damaged files, one after the other.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use crate::Outcome;
use crate::damage::Dice;

/// Each verb by its words. IN is the damaged file, OUT a folder that is empty; TOPIC and OTHER are topics of the file.
const VERBS: &[(&str, &[&str])] = &[
    ("info", &["info", "--json", "IN"]),
    ("cat --raw", &["cat", "--raw", "--json", "IN"]),
    ("cat", &["cat", "--json", "IN"]),
    ("at", &["at", "--raw", "--json", "--time=-0s", "IN"]),
    ("tf", &["tf", "IN"]),
    (
        "join",
        &[
            "join", "--anchor", "TOPIC", "--with", "OTHER", "--json", "IN",
        ],
    ),
    ("export", &["export", "IN", "-o", "OUT/tables"]),
    (
        "convert",
        &["convert", "--json", "IN", "-o", "OUT/converted.mcap"],
    ),
    ("doctor", &["doctor", "--json", "IN"]),
    (
        "recover",
        &["recover", "--json", "IN", "-o", "OUT/saved.mcap"],
    ),
];

/// Damaged files of one format.
pub struct Job {
    pub seeds: PathBuf,
    pub format: String,
    pub numbers: Range<u64>,
    /// The folder of `out` and `err`, which receive this process's output, and of all files that the verbs write.
    pub folder: PathBuf,
}

/// What a verb did.
struct Answer {
    code: u8,
    printed: Vec<u8>,
    said: Vec<u8>,
}

impl Job {
    pub fn run(&self) -> Outcome<()> {
        let seeds = self.seeds()?;
        let mut worker = Worker {
            job: self,
            now: File::create(self.folder.join("now"))?,
            faults: File::create(self.folder.join("faults"))?,
            codes: File::create(self.folder.join("codes"))?,
        };
        for number in self.numbers.clone() {
            let mut dice = Dice::new(&self.format, number);
            worker.ask_about(number, &dice.damaged(&seeds))?;
        }
        writeln!(worker.codes, "most\t{}", most_resident())?;
        Ok(())
    }

    /// The files of this format, in order of their names.
    fn seeds(&self) -> Outcome<Vec<Vec<u8>>> {
        let mut paths: Vec<PathBuf> = fs::read_dir(&self.seeds)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|kind| *kind == *self.format));
        paths.sort();
        if paths.is_empty() {
            return Err(format!("no .{} in {}", self.format, self.seeds.display()).into());
        }
        Ok(paths.iter().map(fs::read).collect::<io::Result<_>>()?)
    }
}

struct Worker<'a> {
    job: &'a Job,
    /// What is being done.
    now: File,
    faults: File,
    codes: File,
}

impl Worker<'_> {
    fn ask_about(&mut self, number: u64, data: &[u8]) -> Outcome<()> {
        let format = &self.job.format;
        let input = self.job.folder.join(format!("damaged.{format}"));
        // Each has its own file: one that is still mapped must not be truncated.
        let _ = fs::remove_file(&input);
        fs::write(&input, data)?;
        if let Some(kept) = env::var_os("ASOF_MUTATIONS_KEEP") {
            fs::write(kept, data)?;
        }
        let mut wrong = Vec::new();
        let mut codes = BTreeMap::new();
        let mut topics: Vec<String> = Vec::new();
        for (verb, words) in VERBS {
            if *verb == "join" && topics.is_empty() {
                continue;
            }
            self.now.rewind()?;
            self.now
                .write_all(format!("{number} {verb:<12}\n").as_bytes())?;
            let answer = self.answer(words, &input, &topics)?;
            codes.insert(*verb, answer.code);
            writeln!(self.codes, "{verb}\t{}", answer.code)?;
            let mut say = |what: String| wrong.push(format!("{verb} of {format} {number}: {what}"));
            answer.judge(&mut say);
            if words.contains(&"--json") && matches!(answer.code, 0 | 3) {
                match answer.lines() {
                    Err(error) => say(format!("what it prints is not JSON: {error}")),
                    Ok(lines) if *verb == "info" => topics = topics_of(&lines),
                    Ok(_) => {}
                }
            }
        }
        for what in contradictions(&codes) {
            wrong.push(format!("{format} {number}: {what}"));
        }
        for line in wrong {
            writeln!(self.faults, "{line}")?;
        }
        Ok(())
    }

    fn answer(&self, words: &[&str], input: &Path, topics: &[String]) -> Outcome<Answer> {
        let folder = &self.job.folder;
        let made = folder.join("made");
        let writes = words.contains(&"-o");
        if writes {
            let _ = fs::remove_dir_all(&made);
            fs::create_dir(&made)?;
        }
        let filled = words.iter().map(|word| match *word {
            "IN" => input.into(),
            "TOPIC" => topics.first().map_or_else(OsString::new, OsString::from),
            "OTHER" => topics.last().map_or_else(OsString::new, OsString::from),
            word => match word.strip_prefix("OUT/") {
                Some(name) => made.join(name).into(),
                None => word.into(),
            },
        });
        let words = [OsString::from("asof")].into_iter().chain(filled).collect();
        let code = catch_unwind(AssertUnwindSafe(|| asof_cli::main_with(words)));
        io::stdout().flush()?;
        Ok(Answer {
            code: code.map_or(101, number_of),
            printed: taken(&folder.join("out"))?,
            said: taken(&folder.join("err"))?,
        })
    }
}

impl Answer {
    fn judge(&self, say: &mut impl FnMut(String)) {
        let said = String::from_utf8_lossy(&self.said);
        let last: String = {
            let skipped = said.chars().count().saturating_sub(300);
            said.chars().skip(skipped).collect()
        };
        if !matches!(self.code, 0 | 1 | 3) {
            say(format!("exit code {}: {last:?}", self.code));
        }
        if said.contains("panicked") {
            say(format!("a panic: {last:?}"));
        }
        let is_mute = said.trim().is_empty() && self.printed.trim_ascii().is_empty();
        if self.code == 1 && is_mute {
            say("exit code 1 and not a word".to_owned());
        }
    }

    fn lines(&self) -> serde_json::Result<Vec<Value>> {
        serde_json::Deserializer::from_slice(&self.printed)
            .into_iter()
            .collect()
    }
}

/// Topics that can be named on a command line: commas are between names, and stars stand for others.
fn topics_of(lines: &[Value]) -> Vec<String> {
    let topics = lines.first().and_then(|report| report["topics"].as_array());
    let names = topics
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["topic"].as_str());
    let can_be_named =
        |name: &&str| name.starts_with('/') && !name.contains([',', '*', '?', '[', '{', '\\']);
    names.filter(can_be_named).map(str::to_owned).collect()
}

/// Answers of several verbs about one file that contradict each other.
fn contradictions(codes: &BTreeMap<&str, u8>) -> Vec<String> {
    let mut found = Vec::new();
    let code = |verb: &str| codes.get(verb).copied().unwrap_or(0);
    if code("doctor") == 0 {
        for verb in [
            "info",
            "cat --raw",
            "cat",
            "at",
            "export",
            "convert",
            "recover",
        ] {
            if code(verb) != 0 {
                let code = code(verb);
                found.push(format!(
                    "exit code {code} of {verb}, although the doctor finds it healthy"
                ));
            }
        }
    }
    if code("info") == 1 && code("cat --raw") != 1 {
        found.push("info refuses what cat reads".to_owned());
    }
    found
}

/// What is in a file that a stream goes to; it is empty afterwards.
fn taken(path: &Path) -> io::Result<Vec<u8>> {
    let text = fs::read(path)?;
    if !text.is_empty() {
        OpenOptions::new().write(true).open(path)?.set_len(0)?;
    }
    Ok(text)
}

/// The number of an exit code: the standard library has no accessor for it.
fn number_of(code: ExitCode) -> u8 {
    let mut codes = 0..=u8::MAX;
    codes
        .find(|number| ExitCode::from(*number) == code)
        .unwrap_or(u8::MAX)
}

/// The peak memory of this process, in kilobytes.
fn most_resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
