//! One table in progress, as Parquet or Arrow.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{Schema, SchemaRef};
use asof_core::Channel;
use asof_decode::TopicBatch;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, LogicalType, Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use tempfile::TempPath;

use super::plain_columns::{plain, plain_batch};
use crate::files::{Appender, NewFile, folder_of, unfinished_file};
use crate::text::counted;
use crate::{Error, Progress};

/// The largest batch of rows; the decoder's own limit would take all the memory for both.
pub const BATCH_BYTES: usize = 1 << 20;
/// How much rows that wait for their row group may take in memory, over all tables.
const HELD_BYTES: usize = 2 << 20;
/// A row group is written when this much of it waits. Readers open a file by its row groups, and many small ones
/// are expensive.
const GROUP_BYTES: usize = 32 << 20;
/// How much of a row group is encoded before it is written, at the latest.
const ENCODED_BYTES: usize = 8 << 20;
/// Rows of a page: what Parquet keeps beside the values until a page is complete is not in its memory count.
const PAGE_ROWS: usize = 4 << 10;

/// The format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// Parquet.
    Parquet,
    /// The file format of Arrow.
    Arrow,
}

/// A table that appears as a file when it is finished.
pub struct TableFile {
    new: NewFile,
    path: PathBuf,
    writer: Writer,
}

enum Writer {
    Parquet(Box<RowGroups>),
    Arrow(Box<FileWriter<BufWriter<Appender>>>),
}

impl TableFile {
    /// Starts a table whose batches have this schema.
    ///
    /// # Errors
    /// When the format cannot hold it, or the file cannot be written.
    pub fn start(
        new: NewFile,
        path: PathBuf,
        schema: &SchemaRef,
        container: Container,
    ) -> Result<Self, Error> {
        let out = new.appender();
        let writer = match container {
            Container::Parquet => RowGroups::start(out, schema, folder_of(&path))
                .map(|groups| Writer::Parquet(Box::new(groups))),
            Container::Arrow => FileWriter::try_new(out, schema)
                .map(|writer| Writer::Arrow(Box::new(writer)))
                .map_err(Error::from),
        };
        let writer = writer.map_err(|error| failed(&path, error))?;
        Ok(TableFile { new, path, writer })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, batch: RecordBatch) -> Result<(), Error> {
        match &mut self.writer {
            Writer::Parquet(groups) => groups.write(batch),
            Writer::Arrow(writer) => writer.write(&batch).map_err(Into::into),
        }
        .map_err(|error| failed(&self.path, error))
    }

    /// Moves the table to its target.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self) -> Result<(), Error> {
        let finished = match self.writer {
            Writer::Parquet(groups) => groups.finish(),
            Writer::Arrow(writer) => writer
                .into_inner()
                .map_err(Error::from)
                .and_then(|mut out| Ok(out.flush()?)),
        };
        finished.map_err(|error| failed(&self.path, error))?;
        self.new.finish()
    }

    fn held(&self) -> usize {
        match &self.writer {
            Writer::Parquet(groups) => groups.held,
            Writer::Arrow(_) => 0,
        }
    }

    fn set_aside(&mut self) -> Result<(), Error> {
        match &mut self.writer {
            Writer::Parquet(groups) => groups.set_aside(),
            Writer::Arrow(_) => Ok(()),
        }
        .map_err(|error| failed(&self.path, error))
    }
}

/// Why a table could not be written, in one line.
fn failed(path: &Path, error: Error) -> Error {
    let mut root: &(dyn std::error::Error + 'static) = match &error {
        Error::Io(error) => error,
        Error::Arrow(error) => error,
        Error::Parquet(error) => error,
        error => error,
    };
    let mut is_full = false;
    loop {
        is_full |= root.downcast_ref::<std::io::Error>().is_some_and(|error| {
            let kind = error.kind();
            matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
        });
        match root.source() {
            Some(cause) => root = cause,
            None => break,
        }
    }
    let reason = if is_full {
        "the disk is full".to_owned()
    } else {
        root.to_string()
    };
    error.context(format!("cannot write {}: {reason}", path.display()))
}

/// The tables of an export, one for each channel or for the compatible channels of a topic.
///
/// One that cannot be written does not stop the others.
#[derive(Default)]
pub struct TableFiles {
    /// By the address of their channel, which is kept so that its address is not reused.
    tables: BTreeMap<usize, (Arc<Channel>, TableFile)>,
    /// The channels of tables that could not be written.
    failed: BTreeMap<usize, Arc<Channel>>,
    /// Why the first of them could not be.
    first_failure: String,
}

impl TableFiles {
    /// Writes a batch to its table, which `start` makes for the first batch. A table that fails is reported and given up.
    ///
    /// # Errors
    /// When a file cannot be created, or exists already.
    pub fn write(
        &mut self,
        batch: TopicBatch,
        start: impl FnOnce(&str, &RecordBatch) -> Result<Result<TableFile, Error>, Error>,
        progress: &Progress,
    ) -> Result<(), Error> {
        let key = Arc::as_ptr(&batch.channel) as usize;
        if self.failed.contains_key(&key) {
            return Ok(());
        }
        let written = match self.tables.entry(key) {
            Entry::Occupied(table) => table.into_mut().1.write(batch.batch),
            Entry::Vacant(entry) => match start(&batch.channel.topic, &batch.batch)? {
                Ok(table) => {
                    let table = entry.insert((Arc::clone(&batch.channel), table));
                    table.1.write(batch.batch)
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = written {
            self.give_up(key, batch.channel, &error, progress);
        }
        self.keep_within_memory(progress);
        Ok(())
    }

    fn give_up(&mut self, key: usize, channel: Arc<Channel>, error: &Error, progress: &Progress) {
        progress.warning(format_args!("{error}"));
        if self.failed.is_empty() {
            self.first_failure = error.to_string();
        }
        self.tables.remove(&key);
        self.failed.insert(key, channel);
    }

    /// Moves waiting rows to the disk, the largest tables first, so that memory does not grow with the number of
    /// tables.
    fn keep_within_memory(&mut self, progress: &Progress) {
        let held = |tables: &BTreeMap<usize, (Arc<Channel>, TableFile)>| -> usize {
            tables.values().map(|(_, table)| table.held()).sum()
        };
        while held(&self.tables) > HELD_BYTES {
            let largest = self.tables.iter_mut();
            let largest = largest.max_by_key(|(_, (_, table))| table.held());
            let Some((&key, (channel, table))) = largest else {
                break;
            };
            if let Err(error) = table.set_aside() {
                let channel = Arc::clone(channel);
                self.give_up(key, channel, &error, progress);
            }
        }
    }

    /// Moves all tables to their targets; returns how many there are, and what to say of those that could not be written.
    pub fn finish(mut self, progress: &Progress) -> (u64, Result<(), Error>) {
        let mut finished = 0;
        for (key, (channel, table)) in std::mem::take(&mut self.tables) {
            match table.finish() {
                Ok(()) => finished += 1,
                Err(error) => self.give_up(key, channel, &error, progress),
            }
        }
        let first = self.first_failure;
        let error = match self.failed.len() {
            0 => return (finished, Ok(())),
            1 => format!("{first}; the other tables are complete"),
            failed => {
                let failed = counted(failed as u64, "table");
                format!(
                    "{failed} could not be written, the others are complete; the first: {first}"
                )
            }
        };
        (finished, Err(Error::Invalid(error)))
    }
}

/// A Parquet file with row groups of a good size, independent of the number of tables.
///
/// A row group that is being encoded takes memory for each of its columns, and a recording has hundreds of
/// columns in dozens of tables. So rows wait unencoded until there are enough for a row group, most of them on
/// the disk, and only one table at a time is encoded.
struct RowGroups {
    writer: ArrowWriter<BufWriter<Appender>>,
    /// The schema to write in, where Parquet cannot hold the batches unchanged.
    plain: Option<SchemaRef>,
    /// Rows that wait in memory, after those on the disk.
    waiting: Vec<RecordBatch>,
    /// Their size, in bytes.
    held: usize,
    aside: Option<Aside>,
    folder: PathBuf,
}

impl RowGroups {
    fn start(
        out: BufWriter<Appender>,
        schema: &SchemaRef,
        folder: PathBuf,
    ) -> Result<RowGroups, Error> {
        let plain = plain(schema);
        let schema = plain.as_ref().unwrap_or(schema);
        let properties = properties(schema)?;
        let writer = ArrowWriter::try_new(out, SchemaRef::clone(schema), Some(properties))?;
        Ok(RowGroups {
            writer,
            plain,
            waiting: Vec::new(),
            held: 0,
            aside: None,
            folder,
        })
    }

    fn write(&mut self, batch: RecordBatch) -> Result<(), Error> {
        let batch = match &self.plain {
            Some(schema) => plain_batch(&batch, schema)?,
            None => batch,
        };
        self.held += batch.get_array_memory_size();
        self.waiting.push(batch);
        let aside = self.aside.as_ref().map_or(0, |aside| aside.bytes);
        if self.held + aside >= GROUP_BYTES {
            self.encode()?;
        }
        Ok(())
    }

    fn set_aside(&mut self) -> Result<(), Error> {
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

    /// Makes a row group of all waiting rows.
    fn encode(&mut self) -> Result<(), Error> {
        if let Some(aside) = &mut self.aside {
            aside.take(|batch| write_rows(&mut self.writer, &batch))?;
        }
        for batch in self.waiting.drain(..) {
            write_rows(&mut self.writer, &batch)?;
        }
        self.held = 0;
        Ok(self.writer.flush()?)
    }

    fn finish(mut self) -> Result<(), Error> {
        self.encode()?;
        self.writer.into_inner()?.flush()?;
        Ok(())
    }
}

fn write_rows(
    writer: &mut ArrowWriter<BufWriter<Appender>>,
    batch: &RecordBatch,
) -> Result<(), Error> {
    writer.write(batch)?;
    if writer.in_progress_size() >= ENCODED_BYTES {
        writer.flush()?;
    }
    Ok(())
}

/// Rows on the disk, in a file that is open only while it is written or read: there may be more tables than a process may
/// have files open.
struct Aside {
    path: TempPath,
    writer: Option<StreamWriter<BufWriter<Appender>>>,
    bytes: usize,
}

impl Aside {
    /// Beside the tables: their disk has room for this, and the usual temporary folder may be in memory.
    fn new(folder: &Path) -> Result<Self, Error> {
        Ok(Aside {
            path: unfinished_file(folder)?,
            writer: None,
            bytes: 0,
        })
    }

    fn push(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let out = Appender::buffered(&self.path);
                none.insert(StreamWriter::try_new(out, batch.schema_ref())?)
            }
        };
        self.bytes += batch.get_array_memory_size();
        Ok(writer.write(batch)?)
    }

    /// Returns all rows, and is empty then.
    fn take(
        &mut self,
        mut each: impl FnMut(RecordBatch) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        writer.into_inner()?.flush()?;
        let file = File::options().read(true).write(true).open(&self.path)?;
        for batch in StreamReader::try_new(BufReader::new(&file), None)? {
            each(batch?)?;
        }
        file.set_len(0)?;
        self.bytes = 0;
        Ok(())
    }
}

/// The Parquet settings for a table of this schema.
///
/// Dictionaries are only for texts: each takes 70 KB from its first value on, a message has hundreds of columns,
/// and sensor values seldom repeat. Times are not delta-encoded: that encoder takes a megabyte for
/// each column, regardless of its contents.
fn properties(schema: &Schema) -> Result<WriterProperties, Error> {
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
            // Minimum and maximum of pictures are useless, and are held until they are known.
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

    #[cfg(target_os = "linux")]
    #[test]
    fn no_table_is_open_while_nothing_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut tables: Vec<_> = (0..20)
            .map(|at| table(folder.path(), &format!("{at}.parquet")))
            .collect();
        for table in &mut tables {
            table.write(rows(0, 100)).expect("written");
            table.set_aside().expect("on the disk");
        }
        let open = std::fs::read_dir("/proc/self/fd")
            .expect("listed")
            .flatten();
        let targets = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        assert_eq!(
            targets
                .filter(|path| path.starts_with(folder.path()))
                .count(),
            0
        );
        for (at, table) in tables.into_iter().enumerate() {
            table.finish().expect("finished");
            let file = File::open(folder.path().join(format!("{at}.parquet"))).expect("a file");
            let file = SerializedFileReader::new(file).expect("Parquet");
            assert_eq!(file.metadata().file_metadata().num_rows(), 100);
        }
        let left = std::fs::read_dir(folder.path()).expect("listed").count();
        assert_eq!(left, 20, "nothing but the tables");
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
        let progress = Progress::default();
        let mut tables = TableFiles::default();
        let channels: Vec<Arc<Channel>> = (0..TABLES).map(|_| Arc::default()).collect();
        for batch in 0..BATCHES {
            for (at, channel) in (0..TABLES).zip(&channels) {
                let batch = TopicBatch {
                    channel: Arc::clone(channel),
                    layer: "reflection".into(),
                    batch: rows(at * 1_000_000 + batch * 1000, 1000),
                };
                let start = |_: &str, _: &RecordBatch| {
                    Ok(Ok(table(folder.path(), &format!("{at}.parquet"))))
                };
                tables.write(batch, start, &progress).expect("written");
            }
            let held: usize = tables.tables.values().map(|(_, table)| table.held()).sum();
            assert!(held <= HELD_BYTES, "{held}");
        }
        let (finished, others) = tables.finish(&progress);
        assert!(finished == TABLES as u64 && others.is_ok());
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
    fn a_table_that_cannot_be_written_does_not_stop_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let progress = Progress::default();
        let mut tables = TableFiles::default();
        let channels: [Arc<Channel>; 2] = Default::default();
        for round in 0..3 {
            for (at, channel) in channels.iter().enumerate() {
                let number: ArrayRef = Arc::new(Int64Array::from(vec![1]));
                // The second table's rows are not those that it was started for.
                let other = RecordBatch::try_from_iter([("other", number)]).expect("a batch");
                let batch = TopicBatch {
                    channel: Arc::clone(channel),
                    layer: "reflection".into(),
                    batch: if at == 1 && round == 1 {
                        other
                    } else {
                        rows(round, 1)
                    },
                };
                let start = |_: &str, _: &RecordBatch| {
                    Ok(Ok(table(folder.path(), &format!("{at}.parquet"))))
                };
                tables.write(batch, start, &progress).expect("written");
            }
        }
        let (finished, others) = tables.finish(&progress);
        assert_eq!(finished, 1);
        let error = others.expect_err("one is missing").to_string();
        assert!(error.contains("1.parquet: "), "{error}");
        let names = std::fs::read_dir(folder.path()).expect("it").flatten();
        let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["0.parquet"]);
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
