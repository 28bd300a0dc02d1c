// The buffers of a widely copied design, written to its description: what the suite `hot` measures against.
// They are as the description has them, defects included; none is meant to be used.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace seed {

// "SPSC ring buffer": head and tail, a sequence in each slot, one slot always empty.
template <typename T, std::size_t N>
class SPSCRingBuffer {
  public:
    T* prepare_write() {
        const auto head = head_.load(std::memory_order_relaxed);
        if (((head + 1) & (N - 1)) == tail_.load(std::memory_order_acquire)) return nullptr;
        return &slots_[head].data;
    }
    void commit_write() {
        const auto head = head_.load(std::memory_order_relaxed);
        slots_[head].sequence.store(head + 1, std::memory_order_release);
        head_.store((head + 1) & (N - 1), std::memory_order_release);
    }
    const T* read() const {
        const auto tail = tail_.load(std::memory_order_relaxed);
        if (tail == head_.load(std::memory_order_acquire)) return nullptr;
        if (slots_[tail].sequence.load(std::memory_order_acquire) != tail + 1) return nullptr;
        return &slots_[tail].data;
    }
    void release_read() {
        const auto tail = tail_.load(std::memory_order_relaxed);
        tail_.store((tail + 1) & (N - 1), std::memory_order_release);
    }

  private:
    struct alignas(64) Slot {
        std::atomic<std::uint64_t> sequence{0};
        T data;
    };
    alignas(64) std::atomic<std::uint64_t> head_{0};
    alignas(64) std::atomic<std::uint64_t> tail_{0};
    std::array<Slot, N> slots_;
};

// "SeqLock": seq++, write, seq++; readers try until it is even and unchanged.
template <typename T>
class SeqLock {
  public:
    void write(const T& value) {
        sequence_.fetch_add(1, std::memory_order_release);
        std::atomic_thread_fence(std::memory_order_release);
        data_ = value;
        sequence_.fetch_add(1, std::memory_order_release);
    }
    void read_into(T& out) const {
        for (;;) {
            const auto before = sequence_.load(std::memory_order_acquire);
            if (before & 1) continue;
            out = data_;
            std::atomic_thread_fence(std::memory_order_acquire);
            if (sequence_.load(std::memory_order_relaxed) == before) return;
        }
    }

  private:
    alignas(64) std::atomic<std::uint64_t> sequence_{0};
    T data_;
};

// "Priority double buffer": two seqlocks and a mode.
template <typename T>
class PriorityDoubleBuffer {
  public:
    void write_nav(const T& value) { nav_.write(value); }
    void write_teleop(const T& value) {
        teleop_.write(value);
        mode_.store(1, std::memory_order_release);
    }
    void set_mode(int mode) { mode_.store(mode, std::memory_order_release); }
    void read_into(T& out) const {
        (mode_.load(std::memory_order_acquire) ? teleop_ : nav_).read_into(out);
    }

  private:
    SeqLock<T> nav_, teleop_;
    alignas(64) std::atomic<int> mode_{0};
};

// "Double buffer with dirty flag": an index and a flag.
template <typename T>
class DoubleBufferDirty {
  public:
    T* back_buffer() { return &buffers_[1 - front_.load(std::memory_order_relaxed)]; }
    void swap_buffers() {
        front_.store(1 - front_.load(std::memory_order_relaxed), std::memory_order_release);
        dirty_.store(true, std::memory_order_release);
    }
    bool has_new_data() const { return dirty_.load(std::memory_order_acquire); }
    const T* front_buffer() const { return &buffers_[front_.load(std::memory_order_acquire)]; }
    void clear_dirty() { dirty_.store(false, std::memory_order_release); }

  private:
    alignas(64) std::atomic<int> front_{0};
    alignas(64) std::atomic<bool> dirty_{false};
    T buffers_[2];
};

// "Atomic flag and timestamp": one word, milliseconds in 32 bits.
class AtomicBumper {
  public:
    void trigger(std::uint32_t now_ms) {
        state_.store((std::uint64_t{1} << 32) | now_ms, std::memory_order_release);
    }
    bool is_triggered() const { return state_.load(std::memory_order_acquire) >> 32; }
    void reset() { state_.store(0, std::memory_order_release); }

  private:
    alignas(64) std::atomic<std::uint64_t> state_{0};
};

}  // namespace seed
