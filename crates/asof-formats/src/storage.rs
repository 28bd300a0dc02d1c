//! Where the bytes of a recording lie.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use asof_core::SourceError;
use bytes::Bytes;

use crate::buffers::BufferPool;

/// Bytes that can be read anywhere, by several readers at once.
///
/// Readers ask for exactly the ranges that they need, so the same reader serves a mapped file, a
/// buffer, and a place on a network.
pub trait Storage: Send + Sync {
    /// What a person calls it: a path or an address.
    fn name(&self) -> &str;

    /// How many bytes there are.
    fn size(&self) -> u64;

    /// The bytes from `offset` on: `len` of them, or fewer where the storage ends.
    ///
    /// # Errors
    /// When the system refuses.
    fn fetch(&self, offset: u64, len: u64) -> io::Result<Bytes>;

    /// Whether a small read costs little. On a network each one is a round trip.
    fn is_local(&self) -> bool {
        true
    }
}

impl dyn Storage + '_ {
    /// [`fetch`](Storage::fetch), with an error that says where it happened.
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
/// What was read of a mapped file counts as memory of this process for as long as it is mapped, however large
/// the file is. So larger slices give their pages up when the last of them is dropped, and after many small ones
/// all pages go; whoever comes again finds them in the system's cache.
#[derive(Clone)]
pub struct Mapped {
    name: String,
    bytes: Bytes,
    map: Option<Arc<Map>>,
}

/// A mapped file, and what small slices have made resident of it.
struct Map {
    file: memmap2::Mmap,
    /// The stretch of the file that the last small slice lay in.
    last_stretch: AtomicUsize,
    /// How many other stretches small slices lay in since all pages were given up.
    stretches: AtomicUsize,
    /// After so many of them, all pages are given up.
    many: usize,
}

/// Slices from this size on give up their pages when they go.
const A_LARGE_SLICE: usize = 16 << 10;
/// Pieces from this size on are read into buffers that are used again.
const WORTH_POOLING: usize = 512 << 10;
/// The system maps pages around one that is looked at, up to so many bytes.
const STRETCH: usize = 64 << 10;
/// Pages so near to a large slice are given up with it.
pub(crate) const GOES_WITH_ITS_NEIGHBOUR: usize = STRETCH;
/// What small slices may keep resident.
const KEPT_BYTES: usize = 16 << 20;

impl Mapped {
    /// Bytes that are in memory already, under a name for messages.
    pub fn from_bytes(name: impl Into<String>, bytes: Bytes) -> Self {
        Mapped {
            name: name.into(),
            bytes,
            map: None,
        }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Mapped {
            name: name.into(),
            ..self
        }
    }

    /// Maps a file. Nothing is read until it is looked at.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of_file(&File::open(path)?, path.display().to_string(), KEPT_BYTES)
    }

    /// Maps a file that is open already; small slices may keep so many bytes of it resident.
    pub(crate) fn of_file(file: &File, name: String, kept_bytes: usize) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Mapped::from_bytes(name, Bytes::new()));
        }
        let map = Arc::new(Map {
            file: map(file)?,
            last_stretch: AtomicUsize::new(usize::MAX),
            stretches: AtomicUsize::new(0),
            many: kept_bytes / STRETCH,
        });
        Ok(Mapped {
            name,
            bytes: Bytes::from_owner(MappedSlice {
                range: 0..map.file.len(),
                map: Arc::clone(&map),
            }),
            map: Some(map),
        })
    }

    /// All of it, to look at in place. Who walks it tells where with a [`walk`](Mapped::walk).
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Begins to look at small things in place. Each thread has a walk of its own: between two that take turns in
    /// one, every step would be into another stretch.
    pub(crate) fn walk(&self) -> Walk<'_> {
        Walk {
            map: self.map.as_deref(),
            last_stretch: usize::MAX,
        }
    }
}

/// Where one thread looks at small things in a mapped file.
pub(crate) struct Walk<'a> {
    map: Option<&'a Map>,
    last_stretch: usize,
}

impl Walk<'_> {
    /// Something small at `offset` was looked at.
    pub fn look_at(&mut self, offset: usize) {
        let stretch = offset / STRETCH;
        if stretch != self.last_stretch {
            self.last_stretch = stretch;
            if let Some(map) = self.map {
                map.count_stretch();
            }
        }
    }
}

/// Maps a file as a storage, with an error that says which.
pub(crate) fn map_file(path: &Path) -> Result<Box<dyn Storage>, SourceError> {
    match Mapped::open(path) {
        Ok(mapped) => Ok(Box::new(mapped)),
        Err(cause) => Err(SourceError::Io {
            place: path.display().to_string(),
            offset: 0,
            cause,
        }),
    }
}

impl Map {
    /// A small slice begins at `offset`.
    fn count(&self, offset: usize) {
        let stretch = offset / STRETCH;
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

    /// Takes the pages of a range out of this process, and those around it, where a chunk has its indexes.
    #[cfg(unix)]
    #[allow(
        unsafe_code,
        reason = "giving up pages loses what was written to them; here nothing can be"
    )]
    fn release(&self, range: &Range<usize>) {
        use memmap2::UncheckedAdvice::DontNeed;
        let start = range.start.saturating_sub(STRETCH);
        let end = range.end.saturating_add(STRETCH).min(self.file.len());
        // SAFETY: the map is of a file and read-only: whoever looks at a page again gets it from the file again.
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

/// A part of a mapped file, whose pages leave this process with it.
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
        self.map.release(&self.range);
    }
}

#[allow(
    unsafe_code,
    reason = "mapping a file is unsafe in every crate that offers it"
)]
fn map(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the map is read-only and private to this process, and only ever seen as `&[u8]` that is
    // validated before use. What remains is what every mapped reader accepts: a file that someone else
    // truncates while it is open ends the process with SIGBUS, and one that is overwritten shows other
    // bytes, which the readers treat as they treat any damage.
    unsafe { memmap2::Mmap::map(file) }
}

impl Storage for Mapped {
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
            let map = Arc::clone(map);
            return Ok(Bytes::from_owner(MappedSlice { map, range }));
        }
        map.count(range.start);
        Ok(self.bytes.slice(range))
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped({}, {} bytes)", self.name, self.bytes.len())
    }
}

/// A file that is read piece by piece: takes no more memory than the pieces that are held.
#[derive(Debug)]
pub struct Plain {
    name: String,
    file: File,
    size: u64,
    /// What large pieces are read into. Handed back to the system and asked for again, they would leave holes
    /// that the process keeps.
    pool: Arc<BufferPool>,
}

impl Plain {
    /// Opens a file.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Plain {
            name: path.display().to_string(),
            size: file.metadata()?.len(),
            file,
            pool: Arc::default(),
        })
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

    /// Looks how large the file is by now.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        self.size = self.file.metadata()?.len();
        Ok(())
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Plain {
            name: name.into(),
            ..self
        }
    }
}

impl Storage for Plain {
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
        let is_large = len >= WORTH_POOLING;
        let mut bytes = if is_large {
            self.pool.take(len)
        } else {
            vec![0; len]
        };
        let mut filled = 0;
        while filled < len {
            match read_at(&self.file, &mut bytes[filled..len], start + filled as u64) {
                // Someone cut the file after it was opened.
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if is_large {
            return Ok(self.pool.seal(bytes, filled));
        }
        bytes.truncate(filled);
        Ok(bytes.into())
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, offset)
}
