//! Rings: a scan there and back, and a stream of them.

use std::hint::{black_box, spin_loop};

use super::cores::on_two_cores;
use super::cpp;
use super::ring_peers::{
    Asof, Crossbeam, Disruptor, ParkingLot, Pipe, Receiver, Ringbuf, Rtrb, Scan, Sender, StdMutex,
};
use crate::harness::{Bench, Contender, contender};

const ROUNDS: usize = 60;

pub fn run(bench: &Bench) {
    bench.case(
        "ring_rtt_8k",
        "ns",
        ROUNDS,
        everyone::<true>(round_trip::<true>()),
    );
    bench.case(
        "ring_stream_8k",
        "ns",
        ROUNDS,
        everyone::<true>(stream::<true>()),
    );
    bench.case(
        "ring_rtt_head",
        "ns",
        ROUNDS,
        everyone::<false>(round_trip::<false>()),
    );
    bench.case(
        "ring_stream_head",
        "ns",
        ROUNDS,
        everyone::<false>(stream::<false>()),
    );
}

/// What is measured: for pipes, and for the C++ ring.
struct Measure {
    is_round_trip: bool,
    count: u64,
}

fn round_trip<const FULL: bool>() -> Measure {
    let count = if FULL { 500 } else { 4000 };
    Measure {
        is_round_trip: true,
        count,
    }
}

fn stream<const FULL: bool>() -> Measure {
    let count = if FULL { 2000 } else { 20_000 };
    Measure {
        is_round_trip: false,
        count,
    }
}

fn everyone<const FULL: bool>(measure: Measure) -> Vec<Contender<'static>> {
    let Measure {
        is_round_trip,
        count,
    } = measure;
    vec![
        pipe::<Asof<FULL>, FULL>("asof", is_round_trip, count),
        pipe::<Rtrb, FULL>("rtrb", is_round_trip, count),
        pipe::<Ringbuf, FULL>("ringbuf", is_round_trip, count),
        pipe::<Disruptor, FULL>("disruptor", is_round_trip, count),
        pipe::<Crossbeam, FULL>("crossbeam", is_round_trip, count),
        pipe::<StdMutex, FULL>("std_mutex", is_round_trip, count),
        pipe::<ParkingLot, FULL>("parking_lot", is_round_trip, count),
        cpp_ring::<FULL>("cpp", is_round_trip, count),
    ]
}

fn pipe<P: Pipe + 'static, const FULL: bool>(
    name: &'static str,
    is_round_trip: bool,
    count: u64,
) -> Contender<'static> {
    contender(name, move || {
        on_two_cores(|| {
            let (mut there, mut there_out) = P::new();
            let (mut back, mut back_out) = P::new();
            let source = Box::new(Scan([3; 1024]));
            let other_source = source.clone();
            if is_round_trip {
                (
                    Box::new(move || {
                        for number in 0..count {
                            send::<FULL>(&mut there, &source, number);
                            black_box(receive::<FULL>(&mut back_out));
                        }
                        count
                    }),
                    Box::new(move || {
                        for _ in 0..count {
                            let sum = receive::<FULL>(&mut there_out);
                            send::<FULL>(&mut back, &other_source, sum);
                        }
                        count
                    }),
                )
            } else {
                (
                    Box::new(move || {
                        for _ in 0..count {
                            black_box(receive::<FULL>(&mut there_out));
                        }
                        count
                    }),
                    Box::new(move || {
                        for number in 0..count {
                            send::<FULL>(&mut there, &source, number);
                        }
                        count
                    }),
                )
            }
        })
    })
}

#[inline(always)]
fn send<const FULL: bool>(sender: &mut impl Sender, source: &Scan, number: u64) {
    while !sender.send(|scan| {
        if FULL {
            scan.0.copy_from_slice(&source.0);
        }
        scan.0[0] = number;
    }) {
        spin_loop();
    }
}

#[inline(always)]
fn receive<const FULL: bool>(receiver: &mut impl Receiver) -> u64 {
    loop {
        let seen = receiver.receive(|scan| {
            if FULL {
                scan.0
                    .iter()
                    .fold(0, |sum: u64, word| sum.wrapping_add(*word))
            } else {
                scan.0[0]
            }
        });
        if let Some(seen) = seen {
            return seen;
        }
        spin_loop();
    }
}

fn cpp_ring<const FULL: bool>(
    name: &'static str,
    is_round_trip: bool,
    count: u64,
) -> Contender<'static> {
    contender(name, move || {
        on_two_cores(|| {
            let there =
                std::sync::Arc::new(cpp::Object::new(cpp::cpp_ring_new, cpp::cpp_ring_delete));
            let back =
                std::sync::Arc::new(cpp::Object::new(cpp::cpp_ring_new, cpp::cpp_ring_delete));
            let (there_too, back_too) = (there.clone(), back.clone());
            let source = Box::new(Scan([3; 1024]));
            let other_source = source.clone();
            let address = |scan: &Scan| std::ptr::from_ref(scan).cast();
            // SAFETY (all): the objects live as long as the closures, each end is used by one thread, and the
            // source is a scan.
            if is_round_trip {
                (
                    Box::new(move || unsafe {
                        cpp::cpp_ring_ping(
                            there.pointer,
                            back.pointer,
                            address(&source),
                            count,
                            FULL,
                        );
                        count
                    }),
                    Box::new(move || unsafe {
                        cpp::cpp_ring_echo(
                            there_too.pointer,
                            back_too.pointer,
                            address(&other_source),
                            count,
                            FULL,
                        );
                        count
                    }),
                )
            } else {
                (
                    Box::new(move || unsafe {
                        cpp::cpp_ring_receive_all(there.pointer, count, FULL);
                        count
                    }),
                    Box::new(move || unsafe {
                        cpp::cpp_ring_send_all(there_too.pointer, address(&source), count, FULL);
                        count
                    }),
                )
            }
        })
    })
}
