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

// Which command to follow, or why to stop.
struct Following {
    Stop stop;
    // The command's source, or the lock that is engaged.
    std::size_t source, lock;
    // The command's stamp, and its number among those of its source.
    Meta meta;
    explicit operator bool() const { return stop == Stop::No; }
};

namespace detail {

template <typename T, std::size_t S, std::size_t K>
class Mux {
    static_assert(S >= 1 && S <= 16 && K <= 16, "from 1 to 16 sources, up to 16 locks");
    static constexpr Word forever = ~Word(0), longest = Word(1) << 61;

    // What a reader checks besides the command itself: when each source's last command expires, from when each lock is
    // engaged, the forced source.
    static constexpr std::size_t words = S + K + 1;
    struct alignas(128) Watched {
        std::atomic<Word> words[Mux::words] = {};
    };
    Watched watched_;
    Word timeouts_[S];
    Word masks_[K ? K : 1];
    Word heartbeats_[K ? K : 1];

    // An expiry in the past wraps around to the far future. One too far ahead comes from a broken clock.
    bool is_live(std::size_t source, Word end, Word time) const { return end - time <= 2 * timeouts_[source]; }
    // How far ahead of now the engagement of a released lock may be.
    Word lock_window(std::size_t lock) const {
        return heartbeats_[lock] == forever ? forever : 2 * heartbeats_[lock] + 1;
    }
    bool is_open(std::size_t lock, Word from, Word time) const {
        return time < from && from - time <= lock_window(lock);
    }
    // The lowest source that no lock suppresses, and the lock that suppresses the ones below; `word` gives the words.
    template <typename Words>
    std::pair<std::size_t, std::size_t> floor(Word time, Words&& word) const {
        std::pair<std::size_t, std::size_t> floor{0, K};
        for (std::size_t lock = 0; lock < K; ++lock)
            if (masks_[lock] > floor.first && !is_open(lock, word(S + lock), time)) floor = {masks_[lock], lock};
        return floor;
    }
    template <typename Words>
    std::size_t highest(std::size_t floor, Word forced, Word time, Words&& word) const {
        for (std::size_t source = S; source-- > floor;) {
            if (forced && forced != source + 1) continue;
            if (is_live(source, word(source), time)) return source;
        }
        return S;
    }
    auto loaded() const {
        return [this](std::size_t word) { return watched_.words[word].load(std::memory_order_acquire); };
    }

  public:
    std::array<Latest<T, 4>, S> commands;

    Mux(const std::array<Nanoseconds, S>& timeouts, const std::array<Lock, K>& locks) {
        for (std::size_t source = 0; source < S; ++source) {
            timeouts_[source] = std::min(asof::detail::nanos(timeouts[source]), longest);
            watched_.words[source].store(forever, std::memory_order_relaxed);
        }
        for (std::size_t lock = 0; lock < K; ++lock) {
            const Word heartbeat = asof::detail::nanos(locks[lock].heartbeat);
            masks_[lock] = locks[lock].masks;
            heartbeats_[lock] = heartbeat ? std::min(heartbeat, longest) : forever;
            // Engaged at once if it has a heartbeat, until the first release.
            watched_.words[S + lock].store(heartbeat ? 0 : forever, std::memory_order_relaxed);
        }
    }
    void command(std::size_t source, std::uint64_t stamp) {
        watched_.words[source].store(stamp + timeouts_[source], std::memory_order_release);
    }
    void give_way(std::size_t source) { watched_.words[source].store(forever, std::memory_order_release); }
    void engage(std::size_t lock) { watched_.words[S + lock].store(0, std::memory_order_release); }
    void release(std::size_t lock, std::uint64_t stamp) {
        const Word heartbeat = heartbeats_[lock];
        const bool is_endless = heartbeat == forever || stamp > forever - 1 - heartbeat;
        watched_.words[S + lock].store(is_endless ? forever : stamp + heartbeat + 1, std::memory_order_release);
    }
    bool is_engaged(std::size_t lock) const { return watched_.words[S + lock].load(std::memory_order_acquire) == 0; }
    void force(Word forced) { watched_.words[S + K].store(forced, std::memory_order_release); }

    // The command that was followed last: usually also the next one, as sources command every few milliseconds. With all
    // that decided so, and the range of times in which it decides the same, whoever is locked, forced or silent.
    struct Last {
        typename Latest<T, 4>::Settled settled;
        std::size_t source = 0;
        alignas(16) Word words[Mux::words] = {};
        Word from = 0, span = 0;
    };

    // Copies the command to follow into `target`, unless there is none.
    Following choose(Word time, T& target, Last& last) const {
        if (commands[last.source].copy_settled(last.settled, target) && stands(last, time))
            return {Stop::No, last.source, 0, last.settled.meta};
        return choose_another(time, target, last);
    }

  private:
    // A call, so that what precedes it is none.
    [[gnu::noinline]] Following choose_another(Word time, T& target, Last& last) const {
        const Following found = choose_afresh(time, target);
        if (found) remember(found, time, last);
        return found;
    }

    // Whether nothing has changed that decided which source is followed.
    bool stands(const Last& last, Word time) const {
        return are_same<words>(watched_.words, last.words) && time - last.from <= last.span;
    }

    void remember(const Following& found, Word time, Last& last) const {
        Word back = forever, ahead = forever;
        const auto narrow = [&](Word around_back, Word around_ahead) {
            back = std::min(back, around_back);
            ahead = std::min(ahead, around_ahead);
        };
        for (std::size_t word = 0; word < words; ++word) last.words[word] = loaded()(word);
        for (std::size_t source = 0; source < S; ++source) {
            const Word end = last.words[source], left = end - time, window = 2 * timeouts_[source];
            if (left <= window)
                narrow(window - left, left);
            else
                narrow(time - end - 1, left - window - 1);
        }
        for (std::size_t lock = 0; lock < K; ++lock) {
            const Word from = last.words[S + lock], window = lock_window(lock);
            const Word opens = from > window ? from - window : 0;
            if (time >= from)
                narrow(time - from, forever - time);
            else if (time >= opens)
                narrow(time - opens, from - 1 - time);
            else
                narrow(time, opens - 1 - time);
        }
        last.from = time - back;
        last.span = back + ahead;
        last.source = found.source;
        // What was just loaded has to decide alike: it may be newer than what the source was chosen by.
        const auto kept = [&](std::size_t word) { return last.words[word]; };
        const bool is_same = highest(floor(time, kept).first, last.words[S + K], time, kept) == found.source &&
                             last.words[found.source] == found.meta.stamp + timeouts_[found.source];
        last.settled = {};
        if (is_same) last.settled = commands[found.source].settled(found.meta);
    }

    Following choose_afresh(Word time, T& target) const {
        // A round fails if a more important source came alive during it.
        for (std::size_t round = 0; round <= S; ++round) {
            const auto [lowest, lock] = floor(time, loaded());
            const Word forced = loaded()(S + K);
            const std::size_t source = highest(lowest, forced, time, loaded());
            if (source == S) return {lock < K ? Stop::Locked : Stop::Nobody, source, lock, {}};
            const auto meta = commands[source].newest(target);
            const bool is_settled = floor(time, loaded()).first <= source &&
                                    (forced || highest(source + 1, 0, time, loaded()) == S);
            if (meta && is_settled && is_live(source, meta->stamp + timeouts_[source], time))
                return {Stop::No, source, 0, *meta};
        }
        return {Stop::Unsettled, S, K, {}};
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
        Command command;
        command.sample.emplace();
        const Following found = read_into(command.sample->value, time);
        command.stop = found.stop;
        command.source = found.source;
        command.lock = found.lock;
        if (found)
            command.sample->meta = found.meta;
        else
            command.sample.reset();
        return command;
    }
    // Copies the command to follow into `target`: the fastest way. Without one, `target` holds a command that must not
    // be followed, or is unchanged.
    Following read_into(T& target, std::uint64_t time = now()) const { return mux_->choose(time, target, last_); }

  private:
    std::shared_ptr<const detail::Mux<T, S, K>> mux_;
    // Of this reader alone.
    mutable typename detail::Mux<T, S, K>::Last last_;
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
