//! The table of definitions.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use arrow_array::RecordBatch;
use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::cast::AsArray as _;
use arrow_schema::{ArrowError, DataType, Field, Schema as ArrowSchema, SchemaRef};
use asof_core::Schema;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::{column, text, wrong_type};

/// The definition of a message type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaRow {
    /// The [`schema_hash`] of the definition.
    pub hash: String,
    /// The type's name.
    pub name: String,
    /// The language of the definition.
    pub encoding: String,
    /// The definition itself.
    pub definition: Bytes,
}

/// A hash that is equal for two definitions if and only if name, encoding and text are equal.
pub fn schema_hash(schema: &Schema) -> String {
    let mut hash = Sha256::new();
    for part in [
        schema.name.as_bytes(),
        schema.encoding.as_bytes(),
        &schema.data,
    ] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(ArrowSchema::new(vec![
        text("hash"),
        text("name"),
        text("encoding"),
        Field::new("definition", DataType::Binary, false),
    ]))
});

impl SchemaRow {
    /// The row of a definition.
    pub fn of(schema: &Schema) -> Self {
        SchemaRow {
            hash: schema_hash(schema),
            name: schema.name.clone(),
            encoding: schema.encoding.clone(),
            definition: schema.data.clone(),
        }
    }

    pub(crate) fn schema() -> SchemaRef {
        Arc::clone(&SCHEMA)
    }

    /// Rows as a table, sorted by hash.
    pub(crate) fn batch(rows: &mut [SchemaRow]) -> Result<RecordBatch, ArrowError> {
        rows.sort_by(|a, b| a.hash.cmp(&b.hash));
        let mut texts: [StringBuilder; 3] = std::array::from_fn(|_| StringBuilder::new());
        let mut definitions = BinaryBuilder::new();
        for row in &*rows {
            for (column, value) in texts.iter_mut().zip([&row.hash, &row.name, &row.encoding]) {
                column.append_value(value);
            }
            definitions.append_value(&row.definition);
        }
        let [hash, name, encoding] = texts.each_mut().map(|column| Arc::new(column.finish()));
        RecordBatch::try_new(
            Self::schema(),
            vec![hash, name, encoding, Arc::new(definitions.finish())],
        )
    }

    /// All rows of a table.
    pub(crate) fn rows(batch: &RecordBatch) -> Result<Vec<SchemaRow>, ArrowError> {
        let definitions = column(batch, "definition")?
            .as_binary_opt::<i32>()
            .ok_or_else(|| wrong_type("definition", "bytes"))?;
        let owned =
            |name, row| Ok::<_, ArrowError>(text(batch, name, row)?.unwrap_or_default().to_owned());
        let row = |row: usize| {
            Ok(SchemaRow {
                hash: owned("hash", row)?,
                name: owned("name", row)?,
                encoding: owned("encoding", row)?,
                definition: Bytes::copy_from_slice(definitions.value(row)),
            })
        };
        (0..batch.num_rows()).map(row).collect()
    }
}
