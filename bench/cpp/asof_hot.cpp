// asof-hot from C++, for the suite `cpp`: nanoseconds of CPU time per read, between threads and in shared memory.
#include <asof_hot.hpp>
#include <asof_hot_threads.hpp>

#include <ctime>

namespace {
using namespace std::chrono_literals;

struct Odometry { double values[18]; };
struct Command { double values[9]; };

template <typename T>
inline void keep(T& value) { asm volatile("" : : "r"(&value) : "memory"); }

double now() {
    std::timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) * 1e9 + double(time.tv_nsec);
}

template <typename Read>
double per_read(std::uint64_t count, Read&& read) {
    const double before = now();
    for (std::uint64_t number = 0; number < count; ++number) read(number);
    return (now() - before) / double(count);
}
}  // namespace

extern "C" {
double cpp_asof_latest_read(std::uint64_t count, bool is_into) {
    auto [writer, reader] = asof::threads::latest<Odometry>();
    writer.write({}, 1);
    auto& from = reader;
    if (!is_into)
        return per_read(count, [&](std::uint64_t) {
            auto sample = from.read();
            keep(sample);
        });
    Odometry out;
    return per_read(count, [&](std::uint64_t) {
        auto meta = from.read_into(out);
        keep(out);
        keep(meta);
    });
}
double cpp_asof_mux_read(std::uint64_t count, bool is_into) {
    auto ends = asof::threads::mux<Command, 4, 1>({500ms, 500ms, 500ms, 500ms}, {{{4, {}}}});
    ends.sources[3].write({}, 1000);
    if (!is_into)
        return per_read(count, [&](std::uint64_t number) {
            auto command = ends.output.read(1000 + number);
            keep(command);
        });
    Command out;
    return per_read(count, [&](std::uint64_t number) {
        auto found = ends.output.read_into(out, 1000 + number);
        keep(out);
        keep(found);
    });
}
double cpp_asof_shm_latest_read(std::uint64_t count) {
    asof::remove("asof-bench-latest");
    asof::LatestWriter<Odometry> writer("asof-bench-latest");
    asof::LatestReader<Odometry> reader("asof-bench-latest");
    asof::remove("asof-bench-latest");
    writer.write({}, 1);
    return per_read(count, [&](std::uint64_t) {
        auto sample = reader.read();
        keep(sample);
    });
}
double cpp_asof_shm_mux_read(std::uint64_t count) {
    asof::remove("asof-bench-mux");
    asof::Mux<Command, 4, 1> mux("asof-bench-mux", {500ms, 500ms, 500ms, 500ms}, {{{4, 0ns}}});
    asof::MuxOutput<Command, 4, 1> output("asof-bench-mux");
    asof::remove("asof-bench-mux");
    auto source = mux.source(3);
    source.write({}, 1000);
    return per_read(count, [&](std::uint64_t number) {
        auto command = output.read(1000 + number);
        keep(command);
    });
}
}
