//! Files in shared memory, their locks, and their mappings: all system calls of this module.

use core::ops::Range;
use std::ffi::CString;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::string::String;

use super::{Header, Role, ShmError};

/// The access of a mapping.
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
    // SAFETY: the path is NUL-terminated and outlives the call.
    if unsafe { libc::shm_unlink(path_c.as_ptr()) } != 0 {
        return Err(named(path, failed("removal")));
    }
    Ok(())
}

/// Errors about a name, with the name.
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

    /// Sets the permissions of a new file again: the process's umask has removed some.
    pub(crate) fn permit(&self, permissions: u32) -> Result<(), ShmError> {
        // SAFETY: the call takes only integers.
        if unsafe { libc::fchmod(self.fd.as_raw_fd(), permissions) } != 0 {
            return Err(failed("setting the permissions"));
        }
        Ok(())
    }

    fn open_flags(path: &str, flags: libc::c_int, permissions: u32) -> Result<Self, ShmError> {
        let path_c = c_path(path)?;
        // SAFETY: the path is NUL-terminated and outlives the call. (The call also sets close-on-exec.)
        let fd = unsafe { libc::shm_open(path_c.as_ptr(), flags, permissions) };
        if fd < 0 {
            return Err(named(path, failed("opening")));
        }
        // SAFETY: the call has just created it, and no other code has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(File { fd })
    }

    /// The same file, opened again: locks belong to the open file description.
    fn open_again(&self) -> Result<Self, ShmError> {
        let path = c_path(&std::format!("/proc/self/fd/{}", self.fd.as_raw_fd()))?;
        // SAFETY: the path is NUL-terminated and outlives the call.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(failed("reopening"));
        }
        // SAFETY: the call has just created it, and no other code has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(File { fd })
    }

    pub(crate) fn size(&self) -> Result<u64, ShmError> {
        // SAFETY: a zeroed stat is valid, and it outlives the call.
        let stat = unsafe {
            let mut stat: libc::stat = core::mem::zeroed();
            if libc::fstat(self.fd.as_raw_fd(), &raw mut stat) != 0 {
                return Err(failed("looking up the size"));
            }
            stat
        };
        Ok(stat.st_size as u64)
    }

    /// Resizes the file to `size` bytes, all zeros whatever was in it.
    pub(crate) fn resize_to_zeros(&self, size: usize) -> Result<(), ShmError> {
        for size in [0, size] {
            // SAFETY: the call takes only integers.
            if unsafe { libc::ftruncate(self.fd.as_raw_fd(), size as libc::off_t) } != 0 {
                return Err(failed("resizing"));
            }
        }
        Ok(())
    }

    /// Waits until no other process creates or checks this file; the kernel releases the lock of a dead process.
    pub(crate) fn lock_whole(&self) -> Result<WholeLock<'_>, ShmError> {
        loop {
            // SAFETY: the call takes only integers.
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

    /// Locks a role or releases it; never waits. Returns whether that worked; if not, the error is in `errno`.
    fn set_lock(&self, role: Role, kind: libc::c_int) -> bool {
        let mut lock = File::role_lock(role.0..role.0 + 1, kind);
        // SAFETY: the lock outlives the call.
        unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) == 0 }
    }

    /// A lock on the bytes that represent roles.
    fn role_lock(roles: Range<u16>, kind: libc::c_int) -> libc::flock {
        // SAFETY: a zeroed flock is valid.
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
        // SAFETY: the call takes only integers.
        unsafe { libc::flock(self.0.fd.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// A claimed end: for the lifetime of this value and of the process.
pub(crate) struct Claim {
    file: File,
    pub(crate) role: Role,
    /// The process that claimed it. Its forks have this too, and the same lock.
    owner: u32,
}

impl Drop for Claim {
    /// Closing the file is not enough: the lock stays as long as a fork of the process has it open too. Each process
    /// that starts another one has such a fork, until the other program runs.
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            self.file.set_lock(self.role, libc::F_UNLCK);
        }
    }
}

/// A file mapped into this process's memory.
pub(crate) struct Mapping {
    base: *mut u8,
    size: usize,
    access: Access,
    file: File,
}

// SAFETY: the memory is shared with other processes anyway; its contents are designed for that.
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
        // SAFETY: a new mapping, at an address of the kernel's choice, of an open file.
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
        // SAFETY: every mapping is at least as long as a header, aligned to a page, and any bytes are a valid
        // header.
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

    /// Whether a live process holds one of these ends; `false` for an empty range.
    pub(crate) fn is_any_claimed(&self, roles: Range<u16>) -> bool {
        if roles.is_empty() {
            return false;
        }
        let mut lock = File::role_lock(roles, libc::F_RDLCK);
        // SAFETY: the lock outlives the call, which fills it.
        let result =
            unsafe { libc::fcntl(self.file.fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
    }

    /// Whether a live process holds an end.
    pub(crate) fn is_claimed(&self, role: Role) -> bool {
        self.is_any_claimed(role.0..role.0 + 1)
    }

    /// Whether a live process holds a writing end.
    pub(crate) fn is_writer_alive(&self) -> bool {
        self.is_any_claimed(self.header().held.writers())
    }

    /// Whether a live process holds a claimed reading end.
    pub(crate) fn is_reader_alive(&self) -> bool {
        self.is_any_claimed(self.header().held.readers())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size, and no references into it are left: all ends keep the mapping
        // alive.
        unsafe { libc::munmap(self.base.cast(), self.size) };
    }
}
