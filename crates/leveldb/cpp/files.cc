#include "files.h"

#include <pthread.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "status.h"

namespace furrow {

using leveldb::Slice;
using leveldb::Status;

namespace {

constexpr size_t kLongestLine = 4096;

Status ReadAt(const FurrowReader* reader, uint64_t offset, size_t n, Slice* result, char* scratch) {
  size_t got = 0;
  FurrowStatus status = furrow_read(reader, offset, n, scratch, &got);
  *result = Slice(scratch, got);
  return ToStatus(status);
}

// Writes the time of day and the thread to `into`, as LevelDB's own text log begins each line. Returns the number of bytes.
size_t Stamp(char* into, size_t size) {
  timeval now;
  gettimeofday(&now, nullptr);
  tm parts;
  localtime_r(&now.tv_sec, &parts);
  const int n = snprintf(into, size, "%04d/%02d/%02d-%02d:%02d:%02d.%06d %llx ", parts.tm_year + 1900,
                         parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                         static_cast<int>(now.tv_usec), static_cast<unsigned long long>(pthread_self()));
  return n < 0 ? 0 : static_cast<size_t>(n);
}

}  // namespace

Status SequentialReader::Read(size_t n, Slice* result, char* scratch) {
  Status status = ReadAt(reader_, offset_, n, result, scratch);
  offset_ += result->size();
  return status;
}

Status SequentialReader::Skip(uint64_t n) {
  // A skip past the end of the file needs no check: the next Read returns nothing.
  offset_ += n;
  return Status::OK();
}

Status RandomReader::Read(uint64_t offset, size_t n, Slice* result, char* scratch) const {
  return ReadAt(reader_, offset, n, result, scratch);
}

Status Writer::Append(const Slice& data) {
  if (failure_.ok()) {
    failure_ = ToStatus(furrow_append(writer_, data.data(), data.size()));
  }
  return failure_;
}

Status Writer::Close() { return ToStatus(furrow_close(writer_)); }

Status Writer::Flush() {
  // LevelDB flushes a table after each of its blocks, and a log after each write. Handing these bytes to the drive would cost
  // a block for each, so they stay in the file's buffer until the buffer is full or a Sync comes. docs/leveldb.md says what
  // the death of the process may lose.
  if (!flushes_ || !failure_.ok()) {
    return failure_;
  }
  if (!flushed_) {
    // A log is found after the death of the process once the metadata names its zone, which a sync waits for.
    flushed_ = true;
    return Sync();
  }
  return ToStatus(furrow_flush(writer_));
}

Status Writer::Sync() { return failure_.ok() ? ToStatus(furrow_sync_file(writer_)) : failure_; }

void TextLog::Logv(const char* format, std::va_list ap) {
  char line[kLongestLine];
  size_t len = Stamp(line, sizeof(line));
  const int body = vsnprintf(line + len, sizeof(line) - len, format, ap);
  len = std::min(len + static_cast<size_t>(std::max(body, 0)), sizeof(line) - 1);
  if (line[len - 1] != '\n') {
    line[len++] = '\n';
  }
  FurrowStatus status = furrow_append(writer_, line, len);
  furrow_message_free(status.message, status.message_len);
}

}  // namespace furrow
