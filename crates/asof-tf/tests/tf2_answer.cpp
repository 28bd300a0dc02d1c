// Reads updates and lookups from standard input, asks tf2, writes what it says to standard output.
//
//   N                                              forget everything
//   S parent child stamp pose static               an update
//   L target source stamp                          a lookup
//   F target target_time source source_time fixed  a lookup through a fixed frame
//
// Names end in a zero byte, stamps are 64-bit nanoseconds, a pose is seven doubles (rotation x, y, z, w, then
// translation), all as they lie in memory. For every lookup: one byte (0 an answer, 1 unknown frame, 2 not
// connected, 3 extrapolation, 4 anything else) and a pose.
#include <tf2/buffer_core.h>
#include <tf2/exceptions.h>

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

ros::Time stamp() {
  int64_t nanos = take<int64_t>();
  return ros::Time(uint32_t(nanos / 1000000000), uint32_t(nanos % 1000000000));
}

template <typename Ask> void answer(Ask ask) {
  double pose[7] = {0, 0, 0, 1, 0, 0, 0};
  unsigned char kind = 0;
  try {
    geometry_msgs::TransformStamped m = ask();
    pose[0] = m.transform.rotation.x;
    pose[1] = m.transform.rotation.y;
    pose[2] = m.transform.rotation.z;
    pose[3] = m.transform.rotation.w;
    pose[4] = m.transform.translation.x;
    pose[5] = m.transform.translation.y;
    pose[6] = m.transform.translation.z;
  } catch (const tf2::LookupException &) {
    kind = 1;
  } catch (const tf2::ConnectivityException &) {
    kind = 2;
  } catch (const tf2::ExtrapolationException &) {
    kind = 3;
  } catch (const tf2::TransformException &) {
    kind = 4;
  }
  putchar(kind);
  fwrite(pose, sizeof pose, 1, stdout);
}

} // namespace

int main() {
  auto buffer = std::make_unique<tf2::BufferCore>(ros::Duration(1000));
  for (int what = getchar(); what != EOF; what = getchar()) {
    if (what == 'N') {
      buffer = std::make_unique<tf2::BufferCore>(ros::Duration(1000));
    } else if (what == 'S') {
      geometry_msgs::TransformStamped m;
      m.header.frame_id = name();
      m.child_frame_id = name();
      m.header.stamp = stamp();
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
      ros::Time t = stamp();
      answer([&] { return buffer->lookupTransform(target, source, t); });
    } else if (what == 'F') {
      std::string target = name();
      ros::Time target_time = stamp();
      std::string source = name();
      ros::Time source_time = stamp();
      std::string fixed = name();
      answer([&] { return buffer->lookupTransform(target, target_time, source, source_time, fixed); });
    } else {
      return 4;
    }
  }
  return 0;
}
