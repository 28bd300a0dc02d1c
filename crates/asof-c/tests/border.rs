//! Every function of the C interface is called with NULL, a freed handle, absurd counts and text that is not UTF-8; and the
//! interface is the one that `interface.txt` has.

use std::ffi::{CStr, c_char};
use std::fmt::Write;
use std::mem::{align_of, offset_of, size_of};
use std::ptr::{null, null_mut, without_provenance, without_provenance_mut};

use asof_c::border::{
    AsofStatus, asof_last_error, asof_last_extrapolation, asof_text_free, asof_version,
};
use asof_c::tf::lookup::*;
use asof_c::tf::path::*;
use asof_c::tf::tree::*;
use asof_c::tf::wait::*;
use asof_c::tf::*;

/// What is not a text.
const NOT_UTF8: *const c_char = c"\xff\xfe".as_ptr();
/// What asof.hpp makes of a text with a NUL inside.
const CUT: *const c_char = without_provenance(1);
const NAME: *const c_char = c"odom".as_ptr();
const CHILD: *const c_char = c"base_link".as_ptr();

fn message() -> String {
    // SAFETY: it is valid until the next call.
    let text = unsafe { CStr::from_ptr(asof_last_error()) };
    text.to_str().expect("messages are UTF-8").to_owned()
}

#[track_caller]
fn refused(status: AsofStatus) {
    assert_eq!(status, AsofStatus::InvalidArgument, "{}", message());
    assert!(!message().is_empty());
}

fn new_buffer() -> *mut AsofTf {
    let mut tf = null_mut();
    // SAFETY: the place is valid.
    assert_eq!(unsafe { asof_tf_new(null(), &raw mut tf) }, AsofStatus::Ok);
    tf
}

/// NULL, and what stays in the place of a handle that was freed.
fn bad_handles() -> [*mut AsofTf; 2] {
    let mut freed = new_buffer();
    // SAFETY: nobody uses it; the second time does nothing.
    unsafe {
        asof_tf_free(&raw mut freed);
        assert!(!freed.is_null());
        asof_tf_free(&raw mut freed);
        asof_tf_free(null_mut());
    }
    [null_mut(), freed]
}

static POSE: AsofTransform = AsofTransform::IDENTITY;

fn update(parent: *const c_char, child: *const c_char) -> AsofTfUpdate {
    AsofTfUpdate {
        parent,
        child,
        stamp: 1,
        transform: POSE,
        is_static: false,
    }
}

unsafe extern "C" fn nothing(
    _: *mut std::ffi::c_void,
    _: AsofStatus,
    _: *const AsofTransform,
    _: *const c_char,
) {
}

/// Calls every function that takes a buffer and names, and hands each status over.
///
/// # Safety
/// The handle is good, NULL or freed; the texts are NULL or NUL-terminated.
unsafe fn with_names(
    tf: *const AsofTf,
    name: *const c_char,
    other: *const c_char,
    mut check: impl FnMut(AsofStatus),
) {
    let (mut found, mut stamp, mut frame) = (POSE, 0, 0);
    let (mut twist, mut path, mut wait) = (
        AsofTwist {
            linear: [0.0; 3],
            angular: [0.0; 3],
            start: 0,
            end: 0,
        },
        null_mut(),
        null_mut(),
    );
    let (pose, out) = (&raw const POSE, &raw mut found);
    let changed = update(name, other);
    // SAFETY: upheld by the caller; the places are valid.
    unsafe {
        check(asof_tf_set(tf, name, other, 1, pose));
        check(asof_tf_set_static(tf, name, other, pose));
        check(asof_tf_set_from(tf, &raw const changed, NAME));
        check(asof_tf_set_many(tf, &raw const changed, 1, null_mut()));
        check(asof_tf_reparent(tf, name, other, 1, pose));
        check(asof_tf_remove(tf, other, null_mut()));
        check(asof_tf_lookup(tf, name, other, 1, out));
        check(asof_tf_lookup_latest(
            tf,
            name,
            other,
            out,
            null_mut(),
            null_mut(),
        ));
        check(asof_tf_lookup_extrapolated(tf, name, other, 1, 1, out));
        check(asof_tf_lookup_full(tf, name, 1, other, 1, NAME, out));
        check(asof_tf_can_transform(tf, name, other, 1));
        check(asof_tf_latest_common_time(
            tf,
            name,
            other,
            &raw mut stamp,
            null_mut(),
        ));
        check(asof_tf_lookup_twist(tf, name, other, 1, 1, &raw mut twist));
        check(asof_tf_path_new(tf, name, other, &raw mut path));
        check(asof_tf_wait(tf, name, other, 1, 0, out));
        check(asof_tf_wait_latest(
            tf,
            name,
            other,
            0,
            out,
            null_mut(),
            null_mut(),
        ));
        check(asof_tf_on_transform(
            tf,
            name,
            other,
            1,
            0,
            Some(nothing),
            null_mut(),
            &raw mut wait,
        ));
        check(asof_tf_wait_new(tf, name, other, 1, 0, &raw mut wait));
        check(asof_tf_frame(tf, other, &raw mut frame));
        check(asof_tf_find_frame(tf, other, &raw mut frame));
    }
}

#[test]
fn null_and_freed_handles_are_refused() {
    for tf in bad_handles() {
        let (mut frame, mut count, mut text) = (1, 0, null_mut());
        let mut stats = AsofTfStats::default();
        let mut edge = AsofTfEdge {
            parent: 0,
            samples: 0,
            oldest: 0,
            newest: 0,
            is_static: false,
        };
        // SAFETY: the handles are NULL or freed, and everything else is valid.
        unsafe {
            with_names(tf, NAME, CHILD, refused);
            refused(asof_tf_clear(tf));
            refused(asof_tf_remove_older(tf, 0, null_mut()));
            refused(asof_tf_stats(tf, &raw mut stats));
            refused(asof_tf_lookup_frames(tf, 1 << 32, 1 << 32, 0, null_mut()));
            refused(asof_tf_text(tf, 0, &raw mut text));
            refused(asof_tf_frame_name(tf, 1 << 32, &raw mut text));
            refused(asof_tf_frames(tf, &raw mut frame, 1, &raw mut count));
            refused(asof_tf_parent(tf, 1 << 32, null(), &raw mut frame));
            refused(asof_tf_edge(tf, 1 << 32, &raw mut edge, null_mut()));
        }
    }
    let mark = bad_handles()[1].addr();
    for bad in [0, mark] {
        let (path, wait) = (
            without_provenance_mut::<AsofTfPath>(bad),
            without_provenance_mut::<AsofTfWait>(bad),
        );
        let (mut found, mut descriptor, stamp) = (POSE, 0, 0);
        let (mut small, mut large) = ([0.0_f32; 3], [0.0; 3]);
        // SAFETY: as above.
        unsafe {
            let (at, out) = (&raw const stamp, &raw mut found);
            refused(asof_tf_path_lookup(path, 0, out));
            refused(asof_tf_path_lookup_latest(
                path,
                out,
                null_mut(),
                null_mut(),
            ));
            refused(asof_tf_path_lookup_many(path, at, 1, out, null_mut()));
            refused(asof_tf_path_transform_points(
                path,
                at,
                1,
                large.as_mut_ptr(),
                null_mut(),
            ));
            refused(asof_tf_path_transform_points_f32(
                path,
                at,
                1,
                small.as_mut_ptr(),
                null_mut(),
            ));
            refused(asof_tf_wait_descriptor(wait, &raw mut descriptor));
            refused(asof_tf_wait_result(wait, out));
            let (mut path, mut wait) = (path, wait);
            asof_tf_path_free(&raw mut path);
            asof_tf_wait_free(&raw mut wait);
        }
    }
    // SAFETY: NULL is fine.
    unsafe {
        asof_tf_path_free(null_mut());
        asof_tf_wait_free(null_mut());
        asof_text_free(null_mut());
        let mut none = null_mut();
        asof_text_free(&raw mut none);
    }
}

#[test]
fn names_that_are_null_cut_or_not_utf8_are_refused() {
    let mut tf = new_buffer();
    for (bad, why) in [
        (null(), "is NULL"),
        (CUT, "has a NUL inside"),
        (NOT_UTF8, "is not UTF-8"),
    ] {
        // SAFETY: the handle is good, and the texts are NULL or end.
        unsafe {
            with_names(tf, NAME, bad, refused);
            let changed = update(NAME, CHILD);
            refused(asof_tf_set_from(tf, &raw const changed, bad));
            let mut found = POSE;
            refused(asof_tf_lookup_full(
                tf,
                NAME,
                1,
                NAME,
                1,
                bad,
                &raw mut found,
            ));
        }
        assert!(message().contains(why), "{}", message());
    }
    // SAFETY: nobody uses it.
    unsafe { asof_tf_free(&raw mut tf) };
}

#[test]
fn counts_that_no_array_has_are_refused() {
    let mut tf = new_buffer();
    let (mut path, stamp, mut pose, mut failed) = (null_mut(), 1, POSE, 0);
    let mut frame = 0;
    let one = update(NAME, CHILD);
    // SAFETY: the handles are good; arrays that are shorter than their counts are never read, which is the point.
    unsafe {
        assert_eq!(
            asof_tf_set(tf, NAME, CHILD, 1, &raw const POSE),
            AsofStatus::Ok
        );
        assert_eq!(
            asof_tf_path_new(tf, NAME, CHILD, &raw mut path),
            AsofStatus::Ok
        );
        let too_many = isize::MAX as usize / 8 + 1;
        for count in [usize::MAX, usize::MAX / 2 + 1, too_many, 1 << 56] {
            refused(asof_tf_set_many(tf, &raw const one, count, &raw mut failed));
            refused(asof_tf_frames(tf, &raw mut frame, count, &raw mut failed));
            let (at, out, lost) = (&raw const stamp, &raw mut pose, &raw mut failed);
            refused(asof_tf_path_lookup_many(path, at, count, out, lost));
            let point = pose.translation.as_mut_ptr();
            refused(asof_tf_path_transform_points(path, at, count, point, lost));
            refused(asof_tf_path_transform_points_f32(
                path,
                at,
                count,
                point.cast(),
                lost,
            ));
        }
        // NULL and misaligned arrays; none is needed for no values.
        let (at, out) = (&raw const stamp, &raw mut pose);
        refused(asof_tf_set_many(tf, null(), 1, null_mut()));
        refused(asof_tf_frames(tf, null_mut(), 1, &raw mut failed));
        refused(asof_tf_path_lookup_many(path, null(), 1, out, null_mut()));
        refused(asof_tf_path_lookup_many(
            path,
            at,
            1,
            null_mut(),
            null_mut(),
        ));
        let odd = without_provenance::<i64>(9);
        refused(asof_tf_path_lookup_many(path, odd, 1, out, null_mut()));
        refused(asof_tf_path_transform_points(
            path,
            at,
            1,
            null_mut(),
            null_mut(),
        ));
        refused(asof_tf_path_transform_points_f32(
            path,
            at,
            1,
            null_mut(),
            null_mut(),
        ));
        for status in [
            asof_tf_set_many(tf, null(), 0, null_mut()),
            asof_tf_path_lookup_many(path, null(), 0, null_mut(), null_mut()),
            asof_tf_frames(tf, null_mut(), 0, &raw mut failed),
        ] {
            assert_eq!(status, AsofStatus::Ok);
        }
        assert_eq!(failed, 2);
        asof_tf_path_free(&raw mut path);
        asof_tf_free(&raw mut tf);
    }
}

#[test]
fn places_poses_and_values_outside_of_what_they_may_be_are_refused() {
    let mut tf = new_buffer();
    let (twist, mut path, mut wait) = (null_mut(), null_mut(), null_mut());
    let mut text = null_mut();
    let bad = AsofTransform {
        rotation: [f64::NAN; 4],
        translation: [f64::INFINITY; 3],
    };
    // SAFETY: the handle is good, and the places are NULL or valid.
    unsafe {
        refused(asof_tf_new(null(), null_mut()));
        refused(asof_tf_set(tf, NAME, CHILD, 1, null()));
        refused(asof_tf_set(tf, NAME, CHILD, 1, &raw const bad));
        refused(asof_tf_set_static(tf, NAME, CHILD, null()));
        refused(asof_tf_set_from(tf, null(), NAME));
        refused(asof_tf_reparent(tf, NAME, CHILD, 1, null()));
        assert_eq!(
            asof_tf_set(tf, NAME, CHILD, 1, &raw const POSE),
            AsofStatus::Ok
        );
        refused(asof_tf_lookup(tf, NAME, CHILD, 1, null_mut()));
        refused(asof_tf_lookup_latest(
            tf,
            NAME,
            CHILD,
            null_mut(),
            null_mut(),
            null_mut(),
        ));
        refused(asof_tf_lookup_full(tf, NAME, 1, CHILD, 1, NAME, null_mut()));
        refused(asof_tf_lookup_frames(tf, 0, 0, 1, null_mut()));
        refused(asof_tf_lookup_frames(tf, u64::MAX, u64::MAX, 1, null_mut()));
        refused(asof_tf_lookup_extrapolated(
            tf,
            NAME,
            CHILD,
            1,
            -1,
            null_mut(),
        ));
        refused(asof_tf_lookup_twist(tf, NAME, CHILD, 1, -1, twist));
        refused(asof_tf_lookup_twist(tf, NAME, CHILD, 1, 1, twist));
        refused(asof_tf_latest_common_time(
            tf,
            NAME,
            CHILD,
            null_mut(),
            null_mut(),
        ));
        refused(asof_tf_stats(tf, null_mut()));
        refused(asof_tf_wait(tf, NAME, CHILD, 1, 0, null_mut()));
        refused(asof_tf_wait_latest(
            tf,
            NAME,
            CHILD,
            0,
            null_mut(),
            null_mut(),
            null_mut(),
        ));
        // Nothing is waited for that nobody would get.
        refused(asof_tf_wait(tf, NAME, CHILD, 9, -1, null_mut()));
        let (none, stamp, is_static) = (c"moon".as_ptr(), null_mut(), null_mut());
        refused(asof_tf_wait_latest(
            tf,
            NAME,
            none,
            -1,
            null_mut(),
            stamp,
            is_static,
        ));
        refused(asof_tf_wait_new(tf, NAME, CHILD, 1, 0, null_mut()));
        refused(asof_tf_on_transform(
            tf,
            NAME,
            CHILD,
            1,
            0,
            None,
            null_mut(),
            &raw mut wait,
        ));
        refused(asof_tf_path_new(tf, NAME, CHILD, null_mut()));
        refused(asof_tf_frame(tf, NAME, null_mut()));
        refused(asof_tf_find_frame(tf, NAME, null_mut()));
        refused(asof_tf_frame_name(tf, 0, null_mut()));
        refused(asof_tf_frames(tf, null_mut(), 0, null_mut()));
        refused(asof_tf_parent(tf, 0, null(), null_mut()));
        refused(asof_tf_edge(tf, 0, null_mut(), null_mut()));
        for format in [-1, 4, i32::MAX, i32::MIN] {
            refused(asof_tf_text(tf, format, &raw mut text));
        }
        refused(asof_tf_text(tf, 0, null_mut()));
        assert_eq!(
            asof_tf_path_new(tf, NAME, CHILD, &raw mut path),
            AsofStatus::Ok
        );
        refused(asof_tf_path_lookup(path, 1, null_mut()));
        refused(asof_tf_path_lookup_latest(
            path,
            null_mut(),
            null_mut(),
            null_mut(),
        ));
        asof_tf_path_free(&raw mut path);
        // A callback that was started ends with its wait.
        assert_eq!(
            asof_tf_on_transform(
                tf,
                NAME,
                CHILD,
                9,
                -1,
                Some(nothing),
                null_mut(),
                &raw mut wait
            ),
            AsofStatus::Ok
        );
        refused(asof_tf_wait_descriptor(wait, null_mut()));
        assert_eq!(asof_tf_wait_result(wait, null_mut()), AsofStatus::Pending);
        asof_tf_wait_free(&raw mut wait);
        asof_tf_free(&raw mut tf);
    }
}

#[test]
fn windows_and_synchronizers_refuse_what_is_not_one() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use asof_c::window::*;
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn release(_: *mut std::ffi::c_void) {
        RELEASED.fetch_add(1, Ordering::Relaxed);
    }
    unsafe extern "C" fn set(_: *mut std::ffi::c_void, _: *const AsofEntry, _: usize) {}
    let mark = bad_handles()[1].addr();
    let (mut entry, mut count, mut pose) = (
        AsofEntry {
            stamp: 0,
            value: null_mut(),
            hold: null(),
        },
        0,
        POSE,
    );
    let bounds = AsofWindowBounds {
        count: 0,
        age: 0,
        restart_after: 0,
    };
    let (at, out) = (&raw mut entry, &raw mut pose);
    let (mut window, mut sync) = (null_mut(), null_mut());
    let (mut counts, mut told) = (AsofWindowStats::default(), AsofSynchronizerStats::default());
    // SAFETY: handles are good, NULL or freed, and places are valid or NULL.
    unsafe {
        for bad in [0, mark] {
            let mut none = without_provenance_mut::<AsofWindow>(bad);
            refused(asof_window_insert(none, 0, null_mut(), Some(release)));
            refused(asof_window_insert_pose(none, 0, out));
            refused(asof_window_nearest(none, 0, at));
            refused(asof_window_before(none, 0, at));
            refused(asof_window_after(none, 0, at));
            refused(asof_window_interval(none, 0, 1, at, 1, &raw mut count));
            refused(asof_window_interpolate(none, 0, out));
            refused(asof_window_clear(none));
            refused(asof_window_stats(none, &raw mut counts));
            asof_window_free(&raw mut none);
            let mut none = without_provenance_mut::<AsofSynchronizer>(bad);
            refused(asof_synchronizer_add(none, 0, 0, null_mut(), Some(release)));
            refused(asof_synchronizer_clear(none));
            refused(asof_synchronizer_stats(none, &raw mut told));
            asof_synchronizer_free(&raw mut none);
        }
        // What a call refuses is released too.
        assert_eq!(RELEASED.load(Ordering::Relaxed), 4);
        refused(asof_window_new(null(), &raw mut window));
        refused(asof_window_new(&raw const bounds, &raw mut window));
        let bounds = AsofWindowBounds { count: 2, ..bounds };
        refused(asof_window_new(&raw const bounds, null_mut()));
        let status = asof_window_new(&raw const bounds, &raw mut window);
        assert_eq!(status, AsofStatus::Ok);
        refused(asof_window_insert_pose(window, 0, null()));
        let status = asof_window_insert(window, 1, null_mut(), Some(release));
        assert_eq!(status, AsofStatus::Ok);
        refused(asof_window_nearest(window, 0, null_mut()));
        refused(asof_window_interpolate(window, 1, out));
        for room in [usize::MAX, isize::MAX as usize / 8] {
            refused(asof_window_interval(window, 0, 1, at, room, &raw mut count));
        }
        refused(asof_window_interval(window, 0, 1, at, 1, null_mut()));
        refused(asof_window_stats(window, null_mut()));
        let status = asof_window_nearest(window, 0, at);
        assert_eq!(status, AsofStatus::Ok);
        asof_window_free(&raw mut window);
        assert_eq!(RELEASED.load(Ordering::Relaxed), 4);
        asof_entry_release(at);
        asof_entry_release(at);
        asof_entry_release(null_mut());
        assert_eq!(RELEASED.load(Ordering::Relaxed), 5);
        for topics in [0, 1025, usize::MAX] {
            let place = &raw mut sync;
            refused(asof_synchronizer_new(
                topics,
                10,
                0,
                Some(set),
                null_mut(),
                place,
            ));
            refused(asof_synchronizer_new(
                2,
                if topics == 1025 { 0 } else { usize::MAX },
                0,
                Some(set),
                null_mut(),
                place,
            ));
        }
        refused(asof_synchronizer_new(
            2,
            10,
            0,
            None,
            null_mut(),
            &raw mut sync,
        ));
        refused(asof_synchronizer_new(
            2,
            10,
            0,
            Some(set),
            null_mut(),
            null_mut(),
        ));
        let status = asof_synchronizer_new(2, 10, 0, Some(set), null_mut(), &raw mut sync);
        assert_eq!(status, AsofStatus::Ok);
        refused(asof_synchronizer_stats(sync, null_mut()));
        refused(asof_synchronizer_add(sync, 2, 0, null_mut(), Some(release)));
        assert_eq!(RELEASED.load(Ordering::Relaxed), 6);
        asof_synchronizer_free(&raw mut sync);
    }
}

#[test]
fn windows_and_synchronizers_count_what_they_do_not_keep() {
    use asof_c::window::*;
    unsafe extern "C" fn set(_: *mut std::ffi::c_void, _: *const AsofEntry, _: usize) {}
    let bounds = AsofWindowBounds {
        count: 2,
        age: 0,
        restart_after: 0,
    };
    let (mut window, mut sync) = (null_mut(), null_mut());
    let (mut counts, mut told) = (AsofWindowStats::default(), AsofSynchronizerStats::default());
    let done = |status| assert_eq!(status, AsofStatus::Ok, "{}", message());
    // SAFETY: the handles and the places are good, and the values are NULL.
    unsafe {
        done(asof_window_new(&raw const bounds, &raw mut window));
        for stamp in [10, 30, 20] {
            done(asof_window_insert(window, stamp, null_mut(), None));
        }
        let status = asof_window_insert(window, 5, null_mut(), None);
        assert_eq!(status, AsofStatus::TooOld);
        done(asof_window_stats(window, &raw mut counts));
        let found = (counts.messages, counts.inserted, counts.late);
        assert_eq!(found, (2, 3, 1), "{counts:?}");
        assert_eq!((counts.evicted, counts.refused), (1, 1), "{counts:?}");
        asof_window_free(&raw mut window);

        done(asof_synchronizer_new(
            2,
            2,
            0,
            Some(set),
            null_mut(),
            &raw mut sync,
        ));
        for stamp in 1..=4 {
            done(asof_synchronizer_add(
                sync,
                0,
                stamp * 100,
                null_mut(),
                None,
            ));
            done(asof_synchronizer_add(
                sync,
                1,
                stamp * 100,
                null_mut(),
                None,
            ));
        }
        done(asof_synchronizer_stats(sync, &raw mut told));
        let sets = told.sets;
        assert!((3..=4).contains(&sets), "{told:?}");
        assert_eq!((told.waiting, told.sets_dropped, told.unmatched), (0, 0, 0));
        // A topic that falls silent: what does not fit into the queue, and what is cleared, is in no set.
        for stamp in 11..=20 {
            done(asof_synchronizer_add(
                sync,
                0,
                stamp * 100,
                null_mut(),
                None,
            ));
        }
        done(asof_synchronizer_clear(sync));
        done(asof_synchronizer_stats(sync, &raw mut told));
        let added = 8 + 10;
        assert_eq!(2 * told.sets + told.unmatched, added, "{told:?}");
        asof_synchronizer_free(&raw mut sync);
    }
}

/// What runs when a thread ends, after this crate's own place for the thread is gone.
struct Late;

impl Drop for Late {
    fn drop(&mut self) {
        let mut tf = null_mut::<AsofTf>();
        // SAFETY: the handle is NULL, and the text is valid until the next call.
        unsafe {
            assert_eq!(asof_tf_clear(tf), AsofStatus::InvalidArgument);
            asof_tf_free(&raw mut tf);
            assert!(!asof_last_error().is_null());
            let status = asof_last_extrapolation(null_mut(), null_mut());
            assert_eq!(status, AsofStatus::NoData);
        }
    }
}

#[test]
fn a_thread_that_ends_may_still_call() {
    thread_local!(static LATE: Late = const { Late });
    let thread = std::thread::spawn(|| {
        // Destroyed in the opposite order.
        LATE.with(|_| ());
        // SAFETY: NULL is refused.
        unsafe { refused(asof_tf_clear(null())) };
        message()
    });
    assert_eq!(thread.join().unwrap(), "the handle is NULL");
}

#[test]
fn an_extrapolation_says_what_the_edge_had() {
    let mut tf = new_buffer();
    let (mut found, mut oldest, mut newest) = (POSE, 0, 0);
    // SAFETY: the handle and the places are good, or NULL where that is fine.
    unsafe {
        for stamp in [5, 9] {
            let status = asof_tf_set(tf, NAME, CHILD, stamp, &raw const POSE);
            assert_eq!(status, AsofStatus::Ok);
        }
        let ends = |oldest, newest| asof_last_extrapolation(oldest, newest);
        for (stamp, status) in [
            (4, AsofStatus::ExtrapolationPast),
            (10, AsofStatus::ExtrapolationFuture),
        ] {
            let result = asof_tf_lookup(tf, NAME, CHILD, stamp, &raw mut found);
            assert_eq!(result, status);
            let why = message();
            assert_eq!(ends(null_mut(), null_mut()), AsofStatus::Ok);
            assert_eq!(ends(&raw mut oldest, &raw mut newest), AsofStatus::Ok);
            assert_eq!((oldest, newest, message()), (5, 9, why));
        }
        let result = asof_tf_lookup(tf, NAME, c"moon".as_ptr(), 5, &raw mut found);
        assert_eq!(result, AsofStatus::NotFound);
        assert_eq!(ends(&raw mut oldest, null_mut()), AsofStatus::NoData);
        asof_tf_free(&raw mut tf);
    }
}

#[test]
fn options_that_are_all_zero_bound_nothing_but_the_age() {
    let options = AsofTfOptions {
        window: 0,
        samples: 0,
        bytes: 0,
        frames: 0,
        last_wins: false,
    };
    let mut tf = null_mut();
    // SAFETY: the places are valid.
    unsafe {
        let status = asof_tf_new(&raw const options, &raw mut tf);
        assert_eq!(status, AsofStatus::Ok);
        let status = asof_tf_set(tf, NAME, CHILD, 1, &raw const POSE);
        assert_eq!(status, AsofStatus::Ok, "{}", message());
        asof_tf_free(&raw mut tf);
    }
}

#[test]
fn texts_come_out_and_are_freed() {
    let mut tf = new_buffer();
    let (mut text, mut frame) = (null_mut(), 0);
    // SAFETY: the handle and the places are good.
    unsafe {
        assert_eq!(asof_tf_frame(tf, NAME, &raw mut frame), AsofStatus::Ok);
        assert_eq!(asof_tf_frame_name(tf, frame, &raw mut text), AsofStatus::Ok);
        assert_eq!(CStr::from_ptr(text), c"odom");
        asof_text_free(&raw mut text);
        assert!(text.is_null());
        assert_eq!(
            CStr::from_ptr(asof_version()).to_str(),
            Ok(env!("CARGO_PKG_VERSION"))
        );
        asof_tf_free(&raw mut tf);
    }
}

/// The layout of a struct: its size, its alignment, and where its fields are.
macro_rules! layout {
    ($lines:ident, $type:ident { $($field:ident),* }) => {
        write!($lines, "{} {} {}:", stringify!($type), size_of::<$type>(), align_of::<$type>()).unwrap();
        $(write!($lines, " {}@{}", stringify!($field), offset_of!($type, $field)).unwrap();)*
        $lines.push('\n');
    };
}

#[cfg(feature = "recordings")]
#[test]
fn the_interface_changes_only_with_its_list() {
    let header = include_str!("../include/asof.h");
    let mut lines = String::new();
    layout!(
        lines,
        AsofTransform {
            rotation,
            translation
        }
    );
    layout!(
        lines,
        AsofTfOptions {
            window,
            samples,
            bytes,
            frames,
            last_wins
        }
    );
    layout!(
        lines,
        AsofTfUpdate {
            parent,
            child,
            stamp,
            transform,
            is_static
        }
    );
    layout!(
        lines,
        AsofTfStats {
            frames,
            removed,
            edges,
            samples,
            bytes,
            evicted,
            too_old
        }
    );
    layout!(
        lines,
        AsofTwist {
            linear,
            angular,
            start,
            end
        }
    );
    layout!(
        lines,
        AsofTfEdge {
            parent,
            samples,
            oldest,
            newest,
            is_static
        }
    );
    {
        use asof_c::window::*;
        layout!(lines, AsofEntry { stamp, value, hold });
        layout!(
            lines,
            AsofWindowBounds {
                count,
                age,
                restart_after
            }
        );
        layout!(
            lines,
            AsofWindowStats {
                messages,
                inserted,
                late,
                evicted,
                refused,
                restarts,
                future,
                zero,
                duplicates
            }
        );
        layout!(
            lines,
            AsofSynchronizerStats {
                sets,
                waiting,
                sets_dropped,
                unmatched
            }
        );
    }
    {
        use asof_c::recording::messages::AsofMessage;
        use asof_c::recording::stream::AsofJoinOptions;
        layout!(
            lines,
            AsofJoinOptions {
                pick,
                within,
                by_log_time,
                start,
                end
            }
        );
        layout!(
            lines,
            AsofMessage {
                topic,
                message_type,
                encoding,
                schema_encoding,
                schema,
                schema_size,
                log_time,
                publish_time,
                data,
                size,
                sequence
            }
        );
    }
    // Every declaration, and the value of every enum: all but comments. Where cbindgen breaks the line of a call says nothing.
    let mut open = 0;
    for line in header.lines().map(str::trim) {
        if !line.is_empty() && !line.starts_with("//") {
            open += line.matches('(').count() as i32 - line.matches(')').count() as i32;
            lines += line;
            lines += if open > 0 { " " } else { "\n" };
        }
    }
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/interface.txt");
    if std::env::var_os("ASOF_WRITE_INTERFACE").is_some() {
        std::fs::write(list, &lines).unwrap();
    }
    let before = std::fs::read_to_string(list).unwrap();
    assert_eq!(
        lines, before,
        "the C interface has changed: programs that were linked before may break. If something was only added, write the list \
         anew with ASOF_WRITE_INTERFACE=1; else the version's first number that is not zero goes up too"
    );
}
