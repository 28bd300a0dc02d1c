//! The recordings for benchmarks have the size, the order and the texture that they promise.

use std::collections::BTreeMap;

use asof_demo::{Shapes, large_messages, small_messages};

fn counts(shapes: Shapes) -> (u64, BTreeMap<String, u64>) {
    let mut counts = BTreeMap::new();
    let mut bytes = 0;
    let mut last = None;
    for message in shapes {
        assert!(last <= Some(message.log_time), "log times never go back");
        last = Some(message.log_time);
        bytes += message.payload.len() as u64;
        *counts.entry(message.channel.topic.clone()).or_default() += 1;
    }
    (bytes, counts)
}

/// How much smaller zstd makes payloads that lie one after the other, in pieces of a mebibyte.
fn compression(shapes: Shapes) -> f64 {
    let all: Vec<u8> = shapes.flat_map(|message| message.payload).collect();
    let packed: usize = all
        .chunks(1 << 20)
        .map(|piece| zstd::bulk::compress(piece, 3).expect("zstd").len())
        .sum();
    all.len() as f64 / packed as f64
}

#[test]
fn small_messages_are_small_and_on_ten_topics() {
    let (bytes, counts) = counts(small_messages(1, 3_000_000));
    assert!((3_000_000..3_001_000).contains(&bytes));
    assert_eq!(counts.len(), 10);
    let mean = bytes / counts.values().sum::<u64>();
    assert!((350..500).contains(&mean), "{mean}");
}

#[test]
fn large_messages_are_large_and_on_four_topics() {
    let (bytes, counts) = counts(large_messages(1, 12_000_000));
    assert!((12_000_000..15_000_000).contains(&bytes));
    assert_eq!(counts.len(), 4);
}

#[test]
fn jpegs_among_the_large_messages_have_some_150_kilobytes() {
    for message in large_messages(1, 6_000_000) {
        if message.channel.topic.ends_with("compressed") {
            let size = message.payload.len();
            assert!((100_000..200_000).contains(&size), "{size}");
        }
    }
}

#[test]
fn zstd_finds_about_as_much_in_the_small_messages_as_in_real_ones() {
    let ratio = compression(small_messages(1, 8_000_000));
    assert!((3.0..4.5).contains(&ratio), "{ratio}");
}

#[test]
fn large_messages_can_be_compressed_but_not_away() {
    let ratio = compression(large_messages(1, 12_000_000));
    assert!((1.4..3.5).contains(&ratio), "{ratio}");
}

#[test]
fn the_same_seed_gives_the_same_messages() {
    let both = || small_messages(3, 200_000).zip(small_messages(3, 200_000));
    assert!(both().all(|(a, b)| a == b));
    assert!(
        small_messages(3, 200_000)
            .zip(small_messages(4, 200_000))
            .any(|(a, b)| a != b)
    );
}
