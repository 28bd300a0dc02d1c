//! A message's archetype as typed arrays: all its columns, complete.
//!
//! Everything that is drawn comes in this form. Numbers are float32 or float64, texts and lists have offsets, so that
//! a path of ten thousand poses is a few arrays and nothing is truncated.

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use asof_decode::{Record, is_number, numbers};
use serde_json::{Value, json};

use super::Shown;

/// The deepest nesting of columns: deeper ones are omitted.
const MAX_DEPTH: usize = 24;

/// The columns in the head, with the position of each in the body:
///
/// - `f32`, `f64`: `len` numbers of `width` components each; NaN where a value is missing;
/// - `list`: `len` + 1 offsets in uint32 into the columns below `path[]`;
/// - `text`: `len` + 1 offsets in uint32, then the bytes at `bytes`.
///
/// What is not sent, such as embedded files, is listed under `left_out`.
pub(super) fn show(record: &Record) -> Shown {
    let mut columns = Columns::default();
    let batch = record.batch();
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        columns.add(field.name(), array, None, 0);
    }
    let head = json!({
        "rows": batch.num_rows(), "columns": columns.heads, "left_out": columns.left_out,
    });
    Shown {
        head,
        data: None,
        body: columns.body,
    }
}

#[derive(Default)]
struct Columns {
    heads: Vec<Value>,
    left_out: Vec<String>,
    body: Vec<u8>,
}

impl Columns {
    /// `above`: null where an enclosing struct is null.
    fn add(&mut self, path: &str, array: &ArrayRef, above: Option<&NullBuffer>, depth: usize) {
        if depth > MAX_DEPTH {
            return self.left_out.push(path.to_owned());
        }
        let nulls = NullBuffer::union(above, array.nulls());
        match array.data_type() {
            DataType::Struct(fields) => {
                for (field, inner) in fields.iter().zip(array.as_struct().columns()) {
                    let path = format!("{path}.{}", field.name());
                    self.add(&path, inner, nulls.as_ref(), depth + 1);
                }
            }
            DataType::List(_) => self.list(path, array, nulls.as_ref(), depth),
            DataType::FixedSizeList(item, width) if is_number(item.data_type()) => {
                let list = array.as_fixed_size_list();
                let values = list.values();
                let first = list.value_offset(0) as usize;
                let values = values.slice(first, list.len() * *width as usize);
                self.numbers(path, &values, nulls.as_ref(), *width as usize);
            }
            DataType::FixedSizeList(_, width) => {
                let list = array.as_fixed_size_list();
                let width = *width as usize;
                let offsets = (0..=list.len()).map(|row| (row * width) as u32);
                self.offsets(path, offsets, list.len());
                let items = list
                    .values()
                    .slice(list.value_offset(0) as usize, list.len() * width);
                self.add(&format!("{path}[]"), &items, None, depth + 1);
            }
            DataType::Utf8 => self.text(path, array, nulls.as_ref()),
            kind if is_number(kind) => self.numbers(path, array, nulls.as_ref(), 1),
            DataType::Null => {}
            _ => self.left_out.push(path.to_owned()),
        }
    }

    fn list(&mut self, path: &str, array: &ArrayRef, nulls: Option<&NullBuffer>, depth: usize) {
        let list = array.as_list::<i32>();
        let mut ends = vec![0_u32];
        let first = list.value_offsets().first().copied().unwrap_or(0);
        let last = list.value_offsets().last().copied().unwrap_or(0);
        if nulls.is_none_or(|nulls| nulls.null_count() == 0) {
            let after = list.value_offsets().iter().skip(1);
            ends.extend(after.map(|&offset| (offset - first) as u32));
            self.offsets(path, ends, list.len());
            let items = list.values().slice(first as usize, (last - first) as usize);
            return self.add(&format!("{path}[]"), &items, None, depth + 1);
        }
        // A list that is null may have elements all the same; they are removed.
        let mut kept: Vec<ArrayRef> = Vec::new();
        for row in 0..list.len() {
            let items = list.value(row);
            let is_there = nulls.is_none_or(|nulls| nulls.is_valid(row));
            let len = if is_there { items.len() as u32 } else { 0 };
            ends.push(ends[row] + len);
            if len > 0 {
                kept.push(items);
            }
        }
        self.offsets(path, ends, list.len());
        let parts: Vec<&dyn Array> = kept.iter().map(|items| &**items).collect();
        if let Ok(items) = arrow_select::concat::concat(&parts) {
            self.add(&format!("{path}[]"), &items, None, depth + 1);
        }
    }

    fn numbers(&mut self, path: &str, array: &ArrayRef, nulls: Option<&NullBuffer>, width: usize) {
        let at = self.aligned();
        let is_there = |place: usize| nulls.is_none_or(|nulls| nulls.is_valid(place / width));
        let kind = if *array.data_type() == DataType::Float32 {
            for (place, value) in array.as_primitive::<Float32Type>().iter().enumerate() {
                let value = value.filter(|_| is_there(place)).unwrap_or(f32::NAN);
                self.body.extend(value.to_le_bytes());
            }
            "f32"
        } else {
            for (place, value) in numbers(&**array).into_iter().enumerate() {
                let value = if is_there(place) { value } else { f64::NAN };
                self.body.extend(value.to_le_bytes());
            }
            "f64"
        };
        let len = array.len() / width.max(1);
        self.heads
            .push(json!({ "path": path, "kind": kind, "at": at, "len": len, "width": width }));
    }

    fn text(&mut self, path: &str, array: &ArrayRef, nulls: Option<&NullBuffer>) {
        let at = self.aligned();
        let texts = array.as_string::<i32>();
        let mut bytes: Vec<u8> = Vec::new();
        self.body.extend(0_u32.to_le_bytes());
        for row in 0..texts.len() {
            if texts.is_valid(row) && nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                bytes.extend(texts.value(row).as_bytes());
            }
            self.body.extend((bytes.len() as u32).to_le_bytes());
        }
        let start = self.aligned();
        self.body.extend(bytes);
        self.heads.push(
            json!({ "path": path, "kind": "text", "at": at, "len": texts.len(), "bytes": start }),
        );
    }

    fn offsets(&mut self, path: &str, ends: impl IntoIterator<Item = u32>, len: usize) {
        let at = self.aligned();
        self.body
            .extend(ends.into_iter().flat_map(u32::to_le_bytes));
        self.heads
            .push(json!({ "path": path, "kind": "list", "at": at, "len": len }));
    }

    /// The start of the next array: a multiple of eight, as typed arrays require.
    fn aligned(&mut self) -> usize {
        self.body.resize(self.body.len().next_multiple_of(8), 0);
        self.body.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof_core::{Channel, Message, Stamp};
    use asof_decode::Decoders;
    use std::sync::Arc;

    fn shown(type_name: &str, data: &Value) -> Shown {
        let schema = asof_core::Schema {
            name: type_name.to_owned(),
            ..asof_core::Schema::default()
        };
        let channel = Channel {
            topic: "/t".to_owned(),
            message_encoding: "json".to_owned(),
            schema: Some(Arc::new(schema)),
            ..Channel::default()
        };
        let message = Message {
            channel: Arc::new(channel),
            log_time: Stamp::EPOCH,
            publish_time: Stamp::EPOCH,
            sequence: 0,
            payload: data.to_string().into_bytes().into(),
        };
        let record = Decoders::default().meaning(&message).expect("decoded");
        show(&record)
    }

    fn column<'a>(shown: &'a Shown, path: &str) -> &'a Value {
        let all = shown.head["columns"].as_array().expect("columns");
        let found = all.iter().find(|column| column["path"] == path);
        found.unwrap_or_else(|| panic!("{path} is not in {}", shown.head))
    }

    fn doubles(shown: &Shown, path: &str) -> Vec<f64> {
        let column = column(shown, path);
        assert_eq!(column["kind"], "f64");
        let at = column["at"].as_u64().expect("a place") as usize;
        let len = column["len"].as_u64().expect("a length") * column["width"].as_u64().unwrap_or(1);
        let bytes = &shown.body[at..at + 8 * len as usize];
        bytes
            .chunks_exact(8)
            .map(|word| f64::from_le_bytes(word.try_into().expect("eight")))
            .collect()
    }

    fn offsets(shown: &Shown, path: &str) -> Vec<u32> {
        let column = column(shown, path);
        let at = column["at"].as_u64().expect("a place") as usize;
        let len = column["len"].as_u64().expect("a length") as usize + 1;
        shown.body[at..at + 4 * len]
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes(word.try_into().expect("four")))
            .collect()
    }

    #[test]
    fn a_path_of_ten_thousand_poses_comes_whole() {
        let pose = |at: usize| json!({"pose": {"position": {"x": at as f64 + 0.5, "y": 0.0, "z": 0.0}, "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}}});
        let poses: Vec<Value> = (0..10_000).map(pose).collect();
        let path = shown(
            "nav_msgs/Path",
            &json!({"header": {"frame_id": "map"}, "poses": poses}),
        );
        assert_eq!(offsets(&path, "poses"), [0, 10_000]);
        let x = doubles(&path, "poses[].pose.position.x");
        assert_eq!(x.len(), 10_000);
        assert!((x[9_999] - 9_999.5).abs() < 1e-9);
        assert_eq!(path.head["left_out"], json!([]));
    }

    #[test]
    fn each_marker_is_a_row_and_what_it_lacks_is_not_a_number() {
        let markers = json!({"markers": [
            {"header": {"frame_id": "map"}, "ns": "a", "id": 1, "type": 4, "points": [{"x": 1.5, "y": 2.0, "z": 3.0}, {"x": 4.5, "y": 5.0, "z": 6.0}]},
            {"header": {"frame_id": "odom"}, "ns": "bc", "id": 2, "type": 9, "text": "hello", "pose": {"position": {"x": 7.5, "y": 8.0, "z": 9.0}}},
        ]});
        let shown = shown("visualization_msgs/MarkerArray", &markers);
        assert_eq!(shown.head["rows"], 2);
        assert_eq!(doubles(&shown, "id"), [1.0, 2.0]);
        assert_eq!(offsets(&shown, "points"), [0, 2, 2]);
        assert_eq!(doubles(&shown, "points[].x"), [1.5, 4.5]);
        let position = doubles(&shown, "position");
        assert!(position[..3].iter().all(|part| part.is_nan()));
        assert_eq!(position[3..], [7.5, 8.0, 9.0]);
        let frames = column(&shown, "frame_id");
        assert_eq!(frames["kind"], "text");
        assert_eq!(offsets(&shown, "frame_id"), [0, 3, 7]);
        let bytes = frames["bytes"].as_u64().expect("a place") as usize;
        assert_eq!(&shown.body[bytes..bytes + 7], b"mapodom");
    }

    #[test]
    fn no_markers_have_no_ids() {
        let shown = shown("visualization_msgs/MarkerArray", &json!({"markers": []}));
        let all = shown.head["columns"].as_array().expect("columns");
        assert!(
            all.iter()
                .all(|column| column["path"] != "id" || column["len"] == 0)
        );
    }
}
