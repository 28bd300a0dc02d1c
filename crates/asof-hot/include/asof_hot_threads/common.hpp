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

// Values are copied in units of 16 bytes where that is one instruction, and in words where a sanitizer looks on.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__)
#define ASOF_HOT_UNITS_ 1
#include <emmintrin.h>
#endif

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
    // Without zeros that the value would replace at once.
    Sample() {}
    Sample(const T& value, Meta meta) : value(value), meta(meta) {}
    Nanoseconds age(std::uint64_t time = now()) const { return meta.age(time); }
};

namespace detail {

using Word = std::uint64_t;
static_assert(std::atomic<Word>::is_always_lock_free, "asof-hot needs 64-bit atomics");

// A word on its own cache lines; two, since processors fetch lines in pairs.
struct alignas(128) PaddedWord {
    std::atomic<Word> word{0};
};

// Copies a value of `Size` bytes out of words that may be being written: what is torn, the caller discards.
template <std::size_t Size>
inline void copy_out(const std::atomic<Word>* words, void* target) {
    auto* to = static_cast<unsigned char*>(target);
    std::size_t at = 0;
#ifdef ASOF_HOT_UNITS_
    // In assembly, which a compiler must not tear, repeat or move across a fence: to the memory model it is a sequence
    // of relaxed loads.
#pragma GCC unroll 12
    for (; at + 16 <= Size; at += 16) {
        __m128i unit;
        asm volatile("movups %1, %0" : "=x"(unit) : "m"(*reinterpret_cast<const __m128i*>(words + at / 8)));
        std::memcpy(to + at, &unit, 16);
    }
#endif
    for (; at + 8 <= Size; at += 8) {
        const Word word = words[at / 8].load(std::memory_order_relaxed);
        std::memcpy(to + at, &word, 8);
    }
    if constexpr (Size % 8 != 0) {
        const Word word = words[Size / 8].load(std::memory_order_relaxed);
        std::memcpy(to + at, &word, Size % 8);
    }
}

// Whether words are what they were; both aligned to 16 bytes.
template <std::size_t Count>
inline bool are_same(const std::atomic<Word>* words, const Word* kept) {
    std::size_t at = 0;
    bool is_same = true;
#ifdef ASOF_HOT_UNITS_
    // Aligned loads of 16 bytes, which this kind of processor does not reorder, and of which it takes each word at once.
    __m128i same = _mm_set1_epi32(-1);
#pragma GCC unroll 17
    for (; at + 2 <= Count; at += 2) {
        __m128i pair;
        asm volatile("movdqa %1, %0" : "=x"(pair) : "m"(*reinterpret_cast<const __m128i*>(words + at)));
        const __m128i before = _mm_load_si128(reinterpret_cast<const __m128i*>(kept + at));
        same = _mm_and_si128(same, _mm_cmpeq_epi32(pair, before));
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    is_same = _mm_movemask_epi8(same) == 0xffff;
#endif
    for (; at < Count; ++at) is_same &= words[at].load(std::memory_order_acquire) == kept[at];
    return is_same;
}

// An end: it has one owner and can be moved but not copied.
struct MoveOnly {
    MoveOnly() = default;
    MoveOnly(MoveOnly&&) noexcept = default;
    MoveOnly& operator=(MoveOnly&&) noexcept = default;
};

}  // namespace detail
}  // namespace asof::threads
