//! Annotations of a recording, in a file next to it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use asof_core::{Stamp, TimeRange};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The most annotations of a recording.
const MAX_ANNOTATIONS: usize = 10_000;
/// The most bytes of an annotation's text.
const MOST_TEXT: usize = 4096;
/// The largest annotations file that is read, in bytes.
const MOST_BYTES: u64 = 64 << 20;

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
/// Every change rewrites the file atomically.
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
    all: Vec<Annotation>,
}

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
    #[error("a recording can have at most {MAX_ANNOTATIONS} annotations of {MOST_TEXT} bytes each")]
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
struct Kept {
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
        let path = file.display().to_string();
        let text = match fs::metadata(file) {
            Ok(found) if found.len() > MOST_BYTES => {
                let reason = format!("it is too large, with {} bytes", found.len());
                return Err(AnnotationError::Unreadable { path, reason });
            }
            Ok(_) => fs::read_to_string(file),
            Err(error) => Err(error),
        };
        let text = match text {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let file = file.to_owned();
                return Ok(Annotations {
                    file,
                    all: Vec::new(),
                });
            }
            Err(cause) => return Err(AnnotationError::Io { path, cause }),
        };
        let kept: Kept = serde_json::from_str(&text).map_err(|error| {
            let (path, reason) = (path.clone(), error.to_string());
            AnnotationError::Unreadable { path, reason }
        })?;
        let all = kept.annotations.into_iter().map(|one| {
            let at = |text: &str| text.parse().map(Stamp::from_nanos).ok();
            let range = at(&one.start).zip(at(&one.end));
            let (start, end) = range.ok_or_else(|| AnnotationError::Unreadable {
                path: path.clone(),
                reason: format!("annotation {} has no time in nanoseconds", one.id),
            })?;
            Ok(Annotation {
                id: one.id,
                range: TimeRange::new(start, end),
                text: one.text,
            })
        });
        Ok(Annotations {
            file: file.to_owned(),
            all: all.collect::<Result<_, AnnotationError>>()?,
        })
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
        if text.len() > MOST_TEXT || self.all.len() >= MAX_ANNOTATIONS {
            return Err(AnnotationError::TooMuch);
        }
        let id = self
            .all
            .iter()
            .map(|one| one.id)
            .max()
            .map_or(1, |id| id.saturating_add(1));
        let mut next = self.all.clone();
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
        let mut next = self.all.clone();
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
        let kept = Kept {
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
        let failed = |cause: std::io::Error| AnnotationError::Io {
            path: self.file.display().to_string(),
            cause,
        };
        let bytes = serde_json::to_vec_pretty(&kept).map_err(|error| failed(error.into()))?;
        let mut aside = self.file.as_os_str().to_owned();
        aside.push(".new");
        let aside = PathBuf::from(aside);
        let written = fs::File::create(&aside)
            .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&aside, &self.file));
        if let Err(error) = written {
            drop(fs::remove_file(&aside));
            return Err(failed(error));
        }
        self.all = all;
        Ok(())
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
