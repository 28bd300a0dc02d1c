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
    // How many words belong to the value entirely, and how many bytes of the last one, if it does not.
    static constexpr std::size_t whole = sizeof(T) / 8, rest = sizeof(T) % 8;

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
        const auto* from = reinterpret_cast<const unsigned char*>(&value);
        Slot& slot = slots_[generation & (N - 1)];
        slot.mark.store(generation, std::memory_order_release);
        std::atomic_thread_fence(std::memory_order_release);
        slot.stamp.store(stamp, std::memory_order_relaxed);
        for (std::size_t i = 0; i < whole; ++i) {
            Word word;
            std::memcpy(&word, from + 8 * i, 8);
            slot.value[i].store(word, std::memory_order_relaxed);
        }
        if constexpr (rest != 0) {
            Word word = 0;
            std::memcpy(&word, from + 8 * whole, rest);
            slot.value[whole].store(word, std::memory_order_relaxed);
        }
        head_.word.store(generation, std::memory_order_release);
        return generation;
    }

    // The newest value; nothing before the first.
    std::optional<Sample<T>> newest() const {
        // Copied once, into what is returned.
        std::optional<Sample<T>> sample{std::in_place};
        for (;;) {
            const Word generation = this->generation();
            if (generation != 0 && !copy(generation, *sample)) continue;
            if (generation == 0) sample.reset();
            return sample;
        }
    }

    // The value of a generation that the head has reached; nothing if its slot was reused for a newer one.
    std::optional<Sample<T>> at(Word generation) const {
        std::optional<Sample<T>> sample{std::in_place};
        if (!copy(generation, *sample)) sample.reset();
        return sample;
    }

  private:
    // False if the slot was reused meanwhile: then what was copied is to be discarded.
    bool copy(Word generation, Sample<T>& sample) const {
        const Slot& slot = slots_[generation & (N - 1)];
        const Word stamp = slot.stamp.load(std::memory_order_relaxed);
        auto* to = reinterpret_cast<unsigned char*>(&sample.value);
        for (std::size_t i = 0; i < whole; ++i) {
            const Word word = slot.value[i].load(std::memory_order_relaxed);
            std::memcpy(to + 8 * i, &word, 8);
        }
        if constexpr (rest != 0) {
            const Word word = slot.value[whole].load(std::memory_order_relaxed);
            std::memcpy(to + 8 * whole, &word, rest);
        }
        std::atomic_thread_fence(std::memory_order_acquire);
        sample.meta = {generation, stamp};
        return slot.mark.load(std::memory_order_relaxed) == generation;
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
