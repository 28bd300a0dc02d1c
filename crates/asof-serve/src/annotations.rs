//! Annotations of a recording, in a file next to it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use asof_core::{Stamp, TimeRange};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The most annotations of a recording.
const MAX_ANNOTATIONS: usize = 10_000;
/// The most bytes of an annotation's text.
const MOST_TEXT: usize = 4096;
/// The largest annotations file, in bytes.
const MOST_BYTES: usize = 16 << 20;

/// A text about an instant or an interval of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// Its number, unique within the recording.
    pub id: u64,
    /// The interval; for an instant, both ends are the same.
    pub range: TimeRange,
    /// The text.
    pub text: String,
}

/// The annotations of one recording, and their file: `run.mcap.annotations.json` next to `run.mcap`.
///
/// Every change reads the file again and rewrites it atomically, one process after the other: what others have added is kept.
///
/// ```
/// use asof_core::{Stamp, TimeRange};
/// use asof_serve::Annotations;
///
/// let folder = std::env::temp_dir().join(format!("asof-notes-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let file = Annotations::beside(&folder.join("run.mcap"));
/// let mut notes = Annotations::read(&file)?;
/// let at = Stamp::from_nanos(7);
/// notes.add(TimeRange::new(at, at), "the wheel slips")?;
/// assert_eq!(Annotations::read(&file)?.all()[0].text, "the wheel slips");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Annotations {
    file: PathBuf,
    all: Arc<Vec<Annotation>>,
    /// The version of the file that `all` is from.
    version: Option<Version>,
}

/// When the file was written, and how long it is.
type Version = (SystemTime, u64);

/// Why an annotation cannot be read or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnnotationError {
    /// The file cannot be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: String,
        /// The error of the operating system.
        #[source]
        cause: std::io::Error,
    },
    /// The file does not hold annotations.
    #[error("{path} does not hold annotations: {reason}; move it away to start with an empty list")]
    Unreadable {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A limit is exceeded.
    #[error(
        "a recording can have at most {MAX_ANNOTATIONS} annotations of {MOST_TEXT} bytes each, and {MOST_BYTES} bytes of them"
    )]
    TooMuch,
    /// The text is empty.
    #[error("an annotation needs text")]
    Empty,
    /// There is no annotation of this number.
    #[error("there is no annotation {0}")]
    Unknown(u64),
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct AnnotationFile {
    asof_annotations: u32,
    annotations: Vec<KeptOne>,
}

/// Times are strings: JSON numbers do not hold nanoseconds exactly.
#[derive(Serialize, Deserialize)]
struct KeptOne {
    id: u64,
    start: String,
    end: String,
    text: String,
}

impl Annotations {
    /// The annotations file of a recording.
    pub fn beside(recording: &Path) -> PathBuf {
        let mut name = recording.as_os_str().to_owned();
        name.push(".annotations.json");
        name.into()
    }

    /// Reads the annotations in a file; none where the file does not exist yet.
    ///
    /// # Errors
    /// When the file cannot be read, or does not hold annotations.
    pub fn read(file: &Path) -> Result<Self, AnnotationError> {
        let mut read = Annotations {
            file: file.to_owned(),
            ..Annotations::default()
        };
        read.refresh()?;
        Ok(read)
    }

    /// Reads the file again if it has changed since, by another process.
    ///
    /// # Errors
    /// As [`read`](Self::read); then nothing changes.
    pub fn refresh(&mut self) -> Result<(), AnnotationError> {
        let version = self.current().map_err(|cause| self.failed(cause))?;
        if version != self.version || version.is_none() {
            let all = version.map_or(Ok(Vec::new()), |(_, bytes)| self.parsed(bytes))?;
            self.all = Arc::new(all);
            self.version = version;
        }
        Ok(())
    }

    /// The version of the file; `None` where there is none.
    fn current(&self) -> Result<Option<Version>, std::io::Error> {
        match fs::metadata(&self.file) {
            Ok(found) => Ok(Some((
                found.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                found.len(),
            ))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    /// The bytes of the file that would be read, at most its limit.
    pub(crate) fn file_bytes(&self) -> usize {
        let version = self.current().ok().flatten();
        version.map_or(0, |(_, bytes)| {
            usize::try_from(bytes).map_or(MOST_BYTES, |bytes| bytes.min(MOST_BYTES))
        })
    }

    /// The same where the file has changed since it was read, otherwise none.
    pub(crate) fn changed_bytes(&self) -> usize {
        let is_same = self.current().is_ok_and(|version| version == self.version);
        if is_same { 0 } else { self.file_bytes() }
    }

    fn parsed(&self, bytes: u64) -> Result<Vec<Annotation>, AnnotationError> {
        let unreadable = |reason: String| AnnotationError::Unreadable {
            path: self.file.display().to_string(),
            reason,
        };
        if bytes > MOST_BYTES as u64 {
            return Err(unreadable(format!("it is too large, with {bytes} bytes")));
        }
        let text = fs::read_to_string(&self.file).map_err(|cause| self.failed(cause))?;
        let kept: AnnotationFile =
            serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        if kept.annotations.len() > MAX_ANNOTATIONS {
            return Err(unreadable(format!(
                "it has {} annotations, and {MAX_ANNOTATIONS} is the limit",
                kept.annotations.len()
            )));
        }
        let all = kept.annotations.into_iter().map(|one| {
            let at = |text: &str| text.parse().map(Stamp::from_nanos).ok();
            let range = at(&one.start).zip(at(&one.end));
            let (start, end) = range.ok_or_else(|| {
                unreadable(format!("annotation {} has no time in nanoseconds", one.id))
            })?;
            Ok(Annotation {
                id: one.id,
                range: TimeRange::new(start, end),
                text: one.text,
            })
        });
        all.collect()
    }

    fn failed(&self, cause: std::io::Error) -> AnnotationError {
        AnnotationError::Io {
            path: self.file.display().to_string(),
            cause,
        }
    }

    /// All of them as they are now, however they change later.
    pub(crate) fn shared(&self) -> Arc<Vec<Annotation>> {
        Arc::clone(&self.all)
    }

    /// All of them, by time.
    pub fn all(&self) -> &[Annotation] {
        &self.all
    }

    /// Adds an annotation and saves the file.
    ///
    /// # Errors
    /// When the text is empty or too long, or the file cannot be saved; then nothing is added.
    pub fn add(&mut self, range: TimeRange, text: &str) -> Result<u64, AnnotationError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(AnnotationError::Empty);
        }
        let _turn = self.turn();
        self.version = None;
        self.refresh()?;
        if text.len() > MOST_TEXT || self.all.len() >= MAX_ANNOTATIONS {
            return Err(AnnotationError::TooMuch);
        }
        let id = self
            .all
            .iter()
            .map(|one| one.id)
            .max()
            .map_or(1, |id| id.saturating_add(1));
        let mut next = Vec::clone(&self.all);
        next.push(Annotation {
            id,
            range,
            text: text.to_owned(),
        });
        next.sort_by_key(|one| (one.range.start, one.id));
        self.keep(next)?;
        Ok(id)
    }

    /// Removes an annotation and saves the file.
    ///
    /// # Errors
    /// When there is no annotation of this number, or the file cannot be saved.
    pub fn remove(&mut self, id: u64) -> Result<(), AnnotationError> {
        let _turn = self.turn();
        self.version = None;
        self.refresh()?;
        let mut next = Vec::clone(&self.all);
        next.retain(|one| one.id != id);
        if next.len() == self.all.len() {
            return Err(AnnotationError::Unknown(id));
        }
        self.keep(next)
    }

    /// The annotations as MCAP metadata: each number, with the annotation in JSON.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let one = |annotation: &Annotation| {
            let range = annotation.range;
            let value = json!({
                "start": range.start.nanos().to_string(), "end": range.end.nanos().to_string(), "text": annotation.text,
            });
            (format!("{:06}", annotation.id), value.to_string())
        };
        self.all.iter().map(one).collect()
    }

    /// The name of that metadata record.
    pub const METADATA: &str = "asof:annotations";

    fn keep(&mut self, all: Vec<Annotation>) -> Result<(), AnnotationError> {
        let kept = AnnotationFile {
            asof_annotations: 1,
            annotations: all
                .iter()
                .map(|one| KeptOne {
                    id: one.id,
                    start: one.range.start.nanos().to_string(),
                    end: one.range.end.nanos().to_string(),
                    text: one.text.clone(),
                })
                .collect(),
        };
        let bytes = serde_json::to_vec_pretty(&kept).map_err(|error| self.failed(error.into()))?;
        if bytes.len() > MOST_BYTES {
            return Err(AnnotationError::TooMuch);
        }
        let mut aside = self.file.as_os_str().to_owned();
        aside.push(format!(".{}.new", std::process::id()));
        let aside = PathBuf::from(aside);
        let written = fs::File::create(&aside)
            .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&aside, &self.file));
        if let Err(error) = written {
            drop(fs::remove_file(&aside));
            return Err(self.failed(error));
        }
        self.all = Arc::new(all);
        Ok(())
    }

    /// Waits until no other process changes a file of this folder; the folder is locked until the result is dropped. Where
    /// a folder cannot be locked, as on some network drives, changes are not ordered.
    fn turn(&self) -> Option<fs::File> {
        let folder = self
            .file
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        let folder = fs::File::open(folder.unwrap_or(Path::new("."))).ok()?;
        folder.lock().ok().map(|()| folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("asof-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("made");
        folder
    }

    #[test]
    fn notes_are_kept_by_time_and_taken_away_by_number() {
        let folder = folder("notes-kept");
        let file = Annotations::beside(&folder.join("run.mcap"));
        let mut notes = Annotations::read(&file).expect("none yet");
        let at = |nanos| Stamp::from_nanos(nanos);
        let late = i64::MAX - 7;
        notes
            .add(TimeRange::new(at(9), at(late)), " later ")
            .expect("kept");
        let id = notes
            .add(TimeRange::new(at(-3), at(-3)), "first")
            .expect("kept");
        let read = Annotations::read(&file).expect("read");
        let texts: Vec<&str> = read.all().iter().map(|one| one.text.as_str()).collect();
        assert_eq!(texts, ["first", "later"]);
        assert_eq!(read.all()[1].range.end, at(late));
        assert!(matches!(
            notes.remove(99),
            Err(AnnotationError::Unknown(99))
        ));
        notes.remove(id).expect("taken away");
        assert_eq!(Annotations::read(&file).expect("read").all().len(), 1);
        let metadata = notes.metadata();
        assert!(
            metadata["000001"].contains(&late.to_string()),
            "{metadata:?}"
        );
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn two_that_annotate_one_recording_keep_what_the_other_added() {
        let folder = folder("notes-two");
        let file = Annotations::beside(&folder.join("run.mcap"));
        let range = TimeRange::new(Stamp::EPOCH, Stamp::EPOCH);
        let add = |who: usize| {
            let mut notes = Annotations::read(&file).expect("read");
            for number in 0..20 {
                notes.add(range, &format!("{who} {number}")).expect("kept");
            }
        };
        std::thread::scope(|scope| {
            for who in 0..4 {
                scope.spawn(move || add(who));
            }
        });
        let mut first = Annotations::read(&file).expect("read");
        assert_eq!(first.all().len(), 80);
        let ids: std::collections::BTreeSet<u64> = first.all().iter().map(|one| one.id).collect();
        assert_eq!(ids.len(), 80, "each has a number of its own");
        let mut second = Annotations::read(&file).expect("read");
        second.remove(1).expect("removed");
        first.remove(2).expect("removed");
        second.refresh().expect("read");
        assert_eq!(second.all().len(), 78);
        let left: Vec<_> = fs::read_dir(&folder).expect("listed").collect();
        assert_eq!(left.len(), 1, "nothing but the annotations: {left:?}");
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn a_file_of_annotations_that_is_too_large_is_refused() {
        let folder = folder("notes-large");
        let file = folder.join("notes.json");
        let one = r#"{"id":1,"start":"1","end":"2","text":"x"},"#.repeat(MAX_ANNOTATIONS + 1);
        let text = format!(
            r#"{{"asof_annotations":1,"annotations":[{}]}}"#,
            one.trim_end_matches(',')
        );
        fs::write(&file, text).expect("written");
        let read = Annotations::read(&file);
        assert!(matches!(read, Err(AnnotationError::Unreadable { .. })));
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn what_is_not_a_note_is_refused_and_changes_nothing() {
        let folder = folder("notes-refused");
        let file = folder.join("notes.json");
        let mut notes = Annotations::read(&file).expect("none yet");
        let range = TimeRange::new(Stamp::EPOCH, Stamp::EPOCH);
        assert!(matches!(
            notes.add(range, "  "),
            Err(AnnotationError::Empty)
        ));
        let long = "x".repeat(MOST_TEXT + 1);
        assert!(matches!(
            notes.add(range, &long),
            Err(AnnotationError::TooMuch)
        ));
        for text in [
            "",
            "[]",
            "{\"asof_annotations\":1}",
            r#"{"asof_annotations":1,"annotations":[{"id":1,"start":"x","end":"2","text":""}]}"#,
        ] {
            fs::write(&file, text).expect("written");
            let read = Annotations::read(&file);
            assert!(
                matches!(read, Err(AnnotationError::Unreadable { .. })),
                "{text}"
            );
        }
        // Where nothing can be written, what was there stays.
        let mut lost = Annotations::read(&folder.join("nowhere/notes.json")).expect("none");
        assert!(matches!(
            lost.add(range, "x"),
            Err(AnnotationError::Io { .. })
        ));
        assert!(lost.all().is_empty());
        fs::remove_dir_all(folder).expect("removed");
    }
}
