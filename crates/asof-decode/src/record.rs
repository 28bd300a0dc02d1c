//! One decoded message, read by path.

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{Array, ArrayRef, BinaryViewArray, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use asof_core::Stamp;
use base64::Engine as _;

use crate::numbers::numbers;
use crate::path::{FieldPath, PathColumn};

/// One decoded message: a table of one row, or of one for each of its parts, read by path.
///
/// It comes from [`Decoders::record`](crate::Decoders::record) or [`Decoders::meaning`](crate::Decoders::meaning).
/// All values are of the first row; `None` where the path does not lead to a value of that kind.
#[derive(Debug, Clone)]
pub struct Record {
    batch: RecordBatch,
}

impl Record {
    pub(crate) fn new(batch: RecordBatch) -> Self {
        Record { batch }
    }

    /// The rows.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    fn column(&self, path: &str) -> Option<PathColumn> {
        FieldPath::parse(path).ok()?.column(&self.batch).ok()
    }

    /// The value at a path, as an array of one.
    pub fn array(&self, path: &str) -> Option<ArrayRef> {
        self.column(path)?.at(0)
    }

    /// The number at a path.
    pub fn number(&self, path: &str) -> Option<f64> {
        self.column(path)?.number(0)
    }

    /// The text at a path.
    pub fn text(&self, path: &str) -> Option<String> {
        self.column(path)?.text(0).map(str::to_owned)
    }

    /// The bytes at a path. Bytes in JSON are text in base64, or a list of numbers.
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        self.buffer(path).map(|buffer| buffer.to_vec())
    }

    /// The same, as a slice of the decoded batch where they are stored as they are.
    pub fn buffer(&self, path: &str) -> Option<Buffer> {
        let array = self.array(path)?;
        match array.data_type() {
            DataType::BinaryView => Some(viewed(array.as_binary_view())),
            DataType::FixedSizeBinary(_) => Some(array.as_fixed_size_binary().value(0).into()),
            DataType::Utf8 => base64::engine::general_purpose::STANDARD
                .decode(array.as_string::<i32>().value(0))
                .ok()
                .map(Buffer::from_vec),
            _ => {
                let numbers = self.list(path)?;
                Some(numbers.into_iter().map(|n| n as i64 as u8).collect())
            }
        }
    }

    /// The elements of the list at a path.
    pub fn items(&self, path: &str) -> Option<ArrayRef> {
        let array = self.array(path)?;
        match array.data_type() {
            DataType::List(_) => Some(array.as_list::<i32>().value(0)),
            DataType::FixedSizeList(..) => Some(array.as_fixed_size_list().value(0)),
            _ => None,
        }
    }

    /// The list of numbers at a path.
    pub fn list(&self, path: &str) -> Option<Vec<f64>> {
        self.items(path).map(|items| numbers(&*items))
    }

    /// `[x, y, z, qx, qy, qz, qw]` of a message with a pose, by its archetype.
    pub fn pose(&self) -> Option<[f64; 7]> {
        let position = self.list("position")?;
        let [x, y, rest @ ..] = &position[..] else {
            return None;
        };
        let orientation = self.list("orientation").unwrap_or_default();
        let [qx, qy, qz, qw] = orientation.try_into().unwrap_or([0.0, 0.0, 0.0, 1.0]);
        let z = rest.first().copied().unwrap_or(0.0);
        Some([*x, *y, z, qx, qy, qz, qw])
    }

    /// The message's stamp: when it was measured.
    pub fn stamp(&self) -> Option<Stamp> {
        let stamps = self.batch.column_by_name("stamp")?;
        let stamps = stamps.as_primitive_opt::<TimestampNanosecondType>()?;
        (!stamps.is_empty() && stamps.is_valid(0)).then(|| Stamp::from_nanos(stamps.value(0)))
    }
}

/// The first value of an array. Short values are within the view, all others in one of its buffers.
fn viewed(array: &BinaryViewArray) -> Buffer {
    let bytes = array.value(0);
    let offset = |buffer: &Buffer| {
        let offset = bytes.as_ptr().addr().checked_sub(buffer.as_ptr().addr())?;
        (offset + bytes.len() <= buffer.len()).then_some(offset)
    };
    let lies_in = array.data_buffers().iter();
    let mut slices = lies_in.filter_map(|buffer| {
        let offset = offset(buffer)?;
        Some(buffer.slice_with_length(offset, bytes.len()))
    });
    slices.next().unwrap_or_else(|| bytes.into())
}
