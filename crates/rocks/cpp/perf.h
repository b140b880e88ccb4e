// RocksDB's timing counters of a thread's own writes.
#pragma once

#include <stdint.h>

// Nanoseconds that a thread's writes took, by part.
typedef struct {
  uint64_t wait;
  uint64_t log;
  uint64_t memtable;
  uint64_t delay;
  uint64_t schedule;
  uint64_t rest;
} RocksWriteTimes;

extern "C" {
// Turns RocksDB's timing counters of the calling thread on or off.
void rocks_time_writes(uint8_t on) noexcept;
// Returns the write times counted on this thread since the last call, and resets them.
void rocks_take_write_times(RocksWriteTimes* out) noexcept;
}
