// asof-hot for C++, between processes: structures in shared memory, closed when they go out of scope. Link libasof_hot.
// (Between threads of one process: asof_hot_threads.hpp, with nothing to link.)
//
//   asof::LatestReader<Odometry> odometry("odometry");
//   if (auto sample = odometry.read()) drive(sample->value, sample->age());
//
// T is a struct of plain data without padding, with the layout and the name that the Rust side declares with `plain!`;
// the compiler provides the name (asof_hot_types.hpp). Whatever cannot be opened, and a name with a NUL inside, throws
// asof::Error, which says what to do; filling two slots of one ring at once throws std::logic_error. Nothing else throws.
//
// An end, and what it hands out, is used by one thread at a time. What it hands out keeps it open.
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
#include "asof_hot_types.hpp"

namespace asof {

// Why a segment or an end could not be opened.
struct Error : std::runtime_error {
    Error() : std::runtime_error(asof_hot_last_error()) {}
    explicit Error(const std::string& why) : std::runtime_error(why) {}
};

namespace detail {
// A name for the C interface, which ends at the first NUL: one with a NUL inside would be another name.
inline const char* c_name(const std::string& name) {
    if (name.find('\0') != std::string::npos) throw Error("a segment's name has a NUL inside: '" + std::string(name.c_str()) + "'");
    return name.c_str();
}
}  // namespace detail

// Sets who may open the segments that this process creates from now on: 0600, only this user, by default.
inline void set_permissions(std::uint32_t mode) {
    if (!asof_hot_set_permissions(mode)) throw Error();
}

// Removes a segment's name; returns whether it existed.
inline bool remove(const std::string& name) { return asof_hot_remove(detail::c_name(name)); }

// A value, which write it came from, and when.
template <typename T>
struct Sample {
    T value;
    AsofMeta meta;
    // Without zeros that the value would replace at once.
    Sample() {}
    Nanoseconds age(std::uint64_t time = now()) const { return since(meta.stamp, time); }
    bool is_fresh(Nanoseconds span, std::uint64_t time = now()) const { return asof::is_fresh(meta.stamp, span, time); }
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
    static_assert(is_plain<T>(), "plain data only");
    static_assert(alignof(T) <= 8, "aligned to at most 8");
    return AsofType{name ? name : TypeName<T>::value.text, sizeof(T), alignof(T), Fields<T>::shape};
}
}  // namespace detail

// A segment of any kind: liveness, and sleeping instead of spinning.
class Segment {
  public:
    explicit Segment(const std::string& name) : handle_(detail::opened(asof_segment_open(detail::c_name(name)))) {}

    // Whether a live process holds the writing end (or producer, or trigger, or a source of a mux).
    bool is_writer_alive() const { return asof_segment_is_writer_alive(handle_.get()); }
    // Whether a live process holds a claimed reading end (consumer, resetter, reader of a snapshot).
    bool is_reader_alive() const { return asof_segment_is_reader_alive(handle_.get()); }
    // The number of writers so far: a change means that one took over from another.
    std::uint64_t epoch() const { return asof_segment_epoch(handle_.get()); }
    // A sign of life of a writer that has nothing to write.
    void beat(std::uint64_t time = now()) { asof_segment_beat(handle_.get(), time); }
    // The time of the writer's last sign of life, if any.
    std::optional<std::uint64_t> last_beat() const {
        const auto beat = asof_segment_last_beat(handle_.get());
        return beat ? std::optional(beat) : std::nullopt;
    }

    // Wakes all sleepers of this segment; costs next to nothing while there are none.
    void notify() const { asof_segment_notify(handle_.get()); }
    // Sleeps until `is_ready()` holds; checks again after every wake-up. Returns whether it holds; without a timeout,
    // waits forever.
    template <typename IsReady>
    bool wait_until(std::optional<Nanoseconds> timeout, IsReady&& is_ready) const {
        if (timeout && timeout->count() <= 0) return is_ready();
        using Ready = std::remove_reference_t<IsReady>;
        const auto look = [](void* context) { return static_cast<bool>((*static_cast<Ready*>(context))()); };
        auto* context = const_cast<void*>(static_cast<const void*>(std::addressof(is_ready)));
        return asof_segment_wait(handle_.get(), timeout ? detail::nanos(*timeout) : 0, look, context);
    }

    // A file descriptor that is readable after a notification, for epoll, poll and event loops; a thread of this
    // segment rings it.
    int event_fd() {
        const int file = asof_segment_event_fd(handle_.get());
        if (file < 0) throw Error();
        return file;
    }
    // Makes it unreadable until the next one. Clear it first, then check the data.
    void clear_event_fd() const { asof_segment_clear_event_fd(handle_.get()); }

  private:
    detail::Handle<AsofSegment, asof_segment_close> handle_;
};

// The newest value of a type; one writer.
template <typename T, std::uint32_t Slots = 8>
class LatestWriter {
  public:
    explicit LatestWriter(const std::string& name, const char* type = nullptr)
        : handle_(detail::opened(asof_latest_writer_open(detail::c_name(name), detail::type<T>(type), Slots))) {}
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
    explicit LatestReader(const std::string& name, const char* type = nullptr)
        : handle_(detail::opened(asof_latest_reader_open(detail::c_name(name), detail::type<T>(type), Slots))) {}
    // Nothing before the first value.
    std::optional<Sample<T>> read() const {
        return sampled([&](Sample<T>& sample) { return asof_latest_read(handle_.get(), &sample.value, &sample.meta); });
    }
    // Nothing if the newest value is the one of generation `seen`.
    std::optional<Sample<T>> read_if_newer(std::uint64_t seen) const {
        return sampled([&](Sample<T>& sample) {
            return asof_latest_read_if_newer(handle_.get(), seen, &sample.value, &sample.meta);
        });
    }
    std::uint64_t generation() const { return asof_latest_generation(handle_.get()); }
    bool is_writer_alive() const { return asof_latest_is_writer_alive(handle_.get()); }

  private:
    // The value is copied once, into what is returned.
    template <typename Read>
    static std::optional<Sample<T>> sampled(Read&& read) {
        std::optional<Sample<T>> sample;
        sample.emplace();
        if (!read(*sample)) sample.reset();
        return sample;
    }
    detail::Handle<AsofLatestReader, asof_latest_reader_close> handle_;
};

// The policy of a full ring.
enum class WhenFull : bool { Refuse = false, DropOldest = true };

// The writing end of a ring; fills slots in place.
template <typename T, std::uint32_t Slots, WhenFull Policy = WhenFull::Refuse>
class RingProducer {
    struct Shared {
        detail::Handle<AsofRingProducer, asof_ring_producer_close> handle;
        bool is_filling = false;
    };

  public:
    // A slot being filled, or several consecutive ones. Without a commit they are returned unused.
    class Filling {
      public:
        std::size_t size() const { return count_; }
        T& operator[](std::size_t index) const {
            return *static_cast<T*>(asof_ring_slot(shared_->handle.get(), index));
        }
        T& operator*() const { return (*this)[0]; }
        T* operator->() const { return &(*this)[0]; }
        // Gives the slots to the consumer. Do not access them afterwards.
        void commit(std::uint64_t stamp = now()) && {
            asof_ring_commit(shared_->handle.get(), stamp);
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
        Filling(std::shared_ptr<Shared> shared, std::size_t count) : shared_(std::move(shared)), count_(count) {
            shared_->is_filling = true;
        }
        std::shared_ptr<Shared> shared_;
        std::size_t count_;
    };

    explicit RingProducer(const std::string& name, const char* type = nullptr) : shared_(std::make_shared<Shared>()) {
        shared_->handle.reset(detail::opened(
            asof_ring_producer_open(detail::c_name(name), detail::type<T>(type), Slots, Policy == WhenFull::DropOldest)));
    }
    // The next slot, or up to `most`; nothing if the ring is full. One at a time.
    std::optional<Filling> try_write(std::size_t most = 1) {
        if (shared_->is_filling) throw std::logic_error("a slot of this ring is already being filled: commit it first");
        const auto count = asof_ring_try_write_batch(shared_->handle.get(), most);
        if (!count) return std::nullopt;
        return Filling(shared_, count);
    }
    // Writes a value; false if the ring is full.
    bool push(const T& value, std::uint64_t stamp = now()) {
        auto slot = try_write();
        if (!slot) return false;
        **slot = value;
        std::move(*slot).commit(stamp);
        return true;
    }

    // The number of samples dropped unread, and how often there was no slot.
    std::uint64_t lost() const { return asof_ring_lost(shared_->handle.get()); }
    std::uint64_t refused() const { return asof_ring_refused(shared_->handle.get()); }
    // The most samples that waited at once: how large the ring has to be.
    std::uint64_t high_water() const { return asof_ring_high_water(shared_->handle.get()); }
    // Whether no live process holds a reading end.
    bool is_abandoned() const { return asof_ring_producer_is_abandoned(shared_->handle.get()); }

  private:
    std::shared_ptr<Shared> shared_;
};

// The reading end of a ring; reads samples in place.
template <typename T, std::uint32_t Slots, WhenFull Policy = WhenFull::Refuse>
class RingConsumer {
    using Shared = std::shared_ptr<AsofRingConsumer>;

  public:
    // A sample in place, or several consecutive ones. The slots return to the producer when this and everything taken
    // before it is destroyed: several may be held at once.
    class Held {
      public:
        std::size_t size() const { return read_.count; }
        // The number of older samples skipped for the newest.
        std::size_t skipped() const { return read_.skipped; }
        const T& operator[](std::size_t index) const {
            return *static_cast<const T*>(asof_ring_sample(ring_.get(), read_.ticket, index, nullptr));
        }
        AsofMeta meta(std::size_t index = 0) const {
            AsofMeta meta{};
            asof_ring_sample(ring_.get(), read_.ticket, index, &meta);
            return meta;
        }
        const T& operator*() const { return (*this)[0]; }
        const T* operator->() const { return &(*this)[0]; }
        Nanoseconds age(std::uint64_t time = now()) const { return since(meta().stamp, time); }

        Held(Held&&) noexcept = default;
        Held& operator=(Held&& other) noexcept {
            Held before(std::move(other));
            std::swap(ring_, before.ring_);
            std::swap(read_, before.read_);
            return *this;
        }
        ~Held() {
            if (ring_) asof_ring_release(ring_.get(), read_.ticket);
        }

      private:
        friend class RingConsumer;
        Held(Shared ring, AsofRingRead read) : ring_(std::move(ring)), read_(read) {}
        Shared ring_;
        AsofRingRead read_;
    };

    explicit RingConsumer(const std::string& name, const char* type = nullptr)
        : ring_(detail::opened(asof_ring_consumer_open(detail::c_name(name), detail::type<T>(type), Slots,
                                                       Policy == WhenFull::DropOldest)),
                asof_ring_consumer_close) {}
    // The oldest sample that was not taken yet.
    std::optional<Held> try_read() {
        AsofRingRead read{};
        return held(asof_ring_try_read(ring_.get(), &read), read);
    }
    // The newest sample; older ones are returned unread.
    std::optional<Held> try_latest() {
        AsofRingRead read{};
        return held(asof_ring_try_latest(ring_.get(), &read), read);
    }
    // Up to `most` consecutive samples.
    std::optional<Held> try_read_batch(std::size_t most) {
        AsofRingRead read{};
        return held(asof_ring_try_read_batch(ring_.get(), most, &read), read);
    }
    bool has_new() const { return asof_ring_has_new(ring_.get()); }
    // The number of samples dropped unread.
    std::uint64_t lost() const { return asof_ring_missed(ring_.get()); }
    // The most samples that waited at once: how large the ring has to be.
    std::uint64_t high_water() const { return asof_ring_most_waiting(ring_.get()); }
    // Whether no live process holds the writing end.
    bool is_abandoned() const { return asof_ring_consumer_is_abandoned(ring_.get()); }

  private:
    std::optional<Held> held(bool is_there, AsofRingRead read) {
        if (!is_there) return std::nullopt;
        return Held(ring_, read);
    }
    Shared ring_;
};

// The writing end of a broadcast ring; fills slots in place.
template <typename T, std::uint32_t Slots, std::uint32_t Readers>
class BroadcastProducer {
    struct Shared {
        detail::Handle<AsofBroadcastProducer, asof_broadcast_producer_close> handle;
        bool is_filling = false;
    };

  public:
    // A slot being filled. Without a commit it is returned unused.
    class Filling {
      public:
        T& operator*() const { return *slot_; }
        T* operator->() const { return slot_; }
        // Gives the slot to all readers. Do not access it afterwards.
        void commit(std::uint64_t stamp = now()) && {
            asof_broadcast_commit(shared_->handle.get(), stamp);
            shared_->is_filling = false;
            shared_.reset();
        }
        Filling(Filling&&) noexcept = default;
        Filling& operator=(Filling&&) = delete;
        ~Filling() {
            if (shared_) shared_->is_filling = false;
        }

      private:
        friend class BroadcastProducer;
        Filling(std::shared_ptr<Shared> shared, void* slot) : shared_(std::move(shared)), slot_(static_cast<T*>(slot)) {
            shared_->is_filling = true;
        }
        std::shared_ptr<Shared> shared_;
        T* slot_;
    };

    explicit BroadcastProducer(const std::string& name, const char* type = nullptr) : shared_(std::make_shared<Shared>()) {
        shared_->handle.reset(
            detail::opened(asof_broadcast_producer_open(detail::c_name(name), detail::type<T>(type), Slots, Readers)));
    }
    // The next slot; there always is one. One at a time.
    std::optional<Filling> try_write() { return filling(asof_broadcast_try_write); }
    // As above, but nothing while a present reader has not read the oldest sample, so no reader misses anything.
    std::optional<Filling> try_write_lossless() { return filling(asof_broadcast_try_write_lossless); }
    std::uint64_t refused() const { return asof_broadcast_refused(shared_->handle.get()); }
    // Stops waiting for a killed reader; false if it does not exist.
    bool forget_reader(std::uint32_t number) { return asof_broadcast_forget_reader(shared_->handle.get(), number); }
    // Whether no live process holds a reading end.
    bool is_abandoned() const { return asof_broadcast_producer_is_abandoned(shared_->handle.get()); }

  private:
    std::optional<Filling> filling(void* (*take)(AsofBroadcastProducer*)) {
        if (shared_->is_filling) throw std::logic_error("a slot of this ring is already being filled: commit it first");
        void* slot = take(shared_->handle.get());
        if (!slot) return std::nullopt;
        return Filling(shared_, slot);
    }
    std::shared_ptr<Shared> shared_;
};

// A reading end of a broadcast ring, with its own position; reads samples in place.
template <typename T, std::uint32_t Slots, std::uint32_t Readers>
class BroadcastReader {
    struct Shared {
        detail::Handle<AsofBroadcastReader, asof_broadcast_reader_close> handle;
        bool is_reading = false;
    };

  public:
    // A sample in place. Other readers may read it too.
    class Held {
      public:
        const T& operator*() const { return *value_; }
        const T* operator->() const { return value_; }
        // `missed` is the number of samples before this one that the reader was too late for or skipped.
        AsofMeta meta() const { return meta_; }
        Nanoseconds age(std::uint64_t time = now()) const { return since(meta_.stamp, time); }
        Held(Held&&) noexcept = default;
        Held& operator=(Held&& other) noexcept {
            Held before(std::move(other));
            std::swap(shared_, before.shared_);
            std::swap(value_, before.value_);
            std::swap(meta_, before.meta_);
            return *this;
        }
        ~Held() {
            if (!shared_) return;
            shared_->is_reading = false;
            asof_broadcast_release(shared_->handle.get());
        }

      private:
        friend class BroadcastReader;
        Held(std::shared_ptr<Shared> shared, const void* value, AsofMeta meta)
            : shared_(std::move(shared)), value_(static_cast<const T*>(value)), meta_(meta) {
            shared_->is_reading = true;
        }
        std::shared_ptr<Shared> shared_;
        const T* value_;
        AsofMeta meta_;
    };

    explicit BroadcastReader(const std::string& name, std::uint32_t number = 0, const char* type = nullptr)
        : shared_(std::make_shared<Shared>()) {
        shared_->handle.reset(
            detail::opened(asof_broadcast_reader_open(detail::c_name(name), detail::type<T>(type), Slots, Readers, number)));
    }
    // The oldest sample that this reader has not read. One at a time.
    std::optional<Held> try_read() { return held(asof_broadcast_try_read); }
    // The newest sample; older ones count as missed.
    std::optional<Held> try_latest() { return held(asof_broadcast_try_latest); }
    // The number of samples that this reader has not taken.
    std::uint64_t waiting() const { return asof_broadcast_waiting(shared_->handle.get()); }
    bool has_new() const { return waiting() > 0; }
    // The total number of samples that this reader has missed or skipped.
    std::uint64_t missed() const { return asof_broadcast_missed(shared_->handle.get()); }
    // Whether no live process holds the writing end.
    bool is_abandoned() const { return asof_broadcast_reader_is_abandoned(shared_->handle.get()); }

  private:
    std::optional<Held> held(const void* (*take)(AsofBroadcastReader*, AsofMeta*)) {
        if (shared_->is_reading) throw std::logic_error("a sample of this reader is already being read: release it first");
        AsofMeta meta{};
        const void* value = take(shared_->handle.get(), &meta);
        if (!value) return std::nullopt;
        return Held(shared_, value, meta);
    }
    std::shared_ptr<Shared> shared_;
};

// The writing end of a large value, filled in place. With one reader it is a triple buffer.
template <typename T, std::uint32_t Readers = 1>
class SnapshotWriter {
  public:
    explicit SnapshotWriter(const std::string& name, const char* type = nullptr)
        : handle_(detail::opened(asof_snapshot_writer_open(detail::c_name(name), detail::type<T>(type), Readers))) {}
    // The back buffer, with some older value in it, to fill until it is published.
    T& back() { return *static_cast<T*>(asof_snapshot_back(handle_.get())); }
    // The back buffer as a copy of the last publication, to change in part.
    T& edit() { return *static_cast<T*>(asof_snapshot_edit(handle_.get())); }
    // From now on edits are by tiles of `bytes` bytes: each costs only the tiles that it touches, whereas `edit` copies
    // the entire value. Returns the number of tiles.
    std::size_t use_tiles(std::size_t bytes) { return asof_snapshot_use_tiles(handle_.get(), bytes); }
    // The bytes of a tile, with the last publication in them, or to be overwritten entirely; null if it does not exist.
    std::byte* edit_tile(std::size_t tile) {
        return static_cast<std::byte*>(asof_snapshot_edit_tile(handle_.get(), tile));
    }
    std::byte* overwrite_tile(std::size_t tile) {
        return static_cast<std::byte*>(asof_snapshot_overwrite_tile(handle_.get(), tile));
    }
    void publish(std::uint64_t stamp = now()) { asof_snapshot_publish(handle_.get(), stamp); }
    std::uint64_t generation() const { return asof_snapshot_generation(handle_.get()); }

  private:
    detail::Handle<AsofSnapshotWriter, asof_snapshot_writer_close> handle_;
};

// A reading end of a large value, read in place.
template <typename T, std::uint32_t Readers = 1>
class SnapshotReader {
    struct Shared {
        detail::Handle<AsofSnapshotReader, asof_snapshot_reader_close> handle;
        std::size_t frames = 0;
    };

  public:
    // A value that does not change while this is alive. Its reader stays at this value until then.
    class Frame {
      public:
        const T& value;
        AsofMeta meta;
        const T& operator*() const { return value; }
        const T* operator->() const { return &value; }
        Nanoseconds age(std::uint64_t time = now()) const { return since(meta.stamp, time); }

        Frame(Frame&&) noexcept = default;
        Frame& operator=(Frame&&) = delete;
        ~Frame() {
            if (shared_) --shared_->frames;
        }

      private:
        friend class SnapshotReader;
        Frame(std::shared_ptr<Shared> shared, const T& value, AsofMeta meta)
            : value(value), meta(meta), shared_(std::move(shared)) {
            ++shared_->frames;
        }
        std::shared_ptr<Shared> shared_;
    };

    explicit SnapshotReader(const std::string& name, std::uint32_t number = 0, const char* type = nullptr)
        : shared_(std::make_shared<Shared>()) {
        shared_->handle.reset(
            detail::opened(asof_snapshot_reader_open(detail::c_name(name), detail::type<T>(type), Readers, number)));
    }
    // Whether there is a publication that was not taken yet.
    bool has_new() const { return asof_snapshot_has_new(shared_->handle.get()); }
    // The newest value; while a frame of this reader is alive, the same as that. Generation 0 before the first.
    Frame latest() {
        AsofMeta meta{};
        auto* reader = shared_->handle.get();
        const void* value = shared_->frames ? asof_snapshot_current(reader, &meta) : asof_snapshot_latest(reader, &meta);
        return Frame(shared_, *static_cast<const T*>(value), meta);
    }

  private:
    std::shared_ptr<Shared> shared_;
};

template <typename T>
using TripleBufferWriter = SnapshotWriter<T, 1>;
template <typename T>
using TripleBufferReader = SnapshotReader<T, 1>;

// The end of one source of a mux.
template <typename T>
class MuxSource {
  public:
    MuxSource(const AsofMux* mux, std::uint32_t number) : handle_(detail::opened(asof_mux_source_open(mux, number))) {}
    void write(const T& command, std::uint64_t stamp = now()) { asof_mux_write(handle_.get(), &command, stamp); }
    // Yields at once, instead of after the timeout.
    void give_way() { asof_mux_give_way(handle_.get()); }

  private:
    detail::Handle<AsofMuxSource, asof_mux_source_close> handle_;
};

// A lock that suppresses sources of a mux.
class MuxLock {
  public:
    MuxLock(const AsofMux* mux, std::uint32_t number) : handle_(detail::opened(asof_mux_lock_open(mux, number))) {}
    void engage() { asof_mux_lock_engage(handle_.get()); }
    // Passes its sources; if the lock has a heartbeat, until that expires.
    void release(std::uint64_t stamp = now()) { asof_mux_lock_release(handle_.get(), stamp); }
    bool is_engaged() const { return asof_mux_lock_is_engaged(handle_.get()); }

  private:
    detail::Handle<AsofMuxLock, asof_mux_lock_close> handle_;
};

// Overrides the priorities of a mux.
class MuxDirector {
  public:
    explicit MuxDirector(const AsofMux* mux) : handle_(detail::opened(asof_mux_director_open(mux))) {}
    // False if the source does not exist.
    bool force(std::uint32_t source) { return asof_mux_force(handle_.get(), source); }
    void automatic() { asof_mux_automatic(handle_.get()); }

  private:
    detail::Handle<AsofMuxDirector, asof_mux_director_close> handle_;
};

// Commands from several sources, later ones more important; the source of the writing ends.
template <typename T, std::uint32_t Sources, std::uint32_t Locks = 1>
class Mux {
  public:
    // Timeouts of the sources, and how many sources each lock suppresses, with its heartbeat (0: none).
    Mux(const std::string& name, const std::array<Nanoseconds, Sources>& timeouts,
        const std::array<std::pair<std::uint32_t, Nanoseconds>, Locks>& locks, const char* type = nullptr) {
        std::array<AsofMuxSourceConfig, Sources> source_configs;
        std::array<AsofMuxLockConfig, Locks> lock_configs;
        for (std::size_t i = 0; i < Sources; ++i) source_configs[i] = {detail::nanos(timeouts[i])};
        for (std::size_t i = 0; i < Locks; ++i) lock_configs[i] = {locks[i].first, detail::nanos(locks[i].second)};
        handle_.reset(detail::opened(asof_mux_open(detail::c_name(name), detail::type<T>(type), source_configs.data(), Sources,
                                                   lock_configs.data(), Locks)));
    }
    // An existing mux, with its own settings.
    explicit Mux(const std::string& name, const char* type = nullptr)
        : handle_(detail::opened(asof_mux_open_existing(detail::c_name(name), detail::type<T>(type), Sources, Locks))) {}
    MuxSource<T> source(std::uint32_t number) const { return MuxSource<T>(handle_.get(), number); }
    MuxLock lock(std::uint32_t number) const { return MuxLock(handle_.get(), number); }
    MuxDirector director() const { return MuxDirector(handle_.get()); }

  private:
    detail::Handle<AsofMux, asof_mux_close> handle_;
};

// Reads the command to follow; any number of readers.
template <typename T, std::uint32_t Sources, std::uint32_t Locks = 1>
class MuxOutput {
  public:
    struct Command {
        AsofMuxAnswer answer;
        // Only to be followed if the answer is a command.
        T value;
        AsofMuxInfo info;
        explicit operator bool() const { return answer == ASOF_MUX_ANSWER_COMMAND; }
        std::uint32_t source() const { return info.source; }
        std::uint32_t lock() const { return info.lock; }
        Nanoseconds age(std::uint64_t time = now()) const { return since(info.meta.stamp, time); }
    };

    explicit MuxOutput(const std::string& name, const char* type = nullptr)
        : handle_(detail::opened(asof_mux_output_open(detail::c_name(name), detail::type<T>(type), Sources, Locks))) {}
    Command read(std::uint64_t time = now()) const {
        Command command;
        command.answer = asof_mux_read(handle_.get(), time, &command.value, &command.info);
        return command;
    }

  private:
    detail::Handle<AsofMuxOutput, asof_mux_output_close> handle_;
};

// Reports events that must not be missed.
class LatchTrigger {
  public:
    // After `silence` without a sign of life the sensor is silent; zero: never. Fails if the latch exists with another
    // silence.
    explicit LatchTrigger(const std::string& name, Nanoseconds silence = {})
        : handle_(detail::opened(asof_latch_trigger_open(detail::c_name(name), detail::nanos(silence)))) {}
    void trigger(std::uint32_t contacts, std::uint64_t stamp = now()) { asof_latch_trigger(handle_.get(), contacts, stamp); }
    void heartbeat(std::uint64_t stamp = now()) { asof_latch_heartbeat(handle_.get(), stamp); }

  private:
    detail::Handle<AsofLatchTrigger, asof_latch_trigger_close> handle_;
};

// Observes events.
class LatchObserver {
  public:
    // A sensor's state is no bool: only ASOF_LATCH_KIND_CLEAR says that it is there and reports nothing. `contact` has
    // the unacknowledged events.
    struct State : AsofLatchState {
        // The time since the last of them, and since the first.
        Nanoseconds elapsed(std::uint64_t time = now()) const { return since(contact.last, time); }
        Nanoseconds elapsed_since_first(std::uint64_t time = now()) const { return since(contact.first, time); }
    };

    explicit LatchObserver(const std::string& name) : handle_(detail::opened(asof_latch_observer_open(detail::c_name(name)))) {}
    // The number of events since this observer's last call, and in total.
    std::uint64_t new_events() { return asof_latch_new_events(handle_.get()); }
    std::uint64_t count() const { return asof_latch_count(handle_.get()); }
    // How long after its last sign of life the sensor is silent; zero: never.
    Nanoseconds silence() const { return Nanoseconds(static_cast<std::int64_t>(asof_latch_silence(handle_.get()))); }
    State state(std::uint64_t time = now()) const { return {asof_latch_state(handle_.get(), time)}; }

  private:
    detail::Handle<AsofLatchObserver, asof_latch_observer_close> handle_;
};

// Acknowledges events.
class LatchResetter {
  public:
    // The latch must exist: its trigger creates it and sets the silence.
    explicit LatchResetter(const std::string& name) : handle_(detail::opened(asof_latch_resetter_open(detail::c_name(name)))) {}
    // Acknowledges all events up to `count`; false if there are newer ones, which stay.
    bool reset(std::uint64_t count) { return asof_latch_reset(handle_.get(), count); }
    // Acknowledges all events if the last was at least `span` ago; returns whether it did.
    bool reset_if_elapsed(Nanoseconds span, std::uint64_t time = now()) {
        return asof_latch_reset_if_elapsed(handle_.get(), time, detail::nanos(span));
    }

  private:
    detail::Handle<AsofLatchResetter, asof_latch_resetter_close> handle_;
};

}  // namespace asof
