// Recordings through asof.hpp: what is written is read again, as messages and as Arrow streams whose every array is checked against
// its schema; what is wrong is said. Recordings that are named are read completely. ci/hot/asof-cpp builds it with AddressSanitizer.
//
//   recordings FOLDER [RECORDING...]
#include "expect.hpp"

#include <asof/arrow_abi.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

using namespace std::chrono_literals;

namespace {

/// The bytes of one value of a fixed width; 0 for a bit, -1 for other layouts.
int width(const std::string &format) {
  static const std::map<char, int> widths = {{'b', 0}, {'c', 1}, {'C', 1}, {'s', 2}, {'S', 2}, {'e', 2}, {'i', 4},
                                             {'I', 4}, {'f', 4}, {'l', 8}, {'L', 8}, {'g', 8}};
  if (format.size() == 1 && widths.count(format[0]) != 0)
    return widths.at(format[0]);
  if (format[0] == 't')
    return format == "tdD" || format == "tts" || format == "ttm" ? 4 : 8;
  if (format.compare(0, 2, "w:") == 0)
    return std::atoi(format.c_str() + 2);
  return -1;
}

template <typename Offset> std::int64_t last_offset(const ArrowArray &array) {
  const auto *offsets = static_cast<const Offset *>(array.buffers[1]);
  if (array.length == 0)
    return 0;
  EXPECT(offsets != nullptr);
  for (std::int64_t row = array.offset; row < array.offset + array.length; row++)
    EXPECT(offsets[row] >= 0 && offsets[row] <= offsets[row + 1]);
  return offsets[array.offset + array.length];
}

/// Reads every byte that an array says it has, so that AddressSanitizer sees those that it has not.
std::uint64_t sum = 0;
void read(const void *bytes, std::int64_t count) {
  for (std::int64_t at = 0; at < count; at++)
    sum += static_cast<const unsigned char *>(bytes)[at];
}

/// Whether streams may have views, which older readers do not know.
bool wants_views = false;

void valid(const ArrowSchema &schema, const ArrowArray &array) {
  const std::string format = schema.format;
  EXPECT(array.length >= 0 && array.offset >= 0 && array.null_count >= -1 && array.null_count <= array.length);
  EXPECT(array.n_children == schema.n_children && (array.dictionary == nullptr) == (schema.dictionary == nullptr));
  const std::int64_t rows = array.offset + array.length;
  if (array.n_buffers > 0 && array.buffers[0] != nullptr)
    read(array.buffers[0], (rows + 7) / 8);
  else
    EXPECT(array.null_count <= 0 || format == "n");
  if (const int size = width(format); size >= 0) {
    EXPECT(array.n_buffers == 2 && array.n_children == 0);
    read(array.buffers[1], size == 0 ? (rows + 7) / 8 : rows * size);
  } else if (format == "u" || format == "z") {
    EXPECT(array.n_buffers == 3);
    read(array.buffers[2], last_offset<std::int32_t>(array));
  } else if (format == "U" || format == "Z") {
    EXPECT(array.n_buffers == 3);
    read(array.buffers[2], last_offset<std::int64_t>(array));
  } else if (format == "vu" || format == "vz") {
    // Views: a length, then the bytes, or the first four of them and where the whole is.
    EXPECT(wants_views && array.n_buffers >= 3);
    const std::int64_t data = array.n_buffers - 3;
    const auto *sizes = static_cast<const std::int64_t *>(array.buffers[array.n_buffers - 1]);
    const auto *views = static_cast<const std::int32_t *>(array.buffers[1]);
    for (std::int64_t row = array.offset; row < rows; row++) {
      const std::int32_t *view = views + 4 * row;
      EXPECT(view[0] >= 0);
      if (view[0] <= 12)
        continue;
      EXPECT(view[2] >= 0 && view[2] < data && view[3] >= 0 && std::int64_t(view[3]) + view[0] <= sizes[view[2]]);
      read(static_cast<const char *>(array.buffers[2 + view[2]]) + view[3], view[0]);
    }
  } else if (format == "+l" || format == "+L" || format == "+m") {
    EXPECT(array.n_buffers == 2 && array.n_children == 1);
    const std::int64_t items = format == "+L" ? last_offset<std::int64_t>(array) : last_offset<std::int32_t>(array);
    EXPECT(array.children[0]->length >= items);
  } else if (format.compare(0, 3, "+w:") == 0) {
    EXPECT(array.n_children == 1 && array.children[0]->length >= rows * std::atoi(format.c_str() + 3));
  } else if (format == "+s") {
    for (std::int64_t child = 0; child < array.n_children; child++)
      EXPECT(array.children[child]->length >= rows);
  } else if (format != "n") {
    std::printf("unknown format %s\n", format.c_str());
    std::exit(1);
  }
  for (std::int64_t child = 0; child < array.n_children; child++)
    valid(*schema.children[child], *array.children[child]);
  if (schema.dictionary != nullptr)
    valid(*schema.dictionary, *array.dictionary);
}

/// The rows of a stream, all of it checked; the names of its columns.
std::int64_t rows(ArrowArrayStream &stream, std::vector<std::string> *names = nullptr) {
  ArrowSchema schema = {};
  EXPECT(stream.get_schema(&stream, &schema) == 0 && std::strcmp(schema.format, "+s") == 0);
  if (names != nullptr)
    for (std::int64_t child = 0; child < schema.n_children; child++)
      names->push_back(schema.children[child]->name);
  std::int64_t rows = 0;
  while (true) {
    ArrowArray array = {};
    if (stream.get_next(&stream, &array) != 0) {
      std::printf("%s\n", stream.get_last_error(&stream));
      std::exit(1);
    }
    if (array.release == nullptr)
      break;
    rows += array.length;
    valid(schema, array);
    array.release(&array);
    EXPECT(array.release == nullptr);
  }
  // The end stays the end.
  ArrowArray array = {};
  EXPECT(stream.get_next(&stream, &array) == 0 && array.release == nullptr);
  schema.release(&schema);
  return rows;
}

const std::string TRANSFORMS = "geometry_msgs/TransformStamped[] transforms\n"
                               "================================================================================\n"
                               "MSG: geometry_msgs/TransformStamped\nstd_msgs/Header header\nstring child_frame_id\n"
                               "geometry_msgs/Transform transform\n"
                               "================================================================================\n"
                               "MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
                               "================================================================================\n"
                               "MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
                               "================================================================================\n"
                               "MSG: geometry_msgs/Transform\ngeometry_msgs/Vector3 translation\n"
                               "geometry_msgs/Quaternion rotation\n"
                               "================================================================================\n"
                               "MSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n"
                               "================================================================================\n"
                               "MSG: geometry_msgs/Quaternion\nfloat64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1\n";

/// A value of CDR, aligned as it has to be.
template <typename T> void append(std::string &cdr, T value) {
  while ((cdr.size() - 4) % sizeof(T) != 0)
    cdr.push_back('\0');
  cdr.append(reinterpret_cast<const char *>(&value), sizeof(T));
}
void append(std::string &cdr, const char *text) {
  append(cdr, std::uint32_t(std::strlen(text) + 1));
  cdr.append(text, std::strlen(text) + 1);
}

/// base_link in odom, one metre after each second.
std::string transform(int second) {
  std::string cdr("\0\1\0\0", 4);
  append(cdr, std::uint32_t(1));
  append(cdr, std::int32_t(second));
  append(cdr, std::uint32_t(0));
  append(cdr, "odom");
  append(cdr, "base_link");
  for (const double part : {double(second), 0.0, 0.0, 0.0, 0.0, 0.0, 1.0})
    append(cdr, part);
  return cdr;
}

/// Ten seconds: /odom twice a second, /imu once, and transforms.
void write(const std::string &path, const std::string &prefix = "") {
  asof::Writer writer(path);
  const std::uint32_t odom = writer.channel(prefix + "/odom", "json"), imu = writer.channel(prefix + "/imu", "json");
  const std::uint32_t tf = writer.channel("/tf", "cdr", "tf2_msgs/msg/TFMessage", "ros2msg", TRANSFORMS);
  for (int half = 0; half < 20; half++) {
    const asof::Stamp now = std::chrono::milliseconds(100000 + 500 * half);
    const std::string text = "{\"x\":" + std::to_string(half) + ".5,\"name\":\"é\",\"list\":[1,2]}";
    writer.write(odom, now, text.data(), text.size(), std::uint32_t(half), now.nanoseconds - 7);
    if (half % 2 == 0)
      writer.write(imu, now.nanoseconds + 1, text.data(), text.size());
    if (half % 2 == 0) {
      const std::string cdr = transform(100 + half / 2);
      writer.write(tf, now.nanoseconds + 2, cdr.data(), cdr.size());
    }
  }
  EXPECT(writer.try_write(99, 0s, "", 0) == ASOF_STATUS_INVALID_ARGUMENT);
  writer.finish();
  EXPECT(writer.try_finish() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(writer.try_write(odom, 0s, "", 0) == ASOF_STATUS_INVALID_ARGUMENT);
}

void reading(const std::string &path) {
  std::optional<asof::Recording> recording(path);
  const auto range = recording->range();
  EXPECT(range && range->start == asof::Stamp(100s) && range->end == asof::Stamp(109500ms));
  const auto topics = recording->topics();
  EXPECT(topics.size() == 3 && topics[0].name == "/imu" && topics[0].encoding == "json" && topics[0].messages == 10U);
  EXPECT(topics[1].name == "/odom" && topics[1].messages == 20U && topics[2].type == "tf2_msgs/msg/TFMessage");
  EXPECT(recording->problems().empty());

  auto messages = recording->messages({"/odom"}, {102s, 103s});
  std::vector<std::uint32_t> numbers;
  while (const asof::Message *message = messages.next()) {
    EXPECT(std::strcmp(message->topic, "/odom") == 0 && std::strcmp(message->encoding, "json") == 0);
    EXPECT(message->publish_time == message->log_time - 7 && std::memcmp(message->data, "{\"x\":", 5) == 0);
    numbers.push_back(message->sequence);
  }
  EXPECT(numbers == std::vector<std::uint32_t>({4, 5, 6}) && messages.next() == nullptr);

  std::map<std::string, std::int64_t> known;
  auto at = recording->at(104200ms);
  while (const asof::Message *message = at.next())
    known[message->topic] = message->log_time;
  EXPECT((known == std::map<std::string, std::int64_t>{{"/imu", 104000000001}, {"/odom", 104000000000}, {"/tf", 104000000002}}));
  EXPECT(recording->at(104200ms, {"/imu"}).next() != nullptr && recording->at(1s).next() == nullptr);

  std::vector<std::string> names;
  auto stream = recording->stream("/odom");
  EXPECT(rows(*stream.get(), &names) == 20 && stream.lost() == 0);
  EXPECT(std::find(names.begin(), names.end(), "x") != names.end());
  names.clear();
  auto some = recording->stream("/odom", {"log_time", "x"}, {100s, 101s});
  EXPECT(rows(*some.get(), &names) == 3 && names == std::vector<std::string>({"log_time", "x"}));
  auto transforms = recording->stream("/tf");
  EXPECT(rows(*transforms.get()) == 10);

  AsofJoinOptions options = asof_join_options();
  options.pick = "last";
  options.within = 1000000000;
  names.clear();
  auto joined = recording->join("/odom", {"/imu", "/tf"}, options);
  EXPECT(rows(*joined.get(), &names) == 20 && names[0] == "time");
  EXPECT(std::find(names.begin(), names.end(), "/imu.x") != names.end());
  auto grid = recording->resample({"/imu", "/odom"}, 4.0);
  EXPECT(rows(*grid.get()) >= 37);
  auto queried = recording->try_sql("SELECT count(*) AS n FROM \"/odom\"");
  EXPECT(queried ? rows(*queried->get(), &names) == 1 : queried.status() == ASOF_STATUS_UNSUPPORTED);
  if (queried) {
    EXPECT(recording->try_sql("SELEKT").status() == ASOF_STATUS_INVALID_ARGUMENT);
    EXPECT(recording->try_sql("SELECT * FROM nothing").status() == ASOF_STATUS_INVALID_ARGUMENT);
    EXPECT(recording->try_sql("CREATE TABLE t(x INT)").status() == ASOF_STATUS_INVALID_ARGUMENT);
  }

  asof::tf::Buffer buffer = recording->tf();
  EXPECT(std::abs(buffer.lookup("odom", "base_link", 104500ms).translation[0] - 104.5) < 1e-12);

  // What was made of a recording outlives it; a stream that nobody reads is released too.
  auto later = recording->stream("/odom");
  auto left = recording->messages();
  auto unread = recording->join("/odom", {"/imu"});
  ArrowArrayStream moved = *later.get();
  later.get()->release = nullptr;
  recording.reset();
  EXPECT(rows(moved) == 20 && left.next() != nullptr);
  moved.release(&moved);
  EXPECT(moved.release == nullptr);
  // Arrays and schemas stay when their stream is gone.
  asof::Recording again(path);
  ArrowSchema schema = {};
  ArrowArray array = {};
  {
    auto brief = again.stream("/imu");
    EXPECT(brief.get()->get_schema(brief.get(), &schema) == 0 && brief.get()->get_next(brief.get(), &array) == 0);
  }
  valid(schema, array);
  array.release(&array);
  schema.release(&schema);
}

void errors(const std::string &folder, const std::string &path) {
  EXPECT(thrown([&] { asof::Recording none(folder + "/none.mcap"); }) == ASOF_STATUS_UNREADABLE);
  EXPECT(!asof::Recording::try_open(std::vector<std::string>{path, folder + "/none.mcap"}));
  EXPECT(!asof::Recording::try_open(std::vector<std::string>()));
  EXPECT(!asof::Recording::try_open(""));
  for (const char *address : {"https://localhost:1/run.mcap", "s3://bucket/run.mcap", "zenoh://localhost:1", "dds://?domain=0"}) {
    const auto none = asof::Recording::try_open(address);
    EXPECT(none.status() == ASOF_STATUS_UNSUPPORTED && std::strstr(none.error().what(), "-DASOF_FEATURES=default,") != nullptr);
  }
  EXPECT(asof::Writer::try_create(folder + "/no/such/folder.mcap").status() == ASOF_STATUS_UNREADABLE);
  std::ofstream(folder + "/text.mcap") << "this is no recording";
  EXPECT(!asof::Recording::try_open(folder + "/text.mcap"));

  const asof::Recording recording(path);
  EXPECT(recording.try_stream("/nothing").status() == ASOF_STATUS_NOT_FOUND);
  EXPECT(std::strstr(recording.try_stream("/nothing").error().what(), "/odom") != nullptr);
  EXPECT(recording.try_stream("/odom", {"nothing"}).status() == ASOF_STATUS_NOT_FOUND);
  EXPECT(recording.try_join("/nothing", {"/odom"}).status() == ASOF_STATUS_NOT_FOUND);
  EXPECT(recording.try_join("/odom", {"/nothing"}).status() == ASOF_STATUS_NOT_FOUND);
  EXPECT(recording.try_resample({"/nothing"}, 1).status() == ASOF_STATUS_NOT_FOUND);
  for (const double hz : {0.0, -1.0, double(NAN), double(INFINITY), 1e300})
    EXPECT(recording.try_resample({"/odom"}, hz).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(recording.try_resample({}, 1).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(recording.try_messages({"/odom", "/nothing"}).status() == ASOF_STATUS_NOT_FOUND);
  EXPECT(recording.try_at(1s, {"/nothing"}).status() == ASOF_STATUS_NOT_FOUND);
  // A text with a NUL inside is refused, not read as far as the NUL.
  const std::string cut("/odom\0x", 7);
  EXPECT(asof::Recording::try_open(path + cut).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(asof::Recording::try_open(std::vector<std::string>{path, path + cut}).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(recording.try_stream(cut).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(recording.try_stream("/odom", {std::string("x\0y", 3)}).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(recording.try_join(cut, {"/imu"}).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(recording.try_join("/imu", {cut}).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(recording.try_resample({cut}, 1).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(recording.try_sql(std::string("SELECT 1\0", 9)).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(recording.try_messages({cut}).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(recording.try_at(1s, {cut}).status() == ASOF_STATUS_INVALID_ARGUMENT);
  EXPECT(asof::Writer::try_create(folder + "/new.mcap" + cut).status() == ASOF_STATUS_INVALID_ARGUMENT);
  {
    asof::Writer writer(folder + "/new.mcap");
    EXPECT(writer.try_channel(cut, "json").status() == ASOF_STATUS_INVALID_ARGUMENT);
    EXPECT(writer.try_channel("/odom", "json", cut, "jsonschema", "{}").status() == ASOF_STATUS_INVALID_ARGUMENT);
    // The text of a schema may have one.
    EXPECT(writer.try_channel("/odom", "own", "Own", "own", cut).has_value());
  }
  AsofJoinOptions options = asof_join_options();
  options.pick = "sideways";
  EXPECT(recording.try_join("/odom", {"/imu"}, options).status() == ASOF_STATUS_INVALID_ARGUMENT);
  // Ranges without a message, the other way round, and of all time.
  const asof::Stamp least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  for (const asof::Range range : {asof::Range{least, least}, asof::Range{most, most}, asof::Range{most, least}}) {
    EXPECT(recording.messages({}, range).next() == nullptr);
    auto none = recording.stream("/odom", {}, range);
    EXPECT(rows(*none.get()) == 0);
    options = asof_join_options();
    options.start = range.start.nanoseconds;
    options.end = range.end.nanoseconds;
    auto join = recording.join("/odom", {"/imu"}, options);
    EXPECT(rows(*join.get()) == 0);
  }
  EXPECT(recording.at(least).next() == nullptr && recording.at(most).next() != nullptr);

  // A file that is cut opens as far as it goes, and says so.
  std::ifstream whole(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(whole)), std::istreambuf_iterator<char>());
  std::ofstream(folder + "/cut.mcap", std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  const asof::Recording half(folder + "/cut.mcap");
  auto rest = half.messages();
  while (rest.next() != nullptr) {
  }
  EXPECT(!half.problems().empty() && !half.problems()[0].empty());
  // A writer that is left open leaves a file that can be read.
  {
    asof::Writer open(folder + "/open.mcap");
    const std::uint32_t channel = open.channel("/a", "json");
    open.write(channel, 1s, "{}", 2);
  }
  EXPECT(asof::Recording(folder + "/open.mcap").messages({"/a"}).next() != nullptr);
  // What was moved from is refused, and harmless.
  asof::Recording one(path), other(std::move(one));
  EXPECT(thrown([&] { one.topics(); }) == ASOF_STATUS_INVALID_ARGUMENT && other.topics().size() == 3);
}

void several(const std::string &folder, const std::string &path) {
  write(folder + "/other.mcap", "/other");
  const asof::Recording both(std::vector<std::string>{path, folder + "/other.mcap"});
  EXPECT(both.topics().size() == 5 && both.topics().back().messages == 20U);
  auto messages = both.messages();
  std::int64_t before = 0;
  int count = 0;
  while (const asof::Message *message = messages.next()) {
    EXPECT(message->log_time >= before);
    before = message->log_time;
    count++;
  }
  EXPECT(count == 80);
  // One handle, many threads.
  std::atomic<int> read{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; thread++)
    threads.emplace_back([&, thread] {
      for (int again = 0; again < 5; again++) {
        auto stream = both.stream(thread % 2 == 0 ? "/odom" : "/other/odom");
        read += int(rows(*stream.get()));
        auto at = both.at(105s);
        while (at.next() != nullptr)
          read++;
        EXPECT(both.topics().size() == 5 && both.range());
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT(read == 8 * 5 * (20 + 5));
}

void complete(const std::string &place) {
  asof::Recording recording(place);
  auto messages = recording.messages();
  std::map<std::string, std::uint64_t> counts;
  while (const asof::Message *message = messages.next()) {
    counts[message->topic]++;
    read(message->data, std::int64_t(message->size));
    read(message->schema, std::int64_t(message->schema_size));
  }
  std::int64_t tables = 0, all = 0;
  for (const asof::TopicInfo &topic : recording.topics()) {
    EXPECT(!topic.messages || !recording.problems().empty() || *topic.messages == counts[topic.name]);
    if (auto stream = recording.try_stream(topic.name)) {
      const std::int64_t count = rows(*stream->get());
      recording.use_views(wants_views = true);
      auto viewed = recording.stream(topic.name);
      EXPECT(rows(*viewed.get()) == count);
      recording.use_views(wants_views = false);
      all += count;
      tables++;
    }
  }
  const auto range = recording.range();
  if (range)
    EXPECT(recording.at(range->end).next() != nullptr);
  const auto buffer = recording.try_tf();
  std::printf("%s: %zu topics, %lld tables, %lld rows, %llu frames, %zu problems\n", place.c_str(), recording.topics().size(),
              static_cast<long long>(tables), static_cast<long long>(all),
              buffer ? static_cast<unsigned long long>(buffer->stats().frames) : 0ULL, recording.problems().size());
}

} // namespace

int main(int count, char **arguments) {
  if (count < 2)
    return 2;
  const std::string folder = arguments[1], path = folder + "/run.mcap";
  write(path);
  reading(path);
  errors(folder, path);
  several(folder, path);
  for (int place = 2; place < count; place++)
    complete(arguments[place]);
  std::printf("recordings hold\n");
}
