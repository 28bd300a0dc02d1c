// Stands in for ROS 2's message where ROS 2 is not: the fields that asof/tf2.hpp uses.
#pragma once
#include <cstdint>
#include <string>

namespace geometry_msgs::msg {
struct TransformStamped {
  struct {
    struct {
      std::int32_t sec = 0;
      std::uint32_t nanosec = 0;
    } stamp;
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
} // namespace geometry_msgs::msg
