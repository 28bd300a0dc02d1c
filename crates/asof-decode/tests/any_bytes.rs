//! Any bytes against any schema end in rows or errors.

mod common;

use asof_core::{Channel, Stamp};
use asof_decode::{Decoder, Layers, Payload, Projection};
use common::{channel, ros2};

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
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => bytes[at] = self.next() as u8,
                2 => bytes[at] ^= 1 << self.below(8),
                _ => bytes.insert(at, self.next() as u8),
            }
        }
        bytes
    }
}

/// Every kind of channel that there is, with a good payload for each.
fn channels() -> Vec<(Channel, Vec<u8>)> {
    let demo = |encoding| {
        asof_demo::Demo::new(asof_demo::DemoOptions {
            encoding,
            duration: std::time::Duration::from_millis(1500),
            ..Default::default()
        })
    };
    let mut all: Vec<(Channel, Vec<u8>)> = Vec::new();
    for encoding in [
        asof_demo::Encoding::Cdr,
        asof_demo::Encoding::Protobuf,
        asof_demo::Encoding::Json,
    ] {
        for message in demo(encoding).messages() {
            if all.iter().all(|(known, _)| *known != *message.channel)
                && message.payload.len() < 20_000
            {
                all.push(((*message.channel).clone(), message.payload.to_vec()));
            }
        }
    }
    let idl = "union U switch (long) { case 1: long a; default: string b; };\
        @mutable struct M { U u; @optional sequence<U> v; map<long, string> m; wstring w; long g[2][3]; };";
    let ros1 = "time t\nduration d\nstring[] names\nInner[2] i\n===\nMSG: p/Inner\nuint8[] data\n";
    all.push((
        ros2("/w", "p/msg/W", "wstring[] w\nE[] e\n===\nMSG: p/E\n"),
        vec![0, 1, 0, 0, 0, 0],
    ));
    all.push((
        channel("/1", "ros1", "p/One", "ros1msg", ros1.as_bytes()),
        vec![0; 40],
    ));
    all.push((
        channel("/i", "cdr", "M", "omgidl", idl.as_bytes()),
        vec![0, 0x0b, 0, 0, 0, 0, 0, 0],
    ));
    all.push((
        Channel {
            topic: "/c".into(),
            message_encoding: "cbor".into(),
            ..Channel::default()
        },
        b"\xa2\x61a\x01\x61b\x82\x02\x03".to_vec(),
    ));
    all
}

fn rounds() -> usize {
    std::env::var("ASOF_FUZZ_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(60)
}

#[test]
fn any_payload_is_a_row_or_an_error() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (channel, good) in channels() {
        let mut decoder = Decoder::new(&channel, &Projection::All, &[&good])
            .unwrap_or_else(|error| panic!("{}: {error}", channel.topic));
        for round in 0..rounds() {
            let payloads: Vec<Vec<u8>> = (0..4)
                .map(|at| match (round + at) % 3 {
                    0 => random.bytes(200),
                    1 => good.clone(),
                    _ => {
                        let mut bytes = random.damaged(&good);
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
            let at = Stamp::EPOCH;
            let run: Vec<_> = payloads
                .iter()
                .map(|bytes| (at, at, Payload::from(bytes.as_slice())))
                .collect();
            let mut failed = 0;
            let before = decoder.rows();
            decoder.append(&run, |_, _| failed += 1);
            assert_eq!(decoder.rows() - before + failed, run.len());
            let input: usize = payloads.iter().map(Vec::len).sum();
            assert!(
                decoder.bytes() <= 64 * input + (4 << 20),
                "{}: {} bytes of {input}",
                channel.topic,
                decoder.bytes()
            );
            for payload in &payloads {
                let _ = decoder.json(payload);
                let _ = decoder.write_csv(payload, &mut Vec::new());
            }
            if round % 2 == 0 {
                decoder.take().expect("Arrow takes it");
            }
        }
    }
}

#[test]
fn any_schema_is_a_plan_or_an_error() {
    let mut random = Random(7);
    let layers = Layers::standard();
    for (channel, payload) in channels() {
        let Some(schema) = channel.schema.clone() else {
            continue;
        };
        for round in 0..rounds() {
            let data = if round % 4 == 0 {
                random.bytes(300)
            } else {
                random.damaged(&schema.data)
            };
            let mut damaged = channel.clone();
            damaged.schema = Some(
                asof_core::Schema {
                    data: data.into(),
                    ..(*schema).clone()
                }
                .into(),
            );
            let damaged = std::sync::Arc::new(damaged);
            let (_, table) = layers.assign(&damaged, &Projection::All, &[&payload]);
            let mut table = table.expect("raw takes what nobody else does");
            let at = Stamp::EPOCH;
            table.append(
                &[(at, at, Payload::from(payload.as_slice()))],
                &mut |_, _| {},
            );
            table.take().expect("Arrow takes it");
        }
    }
}
