//! Messages in the forms that a page can show directly.

mod columns;
mod grid;
mod image;
mod points;

use std::fmt;
use std::time::Duration;

use asof_blocks::BlockCache;
use asof_core::{Batch, Message, Source as _, Stamp, Topics};
use asof_decode::{Archetype, Decoders, Record};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::frames::Frames;
use crate::record::{frame_of, json_of, reason};

/// The form in which a client wants a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// Decoded, as JSON. Long content is truncated.
    Json,
    /// An image: as compressed, or as pixels.
    Image,
    /// Points of a point cloud or a laser scan.
    Points,
    /// A grid map.
    Grid,
    /// Its archetype as typed arrays: all columns, complete.
    Columns,
}

impl Form {
    /// Every form.
    pub const ALL: [Form; 5] = [
        Form::Json,
        Form::Image,
        Form::Points,
        Form::Grid,
        Form::Columns,
    ];
}

/// A message in one of the forms: a head in JSON, and bytes.
#[derive(Debug)]
pub(crate) struct Shown {
    pub head: Value,
    /// The message itself as JSON, its fields in the schema's order.
    pub data: Option<String>,
    pub body: Vec<u8>,
}

/// Everything that is needed to show a message.
pub(crate) struct Show<'a> {
    pub decoders: &'a mut Decoders,
    pub cache: &'a BlockCache,
    pub frames: &'a Frames,
    /// Times are relative to this one.
    pub start: Stamp,
    pub wish: ShowOptions,
}

/// The options of a subscription.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct ShowOptions {
    /// The field that colours points, or the layer of a map.
    pub color: Option<String>,
    /// The most points: a page without a graphics card cannot draw more.
    pub most: Option<usize>,
    /// The most messages per second. Those in between are dropped, and counted with the next.
    pub rate: Option<f64>,
}

impl ShowOptions {
    /// Whether a message that was already sent looks the same with other options.
    pub fn looks_like(&self, other: &ShowOptions) -> bool {
        (&self.color, self.most) == (&other.color, other.most)
    }

    /// How long to wait after a message before the next one is sent.
    pub fn pause(&self) -> Duration {
        let rate = self.rate.filter(|rate| rate.is_finite() && *rate > 0.0);
        rate.map_or(Duration::ZERO, |rate| {
            // A little early counts as on time: messages have their own rhythm.
            Duration::from_secs_f64(0.95 / rate.max(MIN_RATE_HZ))
        })
    }
}

/// The lowest rate that a client can request: a slow stream must not look as if it had ended.
const MIN_RATE_HZ: f64 = 0.1;

/// JSON beyond this length is truncated for display.
const LONG_JSON: usize = 64 << 10;
/// The largest message that is shown as text: text takes several times its bytes.
pub(crate) const LARGEST_SHOWN: usize = 32 << 20;
/// The most values of a shortened text.
const MOST_VALUES: usize = 20_000;

impl Show<'_> {
    /// Shows a message in a form. If it cannot be shown, the reason is under `error`.
    pub fn show(&mut self, message: &Message, form: Form) -> Shown {
        let shown = match form {
            Form::Json => self.json(message),
            Form::Image => self
                .meaning(message)
                .and_then(|record| image::show(&record)),
            Form::Points => self.points(message),
            Form::Grid => self.grid(message),
            Form::Columns => self.columns(message),
        };
        let mut shown = shown.unwrap_or_else(|error| Shown {
            head: serde_json::json!({ "error": error }),
            data: None,
            body: Vec::new(),
        });
        if let Some(head) = shown.head.as_object_mut() {
            head.insert("op".into(), "message".into());
            head.insert("topic".into(), message.channel.topic.clone().into());
            head.insert("form".into(), serde_json::json!(form));
            head.insert("t".into(), message.log_time.since(self.start).into());
            head.insert(
                "publish".into(),
                message.publish_time.since(self.start).into(),
            );
            head.insert("sequence".into(), message.sequence.into());
            head.insert("type".into(), message.channel.type_name().into());
            head.insert("size".into(), message.payload.len().into());
        }
        shown
    }

    /// The message's archetype, which is the same for ROS and Foxglove.
    fn meaning(&mut self, message: &Message) -> Result<Record, String> {
        let record = self.decoders.meaning(message);
        record.map_err(|error| reason(&error))
    }

    fn json(&mut self, message: &Message) -> Result<Shown, String> {
        let size = message.payload.len();
        if size > LARGEST_SHOWN {
            return Err(format!(
                "a message of {size} bytes is too large to be shown as text; the limit is {LARGEST_SHOWN}"
            ));
        }
        let text = json_of(self.decoders, message)?;
        let data = if text.len() > LONG_JSON {
            let data = shortened(&text, 200).map_err(|error| error.to_string())?;
            data.to_string()
        } else {
            String::from_utf8(text).map_err(|error| error.to_string())?
        };
        Ok(Shown {
            head: serde_json::json!({}),
            data: Some(data),
            body: Vec::new(),
        })
    }

    fn points(&mut self, message: &Message) -> Result<Shown, String> {
        let record = self.meaning(message)?;
        let mut shown = points::show(&record, &self.wish)?;
        self.place(&record, message, &mut shown);
        Ok(shown)
    }

    fn grid(&mut self, message: &Message) -> Result<Shown, String> {
        if archetype_of(message) == "GridUpdate" {
            return self.updated(message);
        }
        let record = self.meaning(message)?;
        let layer = self.wish.color.as_deref();
        let mut shown = grid::show(&record, archetype_of(message), layer, &[])?;
        self.place(&record, message, &mut shown);
        Ok(shown)
    }

    /// The map that an update belongs to, with this update and those before it: `/map` for `/map_updates`.
    fn updated(&mut self, update: &Message) -> Result<Shown, String> {
        let topic = &update.channel.topic;
        let base = grid::base_of(topic)
            .ok_or_else(|| format!("the map of {topic} is not known by its name"))?;
        let known = self
            .cache
            .latest_at(&Topics::named([base]), update.log_time);
        let known = known.map_err(|error| error.to_string())?;
        let map = known
            .get(0)
            .ok_or_else(|| format!("there is no map on {base} before this update"))?;
        let map = map.to_message();
        let limits = (grid::MOST_UPDATES, grid::MOST_UPDATE_BYTES);
        let all = last_within(self.cache, topic, update.log_time, limits)?;
        let is_cut = all.get(0).is_some_and(|first| {
            let before = self.cache.last_n(topic, first.log_time.plus_nanos(-1), 1);
            let before = before.ok().and_then(|before| Some(before.get(0)?.log_time));
            before.is_some_and(|before| before >= map.log_time)
        });
        let mut patches = Vec::new();
        for one in all.iter().filter(|one| one.log_time >= map.log_time) {
            patches.push(grid::Patch::of(&self.meaning(&one.to_message())?)?);
        }
        let record = self.meaning(&map)?;
        let mut shown = grid::show(&record, archetype_of(&map), None, &patches)?;
        if is_cut {
            shown.head["cut"] = true.into();
        }
        self.place(&record, &map, &mut shown);
        Ok(shown)
    }

    fn columns(&mut self, message: &Message) -> Result<Shown, String> {
        // JSON may have other fields in each message: those of the first are not all.
        let record = if message.channel.message_encoding == "json" {
            let own = Decoders::default().meaning(message);
            own.map_err(|error| error.to_string())?
        } else {
            self.meaning(message)?
        };
        let mut shown = columns::show(&record);
        self.place(&record, message, &mut shown);
        Ok(shown)
    }

    /// Adds the pose of the message's frame at its stamp: a cloud of half a second ago stays where it was measured.
    fn place(&self, record: &Record, message: &Message, shown: &mut Shown) {
        let frame = frame_of(record).unwrap_or_default();
        let stamp = record.stamp().filter(|&stamp| stamp != Stamp::EPOCH);
        let stamp = stamp.unwrap_or(message.log_time);
        let topic = &message.channel.topic;
        let placed = self.frames.in_root(topic, &frame, stamp, message.log_time);
        let frame = self.frames.named(topic, &frame);
        if let Some(head) = shown.head.as_object_mut() {
            head.insert("frame".into(), frame.into());
            if let Some((root, pose)) = placed {
                head.insert("root".into(), root.into());
                head.insert("pose".into(), serde_json::json!(pose));
            }
        }
    }
}

impl Shown {
    /// The head, with the message in it where there is one.
    pub fn text(&self) -> String {
        let mut text = self.head.to_string();
        if let Some(data) = &self.data {
            text.pop();
            text.push_str(",\"data\":");
            text.push_str(data);
            text.push('}');
        }
        text
    }

    /// One binary message: the head's length in four bytes, the head, spaces up to a multiple of eight, the body.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head_bytes();
        bytes.extend(&self.body);
        bytes
    }

    /// A binary message up to its body.
    pub fn head_bytes(&self) -> Vec<u8> {
        let head = self.head.to_string();
        let len = (head.len() + 4).next_multiple_of(8) - 4;
        let mut bytes = (len as u32).to_le_bytes().to_vec();
        bytes.extend(head.into_bytes());
        bytes.resize(4 + len, b' ');
        bytes
    }
}

/// Parses a JSON text without its bulk: of long arrays and texts only the start is kept, and what is left out is counted.
/// So the memory does not depend on the length of the text.
pub(crate) fn shortened(text: &[u8], most: usize) -> Result<Value, serde_json::Error> {
    let mut left = MOST_VALUES;
    let mut parser = serde_json::Deserializer::from_slice(text);
    Shortened {
        most,
        left: &mut left,
    }
    .deserialize(&mut parser)
}

struct Shortened<'a> {
    /// The most items of an array.
    most: usize,
    /// How many more values the whole may have.
    left: &'a mut usize,
}

impl Shortened<'_> {
    fn inner(&mut self) -> Shortened<'_> {
        Shortened {
            most: self.most,
            left: self.left,
        }
    }

    /// Whether there is room for one more value.
    fn take(&mut self) -> bool {
        let has_room = *self.left > 0;
        *self.left = self.left.saturating_sub(1);
        has_room
    }
}

impl<'de> DeserializeSeed<'de> for Shortened<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Value, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Shortened<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        if text.len() <= 4 * self.most {
            return Ok(text.into());
        }
        let kept: String = text.chars().take(64).collect();
        let left_out = text.len() - kept.len();
        Ok(format!("{kept}… ({left_out} more characters)").into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < self.most && self.take() {
            let Some(item) = items.next_element_seed(self.inner())? else {
                return Ok(kept.into());
            };
            kept.push(item);
        }
        let mut left_out = 0_u64;
        while items.next_element::<IgnoredAny>()?.is_some() {
            left_out += 1;
        }
        if left_out > 0 {
            kept.push(format!("… ({left_out} more)").into());
        }
        Ok(kept.into())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Value, A::Error> {
        let mut kept = serde_json::Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if self.take() {
                kept.insert(name, fields.next_value_seed(self.inner())?);
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(kept.into())
    }
}

/// The last messages of a topic: this many, or fewer where those have about this many bytes.
pub(crate) fn last_within(
    cache: &BlockCache,
    topic: &str,
    at: Stamp,
    (most, most_bytes): (usize, usize),
) -> Result<Batch, String> {
    let mut count = FIRST_LOOK.min(most);
    loop {
        let known = cache.last_n(topic, at, count);
        let known = known.map_err(|error| error.to_string())?;
        let bytes: usize = known.iter().map(|message| message.payload.len()).sum();
        if known.len() < count || count == most || bytes >= most_bytes {
            return Ok(known);
        }
        // As many as fit if the others are as large.
        let fitting = count * (most_bytes / bytes.max(1) + 1);
        count = fitting.min(8 * count).min(most);
    }
}

/// The messages that are looked at first, to learn how large they are.
const FIRST_LOOK: usize = 16;

/// What a message means.
fn archetype_of(message: &Message) -> &'static str {
    Archetype::of(message.channel.type_name()).map_or("", |archetype| archetype.name)
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_message_has_its_body_at_a_multiple_of_eight() {
        for name in ["", "a", "ab", "abcdefg"] {
            let shown = Shown {
                head: serde_json::json!({ "name": name }),
                data: None,
                body: vec![1, 2, 3],
            };
            let bytes = shown.to_bytes();
            let len = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
            assert_eq!((len + 4) % 8, 0);
            assert_eq!(&bytes[4 + len..], [1, 2, 3]);
        }
    }

    #[test]
    fn long_lists_are_cut_and_say_so() {
        let text = serde_json::json!({ "a": vec![0; 500], "b": "x".repeat(2000), "c": [null, true, -1, 1.5] });
        let value = shortened(text.to_string().as_bytes(), 200).expect("it is JSON");
        assert_eq!(value["c"], text["c"]);
        assert_eq!(value["a"].as_array().map(Vec::len), Some(201));
        assert_eq!(value["a"][200], "… (300 more)");
        assert!(value["b"].as_str().is_some_and(|text| text.len() < 120));
    }

    #[test]
    fn lists_within_lists_are_cut_to_a_number_of_values_together() {
        let text = serde_json::json!(vec![vec![vec![0; 150]; 150]; 150]).to_string();
        let value = shortened(text.as_bytes(), 200).expect("it is JSON");
        assert!(value.to_string().len() < 10 * MOST_VALUES);
        assert_eq!(value[0][0], serde_json::json!(vec![0; 150]));
    }
}
