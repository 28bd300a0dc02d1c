//! Loading recordings into buffers.

use asof_core::{Batch, Problem, Query, Source, SourceError, Topics};

use crate::buffer::TransformBuffer;
use crate::loader::{Kind, TransformLoader};
use crate::options::{BufferOptions, Conflicts};

/// The result of [`TransformBuffer::from_source`].
#[derive(Debug)]
pub struct Loaded {
    /// All transforms, without any bound.
    pub buffer: TransformBuffer,
    /// The number of transforms read.
    pub transforms: u64,
    /// The number of joint positions converted to transforms by the robot's description.
    pub joints: u64,
    /// What could not be used: one problem per kind and edge, with a count.
    pub problems: Vec<Problem>,
}

impl TransformBuffer {
    /// Reads all transforms of a recording into an unbounded buffer.
    ///
    /// They are found by the type of their channel, not by its name: see
    /// [`has_transforms`](crate::has_transforms). Those on a topic whose last part is `tf_static` hold for all
    /// times. A frame that changes its parent has each parent for the times of its samples, and the last kind of
    /// an edge, static or dynamic, wins, as in tf2: see [`Conflicts::LastWins`]. Joints without a transform are
    /// placed by the robot's description and its joint states, see [`TransformLoader`]. What is refused or cannot
    /// be decoded is a problem in the result, not an error.
    ///
    /// # Errors
    /// If the source cannot be read at all.
    pub fn from_source(source: &dyn Source) -> Result<Loaded, SourceError> {
        TransformBuffer::from_topics(source, &Topics::All)
    }

    /// The same for some topics only.
    ///
    /// # Errors
    /// As there.
    pub fn from_topics(source: &dyn Source, topics: &Topics) -> Result<Loaded, SourceError> {
        let summary = source.summary();
        let of_kind = |is_wanted: fn(Kind) -> bool| -> Vec<String> {
            let wanted = summary.channels.iter().filter(|entry| {
                topics.contains(&entry.channel.topic)
                    && Kind::of(&entry.channel).is_some_and(is_wanted)
            });
            let mut names: Vec<String> = wanted.map(|entry| entry.channel.topic.clone()).collect();
            names.dedup();
            names
        };
        let transforms = of_kind(|kind| matches!(kind, Kind::Ros(_) | Kind::Schema));
        let descriptions = of_kind(|kind| matches!(kind, Kind::Description(_)));
        let joints = of_kind(|kind| matches!(kind, Kind::Joints(_)));
        let options = BufferOptions::unbounded().conflicts(Conflicts::LastWins);
        let mut loader = TransformLoader::new(TransformBuffer::with_options(options));
        let mut read = |topics: Vec<String>| -> Result<(), SourceError> {
            if topics.is_empty() {
                return Ok(());
            }
            for batch in source.read(&Query::topics(topics))? {
                loader.take(&batch?);
            }
            Ok(())
        };
        // Transforms first: their frames are not taken from the description. A description applies to the joint
        // states before it too.
        read(transforms)?;
        if cfg!(feature = "urdf") && !descriptions.is_empty() {
            read(descriptions)?;
            read(joints)?;
        }
        let absorbed = loader.finish();
        Ok(Loaded {
            buffer: loader.buffer().clone(),
            transforms: absorbed.transforms,
            joints: absorbed.joints,
            problems: absorbed.problems,
        })
    }

    /// Loads the transforms of a batch and returns what could not be used. A [`TransformLoader`] also handles
    /// joints and clock jumps.
    pub fn absorb(&self, batch: &Batch) -> Vec<Problem> {
        TransformLoader::new(self.clone()).absorb(batch).problems
    }
}
