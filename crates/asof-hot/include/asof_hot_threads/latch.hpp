// Events that must not be missed: bumpers, cliffs, emergency buttons.
//
// Events are counted, not flagged. A reset acknowledges a count, so an event between a read and a reset is still there
// after it, and observers do not hide events from each other.
#pragma once

#include <tuple>

#include "latest.hpp"

namespace asof::threads {

// Events that were not acknowledged.
struct Contact {
    // The count of all events so far, to pass to reset after handling them; and the number of new ones.
    std::uint64_t count = 0, new_count = 0;
    // The contacts that were hit, as bits.
    std::uint32_t contacts = 0;
    // The times of the first and the last.
    std::uint64_t first = 0, last = 0;
    Nanoseconds elapsed(std::uint64_t time = now()) const { return since(last, time); }
    Nanoseconds elapsed_since_first(std::uint64_t time = now()) const { return since(first, time); }
};

enum class LatchState {
    // No unacknowledged events.
    Clear,
    // Events that were not acknowledged.
    Contact,
    // Nothing to acknowledge, but the sensor has been silent for too long, or its clock is ahead.
    Silent,
};

namespace detail {

struct Event {
    std::uint64_t first_stamp, first_count;
    std::uint32_t contacts, contacts_since_first;
};

struct EventLatch {
    static constexpr Word never = ~Word(0);
    // The generation is the count of events.
    Latest<Event, 16> events;
    PaddedWord acknowledged;
    PaddedWord heart;
    Word silence;

    explicit EventLatch(Nanoseconds silence) : silence(asof::detail::nanos(silence)) { heart.word = never; }

    // The count of acknowledged events, then the count of events: in this order the first is never the larger.
    std::pair<Word, Word> counts() const {
        const Word seen = acknowledged.word.load(std::memory_order_acquire);
        return {seen, events.generation()};
    }

    std::optional<Contact> contact() const {
        const auto [seen, newest] = counts();
        if (newest == seen) return std::nullopt;
        const auto last = events.newest();
        const Word count = last->meta.generation;
        Contact contact{count, count - seen, last->value.contacts_since_first, last->value.first_stamp, last->meta.stamp};
        if (last->value.first_count != seen + 1) {
            // The acknowledgement came while the trigger read: the events themselves are exact, as far as they are
            // kept.
            contact.contacts = last->value.contacts;
            if (count == seen + 1) contact.first = last->meta.stamp;
            for (Word number = count - 1; number > seen && count - number < 15; --number) {
                const auto event = events.at(number);
                if (!event) break;
                contact.first = event->meta.stamp;
                contact.contacts |= event->value.contacts;
            }
        }
        return contact;
    }
};

}  // namespace detail

// Reports events. There is one.
class LatchTrigger : detail::MoveOnly {
  public:
    explicit LatchTrigger(std::shared_ptr<detail::EventLatch> latch) : latch_(std::move(latch)) {}
    // Reports an event: the contacts that were hit, as bits, and the time.
    void trigger(std::uint32_t contacts, std::uint64_t stamp = now()) {
        const detail::Word next = count_ + 1, seen = latch_->acknowledged.word.load(std::memory_order_acquire);
        detail::Event event{stamp, next, contacts, contacts};
        if (seen + 1 < next) {
            if (const auto last = latch_->events.newest()) {
                const bool is_partly_seen = last->value.first_count <= seen;
                event.first_stamp = is_partly_seen ? last->meta.stamp : last->value.first_stamp;
                event.first_count = is_partly_seen ? next - 1 : last->value.first_count;
                event.contacts_since_first |= is_partly_seen ? last->value.contacts : last->value.contacts_since_first;
            }
        }
        count_ = latch_->events.publish(count_, event, stamp);
        heartbeat(stamp);
    }
    // A sign of life of the sensor: nothing was hit.
    void heartbeat(std::uint64_t stamp = now()) {
        const auto never = detail::EventLatch::never;
        latch_->heart.word.store(stamp == never ? never - 1 : stamp, std::memory_order_relaxed);
    }
    std::uint64_t count() const { return count_; }

  private:
    std::shared_ptr<detail::EventLatch> latch_;
    detail::Word count_ = 0;
};

// Acknowledges events. There is one.
class LatchResetter : detail::MoveOnly {
  public:
    explicit LatchResetter(std::shared_ptr<detail::EventLatch> latch) : latch_(std::move(latch)) {}
    // Acknowledges all events up to the count `seen`; false if there are newer ones, which stay.
    bool reset(std::uint64_t seen) {
        const auto [acknowledged, count] = latch_->counts();
        // Future events cannot be acknowledged.
        if (seen > count) seen = count;
        if (seen < acknowledged) seen = acknowledged;
        latch_->acknowledged.word.store(seen, std::memory_order_release);
        return seen == count;
    }
    // Acknowledges all events if the last was at least `span` ago; returns whether it did.
    bool reset_if_elapsed(Nanoseconds span, std::uint64_t time = now()) {
        const auto contact = latch_->contact();
        return contact && contact->elapsed(time) >= span && reset(contact->count);
    }

  private:
    std::shared_ptr<detail::EventLatch> latch_;
};

// Observes events; copy it for any number of observers.
class LatchObserver {
  public:
    // A sensor's state is no bool: only LatchState::Clear says that it is there and reports nothing.
    struct State {
        LatchState kind;
        // The unacknowledged events.
        Contact contact;
        // The last sign of life of a silent sensor, by its clock, if any.
        std::optional<std::uint64_t> heard;
    };

    explicit LatchObserver(std::shared_ptr<const detail::EventLatch> latch) : latch_(std::move(latch)) {}
    // The number of events since this observer's last call, and in total.
    std::uint64_t new_events() {
        const auto count = latch_->events.generation();
        return count - std::exchange(seen_, count);
    }
    std::uint64_t count() const { return latch_->events.generation(); }
    State state(std::uint64_t time = now()) const {
        if (const auto contact = latch_->contact()) return {LatchState::Contact, *contact, std::nullopt};
        const auto heard = latch_->heart.word.load(std::memory_order_relaxed);
        const bool was_heard = heard != detail::EventLatch::never;
        const auto distance = time > heard ? time - heard : heard - time;
        if (latch_->silence && (!was_heard || distance > latch_->silence))
            return {LatchState::Silent, {}, was_heard ? std::optional(heard) : std::nullopt};
        return {LatchState::Clear, {}, std::nullopt};
    }

  private:
    std::shared_ptr<const detail::EventLatch> latch_;
    std::uint64_t seen_ = 0;
};

// After `silence` without a sign of life the sensor is silent; zero: never.
// auto [trigger, resetter, observer] = event_latch(100ms);
inline std::tuple<LatchTrigger, LatchResetter, LatchObserver> event_latch(Nanoseconds silence = {}) {
    auto latch = std::make_shared<detail::EventLatch>(silence);
    return {LatchTrigger(latch), LatchResetter(latch), LatchObserver(latch)};
}

}  // namespace asof::threads
