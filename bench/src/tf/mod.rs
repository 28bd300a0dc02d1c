//! The transform buffer beside schiebung, `transforms` and Debian's tf2.
//!
//! Lookups lie between samples, the poses rotate, and all times are CPU time of the measuring thread. Every
//! slice of lookups is preceded by an untimed pass over the same queries, and all peers must agree before any
//! is timed. With `latest`, asof answers from the newest sample of each edge, as schiebung does.

mod contention;
mod peers;

use std::hint::black_box;

use asof_core::Stamp;

use crate::harness::{Bench, Contender, contender};
use peers::{Asof, Peer, Pose, Schiebung, Tf2, Tf2Library, Transforms, WINDOW, isometry};

const SECOND: i64 = 1_000_000_000;
/// The first stamp; not zero, which means "latest" in tf2.
const START: i64 = 1_000 * SECOND;
const ROUNDS: usize = 31;

pub fn run(bench: &mut Bench) {
    // schiebung writes a configuration file into the user's home: HOME is set to another folder.
    let home = std::env::temp_dir().join("asof-bench-home");
    let _ = std::fs::create_dir_all(&home);
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("HOME", &home) };
    let tf2 = Tf2Library::load();
    let suite = Suite {
        bench,
        tf2: tf2.as_ref(),
    };
    suite.edges();
    suite.updates();
    suite.lookups();
    suite.chains();
    suite.batches();
    suite.waiting();
    suite.memory();
    contention::run(suite.bench, suite.tf2);
}

/// Makes an empty buffer.
type Make<'a> = Box<dyn Fn() -> Box<dyn Peer + 'a> + 'a>;

struct Suite<'a> {
    bench: &'a Bench,
    tf2: Option<&'a Tf2Library>,
}

impl<'a> Suite<'a> {
    fn peers(&self) -> Vec<Box<dyn Peer + 'a>> {
        let mut peers: Vec<Box<dyn Peer + 'a>> = vec![
            Box::new(Asof::new()),
            Box::new(Schiebung::new()),
            Box::new(Transforms::new()),
        ];
        if let Some(library) = self.tf2 {
            peers.push(Box::new(Tf2::new(library)));
        }
        peers
    }

    /// New static edges, into an empty buffer and into one that has some.
    fn edges(&self) {
        for (case, already) in [("first_edge", 0), ("new_edge_in_tree_of_100", 100)] {
            if !self.bench.wants(case) {
                continue;
            }
            let star: Vec<_> = (0..already)
                .map(|i| ("base".to_owned(), format!("link_{i}")))
                .collect();
            let edge = [("base".to_owned(), "camera_link".to_owned())];
            let tf2 = self.tf2;
            let makers: Vec<Make<'a>> = vec![
                Box::new(|| Box::new(Asof::new())),
                Box::new(|| Box::new(Schiebung::new())),
                Box::new(|| Box::new(Transforms::new())),
                Box::new(move || Box::new(Tf2::new(tf2.expect("is left out without")))),
            ];
            let makers = &makers[..if self.tf2.is_some() { 4 } else { 3 }];
            let names = ["asof", "schiebung", "transforms", "tf2"];
            let contenders = makers.iter().zip(names).map(|(make, name)| {
                let (star, edge) = (&star, &edge);
                contender(name, move || {
                    let mut buffers: Vec<_> = (0..64)
                        .map(|_| {
                            let mut buffer = make();
                            buffer.new_static(star);
                            buffer
                        })
                        .collect();
                    let time = cpu(|| {
                        buffers
                            .iter_mut()
                            .for_each(|buffer| buffer.new_static(edge))
                    });
                    time / buffers.len() as f64
                })
            });
            self.bench.case(case, "ns", ROUNDS, contenders.collect());
        }
    }

    /// Appending to a history that has reached its window.
    fn updates(&self) {
        for size in [1_000, 120_000_i64] {
            let case = format!("update_existing_h{size}");
            if !self.bench.wants(&case) {
                continue;
            }
            let period = WINDOW as i64 * SECOND / size;
            let (stamps, poses) = track(0, size, period);
            let mut peers = self.peers();
            for peer in &mut peers {
                peer.update("odom", "base_link", &stamps, &poses);
            }
            let contenders = peers.iter_mut().map(|peer| {
                let mut next = size;
                contender(peer.name(), move || {
                    let count = 2_000;
                    let (stamps, poses) = track(next, count, period);
                    next += count;
                    cpu(|| peer.update("odom", "base_link", &stamps, &poses)) / count as f64
                })
            });
            self.bench.case(&case, "ns", ROUNDS, contenders.collect());
        }
        let case = "insert_fully_shuffled_10000";
        if self.bench.wants(case) {
            self.shuffled(case);
        }
    }

    /// A bulk load in random order: asof's and `transforms`' own ways to load many at once.
    fn shuffled(&self, case: &str) {
        let count = 10_000;
        let (stamps, poses) = track(0, count, SECOND / 1000);
        let mut random = Random(7);
        let mut order: Vec<usize> = (0..count as usize).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        let (order, stamps, poses) = (&order, &stamps, &poses);
        let shuffled: Vec<(i64, Pose)> = order.iter().map(|i| (stamps[*i], poses[*i])).collect();
        let shuffled = &shuffled;
        let one_by_one: Vec<i64> = shuffled.iter().map(|(stamp, _)| *stamp).collect();
        let its_poses: Vec<Pose> = shuffled.iter().map(|(_, pose)| *pose).collect();
        let (one_by_one, its_poses) = (&one_by_one, &its_poses);
        let mut contenders = vec![
            contender("asof", move || {
                let buffer = Asof::new();
                let time = cpu(|| {
                    let samples = shuffled
                        .iter()
                        .map(|(t, pose)| (Stamp::from_nanos(*t), isometry(pose)));
                    buffer
                        .0
                        .extend_edge("odom", "base_link", samples)
                        .expect("all good");
                });
                time / count as f64
            }),
            contender("transforms", move || {
                let mut registry = Transforms::new();
                cpu(|| registry.update("odom", "base_link", one_by_one, its_poses)) / count as f64
            }),
            contender("transforms_batch", move || {
                let mut registry = Transforms::new();
                let time = cpu(|| {
                    let all = shuffled
                        .iter()
                        .map(|(t, pose)| Transforms::transform("odom", "base_link", *t, pose));
                    registry.0.add_transforms(all).expect("all good");
                });
                time / count as f64
            }),
        ];
        if let Some(library) = self.tf2 {
            contenders.push(contender("tf2", move || {
                let buffer = Tf2::new(library);
                cpu(|| buffer.set("odom", "base_link", one_by_one, its_poses)) / count as f64
            }));
        }
        self.bench.case(case, "ns", 9, contenders);
    }

    /// One edge.
    fn lookups(&self) {
        for size in [1_000, 120_000_i64] {
            let recent = format!("interpolated_recent_h{size}");
            let random = format!("interpolated_random_h{size}");
            let latest = if size == 1_000 {
                "latest_2_frames"
            } else {
                "latest_2_frames_h120000"
            };
            let failing = if size == 1_000 {
                "failing_lookup"
            } else {
                "failing_lookup_h120000"
            };
            let wanted = [&recent, &random, latest, failing];
            if !wanted.iter().any(|case| self.bench.wants(case)) {
                continue;
            }
            let period = SECOND / 1000;
            let (stamps, poses) = track(0, size, period);
            let end = *stamps.last().expect("not empty");
            let mut peers = self.peers();
            for peer in &mut peers {
                peer.update("odom", "base_link", &stamps, &poses);
            }
            let mut dice = Random(3);
            let whole = between(&mut dice, START, end, period, 1_000);
            let last = between(&mut dice, end - 50 * period, end, period, 1_000);
            let future: Vec<i64> = (1..=1_000).map(|i| end + i * 1_001).collect();
            self.timed(&recent, &peers, "odom", "base_link", &last);
            self.timed(&random, &peers, "odom", "base_link", &whole);
            self.timed(failing, &peers, "odom", "base_link", &future);
            self.latest(latest, &peers, "odom", "base_link", end);
        }
    }

    fn chains(&self) {
        for (links, samples) in [(10, 1_000), (100, 1_000)] {
            let interpolated = if links == 10 {
                "chain_10_interpolated"
            } else {
                "chain_100_dynamic_interpolated"
            };
            let latest = if links == 10 {
                "chain_10_latest"
            } else {
                "chain_100_dynamic_latest"
            };
            if !self.bench.wants(interpolated) && !self.bench.wants(latest) {
                continue;
            }
            let period = SECOND / 1000;
            let mut peers = self.peers();
            let mut end = START;
            for link in 0..links {
                let (stamps, poses) = track_of(link, 0, samples, period);
                end = *stamps.last().expect("not empty");
                for peer in &mut peers {
                    peer.update(
                        &format!("link_{link}"),
                        &format!("link_{}", link + 1),
                        &stamps,
                        &poses,
                    );
                }
            }
            let asked = between(
                &mut Random(5),
                end - 20 * period,
                end,
                period,
                1_000 / links as usize,
            );
            let last = format!("link_{links}");
            self.timed(interpolated, &peers, "link_0", &last, &asked);
            self.latest(latest, &peers, "link_0", &last, end);
        }
        let case = "chain_100_static_path";
        if self.bench.wants(case) {
            let edges: Vec<_> = (0..100)
                .map(|i| (format!("link_{i}"), format!("link_{}", i + 1)))
                .collect();
            let mut peers = self.peers();
            peers.iter_mut().for_each(|peer| peer.new_static(&edges));
            let mut asof = Asof::new();
            asof.new_static(&edges);
            let mut path = asof.0.path("link_0", "link_100").expect("both are known");
            let mut contenders = vec![contender("asof", move || {
                let count = 10_000;
                let time = cpu(|| {
                    for i in 0..count {
                        let found = path.lookup(Stamp::from_nanos(black_box(i)));
                        black_box(found.expect("is static"));
                    }
                });
                time / count as f64
            })];
            for peer in &peers {
                let name = if peer.name() == "asof" {
                    "asof_by_name"
                } else {
                    peer.name()
                };
                contenders.push(contender(name, move || {
                    let time = cpu(|| {
                        black_box(peer.latest("link_0", "link_100", START, 200));
                    });
                    time / 200.0
                }));
            }
            self.bench.case(case, "ns", ROUNDS, contenders);
        }
    }

    /// Stamps in order, over a moving base and a fixed sensor: what deskewing does.
    fn batches(&self) {
        let case = "lookup_many_100000_per_stamp";
        if !self.bench.wants(case) {
            return;
        }
        let (stamps, poses) = track(0, 10_000, SECOND / 100);
        let end = *stamps.last().expect("not empty");
        let mount = [("base_link".to_owned(), "lidar".to_owned())];
        let mut peers = self.peers();
        for peer in &mut peers {
            peer.update("odom", "base_link", &stamps, &poses);
            peer.new_static(&mount);
        }
        let count = 100_000;
        let asked: Vec<i64> = (0..count)
            .map(|i| START + 1 + (end - START - 2) / count * i)
            .collect();
        let asked_stamps: Vec<Stamp> = asked.iter().map(|t| Stamp::from_nanos(*t)).collect();
        let mut asof = Asof::new();
        asof.update("odom", "base_link", &stamps, &poses);
        asof.new_static(&mount);
        let mut path = asof.0.path("odom", "lidar").expect("both are known");
        let sum: f64 = {
            let many = path.lookup_many(&asked_stamps);
            assert!(many.failures.is_empty());
            many.isometries
                .iter()
                .map(|i| i.translation.x + i.rotation.w)
                .sum()
        };
        let mut contenders = vec![contender("asof", move || {
            cpu(|| drop(black_box(path.lookup_many(&asked_stamps)))) / count as f64
        })];
        for peer in &peers {
            let theirs = peer.lookup("odom", "lidar", &asked);
            assert!(
                (theirs - sum).abs() < 1e-3,
                "{} disagrees: {theirs}, not {sum}",
                peer.name()
            );
            let asked = &asked;
            let name = if peer.name() == "asof" {
                "asof_loop"
            } else {
                peer.name()
            };
            contenders.push(contender(name, move || {
                cpu(|| {
                    black_box(peer.lookup("odom", "lidar", asked));
                }) / count as f64
            }));
        }
        self.bench.case(case, "ns", 11, contenders);
    }

    /// Updates of one edge while others are waited for.
    fn waiting(&self) {
        let case = "update_with_1000_waits";
        if !self.bench.wants(case) {
            return;
        }
        let period = SECOND / 1000;
        let fill = |asof: &mut Asof| {
            asof.update("map", "other", &[START], &[track(0, 1, period).1[0]]);
            let (stamps, poses) = track(0, 1_000, period);
            asof.update("odom", "base_link", &stamps, &poses);
        };
        let (mut with, mut without) = (Asof::new(), Asof::new());
        fill(&mut with);
        fill(&mut without);
        let mut waits: Vec<_> = (0..1_000)
            .map(|i| {
                Box::pin(with.0.wait(
                    "map",
                    "other",
                    Stamp::from_nanos(START + SECOND * (2 + i)),
                    None,
                ))
            })
            .collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for wait in &mut waits {
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }
        let step = |mut asof: Asof| {
            let mut next = 1_000;
            move || {
                let count = 5_000;
                let (stamps, poses) = track(next, count, period);
                next += count;
                cpu(|| asof.update("odom", "base_link", &stamps, &poses)) / count as f64
            }
        };
        let mut contenders = vec![
            contender("asof", step(with)),
            contender("none_waiting", step(without)),
        ];
        if let Some(library) = self.tf2 {
            let tf2 = Tf2::new(library);
            tf2.set("map", "other", &[START], &[track(0, 1, period).1[0]]);
            (0..1_000).for_each(|i| tf2.wait("map", "other", START + SECOND * (2 + i)));
            let mut next = 0;
            contenders.push(contender("tf2", move || {
                let (stamps, poses) = track(next, 20, period);
                next += 20;
                cpu(|| tf2.set("odom", "base_link", &stamps, &poses)) / 20.0
            }));
        }
        self.bench.case(case, "ns", ROUNDS, contenders);
        drop(waits);
    }

    /// What a million samples add to the process.
    fn memory(&self) {
        let case = "bytes_per_transform";
        if !self.bench.wants(case) {
            return;
        }
        let count = 1_000_000;
        // All inside of schiebung's window.
        let (stamps, poses) = track(0, count, 100_000);
        let (stamps, poses) = (&stamps, &poses);
        let grown = |make: Make<'a>| {
            move || {
                let mut peer = make();
                let before = resident();
                peer.update("odom", "base_link", stamps, poses);
                (resident() - before) / count as f64
            }
        };
        let mut contenders: Vec<Contender<'_>> = vec![
            contender("asof", grown(Box::new(|| Box::new(Asof::new())))),
            contender("schiebung", grown(Box::new(|| Box::new(Schiebung::new())))),
            contender(
                "transforms",
                grown(Box::new(|| Box::new(Transforms::new()))),
            ),
        ];
        if let Some(library) = self.tf2 {
            contenders.push(contender(
                "tf2",
                grown(Box::new(move || Box::new(Tf2::new(library)))),
            ));
        }
        self.bench.case(case, "bytes", 3, contenders);
    }

    fn timed(
        &self,
        case: &str,
        peers: &[Box<dyn Peer + '_>],
        target: &str,
        source: &str,
        stamps: &[i64],
    ) {
        if !self.bench.wants(case) {
            return;
        }
        agree(
            case,
            peers
                .iter()
                .map(|peer| (peer.name(), peer.lookup(target, source, stamps))),
        );
        let contenders = peers.iter().map(|peer| {
            contender(peer.name(), move || {
                black_box(peer.lookup(target, source, stamps));
                cpu(|| {
                    black_box(peer.lookup(target, source, stamps));
                }) / stamps.len() as f64
            })
        });
        self.bench.case(case, "ns", ROUNDS, contenders.collect());
    }

    fn latest(
        &self,
        case: &str,
        peers: &[Box<dyn Peer + '_>],
        target: &str,
        source: &str,
        newest: i64,
    ) {
        if !self.bench.wants(case) {
            return;
        }
        let count = if case.contains("100_dynamic") {
            100
        } else {
            2_000
        };
        agree(
            case,
            peers
                .iter()
                .map(|peer| (peer.name(), peer.latest(target, source, newest, count))),
        );
        let contenders = peers.iter().map(|peer| {
            contender(peer.name(), move || {
                black_box(peer.latest(target, source, newest, count));
                cpu(|| {
                    black_box(peer.latest(target, source, newest, count));
                }) / count as f64
            })
        });
        self.bench.case(case, "ns", ROUNDS, contenders.collect());
    }
}

fn agree<'a>(case: &str, sums: impl Iterator<Item = (&'a str, f64)>) {
    let sums: Vec<_> = sums.collect();
    for (name, sum) in &sums {
        let off = (sum - sums[0].1).abs();
        assert!(
            off < 1e-3 * sums[0].1.abs().max(1.0),
            "{case}: {name} says {sum}, asof {}",
            sums[0].1
        );
    }
}

/// CPU nanoseconds of this thread.
fn cpu(work: impl FnOnce()) -> f64 {
    let before = thread_time();
    work();
    thread_time() - before
}

fn thread_time() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes into `time` and nothing else.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Bytes of the process in memory, with what was freed given back first.
fn resident() -> f64 {
    // SAFETY: has no arguments that could be wrong.
    unsafe { libc::malloc_trim(0) };
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = pages
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse::<f64>().ok());
    resident.unwrap_or(f64::NAN) * 4096.0
}

/// A smooth drive that turns about a radian a second, sampled from sample number `first` on.
fn track(first: i64, count: i64, period: i64) -> (Vec<i64>, Vec<Pose>) {
    track_of(0, first, count, period)
}

fn track_of(which: i64, first: i64, count: i64, period: i64) -> (Vec<i64>, Vec<Pose>) {
    let stamps: Vec<i64> = (first..first + count).map(|i| START + i * period).collect();
    let poses = stamps.iter().map(|stamp| {
        let t = (stamp - START) as f64 * 1e-9 + which as f64 * 0.37;
        let rotation = UnitQuaternion::from_euler_angles(0.2 * t.sin(), 0.3 * (0.7 * t).cos(), t);
        let [x, y, z, w]: [f64; 4] = rotation.coords.into();
        [x, y, z, w, t.sin(), (0.5 * t).cos(), 0.1 * t.sin()]
    });
    let poses = poses.collect();
    (stamps, poses)
}

use nalgebra::UnitQuaternion;

/// Random times that lie between samples.
fn between(random: &mut Random, from: i64, to: i64, period: i64, count: usize) -> Vec<i64> {
    let time = |random: &mut Random| {
        let t = from + random.below((to - from) as u64) as i64;
        if (t - START) % period == 0 { t + 1 } else { t }
    };
    (0..count).map(|_| time(random)).collect()
}

/// Xorshift: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit
    }
}
