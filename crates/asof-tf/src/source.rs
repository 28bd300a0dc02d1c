//! Buffers from recordings.

use std::collections::HashMap;
use std::sync::Arc;

use asof_core::{
    Batch, Channel, MessageRef, Problem, ProblemKind, Query, Source, SourceError, Stamp,
};
use nalgebra::Isometry3;

use crate::buffer::TransformBuffer;
use crate::error::UpdateError;
use crate::options::Options;
use crate::ros::{self, Encoding, StampedTransform};

/// What [`TransformBuffer::from_source`] made of a recording.
#[derive(Debug)]
pub struct Loaded {
    /// All transforms, without any bound.
    pub buffer: TransformBuffer,
    /// How many transforms were read.
    pub transforms: u64,
    /// What could not be used; one for each sort of trouble of each edge, with a count.
    pub problems: Vec<Problem>,
}

/// Samples of an edge that came too late to be appended: sorted in once, at the end.
type Late = HashMap<(String, String), Vec<(Stamp, Isometry3<f64>)>>;

impl TransformBuffer {
    /// Reads all transforms of a recording into an unbounded buffer.
    ///
    /// They are found by the type of their channel, not by its name: `tf2_msgs/TFMessage` as ROS 1 and 2 spell
    /// it, `tf/tfMessage`, and Foxglove's `FrameTransform` and `FrameTransforms` in every encoding. Those on a
    /// topic whose last part is `tf_static` hold for all times. What is refused or cannot be decoded is a
    /// problem in the answer, not an error.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    pub fn from_source(source: &dyn Source) -> Result<Loaded, SourceError> {
        let summary = source.summary();
        let topics = summary
            .channels
            .iter()
            .filter(|entry| Kind::of(&entry.channel).is_some())
            .map(|entry| entry.channel.topic.clone());
        let query = Query::topics(topics);
        let mut loader = Loader::new(TransformBuffer::with_options(Options::unbounded()));
        for batch in source.read(&query)? {
            loader.batch(&batch?);
        }
        Ok(loader.finish())
    }

    /// Takes in the transforms of a batch, as [`from_source`](TransformBuffer::from_source) does, and says what could
    /// not be used. For those who read a part of a recording, or a robot as it goes.
    pub fn absorb(&self, batch: &Batch) -> Vec<Problem> {
        let mut loader = Loader::new(self.clone());
        loader.batch(batch);
        loader.finish().problems
    }
}

/// Whether the messages of a channel are transforms, by its type.
pub fn has_transforms(channel: &Channel) -> bool {
    Kind::of(channel).is_some()
}

/// How the transforms of a channel are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `TFMessage` as ROS writes it: its layout is known, and many recordings have no schema for it.
    Ros(Encoding),
    /// Anything else, by its schema.
    Schema,
}

impl Kind {
    /// `None` for a channel that has no transforms.
    fn of(channel: &Channel) -> Option<Kind> {
        // `pkg/msg/Type`, `pkg/Type`, `pkg.Type`, `pkg::msg::dds_::Type_`
        let mut parts = channel
            .type_name()
            .split(['/', '.', ':'])
            .filter(|part| !part.is_empty());
        let package = parts.next()?;
        let name = parts.next_back()?;
        match (package, name.strip_suffix('_').unwrap_or(name)) {
            ("tf2_msgs", "TFMessage") | ("tf", "tfMessage") => {
                Some(match channel.message_encoding.as_str() {
                    "cdr" => Kind::Ros(Encoding::Cdr),
                    // Nobody said: ROS 2's type names have three parts, ROS 1's two.
                    "" if parts.next().is_some() => Kind::Ros(Encoding::Cdr),
                    "ros1" | "" => Kind::Ros(Encoding::Ros1),
                    _ => Kind::Schema,
                })
            }
            (
                "foxglove" | "foxglove_msgs" | "foxglove_schemas",
                "FrameTransform" | "FrameTransforms",
            ) => Some(Kind::Schema),
            _ => None,
        }
    }
}

struct Loader {
    buffer: TransformBuffer,
    transforms: u64,
    /// By topic and text: the first of its sort, and how many there were.
    problems: HashMap<(String, String), (Problem, u64)>,
    late: Late,
    #[cfg(feature = "decode")]
    decoded: crate::decoded::Decoded,
}

impl Loader {
    fn new(buffer: TransformBuffer) -> Self {
        Loader {
            buffer,
            transforms: 0,
            problems: HashMap::new(),
            late: Late::new(),
            #[cfg(feature = "decode")]
            decoded: crate::decoded::Decoded::new(),
        }
    }

    fn batch(&mut self, batch: &Batch) {
        // Messages of one channel that follow each other are decoded together.
        let mut run: Vec<MessageRef<'_>> = Vec::new();
        for message in batch.iter() {
            // Another channel may carry the same topic with another type.
            let Some(kind) = Kind::of(message.channel) else {
                continue;
            };
            let is_other = |first: &MessageRef<'_>| !Arc::ptr_eq(first.channel, message.channel);
            if run.first().is_some_and(is_other) {
                self.run(&std::mem::take(&mut run));
            }
            match kind {
                Kind::Ros(encoding) => self.ros(encoding, &message),
                Kind::Schema => run.push(message),
            }
        }
        self.run(&run);
    }

    #[cfg(feature = "decode")]
    fn run(&mut self, run: &[MessageRef<'_>]) {
        let Some(channel) = run.first().map(|message| message.channel) else {
            return;
        };
        let taken = self.decoded.take(channel, run);
        for failure in taken.failures {
            self.problem(&channel.topic, "undecodable".into(), failure);
        }
        self.store(channel, taken.transforms);
    }

    #[cfg(not(feature = "decode"))]
    fn run(&mut self, run: &[MessageRef<'_>]) {
        for message in run {
            let kind = message.channel.type_name();
            let text =
                format!("{kind} is not decoded here: asof-tf was built without its feature decode");
            self.problem(&message.channel.topic, "undecodable".into(), text);
        }
    }

    fn ros(&mut self, encoding: Encoding, message: &MessageRef<'_>) {
        match ros::tf_message(encoding, message.payload) {
            Ok(transforms) => self.store(message.channel, transforms),
            Err(error) => {
                let text = error.to_string();
                self.problem(&message.channel.topic, "undecodable".into(), text);
            }
        }
    }

    fn store(&mut self, channel: &Channel, transforms: Vec<StampedTransform>) {
        let is_static = channel.topic.rsplit('/').next() == Some("tf_static");
        for transform in transforms {
            self.transforms += 1;
            let (parent, child) = (transform.parent, transform.child);
            let stored = if is_static {
                self.buffer
                    .update_static(&parent, &child, transform.isometry)
            } else {
                self.append(&parent, &child, transform.stamp, transform.isometry)
            };
            if let Err(error) = stored {
                // A problem is told once for each edge and sort, whatever its numbers.
                let sort = format!("{parent} {child} {:?}", std::mem::discriminant(&error));
                self.problem(&channel.topic, sort, error.to_string());
            }
        }
    }

    /// In order as a rule; what is late is kept aside, so that the whole load is never quadratic.
    fn append(
        &mut self,
        parent: &str,
        child: &str,
        stamp: Stamp,
        isometry: Isometry3<f64>,
    ) -> Result<(), UpdateError> {
        let newest = self.buffer.newest_of(parent, child);
        if newest.is_some_and(|newest| stamp <= newest) {
            // What is wrong with it is told now, and its edge exists.
            crate::pose::Pose::checked(&isometry)
                .map_err(|bad| self.buffer.bad_pose(parent, child, bad))?;
            let edge = (parent.to_owned(), child.to_owned());
            self.late.entry(edge).or_default().push((stamp, isometry));
            return Ok(());
        }
        self.buffer.update(parent, child, stamp, isometry)
    }

    fn problem(&mut self, topic: &str, sort: String, message: String) {
        let problem = Problem {
            kind: ProblemKind::BadRecord,
            offset: None,
            topic: Some(topic.to_owned()),
            message,
        };
        let entry = self.problems.entry((topic.to_owned(), sort));
        entry.or_insert((problem, 0)).1 += 1;
    }

    fn finish(mut self) -> Loaded {
        for ((parent, child), samples) in std::mem::take(&mut self.late) {
            if let Err(error) = self.buffer.extend_edge(&parent, &child, samples) {
                self.problem("", format!("{parent} {child} late"), error.to_string());
            }
        }
        let mut problems: Vec<Problem> = self
            .problems
            .into_values()
            .map(|(mut problem, count)| {
                if count > 1 {
                    problem.message = format!("{} ({count} times)", problem.message);
                }
                problem
            })
            .collect();
        problems.sort_by(|a, b| (&a.topic, &a.message).cmp(&(&b.topic, &b.message)));
        Loaded {
            buffer: self.buffer,
            transforms: self.transforms,
            problems,
        }
    }
}
