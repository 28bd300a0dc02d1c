#!/usr/bin/env bash
# Builds ROS 1's bag reader into a shared library for the suite `formats`: librosbag.sh OUT.so
set -euo pipefail
cd "$(dirname "$0")"
if [ ! -e /usr/include/rosbag/bag.h ]; then
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    $as_root apt-get -o DPkg::Lock::Timeout=300 update -qq >&2
    DEBIAN_FRONTEND=noninteractive $as_root apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends \
        librosbag-storage-dev g++ >&2
fi
mkdir -p "$(dirname "$1")"
# Debian puts the headers of pluginlib and what it needs one folder deeper than rosbag's own look for them.
headers=()
for name in pluginlib class_loader rcutils rcpputils ament_index_cpp tinyxml2_vendor; do
    [ ! -d "/usr/include/$name/$name" ] || headers+=("-I/usr/include/$name")
done
g++ -std=c++17 -O2 -DNDEBUG -fPIC -shared -w "${headers[@]}" -o "$1" librosbag.cpp \
    -lrosbag_storage -lroscpp_serialization -lrostime -lcpp_common -lboost_filesystem -lboost_system
