//! One table in the making, as Parquet or Arrow.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, LogicalType, Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::newfile::NewFile;
use super::writing::folder_of;

/// What a batch of rows may hold; the decoder's own measure would fill all the memory that there is for both.
pub const BATCH_BYTES: usize = 1 << 20;
/// What rows that wait for their row group may hold in memory, over all tables.
const HELD_BYTES: usize = 2 << 20;
/// A row group is written when this much of it waits. Readers open a file by its row groups: many small ones
/// cost each of them dearly.
const GROUP_BYTES: usize = 32 << 20;
/// What is encoded of a row group until it is written, at the latest.
const ENCODED_BYTES: usize = 8 << 20;
/// Rows of a page: what Parquet keeps beside the values until a page is whole is in no count of its own.
const PAGE_ROWS: usize = 4 << 10;

/// What a table is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    Parquet,
    Arrow,
}

/// A table that appears as a file when it is finished.
pub struct TableFile {
    new: NewFile,
    path: PathBuf,
    writer: Writer,
    schema: SchemaRef,
}

enum Writer {
    Parquet(Box<RowGroups>),
    Arrow(Box<FileWriter<BufWriter<File>>>),
}

impl TableFile {
    /// Starts a table whose batches are like this one.
    pub fn start(
        new: NewFile,
        path: PathBuf,
        schema: &SchemaRef,
        container: Container,
    ) -> anyhow::Result<Self> {
        let out = new.writer()?;
        let writer = match container {
            Container::Parquet => RowGroups::start(out, schema, folder_of(&path))
                .map(|groups| Writer::Parquet(Box::new(groups))),
            Container::Arrow => FileWriter::try_new(out, schema)
                .map(|writer| Writer::Arrow(Box::new(writer)))
                .map_err(anyhow::Error::from),
        };
        let writer = writer.with_context(|| failed(&path))?;
        Ok(TableFile {
            new,
            path,
            writer,
            schema: SchemaRef::clone(schema),
        })
    }

    /// Whether a batch has the columns of this table.
    pub fn fits(&self, batch: &RecordBatch) -> bool {
        self.schema.fields() == batch.schema_ref().fields()
    }

    pub fn write(&mut self, batch: RecordBatch) -> anyhow::Result<()> {
        match &mut self.writer {
            Writer::Parquet(groups) => groups.write(batch),
            Writer::Arrow(writer) => writer.write(&batch).map_err(Into::into),
        }
        .with_context(|| failed(&self.path))
    }

    /// Puts the table where it belongs.
    pub fn finish(self) -> anyhow::Result<()> {
        let finished = match self.writer {
            Writer::Parquet(groups) => groups.finish(),
            Writer::Arrow(writer) => writer
                .into_inner()
                .map_err(anyhow::Error::from)
                .and_then(|mut out| Ok(out.flush()?)),
        };
        finished.with_context(|| failed(&self.path))?;
        self.new.finish()
    }

    fn held(&self) -> usize {
        match &self.writer {
            Writer::Parquet(groups) => groups.held,
            Writer::Arrow(_) => 0,
        }
    }

    fn set_aside(&mut self) -> anyhow::Result<()> {
        match &mut self.writer {
            Writer::Parquet(groups) => groups.set_aside(),
            Writer::Arrow(_) => Ok(()),
        }
        .with_context(|| failed(&self.path))
    }
}

fn failed(path: &Path) -> String {
    format!("cannot write {}: is the disk full?", path.display())
}

/// Puts what waits in memory on the disk, the largest tables first, so that memory does not grow with their
/// number.
pub fn keep_within_memory<K: Ord>(tables: &mut BTreeMap<K, TableFile>) -> anyhow::Result<()> {
    while tables.values().map(TableFile::held).sum::<usize>() > HELD_BYTES {
        match tables.values_mut().max_by_key(|table| table.held()) {
            Some(largest) => largest.set_aside()?,
            None => break,
        }
    }
    Ok(())
}

/// A Parquet file, of row groups of a good size whatever the number of tables.
///
/// A row group that is being encoded takes memory for each of its columns, and a recording has hundreds of
/// columns in dozens of tables. So rows wait as they are until there are enough for a row group, most of them on
/// the disk, and only one table at a time is encoded.
struct RowGroups {
    writer: ArrowWriter<BufWriter<File>>,
    /// Rows that wait in memory, behind those on the disk.
    waiting: Vec<RecordBatch>,
    /// What these hold, in bytes.
    held: usize,
    aside: Option<Aside>,
    folder: PathBuf,
}

impl RowGroups {
    fn start(
        out: BufWriter<File>,
        schema: &SchemaRef,
        folder: PathBuf,
    ) -> anyhow::Result<RowGroups> {
        let properties = properties(schema)?;
        let writer = ArrowWriter::try_new(out, SchemaRef::clone(schema), Some(properties))?;
        Ok(RowGroups {
            writer,
            waiting: Vec::new(),
            held: 0,
            aside: None,
            folder,
        })
    }

    fn write(&mut self, batch: RecordBatch) -> anyhow::Result<()> {
        self.held += batch.get_array_memory_size();
        self.waiting.push(batch);
        let aside = self.aside.as_ref().map_or(0, |aside| aside.bytes);
        if self.held + aside >= GROUP_BYTES {
            self.encode()?;
        }
        Ok(())
    }

    fn set_aside(&mut self) -> anyhow::Result<()> {
        let aside = match &mut self.aside {
            Some(aside) => aside,
            none => none.insert(Aside::new(&self.folder)?),
        };
        for batch in self.waiting.drain(..) {
            aside.push(&batch)?;
        }
        self.held = 0;
        Ok(())
    }

    /// Makes a row group of all rows that wait.
    fn encode(&mut self) -> anyhow::Result<()> {
        if let Some(aside) = &mut self.aside {
            aside.take(|batch| write_rows(&mut self.writer, &batch))?;
        }
        for batch in self.waiting.drain(..) {
            write_rows(&mut self.writer, &batch)?;
        }
        self.held = 0;
        Ok(self.writer.flush()?)
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.encode()?;
        self.writer.into_inner()?.flush()?;
        Ok(())
    }
}

fn write_rows(
    writer: &mut ArrowWriter<BufWriter<File>>,
    batch: &RecordBatch,
) -> anyhow::Result<()> {
    writer.write(batch)?;
    if writer.in_progress_size() >= ENCODED_BYTES {
        writer.flush()?;
    }
    Ok(())
}

/// Rows on the disk, in a file without a name: nothing is left of it, however the program ends.
struct Aside {
    file: File,
    writer: Option<StreamWriter<BufWriter<File>>>,
    bytes: usize,
}

impl Aside {
    /// Beside the tables: what has room for them has room for this, and the usual place may lie in memory.
    fn new(folder: &Path) -> anyhow::Result<Self> {
        Ok(Aside {
            file: tempfile::tempfile_in(folder)?,
            writer: None,
            bytes: 0,
        })
    }

    fn push(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let out = BufWriter::new(self.file.try_clone()?);
                none.insert(StreamWriter::try_new(out, batch.schema_ref())?)
            }
        };
        self.bytes += batch.get_array_memory_size();
        Ok(writer.write(batch)?)
    }

    /// Hands out all rows, and is empty then.
    fn take(
        &mut self,
        mut each: impl FnMut(RecordBatch) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        writer.into_inner()?.flush()?;
        self.file.rewind()?;
        for batch in StreamReader::try_new(BufReader::new(&self.file), None)? {
            each(batch?)?;
        }
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.bytes = 0;
        Ok(())
    }
}

/// How a table of this schema is written to Parquet.
///
/// Dictionaries are for texts alone: each takes 70 KB from its first value on, a message has hundreds of columns,
/// and a sensor seldom says a number twice. Times are not written as differences: that encoder takes a megabyte for
/// each column, whatever is in it.
fn properties(schema: &Schema) -> anyhow::Result<WriterProperties> {
    let columns = ArrowSchemaConverter::new().convert(schema)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_dictionary_enabled(false);
    let columns = columns.columns().iter();
    let properties = columns.fold(properties, |properties, column| {
        let path = column.path().clone();
        match column.logical_type_ref() {
            Some(LogicalType::String) => properties.set_column_dictionary_enabled(path, true),
            // The smallest and the largest picture help nobody, and are held until they are known.
            None if column.physical_type() == Type::BYTE_ARRAY => {
                properties.set_column_statistics_enabled(path, EnabledStatistics::None)
            }
            _ => properties,
        }
    });
    Ok(properties.build())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BinaryViewArray, Int64Array, StringArray};
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    /// Rows of a kilobyte each.
    fn rows(from: i64, count: i64) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + count));
        let texts = (from..from + count).map(|at| format!("row {at}"));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let noise = |at: i64| (0..128).flat_map(move |i| (at * 7919 + i * i).to_le_bytes());
        let bytes = (from..from + count).map(|at| noise(at).collect::<Vec<u8>>());
        let bytes: ArrayRef = Arc::new(BinaryViewArray::from_iter_values(bytes));
        RecordBatch::try_from_iter([("number", numbers), ("text", texts), ("bytes", bytes)])
            .expect("a batch")
    }

    fn table(folder: &Path, name: &str) -> TableFile {
        let path = folder.join(name);
        let new = NewFile::create(&path, |_| false).expect("a new file");
        TableFile::start(new, path, &rows(0, 1).schema(), Container::Parquet).expect("a table")
    }

    #[test]
    fn tables_beside_each_other_have_few_row_groups_and_all_rows_in_order() {
        const TABLES: i64 = 2;
        const BATCHES: i64 = 12;
        let folder = tempfile::tempdir().expect("a folder");
        let mut tables: BTreeMap<i64, TableFile> = (0..TABLES)
            .map(|at| (at, table(folder.path(), &format!("{at}.parquet"))))
            .collect();
        for batch in 0..BATCHES {
            for (at, table) in &mut tables {
                let from = at * 1_000_000 + batch * 1000;
                table.write(rows(from, 1000)).expect("written");
            }
            keep_within_memory(&mut tables).expect("set aside");
            let held: usize = tables.values().map(TableFile::held).sum();
            assert!(held <= HELD_BYTES, "{held}");
        }
        for table in tables.into_values() {
            table.finish().expect("finished");
        }
        for at in 0..TABLES {
            let file = File::open(folder.path().join(format!("{at}.parquet"))).expect("a file");
            let groups = SerializedFileReader::new(file.try_clone().expect("a handle"))
                .expect("Parquet")
                .metadata()
                .num_row_groups();
            assert!((1..=3).contains(&groups), "{groups} row groups");
            let reader =
                parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(file, 1000)
                    .expect("Parquet");
            let mut next = at * 1_000_000;
            for batch in reader {
                let batch = batch.expect("rows");
                let count = batch.num_rows() as i64;
                assert_eq!(batch.columns(), rows(next, count).columns());
                next += count;
            }
            assert_eq!(next, at * 1_000_000 + BATCHES * 1000);
        }
    }

    #[test]
    fn what_is_set_aside_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut table = table(folder.path(), "one.parquet");
        for at in 0..3 {
            table.write(rows(at * 1000, 1000)).expect("written");
            table.set_aside().expect("set aside");
        }
        drop(table);
        assert_eq!(std::fs::read_dir(folder.path()).expect("it").count(), 0);
    }
}
