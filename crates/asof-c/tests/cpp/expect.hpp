// What the tests of the headers share.
#pragma once
#include <asof.hpp>

#include <cstdio>
#include <cstdlib>

inline void expect(bool holds, const char *what, int line) {
  if (!holds) {
    std::printf("line %d: %s (%s)\n", line, what, asof_last_error());
    std::exit(1);
  }
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

/// The status of what a call throws.
template <typename Call> asof::Status thrown(Call call) {
  try {
    call();
  } catch (const asof::Error &error) {
    EXPECT(error.what()[0] != '\0');
    return error.status();
  }
  return ASOF_STATUS_OK;
}
