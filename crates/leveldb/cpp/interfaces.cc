// The functions of LevelDB's interface classes that its headers declare and do not define, for the preloaded library alone. With
// these, the library refers to no symbol of LevelDB: it loads no LevelDB into a program that has another one, and it mixes no two.
// The library exports none of them.

#include <cstdint>
#include <cstring>

#include "leveldb/db.h"
#include "leveldb/env.h"
#include "leveldb/status.h"

namespace leveldb {

static_assert(kMajorVersion == 1 && kMinorVersion == 23, "copies.cc accepts LevelDB 1.23, whose Env these headers must declare");

Env::Env() = default;
Env::~Env() = default;
Status Env::NewAppendableFile(const std::string& name, WritableFile**) {
  return Status::NotSupported("NewAppendableFile", name);
}
Status Env::RemoveFile(const std::string& name) { return Status::NotSupported("RemoveFile", name); }
Status Env::DeleteFile(const std::string& name) { return RemoveFile(name); }
Status Env::RemoveDir(const std::string& name) { return Status::NotSupported("RemoveDir", name); }
Status Env::DeleteDir(const std::string& name) { return RemoveDir(name); }

SequentialFile::~SequentialFile() = default;
RandomAccessFile::~RandomAccessFile() = default;
WritableFile::~WritableFile() = default;
Logger::~Logger() = default;
FileLock::~FileLock() = default;

// The layout of a Status that is not OK is in leveldb/status.h: length of the message, code, message.
constexpr size_t kStatusHeader = 5;

const char* Status::CopyState(const char* state) {
  uint32_t len;
  memcpy(&len, state, sizeof(len));
  char* copy = new char[kStatusHeader + len];
  memcpy(copy, state, kStatusHeader + len);
  return copy;
}

Status::Status(Code code, const Slice& message, const Slice& more) {
  std::string text = message.ToString();
  if (!more.empty()) {
    text += ": " + more.ToString();
  }
  const uint32_t len = static_cast<uint32_t>(text.size());
  char* state = new char[kStatusHeader + len];
  memcpy(state, &len, sizeof(len));
  state[sizeof(len)] = static_cast<char>(code);
  memcpy(state + kStatusHeader, text.data(), len);
  state_ = state;
}

}  // namespace leveldb
