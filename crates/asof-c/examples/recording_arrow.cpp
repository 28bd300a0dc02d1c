// A recording of any format, from C++ into Arrow C++, without a copy: prints the columns and the number of rows of a topic.
// ci/hot/asof-cpp builds it with the Arrow of pyarrow's wheel. DuckDB, Go, Julia and R take the same ArrowArrayStream.
//
//   recording_arrow run.mcap /odom pose.pose.position.x
#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <asof.hpp>

#include <cstdio>

int main(int count, char **arguments) {
  if (count < 3) {
    std::fprintf(stderr, "recording_arrow PLACE TOPIC [COLUMN...]\n");
    return 2;
  }
  try {
    const asof::Recording recording{std::string(arguments[1])};
    auto stream = recording.stream(arguments[2], std::vector<std::string>(arguments + 3, arguments + count));
    // Arrow takes the stream over, and releases it.
    const auto reader = arrow::ImportRecordBatchReader(stream.get()).ValueOrDie();
    const auto table = reader->ToTable().ValueOrDie();
    for (const auto &field : table->schema()->fields())
      std::printf("%s\n", field->ToString().c_str());
    std::printf("%lld rows, %llu messages left out\n", static_cast<long long>(table->num_rows()),
                static_cast<unsigned long long>(stream.lost()));
  } catch (const asof::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
