"""A robot of ROS 1: rospy of Debian, at the master that ROS_MASTER_URI names.

rosbridge_robot.py    /chatter at 100 Hz, /imu, /bulk of 1 MB at 10 Hz, a latched /tf_static that was sent once, and /late after 4 s
"""

import time

import rospy
from geometry_msgs.msg import Quaternion, Transform, TransformStamped, Vector3
from sensor_msgs.msg import Imu
from std_msgs.msg import Header, MultiArrayLayout, String, UInt8MultiArray
from tf2_msgs.msg import TFMessage

rospy.init_node("robot", disable_signals=True)
words = rospy.Publisher("/chatter", String, queue_size=100)
motion = rospy.Publisher("/imu", Imu, queue_size=100)
bulk = rospy.Publisher("/bulk", UInt8MultiArray, queue_size=10)
static = rospy.Publisher("/tf_static", TFMessage, queue_size=1, latch=True)
lidar = Transform(Vector3(1.0, 2.0, 3.0), Quaternion(0.0, 0.0, 0.0, 1.0))
static.publish(TFMessage([TransformStamped(Header(0, rospy.Time(7), "base"), "lidar", lidar)]))
print("ready", flush=True)
late, number = None, 0
while True:
    words.publish(String(f"word {number}"))
    one = Imu(header=Header(0, rospy.Time(number // 1000, number % 1000 * 1_000_000), "base"))
    one.angular_velocity.x, one.linear_acceleration_covariance = number * 0.5, [float(number)] * 9
    motion.publish(one)
    if number % 10 == 0:
        bulk.publish(UInt8MultiArray(MultiArrayLayout([], number // 10), bytes([number // 10 % 251]) * 1_000_000))
    if number == 400:
        late = rospy.Publisher("/late", String, queue_size=10, latch=True)
        late.publish(String("kept"))
    number += 1
    time.sleep(0.01)
