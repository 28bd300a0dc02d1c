// Random trees, frames that change their parents, and random questions, to Debian's tf2 and to asof in one process: the numbers
// agree to 1e-9, and the kinds of errors are the same.
#include <tf2/buffer_core.h>

#include <asof/tf2.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace {

std::mt19937_64 engine(0x5eed);

int below(int limit) { return int(engine() % std::uint64_t(limit)); }
double unit() { return std::uniform_real_distribution<double>(-1, 1)(engine); }
bool chance(int percent) { return below(100) < percent; }
/// All samples are between 100 and 110 s.
ros::Time time_from(double first) { return ros::Time(first + (110 - first) * (unit() + 1) / 2); }

struct Answer {
  char kind = 'a';
  geometry_msgs::TransformStamped message;
};

template <typename Ask> Answer answer(Ask ask) {
  Answer answer;
  try {
    answer.message = ask();
  } catch (const tf2::LookupException &) {
    answer.kind = 'l';
  } catch (const tf2::ConnectivityException &) {
    answer.kind = 'c';
  } catch (const tf2::ExtrapolationException &) {
    answer.kind = 'e';
  } catch (const tf2::InvalidArgumentException &) {
    answer.kind = 'i';
  }
  return answer;
}

double apart(const geometry_msgs::TransformStamped &a, const geometry_msgs::TransformStamped &b) {
  const auto &p = a.transform, &q = b.transform;
  const double turn = std::abs(p.rotation.x * q.rotation.x + p.rotation.y * q.rotation.y + p.rotation.z * q.rotation.z +
                               p.rotation.w * q.rotation.w);
  return std::max({std::abs(p.translation.x - q.translation.x), std::abs(p.translation.y - q.translation.y),
                   std::abs(p.translation.z - q.translation.z), std::abs(1 - turn)});
}

long lookups = 0, answers = 0, earlier = 0, kinds[256] = {};

void compare(const Answer &theirs, const Answer &ours, bool are_apart, const std::string &what) {
  lookups++;
  kinds[static_cast<unsigned char>(theirs.kind)]++;
  bool is_same = theirs.kind == ours.kind;
  if (is_same && theirs.kind == 'a') {
    answers++;
    const auto &a = theirs.message, &b = ours.message;
    is_same = apart(a, b) < 1e-9 && a.header.stamp == b.header.stamp && a.header.frame_id == b.header.frame_id &&
              a.child_frame_id == b.child_frame_id;
  }
  // Both errors apply: tf2 reports the missing sample before it notices that the trees are not connected.
  if (theirs.kind == 'e' && ours.kind == 'c' && are_apart) {
    is_same = true;
    earlier++;
  }
  if (is_same)
    return;
  std::printf("%s, lookup %ld: tf2 says %c, asof says %c; apart %g; stamps %.9f and %.9f\n", what.c_str(), lookups, theirs.kind,
              ours.kind, apart(theirs.message, ours.message), theirs.message.header.stamp.toSec(),
              ours.message.header.stamp.toSec());
  std::exit(1);
}

void one_tree() {
  tf2::BufferCore theirs(ros::Duration(1000));
  asof::tf2::BufferCore ours(ros::Duration(1000));
  const int frames = 2 + below(30);
  const bool is_restless = chance(30);
  auto name = [](int frame) { return "frame_" + std::to_string(frame); };
  std::vector<int> parents(frames);
  std::vector<bool> fixed(frames);
  for (int frame = 1; frame < frames; frame++) {
    // Some become the root of another tree.
    parents[frame] = chance(95) ? below(frame) : -1;
    fixed[frame] = chance(25);
  }
  for (int samples = frames * (1 + below(8)); samples > 0; samples--) {
    const int child = below(frames);
    if (child == 0 || parents[child] < 0)
      continue;
    if (is_restless && !fixed[child] && chance(10))
      parents[child] = below(child);
    geometry_msgs::TransformStamped message;
    message.header.frame_id = name(parents[child]);
    message.child_frame_id = name(child);
    message.header.stamp = time_from(100);
    auto &pose = message.transform;
    pose.translation.x = unit();
    pose.translation.y = unit();
    pose.translation.z = unit();
    double q[4] = {unit(), unit(), unit(), unit() + 1e-3};
    const double length = std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    pose.rotation.x = q[0] / length;
    pose.rotation.y = q[1] / length;
    pose.rotation.z = q[2] / length;
    pose.rotation.w = q[3] / length;
    if (!theirs.setTransform(message, "test", fixed[child]) || !ours.setTransform(message, "test", fixed[child])) {
      std::printf("a transform was refused\n");
      std::exit(1);
    }
  }
  for (int ask = 0; ask < 100; ask++) {
    // Sometimes an unknown frame, an invalid name, or the time zero, which means the latest.
    const std::string target = chance(1) ? "/frame_0" : name(below(frames + 1)), source = name(below(frames + 1));
    const ros::Time at = chance(30) ? ros::Time(0) : time_from(99.8);
    auto are_apart = [&](const std::string &one, const std::string &other) {
      ros::Time time;
      return theirs._getLatestCommonTime(theirs._lookupFrameNumber(one), theirs._lookupFrameNumber(other), time,
                                         nullptr) != 0;
    };
    compare(answer([&] { return theirs.lookupTransform(target, source, at); }),
            answer([&] { return ours.lookupTransform(target, source, at); }), are_apart(target, source),
            source + " in " + target + " at " + std::to_string(at.toSec()));
    const std::string through = name(below(frames));
    const ros::Time then = chance(30) ? ros::Time(0) : time_from(99.8);
    compare(answer([&] { return theirs.lookupTransform(target, at, source, then, through); }),
            answer([&] { return ours.lookupTransform(target, at, source, then, through); }),
            are_apart(target, through) || are_apart(through, source), source + " at " + std::to_string(then.toSec()) + " in " + target + " at " + std::to_string(at.toSec()) +
                " through " + through);
    if (theirs.canTransform(target, source, at) != ours.canTransform(target, source, at) ||
        theirs.canTransform(target, at, source, then, through) != ours.canTransform(target, at, source, then, through)) {
      std::printf("canTransform differs: %s %s %.9f\n", target.c_str(), source.c_str(), at.toSec());
      std::exit(1);
    }
    std::string above, above_theirs;
    if (theirs._getParent(source, at, above_theirs) != ours._getParent(source, at, above) || above != above_theirs) {
      std::printf("the parent of %s differs\n", source.c_str());
      std::exit(1);
    }
  }
}

} // namespace

int main() {
  while (lookups < 200000)
    one_tree();
  std::printf("%ld lookups agree: %ld transforms, %ld unknown frames, %ld not connected "
              "(%ld more that tf2 calls extrapolations), %ld extrapolations, %ld bad names\n",
              lookups, answers, kinds[int('l')], kinds[int('c')], earlier, kinds[int('e')] - earlier, kinds[int('i')]);
  for (char kind : {'a', 'l', 'c', 'e', 'i'})
    if (kinds[int(kind)] < 100)
      return 1;
}
