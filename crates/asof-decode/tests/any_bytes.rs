//! Any bytes against any schema end in rows or errors, and take little memory.
//!
//! The fuzz targets under `fuzz/` run the same for longer.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::fields;
use common::fuzz::{CHANNELS, decoder_of, run_decoder, run_layers, with_schema};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The most bytes that `work` had at once, beyond those that there were.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    work();
    MEMORY.peak_usage().saturating_sub(before)
}

/// Memory is counted over the whole process, so the tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        // Small numbers are what lengths and tags are made of.
        let len = self.below(most);
        (0..len)
            .map(|_| match self.below(4) {
                0 => 0,
                1 => self.below(8) as u8,
                _ => self.next() as u8,
            })
            .collect()
    }

    fn damaged(&mut self, good: &[u8]) -> Vec<u8> {
        let mut bytes = good.to_vec();
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes.truncate(at),
                1 => bytes[at] = self.next() as u8,
                2 => bytes[at] ^= 1 << self.below(8),
                3 => bytes.insert(at, self.next() as u8),
                // Lengths and counts are what memory is asked for by.
                _ => {
                    let end = (at + 4).min(bytes.len());
                    bytes[at..end].fill(0xff);
                }
            }
        }
        bytes
    }
}

fn rounds() -> usize {
    std::env::var("ASOF_FUZZ_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(60)
}

#[test]
fn any_payload_is_a_row_or_an_error_and_takes_little_memory() {
    let _turn = turn();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (channel, good) in CHANNELS.iter() {
        let mut decoder = decoder_of(channel, good);
        for round in 0..rounds() {
            let payloads: Vec<Vec<u8>> = (0..4)
                .map(|at| match (round + at) % 3 {
                    0 => random.bytes(200),
                    1 => good.clone(),
                    _ => {
                        let mut bytes = random.damaged(good);
                        // Other encapsulations, too.
                        if channel.message_encoding == "cdr"
                            && bytes.len() > 1
                            && random.below(3) == 0
                        {
                            bytes[1] = random.below(0x16) as u8;
                        }
                        bytes
                    }
                })
                .collect();
            let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
            let input: usize = payloads.iter().map(|payload| payload.len()).sum();
            let peak = peak_of(|| run_decoder(&mut decoder, &payloads));
            for payload in &payloads {
                fields::compare(channel, &mut decoder, payload);
            }
            assert!(
                peak <= 64 * input + (256 << 10),
                "{} {}: {peak} bytes for {input}",
                channel.message_encoding,
                channel.type_name()
            );
        }
    }
}

#[test]
fn any_schema_is_a_plan_or_an_error_and_takes_little_memory() {
    let _turn = turn();
    // prost-reflect panics while it describes some errors, which the decoder takes for errors. To print where it
    // was takes more memory than all that is measured here.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map_or("", |place| place.file());
        if !place.contains("prost-reflect") {
            usual(info);
        }
    }));
    let mut random = Random(7);
    for (channel, payload) in CHANNELS.iter() {
        let Some(schema) = channel.schema.clone() else {
            continue;
        };
        // What a library makes once for all schemas is none of this one's cost.
        run_layers(channel, payload, payload);
        for round in 0..rounds() {
            let data = if round % 4 == 0 {
                random.bytes(300)
            } else {
                random.damaged(&schema.data)
            };
            let damaged = with_schema(channel, &data);
            let input = data.len() + payload.len();
            let peak = peak_of(|| run_layers(&damaged, payload, payload));
            assert!(
                peak <= 256 * input + (256 << 10),
                "{} {}: {peak} bytes for {input}: {data:02x?}",
                schema.encoding,
                schema.name
            );
        }
    }
}
