"""Writes a C++ program that calls every function of asof.h with everything that no caller should pass: NULL, the mark of a freed
handle, text that is not UTF-8, counts that no array has, the ends of every number. One argument at a time, the others being good;
then all of them at once. The functions are read from the header, so that none is forgotten: a type that is not known here is an
error.

    python3 hostile.py include/asof.h >hostile.cpp
"""
import re
import sys

header = re.sub(r"//[^\n]*", "", open(sys.argv[1]).read())
found = re.findall(r"^([A-Za-z_][\w ]*?[ *]+)(asof_\w+)\(([^;]*?)\);", header, re.M)

# What is handed out and freed, with how a good one is made.
HANDLES = {
    "AsofTf": "asof_tf_new(nullptr, &made)",
    "AsofTfPath": 'asof_tf_path_new(tf(), "one", "two", &made)',
    "AsofTfWait": 'asof_tf_wait_new(tf(), "odom", "nowhere", 1, 0, &made)',
    "AsofWindow": "asof_window_new(bounds(), &made)",
    "AsofSynchronizer": "asof_synchronizer_new(2, 4, 1000, take_set, nullptr, &made)",
    "AsofRecording": "asof_open(recording(), &made)",
    "AsofMessages": "asof_recording_messages(good<AsofRecording>(), nullptr, 0, INT64_MIN, INT64_MAX, &made)",
    "AsofWriter": "asof_writer_new(scratch(), &made)",
    "AsofLosses": 'asof_recording_stream(good<AsofRecording>(), "/topic", nullptr, 0, INT64_MIN, INT64_MAX, stream(), &made)',
}
NUMBERS = {
    "int32_t": ["0", "-1", "INT32_MIN", "INT32_MAX"],
    "int64_t": ["1", "0", "-1", "INT64_MIN", "INT64_MAX"],
    "uint32_t": ["0", "1", "UINT32_MAX"],
    "uint64_t": ["1", "0", "UINT64_MAX"],
    "AsofFrame": ['frame()', "0", "1", "UINT64_MAX"],
    "bool": ["false", "true"],
    "double": ["10.0", "0.0", "-1.0", "NAN", "INFINITY", "1e308"],
}
# Counts are of the arrays before them, which have one good element; no array has the others.
COUNTS = ["1", "0", "SIZE_MAX", "SIZE_MAX / 2", "SIZE_MAX / 8", "(size_t)1 << 58"]
FUNCTIONS = {"AsofTfCallback": "take_transform", "AsofRelease": "take_value", "AsofSetCallback": "take_set"}
NOT_UTF8 = 'text("\\xff\\xfe")'
# What asof.hpp makes of a std::string with a NUL inside.
CUT = "text(reinterpret_cast<const char *>(1))"


def values(function, kind, name, parameters):
    """A good value first, then the hostile ones, and which of those have to be refused as arguments."""
    base = kind.replace("const", "").replace(" ", "")
    if function in ("asof_tf_wait", "asof_tf_wait_latest") and name == "timeout":
        return ["1", "0"], []  # nobody would end a wait without an end
    if base in NUMBERS:
        return NUMBERS[base], []
    if base == "size_t":
        # Of topics of a synchronizer and places in a list there is no array: any number is one.
        return COUNTS, []
    if base in FUNCTIONS:
        return [FUNCTIONS[base], "nullptr"], ["nullptr"] if base != "AsofRelease" else []
    if base == "void*":
        return ["nullptr"], []
    pointed = base.rstrip("*")
    stars = len(base) - len(pointed)
    if pointed in HANDLES:
        bad = [f"({kind})nullptr", f"({kind})freed()"]
        if stars == 1:
            return [f"good<{pointed}>()"] + bad, bad
        # A place for a new handle, or one that is freed.
        if function.endswith(("_free", "_finish")):
            return [f"fresh<{pointed}>()", "nullptr", f"place(({pointed} *)nullptr)", f"place(({pointed} *)freed())"], []
        return [f"place(({pointed} *)nullptr)", "nullptr"], []
    if pointed == "char" and stars == 1:
        good = '"odom"' if name in ("target", "parent", "moving") else '"base_link"'
        if "recording" in function or function in ("asof_at",):
            good = '"/topic"'
        if function == "asof_open":
            good = "recording()"
        if function == "asof_writer_new":
            good = "scratch()"
        return [good, "nullptr", NOT_UTF8, CUT, '""', 'long_text()'], [NOT_UTF8, CUT]
    if pointed == "char" and "const" in kind:
        first = "recording()" if function == "asof_open_all" else '"/topic"'
        return [f"texts({first})", "nullptr", "texts(nullptr)", f"texts({NOT_UTF8})", f"texts({CUT})"], [f"texts({NOT_UTF8})", f"texts({CUT})"]
    if pointed == "char":
        return ["place((char *)nullptr)", "nullptr"], []
    if pointed == "ArrowArrayStream":
        return ["stream()", "nullptr"], ["nullptr"]
    if pointed.startswith("Asof") or pointed in ("int32_t", "int64_t", "uint32_t", "uint64_t", "size_t", "bool", "double", "float", "uint8_t"):
        return [f"zeros<{pointed}>()", "nullptr"], []
    sys.exit(f"{function}: what is a {kind}?")


calls = []
for result, name, text in found:
    parameters = []
    if text.strip() not in ("", "void"):
        for parameter in re.split(r",\s*", " ".join(text.split())):
            kind, argument = re.match(r"(.*?[ *])(\w+)$", parameter).groups()
            parameters.append((kind.strip(), argument))
    given = [values(name, kind, argument, parameters) for kind, argument in parameters]
    good = [options[0] for options, _ in given]

    def call(arguments, wanted):
        line = f"{name}({', '.join(arguments)})"
        if result.strip() != "AsofStatus":
            calls.append(f"  {line};")
        else:
            calls.append(f'  check({line}, {wanted}, R"({line})");')

    call(good, "false")
    for at, (options, refused) in enumerate(given):
        for option in options[1:]:
            call(good[:at] + [option] + good[at + 1 :], str(option in refused).lower())
    for round in range(1, max([len(options) for options, _ in given], default=1)):
        call([options[round % len(options)] for options, _ in given], "false")

print(
    """// Written by hostile.py.
#include <asof.h>
#include <asof/arrow_abi.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// What is made is freed at the end, so that a leak is the library's.
static std::vector<std::function<void()>> ends;
static std::string folder;
static void *freed() { return reinterpret_cast<void *>(1); }
static const char *text(const char *bytes) { return bytes; }
static const char *long_text() {
  static const std::string text(100000, 'x');
  return text.c_str();
}
template <typename T> T **place(T *value) {
  static std::deque<T *> places;
  places.push_back(value);
  if constexpr (std::is_same_v<T, char>)
    ends.push_back([at = &places.back()] { asof_text_free(at); });
  else
    ends.push_back([at = &places.back()] { end(at); });
  return &places.back();
}
// Room for more than one, so that a count of one is right whatever an element consists of.
template <typename T> T *zeros() {
  static std::deque<std::vector<AsofTransform>> places;
  places.emplace_back(64);
  return reinterpret_cast<T *>(places.back().data());
}
static const char *const *texts(const char *first) {
  static std::deque<const char *> places;
  places.push_back(first);
  return &places.back();
}
static ArrowArrayStream *stream() {
  static std::deque<ArrowArrayStream> streams;
  streams.emplace_back();
  ends.push_back([at = &streams.back()] {
    if (at->release)
      at->release(at);
  });
  return &streams.back();
}
static void take_transform(void *, AsofStatus, const AsofTransform *, const char *) {}
static void take_value(void *) {}
static void take_set(void *, const AsofEntry *, size_t) {}
static void check(AsofStatus status, bool has_to_be_refused, const char *call) {
  const std::string why = asof_last_error();
  if (status == ASOF_STATUS_INTERNAL || (has_to_be_refused && status != ASOF_STATUS_INVALID_ARGUMENT)) {
    std::fprintf(stderr, "%s is %d: %s\\n", call, int(status), why.c_str());
    std::exit(1);
  }
}
static const char *recording() {
  static const std::string path = folder + "/recording.mcap";
  return path.c_str();
}
static const char *scratch() {
  static std::deque<std::string> paths;
  paths.push_back(folder + "/scratch" + std::to_string(paths.size()) + ".mcap");
  return paths.back().c_str();
}
static AsofTf *tf() {
  static AsofTf *made = nullptr;
  if (made == nullptr) {
    const AsofTransform pose{{0, 0, 0, 1}, {1, 2, 3}};
    asof_tf_new(nullptr, &made);
    asof_tf_set(made, "odom", "base_link", 1, &pose);
    // Frames that no call removes.
    asof_tf_set(made, "one", "two", 1, &pose);
    ends.push_back([] { asof_tf_free(&made); });
  }
  return made;
}
static AsofFrame frame() {
  AsofFrame frame = 0;
  asof_tf_find_frame(tf(), "base_link", &frame);
  return frame;
}
static const AsofWindowBounds *bounds() {
  static const AsofWindowBounds bounds = {4, 0, 0};
  return &bounds;
}
// A handle that could not be made would be one more NULL.
template <typename T> T *made_well(AsofStatus status, T *made) {
  if (status != ASOF_STATUS_OK) {
    std::fprintf(stderr, "a good handle could not be made: %s\\n", asof_last_error());
    std::exit(1);
  }
  return made;
}
template <typename T> T *good();
template <typename T> T **fresh();"""
)
for handle, make in HANDLES.items():
    free = next(name for _, name, text in found if name.endswith("_free") and re.match(rf"{handle} \*\*", text))
    print(f"static void end({handle} **at) {{ {free}(at); }}")
    print(f"template <> {handle} *good() {{ {handle} *made = nullptr; const AsofStatus status = {make}; return *place(made_well(status, made)); }}")
    print(f"template <> {handle} **fresh() {{ {handle} *made = nullptr; const AsofStatus status = {make}; return place(made_well(status, made)); }}")
print("int main(int, char **arguments) {\n  folder = arguments[1];")
print('  AsofWriter *writer = nullptr;\n  std::uint32_t channel = 0;\n  check(asof_writer_new(recording(), &writer), false, "writer");')
print('  asof_writer_channel(writer, "/topic", "json", "", "", nullptr, 0, &channel);')
print('  asof_writer_write(writer, channel, 1, 1, 0, (const uint8_t *)"{}", 2);\n  asof_writer_finish(&writer);')
print("\n".join(calls))
print("  while (!ends.empty()) {\n    auto last = std::move(ends.back());\n    ends.pop_back();\n    last();\n  }")
print(f'  std::printf("{len(found)} functions, {len(calls)} calls: none was harmed\\n");\n}}')
