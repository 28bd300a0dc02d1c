//! Random access to the bytes of a recording.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use asof_core::SourceError;
use bytes::Bytes;

use crate::buffers::BufferPool;

/// Bytes that can be read anywhere, by several readers at once.
///
/// Readers ask for exactly the ranges that they need, so the same reader serves a mapped file, a
/// buffer, and a place on a network.
pub trait Storage: Send + Sync {
    /// Its name for users: a path or an address.
    fn name(&self) -> &str;

    /// The number of bytes.
    fn size(&self) -> u64;

    /// The bytes from `offset` on: `len` of them, or fewer where the storage ends.
    ///
    /// # Errors
    /// When the system refuses.
    fn fetch(&self, offset: u64, len: u64) -> io::Result<Bytes>;

    /// Whether a small read is cheap. On a network each one is a round trip.
    fn is_local(&self) -> bool {
        true
    }
}

/// Requests in flight at once: of threads that load ahead, of a file that is downloaded, and for recordings
/// of a folder. They wait for the network, so there are more of them than cores.
pub(crate) const REQUESTS_IN_FLIGHT: usize = 4;

impl dyn Storage + '_ {
    /// [`fetch`](Storage::fetch), with an error that names the offset.
    pub(crate) fn get(&self, offset: u64, len: u64) -> Result<Bytes, SourceError> {
        self.fetch(offset, len).map_err(|cause| SourceError::Io {
            place: self.name().to_owned(),
            offset,
            cause,
        })
    }
}

/// A recording in memory, or mapped into it: reading is slicing.
///
/// Pages of a mapped file count as memory of this process once they were read, however large the file is. So pages of
/// larger slices are released some time after the slices are dropped, and after many small slices all pages are
/// released; the next reader finds them in the system's cache.
#[derive(Clone)]
pub struct MappedFile {
    name: String,
    bytes: Bytes,
    map: Option<Arc<Map>>,
}

/// A mapped file, and the residency caused by small slices.
struct Map {
    file: memmap2::Mmap,
    /// The range of the file of the last small slice.
    last_stretch: AtomicUsize,
    /// How many other ranges had small slices since all pages were released.
    stretches: AtomicUsize,
    /// After this many of them, all pages are released.
    many: usize,
    leaving: Mutex<Leaving>,
}

/// Dropped large slices whose pages are still mapped.
///
/// Unmapping pages stops all threads of the process for a moment, and pages around them have to be mapped again; so
/// neighbours are released together.
#[derive(Default)]
struct Leaving {
    ranges: Vec<Range<usize>>,
    bytes: usize,
    /// Large slices in use.
    held: usize,
}

/// Slices from this size on release their pages when they are dropped.
const A_LARGE_SLICE: usize = 16 << 10;
/// Bytes that freed large slices may hold while others are in use.
const LEFT_BEHIND: usize = 8 << 20;
/// Pieces from this size on are read into pooled buffers.
const MIN_POOLED_BYTES: usize = 512 << 10;
/// The system maps pages around one that is touched, up to this many bytes.
const MAPPED_AROUND_BYTES: usize = 64 << 10;
/// Pages within this distance of a large slice are released with it.
pub(crate) const PAGE_CLUSTER_BYTES: usize = MAPPED_AROUND_BYTES;
/// Bytes that small slices may keep resident.
const KEPT_BYTES: usize = 16 << 20;

impl MappedFile {
    /// Bytes in memory, with a name for messages.
    pub fn from_bytes(name: impl Into<String>, bytes: Bytes) -> Self {
        MappedFile {
            name: name.into(),
            bytes,
            map: None,
        }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        MappedFile {
            name: name.into(),
            ..self
        }
    }

    /// Maps a file. Nothing is read until it is accessed.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of_file(&File::open(path)?, path.display().to_string(), KEPT_BYTES)
    }

    /// Maps an open file; small slices may keep this many bytes of it resident.
    pub(crate) fn of_file(file: &File, name: String, kept_bytes: usize) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(MappedFile::from_bytes(name, Bytes::new()));
        }
        let map = Arc::new(Map {
            file: map(file)?,
            last_stretch: AtomicUsize::new(usize::MAX),
            stretches: AtomicUsize::new(0),
            many: kept_bytes / MAPPED_AROUND_BYTES,
            leaving: Mutex::default(),
        });
        Ok(MappedFile {
            name,
            bytes: Bytes::from_owner(Whole(Arc::clone(&map))),
            map: Some(map),
        })
    }

    /// All of it, for reading in place. A reader reports where it reads with a [`walk`](MappedFile::walk).
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Releases all of its pages from this process.
    pub(crate) fn give_up_pages(&self) {
        if let Some(map) = &self.map {
            map.release(&(0..map.file.len()));
        }
    }

    /// Begins reading small things in place. Each thread has its own walk: if two shared one, every step would be in
    /// another range.
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk {
            map: self.map.as_deref(),
            last_stretch: usize::MAX,
        }
    }
}

/// The position of one thread that reads small things in a mapped file.
pub(crate) struct Walk<'a> {
    map: Option<&'a Map>,
    last_stretch: usize,
}

impl Walk<'_> {
    /// Notes a read of something small at `offset`.
    pub fn look_at(&mut self, offset: usize) {
        let stretch = offset / MAPPED_AROUND_BYTES;
        if stretch != self.last_stretch {
            self.last_stretch = stretch;
            if let Some(map) = self.map {
                map.count_stretch();
            }
        }
    }
}

/// A named file, mapped or read piece by piece, with an error that names it.
pub(crate) fn open_storage(
    path: &Path,
    name: String,
    map: bool,
) -> Result<Box<dyn Storage>, SourceError> {
    let opened = if map {
        MappedFile::open(path).map(|mapped| Box::new(mapped.named(name)) as Box<dyn Storage>)
    } else {
        PlainFile::open(path).map(|plain| Box::new(plain.named(name)) as Box<dyn Storage>)
    };
    opened.map_err(|cause| failed(path, cause))
}

/// A system error with its path.
pub(crate) fn failed(path: &Path, cause: io::Error) -> SourceError {
    SourceError::Io {
        place: path.display().to_string(),
        offset: 0,
        cause,
    }
}

impl Map {
    /// Notes a small slice at `offset`.
    fn count(&self, offset: usize) {
        let stretch = offset / MAPPED_AROUND_BYTES;
        if self.last_stretch.swap(stretch, Relaxed) != stretch {
            self.count_stretch();
        }
    }

    fn count_stretch(&self) {
        if self.stretches.fetch_add(1, Relaxed) >= self.many {
            self.stretches.store(0, Relaxed);
            self.release(&(0..self.file.len()));
        }
    }

    /// A large slice, whose pages are released with it.
    fn slice(self: &Arc<Self>, range: Range<usize>) -> Bytes {
        self.leaving().held += 1;
        Bytes::from_owner(MappedSlice {
            map: Arc::clone(self),
            range,
        })
    }

    /// Notes that a large slice was dropped.
    fn leave(&self, range: Range<usize>) {
        let mut leaving = self.leaving();
        leaving.held -= 1;
        leaving.bytes += range.len();
        leaving.ranges.push(range);
        if leaving.held > 0 && leaving.bytes < LEFT_BEHIND {
            return;
        }
        leaving.bytes = 0;
        let mut ranges = std::mem::take(&mut leaving.ranges);
        drop(leaving);
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, range| {
            let are_neighbours = next.start <= range.end.saturating_add(PAGE_CLUSTER_BYTES);
            if are_neighbours {
                range.end = range.end.max(next.end);
            }
            are_neighbours
        });
        for range in &ranges {
            self.release(range);
        }
    }

    fn leaving(&self) -> std::sync::MutexGuard<'_, Leaving> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the pages of a range, and those around it, where a chunk has its indexes.
    #[cfg(unix)]
    #[allow(
        unsafe_code,
        reason = "giving up pages loses what was written to them; here nothing can be"
    )]
    fn release(&self, range: &Range<usize>) {
        use memmap2::UncheckedAdvice::DontNeed;
        let start = range.start.saturating_sub(MAPPED_AROUND_BYTES);
        let end = range
            .end
            .saturating_add(MAPPED_AROUND_BYTES)
            .min(self.file.len());
        // SAFETY: the map is of a file and read-only: a page that is touched again comes from the file again.
        let released = unsafe {
            self.file
                .unchecked_advise_range(DontNeed, start, end - start)
        };
        if let Err(error) = released {
            tracing::debug!(%error, "pages of a mapped file stay in memory");
        }
    }

    #[cfg(not(unix))]
    fn release(&self, _: &Range<usize>) {}
}

/// All of a mapped file, for small slices.
struct Whole(Arc<Map>);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.0.file
    }
}

/// A part of a mapped file, whose pages are released with it.
struct MappedSlice {
    map: Arc<Map>,
    range: Range<usize>,
}

impl AsRef<[u8]> for MappedSlice {
    fn as_ref(&self) -> &[u8] {
        &self.map.file[self.range.clone()]
    }
}

impl Drop for MappedSlice {
    fn drop(&mut self) {
        self.map.leave(std::mem::take(&mut self.range));
    }
}

#[allow(
    unsafe_code,
    reason = "mapping a file is unsafe in every crate that offers it"
)]
fn map(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the map is read-only and private to this process, and only ever seen as `&[u8]` that is validated before
    // use. What remains is what every mapped reader accepts: a file that is truncated while it is open ends the process
    // with SIGBUS, and one that is overwritten shows other bytes, which the readers treat as they treat any damage.
    unsafe { memmap2::Mmap::map(file) }
}

impl Storage for MappedFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn fetch(&self, offset: u64, len: u64) -> io::Result<Bytes> {
        let start = offset.min(self.size());
        let end = start.saturating_add(len).min(self.size());
        let range = start as usize..end as usize;
        let Some(map) = &self.map else {
            return Ok(self.bytes.slice(range));
        };
        if range.len() >= A_LARGE_SLICE {
            return Ok(map.slice(range));
        }
        map.count(range.start);
        Ok(self.bytes.slice(range))
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedFile({}, {} bytes)", self.name, self.bytes.len())
    }
}

/// A file that is read piece by piece: takes no more memory than the pieces in use.
#[derive(Debug)]
pub struct PlainFile {
    name: String,
    file: File,
    size: u64,
    /// Buffers for large pieces. Returned to the system and allocated again, they would fragment memory.
    pool: Arc<BufferPool>,
    /// How much was read, over all fronts of the file.
    #[cfg(test)]
    read: Arc<AtomicUsize>,
}

impl PlainFile {
    /// Opens a file.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(PlainFile {
            name: path.display().to_string(),
            size: file.metadata()?.len(),
            file,
            pool: Arc::default(),
            #[cfg(test)]
            read: Arc::default(),
        })
    }

    #[cfg(test)]
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read.load(Relaxed) as u64
    }

    /// Whether a path still leads to this file.
    pub(crate) fn is_still_at(&self, path: &Path) -> io::Result<bool> {
        let (there, here) = (std::fs::metadata(path)?, self.file.metadata()?);
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Ok((there.dev(), there.ino()) == (here.dev(), here.ino()))
        }
        #[cfg(not(unix))]
        Ok(there.created().ok() == here.created().ok())
    }

    /// The first bytes of the file, however large it becomes.
    pub(crate) fn front(&self, size: u64) -> io::Result<Self> {
        Ok(PlainFile {
            name: self.name.clone(),
            file: self.file.try_clone()?,
            size,
            pool: Arc::clone(&self.pool),
            #[cfg(test)]
            read: Arc::clone(&self.read),
        })
    }

    /// Reads the current size of the file.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        self.size = self.file.metadata()?.len();
        Ok(())
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        PlainFile {
            name: name.into(),
            ..self
        }
    }
}

impl Storage for PlainFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn fetch(&self, offset: u64, len: u64) -> io::Result<Bytes> {
        let start = offset.min(self.size);
        let len = len.min(self.size - start);
        let len = len as usize;
        let is_large = len >= MIN_POOLED_BYTES;
        let mut bytes = if is_large {
            self.pool.take(len)
        } else {
            vec![0; len]
        };
        // Fewer if the file was truncated after it was opened.
        let filled = fill_at(&self.file, &mut bytes[..len], start)?;
        #[cfg(test)]
        self.read.fetch_add(filled, Relaxed);
        if is_large {
            return Ok(self.pool.seal(bytes, filled));
        }
        bytes.truncate(filled);
        Ok(bytes.into())
    }
}

/// Fills `bytes` from `offset` on.
pub(crate) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    if fill_at(file, bytes, offset)? < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Fills `bytes` from `offset` on, as far as the file goes; how many that were.
pub(crate) fn fill_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match read_at(file, &mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_slices_leave_together_and_at_the_latest_with_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        File::create(&path).unwrap().set_len(40 << 20).unwrap();
        let mapped = MappedFile::open(&path).unwrap();
        let left_behind = || mapped.map.as_ref().unwrap().leaving().bytes;
        let slice = |at: u64| mapped.fetch(at << 20, 1 << 20).unwrap();

        let held = slice(0);
        for at in 1..8 {
            drop(slice(at));
        }
        assert_eq!(left_behind(), 7 << 20);
        drop(slice(8));
        assert_eq!(left_behind(), 0, "enough for one go");
        drop(slice(9));
        assert_eq!(left_behind(), 1 << 20);
        drop(held);
        assert_eq!(left_behind(), 0, "nobody reads any more");
        assert!(
            slice(3).iter().all(|&byte| byte == 0),
            "what left comes back"
        );
    }
}
