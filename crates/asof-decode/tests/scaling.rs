//! The same messages 1, 4 and 16 times: decoding takes as long as their bytes, whatever they declare.
//!
//! Times are of this process alone and compared with each other with a wide margin, so a busy machine changes nothing.

mod common;

use asof_core::testing::assert_linear;
use asof_core::{Channel, Stamp};
use asof_decode::{Decoder, Projection};
use common::{cdr, channel, ros2};

const AT: Stamp = Stamp::from_nanos(7);

/// Decodes the payloads of each scale in runs of some messages.
fn grows_with_its_bytes(what: &str, channel: &Channel, payload: impl Fn(usize) -> Vec<u8>) {
    let make = |scale: usize| (0..2_000 * scale).map(&payload).collect();
    assert_linear(what, make, |payloads: Vec<Vec<u8>>| {
        let mut decoder = Decoder::new(channel, &Projection::All, &[]).expect("a decoder");
        for some in payloads.chunks(500) {
            let run: Vec<_> = some.iter().map(|p| (AT, AT, p.as_slice().into())).collect();
            decoder.append(&run, |_, _| {});
        }
        drop(decoder.take());
    });
}

fn text(len: usize) -> Vec<u8> {
    let bytes = vec![b'a'; len];
    cdr(&[&(len as u32).to_le_bytes()[..], &bytes].concat())
}

#[test]
fn messages_of_ever_other_lengths_cost_what_they_are() {
    let channel = ros2("/t", "std_msgs/msg/String", "string data\n");
    grows_with_its_bytes("texts", &channel, |at| text(at % 97));
}

#[test]
fn messages_that_cannot_be_decoded_cost_what_they_are() {
    let channel = ros2("/t", "std_msgs/msg/String", "string data\n");
    // Every second one declares more than it has.
    grows_with_its_bytes("failures", &channel, |at| match at % 2 {
        0 => text(20),
        _ => cdr(&u32::MAX.to_le_bytes()),
    });
}

#[test]
fn elements_without_bytes_cost_nothing() {
    let separator = "=".repeat(80);
    let definition = format!("t/E[] list\n{separator}\nMSG: t/E\n");
    let channel = channel("/empties", "ros1", "t/T", "ros1msg", definition.as_bytes());
    grows_with_its_bytes("empty elements", &channel, |_| {
        65_536u32.to_le_bytes().to_vec()
    });
}
