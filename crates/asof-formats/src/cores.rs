//! Placement of worker threads on cores.

use std::thread::JoinHandle;

/// Moves a thread that was just started to another core, if there is one. Its affinity is unchanged afterwards.
///
/// Some kernels, mostly in virtual machines, start a new thread on its parent's core and let the two take turns there
/// for many milliseconds while another core is idle. A recording is often read in less time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(
    unsafe_code,
    reason = "the cores of a thread are set through the C library alone"
)]
pub(crate) fn start_elsewhere<T>(thread: &JoinHandle<T>) {
    use std::os::unix::thread::JoinHandleExt as _;

    // A new thread inherits its parent's affinity. So nothing is lost if it has already ended and the C library takes
    // the calling thread instead.
    let (thread, size) = (thread.as_pthread_t(), size_of::<libc::cpu_set_t>());
    // SAFETY: a set of cores is an array of bits, for which all zero is a value; the sets outlive the calls, which
    // receive their size; the thread's handle is valid until it is joined or dropped; and a core's number is checked
    // against the size of a set before its bit is touched.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if libc::pthread_getaffinity_np(thread, size, &raw mut allowed) != 0 {
            return;
        }
        let Some(here) = usize::try_from(libc::sched_getcpu())
            .ok()
            .filter(|&core| core < 8 * size)
        else {
            return;
        };
        let mut others = allowed;
        libc::CPU_CLR(here, &mut others);
        if libc::CPU_COUNT(&others) > 0 {
            libc::pthread_setaffinity_np(thread, size, &raw const others);
            libc::pthread_setaffinity_np(thread, size, &raw const allowed);
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn start_elsewhere<T>(_: &JoinHandle<T>) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// The cores that the calling thread may run on, as the kernel reports them.
    fn own_cores() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("a status");
        let cores = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed:"));
        cores.expect("says its cores").to_owned()
    }

    #[test]
    fn a_thread_that_starts_elsewhere_may_run_where_it_might_before() {
        let (go, told) = channel::<()>();
        let thread = std::thread::spawn(move || {
            told.recv().expect("is told to go on");
            own_cores()
        });
        start_elsewhere(&thread);
        go.send(()).expect("it listens");
        assert_eq!(thread.join().expect("no panic"), own_cores());
    }

    #[test]
    fn a_thread_that_is_over_is_left_alone() {
        let thread = std::thread::spawn(|| ());
        while !thread.is_finished() {
            std::thread::yield_now();
        }
        start_elsewhere(&thread);
        thread.join().expect("no panic");
    }
}
