//! `asof export --format images` and `--format video`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use asof_core::{Channel, Message, Query, Topics, read_through};
use asof_decode::{Archetype, Decoders};

use super::film::Film;
use super::seen::{PictureContents, Placement};
use super::topic_files::{Names, make_folder};
use crate::files::NewFile;
use crate::text::counted;
use crate::{Error, Progress, Recording};

/// What pictures are exported as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file for each picture.
    Images,
    /// A file for each topic.
    Video,
}

/// How many videos are encoded at once.
const ENCODERS: usize = 32;

/// Where pictures are written, whether files may be replaced, and whether those that arrive are written too.
pub struct PictureFolder<'a> {
    pub folder: &'a Path,
    pub force: bool,
    pub follow: bool,
}

/// Writes the pictures of a recording; returns whether some could not be written.
pub fn export(
    kind: Kind,
    place: &PictureFolder<'_>,
    file: &Recording,
    query: &Query,
) -> Result<bool, Error> {
    let summary = file.summary();
    let channels = summary.channels.iter().map(|entry| &entry.channel);
    let meant = channels.filter(|channel| query.topics.contains(&channel.topic));
    let topics: Vec<&Channel> = meant
        .filter(|channel| is_seen(channel))
        .map(|channel| &**channel)
        .collect();
    if topics.is_empty() {
        return Err(Error::Option(
            "there are no pictures and no video among these topics; `asof info` lists them with their types".to_owned(),
        ));
    }
    let mut names = Names::default();
    let mut has_damage = false;
    // What arrives is read once.
    let grows = place.follow && asof_core::Source::growth(file).is_growing();
    let at_once = if grows { usize::MAX } else { ENCODERS };
    let groups = groups(kind, topics, at_once);
    for (at, topics) in groups.iter().enumerate() {
        let query = Query {
            topics: Topics::named(topics.iter().copied()),
            range: query.range,
        };
        let progress = (at as u64, groups.len() as u64);
        let all = read(kind, place, file, &query, &mut names, progress)?;
        for (name, topic) in all {
            has_damage |= topic.finish(&name, place, file.progress())?;
        }
    }
    Ok(has_damage)
}

/// The topics that are read together. For each video of pictures a process encodes them, so that few are read at a time.
fn groups<'a>(kind: Kind, channels: Vec<&'a Channel>, at_once: usize) -> Vec<Vec<&'a str>> {
    let is_encoded = |channel: &&Channel| {
        let archetype = Archetype::of(channel.type_name());
        kind == Kind::Video && archetype.is_some_and(|found| found.name != "CompressedVideo")
    };
    let topic = |channel: &'a Channel| channel.topic.as_str();
    let (encoded, copied): (Vec<_>, Vec<_>) = channels.into_iter().partition(is_encoded);
    let mut encoded: Vec<&str> = encoded.into_iter().map(topic).collect();
    encoded.sort_unstable();
    encoded.dedup();
    let mut groups: Vec<Vec<&str>> = encoded.chunks(at_once).map(<[_]>::to_vec).collect();
    let copied = copied.into_iter().map(topic);
    match groups.first_mut() {
        Some(first) => first.extend(copied),
        None => groups.push(copied.collect()),
    }
    groups
}

/// Writes the pictures of some topics; `progress` is the number of times that the recording was read, and will be.
fn read(
    kind: Kind,
    place: &PictureFolder<'_>,
    file: &Recording,
    query: &Query,
    names: &mut Names,
    progress: (u64, u64),
) -> Result<BTreeMap<String, Topic>, Error> {
    let summary = file.summary();
    let mut decoders = Decoders::default();
    let total = summary.messages.unwrap_or(0);
    let (mut done, total) = (progress.0 * total, progress.1 * total);
    let mut all: BTreeMap<String, Topic> = BTreeMap::new();
    for batch in read_through(file, query, place.follow)? {
        let batch = batch?;
        for message in batch.iter() {
            let message = message.to_message();
            let topic = all.entry(message.channel.topic.clone()).or_insert_with(|| {
                let path = place.folder.join(names.of(&message.channel.topic));
                Topic::new(path, rate_of(&summary, &message.channel))
            });
            let seen = decoders.meaning(&message);
            let seen = seen.map_err(|error| error.to_string());
            let taken = match seen.and_then(|record| PictureContents::of(&record)) {
                Ok(seen) => topic.take(kind, seen, &message, place)?,
                Err(error) => Placement::Failed(error),
            };
            topic.count(&message, taken);
        }
        done += batch.len() as u64;
        file.progress().done(done, total);
    }
    Ok(all)
}

/// Whether a channel has pictures.
fn is_seen(channel: &Channel) -> bool {
    let archetype = Archetype::of(channel.type_name());
    archetype.is_some_and(|archetype| {
        matches!(
            archetype.name,
            "Image" | "CompressedImage" | "CompressedVideo"
        )
    })
}

/// Pictures per second, by the recording's own counts.
fn rate_of(summary: &asof_core::Summary, channel: &Channel) -> f64 {
    let seconds = summary.range.duration_nanos() as f64 * 1e-9;
    let own = summary.channels.iter();
    let own = own.filter(|entry| entry.channel.topic == channel.topic);
    let messages: Option<u64> = own.map(|entry| entry.messages).sum();
    match messages {
        Some(messages) if messages > 1 && seconds > 0.0 => {
            ((messages - 1) as f64 / seconds).clamp(0.1, 1000.0)
        }
        _ => 30.0,
    }
}

/// The output of one topic.
struct Topic {
    /// Its folder, or its file without an extension.
    path: PathBuf,
    rate: f64,
    film: Option<Film>,
    written: u64,
    scaled: u64,
    /// Packets before the first that a decoder can start with.
    early: u64,
    /// Messages without a picture, and why the first of them has none.
    failed: Option<(u64, String)>,
    last: Option<(i64, u64)>,
}

impl Topic {
    fn new(path: PathBuf, rate: f64) -> Self {
        Topic {
            path,
            rate,
            film: None,
            written: 0,
            scaled: 0,
            early: 0,
            failed: None,
            last: None,
        }
    }

    /// Writes the contents of a message.
    fn take(
        &mut self,
        kind: Kind,
        seen: PictureContents,
        message: &Message,
        place: &PictureFolder<'_>,
    ) -> Result<Placement, Error> {
        if matches!(seen, PictureContents::Scaled(_)) {
            self.scaled += 1;
        }
        let (bytes, extension) = match (kind, seen) {
            (Kind::Images, PictureContents::Picture(bytes, extension)) => (bytes, extension),
            (Kind::Images, PictureContents::Scaled(bytes)) => (bytes, "png"),
            (Kind::Images, PictureContents::Packet(..)) => {
                let reason = "it is video; `--format video` writes it";
                return Ok(Placement::Failed(reason.to_owned()));
            }
            (Kind::Video, seen) => return self.take_for_film(&seen, message, place),
        };
        if self.written == 0 {
            make_folder(&self.path)?;
        }
        let nanos = message.log_time.nanos();
        // Several may have the same log time.
        let number = match self.last {
            Some((at, number)) if at == nanos => number + 1,
            _ => 1,
        };
        self.last = Some((nanos, number));
        let name = match number {
            1 => format!("{nanos}.{extension}"),
            _ => format!("{nanos}-{number}.{extension}"),
        };
        let path = self.path.join(name);
        let new = NewFile::create(&path, |_| place.force)?;
        new.write(&bytes)?;
        Ok(Placement::Written)
    }

    fn take_for_film(
        &mut self,
        seen: &PictureContents,
        message: &Message,
        place: &PictureFolder<'_>,
    ) -> Result<Placement, Error> {
        if self.film.is_none() {
            if let PictureContents::Packet(data, codec) = seen
                && !codec.is_key(data)
            {
                return Ok(Placement::Early);
            }
            self.film = Some(Film::start(&self.path, seen, self.rate, place.force)?);
        }
        match &mut self.film {
            Some(film) => film.take(seen, message.log_time),
            None => Err(Error::Invalid("no video was started".to_owned())),
        }
    }

    fn count(&mut self, message: &Message, taken: Placement) {
        match taken {
            Placement::Written => self.written += 1,
            Placement::Nothing => {}
            Placement::Early => self.early += 1,
            Placement::Failed(error) => {
                let first = || (0, format!("at {}, {error}", message.log_time));
                self.failed.get_or_insert_with(first).0 += 1;
            }
        }
    }

    /// Moves all files to their targets and prints what was written; returns whether something could not be.
    fn finish(
        self,
        name: &str,
        place: &PictureFolder<'_>,
        progress: &Progress,
    ) -> Result<bool, Error> {
        let path = match self.film {
            Some(film) => film.finish(place.force, progress)?,
            None => self.path,
        };
        if self.written > 0 {
            let pictures = counted(self.written, "picture");
            progress.note(format_args!("{pictures} on {name} in {}", path.display()));
        }
        if self.scaled > 0 {
            progress.note(format_args!(
                "{} on {name} hold numbers without a colour: each is scaled to its own range; --format parquet keeps them",
                counted(self.scaled, "picture")
            ));
        }
        if self.early > 0 {
            progress.note(format_args!(
                "{} on {name} left out: they precede the first that a decoder can start with",
                counted(self.early, "packet")
            ));
        }
        if let Some((count, first)) = &self.failed {
            progress.warning(format_args!(
                "{} on {name} not written; the first: {first}",
                counted(*count, "message")
            ));
        }
        Ok(self.failed.is_some())
    }
}
