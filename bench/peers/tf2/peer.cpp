// Debian's tf2 (ROS 1) behind a plain C interface, with the loops on this side, so that a benchmark measures
// tf2 and not the way to it.
#include <tf2/buffer_core.h>
#include <tf2/exceptions.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace {

ros::Time stamp(int64_t nanos) {
  return ros::Time(uint32_t(nanos / 1000000000), uint32_t(nanos % 1000000000));
}

geometry_msgs::TransformStamped message(const char *parent, const char *child, int64_t nanos, const double *p) {
  geometry_msgs::TransformStamped m;
  m.header.frame_id = parent;
  m.header.stamp = stamp(nanos);
  m.child_frame_id = child;
  m.transform.translation.x = p[4];
  m.transform.translation.y = p[5];
  m.transform.translation.z = p[6];
  m.transform.rotation.x = p[0];
  m.transform.rotation.y = p[1];
  m.transform.rotation.z = p[2];
  m.transform.rotation.w = p[3];
  return m;
}

double taken(const geometry_msgs::TransformStamped &m) { return m.transform.translation.x + m.transform.rotation.w; }

} // namespace

extern "C" {

void *tf2_new(double window) { return new tf2::BufferCore(ros::Duration(window)); }

void tf2_free(void *buffer) { delete static_cast<tf2::BufferCore *>(buffer); }

// Poses are seven doubles each: x, y, z, w of the rotation, then the translation. Returns how many were taken.
uint64_t tf2_update(void *buffer, const char *parent, const char *child, const int64_t *stamps, const double *poses,
                    uint64_t count, int is_static) {
  auto *core = static_cast<tf2::BufferCore *>(buffer);
  uint64_t good = 0;
  for (uint64_t i = 0; i < count; ++i)
    good += core->setTransform(message(parent, child, stamps[i], poses + 7 * i), "bench", is_static != 0);
  return good;
}

// Stamp zero is "latest". Returns a sum, so that nothing is left out; failures count as one million.
double tf2_lookup(void *buffer, const char *target, const char *source, const int64_t *stamps, uint64_t count) {
  auto *core = static_cast<tf2::BufferCore *>(buffer);
  const std::string to = target, from = source;
  double sum = 0;
  for (uint64_t i = 0; i < count; ++i) {
    try {
      sum += taken(core->lookupTransform(to, from, stamp(stamps[i])));
    } catch (const tf2::TransformException &) {
      sum += 1e6;
    }
  }
  return sum;
}

// New static edges, from names[0] to names[1], names[2] to names[3], ...
uint64_t tf2_new_edges(void *buffer, const char *const *names, uint64_t count) {
  auto *core = static_cast<tf2::BufferCore *>(buffer);
  const double pose[7] = {0, 0, 0, 1, 1, 2, 3};
  uint64_t good = 0;
  for (uint64_t i = 0; i < count; ++i)
    good += core->setTransform(message(names[2 * i], names[2 * i + 1], 1000000000, pose), "bench", true);
  return good;
}

// Waits that are never fulfilled, to measure updates beside them.
void tf2_wait(void *buffer, const char *target, const char *source, int64_t nanos) {
  auto *core = static_cast<tf2::BufferCore *>(buffer);
  auto handle = core->addTransformableCallback(
      [](tf2::TransformableRequestHandle, const std::string &, const std::string &, ros::Time,
         tf2::TransformableResult) {});
  core->addTransformableRequest(handle, target, source, stamp(nanos));
}
}
