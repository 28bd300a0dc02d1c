//! Frames, the edges between them, and their lookup.

mod change;
mod edge;
mod walk;

pub use change::NameError;
pub(crate) use edge::Miss;
pub use edge::{Edge, Extrapolation};
pub(crate) use walk::{AtNewest, AtTime, Stop};

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::authority::Authorities;
use crate::name::{FrameName, Key, strip};
use crate::observe::Observers;
use crate::pool::Pool;
use crate::shelf::{Link, Shelf, Spot, Table};
use crate::sync::locked;
use crate::wait::Waiters;

/// Links to frames in the graph itself.
const QUICK: usize = 256;

/// Frames and edges that an empty buffer has room for.
const INITIAL_CAPACITY: usize = 8;

/// The depth of a removed frame: only its name is left.
const REMOVED: u32 = u32::MAX;

/// The most edges examined to find the one with the oldest samples.
const MAX_EDGES_EXAMINED: usize = 64;

/// A coordinate frame. What lookups need is on its first cache line.
#[repr(C, align(64))]
pub struct Frame {
    /// To its current parent.
    pub(crate) edge: Link<Edge>,
    /// The number of edges up to the root, if the graph [is in order](Graph::is_in_order).
    pub(crate) depth: AtomicU32,
    pub(crate) id: u32,
    key: Key,
    /// The number of its current children. For holders of the change lock.
    children: AtomicU32,
    pub(crate) name: FrameName,
}

impl Frame {
    #[inline(always)]
    #[allow(clippy::inline_always)] // Used by every lookup.
    pub(crate) fn is_there(&self) -> bool {
        self.depth.load(Ordering::Relaxed) != REMOVED
    }

    /// Whether it has children now. For holders of the change lock.
    pub(crate) fn has_children(&self) -> bool {
        self.children.load(Ordering::Relaxed) > 0
    }
}

/// A buffer's frames and edges.
pub struct Graph {
    pub(crate) id: u32,
    pub(crate) frames: Shelf<Frame>,
    pub(crate) edges: Shelf<Edge>,
    pub(crate) pool: Pool,
    tables: Shelf<Table<Frame>>,
    /// The first frame for each low byte of the hash: most names are found here, with one load less.
    quick: [Link<Frame>; QUICK],
    /// By hash of the name, probed linearly, at most half full.
    names: Link<Table<Frame>>,
    /// By number.
    numbers: Link<Table<Frame>>,
    /// Where the search for the oldest samples continues.
    hand: AtomicUsize,
    /// Even; odd while edges are being changed. Also counts changes of static poses.
    epoch: AtomicU64,
    /// The number of reasons that keep lookups from the fast path; see [`Graph::is_in_order`].
    disorder: AtomicUsize,
    /// Whether depths have to be recomputed.
    is_stale: AtomicBool,
    change: Mutex<State>,
    max_frames: usize,
    pub(crate) waiters: Waiters,
    pub(crate) observers: Observers,
    pub(crate) authorities: Mutex<Authorities>,
}

/// State of the holder of the change lock.
#[derive(Default)]
pub struct State {
    /// Frames that were ever made.
    made: u32,
    /// Frames that exist now.
    there: usize,
    /// Edges with samples of several parents.
    mixed: usize,
    is_cyclic: bool,
    /// Edges that are no longer used by a frame.
    spare: Vec<Spot<Edge>>,
}

/// The right to change the tree.
pub type Change<'a> = MutexGuard<'a, State>;

impl Graph {
    pub(crate) fn new(id: u32, budget: u64, max_frames: usize) -> Self {
        let tables = Shelf::with_places(4);
        Graph {
            id,
            frames: Shelf::with_places(INITIAL_CAPACITY),
            edges: Shelf::with_places(INITIAL_CAPACITY),
            pool: Pool::new(budget),
            quick: std::array::from_fn(|_| Link::empty()),
            names: Link::holding(tables.put(Table::new(4 * INITIAL_CAPACITY))),
            numbers: Link::holding(tables.put(Table::new(INITIAL_CAPACITY))),
            tables,
            hand: AtomicUsize::new(0),
            epoch: AtomicU64::new(0),
            disorder: AtomicUsize::new(0),
            is_stale: AtomicBool::new(false),
            change: Mutex::new(State::default()),
            max_frames: max_frames.min(u32::MAX as usize),
            waiters: Waiters::default(),
            observers: Observers::default(),
            authorities: Mutex::default(),
        }
    }

    /// The frame with this name; one leading slash is ignored.
    #[inline(always)]
    #[allow(clippy::inline_always)] // Used by every lookup.
    pub(crate) fn find(&self, name: &str) -> Option<&Frame> {
        let bytes = name.as_bytes();
        // A branch, so that nothing waits for the load of the first byte.
        if bytes.first() == Some(&b'/') {
            return self.find_with_slash(name);
        }
        let key = Key::of(bytes);
        // Every frame has a link here, unless another took it first: without a link, the frame is new.
        let spot = self.quick[key.hash() as usize % QUICK].load(Ordering::Acquire)?;
        let frame = self.frames.at(spot);
        if frame.key == key && key.is_whole() {
            return frame.is_there().then_some(frame);
        }
        self.find_keyed(bytes, key).filter(|frame| frame.is_there())
    }

    #[cold]
    #[inline(never)]
    fn find_with_slash(&self, name: &str) -> Option<&Frame> {
        let bytes = strip(name).as_bytes();
        self.find_keyed(bytes, Key::of(bytes))
            .filter(|frame| frame.is_there())
    }

    /// The frame with this name, also if it was removed.
    #[inline(never)]
    fn find_keyed(&self, bytes: &[u8], key: Key) -> Option<&Frame> {
        let hash = key.hash();
        let is_it = |frame: &Frame| frame.key == key && frame.name.bytes() == bytes;
        if let Some(spot) = self.quick[hash as usize % QUICK].load(Ordering::Acquire)
            && is_it(self.frames.at(spot))
        {
            return Some(self.frames.at(spot));
        }
        let table = self.tables.at(self.names.load(Ordering::Acquire)?);
        let mut at = hash;
        loop {
            let frame = self.frames.at(table.link(at).load(Ordering::Acquire)?);
            if is_it(frame) {
                return Some(frame);
            }
            at = at.wrapping_add(1);
        }
    }

    /// The frame with this number, also if it was removed.
    #[inline]
    pub(crate) fn numbered(&self, number: u32) -> Option<&Frame> {
        let table = self.tables.at(self.numbers.load(Ordering::Acquire)?);
        if number as usize >= table.len() {
            return None;
        }
        let spot = table.link(number.into()).load(Ordering::Acquire)?;
        Some(self.frames.at(spot))
    }

    /// All frames, in the order in which they were first named.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Frame> {
        self.all_made().filter(|frame| frame.is_there())
    }

    /// The same, including removed frames.
    pub(crate) fn all_made(&self) -> impl Iterator<Item = &Frame> {
        (0..).map_while(|number| self.numbered(number))
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // Used by every lookup.
    pub(crate) fn edge_of(&self, frame: &Frame) -> Option<&Edge> {
        Some(self.edges.at(frame.edge.load(Ordering::Acquire)?))
    }

    /// Changes with every change of the tree or of a static pose; odd in the middle of one.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether every edge has one parent for all of its samples, no edges form a cycle, and every depth is
    /// right: then there is one path between two frames at all times, and it is found by depths. Code that
    /// relies on this checks the epoch before and after: it changes whenever this does.
    #[inline]
    pub(crate) fn is_in_order(&self) -> bool {
        self.disorder.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn change(&self) -> Change<'_> {
        locked(&self.change)
    }

    /// When the budget is spent, evicts a chunk of the edge with the oldest samples, if they are before `end`,
    /// so that all edges keep about the same stretch of time. Never waits: an edge that is being written is
    /// skipped, and of many edges only some are examined, others the next time.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(&self, end: i64) {
        let Some(numbers) = self.numbers.load(Ordering::Acquire) else {
            return;
        };
        let frames = self.tables.at(numbers).len();
        let from = self.hand.fetch_add(MAX_EDGES_EXAMINED, Ordering::Relaxed);
        let glances = (0..frames.min(MAX_EDGES_EXAMINED)).map(|i| (from.wrapping_add(i)) % frames);
        let oldest = glances
            .filter_map(|number| self.edge_of(self.numbered(number as u32)?))
            .filter(|edge| !edge.history.is_held())
            .filter_map(|edge| Some((edge.history.oldest_end(&self.pool)?, edge)))
            .filter(|(oldest, _)| *oldest < end)
            .min_by_key(|(oldest, _)| *oldest);
        if let Some((_, edge)) = oldest
            && let Some(held) = edge.history.try_hold()
        {
            edge.history.give_up_chunk(&held, &self.pool);
        }
    }
}
