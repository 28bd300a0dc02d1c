//! Topics of pictures: when each was taken, and which of them a frame shows.

use std::collections::BTreeMap;

use asof_align::{Match, On, Track};
use asof_core::{Message, Query, Source, Stamp, TimeRange};
use asof_decode::{Decoders, Picture, Pixels, VideoCodec, picture_type};

use super::{DatasetMap, LerobotError};

/// A topic of pictures, before any of them is looked at closely.
pub(super) struct Camera {
    pub(super) topic: String,
    /// The codec, where the pictures are packets of video.
    pub(super) codec: Option<VideoCodec>,
    /// Whether a message was read, so that it is known what they are.
    is_known: bool,
    has_key: bool,
    /// One for each message, in order of log time.
    shots: Vec<Shot>,
    /// The time of the last usable one.
    last: i64,
    /// Messages that cannot be used: without a stamp, or earlier than one before.
    pub(super) unusable: u64,
}

#[derive(Debug, Clone, Copy)]
struct Shot {
    time: i64,
    log_time: Stamp,
    /// Whether a decoder can start here.
    is_key: bool,
    is_usable: bool,
    /// Whether it contains a picture, and not only parameters of later ones.
    has_picture: bool,
}

/// The contents of a message.
pub(super) enum CameraPicture {
    /// A file as it was recorded: JPEG, PNG, …
    File(Vec<u8>),
    Raw(Picture),
    Packet(Vec<u8>, VideoCodec),
}

impl CameraPicture {
    pub(super) fn of(decoders: &mut Decoders, message: &Message) -> Result<Self, String> {
        let record = decoders
            .meaning(message)
            .map_err(|error| error.to_string())?;
        let Some(format) = record.text("format") else {
            let picture = Picture::of(&record).map_err(|error| error.to_string())?;
            return Ok(CameraPicture::Raw(picture));
        };
        let data = record.bytes("data").ok_or("it has no field 'data'")?;
        match VideoCodec::named(&format).filter(|_| picture_type(&data).is_none()) {
            Some(codec) => Ok(CameraPicture::Packet(data, codec)),
            None => Ok(CameraPicture::File(data)),
        }
    }

    /// Its pixels: depths of 16 bits, or red, green and blue of eight bits. And the file that it came from, if that has
    /// the same contents.
    pub(super) fn pixels(self) -> Result<(Pixels, Option<Vec<u8>>), String> {
        match self {
            CameraPicture::Raw(picture) => {
                let pixels = Pixels::from(&picture);
                let is_meant = is_depth_or_rgb(&pixels);
                Ok((if is_meant { pixels } else { pixels.to_rgb() }, None))
            }
            CameraPicture::File(file) => {
                let pixels = Pixels::unpack(&file).map_err(|error| error.to_string())?;
                // The sender's header before a PNG is not part of it.
                let is_plain = picture_type(&file).is_some();
                if is_depth_or_rgb(&pixels) {
                    return Ok((pixels, is_plain.then_some(file)));
                }
                Ok((pixels.to_rgb(), None))
            }
            CameraPicture::Packet(_, codec) => Err(format!("it is a packet of {}", codec.name())),
        }
    }
}

fn is_depth_or_rgb(pixels: &Pixels) -> bool {
    matches!((pixels.bits, pixels.channels), (16, 1) | (8, 3))
}

impl Camera {
    /// Scans the topics of pictures once.
    pub(super) fn all(
        source: &dyn Source,
        map: &DatasetMap,
    ) -> Result<BTreeMap<String, Camera>, LerobotError> {
        let mut cameras: BTreeMap<String, Camera> = BTreeMap::new();
        for topic in map.features.values().filter_map(|feature| feature.topic()) {
            super::known(source, topic)?;
            cameras.entry(topic.to_owned()).or_insert_with(|| Camera {
                topic: topic.to_owned(),
                codec: None,
                is_known: false,
                has_key: false,
                shots: Vec::new(),
                last: i64::MIN,
                unusable: 0,
            });
        }
        if cameras.is_empty() {
            return Ok(cameras);
        }
        let mut decoders = Decoders::default();
        for batch in source.read(&Query::topics(cameras.keys().cloned()))? {
            let batch = batch?;
            for message in batch.iter() {
                let Some(camera) = cameras.get_mut(&message.channel.topic) else {
                    continue;
                };
                let time = match map.on {
                    On::LogTime => Some(message.log_time),
                    On::Stamp => decoders.stamp(message).ok().flatten(),
                };
                let time = map.on.known(time.map(Stamp::nanos));
                camera.note(&mut decoders, &message.to_message(), time);
            }
        }
        Ok(cameras)
    }

    fn note(&mut self, decoders: &mut Decoders, message: &Message, time: Option<i64>) {
        let mut shot = Shot {
            time: time.unwrap_or_default(),
            log_time: message.log_time,
            is_key: false,
            is_usable: false,
            has_picture: true,
        };
        let mut is_readable = true;
        // Only video packets are parsed: pictures are decoded when they are shown.
        if !self.is_known || self.codec.is_some() {
            match CameraPicture::of(decoders, message) {
                Ok(CameraPicture::Packet(data, codec))
                    if !self.is_known || self.codec == Some(codec) =>
                {
                    (self.codec, self.is_known) = (Some(codec), true);
                    shot.is_key = codec.is_key(&data);
                    shot.has_picture = codec.has_picture(&data);
                }
                Ok(_) if self.codec.is_none() => self.is_known = true,
                _ => is_readable = false,
            }
        }
        self.has_key |= shot.is_key;
        let is_timed = time.is_some() && shot.time >= self.last;
        self.unusable += u64::from(!is_readable || !is_timed);
        let can_start = self.codec.is_none() || self.has_key;
        if is_readable && is_timed && shot.has_picture && can_start {
            (shot.is_usable, self.last) = (true, shot.time);
        }
        self.shots.push(shot);
    }

    /// The times of its pictures that were logged in a range.
    pub(super) fn times(&self, range: TimeRange) -> Vec<i64> {
        let own = self
            .shots
            .iter()
            .filter(|shot| shot.is_usable && range.contains(shot.log_time));
        own.map(|shot| shot.time).collect()
    }

    /// Pictures per second, by the typical interval: gaps do not count.
    pub(super) fn rate(&self) -> Option<f64> {
        let times: Vec<i64> = self.times(TimeRange::ALL);
        let mut between: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        between.sort_unstable();
        let middle = between.get(between.len() / 2).copied()?;
        (middle > 0).then(|| 1e9 / middle as f64)
    }

    /// The index of the picture that is shown at each of these times.
    pub(super) fn chosen(&self, map: &DatasetMap, times: &[i64]) -> Vec<Option<usize>> {
        let usable = self
            .shots
            .iter()
            .enumerate()
            .filter(|(_, shot)| shot.is_usable);
        let track: Track<usize> = usable
            .map(|(place, shot)| (Stamp::from_nanos(shot.time), place))
            .collect();
        let mut cursor = track.cursor();
        let rule = map.picture_rule();
        let pick = |time: &i64| match cursor.pick(Stamp::from_nanos(*time), rule) {
            Match::Found(message) => Some(*message.value),
            _ => None,
        };
        times.iter().map(pick).collect()
    }

    /// The index at which a decoder has to start for a picture.
    pub(super) fn start_of(&self, place: usize) -> usize {
        if self.codec.is_none() {
            return place;
        }
        let mut before = self.shots[..=place].iter();
        before.rposition(|shot| shot.is_key).unwrap_or(place)
    }

    /// Whether these pictures are consecutive.
    pub(super) fn is_every(&self, places: &[usize]) -> bool {
        places.windows(2).all(|pair| {
            let between = self.shots.get(pair[0] + 1..pair[1]);
            pair[0] < pair[1]
                && between.is_some_and(|between| between.iter().all(|shot| !shot.has_picture))
        })
    }

    pub(super) fn log_time(&self, place: usize) -> Stamp {
        self.shots[place].log_time
    }

    /// The index of the first message that was logged at or after a time.
    pub(super) fn first_from(&self, at: Stamp) -> usize {
        self.shots.partition_point(|shot| shot.log_time < at)
    }

    pub(super) fn is_key(&self, place: usize) -> bool {
        self.shots[place].is_key
    }

    pub(super) fn has_picture(&self, place: usize) -> bool {
        self.shots[place].has_picture
    }
}
