// The C++ half of two processes: reads what `shared_writer.rs` writes.
//
//   shared_reader [PREFIX] [SCANS]
//
// Ends with success when all scans came, whole and in order, and the bumper was seen.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "asof_hot.hpp"

struct Odometry {
    double position[3];
    double orientation[4];
    double velocity[6];
};

struct Scan {
    std::uint32_t number;
    std::uint32_t count;
    float ranges[720];
};

template <typename Open>
auto wait_for(Open open) {
    for (int tries = 0;; ++tries) {
        try {
            return open();
        } catch (const asof::Error& error) {
            if (tries == 1000) throw;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
}

int main(int argc, char** argv) {
    const std::string prefix = argc > 1 ? argv[1] : "asof-example";
    const std::uint32_t wanted = argc > 2 ? std::atoi(argv[2]) : 200;
    try {
        auto odometry = wait_for([&] { return asof::LatestReader<Odometry>(prefix + "-odometry", "Odometry"); });
        auto scans = wait_for([&] { return asof::RingConsumer<Scan, 8>(prefix + "-scan", "Scan"); });
        auto bumper = wait_for([&] { return asof::LatchObserver(prefix + "-bumper"); });
        asof::LatchResetter resetter(prefix + "-bumper");

        std::uint32_t next = 0;
        std::uint64_t poses = 0, hits = 0;
        const auto start = std::chrono::steady_clock::now();
        while (next < wanted) {
            while (auto scan = scans.try_read()) {
                if ((*scan)->number != next || (*scan)->count != 720) throw std::runtime_error("a scan is missing");
                for (float range : (*scan)->ranges)
                    if (range != static_cast<float>(next)) throw std::runtime_error("a scan is torn");
                ++next;
            }
            if (auto pose = odometry.read()) {
                for (double v : pose->value.velocity)
                    if (v != pose->value.position[0]) throw std::runtime_error("a pose is torn");
                ++poses;
            }
            if (auto count = bumper.new_count()) {
                hits = count;
                resetter.reset(count);
            }
            if (std::chrono::steady_clock::now() - start > std::chrono::seconds(60)) throw std::runtime_error("nothing comes");
        }
        if (!poses || !hits || bumper.is_triggered()) throw std::runtime_error("a pose or the bumper was missed");
        std::printf("read %u scans, %lu poses, bumper %lu times; the last pose was %lu ns old\n", next,
                    static_cast<unsigned long>(poses), static_cast<unsigned long>(hits),
                    static_cast<unsigned long>(odometry.read()->age_ns()));

        try {
            asof::LatestReader<Scan> wrong(prefix + "-odometry", "Scan");
            throw std::logic_error("a segment of another type was opened");
        } catch (const asof::Error& error) {
            std::printf("as it should be: %s\n", error.what());
        }
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
