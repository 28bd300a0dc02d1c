//! How much memory a load takes at its peak. One test: the whole process is measured.

// To count what is allocated, the allocator has to be replaced.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asof_core::Stamp;
use asof_tf::{BufferOptions, TransformBuffer};
use nalgebra::Isometry3;

/// Counts what is allocated now, and the most that was.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps to what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: it came from `alloc` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn of_a_million_shuffled_samples_only_those_that_are_kept_take_memory() {
    let options = BufferOptions::default().window(Duration::from_nanos(60));
    let buffer = TransformBuffer::with_options(options);
    let count = if cfg!(miri) { 10_000 } else { 1_000_000 };
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let shuffled = (0..count).map(|n| {
        let stamp = Stamp::from_nanos(n * 7_919 % count);
        (stamp, Isometry3::translation(0.0, 0.0, 0.0))
    });
    let too_old = buffer
        .extend_edge("a", "b", shuffled)
        .expect("all are good");
    let peak = MOST.load(Ordering::Relaxed) - before;
    assert_eq!(too_old, count as u64 - 61);
    assert!(peak < 2 << 20, "{peak} bytes at the peak for 61 samples");
}
