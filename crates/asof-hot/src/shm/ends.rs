//! The structures that can be shared, and the ends of their segments.

#![allow(clippy::type_complexity)] // the ends' types say all that they are

use core::time::Duration;
use std::string::String;

use super::{Claimed, Mapped, Role, Segment, SegmentLayout, Shared, ShmError};
use crate::broadcast::{Broadcast, BroadcastProducer, BroadcastReader};
use crate::latch::{EventLatch, LatchObserver, LatchResetter, LatchTrigger};
use crate::latest::{Latest, LatestReader, LatestWriter};
use crate::mux::{LockOptions, Mux, MuxDirector, MuxLock, MuxOutput, MuxSource, SourceOptions};
use crate::plain::{Plain, TypeName};
use crate::ring::{Consumer, DropOldest, Policy, Producer, Refuse, Ring};
use crate::snapshot::{Snapshot, SnapshotReader, SnapshotWriter};
use crate::tiles::TileWriter;

/// The layout of a structure `S` of values `T`.
fn layout<S, T: Plain>(kind: u32, counts: [usize; 3]) -> SegmentLayout {
    SegmentLayout {
        kind,
        counts: counts.map(|count| count as u32),
        type_name: T::NAME,
        size: size_of::<T>() as u64,
        align: align_of::<T>() as u64,
        total: size_of::<S>() as u64,
        shape: T::SHAPE,
    }
}

// SAFETY: atomics and plain values in C's layout; zeros are a latest value that was never written.
unsafe impl<T: Plain, const N: usize> Shared for Latest<T, N> {
    type Config = ();
    fn layout() -> SegmentLayout {
        layout::<Self, T>(1, [N, 0, 0])
    }
    unsafe fn init(_place: *mut Self, (): ()) {}
}

impl<T: Plain, const N: usize> Segment<Latest<T, N>> {
    /// The writer.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another is alive.
    pub fn writer(&self) -> Result<LatestWriter<T, N, Claimed<Latest<T, N>>>, ShmError> {
        let claimed = self.claim(Role::WRITER)?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { LatestWriter::attach(claimed) })
    }

    /// A new reader.
    pub fn reader(&self) -> LatestReader<T, N, Mapped<Latest<T, N>>> {
        LatestReader::attach(self.handle())
    }
}

/// The numbers of the policies in a segment's header.
pub trait SharedPolicy: Policy {
    /// 2 for a ring that refuses, 3 for one that drops.
    const KIND: u32;
}

impl SharedPolicy for Refuse {
    const KIND: u32 = 2;
}
impl SharedPolicy for DropOldest {
    const KIND: u32 = 3;
}

// SAFETY: atomics and plain values in C's layout; zeros are a ring that was never used.
unsafe impl<T: Plain, const N: usize, P: SharedPolicy> Shared for Ring<T, N, P>
where
    Ring<T, N, P>: Sync,
{
    type Config = ();
    fn layout() -> SegmentLayout {
        layout::<Self, T>(P::KIND, [N, 0, 0])
    }
    unsafe fn init(_place: *mut Self, (): ()) {}
}

impl<T: Plain, const N: usize, P: SharedPolicy> Segment<Ring<T, N, P>>
where
    Ring<T, N, P>: Sync,
{
    /// The producer.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another is alive.
    pub fn producer(&self) -> Result<Producer<T, N, P, Claimed<Ring<T, N, P>>>, ShmError> {
        let claimed = self.claim(Role::WRITER)?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { Producer::attach(claimed) })
    }

    /// The consumer.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another is alive.
    pub fn consumer(&self) -> Result<Consumer<T, N, P, Claimed<Ring<T, N, P>>>, ShmError> {
        let claimed = self.claim(Role::READER)?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { Consumer::attach(claimed) })
    }
}

// SAFETY: atomics and plain values in C's layout; zeros are a ring that was never used.
unsafe impl<T: Plain, const N: usize, const R: usize> Shared for Broadcast<T, N, R> {
    type Config = ();
    fn layout() -> SegmentLayout {
        layout::<Self, T>(7, [N, R, 0])
    }
    unsafe fn init(_place: *mut Self, (): ()) {}
}

impl<T: Plain, const N: usize, const R: usize> Segment<Broadcast<T, N, R>> {
    /// The producer.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another is alive.
    pub fn producer(
        &self,
    ) -> Result<BroadcastProducer<T, N, R, Claimed<Broadcast<T, N, R>>>, ShmError> {
        let claimed = self.claim(Role::WRITER)?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { BroadcastProducer::attach(claimed) })
    }

    /// The reader with this number, counted from 0.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another with this number is alive, [`ShmError::NoSuchEnd`].
    pub fn reader(
        &self,
        number: usize,
    ) -> Result<BroadcastReader<T, N, R, Claimed<Broadcast<T, N, R>>>, ShmError> {
        if number >= R {
            return Err(ShmError::NoSuchEnd { number, count: R });
        }
        let claimed = self.claim(Role::reader(number))?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { BroadcastReader::attach(claimed, number) })
    }
}

// SAFETY: atomics and plain values in C's layout; zeros are a snapshot that was never published.
unsafe impl<T: Plain, const R: usize> Shared for Snapshot<T, R> {
    type Config = ();
    fn layout() -> SegmentLayout {
        layout::<Self, T>(4, [R, 0, 0])
    }
    unsafe fn init(_place: *mut Self, (): ()) {}
}

impl<T: Plain, const R: usize> Segment<Snapshot<T, R>> {
    /// The writer.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another is alive.
    pub fn writer(&self) -> Result<SnapshotWriter<T, R, Claimed<Snapshot<T, R>>>, ShmError> {
        let claimed = self.claim(Role::WRITER)?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { SnapshotWriter::attach(claimed) })
    }

    /// The writer, by tiles of `tile` cells: an edit costs only the tiles that it touches, whereas
    /// [`SnapshotWriter::edit`] copies the entire value. For values that are arrays of cells, such as `[u8; 1 << 20]`,
    /// or contain one (`AsRef`, `AsMut`).
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another lives, [`ShmError::Invalid`] if a tile has no cell.
    pub fn tile_writer<C: Plain>(
        &self,
        tile: usize,
    ) -> Result<TileWriter<C, R, T, Claimed<Snapshot<T, R>>>, ShmError>
    where
        T: AsRef<[C]> + AsMut<[C]>,
    {
        if tile == 0 {
            return Err(ShmError::Invalid("a tile needs at least one cell".into()));
        }
        Ok(TileWriter::over(self.writer()?, tile))
    }

    /// The reader with this number, counted from 0.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another with this number is alive, [`ShmError::NoSuchEnd`].
    pub fn reader(
        &self,
        number: usize,
    ) -> Result<SnapshotReader<T, R, Claimed<Snapshot<T, R>>>, ShmError> {
        if number >= R {
            return Err(ShmError::NoSuchEnd { number, count: R });
        }
        let claimed = self.claim(Role::reader(number))?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { SnapshotReader::attach(claimed, number) })
    }
}

// SAFETY: atomics and plain values in C's layout.
unsafe impl<T: Plain, const S: usize, const K: usize> Shared for Mux<T, S, K> {
    type Config = ([SourceOptions; S], [LockOptions; K]);
    fn layout() -> SegmentLayout {
        layout::<Self, T>(5, [S, K, 0])
    }
    unsafe fn init(place: *mut Self, (sources, locks): Self::Config) {
        // SAFETY: upheld by the caller.
        unsafe { place.write(Mux::new(sources, locks)) }
    }
    fn disagreement(&self, (sources, locks): &Self::Config) -> Option<String> {
        let (made_sources, made_locks) = self.settings();
        disagreement((&made_sources, &made_locks), (sources, locks))
    }
}

/// How the settings of a mux differ.
pub(crate) fn disagreement(
    (made_sources, made_locks): (&[SourceOptions], &[LockOptions]),
    (sources, locks): (&[SourceOptions], &[LockOptions]),
) -> Option<String> {
    for (number, (made, asked)) in made_sources.iter().zip(sources).enumerate() {
        if made != asked {
            let (there, here) = (made.timeout(), asked.timeout());
            return Some(std::format!(
                "source {number} has a timeout of {there:?} there, {here:?} here"
            ));
        }
    }
    for (number, (made, asked)) in made_locks.iter().zip(locks).enumerate() {
        if made.masks() != asked.masks() {
            let (there, here) = (made.masks(), asked.masks());
            return Some(std::format!(
                "lock {number} masks {there} sources there, {here} here"
            ));
        }
        if made != asked {
            let (there, here) = (span(made.heartbeat()), span(asked.heartbeat()));
            return Some(std::format!(
                "lock {number} has a heartbeat of {there} there, {here} here"
            ));
        }
    }
    None
}

fn span(span: Option<Duration>) -> String {
    span.map_or_else(|| "none".into(), |span| std::format!("{span:?}"))
}

impl<T: Plain, const S: usize, const K: usize> Segment<Mux<T, S, K>> {
    /// The end of a source, counted from 0.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another of this source is alive, [`ShmError::NoSuchEnd`].
    pub fn source(
        &self,
        number: usize,
    ) -> Result<MuxSource<T, S, K, Claimed<Mux<T, S, K>>>, ShmError> {
        if number >= S {
            return Err(ShmError::NoSuchEnd { number, count: S });
        }
        let claimed = self.claim(Role::source(number))?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { MuxSource::attach(claimed, number) })
    }

    /// The end of a lock, counted from 0.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another of this lock is alive, [`ShmError::NoSuchEnd`].
    pub fn lock(&self, number: usize) -> Result<MuxLock<T, S, K, Claimed<Mux<T, S, K>>>, ShmError> {
        if number >= K {
            return Err(ShmError::NoSuchEnd { number, count: K });
        }
        let claimed = self.claim(Role::lock(number))?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { MuxLock::attach(claimed, number) })
    }

    /// The director.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another is alive.
    pub fn director(&self) -> Result<MuxDirector<T, S, K, Claimed<Mux<T, S, K>>>, ShmError> {
        let claimed = self.claim(Role::DIRECTOR)?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { MuxDirector::attach(claimed) })
    }

    /// Whether the end of a source, counted from 0, is held by a live process.
    pub fn is_source_alive(&self, number: usize) -> bool {
        number < S && self.mapping.is_claimed(Role::source(number))
    }

    /// Whether the end of a lock, counted from 0, is held by a live process.
    pub fn is_lock_alive(&self, number: usize) -> bool {
        number < K && self.mapping.is_claimed(Role::lock(number))
    }

    /// A new reader.
    pub fn output(&self) -> MuxOutput<T, S, K, Mapped<Mux<T, S, K>>> {
        MuxOutput::attach(self.handle())
    }
}

// SAFETY: atomics and plain values in C's layout.
unsafe impl Shared for EventLatch {
    type Config = Option<Duration>;
    fn layout() -> SegmentLayout {
        SegmentLayout {
            type_name: TypeName::new("Event"),
            shape: 0,
            ..layout::<Self, u64>(6, [0; 3])
        }
    }
    unsafe fn init(place: *mut Self, silence: Option<Duration>) {
        // SAFETY: upheld by the caller.
        unsafe { place.write(EventLatch::new(silence)) }
    }
    fn disagreement(&self, silence: &Option<Duration>) -> Option<String> {
        let (there, here) = (self.silence(), EventLatch::new(*silence).silence());
        (there != here).then(|| {
            let (there, here) = (span(there), span(here));
            std::format!("the sensor's heartbeat is {there} there, {here} here")
        })
    }
}

impl Segment<EventLatch> {
    /// The trigger.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another is alive.
    pub fn trigger(&self) -> Result<LatchTrigger<Claimed<EventLatch>>, ShmError> {
        let claimed = self.claim(Role::WRITER)?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { LatchTrigger::attach(claimed) })
    }

    /// The resetter.
    ///
    /// # Errors
    /// [`ShmError::Taken`] while another is alive.
    pub fn resetter(&self) -> Result<LatchResetter<Claimed<EventLatch>>, ShmError> {
        let claimed = self.claim(Role::READER)?;
        // SAFETY: the claim is on this end, so no other is alive.
        Ok(unsafe { LatchResetter::attach(claimed) })
    }

    /// A new observer.
    pub fn observer(&self) -> LatchObserver<Mapped<EventLatch>> {
        LatchObserver::attach(self.handle())
    }
}
