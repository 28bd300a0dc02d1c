//! The C++ buffers, through loops that were compiled with them.

use std::ffi::c_void;

unsafe extern "C" {
    pub fn cpp_ring_new() -> *mut c_void;
    pub fn cpp_ring_delete(ring: *mut c_void);
    pub fn cpp_ring_ping(
        there: *mut c_void,
        back: *mut c_void,
        source: *const c_void,
        count: u64,
        full: bool,
    );
    pub fn cpp_ring_echo(
        there: *mut c_void,
        back: *mut c_void,
        source: *const c_void,
        count: u64,
        full: bool,
    );
    pub fn cpp_ring_send_all(ring: *mut c_void, source: *const c_void, count: u64, full: bool);
    pub fn cpp_ring_receive_all(ring: *mut c_void, count: u64, full: bool);
    pub fn cpp_latest_new() -> *mut c_void;
    pub fn cpp_latest_delete(cell: *mut c_void);
    pub fn cpp_latest_read(cell: *const c_void, count: u64);
    pub fn cpp_latest_read_one(cell: *const c_void, out: *mut c_void);
    pub fn cpp_latest_write(cell: *mut c_void, count: u64);
    pub fn cpp_mux_new() -> *mut c_void;
    pub fn cpp_mux_delete(mux: *mut c_void);
    pub fn cpp_mux_read(mux: *const c_void, count: u64);
    pub fn cpp_mux_write(mux: *mut c_void, count: u64);
    pub fn cpp_map_new() -> *mut c_void;
    pub fn cpp_map_delete(map: *mut c_void);
    pub fn cpp_map_publish_acquire(map: *mut c_void, count: u64);
    pub fn cpp_latch_new() -> *mut c_void;
    pub fn cpp_latch_delete(latch: *mut c_void);
    pub fn cpp_latch_check(latch: *const c_void, count: u64) -> u64;
}

/// A C++ object, deleted with this.
pub struct Object {
    pub pointer: *mut c_void,
    delete: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the objects are made to be shared between threads; what they get wrong about it is what is measured.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    pub fn new(
        new: unsafe extern "C" fn() -> *mut c_void,
        delete: unsafe extern "C" fn(*mut c_void),
    ) -> Self {
        // SAFETY: the constructors take nothing.
        let pointer = unsafe { new() };
        Object { pointer, delete }
    }

    /// The pointer, in a form that may go to another thread.
    pub fn address(&self) -> usize {
        self.pointer as usize
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: made by the constructor that belongs to this destructor, and deleted once.
        unsafe { (self.delete)(self.pointer) }
    }
}
