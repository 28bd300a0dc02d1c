"""Prints a column of README.md's node before and after, as it is printed there, and a main that runs it: `before` or `after`, for ROS 2,
or with `ros1` for ROS 1, whose messages and times have other names.

    python3 readme.py README.md after ros1 >node.cpp
"""
import sys

readme, column = open(sys.argv[1]).read(), sys.argv[2]
block = readme.split("```cpp\n// before", 1)[1].split("```", 1)[0]
lines = ("// before" + block).splitlines()
at = lines[0].index("// after")
assert all(len(line) <= at or line[at - 1] == " " for line in lines), "the columns overlap"
node = "\n".join((line[:at] if column == "before" else line[at:]).rstrip() for line in lines)
main = """
#include <cstdio>

int main() {
  Planner planner;
  tf2_msgs::msg::TFMessage message;
  message.transforms.resize(1);
  auto &transform = message.transforms[0];
  transform.header.frame_id = "map";
  transform.child_frame_id = "lidar";
  transform.transform.rotation.w = 1;
  for (int second : {1, 3}) {
    transform.header.stamp.sec = second;
    transform.transform.translation.x = second * 10;
    planner.on_tf(message);
  }
  for (int second : {1, 2, 4})
    std::printf("%g\\n", planner.ahead(TIME(second)));
}
"""
text = node + "\n" + main
if sys.argv[3:] == ["ros1"]:
    for new, old in [("tf2_msgs/msg/tf_message.hpp", "tf2_msgs/TFMessage.h"), ("::msg::", "::"), ("tf2::TimePoint", "ros::Time"), ("TIME(", "ros::Time(")]:
        text = text.replace(new, old)
    # Where ROS 2's buffer_core.h has them already.
    text = "#include <tf2/exceptions.h>\n" + text
else:
    text = text.replace("TIME(second)", "tf2::TimePoint(std::chrono::seconds(second))")
print(text)
