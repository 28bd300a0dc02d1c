//! asof from C++: the transform buffer beside Debian's tf2, the lock-free buffers beside themselves in Rust, in one process.
//!
//! `tf2` is tf2::BufferCore, `rust` what the caller of the crate has. The buffer is `asof::tf::Buffer` by the names of frames, in cases
//! of `core` asof::tf2::BufferCore with tf2's own calls, in those of `path` a prepared path.

use std::ffi::{CStr, CString, c_char, c_void};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asof_core::Stamp;
use asof_hot::{LockOptions, MonoStamp, MuxEnds, SourceOptions};
use asof_tf::{BufferOptions, TransformBuffer};
use nalgebra::{Isometry3, Translation3, UnitQuaternion, Vector3};

use crate::harness::{Bench, Contender, contender};

const SECOND: i64 = 1_000_000_000;
const START: i64 = 1_000 * SECOND;
const STEP: i64 = SECOND / 100;
const SAMPLES: i64 = 900;
const LOOKUPS: usize = 2_000;
const ROUNDS: usize = 31;

pub fn run(bench: &mut Bench) {
    hot(bench);
    if bench
        .only
        .as_deref()
        .is_some_and(|only| only.starts_with("hot"))
    {
        return;
    }
    match Library::load() {
        Some(library) => transforms(bench, &library),
        None => eprintln!("the transforms are left out: bench/cpp/tf2 failed"),
    }
}

asof_hot::plain! {
    struct Odometry { values: [f64; 18] }
}
asof_hot::plain! {
    struct Command { values: [f64; 9] }
}

unsafe extern "C" {
    fn cpp_asof_latest_read(count: u64, is_into: bool) -> f64;
    fn cpp_asof_mux_read(count: u64, is_into: bool) -> f64;
    fn cpp_asof_shm_latest_read(count: u64) -> f64;
    fn cpp_asof_shm_mux_read(count: u64) -> f64;
}

fn hot(bench: &Bench) {
    const COUNT: u64 = 200_000;
    let (mut writer, reader) = asof_hot::latest::<Odometry, 8>();
    writer.write(&Odometry { values: [0.0; 18] }, MonoStamp(1));
    let limit = SourceOptions::new(Duration::from_millis(500));
    let MuxEnds {
        mut sources,
        output,
        ..
    } = asof_hot::mux::<Command, 4, 1>([limit; 4], [LockOptions::new(4)]);
    sources[3].write(&Command { values: [0.0; 9] }, MonoStamp(1000));
    // SAFETY: these take numbers, and what they measure is their own.
    let latest = unsafe {
        vec![
            contender("asof", || cpp_asof_latest_read(COUNT, true)),
            contender("rust", || {
                let mut out = Odometry { values: [0.0; 18] };
                per_lookup(COUNT, || {
                    for _ in 0..COUNT {
                        black_box(reader.read_into(black_box(&mut out)));
                    }
                })
            }),
            contender("cpp_by_value", || cpp_asof_latest_read(COUNT, false)),
            contender("cpp_shared_memory", || cpp_asof_shm_latest_read(COUNT)),
        ]
    };
    bench.case("hot_latest_read", "ns", ROUNDS, latest);
    // SAFETY: as above.
    let mux = unsafe {
        vec![
            contender("asof", || cpp_asof_mux_read(COUNT, true)),
            contender("rust", || {
                let mut out = Command { values: [0.0; 9] };
                per_lookup(COUNT, || {
                    for count in 0..COUNT {
                        let now = MonoStamp(1000 + count);
                        black_box(output.read_into(now, black_box(&mut out)).is_ok());
                    }
                })
            }),
            contender("cpp_by_value", || cpp_asof_mux_read(COUNT, false)),
            contender("cpp_shared_memory", || cpp_asof_shm_mux_read(COUNT)),
        ]
    };
    bench.case("hot_mux_read", "ns", ROUNDS, mux);
}

/// CPU time of this thread in nanoseconds, divided by the number of lookups.
fn per_lookup(count: u64, work: impl FnOnce()) -> f64 {
    let time = || {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a timespec that outlives the call.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let before = time();
    work();
    (time() - before) / count as f64
}

type Lookup =
    unsafe extern "C" fn(*const c_void, i32, *const c_char, *const c_char, *const i64, u64) -> f64;

/// The shared library of bench/cpp/tf2.cpp.
struct Library {
    _library: libloading::Library,
    trees: *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    set: unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, i64, f64),
    lookup: Lookup,
    batch:
        unsafe extern "C" fn(*const c_void, *const c_char, *const c_char, *const i64, u64) -> f64,
    contended:
        unsafe extern "C" fn(*mut c_void, i32, *const c_char, *const c_char, i64, i32) -> f64,
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the library made it, and it is freed once.
        unsafe { (self.free)(self.trees) }
    }
}

// As in bench/cpp/tf2.cpp.
const TF2: i32 = 0;
const CORE: i32 = 1;
const BUFFER: i32 = 2;
const PATH: i32 = 3;

impl Library {
    fn load() -> Option<Library> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| here.join("target"), PathBuf::from);
        let library = target.join("peers/libasof_cpp_tf2.so");
        let built = std::process::Command::new(here.join("cpp/tf2"))
            .arg(&library)
            .stdout(std::process::Stdio::null())
            .status();
        built.ok().filter(std::process::ExitStatus::success)?;
        // SAFETY: the library is our own tf2.cpp; the signatures are those of its functions.
        let loaded = unsafe {
            libloading::Library::new(&library).and_then(|found| {
                let new: unsafe extern "C" fn() -> *mut c_void = *found.get(b"cpp_trees_new\0")?;
                Ok(Library {
                    trees: new(),
                    free: *found.get(b"cpp_trees_free\0")?,
                    set: *found.get(b"cpp_trees_set\0")?,
                    lookup: *found.get(b"cpp_trees_lookup\0")?,
                    batch: *found.get(b"cpp_trees_batch\0")?,
                    contended: *found.get(b"cpp_trees_contended\0")?,
                    _library: found,
                })
            })
        };
        loaded.map_err(|error| eprintln!("{error}")).ok()
    }

    fn lookup(&self, contender: i32, target: &CStr, source: &CStr, stamps: &[i64]) -> f64 {
        let count = stamps.len() as u64;
        // SAFETY: the names end in zero, and there are so many stamps.
        unsafe {
            (self.lookup)(
                self.trees,
                contender,
                target.as_ptr(),
                source.as_ptr(),
                stamps.as_ptr(),
                count,
            )
        }
    }
}

fn frame(number: i64) -> CString {
    CString::new(format!("frame_{number}")).expect("no zero in it")
}

fn transforms(bench: &Bench, library: &Library) {
    let options = BufferOptions::default().window(Duration::from_secs(10));
    let rust = TransformBuffer::with_options(options);
    for (sample, edge) in (0..SAMPLES).flat_map(|sample| (0..5).map(move |edge| (sample, edge))) {
        let (parent, child) = (frame(edge), frame(edge + 1));
        let (stamp, angle) = (START + sample * STEP, sample as f64 * 0.01 + edge as f64);
        // SAFETY: the names end in zero.
        unsafe { (library.set)(library.trees, parent.as_ptr(), child.as_ptr(), stamp, angle) }
        let pose = Isometry3::from_parts(
            Translation3::new(angle, 0.0, 0.0),
            UnitQuaternion::from_axis_angle(&Vector3::z_axis(), angle),
        );
        let (parent, child) = (parent.to_string_lossy(), child.to_string_lossy());
        rust.update(&*parent, &*child, Stamp::from_nanos(stamp), pose)
            .expect("a good update");
    }
    let random: Vec<i64> = (0..LOOKUPS as i64)
        .map(|lookup| START + lookup * 7919 % (SAMPLES - 1) * STEP + STEP / 3)
        .collect();
    let in_order: Vec<i64> = (0..LOOKUPS as i64)
        .map(|lookup| START + lookup * 30_000)
        .collect();
    let latest = vec![0; LOOKUPS];
    for (name, stamps) in [("latest", &latest), ("interpolated", &random)] {
        for depth in [1, 5] {
            let chain = if depth == 1 { "" } else { "_chain_5" };
            for (form, ours) in [("", BUFFER), ("_core", CORE), ("_path", PATH)] {
                let case = format!("tf_{name}{chain}{form}");
                bench.case(
                    &case,
                    "ns",
                    ROUNDS,
                    lookups(library, &rust, ours, depth, stamps),
                );
            }
        }
    }
    let (target, source) = (frame(0), frame(5));
    let batch = |ours: i32| {
        let (target, source, stamps) = (target.clone(), source.clone(), &in_order);
        move || {
            per_lookup(LOOKUPS as u64, || {
                if ours == TF2 {
                    black_box(library.lookup(TF2, &target, &source, stamps));
                } else {
                    let count = stamps.len() as u64;
                    let (target, source) = (target.as_ptr(), source.as_ptr());
                    // SAFETY: the names end in zero, and there are so many stamps.
                    black_box(unsafe {
                        (library.batch)(library.trees, target, source, stamps.as_ptr(), count)
                    });
                }
            })
        }
    };
    let batches = vec![contender("asof", batch(PATH)), contender("tf2", batch(TF2))];
    bench.case("tf_batch_chain_5", "ns", ROUNDS, batches);
    let mut from = START + SAMPLES * STEP;
    let mut contended = |ours| {
        // Few enough that all runs stay within the buffer's ten seconds.
        from += SECOND * 2 / 5;
        // SAFETY: the names end in zero.
        unsafe {
            (library.contended)(
                library.trees,
                ours,
                target.as_ptr(),
                source.as_ptr(),
                from,
                20_000,
            )
        }
    };
    let contended = std::cell::RefCell::new(&mut contended);
    let contenders = vec![
        contender("asof", || (contended.borrow_mut())(CORE)),
        contender("tf2", || (contended.borrow_mut())(TF2)),
    ];
    bench.case("tf_chain_5_readers_8_writer_1khz", "ns", 5, contenders);
}

fn lookups<'a>(
    library: &'a Library,
    rust: &'a TransformBuffer,
    ours: i32,
    depth: i64,
    stamps: &'a [i64],
) -> Vec<Contender<'a>> {
    let one = |name, which: i32| {
        contender(name, move || {
            let (target, source) = (frame(0), frame(depth));
            library.lookup(which, &target, &source, stamps);
            per_lookup(LOOKUPS as u64, || {
                black_box(library.lookup(which, &target, &source, stamps));
            })
        })
    };
    let in_rust = contender("rust", move || {
        let (target, source) = ("frame_0", format!("frame_{depth}"));
        let mut path = rust.path(target, &source).expect("known frames");
        let mut all = || -> f64 {
            stamps
                .iter()
                .map(|stamp| match (ours, *stamp) {
                    (PATH, 0) => path.lookup_latest().map(|found| found.isometry),
                    (PATH, stamp) => path.lookup(Stamp::from_nanos(stamp)),
                    (_, 0) => rust
                        .lookup_latest(target, &source)
                        .map(|found| found.isometry),
                    (_, stamp) => rust.lookup(target, &source, Stamp::from_nanos(stamp)),
                })
                .map(|found| found.map_or(f64::NAN, |found| found.translation.x))
                .sum()
        };
        black_box(all());
        per_lookup(LOOKUPS as u64, || {
            black_box(all());
        })
    });
    vec![one("asof", ours), one("tf2", TF2), in_rust]
}
