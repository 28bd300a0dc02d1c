// The latest value, small: one writer, any number of readers, plain data.
//
// A single-slot seqlock makes every reader wait during a write. Here the writer fills one of N slots while readers use
// the one before: a reader retries only if the writer published N-1 complete values during one copy.
#pragma once

#include "common.hpp"

namespace asof::threads {

template <typename T, std::size_t N = 8>
class Latest {
    static_assert(asof::detail::is_plain<T>(), "plain data only");
    static_assert(N >= 2 && (N & (N - 1)) == 0, "the number of slots must be a power of two, at least 2");
    using Word = detail::Word;
    static constexpr std::size_t words = (sizeof(T) + 7) / 8;

    // While the mark is g and the head has reached g, the contents are generation g, complete. The mark changes before
    // the contents do.
    struct alignas(128) Slot {
        std::atomic<Word> mark{0};
        std::atomic<Word> stamp{0};
        std::atomic<Word> value[words] = {};
    };

    detail::PaddedWord head_;
    Slot slots_[N];

  public:
    Word generation() const { return head_.word.load(std::memory_order_acquire); }

    // For the writer: writes the generation after `last` and returns it.
    Word publish(Word last, const T& value, std::uint64_t stamp) {
        const Word generation = last + 1;
        Word copy[words] = {};
        std::memcpy(copy, &value, sizeof(T));
        Slot& slot = slots_[generation & (N - 1)];
        slot.mark.store(generation, std::memory_order_release);
        std::atomic_thread_fence(std::memory_order_release);
        slot.stamp.store(stamp, std::memory_order_relaxed);
        for (std::size_t i = 0; i < words; ++i) slot.value[i].store(copy[i], std::memory_order_relaxed);
        head_.word.store(generation, std::memory_order_release);
        return generation;
    }

    // The newest value; nothing before the first.
    std::optional<Sample<T>> newest() const {
        for (;;) {
            const Word generation = this->generation();
            if (generation == 0) return std::nullopt;
            if (auto sample = at(generation)) return sample;
        }
    }

    // The value of a generation that the head has reached; nothing if its slot was reused for a newer one.
    std::optional<Sample<T>> at(Word generation) const {
        const Slot& slot = slots_[generation & (N - 1)];
        Word copy[words];
        const Word stamp = slot.stamp.load(std::memory_order_relaxed);
        for (std::size_t i = 0; i < words; ++i) copy[i] = slot.value[i].load(std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (slot.mark.load(std::memory_order_relaxed) != generation) return std::nullopt;
        std::optional<Sample<T>> sample{std::in_place};
        std::memcpy(&sample->value, copy, sizeof(T));
        sample->meta = {generation, stamp};
        return sample;
    }
};

template <typename T, std::size_t N = 8>
class LatestWriter : detail::MoveOnly {
  public:
    explicit LatestWriter(std::shared_ptr<Latest<T, N>> memory) : memory_(std::move(memory)) {}
    void write(const T& value, std::uint64_t stamp = now()) { generation_ = memory_->publish(generation_, value, stamp); }
    // Changes the last value (zeros before the first) and publishes it; readers see the last one in the meantime.
    template <typename Change>
    void update(Change&& change, std::uint64_t stamp = now()) {
        T value{};
        if (auto last = memory_->newest()) value = last->value;
        std::forward<Change>(change)(value);
        write(value, stamp);
    }
    std::uint64_t generation() const { return generation_; }

  private:
    std::shared_ptr<Latest<T, N>> memory_;
    detail::Word generation_ = 0;
};

template <typename T, std::size_t N = 8>
class LatestReader {
  public:
    explicit LatestReader(std::shared_ptr<const Latest<T, N>> memory) : memory_(std::move(memory)) {}
    // Nothing before the first value.
    std::optional<Sample<T>> read() const { return memory_->newest(); }
    // Nothing if the newest value is the one of generation `seen`.
    std::optional<Sample<T>> read_if_newer(std::uint64_t seen) const {
        if (generation() == seen) return std::nullopt;
        return read();
    }
    // The value of one generation, if it is among the last N-1.
    std::optional<Sample<T>> read_generation(std::uint64_t generation) const {
        if (generation == 0 || this->generation() - generation >= N) return std::nullopt;
        return memory_->at(generation);
    }
    std::uint64_t generation() const { return memory_->generation(); }

  private:
    std::shared_ptr<const Latest<T, N>> memory_;
};

template <typename T, std::size_t N = 8>
std::pair<LatestWriter<T, N>, LatestReader<T, N>> latest() {
    auto memory = std::make_shared<Latest<T, N>>();
    return {LatestWriter<T, N>(memory), LatestReader<T, N>(memory)};
}

}  // namespace asof::threads
