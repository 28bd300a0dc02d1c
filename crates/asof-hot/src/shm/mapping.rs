//! Files in shared memory, their locks, and their mappings: all system calls of this module.

use core::ops::Range;
use std::ffi::CString;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::string::String;

use super::{Header, Role, ShmError};

/// What a mapping may be used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

/// An open file in shared memory.
pub(crate) struct File {
    fd: OwnedFd,
}

fn failed(action: &'static str) -> ShmError {
    let source = Error::last_os_error();
    ShmError::System { action, source }
}

fn c_path(path: &str) -> Result<CString, ShmError> {
    CString::new(path).map_err(|_| ShmError::BadName(path.into()))
}

/// Removes a name.
pub(crate) fn unlink(path: &str) -> Result<(), ShmError> {
    let path_c = c_path(path)?;
    // SAFETY: the path ends with a zero and lives through the call.
    if unsafe { libc::shm_unlink(path_c.as_ptr()) } != 0 {
        return Err(named(path, failed("removal")));
    }
    Ok(())
}

/// The errors that are about a name, told as such.
fn named(path: &str, error: ShmError) -> ShmError {
    let name = || String::from(path.trim_start_matches('/'));
    match error {
        ShmError::System { source, .. } if source.raw_os_error() == Some(libc::ENOENT) => {
            ShmError::NotThere { name: name() }
        }
        ShmError::System { source, .. } if source.raw_os_error() == Some(libc::EEXIST) => {
            ShmError::AlreadyThere { name: name() }
        }
        ShmError::System { source, .. } if source.raw_os_error() == Some(libc::EACCES) => {
            ShmError::NotAllowed { name: name() }
        }
        other => other,
    }
}

impl File {
    pub(crate) fn create_new(path: &str, permissions: u32) -> Result<Self, ShmError> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        Self::open_flags(path, flags, permissions)
    }

    pub(crate) fn open_or_create(path: &str, permissions: u32) -> Result<Self, ShmError> {
        Self::open_flags(path, libc::O_RDWR | libc::O_CREAT, permissions)
    }

    pub(crate) fn open(path: &str, access: Access) -> Result<Self, ShmError> {
        match access {
            Access::Read => Self::open_flags(path, libc::O_RDONLY, 0),
            Access::ReadWrite => Self::open_flags(path, libc::O_RDWR, 0),
        }
    }

    /// Sets the permissions of a file that was made with them: the process's mask has taken some away.
    pub(crate) fn permit(&self, permissions: u32) -> Result<(), ShmError> {
        // SAFETY: the call takes integers only.
        if unsafe { libc::fchmod(self.fd.as_raw_fd(), permissions) } != 0 {
            return Err(failed("setting the permissions"));
        }
        Ok(())
    }

    fn open_flags(path: &str, flags: libc::c_int, permissions: u32) -> Result<Self, ShmError> {
        let path_c = c_path(path)?;
        // SAFETY: the path ends with a zero and lives through the call. (The call also sets close-on-exec.)
        let fd = unsafe { libc::shm_open(path_c.as_ptr(), flags, permissions) };
        if fd < 0 {
            return Err(named(path, failed("opening")));
        }
        // SAFETY: the call has just made it, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(File { fd })
    }

    /// The same file, opened once more: locks belong to the one that opened.
    fn open_again(&self) -> Result<Self, ShmError> {
        let path = c_path(&std::format!("/proc/self/fd/{}", self.fd.as_raw_fd()))?;
        // SAFETY: the path ends with a zero and lives through the call.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(failed("opening once more"));
        }
        // SAFETY: the call has just made it, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(File { fd })
    }

    pub(crate) fn size(&self) -> Result<u64, ShmError> {
        // SAFETY: a stat of zeros is a stat, and it lives through the call.
        let stat = unsafe {
            let mut stat: libc::stat = core::mem::zeroed();
            if libc::fstat(self.fd.as_raw_fd(), &raw mut stat) != 0 {
                return Err(failed("looking up the size"));
            }
            stat
        };
        Ok(stat.st_size as u64)
    }

    /// Makes the file so large, all zeros whatever was in it.
    pub(crate) fn resize_to_zeros(&self, size: usize) -> Result<(), ShmError> {
        for size in [0, size] {
            // SAFETY: the call takes integers only.
            if unsafe { libc::ftruncate(self.fd.as_raw_fd(), size as libc::off_t) } != 0 {
                return Err(failed("resizing"));
            }
        }
        Ok(())
    }

    /// Waits until nobody else makes or checks this file; the kernel gives the lock up for the dead.
    pub(crate) fn lock_whole(&self) -> Result<WholeLock<'_>, ShmError> {
        loop {
            // SAFETY: the call takes integers only.
            if unsafe { libc::flock(self.fd.as_raw_fd(), libc::LOCK_EX) } == 0 {
                return Ok(WholeLock(self));
            }
            let error = failed("locking");
            match &error {
                ShmError::System { source, .. } if source.raw_os_error() == Some(libc::EINTR) => {}
                _ => return Err(error),
            }
        }
    }

    /// Locks a role, or gives it up; never waits. Whether that worked; if not, the system has the error.
    fn set_lock(&self, role: Role, kind: libc::c_int) -> bool {
        let mut lock = File::role_lock(role.0..role.0 + 1, kind);
        // SAFETY: the lock lives through the call.
        unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) == 0 }
    }

    /// A lock on the bytes that stand for roles.
    fn role_lock(roles: Range<u16>, kind: libc::c_int) -> libc::flock {
        // SAFETY: a flock of zeros is a flock.
        let mut lock: libc::flock = unsafe { core::mem::zeroed() };
        lock.l_type = kind as _;
        lock.l_whence = libc::SEEK_SET as _;
        lock.l_start = libc::off_t::from(roles.start);
        lock.l_len = libc::off_t::from(roles.end - roles.start);
        lock
    }
}

pub(crate) struct WholeLock<'a>(&'a File);

impl Drop for WholeLock<'_> {
    fn drop(&mut self) {
        // SAFETY: the call takes integers only.
        unsafe { libc::flock(self.0.fd.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// An end that is claimed: as long as this lives, and the process.
pub(crate) struct Claim {
    file: File,
    pub(crate) role: Role,
    /// The process that claimed it. Its copies have this too, and the same lock.
    owner: u32,
}

impl Drop for Claim {
    /// Closing the file would not do: as long as a copy of the process has it open too, the lock stays. Each process
    /// that starts another one has such a copy, until the other program runs.
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            self.file.set_lock(self.role, libc::F_UNLCK);
        }
    }
}

/// A file's contents in this process's memory.
pub(crate) struct Mapping {
    base: *mut u8,
    size: usize,
    access: Access,
    file: File,
}

// SAFETY: the memory is shared with other processes as it is; what is in it is made for that.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `size` bytes, which the file has.
    pub(crate) fn new(file: &File, size: usize, access: Access) -> Result<Self, ShmError> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        let fd = file.fd.try_clone().map_err(|source| ShmError::System {
            action: "keeping",
            source,
        })?;
        // SAFETY: a new mapping, at an address of the kernel's choice, of a file that is open.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                size,
                protection,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(failed("mapping"));
        }
        Ok(Mapping {
            base: base.cast(),
            size,
            access,
            file: File { fd },
        })
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    #[allow(clippy::cast_ptr_alignment)] // to a page
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: every mapping is at least a header long, aligned to a page, and any bytes are a header.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// Claims an end for this process.
    pub(crate) fn claim(&self, role: Role) -> Result<Claim, ShmError> {
        let file = self.file.open_again()?;
        if file.set_lock(role, libc::F_WRLCK) {
            let owner = std::process::id();
            return Ok(Claim { file, role, owner });
        }
        match Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Err(ShmError::Taken),
            _ => Err(failed("claiming an end")),
        }
    }

    /// Whether a process that is alive holds one of these ends; none of none.
    pub(crate) fn is_any_claimed(&self, roles: Range<u16>) -> bool {
        if roles.is_empty() {
            return false;
        }
        let mut lock = File::role_lock(roles, libc::F_RDLCK);
        // SAFETY: the lock lives through the call, which fills it.
        let result =
            unsafe { libc::fcntl(self.file.fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
    }

    /// Whether a process that is alive holds an end.
    pub(crate) fn is_claimed(&self, role: Role) -> bool {
        self.is_any_claimed(role.0..role.0 + 1)
    }

    /// Whether a process that is alive holds an end that writes, or one of them.
    pub(crate) fn is_writer_alive(&self) -> bool {
        self.is_any_claimed(self.header().held.writers())
    }

    /// Whether a process that is alive holds an end that reads, or one of them, where such ends are claimed.
    pub(crate) fn is_reader_alive(&self) -> bool {
        self.is_any_claimed(self.header().held.readers())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size, and nobody keeps references into it: all ends keep the mapping.
        unsafe { libc::munmap(self.base.cast(), self.size) };
    }
}
