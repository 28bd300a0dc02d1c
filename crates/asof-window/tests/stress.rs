//! Writers and readers at once. Quick by default; `ASOF_SOAK=1` runs ten million inserts.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use asof_core::Stamp;
use asof_window::{Bounds, Window};

/// A message that knows its own stamp, and how many of its kind are alive.
struct Counted<'a> {
    stamp: i64,
    alive: &'a AtomicI64,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn check_readers(window: &Window<Counted<'_>>, stop: &AtomicBool, seed: u64) -> u64 {
    let mut random = Random(seed);
    let mut asked = 0;
    while !stop.load(Ordering::Relaxed) {
        let newest = window.newest_stamp().map_or(0, Stamp::nanos);
        let t = newest - random.below(6_000) as i64;
        for entry in [window.before(t.into()), window.nearest(t.into())]
            .into_iter()
            .flatten()
        {
            assert_eq!(entry.stamp.nanos(), entry.value.stamp);
        }
        let view = window.view(t.into(), (t + 1_000).into());
        let mut last = i64::MIN;
        view.for_each(|stamp, message| {
            assert_eq!(stamp.nanos(), message.stamp);
            assert!(last <= message.stamp && t <= message.stamp && message.stamp <= t + 1_000);
            last = message.stamp;
        });
        assert!(window.latest(40).is_sorted_by_key(|entry| entry.stamp));
        asked += 1;
    }
    asked
}

/// Bounds of any kind, around `count` messages that are 4 ns apart.
fn random_bounds(random: &mut Random, count: usize) -> Bounds {
    let count = 1 + random.below(2 * count as u64);
    let size = size_of::<Counted<'_>>() as u64;
    match random.below(4) {
        0 => Bounds::age(Duration::from_nanos(4 * count)),
        1 => Bounds::bytes(size * count),
        2 => Bounds::count(count as usize).and_age(Duration::from_nanos(6 * count)),
        _ => Bounds::count(count as usize),
    }
}

/// Changes the bounds at random every so many inserts.
fn run(inserts: i64, count: usize, change_every: i64) {
    let alive = AtomicI64::new(0);
    let stop = AtomicBool::new(false);
    let window = Window::new(Bounds::count(count));
    thread::scope(|scope| {
        let readers: Vec<_> = (1..=2)
            .map(|seed| {
                let (window, stop) = (&window, &stop);
                scope.spawn(move || check_readers(window, stop, seed))
            })
            .collect();
        let mut random = Random(42);
        for number in 0..inserts {
            let late = match random.below(100) {
                0 => random.below(4 * count as u64) as i64,
                1..5 => random.below(80) as i64,
                _ => 0,
            };
            let stamp = number * 4 - late;
            if number % change_every == change_every - 1 {
                window.set_bounds(random_bounds(&mut random, count));
            }
            alive.fetch_add(1, Ordering::Relaxed);
            window.insert(
                stamp.into(),
                Counted {
                    stamp,
                    alive: &alive,
                },
            );
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().expect("no panic") > 0 || inserts < 1_000_000);
        }
    });
    let counters = window.stats();
    assert_eq!(counters.inserted + counters.refused, inserts as u64);
    assert_eq!(counters.inserted - counters.evicted, window.len() as u64);
    assert_eq!(
        alive.load(Ordering::Relaxed),
        window.len() as i64,
        "nothing leaks"
    );
    drop(window);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn readers_see_ordered_windows_and_nothing_leaks_while_a_writer_runs() {
    run(100_000, 1_000, 5_000);
}

#[test]
fn a_soak_of_ten_million_inserts_holds_the_same() {
    if std::env::var_os("ASOF_SOAK").is_none() {
        eprintln!("skipped: set ASOF_SOAK=1 to run ten million inserts");
        return;
    }
    for count in [10, 1_000, 50_000] {
        run(10_000_000, count, 50_000);
    }
}
