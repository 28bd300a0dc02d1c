//! Lock-free buffers for a robot's hot path.
//!
//! Seven structures for the data between the threads of a robot, or between its processes. Each has separate writing
//! and reading ends, enforced by types. None of them ever blocks, or allocates after construction. Lost samples are
//! counted, and every value comes with its age. One rule holds for all: *a reader's result never depends on a writer
//! making progress*, so a writer that stalls or dies stops no one else.
//!
//! | structure | for | made by |
//! |---|---|---|
//! | [`Ring`] | every sample in order, in place (laser scans) | [`ring`], [`ring_drop_oldest`] |
//! | [`Broadcast`] | the same for several readers, each at its own position | [`broadcast`] |
//! | [`Latest`] | the newest small value, many readers (odometry) | [`latest`] |
//! | [`Snapshot`] | the newest large value, in place (maps, images) | [`snapshot`], [`tile_map`], [`triple_buffer`] |
//! | [`Mux`] | commands from several sources by priority, with a deadman | [`mux`] |
//! | [`EventLatch`] | events that must not be missed (bumpers) | [`event_latch`] |
//!
//! ```
//! use asof_hot::{latest, MonoStamp};
//!
//! asof_hot::plain! {
//!     /// The pose of the robot.
//!     #[derive(Debug, PartialEq)]
//!     struct Pose { x: f64, y: f64, yaw: f64 }
//! }
//!
//! # fn main() {
//! let (mut odometry, navigation) = latest::<Pose, 8>();
//! let writer = std::thread::spawn(move || {
//!     odometry.write(&Pose { x: 1.0, y: 0.0, yaw: 0.0 }, MonoStamp::now());
//! });
//! writer.join().unwrap();
//!
//! let pose = navigation.read().expect("a pose was written");
//! assert_eq!(pose.value.x, 1.0);
//! assert!(pose.age(MonoStamp::now()).as_secs() < 60);
//! # }
//! ```
//!
//! # Features
//! Without features the crate is `no_std` and allocates nothing: the structures are in a [`StaticPlace`] or borrowed
//! ([`Latest::split`]). `alloc` adds ends that share an `Arc`, `std` a clock and waiting, `shm` (the default) named
//! shared memory, `ffi` the C interface. On processors without 64-bit atomics, counters are 32 bits wide.

#![no_std]

#[cfg(any(feature = "alloc", test))]
extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

#[cfg(target_has_atomic = "64")]
mod broadcast;
mod claim;
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
mod event_fd;
#[cfg(all(
    feature = "ffi",
    target_os = "linux",
    target_has_atomic = "64",
    not(loom)
))]
pub mod ffi;
mod handle;
mod latch;
mod latest;
mod mux;
#[cfg_attr(feature = "mutations", doc(hidden), allow(missing_docs))]
pub mod order;
mod plain;
mod ring;
#[cfg(all(
    feature = "shm",
    target_os = "linux",
    target_has_atomic = "64",
    not(loom)
))]
pub mod shm;
mod snapshot;
mod stamp;
mod stamp_cell;
mod steps;
mod sync;
#[cfg(feature = "alloc")]
mod tiles;
#[cfg(all(feature = "std", target_os = "linux"))]
mod wait;
mod words;

#[cfg(all(feature = "alloc", target_has_atomic = "64"))]
pub use broadcast::broadcast;
#[cfg(target_has_atomic = "64")]
pub use broadcast::{Broadcast, BroadcastGuard, BroadcastProducer, BroadcastReader, BroadcastSlot};
#[cfg(all(feature = "std", target_os = "linux", not(loom)))]
pub use event_fd::{EventFd, Relay};
pub use handle::{Handle, Owned, StaticPlace};
#[cfg(feature = "alloc")]
pub use latch::event_latch;
pub use latch::{
    Contact, EventLatch, LatchObserver, LatchResetter, LatchState, LatchTrigger, NewEvents,
};
#[cfg(feature = "alloc")]
pub use latest::latest;
pub use latest::{Latest, LatestReader, LatestWriter, Outrun};
#[cfg(feature = "alloc")]
pub use mux::mux;
pub use mux::{
    Command, LockOptions, Mux, MuxDirector, MuxEnds, MuxLock, MuxOutput, MuxSource, SourceOptions,
    Stop,
};
#[doc(hidden)]
pub use plain::Shape;
pub use plain::{Plain, TypeName};
pub use ring::{
    Consumer, DropOldest, Policy, Producer, ReadBatch, ReadSlot, Refuse, Ring, WriteBatch,
    WriteSlot,
};
#[cfg(feature = "alloc")]
pub use ring::{ring, ring_drop_oldest};
pub use snapshot::{Snapshot, SnapshotGuard, SnapshotReader, SnapshotWriter};
#[cfg(feature = "alloc")]
pub use snapshot::{snapshot, triple_buffer};
pub use stamp::{Meta, MonoStamp, Reading};
#[cfg(feature = "alloc")]
pub use tiles::{TileWriter, tile_map};
#[cfg(all(feature = "std", target_os = "linux", loom))]
pub use wait::Kernel;
#[cfg(all(feature = "std", target_os = "linux"))]
pub use wait::{Notifier, Signal, Sleeper, signal};

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
