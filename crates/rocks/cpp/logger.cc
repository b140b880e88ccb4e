#include "logger.h"

#include <sys/time.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <ctime>
#include <functional>
#include <thread>
#include <vector>

namespace furrow {

using rocksdb::Status;

namespace {

// A Flush makes the LOG's lines durable if the last Flush that made lines durable is at least this long ago, or if
// the database was opened less than this time ago. Any other Flush makes nothing durable: the file system keeps a
// partly filled block in memory until a sync.
constexpr uint64_t kSyncEveryMicros = 5 * 1000 * 1000;
// The most bytes of LOG lines that are buffered without a Flush. The thread that logs the next line writes the buffer
// out.
constexpr size_t kMuch = 64 * 1024;
constexpr size_t kLineOnStack = 1024;
constexpr size_t kLongestLine = 64 * 1024;

class ZonedSink : public LogSink {
 public:
  explicit ZonedSink(FurrowWriter* writer) : writer_(writer) {}
  ~ZonedSink() override {
    Forget(furrow_close(writer_));
    furrow_writer_free(writer_);
  }
  bool Write(const char* data, size_t len) override { return Forget(furrow_append(writer_, data, len)); }
  void Flush() override { Forget(furrow_flush(writer_)); }
  void Sync() override { Forget(furrow_sync_file(writer_)); }

 private:
  static bool Forget(FurrowStatus status) {
    if (status.code == FURROW_OK) {
      return true;
    }
    furrow_message_free(status.message, status.message_len);
    return false;
  }
  FurrowWriter* writer_;
};

class HostSink : public LogSink {
 public:
  explicit HostSink(FILE* file) : file_(file) {}
  ~HostSink() override { fclose(file_); }
  bool Write(const char* data, size_t len) override { return fwrite(data, 1, len, file_) == len; }
  void Flush() override { fflush(file_); }
  // LOG lines in the host's page cache survive a crash of this process. The LOG need not survive a crash of the host.
  void Sync() override { fflush(file_); }

 private:
  FILE* file_;
};

size_t Stamp(char* into, size_t size, const timeval& now) {
  tm parts;
  localtime_r(&now.tv_sec, &parts);
  const auto thread = static_cast<unsigned long long>(std::hash<std::thread::id>()(std::this_thread::get_id()));
  int n = snprintf(into, size, "%04d/%02d/%02d-%02d:%02d:%02d.%06d %llx ", parts.tm_year + 1900, parts.tm_mon + 1,
                   parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, static_cast<int>(now.tv_usec), thread);
  return n < 0 ? 0 : static_cast<size_t>(n);
}

// True if a line of the LOG is an error. RocksDB puts the level in front of the format; a logger that rolls does not
// pass on the level itself.
bool IsError(const char* format) {
  return strncmp(format, "[ERROR]", 7) == 0 || strncmp(format, "[FATAL]", 7) == 0;
}

bool IsWarning(const char* format) { return strncmp(format, "[WARN]", 6) == 0; }

// The logger whose latest line on this thread was a warning, if any.
thread_local const FurrowLogger* warned = nullptr;

uint64_t NowMicros() {
  timeval now;
  gettimeofday(&now, nullptr);
  return static_cast<uint64_t>(now.tv_sec) * 1000000 + static_cast<uint64_t>(now.tv_usec);
}

}  // namespace

FurrowLogger::~FurrowLogger() {
  if (!closed_) {
    closed_ = true;
    CloseImpl().PermitUncheckedError();
  }
}

void FurrowLogger::Logv(const char* format, va_list ap) {
  timeval now;
  gettimeofday(&now, nullptr);
  char stack[kLineOnStack];
  const size_t head = Stamp(stack, sizeof(stack), now);
  va_list again;
  va_copy(again, ap);
  const int body = vsnprintf(stack + head, sizeof(stack) - head, format, ap);
  if (body >= 0) {
    size_t len = head + static_cast<size_t>(body);
    if (len + 1 < sizeof(stack)) {
      if (len == 0 || stack[len - 1] != '\n') {
        stack[len++] = '\n';
      }
      Write(stack, len);
    } else {
      len = std::min(len, kLongestLine);
      std::vector<char> line(len + 2);
      memcpy(line.data(), stack, head);
      vsnprintf(line.data() + head, len + 1 - head, format, again);
      if (line[len - 1] != '\n') {
        line[len++] = '\n';
      }
      Write(line.data(), len);
    }
  }
  va_end(again);
  warned = IsWarning(format) ? this : nullptr;
  if (IsError(format)) {
    SyncNow();
  }
}

void FurrowLogger::SyncNow() {
  std::lock_guard<std::mutex> io(io_);
  Drain();
  if (sink_ != nullptr) {
    synced_us_ = NowMicros();
    sink_->Sync();
  }
}

void FurrowLogger::Drain() {
  std::string lines;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    lines.swap(lines_);
  }
  if (sink_ == nullptr || lines.empty()) {
    return;
  }
  if (opened_us_ == 0) {
    opened_us_ = NowMicros();
  }
  if (!sink_->Write(lines.data(), lines.size()) && !failed_) {
    failed_ = true;
    fprintf(stderr, "furrow: RocksDB's LOG cannot be written any more; its lines are dropped\n");
  }
}

void FurrowLogger::Write(const char* line, size_t len) {
  bool much = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    lines_.append(line, len);
    size_ += len;
    much = lines_.size() >= kMuch;
  }
  if (much) {
    std::lock_guard<std::mutex> io(io_);
    Drain();
  }
}

void FurrowLogger::Flush() {
  if (warned == this) {
    // RocksDB flushes the LOG after each warning. A writer whose new memtable slows down writers does so while all
    // other writers wait, so this Flush is skipped.
    warned = nullptr;
    return;
  }
  std::lock_guard<std::mutex> io(io_);
  Drain();
  if (sink_ == nullptr) {
    return;
  }
  const uint64_t micros = NowMicros();
  // A database that is being opened logs its options, hundreds of lines within a moment, and then calls Flush.
  const bool opening = micros - opened_us_ < kSyncEveryMicros;
  if (opening || micros - synced_us_ >= kSyncEveryMicros) {
    synced_us_ = micros;
    sink_->Sync();
  } else {
    sink_->Flush();
  }
}

size_t FurrowLogger::GetLogFileSize() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return size_;
}

Status FurrowLogger::CloseImpl() {
  std::lock_guard<std::mutex> io(io_);
  Drain();
  sink_.reset();
  return Status::OK();
}

std::unique_ptr<LogSink> NewZonedSink(FurrowWriter* writer) { return std::make_unique<ZonedSink>(writer); }

std::unique_ptr<LogSink> NewHostSink(const std::string& dir, const std::string& fname, std::string* message) {
  std::string name;
  for (char c : fname) {
    if (c != '/') {
      name.push_back(c);
    } else if (!name.empty() && name.back() != '_') {
      name.push_back('_');
    }
  }
  const std::string path = dir + "/" + name;
  const std::string old = path + ".old";
  rename(path.c_str(), old.c_str());  // where there is none, there is nothing to keep
  FILE* file = fopen(path.c_str(), "we");
  if (file == nullptr) {
    *message = "creating RocksDB's LOG as " + path + " (FURROW_LOG_DIR): " + strerror(errno) +
               "; name an existing directory that may be written";
    return nullptr;
  }
  return std::make_unique<HostSink>(file);
}

}  // namespace furrow
