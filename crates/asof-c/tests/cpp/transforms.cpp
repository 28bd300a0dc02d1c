// asof.hpp (but recordings) and asof/tf2.hpp: what they promise, and a stress of writers and readers. ci/hot/asof-cpp builds it plainly, with
// AddressSanitizer and with ThreadSanitizer.
#include "expect.hpp"

#include <asof/tf2.hpp>

#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#if defined(__linux__)
#include <poll.h>
#endif
#if __has_include(<Eigen/Geometry>)
#include <Eigen/Geometry>
#define HAS_EIGEN 1
#elif __has_include(<eigen3/Eigen/Geometry>)
#include <eigen3/Eigen/Geometry>
#define HAS_EIGEN 1
#endif

using namespace std::chrono_literals;
using asof::tf::Buffer;
using asof::tf::Transform;

namespace {

bool near(double a, double b) { return std::abs(a - b) < 1e-12; }

/// One metre a second, forward, for ten seconds; a lidar on it.
Buffer driving() {
  Buffer buffer;
  buffer.set_static("base_link", "lidar", Transform({0, 0, 0.3}));
  for (int second = 0; second <= 10; second++)
    buffer.set("odom", "base_link", std::chrono::seconds(second), Transform({double(second), 0, 0}));
  return buffer;
}

void lookups() {
  Buffer buffer = driving();
  EXPECT(near(buffer.lookup("odom", "lidar", 1500ms).translation[0], 1.5));
  EXPECT(near(buffer.lookup("odom", "lidar", 1500ms).translation[2], 0.3));
  EXPECT(near(buffer.lookup("base_link", 2s, "lidar", 1s, "odom").translation[0], -1));
  EXPECT(buffer.lookup_latest("odom", "lidar").stamp == asof::Stamp(10s));
  EXPECT(!buffer.lookup_latest("base_link", "lidar").stamp);
  EXPECT(near(buffer.lookup_extrapolated("odom", "base_link", 11s, 1s).translation[0], 11));
  EXPECT(near(buffer.lookup_twist("base_link", "odom", 5s, 100ms).linear[0], 1));
  EXPECT(buffer.latest_common_time("odom", "lidar") == asof::Stamp(10s));
  const asof::tf::Frame odom = buffer.frame("odom"), base = buffer.find("base_link");
  EXPECT(near(buffer.lookup(odom, base, 3s).translation[0], 3));
  EXPECT(buffer.name(base) == "base_link" && buffer.parent(base) == odom && buffer.parent(odom) == 0);
  EXPECT(buffer.find("nowhere") == 0 && buffer.frames().size() == 3);

  auto missing = buffer.try_lookup("odom", "lidar", 11s);
  EXPECT(!missing && missing.status() == ASOF_STATUS_EXTRAPOLATION_FUTURE);
  EXPECT(std::string(missing.error().what()).find("1.000000000 s after its newest sample") != std::string::npos);
  EXPECT(thrown([&] { missing.value(); }) == ASOF_STATUS_EXTRAPOLATION_FUTURE);
  EXPECT(thrown([&] { buffer.lookup("odom", "lidar", -1s); }) == ASOF_STATUS_EXTRAPOLATION_PAST);
  EXPECT(thrown([&] { buffer.lookup("odom", "camera", 1s); }) == ASOF_STATUS_NOT_FOUND);
  std::string why;
  EXPECT(!buffer.can_transform("odom", "camera", 1s, &why) && why.find("camera") != std::string::npos);
  buffer.set_static("moon", "rover", Transform());
  EXPECT(thrown([&] { buffer.lookup("odom", "rover", 1s); }) == ASOF_STATUS_DISCONNECTED);
  EXPECT(thrown([&] { buffer.set("map", "base_link", 1s, Transform()); }) == ASOF_STATUS_REFUSED);
  EXPECT(thrown([&] { buffer.set("odom", "base_link", 1s, Transform({0, 0, 0}, {0, 0, 0, 2})); }) ==
         ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(thrown([&] { buffer.set("odom", "odom", 1s, Transform()); }) == ASOF_STATUS_INVALID_ARGUMENT);
}

/// A text with a NUL inside is refused, not read as far as the NUL.
void cut_texts() {
  Buffer buffer = driving();
  const std::string cut("odom\0om", 7), base = "base_link";
  const auto is_refused = [](asof::Status status) {
    return status == ASOF_STATUS_INVALID_ARGUMENT && std::strstr(asof_last_error(), "NUL") != nullptr;
  };
  // Wherever it is, and whatever is around it.
  for (std::size_t size = 0; size < 40; size++)
    for (const char around : {'a', '\x80', '\xff', '\1'}) {
      std::string text(size, around);
      EXPECT(asof::detail::c_text(text) == text.c_str());
      for (std::size_t place = 0; place < size; place++) {
        text[place] = '\0';
        EXPECT(asof::detail::c_text(text) != text.c_str());
        text[place] = around;
      }
    }
  const Transform pose;
  EXPECT(is_refused(buffer.try_set(cut, base, 1s, pose)) && is_refused(buffer.try_set("odom", cut, 1s, pose)));
  EXPECT(is_refused(buffer.try_set_static(cut, base, pose)) && is_refused(buffer.try_reparent(cut, base, 1s, pose)));
  EXPECT(is_refused(buffer.try_set({"odom", base, pose, 11s}, cut)) && is_refused(buffer.try_set({cut, base, pose, 11s}, "me")));
  std::optional<asof::Error> why;
  EXPECT(buffer.set_many({{cut, base, pose, 11s}}, &why) == 0 && is_refused(why->status()));
  EXPECT(thrown([&] { buffer.lookup(cut, base, 1s); }) == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(is_refused(buffer.try_lookup(cut, base, 1s).status()) && is_refused(buffer.try_lookup(base, cut, 1s).status()));
  EXPECT(is_refused(buffer.try_lookup_latest(cut, base).status()));
  EXPECT(is_refused(buffer.try_lookup("odom", 1s, base, 1s, cut).status()));
  EXPECT(is_refused(buffer.try_lookup_extrapolated(cut, base, 1s, 1s).status()));
  EXPECT(is_refused(buffer.try_lookup_twist(base, cut, 1s, 1s).status()) && !buffer.can_transform(cut, base, 1s));
  EXPECT(is_refused(buffer.try_latest_common_time(cut, base).status()) && is_refused(buffer.try_path(cut, base).status()));
  EXPECT(is_refused(buffer.try_wait(cut, base, 1s, 0ns).status()) && is_refused(buffer.try_wait_latest(cut, base, 0ns).status()));
  EXPECT(is_refused(buffer.try_on_transform(cut, base, 1s, 0ns, [](auto) {}).status()));
  EXPECT(is_refused(buffer.try_wait_async(cut, base, 1s, 0ns).status()) && is_refused(buffer.try_remove(cut).status()));
  EXPECT(is_refused(buffer.try_frame(cut).status()) && buffer.find(cut) == 0 && buffer.frames().size() == 3);

  asof::tf2::BufferCore core;
  asof::tf2::TransformStamped message = {};
  message.header.frame_id = "odom";
  message.child_frame_id = base;
  message.transform.rotation.w = 1;
  EXPECT(core.setTransform(message, "me", true) && !core.setTransform(message, cut, true));
  for (int again = 0; again < 4; again++)
    try {
      core.lookupTransform(cut, base, asof::tf2::Time());
      EXPECT(false);
    } catch (const asof::tf2::InvalidArgumentException &) {
    }
  EXPECT(!core.canTransform(cut, base, asof::tf2::Time()) && !core._frameExists(cut));
  message.header.frame_id = cut;
  EXPECT(!core.setTransform(message, "me", true) && core.getAllFrameNames().size() == 2);
}

/// Every call that can fail has a form that does not throw.
void results() {
  Buffer buffer = driving();
  const asof::tf::Frame odom = buffer.find("odom");
  EXPECT(near(buffer.try_lookup("odom", "lidar", 1500ms)->translation[0], 1.5));
  EXPECT(buffer.try_lookup(odom, odom, 1s) && buffer.try_lookup(odom, 0, 1s).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(buffer.try_lookup_extrapolated("odom", "base_link", 12s, 1s).status() == ASOF_STATUS_EXTRAPOLATION_FUTURE);
  EXPECT(buffer.try_lookup_twist("base_link", "odom", 5s, -1ns).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(*buffer.try_latest_common_time("odom", "lidar") == asof::Stamp(10s));
  EXPECT(buffer.try_latest_common_time("odom", "moon").status() == ASOF_STATUS_NOT_FOUND);
  EXPECT(buffer.try_path("odom", "moon").status() == ASOF_STATUS_NOT_FOUND);
  auto path = buffer.try_path("odom", "lidar");
  EXPECT(path && path->try_lookup_latest()->stamp == asof::Stamp(10s) && !path->try_lookup(11s));
  const std::vector<std::int64_t> stamps = {1000000000, 99000000000};
  std::vector<Transform> found(2);
  std::vector<double> points(6, 1.0), odd(7, 1.0);
  EXPECT(*buffer.try_lookup_many("odom", "lidar", stamps, found) == 1 && near(found[0].translation[0], 1));
  EXPECT(buffer.try_lookup_many("odom", "moon", stamps, found).status() == ASOF_STATUS_NOT_FOUND);
  EXPECT(*buffer.try_transform_points("odom", "lidar", stamps, points) == 1 && near(points[0], 2));
  EXPECT(buffer.try_transform_points("odom", "lidar", stamps, odd).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(buffer.try_wait("odom", "lidar", 11s, 0ns).status() == ASOF_STATUS_TIMED_OUT);
  EXPECT(buffer.try_wait_latest("odom", "lidar", 0ns)->stamp == asof::Stamp(10s));
  EXPECT(buffer.try_on_transform("odom", "lidar", 1s, 0ns, [](auto) {})->try_descriptor().status() ==
         ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(buffer.try_frame("").status() == ASOF_STATUS_INVALID_ARGUMENT && buffer.try_frame("new"));
  EXPECT(buffer.try_name(0).status() == ASOF_STATUS_INVALID_ARGUMENT && *buffer.try_name(odom) == "odom");
  EXPECT(*buffer.try_parent(odom) == 0 && buffer.try_remove("moon").status() == ASOF_STATUS_NOT_FOUND);
  EXPECT(buffer.try_set_static("a", "a", Transform()) == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(buffer.try_reparent("lidar", "base_link", 11s, Transform()) == ASOF_STATUS_REFUSED);
  EXPECT(thrown([&] { buffer.set({"a", "", Transform(), std::nullopt}, "me"); }) == ASOF_STATUS_INVALID_ARGUMENT);
  static_assert(!std::is_constructible_v<asof::Stamp, double>, "seconds are no nanoseconds");

  // What is moved from says so, and what is moved to goes on.
  Buffer moved = std::move(buffer);
  EXPECT(!buffer.try_lookup("odom", "lidar", 1s) && moved.try_lookup("odom", "lidar", 1s));
  EXPECT(thrown([&] { buffer.stats(); }) == ASOF_STATUS_INVALID_ARGUMENT && thrown([&] { moved.stats(); }) == ASOF_STATUS_OK);
}

/// The ends of time, names and numbers.
void extremes() {
  Buffer buffer;
  const std::int64_t least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  for (const char *name : {"", "/", "\n", "\xff"})
    EXPECT(buffer.try_set("odom", name, 1, Transform()) == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(buffer.try_set("/odom", "/base_link", 1, Transform()) == ASOF_STATUS_OK && buffer.find("odom") == buffer.find("/odom"));
  for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
    EXPECT(buffer.try_set("odom", "base_link", 1, Transform({bad, 0, 0})) == ASOF_STATUS_INVALID_ARGUMENT);
    EXPECT(buffer.try_set("odom", "base_link", 1, Transform({0, 0, 0}, {0, 0, 0, bad})) == ASOF_STATUS_INVALID_ARGUMENT);
  }
  EXPECT(buffer.try_set("odom", "base_link", 1, Transform({0, 0, 0}, {0, 0, 0, 0})) == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(buffer.try_set_static("odom", "base_link", Transform()) == ASOF_STATUS_REFUSED);
  EXPECT(buffer.try_set_static("odom", "fixed", Transform()) == ASOF_STATUS_OK);
  EXPECT(buffer.try_set("odom", "fixed", 1, Transform()) == ASOF_STATUS_REFUSED);
  for (const std::int64_t stamp : {least, std::int64_t(0), most}) {
    Buffer ends;
    EXPECT(ends.try_set("a", "b", stamp, Transform()) == ASOF_STATUS_OK && ends.try_lookup("a", "b", stamp));
    EXPECT(ends.lookup_latest("a", "b").stamp == asof::Stamp(stamp) && !ends.try_lookup("a", "b", stamp == most ? least : most));
    ends.try_lookup_extrapolated("a", "b", stamp, asof::Nanoseconds(most));
    ends.try_lookup_twist("b", "a", stamp, asof::Nanoseconds(most));
    ends.try_wait("a", "b", stamp, asof::Nanoseconds(most));
    ends.try_set("a", "b", stamp == most ? least : most, Transform());
    ends.remove_older(stamp);
  }
  // Centuries in a buffer that keeps everything.
  AsofTfOptions all = Buffer::options();
  all.window = -1;
  all.frames = 0;
  Buffer wide(all);
  wide.set("a", "b", least / 2, Transform());
  wide.set("a", "b", most / 2, Transform({1, 0, 0}));
  EXPECT(std::abs(wide.lookup("a", "b", 0).translation[0] - 0.5) < 1e-9 && wide.stats().samples == 2);

  // What an edge had, when it had not enough.
  std::int64_t oldest = 0, newest = 0;
  EXPECT(wide.try_lookup("a", "c", 1).status() == ASOF_STATUS_NOT_FOUND);
  EXPECT(asof_last_extrapolation(&oldest, &newest) == ASOF_STATUS_NO_DATA);
  Buffer three;
  for (std::int64_t stamp : {5, 7, 9})
    three.set("a", "b", stamp, Transform());
  EXPECT(three.try_lookup("a", "b", 3).status() == ASOF_STATUS_EXTRAPOLATION_PAST);
  EXPECT(asof_last_extrapolation(&oldest, &newest) == ASOF_STATUS_OK && oldest == 5 && newest == 9);
  EXPECT(std::string(asof_last_error()).find("before its oldest") != std::string::npos);
}

void batches() {
  Buffer buffer = driving();
  const std::vector<std::int64_t> stamps = {1000000000, 2500000000, 99000000000, 3000000000};
  std::vector<Transform> found(4);
  EXPECT(buffer.lookup_many("odom", "lidar", stamps, found) == 1);
  EXPECT(near(found[1].translation[0], 2.5) && std::isnan(found[2].translation[0]) && near(found[3].translation[0], 3));
  std::vector<double> points(12, 1.0);
  EXPECT(buffer.transform_points("odom", "lidar", stamps, points) == 1);
  EXPECT(near(points[3], 3.5) && near(points[5], 1.3) && std::isnan(points[6]) && near(points[9], 4));
  std::vector<float> small(12, 1.0F);
  EXPECT(buffer.transform_points("odom", "lidar", stamps, small) == 1 && small[3] == 3.5F);
  std::vector<Transform> less(3);
  EXPECT(thrown([&] { buffer.lookup_many("odom", "lidar", stamps, less); }) == ASOF_STATUS_INVALID_ARGUMENT);
  auto path = buffer.path("odom", "lidar");
  EXPECT(near(path.lookup(4s).translation[0], 4) && path.lookup_latest().stamp == asof::Stamp(10s));
  // A path outlives its buffer's handle.
  buffer = Buffer();
  EXPECT(near(path.lookup(4s).translation[0], 4));

  std::optional<asof::Error> refused;
  const std::vector<asof::tf::Update> updates = {{"a", "b", Transform(), asof::Stamp(1)},
                                                 {"a", "a", Transform(), asof::Stamp(1)},
                                                 {"b", "c", Transform(), std::nullopt}};
  EXPECT(buffer.set_many(updates, &refused) == 2 && refused->status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(buffer.stats().edges == 2 && buffer.remove("b") == 2 && buffer.stats().frames == 1);
}

void texts() {
  Buffer buffer = driving();
  EXPECT(buffer.try_set({"odom", "base_link", Transform(), asof::Stamp(9s)}, "wheels") == ASOF_STATUS_OK);
  EXPECT(buffer.to_yaml().find("broadcaster: 'wheels'") != std::string::npos);
  EXPECT(buffer.to_dot().find("digraph") == 0 && buffer.to_mermaid().find("graph") == 0);
  EXPECT(buffer.to_tree().find("lidar") != std::string::npos);
  buffer.clear();
  EXPECT(thrown([&] { buffer.lookup("odom", "lidar", 1s); }) == ASOF_STATUS_NO_DATA);
  EXPECT(near(buffer.lookup("base_link", "lidar", 1s).translation[2], 0.3));
}

/// What Eigen's transforms have of what the conversions use.
struct Matrix {
  double m[4][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
  static Matrix Identity() { return Matrix(); }
  Matrix &matrix() { return *this; }
  const Matrix &matrix() const { return *this; }
  double &operator()(int row, int column) { return m[row][column]; }
  double operator()(int row, int column) const { return m[row][column]; }
};

void conversions() {
  // Turns about every axis by every angle, so that each of the four parts of a quaternion is the largest.
  for (int axis = 0; axis < 3; axis++)
    for (int step = -10; step <= 10; step++) {
      std::array<double, 4> q{};
      q[axis] = std::sin(step * 0.31);
      q[3] = std::cos(step * 0.31);
      const Transform pose({1, 2, 3}, q), other({-0.5, 0.25, 4}, {0.5, 0.5, 0.5, 0.5});
      const Transform back = Transform::from_eigen(pose.to_eigen<Matrix>());
      double cosine = 0;
      for (int part = 0; part < 4; part++)
        cosine += back.rotation[part] * pose.rotation[part];
      EXPECT(near(std::abs(cosine), 1) && near(back.translation[2], 3));
      const std::array<double, 3> point = {0.1, -0.7, 2};
      const auto direct = (pose * other) * point, in_turn = pose * (other * point);
      const auto there = pose.inverse() * (pose * point);
      for (int part = 0; part < 3; part++)
        EXPECT(near(direct[part], in_turn[part]) && near(there[part], point[part]));
#ifdef HAS_EIGEN
      const Eigen::Isometry3d eigen = pose.to_eigen<Eigen::Isometry3d>();
      const Eigen::Vector3d moved = eigen * Eigen::Vector3d(point[0], point[1], point[2]);
      const auto by_asof = pose * point;
      const Transform same = Transform::from_eigen(eigen), affine = Transform::from_eigen(Eigen::Affine3d(eigen));
      for (int part = 0; part < 3; part++)
        EXPECT(near(moved[part], by_asof[part]) && near(same.translation[part], affine.translation[part]));
      EXPECT(near(std::abs(Eigen::Quaterniond(eigen.linear()).dot(Eigen::Quaterniond(same.rotation))), 1));
      EXPECT(std::abs(pose.to_eigen<Eigen::Isometry3f>().translation().x() - 1) < 1e-6F);
#endif
    }
}

void waits() {
  Buffer buffer = driving();
  EXPECT(thrown([&] { buffer.wait("odom", "lidar", 11s, 1ms); }) == ASOF_STATUS_TIMED_OUT);
  std::thread writer([&] { buffer.set("odom", "base_link", 12s, Transform({12, 0, 0})); });
  EXPECT(near(buffer.wait("odom", "lidar", 11s, -1ns).translation[0], 11));
  writer.join();
  EXPECT(thrown([&] { buffer.wait("odom", "lidar", -100s, -1ns); }) == ASOF_STATUS_NEVER);

  // The latest: there at once, after an edge that was missing, or not in time.
  EXPECT(buffer.wait_latest("odom", "lidar", 0ns).stamp == asof::Stamp(12s));
  EXPECT(thrown([&] { buffer.wait_latest("odom", "late", 1ms); }) == ASOF_STATUS_TIMED_OUT);
  std::thread edge([&] { buffer.set("lidar", "late", 12s, Transform({1, 0, 0})); });
  auto latest = buffer.wait_latest("odom", "late", -1ns);
  edge.join();
  EXPECT(latest.stamp == asof::Stamp(12s) && near(latest.transform.translation[0], 13));

  // A callback: at once, later, and never once the wait has ended.
  int called = 0;
  auto count = [&](asof::Result<Transform> found) { called += bool(found) ? 1 : 100; };
  auto now = buffer.on_transform("odom", "lidar", 5s, -1ns, count);
  EXPECT(called == 1 && now.result());
  auto later = buffer.on_transform("odom", "lidar", 13s, -1ns, count);
  EXPECT(called == 1 && later.result().status() == ASOF_STATUS_PENDING);
  EXPECT(thrown([&] { later.descriptor(); }) == ASOF_STATUS_INVALID_ARGUMENT);
  buffer.set("odom", "base_link", 13s, Transform());
  EXPECT(called == 2);
  {
    auto cancelled = buffer.on_transform("odom", "lidar", 14s, -1ns, count);
    cancelled = buffer.on_transform("odom", "lidar", 99s, -1ns, count);
  }
  buffer.set("odom", "base_link", 15s, Transform());
  EXPECT(called == 2);
  auto throwing = buffer.on_transform("odom", "lidar", 15s, -1ns, [](auto) { throw 7; });

#if defined(__linux__)
  auto polled = buffer.wait_async("odom", "lidar", 16s, -1ns);
  pollfd descriptor{polled.descriptor(), POLLIN, 0};
  EXPECT(poll(&descriptor, 1, 0) == 0);
  buffer.set("odom", "base_link", 16s, Transform({16, 0, 0}));
  EXPECT(poll(&descriptor, 1, 0) == 1 && near(polled.result()->translation[0], 16));
#endif
}

/// Callbacks that run on a writer's thread while their waits end on another.
void ends_of_waits(int rounds) {
  Buffer buffer;
  buffer.set("odom", "base_link", 0, Transform());
  std::atomic<std::int64_t> newest{0};
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    while (!is_over) {
      const std::int64_t stamp = newest + 1000;
      buffer.try_set("odom", "base_link", stamp, Transform());
      newest = stamp;
    }
  });
  for (int round = 0; round < rounds; round++) {
    // Freed below: a callback that ran too late would write into freed memory.
    auto place = std::make_unique<std::int64_t>(0);
    auto wait = buffer.on_transform("odom", "base_link", newest + 1500, -1ns, [at = place.get()](auto) { *at += 1; });
    if (round % 2 == 0)
      std::this_thread::yield();
    wait = buffer.on_transform("odom", "base_link", 0, -1ns, [](auto) {});
    EXPECT(*place <= 1);
  }
  is_over = true;
  writer.join();
}

/// Every lookup is of one state: x and y are set together, and the rotation has unit length.
void stress(int rounds) {
  Buffer buffer;
  asof::tf2::BufferCore core;
  buffer.set_static("base_link", "lidar", Transform({0, 0, 1}));
  buffer.set("map", "odom", 0, Transform());
  buffer.set("odom", "base_link", 0, Transform());
  std::atomic<int> writing{2};
  auto write = [&](const char *parent, const char *child) {
    for (int round = 1; round <= rounds; round++) {
      const double x = round;
      buffer.set(parent, child, std::int64_t(round) * 1000000, Transform({x, -x, 0}, {0, 0, std::sin(x), std::cos(x)}));
      asof::tf2::TransformStamped message = {};
      message.header.frame_id = parent;
      message.child_frame_id = child;
      asof::tf2::detail::set_stamp(message, asof::tf2::detail::time_of(std::int64_t(round) * 1000000));
      message.transform.translation.x = x;
      message.transform.rotation.w = 1;
      EXPECT(core.setTransform(message, child));
    }
    writing--;
  };
  auto read = [&] {
    auto path = buffer.path("odom", "lidar");
    std::vector<std::int64_t> stamps(4);
    std::vector<Transform> found(4);
    for (int round = 0; writing > 0 || round == 0; round++) {
      auto latest = buffer.lookup_latest("odom", "base_link").transform;
      EXPECT(latest.translation[0] == -latest.translation[1]);
      if (auto between = buffer.try_lookup("odom", "lidar", std::int64_t(round % rounds) * 1000000 + 1)) {
        const double *q = between->rotation;
        EXPECT(std::abs(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3] - 1) < 1e-6 && near(between->translation[2], 1));
      }
      for (std::size_t place = 0; place < 4; place++)
        stamps[place] = std::int64_t(round % rounds) * 1000000 + std::int64_t(place) * 300000;
      path.lookup_many(stamps, found);
      core.canTransform("map", "base_link", asof::tf2::Time());
      if (round % 64 == 0)
        EXPECT(!buffer.to_yaml().empty() && buffer.stats().edges == 3 && !core.allFramesAsYAML().empty());
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back(write, "map", "odom");
  threads.emplace_back(write, "odom", "base_link");
  for (int reader = 0; reader < 3; reader++)
    threads.emplace_back(read);
  for (std::thread &thread : threads)
    thread.join();
}

void like_tf2() {
  asof::tf2::BufferCore core;
  asof::tf2::TransformStamped message = {};
  message.header.frame_id = "/odom";
  message.child_frame_id = "base_link";
  message.transform.rotation.w = 1;
  for (int second = 1; second <= 3; second++) {
    asof::tf2::detail::set_stamp(message, asof::tf2::detail::time_of(second * 1000000000LL));
    message.transform.translation.x = second;
    EXPECT(core.setTransform(message, "wheels"));
  }
  const auto found = core.lookupTransform("odom", "base_link", asof::tf2::Time());
  EXPECT(found.transform.translation.x == 3 && asof::tf2::detail::stamp_of(found) == 3000000000LL);
  EXPECT(core.allFramesAsString() == "Frame base_link exists with parent odom.\n");
  EXPECT(core.allFramesAsYAML().find("broadcaster: 'wheels'") != std::string::npos);
  EXPECT(core.getAllFrameNames().size() == 2 && core._frameExists("odom") && !core._frameExists("map"));
  try {
    core.lookupTransform("odom", "base_link", asof::tf2::detail::time_of(9000000000LL));
    EXPECT(false);
  } catch (const asof::tf2::TransformException &error) {
    EXPECT(std::string(error.what()).find("after its newest sample") != std::string::npos);
  }
#if ASOF_TF2_ROS != 1
  // Which extrapolation it is, as newer ROS 2 tells them apart.
  using namespace asof::tf2;
  const auto kind = [&](const BufferCore &buffer, std::int64_t stamp) {
    try {
      buffer.lookupTransform("odom", "base_link", asof::tf2::detail::time_of(stamp));
    } catch (const ExtrapolationException &error) {
      return dynamic_cast<const asof::tf2::detail::ExtrapolationOf<BackwardExtrapolationException>::type *>(&error)    ? 'b'
             : dynamic_cast<const asof::tf2::detail::ExtrapolationOf<ForwardExtrapolationException>::type *>(&error)   ? 'f'
             : dynamic_cast<const asof::tf2::detail::ExtrapolationOf<NoDataForExtrapolationException>::type *>(&error) ? 'n'
                                                                                                                       : 'e';
    }
    return '-';
  };
  BufferCore one;
  EXPECT(one.setTransform(message, "wheels"));
  const bool are_told_apart =
      !std::is_same_v<asof::tf2::detail::ExtrapolationOf<BackwardExtrapolationException>::type, ExtrapolationException>;
  EXPECT(kind(one, 3000000000LL) == '-' && kind(core, 2500000000LL) == '-');
  if (are_told_apart)
    EXPECT(kind(one, 4000000000LL) == 'n' && kind(core, 4000000000LL) == 'f' && kind(core, 1LL) == 'b');
  Time common;
  const TF2Error none = core._getLatestCommonTime(core._lookupFrameNumber("odom"), core._lookupFrameNumber("base_link"), common, nullptr);
  EXPECT(none == TF2Error(0) && asof::tf2::detail::nanoseconds(common) == 3000000000LL);
  EXPECT(core._getLatestCommonTime(0, 0, common, nullptr) == TF2Error(1));
  EXPECT(core.getCacheLength() == BUFFER_CORE_DEFAULT_CACHE_TIME);
#endif
#ifdef ASOF_TF2_INTERFACE
  // As ROS 2 knows it: by the interface.
  const ::tf2::BufferCoreInterface &any = core;
  EXPECT(any.lookupTransform("odom", "base_link", asof::tf2::Time()).header.stamp.sec == 3);
  EXPECT(any.getAllFrameNames().size() == 2 && !any.canTransform("odom", "map", asof::tf2::Time(), nullptr));
#endif
  // A request that is told from within setTransform, and one that is cancelled.
  int told = 0;
  auto tell = [&](auto, const std::string &, const std::string &, auto, asof::tf2::TransformableResult result) {
    told += result == asof::tf2::TransformAvailable ? 1 : 100;
  };
  const auto handle = core.addTransformableCallback(tell);
  EXPECT(core.addTransformableRequest(handle, "odom", "base_link", asof::tf2::detail::time_of(2000000000LL)) == 0);
  EXPECT(core.addTransformableRequest(handle, "odom", "base_link", asof::tf2::detail::time_of(4000000000LL)) > 0);
  core.cancelTransformableRequest(
      core.addTransformableRequest(handle, "odom", "base_link", asof::tf2::detail::time_of(4000000000LL)));
  asof::tf2::detail::set_stamp(message, asof::tf2::detail::time_of(5000000000LL));
  EXPECT(core.setTransform(message, "wheels") && told == 1);
}

/// Lookups that are repeated are prepared; what changes meanwhile changes them too.
void repeated_lookups() {
  asof::tf2::BufferCore core;
  Buffer &buffer = core.buffer();
  const auto same = [&](const std::string &target, const std::string &source, std::int64_t stamp) {
    const auto by_name = stamp != 0 ? buffer.try_lookup(target, source, stamp) : [&]() -> asof::Result<Transform> {
      Transform found;
      const auto status = asof_tf_lookup_latest(buffer.get(), target.c_str(), source.c_str(), &found, nullptr, nullptr);
      return asof::detail::result(status, found);
    }();
    try {
      const auto found = core.lookupTransform(target, source, asof::tf2::detail::time_of(stamp));
      EXPECT(by_name && found.header.frame_id == target && found.child_frame_id == source);
      EXPECT(near(found.transform.translation.x, by_name->translation[0]));
      EXPECT(stamp == 0 || asof::tf2::detail::stamp_of(found) == stamp);
    } catch (const asof::tf2::TransformException &) {
      EXPECT(!by_name);
    }
  };
  const auto look = [&] {
    for (int again = 0; again < 3; again++)
      for (const char *target : {"map", "odom", "/odom", ""})
        for (const char *source : {"base_link", "lidar", "map", "nowhere"})
          for (int twice = 0; twice < 3; twice++)
            for (std::int64_t stamp : {0LL, 1000LL, 1500LL, 9000LL})
              if (*target != '\0' && *target != '/')
                same(target, source, stamp);
              else
                EXPECT(!core.canTransform(target, source, asof::tf2::detail::time_of(stamp)) || target == source);
  };
  for (std::int64_t stamp : {1000, 2000}) {
    buffer.set("map", "odom", stamp, Transform({double(stamp), 0, 0}));
    buffer.set("odom", "base_link", stamp, Transform({1, 0, 0}));
  }
  look();
  buffer.set_static("base_link", "lidar", Transform({7, 0, 0}));
  look();
  buffer.set_static("base_link", "lidar", Transform({8, 0, 0}));
  look();
  core.clear();
  look();
  for (std::int64_t stamp : {1000, 2000})
    buffer.set("map", "base_link", stamp, Transform({double(stamp), 5, 0}));
  look();
  buffer.remove("lidar");
  look();
  buffer.set("map", "lidar", 1000, Transform({3, 0, 0}));
  look();
  // More threads than places for them, and two that share one.
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 40; thread++)
    threads.emplace_back([&] {
      for (int again = 0; again < 200; again++)
        same("map", "base_link", again % 2 == 0 ? 1500 : 0);
    });
  for (std::thread &thread : threads)
    thread.join();
}

/// Counts those that exist: all that goes in is freed, however it leaves.
struct Scan {
  static std::atomic<int> alive;
  int number;
  explicit Scan(int number) : number(number) { alive++; }
  Scan(const Scan &other) : number(other.number) { alive++; }
  ~Scan() { alive--; }
};
std::atomic<int> Scan::alive{0};

void windows() {
  {
    asof::Window<Scan> window(3);
    EXPECT(!window.nearest(1));
    std::optional<asof::Entry<Scan>> oldest;
    for (int number = 1; number <= 5; number++) {
      window.insert(number * 10, Scan(number));
      if (number == 1)
        oldest = window.before(10);
    }
    // The window has dropped it; the entry keeps it.
    EXPECT(oldest->value->number == 1 && Scan::alive == 4);
    EXPECT(window.nearest(41)->value->number == 4 && window.before(49)->value->number == 4);
    EXPECT(window.after(41)->stamp == asof::Stamp(50) && !window.before(29) && !window.after(51));
    EXPECT(window.interval(30, 40).size() == 2 && window.interval(31, 39).empty());
    EXPECT(thrown([&] { window.insert(5, Scan(0)); }) == ASOF_STATUS_TOO_OLD && Scan::alive == 4);
    EXPECT(window.try_insert(5, Scan(0)) == ASOF_STATUS_TOO_OLD);
    EXPECT(Scan::alive == 4);
    const asof::WindowStats stats = window.stats();
    EXPECT(stats.messages == 3 && stats.inserted == 5 && stats.evicted == 2 && stats.refused == 2 && stats.late == 0);
    asof::Window<Scan> large(1000);
    for (int number = 0; number < 100; number++)
      large.insert(number, Scan(number));
    EXPECT(large.interval(0, 99).size() == 100 && Scan::alive == 104);
    window.clear();
    EXPECT(Scan::alive == 101);
  }
  EXPECT(Scan::alive == 0);
  EXPECT(thrown([] { asof::Window<Scan> none(0); }) == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(!asof::Window<Scan>::try_new({0, 0, 5}) && asof::Window<Scan>::try_new({0, 5, 0}));
  EXPECT(!asof::PoseWindow::try_new({0, 0, 0}));

  asof::PoseWindow poses(10);
  poses.insert(10, Transform());
  poses.insert(20, Transform({1, 2, 3}, {0, 0, 1, 0}));
  const auto between = poses.at(15);
  EXPECT(poses.stats().messages == 2 && near(between.translation[1], 1) && near(between.rotation[2], std::sqrt(0.5)));
  EXPECT(poses.try_at(21).status() == ASOF_STATUS_NO_DATA && thrown([&] { poses.at(21); }) == ASOF_STATUS_NO_DATA);
  EXPECT(thrown([&] { poses.insert(30, Transform({0, 0, 0}, {0, 0, 0, 0})); }) == ASOF_STATUS_INVALID_ARGUMENT);
}

void synchronizers() {
  {
    std::vector<std::pair<int, std::string>> sets;
    asof::ApproximateTime<Scan, std::string> sync(5, [&](asof::Entry<Scan> scan, asof::Entry<std::string> image) {
      EXPECT(std::abs(scan.stamp.nanoseconds - image.stamp.nanoseconds) <= 2);
      sets.emplace_back(scan.value->number, *image.value);
      if (sets.size() == 3)
        throw 7;
    });
    for (int number = 0; number < 20; number++) {
      sync.add<0>(number * 100, std::make_shared<Scan>(number));
      sync.add<1>(number * 100 + 2, std::make_shared<std::string>("image " + std::to_string(number)));
    }
    EXPECT(sets.size() >= 18 && sets[5].second == "image " + std::to_string(sets[5].first));
    EXPECT(Scan::alive > 0);
    EXPECT(sync.stats().sets == sets.size() && sync.stats().waiting == 0 && sync.stats().sets_dropped == 0);
    sync.clear();
    EXPECT(Scan::alive == 0 && sync.stats().unmatched == 40 - 2 * sets.size());
    // A topic that falls silent: its partner's messages are bounded by the queue.
    for (int number = 0; number < 100; number++)
      sync.add<0>(number * 100 + 10000, std::make_shared<Scan>(number));
    EXPECT(Scan::alive <= 6);
    const auto nothing = [](asof::Entry<Scan>, asof::Entry<std::string>) {};
    EXPECT((!asof::ApproximateTime<Scan, std::string>::try_new(0, nothing)));
  }
  EXPECT(Scan::alive == 0);
}

} // namespace

int main(int count, char **arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 2000;
  lookups();
  cut_texts();
  results();
  extremes();
  batches();
  texts();
  conversions();
  waits();
  like_tf2();
  repeated_lookups();
  windows();
  synchronizers();
  ends_of_waits(rounds);
  stress(rounds);
  std::printf("all hold, with %d rounds\n", rounds);
}
