// RocksDB's timing counters of a thread's own writes.
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
// Turns the counters of the calling thread on or off.
void rocks_time_writes(uint8_t on) noexcept;
// Returns the times counted since the last call, and resets them.
void rocks_take_write_times(RocksWriteTimes* out) noexcept;
}
