// Stands in for ROS 2's tf2/buffer_core_interface.hpp: the same functions, which asof/tf2.hpp has to implement.
#pragma once
#include <chrono>
#include <geometry_msgs/msg/transform_stamped.hpp>
#include <string>
#include <vector>

namespace tf2 {
using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::system_clock, Duration>;

class BufferCoreInterface {
public:
  using Message = geometry_msgs::msg::TransformStamped;
  virtual ~BufferCoreInterface() = default;
  virtual void clear() = 0;
  virtual Message lookupTransform(const std::string &, const std::string &, const TimePoint &) const = 0;
  virtual Message lookupTransform(const std::string &, const TimePoint &, const std::string &, const TimePoint &,
                                  const std::string &) const = 0;
  virtual bool canTransform(const std::string &, const std::string &, const TimePoint &, std::string *) const = 0;
  virtual bool canTransform(const std::string &, const TimePoint &, const std::string &, const TimePoint &,
                            const std::string &, std::string *) const = 0;
  virtual std::vector<std::string> getAllFrameNames() const = 0;
};
} // namespace tf2
