//! The rows of a dataset, in Parquet files of a good size.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, StructArray,
};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::{DATA_BYTES, DATA_PATH, LerobotError, failed, file_path};

/// A row group that is being made takes at most about this much memory.
const GROUP_BYTES: usize = 32 << 20;

/// The columns of the rows, by the name of the feature.
pub(super) struct Columns {
    /// Numeric features, and the width of each.
    pub(super) numbers: BTreeMap<String, usize>,
    /// Features of pictures that are in the rows.
    pub(super) pictures: Vec<String>,
}

/// Some frames of an episode.
pub(super) struct Frames<'a> {
    pub(super) episode: usize,
    pub(super) task: usize,
    /// The first frame, in its episode and in the dataset.
    pub(super) frame: usize,
    pub(super) index: usize,
    pub(super) count: usize,
    pub(super) numbers: BTreeMap<&'a str, &'a [f32]>,
    pub(super) pictures: BTreeMap<&'a str, &'a [Bytes]>,
}

/// The files.
pub(super) struct DataFiles {
    folder: PathBuf,
    hz: u32,
    columns: Columns,
    schema: SchemaRef,
    writer: Option<Table>,
    /// The number of files so far.
    files: usize,
}

impl DataFiles {
    /// `files` is how many there are already.
    pub(super) fn new(folder: &Path, hz: u32, columns: Columns, files: usize) -> Self {
        let mut fields = Vec::new();
        for (name, width) in &columns.numbers {
            fields.push(Field::new(name, number_type(*width), false));
        }
        for name in &columns.pictures {
            fields.push(Field::new(name, DataType::Struct(picture_fields()), false));
        }
        fields.push(Field::new("timestamp", DataType::Float32, false));
        for name in ["frame_index", "episode_index", "index", "task_index"] {
            fields.push(Field::new(name, DataType::Int64, false));
        }
        DataFiles {
            folder: folder.to_owned(),
            hz,
            columns,
            schema: Arc::new(Schema::new(fields)),
            writer: None,
            files,
        }
    }

    /// The number of the next episode's file. An episode is never in two files.
    pub(super) fn begin_episode(&mut self) -> Result<usize, LerobotError> {
        let size = self.writer.as_ref();
        let size = size.map_or(0, |table| table.writer.bytes_written());
        if size as u64 >= DATA_BYTES {
            self.finish()?;
        }
        if self.writer.is_none() {
            let path = self.folder.join(file_path(DATA_PATH, self.files));
            self.writer = Some(Table::start(&path, &self.schema)?);
            self.files += 1;
        }
        Ok(self.files - 1)
    }

    pub(super) fn write(&mut self, frames: &Frames<'_>) -> Result<(), LerobotError> {
        let mut columns: Vec<ArrayRef> = Vec::new();
        for (name, width) in &self.columns.numbers {
            let values = frames
                .numbers
                .get(name.as_str())
                .copied()
                .unwrap_or_default();
            let values: ArrayRef = Arc::new(Float32Array::from(values.to_vec()));
            columns.push(if *width == 1 {
                values
            } else {
                let item = Arc::new(Field::new("item", DataType::Float32, false));
                Arc::new(FixedSizeListArray::try_new(
                    item,
                    *width as i32,
                    values,
                    None,
                )?)
            });
        }
        for name in &self.columns.pictures {
            let files = frames
                .pictures
                .get(name.as_str())
                .copied()
                .unwrap_or_default();
            let mut bytes = BinaryBuilder::new();
            let mut paths = StringBuilder::new();
            for file in files {
                bytes.append_value(file);
                paths.append_null();
            }
            let parts: Vec<ArrayRef> = vec![Arc::new(bytes.finish()), Arc::new(paths.finish())];
            columns.push(Arc::new(StructArray::try_new(
                picture_fields(),
                parts,
                None,
            )?));
        }
        let frame = frames.frame..frames.frame + frames.count;
        let hz = f64::from(self.hz);
        let times = frame.clone().map(|frame| (frame as f64 / hz) as f32);
        columns.push(Arc::new(Float32Array::from_iter_values(times)));
        let all = |value: usize| Int64Array::from(vec![value as i64; frames.count]);
        let counted = |from: usize| {
            Int64Array::from_iter_values((from..from + frames.count).map(|at| at as i64))
        };
        columns.push(Arc::new(counted(frames.frame)));
        columns.push(Arc::new(all(frames.episode)));
        columns.push(Arc::new(counted(frames.index)));
        columns.push(Arc::new(all(frames.task)));
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        if let Some(writer) = &mut self.writer {
            writer.write(&batch)?;
        }
        Ok(())
    }

    pub(super) fn finish(&mut self) -> Result<(), LerobotError> {
        if let Some(writer) = self.writer.take() {
            writer.close()?;
        }
        Ok(())
    }
}

/// A Parquet file in progress.
pub(super) struct Table {
    path: PathBuf,
    writer: ArrowWriter<File>,
}

impl Table {
    /// Starts it in a folder that is created for it.
    pub(super) fn start(path: &Path, schema: &SchemaRef) -> Result<Self, LerobotError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        }
        let file = File::create_new(path).map_err(|error| failed(path, &error))?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties.build()));
        Ok(Table {
            path: path.to_owned(),
            writer: writer.map_err(unwritten(path))?,
        })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), LerobotError> {
        let mut written = self.writer.write(batch);
        if self.writer.in_progress_size() >= GROUP_BYTES {
            written = written.and_then(|()| self.writer.flush());
        }
        written.map_err(unwritten(&self.path))
    }

    pub(super) fn close(self) -> Result<(), LerobotError> {
        let closed = self.writer.close().map(drop);
        closed.map_err(unwritten(&self.path))
    }
}

fn unwritten(path: &Path) -> impl Fn(ParquetError) -> LerobotError {
    |error| {
        let cause = match error {
            ParquetError::External(cause) => io::Error::other(cause),
            error => io::Error::other(error),
        };
        LerobotError::Write {
            path: path.to_owned(),
            cause,
        }
    }
}

/// A single number is not a list.
fn number_type(width: usize) -> DataType {
    if width == 1 {
        return DataType::Float32;
    }
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    DataType::FixedSizeList(item, width as i32)
}

/// A picture in the form of Hugging Face's datasets: a file within the row.
fn picture_fields() -> Fields {
    Fields::from(vec![
        Field::new("bytes", DataType::Binary, true),
        Field::new("path", DataType::Utf8, true),
    ])
}
