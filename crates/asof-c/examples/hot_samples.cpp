// A robot's hot path, recorded: the loop writes its state into a lock-free ring (asof-hot) and never waits; another thread takes
// it out and writes an MCAP file, which every command of asof reads.
//
//   hot_samples run.mcap
#include <asof.hpp>
#include <asof_hot_threads.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

struct Wheels {
  std::int64_t stamp;
  double left, right;
};

int main(int count, char **arguments) {
  if (count != 2) {
    std::fprintf(stderr, "hot_samples FILE\n");
    return 2;
  }
  using Clock = std::chrono::system_clock;
  auto [control, recorder] = asof::threads::ring<Wheels, 1024>();
  std::atomic<bool> is_driving{true};
  std::thread loop([&, writer = std::move(control)]() mutable {
    for (int step = 0; step < 1000; step++) {
      const std::int64_t now = asof::Stamp(Clock::now()).nanoseconds;
      // Refused if the recorder is a second behind; the loop goes on.
      writer.push(Wheels{now, std::sin(step * 0.01), std::cos(step * 0.01)});
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    if (writer.refused() > 0)
      std::fprintf(stderr, "%llu samples did not fit\n", static_cast<unsigned long long>(writer.refused()));
    is_driving = false;
  });
  try {
    asof::Writer file{std::string(arguments[1])};
    const std::uint32_t wheels = file.channel("/wheels", "json");
    std::uint32_t written = 0;
    for (bool is_last = false; !is_last;) {
      is_last = !is_driving;
      while (const auto sample = recorder.try_read()) {
        const Wheels &now = **sample;
        char text[100];
        const int size = std::snprintf(text, sizeof text, "{\"left\":%.9g,\"right\":%.9g}", now.left, now.right);
        file.write(wheels, now.stamp, text, std::size_t(size), written++);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    loop.join();
    file.finish();
    std::printf("%u samples\n", written);
  } catch (const asof::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(1);
  }
}
