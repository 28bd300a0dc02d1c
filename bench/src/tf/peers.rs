//! asof and its peers with one trait. The loops are within the methods, so that dynamic calls cost nothing.

use std::ffi::CString;
use std::os::raw::{c_char, c_double, c_int, c_void};
use std::path::{Path, PathBuf};
use std::time::Duration;

use asof_core::Stamp;
use asof_tf::{BufferOptions, TransformBuffer};
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};

/// Rotation x, y, z, w, then translation.
pub type Pose = [f64; 7];

/// A transform buffer. Sums are returned so that the optimizer removes nothing, and to check that all agree.
pub trait Peer {
    fn name(&self) -> &'static str;
    fn update(&mut self, parent: &str, child: &str, stamps: &[i64], poses: &[Pose]);
    fn new_static(&mut self, edges: &[(String, String)]);
    fn lookup(&self, target: &str, source: &str, stamps: &[i64]) -> f64;
    fn latest(&self, target: &str, source: &str, newest: i64, count: usize) -> f64;
}

/// Seconds that every buffer keeps: schiebung's, which cannot be set from a program.
pub const WINDOW: u64 = 120;

/// What a failed lookup adds to a sum.
const FAILED: f64 = 1e6;

pub struct Asof(pub TransformBuffer);

impl Asof {
    pub fn new() -> Self {
        let options = BufferOptions::default().window(Duration::from_secs(WINDOW));
        Asof(TransformBuffer::with_options(options))
    }
}

/// As a message's fields become an isometry; the buffer itself checks and normalizes.
pub fn isometry(pose: &Pose) -> Isometry3<f64> {
    let [x, y, z, w, a, b, c] = *pose;
    let rotation = UnitQuaternion::new_unchecked(Quaternion::new(w, x, y, z));
    Isometry3::from_parts(Translation3::new(a, b, c), rotation)
}

fn taken(isometry: &Isometry3<f64>) -> f64 {
    isometry.translation.x + isometry.rotation.w
}

impl Peer for Asof {
    fn name(&self) -> &'static str {
        "asof"
    }

    fn update(&mut self, parent: &str, child: &str, stamps: &[i64], poses: &[Pose]) {
        for (stamp, pose) in stamps.iter().zip(poses) {
            self.0
                .update(parent, child, Stamp::from_nanos(*stamp), isometry(pose))
                .expect("a good update");
        }
    }

    fn new_static(&mut self, edges: &[(String, String)]) {
        for (parent, child) in edges {
            self.0
                .update_static(parent, child, Isometry3::translation(1.0, 2.0, 3.0))
                .expect("a good edge");
        }
    }

    fn lookup(&self, target: &str, source: &str, stamps: &[i64]) -> f64 {
        let lookup = |stamp: &i64| self.0.lookup(target, source, Stamp::from_nanos(*stamp));
        stamps
            .iter()
            .map(|stamp| lookup(stamp).map_or(FAILED, |isometry| taken(&isometry)))
            .sum()
    }

    fn latest(&self, target: &str, source: &str, _newest: i64, count: usize) -> f64 {
        let latest = || self.0.lookup_newest(std::hint::black_box(target), source);
        (0..count)
            .map(|_| latest().map_or(FAILED, |found| taken(&found.isometry)))
            .sum()
    }
}

pub struct Schiebung(pub schiebung::BufferTree);

impl Schiebung {
    pub fn new() -> Self {
        Schiebung(schiebung::BufferTree::new())
    }
}

impl Peer for Schiebung {
    fn name(&self) -> &'static str {
        "schiebung"
    }

    fn update(&mut self, parent: &str, child: &str, stamps: &[i64], poses: &[Pose]) {
        for (stamp, [x, y, z, w, a, b, c]) in stamps.iter().zip(poses) {
            let stamped = schiebung::StampedIsometry::new([*a, *b, *c], [*x, *y, *z, *w], *stamp);
            let update = schiebung::TransformUpdate::new(
                parent,
                child,
                stamped,
                schiebung::TransformType::Dynamic,
            );
            self.0.update(&[update]).expect("a good update");
        }
    }

    fn new_static(&mut self, edges: &[(String, String)]) {
        for (parent, child) in edges {
            let stamped = schiebung::StampedIsometry::new([1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 1.0], 0);
            let update = schiebung::TransformUpdate::new(
                parent.as_str(),
                child.as_str(),
                stamped,
                schiebung::TransformType::Static,
            );
            self.0.update(&[update]).expect("a good edge");
        }
    }

    fn lookup(&self, target: &str, source: &str, stamps: &[i64]) -> f64 {
        let taken = |found: schiebung::StampedIsometry| {
            found.isometry.translation.x + found.isometry.rotation.w
        };
        stamps
            .iter()
            .map(|stamp| {
                self.0
                    .lookup_transform(target, source, *stamp)
                    .map_or(FAILED, taken)
            })
            .sum()
    }

    fn latest(&self, target: &str, source: &str, _newest: i64, count: usize) -> f64 {
        let taken = |found: schiebung::StampedIsometry| {
            found.isometry.translation.x + found.isometry.rotation.w
        };
        let latest = || {
            self.0
                .lookup_latest_transform(std::hint::black_box(target), source)
        };
        (0..count).map(|_| latest().map_or(FAILED, taken)).sum()
    }
}

pub struct Transforms(pub transforms::Registry);

impl Transforms {
    pub fn new() -> Self {
        Transforms(transforms::Registry::with_max_age(Duration::from_secs(
            WINDOW,
        )))
    }

    pub fn transform(parent: &str, child: &str, stamp: i64, pose: &Pose) -> transforms::Transform {
        use transforms::geometry::{Quaternion, Vector3};
        let [x, y, z, w, a, b, c] = *pose;
        let at = transforms::time::Stamp::At(transforms::time::Timestamp::from_nanos(stamp as u64));
        transforms::Transform::new(
            parent,
            child,
            Vector3::new(a, b, c),
            Quaternion::from_wxyz(w, x, y, z),
            at,
        )
        .expect("a good transform")
    }
}

impl Peer for Transforms {
    fn name(&self) -> &'static str {
        "transforms"
    }

    fn update(&mut self, parent: &str, child: &str, stamps: &[i64], poses: &[Pose]) {
        for (stamp, pose) in stamps.iter().zip(poses) {
            let transform = Transforms::transform(parent, child, *stamp, pose);
            self.0.add_transform(transform).expect("a good update");
        }
    }

    fn new_static(&mut self, edges: &[(String, String)]) {
        use transforms::geometry::{Quaternion, Vector3};
        for (parent, child) in edges {
            let transform = transforms::Transform::static_between(
                parent,
                child,
                Vector3::new(1.0, 2.0, 3.0),
                Quaternion::identity(),
            );
            self.0
                .add_transform(transform.expect("a good transform"))
                .expect("a good edge");
        }
    }

    fn lookup(&self, target: &str, source: &str, stamps: &[i64]) -> f64 {
        let taken = |found: transforms::Transform| found.translation().x + found.rotation().w;
        let at = |stamp: &i64| transforms::time::Timestamp::from_nanos(*stamp as u64);
        stamps
            .iter()
            .map(|stamp| {
                self.0
                    .get_transform(target, source, at(stamp))
                    .map_or(FAILED, taken)
            })
            .sum()
    }

    // It has no "latest"; a lookup at the newest stamp is the closest.
    fn latest(&self, target: &str, source: &str, newest: i64, count: usize) -> f64 {
        (0..count)
            .map(|_| self.lookup(std::hint::black_box(target), source, &[newest]))
            .sum()
    }
}

type Update = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    *const c_char,
    *const i64,
    *const c_double,
    u64,
    c_int,
) -> u64;
type Lookup =
    unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, *const i64, u64) -> c_double;

/// The shared library over Debian's tf2.
pub struct Tf2Library {
    _library: libloading::Library,
    new: unsafe extern "C" fn(c_double) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    update: Update,
    lookup: Lookup,
    new_edges: unsafe extern "C" fn(*mut c_void, *const *const c_char, u64) -> u64,
    wait: unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, i64),
}

impl Tf2Library {
    /// Loads the library, and builds it first if it is missing; prints a message if that fails.
    pub fn load() -> Option<Tf2Library> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| here.join("target"), PathBuf::from);
        let library = target.join("peers/libtf2_peer.so");
        if !library.exists() {
            eprintln!("building {}", library.display());
            let built = std::process::Command::new(here.join("peers/tf2/build"))
                .arg(&library)
                .stdout(std::process::Stdio::null())
                .status();
            if !built.is_ok_and(|status| status.success()) {
                eprintln!("tf2 is left out: bench/peers/tf2/build failed");
                return None;
            }
        }
        // SAFETY: the library is our own peer.cpp; the signatures below are those of its functions.
        let loaded = unsafe {
            libloading::Library::new(&library).and_then(|found| {
                Ok(Tf2Library {
                    new: *found.get(b"tf2_new\0")?,
                    free: *found.get(b"tf2_free\0")?,
                    update: *found.get(b"tf2_update\0")?,
                    lookup: *found.get(b"tf2_lookup\0")?,
                    new_edges: *found.get(b"tf2_new_edges\0")?,
                    wait: *found.get(b"tf2_wait\0")?,
                    _library: found,
                })
            })
        };
        loaded
            .map_err(|error| eprintln!("tf2 is left out: {error}"))
            .ok()
    }
}

/// A tf2 `BufferCore`.
pub struct Tf2<'a> {
    library: &'a Tf2Library,
    buffer: *mut c_void,
}

// SAFETY: BufferCore locks a mutex in every function that is called here.
unsafe impl Send for Tf2<'_> {}
// SAFETY: as above.
unsafe impl Sync for Tf2<'_> {}

fn c(text: &str) -> CString {
    CString::new(text).expect("no zero in it")
}

impl<'a> Tf2<'a> {
    pub fn new(library: &'a Tf2Library) -> Self {
        // SAFETY: takes a number, gives a buffer of our own.
        let buffer = unsafe { (library.new)(WINDOW as f64) };
        Tf2 { library, buffer }
    }

    pub fn set(&self, parent: &str, child: &str, stamps: &[i64], poses: &[Pose]) {
        let count = stamps.len().min(poses.len()) as u64;
        let (parent, child) = (c(parent), c(child));
        // SAFETY: names end in zero, both arrays have `count` entries, a pose is seven doubles.
        let good = unsafe {
            (self.library.update)(
                self.buffer,
                parent.as_ptr(),
                child.as_ptr(),
                stamps.as_ptr(),
                poses.as_ptr().cast(),
                count,
                0,
            )
        };
        assert_eq!(good, count);
    }

    pub fn wait(&self, target: &str, source: &str, stamp: i64) {
        let (target, source) = (c(target), c(source));
        // SAFETY: names end in zero.
        unsafe { (self.library.wait)(self.buffer, target.as_ptr(), source.as_ptr(), stamp) }
    }
}

impl Drop for Tf2<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `tf2_new`, freed once.
        unsafe { (self.library.free)(self.buffer) }
    }
}

impl Peer for Tf2<'_> {
    fn name(&self) -> &'static str {
        "tf2"
    }

    fn update(&mut self, parent: &str, child: &str, stamps: &[i64], poses: &[Pose]) {
        self.set(parent, child, stamps, poses);
    }

    fn new_static(&mut self, edges: &[(String, String)]) {
        let names: Vec<CString> = edges.iter().flat_map(|(a, b)| [c(a), c(b)]).collect();
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: two names for every edge, all end in zero.
        let good =
            unsafe { (self.library.new_edges)(self.buffer, pointers.as_ptr(), edges.len() as u64) };
        assert_eq!(good, edges.len() as u64);
    }

    fn lookup(&self, target: &str, source: &str, stamps: &[i64]) -> f64 {
        let (target, source) = (c(target), c(source));
        // SAFETY: names end in zero; the array has as many entries as said.
        unsafe {
            (self.library.lookup)(
                self.buffer,
                target.as_ptr(),
                source.as_ptr(),
                stamps.as_ptr(),
                stamps.len() as u64,
            )
        }
    }

    fn latest(&self, target: &str, source: &str, _newest: i64, count: usize) -> f64 {
        self.lookup(target, source, &vec![0; count])
    }
}
