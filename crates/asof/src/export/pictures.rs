//! `asof export --format images` and `--format video`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use asof_core::{Channel, Message, Query, Topics};
use asof_decode::{Archetype, Decoders};

use super::film::Film;
use super::seen::{Seen, Taken};
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

/// Where pictures are written, and whether files may be replaced.
pub struct PictureFolder<'a> {
    pub folder: &'a Path,
    pub force: bool,
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
    let topics: Vec<&str> = meant
        .filter(|channel| is_seen(channel))
        .map(|channel| channel.topic.as_str())
        .collect();
    if topics.is_empty() {
        return Err(Error::Option(
            "there are no pictures and no video among these topics; `asof info` lists them with their types".to_owned(),
        ));
    }
    let query = Query {
        topics: Topics::named(topics),
        range: query.range,
    };
    let mut decoders = Decoders::default();
    let mut names = Names::default();
    let (mut done, total) = (0, summary.messages.unwrap_or(0));
    let mut all: BTreeMap<String, Topic> = BTreeMap::new();
    for batch in file.read(&query)? {
        let batch = batch?;
        for message in batch.iter() {
            let message = message.to_message();
            let topic = all.entry(message.channel.topic.clone()).or_insert_with(|| {
                let path = place.folder.join(names.of(&message.channel.topic));
                Topic::new(path, rate_of(&summary, &message.channel))
            });
            let seen = decoders.meaning(&message);
            let seen = seen.map_err(|error| error.to_string());
            let taken = match seen.and_then(|record| Seen::of(&record)) {
                Ok(seen) => topic.take(kind, seen, &message, place)?,
                Err(error) => Taken::Failed(error),
            };
            topic.count(&message, taken);
        }
        done += batch.len() as u64;
        file.progress().done(done, total);
    }
    let mut has_damage = false;
    for (name, topic) in all {
        has_damage |= topic.finish(&name, place, file.progress())?;
    }
    Ok(has_damage)
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
        seen: Seen,
        message: &Message,
        place: &PictureFolder<'_>,
    ) -> Result<Taken, Error> {
        if matches!(seen, Seen::Scaled(_)) {
            self.scaled += 1;
        }
        let (bytes, extension) = match (kind, seen) {
            (Kind::Images, Seen::Picture(bytes, extension)) => (bytes, extension),
            (Kind::Images, Seen::Scaled(bytes)) => (bytes, "png"),
            (Kind::Images, Seen::Packet(..)) => {
                let reason = "it is video; `--format video` writes it";
                return Ok(Taken::Failed(reason.to_owned()));
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
        let mut out = new.writer()?;
        let cannot = |error| Error::file(format!("cannot write {}", path.display()), error);
        out.write_all(&bytes).map_err(cannot)?;
        out.flush().map_err(cannot)?;
        drop(out);
        new.finish()?;
        Ok(Taken::Written)
    }

    fn take_for_film(
        &mut self,
        seen: &Seen,
        message: &Message,
        place: &PictureFolder<'_>,
    ) -> Result<Taken, Error> {
        if self.film.is_none() {
            if let Seen::Packet(data, codec) = seen
                && !codec.is_key(data)
            {
                return Ok(Taken::Early);
            }
            self.film = Some(Film::start(&self.path, seen, self.rate, place.force)?);
        }
        match &mut self.film {
            Some(film) => film.take(seen, message.log_time),
            None => Err(Error::Invalid("no video was started".to_owned())),
        }
    }

    fn count(&mut self, message: &Message, taken: Taken) {
        match taken {
            Taken::Written => self.written += 1,
            Taken::Nothing => {}
            Taken::Early => self.early += 1,
            Taken::Failed(error) => {
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
