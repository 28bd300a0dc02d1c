//! What the buffer promises, one fact each.

// Numbers that must come out as they went in are compared as they are.
#![allow(clippy::float_cmp)]

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use asof_core::{Stamp, TimeRange};
use asof_tf::{BufferOptions, Extrapolation, Limits, LookupError, TransformBuffer, UpdateError};
use nalgebra::{Isometry3, Point3, Quaternion, Translation3, UnitQuaternion, Vector3};

fn shift(x: f64) -> Isometry3<f64> {
    Isometry3::translation(x, 0.0, 0.0)
}

fn at(nanos: i64) -> Stamp {
    Stamp::from_nanos(nanos)
}

fn x(found: Result<Isometry3<f64>, LookupError>) -> f64 {
    found.expect("there is a transform").translation.x
}

/// odom -> base at 0, 10, 20 with x = 0, 1, 2; base -> lidar static with x = 5.
fn robot() -> TransformBuffer {
    let buffer = TransformBuffer::new();
    for step in 0..3 {
        buffer
            .update("odom", "base", at(step * 10), shift(step as f64))
            .expect("good");
    }
    buffer
        .update_static("base", "lidar", shift(5.0))
        .expect("good");
    buffer
}

#[test]
fn a_lookup_interpolates_and_goes_both_ways() {
    let buffer = robot();
    assert_eq!(x(buffer.lookup("odom", "lidar", at(5))), 5.5);
    assert_eq!(x(buffer.lookup("lidar", "odom", at(5))), -5.5);
}

#[test]
fn a_leading_slash_is_dropped_everywhere() {
    let buffer = robot();
    assert_eq!(x(buffer.lookup("/odom", "/base", at(10))), 1.0);
    buffer
        .update("/odom", "/base", at(30), shift(3.0))
        .expect("the same edge");
    assert_eq!(buffer.frames(), ["odom", "base", "lidar"]);
}

#[test]
fn a_single_sample_answers_at_its_own_time_only() {
    let buffer = TransformBuffer::new();
    buffer.update("a", "b", at(0), shift(1.0)).expect("good");
    assert_eq!(x(buffer.lookup("a", "b", at(0))), 1.0);
    assert_eq!(
        buffer.lookup("a", "b", at(1)).expect_err("later").kind(),
        "extrapolation_future"
    );
}

#[test]
fn extrapolation_says_which_edge_what_it_has_and_by_how_much_it_missed() {
    let error = robot()
        .lookup("odom", "lidar", at(1_000_000_020))
        .expect_err("too late");
    assert_eq!(error.missed_by(), Some(1_000_000_000));
    assert_eq!(
        error.to_string(),
        "edge 'odom' -> 'base' has no transform at 1.000000020, 1.000000000 s after its newest sample; \
         it has 0.000000000 to 0.000000020"
    );
}

#[test]
fn extrapolation_within_a_tolerance_holds_or_continues() {
    let buffer = robot();
    let ask = |t, policy| buffer.lookup_with("odom", "base", at(t), policy);
    assert_eq!(x(ask(25, Extrapolation::Hold(5))), 2.0);
    assert_eq!(x(ask(-5, Extrapolation::Hold(5))), 0.0);
    assert!((x(ask(25, Extrapolation::ConstantVelocity(5))) - 2.5).abs() < 1e-12);
    assert!((x(ask(-5, Extrapolation::ConstantVelocity(5))) + 0.5).abs() < 1e-12);
    assert!(ask(26, Extrapolation::Hold(5)).is_err());
    assert_eq!(x(ask(15, Extrapolation::Hold(5))), 1.5);
}

#[test]
fn equal_stamps_are_replaced_and_late_ones_put_in_their_place() {
    let buffer = robot();
    buffer
        .update("odom", "base", at(10), shift(7.0))
        .expect("replaces");
    buffer
        .update("odom", "base", at(15), shift(9.0))
        .expect("late");
    assert_eq!(x(buffer.lookup("odom", "base", at(10))), 7.0);
    assert_eq!(x(buffer.lookup("odom", "base", at(15))), 9.0);
    assert_eq!(buffer.stats().samples, 4);
}

#[test]
fn what_is_older_than_the_window_is_refused_and_counted() {
    let buffer =
        TransformBuffer::with_options(BufferOptions::default().window(Duration::from_nanos(15)));
    for t in [0, 10, 20, 30] {
        buffer.update("a", "b", at(t), shift(0.0)).expect("good");
    }
    assert_eq!(buffer.stats().evicted, 2);
    let error = buffer
        .update("a", "b", at(14), shift(0.0))
        .expect_err("too old");
    assert!(
        matches!(error, UpdateError::TooOld { stamp, newest, .. } if (stamp, newest) == (at(14), at(30)))
    );
    assert_eq!(buffer.stats().too_old, 1);
}

#[test]
fn a_jump_in_time_leaves_nothing_stale() {
    let buffer = TransformBuffer::new();
    for t in 0..100 {
        buffer.update("a", "b", at(t), shift(0.0)).expect("good");
    }
    buffer
        .update("a", "b", at(1_000_000_000_000), shift(1.0))
        .expect("good");
    assert_eq!(buffer.stats().samples, 1);
}

#[test]
fn a_flood_whose_time_does_not_advance_stays_one_sample() {
    let buffer = TransformBuffer::new();
    for n in 0..10_000 {
        buffer
            .update("a", "b", at(7), shift(f64::from(n)))
            .expect("good");
    }
    assert_eq!(buffer.stats().samples, 1);
}

#[test]
fn a_budget_in_bytes_bounds_all_edges_together() {
    let budget = 64 * 1024;
    let options = BufferOptions {
        bytes: Some(budget),
        ..BufferOptions::unbounded()
    };
    let buffer = TransformBuffer::with_options(options);
    for t in 0..20_000 {
        buffer.update("a", "b", at(t), shift(0.0)).expect("good");
        buffer.update("a", "c", at(t), shift(0.0)).expect("good");
    }
    let stats = buffer.stats();
    // Each edge has 8 KiB of its own, whatever the budget.
    assert!(stats.bytes <= budget + 2 * 8192, "{stats:?}");
    assert!(stats.samples > 500 && stats.evicted > 30_000, "{stats:?}");
    assert!(buffer.lookup("b", "c", at(19_999)).is_ok());
}

fn with_budget(bytes: u64) -> TransformBuffer {
    TransformBuffer::with_options(BufferOptions {
        bytes: Some(bytes),
        ..BufferOptions::unbounded()
    })
}

#[test]
fn a_spent_budget_takes_the_oldest_samples_of_all_edges_first() {
    let buffer = with_budget(64 * 4096);
    // An edge that is written no more, and has most of the budget.
    for t in 0..3_000 {
        buffer.update("a", "old", at(t), shift(0.0)).expect("good");
    }
    for t in 10_000..12_000 {
        buffer.update("a", "new", at(t), shift(0.0)).expect("good");
    }
    let samples = |child: &str| {
        let edges = buffer.edges();
        edges
            .iter()
            .find(|e| e.child == child)
            .expect("is there")
            .samples
    };
    assert_eq!(
        samples("new"),
        2_000,
        "nothing newer is given up for what is older"
    );
    assert!(
        samples("old") >= 64 && samples("old") < 2_200,
        "{}",
        samples("old")
    );
    assert!(buffer.stats().bytes <= 64 * 4096, "{:?}", buffer.stats());
    // What is left of it are its newest.
    assert!(buffer.lookup("a", "old", at(2_999)).is_ok());
    assert!(buffer.lookup("a", "old", at(0)).is_err());
}

#[test]
fn edges_of_different_rates_keep_the_same_stretch_of_time_of_a_spent_budget() {
    let buffer = with_budget(100 * 4096);
    for t in 0..100_000 {
        buffer.update("a", "fast", at(t), shift(0.0)).expect("good");
        if t % 4 == 0 {
            buffer.update("a", "slow", at(t), shift(0.0)).expect("good");
        }
    }
    let edges = buffer.edges();
    let oldest = |child: &str| {
        let edge = edges.iter().find(|e| e.child == child).expect("is there");
        edge.range.expect("has samples").start.nanos()
    };
    let (fast, slow) = (oldest("fast"), oldest("slow"));
    // A chunk of the slow one is 256 of the fast one's samples.
    assert!(fast.abs_diff(slow) <= 2 * 256, "{fast} {slow}");
    assert!(buffer.stats().bytes <= 100 * 4096, "{:?}", buffer.stats());
}

#[test]
fn a_spent_budget_holds_with_many_edges_and_writers() {
    let buffer = with_budget(512 * 4096);
    let children: Vec<String> = (0..100).map(|i| format!("link_{i}")).collect();
    std::thread::scope(|scope| {
        for half in children.chunks(50) {
            let buffer = &buffer;
            scope.spawn(move || {
                for t in 0..2_000 {
                    for child in half {
                        buffer.update("a", child, at(t), shift(0.0)).expect("good");
                    }
                }
            });
        }
    });
    let stats = buffer.stats();
    assert!(stats.bytes <= (512 + 4) * 4096, "{stats:?}");
    assert!(stats.samples >= 100 * 64, "{stats:?}");
    for child in &children {
        assert!(buffer.lookup("a", child, at(1_999)).is_ok());
    }
}

#[test]
fn one_edge_can_have_limits_of_its_own() {
    let buffer = robot();
    buffer
        .set_limits(
            "base",
            Limits {
                window: None,
                count: Some(2),
            },
        )
        .expect("is an edge");
    buffer
        .update("odom", "base", at(30), shift(3.0))
        .expect("good");
    assert_eq!(buffer.stats().samples, 2);
}

#[test]
fn bad_updates_are_refused_by_name_and_leave_no_frame_behind() {
    let buffer = robot();
    let refused = |parent: &str, child: &str, isometry| {
        buffer
            .update(parent, child, at(0), isometry)
            .expect_err("is refused")
    };
    let text = |error: UpdateError| error.to_string();
    assert!(matches!(
        refused("new", "new", shift(0.0)),
        UpdateError::SelfEdge { .. }
    ));
    assert!(matches!(
        refused("map", "base", shift(0.0)),
        UpdateError::SecondParent { .. }
    ));
    assert!(text(refused("map", "base", shift(0.0))).contains("child of 'odom'"));
    assert!(matches!(
        refused("lidar", "odom", shift(0.0)),
        UpdateError::Cycle { .. }
    ));
    assert!(matches!(
        refused("", "x", shift(0.0)),
        UpdateError::BadName { .. }
    ));
    assert!(matches!(
        refused("odom", "a\nb", shift(0.0)),
        UpdateError::BadName { .. }
    ));
    assert!(matches!(
        refused("base", "lidar", shift(0.0)),
        UpdateError::KindConflict {
            is_static: true,
            ..
        }
    ));
    let is_static = buffer
        .update_static("odom", "base", shift(0.0))
        .expect_err("is dynamic");
    assert!(matches!(
        is_static,
        UpdateError::KindConflict {
            is_static: false,
            ..
        }
    ));
    assert!(matches!(
        refused("odom", "base", shift(f64::NAN)),
        UpdateError::NotFinite { .. }
    ));
    let stretched = Isometry3::from_parts(
        Translation3::identity(),
        UnitQuaternion::new_unchecked(Quaternion::new(1.1, 0.0, 0.0, 0.0)),
    );
    let error = refused("odom", "base", stretched);
    assert!(text(error).contains("'odom' -> 'base'"));
    assert_eq!(buffer.frames(), ["odom", "base", "lidar"]);
}

#[test]
fn a_nearly_unit_quaternion_is_normalized() {
    let buffer = TransformBuffer::new();
    let nearly = Isometry3::from_parts(
        Translation3::identity(),
        UnitQuaternion::new_unchecked(Quaternion::new(1.001, 0.0, 0.0, 0.0)),
    );
    buffer.update("a", "b", at(0), nearly).expect("near enough");
    assert_eq!(
        buffer.lookup("a", "b", at(0)).expect("there").rotation.w,
        1.0
    );
}

#[test]
fn frames_are_bounded_in_number() {
    let buffer = TransformBuffer::with_options(BufferOptions {
        max_frames: 3,
        ..BufferOptions::default()
    });
    buffer.update_static("a", "b", shift(0.0)).expect("good");
    buffer.update_static("a", "c", shift(0.0)).expect("good");
    let error = buffer
        .update_static("a", "d", shift(0.0))
        .expect_err("one too many");
    assert!(matches!(error, UpdateError::TooManyFrames { limit: 3, .. }));
}

#[test]
fn unknown_frames_and_separate_trees_are_told_apart() {
    let buffer = robot();
    buffer
        .update_static("island", "palm", shift(0.0))
        .expect("good");
    assert_eq!(
        buffer
            .lookup("odom", "nowhere", at(0))
            .expect_err("unknown")
            .kind(),
        "unknown_frame"
    );
    assert_eq!(
        buffer
            .lookup("odom", "palm", at(0))
            .expect_err("apart")
            .kind(),
        "disconnected"
    );
    assert_eq!(
        buffer
            .can_transform("odom", "lidar", at(99))
            .expect_err("late")
            .kind(),
        "extrapolation_future"
    );
    assert!(buffer.can_transform("odom", "lidar", at(3)).is_ok());
    assert!(buffer.lookup("ghost", "ghost", at(0)).is_err());
    assert_eq!(
        buffer.lookup("odom", "odom", at(77)),
        Ok(Isometry3::identity())
    );
}

#[test]
fn latest_is_at_the_common_time_and_newest_is_per_edge() {
    let buffer = robot();
    buffer
        .update("lidar", "beam", at(10), shift(0.0))
        .expect("good");
    buffer
        .update("lidar", "beam", at(14), shift(8.0))
        .expect("good");
    let latest = buffer.lookup_latest("odom", "beam").expect("connected");
    assert_eq!(
        (latest.stamp, latest.isometry.translation.x),
        (Some(at(14)), 1.4 + 5.0 + 8.0)
    );
    let newest = buffer.lookup_newest("odom", "beam").expect("connected");
    assert_eq!(newest.stamps, Some(TimeRange::new(at(14), at(20))));
    assert_eq!(newest.isometry.translation.x, 2.0 + 5.0 + 8.0);
    assert_eq!(buffer.latest_common_time("odom", "beam"), Ok(Some(at(14))));
    assert_eq!(buffer.latest_common_time("base", "lidar"), Ok(None));
    assert_eq!(
        buffer.lookup_latest("base", "lidar").expect("static").stamp,
        None
    );
}

#[test]
fn time_travel_goes_through_the_fixed_frame() {
    let buffer = robot();
    // Where was the lidar of then, seen from the base of now?
    let found = buffer
        .lookup_full("base", at(20), "lidar", at(0), "odom")
        .expect("both times are there");
    assert_eq!(found.translation.x, 5.0 - 2.0);
}

#[test]
fn a_body_that_drives_along_x_has_its_velocity_in_x_however_it_is_turned() {
    let buffer = TransformBuffer::new();
    let second = 1_000_000_000;
    for step in 0..=10 {
        let pose = Isometry3::from_parts(
            Translation3::new(f64::from(step), 0.0, 0.0),
            UnitQuaternion::from_euler_angles(0.0, 0.0, std::f64::consts::FRAC_PI_2),
        );
        buffer
            .update("world", "body", at(i64::from(step) * second), pose)
            .expect("good");
    }
    let ask = |t| {
        buffer
            .lookup_twist("body", "world", at(t), Duration::from_secs(2))
            .expect("is there")
    };
    let twist = ask(5 * second);
    assert!((twist.linear - Vector3::x()).norm() < 1e-12 && twist.angular.norm() < 1e-12);
    assert_eq!(twist.over, TimeRange::new(at(4 * second), at(6 * second)));
    // At the ends the window is moved inside.
    assert_eq!(
        ask(10 * second).over,
        TimeRange::new(at(8 * second), at(10 * second))
    );
    assert_eq!(ask(0).over, TimeRange::new(at(0), at(2 * second)));
}

#[test]
fn a_spinning_body_turns_about_its_own_place() {
    let buffer = TransformBuffer::new();
    let tenth = 100_000_000;
    for step in 0..=20 {
        let pose = Isometry3::from_parts(
            Translation3::new(5.0, 0.0, 0.0),
            UnitQuaternion::from_euler_angles(0.0, 0.0, f64::from(step) * 0.1),
        );
        buffer
            .update("world", "body", at(i64::from(step) * tenth), pose)
            .expect("good");
    }
    let twist = buffer
        .lookup_twist("body", "world", at(10 * tenth), Duration::from_millis(200))
        .expect("is there");
    assert!(twist.linear.norm() < 1e-9, "{twist:?}");
    assert!((twist.angular - Vector3::z()).norm() < 1e-9, "{twist:?}");
    let rim = twist.at_offset(&Vector3::new(2.0, 0.0, 0.0));
    assert!((rim.linear - Vector3::new(0.0, 2.0, 0.0)).norm() < 1e-9);
}

#[test]
fn a_chain_lists_its_edges_from_source_to_target() {
    let buffer = robot();
    buffer
        .update_static("odom", "dock", shift(1.0))
        .expect("good");
    let chain = buffer.chain("dock", "lidar").expect("connected");
    let steps: Vec<_> = chain
        .iter()
        .map(|link| (&*link.parent, &*link.child, link.is_inverse))
        .collect();
    assert_eq!(
        steps,
        [
            ("base", "lidar", false),
            ("odom", "base", false),
            ("odom", "dock", true)
        ]
    );
    assert_eq!(chain[1].range, Some(TimeRange::new(at(0), at(20))));
    assert_eq!(buffer.parent("lidar"), Ok(Some(chain[0].parent.clone())));
    assert_eq!(buffer.parent("odom"), Ok(None));
}

#[test]
fn ids_ask_the_same_as_names_and_those_of_another_buffer_are_refused() {
    let buffer = robot();
    let (odom, base) = (
        buffer.find("odom").expect("known"),
        buffer.find("base").expect("known"),
    );
    assert_eq!(
        buffer.lookup(odom, base, at(15)),
        buffer.lookup("odom", "base", at(15))
    );
    buffer
        .update(odom, base, at(30), shift(3.0))
        .expect("the same edge");
    assert_eq!(
        robot().lookup(odom, base, at(15)),
        Err(LookupError::ForeignId)
    );
    assert_eq!(
        robot().update(odom, base, at(15), shift(0.0)),
        Err(UpdateError::ForeignId)
    );
}

#[test]
fn a_path_follows_changes_of_the_tree_and_of_static_edges() {
    let buffer = robot();
    buffer.frame("map").expect("a name");
    let mut path = buffer.path("map", "lidar").expect("known");
    assert_eq!(
        path.lookup(at(10)).expect_err("apart").kind(),
        "disconnected"
    );
    buffer
        .update_static("map", "odom", shift(100.0))
        .expect("good");
    assert_eq!(x(path.lookup(at(10))), 106.0);
    buffer
        .update_static("base", "lidar", shift(6.0))
        .expect("good");
    assert_eq!(x(path.lookup(at(10))), 107.0);
}

#[test]
fn many_lookups_tell_each_failure_apart() {
    let buffer = robot();
    let stamps = [at(0), at(5), at(99), at(20)];
    let many = buffer.lookup_many("odom", "lidar", &stamps).expect("known");
    assert_eq!(many.failures.len(), 1);
    assert_eq!(many.failures[0].0, 2);
    let found: Vec<_> = [0, 1, 3]
        .iter()
        .map(|i| many.isometries[*i].translation.x)
        .collect();
    assert_eq!(found, [5.0, 5.5, 7.0]);
    assert!(many.get(2).is_some_and(|answer| answer.is_err()));
}

#[test]
fn points_are_taken_over_each_at_its_own_time() {
    let buffer = robot();
    let mut points = [
        (at(0), Point3::origin()),
        (at(10), Point3::origin()),
        (at(99), Point3::origin()),
    ];
    let failures = buffer
        .transform_points("odom", "lidar", &mut points)
        .expect("known");
    assert_eq!((points[0].1.x, points[1].1.x), (5.0, 6.0));
    assert_eq!(failures[0].0, 2);
    assert!(points[2].1.x.is_nan());
}

#[test]
fn reparenting_keeps_the_old_samples_valid_for_their_time() {
    let buffer = robot();
    buffer
        .update_static("odom", "arm", shift(50.0))
        .expect("good");
    buffer
        .update("base", "box", at(0), shift(1.0))
        .expect("good");
    buffer
        .update("base", "box", at(10), shift(1.0))
        .expect("good");
    buffer
        .reparent("arm", "box", at(14), shift(2.0))
        .expect("explicit");
    buffer
        .reparent("arm", "box", at(20), shift(2.0))
        .expect("the same parent by now");
    assert_eq!(x(buffer.lookup("odom", "box", at(5))), 0.5 + 1.0);
    assert_eq!(x(buffer.lookup("odom", "box", at(17))), 52.0);
    // Between the parents the older sample counts, as in tf2.
    assert_eq!(x(buffer.lookup("odom", "box", at(12))), 1.2 + 1.0);
    let mut path = buffer.path("odom", "box").expect("known");
    assert_eq!(x(path.lookup(at(5))), 1.5);
    assert_eq!(
        path.lookup_many(&[at(5), at(17)]).isometries[1]
            .translation
            .x,
        52.0
    );
    assert_eq!(buffer.parent("box").expect("known").as_deref(), Some("arm"));
}

#[test]
fn clearing_keeps_frames_and_static_edges() {
    let buffer = robot();
    buffer.clear();
    assert_eq!(
        buffer
            .lookup("odom", "base", at(10))
            .expect_err("empty")
            .kind(),
        "no_data"
    );
    assert_eq!(x(buffer.lookup("base", "lidar", at(10))), 5.0);
    buffer
        .update("odom", "base", at(3), shift(4.0))
        .expect("an earlier time is fine again");
    assert_eq!(x(buffer.lookup("odom", "base", at(3))), 4.0);
}

#[test]
fn stamps_at_the_ends_of_time_do_no_harm() {
    let buffer = TransformBuffer::with_options(BufferOptions::unbounded());
    for stamp in [Stamp::MIN, at(0), Stamp::MAX] {
        buffer.update("a", "b", stamp, shift(1.0)).expect("good");
        assert_eq!(x(buffer.lookup("a", "b", stamp)), 1.0);
    }
    assert_eq!(x(buffer.lookup("a", "b", at(5))), 1.0);
    let held = buffer.lookup_with(
        "a",
        "b",
        Stamp::MAX,
        Extrapolation::ConstantVelocity(u64::MAX),
    );
    assert_eq!(x(held), 1.0);
}

#[test]
fn zero_is_a_time_like_any_other() {
    let buffer = TransformBuffer::new();
    for t in [-10, 10, 20] {
        buffer
            .update("a", "b", at(t), shift(t as f64))
            .expect("good");
    }
    assert_eq!(x(buffer.lookup("a", "b", at(0))), 0.0);
    assert_eq!(x(buffer.lookup("a", "b", at(-5))), -5.0);
}

#[test]
fn a_clone_is_a_handle_to_the_same_buffer_for_any_thread() {
    fn for_any_thread<T: Clone + Send + Sync + 'static>(_: &T) {}
    let buffer = robot();
    for_any_thread(&buffer);
    let clone = buffer.clone();
    std::thread::spawn(move || clone.update("odom", "base", at(30), shift(3.0)))
        .join()
        .expect("no panic")
        .expect("good");
    assert_eq!(x(buffer.lookup("odom", "base", at(25))), 2.5);
}

#[test]
fn a_buffer_keeps_ten_seconds_unless_told_otherwise() {
    let second = 1_000_000_000;
    let samples = |options: BufferOptions| {
        let buffer = TransformBuffer::with_options(options);
        for t in 0..=60 {
            buffer
                .update("a", "b", at(t * second), shift(0.0))
                .expect("good");
        }
        buffer.stats().samples
    };
    assert_eq!(samples(BufferOptions::default()), 11);
    assert_eq!(
        samples(BufferOptions::default().window(Duration::from_mins(2))),
        61
    );
    assert_eq!(samples(BufferOptions::default().count(5)), 5);
    assert_eq!(samples(BufferOptions::unbounded()), 61);
}

#[test]
fn a_history_grows_without_spikes_and_by_less_than_seventy_bytes_a_sample() {
    let buffer = TransformBuffer::with_options(BufferOptions::unbounded());
    for t in 0..100_000_u64 {
        buffer
            .update("a", "b", at(t as i64), shift(0.0))
            .expect("good");
        if t % 500 == 0 {
            let bytes = buffer.stats().bytes;
            assert!(bytes <= 70 * t + 8192, "{bytes} bytes for {t} samples");
        }
    }
}

#[test]
fn a_time_that_is_always_just_gone_is_answered_beside_a_writer_that_never_rests() {
    let buffer = TransformBuffer::with_options(BufferOptions::default().count(64));
    buffer.update("a", "b", at(0), shift(0.0)).expect("good");
    let (is_over, written) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let t = written.fetch_add(1, Ordering::Relaxed) + 1;
                buffer.update("a", "b", at(t), shift(0.0)).expect("good");
            }
        });
        // Every one of these returns: with an answer, or with what there was.
        let mut asked = 0;
        while asked < 2_000 || written.load(Ordering::Relaxed) < 20_000 {
            let newest = buffer.lookup_newest("a", "b").expect("is there").stamps;
            let t = newest.map_or(0, |stamps| stamps.start.nanos() - 63);
            if let Err(error) = buffer.lookup("a", "b", at(t)) {
                let is_gone =
                    matches!(error, LookupError::Extrapolation { oldest, .. } if oldest > at(t));
                assert!(is_gone, "{error}");
            }
            asked += 1;
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
