// The latest value, large: filled and read in place, never changing under a reader. With one reader, the triple buffer.
//
// Each reader has a mailbox, one word, that names the buffer offered to it and the one it holds. Publishing puts the
// new buffer into every mailbox; with R readers there are R+2 buffers, so the writer always finds a free one.
#pragma once

#include <array>

#include "common.hpp"

namespace asof::threads {

namespace detail {

template <typename T, std::size_t R>
struct Snapshot {
    static_assert(R >= 1 && R < 1000, "from 1 to 999 readers");
    static constexpr Word fresh = Word(1) << 31;
    static constexpr Word mail(Word offered, Word held, bool is_fresh) {
        return offered | held << 15 | (is_fresh ? fresh : 0);
    }
    static constexpr Word offered(Word mail) { return mail & 0x7fff; }
    // The buffer that the reader holds.
    static constexpr Word in_hand(Word mail) { return mail & fresh ? mail >> 15 & 0x7fff : offered(mail); }

    struct alignas(128) Buffer {
        Meta meta;
        T value{};
    };

    PaddedWord mailboxes[R];
    Buffer buffers[R + 2];
};

}  // namespace detail

template <typename T, std::size_t R = 1>
class SnapshotWriter : detail::MoveOnly {
    using Memory = detail::Snapshot<T, R>;
    using Word = detail::Word;

  public:
    explicit SnapshotWriter(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
    // The back buffer, with some older value in it, to fill until it is published. Do not access it afterwards.
    T& back() { return memory_->buffers[back_].value; }
    // The back buffer as a copy of the last publication, to change in part.
    T& edit() { return back() = front(); }
    // The last published value.
    const T& front() const { return memory_->buffers[front_].value; }
    void publish(std::uint64_t stamp = now()) {
        memory_->buffers[back_].meta = {++generation_, stamp};
        bool is_used[R + 2] = {};
        is_used[back_] = true;
        for (auto& mailbox : memory_->mailboxes) is_used[offer(mailbox.word, back_)] = true;
        front_ = back_;
        for (back_ = 0; is_used[back_];) ++back_;
    }
    std::uint64_t generation() const { return generation_; }

  private:
    // Offers a buffer to one reader; returns the one that it holds.
    static Word offer(std::atomic<Word>& mailbox, Word buffer) {
        Word found = mailbox.load(std::memory_order_acquire);
        if (found & Memory::fresh) {
            // Its reader may take the last offer this very moment.
            const Word held = Memory::in_hand(found);
            if (mailbox.compare_exchange_strong(found, Memory::mail(buffer, held, true), std::memory_order_release,
                                                std::memory_order_acquire))
                return held;
        }
        // A reader leaves its mailbox alone until there is a new offer, so this needs no exchange.
        const Word held = Memory::in_hand(found);
        mailbox.store(Memory::mail(buffer, held, true), std::memory_order_release);
        return held;
    }

    std::shared_ptr<Memory> memory_;
    Word front_ = 0, back_ = 1;
    std::uint64_t generation_ = 0;
};

template <typename T, std::size_t R = 1>
class SnapshotReader : detail::MoveOnly {
    using Memory = detail::Snapshot<T, R>;
    using Word = detail::Word;
    struct Shared {
        std::shared_ptr<Memory> memory;
        std::size_t reader = 0;
        Word held = 0;
        std::size_t frames = 0;
    };

  public:
    // A value that does not change while this is alive. Its reader stays at this value until then.
    class Frame : detail::MoveOnly {
      public:
        const T& operator*() const { return shared_->memory->buffers[shared_->held].value; }
        const T* operator->() const { return &**this; }
        Meta meta() const { return shared_->memory->buffers[shared_->held].meta; }
        Nanoseconds age(std::uint64_t time = now()) const { return meta().age(time); }
        Frame(Frame&&) noexcept = default;
        Frame& operator=(Frame&&) = delete;
        ~Frame() {
            if (shared_) --shared_->frames;
        }

      private:
        friend class SnapshotReader;
        explicit Frame(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) { ++shared_->frames; }
        std::shared_ptr<Shared> shared_;
    };

    SnapshotReader(std::shared_ptr<Memory> memory, std::size_t reader) : shared_(std::make_shared<Shared>()) {
        shared_->memory = std::move(memory);
        shared_->reader = reader;
    }
    // Whether there is a publication that was not taken yet.
    bool has_new() const { return mailbox().load(std::memory_order_relaxed) & Memory::fresh; }
    // The newest value; while a frame of this reader is alive, the same as that. Generation 0 before the first.
    Frame latest() {
        if (shared_->frames == 0 && has_new())
            shared_->held = Memory::offered(mailbox().fetch_sub(Memory::fresh, std::memory_order_acq_rel));
        return Frame(shared_);
    }

  private:
    std::atomic<Word>& mailbox() const { return shared_->memory->mailboxes[shared_->reader].word; }
    std::shared_ptr<Shared> shared_;
};

template <typename T, std::size_t R>
struct SnapshotEnds {
    SnapshotWriter<T, R> writer;
    std::array<SnapshotReader<T, R>, R> readers;
};

namespace detail {
template <typename T, std::size_t R, std::size_t... I>
SnapshotEnds<T, R> snapshot_ends(std::index_sequence<I...>) {
    auto memory = std::make_shared<Snapshot<T, R>>();
    return {SnapshotWriter<T, R>(memory), {SnapshotReader<T, R>(memory, I)...}};
}
}  // namespace detail

// auto [writer, readers] = snapshot<Map, 2>();
template <typename T, std::size_t R>
SnapshotEnds<T, R> snapshot() {
    return detail::snapshot_ends<T, R>(std::make_index_sequence<R>());
}

template <typename T>
using TripleBufferWriter = SnapshotWriter<T, 1>;
template <typename T>
using TripleBufferReader = SnapshotReader<T, 1>;

// auto [writer, reader] = triple_buffer<Frame>();
template <typename T>
std::pair<TripleBufferWriter<T>, TripleBufferReader<T>> triple_buffer() {
    auto memory = std::make_shared<detail::Snapshot<T, 1>>();
    return {TripleBufferWriter<T>(memory), TripleBufferReader<T>(memory, 0)};
}

}  // namespace asof::threads
