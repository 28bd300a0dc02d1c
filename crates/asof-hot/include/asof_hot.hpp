// asof-hot for C++: the shared-memory forms, closed when they go out of scope.
//
//   asof::LatestReader<Odometry> odometry("odometry", "Odometry");
//   if (auto sample = odometry.read()) drive(sample->value, sample->age());
//
// T is a struct of plain data without padding, laid out as the Rust side declares it with `plain!` and of the same name;
// an array of numbers is called as in "u8*65536". Whatever cannot be opened throws asof::Error; nothing else throws.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "asof_hot.h"

namespace asof {

using Nanoseconds = std::chrono::nanoseconds;

// What went wrong, in words.
struct Error : std::runtime_error {
    Error() : std::runtime_error(asof_hot_last_error()) {}
};

// Now, on the clock that both sides stamp with.
inline std::uint64_t now() { return asof_hot_now(); }

// How long ago a time was; zero if it lies ahead.
inline Nanoseconds since(std::uint64_t stamp, std::uint64_t time = now()) {
    return Nanoseconds(time > stamp ? time - stamp : 0);
}

// Removes a segment's name; whether it was there.
inline bool remove(const std::string& name) { return asof_hot_remove(name.c_str()); }

// A value, which write it came from, and when that was.
template <typename T>
struct Sample {
    T value;
    AsofMeta meta;
    Nanoseconds age(std::uint64_t time = now()) const { return since(meta.stamp, time); }
};

namespace detail {
template <typename H, void (*Close)(H*)>
struct Closer {
    void operator()(H* handle) const { Close(handle); }
};
template <typename H, void (*Close)(H*)>
using Handle = std::unique_ptr<H, Closer<H, Close>>;

template <typename H>
H* opened(H* handle) {
    if (!handle) throw Error();
    return handle;
}

template <typename T>
AsofType type(const char* name) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>, "plain data only");
    static_assert(alignof(T) <= 8, "aligned to 8 at most");
    return AsofType{name, sizeof(T), alignof(T)};
}

inline std::uint64_t nanos(Nanoseconds span) { return span.count() > 0 ? static_cast<std::uint64_t>(span.count()) : 0; }
}  // namespace detail

// What every segment has, whatever it holds: who is alive, and sleeping instead of spinning.
class Segment {
  public:
    explicit Segment(const std::string& name) : handle_(detail::opened(asof_segment_open(name.c_str()))) {}

    // Whether a process that is alive holds the writing end (or producer, or trigger).
    bool is_writer_alive() const { return asof_segment_is_writer_alive(handle_.get()); }
    // Whether a process that is alive holds the only reading end (consumer, resetter).
    bool is_reader_alive() const { return asof_segment_is_reader_alive(handle_.get()); }
    // How many writers there were: a change means that one took over from another.
    std::uint64_t epoch() const { return asof_segment_epoch(handle_.get()); }
    // Says, for the writer, that it is alive though it has nothing to write.
    void beat(std::uint64_t time = now()) { asof_segment_beat(handle_.get(), time); }
    // When the writer last said so, if ever.
    std::optional<std::uint64_t> last_beat() const {
        const auto beat = asof_segment_last_beat(handle_.get());
        return beat ? std::optional(beat) : std::nullopt;
    }

    // Wakes all who sleep on this segment; next to nothing while nobody does.
    void notify() const { asof_segment_notify(handle_.get()); }
    // Sleeps until `is_ready()` holds; looks once more whenever it is woken. Whether it holds; no timeout: for ever.
    template <typename IsReady>
    bool wait_until(std::optional<Nanoseconds> timeout, IsReady&& is_ready) const {
        if (timeout && timeout->count() <= 0) return is_ready();
        using Ready = std::remove_reference_t<IsReady>;
        const auto look = [](void* context) { return static_cast<bool>((*static_cast<Ready*>(context))()); };
        auto* context = const_cast<void*>(static_cast<const void*>(std::addressof(is_ready)));
        return asof_segment_wait(handle_.get(), timeout ? detail::nanos(*timeout) : 0, look, context);
    }

  private:
    detail::Handle<AsofSegment, asof_segment_close> handle_;
};

// The newest value of a type; one writer.
template <typename T, std::uint32_t Slots = 8>
class LatestWriter {
  public:
    LatestWriter(const std::string& name, const char* type)
        : handle_(detail::opened(asof_latest_writer_open(name.c_str(), detail::type<T>(type), Slots))) {}
    void write(const T& value, std::uint64_t stamp = now()) { asof_latest_write(handle_.get(), &value, stamp); }
    // Changes the last value (zeros before the first) and publishes it.
    template <typename Change>
    void update(Change&& change, std::uint64_t stamp = now()) {
        T value;
        asof_latest_last(handle_.get(), &value);
        std::forward<Change>(change)(value);
        write(value, stamp);
    }

  private:
    detail::Handle<AsofLatestWriter, asof_latest_writer_close> handle_;
};

// The newest value of a type; any number of readers, which never wait.
template <typename T, std::uint32_t Slots = 8>
class LatestReader {
  public:
    LatestReader(const std::string& name, const char* type)
        : handle_(detail::opened(asof_latest_reader_open(name.c_str(), detail::type<T>(type), Slots))) {}
    // Nothing before the first value.
    std::optional<Sample<T>> read() const {
        Sample<T> sample;
        if (!asof_latest_read(handle_.get(), &sample.value, &sample.meta)) return std::nullopt;
        return sample;
    }
    // Nothing if the newest value is the one of generation `seen`.
    std::optional<Sample<T>> read_if_newer(std::uint64_t seen) const {
        Sample<T> sample;
        if (!asof_latest_read_if_newer(handle_.get(), seen, &sample.value, &sample.meta)) return std::nullopt;
        return sample;
    }
    std::uint64_t generation() const { return asof_latest_generation(handle_.get()); }
    bool is_writer_alive() const { return asof_latest_is_writer_alive(handle_.get()); }

  private:
    detail::Handle<AsofLatestReader, asof_latest_reader_close> handle_;
};

// What a ring does when it is full.
enum class WhenFull : bool { Refuse = false, DropOldest = true };

// Fills the slots of a ring in place.
template <typename T, std::uint32_t Slots, WhenFull Policy = WhenFull::Refuse>
class RingProducer {
  public:
    RingProducer(const std::string& name, const char* type)
        : handle_(detail::opened(
              asof_ring_producer_open(name.c_str(), detail::type<T>(type), Slots, Policy == WhenFull::DropOldest))) {}
    // The next slot, or null if the ring is full; nothing happened until it is committed.
    T* try_write() { return static_cast<T*>(asof_ring_try_write(handle_.get())); }
    // Up to `most` slots, committed together; how many. They are reached by `slot`.
    std::size_t try_write_batch(std::size_t most) { return asof_ring_try_write_batch(handle_.get(), most); }
    T& slot(std::size_t index) { return *static_cast<T*>(asof_ring_slot(handle_.get(), index)); }
    void commit(std::uint64_t stamp = now()) { asof_ring_commit(handle_.get(), stamp); }

    // How many samples were dropped unread, and how many times there was no slot.
    std::uint64_t lost() const { return asof_ring_lost(handle_.get()); }
    std::uint64_t refused() const { return asof_ring_refused(handle_.get()); }

  private:
    detail::Handle<AsofRingProducer, asof_ring_producer_close> handle_;
};

// Empties the slots of a ring in place.
template <typename T, std::uint32_t Slots, WhenFull Policy = WhenFull::Refuse>
class RingConsumer {
  public:
    // A sample in place, or several in a row; the slots go back to the producer with it.
    class Held {
      public:
        std::size_t size() const { return count_; }
        const T& operator[](std::size_t index) const {
            return *static_cast<const T*>(asof_ring_sample(ring_, index, nullptr));
        }
        AsofMeta meta(std::size_t index = 0) const {
            AsofMeta meta{};
            asof_ring_sample(ring_, index, &meta);
            return meta;
        }
        const T& operator*() const { return (*this)[0]; }
        const T* operator->() const { return &(*this)[0]; }
        Nanoseconds age(std::uint64_t time = now()) const { return since(meta().stamp, time); }

        Held(Held&& other) noexcept : ring_(std::exchange(other.ring_, nullptr)), count_(other.count_) {}
        Held& operator=(Held&&) = delete;
        ~Held() {
            if (ring_) asof_ring_release(ring_);
        }

      private:
        friend class RingConsumer;
        Held(AsofRingConsumer* ring, std::size_t count) : ring_(ring), count_(count) {}
        AsofRingConsumer* ring_;
        std::size_t count_;
    };

    RingConsumer(const std::string& name, const char* type)
        : handle_(detail::opened(
              asof_ring_consumer_open(name.c_str(), detail::type<T>(type), Slots, Policy == WhenFull::DropOldest))) {}
    // The oldest sample; one at a time.
    std::optional<Held> try_read() { return held(asof_ring_try_read(handle_.get(), nullptr) ? 1 : 0); }
    // The newest sample; older ones are given back unread.
    std::optional<Held> try_latest() { return held(asof_ring_try_latest(handle_.get(), nullptr) ? 1 : 0); }
    // Up to `most` samples in a row.
    std::optional<Held> try_read_batch(std::size_t most) {
        return held(asof_ring_try_read_batch(handle_.get(), most));
    }
    bool has_new() const { return asof_ring_has_new(handle_.get()); }
    // How many samples were dropped unread.
    std::uint64_t lost() const { return asof_ring_missed(handle_.get()); }

  private:
    std::optional<Held> held(std::size_t count) {
        if (!count) return std::nullopt;
        return Held(handle_.get(), count);
    }
    detail::Handle<AsofRingConsumer, asof_ring_consumer_close> handle_;
};

// The newest large value, filled in place. With one reader it is a triple buffer.
template <typename T, std::uint32_t Readers = 1>
class SnapshotWriter {
  public:
    SnapshotWriter(const std::string& name, const char* type)
        : handle_(detail::opened(asof_snapshot_writer_open(name.c_str(), detail::type<T>(type), Readers))) {}
    // The back buffer, with some older value in it, to fill until it is published.
    T& back() { return *static_cast<T*>(asof_snapshot_back(handle_.get())); }
    // The back buffer with what was published last in it, to change in part.
    T& edit() { return *static_cast<T*>(asof_snapshot_edit(handle_.get())); }
    void publish(std::uint64_t stamp = now()) { asof_snapshot_publish(handle_.get(), stamp); }
    std::uint64_t generation() const { return asof_snapshot_generation(handle_.get()); }

  private:
    detail::Handle<AsofSnapshotWriter, asof_snapshot_writer_close> handle_;
};

// Reads the newest large value in place.
template <typename T, std::uint32_t Readers = 1>
class SnapshotReader {
  public:
    // A value that stays as it is until the reader's next `latest`.
    struct Frame {
        const T& value;
        AsofMeta meta;
        Nanoseconds age(std::uint64_t time = now()) const { return since(meta.stamp, time); }
    };

    SnapshotReader(const std::string& name, const char* type, std::uint32_t number = 0)
        : handle_(detail::opened(asof_snapshot_reader_open(name.c_str(), detail::type<T>(type), Readers, number))) {}
    // Whether something was published that was not taken yet.
    bool has_new() const { return asof_snapshot_has_new(handle_.get()); }
    // Of generation 0 before the first publication.
    Frame latest() {
        AsofMeta meta;
        const void* value = asof_snapshot_latest(handle_.get(), &meta);
        return Frame{*static_cast<const T*>(value), meta};
    }

  private:
    detail::Handle<AsofSnapshotReader, asof_snapshot_reader_close> handle_;
};

template <typename T>
using TripleBufferWriter = SnapshotWriter<T, 1>;
template <typename T>
using TripleBufferReader = SnapshotReader<T, 1>;

// Commands as one source of a mux.
template <typename T>
class MuxSource {
  public:
    MuxSource(const AsofMux* mux, std::uint32_t number) : handle_(detail::opened(asof_mux_source_open(mux, number))) {}
    void write(const T& command, std::uint64_t stamp = now()) { asof_mux_write(handle_.get(), &command, stamp); }
    // At once, instead of after the timeout.
    void give_way() { asof_mux_give_way(handle_.get()); }

  private:
    detail::Handle<AsofMuxSource, asof_mux_source_close> handle_;
};

// A lock that keeps sources of a mux down.
class MuxLock {
  public:
    MuxLock(const AsofMux* mux, std::uint32_t number) : handle_(detail::opened(asof_mux_lock_open(mux, number))) {}
    void engage() { asof_mux_lock_engage(handle_.get()); }
    // Until its heartbeat runs out, where it has one.
    void release(std::uint64_t stamp = now()) { asof_mux_lock_release(handle_.get(), stamp); }
    bool is_engaged() const { return asof_mux_lock_is_engaged(handle_.get()); }

  private:
    detail::Handle<AsofMuxLock, asof_mux_lock_close> handle_;
};

// Takes the choice out of the priorities' hands.
class MuxDirector {
  public:
    explicit MuxDirector(const AsofMux* mux) : handle_(detail::opened(asof_mux_director_open(mux))) {}
    // Whether there is such a source.
    bool force(std::uint32_t source) { return asof_mux_force(handle_.get(), source); }
    void automatic() { asof_mux_automatic(handle_.get()); }

  private:
    detail::Handle<AsofMuxDirector, asof_mux_director_close> handle_;
};

// Commands from several sources, the later the more important; gives the ends that write.
template <typename T, std::uint32_t Sources, std::uint32_t Locks = 1>
class Mux {
  public:
    // Timeouts of the sources, and how many sources each lock keeps down, with the span of its heartbeat (0: none).
    Mux(const std::string& name, const char* type, const std::array<Nanoseconds, Sources>& timeouts,
        const std::array<std::pair<std::uint32_t, Nanoseconds>, Locks>& locks) {
        std::array<AsofMuxSourceConfig, Sources> source_configs;
        std::array<AsofMuxLockConfig, Locks> lock_configs;
        for (std::size_t i = 0; i < Sources; ++i) source_configs[i] = {detail::nanos(timeouts[i])};
        for (std::size_t i = 0; i < Locks; ++i) lock_configs[i] = {locks[i].first, detail::nanos(locks[i].second)};
        handle_.reset(detail::opened(asof_mux_open(name.c_str(), detail::type<T>(type), source_configs.data(), Sources,
                                                   lock_configs.data(), Locks)));
    }
    MuxSource<T> source(std::uint32_t number) const { return MuxSource<T>(handle_.get(), number); }
    MuxLock lock(std::uint32_t number) const { return MuxLock(handle_.get(), number); }
    MuxDirector director() const { return MuxDirector(handle_.get()); }

  private:
    detail::Handle<AsofMux, asof_mux_close> handle_;
};

// Reads what is to be done; any number of readers.
template <typename T, std::uint32_t Sources, std::uint32_t Locks = 1>
class MuxOutput {
  public:
    struct Command {
        AsofMuxAnswer answer;
        // To be followed only if the answer is a command.
        T value;
        AsofMuxInfo info;
        explicit operator bool() const { return answer == ASOF_MUX_ANSWER_COMMAND; }
        std::uint32_t source() const { return info.source; }
        std::uint32_t lock() const { return info.lock; }
        Nanoseconds age(std::uint64_t time = now()) const { return since(info.meta.stamp, time); }
    };

    MuxOutput(const std::string& name, const char* type)
        : handle_(detail::opened(asof_mux_output_open(name.c_str(), detail::type<T>(type), Sources, Locks))) {}
    Command read(std::uint64_t time = now()) const {
        Command command{};
        command.answer = asof_mux_read(handle_.get(), time, &command.value, &command.info);
        return command;
    }

  private:
    detail::Handle<AsofMuxOutput, asof_mux_output_close> handle_;
};

// Reports events that must not be missed.
class LatchTrigger {
  public:
    // After `silence` without a sign of life the sensor is silent; zero: never.
    explicit LatchTrigger(const std::string& name, Nanoseconds silence = {})
        : handle_(detail::opened(asof_latch_trigger_open(name.c_str(), detail::nanos(silence)))) {}
    void trigger(std::uint32_t contacts, std::uint64_t stamp = now()) { asof_latch_trigger(handle_.get(), contacts, stamp); }
    void heartbeat(std::uint64_t stamp = now()) { asof_latch_heartbeat(handle_.get(), stamp); }

  private:
    detail::Handle<AsofLatchTrigger, asof_latch_trigger_close> handle_;
};

// Looks at events.
class LatchObserver {
  public:
    struct State {
        AsofLatchState kind;
        // Of events that were not acknowledged.
        AsofLatchContact contact;
        // Since the last of them, and since the first.
        Nanoseconds elapsed(std::uint64_t time = now()) const { return since(contact.last, time); }
        Nanoseconds elapsed_since_first(std::uint64_t time = now()) const { return since(contact.first, time); }
    };

    explicit LatchObserver(const std::string& name) : handle_(detail::opened(asof_latch_observer_open(name.c_str()))) {}
    bool is_triggered() const { return asof_latch_is_triggered(handle_.get()); }
    // How many events came since this observer last asked, and in all.
    std::uint64_t new_events() { return asof_latch_new_events(handle_.get()); }
    std::uint64_t count() const { return asof_latch_count(handle_.get()); }
    State state(std::uint64_t time = now()) const {
        State state{};
        state.kind = asof_latch_state(handle_.get(), time, &state.contact);
        return state;
    }

  private:
    detail::Handle<AsofLatchObserver, asof_latch_observer_close> handle_;
};

// Acknowledges events.
class LatchResetter {
  public:
    explicit LatchResetter(const std::string& name, Nanoseconds silence = {})
        : handle_(detail::opened(asof_latch_resetter_open(name.c_str(), detail::nanos(silence)))) {}
    // All up to the count that was seen; false if more came by now, which stay.
    bool reset(std::uint64_t count) { return asof_latch_reset(handle_.get(), count); }
    // If the last event was at least so long ago; whether it did.
    bool reset_if_elapsed(Nanoseconds span, std::uint64_t time = now()) {
        return asof_latch_reset_if_elapsed(handle_.get(), time, detail::nanos(span));
    }

  private:
    detail::Handle<AsofLatchResetter, asof_latch_resetter_close> handle_;
};

}  // namespace asof
