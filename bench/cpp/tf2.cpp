// Debian's tf2 and asof from C++, for the suite `cpp`: the same trees and the same questions. bench/cpp/tf2 builds it.
#include <tf2/buffer_core.h>

#include <asof/tf2.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

namespace {

/// As in the suite.
enum Contender { THEIRS, CORE, BUFFER, PATH };

struct Trees {
  tf2::BufferCore theirs;
  asof::tf2::BufferCore ours;

  void set(const std::string &parent, const std::string &child, std::int64_t stamp, double angle) {
    geometry_msgs::TransformStamped message;
    message.header.frame_id = parent;
    message.child_frame_id = child;
    message.header.stamp = asof::tf2::detail::time_of(stamp);
    message.transform.translation.x = angle;
    message.transform.rotation.z = std::sin(angle / 2);
    message.transform.rotation.w = std::cos(angle / 2);
    theirs.setTransform(message, "bench");
    ours.setTransform(message, "bench");
  }
};

template <typename Core> double ask(const Core &core, const std::string &target, const std::string &source, std::int64_t stamp) {
  const ros::Time time = stamp != 0 ? ros::Time(std::uint32_t(stamp / 1000000000), std::uint32_t(stamp % 1000000000)) : ros::Time();
  return core.lookupTransform(target, source, time).transform.translation.x;
}

double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) * 1e9 + double(time.tv_nsec);
}

/// Eight readers of the latest transform beside a writer at 1 kHz: the middle of their CPU time per lookup.
template <typename Core> double contended(Core &core, const std::string &target, const std::string &source, std::int64_t from,
                                          int lookups) {
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    geometry_msgs::TransformStamped message;
    message.header.frame_id = "frame_0";
    message.child_frame_id = "frame_1";
    message.transform.rotation.w = 1;
    for (std::int64_t step = 1; !is_over; step++) {
      message.header.stamp = asof::tf2::detail::time_of(from + step * 1000000);
      core.setTransform(message, "bench");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::vector<double> times(8);
  std::vector<std::thread> readers;
  for (double &time : times)
    readers.emplace_back([&] {
      double sum = 0;
      const double before = now();
      for (int lookup = 0; lookup < lookups; lookup++)
        sum += ask(core, target, source, 0);
      time = (now() - before) / lookups + sum * 0;
    });
  for (std::thread &reader : readers)
    reader.join();
  is_over = true;
  writer.join();
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  return times[4];
}

} // namespace

extern "C" {

void *cpp_trees_new() { return new Trees; }
void cpp_trees_free(void *trees) { delete static_cast<Trees *>(trees); }
void cpp_trees_set(void *trees, const char *parent, const char *child, std::int64_t stamp, double angle) {
  static_cast<Trees *>(trees)->set(parent, child, stamp, angle);
}
/// The sum of the lookups, one for each stamp; those at zero are of the latest.
double cpp_trees_lookup(const void *trees, int contender, const char *target_name, const char *source_name,
                        const std::int64_t *stamps, std::uint64_t count) {
  const Trees &both = *static_cast<const Trees *>(trees);
  const std::string target = target_name, source = source_name;
  const auto &buffer = both.ours.buffer();
  double sum = 0;
  if (contender == PATH) {
    auto path = buffer.path(target, source);
    for (std::uint64_t place = 0; place < count; place++)
      sum += stamps[place] != 0 ? path.lookup(stamps[place]).translation[0] : path.lookup_latest().transform.translation[0];
    return sum;
  }
  for (std::uint64_t place = 0; place < count; place++) {
    const std::int64_t stamp = stamps[place];
    sum += contender == THEIRS ? ask(both.theirs, target, source, stamp)
           : contender == CORE ? ask(both.ours, target, source, stamp)
           : stamp != 0        ? buffer.lookup(target, source, stamp).translation[0]
                               : buffer.lookup_latest(target, source).transform.translation[0];
  }
  return sum;
}
/// Many lookups by one call.
double cpp_trees_batch(const void *trees, const char *target, const char *source, const std::int64_t *stamps, std::uint64_t count) {
  std::vector<asof::tf::Transform> found(count);
  static_cast<const Trees *>(trees)->ours.buffer().path(target, source).lookup_many(stamps, count, found.data());
  double sum = 0;
  for (const auto &one : found)
    sum += one.translation[0];
  return sum;
}
/// Nanoseconds of CPU time per lookup.
double cpp_trees_contended(void *trees, int contender, const char *target, const char *source, std::int64_t from, int lookups) {
  Trees &both = *static_cast<Trees *>(trees);
  return contender == THEIRS ? contended(both.theirs, target, source, from, lookups)
                             : contended(both.ours, target, source, from, lookups);
}
}
