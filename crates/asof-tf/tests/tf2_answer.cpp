// Reads updates and lookups from standard input, asks tf2, writes what it says to standard output.
//
//   N                                              a new buffer
//   C                                              forget all samples, as when the clock jumps back
//   S parent child stamp pose static               an update
//   L target source stamp                          a lookup
//   F target target_time source source_time fixed  a lookup through a fixed frame
//
// Names end in a zero byte, stamps are 64-bit nanoseconds, a pose is seven doubles (rotation x, y, z, w, then
// translation), all as they lie in memory. First one byte: the version of ROS, 1 or 2. Then for every lookup: one
// byte (0 an answer, 1 unknown frame, 2 not connected, 3 into the past, 4 into the future, 5 no or only one sample,
// 6 a circle, 9 anything else) and a pose.
#if __has_include(<tf2/buffer_core.hpp>)
#define ROS 2
#include <geometry_msgs/msg/transform_stamped.hpp>
#include <tf2/buffer_core.hpp>
#include <tf2/exceptions.hpp>
#include <tf2/time.hpp>
#elif __has_include(<geometry_msgs/msg/transform_stamped.hpp>)
#define ROS 2
#include <geometry_msgs/msg/transform_stamped.hpp>
#include <tf2/buffer_core.h>
#include <tf2/exceptions.h>
#include <tf2/time.h>
#else
#define ROS 1
#include <tf2/buffer_core.h>
#include <tf2/exceptions.h>
#endif

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace {

template <typename T> T take() {
  T value;
  if (fread(&value, sizeof value, 1, stdin) != 1)
    exit(2);
  return value;
}

std::string name() {
  std::string text;
  for (int c = getchar(); c != 0; c = getchar()) {
    if (c == EOF)
      exit(2);
    text.push_back(char(c));
  }
  return text;
}

#if ROS == 2
using Transform = geometry_msgs::msg::TransformStamped;
using Time = tf2::TimePoint;

Time time_of(int64_t nanos) { return Time(std::chrono::nanoseconds(nanos)); }

void set_stamp(Transform &m, int64_t nanos) {
  m.header.stamp.sec = int32_t(nanos / 1000000000);
  m.header.stamp.nanosec = uint32_t(nanos % 1000000000);
}

std::unique_ptr<tf2::BufferCore> make_buffer() {
  return std::make_unique<tf2::BufferCore>(std::chrono::seconds(1000));
}
#else
using Transform = geometry_msgs::TransformStamped;
using Time = ros::Time;

Time time_of(int64_t nanos) { return Time(uint32_t(nanos / 1000000000), uint32_t(nanos % 1000000000)); }

void set_stamp(Transform &m, int64_t nanos) { m.header.stamp = time_of(nanos); }

std::unique_ptr<tf2::BufferCore> make_buffer() { return std::make_unique<tf2::BufferCore>(ros::Duration(1000)); }
#endif

Time stamp() { return time_of(take<int64_t>()); }

unsigned char extrapolation(const std::string &text) {
  if (text.find("into the past") != std::string::npos)
    return 3;
  if (text.find("into the future") != std::string::npos)
    return 4;
  return 5;
}

template <typename Ask> void answer(Ask ask) {
  double pose[7] = {0, 0, 0, 1, 0, 0, 0};
  unsigned char kind = 0;
  try {
    Transform m = ask();
    pose[0] = m.transform.rotation.x;
    pose[1] = m.transform.rotation.y;
    pose[2] = m.transform.rotation.z;
    pose[3] = m.transform.rotation.w;
    pose[4] = m.transform.translation.x;
    pose[5] = m.transform.translation.y;
    pose[6] = m.transform.translation.z;
  } catch (const tf2::LookupException &e) {
    kind = std::string(e.what()).find("contains a loop") != std::string::npos ? 6 : 1;
  } catch (const tf2::ConnectivityException &) {
    kind = 2;
  } catch (const tf2::ExtrapolationException &e) {
    kind = extrapolation(e.what());
  } catch (const tf2::TransformException &) {
    kind = 9;
  }
  putchar(kind);
  fwrite(pose, sizeof pose, 1, stdout);
}

} // namespace

int main() {
  putchar(ROS);
  auto buffer = make_buffer();
  for (int what = getchar(); what != EOF; what = getchar()) {
    if (what == 'N') {
      buffer = make_buffer();
    } else if (what == 'C') {
      buffer->clear();
    } else if (what == 'S') {
      Transform m;
      m.header.frame_id = name();
      m.child_frame_id = name();
      set_stamp(m, take<int64_t>());
      m.transform.rotation.x = take<double>();
      m.transform.rotation.y = take<double>();
      m.transform.rotation.z = take<double>();
      m.transform.rotation.w = take<double>();
      m.transform.translation.x = take<double>();
      m.transform.translation.y = take<double>();
      m.transform.translation.z = take<double>();
      if (!buffer->setTransform(m, "compare", take<unsigned char>() != 0))
        return 3;
    } else if (what == 'L') {
      std::string target = name(), source = name();
      Time t = stamp();
      answer([&] { return buffer->lookupTransform(target, source, t); });
    } else if (what == 'F') {
      std::string target = name();
      Time target_time = stamp();
      std::string source = name();
      Time source_time = stamp();
      std::string fixed = name();
      answer([&] { return buffer->lookupTransform(target, target_time, source, source_time, fixed); });
    } else {
      return 4;
    }
  }
  return 0;
}
