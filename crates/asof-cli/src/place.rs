//! Opens the places that are named on the command line.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::anyhow;
use asof::files::note_input;
use asof::formats::{DecompressionLimits, Definitions, Notices, OpenOptions, without_secrets};
use asof::layers::{ChannelFilter, Selection};
use asof::text::quoted;
use asof::{Channel, Source, SourceError, Stamp, When};
use asof::{is_address, scheme_of};
use clap::Args;

use super::failure::Usage;
use super::length::parse_time;
use super::live;
use super::screen::Screen;
use super::select::Patterns;
#[cfg(feature = "live")]
use super::select::no_topic;
use super::signals::clean_up_on_interrupt;

/// Flags of every verb that opens recordings or running robots.
#[derive(Debug, Clone, Default, Args)]
pub struct Opening {
    #[command(flatten)]
    files: FileOpening,

    #[command(flatten)]
    robot: OfRobot,
}

/// Flags for running robots.
#[derive(Debug, Clone, Args)]
#[cfg_attr(
    not(feature = "live"),
    allow(dead_code, reason = "unused without robots")
)]
pub struct OfRobot {
    /// Listen to a running robot for this long: seconds, or with a unit such as 500ms, 30s, 5m. Without it, commands that
    /// follow run until Ctrl-C, and others listen for two seconds
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, help_heading = ROBOTS)]
    pub duration: Option<Duration>,

    /// Also subscribe to raw Zenoh keys of a running robot, such as 'demo/**'
    #[arg(long, value_name = "EXPRESSION", help_heading = ROBOTS)]
    pub key: Vec<String>,

    /// How much of a running robot is kept in memory: seconds, or with a unit such as 90s, 10m, 1h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_time, help_heading = ROBOTS)]
    pub window: Duration,
}

const ROBOTS: &str = "Running robots";

impl Default for OfRobot {
    fn default() -> Self {
        OfRobot {
            duration: None,
            key: Vec::new(),
            window: Duration::from_mins(5),
        }
    }
}

/// The topics of a running robot to subscribe to: all others are not even sent.
#[derive(Clone)]
#[cfg_attr(
    not(feature = "live"),
    allow(dead_code, reason = "unused without robots")
)]
pub struct TopicRequest {
    filter: ChannelFilter,
    /// Topics that must be there.
    named: Vec<String>,
    /// The topics as the user gave them.
    patterns: Option<Patterns>,
    /// How long to wait for topics at first.
    pub patience: Duration,
    /// At most this many bytes of all robots are kept.
    pub bytes: u64,
}

/// How long a look waits for the first topics.
const DISCOVERY: Duration = Duration::from_secs(5);
const MOST_BYTES: u64 = 600_000_000;

impl TopicRequest {
    /// Every topic.
    pub fn all() -> Self {
        TopicRequest::those(|_| true)
    }

    /// The topics for which this is true.
    pub fn those(is_wanted: impl Fn(&Channel) -> bool + Send + Sync + 'static) -> Self {
        TopicRequest {
            filter: Arc::new(is_wanted),
            named: Vec::new(),
            patterns: None,
            patience: DISCOVERY,
            bytes: MOST_BYTES,
        }
    }

    /// The topics that the user chose; all without a choice.
    pub fn chosen(patterns: Option<Patterns>) -> Self {
        match patterns {
            Some(patterns) => {
                let given = Some(patterns.clone());
                TopicRequest::those(move |channel| patterns.is_match(&channel.topic)).given(given)
            }
            None => TopicRequest::all(),
        }
    }

    /// The same, as the user gave them.
    pub fn given(self, patterns: Option<Patterns>) -> Self {
        TopicRequest { patterns, ..self }
    }

    /// Refuses names that none of these topics has, as for a recording.
    #[cfg(feature = "live")]
    pub fn check(&self, place: &Path, known: &[&str], screen: &Screen) -> anyhow::Result<()> {
        if let Some(patterns) = &self.patterns {
            patterns.check(place, known, screen)?;
        }
        let missing = |name: &&String| !known.contains(&name.as_str());
        match self.named.iter().find(missing) {
            Some(name) => Err(no_topic(name, place, known)),
            None => Ok(()),
        }
    }

    /// A topic that was asked for, and that none of these is: one that may still be discovered.
    #[cfg(feature = "live")]
    pub fn missing(&self, known: &[&str]) -> Option<&str> {
        let mut named = self.named.iter().map(String::as_str);
        let patterns = || self.patterns.as_ref()?.refused(known);
        named.find(|name| !known.contains(name)).or_else(patterns)
    }

    /// These topics, which are waited for.
    pub fn named<'a>(topics: impl IntoIterator<Item = &'a String>) -> Self {
        let named: Vec<String> = topics.into_iter().cloned().collect();
        let wanted = named.clone();
        TopicRequest {
            named,
            ..TopicRequest::those(move |channel| wanted.contains(&channel.topic))
        }
    }

    /// The same, without waiting for topics to appear.
    pub fn at_once(self) -> Self {
        TopicRequest {
            patience: Duration::ZERO,
            ..self
        }
    }

    /// The same, keeping at most this many bytes.
    pub fn within(self, bytes: u64) -> Self {
        TopicRequest { bytes, ..self }
    }

    /// Which channels they are.
    pub fn filter(&self) -> ChannelFilter {
        Arc::clone(&self.filter)
    }

    /// The topics that must be there.
    #[cfg(feature = "live")]
    pub fn names(&self) -> &[String] {
        &self.named
    }
}

/// What places are opened for: how files are read, and where the reading of a robot ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be read here and there; a robot is followed until it is time to stop.
    Read,
    /// The same, read once from front to back: mapping has no advantage then, except for a db3, whose pages are read faster
    /// than SQLite reads them.
    ReadOnce,
    /// The same; files without an end are taken for files that are being written.
    Follow,
    /// To stay open for long, or beside much else in memory: without memory maps, so that a file that is truncated meanwhile
    /// is an error and not a signal.
    Hold,
    /// The same for a server, which reads what there is repeatedly, and follows what arrives.
    Serve,
    /// To be looked at: a robot is listened to for a while, and the result is finished, like a recording of that while.
    Look,
    /// The same for a reader that reads slices of time in parallel, each on its own thread: nothing is decompressed ahead
    /// within one, or memory and threads would grow with the square of the cores.
    #[cfg_attr(not(feature = "sql"), allow(dead_code, reason = "only queries do"))]
    LookInSlices,
}

impl Purpose {
    fn options(self, definitions: Definitions) -> OpenOptions {
        let is_held = matches!(self, Purpose::Hold | Purpose::Serve);
        let usual = OpenOptions::default();
        OpenOptions {
            definitions,
            map: !is_held && self != Purpose::ReadOnce,
            map_pages: !is_held,
            growing: self == Purpose::Follow,
            threads: match self {
                Purpose::LookInSlices => 1,
                _ => usual.threads,
            },
            ..usual
        }
    }

    /// Robots as their reader sees them.
    fn of_robots(self, robots: live::Robots) -> anyhow::Result<Box<dyn Source>> {
        match self {
            Purpose::Look | Purpose::LookInSlices => robots.listened(),
            _ => Ok(robots.growing()),
        }
    }
}

/// The running robots among places.
pub fn robots_in(places: &[PathBuf]) -> impl Iterator<Item = &PathBuf> {
    places.iter().filter(|place| is_robot(place))
}

/// Whether a place is a running robot.
fn is_robot(place: &Path) -> bool {
    place.to_str().is_some_and(asof::is_robot)
}

impl Opening {
    /// The standard types, and those that the folders define.
    pub fn definitions(&self, screen: &Screen) -> anyhow::Result<Definitions> {
        self.files.definitions(screen)
    }

    /// The flags for robots.
    #[cfg(feature = "live")]
    pub fn robot(&self) -> &OfRobot {
        &self.robot
    }

    /// The folders of definitions.
    #[cfg(feature = "live")]
    pub fn folders(&self) -> &[PathBuf] {
        &self.files.msg_path
    }

    /// Whether what expands to hundreds of times its size is left out.
    pub fn has_limits(&self) -> bool {
        !self.files.no_limits
    }

    /// Opens one place, or several as one; of running robots only these topics.
    pub fn open(
        &self,
        places: &[PathBuf],
        wanted: &TopicRequest,
        purpose: Purpose,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Source>> {
        if purpose == Purpose::Follow {
            refuse_to_follow_elsewhere(places)?;
        }
        if let Some(robots) = self.listen(places, wanted, purpose, screen)? {
            return purpose.of_robots(robots);
        }
        let opened = self.files.open(places, purpose, screen)?;
        if purpose == Purpose::Follow && opened.growth().is_growing() {
            return Ok(Box::new(Selection::new(opened, wanted.filter())));
        }
        Ok(opened)
    }

    /// Opens places to look at them as of a time: without one, the end of a recording, or now.
    pub fn open_as_of(
        &self,
        places: &[PathBuf],
        wanted: &TopicRequest,
        time: Option<When>,
        screen: &Screen,
    ) -> anyhow::Result<(Box<dyn Source>, Stamp)> {
        if let Some(robots) = self.listen(places, wanted, Purpose::Look, screen)? {
            return robots.listened_until(time);
        }
        let file = self.files.open(places, Purpose::Look, screen)?;
        let range = file.summary().range;
        let at = time.map_or(range.end, |time| time.resolve(range));
        Ok((file, at))
    }

    /// Whether folders of definitions were named, or limits lifted: settings that only this process has.
    #[cfg(feature = "cluster")]
    pub fn is_special(&self) -> bool {
        !self.files.msg_path.is_empty() || self.files.no_limits
    }

    /// How recordings are opened for a purpose.
    pub fn options(&self, purpose: Purpose, screen: &Screen) -> anyhow::Result<OpenOptions> {
        self.files.options(purpose, screen)
    }

    /// The running robots among the places, if any, merged with the recordings beside them.
    fn listen(
        &self,
        places: &[PathBuf],
        wanted: &TopicRequest,
        purpose: Purpose,
        screen: &Screen,
    ) -> anyhow::Result<Option<live::Robots>> {
        if robots_in(places).next().is_none() {
            if self.robot.duration.is_some() || !self.robot.key.is_empty() {
                screen.note(
                    "--for and --key are for running robots, and have no effect on recordings",
                );
            }
            return Ok(None);
        }
        // Before a file is opened that would end the program at once.
        live::stop_on_signals()?;
        let open = |place: &PathBuf| {
            if is_robot(place) {
                return Ok(live::Place::Robot(place.display().to_string()));
            }
            let only = std::slice::from_ref(place);
            let recording = self.files.open(only, purpose, screen)?;
            let selection = Selection::new(recording, wanted.filter());
            Ok(live::Place::Recording(
                shown_place(place),
                Box::new(selection),
            ))
        };
        let places = places
            .iter()
            .map(open)
            .collect::<anyhow::Result<Vec<_>>>()?;
        live::listen(places, self, wanted, screen).map(Some)
    }
}

/// Flags of verbs that open only recordings, and of all others.
#[derive(Debug, Clone, Default, Args)]
pub struct FileOpening {
    /// Also look for definitions of ROS 2 types in this folder, such as /opt/ros/humble/share; for bags
    /// that have none of their own
    #[arg(long, value_name = "DIR")]
    msg_path: Vec<PathBuf>,

    /// Decompress everything: without this, chunks and files that expand to hundreds of times
    /// their size are left out and reported
    #[arg(long)]
    no_limits: bool,

    /// What the folders define, once they were looked into.
    #[arg(skip)]
    defined: OnceLock<Definitions>,
}

impl FileOpening {
    /// The standard types, and those that the folders define.
    pub fn definitions(&self, screen: &Screen) -> anyhow::Result<Definitions> {
        if let Some(defined) = self.defined.get() {
            return Ok(defined.clone());
        }
        let defined = definitions_in(&self.msg_path, screen)?;
        Ok(self.defined.get_or_init(|| defined).clone())
    }

    fn options(&self, purpose: Purpose, screen: &Screen) -> anyhow::Result<OpenOptions> {
        let mut options = purpose.options(self.definitions(screen)?);
        if self.no_limits {
            options.limits = DecompressionLimits::NONE;
        }
        let told = screen.clone();
        options.notices = Notices::to(move |sentence| told.note(sentence));
        Ok(options)
    }

    /// Opens one place, or several as one.
    pub fn open(
        &self,
        places: &[PathBuf],
        purpose: Purpose,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Source>> {
        let options = self.options(purpose, screen)?;
        if places.iter().any(|place| may_be_unpacked(place)) {
            clean_up_on_interrupt();
        }
        places.iter().try_for_each(|place| openable(place))?;
        let recording = asof::formats::open_all(places, &options).map_err(explained)?;
        if !self.msg_path.is_empty() {
            note_missing(&*recording, &options.definitions, screen);
        }
        Ok(recording)
    }
}

/// A remote file is not seen to grow: only what it holds when opened is read.
fn refuse_to_follow_elsewhere(places: &[PathBuf]) -> anyhow::Result<()> {
    let is_elsewhere = |place: &PathBuf| is_address(place) && !is_robot(place);
    if places.iter().any(is_elsewhere) {
        return Err(Usage::error(
            "--follow takes running robots and files on this machine; a file elsewhere is not seen to grow: \
             leave --follow out to print what it holds by now",
        ));
    }
    Ok(())
}

/// Whether a place may be, or may contain, a file that is unpacked to a temporary one before it is read.
fn may_be_unpacked(place: &Path) -> bool {
    let extension = place.extension().and_then(|extension| extension.to_str());
    is_address(place) || place.is_dir() || matches!(extension, Some("zst" | "zstd" | "yaml"))
}

/// The definitions below the named folders. Prints a note where there are none.
pub fn definitions_in(folders: &[PathBuf], screen: &Screen) -> anyhow::Result<Definitions> {
    let mut definitions = Definitions::standard();
    for folder in folders {
        let found = definitions.add_folder(folder).map_err(|error| {
            let reason = match error.kind() {
                ErrorKind::NotFound => "there is no such folder".to_owned(),
                ErrorKind::NotADirectory => {
                    "it is not a folder; name the folder that contains it".to_owned()
                }
                ErrorKind::PermissionDenied => "permission denied".to_owned(),
                _ => error.to_string(),
            };
            let folder = folder.display();
            anyhow::Error::new(error)
                .context(format!("cannot look for definitions in {folder}: {reason}"))
        })?;
        if found == 0 {
            let folder = folder.display();
            screen.note(format_args!("there is no .msg or .idl file below {folder}"));
        }
    }
    Ok(definitions)
}

/// Notes which types are defined in the folders but cannot be used, because another is missing.
fn note_missing(recording: &dyn Source, definitions: &Definitions, screen: &Screen) {
    let summary = recording.summary();
    let undefined: BTreeSet<&str> = summary
        .channels
        .iter()
        .filter_map(|entry| entry.channel.schema.as_ref())
        .filter(|schema| schema.encoding.is_empty() && schema.data.is_empty())
        .map(|schema| schema.name.as_str())
        .collect();
    for name in undefined {
        if let Some(missing) = definitions
            .missing_for(name)
            .filter(|missing| missing != name)
        {
            screen.note(format_args!(
                "the definition of {name} needs {missing}, which is in no folder of --msg-path"
            ));
        }
    }
}

/// Opens one recording with the standard types, without a word on the screen.
pub fn open(place: &Path, purpose: Purpose) -> anyhow::Result<Box<dyn Source>> {
    openable(place)?;
    let options = purpose.options(Definitions::standard());
    asof::formats::open_with(place, &options).map_err(explained)
}

/// Rejects a place that can never be opened, with the reason; others are not written to from here on.
fn openable(place: &Path) -> anyhow::Result<()> {
    if let Some(scheme) = scheme_of(place).filter(|scheme| !is_remote(scheme)) {
        let place = shown_place(place);
        if is_robot(Path::new(&place)) {
            return Err(anyhow!(
                "cannot open {place}: it is a running robot, and this command is for recordings; record it first: \
                 asof record {} -o run.mcap",
                quoted(Path::new(&place))
            ));
        }
        return Err(anyhow!(
            "cannot open {place}: {scheme} addresses are not supported; name a file, or an http, s3, gs or az address"
        ));
    }
    // A pipe would block, and cannot be read at random.
    let is_stream = |found: std::fs::Metadata| !found.is_file() && !found.is_dir();
    if std::fs::metadata(place).is_ok_and(is_stream) {
        let place = shown_place(place);
        return Err(anyhow!(
            "cannot open {place}: it is not an ordinary file; save its contents to a file first"
        ));
    }
    note_input(place);
    Ok(())
}

/// Whether files at such addresses are read in place, in a build with the feature `remote`.
fn is_remote(scheme: &str) -> bool {
    asof::formats::REMOTE_SCHEMES.contains(&scheme)
}

fn explained(error: SourceError) -> anyhow::Error {
    let SourceError::Io { place, cause, .. } = &error else {
        return error.into();
    };
    let place = without_secrets(place);
    let line = match cause.kind() {
        ErrorKind::NotFound => {
            format!("cannot open {place}: there is no such file; check the path")
        }
        ErrorKind::PermissionDenied => {
            format!("cannot open {place}: permission denied; check who may read it (ls -l)")
        }
        _ => return error.into(),
    };
    anyhow::Error::new(error).context(line)
}

/// The name of a recording as shown: without its folders, or the secrets of an address.
pub fn shown_name(place: &Path) -> String {
    let text = place.display().to_string();
    if is_robot(place) {
        return text;
    }
    let text = match text.split_once("://") {
        Some((_, rest)) => rest.split(['?', '#']).next().unwrap_or(rest),
        None => &text,
    };
    let last = Path::new(text).file_name();
    let name = last.map_or_else(|| text.into(), std::ffi::OsStr::to_string_lossy);
    // Without a path, an address is a host, and what precedes it is for the host alone.
    name.rsplit('@').next().unwrap_or(&name).to_owned()
}

/// A place as shown in messages: an address may carry a password or a signature.
pub fn shown_place(place: &Path) -> String {
    without_secrets(&place.display().to_string())
}
