//! Recordings split into several files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use asof_core::{Problem, Query, Stamp, TimeRange};
use asof_formats::{ConvertOptions, McapWriterOptions};
use serde::Serialize;

use super::new_file::{already_there, folder_of};
use super::writing::{refuse_input, refuse_other_format, write};
use crate::problems::problems_as_json;
use crate::{Error, Recording};

/// How a recording is split.
#[derive(Debug, Clone)]
pub struct SplitOptions {
    /// Where a part ends.
    pub cut: Cut,
    /// What is written.
    pub query: Query,
    /// How it is written: chunks and compression.
    pub writer: McapWriterOptions,
    /// Whether existing files are replaced.
    pub force: bool,
}

/// Where a part ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// After so many nanoseconds, which are above zero.
    Duration(i64),
    /// At about so many bytes.
    Size(u64),
}

impl Cut {
    fn duration(self) -> Option<i64> {
        match self {
            Cut::Duration(nanos) => Some(nanos.max(1)),
            Cut::Size(_) => None,
        }
    }

    fn size(self) -> Option<u64> {
        match self {
            Cut::Duration(_) => None,
            Cut::Size(bytes) => Some(bytes),
        }
    }
}

impl SplitOptions {
    /// All messages, in parts of this kind.
    pub fn new(cut: Cut) -> Self {
        SplitOptions {
            cut,
            query: Query::all(),
            writer: McapWriterOptions::default(),
            force: false,
        }
    }
}

/// What was written.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct SplitReport {
    /// The recording.
    pub places: Vec<String>,
    /// The parts, in order.
    pub parts: Vec<SplitPart>,
    /// Messages, with latched ones counted once.
    pub messages: u64,
    /// What is wrong with the recording.
    #[serde(serialize_with = "problems_as_json")]
    pub problems: Vec<Problem>,
}

/// One part of a recording.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct SplitPart {
    /// The file.
    pub output: String,
    /// Its size, in bytes.
    pub size: u64,
    /// The first log time, in nanoseconds.
    pub start: Option<i64>,
    /// The last log time, in nanoseconds.
    pub end: Option<i64>,
    /// Its messages.
    pub messages: u64,
    /// Those of them that were latched when it begins.
    pub latched: u64,
}

/// More parts than this are taken for a typing error.
const MOST_PARTS: u64 = 10_000;
/// How many parts are probed when there could be more: most may be empty, as between the drives of a year.
const MOST_PROBED_PARTS: u64 = 1_000;

impl Recording {
    /// Splits it into several MCAP files, by time or by size. `run.mcap` makes `run_0.mcap`, `run_1.mcap` and so on; in a folder
    /// they are named after the recording.
    ///
    /// # Errors
    /// When a file exists, cannot be written, or is the recording itself; complete parts are kept.
    pub fn split(
        &self,
        output: impl AsRef<Path>,
        options: &SplitOptions,
    ) -> Result<SplitReport, Error> {
        let first = self
            .places()
            .first()
            .map_or(Path::new("part"), PathBuf::as_path);
        let naming = Naming::of(output.as_ref(), first);
        refuse_other_format(&naming.output)?;
        let earlier = options.earlier_parts(self, &naming)?;
        naming.make_folder()?;
        let whole = options.query.range.intersect(self.summary().range);
        options.refuse_too_many(self, &options.query, whole)?;
        let mut done = SplitReport {
            places: self.place_names(),
            parts: Vec::new(),
            messages: 0,
            problems: Vec::new(),
        };
        let mut next = (!whole.is_empty()).then_some(whole.start);
        while let Some(from) = next {
            let Some(start) = options.start_of_part(self, &options.query, from, whole)? else {
                break;
            };
            let range = TimeRange::new(start, options.end_of(start).min(whole.end));
            let query = Query {
                range,
                ..options.query.clone()
            };
            let after = options
                .write_part(self, query, &naming, &mut done)
                .map_err(|error| with_finished(error, &done.parts))?;
            next = after.or_else(|| (range.end < whole.end).then(|| range.end.plus_nanos(1)));
        }
        if done.parts.is_empty() {
            self.progress()
                .note("there are no messages to write, so there are no parts");
        }
        let rest = earlier
            .iter()
            .find(|(number, _)| *number >= done.parts.len());
        if let Some((_, first)) = rest {
            self.progress().note(format_args!(
                "{} is from an earlier split; remove it and those after it if they are not wanted",
                first.display()
            ));
        }
        done.problems.splice(0..0, self.problems());
        Ok(done)
    }
}

impl SplitOptions {
    /// Existing files with the names of parts, by number. Refused before the first part is written.
    fn earlier_parts(
        &self,
        recording: &Recording,
        naming: &Naming,
    ) -> Result<Vec<(usize, PathBuf)>, Error> {
        let earlier = naming.existing();
        for (_, path) in &earlier {
            for place in recording.places() {
                refuse_input(place, path, "split")?;
            }
            if !self.force {
                return Err(Error::file(already_there(path), None));
            }
        }
        Ok(earlier)
    }

    /// Where the next part starts: parts by time follow each other without a gap, but none is empty.
    fn start_of_part(
        &self,
        recording: &Recording,
        query: &Query,
        from: Stamp,
        whole: TimeRange,
    ) -> Result<Option<Stamp>, Error> {
        let rest = Query {
            range: TimeRange::new(from, whole.end),
            ..query.clone()
        };
        // The first message of an unordered recording is found by sorting all of it.
        if recording.source().bytes_held_by_order(&rest) > ConvertOptions::default().memory {
            return Ok(Some(from));
        }
        let mut first = None;
        for batch in recording.read(&rest)? {
            first = batch?.iter().next().map(|message| message.log_time);
            if first.is_some() {
                break;
            }
        }
        Ok(first.map(|first| match self.cut.duration() {
            Some(duration) => from.plus_nanos(first.since(from) / duration * duration),
            None => first,
        }))
    }

    /// The last instant of a part that starts then.
    fn end_of(&self, start: Stamp) -> Stamp {
        self.cut
            .duration()
            .map_or(Stamp::MAX, |duration| start.plus_nanos(duration - 1))
    }

    fn refuse_too_many(
        &self,
        recording: &Recording,
        query: &Query,
        whole: TimeRange,
    ) -> Result<(), Error> {
        let Some(duration) = self.cut.duration().filter(|_| !whole.is_empty()) else {
            return Ok(());
        };
        let parts = whole.end.since(whole.start).unsigned_abs() / duration.unsigned_abs();
        if parts <= MOST_PARTS {
            return Ok(());
        }
        let mut from = whole.start;
        for _ in 0..MOST_PROBED_PARTS {
            match self.start_of_part(recording, query, from, whole)? {
                Some(start) if self.end_of(start) < whole.end => {
                    from = self.end_of(start).plus_nanos(1);
                }
                _ => return Ok(()),
            }
        }
        Err(Error::Option(format!(
            "that would be up to {parts} parts; choose a longer --duration"
        )))
    }

    /// A part cannot be smaller than a chunk.
    fn writer_options(&self) -> McapWriterOptions {
        let options = self.writer.clone();
        let most = self.cut.size().map_or(u64::MAX, |size| (size / 4).max(1));
        McapWriterOptions {
            chunk_size: options.chunk_size.min(most),
            ..options
        }
    }

    /// Writes one part; returns the start of the next one, where the part's size decides that.
    fn write_part(
        &self,
        recording: &Recording,
        query: Query,
        naming: &Naming,
        done: &mut SplitReport,
    ) -> Result<Option<Stamp>, Error> {
        let path = naming.part(done.parts.len());
        let is_first = done.parts.is_empty();
        let options = ConvertOptions {
            query,
            bytes: self.cut.size(),
            attachments: is_first,
            metadata: is_first,
            temporary: Some(folder_of(&naming.output)),
            ..ConvertOptions::default()
        };
        let written = write(
            recording,
            &path,
            self.force,
            self.writer_options(),
            &options,
        )?;
        let converted = written.converted;
        done.messages += converted.messages - converted.latched;
        done.problems.extend(converted.problems);
        let range = Some(converted.range).filter(|range| !range.is_empty());
        done.parts.push(SplitPart {
            output: path.display().to_string(),
            size: written.size,
            start: range.map(|range| range.start.nanos()),
            end: range.map(|range| range.end.nanos()),
            messages: converted.messages,
            latched: converted.latched,
        });
        Ok(converted.next)
    }
}

/// An error in the middle, naming the parts that are complete: they are kept.
fn with_finished(error: Error, parts: &[SplitPart]) -> Error {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        return error;
    };
    let kept = match parts.len() {
        1 => format!("{} is complete and was kept", first.output),
        count => format!(
            "{count} parts are complete and were kept, {} to {}",
            first.output, last.output
        ),
    };
    let line = format!("{error}; {kept}");
    error.context(line)
}

/// The names of parts: `run.mcap` makes `run_0.mcap`, `run_1.mcap`, and so on.
struct Naming {
    output: PathBuf,
    /// Whether the output names a folder, with a trailing slash.
    is_folder: bool,
}

impl Naming {
    /// Parts in a folder are named after the recording.
    fn of(output: &Path, place: &Path) -> Self {
        let is_folder = output.is_dir() || output.to_string_lossy().ends_with('/');
        if !is_folder {
            return Naming {
                output: output.to_owned(),
                is_folder,
            };
        }
        let mut name = place.file_stem().unwrap_or("part".as_ref()).to_owned();
        name.push(".mcap");
        Naming {
            output: output.join(name),
            is_folder,
        }
    }

    /// Creates the folder if the output names one that does not exist yet.
    fn make_folder(&self) -> Result<(), Error> {
        let folder = folder_of(&self.output);
        if !self.is_folder || folder.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&folder).map_err(|error| {
            Error::file(
                format!("cannot make the folder {}", folder.display()),
                error,
            )
        })
    }

    fn part(&self, number: usize) -> PathBuf {
        let mut name = self.output.file_stem().unwrap_or_default().to_owned();
        name.push(format!("_{number}."));
        name.push(self.output.extension().unwrap_or("mcap".as_ref()));
        self.output.with_file_name(name)
    }

    /// The files named like parts, in their order.
    fn existing(&self) -> Vec<(usize, PathBuf)> {
        let entries = std::fs::read_dir(folder_of(&self.output));
        let numbered = |name: &OsStr| {
            let (_, number) = Path::new(name).file_stem()?.to_str()?.rsplit_once('_')?;
            let number = number.parse().ok()?;
            let path = self.part(number);
            (path.file_name() == Some(name)).then_some((number, path))
        };
        let entries = entries.into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter_map(|entry| numbered(&entry.file_name()))
            .collect();
        found.sort();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_numbered_before_the_extension() {
        let part = |output: &str, number| {
            Naming::of(Path::new(output), Path::new("day/drive.bag")).part(number)
        };
        assert_eq!(part("a/run.mcap", 2), Path::new("a/run_2.mcap"));
        assert_eq!(part("run", 10), Path::new("run_10.mcap"));
        assert_eq!(part("parts/", 0), Path::new("parts/drive_0.mcap"));
    }
}
