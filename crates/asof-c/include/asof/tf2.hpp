// tf2's BufferCore over asof's transform buffer: the same methods, signatures and exceptions.
//
//   #include <asof/tf2.hpp>               // instead of <tf2/buffer_core.h>
//   asof::tf2::BufferCore buffer;         // instead of tf2::BufferCore
//
// Times and messages are those of ROS 1 or ROS 2, whichever has its headers here, and of neither plain ones. Where tf2's
// exceptions.h is there, its exceptions are thrown, so that what catches them goes on to do so. <asof/tf2/buffer_core.h> puts
// all of it into the namespace tf2 itself, so that only an include changes. What differs from tf2 is listed in README.md.
#ifndef ASOF_TF2_HPP
#define ASOF_TF2_HPP

#include "../asof.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>

// 1, 2, or 0 for the plain ones; define it to choose.
#ifndef ASOF_TF2_ROS
#if __has_include(<geometry_msgs/msg/transform_stamped.hpp>)
#define ASOF_TF2_ROS 2
#elif __has_include(<geometry_msgs/TransformStamped.h>) && __has_include(<ros/time.h>)
#define ASOF_TF2_ROS 1
#else
#define ASOF_TF2_ROS 0
#endif
#endif

#if ASOF_TF2_ROS == 2
#include <geometry_msgs/msg/transform_stamped.hpp>
#elif ASOF_TF2_ROS == 1
#include <geometry_msgs/TransformStamped.h>
#include <ros/duration.h>
#include <ros/time.h>
#if __has_include(<boost/signals2.hpp>)
#define ASOF_TF2_SIGNALS 1
#include <boost/function.hpp>
#include <boost/signals2.hpp>
#endif
#endif

#if __has_include(<tf2/exceptions.hpp>)
#define ASOF_TF2_EXCEPTIONS 1
#include <tf2/exceptions.hpp>
#elif __has_include(<tf2/exceptions.h>)
#define ASOF_TF2_EXCEPTIONS 1
#include <tf2/exceptions.h>
#endif

#if ASOF_TF2_ROS == 2 && __has_include(<tf2/buffer_core_interface.hpp>)
#define ASOF_TF2_INTERFACE 1
#include <tf2/buffer_core_interface.hpp>
#elif ASOF_TF2_ROS == 2 && __has_include(<tf2/buffer_core_interface.h>)
#define ASOF_TF2_INTERFACE 1
#include <tf2/buffer_core_interface.h>
#endif

#ifdef ASOF_TF2_EXCEPTIONS
namespace tf2 {
// Newer ROS 2 defines them. Elsewhere they stay undefined, and ExtrapolationException is thrown.
class BackwardExtrapolationException;
class ForwardExtrapolationException;
class NoDataForExtrapolationException;
} // namespace tf2
#endif

namespace asof {
namespace tf2 {

#ifdef ASOF_TF2_EXCEPTIONS
using ::tf2::BackwardExtrapolationException;
using ::tf2::ConnectivityException;
using ::tf2::ExtrapolationException;
using ::tf2::ForwardExtrapolationException;
using ::tf2::InvalidArgumentException;
using ::tf2::LookupException;
using ::tf2::NoDataForExtrapolationException;
using ::tf2::TimeoutException;
using ::tf2::TransformException;
#else
/// What is thrown.
class TransformException : public std::runtime_error {
public:
  explicit TransformException(const std::string &what) : std::runtime_error(what) {}
};
/// The frames are in different trees.
class ConnectivityException : public TransformException {
  using TransformException::TransformException;
};
/// A frame does not exist.
class LookupException : public TransformException {
  using TransformException::TransformException;
};
/// The time is outside of what is held.
class ExtrapolationException : public TransformException {
  using TransformException::TransformException;
};
/// The time is before what is held.
class BackwardExtrapolationException : public ExtrapolationException {
  using ExtrapolationException::ExtrapolationException;
};
/// The time is after what is held.
class ForwardExtrapolationException : public ExtrapolationException {
  using ExtrapolationException::ExtrapolationException;
};
/// There are not two samples of an edge to tell before from after.
class NoDataForExtrapolationException : public ExtrapolationException {
  using ExtrapolationException::ExtrapolationException;
};
/// An argument cannot be used.
class InvalidArgumentException : public TransformException {
  using TransformException::TransformException;
};
/// The time was up.
class TimeoutException : public TransformException {
  using TransformException::TransformException;
};
#endif

#if ASOF_TF2_ROS == 1
using Time = ros::Time;
using Duration = ros::Duration;
using TransformStamped = geometry_msgs::TransformStamped;
#else
using Duration = std::chrono::nanoseconds;
using Time = std::chrono::time_point<std::chrono::system_clock, Duration>;
#if ASOF_TF2_ROS == 2
using TransformStamped = geometry_msgs::msg::TransformStamped;
#else
/// The fields of geometry_msgs' TransformStamped, where ROS is not.
struct TransformStamped {
  struct Header {
    Time stamp;
    std::string frame_id;
  } header;
  std::string child_frame_id;
  struct {
    struct {
      double x = 0, y = 0, z = 0;
    } translation;
    struct {
      double x = 0, y = 0, z = 0, w = 1;
    } rotation;
  } transform;
};
#endif
#endif

#if ASOF_TF2_ROS != 1
/// How much of every edge is kept.
static constexpr Duration BUFFER_CORE_DEFAULT_CACHE_TIME = std::chrono::seconds(10);
#endif

// What tf2's functions return beside a time: an enum in ROS 2, a number in ROS 1.
#if ASOF_TF2_ROS == 1
using TF2Error = int;
#elif ASOF_TF2_ROS == 2 && defined(ASOF_TF2_EXCEPTIONS)
using ::tf2::TF2Error;
#else
/// As in tf2_msgs/TF2Error.
enum class TF2Error : std::uint8_t {
  TF2_NO_ERROR = 0,
  TF2_LOOKUP_ERROR = 1,
  TF2_CONNECTIVITY_ERROR = 2,
  TF2_EXTRAPOLATION_ERROR = 3,
  TF2_INVALID_ARGUMENT_ERROR = 4,
  TF2_TIMEOUT_ERROR = 5,
  TF2_TRANSFORM_ERROR = 6,
};
#endif

using TimePoint = Time;
using CompactFrameID = std::uint32_t;
using TransformableCallbackHandle = std::uint32_t;
using TransformableRequestHandle = std::uint64_t;

enum TransformableResult {
  TransformAvailable,
  TransformFailure,
};

namespace detail {

using asof::detail::c_text;

/// An extrapolation of a kind, as finely as the tf2 that is there tells them apart.
template <typename Kind, typename = void> struct ExtrapolationOf {
  using type = ExtrapolationException;
};
template <typename Kind> struct ExtrapolationOf<Kind, std::void_t<decltype(sizeof(Kind))>> {
  using type = Kind;
};

#if ASOF_TF2_ROS == 1
inline std::int64_t nanoseconds(const Time &time) { return std::int64_t(time.toNSec()); }
inline std::int64_t nanoseconds(const Duration &duration) { return duration.toNSec(); }
inline Time time_of(std::int64_t nanoseconds) {
  // ros::Time has no times before 1970, and none after 2106.
  if (nanoseconds <= 0)
    return Time();
  if (nanoseconds / 1000000000 > UINT32_MAX)
    return Time().fromNSec(std::uint64_t(nanoseconds)); // says what is wrong
  Time time;
  time.sec = std::uint32_t(nanoseconds / 1000000000);
  time.nsec = std::uint32_t(nanoseconds % 1000000000);
  return time;
}
inline std::int64_t stamp_of(const TransformStamped &message) { return nanoseconds(message.header.stamp); }
inline void set_stamp(TransformStamped &message, Time time) { message.header.stamp = time; }
#else
inline std::int64_t nanoseconds(const Time &time) { return time.time_since_epoch().count(); }
inline std::int64_t nanoseconds(const Duration &duration) { return duration.count(); }
inline Time time_of(std::int64_t nanoseconds) { return Time(Duration(nanoseconds)); }
#if ASOF_TF2_ROS == 2
inline std::int64_t stamp_of(const TransformStamped &message) {
  return std::int64_t(message.header.stamp.sec) * 1000000000 + message.header.stamp.nanosec;
}
inline void set_stamp(TransformStamped &message, Time time) {
  const std::int64_t stamp = nanoseconds(time), part = (stamp % 1000000000 + 1000000000) % 1000000000;
  message.header.stamp.sec = std::int32_t((stamp - part) / 1000000000);
  message.header.stamp.nanosec = std::uint32_t(part);
}
#else
inline std::int64_t stamp_of(const TransformStamped &message) { return nanoseconds(message.header.stamp); }
inline void set_stamp(TransformStamped &message, Time time) { message.header.stamp = time; }
#endif
#endif

} // namespace detail

/// tf2's BufferCore. Any number of threads may use it at once; lookups wait for no writer.
class BufferCore
#ifdef ASOF_TF2_INTERFACE
    : public ::tf2::BufferCoreInterface
#endif
{
public:
  static constexpr int DEFAULT_CACHE_TIME = 10;
  static constexpr std::uint32_t MAX_GRAPH_DEPTH = 1000;

  /// Keeps so much of every edge.
#if ASOF_TF2_ROS == 1
  BufferCore(Duration cache_time = Duration(DEFAULT_CACHE_TIME))
#else
  explicit BufferCore(Duration cache_time = BUFFER_CORE_DEFAULT_CACHE_TIME)
#endif
      : cache_time_(cache_time), buffer_(options(cache_time)) {
  }
  virtual ~BufferCore() = default;
  BufferCore(const BufferCore &) = delete;
  BufferCore &operator=(const BufferCore &) = delete;

  /// Drops all samples; static transforms stay.
#ifdef ASOF_TF2_INTERFACE
  void clear() override {
#else
  void clear() {
#endif
    buffer_.clear();
  }

  bool setTransform(const TransformStamped &transform, const std::string &authority, bool is_static = false) {
    const tf::Transform pose = tf::Transform::from_msg(transform.transform);
    const AsofTfUpdate update{detail::c_text(transform.header.frame_id), detail::c_text(transform.child_frame_id),
                              detail::stamp_of(transform), pose, is_static};
    const Status status = asof_tf_set_from(buffer_.get(), &update, detail::c_text(authority));
    if (status != ASOF_STATUS_OK) {
      warn("setTransform", authority);
      return false;
    }
    test_requests();
    return true;
  }

#ifdef ASOF_TF2_INTERFACE
#define ASOF_TF2_OVERRIDE override
#else
#define ASOF_TF2_OVERRIDE
#endif

  /// The transform between two frames; at time zero, the latest.
  TransformStamped lookupTransform(const std::string &target_frame, const std::string &source_frame,
                                   const Time &time) const ASOF_TF2_OVERRIDE {
    tf::Transform found;
    std::int64_t at = detail::nanoseconds(time);
    if (repeat(target_frame, source_frame, at, found))
      return message(found, detail::time_of(at), target_frame, source_frame);
    if (target_frame == source_frame)
      return message(tf::Transform(), own_stamp(target_frame, time), target_frame, source_frame);
    require_name("lookupTransform argument target_frame", target_frame);
    require_name("lookupTransform argument source_frame", source_frame);
    at = look(target_frame, source_frame, at, found);
    return message(found, detail::time_of(at), target_frame, source_frame);
  }

  /// From one frame at one time to another at another, through a frame that does not move between the two.
  TransformStamped lookupTransform(const std::string &target_frame, const Time &target_time,
                                   const std::string &source_frame, const Time &source_time,
                                   const std::string &fixed_frame) const ASOF_TF2_OVERRIDE {
    require_name("lookupTransform argument target_frame", target_frame);
    require_name("lookupTransform argument source_frame", source_frame);
    require_name("lookupTransform argument fixed_frame", fixed_frame);
    const std::int64_t target_stamp = detail::nanoseconds(target_time), source_stamp = detail::nanoseconds(source_time);
    tf::Transform found;
    if (target_stamp != 0 && source_stamp != 0) {
      const Status status = asof_tf_lookup_full(buffer_.get(), detail::c_text(target_frame), target_stamp, detail::c_text(source_frame),
                                                source_stamp, detail::c_text(fixed_frame), &found);
      if (status != ASOF_STATUS_OK)
        fail(status);
      return message(found, target_time, target_frame, source_frame);
    }
    _validateFrameId("lookupTransform argument target_frame", target_frame);
    _validateFrameId("lookupTransform argument source_frame", source_frame);
    _validateFrameId("lookupTransform argument fixed_frame", fixed_frame);
    // At time zero each leg has a latest time of its own.
    tf::Transform far, near;
    look(fixed_frame, source_frame, source_stamp, far);
    const std::int64_t at = look(target_frame, fixed_frame, target_stamp, near);
    return message(near * far, detail::time_of(at), target_frame, source_frame);
  }

  /// Whether there is such a transform; `error_msg`, if given, is why not.
#ifdef ASOF_TF2_INTERFACE
  bool canTransform(const std::string &target_frame, const std::string &source_frame, const Time &time,
                    std::string *error_msg = nullptr) const override {
#else
  bool canTransform(const std::string &target_frame, const std::string &source_frame, const Time &time,
                    std::string *error_msg = nullptr) const {
#endif
    if (target_frame == source_frame)
      return true;
    if (!is_name(target_frame, error_msg) || !is_name(source_frame, error_msg) ||
        !exist({{"target_frame", &target_frame}, {"source_frame", &source_frame}}, error_msg))
      return false;
    return can(target_frame, source_frame, detail::nanoseconds(time), error_msg);
  }

  bool canTransform(const std::string &target_frame, const Time &target_time, const std::string &source_frame,
                    const Time &source_time, const std::string &fixed_frame,
                    std::string *error_msg = nullptr) const ASOF_TF2_OVERRIDE {
    if (!is_name(target_frame, error_msg) || !is_name(source_frame, error_msg) || !is_name(fixed_frame, error_msg) ||
        !exist({{"target_frame", &target_frame}, {"source_frame", &source_frame}, {"fixed_frame", &fixed_frame}},
               error_msg))
      return false;
    return can(target_frame, fixed_frame, detail::nanoseconds(target_time), error_msg) &&
           can(fixed_frame, source_frame, detail::nanoseconds(source_time), error_msg);
  }

  /// All frames.
  std::vector<std::string> getAllFrameNames() const ASOF_TF2_OVERRIDE {
    std::vector<std::string> names;
    for (tf::Frame frame : buffer_.frames())
      if (frame != 0)
        names.push_back(buffer_.name(frame));
    return names;
  }

#undef ASOF_TF2_OVERRIDE

#if ASOF_TF2_ROS == 1
  using Clock = double;
#else
  using Clock = Time;
#endif
  /// The frames as YAML; `current_time`, if it is not zero, adds how old the newest transforms are.
  std::string allFramesAsYAML(Clock current_time) const {
    std::string yaml;
    for_each_edge([&](const std::string &name, const Edge &edge) {
      yaml += name + ": \n  parent: '" + edge.parent + "'\n  broadcaster: '" + edge.authority + "'\n  rate: " +
              decimal(edge.rate()) + "\n  most_recent_transform: " + decimal(edge.newest()) +
              "\n  oldest_transform: " + decimal(edge.oldest()) + "\n";
      if (seconds(current_time) > 0)
        yaml += "  transform_delay: " + decimal(seconds(current_time) - edge.newest()) + "\n";
      yaml += "  buffer_length: " + decimal(edge.newest() - edge.oldest()) + "\n";
    });
    return yaml.empty() ? "{}" : yaml;
  }
  std::string allFramesAsYAML() const { return allFramesAsYAML(Clock()); }

  std::string allFramesAsString() const {
    std::string text;
    for_each_edge([&](const std::string &name, const Edge &edge) {
      text += "Frame " + name + " exists with parent " + edge.parent + ".\n";
    });
    return text;
  }

  /// The tree for Graphviz.
  std::string _allFramesAsDot(Clock) const { return buffer_.to_dot(); }
  std::string _allFramesAsDot() const { return buffer_.to_dot(); }

  using TransformableCallback =
      std::function<void(TransformableRequestHandle request, const std::string &target_frame,
                         const std::string &source_frame, Time time, TransformableResult result)>;

  /// Registers a callback for requests (ROS 1).
  TransformableCallbackHandle addTransformableCallback(const TransformableCallback &callback) {
    std::lock_guard<std::mutex> lock(requests_mutex_);
    callbacks_[++last_callback_] = std::make_shared<TransformableCallback>(callback);
    return last_callback_;
  }
  void removeTransformableCallback(TransformableCallbackHandle handle) {
    std::lock_guard<std::mutex> lock(requests_mutex_);
    callbacks_.erase(handle);
    for (auto request = requests_.begin(); request != requests_.end();)
      request = request->second.callback_handle == handle ? requests_.erase(request) : std::next(request);
    pending_ = requests_.size();
  }
  /// Calls back once when there is a transform, or there can be none any more: 0 if it is there now, the largest number if it
  /// is too old.
  TransformableRequestHandle addTransformableRequest(TransformableCallbackHandle handle, const std::string &target_frame,
                                                     const std::string &source_frame, Time time) {
    std::shared_ptr<TransformableCallback> callback;
    {
      std::lock_guard<std::mutex> lock(requests_mutex_);
      const auto found = callbacks_.find(handle);
      if (found != callbacks_.end())
        callback = found->second;
    }
    return request(handle, callback, target_frame, source_frame, time);
  }
  /// The same in one step (ROS 2).
  TransformableRequestHandle addTransformableRequest(const TransformableCallback &callback,
                                                     const std::string &target_frame, const std::string &source_frame,
                                                     Time time) {
    return request(0, std::make_shared<TransformableCallback>(callback), target_frame, source_frame, time);
  }
  void cancelTransformableRequest(TransformableRequestHandle handle) {
    std::lock_guard<std::mutex> lock(requests_mutex_);
    requests_.erase(handle);
    pending_ = requests_.size();
  }

  void setUsingDedicatedThread(bool value) { using_dedicated_thread_ = value; }
  bool isUsingDedicatedThread() const { return using_dedicated_thread_; }
  Duration getCacheLength() { return cache_time_; }

#ifdef ASOF_TF2_SIGNALS
  boost::signals2::connection _addTransformsChangedListener(boost::function<void(void)> callback) {
    return changed_.connect(callback);
  }
  void _removeTransformsChangedListener(boost::signals2::connection connection) { connection.disconnect(); }
#endif

  bool _frameExists(const std::string &frame) const { return buffer_.find(frame) != 0; }
  /// The parent of a frame at a time, at time zero the latest; false for a root.
  bool _getParent(const std::string &frame, Time time, std::string &parent) const {
    const tf::Frame found = parent_of(buffer_.find(frame), detail::nanoseconds(time));
    if (found == 0)
      return false;
    parent = buffer_.name(found);
    return true;
  }
  void _getFrameStrings(std::vector<std::string> &names) const { names = getAllFrameNames(); }

  /// Frames by number; 0 is none.
  CompactFrameID _lookupFrameNumber(const std::string &frame) const { return compact(buffer_.find(frame)); }
  CompactFrameID _lookupOrInsertFrameNumber(const std::string &frame) { return compact(buffer_.frame(frame)); }
  CompactFrameID _validateFrameId(const char *what, const std::string &frame) const {
    require_name(what, frame);
    const CompactFrameID found = _lookupFrameNumber(frame);
    if (found == 0)
      throw LookupException("\"" + frame + "\" passed to " + what + " does not exist. ");
    return found;
  }
  /// 0, or why there is none, as tf2_msgs/TF2Error numbers it.
  TF2Error _getLatestCommonTime(CompactFrameID target_frame, CompactFrameID source_frame, Time &time,
                                std::string *error) const {
    if (target_frame == 0 || source_frame == 0)
      return TF2Error(LOOKUP_ERROR);
    const std::string target = name_of(target_frame), source = name_of(source_frame);
    if (target == source) {
      time = own_stamp(target, Time());
      return TF2Error(0);
    }
    std::int64_t stamp = 0;
    const Status status =
        asof_tf_latest_common_time(buffer_.get(), detail::c_text(target), detail::c_text(source), &stamp, nullptr);
    if (status == ASOF_STATUS_OK) {
      time = detail::time_of(stamp);
      return TF2Error(0);
    }
    if (error != nullptr)
      *error = asof_last_error();
    return TF2Error(status == ASOF_STATUS_CYCLE ? LOOKUP_ERROR : CONNECTIVITY_ERROR);
  }
  /// The frames from one to the other, through a fixed one.
  void _chainAsVector(const std::string &target_frame, Time target_time, const std::string &source_frame,
                      Time source_time, const std::string &fixed_frame, std::vector<std::string> &output) const {
    output.clear();
    for (tf::Frame frame : chain(buffer_.find(fixed_frame), buffer_.find(source_frame), detail::nanoseconds(source_time)))
      output.push_back(buffer_.name(frame));
    for (tf::Frame frame : chain(buffer_.find(target_frame), buffer_.find(fixed_frame), detail::nanoseconds(target_time))) {
      const std::string name = buffer_.name(frame);
      if (output.empty() || output.back() != name)
        output.push_back(name);
    }
  }

  /// The buffer below, for what tf2 does not have: batches, paths, velocities, waits.
  tf::Buffer &buffer() { return buffer_; }
  const tf::Buffer &buffer() const { return buffer_; }

private:
  friend class TestBufferCore;
  /// As in tf2_msgs/TF2Error.
  static constexpr int LOOKUP_ERROR = 1, CONNECTIVITY_ERROR = 2;
  static constexpr TransformableRequestHandle TOO_OLD = ~TransformableRequestHandle(0);

  struct Request {
    TransformableCallbackHandle callback_handle;
    std::shared_ptr<TransformableCallback> callback;
    std::string target, source;
    Time time;
  };
  struct Edge : AsofTfEdge {
    std::string parent, authority;
    double newest() const { return double(AsofTfEdge::newest) * 1e-9; }
    double oldest() const { return double(AsofTfEdge::oldest) * 1e-9; }
    double rate() const { return is_static ? 10000.0 : double(samples) / std::max(newest() - oldest(), 0.0001); }
  };

  /// What the threads of one place look up again and again, prepared.
  struct alignas(64) Repeated {
    struct Lookup {
      std::string target, source;
      asof::detail::Handle<AsofTfPath, asof_tf_path_free> path;
      bool is(const std::string &target, const std::string &source) const {
        // Many lookups have a target in common.
        return this->source == source && this->target == target;
      }
    };
    std::atomic_flag is_taken = ATOMIC_FLAG_INIT;
    std::array<Lookup, 4> lookups;
    /// Looked up last without being prepared, and where it goes when it is looked up again.
    Lookup last;
    std::size_t next = 0;
  };

  Duration cache_time_;
  tf::Buffer buffer_;
  std::unique_ptr<std::array<Repeated, 16>> repeated_ = std::make_unique<std::array<Repeated, 16>>();
  bool using_dedicated_thread_ = false;
  /// The upper half of every frame of this buffer.
  mutable std::atomic<tf::Frame> upper_{0};
  std::mutex requests_mutex_;
  std::map<TransformableCallbackHandle, std::shared_ptr<TransformableCallback>> callbacks_;
  std::map<TransformableRequestHandle, Request> requests_;
  TransformableCallbackHandle last_callback_ = 0;
  TransformableRequestHandle last_request_ = 0;
  std::atomic<std::size_t> pending_{0};
#ifdef ASOF_TF2_SIGNALS
  boost::signals2::signal<void(void)> changed_;
#endif

  static AsofTfOptions options(Duration cache_time) {
    AsofTfOptions options = asof_tf_options();
    options.window = detail::nanoseconds(cache_time);
    options.last_wins = true;
    return options;
  }

  static void warn(const char *what, const std::string &authority) {
    std::fprintf(stderr, "asof: %s, from authority \"%s\": %s\n", what, authority.c_str(), asof_last_error());
  }

  template <typename Kind> [[noreturn]] static void throw_extrapolation(const std::string &text) {
    throw typename detail::ExtrapolationOf<Kind>::type(text);
  }
  [[noreturn]] static void fail(Status status) {
    const std::string text = asof_last_error();
    std::int64_t oldest = 0, newest = 0;
    if (status == ASOF_STATUS_NO_DATA ||
        (asof_last_extrapolation(&oldest, &newest) == ASOF_STATUS_OK && oldest == newest))
      throw_extrapolation<NoDataForExtrapolationException>(text);
    switch (status) {
    case ASOF_STATUS_NOT_FOUND:
    case ASOF_STATUS_CYCLE:
      throw LookupException(text);
    case ASOF_STATUS_DISCONNECTED:
      throw ConnectivityException(text);
    case ASOF_STATUS_EXTRAPOLATION_PAST:
      throw_extrapolation<BackwardExtrapolationException>(text);
    case ASOF_STATUS_EXTRAPOLATION_FUTURE:
      throw_extrapolation<ForwardExtrapolationException>(text);
    case ASOF_STATUS_TIMED_OUT:
      throw TimeoutException(text);
    case ASOF_STATUS_INVALID_ARGUMENT:
      throw InvalidArgumentException(text);
    default:
      throw TransformException(text);
    }
  }

  /// A lookup that this thread repeats: without names to check and to find. False if it does not, or if there is no transform;
  /// a lookup by name then says why. Threads that share a place do not wait for each other.
  bool repeat(const std::string &target, const std::string &source, std::int64_t &stamp, tf::Transform &found) const {
    static std::atomic<std::size_t> threads{0};
    thread_local const std::size_t number = threads++;
    Repeated &mine = (*repeated_)[number % repeated_->size()];
    if (mine.is_taken.test_and_set(std::memory_order_acquire))
      return false;
    AsofTfPath *path = nullptr;
    for (const auto &lookup : mine.lookups)
      if (lookup.path.get() != nullptr && lookup.is(target, source)) {
        path = lookup.path.get();
        break;
      }
    if (path == nullptr)
      prepare(mine, target, source);
    const bool is_found =
        path != nullptr && (stamp != 0 ? asof_tf_path_lookup(path, stamp, &found)
                                       : asof_tf_path_lookup_latest(path, &found, &stamp, nullptr)) == ASOF_STATUS_OK;
    mine.is_taken.clear(std::memory_order_release);
    return is_found;
  }
  /// Prepares a lookup that is asked for twice in turn, in the place of the oldest one.
  void prepare(Repeated &mine, const std::string &target, const std::string &source) const {
    if (!mine.last.is(target, source)) {
      mine.last.target = target;
      mine.last.source = source;
      return;
    }
    AsofTfPath *path = nullptr;
    if (target == source || fault(target) != nullptr || fault(source) != nullptr ||
        asof_tf_path_new(buffer_.get(), detail::c_text(target), detail::c_text(source), &path) != ASOF_STATUS_OK)
      return;
    auto &oldest = mine.lookups[mine.next++ % mine.lookups.size()];
    oldest.path = asof::detail::Handle<AsofTfPath, asof_tf_path_free>(path);
    std::swap(oldest.target, mine.last.target);
    std::swap(oldest.source, mine.last.source);
  }

  /// Stores a transform, and returns its time: that which was asked for or, at zero, the latest.
  std::int64_t look(const std::string &target, const std::string &source, std::int64_t stamp,
                    tf::Transform &found) const {
    if (target == source)
      return stamp != 0 ? stamp : detail::nanoseconds(own_stamp(target, Time()));
    const Status status =
        stamp != 0 ? asof_tf_lookup(buffer_.get(), detail::c_text(target), detail::c_text(source), stamp, &found)
                   : asof_tf_lookup_latest(buffer_.get(), detail::c_text(target), detail::c_text(source), &found, &stamp, nullptr);
    if (status == ASOF_STATUS_NO_DATA && stamp == 0)
      throw ConnectivityException(asof_last_error());
    if (status != ASOF_STATUS_OK)
      fail(status);
    return stamp;
  }

  bool can(const std::string &target, const std::string &source, std::int64_t stamp, std::string *why) const {
    if (target == source)
      return true;
    tf::Transform found;
    const Status status =
        stamp != 0 ? asof_tf_can_transform(buffer_.get(), detail::c_text(target), detail::c_text(source), stamp)
                   : asof_tf_lookup_latest(buffer_.get(), detail::c_text(target), detail::c_text(source), &found, nullptr, nullptr);
    if (status != ASOF_STATUS_OK && why != nullptr)
      *why += asof_last_error();
    return status == ASOF_STATUS_OK;
  }

  /// At time zero, a frame's identity has the time of its newest sample.
  Time own_stamp(const std::string &name, const Time &time) const {
    AsofTfEdge edge;
    if (detail::nanoseconds(time) != 0 || asof_tf_edge(buffer_.get(), buffer_.find(name), &edge, nullptr) != ASOF_STATUS_OK)
      return time;
    return detail::time_of(edge.newest);
  }

  static TransformStamped message(const tf::Transform &transform, const Time &time, const std::string &target,
                                  const std::string &source) {
    TransformStamped message;
    detail::set_stamp(message, time);
    message.header.frame_id = target;
    message.child_frame_id = source;
    transform.write_msg(message.transform);
    return message;
  }

  static const char *fault(const std::string &name) {
    return name.empty() ? "in tf2 frame_ids cannot be empty"
           : name[0] == '/' ? "in tf2 frame_ids cannot start with a '/'" : nullptr;
  }
  static void require_name(const char *what, const std::string &name) {
    if (const char *why = fault(name))
      throw InvalidArgumentException("Invalid argument \"" + name + "\" passed to " + what + " " + why);
  }
  static bool is_name(const std::string &name, std::string *why) {
    const char *found = fault(name);
    if (found != nullptr && why != nullptr)
      *why += "Invalid frame \"" + name + "\": " + found;
    return found == nullptr;
  }
  bool exist(std::initializer_list<std::pair<const char *, const std::string *>> frames, std::string *why) const {
    bool all = true;
    for (const auto &[role, name] : frames) {
      if (buffer_.find(*name) != 0)
        continue;
      if (why != nullptr)
        *why += std::string(all ? "" : " ") + "canTransform: " + role + " " + *name + " does not exist.";
      all = false;
    }
    return all;
  }

  CompactFrameID compact(tf::Frame frame) const {
    if (frame == 0)
      return 0;
    upper_ = frame >> 32 << 32;
    return CompactFrameID(frame) + 1;
  }
  std::string name_of(CompactFrameID frame) const {
    char *name = nullptr;
    if (frame == 0 || asof_tf_frame_name(buffer_.get(), upper_ | (frame - 1), &name) != ASOF_STATUS_OK)
      throw LookupException("Reverse lookup of frame id " + std::to_string(frame) + " failed!");
    std::string text = name;
    asof_text_free(&name);
    return text;
  }
  /// 0 for a root, and where its edge has nothing for the time.
  tf::Frame parent_of(tf::Frame frame, std::int64_t stamp) const {
    tf::Frame parent = 0;
    AsofTfEdge edge;
    if (stamp == 0)
      return asof_tf_edge(buffer_.get(), frame, &edge, nullptr) == ASOF_STATUS_OK ? edge.parent : 0;
    return asof_tf_parent(buffer_.get(), frame, &stamp, &parent) == ASOF_STATUS_OK ? parent : 0;
  }
  std::vector<tf::Frame> ancestors(tf::Frame frame, std::int64_t stamp) const {
    std::vector<tf::Frame> frames;
    for (; frame != 0 && frames.size() <= MAX_GRAPH_DEPTH; frame = parent_of(frame, stamp))
      frames.push_back(frame);
    return frames;
  }
  /// From source up to what both have above them, and down to the target; none if they are the same.
  std::vector<tf::Frame> chain(tf::Frame target, tf::Frame source, std::int64_t stamp) const {
    if (target == source)
      return {};
    std::vector<tf::Frame> up = ancestors(source, stamp), down = ancestors(target, stamp);
    if (up.empty() || down.empty() || up.back() != down.back())
      throw ConnectivityException("frames are not connected: they are in different trees");
    tf::Frame top = up.back();
    while (!up.empty() && !down.empty() && up.back() == down.back()) {
      top = up.back();
      up.pop_back();
      down.pop_back();
    }
    up.push_back(top);
    up.insert(up.end(), down.rbegin(), down.rend());
    return up;
  }

  template <typename Visit> void for_each_edge(Visit visit) const {
    for (tf::Frame frame : buffer_.frames()) {
      Edge edge;
      asof::detail::Text authority;
      if (frame == 0 || asof_tf_edge(buffer_.get(), frame, &edge, authority.place()) != ASOF_STATUS_OK)
        continue;
      edge.parent = buffer_.name(edge.AsofTfEdge::parent);
      edge.authority = authority.is_none() ? "no recorded authority" : authority.string();
      visit(buffer_.name(frame), edge);
    }
  }
  static std::string decimal(double number) {
    char text[400];
    std::snprintf(text, sizeof text, "%.3f", number);
    return text;
  }
  static double seconds(double time) { return time; }
  static double seconds(std::chrono::time_point<std::chrono::system_clock, std::chrono::nanoseconds> time) {
    return double(time.time_since_epoch().count()) * 1e-9;
  }

  bool is_too_old(const std::string &target, const std::string &source, const Time &time) const {
    std::int64_t latest = 0;
    bool is_static = false;
    return asof_tf_latest_common_time(buffer_.get(), detail::c_text(target), detail::c_text(source), &latest, &is_static) ==
               ASOF_STATUS_OK &&
           !is_static && latest - detail::nanoseconds(time) > detail::nanoseconds(cache_time_);
  }
  TransformableRequestHandle request(TransformableCallbackHandle handle,
                                     const std::shared_ptr<TransformableCallback> &callback, const std::string &target,
                                     const std::string &source, const Time &time) {
    if (target == source || can(target, source, detail::nanoseconds(time), nullptr))
      return 0;
    if (is_too_old(target, source, time))
      return TOO_OLD;
    TransformableRequestHandle number;
    {
      std::lock_guard<std::mutex> lock(requests_mutex_);
      number = ++last_request_;
      requests_.emplace(number, Request{handle, callback, target, source, time});
      pending_ = requests_.size();
    }
    // What was missing may have come before the request was in its place.
    test_requests();
    return number;
  }
  /// Tells the requests that can be answered, with no lock held: a callback may use the buffer, and add requests.
  void test_requests() {
    if (pending_ != 0) {
      std::vector<std::pair<TransformableRequestHandle, TransformableResult>> ended;
      std::vector<Request> told;
      {
        std::lock_guard<std::mutex> lock(requests_mutex_);
        for (auto entry = requests_.begin(); entry != requests_.end();) {
          const Request &request = entry->second;
          const bool is_late = is_too_old(request.target, request.source, request.time);
          if (!is_late && !can(request.target, request.source, detail::nanoseconds(request.time), nullptr)) {
            ++entry;
            continue;
          }
          ended.emplace_back(entry->first, is_late ? TransformFailure : TransformAvailable);
          told.push_back(std::move(entry->second));
          entry = requests_.erase(entry);
        }
        pending_ = requests_.size();
      }
      for (std::size_t place = 0; place < told.size(); place++)
        if (const Request &request = told[place]; request.callback && *request.callback)
          (*request.callback)(ended[place].first, request.target, request.source, request.time, ended[place].second);
    }
#ifdef ASOF_TF2_SIGNALS
    changed_();
#endif
  }
};

/// What tf2's own tests look into.
class TestBufferCore {
public:
  TF2Error _walkToTopParent(BufferCore &buffer, Time time, CompactFrameID target, CompactFrameID source, std::string *,
                            std::vector<CompactFrameID> *chain) const {
    chain->clear();
    const std::int64_t stamp = detail::nanoseconds(time);
    for (tf::Frame frame : buffer.chain(full(buffer, target), full(buffer, source), stamp))
      chain->push_back(buffer.compact(frame));
    return TF2Error(0);
  }
  std::string _lookupFrameString(BufferCore &buffer, CompactFrameID frame) const { return buffer.name_of(frame); }

private:
  static tf::Frame full(const BufferCore &buffer, CompactFrameID frame) {
    return frame == 0 ? 0 : buffer.upper_ | (frame - 1);
  }
};

} // namespace tf2
} // namespace asof

#endif
