//! From the queue to the disk.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::{Channel, Stamp};

use super::pending::PendingSchemas;
use super::state::{Waiting, named};
use super::{Queue, TAKE_FRACTION};
use crate::RecordError;
use crate::sink::{Receipt, Sink};

/// At most this many channels are cached under a prefixed name.
const MOST_PREFIXED: usize = 65_536;
/// How often an open chunk is checked for its age.
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);

/// Channels under their names in the recording, by their address and the prefix.
pub(super) type Prefixed = HashMap<(usize, String), (Arc<Channel>, Arc<Channel>)>;

impl Queue {
    /// Writes messages until the queue is closed and empty. After an error, all that is not in the file counts as dropped.
    pub fn write_all(&self, mut writer: Box<dyn Sink>) -> Result<(), RecordError> {
        let (mut batch, mut pending) = (VecDeque::new(), PendingSchemas::default());
        let mut unflushed = VecDeque::new();
        let result = self.drain(&mut *writer, &mut batch, &mut pending, &mut unflushed);
        let result = result.and_then(|()| Ok(writer.flush()?));
        unflushed.drain(..unflushed.len() - (writer.unflushed() as usize).min(unflushed.len()));
        let result = result.and_then(|()| Ok(writer.finish()?));
        if result.is_err() {
            let mut state = self.state.lock();
            for channel in unflushed {
                let report = state.report_of(&channel.topic);
                report.written -= 1;
                report.dropped += 1;
            }
            state.close();
            state.is_broken = true;
            let queued = std::mem::take(&mut state.samples);
            let pending = pending.settled(true).into_iter();
            let pending = pending.flat_map(|(_, waiting)| waiting);
            for waiting in batch.into_iter().chain(pending).chain(queued) {
                state.report_of(&waiting.topic()).dropped += 1;
            }
            state.bytes = 0;
        }
        result
    }

    fn drain(
        &self,
        writer: &mut dyn Sink,
        batch: &mut VecDeque<Waiting>,
        pending: &mut PendingSchemas,
        unflushed: &mut VecDeque<Arc<Channel>>,
    ) -> Result<(), RecordError> {
        // By this machine's steady clock: log times go back, and a robot's clock may stand still.
        let mut flushed = Instant::now();
        loop {
            let is_closed = self.take(batch);
            let is_last = is_closed && batch.is_empty();
            // Before the batch: its messages on the same topics came later.
            for (channel, samples) in pending.settled(is_last) {
                let mut samples = VecDeque::from(samples);
                while let Some(waiting) = samples.front() {
                    if let Err(error) = self.write(writer, waiting, &channel, unflushed) {
                        batch.extend(samples);
                        return Err(error);
                    }
                    samples.pop_front();
                }
            }
            while let Some(waiting) = batch.front() {
                match waiting.sample.settled() {
                    Some(channel) => {
                        self.write(writer, waiting, &channel, unflushed)?;
                        batch.pop_front();
                    }
                    None => batch
                        .pop_front()
                        .into_iter()
                        .for_each(|one| pending.keep(one)),
                }
            }
            let (notes, triggers) = {
                let mut state = self.state.lock();
                let triggers = std::mem::take(&mut state.triggers);
                (std::mem::take(&mut state.notes), triggers)
            };
            for reason in triggers {
                writer.trigger(&reason, self.now(), self.steady())?;
            }
            for (name, values) in notes {
                writer.note(&name, &values)?;
            }
            writer.tick(self.now(), self.steady())?;
            if self.chunk_age.is_some_and(|age| flushed.elapsed() >= age) {
                flushed = Instant::now();
                writer.flush()?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn write(
        &self,
        writer: &mut dyn Sink,
        waiting: &Waiting,
        channel: &Arc<Channel>,
        unflushed: &mut VecDeque<Arc<Channel>>,
    ) -> Result<(), RecordError> {
        let sample = &waiting.sample;
        let mut message = sample.to_message();
        message.channel = self.prefixed(&waiting.prefix, channel);
        // MCAP has no times before 1970; a wrong clock must not cost the message.
        let is_mistimed = message.publish_time < Stamp::EPOCH;
        if is_mistimed {
            message.publish_time = message.log_time;
        }
        let receipt = Receipt {
            at: waiting.at,
            publisher: sample.publisher,
        };
        let outcome = writer.write(&message, &receipt);
        let mut state = self.state.lock();
        state.bytes = state.bytes.saturating_sub(waiting.weight);
        let report = state.report_of(&message.channel.topic);
        report.mistimed += u64::from(is_mistimed);
        match outcome {
            Ok(()) => {
                report.written += 1;
                unflushed.push_back(Arc::clone(&message.channel));
                let flushed = unflushed.len() - (writer.unflushed() as usize).min(unflushed.len());
                unflushed.drain(..flushed);
                let schema = channel.schema.as_deref();
                let is_undefined = schema.is_some_and(|schema| schema.data.is_empty());
                report.is_undefined |= is_undefined;
                report.is_defined_otherwise |= is_undefined && sample.is_defined_otherwise();
                Ok(())
            }
            Err(asof_formats::McapWriteError::BeforeEpoch { .. }) => {
                report.refused += 1;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A channel under its name in the recording; the same one for the same channel.
    fn prefixed(&self, prefix: &str, channel: &Arc<Channel>) -> Arc<Channel> {
        if prefix.is_empty() {
            return Arc::clone(channel);
        }
        let mut known = self.prefixed.lock();
        let key = (Arc::as_ptr(channel) as usize, prefix.to_owned());
        if known.len() >= MOST_PREFIXED && !known.contains_key(&key) {
            known.clear();
        }
        let (_, renamed) = known.entry(key).or_insert_with(|| {
            let renamed = Channel {
                topic: named(prefix, &channel.topic),
                ..Channel::clone(channel)
            };
            // The original is kept, so that its address is not reused.
            (Arc::clone(channel), Arc::new(renamed))
        });
        Arc::clone(renamed)
    }

    /// Takes the oldest queued messages; returns whether no more can come.
    fn take(&self, taken: &mut VecDeque<Waiting>) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.notes.is_empty() && state.triggers.is_empty();
        if state.samples.is_empty() && !state.is_closed && is_idle {
            self.arrived.wait_for(&mut state, FLUSH_INTERVAL);
        }
        let mut bytes = 0;
        while bytes < (self.limit / TAKE_FRACTION).max(1)
            && let Some(waiting) = state.samples.pop_front()
        {
            bytes += waiting.weight;
            state.uncount(waiting.priority, waiting.weight);
            taken.push_back(waiting);
        }
        state.is_closed
    }
}
