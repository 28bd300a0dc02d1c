// Commands from several sources, of which the most important live one counts.
//
// There is no mode to switch. Each source has a priority and a timeout; who falls silent gives way by itself, and if nobody
// commands, the answer is to stop. A lock keeps sources down for as long as it is engaged, or silent.
#pragma once

#include <array>

#include "latest.hpp"

namespace asof::threads {

// How a lock is judged: how many sources, from the lowest on, it keeps down, and after how long without a release it counts
// as engaged (zero: it has no heartbeat).
struct Lock {
    std::size_t masks;
    Nanoseconds heartbeat{};
};

// Why there is no command to follow.
enum class Stop {
    // There is one.
    No,
    // No source has commanded within its timeout.
    Nobody,
    // A lock keeps every live source down.
    Locked,
    // More important sources came alive faster than they could be looked at.
    Unsettled,
};

namespace detail {

template <typename T, std::size_t S, std::size_t K>
class Mux {
    static_assert(S >= 1 && S <= 16 && K <= 16, "from 1 to 16 sources, up to 16 locks");
    static constexpr Word forever = ~Word(0), longest = Word(1) << 61;

    // What a reader looks at besides the command itself, side by side.
    struct alignas(128) Watched {
        std::atomic<Word> ends[S];
        std::atomic<Word> locks[K ? K : 1];
        std::atomic<Word> forced{0};
    };
    Watched watched_;
    Word timeouts_[S];
    Word masks_[K ? K : 1];
    Word heartbeats_[K ? K : 1];

    // An end that has passed is as far ahead as can be. One too far ahead is a broken clock's.
    bool is_live(std::size_t source, Word end, Word time) const { return end - time <= 2 * timeouts_[source]; }
    bool is_open(std::size_t lock, Word time) const {
        const Word from = watched_.locks[lock].load(std::memory_order_acquire);
        if (time >= from) return false;
        return heartbeats_[lock] == forever || from - time <= 2 * heartbeats_[lock] + 1;
    }
    // The lowest source that no lock keeps down, and the lock that does.
    std::pair<std::size_t, std::size_t> floor(Word time) const {
        std::pair<std::size_t, std::size_t> floor{0, K};
        for (std::size_t lock = 0; lock < K; ++lock)
            if (masks_[lock] > floor.first && !is_open(lock, time)) floor = {masks_[lock], lock};
        return floor;
    }
    std::size_t highest(std::size_t floor, Word forced, Word time) const {
        for (std::size_t source = S; source-- > floor;) {
            if (forced && forced != source + 1) continue;
            if (is_live(source, watched_.ends[source].load(std::memory_order_acquire), time)) return source;
        }
        return S;
    }

  public:
    struct Found {
        Stop stop = Stop::Unsettled;
        std::optional<Sample<T>> command{};
        std::size_t source = 0, lock = 0;
    };

    std::array<Latest<T, 4>, S> commands;

    Mux(const std::array<Nanoseconds, S>& timeouts, const std::array<Lock, K>& locks) {
        for (std::size_t source = 0; source < S; ++source) {
            timeouts_[source] = std::min(asof::detail::nanos(timeouts[source]), longest);
            watched_.ends[source].store(forever, std::memory_order_relaxed);
        }
        for (std::size_t lock = 0; lock < K; ++lock) {
            const Word heartbeat = asof::detail::nanos(locks[lock].heartbeat);
            masks_[lock] = locks[lock].masks;
            heartbeats_[lock] = heartbeat ? std::min(heartbeat, longest) : forever;
            // Engaged at once if it has a heartbeat, which was never heard.
            watched_.locks[lock].store(heartbeat ? 0 : forever, std::memory_order_relaxed);
        }
    }
    void command(std::size_t source, std::uint64_t stamp) {
        watched_.ends[source].store(stamp + timeouts_[source], std::memory_order_release);
    }
    void give_way(std::size_t source) { watched_.ends[source].store(forever, std::memory_order_release); }
    void engage(std::size_t lock) { watched_.locks[lock].store(0, std::memory_order_release); }
    void release(std::size_t lock, std::uint64_t stamp) {
        const Word heartbeat = heartbeats_[lock];
        const bool is_endless = heartbeat == forever || stamp > forever - 1 - heartbeat;
        watched_.locks[lock].store(is_endless ? forever : stamp + heartbeat + 1, std::memory_order_release);
    }
    bool is_engaged(std::size_t lock) const { return watched_.locks[lock].load(std::memory_order_acquire) == 0; }
    void force(Word forced) { watched_.forced.store(forced, std::memory_order_release); }

    Found choose(Word time) const {
        Found found;
        // A round fails when someone more important came alive in it.
        for (std::size_t round = 0; round <= S; ++round) {
            const auto [lowest, lock] = floor(time);
            const Word forced = watched_.forced.load(std::memory_order_acquire);
            found.source = highest(lowest, forced, time);
            if (found.source == S) {
                found.stop = lock < K ? Stop::Locked : Stop::Nobody;
                found.lock = lock;
                return found;
            }
            auto command = commands[found.source].newest();
            const bool is_settled =
                floor(time).first <= found.source && (forced || highest(found.source + 1, 0, time) == S);
            if (command && is_settled && is_live(found.source, command->meta.stamp + timeouts_[found.source], time)) {
                found.stop = Stop::No;
                found.command = std::move(command);
                return found;
            }
        }
        return found;
    }
};

}  // namespace detail

// Commands as one source.
template <typename T, std::size_t S, std::size_t K>
class MuxSource : detail::MoveOnly {
  public:
    MuxSource(std::shared_ptr<detail::Mux<T, S, K>> mux, std::size_t source) : mux_(std::move(mux)), source_(source) {}
    // It counts until its timeout has passed since `stamp`, unless someone more important commands.
    void write(const T& command, std::uint64_t stamp = now()) {
        generation_ = mux_->commands[source_].publish(generation_, command, stamp);
        mux_->command(source_, stamp);
    }
    // At once, instead of after the timeout.
    void give_way() { mux_->give_way(source_); }

  private:
    std::shared_ptr<detail::Mux<T, S, K>> mux_;
    std::size_t source_;
    detail::Word generation_ = 0;
};

// A lock that keeps sources down.
template <typename T, std::size_t S, std::size_t K>
class MuxLock : detail::MoveOnly {
  public:
    MuxLock(std::shared_ptr<detail::Mux<T, S, K>> mux, std::size_t lock) : mux_(std::move(mux)), lock_(lock) {}
    void engage() { mux_->engage(lock_); }
    // Until its heartbeat runs out, where it has one; a stamp that lies further ahead than that lets nothing through.
    void release(std::uint64_t stamp = now()) { mux_->release(lock_, stamp); }
    bool is_engaged() const { return mux_->is_engaged(lock_); }

  private:
    std::shared_ptr<detail::Mux<T, S, K>> mux_;
    std::size_t lock_;
};

// Takes the choice out of the priorities' hands.
template <typename T, std::size_t S, std::size_t K>
class MuxDirector : detail::MoveOnly {
  public:
    explicit MuxDirector(std::shared_ptr<detail::Mux<T, S, K>> mux) : mux_(std::move(mux)) {}
    // From now on only this source counts; false if there is none such.
    bool force(std::size_t source) {
        if (source >= S) return false;
        mux_->force(source + 1);
        return true;
    }
    void automatic() { mux_->force(0); }

  private:
    std::shared_ptr<detail::Mux<T, S, K>> mux_;
};

// Reads what is to be done; copy it for any number of readers.
template <typename T, std::size_t S, std::size_t K>
class MuxOutput {
  public:
    // A command to follow, or why to stop.
    struct Command {
        Stop stop;
        // To be followed only if there is one.
        std::optional<Sample<T>> sample;
        // By whom it is, or which lock is engaged.
        std::size_t source, lock;
        explicit operator bool() const { return stop == Stop::No; }
        const T& operator*() const { return sample->value; }
        const T* operator->() const { return &sample->value; }
        Nanoseconds age(std::uint64_t time = now()) const { return sample ? sample->age(time) : Nanoseconds{}; }
    };

    explicit MuxOutput(std::shared_ptr<const detail::Mux<T, S, K>> mux) : mux_(std::move(mux)) {}
    Command read(std::uint64_t time = now()) const {
        auto found = mux_->choose(time);
        return {found.stop, std::move(found.command), found.source, found.lock};
    }

  private:
    std::shared_ptr<const detail::Mux<T, S, K>> mux_;
};

template <typename T, std::size_t S, std::size_t K>
struct MuxEnds {
    std::array<MuxSource<T, S, K>, S> sources;
    std::array<MuxLock<T, S, K>, K> locks;
    MuxDirector<T, S, K> director;
    MuxOutput<T, S, K> output;
};

namespace detail {
template <typename T, std::size_t S, std::size_t K, std::size_t... I, std::size_t... J>
MuxEnds<T, S, K> mux_ends(std::shared_ptr<Mux<T, S, K>> mux, std::index_sequence<I...>, std::index_sequence<J...>) {
    return {{MuxSource<T, S, K>(mux, I)...},
            {MuxLock<T, S, K>(mux, J)...},
            MuxDirector<T, S, K>(mux),
            MuxOutput<T, S, K>(mux)};
}
}  // namespace detail

// The later a source, the more important: auto [sources, locks, director, output] = mux<Twist, 2, 1>({500ms, 500ms}, {{{2}}});
template <typename T, std::size_t S, std::size_t K = 0>
MuxEnds<T, S, K> mux(const std::array<Nanoseconds, S>& timeouts, const std::array<Lock, K>& locks = {}) {
    return detail::mux_ends<T, S, K>(std::make_shared<detail::Mux<T, S, K>>(timeouts, locks),
                                     std::make_index_sequence<S>(), std::make_index_sequence<K>());
}

}  // namespace asof::threads
