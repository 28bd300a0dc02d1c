// A ring of slots: one producer, one consumer, nothing copied.
//
// Every slot carries its own mark beside its contents: a position (the number of the sample, counted from 1) and a
// state.
//
//            producer commits            consumer claims (only where the producer may drop)
//     Free ───────────────────► Ready ───────────────────► Reading
//      ▲ ▲                       │ │                         │
//      │ └── producer drops ─────┘ │                         │
//      └──────────── consumer is done ◄──────────────────────┘
#pragma once

#include "common.hpp"

namespace asof::threads {

enum class WhenFull { Refuse, DropOldest };

template <typename T, std::size_t N, WhenFull Policy>
class RingProducer;
template <typename T, std::size_t N, WhenFull Policy>
class RingConsumer;

namespace detail {

template <typename T, std::size_t N, WhenFull Policy>
struct Ring {
    static_assert(N >= 1, "a ring has at least one slot");
    static constexpr bool drops = Policy == WhenFull::DropOldest;
    // For dropping the oldest, one spare slot for the reader and one for the writer.
    static constexpr std::size_t slot_count = N + (drops ? 2 : 0);
    static constexpr Word free = 0, ready = 1, reading = 2, state = 3;
    static constexpr Word mark(Word position, Word state) { return position << 2 | state; }
    static constexpr std::size_t after(std::size_t slot) { return slot + 1 == slot_count ? 0 : slot + 1; }

    struct alignas(128) Slot {
        std::atomic<Word> mark{0};
        std::uint64_t stamp = 0;
        T value{};
    };

    PaddedWord head;
    PaddedWord lost;
    std::atomic<Word> refused{0};
    std::atomic<Word> high_water{0};
    std::atomic<bool> producer_is_here{true}, consumer_is_here{true};
    Slot slots[slot_count];

    void saw_waiting(Word count) {
        Word seen = high_water.load(std::memory_order_relaxed);
        while (seen < count && !high_water.compare_exchange_weak(seen, count, std::memory_order_relaxed)) {
        }
    }
    bool is(std::size_t slot, Word state, std::memory_order order) const {
        return (slots[slot].mark.load(order) & Ring::state) == state;
    }
};

}  // namespace detail

// The writing end.
template <typename T, std::size_t N, WhenFull Policy = WhenFull::Refuse>
class RingProducer : detail::MoveOnly {
    using Ring = detail::Ring<T, N, Policy>;
    using Word = detail::Word;
    struct Shared {
        std::shared_ptr<Ring> ring;
        Word position = 1;
        std::size_t slot = 0;
        // The slot of each of the last samples, by position modulo the capacity.
        std::size_t book[N] = {};
        bool is_filling = false;
        ~Shared() { ring->producer_is_here.store(false, std::memory_order_release); }
    };

  public:
    // A slot being filled, or several consecutive ones. Without a commit they are returned unused.
    class Filling : detail::MoveOnly {
      public:
        std::size_t size() const { return count_; }
        T& operator[](std::size_t index) const { return shared_->ring->slots[at(index)].value; }
        T& operator*() const { return (*this)[0]; }
        T* operator->() const { return &(*this)[0]; }
        // Gives the slots to the consumer. Do not access them afterwards.
        void commit(std::uint64_t stamp = now()) && {
            for (std::size_t index = 0; index < count_; ++index) {
                shared_->ring->slots[at(index)].stamp = stamp;
                publish(*shared_);
            }
            shared_->is_filling = false;
            shared_.reset();
        }
        Filling(Filling&&) noexcept = default;
        Filling& operator=(Filling&&) = delete;
        ~Filling() {
            if (shared_) shared_->is_filling = false;
        }

      private:
        friend class RingProducer;
        Filling(std::shared_ptr<Shared> shared, std::size_t count)
            : shared_(std::move(shared)), first_(shared_->slot), count_(count) {
            shared_->is_filling = true;
        }
        std::size_t at(std::size_t index) const { return (first_ + index) % Ring::slot_count; }
        std::shared_ptr<Shared> shared_;
        std::size_t first_, count_;
    };

    explicit RingProducer(std::shared_ptr<Ring> ring) : shared_(std::make_shared<Shared>()) {
        shared_->ring = std::move(ring);
    }

    // The next slot, or up to `most` consecutive ones; nothing if the ring is full. A ring that drops its oldest never
    // is, as long as its reader holds at most N.
    std::optional<Filling> try_write(std::size_t most = 1) {
        Shared& self = *shared_;
        if (self.is_filling) throw std::logic_error("a slot of this ring is already being filled: commit it first");
        if (most == 0) return std::nullopt;
        if (!is_free(self, self.slot) && !(Ring::drops && (find_free(self) || make_room(self) || find_free(self)))) {
            self.ring->refused.fetch_add(1, std::memory_order_relaxed);
            if (!Ring::drops) self.ring->saw_waiting(N);
            return std::nullopt;
        }
        std::size_t count = 1;
        for (auto slot = Ring::after(self.slot); count < most && count < N && is_free(self, slot); slot = Ring::after(slot))
            ++count;
        return Filling(shared_, count);
    }
    // Writes a value; false if the ring is full.
    bool push(T value, std::uint64_t stamp = now()) {
        auto slot = try_write();
        if (!slot) return false;
        **slot = std::move(value);
        std::move(*slot).commit(stamp);
        return true;
    }

    std::uint64_t committed() const { return shared_->position - 1; }
    // The number of samples dropped unread, and how often there was no slot.
    std::uint64_t lost() const { return shared_->ring->lost.word.load(std::memory_order_relaxed); }
    std::uint64_t refused() const { return shared_->ring->refused.load(std::memory_order_relaxed); }
    // The most samples that waited at once: how large the ring has to be.
    std::uint64_t high_water() const { return shared_->ring->high_water.load(std::memory_order_relaxed); }
    // Whether the consumer is gone.
    bool is_abandoned() const { return !shared_->ring->consumer_is_here.load(std::memory_order_acquire); }

  private:
    static bool is_free(const Shared& self, std::size_t slot) {
        return self.ring->is(slot, Ring::free, std::memory_order_acquire);
    }
    // Skips the slots that are being read. Twice around: a reader holds at most N at once, so if all look as if they
    // were being read, the one that was taken last was taken after others were returned, and the second round sees
    // those free.
    static bool find_free(Shared& self) {
        for (std::size_t tries = 0; tries < 2 * Ring::slot_count; ++tries) {
            if (is_free(self, self.slot)) return true;
            self.slot = Ring::after(self.slot);
        }
        return false;
    }
    // Drops the oldest sample to free its slot: a reader holds so many that no other slot is left.
    static bool make_room(Shared& self) {
        for (Word age = N; age >= 1; --age) {
            if (age >= self.position) continue;
            const Word position = self.position - age;
            const std::size_t slot = self.book[position % N];
            if (drop_unread(*self.ring, slot, position)) {
                self.slot = slot;
                return true;
            }
        }
        return false;
    }
    static bool drop_unread(Ring& ring, std::size_t slot, Word position) {
        Word ready = Ring::mark(position, Ring::ready);
        auto& mark = ring.slots[slot].mark;
        if (mark.load(std::memory_order_relaxed) != ready ||
            !mark.compare_exchange_strong(ready, Ring::mark(position, Ring::free), std::memory_order_release,
                                          std::memory_order_relaxed))
            return false;
        ring.lost.word.fetch_add(1, std::memory_order_relaxed);
        ring.saw_waiting(N);
        return true;
    }
    static void publish(Shared& self) {
        Ring& ring = *self.ring;
        ring.slots[self.slot].mark.store(Ring::mark(self.position, Ring::ready), std::memory_order_release);
        if constexpr (Ring::drops) {
            const std::size_t oldest = std::exchange(self.book[self.position % N], self.slot);
            if (self.position > N) drop_unread(ring, oldest, self.position - N);
            ring.head.word.store(self.position, std::memory_order_release);
        }
        ++self.position;
        self.slot = Ring::after(self.slot);
    }

    std::shared_ptr<Shared> shared_;
};

// The reading end.
template <typename T, std::size_t N, WhenFull Policy = WhenFull::Refuse>
class RingConsumer : detail::MoveOnly {
    using Ring = detail::Ring<T, N, Policy>;
    using Word = detail::Word;

  public:
    // A sample in place, or several consecutive ones; destroying it returns the slots to the producer. Several may be
    // held at once.
    class Held : detail::MoveOnly {
      public:
        std::size_t size() const { return count_; }
        const T& operator[](std::size_t index) const { return ring_->slots[at(index)].value; }
        const T& operator*() const { return (*this)[0]; }
        const T* operator->() const { return &(*this)[0]; }
        Meta meta(std::size_t index = 0) const { return {position_ + index, ring_->slots[at(index)].stamp}; }
        Nanoseconds age(std::uint64_t time = now()) const { return meta().age(time); }
        // The number of samples before this one that the producer dropped unread, and of those that were skipped for
        // the newest.
        std::uint64_t missed() const { return missed_; }
        std::uint64_t skipped() const { return skipped_; }

        Held(Held&&) noexcept = default;
        Held& operator=(Held&& other) noexcept {
            Held before(std::move(other));
            std::swap(ring_, before.ring_);
            std::swap(slot_, before.slot_);
            std::swap(count_, before.count_);
            std::swap(position_, before.position_);
            std::swap(missed_, before.missed_);
            std::swap(skipped_, before.skipped_);
            return *this;
        }
        ~Held() {
            for (std::size_t index = 0; ring_ && index < count_; ++index) release(*ring_, at(index), position_ + index);
        }

      private:
        friend class RingConsumer;
        Held() = default;
        std::size_t at(std::size_t index) const { return (slot_ + index) % Ring::slot_count; }
        std::shared_ptr<Ring> ring_;
        std::size_t slot_ = 0, count_ = 1;
        Word position_ = 0;
        std::uint64_t missed_ = 0, skipped_ = 0;
    };

    explicit RingConsumer(std::shared_ptr<Ring> ring) : ring_(std::move(ring)) {}
    RingConsumer(RingConsumer&&) noexcept = default;
    RingConsumer& operator=(RingConsumer&&) = delete;
    ~RingConsumer() {
        if (ring_) ring_->consumer_is_here.store(false, std::memory_order_release);
    }

    // The oldest sample that was not taken yet.
    std::optional<Held> try_read() { return try_read_batch(1); }
    // Up to `most` consecutive samples.
    std::optional<Held> try_read_batch(std::size_t most) {
        if (most == 0) return std::nullopt;
        auto held = claim();
        if (!held) return std::nullopt;
        held->skipped_ = std::exchange(skipped_, 0);
        held->missed_ += std::exchange(missed_, 0);
        while (held->count_ < most && held->count_ < N && claim_at(slot_, position_)) {
            ++held->count_;
            took(slot_, position_);
        }
        held->ring_ = ring_;
        return held;
    }
    // The newest sample; older ones are returned unread.
    std::optional<Held> try_latest() {
        auto newest = claim();
        while (newest && has_new()) {
            release(*ring_, newest->slot_, newest->position_);
            missed_ += newest->missed_;
            ++skipped_;
            newest = claim();
        }
        if (!newest) return std::nullopt;
        newest->skipped_ = std::exchange(skipped_, 0);
        newest->missed_ += std::exchange(missed_, 0);
        newest->ring_ = ring_;
        return newest;
    }
    // Whether there is a sample that was not taken yet.
    bool has_new() const {
        const bool is_next = ring_->slots[slot_].mark.load(std::memory_order_acquire) == Ring::mark(position_, Ring::ready);
        return is_next || (Ring::drops && !has_all());
    }
    std::uint64_t lost() const { return ring_->lost.word.load(std::memory_order_relaxed); }
    std::uint64_t high_water() const { return ring_->high_water.load(std::memory_order_relaxed); }
    // Whether the producer is gone. If there is then nothing to read, nothing more will come.
    bool is_abandoned() const { return !ring_->producer_is_here.load(std::memory_order_acquire); }

  private:
    static void release(Ring& ring, std::size_t slot, Word position) {
        ring.slots[slot].mark.store(Ring::mark(position, Ring::free), std::memory_order_release);
    }
    // The head moves after the mark, so it can lag what was already read.
    bool has_all() const { return ring_->head.word.load(std::memory_order_acquire) < position_; }

    bool claim_at(std::size_t slot, Word position) {
        Word ready = Ring::mark(position, Ring::ready);
        auto& mark = ring_->slots[slot].mark;
        if constexpr (!Ring::drops) {
            return mark.load(std::memory_order_acquire) == ready;
        } else {
            return mark.load(std::memory_order_relaxed) == ready &&
                   mark.compare_exchange_strong(ready, Ring::mark(position, Ring::reading), std::memory_order_acq_rel,
                                                std::memory_order_relaxed);
        }
    }
    Held took(std::size_t slot, Word position) {
        Held held;
        held.slot_ = slot;
        held.position_ = position;
        held.missed_ = position - position_;
        position_ = position + 1;
        slot_ = Ring::after(slot);
        count_waiting(slot, position);
        return held;
    }
    std::optional<Held> claim() {
        if (claim_at(slot_, position_)) return took(slot_, position_);
        if constexpr (Ring::drops) {
            // The producer has dropped samples or skipped a slot: the oldest that is left.
            for (std::size_t tries = 0; tries <= Ring::slot_count; ++tries) {
                if (has_all()) return std::nullopt;
                std::size_t best = Ring::slot_count;
                Word oldest = 0;
                for (std::size_t slot = 0; slot < Ring::slot_count; ++slot) {
                    const Word mark = ring_->slots[slot].mark.load(std::memory_order_acquire);
                    const Word position = mark >> 2;
                    if ((mark & Ring::state) == Ring::ready && position >= position_ &&
                        (best == Ring::slot_count || position < oldest)) {
                        best = slot;
                        oldest = position;
                    }
                }
                if (best != Ring::slot_count && claim_at(best, oldest)) return took(best, oldest);
            }
        }
        return std::nullopt;
    }
    // Counts how many samples wait, from the one just taken, if there are more than ever before.
    void count_waiting(std::size_t slot, Word position) {
        while (most_waiting_ < N) {
            const auto& ahead = ring_->slots[(slot + most_waiting_) % Ring::slot_count].mark;
            if (most_waiting_ > 0 &&
                ahead.load(std::memory_order_relaxed) != Ring::mark(position + most_waiting_, Ring::ready))
                break;
            ring_->saw_waiting(++most_waiting_);
        }
    }

    std::shared_ptr<Ring> ring_;
    Word position_ = 1;
    std::size_t slot_ = 0, most_waiting_ = 0;
    // Samples that were skipped, and dropped before those, and not reported yet.
    std::uint64_t skipped_ = 0, missed_ = 0;
};

template <typename T, std::size_t N, WhenFull Policy = WhenFull::Refuse>
std::pair<RingProducer<T, N, Policy>, RingConsumer<T, N, Policy>> ring() {
    auto memory = std::make_shared<detail::Ring<T, N, Policy>>();
    return {RingProducer<T, N, Policy>(memory), RingConsumer<T, N, Policy>(memory)};
}
template <typename T, std::size_t N>
auto ring_drop_oldest() {
    return ring<T, N, WhenFull::DropOldest>();
}

}  // namespace asof::threads
