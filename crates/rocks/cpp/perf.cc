#include "perf.h"

#include "rocksdb/perf_context.h"
#include "rocksdb/perf_level.h"

void rocks_time_writes(uint8_t on) noexcept {
  rocksdb::SetPerfLevel(on != 0 ? rocksdb::PerfLevel::kEnableTime : rocksdb::PerfLevel::kDisable);
  rocksdb::get_perf_context()->Reset();
}

void rocks_take_write_times(RocksWriteTimes* out) noexcept {
  rocksdb::PerfContext* context = rocksdb::get_perf_context();
  out->wait = context->write_thread_wait_nanos;
  out->log = context->write_wal_time;
  out->memtable = context->write_memtable_time;
  out->delay = context->write_delay_time;
  out->schedule = context->write_scheduling_flushes_compactions_time;
  out->rest = context->write_pre_and_post_process_time;
  context->Reset();
}
