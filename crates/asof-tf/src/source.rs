//! Loading recordings into buffers.

use asof_core::{Batch, Problem, Query, Source, SourceError, Topics};

use crate::buffer::TransformBuffer;
use crate::loader::{Kind, ParentChange, TransformLoader};
use crate::namespace::{Namespaces, TransformLoaders};
use crate::options::{BufferOptions, Conflicts};

/// The result of [`TransformBuffer::from_source`].
#[derive(Debug)]
pub struct Loaded {
    /// The namespace of their topics, as `/robot1`; empty for that of `/tf`, and where several share the buffer.
    pub namespace: String,
    /// All transforms, without any bound.
    pub buffer: TransformBuffer,
    /// The number of transforms read.
    pub transforms: u64,
    /// The number of joint positions converted to transforms by the robot's description.
    pub joints: u64,
    /// Frames that change their parent, each once.
    pub moved: Vec<ParentChange>,
    /// What could not be used: one problem per kind and edge, with a count.
    pub problems: Vec<Problem>,
}

impl TransformBuffer {
    /// Reads all transforms of a recording into an unbounded buffer. Where they are of several robots, on `/robot1/tf` and
    /// `/robot2/tf`, each frame has its [namespace](Namespaces) before its name, as `robot1/base_link`: see
    /// [`by_namespace`](TransformBuffer::by_namespace) for a buffer of each.
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
        let buffer = unbounded();
        let shared = buffer.clone();
        let is_shared = namespaces(source, topics).names().len() > 1;
        let mut loaders = TransformLoaders::new(move |namespace| {
            let loader = TransformLoader::new(shared.clone());
            if is_shared {
                loader.with_prefix(namespace)
            } else {
                loader
            }
        });
        load(source, topics, &mut loaders)?;
        let absorbed = loaders.finish();
        Ok(Loaded {
            namespace: String::new(),
            buffer,
            transforms: absorbed.transforms,
            joints: absorbed.joints,
            moved: absorbed.moved,
            problems: absorbed.problems,
        })
    }

    /// The same with a buffer for each of the [`Namespaces`], in the order of their names; at least one.
    ///
    /// # Errors
    /// As there.
    pub fn by_namespace(source: &dyn Source, topics: &Topics) -> Result<Vec<Loaded>, SourceError> {
        let mut loaders = TransformLoaders::new(|_| TransformLoader::new(unbounded()));
        load(source, topics, &mut loaders)?;
        let mut all: Vec<Loaded> = (loaders.into_each())
            .map(|(namespace, mut loader)| {
                let absorbed = loader.finish();
                Loaded {
                    namespace,
                    buffer: loader.buffer().clone(),
                    transforms: absorbed.transforms,
                    joints: absorbed.joints,
                    moved: absorbed.moved,
                    problems: absorbed.problems,
                }
            })
            .collect();
        if all.is_empty() {
            // Without any topic, one that is empty.
            all.push(TransformBuffer::from_topics(source, topics)?);
        }
        Ok(all)
    }

    /// Loads the transforms of a batch and returns what could not be used. A [`TransformLoader`] also handles
    /// joints and clock jumps.
    pub fn absorb(&self, batch: &Batch) -> Vec<Problem> {
        TransformLoader::new(self.clone()).absorb(batch).problems
    }
}

/// As in tf2: a recording cannot be corrected.
fn unbounded() -> TransformBuffer {
    TransformBuffer::with_options(BufferOptions::unbounded().conflicts(Conflicts::LastWins))
}

/// The namespaces of the chosen topics.
fn namespaces(source: &dyn Source, topics: &Topics) -> Namespaces {
    let mut namespaces = Namespaces::default();
    for entry in &source.summary().channels {
        if topics.contains(&entry.channel.topic) {
            namespaces.learn(&entry.channel);
        }
    }
    namespaces
}

/// Reads the chosen topics. Transforms come first: their frames are not taken from the description. A description applies
/// to the joint states before it too.
fn load(
    source: &dyn Source,
    topics: &Topics,
    loaders: &mut TransformLoaders,
) -> Result<(), SourceError> {
    let summary = source.summary();
    let chosen = || {
        let channels = summary.channels.iter().map(|entry| &entry.channel);
        channels.filter(|channel| topics.contains(&channel.topic))
    };
    chosen().for_each(|channel| loaders.learn(channel));
    let of_kind = |is_wanted: fn(Kind) -> bool| -> Vec<String> {
        let wanted = chosen().filter(|channel| Kind::of(channel).is_some_and(is_wanted));
        let mut names: Vec<String> = wanted.map(|channel| channel.topic.clone()).collect();
        names.dedup();
        names
    };
    let transforms = of_kind(|kind| matches!(kind, Kind::Ros(_) | Kind::Schema));
    let descriptions = of_kind(|kind| matches!(kind, Kind::Description(_)));
    let joints = of_kind(|kind| matches!(kind, Kind::Joints(_)));
    let joints = if descriptions.is_empty() {
        Vec::new()
    } else {
        joints
    };
    let is_used = |topics: &Vec<String>| !topics.is_empty();
    for topics in [transforms, descriptions, joints]
        .into_iter()
        .filter(is_used)
    {
        for batch in source.read(&Query::topics(topics))? {
            loaders.take(&batch?);
        }
    }
    Ok(())
}
