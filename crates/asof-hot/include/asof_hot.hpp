// asof-hot for C++: the shared-memory forms, closed when they go out of scope.
//
//   asof::LatestReader<Odometry> odometry("odometry", "Odometry");
//   if (auto sample = odometry.read()) drive(sample->value, sample->age_ns());
//
// T is a struct of plain data without padding, laid out as the Rust side declares it with `plain!` and of the same name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "asof_hot.h"

namespace asof {

// What went wrong, in words.
struct Error : std::runtime_error {
    Error() : std::runtime_error(asof_hot_last_error()) {}
};

// Now, on the clock that both sides stamp with.
inline std::uint64_t now() { return asof_hot_now(); }

// A value, which write it came from, and when that was.
template <typename T>
struct Sample {
    T value;
    AsofMeta meta;
    std::uint64_t age_ns() const {
        const auto then = meta.stamp, time = now();
        return time > then ? time - then : 0;
    }
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
}  // namespace detail

// The newest value of a type; one writer.
template <typename T, std::uint32_t Slots = 8>
class LatestWriter {
  public:
    LatestWriter(const std::string& name, const char* type)
        : handle_(detail::opened(asof_latest_writer_open(name.c_str(), detail::type<T>(type), Slots))) {}
    void write(const T& value, std::uint64_t stamp = now()) { asof_latest_write(handle_.get(), &value, stamp); }

  private:
    detail::Handle<AsofLatestWriter, asof_latest_writer_close> handle_;
};

// The newest value of a type; any number of readers, which never wait.
template <typename T, std::uint32_t Slots = 8>
class LatestReader {
  public:
    LatestReader(const std::string& name, const char* type)
        : handle_(detail::opened(asof_latest_reader_open(name.c_str(), detail::type<T>(type), Slots))) {}
    std::optional<Sample<T>> read() const {
        Sample<T> sample;
        if (!asof_latest_read(handle_.get(), &sample.value, &sample.meta)) return std::nullopt;
        return sample;
    }
    bool is_writer_alive() const { return asof_latest_is_writer_alive(handle_.get()); }

  private:
    detail::Handle<AsofLatestReader, asof_latest_reader_close> handle_;
};

// Fills the slots of a ring in place.
template <typename T, std::uint32_t Slots>
class RingProducer {
  public:
    RingProducer(const std::string& name, const char* type)
        : handle_(detail::opened(asof_ring_producer_open(name.c_str(), detail::type<T>(type), Slots))) {}
    // The next slot, or null if the ring is full; nothing happened until it is committed.
    T* try_write() { return static_cast<T*>(asof_ring_try_write(handle_.get())); }
    void commit(std::uint64_t stamp = now()) { asof_ring_commit(handle_.get(), stamp); }

  private:
    detail::Handle<AsofRingProducer, asof_ring_producer_close> handle_;
};

// Empties the slots of a ring in place.
template <typename T, std::uint32_t Slots>
class RingConsumer {
  public:
    // A sample in place; the slot goes back to the producer with it.
    class Slot {
      public:
        const T& operator*() const { return *value_; }
        const T* operator->() const { return value_; }
        const AsofMeta& meta() const { return meta_; }
        Slot(Slot&& other) noexcept : ring_(other.ring_), value_(other.value_), meta_(other.meta_) { other.ring_ = nullptr; }
        Slot& operator=(Slot&&) = delete;
        ~Slot() {
            if (ring_) asof_ring_release(ring_);
        }

      private:
        friend class RingConsumer;
        Slot(AsofRingConsumer* ring, const T* value, AsofMeta meta) : ring_(ring), value_(value), meta_(meta) {}
        AsofRingConsumer* ring_;
        const T* value_;
        AsofMeta meta_;
    };

    RingConsumer(const std::string& name, const char* type)
        : handle_(detail::opened(asof_ring_consumer_open(name.c_str(), detail::type<T>(type), Slots))) {}
    std::optional<Slot> try_read() {
        AsofMeta meta;
        const void* value = asof_ring_try_read(handle_.get(), &meta);
        if (!value) return std::nullopt;
        return Slot(handle_.get(), static_cast<const T*>(value), meta);
    }

  private:
    detail::Handle<AsofRingConsumer, asof_ring_consumer_close> handle_;
};

// Looks at events that must not be missed.
class LatchObserver {
  public:
    explicit LatchObserver(const std::string& name) : handle_(detail::opened(asof_latch_observer_open(name.c_str()))) {}
    bool is_triggered() const { return asof_latch_is_triggered(handle_.get()); }
    // The count to reset once the events were dealt with; 0 if none is new.
    std::uint64_t new_count() const { return asof_latch_new_count(handle_.get(), now()); }

  private:
    detail::Handle<AsofLatchObserver, asof_latch_observer_close> handle_;
};

// Acknowledges events.
class LatchResetter {
  public:
    explicit LatchResetter(const std::string& name, std::uint64_t silence = 0)
        : handle_(detail::opened(asof_latch_resetter_open(name.c_str(), silence))) {}
    // False if more events came by now, which stay.
    bool reset(std::uint64_t count) { return asof_latch_reset(handle_.get(), count); }

  private:
    detail::Handle<AsofLatchResetter, asof_latch_resetter_close> handle_;
};

// Reports events.
class LatchTrigger {
  public:
    explicit LatchTrigger(const std::string& name, std::uint64_t silence = 0)
        : handle_(detail::opened(asof_latch_trigger_open(name.c_str(), silence))) {}
    void trigger(std::uint32_t contacts, std::uint64_t stamp = now()) { asof_latch_trigger(handle_.get(), contacts, stamp); }

  private:
    detail::Handle<AsofLatchTrigger, asof_latch_trigger_close> handle_;
};

}  // namespace asof
