//! The output of a camera: pictures in the rows, or a video beside them.

use std::path::{Path, PathBuf};

use asof_core::TimeRange;
use asof_decode::{Pixels, VideoCodec};
use bytes::Bytes;
use serde_json::{Value, json};

use super::cameras::Camera;
use super::ffmpeg::{self, Encoder};
use super::mp4::{Mp4, Parameters};
use super::stats::{Histogram, Stats, is_sampled};
use super::{CHUNK_FILES, DatasetMap, LerobotError, VIDEO_BYTES, VIDEO_PATH, failed, file_path};

/// A feature of pictures, over all episodes.
pub(super) struct Reel {
    pub(super) feature: String,
    folder: PathBuf,
    hz: u32,
    /// Whether pictures become videos.
    wants_film: bool,
    kind: Option<ReelKind>,
    film: Option<Film>,
    /// The number of videos so far.
    films: usize,
    /// Copied videos, and which of their pictures belong to which episode: their statistics are made at the end.
    copied: Vec<CopiedVideo>,
}

/// The type of a feature, known from its first picture on.
#[derive(Debug, Clone)]
struct ReelKind {
    is_film: bool,
    is_depth: bool,
    width: usize,
    height: usize,
    codec: &'static str,
    pixel_format: String,
}

enum Film {
    /// Packets copied as recorded.
    Copied(Mp4),
    Encoded(Encoder),
}

struct CopiedVideo {
    path: PathBuf,
    /// The episode, its first picture, and how many it has.
    episodes: Vec<(usize, usize, usize)>,
}

/// The position of an episode in the videos of a feature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FilmPlace {
    pub(super) chunk: usize,
    pub(super) file: usize,
    pub(super) from: f64,
    pub(super) to: f64,
}

/// An episode of a feature in progress.
pub(super) struct Take<'a> {
    camera: &'a Camera,
    /// The picture of each frame, by its index among the camera's.
    places: &'a [usize],
    next: usize,
    way: Way,
    /// Its first picture in the video.
    first: usize,
    seen: Option<Histogram>,
    last: Option<(Bytes, Pixels)>,
    /// Frames that wait for the first valid picture.
    waiting: usize,
    /// Encoded pictures of frames, if they go into the rows.
    pub(super) pictures: Vec<Bytes>,
    pub(super) broken: u64,
}

enum Way {
    /// Each picture separately.
    Pictures,
    /// Packets are copied.
    Copy(VideoCodec),
    /// Packets are decoded once all are there, because frames do not show each of them once.
    Decode {
        codec: VideoCodec,
        packets: Option<Box<Mp4>>,
        path: PathBuf,
        /// The offset of each picture in the file of packets.
        held: Vec<usize>,
    },
}

impl Reel {
    /// `films` is how many videos there are already.
    pub(super) fn new(feature: &str, folder: &Path, map: &DatasetMap, films: usize) -> Self {
        Reel {
            feature: feature.to_owned(),
            folder: folder.to_owned(),
            hz: map.hz,
            wants_film: map.videos.unwrap_or_else(|| ffmpeg::encoder().is_some()),
            kind: None,
            film: None,
            films,
            copied: Vec::new(),
        }
    }

    /// Whether the feature's pictures are in videos.
    pub(super) fn is_film(&self) -> bool {
        self.kind.as_ref().is_some_and(|kind| kind.is_film)
    }

    /// Begins an episode that shows these pictures of a camera.
    pub(super) fn begin<'a>(
        &mut self,
        camera: &'a Camera,
        places: &'a [usize],
    ) -> Result<Take<'a>, LerobotError> {
        let way = match camera.codec {
            None => Way::Pictures,
            Some(codec @ (VideoCodec::H264 | VideoCodec::H265)) => {
                if camera.is_every(places) && self.kind.as_ref().is_none_or(|_| self.is_copying()) {
                    Way::Copy(codec)
                } else if ffmpeg::encoder().is_some() {
                    Way::Decode {
                        codec,
                        packets: None,
                        path: self.folder.join(format!(".{}.mp4", self.feature)),
                        held: Vec::new(),
                    }
                } else {
                    return Err(LerobotError::NotEvery {
                        topic: camera.topic.clone(),
                        hz: self.hz,
                    });
                }
            }
            Some(codec) => {
                return Err(LerobotError::Codec {
                    topic: camera.topic.clone(),
                    codec: codec.name(),
                });
            }
        };
        Ok(Take {
            camera,
            places,
            next: 0,
            way,
            first: 0,
            seen: None,
            last: None,
            waiting: 0,
            pictures: Vec::new(),
            broken: 0,
        })
    }

    /// Whether the videos so far are copied packets.
    fn is_copying(&self) -> bool {
        !self.copied.is_empty()
    }

    fn pictures(&self) -> usize {
        match &self.film {
            Some(Film::Copied(film)) => film.pictures(),
            Some(Film::Encoded(film)) => film.pictures,
            None => 0,
        }
    }

    /// The path of the next video.
    fn next_path(&mut self) -> Result<PathBuf, LerobotError> {
        let name = file_path(VIDEO_PATH, self.films).replace("{video_key}", &self.feature);
        let path = self.folder.join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        }
        self.films += 1;
        Ok(path)
    }

    fn agree(&mut self, kind: &ReelKind) -> Result<(), LerobotError> {
        let known = self.kind.get_or_insert_with(|| kind.clone());
        let shape = |kind: &ReelKind| (kind.is_film, kind.is_depth, kind.width, kind.height);
        if shape(known) == shape(kind) {
            return Ok(());
        }
        let told =
            |kind: &ReelKind| format!("{} by {} in {}", kind.width, kind.height, kind.pixel_format);
        Err(LerobotError::Shape {
            feature: self.feature.clone(),
            known: told(known),
            found: told(kind),
        })
    }

    /// Adds a picture to the video.
    fn push(&mut self, pixels: &Pixels) -> Result<(), LerobotError> {
        if !matches!(self.film, Some(Film::Encoded(_))) {
            self.close()?;
            let path = self.next_path()?;
            let film = Encoder::start(&path, self.hz, pixels.width, pixels.height)?;
            self.film = Some(Film::Encoded(film));
        }
        match &mut self.film {
            Some(Film::Encoded(film)) => film.push(pixels),
            _ => Err(LerobotError::NoFfmpeg),
        }
    }

    /// Ends an episode; returns its position in the videos, and its statistics as far as they are known.
    pub(super) fn end(
        &mut self,
        episode: usize,
        take: &mut Take<'_>,
    ) -> Result<(Option<FilmPlace>, Option<Stats>), LerobotError> {
        take.decode(self)?;
        let frames = take.places.len();
        if take.waiting > 0 || take.next < frames {
            return Err(LerobotError::NoPicture {
                topic: take.camera.topic.clone(),
            });
        }
        let stats = take.seen.as_ref().and_then(Histogram::stats);
        if !self.is_film() {
            return Ok((None, stats));
        }
        if !matches!(take.way, Way::Copy(_)) {
            take.first = self.pictures().saturating_sub(frames);
        }
        let file = self.films.saturating_sub(1);
        let hz = f64::from(self.hz);
        let place = FilmPlace {
            chunk: file / CHUNK_FILES,
            file: file % CHUNK_FILES,
            from: take.first as f64 / hz,
            to: (take.first + frames) as f64 / hz,
        };
        if let (Some(Film::Copied(_)), Some(copied)) = (&self.film, self.copied.last_mut()) {
            copied.episodes.push((episode, take.first, frames));
        }
        let bytes = match &self.film {
            Some(Film::Copied(film)) => film.bytes(),
            Some(Film::Encoded(film)) => film.bytes(),
            None => 0,
        };
        if bytes >= VIDEO_BYTES {
            self.close()?;
        }
        Ok((Some(place), stats))
    }

    fn close(&mut self) -> Result<(), LerobotError> {
        match self.film.take() {
            Some(Film::Copied(film)) => {
                let path = film.path().to_owned();
                film.finish().map_err(|error| failed(&path, &error))
            }
            Some(Film::Encoded(film)) => film.finish(),
            None => Ok(()),
        }
    }

    /// Ends the last video. Returns the statistics of copied pictures, by episode, if ffmpeg can decode them.
    pub(super) fn finish(&mut self) -> Result<Vec<(usize, Stats)>, LerobotError> {
        self.close()?;
        let mut found = Vec::new();
        let Some(kind) = self.kind.clone().filter(|_| ffmpeg::encoder().is_some()) else {
            return Ok(found);
        };
        for film in &self.copied {
            let mut seen: Vec<Histogram> =
                film.episodes.iter().map(|_| Histogram::new(3, 8)).collect();
            ffmpeg::decode(&film.path, kind.width, kind.height, |at, pixels| {
                for ((_, first, frames), seen) in film.episodes.iter().zip(&mut seen) {
                    let is_own = (*first..first + frames).contains(&at);
                    if is_own && is_sampled(at - first, *frames) {
                        seen.count(&pixels);
                    }
                }
                Ok(())
            })?;
            let episodes = film.episodes.iter().map(|(episode, ..)| *episode);
            found.extend(
                episodes
                    .zip(&seen)
                    .filter_map(|(episode, seen)| Some((episode, seen.stats()?))),
            );
        }
        Ok(found)
    }

    /// Its entry in `info.json`.
    pub(super) fn to_json(&self) -> Value {
        let Some(kind) = &self.kind else {
            return Value::Null;
        };
        let channels = if kind.is_depth { 1 } else { 3 };
        let mut all = json!({
            "dtype": if kind.is_film { "video" } else { "image" },
            "shape": [kind.height, kind.width, channels],
            "names": ["height", "width", "channels"],
        });
        if kind.is_film {
            all["info"] = json!({
                "video.height": kind.height,
                "video.width": kind.width,
                "video.codec": kind.codec,
                "video.pix_fmt": kind.pixel_format,
                "video.fps": self.hz,
                "video.channels": channels,
                "has_audio": false,
                "is_depth_map": false,
            });
        } else if kind.is_depth {
            all["info"] = json!({ "is_depth_map": true });
        }
        all
    }
}

impl Take<'_> {
    /// Its topic.
    pub(super) fn topic(&self) -> &str {
        &self.camera.topic
    }

    /// The range of log times of the messages that it needs.
    pub(super) fn span(&self) -> Option<TimeRange> {
        let (first, last) = self.needed()?;
        Some(TimeRange::new(
            self.camera.log_time(first),
            self.camera.log_time(last),
        ))
    }

    /// Whether its pictures are in the rows; `None` where that is not known yet.
    pub(super) fn lies_among_rows(&self, reel: &Reel) -> Option<bool> {
        if matches!(self.way, Way::Pictures) {
            reel.kind.as_ref().map(|kind| !kind.is_film)
        } else {
            Some(false)
        }
    }

    /// The indexes of the first and the last message that it needs.
    fn needed(&self) -> Option<(usize, usize)> {
        let (first, last) = (self.places.first()?, self.places.last()?);
        Some((self.camera.start_of(*first), *last))
    }

    /// Whether the message at an index has to be decoded.
    pub(super) fn is_wanted(&self, place: usize) -> bool {
        match self.way {
            Way::Pictures => self.places.get(self.next) == Some(&place),
            _ => self
                .needed()
                .is_some_and(|(first, last)| (first..=last).contains(&place)),
        }
    }

    /// Takes the contents of the message at an index.
    pub(super) fn push(
        &mut self,
        reel: &mut Reel,
        place: usize,
        shown: Result<super::cameras::CameraPicture, String>,
    ) -> Result<(), LerobotError> {
        use super::cameras::CameraPicture;
        match (&mut self.way, shown) {
            (Way::Pictures, shown) => {
                let count = self.places[self.next..]
                    .iter()
                    .take_while(|own| **own == place)
                    .count();
                self.next += count;
                let Ok((pixels, file)) = shown.and_then(CameraPicture::pixels) else {
                    self.broken += 1;
                    return self.repeat(reel, count);
                };
                self.show(reel, pixels, file, count)
            }
            (Way::Copy(codec), Ok(CameraPicture::Packet(packet, _))) => {
                let codec = *codec;
                self.copy(reel, codec, place, &packet)
            }
            (Way::Decode { .. }, Ok(CameraPicture::Packet(packet, _))) => self.hold(place, &packet),
            _ => {
                self.broken += 1;
                Ok(())
            }
        }
    }

    /// Shows a picture in this many frames, and in those that waited for it.
    fn show(
        &mut self,
        reel: &mut Reel,
        pixels: Pixels,
        file: Option<Vec<u8>>,
        count: usize,
    ) -> Result<(), LerobotError> {
        let is_depth = pixels.bits == 16;
        let is_film = reel.wants_film && !is_depth;
        reel.agree(&ReelKind {
            is_film,
            is_depth,
            width: pixels.width,
            height: pixels.height,
            codec: ffmpeg::encoder().map_or("", |(_, codec)| codec),
            pixel_format: if is_film {
                ffmpeg::pixel_format(pixels.width, pixels.height).to_owned()
            } else {
                format!(
                    "{} of {} bits",
                    if is_depth { "depth" } else { "rgb" },
                    pixels.bits
                )
            },
        })?;
        let file = match file {
            _ if is_film => Bytes::new(),
            Some(file) => file.into(),
            None => pixels
                .to_png()
                .map_err(|error| LerobotError::Map(error.to_string()))?
                .into(),
        };
        self.last = Some((file, pixels));
        let waiting = std::mem::take(&mut self.waiting);
        self.repeat(reel, count + waiting)
    }

    /// Shows the last picture in this many more frames.
    fn repeat(&mut self, reel: &mut Reel, count: usize) -> Result<(), LerobotError> {
        let Some((file, pixels)) = &self.last else {
            self.waiting += count;
            return Ok(());
        };
        let seen = self
            .seen
            .get_or_insert_with(|| Histogram::new(pixels.channels, pixels.bits));
        let before = self.next - count.min(self.next);
        if (before..self.next).any(|frame| is_sampled(frame, self.places.len())) {
            seen.count(pixels);
        }
        for _ in 0..count {
            if reel.is_film() {
                reel.push(pixels)?;
            } else {
                self.pictures.push(file.clone());
            }
        }
        Ok(())
    }

    /// Copies a packet to the video.
    fn copy(
        &mut self,
        reel: &mut Reel,
        codec: VideoCodec,
        place: usize,
        packet: &[u8],
    ) -> Result<(), LerobotError> {
        if self.camera.is_key(place) {
            self.prepare(reel, codec, place, packet)?;
        }
        if !self.camera.has_picture(place) {
            return Ok(());
        }
        let Some(Film::Copied(film)) = &mut reel.film else {
            self.broken += 1;
            return Ok(());
        };
        if self.places.get(self.next) == Some(&place) {
            if self.next == 0 {
                self.first = film.pictures();
            }
            self.next += 1;
        }
        film.push(packet)
            .map_err(|error| failed(film.path(), &error))
    }

    /// Ensures that there is a video with the parameters of a packet.
    fn prepare(
        &mut self,
        reel: &mut Reel,
        codec: VideoCodec,
        place: usize,
        packet: &[u8],
    ) -> Result<(), LerobotError> {
        let Some(parameters) = Parameters::of(codec, packet) else {
            return Ok(());
        };
        match &reel.film {
            Some(Film::Copied(film)) if *film.parameters() == parameters => return Ok(()),
            Some(_) if self.next > 0 => {
                return Err(LerobotError::Changed {
                    topic: self.camera.topic.clone(),
                    at: self.camera.log_time(place),
                });
            }
            _ => reel.close()?,
        }
        reel.agree(&ReelKind {
            is_film: true,
            is_depth: false,
            width: parameters.shape.width,
            height: parameters.shape.height,
            codec: parameters.codec_name(),
            pixel_format: parameters.pixel_format(),
        })?;
        let path = reel.next_path()?;
        let film =
            Mp4::create(&path, reel.hz, parameters).map_err(|error| failed(&path, &error))?;
        reel.film = Some(Film::Copied(film));
        reel.copied.push(CopiedVideo {
            path,
            episodes: Vec::new(),
        });
        Ok(())
    }

    /// Stores a packet for later.
    fn hold(&mut self, place: usize, packet: &[u8]) -> Result<(), LerobotError> {
        let Way::Decode {
            codec,
            packets,
            path,
            held,
        } = &mut self.way
        else {
            return Ok(());
        };
        let wrong = |error: std::io::Error| failed(path, &error);
        if self.camera.is_key(place)
            && let Some(parameters) = Parameters::of(*codec, packet)
        {
            match packets {
                None => {
                    let made = Mp4::create(path, 30, parameters).map_err(wrong)?;
                    *packets = Some(Box::new(made));
                }
                Some(packets) if *packets.parameters() == parameters => {}
                Some(_) => {
                    return Err(LerobotError::Changed {
                        topic: self.camera.topic.clone(),
                        at: self.camera.log_time(place),
                    });
                }
            }
        }
        match packets {
            Some(packets) if self.camera.has_picture(place) => {
                held.push(place);
                packets.push(packet).map_err(wrong)
            }
            _ => Ok(()),
        }
    }

    /// Decodes and shows the stored packets.
    fn decode(&mut self, reel: &mut Reel) -> Result<(), LerobotError> {
        let Way::Decode {
            packets,
            path,
            held,
            ..
        } = &mut self.way
        else {
            return Ok(());
        };
        let (Some(packets), path, held) = (packets.take(), path.clone(), std::mem::take(held))
        else {
            return Ok(());
        };
        let shape = packets.parameters().shape;
        packets.finish().map_err(|error| failed(&path, &error))?;
        reel.wants_film = true;
        ffmpeg::decode(&path, shape.width, shape.height, |at, pixels| {
            let place = held.get(at).copied();
            let count = self.places[self.next..]
                .iter()
                .take_while(|own| Some(**own) == place)
                .count();
            if count == 0 {
                return Ok(());
            }
            self.next += count;
            self.show(reel, pixels, None, count)
        })?;
        std::fs::remove_file(&path).map_err(|error| failed(&path, &error))
    }
}
