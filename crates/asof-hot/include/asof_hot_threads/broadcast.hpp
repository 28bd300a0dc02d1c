// A broadcast ring: one producer, R independent readers, nothing copied.
//
// Every reader sees every sample, in place and in order, at its own pace. The last N samples are kept; a slower reader
// misses some, and learns how many. A reader holds up neither the producer nor other readers. A producer that should
// wait for the slowest reader uses try_write_lossless.
#pragma once

#include <array>

#include "common.hpp"

namespace asof::threads {

namespace detail {

// A mark is a position, a bit for each reader that is reading the sample, and whether it can be read at all.
template <typename T, std::size_t N, std::size_t R>
struct Broadcast {
    static_assert(N >= 1 && R >= 1 && R <= 16, "at least one sample, from 1 to 16 readers");
    static constexpr std::size_t slot_count = N + R + 1;
    static constexpr Word is_ready = 1, readers = Word(0xffff) << 1;
    static constexpr unsigned shift = 17;
    static constexpr Word ready(Word position) { return position << shift | is_ready; }
    static constexpr std::size_t after(std::size_t slot) { return slot + 1 == slot_count ? 0 : slot + 1; }

    struct alignas(128) Slot {
        std::atomic<Word> mark{0};
        std::uint64_t stamp = 0;
        T value{};
    };

    PaddedWord head;
    PaddedWord refused;
    std::atomic<bool> producer_is_here{true};
    // The position that each reader wants next; 0 when it is gone.
    PaddedWord places[R];
    Slot slots[slot_count];
};

}  // namespace detail

template <typename T, std::size_t N, std::size_t R>
class BroadcastProducer : detail::MoveOnly {
    using Ring = detail::Broadcast<T, N, R>;
    using Word = detail::Word;
    struct Shared {
        std::shared_ptr<Ring> ring;
        Word position = 1;
        std::size_t slot = 0;
        bool is_filling = false;
        ~Shared() { ring->producer_is_here.store(false, std::memory_order_release); }
    };

  public:
    // A slot being filled. Without a commit it is returned unused.
    class Filling : detail::MoveOnly {
      public:
        T& operator*() const { return shared_->ring->slots[shared_->slot].value; }
        T* operator->() const { return &**this; }
        // Gives the slot to all readers. Do not access it afterwards.
        void commit(std::uint64_t stamp = now()) && {
            Shared& self = *shared_;
            auto& slot = self.ring->slots[self.slot];
            slot.stamp = stamp;
            slot.mark.store(Ring::ready(self.position), std::memory_order_release);
            self.ring->head.word.store(self.position++, std::memory_order_release);
            self.slot = Ring::after(self.slot);
            self.is_filling = false;
            shared_.reset();
        }
        Filling(Filling&&) noexcept = default;
        Filling& operator=(Filling&&) = delete;
        ~Filling() {
            if (shared_) shared_->is_filling = false;
        }

      private:
        friend class BroadcastProducer;
        explicit Filling(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) { shared_->is_filling = true; }
        std::shared_ptr<Shared> shared_;
    };

    explicit BroadcastProducer(std::shared_ptr<Ring> ring) : shared_(std::make_shared<Shared>()) {
        shared_->ring = std::move(ring);
    }

    // A slot to fill in place; there always is one.
    std::optional<Filling> try_write() {
        Shared& self = *shared_;
        if (self.is_filling) throw std::logic_error("a slot of this ring is already being filled: commit it first");
        // A failed try means that a reader has just begun to read that sample, and readers read one at a time.
        for (std::size_t tries = 0; tries < (R + 2) * Ring::slot_count; ++tries) {
            if (take_back(self)) return Filling(shared_);
            self.slot = Ring::after(self.slot);
        }
        self.ring->refused.word.fetch_add(1, std::memory_order_relaxed);
        return std::nullopt;
    }
    // As above, but nothing while a present reader has not read the oldest sample, so no reader misses anything.
    std::optional<Filling> try_write_lossless() {
        Shared& self = *shared_;
        for (const auto& place : self.ring->places) {
            const Word next = place.word.load(std::memory_order_relaxed);
            if (next && self.position >= next + N) {
                self.ring->refused.word.fetch_add(1, std::memory_order_relaxed);
                return std::nullopt;
            }
        }
        return try_write();
    }
    void push(T value, std::uint64_t stamp = now()) {
        if (auto slot = try_write()) {
            **slot = std::move(value);
            std::move(*slot).commit(stamp);
        }
    }

    std::uint64_t committed() const { return shared_->position - 1; }
    std::uint64_t refused() const { return shared_->ring->refused.word.load(std::memory_order_relaxed); }
    // Whether all readers are gone.
    bool is_abandoned() const {
        for (const auto& place : shared_->ring->places)
            if (place.word.load(std::memory_order_relaxed)) return false;
        return true;
    }

  private:
    // Takes a slot out of use, if its sample is not needed.
    static bool take_back(Shared& self) {
        auto& slot = self.ring->slots[self.slot].mark;
        Word mark = slot.load(std::memory_order_acquire);
        if (!(mark & Ring::is_ready)) return true;
        const bool is_kept = (mark >> Ring::shift) + N >= self.position;
        if (is_kept || (mark & Ring::readers)) return false;
        return slot.compare_exchange_strong(mark, mark & ~Ring::is_ready, std::memory_order_acq_rel,
                                            std::memory_order_relaxed);
    }
    std::shared_ptr<Shared> shared_;
};

template <typename T, std::size_t N, std::size_t R>
class BroadcastReader : detail::MoveOnly {
    using Ring = detail::Broadcast<T, N, R>;
    using Word = detail::Word;
    struct Shared {
        std::shared_ptr<Ring> ring;
        std::size_t reader = 0;
        Word position = 1;
        std::size_t slot = 0;
        std::uint64_t missed = 0;
        bool is_reading = false;
        Word bit() const { return Word(2) << reader; }
        ~Shared() { ring->places[reader].word.store(0, std::memory_order_relaxed); }
    };

  public:
    // A sample in place. Other readers may read it too.
    class Held : detail::MoveOnly {
      public:
        const T& operator*() const { return shared_->ring->slots[slot_].value; }
        const T* operator->() const { return &**this; }
        Meta meta() const { return {position_, shared_->ring->slots[slot_].stamp}; }
        Nanoseconds age(std::uint64_t time = now()) const { return meta().age(time); }
        // The number of samples before this one that the reader was too late for or skipped.
        std::uint64_t missed() const { return missed_; }
        Held(Held&&) noexcept = default;
        Held& operator=(Held&& other) noexcept {
            Held before(std::move(other));
            std::swap(shared_, before.shared_);
            std::swap(slot_, before.slot_);
            std::swap(position_, before.position_);
            std::swap(missed_, before.missed_);
            return *this;
        }
        ~Held() {
            if (!shared_) return;
            shared_->is_reading = false;
            unpin(*shared_, slot_, position_);
        }

      private:
        friend class BroadcastReader;
        Held(std::shared_ptr<Shared> shared, std::size_t slot, Word position, std::uint64_t missed)
            : shared_(std::move(shared)), slot_(slot), position_(position), missed_(missed) {
            shared_->is_reading = true;
        }
        std::shared_ptr<Shared> shared_;
        std::size_t slot_;
        Word position_;
        std::uint64_t missed_;
    };

    BroadcastReader(std::shared_ptr<Ring> ring, std::size_t reader) : shared_(std::make_shared<Shared>()) {
        ring->places[reader].word.store(1, std::memory_order_relaxed);
        shared_->ring = std::move(ring);
        shared_->reader = reader;
    }

    // The oldest sample that this reader has not read. One at a time.
    std::optional<Held> try_read() {
        Shared& self = reading();
        const Word expected = self.position;
        const auto slot = claim(self);
        if (slot == Ring::slot_count) return std::nullopt;
        return Held(shared_, slot, self.position - 1, self.position - 1 - expected);
    }
    // The newest sample; older ones count as missed.
    std::optional<Held> try_latest() {
        Shared& self = reading();
        const Word expected = self.position;
        const auto slot = claim_newest(self);
        if (slot == Ring::slot_count) return std::nullopt;
        return Held(shared_, slot, self.position - 1, self.position - 1 - expected);
    }
    // The number of samples that this reader has not read; more than N if it has missed some.
    std::uint64_t waiting() const {
        const Word next = shared_->ring->head.word.load(std::memory_order_acquire) + 1;
        return next > shared_->position ? next - shared_->position : 0;
    }
    bool has_new() const { return waiting() > 0; }
    // The total number of samples that this reader has missed or skipped.
    std::uint64_t missed() const { return shared_->missed; }
    // Whether the producer is gone. If there is then nothing to read, nothing more will come.
    bool is_abandoned() const { return !shared_->ring->producer_is_here.load(std::memory_order_acquire); }

  private:
    Shared& reading() {
        if (shared_->is_reading) throw std::logic_error("a sample of this reader is already being read: release it first");
        return *shared_;
    }
    static void unpin(Shared& self, std::size_t slot, Word position) {
        self.ring->slots[slot].mark.fetch_and(~self.bit(), std::memory_order_release);
        self.ring->places[self.reader].word.store(position + 1, std::memory_order_relaxed);
    }
    static bool pin(Shared& self, std::size_t slot, Word position) {
        auto& word = self.ring->slots[slot].mark;
        Word mark = word.load(std::memory_order_relaxed);
        while ((mark & ~Ring::readers) == Ring::ready(position))
            if (word.compare_exchange_weak(mark, mark | self.bit(), std::memory_order_acq_rel, std::memory_order_relaxed))
                return true;
        return false;
    }
    static bool take(Shared& self, std::size_t slot, Word position) {
        if (!pin(self, slot, position)) return false;
        self.missed += position - self.position;
        self.position = position + 1;
        self.slot = Ring::after(slot);
        return true;
    }
    // The slot of the oldest remaining sample, which this reader then holds; the number of slots if there is none.
    std::size_t claim(Shared& self) const {
        const auto next = self.slot;
        if (take(self, next, self.position)) return next;
        for (std::size_t tries = 0; tries <= Ring::slot_count; ++tries) {
            if (waiting() == 0) break;
            const auto oldest = [](Word best, Word position) { return position < best; };
            const auto slot = claim_best(self, self.position, oldest);
            if (slot != Ring::slot_count) return slot;
        }
        return Ring::slot_count;
    }
    // As above, the newest. It never holds two at once, not even temporarily: there is one spare slot for each reader,
    // not two.
    std::size_t claim_newest(Shared& self) const {
        for (std::size_t tries = 0; tries <= Ring::slot_count; ++tries) {
            const Word head = self.ring->head.word.load(std::memory_order_acquire);
            if (head <= self.position) return claim(self);  // at most one is waiting
            const auto newest = [](Word best, Word position) { return position > best; };
            const auto slot = claim_best(self, head, newest);
            if (slot != Ring::slot_count) return slot;
        }
        return Ring::slot_count;
    }
    // Searches all slots for the best sample from a position on, and takes it if it is still there.
    template <typename IsBetter>
    static std::size_t claim_best(Shared& self, Word start, IsBetter is_better) {
        std::size_t best = Ring::slot_count;
        Word best_position = 0;
        for (std::size_t slot = 0; slot < Ring::slot_count; ++slot) {
            const Word mark = self.ring->slots[slot].mark.load(std::memory_order_acquire);
            const Word position = mark >> Ring::shift;
            if (!(mark & Ring::is_ready) || position < start) continue;
            if (best == Ring::slot_count || is_better(best_position, position)) {
                best = slot;
                best_position = position;
            }
        }
        return best != Ring::slot_count && take(self, best, best_position) ? best : Ring::slot_count;
    }
    std::shared_ptr<Shared> shared_;
};

template <typename T, std::size_t N, std::size_t R>
struct BroadcastEnds {
    BroadcastProducer<T, N, R> producer;
    std::array<BroadcastReader<T, N, R>, R> readers;
};

namespace detail {
template <typename T, std::size_t N, std::size_t R, std::size_t... I>
BroadcastEnds<T, N, R> broadcast_ends(std::index_sequence<I...>) {
    auto memory = std::make_shared<Broadcast<T, N, R>>();
    return {BroadcastProducer<T, N, R>(memory), {BroadcastReader<T, N, R>(memory, I)...}};
}
}  // namespace detail

// auto [producer, readers] = broadcast<Scan, 8, 2>();
template <typename T, std::size_t N, std::size_t R>
BroadcastEnds<T, N, R> broadcast() {
    return detail::broadcast_ends<T, N, R>(std::make_index_sequence<R>());
}

}  // namespace asof::threads
