// What RocksDB counts of a thread's own writes.
#pragma once

#include <stdint.h>

// Nanoseconds.
typedef struct {
  uint64_t wait;
  uint64_t log;
  uint64_t memtable;
  uint64_t delay;
  uint64_t schedule;
  uint64_t rest;
} RocksWriteTimes;

extern "C" {
// Turns the count on, or off, for the calling thread.
void rocks_time_writes(uint8_t on) noexcept;
// What it counted since the last call.
void rocks_take_write_times(RocksWriteTimes* out) noexcept;
}
