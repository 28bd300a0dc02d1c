//! The latest value, large: filled and read in place, never changing under a reader.
//!
//! Each reader has a mailbox, one word, that says which buffer is there for it and which one it holds. Publishing
//! puts the new buffer into every mailbox; a reader takes it with one exchange and is never asked to hurry: with R
//! readers there are R+2 buffers, so the writer always finds one that nobody has.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Deref;

use crate::handle::{Handle, Owned};
use crate::order;
use crate::stamp::{Meta, Stamp};
use crate::steps::{Steps, Whole};
use crate::sync::{AtomicMark, ConstPtr, Ordering, Padded, Place, Word};
use crate::words::fetch_for_writing;

/// The memory of a large value for R readers.
#[repr(C)]
pub struct Snapshot<T, const R: usize = 1> {
    mailboxes: [Padded<AtomicMark>; R],
    buffers: Buffers<T, R>,
}

#[repr(C)]
struct Buffers<T, const R: usize> {
    one_each: [Buffer<T>; R],
    and_two: [Buffer<T>; 2],
}

/// Invariant: a buffer that a mailbox names, as offered or as held, is not written.
#[repr(C, align(128))]
struct Buffer<T> {
    frame: Place<Frame<T>>,
}

#[repr(C)]
struct Frame<T> {
    generation: u64,
    stamp: Stamp,
    value: T,
}

/// Makes a large value for R readers, with `init` making the contents of each of its R+2 buffers.
///
/// ```
/// use asof_hot::{snapshot, Stamp};
///
/// let (mut writer, [mut planner, mut display]) = snapshot::<Vec<u8>, 2>(|| vec![0; 1 << 20]);
/// writer.back()[7] = 100;
/// writer.publish(Stamp(50));
///
/// assert!(planner.has_new());
/// let map = planner.latest();
/// assert_eq!(map[7], 100);
///
/// writer.edit()[8] = 50; // starts from what was published last
/// writer.publish(Stamp(60));
/// assert_eq!(map[8], 0, "a map that is being read does not change");
/// assert_eq!(display.latest()[7..9], [100, 50]);
/// ```
#[cfg(feature = "alloc")]
pub fn snapshot<T: Send + Sync, const R: usize>(
    init: impl FnMut() -> T,
) -> (SnapshotWriter<T, R>, [SnapshotReader<T, R>; R]) {
    let mut memory = Owned::<Snapshot<T, R>>::new_uninit();
    let place = Owned::get_mut(&mut memory).map_or(core::ptr::null_mut(), MaybeUninit::as_mut_ptr);
    // SAFETY: the allocation is new, so `get_mut` found it unshared and the place is valid; it is filled before use.
    let memory = unsafe {
        Snapshot::init(place, init);
        memory.assume_init()
    };
    // SAFETY: the memory is new, so these are its only ends.
    unsafe {
        (
            SnapshotWriter::attach(memory.clone()),
            core::array::from_fn(|reader| SnapshotReader::attach(memory.clone(), reader)),
        )
    }
}

/// Makes a triple buffer: a large value with one reader, for those who want the newest frame only.
///
/// ```
/// use asof_hot::{triple_buffer, Stamp};
///
/// let (mut input, mut output) = triple_buffer(|| [0u8; 64]);
/// for frame in 1..=2 {
///     input.back().fill(frame);
///     input.publish(Stamp(frame.into()));
/// }
/// assert_eq!(output.latest()[0], 2);
/// assert_eq!(output.latest()[0], 2, "and 2 again: it never goes back to an older one");
/// ```
#[cfg(feature = "alloc")]
pub fn triple_buffer<T: Send + Sync>(
    init: impl FnMut() -> T,
) -> (SnapshotWriter<T, 1>, SnapshotReader<T, 1>) {
    let (writer, [reader]) = snapshot(init);
    (writer, reader)
}

/// What a mailbox says: the buffer that is offered to its reader, whether that was taken, and which buffer the reader
/// holds if it was not.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mail(Word);

impl Mail {
    const FRESH: Word = 1 << 31;

    #[inline(always)]
    const fn new(offered: usize, held: usize, is_fresh: bool) -> Self {
        Mail(offered as Word | (held as Word) << 15 | (is_fresh as Word) << 31)
    }
    #[inline(always)]
    const fn offered(self) -> usize {
        (self.0 & 0x7fff) as usize
    }
    #[inline(always)]
    const fn is_fresh(self) -> bool {
        self.0 & Self::FRESH != 0
    }
    /// The buffer that the reader has.
    #[inline(always)]
    const fn in_hand(self) -> usize {
        if self.is_fresh() {
            (self.0 >> 15 & 0x7fff) as usize
        } else {
            self.offered()
        }
    }
}

impl<T: Send + Sync, const R: usize> Snapshot<T, R> {
    /// A snapshot on the spot, to be [`split`](Self::split); `init` makes the contents of each buffer.
    pub fn new(init: impl FnMut() -> T) -> Self {
        let mut snapshot = MaybeUninit::uninit();
        // SAFETY: there is room for a snapshot; it is filled before it is used.
        unsafe {
            Snapshot::init(snapshot.as_mut_ptr(), init);
            snapshot.assume_init()
        }
    }

    /// The ends, for as long as this is borrowed.
    pub fn split(
        &mut self,
    ) -> (
        SnapshotWriter<T, R, &Self>,
        [SnapshotReader<T, R, &Self>; R],
    ) {
        let this = &*self;
        // SAFETY: borrowed for changing, so no other end is alive.
        unsafe {
            (
                SnapshotWriter::attach(this),
                core::array::from_fn(|reader| SnapshotReader::attach(this, reader)),
            )
        }
    }

    /// Fills a snapshot in place: the buffers are too large to go over the stack.
    ///
    /// # Safety
    /// `place` is valid for writing a snapshot.
    pub(crate) unsafe fn init(place: *mut Self, mut init: impl FnMut() -> T) {
        const { assert!(R >= 1 && R < 1000, "from 1 to 999 readers") };
        // SAFETY: every field of the place is written once, each buffer within the buffers.
        unsafe {
            for reader in 0..R {
                (&raw mut (*place).mailboxes)
                    .cast::<Padded<AtomicMark>>()
                    .add(reader)
                    .write(Padded(AtomicMark::new(Mail::new(0, 0, false).0)));
            }
            for buffer in 0..R + 2 {
                (&raw mut (*place).buffers)
                    .cast::<Buffer<T>>()
                    .add(buffer)
                    .write(Buffer {
                        frame: Place::new(Frame {
                            generation: 0,
                            stamp: Stamp(0),
                            value: init(),
                        }),
                    });
            }
        }
    }

    #[inline(always)]
    fn frame(&self, buffer: usize) -> &Place<Frame<T>> {
        debug_assert!(buffer < R + 2);
        let buffers = (&raw const self.buffers).cast::<Buffer<T>>();
        // SAFETY: the buffers lie side by side, as their layout is C's; the number is one of them.
        unsafe { &(*buffers.add(buffer)).frame }
    }

    /// A mailbox's contents with buffer numbers that exist, whatever another process has put there.
    #[inline(always)]
    fn existing(buffer: usize) -> usize {
        if buffer < R + 2 { buffer } else { 0 }
    }
}

/// The end that writes. There is one.
pub struct SnapshotWriter<T, const R: usize = 1, H = Owned<Snapshot<T, R>>> {
    memory: H,
    /// The buffer that was published last.
    front: usize,
    /// The buffer that nobody else has.
    back: usize,
    generation: u64,
    /// What each mailbox held when it was last looked at; its reader may have taken the offer since.
    known: [Mail; R],
    _type: PhantomData<T>,
}

impl<T: Send + Sync, const R: usize, H: Handle<Target = Snapshot<T, R>>> SnapshotWriter<T, R, H> {
    /// Becomes the writer; finishes what the last one had begun to publish.
    ///
    /// # Safety
    /// No other writer of this memory is alive.
    pub unsafe fn attach(memory: H) -> Self {
        let known: [Mail; R] =
            core::array::from_fn(|reader| Mail(memory.mailboxes[reader].load(Ordering::Acquire)));
        let mut writer = SnapshotWriter {
            front: 0,
            back: 0,
            generation: 0,
            known,
            memory,
            _type: PhantomData,
        };
        for mail in known {
            let buffer = Snapshot::<T, R>::existing(mail.offered());
            let generation = writer.generation_of(buffer);
            if generation >= writer.generation {
                (writer.front, writer.generation) = (buffer, generation);
            }
        }
        writer.offer_to_all(writer.front, &mut Whole);
        writer.back = writer.unused();
        writer
    }

    /// The back buffer, to fill in place. It holds some older value, or what was written here since the last
    /// [`publish`](Self::publish).
    #[inline(always)]
    pub fn back(&mut self) -> &mut T {
        let frame = self.memory.frame(self.back).get_mut();
        // SAFETY: no mailbox names the back buffer, so it is ours; `self` is borrowed for as long as the reference.
        unsafe { &mut *(&raw mut frame.deref().value) }
    }

    /// The back buffer, made equal to what was published last, to be changed in part.
    pub fn edit(&mut self) -> &mut T
    where
        T: Clone,
    {
        let frame = self.memory.frame(self.back).get_mut();
        let front = self.memory.frame(self.front).get();
        // SAFETY: the back buffer is ours, and nobody writes the front one.
        unsafe { frame.deref().value.clone_from(&front.deref().value) };
        drop((frame, front));
        self.back()
    }

    /// What was published last.
    pub fn front(&self) -> &T {
        let frame = self.memory.frame(self.front).get();
        // SAFETY: nobody writes the front buffer, and it stays the front one as long as `self` is borrowed.
        unsafe { &*(&raw const frame.deref().value) }
    }

    /// Gives the back buffer to all readers, and takes another one that nobody has.
    #[inline(always)]
    pub fn publish(&mut self, stamp: Stamp) {
        self.publish_steps(stamp, &mut Whole);
    }

    /// Publishes but dies after so many steps, as a process can; for the models.
    #[cfg(loom)]
    pub fn publish_and_die(mut self, stamp: Stamp, steps: usize) {
        self.publish_steps(stamp, &mut crate::steps::DiesAfter(steps));
    }

    /// How many values were published.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The number of the back buffer, from 0 to R+1.
    #[cfg(feature = "alloc")]
    pub(crate) fn back_number(&self) -> usize {
        self.back
    }

    /// Both buffers: the one published last, and the back one.
    #[cfg(feature = "alloc")]
    pub(crate) fn front_and_back(&mut self) -> (&T, &mut T) {
        let front = self.memory.frame(self.front).get();
        let back = self.memory.frame(self.back).get_mut();
        // SAFETY: as in `front` and `back`; they are different buffers.
        unsafe {
            (
                &*(&raw const front.deref().value),
                &mut *(&raw mut back.deref().value),
            )
        }
    }

    #[inline(always)]
    fn publish_steps(&mut self, stamp: Stamp, steps: &mut impl Steps) {
        self.generation += 1;
        let frame = self.memory.frame(self.back).get_mut();
        // SAFETY: no mailbox names the back buffer, so it is ours.
        unsafe {
            frame.deref().generation = self.generation;
            frame.deref().stamp = stamp;
        }
        drop(frame);
        self.offer_to_all(self.back, steps);
        self.front = self.back;
        self.back = self.unused();
        fetch_for_writing(self.memory.frame(self.back).address(), 64);
    }

    #[inline(always)]
    fn offer_to_all(&mut self, buffer: usize, steps: &mut impl Steps) {
        for reader in 0..R {
            if steps.stop() {
                return;
            }
            let mailbox = &self.memory.mailboxes[reader];
            // A look and a change would fetch the line twice from the reader's core.
            fetch_for_writing((&raw const *mailbox).cast(), 1);
            let mut found = Mail(mailbox.load(order::snapshot_taken_load()));
            if found.is_fresh() {
                // Its reader may take the last offer this very moment.
                let offer = Mail::new(buffer, found.in_hand(), true);
                let exchanged = mailbox.compare_exchange(
                    found.0,
                    offer.0,
                    order::snapshot_exchange(),
                    order::snapshot_taken_load(),
                );
                match exchanged {
                    Ok(_) => {
                        self.known[reader] = offer;
                        continue;
                    }
                    Err(taken) => found = Mail(taken),
                }
            }
            // A reader leaves its mailbox alone until there is a new offer, so this needs no exchange.
            let offer = Mail::new(buffer, found.in_hand(), true);
            mailbox.store(offer.0, order::snapshot_offer_store());
            self.known[reader] = offer;
        }
    }

    /// A buffer that is not the front one and that no reader can have.
    #[inline(always)]
    fn unused(&self) -> usize {
        if R + 2 <= 64 {
            let mut used = 1u64 << (self.front & 63);
            for mail in self.known {
                used |= 1 << (mail.in_hand() & 63);
            }
            return (!used).trailing_zeros() as usize;
        }
        let mut candidate = 0;
        while candidate == self.front || self.known.iter().any(|mail| mail.in_hand() == candidate) {
            candidate += 1;
        }
        candidate
    }

    fn generation_of(&self, buffer: usize) -> u64 {
        let frame = self.memory.frame(buffer).get();
        // SAFETY: the buffer is named by a mailbox, so nobody writes it.
        unsafe { frame.deref() }.generation
    }
}

/// An end that reads. There are R, each with a mailbox of its own.
pub struct SnapshotReader<T, const R: usize = 1, H = Owned<Snapshot<T, R>>> {
    memory: H,
    reader: usize,
    /// The buffer this reader has.
    held: usize,
    _type: PhantomData<T>,
}

impl<T: Send + Sync, const R: usize, H: Handle<Target = Snapshot<T, R>>> SnapshotReader<T, R, H> {
    /// Becomes the how-manieth reader, from 0 on; goes on with the buffer that the last one held.
    ///
    /// # Panics
    /// If there is no such reader.
    ///
    /// # Safety
    /// No other reader with this number is alive.
    pub unsafe fn attach(memory: H, reader: usize) -> Self {
        assert!(reader < R, "reader {reader} of {R}, counted from 0");
        let mut mail = Mail(memory.mailboxes[reader].load(Ordering::Acquire));
        if mail.is_fresh() {
            // Which buffer is held is only certain once the offer is taken. (Only its reader takes the mark off, so a
            // subtraction does it, which processors do in one piece.)
            mail = Mail(memory.mailboxes[reader].fetch_sub(Mail::FRESH, order::snapshot_take()));
        }
        SnapshotReader {
            held: Snapshot::<T, R>::existing(mail.offered()),
            memory,
            reader,
            _type: PhantomData,
        }
    }

    /// Whether something was published that this reader has not taken yet.
    #[inline(always)]
    pub fn has_new(&self) -> bool {
        Mail(self.memory.mailboxes[self.reader].load(Ordering::Relaxed)).is_fresh()
    }

    /// The newest value, in place. It stays as it is for as long as the guard lives.
    ///
    /// Before the first publication it is what `init` made, of generation 0.
    #[inline(always)]
    pub fn latest(&mut self) -> SnapshotGuard<'_, T> {
        if self.has_new() {
            let mail = Mail(
                self.memory.mailboxes[self.reader].fetch_sub(Mail::FRESH, order::snapshot_take()),
            );
            self.held = Snapshot::<T, R>::existing(mail.offered());
        }
        self.current()
    }

    /// The newest value, if it was not taken yet.
    #[inline(always)]
    pub fn latest_if_new(&mut self) -> Option<SnapshotGuard<'_, T>> {
        self.has_new().then(|| self.latest())
    }

    /// The value that this reader has, whatever was published since.
    #[inline(always)]
    pub fn current(&mut self) -> SnapshotGuard<'_, T> {
        SnapshotGuard {
            frame: self.memory.frame(self.held).get(),
            _reader: PhantomData,
        }
    }
}

/// A large value being read in place.
pub struct SnapshotGuard<'a, T> {
    frame: ConstPtr<Frame<T>>,
    /// The reader takes no other buffer while this one is in use.
    _reader: PhantomData<&'a mut T>,
}

impl<T> SnapshotGuard<'_, T> {
    /// Which publication this is, and when it was made.
    #[inline(always)]
    pub fn meta(&self) -> Meta {
        // SAFETY: the mailbox says that this reader has the buffer, so nobody writes it.
        let frame = unsafe { self.frame.deref() };
        Meta {
            generation: frame.generation,
            stamp: frame.stamp,
        }
    }
}

impl<T> Deref for SnapshotGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the mailbox says that this reader has the buffer, so nobody writes it.
        &unsafe { self.frame.deref() }.value
    }
}
