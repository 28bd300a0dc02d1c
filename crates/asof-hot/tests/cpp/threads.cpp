// What the C++ forms between threads promise, and real threads at full speed. `ci/hot/hot-cpp` runs it, also under
// ThreadSanitizer, AddressSanitizer and UndefinedBehaviorSanitizer.
//
//   threads [ROUNDS]
#include "asof_hot_threads.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using namespace asof::threads;
using namespace std::chrono_literals;

static std::uint64_t rounds = 20000;

#define CHECK(holds)                                                                       \
    do {                                                                                   \
        if (!(holds)) {                                                                    \
            std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #holds); \
            std::abort();                                                                  \
        }                                                                                  \
    } while (false)

template <typename F>
bool is_refused(F&& act) {
    try {
        act();
    } catch (const std::logic_error&) {
        return true;
    }
    return false;
}

using Value = std::array<std::uint64_t, 18>;
Value whole(std::uint64_t number) {
    Value value;
    value.fill(number);
    return value;
}
bool is_whole(const Value& value) {
    return std::all_of(value.begin(), value.end(), [&](auto word) { return word == value[0]; });
}

void latest_values() {
    auto [writer, reader] = latest<Value, 8>();
    CHECK(!reader.read());
    writer.write(whole(7), 1000);
    CHECK(reader.read()->value == whole(7) && reader.read()->age(1250) == 250ns);
    CHECK(!reader.read_if_newer(1));
    writer.update([](Value& value) { value[0] = value[17] = 8; }, 2000);
    CHECK(reader.read()->value[17] == 8 && reader.read()->value[3] == 7);
    CHECK(reader.read_generation(1)->value == whole(7));

    struct Odd {
        std::uint8_t bytes[13];
    };
    auto [odd, odd_reader] = latest<Odd, 2>();
    odd.write({{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}}, 0);
    CHECK(odd_reader.read()->value.bytes[12] == 13);
}

void latest_under_load() {
    auto [writer, reader] = latest<Value, 8>();
    writer.write(whole(0), 0);
    std::atomic<bool> is_over{false};
    std::vector<std::thread> readers;
    for (int i = 0; i < 2; ++i) {
        readers.emplace_back([reader = reader, &is_over] {
            std::uint64_t last = 0;
            while (!is_over) {
                const auto sample = reader.read();
                CHECK(sample && is_whole(sample->value) && sample->meta.stamp == sample->value[0]);
                CHECK(sample->meta.generation >= last);
                last = sample->meta.generation;
            }
        });
    }
    for (std::uint64_t number = 1; number <= rounds; ++number) writer.write(whole(number), number);
    is_over = true;
    for (auto& thread : readers) thread.join();
}

void rings() {
    auto [producer, consumer] = ring<int, 3>();
    for (int lap = 0; lap < 3; ++lap) {
        for (int value = 1; value <= 3; ++value) CHECK(producer.push(value, 0));
        CHECK(!producer.push(9, 0));
        for (int value = 1; value <= 3; ++value) CHECK(**consumer.try_read() == value);
        CHECK(!consumer.try_read());
    }
    CHECK(producer.refused() == 3 && producer.high_water() == 3);
    {
        auto slot = producer.try_write();
        **slot = 5;
        CHECK(is_refused([&, &producer = producer] { (void)producer.try_write(); }));
    }
    CHECK(!consumer.try_read());  // it was not committed
    CHECK(producer.push(6, 20));

    // Two samples held at once are two samples, and each frees its own.
    CHECK(producer.push(7, 30));
    auto first = consumer.try_read();
    auto second = consumer.try_read();
    CHECK(**first == 6 && **second == 7 && first->meta().stamp == 20 && second->meta().generation == 11);
    second.reset();
    for (int value = 0; value < 2; ++value) producer.push(90 + value, 0);
    CHECK(**first == 6);
    first.reset();
    while (consumer.try_read()) {
    }
    CHECK(!consumer.is_abandoned() && !producer.is_abandoned());
    { auto gone = std::move(producer); }
    CHECK(consumer.is_abandoned());
}

void rings_that_drop() {
    for (std::size_t held = 1; held <= 8; ++held) {
        auto [producer, consumer] = ring_drop_oldest<std::uint64_t, 8>();
        for (std::uint64_t value = 1; value <= 8; ++value) CHECK(producer.push(value, 0));
        auto batch = consumer.try_read_batch(held);
        CHECK(batch->size() == held);
        for (std::uint64_t value = 9; value <= 30; ++value) CHECK(producer.push(value, 0));
        for (std::size_t i = 0; i < held; ++i) CHECK((*batch)[i] == i + 1);
        std::uint64_t last = held, missed = 0;
        batch.reset();
        while (auto sample = consumer.try_read()) {
            CHECK(**sample == last + sample->missed() + 1);
            last = **sample;
            missed += sample->missed();
        }
        CHECK(last == 30 && missed == producer.lost() && producer.refused() == 0);
    }
    auto [producer, consumer] = ring_drop_oldest<int, 4>();
    for (int value = 1; value <= 3; ++value) producer.push(value, 0);
    auto newest = consumer.try_latest();
    CHECK(**newest == 3 && newest->skipped() == 2);
}

template <WhenFull Policy>
void ring_under_load() {
    auto [producer, consumer] = ring<Value, 4, Policy>();
    std::thread writes([&, &producer = producer] {
        for (std::uint64_t number = 1; number <= rounds;) {
            auto slots = producer.try_write(number % 7 == 0 ? 3 : 1);
            CHECK(slots || Policy == WhenFull::Refuse);
            if (!slots) {
                std::this_thread::yield();
                continue;
            }
            for (std::size_t i = 0; i < slots->size(); ++i) (*slots)[i] = whole(number++);
            std::move(*slots).commit(number);
        }
    });
    std::uint64_t last = 0, read = 0, missed = 0, skipped = 0;
    while (last < rounds) {
        auto held = read % 5 == 0 ? consumer.try_latest() : read % 3 == 0 ? consumer.try_read_batch(4) : consumer.try_read();
        if (!held) {
            std::this_thread::yield();
            continue;
        }
        for (std::size_t i = 0; i < held->size(); ++i) {
            CHECK(is_whole((*held)[i]) && (*held)[i][0] == held->meta(i).generation && (*held)[i][0] > last);
            last = (*held)[i][0];
            ++read;
        }
        missed += held->missed();
        skipped += held->skipped();
    }
    writes.join();
    CHECK(read + missed + skipped == last && missed == consumer.lost());
    CHECK(Policy == WhenFull::DropOldest || missed == 0);
}

void broadcasts() {
    auto [producer, readers] = broadcast<int, 2, 2>();
    auto& [quick, slow] = readers;
    producer.push(1, 10);
    auto held = slow.try_read();
    CHECK(is_refused([&slow = slow] { (void)slow.try_read(); }));
    for (int value = 2; value <= 20; ++value) {
        producer.push(value, 0);
        CHECK(**quick.try_latest() == value);
    }
    CHECK(**held == 1 && held->meta().stamp == 10);
    held.reset();
    auto next = slow.try_read();
    CHECK(static_cast<std::uint64_t>(**next) == 2 + next->missed() && slow.missed() == next->missed());
    next.reset();
    while (slow.try_read()) {
    }
    int written = 0;
    while (auto slot = producer.try_write_lossless()) {
        **slot = ++written;
        std::move(*slot).commit(0);
    }
    CHECK(written == 2 && producer.refused() == 1);
}

void broadcast_under_load() {
    auto ends = broadcast<Value, 4, 2>();
    std::vector<std::thread> threads;
    for (auto& reader : ends.readers) {
        threads.emplace_back([&reader] {
            std::uint64_t last = 0, read = 0;
            while (last < rounds) {
                auto held = read % 5 == 0 ? reader.try_latest() : reader.try_read();
                if (!held) {
                    std::this_thread::yield();
                    continue;
                }
                CHECK(is_whole(**held) && (**held)[0] == held->meta().generation);
                CHECK((**held)[0] == last + held->missed() + 1);
                last = (**held)[0];
                ++read;
            }
            CHECK(read + reader.missed() == rounds);
        });
    }
    for (std::uint64_t number = 1; number <= rounds; ++number) {
        auto slot = ends.producer.try_write();
        CHECK(slot.has_value());
        **slot = whole(number);
        std::move(*slot).commit(number);
        if (number % 64 == 0) std::this_thread::yield();
    }
    for (auto& thread : threads) thread.join();
}

void snapshots() {
    auto [input, output] = triple_buffer<Value>();
    CHECK(!output.has_new());
    for (int number = 1; number <= 2; ++number) {
        input.back() = whole(number);
        input.publish(number);
    }
    CHECK((*output.latest())[0] == 2 && (*output.latest())[0] == 2);
    auto frame = output.latest();
    for (int number = 3; number <= 9; ++number) {
        input.edit()[0] = number;
        input.publish(number);
        CHECK((*frame)[0] == 2 && (*output.latest())[0] == 2);  // as long as it is looked at
    }
    { auto gone = std::move(frame); }
    CHECK((*output.latest())[0] == 9 && (*output.latest())[1] == 2 && output.latest().meta().generation == 9);
}

void snapshot_under_load() {
    auto ends = snapshot<Value, 2>();
    std::atomic<bool> is_over{false};
    std::vector<std::thread> threads;
    for (auto& reader : ends.readers) {
        threads.emplace_back([&reader, &is_over] {
            std::uint64_t last = 0;
            while (!is_over) {
                const auto frame = reader.latest();
                CHECK(is_whole(*frame) && (*frame)[0] == frame.meta().generation && (*frame)[0] >= last);
                last = (*frame)[0];
            }
        });
    }
    for (std::uint64_t number = 1; number <= rounds; ++number) {
        ends.writer.back() = whole(number);
        ends.writer.publish(number);
    }
    is_over = true;
    for (auto& thread : threads) thread.join();
    for (auto& reader : ends.readers) CHECK((*reader.latest())[0] == rounds);
}

void muxes() {
    auto [sources, locks, director, output] = mux<double, 2, 1>({500ns, 500ns}, {{{2}}});
    auto& [navigation, teleop] = sources;
    CHECK(output.read(0).stop == Stop::Nobody);
    teleop.write(0.1, 1000);
    navigation.write(0.9, 1400);
    CHECK(*output.read(1500) == 0.1 && output.read(1500).source == 1);
    CHECK(*output.read(1501) == 0.9);
    CHECK(output.read(1901).stop == Stop::Nobody);
    teleop.write(0.1, 3000);
    CHECK(output.read(2500) && output.read(2499).stop == Stop::Nobody);  // a stamp far ahead is a broken clock
    navigation.write(0.5, 3000);
    teleop.give_way();
    CHECK(output.read(3000).source == 0);
    locks[0].engage();
    CHECK(output.read(3000).stop == Stop::Locked && output.read(3000).lock == 0 && locks[0].is_engaged());
    locks[0].release(0);
    teleop.write(0.1, 3000);
    CHECK(director.force(0) && !director.force(2));
    CHECK(output.read(3000).source == 0);
    director.automatic();
    CHECK(output.read(3000).source == 1);

    // Whatever changes is noticed, also by a reader that has followed the same command before.
    auto many = mux<double, 4, 2>({1h, 1h, 1h, 1h}, {{{4}, {4}}});
    const auto follows = [&](std::size_t source) {
        return many.output.read(1000).source == source && many.output.read(1000).source == source;
    };
    many.sources[0].write(0.5, 1000);
    for (std::size_t lock = 0; lock < 2; ++lock) {
        CHECK(follows(0));
        many.locks[lock].engage();
        CHECK(many.output.read(1000).stop == Stop::Locked && many.output.read(1000).lock == lock);
        many.locks[lock].release(1000);
    }
    for (std::size_t source = 1; source < 4; ++source) {
        CHECK(follows(0));
        many.sources[source].write(0.1, 1000);
        CHECK(follows(source) && many.director.force(0) && follows(0));
        many.director.automatic();
        CHECK(follows(source));
        many.sources[source].give_way();
    }
    CHECK(follows(0));

    auto deadman = mux<double, 1, 1>({1h}, {{{1, 500ns}}});
    deadman.sources[0].write(0.9, 1000);
    CHECK(deadman.output.read(1000).stop == Stop::Locked);  // never heard
    deadman.locks[0].release(900);
    CHECK(deadman.output.read(1400) && deadman.output.read(1401).stop == Stop::Locked);
    deadman.locks[0].release(3'600'000'000'000);
    CHECK(deadman.output.read(1000).stop == Stop::Locked);  // a clock that is ahead opens nothing
}

void mux_under_load() {
    auto ends = mux<Value, 2, 1>({1s, 1s}, {{{2}}});
    ends.sources[0].write(whole(0), 0);
    std::atomic<bool> is_over{false};
    std::thread high([&] {
        for (std::uint64_t number = 1; number <= rounds; ++number) {
            ends.sources[1].write(whole(number << 1 | 1), 0);
            if (number % 3 == 0) ends.sources[1].give_way();
        }
        is_over = true;
    });
    std::thread low([&] {
        for (std::uint64_t number = 1; !is_over; ++number) ends.sources[0].write(whole(number << 1), 0);
    });
    while (!is_over) {
        const auto command = ends.output.read(0);
        if (command) CHECK(is_whole(*command) && ((*command)[0] & 1) == command.source);
        else CHECK(command.stop == Stop::Unsettled);
    }
    high.join();
    low.join();
    ends.locks[0].engage();
    CHECK(ends.output.read(0).stop == Stop::Locked);
}

void latches() {
    auto [trigger, resetter, observer] = event_latch();
    auto other = observer;
    CHECK(!resetter.reset_if_elapsed(0ns, 1000));
    trigger.trigger(0b01, 100);
    const auto seen = observer.state(300);
    CHECK(seen.kind == LatchState::Contact && seen.contact.elapsed(300) == 200ns);
    trigger.trigger(0b10, 310);
    CHECK(!resetter.reset(seen.contact.count));
    static_assert(!std::is_constructible_v<bool, LatchObserver::State> && !std::is_convertible_v<LatchState, bool>);
    const auto left = observer.state(400).contact;
    CHECK(left.new_count == 1 && left.contacts == 0b10 && left.first == 310);
    CHECK(!resetter.reset_if_elapsed(100ns, 409) && resetter.reset_if_elapsed(100ns, 410));
    CHECK(observer.new_events() == 2 && observer.new_events() == 0 && other.new_events() == 2);

    auto [sensor, ignored, watch] = event_latch(100ns);
    (void)ignored;
    CHECK(watch.state(0).kind == LatchState::Silent && !watch.state(0).heard);
    sensor.heartbeat(1000);
    CHECK(watch.state(1100).kind == LatchState::Clear && watch.state(1101).kind == LatchState::Silent);
    sensor.heartbeat(1'000'000);
    CHECK(watch.state(1000).kind == LatchState::Silent);  // a clock that is ahead clears nothing
}

void latch_under_load() {
    auto [trigger, resetter, observer] = event_latch();
    std::thread triggers([&, &trigger = trigger] {
        for (std::uint64_t number = 1; number <= rounds; ++number) trigger.trigger(1, number);
    });
    std::uint64_t dealt_with = 0, counted = 0;
    while (dealt_with < rounds) {
        counted += observer.new_events();
        const auto state = observer.state(rounds);
        if (state.kind == LatchState::Contact) {
            CHECK(state.contact.count - state.contact.new_count == dealt_with);
            CHECK(state.contact.first <= state.contact.last && state.contact.last == state.contact.count);
            resetter.reset(state.contact.count);
            dealt_with = state.contact.count;
        }
    }
    triggers.join();
    CHECK(counted + observer.new_events() == rounds);
}

int main(int argc, char** argv) {
    if (argc > 1) rounds = std::strtoull(argv[1], nullptr, 10);
    latest_values();
    latest_under_load();
    rings();
    rings_that_drop();
    ring_under_load<WhenFull::Refuse>();
    ring_under_load<WhenFull::DropOldest>();
    broadcasts();
    broadcast_under_load();
    snapshots();
    snapshot_under_load();
    muxes();
    mux_under_load();
    latches();
    latch_under_load();
    std::printf("C++ between threads: all holds, %llu rounds\n", static_cast<unsigned long long>(rounds));
}
