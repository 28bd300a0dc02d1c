// ROS 1's own bag reader, called from the suite `formats`: every message of a bag, payload copied into a buffer
// as a program that decodes it would have it.

#include <cstdint>
#include <vector>

#include <rosbag/bag.h>
#include <rosbag/view.h>

namespace {

// The stream that `MessageInstance::write` needs: a buffer to write into.
struct Room {
    std::vector<uint8_t> bytes;
    uint8_t* advance(uint32_t length) {
        if (bytes.size() < length) bytes.resize(length);
        return bytes.data();
    }
};

}  // namespace

// Counts the messages of a bag and adds up the lengths of their payloads; 1 if that failed.
extern "C" int librosbag_iterate(char const* path, uint64_t* messages, uint64_t* bytes) {
    try {
        rosbag::Bag bag(path, rosbag::bagmode::Read);
        rosbag::View view(bag);
        Room room;
        for (rosbag::MessageInstance const& message : view) {
            message.write(room);
            *messages += 1;
            *bytes += message.size();
        }
        return 0;
    } catch (std::exception const&) {
        return 1;
    }
}
