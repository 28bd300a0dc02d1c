//! The video packets for an instant: from the last keyframe on.

use asof_core::Message;
use asof_decode::{Decoders, VideoCodec};
use serde_json::json;

use crate::app::App;
use crate::reply::{Failure, Reply};
use crate::show::Shown;

/// How many packets are searched for a keyframe, in growing steps.
const SEARCH_STEPS: [usize; 4] = [32, 128, 512, 2048];
/// The most bytes of packets in one response.
const MOST_BYTES: usize = 64 << 20;

/// The packets of a topic that a decoder needs to show it as of `t`. For a decoder that has shown everything up to
/// `after`, the packets since then; where that is `None`, or too long ago, the decoder starts over.
pub(crate) fn packets(
    app: &App,
    reply: &mut Reply,
    topic: &str,
    t: i64,
    after: Option<i64>,
) -> Result<(), Failure> {
    let mut decoders = Decoders::default();
    for count in SEARCH_STEPS {
        let known = app.cache.last_n(topic, app.absolute(t), count);
        let known = known.map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        let mut room = reply.room(0)?;
        let (mut bytes, most) = (0, MOST_BYTES.min(app.waiting.share(usize::MAX)));
        // From the newest back to a keyframe, or to what has been shown.
        for message in known.iter().rev() {
            let at = app.relative(message.log_time);
            if after.is_some_and(|after| at <= after) {
                return answer(reply, found, false);
            }
            bytes += message.payload.len();
            if bytes > most {
                return Err(Failure::Wrong(format!(
                    "the packets since the last keyframe have more than {most} bytes, which is the limit"
                )));
            }
            let more = reply.room(message.payload.len())?;
            room.join(more);
            let packet = Packet::of(&mut decoders, &message.to_message())?;
            let is_key = packet.codec.is_key(&packet.data);
            found.push((at, packet));
            if is_key {
                return answer(reply, found, true);
            }
        }
        let is_all = known.len() < count;
        if is_all && found.is_empty() {
            let text = format!("there is no image on {topic} up to this time");
            return Err(Failure::Wrong(text));
        }
        if is_all {
            break;
        }
    }
    Err(Failure::Wrong(format!(
        "there is no keyframe on {topic} up to this time; choose a later time"
    )))
}

struct Packet {
    codec: VideoCodec,
    data: Vec<u8>,
}

impl Packet {
    fn of(decoders: &mut Decoders, message: &Message) -> Result<Self, String> {
        let record = decoders.meaning(message);
        let record = record.map_err(|error| error.to_string())?;
        let format = record.text("format").ok_or("it has no field 'format'")?;
        let codec = VideoCodec::named(&format)
            .ok_or_else(|| format!("the video format '{format}' is not supported"))?;
        let data = record.bytes("data").ok_or("it has no field 'data'")?;
        Ok(Packet { codec, data })
    }
}

/// The packets in order, each with the time of its message. A packet without an image is merged with the next that has
/// one.
fn answer(
    reply: &mut Reply,
    mut found: Vec<(i64, Packet)>,
    starts_anew: bool,
) -> Result<(), Failure> {
    found.reverse();
    let first = found.first().map(|(_, packet)| packet);
    let codec = first.and_then(|packet| packet.codec.parameter_text(&packet.data));
    let name = first.map(|packet| packet.codec.name());
    let mut packets = Vec::new();
    let (mut start, mut end, mut shown) = (0, 0, 0);
    for (index, (at, packet)) in found.iter().enumerate() {
        end += packet.data.len();
        if packet.codec.has_picture(&packet.data) {
            packets.push(json!({ "t": at, "at": start, "size": end - start }));
            (start, shown) = (end, index + 1);
        }
    }
    let head = json!({ "anew": starts_anew, "codec": codec, "name": name, "packets": packets });
    let head = Shown {
        head,
        data: None,
        body: Vec::new(),
    };
    reply.write(&head.head_bytes())?;
    for (_, packet) in found.drain(..shown) {
        reply.write(&packet.data)?;
    }
    Ok(())
}
