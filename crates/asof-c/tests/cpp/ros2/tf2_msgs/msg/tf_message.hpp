// Stands in for ROS 2's message where ROS 2 is not.
#pragma once
#include <geometry_msgs/msg/transform_stamped.hpp>
#include <vector>

namespace tf2_msgs::msg {
struct TFMessage {
  std::vector<geometry_msgs::msg::TransformStamped> transforms;
};
} // namespace tf2_msgs::msg
