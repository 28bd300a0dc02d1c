//! Where the bytes of a recording lie.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use asof_core::SourceError;
use bytes::Bytes;

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
#[derive(Clone)]
pub struct Mapped {
    name: String,
    bytes: Bytes,
}

impl Mapped {
    /// Bytes that are in memory already, under a name for messages.
    pub fn from_bytes(name: impl Into<String>, bytes: Bytes) -> Self {
        Mapped {
            name: name.into(),
            bytes,
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
        let file = File::open(path)?;
        let name = path.display().to_string();
        if file.metadata()?.len() == 0 {
            return Ok(Mapped {
                name,
                bytes: Bytes::new(),
            });
        }
        Ok(Mapped {
            name,
            bytes: Bytes::from_owner(map(&file)?),
        })
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
        Ok(self.bytes.slice(start as usize..end as usize))
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
        })
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
        let mut bytes = vec![0; len as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match read_at(&self.file, &mut bytes[filled..], start + filled as u64) {
                // Someone cut the file after it was opened.
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
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
