//! Several recordings as one, merged by time.

mod capabilities;
mod follow;
mod read;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use asof_core::{
    AttachmentEntry, Batch, Batches, Channel, ChannelSummary, DerivedSummary, FileOrder, FileParts,
    Follow, FollowFinished, FollowFused, Growth, Index, MetadataEntry, Problem, Progress, Query,
    ReadStats, Row, Source, SourceError, Stamp, Summary, Topics,
};
use bytes::Bytes;

use capabilities::offset_of;

/// Several recordings, of any formats, as one [`Source`] on one timeline.
///
/// Messages are sorted by log time; ties come in the order in which the recordings were given.
/// If one of them is a file that is being written, or a robot, the whole [grows](Source::growth) and can be followed.
/// A recording is opened for reading when its time has come and closed when it is over, so that a folder of
/// a day's drives takes the memory of one. Channels that are equal in every respect are one channel.
///
/// ```no_run
/// use asof_core::Source;
/// let day = asof_formats::open_all(&["morning.bag", "noon.mcap"], &Default::default())?;
/// println!("{:?}", day.summary().range);
/// # Ok::<(), asof_core::SourceError>(())
/// ```
pub struct Merged {
    shared: Arc<Shared>,
}

struct Shared {
    parts: Vec<Part>,
    channels: Mutex<Channels>,
    /// Problems from before the parts were opened.
    problems: Vec<Problem>,
    summary: DerivedSummary,
}

/// One of several recordings.
struct Part {
    name: String,
    recording: Box<dyn Source>,
}

/// The shift of a part's index in an entry's offset.
const PART_SHIFT: u32 = 48;

impl Merged {
    /// Merges recordings; problems are reported under these names.
    pub fn new(parts: Vec<(String, Box<dyn Source>)>) -> Self {
        Self::with_problems(parts, Vec::new())
    }

    pub(crate) fn with_problems(
        parts: Vec<(String, Box<dyn Source>)>,
        problems: Vec<Problem>,
    ) -> Self {
        let parts: Vec<Part> = parts
            .into_iter()
            .map(|(name, recording)| Part { name, recording })
            .collect();
        Merged {
            shared: Arc::new(Shared {
                parts,
                channels: Mutex::default(),
                problems,
                summary: DerivedSummary::default(),
            }),
        }
    }
}

/// Not a layer: it is around several sources, each of which is asked.
#[deny(clippy::missing_trait_methods)]
impl Source for Merged {
    /// Made anew when that of a part has changed.
    fn summary(&self) -> Arc<Summary> {
        let parts = self.shared.parts.iter();
        let parts = parts.map(|part| part.recording.summary()).collect();
        self.shared
            .summary
            .of(parts, |parts| self.shared.summary_of(parts))
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        Ok(Box::new(read::Reader::new(&self.shared, query)))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let mut best: BTreeMap<String, (Bytes, Row)> = BTreeMap::new();
        for (index, part) in self.shared.parts.iter().enumerate() {
            if part.recording.summary().range.start > at {
                continue;
            }
            let batch = part.recording.latest_at(topics, at)?;
            for row in batch.rows() {
                let channel = &batch.channels()[row.channel as usize];
                let is_better = best
                    .get(&channel.topic)
                    .is_none_or(|(_, known)| known.log_time <= row.log_time);
                if is_better {
                    let place = self.shared.lock_channels().intern(channel);
                    let row = Row {
                        channel: place,
                        order: self.shared.order_of(index, row.order),
                        ..*row
                    };
                    let buffer = batch.buffers()[row.buffer as usize].clone();
                    best.insert(channel.topic.clone(), (buffer, row));
                }
            }
        }
        let (buffers, mut rows): (Vec<Bytes>, Vec<Row>) = best.into_values().unzip();
        for (index, row) in rows.iter_mut().enumerate() {
            row.buffer = index as u32;
        }
        let channels = self.shared.lock_channels().snapshot();
        Ok(Batch::new(channels, buffers, rows))
    }

    /// It grows while one of its parts does.
    fn growth(&self) -> Growth {
        let mut parts = self.shared.parts.iter();
        if parts.any(|part| part.recording.growth().is_growing()) {
            Growth::Growing
        } else {
            Growth::Finished
        }
    }

    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        if self.growth().is_growing() {
            let follow = follow::MergedFollow::new(&self.shared, query)?;
            return Ok(Box::new(FollowFused::new(follow)));
        }
        Ok(Box::new(FollowFinished::new(self.read(query)?)))
    }

    fn index(&self) -> Option<&dyn Index> {
        Some(self)
    }

    fn parts(&self) -> Option<&dyn FileParts> {
        Some(self)
    }

    fn file_order(&self) -> Option<&dyn FileOrder> {
        Some(self)
    }

    /// Checks one part after another.
    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        let parts = self.shared.parts.iter();
        let sizes: Vec<u64> = parts.map(|part| part.recording.summary().size).collect();
        let total: u64 = sizes.iter().sum();
        let mut done = 0;
        let mut problems = self.shared.problems.clone();
        for (part, size) in self.shared.parts.iter().zip(sizes) {
            let found = part
                .recording
                .check(&mut |bytes, _| progress(done + bytes.min(size), total))?;
            problems.extend(found.iter().map(|problem| part.named(problem)));
            done += size;
        }
        Ok(problems)
    }

    fn verify(&self) -> Result<(), SourceError> {
        let mut parts = self.shared.parts.iter();
        parts.try_for_each(|part| part.recording.verify())
    }

    /// The sum of those parts that count.
    fn read_stats(&self) -> Option<ReadStats> {
        let parts = self.shared.parts.iter();
        let counted = parts.filter_map(|part| part.recording.read_stats());
        counted.reduce(|mut all, one| {
            all += one;
            all
        })
    }
}

impl Part {
    /// A problem of it, with its name.
    fn named(&self, problem: &Problem) -> Problem {
        Problem {
            message: format!("{}: {}", self.name, problem.message),
            ..problem.clone()
        }
    }
}

impl std::fmt::Debug for Merged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.shared.parts.iter().map(|part| &part.name);
        f.debug_list().entries(names).finish()
    }
}

impl Shared {
    fn summary_of(&self, parts: &[Arc<Summary>]) -> Summary {
        let mut all = Summary::empty("");
        let mut formats = BTreeSet::new();
        let mut profiles = BTreeSet::new();
        let mut libraries = BTreeSet::new();
        let mut counts: Vec<Option<u64>> = Vec::new();
        all.problems.clone_from(&self.problems);
        for (index, (part, summary)) in self.parts.iter().zip(parts).enumerate() {
            formats.insert(summary.format.clone());
            profiles.insert(summary.profile.clone());
            libraries.insert(summary.library.clone());
            all.size += summary.size;
            all.range = all.range.cover(summary.range);
            all.messages = all.messages.zip(summary.messages).map(|(a, b)| a + b);
            all.chunks += summary.chunks;
            for (name, chunks) in &summary.compression {
                *all.compression.entry(name.clone()).or_default() += chunks;
            }
            for entry in &summary.channels {
                let place = self.lock_channels().intern(&entry.channel) as usize;
                if counts.len() <= place {
                    counts.resize(place + 1, Some(0));
                }
                counts[place] = counts[place].zip(entry.messages).map(|(a, b)| a + b);
            }
            all.attachments
                .extend(summary.attachments.iter().map(|entry| AttachmentEntry {
                    offset: offset_of(index, entry.offset),
                    ..entry.clone()
                }));
            all.metadata
                .extend(summary.metadata.iter().map(|entry| MetadataEntry {
                    offset: offset_of(index, entry.offset),
                    ..entry.clone()
                }));
            if let Some(recent) = &summary.recent {
                all.recent = Some(
                    all.recent
                        .take()
                        .map_or_else(|| recent.clone(), |others| others.and(recent)),
                );
            }
            all.problems
                .extend(summary.problems.iter().map(|problem| part.named(problem)));
        }
        let join = |names: BTreeSet<String>| {
            let names = names.into_iter().filter(|name| !name.is_empty());
            names.collect::<Vec<_>>().join("+")
        };
        all.format = join(formats);
        all.library = join(libraries);
        // A profile holds for all parts, or there is none.
        all.profile = match profiles.len() {
            1 => join(profiles),
            _ => String::new(),
        };
        let channels = self.lock_channels().snapshot();
        all.channels = channels
            .iter()
            .zip(counts)
            .map(|(channel, messages)| ChannelSummary {
                channel: Arc::clone(channel),
                messages,
            })
            .collect();
        all
    }

    /// The channel of all parts that this one of a part is.
    fn channel(&self, channel: &Arc<Channel>) -> Arc<Channel> {
        let mut channels = self.lock_channels();
        let place = channels.intern(channel) as usize;
        Arc::clone(&channels.all[place])
    }

    fn lock_channels(&self) -> std::sync::MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The order of a message among those of all parts: parts in the given order, then its order in its own.
    fn order_of(&self, part: usize, order: u64) -> u64 {
        let bits = usize::BITS - self.parts.len().saturating_sub(1).leading_zeros();
        if bits == 0 {
            return order;
        }
        let shift = u64::BITS - bits;
        (part as u64) << shift | order.min((1 << shift) - 1)
    }
}

/// The channels of all parts, without duplicates. Only ever grows.
#[derive(Default)]
struct Channels {
    all: Vec<Arc<Channel>>,
    by_topic: HashMap<String, Vec<u32>>,
    shared: Arc<[Arc<Channel>]>,
}

impl Channels {
    fn intern(&mut self, channel: &Arc<Channel>) -> u32 {
        let same = self.by_topic.entry(channel.topic.clone()).or_default();
        let known = same.iter().copied().find(|&place| {
            let known = &self.all[place as usize];
            Arc::ptr_eq(known, channel) || known == channel
        });
        known.unwrap_or_else(|| {
            let place = self.all.len() as u32;
            same.push(place);
            self.all.push(Arc::clone(channel));
            place
        })
    }

    fn snapshot(&mut self) -> Arc<[Arc<Channel>]> {
        if self.shared.len() != self.all.len() {
            self.shared = self.all.clone().into();
        }
        Arc::clone(&self.shared)
    }
}
