// Commands from several sources by priority, with timeouts and locks.
//
// There is no mode to switch. Each source has a priority and a timeout. A source that goes silent yields by itself, and
// if none is live, the result is to stop. A lock suppresses sources while it is engaged, or silent.
#pragma once

#include <array>

#include "latest.hpp"

namespace asof::threads {

// Options of a lock: how many of the lowest sources it suppresses, and how long after a release it counts as engaged
// again (zero: it has no heartbeat).
struct Lock {
    std::size_t masks;
    Nanoseconds heartbeat{};
};

// Why there is no command to follow.
enum class Stop {
    // There is a command.
    No,
    // No source has commanded within its timeout.
    Nobody,
    // A lock suppresses every live source.
    Locked,
    // More important sources came alive faster than they could be read.
    Unsettled,
};

namespace detail {

template <typename T, std::size_t S, std::size_t K>
class Mux {
    static_assert(S >= 1 && S <= 16 && K <= 16, "from 1 to 16 sources, up to 16 locks");
    static constexpr Word forever = ~Word(0), longest = Word(1) << 61;

    // What a reader checks besides the command itself, contiguous.
    struct alignas(128) Watched {
        std::atomic<Word> ends[S];
        std::atomic<Word> locks[K ? K : 1];
        std::atomic<Word> forced{0};
    };
    Watched watched_;
    Word timeouts_[S];
    Word masks_[K ? K : 1];
    Word heartbeats_[K ? K : 1];

    // An expiry in the past wraps around to the far future. One too far ahead comes from a broken clock.
    bool is_live(std::size_t source, Word end, Word time) const { return end - time <= 2 * timeouts_[source]; }
    bool is_open(std::size_t lock, Word time) const {
        const Word from = watched_.locks[lock].load(std::memory_order_acquire);
        if (time >= from) return false;
        return heartbeats_[lock] == forever || from - time <= 2 * heartbeats_[lock] + 1;
    }
    // The lowest source that no lock suppresses, and the lock that suppresses the ones below.
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
            // Engaged at once if it has a heartbeat, until the first release.
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
        // A round fails if a more important source came alive during it.
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

// The end of one source.
template <typename T, std::size_t S, std::size_t K>
class MuxSource : detail::MoveOnly {
  public:
    MuxSource(std::shared_ptr<detail::Mux<T, S, K>> mux, std::size_t source) : mux_(std::move(mux)), source_(source) {}
    // Writes a command. It is valid until its timeout after `stamp`, unless a more important source commands.
    void write(const T& command, std::uint64_t stamp = now()) {
        generation_ = mux_->commands[source_].publish(generation_, command, stamp);
        mux_->command(source_, stamp);
    }
    // Yields at once, instead of after the timeout.
    void give_way() { mux_->give_way(source_); }

  private:
    std::shared_ptr<detail::Mux<T, S, K>> mux_;
    std::size_t source_;
    detail::Word generation_ = 0;
};

// A lock that suppresses sources.
template <typename T, std::size_t S, std::size_t K>
class MuxLock : detail::MoveOnly {
  public:
    MuxLock(std::shared_ptr<detail::Mux<T, S, K>> mux, std::size_t lock) : mux_(std::move(mux)), lock_(lock) {}
    void engage() { mux_->engage(lock_); }
    // Passes its sources; if the lock has a heartbeat, until that expires. A stamp further ahead than that passes
    // nothing.
    void release(std::uint64_t stamp = now()) { mux_->release(lock_, stamp); }
    bool is_engaged() const { return mux_->is_engaged(lock_); }

  private:
    std::shared_ptr<detail::Mux<T, S, K>> mux_;
    std::size_t lock_;
};

// Overrides the priorities.
template <typename T, std::size_t S, std::size_t K>
class MuxDirector : detail::MoveOnly {
  public:
    explicit MuxDirector(std::shared_ptr<detail::Mux<T, S, K>> mux) : mux_(std::move(mux)) {}
    // From now on only this source is followed; false if it does not exist.
    bool force(std::size_t source) {
        if (source >= S) return false;
        mux_->force(source + 1);
        return true;
    }
    void automatic() { mux_->force(0); }

  private:
    std::shared_ptr<detail::Mux<T, S, K>> mux_;
};

// Reads the command to follow; copy it for any number of readers.
template <typename T, std::size_t S, std::size_t K>
class MuxOutput {
  public:
    // A command to follow, or why to stop.
    struct Command {
        Stop stop;
        // The command, if there is one to follow.
        std::optional<Sample<T>> sample;
        // Its source, or the lock that is engaged.
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

// Later sources are more important: auto [sources, locks, director, output] = mux<Twist, 2, 1>({500ms, 500ms},
// {{{2}}});
template <typename T, std::size_t S, std::size_t K = 0>
MuxEnds<T, S, K> mux(const std::array<Nanoseconds, S>& timeouts, const std::array<Lock, K>& locks = {}) {
    return detail::mux_ends<T, S, K>(std::make_shared<detail::Mux<T, S, K>>(timeouts, locks),
                                     std::make_index_sequence<S>(), std::make_index_sequence<K>());
}

}  // namespace asof::threads
