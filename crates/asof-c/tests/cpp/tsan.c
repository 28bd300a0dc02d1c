// What rustc's ThreadSanitizer calls and older GCC's does not have: by its own copies, which it watches.
#include <stddef.h>
#include <string.h>

__attribute__((weak)) void *__tsan_memcpy(void *to, const void *from, size_t count) { return memcpy(to, from, count); }
__attribute__((weak)) void *__tsan_memmove(void *to, const void *from, size_t count) { return memmove(to, from, count); }
__attribute__((weak)) void *__tsan_memset(void *to, int value, size_t count) { return memset(to, value, count); }
