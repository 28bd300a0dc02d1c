// What the C++ forms in shared memory promise, step by step in one process. `ci/hot/hot-cpp` runs it; two processes are in
// `examples/shared_robot.cpp`.
#include "asof_hot.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

#define CHECK(holds)                                                                       \
    do {                                                                                   \
        if (!(holds)) {                                                                    \
            std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #holds); \
            std::abort();                                                                  \
        }                                                                                  \
    } while (false)

namespace before {
struct Odometry {
    double x, y;
};
}  // namespace before
namespace larger {
struct Odometry {
    double x, y, yaw;
};
}  // namespace larger
namespace turned {
struct Odometry {
    double y, x;
};
}  // namespace turned
ASOF_FIELDS(before::Odometry, x, y);
ASOF_FIELDS(turned::Odometry, y, x);

static std::string prefix = "asof-hot-cpp-" + std::to_string(::getpid());
static std::vector<std::string> made;
std::string name(const char* topic) {
    made.push_back(prefix + "." + topic);
    return made.back();
}

template <typename Open>
std::string refusal(Open&& open) {
    try {
        open();
    } catch (const asof::Error& error) {
        return error.what();
    }
    return "";
}
bool has(const std::string& text, const char* part) {
    if (text.find(part) != std::string::npos) return true;
    std::fprintf(stderr, "'%s' is not in '%s'\n", part, text.c_str());
    return false;
}

void names_and_structs() {
    const std::string cut("odometry\0x", 10);
    CHECK(has(refusal([&] { asof::LatestWriter<before::Odometry> writer(cut); }), "NUL"));
    CHECK(has(refusal([&] { asof::LatchTrigger trigger(cut, 1s); }), "NUL") && has(refusal([&] { asof::remove(cut); }), "NUL"));
    const auto odometry = name("odometry");
    asof::LatestWriter<before::Odometry> writer(odometry);
    writer.write({1, 2});
    asof::LatestReader<before::Odometry> reader(odometry);
    CHECK(reader.read()->value.y == 2 && reader.read()->is_fresh(60s));
    for (const auto& told : {refusal([&] { asof::LatestReader<larger::Odometry> changed(odometry); }),
                             refusal([&] { asof::LatestReader<turned::Odometry> changed(odometry); })}) {
        CHECK(has(told, "the struct Odometry has changed"));
        CHECK(has(told, ("rm /dev/shm/" + odometry).c_str()));
    }
    CHECK(has(refusal([&] { asof::RingConsumer<before::Odometry, 4> ring(odometry); }), "holds a latest value"));
}

// A second try_read used to give the same sample, and dropping it to free the first.
void samples_held_at_once() {
    const auto scans = name("scans");
    asof::RingProducer<std::uint64_t, 4> producer(scans);
    asof::RingConsumer<std::uint64_t, 4> consumer(scans);
    for (std::uint64_t value = 1; value <= 4; ++value) CHECK(producer.push(value, value));
    auto first = consumer.try_read();
    auto second = consumer.try_read();
    CHECK(**first == 1 && **second == 2 && &**first != &**second);
    second.reset();
    CHECK(!producer.push(5));  // the second goes back after the first
    CHECK(**first == 1 && first->meta().stamp == 1);
    auto newest = consumer.try_latest();
    CHECK(**newest == 4 && newest->skipped() == 1);
    first.reset();
    for (std::uint64_t value = 5; value <= 7; ++value) CHECK(producer.push(value));
    CHECK(!producer.push(8) && **newest == 4);
    newest.reset();
    CHECK(producer.push(8));
    for (std::uint64_t value = 5; value <= 8; ++value) CHECK(**consumer.try_read() == value);
    CHECK(producer.high_water() == 4 && !producer.is_abandoned() && !consumer.is_abandoned());

    // What is held keeps the end open.
    producer.push(9);
    auto held = [&] {
        asof::RingConsumer<std::uint64_t, 4> moved(std::move(consumer));
        return moved.try_read();
    }();
    CHECK(**held == 9 && !producer.is_abandoned());
    held.reset();
    CHECK(producer.is_abandoned());

    auto slot = producer.try_write();
    bool is_refused = false;
    try {
        (void)producer.try_write();
    } catch (const std::logic_error&) {
        is_refused = true;
    }
    CHECK(is_refused);
}

void a_batch_makes_no_ring_that_drops_refuse() {
    const auto echoes = name("echoes");
    constexpr auto drop = asof::WhenFull::DropOldest;
    asof::RingProducer<std::uint64_t, 8, drop> producer(echoes);
    asof::RingConsumer<std::uint64_t, 8, drop> consumer(echoes);
    for (std::uint64_t value = 1; value <= 8; ++value) producer.push(value);
    auto batch = consumer.try_read_batch(2);
    for (std::uint64_t value = 9; value <= 30; ++value) CHECK(producer.push(value));
    CHECK((*batch)[0] == 1 && (*batch)[1] == 2 && producer.refused() == 0);
}

void broadcasts() {
    const auto ring = name("broadcast");
    asof::BroadcastProducer<std::uint64_t, 4, 2> producer(ring);
    asof::BroadcastReader<std::uint64_t, 4, 2> quick(ring, 0), slow(ring, 1);
    for (std::uint64_t value = 1; value <= 4; ++value) {
        auto slot = producer.try_write_lossless();
        **slot = value;
        std::move(*slot).commit();
        CHECK(**quick.try_read() == value);
    }
    CHECK(!producer.try_write_lossless() && slow.waiting() == 4);
    auto held = slow.try_read();
    CHECK(**held == 1);
    for (std::uint64_t value = 5; value <= 30; ++value) {
        auto slot = producer.try_write();
        **slot = value;
        std::move(*slot).commit();
    }
    CHECK(**held == 1 && **quick.try_latest() == 30 && quick.missed() == 25);
    held.reset();
    held = slow.try_read();
    CHECK(**held == 2 + held->meta().missed);
}

void frames_stay_while_they_are_looked_at() {
    struct Map {
        std::uint8_t cells[65536];
    };
    const auto map = name("map");
    asof::SnapshotReader<Map> reader(map);
    asof::SnapshotWriter<Map> writer(map);
    CHECK(!reader.has_new());  // the writer only came
    CHECK(writer.use_tiles(4096) == 16 && !writer.edit_tile(16));
    for (int step = 1; step <= 40; ++step) {
        writer.edit_tile(step % 16)[0] = std::byte(step);
        writer.publish();
        const auto frame = reader.latest();
        for (int last = step > 15 ? step - 15 : 1; last <= step; ++last)
            CHECK(frame->cells[last % 16 * 4096] == last);
    }
    auto frame = reader.latest();
    for (int step = 0; step < 5; ++step) {
        std::memset(&writer.back(), step, sizeof(Map));
        writer.publish();
        CHECK(frame->cells[8 * 4096] == 40 && reader.latest()->cells[8 * 4096] == 40);
    }
}

void settings_that_disagree() {
    const auto drive = name("drive");
    asof::Mux<double, 2, 1> mux(drive, {500ms, 500ms}, {{{2, 100ms}}});
    CHECK(refusal([&] { asof::Mux<double, 2, 1> same(drive, {500ms, 500ms}, {{{2, 100ms}}}); }).empty());
    CHECK(refusal([&] { asof::Mux<double, 2, 1> as_it_is(drive); }).empty());
    CHECK(has(refusal([&] { asof::Mux<double, 2, 1> other(drive, {500ms, 5s}, {{{2, 100ms}}}); }), "500ms there, 5s here"));
    CHECK(has(refusal([&] { asof::Mux<double, 2, 1> other(drive, {500ms, 500ms}, {{{2, 0s}}}); }), "100ms there, none here"));
    asof::Segment segment(drive);
    CHECK(!segment.is_writer_alive());
    auto source = mux.source(1);
    CHECK(segment.is_writer_alive());

    const auto bumper = name("bumper");
    CHECK(has(refusal([&] { asof::LatchResetter first(bumper); }), "does not exist"));
    asof::LatchTrigger trigger(bumper, 100ms);
    asof::LatchResetter resetter(bumper);
    asof::LatchObserver observer(bumper);
    CHECK(observer.silence() == 100ms && observer.state().kind == ASOF_LATCH_KIND_SILENT);
    static_assert(!std::is_constructible_v<bool, asof::LatchObserver::State>);
}

void permissions() {
    CHECK(has(refusal([] { asof::set_permissions(0060); }), "the owner needs read and write"));
    asof::set_permissions(0640);
    const auto topic = name("permissions");
    asof::LatestWriter<double> writer(topic);
    asof::set_permissions(0600);
    struct stat file {};
    CHECK(::stat(("/dev/shm/" + topic).c_str(), &file) == 0 && (file.st_mode & 0777) == 0640);
}

void event_loops() {
    const auto topic = name("events");
    asof::LatestWriter<std::uint64_t> writer(topic);
    asof::LatestReader<std::uint64_t> reader(topic);
    asof::Segment waits(topic), rings(topic);
    ::pollfd file{waits.event_fd(), POLLIN, 0};
    std::thread thread([&] {
        for (std::uint64_t number = 1; number <= 100; ++number) {
            writer.write(number);
            rings.notify();
        }
    });
    while (reader.generation() < 100) {
        CHECK(::poll(&file, 1, 60000) == 1);
        waits.clear_event_fd();
    }
    thread.join();
}

int main() {
    names_and_structs();
    samples_held_at_once();
    a_batch_makes_no_ring_that_drops_refuse();
    broadcasts();
    frames_stay_while_they_are_looked_at();
    settings_that_disagree();
    permissions();
    event_loops();
    for (const auto& topic : made) asof::remove(topic);
    std::puts("C++ in shared memory: all holds");
}
