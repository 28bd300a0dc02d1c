//! What bounds hold, and what nobody has to wait for.

// Numbers that must come out as they went in are compared as they are.
#![allow(clippy::float_cmp)]

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use asof_core::Stamp;
use asof_tf::{BufferOptions, TransformBuffer};
use nalgebra::Isometry3;

fn shift(x: f64) -> Isometry3<f64> {
    Isometry3::translation(x, 0.0, 0.0)
}

fn at(nanos: i64) -> Stamp {
    Stamp::from_nanos(nanos)
}

fn with_budget(bytes: u64) -> TransformBuffer {
    TransformBuffer::with_options(BufferOptions {
        bytes: Some(bytes),
        ..BufferOptions::unbounded()
    })
}

fn seconds() -> Duration {
    if cfg!(miri) {
        return Duration::from_millis(1);
    }
    let text = std::env::var("ASOF_STRESS_SECONDS").unwrap_or_default();
    Duration::from_secs_f64(text.parse().unwrap_or(0.5))
}

#[test]
fn late_samples_just_behind_the_oldest_stay_within_the_budget() {
    let budget = 64 * 1024;
    for behind in [1, 3, 40] {
        let buffer = with_budget(budget);
        for n in 0..3_000 {
            buffer
                .update("a", "b", at(n * 1_000_000), shift(0.0))
                .expect("good");
        }
        for _ in 0..if cfg!(miri) { 100 } else { 5_000 } {
            let oldest = buffer.edges()[0].range.expect("has samples").start.nanos();
            // Either it gets in or it is refused: it takes no more memory.
            let _ = buffer.update("a", "b", at(oldest + behind * 1_000_000 - 7), shift(0.0));
            let _ = buffer.update("a", "b", at(oldest - 5), shift(0.0));
        }
        let stats = buffer.stats();
        assert!(stats.bytes <= budget + 2 * 4160, "{behind}: {stats:?}");
        assert!(stats.samples > 500, "{behind}: {stats:?}");
        assert!(buffer.lookup("a", "b", at(2_999_000_000)).is_ok());
    }
}

#[test]
fn one_late_sample_in_a_batch_moves_no_others() {
    let buffer = TransformBuffer::with_options(BufferOptions::unbounded());
    let (count, late) = if cfg!(miri) {
        (300, 3)
    } else {
        (100_000, 3_000)
    };
    let samples = (0..count).map(|n| (at(n * 10), shift(n as f64)));
    buffer.extend_edge("a", "b", samples).expect("good");
    // Each would take as long as the whole history is, were it written again.
    for n in 0..late {
        let t = (count - 20 - n % 10) * 10 + 1 + n / 1_000;
        let batch = [(at(t), shift(-1.0))];
        assert_eq!(buffer.extend_edge("a", "b", batch), Ok(0));
        let front = n % 10 * 10 + 1;
        let batch = [(at(front), shift(-2.0))];
        assert_eq!(buffer.extend_edge("a", "b", batch), Ok(0));
        assert_eq!(buffer.lookup("a", "b", at(t)), Ok(shift(-1.0)));
        assert_eq!(buffer.lookup("a", "b", at(front)), Ok(shift(-2.0)));
    }
}

#[test]
fn a_merge_disturbs_no_reader_and_loses_nothing() {
    let buffer = TransformBuffer::with_options(BufferOptions::unbounded());
    let count = if cfg!(miri) { 200 } else { 50_000 };
    let even = (0..count).map(|n| (at(n * 20), shift((n * 20) as f64)));
    buffer.extend_edge("a", "b", even).expect("good");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !is_over.load(Ordering::Relaxed) || n < 10 {
                n += 1;
                let t = n * 7_919 % (count * 20 - 20);
                let found = buffer.lookup("a", "b", at(t)).expect("is covered");
                assert!((found.translation.x - t as f64).abs() < 1e-6);
            }
        });
        // In four parts, each of which goes through all of it.
        for part in 0..4 {
            let odd = (0..count - 1)
                .filter(|n| n % 4 == part)
                .map(|n| (at(n * 20 + 10), shift((n * 20 + 10) as f64)));
            assert_eq!(buffer.extend_edge("a", "b", odd), Ok(0));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(buffer.stats().samples, 2 * count as u64 - 1);
    for n in 0..2 * count - 1 {
        assert_eq!(
            buffer.lookup("a", "b", at(n * 10)),
            Ok(shift((n * 10) as f64))
        );
    }
}

#[test]
fn a_merge_within_a_spent_budget_keeps_the_newest() {
    let budget = 40 * 4160;
    let buffer = with_budget(budget);
    for n in 0..4_000 {
        buffer
            .update("a", "b", at(n * 20), shift((n * 20) as f64))
            .expect("good");
    }
    let odd = (3_000..3_999).map(|n| (at(n * 20 + 10), shift((n * 20 + 10) as f64)));
    buffer.extend_edge("a", "b", odd).expect("good");
    let stats = buffer.stats();
    assert!(stats.bytes <= budget + 2 * 4160, "{stats:?}");
    let oldest = buffer.edges()[0].range.expect("has samples").start.nanos();
    assert!(oldest < 3_200 * 20, "{oldest}");
    for n in (oldest / 10).max(6_001)..7_998 {
        assert_eq!(
            buffer.lookup("a", "b", at(n * 10)),
            Ok(shift((n * 10) as f64))
        );
    }
}

#[test]
fn a_shuffled_batch_of_which_little_is_kept_takes_little() {
    let buffer =
        TransformBuffer::with_options(BufferOptions::default().window(Duration::from_nanos(60)));
    let count = if cfg!(miri) { 5_000 } else { 300_000 };
    let shuffled = (0..count).map(|n| (at(n * 7_919 % count), shift(0.0)));
    let too_old = buffer.extend_edge("a", "b", shuffled).expect("good");
    let stats = buffer.stats();
    assert_eq!((stats.samples, too_old), (61, count as u64 - 61));
    assert!(stats.bytes <= 4 * 4160, "{stats:?}");
}

#[test]
fn the_newest_sample_can_be_asked_for_by_its_stamp_beside_a_fast_writer() {
    let buffer = TransformBuffer::with_options(BufferOptions::unbounded().count(100_000));
    let end = i64::MAX / 2;
    for t in [0, end] {
        buffer
            .update("map", "odom", at(t), shift(1.0))
            .expect("good");
    }
    buffer
        .update("odom", "base", at(0), shift(0.0))
        .expect("good");
    let written = AtomicI64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begin = Instant::now();
            let mut n = 0;
            while begin.elapsed() < seconds() {
                for _ in 0..50 {
                    n += 1;
                    buffer
                        .update("odom", "base", at(n), shift(n as f64))
                        .expect("in order");
                }
                written.store(n, Ordering::Relaxed);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut path = buffer.path("map", "base").expect("known");
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) || count < 10 {
            count += 1;
            let latest = buffer
                .lookup_latest("map", "base")
                .expect("there always is one");
            let stamp = latest.stamp.expect("is dynamic");
            assert_eq!(latest.isometry.translation.x, 1.0 + stamp.nanos() as f64);
            path.lookup_latest().expect("there always is one");
            let newest = buffer.lookup_newest("odom", "base").expect("is there");
            let stamp = newest.stamps.expect("is dynamic").end;
            buffer.lookup("odom", "base", stamp).expect("was there");
        }
    });
}
