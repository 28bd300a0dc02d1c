//! A dataset in progress: episodes are planned, and then read once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use asof_align::Grid;
use asof_core::{Query, Source, TimeRange};
use asof_decode::Decoders;
use serde_json::{Value, json};

use super::base::Base;
use super::cameras::{Camera, CameraPicture};
use super::data::{Columns, DataFiles, Frames};
use super::episodes::{Stretch, stretches};
use super::meta::{self, Episode};
use super::numbers::{self, Rows};
use super::reels::{Reel, Take};
use super::stats::Stats;
use super::{
    CHUNK_FILES, DATA_BYTES, DATA_PATH, DatasetMap, Exported, LerobotError, VIDEO_BYTES, VIDEO_PATH,
};

/// How many rows are written at once, if there are pictures in them.
const FLUSH_ROWS: usize = 64;
/// How much the rate of a video may differ from that of the dataset whose frames are its pictures.
const RATE_TOLERANCE: f64 = 0.05;
/// How many rows one episode can have: a day at a thousand frames per second.
const MOST_FRAMES: usize = 100_000_000;

/// Called with the number of frames so far; an error stops the export.
pub(super) type FrameProgress<'a> = &'a mut dyn FnMut(u64) -> Result<(), LerobotError>;

/// A dataset in progress.
pub(super) struct Dataset<'a> {
    folder: PathBuf,
    map: &'a DatasetMap,
    /// What was there before.
    base: Base,
    reels: BTreeMap<String, Reel>,
    /// The width of each numeric feature, and the names of its numbers.
    widths: BTreeMap<String, (usize, Vec<String>)>,
    data: Option<DataFiles>,
    tasks: Vec<String>,
    episodes: Vec<Episode>,
    made: Exported,
    /// Features that were never known, to explain an empty dataset.
    missing: Vec<String>,
}

/// An episode before it is written: the times of its frames, and their contents.
struct Plan {
    times: Arc<[i64]>,
    rows: BTreeMap<String, Rows>,
    /// The index of each frame's picture, by feature.
    places: BTreeMap<String, Vec<Option<usize>>>,
}

impl<'a> Dataset<'a> {
    pub(super) fn new(folder: &Path, map: &'a DatasetMap, base: Base) -> Self {
        let pictures = map
            .features
            .iter()
            .filter(|(_, feature)| feature.topic().is_some());
        Dataset {
            folder: folder.to_owned(),
            map,
            reels: pictures
                .map(|(name, _)| {
                    let films = base.films.get(name).copied().unwrap_or(0);
                    (name.clone(), Reel::new(name, folder, map, films))
                })
                .collect(),
            widths: BTreeMap::new(),
            data: None,
            tasks: base.tasks.clone(),
            base,
            episodes: Vec::new(),
            made: Exported::default(),
            missing: Vec::new(),
        }
    }

    /// Adds the episodes of a recording.
    pub(super) fn add(
        &mut self,
        source: &dyn Source,
        told: FrameProgress<'_>,
    ) -> Result<(), LerobotError> {
        let cameras = Camera::all(source, self.map)?;
        self.made.unusable += cameras.values().map(|camera| camera.unusable).sum::<u64>();
        for stretch in stretches(source, self.map)? {
            told(self.made.frames)?;
            self.stretch(source, &cameras, &stretch, told)?;
        }
        Ok(())
    }

    fn stretch(
        &mut self,
        source: &dyn Source,
        cameras: &BTreeMap<String, Camera>,
        stretch: &Stretch,
        told: FrameProgress<'_>,
    ) -> Result<(), LerobotError> {
        let plan = self.plan(source, cameras, stretch.range)?;
        let runs = plan.runs();
        let whole: usize = runs.iter().map(|run| run.1 - run.0).sum();
        self.made.left_out += (plan.times.len() - whole) as u64;
        self.made.cuts += runs.len().saturating_sub(1) as u64;
        self.made.empty += u64::from(runs.is_empty());
        if runs.is_empty() {
            self.missing = plan.missing();
        }
        for run in runs {
            self.agree(source, &plan)?;
            self.write(source, cameras, &plan, run, stretch.task.as_deref(), told)?;
        }
        Ok(())
    }

    /// The times of the frames of a range, and their contents.
    fn plan(
        &mut self,
        source: &dyn Source,
        cameras: &BTreeMap<String, Camera>,
        range: TimeRange,
    ) -> Result<Plan, LerobotError> {
        let times: Arc<[i64]> = self.times(cameras, range)?.into();
        let mut rows = BTreeMap::new();
        let mut places = BTreeMap::new();
        for (name, feature) in &self.map.features {
            if let Some(paths) = feature.paths() {
                let found = numbers::rows(source, self.map, feature, paths, &times)?;
                self.made.unusable += found.left_out;
                rows.insert(name.clone(), found);
            } else if let Some(camera) = feature.topic().and_then(|topic| cameras.get(topic)) {
                places.insert(name.clone(), camera.chosen(self.map, &times));
            }
        }
        Ok(Plan {
            times,
            rows,
            places,
        })
    }

    /// The times of frames: those of a copied video, or a grid.
    fn times(
        &self,
        cameras: &BTreeMap<String, Camera>,
        range: TimeRange,
    ) -> Result<Vec<i64>, LerobotError> {
        let topics = self
            .map
            .features
            .values()
            .filter_map(|feature| feature.topic());
        let mut videos = topics
            .filter_map(|topic| cameras.get(topic))
            .filter(|camera| camera.codec.is_some());
        if let Some(video) = videos.next() {
            let rate = video.rate().unwrap_or(0.0);
            if (rate / f64::from(self.map.hz) - 1.0).abs() <= RATE_TOLERANCE {
                return Ok(video.times(range));
            }
        }
        let count = range.duration_nanos() as f64 * 1e-9 * f64::from(self.map.hz);
        if count >= MOST_FRAMES as f64 {
            return Err(LerobotError::Map(format!(
                "an episode of {count:.0} frames exceeds the limit of {MOST_FRAMES}; make episodes shorter with episodes = \"60s\""
            )));
        }
        let grid = Grid::new(range, self.map.hz.into());
        Ok(grid.into_iter().flatten().collect())
    }

    /// Ensures that the features have the same shape in all episodes.
    fn agree(&mut self, source: &dyn Source, plan: &Plan) -> Result<(), LerobotError> {
        for (name, rows) in &plan.rows {
            let paths = self
                .map
                .features
                .get(name)
                .and_then(|feature| feature.paths());
            let known = self.widths.entry(name.clone()).or_insert_with(|| {
                let names = numbers::names(source, paths.unwrap_or_default(), rows.width);
                (rows.width, names)
            });
            if known.0 != rows.width {
                return Err(LerobotError::Shape {
                    feature: name.clone(),
                    known: format!("{} numbers", known.0),
                    found: format!("{} numbers", rows.width),
                });
            }
        }
        Ok(())
    }

    /// Writes the frames of a run as an episode.
    fn write(
        &mut self,
        source: &dyn Source,
        cameras: &BTreeMap<String, Camera>,
        plan: &Plan,
        (start, end): (usize, usize),
        task: Option<&str>,
        told: FrameProgress<'_>,
    ) -> Result<(), LerobotError> {
        let places: BTreeMap<&str, Vec<usize>> = plan
            .places
            .iter()
            .map(|(name, places)| {
                (
                    name.as_str(),
                    places[start..end].iter().flatten().copied().collect(),
                )
            })
            .collect();
        let mut takes: Vec<(&str, Take<'_>)> = Vec::new();
        for (name, reel) in &mut self.reels {
            let topic = self
                .map
                .features
                .get(name)
                .and_then(|feature| feature.topic());
            let camera = topic.and_then(|topic| cameras.get(topic));
            if let (Some(camera), Some((name, places))) =
                (camera, places.get_key_value(name.as_str()))
            {
                takes.push((name, reel.begin(camera, places)?));
            }
        }
        let task = self.task(task.unwrap_or(self.map.task()));
        let mut writing = EpisodeWriter {
            plan,
            start,
            frames: end - start,
            written: 0,
            episode: self.base.episodes + self.episodes.len(),
            task,
            first: self.base.frames + self.made.frames as usize,
            file: None,
        };
        self.shoot(source, cameras, &mut takes, &mut writing, told)?;
        let (mut films, mut stats) = (BTreeMap::new(), BTreeMap::new());
        for (name, take) in &mut takes {
            let Some(reel) = self.reels.get_mut(*name) else {
                continue;
            };
            let (film, own) = reel.end(self.episodes.len(), take)?;
            self.made.unusable += take.broken;
            films.extend(film.map(|film| ((*name).to_owned(), film)));
            stats.extend(own.map(|own| ((*name).to_owned(), own)));
        }
        self.flush(&mut takes, &mut writing, 1)?;
        stats.extend(writing.stats(self.map.hz));
        self.made.frames += writing.frames as u64;
        self.made.episodes += 1;
        self.episodes.push(Episode {
            task,
            frames: writing.frames,
            file: writing.file.unwrap_or(0),
            first: writing.first,
            films,
            stats,
        });
        told(self.made.frames)
    }

    /// Reads the pictures of an episode once, and passes them to the features that show them.
    fn shoot(
        &mut self,
        source: &dyn Source,
        cameras: &BTreeMap<String, Camera>,
        takes: &mut [(&str, Take<'_>)],
        writing: &mut EpisodeWriter<'_>,
        told: FrameProgress<'_>,
    ) -> Result<(), LerobotError> {
        let spans = takes.iter().filter_map(|(_, take)| take.span());
        let Some(range) = spans.reduce(|one, other| {
            TimeRange::new(one.start.min(other.start), one.end.max(other.end))
        }) else {
            return Ok(());
        };
        let mut next: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, take) in takes.iter() {
            let topic = take.topic();
            next.extend(
                cameras
                    .get_key_value(topic)
                    .map(|(topic, camera)| (topic.as_str(), camera.first_from(range.start))),
            );
        }
        let query = Query::topics(next.keys().copied()).between(range);
        let mut decoders = Decoders::default();
        for batch in source.read(&query)? {
            let batch = batch?;
            for message in batch.iter() {
                let Some(place) = next.get_mut(message.channel.topic.as_str()) else {
                    continue;
                };
                let at = *place;
                *place += 1;
                for (name, take) in takes.iter_mut() {
                    let reel = self.reels.get_mut(*name);
                    if let Some(reel) =
                        reel.filter(|_| take.topic() == message.channel.topic && take.is_wanted(at))
                    {
                        let shown = CameraPicture::of(&mut decoders, &message.to_message());
                        take.push(reel, at, shown)?;
                    }
                }
            }
            self.flush(takes, writing, FLUSH_ROWS)?;
            told(self.made.frames + writing.written as u64)?;
        }
        Ok(())
    }

    /// Writes the frames whose pictures are available, if there are this many.
    fn flush(
        &mut self,
        takes: &mut [(&str, Take<'_>)],
        writing: &mut EpisodeWriter<'_>,
        least: usize,
    ) -> Result<(), LerobotError> {
        let mut ready = writing.frames - writing.written;
        for (name, take) in takes.iter() {
            let reel = self.reels.get(*name);
            match reel.and_then(|reel| take.lies_among_rows(reel)) {
                // It is not known before its first picture.
                None => return Ok(()),
                Some(true) => ready = ready.min(take.pictures.len()),
                Some(false) => {}
            }
        }
        if ready < least {
            return Ok(());
        }
        let data = self.data.get_or_insert_with(|| {
            let pictures = self.reels.values().filter(|reel| !reel.is_film());
            let columns = Columns {
                numbers: self
                    .widths
                    .iter()
                    .map(|(name, (width, _))| (name.clone(), *width))
                    .collect(),
                pictures: pictures.map(|reel| reel.feature.clone()).collect(),
            };
            DataFiles::new(&self.folder, self.map.hz, columns, self.base.data_files)
        });
        if writing.file.is_none() {
            writing.file = Some(data.begin_episode()?);
        }
        let from = writing.start + writing.written;
        let numbers = writing.plan.rows.iter();
        let numbers = numbers.map(|(name, rows)| (name.as_str(), rows.between(from, from + ready)));
        let pictures: Vec<(&str, Vec<_>)> = takes
            .iter_mut()
            .map(|(name, take)| {
                let count = ready.min(take.pictures.len());
                (*name, take.pictures.drain(..count).collect())
            })
            .collect();
        data.write(&Frames {
            episode: writing.episode,
            task: writing.task,
            frame: writing.written,
            index: writing.first + writing.written,
            count: ready,
            numbers: numbers.collect(),
            pictures: pictures
                .iter()
                .map(|(name, files)| (*name, &files[..]))
                .collect(),
        })?;
        writing.written += ready;
        Ok(())
    }

    /// The number of a task.
    fn task(&mut self, task: &str) -> usize {
        let known = self.tasks.iter().position(|known| known == task);
        known.unwrap_or_else(|| {
            self.tasks.push(task.to_owned());
            self.tasks.len() - 1
        })
    }

    /// Writes the metadata of the dataset.
    pub(super) fn finish(mut self) -> Result<Exported, LerobotError> {
        if self.episodes.is_empty() {
            let why = match &self.missing[..] {
                [] => String::new(),
                missing => format!("; never known: {}", missing.join(", ")),
            };
            return Err(LerobotError::Empty(why));
        }
        if let Some(data) = &mut self.data {
            data.finish()?;
        }
        for (name, reel) in &mut self.reels {
            for (episode, stats) in reel.finish()? {
                self.episodes[episode].stats.insert(name.clone(), stats);
            }
            if self
                .episodes
                .iter()
                .any(|episode| !episode.stats.contains_key(name))
            {
                self.made.unseen.push(name.clone());
                for episode in &mut self.episodes {
                    episode.stats.remove(name);
                }
            }
        }
        let info = self.info();
        self.base.agree(&info["features"])?;
        meta::write(&self.folder, &self.tasks, &self.episodes, &self.base)?;
        meta::write_json(&self.folder.join("meta/info.json"), &info)?;
        if let Some(features) = info["features"].as_object() {
            let kinds = features
                .iter()
                .map(|(name, feature)| (name.clone(), feature["dtype"].as_str()));
            let own = kinds.filter(|(name, _)| self.map.features.contains_key(name));
            self.made.features = own
                .map(|(name, kind)| (name, kind.unwrap_or_default().to_owned()))
                .collect();
        }
        Ok(self.made)
    }

    fn info(&self) -> Value {
        let mut features = serde_json::Map::new();
        for (name, (width, names)) in &self.widths {
            features.insert(
                name.clone(),
                json!({"dtype": "float32", "shape": [width], "names": names}),
            );
        }
        for (name, reel) in &self.reels {
            features.insert(name.clone(), reel.to_json());
        }
        for name in super::map::OWN {
            let kind = if name == "timestamp" {
                "float32"
            } else {
                "int64"
            };
            features.insert(
                name.to_owned(),
                json!({"dtype": kind, "shape": [1], "names": null}),
            );
        }
        let has_films = self.reels.values().any(Reel::is_film);
        let episodes = self.base.episodes + self.episodes.len();
        json!({
            "codebase_version": "v3.0",
            "robot_type": self.map.robot_type,
            "total_episodes": episodes,
            "total_frames": self.base.frames as u64 + self.made.frames,
            "total_tasks": self.tasks.len(),
            "chunks_size": CHUNK_FILES,
            "data_files_size_in_mb": DATA_BYTES >> 20,
            "video_files_size_in_mb": VIDEO_BYTES >> 20,
            "fps": self.map.hz,
            "splits": {"train": format!("0:{episodes}")},
            "data_path": DATA_PATH,
            "video_path": has_films.then_some(VIDEO_PATH),
            "features": features,
        })
    }
}

/// An episode that is being written.
struct EpisodeWriter<'a> {
    plan: &'a Plan,
    /// Its first frame in the plan, and its number of frames.
    start: usize,
    frames: usize,
    written: usize,
    episode: usize,
    task: usize,
    /// Its first frame in the dataset.
    first: usize,
    /// Its file.
    file: Option<usize>,
}

impl EpisodeWriter<'_> {
    /// The statistics of its numbers.
    fn stats(&self, hz: u32) -> Vec<(String, Stats)> {
        let rows = self.plan.rows.iter();
        let mut all: Vec<(String, Stats)> = rows
            .map(|(name, rows)| {
                let values = rows.between(self.start, self.start + self.frames);
                (name.clone(), Stats::of_rows(values, rows.width))
            })
            .collect();
        let count = 0..self.frames;
        let same = |value: usize| Stats::of_column(std::iter::repeat_n(value as f64, self.frames));
        let hz = f64::from(hz);
        all.push((
            "timestamp".to_owned(),
            Stats::of_column(count.clone().map(|at| at as f64 / hz)),
        ));
        all.push((
            "frame_index".to_owned(),
            Stats::of_column(count.clone().map(|at| at as f64)),
        ));
        all.push(("episode_index".to_owned(), same(self.episode)));
        all.push((
            "index".to_owned(),
            Stats::of_column(count.map(|at| (self.first + at) as f64)),
        ));
        all.push(("task_index".to_owned(), same(self.task)));
        all
    }
}

impl Plan {
    /// The runs of frames in which everything is known: the first frame, and the one after the last.
    fn runs(&self) -> Vec<(usize, usize)> {
        let is_known = |frame: usize| {
            let numbers = self.rows.values().all(|rows| rows.known[frame]);
            numbers && self.places.values().all(|places| places[frame].is_some())
        };
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for frame in (0..self.times.len()).filter(|frame| is_known(*frame)) {
            match runs.last_mut() {
                Some(run) if run.1 == frame => run.1 += 1,
                _ => runs.push((frame, frame + 1)),
            }
        }
        runs
    }

    /// Features that no frame has.
    fn missing(&self) -> Vec<String> {
        let numbers = self
            .rows
            .iter()
            .filter(|(_, rows)| !rows.known.contains(&true));
        let pictures = self
            .places
            .iter()
            .filter(|(_, places)| places.iter().all(Option::is_none));
        numbers
            .map(|(name, _)| name.clone())
            .chain(pictures.map(|(name, _)| name.clone()))
            .collect()
    }
}
