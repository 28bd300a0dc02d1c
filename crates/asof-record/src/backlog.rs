//! Messages that are kept for snapshots: in memory, or in a ring of files on disk.

use std::collections::VecDeque;
use std::io::{Seek, Write};
use std::time::Duration;

use asof_core::{Message, Stamp};
use asof_formats::{McapWriteError, McapWriter};

use crate::ring::Ring;

/// Messages that are kept until they are too old, by the time at which they came: log times leap when somebody sets the
/// clock.
pub(crate) enum Backlog {
    Memory(Memory),
    Disk(Box<Ring>),
}

/// The number and size of kept messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BacklogStats {
    pub messages: u64,
    pub bytes: u64,
    /// Messages that were evicted before their time to stay within the byte budget.
    pub crowded_out: u64,
}

impl Backlog {
    /// Keeps a message that came at this time, by a clock that never goes back.
    pub fn push(&mut self, message: &Message, came: Stamp) -> Result<(), McapWriteError> {
        match self {
            Backlog::Memory(memory) => {
                memory.push(message.clone(), came);
                Ok(())
            }
            Backlog::Disk(ring) => ring.push(message, came),
        }
    }

    /// When the oldest message came.
    pub fn start(&self) -> Option<Stamp> {
        match self {
            Backlog::Memory(memory) => memory.messages.front().map(|(came, _)| *came),
            Backlog::Disk(ring) => ring.start(),
        }
    }

    /// The earliest log time of the messages that came since a time.
    pub fn first_logged(&self, cut: Stamp) -> Option<Stamp> {
        match self {
            Backlog::Memory(memory) => memory.since(cut).map(|one| one.log_time).min(),
            Backlog::Disk(ring) => ring.first_logged(cut),
        }
    }

    /// Writes the messages that came since a time; returns how many.
    pub fn copy<W: Write + Seek>(
        &mut self,
        cut: Stamp,
        to: &mut McapWriter<W>,
    ) -> Result<u64, McapWriteError> {
        match self {
            Backlog::Memory(memory) => {
                let mut written = 0;
                for message in memory.since(cut) {
                    written += u64::from(wrote(to.write(message))?);
                }
                Ok(written)
            }
            Backlog::Disk(ring) => ring.copy(cut, to),
        }
    }

    pub fn stats(&self) -> BacklogStats {
        match self {
            Backlog::Memory(memory) => BacklogStats {
                messages: memory.messages.len() as u64,
                bytes: memory.bytes,
                crowded_out: memory.crowded_out,
            },
            Backlog::Disk(ring) => ring.stats(),
        }
    }
}

/// Whether a message was written. One that MCAP cannot hold is not; it was counted on arrival.
pub(crate) fn wrote(outcome: Result<(), McapWriteError>) -> Result<bool, McapWriteError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(McapWriteError::BeforeEpoch { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Messages in memory, in the order in which they came.
pub(crate) struct Memory {
    keep: Duration,
    limit: u64,
    messages: VecDeque<(Stamp, Message)>,
    bytes: u64,
    crowded_out: u64,
}

/// What a message takes beside its payload: itself, and the slack of the queue.
const OVERHEAD: u64 = 2 * size_of::<(Stamp, Message)>() as u64;

fn weight_of(message: &Message) -> u64 {
    message.payload.len() as u64 + OVERHEAD
}

impl Memory {
    pub fn new(keep: Duration, limit: u64) -> Self {
        Memory {
            keep,
            limit,
            messages: VecDeque::new(),
            bytes: 0,
            crowded_out: 0,
        }
    }

    fn push(&mut self, message: Message, came: Stamp) {
        self.bytes += weight_of(&message);
        self.messages.push_back((came, message));
        let keep = i64::try_from(self.keep.as_nanos()).unwrap_or(i64::MAX);
        while let Some((first, _)) = self.messages.front() {
            let is_old = came.since(*first) > keep;
            if !is_old && self.bytes <= self.limit {
                return;
            }
            self.crowded_out += u64::from(!is_old);
            if let Some((_, gone)) = self.messages.pop_front() {
                self.bytes -= weight_of(&gone);
            }
        }
    }

    fn since(&self, cut: Stamp) -> impl Iterator<Item = &Message> {
        let first = self.messages.partition_point(|(came, _)| *came < cut);
        self.messages.range(first..).map(|(_, message)| message)
    }
}
