// Common parts of the structures between threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "../asof_hot_types.hpp"

namespace asof::threads {

// Which write a value came from, counted from 1, and when.
struct Meta {
    std::uint64_t generation = 0;
    std::uint64_t stamp = 0;
    Nanoseconds age(std::uint64_t time = now()) const { return since(stamp, time); }
    bool is_fresh(Nanoseconds span, std::uint64_t time = now()) const { return asof::is_fresh(stamp, span, time); }
};

template <typename T>
struct Sample {
    T value;
    Meta meta;
    Nanoseconds age(std::uint64_t time = now()) const { return meta.age(time); }
};

namespace detail {

using Word = std::uint64_t;
static_assert(std::atomic<Word>::is_always_lock_free, "asof-hot needs 64-bit atomics");

// A word on its own cache lines; two, since processors fetch lines in pairs.
struct alignas(128) PaddedWord {
    std::atomic<Word> word{0};
};

// An end: it has one owner and can be moved but not copied.
struct MoveOnly {
    MoveOnly() = default;
    MoveOnly(MoveOnly&&) noexcept = default;
    MoveOnly& operator=(MoveOnly&&) noexcept = default;
};

}  // namespace detail
}  // namespace asof::threads
