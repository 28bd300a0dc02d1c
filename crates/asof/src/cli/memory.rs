//! Memory that is given back when it is not needed any more.

/// Allocations from this size on go back to the system as soon as they are freed.
///
/// glibc begins like this, and gives it up at the first large block that is freed: from then on up to 32 MB are cut
/// out of its heaps. Pictures and clouds of all sizes that come and go leave holes there that nothing fits into; a
/// server with a cache of 300 MB took a third more than it held.
const LARGE: i32 = 512 << 10;

/// Keeps what large messages that come and go take close to what is held of them. Each then costs a call of the
/// system, so it is for where memory counts more than that.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(
    unsafe_code,
    reason = "the allocator's own setting has no other way to it"
)]
pub fn give_back_what_is_large() {
    // SAFETY: it takes two numbers, and glibc makes it safe to call while other threads allocate.
    let is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) } == 1;
    if !is_set {
        tracing::debug!("the allocator keeps its own threshold");
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back_what_is_large() {
    let _ = LARGE;
}
