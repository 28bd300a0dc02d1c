//! The latest value, large: filled and read in place, never changing under a reader.
//!
//! Each reader has a mailbox, one word, that names the buffer offered to it and the one it holds. Publishing puts
//! the new buffer into every mailbox; a reader takes it with one exchange and may keep it as long as it likes: with
//! R readers there are R+2 buffers, so the writer always finds a free one.

mod protocol;

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Deref;

use crate::handle::{Handle, Owned};
use crate::stamp::{Meta, MonoStamp};
use crate::steps::Whole;
use crate::sync::{AtomicMark, ConstPtr, Padded, SharedCell};

pub(crate) use protocol::{Mail, Memory, ReaderState, WriterState};

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
    frame: SharedCell<Frame<T>>,
}

#[repr(C)]
struct Frame<T> {
    generation: u64,
    stamp: MonoStamp,
    value: T,
}

/// Creates a large value for R readers; `init` makes the contents of each of its R+2 buffers.
///
/// ```
/// use asof_hot::{snapshot, MonoStamp};
///
/// let (mut writer, [mut planner, mut display]) = snapshot::<Vec<u8>, 2>(|| vec![0; 1 << 20]);
/// writer.back()[7] = 100;
/// writer.publish(MonoStamp(50));
///
/// assert!(planner.has_new());
/// let map = planner.latest();
/// assert_eq!(map[7], 100);
///
/// writer.edit()[8] = 50; // starts from the last publication
/// writer.publish(MonoStamp(60));
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

/// Creates a triple buffer: a large value with one reader, for the newest frame only.
///
/// ```
/// use asof_hot::{triple_buffer, MonoStamp};
///
/// let (mut input, mut output) = triple_buffer(|| [0u8; 64]);
/// for frame in 1..=2 {
///     input.back().fill(frame);
///     input.publish(MonoStamp(frame.into()));
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

impl<T: Send + Sync, const R: usize> Snapshot<T, R> {
    /// A snapshot by value, to be [`split`](Self::split); `init` makes the contents of each buffer.
    pub fn new(init: impl FnMut() -> T) -> Self {
        let mut snapshot = MaybeUninit::uninit();
        // SAFETY: there is room for a snapshot; it is filled before it is used.
        unsafe {
            Snapshot::init(snapshot.as_mut_ptr(), init);
            snapshot.assume_init()
        }
    }

    /// The ends, which borrow this.
    pub fn split(
        &mut self,
    ) -> (
        SnapshotWriter<T, R, &Self>,
        [SnapshotReader<T, R, &Self>; R],
    ) {
        let this = &*self;
        // SAFETY: borrowed mutably, so no other end is alive.
        unsafe {
            (
                SnapshotWriter::attach(this),
                core::array::from_fn(|reader| SnapshotReader::attach(this, reader)),
            )
        }
    }

    /// Fills a snapshot in place: the buffers are too large for the stack.
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
                    .write(Padded(AtomicMark::new(0)));
            }
            for buffer in 0..R + 2 {
                (&raw mut (*place).buffers)
                    .cast::<Buffer<T>>()
                    .add(buffer)
                    .write(Buffer {
                        frame: SharedCell::new(Frame {
                            generation: 0,
                            stamp: MonoStamp(0),
                            value: init(),
                        }),
                    });
            }
        }
    }

    /// Offsets: the buffers; the size of a buffer, and in it the generation, the stamp and the value.
    #[cfg(all(test, feature = "ffi", not(loom)))]
    pub(crate) fn offsets() -> [usize; 5] {
        use core::mem::offset_of;
        [
            offset_of!(Self, buffers),
            size_of::<Buffer<T>>(),
            offset_of!(Frame<T>, generation),
            offset_of!(Frame<T>, stamp),
            offset_of!(Frame<T>, value),
        ]
    }

    #[inline(always)]
    fn frame(&self, buffer: usize) -> &SharedCell<Frame<T>> {
        debug_assert!(buffer < R + 2);
        let buffers = (&raw const self.buffers).cast::<Buffer<T>>();
        // SAFETY: the buffers are contiguous, as their layout is C's; the number is one of them.
        unsafe { &(*buffers.add(buffer)).frame }
    }
}

impl<T: Send + Sync, const R: usize> Memory for Snapshot<T, R> {
    #[inline(always)]
    fn readers(&self) -> usize {
        R
    }
    #[inline(always)]
    fn mailbox(&self, reader: usize) -> &AtomicMark {
        &self.mailboxes[reader]
    }
    unsafe fn generation_of(&self, buffer: usize) -> u64 {
        let frame = self.frame(buffer).get();
        // SAFETY: upheld by the caller.
        unsafe { frame.deref() }.generation
    }
    #[inline(always)]
    unsafe fn seal(&self, buffer: usize, generation: u64, stamp: MonoStamp) {
        let frame = self.frame(buffer).get_mut();
        // SAFETY: upheld by the caller.
        unsafe {
            frame.deref().generation = generation;
            frame.deref().stamp = stamp;
        }
    }
    #[inline(always)]
    fn address(&self, buffer: usize) -> *const u8 {
        self.frame(buffer).address()
    }
}

/// The writing end. There is one.
pub struct SnapshotWriter<T, const R: usize = 1, H = Owned<Snapshot<T, R>>> {
    memory: H,
    state: WriterState<[Mail; R]>,
    _type: PhantomData<T>,
}

impl<T: Send + Sync, const R: usize, H: Handle<Target = Snapshot<T, R>>> SnapshotWriter<T, R, H> {
    /// Becomes the writer; completes a publication that the last one left unfinished.
    ///
    /// # Safety
    /// No other writer of this memory is alive.
    pub unsafe fn attach(memory: H) -> Self {
        SnapshotWriter {
            state: WriterState::attach(&*memory, [Mail::default(); R]),
            memory,
            _type: PhantomData,
        }
    }

    /// The back buffer, to fill in place. It holds some older value, or what was written here since the last
    /// [`publish`](Self::publish).
    #[inline(always)]
    pub fn back(&mut self) -> &mut T {
        let frame = self.memory.frame(self.state.back).get_mut();
        // SAFETY: no mailbox names the back buffer, so it is ours; `self` is borrowed for as long as the reference.
        unsafe { &mut *(&raw mut frame.deref().value) }
    }

    /// The back buffer as a copy of the last publication, to be changed in part.
    pub fn edit(&mut self) -> &mut T
    where
        T: Clone,
    {
        let frame = self.memory.frame(self.state.back).get_mut();
        let front = self.memory.frame(self.state.front).get();
        // SAFETY: the back buffer is ours, and the front buffer is not written.
        unsafe { frame.deref().value.clone_from(&front.deref().value) };
        drop((frame, front));
        self.back()
    }

    /// The last published value.
    pub fn front(&self) -> &T {
        let frame = self.memory.frame(self.state.front).get();
        // SAFETY: the front buffer is not written, and it stays the front one as long as `self` is borrowed.
        unsafe { &*(&raw const frame.deref().value) }
    }

    /// Gives the back buffer to all readers and takes a free one.
    #[inline(always)]
    pub fn publish(&mut self, stamp: MonoStamp) {
        self.state.publish(&*self.memory, stamp, &mut Whole);
    }

    /// Publishes but dies after `steps` steps, as a process can; for the models.
    #[cfg(loom)]
    pub fn publish_and_die(mut self, stamp: MonoStamp, steps: usize) {
        self.state
            .publish(&*self.memory, stamp, &mut crate::steps::DiesAfter(steps));
    }

    /// The number of values published.
    pub fn generation(&self) -> u64 {
        self.state.generation
    }

    /// The number of the back buffer, from 0 to R+1.
    #[cfg(feature = "alloc")]
    pub(crate) fn back_number(&self) -> usize {
        self.state.back
    }

    /// The number of the last published buffer.
    #[cfg(feature = "alloc")]
    pub(crate) fn front_number(&self) -> usize {
        self.state.front
    }

    /// Both buffers: the one published last, and the back one.
    #[cfg(feature = "alloc")]
    pub(crate) fn front_and_back(&mut self) -> (&T, &mut T) {
        let front = self.memory.frame(self.state.front).get();
        let back = self.memory.frame(self.state.back).get_mut();
        // SAFETY: as in `front` and `back`; they are different buffers.
        unsafe {
            (
                &*(&raw const front.deref().value),
                &mut *(&raw mut back.deref().value),
            )
        }
    }
}

/// A reading end. There are R, each with its own mailbox.
pub struct SnapshotReader<T, const R: usize = 1, H = Owned<Snapshot<T, R>>> {
    memory: H,
    state: ReaderState,
    _type: PhantomData<T>,
}

impl<T: Send + Sync, const R: usize, H: Handle<Target = Snapshot<T, R>>> SnapshotReader<T, R, H> {
    /// Becomes the reader with this number, counted from 0; continues with the buffer that the last one held.
    ///
    /// # Panics
    /// If there is no such reader.
    ///
    /// # Safety
    /// No other reader with this number is alive.
    pub unsafe fn attach(memory: H, reader: usize) -> Self {
        assert!(reader < R, "reader {reader} of {R}, counted from 0");
        SnapshotReader {
            state: ReaderState::attach(&*memory, reader),
            memory,
            _type: PhantomData,
        }
    }

    /// Whether there is a publication that this reader has not taken yet.
    #[inline(always)]
    pub fn has_new(&self) -> bool {
        self.state.has_new(&*self.memory)
    }

    /// The newest value, in place. It does not change while the guard is alive.
    ///
    /// Before the first publication it is the result of `init`, with generation 0.
    #[inline(always)]
    pub fn latest(&mut self) -> SnapshotGuard<'_, T> {
        self.state.take_newest(&*self.memory);
        self.current()
    }

    /// The newest value, if it was not taken yet.
    #[inline(always)]
    pub fn latest_if_new(&mut self) -> Option<SnapshotGuard<'_, T>> {
        self.has_new().then(|| self.latest())
    }

    /// The value that this reader holds, whatever was published since.
    #[inline(always)]
    pub fn current(&mut self) -> SnapshotGuard<'_, T> {
        SnapshotGuard {
            frame: self.memory.frame(self.state.held).get(),
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
        // SAFETY: by the mailbox this reader has the buffer, so it is not written.
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
        // SAFETY: by the mailbox this reader has the buffer, so it is not written.
        &unsafe { self.frame.deref() }.value
    }
}
