//! Returns freed memory to the system.

/// Allocations of at least this many bytes go back to the system as soon as they are freed.
///
/// glibc starts with this, and gives it up when the first large block is freed: from then on up to 32 MB are taken
/// from its heaps. Pictures and clouds of varying sizes leave holes there that nothing fits into; a
/// server with a cache of 300 MB took a third more than it held.
const MMAP_THRESHOLD_BYTES: i32 = 512 << 10;

/// Keeps the memory taken by large messages close to the memory in use. Each allocation then costs a system call,
/// so it is for programs where memory matters more than that.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(
    unsafe_code,
    reason = "the allocator's own setting has no other way to it"
)]
pub fn give_back_what_is_large() {
    // SAFETY: it takes two numbers, and glibc makes it safe to call while other threads allocate.
    let is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) } == 1;
    if !is_set {
        tracing::debug!("the allocator keeps its own threshold");
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back_what_is_large() {
    let _ = MMAP_THRESHOLD_BYTES;
}
