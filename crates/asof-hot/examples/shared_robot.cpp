// The C++ half of two processes that share every structure; `shared_robot.rs` is the other half.
//
//   shared_robot write [PREFIX] [SCANS]
//   shared_robot read  [PREFIX] [SCANS]
//
// The reader exits successfully if everything arrived intact and in order.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "asof_hot.hpp"

using namespace std::chrono_literals;

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

struct Map {
    std::uint64_t number;
    std::uint8_t cells[65536];
};

struct Velocity {
    double linear;
    double angular;
};

// Compared field by field with the other half's declaration; the others by name and size.
ASOF_FIELDS(Odometry, position, orientation, velocity);
ASOF_FIELDS(Scan, number, count, ranges);
ASOF_FIELDS(Velocity, linear, angular);

using Echo = std::array<std::uint64_t, 18>;
using Frame = std::array<std::uint64_t, 512>;
constexpr auto DropOldest = asof::WhenFull::DropOldest;

void check(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

template <typename Values, typename Value>
bool all(const Values& values, Value value) {
    return std::all_of(std::begin(values), std::end(values), [&](auto found) { return found == value; });
}

// The other half may not be there yet.
template <typename Open>
auto wait_for(Open open) {
    for (int tries = 0;; ++tries) {
        try {
            return open();
        } catch (const asof::Error& error) {
            if (tries == 1000) throw;
            std::this_thread::sleep_for(10ms);
        }
    }
}

void write(const std::string& prefix, std::uint32_t scans) {
    asof::LatestWriter<Odometry> odometry(prefix + "-odometry");
    asof::Segment odometry_segment(prefix + "-odometry");
    asof::RingProducer<Scan, 8> ring(prefix + "-scan");
    asof::Segment bell(prefix + "-scan");
    asof::RingProducer<Echo, 4, DropOldest> echoes(prefix + "-echo");
    asof::SnapshotWriter<Map, 2> map(prefix + "-map");
    asof::TripleBufferWriter<Frame> frame(prefix + "-frame");
    asof::Mux<Velocity, 3, 1> mux(prefix + "-command", {60s, 60s, 60s}, {{{3, 0s}}});
    auto navigation = mux.source(0), teleop = mux.source(1), safety = mux.source(2);
    auto stop = mux.lock(0);
    auto director = mux.director();
    asof::LatchTrigger bumper(prefix + "-bumper");

    std::uint32_t number = 0;
    std::uint64_t echo_count = 0;
    while (number < scans) {
        const auto now = asof::now();
        const double x = number * 0.01;
        odometry.update(
            [&](Odometry& pose) {
                std::fill(std::begin(pose.position), std::end(pose.position), x);
                std::fill(std::begin(pose.orientation), std::end(pose.orientation), x);
                std::fill(std::begin(pose.velocity), std::end(pose.velocity), x);
            },
            now);
        odometry_segment.beat(now);
        // Two scans at a time, if there is room.
        if (auto slots = ring.try_write(std::min<std::uint32_t>(2, scans - number))) {
            for (std::size_t i = 0; i < slots->size(); ++i, ++number) {
                Scan& scan = (*slots)[i];
                scan.number = number;
                scan.count = 720;
                std::fill(std::begin(scan.ranges), std::end(scan.ranges), static_cast<float>(number));
            }
            std::move(*slots).commit(now);
            bell.notify();
        }
        // More than fit: the oldest are dropped.
        for (int i = 0; i < 6; ++i) {
            auto echo = echoes.try_write();
            check(echo.has_value(), "a ring that drops never refuses");
            (*echo)->fill(number);
            std::move(*echo).commit(now);
            ++echo_count;
        }
        Map& back = number % 2 ? map.edit() : map.back();
        back.number = number;
        std::fill(std::begin(back.cells), std::end(back.cells), static_cast<std::uint8_t>(number));
        map.publish(now);
        frame.back().fill(number);
        frame.publish(now);
        navigation.write({x, x}, now);
        if (number == scans / 2 || number == scans / 2 + 1) bumper.trigger(0b10, now);
        std::this_thread::sleep_for(200us);
    }

    // Which source is to be followed, step by step; the reader reports its progress.
    auto answer = wait_for([&] { return asof::LatestReader<std::uint64_t>(prefix + "-answer"); });
    const auto settled = [&](std::uint64_t step) {
        const auto start = asof::now();
        for (auto found = answer.read(); !found || found->value < step; found = answer.read()) {
            check(asof::since(start) < 60s, "no answer");
            std::this_thread::sleep_for(100us);
        }
    };
    const std::function<void()> script[] = {
        [&] { teleop.write({2.0, 2.0}); },
        [&] { safety.write({3.0, 3.0}); },
        [&] { check(director.force(0) && !director.force(9), "there are three sources"); },
        [&] { stop.engage(); },
        [&] {
            check(stop.is_engaged(), "it was engaged");
            stop.release();
            director.automatic();
        },
        [&] { safety.give_way(); },
    };
    std::uint64_t step = 0;
    for (const auto& act : script) {
        settled(step++);
        act();
    }
    settled(7);
    for (const char* topic : {"odometry", "scan", "echo", "map", "frame", "command", "bumper", "answer"})
        check(asof::remove(prefix + "-" + topic), "a segment is gone");
    std::printf("C++ wrote %u scans, %lu echoes of which %lu were dropped, %lu maps\n", number,
                static_cast<unsigned long>(echo_count), static_cast<unsigned long>(echoes.lost()),
                static_cast<unsigned long>(map.generation()));
}

void read(const std::string& prefix, std::uint32_t scans) {
    auto odometry = wait_for([&] { return asof::LatestReader<Odometry>(prefix + "-odometry"); });
    auto latch = wait_for([&] { return asof::LatchObserver(prefix + "-bumper"); });  // the writer creates it last
    asof::Segment odometry_segment(prefix + "-odometry"), scan_segment(prefix + "-scan");
    asof::RingConsumer<Scan, 8> ring(prefix + "-scan");
    asof::RingConsumer<Echo, 4, DropOldest> echoes(prefix + "-echo");
    asof::SnapshotReader<Map, 2> planner(prefix + "-map", 0), display(prefix + "-map", 1);
    asof::TripleBufferReader<Frame> camera(prefix + "-frame");
    asof::MuxOutput<Velocity, 3, 1> output(prefix + "-command");
    asof::LatchResetter resetter(prefix + "-bumper");

    const auto start = std::chrono::steady_clock::now();
    const auto is_late = [&](auto span) { return std::chrono::steady_clock::now() - start > span; };
    std::uint32_t next = 0;
    std::uint64_t poses = 0, seen = 0, hits = 0, last_echo = 0, echo_count = 0, last_map = 0, last_frame = 0;
    while (next < scans) {
        check(!is_late(60s), "nothing comes");
        scan_segment.wait_until(5ms, [&] { return ring.has_new(); });
        if (auto batch = ring.try_read_batch(4)) {
            for (std::size_t i = 0; i < batch->size(); ++i, ++next) {
                check((*batch)[i].number == next && batch->meta(i).generation == next + 1, "a scan is missing");
                check(all((*batch)[i].ranges, static_cast<float>(next)), "a scan is torn");
            }
        }
        if (auto pose = odometry.read_if_newer(seen)) {
            seen = pose->meta.generation;
            check(all(pose->value.velocity, pose->value.position[0]), "a pose is torn");
            check(pose->age() < 60s, "a pose is too old");
            ++poses;
        }
        while (auto echo = echoes.try_read()) {
            check(all(**echo, (**echo)[0]), "an echo is torn");
            const auto meta = echo->meta();
            // What was written before this reader attached does not count as missed.
            const bool is_next = meta.generation == last_echo + 1 + meta.missed;
            check(is_next || last_echo == 0, "an echo is unaccounted for");
            last_echo = meta.generation;
            ++echo_count;
        }
        for (auto* reader : {&planner, &display}) {
            const auto map = reader->latest();
            check(all(map.value.cells, static_cast<std::uint8_t>(map.value.number)), "a map is torn");
            check(map.meta.generation >= last_map, "time runs backwards");
        }
        last_map = std::max(last_map, display.latest().meta.generation);
        const auto frame = camera.latest();
        check(all(frame.value, frame.value[0]), "a frame is torn");
        check(frame.meta.generation >= last_frame, "time runs backwards");
        last_frame = frame.meta.generation;
        if (const auto command = output.read())
            check(command.value.linear == command.value.angular && command.age() < 60s, "a command is torn");
        hits += latch.new_events();
        const auto now = asof::now();
        if (const auto state = latch.state(now); state.kind == ASOF_LATCH_KIND_CONTACT) {
            check(state.contact.contacts == 0b10, "another bumper");
            check(state.elapsed(now) <= state.elapsed_since_first(now), "the last event is before the first");
            resetter.reset_if_elapsed(1ms);
        }
    }
    check(poses && last_map && last_frame && echo_count, "something never came");
    check(odometry_segment.is_writer_alive() && odometry.is_writer_alive(), "the writer is dead");
    check(odometry_segment.epoch() > 0 && odometry_segment.last_beat(), "the writer sends no heartbeat");
    check(scan_segment.is_reader_alive(), "we read the scans ourselves");

    // Which source is followed from now on, step by step.
    asof::LatestWriter<std::uint64_t> answer(prefix + "-answer");
    const auto follows = [&](std::uint32_t source, double value) {
        const auto command = output.read();
        return command && command.source() == source && (!value || command.value.linear == value);
    };
    const std::function<bool()> steps[] = {
        [&] { return follows(1, 2.0); },
        [&] { return follows(2, 3.0); },
        [&] { return follows(0, 0.0); },
        [&] { return output.read().answer == ASOF_MUX_ANSWER_LOCKED && output.read().lock() == 0; },
        [&] { return follows(2, 3.0); },
        [&] { return follows(1, 2.0); },
    };
    std::uint64_t step = 0;
    for (const auto& holds : steps) {
        answer.write(step++);
        while (!holds()) {
            check(!is_late(100s), "the wrong source is followed");
            std::this_thread::sleep_for(100us);
        }
    }
    while (latch.state().kind != ASOF_LATCH_KIND_CLEAR) {
        check(!is_late(80s), "the bumper stays hit");
        resetter.reset_if_elapsed(1ms);
    }
    hits += latch.new_events();
    check(hits && hits == latch.count(), "the bumper was missed");
    std::printf("C++ read %u scans, %lu poses, %lu echoes of %lu, %lu maps; bumper %lu times\n", next,
                static_cast<unsigned long>(poses), static_cast<unsigned long>(echo_count),
                static_cast<unsigned long>(last_echo), static_cast<unsigned long>(last_map),
                static_cast<unsigned long>(hits));

    try {
        asof::LatestReader<Scan> wrong(prefix + "-odometry");
    } catch (const asof::Error& error) {
        std::printf("as expected: %s\n", error.what());
        answer.write(7);
        return;
    }
    throw std::runtime_error("a segment of another type was opened");
}

int main(int argc, char** argv) {
    const std::string role = argc > 1 ? argv[1] : "", prefix = argc > 2 ? argv[2] : "asof-example";
    const std::uint32_t scans = argc > 3 ? std::atoi(argv[3]) : 200;
    try {
        check(role == "write" || role == "read", "usage: shared_robot write|read [PREFIX] [SCANS]");
        role == "write" ? write(prefix, scans) : read(prefix, scans);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
