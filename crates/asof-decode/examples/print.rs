//! Prints every message of recordings as JSON, one a line, as `asof cat --json` does.
//!
//! `cargo run --release -p asof-decode --example print -- run.mcap`

use std::io::{BufWriter, Write};
use std::sync::Arc;

use asof_core::{Channel, Query, Source};
use asof_decode::{Decoder, Projection, SchemaError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for path in std::env::args().skip(1) {
        let file = asof_formats::open(&path)?;
        let mut decoders: Vec<(Arc<Channel>, Result<Decoder, SchemaError>)> = Vec::new();
        for batch in file.read(&Query::all())? {
            let batch = batch?;
            for message in batch.iter() {
                let known = decoders
                    .iter()
                    .position(|(channel, _)| Arc::ptr_eq(channel, message.channel));
                let place = known.unwrap_or_else(|| {
                    let decoder =
                        Decoder::new(message.channel, &Projection::All, &[message.payload]);
                    decoders.push((Arc::clone(message.channel), decoder));
                    decoders.len() - 1
                });
                write!(
                    out,
                    "{{\"topic\":{},\"log_time\":{},\"publish_time\":{},\"sequence\":{},\"type\":{},\"encoding\":{},",
                    serde_json::to_string(&message.channel.topic)?,
                    message.log_time.nanos(),
                    message.publish_time.nanos(),
                    message.sequence,
                    serde_json::to_string(message.channel.type_name())?,
                    serde_json::to_string(&message.channel.message_encoding)?,
                )?;
                let data = match &mut decoders[place].1 {
                    Ok(decoder) => decoder
                        .json(message.payload)
                        .map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                match data {
                    Ok(data) => writeln!(out, "\"data\":{data}}}")?,
                    Err(error) => writeln!(
                        out,
                        "\"data\":null,\"error\":{}}}",
                        serde_json::to_string(&error)?
                    )?,
                }
            }
        }
    }
    out.flush()?;
    Ok(())
}
