// Debian's tf2 and asof from C++, in one process: the same trees and the same questions, in turns. bench/cpp/tf2 builds and runs it.
//
// All times are nanoseconds of CPU time per lookup of the measuring thread, medians over rounds in which the contenders take turns;
// each round is preceded by one that is not timed. `tf2` is tf2::BufferCore, `core` asof::tf2::BufferCore with the same calls,
// `buffer` asof::tf::Buffer, and `path` a prepared asof::tf::Path.
#include <tf2/buffer_core.h>

#include <asof/tf2.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::int64_t SECOND = 1000000000, START = 1000 * SECOND, STEP = 10000000;
constexpr int SAMPLES = 900, LOOKUPS = 2000, ROUNDS = 31;

double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) * 1e9 + double(time.tv_nsec);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

ros::Time at(std::int64_t stamp) { return asof::tf2::detail::time_of(stamp); }

/// The same tree in all: frame_0 <- frame_1 <- ... each edge moving and turning.
struct Trees {
  tf2::BufferCore theirs;
  asof::tf2::BufferCore ours;
  std::atomic<double> sink{0};

  void set(const std::string &parent, const std::string &child, std::int64_t stamp, double angle) {
    geometry_msgs::TransformStamped message;
    message.header.frame_id = parent;
    message.child_frame_id = child;
    message.header.stamp = at(stamp);
    message.transform.translation.x = angle;
    message.transform.rotation.z = std::sin(angle / 2);
    message.transform.rotation.w = std::cos(angle / 2);
    if (!theirs.setTransform(message, "bench") || !ours.setTransform(message, "bench"))
      std::abort();
  }
};

std::string frame(int number) { return "frame_" + std::to_string(number); }

void report(const char *name, const std::vector<std::pair<const char *, double>> &medians) {
  std::printf("%-28s", name);
  for (const auto &[contender, nanoseconds] : medians)
    std::printf("  %s %8.1f", contender, nanoseconds);
  std::printf("   core/tf2 %.3f  best/tf2 %.3f\n", medians[1].second / medians[0].second,
              medians.back().second / medians[0].second);
}

template <typename... Runs> std::vector<double> in_turns(int rounds, Runs... runs) {
  std::vector<std::vector<double>> times(sizeof...(runs));
  for (int round = 0; round < rounds; round++) {
    std::size_t contender = 0;
    auto measure = [&](auto &run) {
      run();
      const double before = now();
      run();
      times[contender++].push_back((now() - before) / LOOKUPS);
    };
    (measure(runs), ...);
  }
  std::vector<double> medians;
  for (const auto &one : times)
    medians.push_back(median(one));
  return medians;
}

void lookups(Trees &trees, const char *name, int depth, bool is_latest) {
  const std::string target = frame(0), source = frame(depth);
  std::vector<std::int64_t> stamps;
  for (int lookup = 0; lookup < LOOKUPS; lookup++)
    stamps.push_back(START + std::int64_t(lookup * 7919 % (SAMPLES - 1)) * STEP + STEP / 3);
  auto path = trees.ours.buffer().path(target, source);
  auto each = [&](auto ask) {
    return [&trees, &stamps, ask]() mutable {
      double sum = 0;
      for (std::int64_t stamp : stamps)
        sum += ask(stamp);
      trees.sink = sum;
    };
  };
  const auto &theirs = trees.theirs;
  const auto &ours = trees.ours;
  const auto medians = in_turns(
      ROUNDS,
      each([&](std::int64_t t) { return theirs.lookupTransform(target, source, at(is_latest ? 0 : t)).transform.translation.x; }),
      each([&](std::int64_t t) { return ours.lookupTransform(target, source, at(is_latest ? 0 : t)).transform.translation.x; }),
      each([&](std::int64_t t) {
        return is_latest ? ours.buffer().lookup_latest(target, source).transform.translation[0]
                         : ours.buffer().lookup(target, source, t).translation[0];
      }),
      each([&](std::int64_t t) {
        return is_latest ? path.lookup_latest().transform.translation[0] : path.lookup(t).translation[0];
      }));
  report(name, {{"tf2", medians[0]}, {"core", medians[1]}, {"buffer", medians[2]}, {"path", medians[3]}});
}

void batches(Trees &trees, const char *name, int depth) {
  const std::string target = frame(0), source = frame(depth);
  std::vector<std::int64_t> stamps;
  for (int lookup = 0; lookup < LOOKUPS; lookup++)
    stamps.push_back(START + std::int64_t(lookup) * 30000);
  std::vector<asof::tf::Transform> found(stamps.size());
  auto path = trees.ours.buffer().path(target, source);
  auto each = [&](const auto &core) {
    return [&] {
      double sum = 0;
      for (std::int64_t stamp : stamps)
        sum += core.lookupTransform(target, source, at(stamp)).transform.translation.x;
      trees.sink = sum;
    };
  };
  const auto medians = in_turns(ROUNDS, each(trees.theirs), each(trees.ours), [&] {
    path.lookup_many(stamps, found);
    trees.sink = found.back().translation[0];
  });
  report(name, {{"tf2", medians[0]}, {"core", medians[1]}, {"path", medians[2]}});
}

/// Eight readers of the latest transform beside a writer at 1 kHz.
template <typename Core> double contended(Core &core) {
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    geometry_msgs::TransformStamped message;
    message.header.frame_id = frame(0);
    message.child_frame_id = frame(1);
    message.transform.rotation.w = 1;
    for (std::int64_t step = 1; !is_over; step++) {
      message.header.stamp = at(START + SAMPLES * STEP + step * 1000000);
      core.setTransform(message, "bench");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::vector<double> times(8);
  std::vector<std::thread> readers;
  for (double &time : times)
    readers.emplace_back([&core, &time] {
      const std::string target = frame(0), source = frame(5);
      double sum = 0;
      const double before = now();
      for (int lookup = 0; lookup < 10 * LOOKUPS; lookup++)
        sum += core.lookupTransform(target, source, ros::Time()).transform.translation.x;
      time = (now() - before) / (10 * LOOKUPS) + sum * 0;
    });
  for (std::thread &reader : readers)
    reader.join();
  is_over = true;
  writer.join();
  return median(times);
}

} // namespace

int main() {
  Trees trees;
  for (int sample = 0; sample < SAMPLES; sample++)
    for (int edge = 0; edge < 5; edge++)
      trees.set(frame(edge), frame(edge + 1), START + sample * STEP, sample * 0.01 + edge);
  lookups(trees, "latest, one edge", 1, true);
  lookups(trees, "latest, chain of 5", 5, true);
  lookups(trees, "interpolated, one edge", 1, false);
  lookups(trees, "interpolated, chain of 5", 5, false);
  batches(trees, "batch of 2000, one edge", 1);
  batches(trees, "batch of 2000, chain of 5", 5);
  const double theirs = contended(trees.theirs), ours = contended(trees.ours);
  report("8 readers, writer at 1 kHz", {{"tf2", theirs}, {"core", ours}});
}
