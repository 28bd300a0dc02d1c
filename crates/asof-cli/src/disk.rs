//! Where what was read is kept on disk for the next time.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use asof::Source;
use asof_serve::DiskOptions;

/// A folder for the blocks of recordings, and how those are read.
#[derive(Debug, Clone)]
pub struct DiskPlace {
    pub folder: PathBuf,
    /// The most bytes in it.
    pub budget: u64,
    /// Options that make other messages of the same files.
    pub view: String,
    /// The description of the robot, which is read as well.
    pub description: Option<PathBuf>,
}

impl DiskPlace {
    /// Where the blocks of a recording are kept, which was opened from these places.
    ///
    /// # Errors
    /// When their versions cannot be determined.
    pub fn of(self, places: &[PathBuf], recording: &dyn Source) -> anyhow::Result<DiskOptions> {
        let files = places.iter().chain(&self.description);
        let view = format!(
            "{} urdf {} channels {:016x}",
            self.view,
            self.description.is_some(),
            channels_of(recording)
        );
        let fingerprint =
            fingerprint_of(files, &view).context("the cache is not kept for the next time")?;
        Ok(DiskOptions {
            folder: self.folder,
            budget: self.budget,
            fingerprint,
        })
    }
}

/// A hash of the channels: their names, and the definitions that were found.
fn channels_of(recording: &dyn Source) -> u64 {
    let mut hasher = DefaultHasher::new();
    for entry in &recording.summary().channels {
        let channel = &entry.channel;
        (&channel.topic, &channel.message_encoding, &channel.metadata).hash(&mut hasher);
        let schema = channel.schema.as_deref();
        let schema = schema.map(|schema| (&schema.name, &schema.encoding, &schema.data));
        schema.hash(&mut hasher);
    }
    hasher.finish()
}

/// Identifies these places, their versions, and how they are read.
fn fingerprint_of<'a>(
    places: impl IntoIterator<Item = &'a PathBuf>,
    view: &str,
) -> anyhow::Result<String> {
    // Another version of asof may read them differently.
    let mut all = format!("{} {view}", env!("CARGO_PKG_VERSION"));
    for place in places {
        all.push('\n');
        all.push_str(&fingerprint(place, &mut HashSet::new())?);
    }
    Ok(all)
}

/// `seen` are the folders so far: links of a folder may lead in circles.
fn fingerprint(place: &Path, seen: &mut HashSet<PathBuf>) -> anyhow::Result<String> {
    #[cfg(feature = "remote")]
    if asof::is_address(place) {
        return Ok(asof::formats::version_at(&place.display().to_string())?);
    }
    let cannot = || format!("cannot read {}", place.display());
    if !place.is_dir() {
        let mut all = asof_serve::fingerprint_of_file(place).with_context(cannot)?;
        // Messages that SQLite has not moved into the database yet.
        for journal in ["-wal", "-journal"] {
            let mut beside = place.as_os_str().to_owned();
            beside.push(journal);
            if let Ok(version) = asof_serve::fingerprint_of_file(Path::new(&beside)) {
                all.push_str(journal);
                all.push_str(&version);
            }
        }
        return Ok(all);
    }
    if !seen.insert(std::fs::canonicalize(place).with_context(cannot)?) {
        return Ok(String::new());
    }
    let entries = std::fs::read_dir(place).with_context(cannot)?;
    let mut inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    inside.sort();
    let mut all = String::new();
    for path in inside {
        all.push_str(&fingerprint(&path, seen)?);
        all.push(' ');
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_and_the_view_are_parts_of_what_identifies_a_recording() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("run.db3");
        std::fs::write(&place, "pages").expect("written");
        let of = |view: &str| fingerprint_of([&place], view).expect("read");
        let bare = of("");
        assert_eq!(of(""), bare);
        assert_ne!(of("x,y"), bare);
        std::fs::write(folder.path().join("run.db3-wal"), "more").expect("written");
        let with_journal = of("");
        assert_ne!(with_journal, bare);
        std::fs::write(folder.path().join("run.db3-wal"), "some more").expect("written");
        assert_ne!(of(""), with_journal);
    }

    #[cfg(unix)]
    #[test]
    fn folders_whose_links_lead_in_circles_are_looked_into_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("run_0.db3"), "pages").expect("written");
        for name in ["one", "two", "three"] {
            std::os::unix::fs::symlink(folder.path(), at(name)).expect("a link");
        }
        let of = || fingerprint_of([&folder.path().to_owned()], "").expect("read");
        let before = of();
        assert_eq!(of(), before);
        std::fs::write(at("run_0.db3"), "other pages").expect("written");
        assert_ne!(of(), before);
    }
}
