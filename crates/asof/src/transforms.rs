//! Transforms as they arrive, from a running robot or along a recording.

use std::time::{Duration, Instant};

use asof_core::{Batch, Follow, Followed, MessageRef, Query, Source, SourceError, Stamp, Topics};
use asof_tf::{
    BufferOptions, Conflicts, LatestTransform, LoaderOptions, LookupError, TransformBuffer,
    TransformLoader, TransformLoaders, transform_topics,
};

use crate::{Error, Progress};

/// How long to wait for messages at a time.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Frames without a transform for this long make room for others, when there are very many.
const FORGET_AFTER: Duration = Duration::from_mins(1);
/// Stamps that go back by more than this mean that the clock was set back.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// How often it is noted that there is no answer yet.
const REASON_INTERVAL: Duration = Duration::from_secs(2);

/// Transforms of a source as they arrive.
#[derive(Clone, Copy)]
pub struct TransformStream<'a> {
    /// Where they come from.
    pub source: &'a dyn Source,
    /// Its selected topics.
    pub topics: &'a Topics,
    /// Whether several robots share a buffer, in which frames have their namespace before their names.
    pub is_joined: bool,
}

/// The transforms that have arrived.
#[derive(Clone, Copy)]
pub struct TransformUpdate<'a> {
    /// A buffer for each robot.
    pub loaders: &'a TransformLoaders,
    /// Whether the clock was set back, and the buffer was restarted.
    pub has_restarted: bool,
}

impl TransformUpdate<'_> {
    /// The buffer with both frames; an empty one if there is none yet.
    ///
    /// # Errors
    /// When several robots have both.
    pub fn buffer(&self, (from, to): (&str, &str)) -> Result<TransformBuffer, Error> {
        let buffers = || {
            let all = self.loaders.iter();
            all.map(|(name, loader)| (name, loader.buffer()))
        };
        let has_both = |(_, one): &(&str, &TransformBuffer)| {
            one.find(from).is_some() && one.find(to).is_some()
        };
        let with_both: Vec<_> = buffers().filter(has_both).collect();
        match &*with_both {
            [] => Ok(buffers()
                .next()
                .map_or_else(TransformBuffer::new, |(_, one)| one.clone())),
            [(_, one)] => Ok((*one).clone()),
            several => {
                let names: Vec<&str> = several.iter().map(|(name, _)| *name).collect();
                Err(ambiguous_frames((from, to), &names))
            }
        }
    }
}

/// The error for frames that several robots have.
pub fn ambiguous_frames((from, to): (&str, &str), namespaces: &[&str]) -> Error {
    let shown: Vec<String> = namespaces.iter().map(|name| format!("{name}/tf")).collect();
    let last = namespaces.last().copied().unwrap_or_default();
    Error::Option(format!(
        "'{from}' and '{to}' are frames of {}: choose one with --tf-topics '{last}/*', or name both robots' frames apart with --tf-prefix",
        shown.join(" and of ")
    ))
}

impl TransformStream<'_> {
    /// Calls `look` after every message with transforms, and whenever nothing has arrived for a while; until
    /// the source ends.
    ///
    /// # Errors
    /// When the source cannot be read, or `look` returns an error.
    pub fn each<E: From<SourceError>>(
        self,
        is_monitored: bool,
        progress: &Progress,
        mut look: impl FnMut(TransformUpdate<'_>) -> Result<(), E>,
    ) -> Result<TransformLoaders, E> {
        let is_growing = self.source.growth().is_growing();
        let options = LoaderOptions {
            // In a recording, times that go back are in its order.
            jump_back: is_growing.then_some(RESTART_AFTER),
            monitor: is_monitored,
            forget_after: Some(FORGET_AFTER),
        };
        let of_tf2 = BufferOptions::default().conflicts(Conflicts::LastWins);
        let shared = self
            .is_joined
            .then(|| TransformBuffer::with_options(of_tf2));
        let mut loaders = TransformLoaders::new(move |namespace| match &shared {
            Some(shared) => {
                TransformLoader::with_options(shared.clone(), options).with_prefix(namespace)
            }
            None => TransformLoader::with_options(TransformBuffer::with_options(of_tf2), options),
        });
        for entry in &self.source.summary().channels {
            if self.topics.contains(&entry.channel.topic) {
                loaders.learn(&entry.channel);
            }
        }
        let mut follow: Box<dyn Follow> = self.source.follow(&self.query(is_growing))?;
        loop {
            match follow.next(Instant::now() + POLL_INTERVAL)? {
                Followed::Batch(batch) => {
                    for message in batch.iter() {
                        let absorbed = loaders.absorb(&alone(message));
                        for moved in &absorbed.moved {
                            progress.note(moved);
                        }
                        if let Some(jump) = &absorbed.jump {
                            progress.note(jump);
                        }
                        let came = TransformUpdate {
                            loaders: &loaders,
                            has_restarted: absorbed.jump.is_some(),
                        };
                        look(came)?;
                    }
                }
                Followed::CaughtUp => look(TransformUpdate {
                    loaders: &loaders,
                    has_restarted: false,
                })?,
                Followed::Restarted => progress.note("the clock was set back"),
                Followed::End(_) => return Ok(loaders),
            }
        }
    }

    fn query(self, is_growing: bool) -> Query {
        // A growing source was opened with only these topics, and more of them may appear later.
        if is_growing {
            return Query::all();
        }
        let topics = transform_topics(&self.source.summary());
        Query::topics(
            topics
                .into_iter()
                .filter(|topic| self.topics.contains(topic)),
        )
    }

    /// Passes on the transform between two frames whenever this many nanoseconds have passed by the stamps of the transforms.
    ///
    /// # Errors
    /// When the source cannot be read, there never was an answer, or `each` returns an error.
    pub fn follow<E: From<SourceError> + From<Error> + From<LookupError>>(
        self,
        (from, to): (&str, &str),
        step: i64,
        progress: &Progress,
        mut each: impl FnMut(&LatestTransform) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last: Option<Stamp> = None;
        let mut has_found = false;
        let mut reason = None;
        let mut told = Instant::now();
        self.each::<E>(false, progress, |came| {
            if came.has_restarted {
                last = None;
            }
            match came.buffer((from, to))?.lookup_latest(from, to) {
                Ok(found) => {
                    let is_due = match (found.stamp, last) {
                        (Some(at), Some(last)) => at.since(last) >= step,
                        // If there are only static edges on the way, once is enough.
                        (None, _) => !has_found,
                        (Some(_), None) => true,
                    };
                    if is_due {
                        last = found.stamp;
                        has_found = true;
                        each(&found)?;
                    }
                    reason = None;
                }
                Err(error) => {
                    if told.elapsed() >= REASON_INTERVAL {
                        progress.note(format_args!("no answer yet: {error}"));
                        told = Instant::now();
                    }
                    reason = Some(error);
                }
            }
            Ok(())
        })?;
        match reason.filter(|_| !has_found) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// A message in a batch of its own.
fn alone(message: MessageRef<'_>) -> Batch {
    std::iter::once(message.to_message()).collect()
}
