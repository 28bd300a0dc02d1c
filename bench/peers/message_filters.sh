#!/usr/bin/env bash
# Builds the peer that is Debian's message_filters (ROS 1): a shared library for the suite `window`, and for ci/ros/message-filters.
# usage: bench/peers/message_filters.sh [OUT.so]; needs a C++ compiler, and apt-get where the headers are not there yet.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
out="${1:-$here/../target/peers/libmessage_filters_peer.so}"
if [ ! -e /usr/include/message_filters/cache.h ]; then
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    echo "installing libmessage-filters-dev" >&2
    $as_root apt-get -o DPkg::Lock::Timeout=300 update -qq >&2
    DEBIAN_FRONTEND=noninteractive $as_root apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends \
        libmessage-filters-dev libboost-thread-dev g++ >&2
fi
mkdir -p "$(dirname "$out")"
echo "building $out" >&2
c++ -std=c++17 -O3 -march=native -fPIC -shared -DNDEBUG -w "$here/message_filters.cpp" -o "$out" \
    -lmessage_filters -lroscpp -lrosconsole -lrostime -lroscpp_serialization -lboost_thread -lboost_system -lpthread
