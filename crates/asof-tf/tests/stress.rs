//! Writers and readers at once. Every transform carries a checksum in its numbers, so a torn one shows.
//!
//! `ASOF_STRESS_SECONDS` makes it run longer.

// Numbers that must come out as they went in are compared as they are.
#![allow(clippy::float_cmp)]

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use asof_core::Stamp;
use asof_tf::{BufferOptions, LookupError, TransformBuffer};
use nalgebra::{Isometry3, Translation3, UnitQuaternion};

fn seconds() -> Duration {
    if cfg!(miri) {
        return Duration::from_millis(1);
    }
    let text = std::env::var("ASOF_STRESS_SECONDS").unwrap_or_default();
    Duration::from_secs_f64(text.parse().unwrap_or(0.5))
}

/// A transform at stamp `n`: everything in it follows from `n` and the writer's salt.
fn marked(n: i64, salt: f64) -> Isometry3<f64> {
    let x = n as f64;
    let angle = (x * 0.001 + salt).sin();
    Isometry3::from_parts(
        Translation3::new(x, 2.0 * x + salt, -3.0 * x - salt),
        UnitQuaternion::from_euler_angles(0.0, 0.0, angle),
    )
}

/// The checksum holds for every sample and for everything on the line between two of one writer.
fn assert_whole(found: &Isometry3<f64>, salt: f64) {
    let t = found.translation.vector;
    assert!((t.y - 2.0 * t.x - salt).abs() < 1e-6, "torn: {t:?}");
    assert!((t.z + 3.0 * t.x + salt).abs() < 1e-6, "torn: {t:?}");
    let q = found.rotation.coords;
    assert!((q.norm() - 1.0).abs() < 1e-9, "torn: {q:?}");
    assert_eq!((q.x, q.y), (0.0, 0.0));
}

#[test]
fn readers_see_whole_transforms_while_one_writes_evicts_and_comes_late() {
    let buffer = TransformBuffer::with_options(BufferOptions::default().count(100));
    let newest = AtomicI64::new(0);
    let is_over = AtomicBool::new(false);
    let (reads, past) = (AtomicU64::new(0), AtomicU64::new(0));
    for n in 0..10 {
        buffer
            .update("a", "b", (n * 10).into(), marked(n * 10, 0.5))
            .expect("good");
        newest.store(n * 10, Ordering::Release);
    }
    std::thread::scope(|scope| {
        let (buffer, newest, is_over, reads, past) = (&buffer, &newest, &is_over, &reads, &past);
        scope.spawn(move || {
            let begin = Instant::now();
            let mut n = 100;
            while begin.elapsed() < seconds() {
                buffer
                    .update("a", "b", n.into(), marked(n, 0.5))
                    .expect("in order");
                newest.store(n, Ordering::Release);
                if n % 70 == 0 {
                    // Late, and again: in place and replaced.
                    let late = n - 25;
                    buffer
                        .update("a", "b", late.into(), marked(late, 0.5))
                        .expect("inside");
                    buffer
                        .update("a", "b", late.into(), marked(late, 0.5))
                        .expect("inside");
                }
                n += 10;
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for reader in 0..2_i64 {
            scope.spawn(move || {
                let mut path = buffer.path("a", "b").expect("known");
                let mut count = 0_i64;
                while !is_over.load(Ordering::Relaxed) || count < 10 {
                    count += 1;
                    let last = newest.load(Ordering::Acquire);
                    let t = last - (count * 7 + reader) % 1200;
                    let found = match count % 3 {
                        0 => path.lookup(t.into()),
                        1 => buffer.lookup("a", "b", t.into()),
                        _ => buffer.lookup_newest("a", "b").map(|newest| newest.isometry),
                    };
                    match found {
                        Ok(found) => assert_whole(&found, 0.5),
                        // Evicted meanwhile, or never there; but never from the future.
                        Err(LookupError::Extrapolation { asked, oldest, .. }) => {
                            assert!(asked < oldest);
                            past.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                reads.fetch_add(count as u64, Ordering::Relaxed);
            });
        }
    });
    assert!(reads.load(Ordering::Relaxed) > past.load(Ordering::Relaxed));
}

#[test]
fn edges_made_meanwhile_do_not_disturb_lookups_elsewhere() {
    let buffer = TransformBuffer::new();
    buffer
        .update_static("root", "mast", marked(1, 0.0))
        .expect("good");
    buffer
        .update_static("mast", "camera", Isometry3::identity())
        .expect("good");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (buffer, is_over) = (&buffer, &is_over);
        scope.spawn(move || {
            let begin = Instant::now();
            let mut n = 0;
            let most = if cfg!(miri) { 5 } else { 20_000 };
            while begin.elapsed() < seconds() && n < most {
                let (parent, child) = (format!("f{}", n / 2), format!("f{}", n + 1));
                buffer
                    .update(&parent, &child, 0.into(), Isometry3::identity())
                    .expect("good");
                n += 1;
            }
            is_over.store(true, Ordering::Relaxed);
        });
        scope.spawn(move || {
            let mut path = buffer.path("root", "camera").expect("known");
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) || count < 10 {
                count += 1;
                assert_whole(&path.lookup(Stamp::EPOCH).expect("static"), 0.0);
                let found = buffer
                    .lookup("root", "camera", Stamp::EPOCH)
                    .expect("static");
                assert_whole(&found, 0.0);
            }
        });
    });
}

#[test]
fn writers_on_different_edges_and_on_one_lose_nothing() {
    let count = if cfg!(miri) { 20 } else { 1_000 };
    let buffer = TransformBuffer::with_options(BufferOptions::unbounded());
    std::thread::scope(|scope| {
        for writer in 0..3_i64 {
            let buffer = &buffer;
            scope.spawn(move || {
                let child = format!("own_{writer}");
                for n in 0..count {
                    buffer
                        .update("root", &child, n.into(), marked(n, 0.0))
                        .expect("good");
                    let t = n * 3 + writer;
                    buffer
                        .update("root", "shared", t.into(), marked(t, 0.0))
                        .expect("good");
                }
            });
        }
    });
    assert_eq!(buffer.stats().samples, 6 * count as u64);
    for t in 0..3 * count {
        let found = buffer
            .lookup("root", "shared", t.into())
            .expect("every stamp is there");
        assert_eq!(found.translation.x, t as f64);
    }
}

#[test]
fn edges_that_take_each_others_memory_keep_their_own_samples() {
    const EDGES: usize = 8;
    // Two chunks are each edge's own; they take the rest from each other.
    let buffer = TransformBuffer::with_options(BufferOptions {
        bytes: Some((2 * EDGES as u64 + 8) * 4096),
        ..BufferOptions::unbounded()
    });
    let names: Vec<String> = (0..EDGES).map(|edge| format!("link_{edge}")).collect();
    let newest: [AtomicI64; EDGES] = std::array::from_fn(|_| AtomicI64::new(0));
    for (edge, name) in names.iter().enumerate() {
        buffer
            .update("root", name, 0.into(), marked(0, edge as f64))
            .expect("good");
    }
    let running = AtomicU64::new(2);
    std::thread::scope(|scope| {
        let (buffer, names, newest, running) = (&buffer, &names, &newest, &running);
        for half in 0..2 {
            scope.spawn(move || {
                let begin = Instant::now();
                let mut n = 1;
                while begin.elapsed() < seconds() || n < 10 {
                    for edge in (half..EDGES).step_by(2) {
                        // Some are written seldom, and all of them come late now and then.
                        if n % (edge as i64 + 1) == 0 {
                            let late = if n % 21 == 0 { edge as i64 + 2 } else { 0 };
                            let stamp = n - late;
                            buffer
                                .update(
                                    "root",
                                    &names[edge],
                                    stamp.into(),
                                    marked(stamp, edge as f64),
                                )
                                .expect("inside");
                            newest[edge].fetch_max(stamp, Ordering::Release);
                        }
                    }
                    n += 1;
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        scope.spawn(move || {
            let mut count = 0_usize;
            while running.load(Ordering::Relaxed) > 0 || count < 10 {
                count += 1;
                let edge = count % EDGES;
                let last = newest[edge].load(Ordering::Acquire);
                let found = buffer.lookup_newest("root", &names[edge]).expect("has one");
                assert!(
                    found
                        .stamps
                        .is_some_and(|stamps| stamps.end.nanos() >= last)
                );
                assert_whole(&found.isometry, edge as f64);
                let t = last - (count as i64 * 7) % 400;
                match buffer.lookup("root", &names[edge], t.into()) {
                    Ok(found) => {
                        assert_whole(&found, edge as f64);
                        assert!((found.translation.x - t as f64).abs() < 1e-6);
                    }
                    Err(LookupError::Extrapolation { asked, oldest, .. }) => {
                        assert!(asked < oldest);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        });
    });
    let stats = buffer.stats();
    assert_eq!(stats.too_old, 0, "{stats:?}");
    for (edge, name) in names.iter().enumerate() {
        let last = newest[edge].load(Ordering::Relaxed);
        let found = buffer.lookup("root", name, last.into()).expect("the last");
        assert_eq!(found.translation.x, last as f64);
        assert_whole(&found, edge as f64);
    }
}
