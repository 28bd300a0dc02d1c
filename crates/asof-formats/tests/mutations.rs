//! Thousands of files that somebody has tampered with: each ends in an answer or an error.
//!
//! A seeded, quick version of the fuzz target in `fuzz/`. `ASOF_MUTATIONS` sets how many.

mod common;

use std::time::{Duration, Instant};

use asof_core::testing::Random;

/// Where each top-level record starts.
fn record_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 8;
    while let Some(head) = bytes.get(at..at + 9) {
        starts.push(at);
        let len = u64::from_le_bytes(head[1..].try_into().expect("eight bytes"));
        at = at.saturating_add(9).saturating_add(len as usize);
    }
    starts
}

fn mutate(base: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = base.to_vec();
    let starts = record_starts(base);
    for _ in 0..=random.below(3) {
        let len = bytes.len();
        match random.below(8) {
            // Flipped bits.
            0 => (0..=random.below(20))
                .for_each(|_| bytes[random.below(len)] ^= 1 << random.below(8)),
            // Cut off.
            1 => bytes.truncate(random.below(len).max(9)),
            // A length that lies: of a record, or of anything that happens to be there.
            2 => {
                let lies = [
                    0,
                    1,
                    8,
                    1 << 20,
                    1 << 40,
                    u64::MAX,
                    u64::MAX / 2,
                    random.next(),
                ];
                let lie = lies[random.below(lies.len())].to_le_bytes();
                let place = starts[random.below(starts.len())] + 1;
                if let Some(field) = bytes.get_mut(place..place + 8) {
                    field.copy_from_slice(&lie);
                }
            }
            3 => {
                let place = random.below(len.saturating_sub(8));
                let lie = [u32::MAX, 0, 1 << 30, 7][random.below(4)].to_le_bytes();
                bytes[place..place + 4].copy_from_slice(&lie);
            }
            // A hole.
            4 => {
                let start = random.below(len);
                let end = (start + random.below(4000)).min(len);
                bytes[start..end].fill([0, 0xff, 6][random.below(3)]);
            }
            // A record moved or doubled.
            5 => {
                let from = starts[random.below(starts.len())].min(len);
                let to = starts[random.below(starts.len())].min(len);
                let piece = bytes[from..(from + random.below(3000)).min(len)].to_vec();
                bytes.splice(to..to, piece);
            }
            // Bytes taken out.
            6 => {
                let start = random.below(len);
                let end = (start + 1 + random.below(100)).min(len);
                bytes.drain(start..end);
            }
            // Noise put in.
            _ => {
                let noise: Vec<u8> = (0..random.below(200))
                    .map(|_| random.next() as u8)
                    .collect();
                let at = random.below(len);
                bytes.splice(at..at, noise);
            }
        }
        if bytes.len() < 16 {
            break;
        }
    }
    bytes
}

#[test]
fn a_file_that_was_tampered_with_ends_in_an_answer_or_an_error() {
    let plain = || common::small_chunks();
    let bases = [
        common::demo_file(0.4, plain()),
        common::demo_file(0.4, plain().compression(Some(mcap::Compression::Lz4))),
        common::demo_file(0.4, plain().compression(None)),
        common::demo_file(
            0.4,
            plain()
                .emit_summary_records(false)
                .emit_summary_offsets(false),
        ),
        common::demo_file(0.4, plain().emit_message_indexes(false)),
        common::demo_file(0.2, plain().use_chunks(false)),
    ];
    let count: u64 = std::env::var("ASOF_MUTATIONS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(600);
    let mut slowest = (Duration::ZERO, 0);
    let mut seen = 0;
    for seed in 0..count {
        let mut random = Random::new(seed);
        let base = &bases[random.below(bases.len())];
        let bytes = mutate(base, &mut random);
        let start = Instant::now();
        seen += common::exercise(bytes);
        slowest = slowest.max((start.elapsed(), seed));
    }
    println!(
        "{count} files, {seen} messages read, the slowest took {:?} (seed {})",
        slowest.0, slowest.1
    );
    assert!(seen as u64 > count, "next to nothing was readable");
}
