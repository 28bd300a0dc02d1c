//! Rings, each seen as a pipe that takes and gives one scan at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use asof_hot::MonoStamp;
use ringbuf::traits::{Consumer as _, Producer as _, Raw as _, Split};

/// A laser scan: 8 KB.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct Scan(pub [u64; 1024]);

impl Default for Scan {
    fn default() -> Self {
        Scan([0; 1024])
    }
}

pub const SLOTS: usize = 8;

/// Takes a scan if there is room: `fill` writes it, in place where the ring can.
pub trait Sender: Send + 'static {
    fn send(&mut self, fill: impl FnOnce(&mut Scan)) -> bool;
}

/// Gives a scan if there is one: `look` reads it, in place where the ring can.
pub trait Receiver: Send + 'static {
    fn receive(&mut self, look: impl FnOnce(&Scan) -> u64) -> Option<u64>;
}

pub trait Pipe {
    type Sender: Sender;
    type Receiver: Receiver;
    fn new() -> (Self::Sender, Self::Receiver);
}

/// asof's ring; where only the head of a scan is read, only the head is prefetched.
pub struct Asof<const FULL: bool>;

impl<const FULL: bool> Pipe for Asof<FULL> {
    type Sender = asof_hot::Producer<Scan, SLOTS>;
    type Receiver = asof_hot::Consumer<Scan, SLOTS>;
    fn new() -> (Self::Sender, Self::Receiver) {
        let (mut producer, consumer) = asof_hot::ring(Scan::default);
        if !FULL {
            producer.fetch_ahead(size_of::<u64>());
        }
        (producer, consumer)
    }
}

impl Sender for asof_hot::Producer<Scan, SLOTS> {
    #[inline(always)]
    fn send(&mut self, fill: impl FnOnce(&mut Scan)) -> bool {
        let Some(mut slot) = self.try_write() else {
            return false;
        };
        fill(&mut slot);
        slot.commit(MonoStamp(0));
        true
    }
}

impl Receiver for asof_hot::Consumer<Scan, SLOTS> {
    #[inline(always)]
    fn receive(&mut self, look: impl FnOnce(&Scan) -> u64) -> Option<u64> {
        self.try_read().map(|slot| look(&slot))
    }
}

pub struct Rtrb;

impl Pipe for Rtrb {
    type Sender = rtrb::Producer<Scan>;
    type Receiver = rtrb::Consumer<Scan>;
    fn new() -> (Self::Sender, Self::Receiver) {
        rtrb::RingBuffer::new(SLOTS)
    }
}

impl Sender for rtrb::Producer<Scan> {
    #[inline(always)]
    fn send(&mut self, fill: impl FnOnce(&mut Scan)) -> bool {
        let Ok(mut chunk) = self.write_chunk_uninit(1) else {
            return false;
        };
        let place = chunk.as_mut_slices().0[0].as_mut_ptr();
        // SAFETY: `fill` writes the scan in place; any bytes are one, and the slots were filled in the warm-up.
        unsafe {
            fill(&mut *place);
            chunk.commit_all();
        }
        true
    }
}

impl Receiver for rtrb::Consumer<Scan> {
    #[inline(always)]
    fn receive(&mut self, look: impl FnOnce(&Scan) -> u64) -> Option<u64> {
        let chunk = self.read_chunk(1).ok()?;
        let seen = look(&chunk.as_slices().0[0]);
        chunk.commit_all();
        Some(seen)
    }
}

pub struct Ringbuf;

impl Pipe for Ringbuf {
    type Sender = ringbuf::HeapProd<Scan>;
    type Receiver = ringbuf::HeapCons<Scan>;
    fn new() -> (Self::Sender, Self::Receiver) {
        ringbuf::HeapRb::new(SLOTS).split()
    }
}

impl Sender for ringbuf::HeapProd<Scan> {
    #[inline(always)]
    fn send(&mut self, fill: impl FnOnce(&mut Scan)) -> bool {
        let (first, _) = self.vacant_slices_mut();
        let Some(place) = first.first_mut() else {
            return false;
        };
        // SAFETY: `fill` writes the scan in place; any bytes are one.
        unsafe {
            fill(&mut *place.as_mut_ptr());
            self.advance_write_index(1);
        }
        true
    }
}

impl Receiver for ringbuf::HeapCons<Scan> {
    #[inline(always)]
    fn receive(&mut self, look: impl FnOnce(&Scan) -> u64) -> Option<u64> {
        let (first, _) = self.occupied_slices();
        // SAFETY: an occupied slot holds a scan, which is copied out of nothing and needs no dropping.
        unsafe {
            let seen = look(first.first()?.assume_init_ref());
            self.advance_read_index(1);
            Some(seen)
        }
    }
}

pub struct Disruptor;

impl Pipe for Disruptor {
    type Sender = disruptor::SingleProducer<Scan, disruptor::SingleConsumerBarrier>;
    type Receiver = disruptor::EventPoller<Scan, disruptor::SingleProducerBarrier>;
    fn new() -> (Self::Sender, Self::Receiver) {
        let builder = disruptor::build_single_producer(SLOTS, Scan::default, disruptor::BusySpin);
        let (poller, builder) = builder.new_event_poller();
        (builder.build(), poller)
    }
}

impl Sender for disruptor::SingleProducer<Scan, disruptor::SingleConsumerBarrier> {
    #[inline(always)]
    fn send(&mut self, fill: impl FnOnce(&mut Scan)) -> bool {
        use disruptor::Producer;
        self.try_publish(fill).is_ok()
    }
}

impl Receiver for disruptor::EventPoller<Scan, disruptor::SingleProducerBarrier> {
    #[inline(always)]
    fn receive(&mut self, look: impl FnOnce(&Scan) -> u64) -> Option<u64> {
        let mut events = self.take(1).ok()?;
        (&mut events).next().map(look)
    }
}

/// By value: what goes in and out is moved.
pub struct Crossbeam;

impl Pipe for Crossbeam {
    type Sender = Arc<crossbeam_queue::ArrayQueue<Scan>>;
    type Receiver = Arc<crossbeam_queue::ArrayQueue<Scan>>;
    fn new() -> (Self::Sender, Self::Receiver) {
        let queue = Arc::new(crossbeam_queue::ArrayQueue::new(SLOTS));
        (queue.clone(), queue)
    }
}

impl Sender for Arc<crossbeam_queue::ArrayQueue<Scan>> {
    fn send(&mut self, fill: impl FnOnce(&mut Scan)) -> bool {
        if self.is_full() {
            return false;
        }
        let mut scan = Scan::default();
        fill(&mut scan);
        self.push(scan).is_ok()
    }
}

impl Receiver for Arc<crossbeam_queue::ArrayQueue<Scan>> {
    fn receive(&mut self, look: impl FnOnce(&Scan) -> u64) -> Option<u64> {
        self.pop().map(|scan| look(&scan))
    }
}

macro_rules! mutex_pipe {
    ($name:ident, $mutex:ty, $lock:expr) => {
        pub struct $name;

        impl Pipe for $name {
            type Sender = Arc<$mutex>;
            type Receiver = Arc<$mutex>;
            fn new() -> (Self::Sender, Self::Receiver) {
                let queue = Arc::new(<$mutex>::new(VecDeque::with_capacity(SLOTS)));
                (queue.clone(), queue)
            }
        }

        impl Sender for Arc<$mutex> {
            fn send(&mut self, fill: impl FnOnce(&mut Scan)) -> bool {
                if $lock(self).len() == SLOTS {
                    return false;
                }
                let mut scan = Scan::default();
                fill(&mut scan);
                $lock(self).push_back(scan);
                true
            }
        }

        impl Receiver for Arc<$mutex> {
            fn receive(&mut self, look: impl FnOnce(&Scan) -> u64) -> Option<u64> {
                let scan = $lock(self).pop_front()?;
                Some(look(&scan))
            }
        }
    };
}

mutex_pipe!(StdMutex, std::sync::Mutex<VecDeque<Scan>>, lock_std);

fn lock_std(queue: &std::sync::Mutex<VecDeque<Scan>>) -> std::sync::MutexGuard<'_, VecDeque<Scan>> {
    queue
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

mutex_pipe!(
    ParkingLot,
    parking_lot::Mutex<VecDeque<Scan>>,
    lock_parking_lot
);

fn lock_parking_lot(
    queue: &parking_lot::Mutex<VecDeque<Scan>>,
) -> parking_lot::MutexGuard<'_, VecDeque<Scan>> {
    queue.lock()
}
