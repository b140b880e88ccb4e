#include "files.h"

#include <cstring>

namespace furrow {

using rocksdb::Env;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

// RocksDB's unique id of a file, from its inode number. All ids have the same length, so that no id is the prefix of
// another. The leading byte prevents reading an id as a single varint.
size_t UniqueId(uint64_t ino, char* id, size_t max_size) {
  const size_t size = 1 + 2 * sizeof(ino);
  if (max_size < size) {
    return 0;
  }
  const char digits[] = "0123456789abcdef";
  id[0] = static_cast<char>(0xf5);
  for (size_t i = 0; i < 2 * sizeof(ino); ++i) {
    id[1 + i] = digits[(ino >> (4 * i)) & 15];
  }
  return size;
}

}  // namespace

IOStatus Reader::ReadAt(uint64_t offset, size_t n, Slice* result, char* scratch) const {
  size_t got = 0;
  FurrowStatus status = furrow_read(reader_, offset, n, scratch, &got);
  *result = Slice(scratch, got);
  return ToIOStatus(status);
}

IOStatus SequentialFile::Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) {
  IOStatus status = reader_.ReadAt(offset_, n, result, scratch);
  offset_ += result->size();
  return status;
}

IOStatus SequentialFile::Skip(uint64_t n) {
  // A skip past the end of the file needs no check: the next Read returns nothing.
  offset_ += n;
  return IOStatus::OK();
}

IOStatus SequentialFile::PositionedRead(uint64_t offset, size_t n, const IOOptions&, Slice* result,
                                        char* scratch, IODebugContext*) {
  return reader_.ReadAt(offset, n, result, scratch);
}

IOStatus RandomAccessFile::Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                                IODebugContext*) const {
  return reader_.ReadAt(offset, n, result, scratch);
}

size_t RandomAccessFile::GetUniqueId(char* id, size_t max_size) const {
  return UniqueId(reader_.ino(), id, max_size);
}

IOStatus RandomAccessFile::Prefetch(uint64_t offset, size_t n, const IOOptions&, IODebugContext*) {
  return reader_.ReadAhead(offset, n) ? IOStatus::OK() : IOStatus::NotSupported("Prefetch without a page cache");
}

void RandomAccessFile::Hint(AccessPattern pattern) {
  switch (pattern) {
    case kRandom:
      return reader_.ExpectAccess(FURROW_ACCESS_RANDOM);
    case kSequential:
      return reader_.ExpectAccess(FURROW_ACCESS_SEQUENTIAL);
    // RocksDB gives its tables this hint when a compaction begins to read them (access_hint_on_compaction_start).
    case kNormal:
      return reader_.ExpectAccess(FURROW_ACCESS_ONCE);
    // RocksDB asks for what it will need with Prefetch, and for what it will not need with InvalidateCache.
    case kWillNeed:
    case kWontNeed:
      return;
  }
}

IOStatus WritableFile::Append(const Slice& data, const IOOptions&, IODebugContext*) {
  return ToIOStatus(furrow_append(writer_, data.data(), data.size()));
}

IOStatus WritableFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&, IODebugContext*) {
  const uint64_t size = furrow_written(writer_);
  if (offset != size) {
    return IOStatus::NotSupported("PositionedAppend at " + std::to_string(offset) + " of a file of " +
                                  std::to_string(size) + " bytes: zones are written at their end only");
  }
  return ToIOStatus(furrow_append(writer_, data.data(), data.size()));
}

IOStatus WritableFile::Truncate(uint64_t size, const IOOptions&, IODebugContext*) {
  if (size == furrow_written(writer_)) {
    return IOStatus::OK();
  }
  return ToIOStatus(furrow_truncate_file(writer_, size));
}

IOStatus WritableFile::Close(const IOOptions&, IODebugContext*) { return ToIOStatus(furrow_close(writer_)); }

IOStatus WritableFile::Flush(const IOOptions&, IODebugContext*) {
  // RocksDB flushes its log after every unsynced write group. Writing the bytes out would cost a block for each
  // record, so they stay in the log's buffer until the buffer is full or a sync comes. The README says what a crash
  // may lose.
  return IOStatus::OK();
}

IOStatus WritableFile::Sync(const IOOptions&, IODebugContext*) { return ToIOStatus(furrow_sync_file(writer_)); }

IOStatus WritableFile::RangeSync(uint64_t, uint64_t, const IOOptions& options, IODebugContext* dbg) {
  // RangeSync is a hint to begin writing out, unless the caller set strict_bytes_per_sync.
  return strict_bytes_per_sync_ ? Sync(options, dbg) : ToIOStatus(furrow_flush(writer_));
}

void WritableFile::SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) {
  write_hint_ = hint;
  furrow_set_lifetime(writer_, static_cast<uint8_t>(hint));
}

void WritableFile::SetIOPriority(Env::IOPriority priority) {
  io_priority_ = priority;
  furrow_set_priority(writer_, static_cast<uint8_t>(priority));
}

uint64_t WritableFile::GetFileSize(const IOOptions&, IODebugContext*) { return furrow_written(writer_); }

void WritableFile::SetPreallocationBlockSize(size_t size) {
  rocksdb::FSWritableFile::SetPreallocationBlockSize(size);
  if (preallocation_ != nullptr) {
    preallocation_->store(size, std::memory_order_relaxed);
  }
}

IOStatus RocksLogFile::Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) {
  IOStatus status = empty_->Check(name_);
  return status.ok() ? WritableFile::Append(data, options, dbg) : status;
}

IOStatus RocksLogFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options, IODebugContext* dbg) {
  IOStatus status = empty_->Check(name_);
  return status.ok() ? WritableFile::PositionedAppend(data, offset, options, dbg) : status;
}

IOStatus Directory::Fsync(const IOOptions&, IODebugContext*) { return ToIOStatus(furrow_sync(fs_)); }

IOStatus Directory::Close(const IOOptions&, IODebugContext*) { return IOStatus::OK(); }

size_t Directory::GetUniqueId(char* id, size_t max_size) const { return UniqueId(ino_, id, max_size); }

}  // namespace furrow
