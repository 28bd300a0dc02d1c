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

    // Copies the newest value into `target`; nothing before the first.
    std::optional<Meta> newest(T& target) const {
        for (;;) {
            const Word generation = this->generation();
            if (generation == 0) return std::nullopt;
            if (const auto meta = copy(generation, target)) return meta;
        }
    }

    // The newest value; nothing before the first.
    std::optional<Sample<T>> newest() const {
        return sampled([&](T& target) { return newest(target); });
    }

    // The value of a generation that the head has reached; nothing if its slot was reused for a newer one.
    std::optional<Sample<T>> at(Word generation) const {
        return sampled([&](T& target) { return copy(generation, target); });
    }

    // What `read` copies into a value, with that value: it is copied once, into what is returned.
    template <typename Read>
    static std::optional<Sample<T>> sampled(Read&& read) {
        std::optional<Sample<T>> sample;
        sample.emplace();
        if (const std::optional<Meta> meta = read(sample->value))
            sample->meta = *meta;
        else
            sample.reset();
        return sample;
    }

    // A value that was read before, with what need not be looked up again while it is the newest.
    struct Settled {
        Meta meta;
        const Slot* slot = nullptr;
    };
    Settled settled(Meta meta) const { return {meta, &slots_[meta.generation & (N - 1)]}; }

    // Copies the settled value once more; false if there is none, or it is not the newest any more.
    //
    // One load of the head, after the copy, is enough. The slot was complete when it was read before, and is not
    // written again before the head has passed it by N-1: if any of that was copied, the fence makes the head visible
    // that far.
    bool copy_settled(const Settled& settled, T& target) const {
        if (!settled.slot) return false;
        detail::copy_out<sizeof(T)>(settled.slot->value, &target);
        std::atomic_thread_fence(std::memory_order_acquire);
        return head_.word.load(std::memory_order_relaxed) == settled.meta.generation;
    }

  private:
    // Nothing if the slot was reused meanwhile: then what was copied is to be discarded.
    std::optional<Meta> copy(Word generation, T& target) const {
        const Slot& slot = slots_[generation & (N - 1)];
        const Word stamp = slot.stamp.load(std::memory_order_relaxed);
        detail::copy_out<sizeof(T)>(slot.value, &target);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (slot.mark.load(std::memory_order_relaxed) != generation) return std::nullopt;
        return Meta{generation, stamp};
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
    std::optional<Sample<T>> read() const {
        return Latest<T, N>::sampled([&](T& target) { return read_into(target); });
    }
    // Copies the newest value into `target`: the fastest way. Nothing, with `target` unchanged, before the first.
    std::optional<Meta> read_into(T& target) const {
        const auto settled = settled_;
        if (memory_->copy_settled(settled, target)) return settled.meta;
        const auto meta = memory_->newest(target);
        if (meta) saw(*meta);
        return meta;
    }
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
    // A value that was read so often is expected to be the newest for a while.
    static constexpr std::uint32_t settled_after_reads = 256;

    void saw(Meta meta) const {
        if (newest_ != meta.generation) {
            newest_ = meta.generation;
            reads_of_newest_ = 0;
            settled_ = {};
        } else if (++reads_of_newest_ == settled_after_reads) {
            settled_ = memory_->settled(meta);
        }
    }

    std::shared_ptr<const Latest<T, N>> memory_;
    // Of this reader alone.
    mutable typename Latest<T, N>::Settled settled_;
    mutable std::uint64_t newest_ = 0;
    mutable std::uint32_t reads_of_newest_ = 0;
};

template <typename T, std::size_t N = 8>
std::pair<LatestWriter<T, N>, LatestReader<T, N>> latest() {
    auto memory = std::make_shared<Latest<T, N>>();
    return {LatestWriter<T, N>(memory), LatestReader<T, N>(memory)};
}

}  // namespace asof::threads
