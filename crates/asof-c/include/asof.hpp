// asof for C++17: the C interface of asof.h with values, RAII, std::chrono and exceptions. Header-only over libasof.
//
// Every call that its arguments can make fail has two forms: `lookup` throws asof::Error, `try_lookup` returns an asof::Result, or an asof::Status if
// there is no value (asof_last_error() then has the sentence). Compiled with -fno-exceptions, what would throw prints the sentence
// and aborts. A buffer may be used by any number of threads at once; lookups wait for no writer.
#ifndef ASOF_HPP
#define ASOF_HPP

#include "asof.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace asof {

/// How a call ended; see AsofStatus.
using Status = AsofStatus;

/// What is thrown: a status, and a sentence.
class Error : public std::runtime_error {
public:
  Error(Status status, const std::string &text) : std::runtime_error(text), status_(status) {}

  /// The error of the last call on this thread.
  static Error last(Status status) { return Error(status, asof_last_error()); }

  Status status() const noexcept { return status_; }

private:
  Status status_;
};

namespace detail {

[[noreturn]] inline void raise(const Error &error) {
#ifdef __cpp_exceptions
  throw error;
#else
  std::fprintf(stderr, "asof: %s\n", error.what());
  std::abort();
#endif
}

/// Calls a callback on a thread of somebody else, who is not to blame for what it throws.
template <typename Call> void guarded(Call call) noexcept {
#ifdef __cpp_exceptions
  try {
    call();
  } catch (...) {
  }
#else
  call();
#endif
}

} // namespace detail

/// Throws unless a call succeeded.
inline void check(Status status) {
  if (status != ASOF_STATUS_OK)
    detail::raise(Error::last(status));
}

/// A value, or why there is none: std::expected, before C++23.
template <typename T> class Result {
public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::make_unique<Error>(std::move(error))) {}

  explicit operator bool() const noexcept { return value_.has_value(); }
  bool has_value() const noexcept { return value_.has_value(); }

  /// The value; throws the error if there is none.
  const T &value() const & {
    if (!value_)
      detail::raise(*error_);
    return *value_;
  }
  T value() && {
    if (!value_)
      detail::raise(*error_);
    return std::move(*value_);
  }
  const T &operator*() const & noexcept { return *value_; }
  T &operator*() & noexcept { return *value_; }
  T operator*() && noexcept { return std::move(*value_); }
  const T *operator->() const noexcept { return &*value_; }
  T *operator->() noexcept { return &*value_; }
  T value_or(T other) const { return value_.value_or(std::move(other)); }

  /// Only without a value.
  const Error &error() const noexcept { return *error_; }
  Status status() const noexcept { return error_ ? error_->status() : ASOF_STATUS_OK; }

private:
  std::optional<T> value_;
  std::unique_ptr<Error> error_;
};

/// An instant: nanoseconds since the Unix epoch, from a number, a duration since the epoch, or a std::chrono::time_point.
struct Stamp {
  std::int64_t nanoseconds = 0;

  constexpr Stamp() = default;
  constexpr Stamp(std::int64_t nanoseconds) : nanoseconds(nanoseconds) {}
  /// Seconds are not taken for nanoseconds.
  template <typename Seconds, typename = std::enable_if_t<std::is_floating_point_v<Seconds>>> Stamp(Seconds) = delete;
  template <typename Rep, typename Period>
  constexpr Stamp(std::chrono::duration<Rep, Period> since_epoch)
      : nanoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count()) {}
  template <typename Duration>
  constexpr Stamp(std::chrono::time_point<std::chrono::system_clock, Duration> time) : Stamp(time.time_since_epoch()) {}

  /// As std::chrono has it.
  std::chrono::time_point<std::chrono::system_clock, std::chrono::nanoseconds> time() const {
    return std::chrono::time_point<std::chrono::system_clock, std::chrono::nanoseconds>(std::chrono::nanoseconds(nanoseconds));
  }
  friend constexpr bool operator==(Stamp a, Stamp b) { return a.nanoseconds == b.nanoseconds; }
  friend constexpr bool operator!=(Stamp a, Stamp b) { return a.nanoseconds != b.nanoseconds; }
  friend constexpr bool operator<(Stamp a, Stamp b) { return a.nanoseconds < b.nanoseconds; }
};

/// How long something takes.
using Nanoseconds = std::chrono::nanoseconds;

namespace detail {

/// A handle of the C interface, freed with this.
template <typename T, void (*Free)(T **)> class Handle {
public:
  Handle() = default;
  explicit Handle(T *held) : held_(held) {}
  Handle(Handle &&other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
  Handle &operator=(Handle &&other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  Handle(const Handle &) = delete;
  Handle &operator=(const Handle &) = delete;
  ~Handle() { reset(); }

  void reset() {
    if (held_ != nullptr)
      Free(&held_);
    held_ = nullptr;
  }
  T *get() const noexcept { return held_; }
  /// Leaves it to the caller.
  T *release() noexcept { return std::exchange(held_, nullptr); }
  /// The place for a new one.
  T **place() {
    reset();
    return &held_;
  }

private:
  T *held_ = nullptr;
};

/// Whether one of some bytes is zero: of a few, as names of frames have, without a call.
inline bool has_nul(const char *bytes, std::size_t count) noexcept {
  const auto is_in = [bytes](auto word, std::size_t first, std::size_t second) {
    using Word = decltype(word);
    constexpr Word ones = Word(~Word(0)) / 255, highs = ones * 128;
    Word other;
    std::memcpy(&word, bytes + first, sizeof word);
    std::memcpy(&other, bytes + second, sizeof other);
    return (((word - ones) & ~word) | ((other - ones) & ~other)) & highs;
  };
  if (count >= 4 && count < 8)
    return is_in(std::uint32_t(), 0, count - 4) != 0;
  if (count >= 8 && count <= 16)
    return is_in(std::uint64_t(), 0, count - 8) != 0;
  return count != 0 && std::memchr(bytes, 0, count) != nullptr;
}

/// A text for the C interface, which ends at the first NUL. One with a NUL inside would be read in part only: a mark takes its
/// place, which every function refuses.
inline const char *c_text(const std::string &text) noexcept {
  return has_nul(text.data(), text.size()) ? reinterpret_cast<const char *>(std::uintptr_t(1)) : text.c_str();
}

/// A text of the library.
class Text {
public:
  Text() = default;
  Text(const Text &) = delete;
  Text &operator=(const Text &) = delete;
  ~Text() { asof_text_free(&held_); }
  char **place() noexcept { return &held_; }
  bool is_none() const noexcept { return held_ == nullptr; }
  std::string string() const { return held_ == nullptr ? std::string() : std::string(held_); }

private:
  char *held_ = nullptr;
};

template <typename T> Result<T> result(Status status, T value) {
  if (status != ASOF_STATUS_OK)
    return Error::last(status);
  return Result<T>(std::move(value));
}

} // namespace detail

namespace tf {

/// A rigid transform: of a point from one frame to another, or the pose of a frame in its parent.
struct Transform : AsofTransform {
  /// Of a frame to itself.
  Transform() : AsofTransform{{0, 0, 0, 1}, {0, 0, 0}} {}
  /// From the plain struct; a template, so that braces are a translation.
  template <typename Plain, typename = std::enable_if_t<std::is_same_v<Plain, AsofTransform>>>
  Transform(const Plain &transform) : AsofTransform(transform) {}
  /// A translation, and a rotation as x, y, z, w.
  Transform(std::array<double, 3> t, std::array<double, 4> q = {0, 0, 0, 1})
      : AsofTransform{{q[0], q[1], q[2], q[3]}, {t[0], t[1], t[2]}} {}

  /// A point in the target frame.
  std::array<double, 3> operator*(const std::array<double, 3> &point) const {
    std::array<double, 3> turned = rotated(rotation, point);
    return {turned[0] + translation[0], turned[1] + translation[1], turned[2] + translation[2]};
  }
  /// First the other one, then this.
  Transform operator*(const Transform &other) const {
    const double *a = rotation, *b = other.rotation;
    std::array<double, 3> t = *this * std::array<double, 3>{other.translation[0], other.translation[1], other.translation[2]};
    return Transform(t, {a[3] * b[0] + a[0] * b[3] + a[1] * b[2] - a[2] * b[1],
                         a[3] * b[1] - a[0] * b[2] + a[1] * b[3] + a[2] * b[0],
                         a[3] * b[2] + a[0] * b[1] - a[1] * b[0] + a[2] * b[3],
                         a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2]});
  }
  Transform inverse() const {
    std::array<double, 4> back = {-rotation[0], -rotation[1], -rotation[2], rotation[3]};
    std::array<double, 3> t = rotated(back.data(), {-translation[0], -translation[1], -translation[2]});
    return Transform(t, back);
  }

  /// As Eigen::Isometry3d, Eigen::Affine3d or any other type with a 4x4 `matrix()`.
  template <typename Isometry> Isometry to_eigen() const {
    Isometry out = Isometry::Identity();
    const double x = rotation[0], y = rotation[1], z = rotation[2], w = rotation[3];
    const double rows[3][3] = {{1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)},
                               {2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)},
                               {2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)}};
    for (int row = 0; row < 3; row++) {
      for (int column = 0; column < 3; column++)
        out.matrix()(row, column) = rows[row][column];
      out.matrix()(row, 3) = translation[row];
    }
    return out;
  }
  /// From one of those; its upper left must be a rotation.
  template <typename Isometry> static Transform from_eigen(const Isometry &isometry) {
    auto m = [&](int row, int column) { return double(isometry.matrix()(row, column)); };
    // The largest of the four is computed first, so that nothing is divided by a small number.
    const double squares[4] = {1 + m(0, 0) - m(1, 1) - m(2, 2), 1 - m(0, 0) + m(1, 1) - m(2, 2),
                               1 - m(0, 0) - m(1, 1) + m(2, 2), 1 + m(0, 0) + m(1, 1) + m(2, 2)};
    int most = 3;
    for (int part = 0; part < 3; part++)
      most = squares[part] > squares[most] ? part : most;
    std::array<double, 4> q{};
    q[most] = std::sqrt(squares[most]) / 2;
    const double scale = 1 / (4 * q[most]);
    if (most == 3) {
      q[0] = (m(2, 1) - m(1, 2)) * scale;
      q[1] = (m(0, 2) - m(2, 0)) * scale;
      q[2] = (m(1, 0) - m(0, 1)) * scale;
    } else {
      const int i = most, j = (most + 1) % 3, k = (most + 2) % 3;
      q[j] = (m(j, i) + m(i, j)) * scale;
      q[k] = (m(k, i) + m(i, k)) * scale;
      q[3] = (m(k, j) - m(j, k)) * scale;
    }
    return Transform({m(0, 3), m(1, 3), m(2, 3)}, q);
  }
  /// As geometry_msgs' Transform, of ROS 1 or ROS 2.
  template <typename Message> Message to_msg() const {
    Message out;
    write_msg(out);
    return out;
  }
  template <typename Message> void write_msg(Message &out) const {
    out.translation.x = translation[0];
    out.translation.y = translation[1];
    out.translation.z = translation[2];
    out.rotation.x = rotation[0];
    out.rotation.y = rotation[1];
    out.rotation.z = rotation[2];
    out.rotation.w = rotation[3];
  }
  template <typename Message> static Transform from_msg(const Message &in) {
    return Transform({in.translation.x, in.translation.y, in.translation.z},
                     {in.rotation.x, in.rotation.y, in.rotation.z, in.rotation.w});
  }

private:
  static std::array<double, 3> rotated(const double *q, const std::array<double, 3> &v) {
    const double x = q[0], y = q[1], z = q[2], w = q[3];
    const double a = 2 * (y * v[2] - z * v[1]), b = 2 * (z * v[0] - x * v[2]), c = 2 * (x * v[1] - y * v[0]);
    return {v[0] + w * a + y * c - z * b, v[1] + w * b + z * a - x * c, v[2] + w * c + x * b - y * a};
  }
};
static_assert(sizeof(Transform) == sizeof(AsofTransform) && std::is_standard_layout_v<Transform>,
              "arrays of one are arrays of the other");

/// A transform at the latest time that every edge on the way has; without a stamp if all are static.
struct Latest {
  Transform transform;
  std::optional<Stamp> stamp;
};

/// One update of many.
struct Update {
  std::string parent, child;
  Transform transform;
  /// Without one, it holds for all times.
  std::optional<Stamp> stamp;
};

using Options = AsofTfOptions;
using Stats = AsofTfStats;
using Twist = AsofTwist;
using Frame = AsofFrame;

/// A path between two frames, resolved once and used many times, by one thread at a time.
class Path {
public:
  Result<Transform> try_lookup(Stamp stamp) {
    Transform found;
    Status status = asof_tf_path_lookup(handle_.get(), stamp.nanoseconds, &found);
    return detail::result(status, found);
  }
  Transform lookup(Stamp stamp) {
    Transform found;
    check(asof_tf_path_lookup(handle_.get(), stamp.nanoseconds, &found));
    return found;
  }
  Latest lookup_latest() {
    Latest latest;
    std::int64_t stamp = 0;
    bool is_static = false;
    check(asof_tf_path_lookup_latest(handle_.get(), &latest.transform, &stamp, &is_static));
    if (!is_static)
      latest.stamp = Stamp(stamp);
    return latest;
  }
  Result<Latest> try_lookup_latest() {
    Latest latest;
    std::int64_t stamp = 0;
    bool is_static = false;
    const Status status = asof_tf_path_lookup_latest(handle_.get(), &latest.transform, &stamp, &is_static);
    if (!is_static)
      latest.stamp = Stamp(stamp);
    return detail::result(status, latest);
  }

  /// Looks up `count` times into `out`, NaN where there is no transform; returns how many those are.
  std::size_t lookup_many(const std::int64_t *stamps, std::size_t count, Transform *out) {
    return try_lookup_many(stamps, count, out).value();
  }
  Result<std::size_t> try_lookup_many(const std::int64_t *stamps, std::size_t count, Transform *out) {
    std::size_t failed = 0;
    const Status status = asof_tf_path_lookup_many(handle_.get(), stamps, count, out, &failed);
    return accepted(status, failed);
  }
  /// The same over spans: anything with `data` and `size`.
  template <typename Stamps, typename Out> std::size_t lookup_many(const Stamps &stamps, Out &&out) {
    return try_lookup_many(stamps, out).value();
  }
  template <typename Stamps, typename Out> Result<std::size_t> try_lookup_many(const Stamps &stamps, Out &&out) {
    if (stamps.size() != out.size())
      return apart(stamps.size(), out.size());
    return try_lookup_many(stamps.data(), stamps.size(), out.data());
  }

  /// Transforms points (x, y, z after each other, float or double) in place, each at its own time; NaN where there is no
  /// transform. Returns how many those are.
  template <typename Number>
  std::size_t transform_points(const std::int64_t *stamps, std::size_t count, Number *points) {
    return try_transform_points(stamps, count, points).value();
  }
  Result<std::size_t> try_transform_points(const std::int64_t *stamps, std::size_t count, double *points) {
    std::size_t failed = 0;
    const Status status = asof_tf_path_transform_points(handle_.get(), stamps, count, points, &failed);
    return accepted(status, failed);
  }
  Result<std::size_t> try_transform_points(const std::int64_t *stamps, std::size_t count, float *points) {
    std::size_t failed = 0;
    const Status status = asof_tf_path_transform_points_f32(handle_.get(), stamps, count, points, &failed);
    return accepted(status, failed);
  }
  template <typename Stamps, typename Points> std::size_t transform_points(const Stamps &stamps, Points &&points) {
    return try_transform_points(stamps, points).value();
  }
  template <typename Stamps, typename Points>
  Result<std::size_t> try_transform_points(const Stamps &stamps, Points &&points) {
    if (stamps.size() != points.size() / 3 || points.size() % 3 != 0)
      return apart(stamps.size() * 3, points.size());
    return try_transform_points(stamps.data(), stamps.size(), points.data());
  }

private:
  friend class Buffer;
  detail::Handle<AsofTfPath, asof_tf_path_free> handle_;

  static Error apart(std::size_t wanted, std::size_t found) {
    return Error(ASOF_STATUS_INVALID_ARGUMENT,
                 "the spans have " + std::to_string(found) + " places for " + std::to_string(wanted) + " results");
  }
  /// Times without a transform are in the result; everything else is an error.
  static Result<std::size_t> accepted(Status status, std::size_t failed) {
    return detail::result(failed == 0 ? status : ASOF_STATUS_OK, failed);
  }
};

/// A wait in progress. Its end cancels it: afterwards no callback runs.
class Wait {
public:
  Wait(Wait &&) = default;
  Wait &operator=(Wait &&other) noexcept {
    // The wait that was here is over before its callback is destroyed.
    handle_.reset();
    handle_ = std::move(other.handle_);
    callback_ = std::move(other.callback_);
    return *this;
  }

  /// The descriptor that becomes readable at its end, for poll or epoll; of Buffer::wait_async alone.
  int descriptor() const { return try_descriptor().value(); }
  Result<int> try_descriptor() const {
    int descriptor = -1;
    const Status status = asof_tf_wait_descriptor(handle_.get(), &descriptor);
    return detail::result(status, descriptor);
  }
  /// ASOF_STATUS_PENDING until its end.
  Result<Transform> result() const {
    Transform found;
    Status status = asof_tf_wait_result(handle_.get(), &found);
    return detail::result(status, found);
  }

private:
  friend class Buffer;
  Wait() = default;
  using Callback = std::function<void(Result<Transform>)>;

  static void called(void *context, Status status, const AsofTransform *transform, const char *message) noexcept {
    detail::guarded([&] {
      auto &callback = *static_cast<Callback *>(context);
      if (transform != nullptr)
        callback(Transform(*transform));
      else
        callback(Error(status, message));
    });
  }

  // In this order: the wait is over before its callback is destroyed.
  std::unique_ptr<Callback> callback_;
  detail::Handle<AsofTfWait, asof_tf_wait_free> handle_;
};

/// A transform buffer: the pose of every frame of a robot at any time in its history.
class Buffer {
public:
  /// 10 s of each edge, as tf2.
  Buffer() { check(asof_tf_new(nullptr, handle_.place())); }
  /// Takes over a handle of the C interface.
  explicit Buffer(AsofTf *handle) : handle_(handle) {}
  explicit Buffer(const Options &options) { check(asof_tf_new(&options, handle_.place())); }
  /// The options of the first constructor, to change some.
  static Options options() { return asof_tf_options(); }

  void set(const std::string &parent, const std::string &child, Stamp stamp, const Transform &pose) {
    check(asof_tf_set(get(), detail::c_text(parent), detail::c_text(child), stamp.nanoseconds, &pose));
  }
  Status try_set(const std::string &parent, const std::string &child, Stamp stamp, const Transform &pose) noexcept {
    return asof_tf_set(get(), detail::c_text(parent), detail::c_text(child), stamp.nanoseconds, &pose);
  }
  void set_static(const std::string &parent, const std::string &child, const Transform &pose) {
    check(try_set_static(parent, child, pose));
  }
  Status try_set_static(const std::string &parent, const std::string &child, const Transform &pose) noexcept {
    return asof_tf_set_static(get(), detail::c_text(parent), detail::c_text(child), &pose);
  }
  /// As `set` or `set_static`, and notes who sent it.
  void set(const Update &update, const std::string &authority) { check(try_set(update, authority)); }
  Status try_set(const Update &update, const std::string &authority) noexcept {
    const AsofTfUpdate plain = borrowed(update);
    return asof_tf_set_from(get(), &plain, detail::c_text(authority));
  }
  /// Stores what it can, and returns how much; `why`, if given, is why the first of the rest was refused.
  std::size_t set_many(const std::vector<Update> &updates, std::optional<Error> *why = nullptr) {
    std::vector<AsofTfUpdate> plain;
    plain.reserve(updates.size());
    for (const Update &update : updates)
      plain.push_back(borrowed(update));
    std::size_t stored = 0;
    Status status = asof_tf_set_many(get(), plain.data(), plain.size(), &stored);
    if (status != ASOF_STATUS_OK && why != nullptr)
      why->emplace(Error::last(status));
    return stored;
  }
  /// Moves `child` to another parent, from `stamp` on.
  void reparent(const std::string &parent, const std::string &child, Stamp stamp, const Transform &pose) {
    check(try_reparent(parent, child, stamp, pose));
  }
  Status try_reparent(const std::string &parent, const std::string &child, Stamp stamp, const Transform &pose) noexcept {
    return asof_tf_reparent(get(), detail::c_text(parent), detail::c_text(child), stamp.nanoseconds, &pose);
  }

  /// The transform of a point from `source` to `target`.
  Transform lookup(const std::string &target, const std::string &source, Stamp stamp) const {
    Transform found;
    check(asof_tf_lookup(get(), detail::c_text(target), detail::c_text(source), stamp.nanoseconds, &found));
    return found;
  }
  Result<Transform> try_lookup(const std::string &target, const std::string &source, Stamp stamp) const {
    Transform found;
    Status status = asof_tf_lookup(get(), detail::c_text(target), detail::c_text(source), stamp.nanoseconds, &found);
    return detail::result(status, found);
  }
  /// By number, which saves the search for the names.
  Transform lookup(Frame target, Frame source, Stamp stamp) const {
    Transform found;
    check(asof_tf_lookup_frames(get(), target, source, stamp.nanoseconds, &found));
    return found;
  }
  Result<Transform> try_lookup(Frame target, Frame source, Stamp stamp) const {
    Transform found;
    const Status status = asof_tf_lookup_frames(get(), target, source, stamp.nanoseconds, &found);
    return detail::result(status, found);
  }
  Latest lookup_latest(const std::string &target, const std::string &source) const {
    Latest latest;
    std::int64_t stamp = 0;
    bool is_static = false;
    check(asof_tf_lookup_latest(get(), detail::c_text(target), detail::c_text(source), &latest.transform, &stamp, &is_static));
    if (!is_static)
      latest.stamp = Stamp(stamp);
    return latest;
  }
  Result<Latest> try_lookup_latest(const std::string &target, const std::string &source) const {
    Latest latest;
    std::int64_t stamp = 0;
    bool is_static = false;
    Status status =
        asof_tf_lookup_latest(get(), detail::c_text(target), detail::c_text(source), &latest.transform, &stamp, &is_static);
    if (status == ASOF_STATUS_OK && !is_static)
      latest.stamp = Stamp(stamp);
    return detail::result(status, latest);
  }
  /// From `source` at one time to `target` at another, through a frame that does not move between the two.
  Transform lookup(const std::string &target, Stamp target_time, const std::string &source, Stamp source_time,
                   const std::string &fixed) const {
    return try_lookup(target, target_time, source, source_time, fixed).value();
  }
  Result<Transform> try_lookup(const std::string &target, Stamp target_time, const std::string &source,
                               Stamp source_time, const std::string &fixed) const {
    Transform found;
    Status status = asof_tf_lookup_full(get(), detail::c_text(target), target_time.nanoseconds, detail::c_text(source),
                                        source_time.nanoseconds, detail::c_text(fixed), &found);
    return detail::result(status, found);
  }
  /// Up to `limit` outside of what is held, at constant velocity.
  Transform lookup_extrapolated(const std::string &target, const std::string &source, Stamp stamp,
                                Nanoseconds limit) const {
    return try_lookup_extrapolated(target, source, stamp, limit).value();
  }
  Result<Transform> try_lookup_extrapolated(const std::string &target, const std::string &source, Stamp stamp,
                                            Nanoseconds limit) const {
    Transform found;
    const Status status = asof_tf_lookup_extrapolated(get(), detail::c_text(target), detail::c_text(source), stamp.nanoseconds,
                                                      limit.count(), &found);
    return detail::result(status, found);
  }
  /// The velocity of `moving` seen from `observer`, as the mean over `window`.
  Twist lookup_twist(const std::string &moving, const std::string &observer, Stamp stamp, Nanoseconds window) const {
    return try_lookup_twist(moving, observer, stamp, window).value();
  }
  Result<Twist> try_lookup_twist(const std::string &moving, const std::string &observer, Stamp stamp,
                                 Nanoseconds window) const {
    Twist found = {};
    const Status status =
        asof_tf_lookup_twist(get(), detail::c_text(moving), detail::c_text(observer), stamp.nanoseconds, window.count(), &found);
    return detail::result(status, found);
  }
  /// Whether `lookup` would succeed; `why`, if given, is why not.
  bool can_transform(const std::string &target, const std::string &source, Stamp stamp,
                     std::string *why = nullptr) const {
    Status status = asof_tf_can_transform(get(), detail::c_text(target), detail::c_text(source), stamp.nanoseconds);
    if (status != ASOF_STATUS_OK && why != nullptr)
      *why = asof_last_error();
    return status == ASOF_STATUS_OK;
  }
  /// None if every edge on the way is static.
  std::optional<Stamp> latest_common_time(const std::string &target, const std::string &source) const {
    return try_latest_common_time(target, source).value();
  }
  Result<std::optional<Stamp>> try_latest_common_time(const std::string &target, const std::string &source) const {
    std::int64_t stamp = 0;
    bool is_static = false;
    const Status status = asof_tf_latest_common_time(get(), detail::c_text(target), detail::c_text(source), &stamp, &is_static);
    return detail::result(status, is_static ? std::nullopt : std::optional<Stamp>(stamp));
  }

  Path path(const std::string &target, const std::string &source) const { return try_path(target, source).value(); }
  Result<Path> try_path(const std::string &target, const std::string &source) const {
    Path path;
    const Status status = asof_tf_path_new(get(), detail::c_text(target), detail::c_text(source), path.handle_.place());
    return detail::result(status, std::move(path));
  }
  /// See Path::lookup_many.
  template <typename Stamps, typename Out>
  std::size_t lookup_many(const std::string &target, const std::string &source, const Stamps &stamps, Out &&out) const {
    return path(target, source).lookup_many(stamps, out);
  }
  template <typename Stamps, typename Out>
  Result<std::size_t> try_lookup_many(const std::string &target, const std::string &source, const Stamps &stamps,
                                      Out &&out) const {
    Result<Path> path = try_path(target, source);
    return path ? path->try_lookup_many(stamps, out) : path.error();
  }
  /// See Path::transform_points.
  template <typename Stamps, typename Points>
  std::size_t transform_points(const std::string &target, const std::string &source, const Stamps &stamps,
                               Points &&points) const {
    return path(target, source).transform_points(stamps, points);
  }
  template <typename Stamps, typename Points>
  Result<std::size_t> try_transform_points(const std::string &target, const std::string &source, const Stamps &stamps,
                                           Points &&points) const {
    Result<Path> path = try_path(target, source);
    return path ? path->try_transform_points(stamps, points) : path.error();
  }

  /// Blocks until `lookup` succeeds; a negative timeout is none.
  Transform wait(const std::string &target, const std::string &source, Stamp stamp, Nanoseconds timeout) const {
    return try_wait(target, source, stamp, timeout).value();
  }
  Result<Transform> try_wait(const std::string &target, const std::string &source, Stamp stamp,
                             Nanoseconds timeout) const {
    Transform found;
    const Status status =
        asof_tf_wait(get(), detail::c_text(target), detail::c_text(source), stamp.nanoseconds, timeout.count(), &found);
    return detail::result(status, found);
  }
  /// Blocks until `lookup_latest` succeeds: tf2's `canTransform` at time zero with a timeout. A negative timeout is none.
  Latest wait_latest(const std::string &target, const std::string &source, Nanoseconds timeout) const {
    return try_wait_latest(target, source, timeout).value();
  }
  Result<Latest> try_wait_latest(const std::string &target, const std::string &source, Nanoseconds timeout) const {
    Latest latest;
    std::int64_t stamp = 0;
    bool is_static = false;
    const Status status = asof_tf_wait_latest(get(), detail::c_text(target), detail::c_text(source), timeout.count(), &latest.transform,
                                              &stamp, &is_static);
    if (!is_static)
      latest.stamp = Stamp(stamp);
    return detail::result(status, latest);
  }
  /// Calls back once, on the thread of the writer that stored what was missing, on a timer's, or at once on this one.
  Wait on_transform(const std::string &target, const std::string &source, Stamp stamp, Nanoseconds timeout,
                    std::function<void(Result<Transform>)> callback) const {
    return try_on_transform(target, source, stamp, timeout, std::move(callback)).value();
  }
  Result<Wait> try_on_transform(const std::string &target, const std::string &source, Stamp stamp, Nanoseconds timeout,
                                std::function<void(Result<Transform>)> callback) const {
    Wait wait;
    wait.callback_ = std::make_unique<Wait::Callback>(std::move(callback));
    const Status status = asof_tf_on_transform(get(), detail::c_text(target), detail::c_text(source), stamp.nanoseconds, timeout.count(),
                                               Wait::called, wait.callback_.get(), wait.handle_.place());
    return detail::result(status, std::move(wait));
  }
  /// Waits in the background; see Wait::descriptor.
  Wait wait_async(const std::string &target, const std::string &source, Stamp stamp, Nanoseconds timeout) const {
    return try_wait_async(target, source, stamp, timeout).value();
  }
  Result<Wait> try_wait_async(const std::string &target, const std::string &source, Stamp stamp,
                              Nanoseconds timeout) const {
    Wait wait;
    const Status status = asof_tf_wait_new(get(), detail::c_text(target), detail::c_text(source), stamp.nanoseconds, timeout.count(),
                                           wait.handle_.place());
    return detail::result(status, std::move(wait));
  }

  /// Drops all samples; frames and static edges stay.
  void clear() { check(asof_tf_clear(get())); }
  /// Removes a frame and all below it; returns how many.
  std::size_t remove(const std::string &frame) { return try_remove(frame).value(); }
  Result<std::size_t> try_remove(const std::string &frame) {
    std::size_t removed = 0;
    const Status status = asof_tf_remove(get(), detail::c_text(frame), &removed);
    return detail::result(status, removed);
  }
  std::size_t remove_older(Stamp before) {
    std::size_t removed = 0;
    check(asof_tf_remove_older(get(), before.nanoseconds, &removed));
    return removed;
  }
  Stats stats() const {
    Stats stats;
    check(asof_tf_stats(get(), &stats));
    return stats;
  }

  std::string to_tree() const { return text(ASOF_TF_FORMAT_TREE); }
  std::string to_dot() const { return text(ASOF_TF_FORMAT_DOT); }
  std::string to_mermaid() const { return text(ASOF_TF_FORMAT_MERMAID); }
  std::string to_yaml() const { return text(ASOF_TF_FORMAT_YAML); }

  /// The frame of a name, made if there is none yet.
  Frame frame(const std::string &name) { return try_frame(name).value(); }
  Result<Frame> try_frame(const std::string &name) {
    Frame frame = 0;
    const Status status = asof_tf_frame(get(), detail::c_text(name), &frame);
    return detail::result(status, frame);
  }
  /// The same, or 0.
  Frame find(const std::string &name) const noexcept {
    Frame frame = 0;
    asof_tf_find_frame(get(), detail::c_text(name), &frame);
    return frame;
  }
  std::string name(Frame frame) const { return try_name(frame).value(); }
  Result<std::string> try_name(Frame frame) const {
    detail::Text text;
    const Status status = asof_tf_frame_name(get(), frame, text.place());
    return detail::result(status, text.string());
  }
  /// All frames, in the order in which they were first named.
  std::vector<Frame> frames() const {
    std::vector<Frame> frames;
    for (std::size_t count = 16; count > frames.size();) {
      frames.resize(count);
      check(asof_tf_frames(get(), frames.data(), frames.size(), &count));
      if (count <= frames.size()) {
        frames.resize(count);
        break;
      }
    }
    return frames;
  }
  /// 0 for a root.
  Frame parent(Frame frame, std::optional<Stamp> stamp = std::nullopt) const { return try_parent(frame, stamp).value(); }
  Result<Frame> try_parent(Frame frame, std::optional<Stamp> stamp = std::nullopt) const {
    Frame parent = 0;
    const Status status = asof_tf_parent(get(), frame, stamp ? &stamp->nanoseconds : nullptr, &parent);
    return detail::result(status, parent);
  }

  /// The handle of the C interface.
  AsofTf *get() const noexcept { return handle_.get(); }

private:
  detail::Handle<AsofTf, asof_tf_free> handle_;

  static AsofTfUpdate borrowed(const Update &update) noexcept {
    return AsofTfUpdate{detail::c_text(update.parent), detail::c_text(update.child), update.stamp ? update.stamp->nanoseconds : 0,
                        update.transform, !update.stamp};
  }
  std::string text(AsofTfFormat format) const {
    detail::Text text;
    check(asof_tf_text(get(), format, text.place()));
    return text.string();
  }
};

} // namespace tf

namespace detail {

/// The counts of a handle.
template <typename Stats, typename T> Stats counts(Status (*ask)(const T *, Stats *), T *handle) {
  Stats stats = {};
  check(ask(handle, &stats));
  return stats;
}

/// A shared pointer as the C interface has it.
template <typename T> void *boxed(std::shared_ptr<T> value) { return new std::shared_ptr<T>(std::move(value)); }
template <typename T> void unbox(void *value) { delete static_cast<std::shared_ptr<T> *>(value); }

} // namespace detail

/// A message of a window, which stays after the window has dropped it.
template <typename T> struct Entry {
  Stamp stamp;
  std::shared_ptr<T> value;
};

/// How much a window keeps; see AsofWindowBounds.
using Bounds = AsofWindowBounds;
/// What a window holds, and what it did not keep; see AsofWindowStats.
using WindowStats = AsofWindowStats;
/// What a synchronizer told, and what it did not; see AsofSynchronizerStats.
using SynchronizerStats = AsofSynchronizerStats;

/// The newest part of a stream, by stamps. Any number of threads may use it at once.
template <typename T> class Window {
public:
  /// The newest `count` messages.
  explicit Window(std::uint64_t count) : Window(Bounds{count, 0, 0}) {}
  explicit Window(const Bounds &bounds) : Window(try_new(bounds).value()) {}
  static Result<Window> try_new(const Bounds &bounds) {
    Window window;
    const Status status = asof_window_new(&bounds, window.handle_.place());
    return detail::result(status, std::move(window));
  }

  void insert(Stamp stamp, T value) { insert(stamp, std::make_shared<T>(std::move(value))); }
  void insert(Stamp stamp, std::shared_ptr<T> value) { check(try_insert(stamp, std::move(value))); }
  /// ASOF_STATUS_TOO_OLD if it is older than everything in a full window.
  Status try_insert(Stamp stamp, T value) { return try_insert(stamp, std::make_shared<T>(std::move(value))); }
  Status try_insert(Stamp stamp, std::shared_ptr<T> value) {
    return asof_window_insert(handle_.get(), stamp.nanoseconds, detail::boxed(std::move(value)), detail::unbox<T>);
  }

  std::optional<Entry<T>> nearest(Stamp stamp) const { return find(asof_window_nearest, stamp); }
  /// The last one at or before a time.
  std::optional<Entry<T>> before(Stamp stamp) const { return find(asof_window_before, stamp); }
  /// The first one at or after a time.
  std::optional<Entry<T>> after(Stamp stamp) const { return find(asof_window_after, stamp); }
  /// Those from one time to another, both in.
  std::vector<Entry<T>> interval(Stamp start, Stamp end) const {
    std::vector<AsofEntry> plain;
    std::size_t count = 0;
    do {
      release(plain, plain.size());
      // With some room for what arrives meanwhile.
      plain.assign(count + 16, AsofEntry{});
      check(asof_window_interval(handle_.get(), start.nanoseconds, end.nanoseconds, plain.data(), plain.size(), &count));
    } while (count > plain.size());
    std::vector<Entry<T>> entries;
    for (std::size_t place = 0; place < count; place++)
      entries.push_back(taken(plain[place]));
    release(plain, count);
    return entries;
  }
  void clear() { check(asof_window_clear(handle_.get())); }
  WindowStats stats() const { return detail::counts<WindowStats>(asof_window_stats, handle_.get()); }

private:
  Window() = default;
  detail::Handle<AsofWindow, asof_window_free> handle_;

  static Entry<T> taken(const AsofEntry &entry) {
    return {Stamp(entry.stamp), *static_cast<std::shared_ptr<T> *>(entry.value)};
  }
  static void release(std::vector<AsofEntry> &entries, std::size_t count) {
    for (std::size_t place = 0; place < count; place++)
      asof_entry_release(&entries[place]);
  }
  template <typename Find> std::optional<Entry<T>> find(Find find, Stamp stamp) const {
    AsofEntry entry = {};
    const Status status = find(handle_.get(), stamp.nanoseconds, &entry);
    if (status == ASOF_STATUS_NO_DATA)
      return std::nullopt;
    check(status);
    Entry<T> found = taken(entry);
    asof_entry_release(&entry);
    return found;
  }
};

/// A window of poses, with the pose at any time between two of them.
class PoseWindow {
public:
  explicit PoseWindow(std::uint64_t count) : PoseWindow(Bounds{count, 0, 0}) {}
  explicit PoseWindow(const Bounds &bounds) : PoseWindow(try_new(bounds).value()) {}
  static Result<PoseWindow> try_new(const Bounds &bounds) {
    PoseWindow window;
    const Status status = asof_window_new(&bounds, window.handle_.place());
    return detail::result(status, std::move(window));
  }
  void insert(Stamp stamp, const tf::Transform &pose) { check(try_insert(stamp, pose)); }
  Status try_insert(Stamp stamp, const tf::Transform &pose) {
    return asof_window_insert_pose(handle_.get(), stamp.nanoseconds, &pose);
  }
  WindowStats stats() const { return detail::counts<WindowStats>(asof_window_stats, handle_.get()); }
  tf::Transform at(Stamp stamp) const { return try_at(stamp).value(); }
  Result<tf::Transform> try_at(Stamp stamp) const {
    tf::Transform found;
    const Status status = asof_window_interpolate(handle_.get(), stamp.nanoseconds, &found);
    return detail::result(status, found);
  }

private:
  PoseWindow() = default;
  detail::Handle<AsofWindow, asof_window_free> handle_;
};

/// Joins topics by approximate time, as message_filters does: the callback gets one message of each.
template <typename... Ts> class ApproximateTime {
public:
  using Callback = std::function<void(Entry<Ts>...)>;

  ApproximateTime(std::size_t queue, Callback callback, Nanoseconds max_interval = Nanoseconds(0))
      : ApproximateTime(try_new(queue, std::move(callback), max_interval).value()) {}
  static Result<ApproximateTime> try_new(std::size_t queue, Callback callback, Nanoseconds max_interval = Nanoseconds(0)) {
    ApproximateTime made;
    made.callback_ = std::make_unique<Callback>(std::move(callback));
    const Status status = asof_synchronizer_new(sizeof...(Ts), queue, std::uint64_t(max_interval.count()), called,
                                                made.callback_.get(), made.handle_.place());
    return detail::result(status, std::move(made));
  }

  /// A message of a topic, counted from 0.
  template <std::size_t Topic> void add(Stamp stamp, std::shared_ptr<std::tuple_element_t<Topic, std::tuple<Ts...>>> value) {
    check(try_add<Topic>(stamp, std::move(value)));
  }
  template <std::size_t Topic>
  Status try_add(Stamp stamp, std::shared_ptr<std::tuple_element_t<Topic, std::tuple<Ts...>>> value) {
    using T = std::tuple_element_t<Topic, std::tuple<Ts...>>;
    return asof_synchronizer_add(handle_.get(), Topic, stamp.nanoseconds, detail::boxed(std::move(value)), detail::unbox<T>);
  }
  /// Drops what waits, as for a clock that was set back.
  void clear() { check(asof_synchronizer_clear(handle_.get())); }
  SynchronizerStats stats() const { return detail::counts<SynchronizerStats>(asof_synchronizer_stats, handle_.get()); }

private:
  ApproximateTime() = default;
  std::unique_ptr<Callback> callback_;
  detail::Handle<AsofSynchronizer, asof_synchronizer_free> handle_;

  static void called(void *context, const AsofEntry *set, std::size_t) noexcept {
    detail::guarded([&] { tell(*static_cast<Callback *>(context), set, std::index_sequence_for<Ts...>()); });
  }
  template <std::size_t... Topic> static void tell(Callback &callback, const AsofEntry *set, std::index_sequence<Topic...>) {
    callback(Entry<Ts>{Stamp(set[Topic].stamp), *static_cast<std::shared_ptr<Ts> *>(set[Topic].value)}...);
  }
};

/// The first and the last of some times, both in.
struct Range {
  Stamp start = std::numeric_limits<std::int64_t>::min(), end = std::numeric_limits<std::int64_t>::max();
};

/// One message, which stays until the next one is asked for.
using Message = AsofMessage;

/// Messages in order of log time, used by one thread at a time: `while (const asof::Message *message = messages.next())`.
class Messages {
public:
  /// The next message; NULL after the last one.
  const Message *next() { return try_next().value(); }
  Result<const Message *> try_next() {
    const Status status = asof_messages_next(handle_.get(), &message_);
    if (status == ASOF_STATUS_END)
      return nullptr;
    return detail::result<const Message *>(status, &message_);
  }

private:
  friend class Recording;
  detail::Handle<AsofMessages, asof_messages_free> handle_;
  Message message_ = {};
};

/// A table as a stream of the Arrow C data interface: hand `get()` to whoever takes an ArrowArrayStream, with <asof/arrow_abi.h>
/// or another header that defines it. Released at its end unless it was taken.
template <typename ArrowStream = ArrowArrayStream> class Stream {
public:
  Stream() = default;
  Stream(Stream &&other) noexcept : stream_(std::exchange(other.stream_, ArrowStream{})), losses_(std::move(other.losses_)) {}
  Stream &operator=(Stream &&other) noexcept {
    std::swap(stream_, other.stream_);
    losses_ = std::move(other.losses_);
    return *this;
  }
  ~Stream() {
    if (stream_.release != nullptr)
      stream_.release(&stream_);
  }

  ArrowStream *get() noexcept { return &stream_; }
  /// Messages so far that were left out: those that cannot be decoded, or have no stamp to join by.
  std::uint64_t lost() const {
    std::uint64_t count = 0;
    if (losses_.get() != nullptr)
      check(asof_losses_count(losses_.get(), &count));
    return count;
  }

private:
  friend class Recording;
  ArrowStream stream_ = {};
  detail::Handle<AsofLosses, asof_losses_free> losses_;
};

/// What a summary says of a topic.
struct TopicInfo {
  std::string name, type, encoding;
  /// None if it is not known without reading.
  std::optional<std::uint64_t> messages;
};

/// A recording of any format, or several as one.
class Recording {
public:
  explicit Recording(const std::string &place) : Recording(try_open(place).value()) {}
  explicit Recording(const std::vector<std::string> &places) : Recording(try_open(places).value()) {}
  static Result<Recording> try_open(const std::string &place) {
    Recording recording;
    const Status status = asof_open(detail::c_text(place), recording.handle_.place());
    return detail::result(status, std::move(recording));
  }
  static Result<Recording> try_open(const std::vector<std::string> &places) {
    Recording recording;
    const std::vector<const char *> plain = pointers(places);
    const Status status = asof_open_all(plain.data(), plain.size(), recording.handle_.place());
    return detail::result(status, std::move(recording));
  }

  /// The first and the last log time; none without messages.
  std::optional<Range> range() const {
    Range range;
    const Status status = asof_recording_range(get(), &range.start.nanoseconds, &range.end.nanoseconds);
    if (status == ASOF_STATUS_NO_DATA)
      return std::nullopt;
    check(status);
    return range;
  }
  std::vector<TopicInfo> topics() const {
    std::vector<TopicInfo> topics;
    while (true) {
      detail::Text name, type, encoding;
      std::int64_t messages = -1;
      const Status status = asof_recording_topic(get(), topics.size(), name.place(), type.place(), encoding.place(), &messages);
      if (status == ASOF_STATUS_END)
        return topics;
      check(status);
      topics.push_back({name.string(), type.string(), encoding.string(), std::nullopt});
      if (messages >= 0)
        topics.back().messages = std::uint64_t(messages);
    }
  }
  /// The problems found so far.
  std::vector<std::string> problems() const {
    std::vector<std::string> problems;
    while (true) {
      detail::Text text;
      const Status status = asof_recording_problem(get(), problems.size(), text.place());
      if (status == ASOF_STATUS_END)
        return problems;
      check(status);
      problems.push_back(text.string());
    }
  }

  /// Whether the streams made from now on may have Arrow's view types, as they come without a copy: for consumers that know them.
  void use_views(bool views = true) { check(asof_recording_use_views(get(), views)); }

  /// A topic as a table: all its columns, or some.
  template <typename ArrowStream = ArrowArrayStream>
  Stream<ArrowStream> stream(const std::string &topic, const std::vector<std::string> &columns = {}, Range range = {}) const {
    return try_stream<ArrowStream>(topic, columns, range).value();
  }
  template <typename ArrowStream = ArrowArrayStream>
  Result<Stream<ArrowStream>> try_stream(const std::string &topic, const std::vector<std::string> &columns = {},
                                         Range range = {}) const {
    Stream<ArrowStream> stream;
    const std::vector<const char *> plain = pointers(columns);
    const Status status = asof_recording_stream(get(), detail::c_text(topic), plain.data(), plain.size(), range.start.nanoseconds,
                                                range.end.nanoseconds, stream.get(), stream.losses_.place());
    return detail::result(status, std::move(stream));
  }
  /// For each message of one topic, the matching message of others.
  template <typename ArrowStream = ArrowArrayStream>
  Stream<ArrowStream> join(const std::string &anchor, const std::vector<std::string> &others,
                           const AsofJoinOptions &options = asof_join_options()) const {
    return try_join<ArrowStream>(anchor, others, options).value();
  }
  template <typename ArrowStream = ArrowArrayStream>
  Result<Stream<ArrowStream>> try_join(const std::string &anchor, const std::vector<std::string> &others,
                                       const AsofJoinOptions &options = asof_join_options()) const {
    Stream<ArrowStream> stream;
    const std::vector<const char *> plain = pointers(others);
    const Status status = asof_recording_join(get(), detail::c_text(anchor), plain.data(), plain.size(), &options, stream.get(),
                                              stream.losses_.place());
    return detail::result(status, std::move(stream));
  }
  /// Topics at a fixed rate, in instants per second.
  template <typename ArrowStream = ArrowArrayStream>
  Stream<ArrowStream> resample(const std::vector<std::string> &topics, double hz,
                               const AsofJoinOptions &options = asof_join_options()) const {
    return try_resample<ArrowStream>(topics, hz, options).value();
  }
  template <typename ArrowStream = ArrowArrayStream>
  Result<Stream<ArrowStream>> try_resample(const std::vector<std::string> &topics, double hz,
                                           const AsofJoinOptions &options = asof_join_options()) const {
    Stream<ArrowStream> stream;
    const std::vector<const char *> plain = pointers(topics);
    const Status status = asof_recording_resample(get(), plain.data(), plain.size(), hz, &options, stream.get(),
                                                  stream.losses_.place());
    return detail::result(status, std::move(stream));
  }
  /// The rows of a query, where the build has SQL.
  template <typename ArrowStream = ArrowArrayStream> Stream<ArrowStream> sql(const std::string &query) const {
    return try_sql<ArrowStream>(query).value();
  }
  template <typename ArrowStream = ArrowArrayStream> Result<Stream<ArrowStream>> try_sql(const std::string &query) const {
    Stream<ArrowStream> stream;
    const Status status = asof_recording_sql(get(), detail::c_text(query), stream.get());
    return detail::result(status, std::move(stream));
  }

  /// Messages as they were recorded; of all topics if none is named.
  Messages messages(const std::vector<std::string> &topics = {}, Range range = {}) const {
    return try_messages(topics, range).value();
  }
  Result<Messages> try_messages(const std::vector<std::string> &topics = {}, Range range = {}) const {
    Messages messages;
    const std::vector<const char *> plain = pointers(topics);
    const Status status = asof_recording_messages(get(), plain.data(), plain.size(), range.start.nanoseconds,
                                                  range.end.nanoseconds, messages.handle_.place());
    return detail::result(status, std::move(messages));
  }
  /// What was known: the last message of every topic at or before a time.
  Messages at(Stamp time, const std::vector<std::string> &topics = {}) const { return try_at(time, topics).value(); }
  Result<Messages> try_at(Stamp time, const std::vector<std::string> &topics = {}) const {
    Messages messages;
    const std::vector<const char *> plain = pointers(topics);
    const Status status = asof_at(get(), plain.data(), plain.size(), time.nanoseconds, messages.handle_.place());
    return detail::result(status, std::move(messages));
  }
  /// All its transforms.
  tf::Buffer tf() const { return try_tf().value(); }
  Result<tf::Buffer> try_tf() const {
    AsofTf *buffer = nullptr;
    const Status status = asof_recording_tf(get(), &buffer);
    return detail::result(status, tf::Buffer(buffer));
  }

  /// The handle of the C interface.
  AsofRecording *get() const noexcept { return handle_.get(); }

private:
  Recording() = default;
  detail::Handle<AsofRecording, asof_recording_free> handle_;

  static std::vector<const char *> pointers(const std::vector<std::string> &texts) {
    std::vector<const char *> plain;
    for (const std::string &text : texts)
      plain.push_back(detail::c_text(text));
    return plain;
  }
};

/// Writes an MCAP file, which is complete once `finish` has returned; readable until then, as after a crash.
class Writer {
public:
  explicit Writer(const std::string &path) : Writer(try_create(path).value()) {}
  static Result<Writer> try_create(const std::string &path) {
    Writer writer;
    const Status status = asof_writer_new(detail::c_text(path), writer.handle_.place());
    return detail::result(status, std::move(writer));
  }

  /// A channel without a schema.
  std::uint32_t channel(const std::string &topic, const std::string &encoding) {
    return try_channel(topic, encoding).value();
  }
  Result<std::uint32_t> try_channel(const std::string &topic, const std::string &encoding) {
    return added(topic, encoding, nullptr, nullptr, {});
  }
  std::uint32_t channel(const std::string &topic, const std::string &encoding, const std::string &type,
                        const std::string &schema_encoding, const std::string &schema) {
    return try_channel(topic, encoding, type, schema_encoding, schema).value();
  }
  Result<std::uint32_t> try_channel(const std::string &topic, const std::string &encoding, const std::string &type,
                                    const std::string &schema_encoding, const std::string &schema) {
    return added(topic, encoding, detail::c_text(type), detail::c_text(schema_encoding), schema);
  }
  /// `publish_time` is when it was sent, if that is not when it was recorded.
  void write(std::uint32_t channel, Stamp log_time, const void *data, std::size_t size, std::uint32_t sequence = 0,
             std::optional<Stamp> publish_time = std::nullopt) {
    check(try_write(channel, log_time, data, size, sequence, publish_time));
  }
  Status try_write(std::uint32_t channel, Stamp log_time, const void *data, std::size_t size, std::uint32_t sequence = 0,
                   std::optional<Stamp> publish_time = std::nullopt) {
    return asof_writer_write(handle_.get(), channel, log_time.nanoseconds, publish_time.value_or(log_time).nanoseconds,
                             sequence, static_cast<const std::uint8_t *>(data), size);
  }
  /// Writes the summary and closes the file.
  void finish() { check(try_finish()); }
  Status try_finish() {
    AsofWriter *writer = handle_.release();
    return asof_writer_finish(&writer);
  }

private:
  Writer() = default;
  detail::Handle<AsofWriter, asof_writer_free> handle_;

  Result<std::uint32_t> added(const std::string &topic, const std::string &encoding, const char *type,
                              const char *schema_encoding, const std::string &schema) {
    std::uint32_t number = 0;
    const Status status = asof_writer_channel(handle_.get(), detail::c_text(topic), detail::c_text(encoding), type, schema_encoding,
                                              reinterpret_cast<const std::uint8_t *>(schema.data()), schema.size(), &number);
    return detail::result(status, number);
  }
};

} // namespace asof

#endif
