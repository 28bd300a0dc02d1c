//! Buffers from recordings.

use std::collections::HashMap;

use asof_core::{Problem, ProblemKind, Query, Source, SourceError, Stamp};
use nalgebra::Isometry3;

use crate::buffer::TransformBuffer;
use crate::error::UpdateError;
use crate::options::Options;
use crate::ros::{self, Encoding};

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
    /// They are found by the type of their channel, not by its name: `tf2_msgs/msg/TFMessage`,
    /// `tf2_msgs/TFMessage` and `tf/tfMessage`. Those on a topic whose last part is `tf_static` hold for
    /// all times. What is refused or cannot be decoded is a problem in the answer, not an error.
    ///
    /// # Errors
    /// When the source cannot be read at all.
    pub fn from_source(source: &dyn Source) -> Result<Loaded, SourceError> {
        let summary = source.summary();
        let topics = summary
            .channels
            .iter()
            .filter(|entry| is_tf(entry.channel.type_name()))
            .map(|entry| entry.channel.topic.clone());
        let query = Query::topics(topics);
        let mut loader = Loader {
            buffer: TransformBuffer::with_options(Options::unbounded()),
            transforms: 0,
            problems: HashMap::new(),
            late: Late::new(),
        };
        for batch in source.read(&query)? {
            for message in batch?.iter() {
                // Another channel may carry the same topic with another type.
                if is_tf(message.channel.type_name()) {
                    loader.message(&message);
                }
            }
        }
        Ok(loader.finish())
    }
}

fn is_tf(type_name: &str) -> bool {
    matches!(
        type_name,
        "tf2_msgs/msg/TFMessage" | "tf2_msgs/TFMessage" | "tf/tfMessage"
    )
}

struct Loader {
    buffer: TransformBuffer,
    transforms: u64,
    /// By topic and text: the first of its sort, and how many there were.
    problems: HashMap<(String, String), (Problem, u64)>,
    late: Late,
}

impl Loader {
    fn message(&mut self, message: &asof_core::MessageRef<'_>) {
        let channel = message.channel;
        let encoding = match channel.message_encoding.as_str() {
            "ros1" => Encoding::Ros1,
            "cdr" => Encoding::Cdr,
            // Nobody said: ROS 2's type names have three parts, ROS 1's two.
            _ if channel.type_name().contains("/msg/") => Encoding::Cdr,
            _ => Encoding::Ros1,
        };
        let is_static = channel.topic.rsplit('/').next() == Some("tf_static");
        let transforms = match ros::tf_message(encoding, message.payload) {
            Ok(transforms) => transforms,
            Err(error) => {
                let text = error.to_string();
                return self.problem(&channel.topic, "undecodable".into(), text);
            }
        };
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
