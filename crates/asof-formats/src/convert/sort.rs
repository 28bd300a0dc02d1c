//! Sorting more messages than memory holds: sorted runs on disk, merged at the end.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

use asof_core::{Channel, Message, MessageRef, Stamp};
use bytes::Bytes;

/// Collects messages in any order.
pub(super) struct Sorter {
    memory: usize,
    folder: Option<PathBuf>,
    channels: Channels,
    payloads: Vec<u8>,
    held: Vec<Entry>,
    runs: Vec<File>,
}

/// A message in memory; its payload is a range of `Sorter::payloads`.
#[derive(Clone, Copy)]
struct Entry {
    key: Key,
    publish_time: Stamp,
    sequence: u32,
    channel: u32,
    offset: usize,
    len: usize,
}

/// Log time, then position in the source.
type Key = (Stamp, u64);

/// Runs merged at once; more runs take several passes.
const RUNS_AT_ONCE: usize = 64;
/// Read buffer of each run, in bytes.
const READ_AHEAD: usize = 256 << 10;
/// Log time, order, publish time, sequence, channel, length.
const HEAD_LEN: usize = 8 + 8 + 8 + 4 + 4 + 8;

impl Sorter {
    /// Holds at most about `memory` bytes, then spills to temporary files in `folder`.
    pub fn new(memory: u64, folder: Option<PathBuf>) -> Self {
        Sorter {
            memory: usize::try_from(memory).unwrap_or(usize::MAX).max(1 << 16),
            folder,
            channels: Channels::default(),
            payloads: Vec::new(),
            held: Vec::new(),
            runs: Vec::new(),
        }
    }

    pub fn push(&mut self, message: &MessageRef<'_>) -> io::Result<()> {
        let added = message.payload.len() + size_of::<Entry>();
        let held = self.payloads.len() + self.held.len() * size_of::<Entry>();
        if held + added > self.memory && !self.held.is_empty() {
            self.spill()?;
        }
        self.held.push(Entry {
            key: (message.log_time, message.order),
            publish_time: message.publish_time,
            sequence: message.sequence,
            channel: self.channels.number_of(message.channel),
            offset: self.payloads.len(),
            len: message.payload.len(),
        });
        self.payloads.extend_from_slice(message.payload);
        Ok(())
    }

    /// All messages, in order.
    pub fn finish(mut self) -> io::Result<Sorted> {
        if self.runs.is_empty() {
            self.held.sort_unstable_by_key(|held| held.key);
            return Ok(Sorted {
                channels: self.channels,
                source: Ordered::InMemory {
                    payloads: self.payloads.into(),
                    held: self.held.into_iter(),
                },
            });
        }
        self.spill()?;
        self.payloads = Vec::new();
        self.held = Vec::new();
        while self.runs.len() > RUNS_AT_ONCE {
            let some = self.runs.drain(..RUNS_AT_ONCE).collect();
            let merged = self.merge_into_one(some)?;
            self.runs.push(merged);
        }
        Ok(Sorted {
            channels: self.channels,
            source: Ordered::OnDisk(Merge::new(self.runs)?),
        })
    }

    /// Writes the held messages as a sorted run.
    fn spill(&mut self) -> io::Result<()> {
        self.held.sort_unstable_by_key(|held| held.key);
        let mut run = BufWriter::with_capacity(1 << 20, self.temporary()?);
        for held in &self.held {
            let payload = &self.payloads[held.offset..held.offset + held.len];
            write(&mut run, held, payload)?;
        }
        self.runs
            .push(run.into_inner().map_err(io::IntoInnerError::into_error)?);
        self.held.clear();
        self.payloads.clear();
        Ok(())
    }

    fn merge_into_one(&self, runs: Vec<File>) -> io::Result<File> {
        let mut merge = Merge::new(runs)?;
        let mut run = BufWriter::with_capacity(1 << 20, self.temporary()?);
        while let Some((held, payload)) = merge.next()? {
            write(&mut run, &held, &payload)?;
        }
        run.into_inner().map_err(io::IntoInnerError::into_error)
    }

    /// An unnamed file that is deleted when it is closed.
    fn temporary(&self) -> io::Result<File> {
        match &self.folder {
            Some(folder) => tempfile::tempfile_in(folder),
            None => tempfile::tempfile(),
        }
    }
}

/// Messages in order, one at a time.
pub(super) struct Sorted {
    channels: Channels,
    source: Ordered,
}

enum Ordered {
    InMemory {
        payloads: Bytes,
        held: std::vec::IntoIter<Entry>,
    },
    OnDisk(Merge),
}

impl Sorted {
    pub fn is_on_disk(&self) -> bool {
        matches!(self.source, Ordered::OnDisk(_))
    }

    pub fn next(&mut self) -> io::Result<Option<Message>> {
        let next = match &mut self.source {
            Ordered::InMemory { payloads, held } => held
                .next()
                .map(|held| (held, payloads.slice(held.offset..held.offset + held.len))),
            Ordered::OnDisk(merge) => merge.next()?,
        };
        let Some((held, payload)) = next else {
            return Ok(None);
        };
        let channel = self.channels.all.get(held.channel as usize);
        let channel = channel.ok_or_else(|| damaged("a channel that was never written"))?;
        Ok(Some(Message {
            channel: Arc::clone(channel),
            log_time: held.key.0,
            publish_time: held.publish_time,
            sequence: held.sequence,
            payload,
        }))
    }
}

/// Several sorted runs, read as one. Of each run only the head of the next message is in memory: its payload is read when
/// it is its turn.
struct Merge {
    runs: Vec<BufReader<File>>,
    heads: Vec<Option<Entry>>,
    heap: BinaryHeap<Reverse<(Key, usize)>>,
}

impl Merge {
    fn new(files: Vec<File>) -> io::Result<Self> {
        let mut merge = Merge {
            runs: Vec::new(),
            heads: Vec::new(),
            heap: BinaryHeap::new(),
        };
        for (index, mut file) in files.into_iter().enumerate() {
            file.seek(SeekFrom::Start(0))?;
            merge.runs.push(BufReader::with_capacity(READ_AHEAD, file));
            merge.heads.push(None);
            merge.advance(index)?;
        }
        Ok(merge)
    }

    fn next(&mut self) -> io::Result<Option<(Entry, Bytes)>> {
        let Some(Reverse((_, index))) = self.heap.pop() else {
            return Ok(None);
        };
        let Some(held) = self.heads[index].take() else {
            return Ok(None);
        };
        let payload = read_payload(&mut self.runs[index], held.len)?;
        self.advance(index)?;
        Ok(Some((held, payload)))
    }

    fn advance(&mut self, index: usize) -> io::Result<()> {
        if let Some(held) = read_head(&mut self.runs[index])? {
            self.heap.push(Reverse((held.key, index)));
            self.heads[index] = Some(held);
        }
        Ok(())
    }
}

/// Channels by number.
#[derive(Default)]
struct Channels {
    all: Vec<Arc<Channel>>,
    by_address: HashMap<usize, u32>,
}

impl Channels {
    fn number_of(&mut self, channel: &Arc<Channel>) -> u32 {
        let next = self.all.len() as u32;
        let number = *self
            .by_address
            .entry(Arc::as_ptr(channel) as usize)
            .or_insert(next);
        if number == next {
            self.all.push(Arc::clone(channel));
        }
        number
    }
}

fn write(run: &mut impl Write, held: &Entry, payload: &[u8]) -> io::Result<()> {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(&held.key.0.nanos().to_le_bytes());
    head[8..16].copy_from_slice(&held.key.1.to_le_bytes());
    head[16..24].copy_from_slice(&held.publish_time.nanos().to_le_bytes());
    head[24..28].copy_from_slice(&held.sequence.to_le_bytes());
    head[28..32].copy_from_slice(&held.channel.to_le_bytes());
    head[32..].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    run.write_all(&head)?;
    run.write_all(payload)
}

/// The next message of a run, whose payload follows; `None` at its end.
fn read_head(run: &mut BufReader<File>) -> io::Result<Option<Entry>> {
    use io::BufRead;
    if run.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut head = [0; HEAD_LEN];
    run.read_exact(&mut head)?;
    let mut at = 0;
    let mut word = |len: usize| {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&head[at..at + len]);
        at += len;
        u64::from_le_bytes(bytes)
    };
    let log_time = Stamp::from_nanos(word(8) as i64);
    let order = word(8);
    let publish_time = Stamp::from_nanos(word(8) as i64);
    let (sequence, channel, len) = (word(4) as u32, word(4) as u32, word(8));
    Ok(Some(Entry {
        key: (log_time, order),
        publish_time,
        sequence,
        channel,
        offset: 0,
        len: usize::try_from(len).map_err(io::Error::other)?,
    }))
}

fn read_payload(run: &mut BufReader<File>, len: usize) -> io::Result<Bytes> {
    let mut payload = Vec::new();
    run.take(len as u64).read_to_end(&mut payload)?;
    if payload.len() != len {
        return Err(damaged("it ends early"));
    }
    Ok(payload.into())
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a temporary file was changed by someone else: {what}"),
    )
}
