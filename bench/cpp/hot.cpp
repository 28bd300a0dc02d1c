// The loops over the C++ buffers, compiled as a C++ program would compile them.
#include "lockfree_buffers.hpp"

#include <cstring>

namespace {
struct Scan { std::uint64_t words[1024]; };
struct Odometry { double values[18]; };
struct Command { double values[9]; };
struct Map { std::uint8_t cells[4 << 20]; };

using Ring = seed::SPSCRingBuffer<Scan, 8>;

template <typename T>
inline void keep(T& value) { asm volatile("" : : "r"(&value) : "memory"); }

inline void send(Ring& ring, const Scan& source, std::uint64_t number, bool full) {
    Scan* slot;
    while (!(slot = ring.prepare_write())) __builtin_ia32_pause();
    if (full) *slot = source;
    slot->words[0] = number;
    ring.commit_write();
}

inline std::uint64_t receive(Ring& ring, bool full) {
    const Scan* slot;
    while (!(slot = ring.read())) __builtin_ia32_pause();
    std::uint64_t sum = slot->words[0];
    if (full) for (int i = 1; i < 1024; ++i) sum += slot->words[i];
    ring.release_read();
    return sum;
}
}  // namespace

extern "C" {
void* cpp_ring_new() { return new Ring; }
void cpp_ring_delete(void* ring) { delete static_cast<Ring*>(ring); }
void cpp_ring_ping(void* there, void* back, const Scan* source, std::uint64_t count, bool full) {
    for (std::uint64_t i = 0; i < count; ++i) {
        send(*static_cast<Ring*>(there), *source, i, full);
        auto sum = receive(*static_cast<Ring*>(back), full);
        keep(sum);
    }
}
void cpp_ring_echo(void* there, void* back, const Scan* source, std::uint64_t count, bool full) {
    for (std::uint64_t i = 0; i < count; ++i) {
        auto sum = receive(*static_cast<Ring*>(there), full);
        send(*static_cast<Ring*>(back), *source, sum, full);
    }
}
void cpp_ring_send_all(void* ring, const Scan* source, std::uint64_t count, bool full) {
    for (std::uint64_t i = 0; i < count; ++i) send(*static_cast<Ring*>(ring), *source, i, full);
}
void cpp_ring_receive_all(void* ring, std::uint64_t count, bool full) {
    for (std::uint64_t i = 0; i < count; ++i) {
        auto sum = receive(*static_cast<Ring*>(ring), full);
        keep(sum);
    }
}

void* cpp_latest_new() { return new seed::SeqLock<Odometry>; }
void cpp_latest_delete(void* cell) { delete static_cast<seed::SeqLock<Odometry>*>(cell); }
void cpp_latest_read(const void* cell, std::uint64_t count) {
    Odometry out;
    for (std::uint64_t i = 0; i < count; ++i) {
        static_cast<const seed::SeqLock<Odometry>*>(cell)->read_into(out);
        keep(out);
    }
}
void cpp_latest_read_one(const void* cell, Odometry* out) {
    static_cast<const seed::SeqLock<Odometry>*>(cell)->read_into(*out);
}
void cpp_latest_write(void* cell, std::uint64_t count) {
    Odometry value{};
    for (std::uint64_t i = 0; i < count; ++i) {
        value.values[0] += 1;
        keep(value);
        static_cast<seed::SeqLock<Odometry>*>(cell)->write(value);
    }
}

void* cpp_mux_new() { return new seed::PriorityDoubleBuffer<Command>; }
void cpp_mux_delete(void* mux) { delete static_cast<seed::PriorityDoubleBuffer<Command>*>(mux); }
void cpp_mux_read(const void* mux, std::uint64_t count) {
    Command out;
    for (std::uint64_t i = 0; i < count; ++i) {
        static_cast<const seed::PriorityDoubleBuffer<Command>*>(mux)->read_into(out);
        keep(out);
    }
}
void cpp_mux_write(void* mux, std::uint64_t count) {
    Command value{};
    for (std::uint64_t i = 0; i < count; ++i) {
        value.values[0] += 1;
        keep(value);
        static_cast<seed::PriorityDoubleBuffer<Command>*>(mux)->write_teleop(value);
    }
}

void* cpp_map_new() { return new seed::DoubleBufferDirty<Map>; }
void cpp_map_delete(void* map) { delete static_cast<seed::DoubleBufferDirty<Map>*>(map); }
void cpp_map_publish_acquire(void* memory, std::uint64_t count) {
    auto& map = *static_cast<seed::DoubleBufferDirty<Map>*>(memory);
    for (std::uint64_t i = 0; i < count; ++i) {
        map.back_buffer()->cells[0] = static_cast<std::uint8_t>(i);
        map.swap_buffers();
        if (map.has_new_data()) {
            auto cell = map.front_buffer()->cells[0];
            keep(cell);
            map.clear_dirty();
        }
    }
}

void* cpp_latch_new() { return new seed::AtomicBumper; }
void cpp_latch_delete(void* latch) { delete static_cast<seed::AtomicBumper*>(latch); }
std::uint64_t cpp_latch_check(const void* latch, std::uint64_t count) {
    std::uint64_t hits = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        hits += static_cast<const seed::AtomicBumper*>(latch)->is_triggered();
        asm volatile("" : "+r"(hits));
    }
    return hits;
}
}
