//! Opens the places that are named on the command line.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use asof::files::note_input;
use asof::formats::{
    DecompressionLimits, Definitions, Notices, OpenOptions, Recording, without_secrets,
};
use asof::{Channel, SourceError, Stamp, When};
use asof::{is_address, scheme_of};
use clap::Args;

use super::chosen::Chosen;
use super::live;
use super::screen::Screen;
use super::select::Patterns;
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
pub struct Wanted {
    filter: Arc<dyn Fn(&Channel) -> bool + Send + Sync>,
    /// Topics that must be there.
    named: Vec<String>,
    /// How long to wait for topics at first.
    pub patience: Duration,
    /// At most this many bytes of all robots are kept.
    pub bytes: u64,
}

/// How long a look waits for the first topics.
const DISCOVERY: Duration = Duration::from_secs(5);
const MOST_BYTES: u64 = 600_000_000;

impl Wanted {
    /// Every topic.
    pub fn all() -> Self {
        Wanted::those(|_| true)
    }

    /// The topics for which this is true.
    pub fn those(is_wanted: impl Fn(&Channel) -> bool + Send + Sync + 'static) -> Self {
        Wanted {
            filter: Arc::new(is_wanted),
            named: Vec::new(),
            patience: DISCOVERY,
            bytes: MOST_BYTES,
        }
    }

    /// The topics that the user chose; all without a choice.
    pub fn chosen(patterns: Option<Patterns>) -> Self {
        match patterns {
            Some(patterns) => Wanted::those(move |channel| patterns.is_match(&channel.topic)),
            None => Wanted::all(),
        }
    }

    /// These topics, which are waited for.
    pub fn named<'a>(topics: impl IntoIterator<Item = &'a String>) -> Self {
        let named: Vec<String> = topics.into_iter().cloned().collect();
        let wanted = named.clone();
        Wanted {
            named,
            ..Wanted::those(move |channel| wanted.contains(&channel.topic))
        }
    }

    /// The same, without waiting for topics to appear.
    pub fn at_once(self) -> Self {
        Wanted {
            patience: Duration::ZERO,
            ..self
        }
    }

    /// The same, keeping at most this many bytes.
    pub fn within(self, bytes: u64) -> Self {
        Wanted { bytes, ..self }
    }

    pub fn is_match(&self, channel: &Channel) -> bool {
        (self.filter)(channel)
    }

    /// The topics that must be there.
    #[cfg(feature = "live")]
    pub fn names(&self) -> &[String] {
        &self.named
    }
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

    /// Opens one place, or several as one; for a running robot only these topics, until interrupted.
    pub fn open_wanted(
        &self,
        places: &[PathBuf],
        wanted: &Wanted,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let options = options_with(self.definitions(screen)?);
        self.open_with(places, wanted, options, screen)
    }

    /// The same; files without an end are taken for files that are being written, restricted to these topics.
    pub fn open_growing(
        &self,
        places: &[PathBuf],
        wanted: &Wanted,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let options = OpenOptions {
            growing: true,
            ..options_with(self.definitions(screen)?)
        };
        let opened = self.open_with(places, wanted, options, screen)?;
        if opened.growth().is_growing() {
            return Ok(Box::new(Chosen::new(opened, wanted)));
        }
        Ok(opened)
    }

    /// Whether what expands to hundreds of times its size is left out.
    pub fn has_limits(&self) -> bool {
        !self.files.no_limits
    }

    /// Whether folders of definitions were named, or limits lifted: settings that only this process has.
    #[cfg(feature = "cluster")]
    pub fn is_special(&self) -> bool {
        !self.files.msg_path.is_empty() || self.files.no_limits
    }

    /// How recordings are opened when many are read at the same time: without memory maps.
    #[cfg_attr(
        not(feature = "sql"),
        allow(dead_code, reason = "only queries read many recordings")
    )]
    pub fn unmapped(&self, screen: &Screen) -> anyhow::Result<OpenOptions> {
        Ok(unmapped_with(self.definitions(screen)?))
    }

    /// Opens places to look at them: a running robot is listened to for a while, and the result is finished, like a
    /// recording of that while.
    pub fn look_at(
        &self,
        places: &[PathBuf],
        wanted: &Wanted,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let options = options_with(self.definitions(screen)?);
        self.open_as(live::Listening::listened, places, wanted, options, screen)
    }

    /// The same for a reader that reads slices of time in parallel, each on its own thread: nothing is
    /// decompressed ahead within one, or memory and threads would grow with the square of the cores.
    #[cfg(feature = "sql")]
    pub fn look_at_slices(
        &self,
        places: &[PathBuf],
        wanted: &Wanted,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let options = OpenOptions {
            threads: 1,
            ..options_with(self.definitions(screen)?)
        };
        self.open_as(live::Listening::listened, places, wanted, options, screen)
    }

    /// Opens places to look at them as of a time: without one, the end of a recording, or now.
    pub fn look_back(
        &self,
        places: &[PathBuf],
        wanted: &Wanted,
        time: Option<When>,
        screen: &Screen,
    ) -> anyhow::Result<(Box<dyn Recording>, Stamp)> {
        let options = options_with(self.definitions(screen)?);
        if let Some(robot) = self.listen(places, wanted, &options, screen)? {
            let at = robot.listen_until(time);
            return Ok((Box::new(robot.listened_already()), at));
        }
        let file = self.files.open_with(places, options, screen)?;
        let range = file.summary().range;
        let at = time.map_or(range.end, |time| time.resolve(range));
        Ok((file, at))
    }

    /// Opens places that are read once from front to back, as [`FileOpening::open_once`]; for a running robot only these
    /// topics.
    pub fn open_once(
        &self,
        places: &[PathBuf],
        wanted: &Wanted,
        definitions: Definitions,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let options = OpenOptions {
            map: false,
            ..options_with(definitions)
        };
        self.open_with(places, wanted, options, screen)
    }

    /// Opens places without memory maps, as [`FileOpening::open_unmapped`]; for a running robot only these
    /// topics.
    pub fn open_unmapped(
        &self,
        places: &[PathBuf],
        wanted: &Wanted,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let options = unmapped_with(self.definitions(screen)?);
        self.open_with(places, wanted, options, screen)
    }

    /// The same for a server, which reads what there is repeatedly and follows what arrives.
    pub fn open_served(
        &self,
        places: &[PathBuf],
        wanted: &Wanted,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let options = unmapped_with(self.definitions(screen)?);
        self.open_as(live::Listening::looked_at, places, wanted, options, screen)
    }

    /// Opens places; running robots are read from front to back until it is time to stop.
    fn open_with(
        &self,
        places: &[PathBuf],
        wanted: &Wanted,
        options: OpenOptions,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        self.open_as(|robot| robot, places, wanted, options, screen)
    }

    /// Opens places; `how` is how a running robot is presented to its reader.
    fn open_as(
        &self,
        how: fn(live::Listening) -> live::Listening,
        places: &[PathBuf],
        wanted: &Wanted,
        options: OpenOptions,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        match self.listen(places, wanted, &options, screen)? {
            Some(robot) => Ok(Box::new(how(robot))),
            None => self.files.open_with(places, options, screen),
        }
    }

    /// The running robots among the places, if any, merged with the recordings beside them.
    fn listen(
        &self,
        places: &[PathBuf],
        wanted: &Wanted,
        options: &OpenOptions,
        screen: &Screen,
    ) -> anyhow::Result<Option<live::Listening>> {
        if !places.iter().any(|place| live::is_robot(place)) {
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
            if live::is_robot(place) {
                return Ok(live::Place::Robot(place.display().to_string()));
            }
            let only = std::slice::from_ref(place);
            let recording = self.files.open_with(only, options.clone(), screen)?;
            let chosen = Chosen::new(recording, wanted);
            Ok(live::Place::Recording(shown_place(place), Box::new(chosen)))
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
}

impl FileOpening {
    /// The standard types, and those that the folders define.
    pub fn definitions(&self, screen: &Screen) -> anyhow::Result<Definitions> {
        definitions_in(&self.msg_path, screen)
    }

    /// Opens places that are read once from front to back. Mapping them has no advantage then, except for a db3,
    /// whose pages are read faster than SQLite reads them.
    pub fn open_once(
        &self,
        places: &[PathBuf],
        definitions: Definitions,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let options = OpenOptions {
            map: false,
            ..options_with(definitions)
        };
        self.open_with(places, options, screen)
    }

    /// Opens places without memory maps: those that stay open for long, where a file
    /// that is truncated meanwhile must be an error and not a signal, and those read beside much else in memory.
    pub fn open_unmapped(
        &self,
        places: &[PathBuf],
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        let options = unmapped_with(self.definitions(screen)?);
        self.open_with(places, options, screen)
    }

    fn open_with(
        &self,
        places: &[PathBuf],
        mut options: OpenOptions,
        screen: &Screen,
    ) -> anyhow::Result<Box<dyn Recording>> {
        if self.no_limits {
            options.limits = DecompressionLimits::NONE;
        }
        let told = screen.clone();
        options.notices = Notices::to(move |sentence| told.note(sentence));
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

/// A time above zero: seconds, or with a unit.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .unwrap_or((text, 1.0));
    let seconds: Option<f64> = number.parse().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds * unit).ok())
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "give a time, such as 10, 500ms, 30s, 5m or 1h".to_owned())
}

fn unmapped_with(definitions: Definitions) -> OpenOptions {
    OpenOptions {
        map: false,
        map_pages: false,
        ..options_with(definitions)
    }
}

fn options_with(definitions: Definitions) -> OpenOptions {
    OpenOptions {
        definitions,
        ..OpenOptions::default()
    }
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
fn note_missing(recording: &dyn Recording, definitions: &Definitions, screen: &Screen) {
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

/// Opens one place.
pub fn open(place: &Path) -> anyhow::Result<Box<dyn Recording>> {
    open_one(place, &OpenOptions::default())
}

/// Opens one place without mapping anything of it.
pub fn open_unmapped(place: &Path) -> anyhow::Result<Box<dyn Recording>> {
    open_one(place, &unmapped_with(Definitions::standard()))
}

/// Opens a place, with an error that includes a way on.
fn open_one(place: &Path, options: &OpenOptions) -> anyhow::Result<Box<dyn Recording>> {
    openable(place)?;
    asof::formats::open_with(place, options).map_err(explained)
}

/// Rejects a place that can never be opened, with the reason; others are not written to from here on.
fn openable(place: &Path) -> anyhow::Result<()> {
    if let Some(scheme) = scheme_of(place).filter(|scheme| !is_remote(scheme)) {
        let place = shown_place(place);
        if live::is_robot(Path::new(&place)) {
            return Err(anyhow!(
                "cannot open {place}: it is a running robot, and this command is for recordings; record it first: \
                 asof record {place} -o run.mcap"
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

/// A place as shown in messages: an address may carry a password or a signature.
fn shown_place(place: &Path) -> String {
    without_secrets(&place.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_above_zero_with_or_without_a_unit() {
        assert_eq!(parse_time("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(parse_time("1.5h"), Ok(Duration::from_mins(90)));
        assert_eq!(parse_time("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1m", "soon", "inf", "NaN", "1e300h"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
