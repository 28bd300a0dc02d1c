//! Debian's message_filters, from a shared library that bench/peers/message_filters.sh builds.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;

/// The loaded library. The functions are those of bench/peers/message_filters.cpp.
pub struct MessageFilters {
    library: Library,
}

/// A `message_filters::Cache`.
pub struct Cache<'a> {
    peer: &'a MessageFilters,
    cache: *mut c_void,
}

/// What an approximate-time run found.
pub struct Run {
    pub nanos: f64,
    pub sets: u64,
    /// Order-sensitive, over the ids of every set.
    pub hash: u64,
}

#[repr(C)]
#[derive(Default)]
struct RawResult {
    sets: u64,
    hash: u64,
}

impl MessageFilters {
    /// Loads the library, and builds it first if it is not there.
    pub fn load() -> Result<Self, String> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = std::env::var_os("ASOF_MESSAGE_FILTERS").map_or_else(
            || here.join("target/peers/libmessage_filters_peer.so"),
            PathBuf::from,
        );
        let script = here.join("peers/message_filters.sh");
        if !path.exists() {
            let built = Command::new(&script).arg(&path).status();
            if !built.as_ref().is_ok_and(std::process::ExitStatus::success) {
                return Err(format!("{} failed: {built:?}", script.display()));
            }
        }
        // SAFETY: the library is ours; loading it runs the initializers of ROS and Boost and nothing else.
        let library = unsafe { Library::new(&path) }.map_err(|error| error.to_string())?;
        let peer = MessageFilters { library };
        let keep: unsafe extern "C" fn() = peer.function(b"mf_keep_a_thread");
        // SAFETY: takes nothing and starts a thread that sleeps.
        unsafe { keep() };
        Ok(peer)
    }

    fn function<F: Copy>(&self, name: &[u8]) -> F {
        // SAFETY: every caller names the type that bench/peers/message_filters.cpp declares for it.
        *unsafe { self.library.get::<F>(name) }.expect("the library is built from this source tree")
    }

    pub fn cache(&self, capacity: u32) -> Cache<'_> {
        let new: unsafe extern "C" fn(u32) -> *mut c_void = self.function(b"mf_cache_new");
        Cache {
            peer: self,
            // SAFETY: returns a new cache, which `Cache` frees.
            cache: unsafe { new(capacity) },
        }
    }

    /// Runs the approximate-time policy; message `i` has the id `i`.
    #[allow(clippy::too_many_arguments)]
    pub fn approximate(
        &self,
        topics_count: u32,
        queue: u32,
        penalty: f64,
        max_interval: Option<i64>,
        lower_bounds: &[i64],
        topics: &[u8],
        stamps: &[i64],
    ) -> Run {
        type Function = unsafe extern "C" fn(
            u32,
            u32,
            f64,
            i64,
            *const i64,
            *const u8,
            *const i64,
            usize,
            *mut RawResult,
        ) -> f64;
        assert!(lower_bounds.len() == topics_count as usize && topics.len() == stamps.len());
        let run: Function = self.function(b"mf_approximate");
        let mut result = RawResult::default();
        // SAFETY: all arrays are as long as the counts say, and `result` is laid out as in C++.
        let nanos = unsafe {
            run(
                topics_count,
                queue,
                penalty,
                max_interval.unwrap_or(-1),
                lower_bounds.as_ptr(),
                topics.as_ptr(),
                stamps.as_ptr(),
                stamps.len(),
                &raw mut result,
            )
        };
        Run {
            nanos,
            sets: result.sets,
            hash: result.hash,
        }
    }
}

/// What an exact-time run found.
#[derive(Debug, PartialEq, Eq)]
pub struct ExactRun {
    pub sets: u64,
    /// Order-sensitive, over the ids of every set.
    pub hash: u64,
    /// The ids of everything that was dropped, each and one, together.
    pub drops: u64,
}

impl MessageFilters {
    /// Runs the exact-time policy; message `i` has the id `i`.
    pub fn exact(&self, topics_count: u32, queue: u32, topics: &[u8], stamps: &[i64]) -> ExactRun {
        type Function =
            unsafe extern "C" fn(u32, u32, *const u8, *const i64, usize, *mut RawResult, *mut u64);
        assert_eq!(topics.len(), stamps.len());
        let run: Function = self.function(b"mf_exact");
        let (mut result, mut drops) = (RawResult::default(), 0);
        // SAFETY: both arrays are as long as the count says, and `result` is laid out as in C++.
        unsafe {
            run(
                topics_count,
                queue,
                topics.as_ptr(),
                stamps.as_ptr(),
                stamps.len(),
                &raw mut result,
                &raw mut drops,
            );
        }
        ExactRun {
            sets: result.sets,
            hash: result.hash,
            drops,
        }
    }
}

/// What a cache is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Question {
    Before,
    After,
    Interval,
    Surrounding,
    Ends,
}

impl Cache<'_> {
    /// A hash over the ids of all answers.
    pub fn ask(&self, question: Question, starts: &[i64], ends: &[i64]) -> u64 {
        type Function =
            unsafe extern "C" fn(*mut c_void, u32, *const i64, *const i64, usize) -> u64;
        assert_eq!(starts.len(), ends.len());
        let ask: Function = self.peer.function(b"mf_cache_ask");
        // SAFETY: the cache is alive and both arrays are as long as it says.
        unsafe {
            ask(
                self.cache,
                question as u32,
                starts.as_ptr(),
                ends.as_ptr(),
                starts.len(),
            )
        }
    }
}

impl Cache<'_> {
    /// Nanoseconds for adding all of these.
    pub fn add(&self, stamps: &[i64]) -> f64 {
        let add: unsafe extern "C" fn(*mut c_void, *const i64, usize) -> f64 =
            self.peer.function(b"mf_cache_add");
        // SAFETY: the cache is alive and the array as long as it says.
        unsafe { add(self.cache, stamps.as_ptr(), stamps.len()) }
    }

    /// Nanoseconds for asking `getElemBeforeTime` at all of these.
    pub fn before(&self, stamps: &[i64]) -> f64 {
        let before: unsafe extern "C" fn(*mut c_void, *const i64, usize, *mut u64) -> f64 =
            self.peer.function(b"mf_cache_before");
        let mut sum = 0;
        // SAFETY: the cache is alive and the array as long as it says.
        unsafe { before(self.cache, stamps.as_ptr(), stamps.len(), &raw mut sum) }
    }

    /// Nanoseconds for asking `getInterval` for all of these.
    pub fn interval(&self, starts: &[i64], ends: &[i64]) -> f64 {
        type Function =
            unsafe extern "C" fn(*mut c_void, *const i64, *const i64, usize, *mut u64) -> f64;
        assert_eq!(starts.len(), ends.len());
        let interval: Function = self.peer.function(b"mf_cache_interval");
        let mut sum = 0;
        // SAFETY: the cache is alive and both arrays are as long as it says.
        unsafe {
            interval(
                self.cache,
                starts.as_ptr(),
                ends.as_ptr(),
                starts.len(),
                &raw mut sum,
            )
        }
    }
}

impl Drop for Cache<'_> {
    fn drop(&mut self) {
        let free: unsafe extern "C" fn(*mut c_void) = self.peer.function(b"mf_cache_free");
        // SAFETY: it was made by `mf_cache_new` and is freed once.
        unsafe { free(self.cache) };
    }
}
