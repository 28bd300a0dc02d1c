//! Writes a drive to standard output in a format that any language can read in a few lines.
//!
//! Usage: `drive_bytes [cdr|protobuf|json] [SECONDS] [SEED] > drive.bin`
//!
//! Every record is a kind (`C` or `M`) and fields, each a little-endian `u32` length and bytes.
//! A channel: number, topic, message encoding, schema name, schema encoding, schema.
//! A message: channel number, log time, publish time, sequence (as text), payload.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use asof_demo::{Demo, DemoEncoding, DemoOptions};

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let encoding = match arguments.next().as_deref() {
        None | Some("cdr") => DemoEncoding::Cdr,
        Some("protobuf") => DemoEncoding::Protobuf,
        Some("json") => DemoEncoding::Json,
        Some(other) => {
            let problem = format!("{other} is not one of cdr, protobuf, json");
            return Err(io::Error::other(problem));
        }
    };
    let mut number = |otherwise| {
        let given = arguments.next().and_then(|text| text.parse().ok());
        given.unwrap_or(otherwise)
    };
    let demo = Demo::new(DemoOptions {
        encoding,
        duration: Duration::from_secs(number(30)),
        seed: number(1),
        ..DemoOptions::default()
    });
    let mut out = BufWriter::new(io::stdout().lock());
    for (index, channel) in demo.channels().iter().enumerate() {
        let schema = channel.schema.clone().unwrap_or_default();
        let index = index.to_string();
        let fields: [&[u8]; 6] = [
            index.as_bytes(),
            channel.topic.as_bytes(),
            channel.message_encoding.as_bytes(),
            schema.name.as_bytes(),
            schema.encoding.as_bytes(),
            &schema.data,
        ];
        record(&mut out, b"C", &fields)?;
    }
    for message in demo.messages() {
        let is_it = |channel: &Arc<_>| Arc::ptr_eq(channel, &message.channel);
        let index = demo.channels().iter().position(is_it).unwrap_or_default();
        let index = index.to_string();
        let log_time = message.log_time.nanos().to_string();
        let publish_time = message.publish_time.nanos().to_string();
        let sequence = message.sequence.to_string();
        let fields: [&[u8]; 5] = [
            index.as_bytes(),
            log_time.as_bytes(),
            publish_time.as_bytes(),
            sequence.as_bytes(),
            &message.payload,
        ];
        record(&mut out, b"M", &fields)?;
    }
    out.flush()
}

fn record(out: &mut impl Write, kind: &[u8], fields: &[&[u8]]) -> io::Result<()> {
    out.write_all(kind)?;
    for field in fields {
        out.write_all(&(field.len() as u32).to_le_bytes())?;
        out.write_all(field)?;
    }
    Ok(())
}
