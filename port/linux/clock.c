// Stands in for a macOS system call: mlx-rs seeds its default random state with `mach_approximate_time`
// on every platform, and Linux has no such symbol. Any clock that moves forward serves; this one counts
// nanoseconds. Whoever needs repeatable numbers passes a seed and never comes here.
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <time.h>

uint64_t mach_approximate_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
