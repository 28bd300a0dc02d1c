//! The sound of a topic, for a waveform and for listening.

use asof_blocks::HeadClass;
use asof_core::{Message, Query};
use asof_decode::Decoders;
use serde_json::{Value, json};

use crate::app::App;
use crate::reply::{Failure, Reply};
use crate::show::Shown;

/// The most bytes of sound in one response.
const MOST_BYTES: usize = 64 << 20;

/// The sound of a topic from its start, as far as it fits into one response: the format in the head, where each message
/// begins, and all bytes.
pub(crate) fn packets(app: &App, reply: &mut Reply, topic: &str) -> Result<(), Failure> {
    let most = app.waiting.share(MOST_BYTES);
    let mut decoders = Decoders::default();
    let (mut room, mut is_cut, mut bytes) = (reply.room(0)?, false, 0);
    let mut format = Value::Null;
    let mut found: Vec<(i64, Vec<u8>)> = Vec::new();
    let mut done: Result<(), Failure> = Ok(());
    let query = Query::topics([topic]);
    let mut take = |message: &Message| -> Result<usize, Failure> {
        room.join(reply.room(message.payload.len())?);
        let record = decoders.meaning(message);
        let record = record.map_err(|error| error.to_string())?;
        let data = record.bytes("data").ok_or("it has no field 'data'")?;
        if found.is_empty() {
            let name = record.text("format").filter(|name| !name.is_empty());
            format = json!({
                "name": name.unwrap_or_else(|| format_of(&data).to_owned()),
                "rate": record.number("sample_rate"),
                "channels": record.number("number_of_channels"),
            });
        }
        let len = data.len();
        found.push((app.relative(message.log_time), data));
        Ok(len)
    };
    crate::series::each(&app.cache, &query, HeadClass::Scrub, |message| {
        is_cut = bytes + message.payload.len() > most;
        if is_cut {
            return false;
        }
        done = take(&message).map(|taken| bytes += taken);
        done.is_ok()
    })?;
    done?;
    if found.is_empty() {
        return Err(Failure::Wrong(format!("there is no sound on {topic}")));
    }
    let mut packets = Vec::with_capacity(found.len());
    let mut at = 0;
    for (t, data) in &found {
        packets.push(json!({ "t": t, "at": at, "size": data.len() }));
        at += data.len();
    }
    let head = json!({ "format": format, "cut": is_cut, "packets": packets });
    let head = Shown {
        head,
        data: None,
        body: Vec::new(),
    };
    reply.write(&head.head_bytes())?;
    for (_, data) in found {
        reply.write(&data)?;
    }
    Ok(())
}

/// The format of sound whose messages do not name it.
fn format_of(data: &[u8]) -> &'static str {
    match data {
        [b'R', b'I', b'F', b'F', ..] => "wav",
        [b'O', b'g', b'g', b'S', ..] => "ogg",
        [b'f', b'L', b'a', b'C', ..] => "flac",
        [b'I', b'D', b'3', ..] => "mp3",
        // The sync word of a frame: MPEG-1 or 2, layer III.
        [0xff, second, ..] if second & 0xe6 == 0xe2 => "mp3",
        _ => "pcm-s16",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_that_is_not_named_is_known_by_its_first_bytes() {
        assert_eq!(format_of(&[0xff, 0xfb, 0x90, 0x64]), "mp3");
        assert_eq!(format_of(b"ID3\x04"), "mp3");
        assert_eq!(format_of(b"OggS\0"), "ogg");
        assert_eq!(format_of(b"RIFF\0"), "wav");
        assert_eq!(format_of(&[0xff, 0xff, 0x01, 0x00]), "pcm-s16");
        assert_eq!(format_of(&[]), "pcm-s16");
    }
}
