// The Env that unmodified programs get: names below a directory lie on a drive, all others on the host.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "leveldb/env.h"
#include "leveldb_abi.h"

namespace furrow {

class RootedEnv final : public leveldb::Env {
 public:
  // `host` is the Env of other names, threads and clock. `settings` says which names lie on which drive.
  RootedEnv(leveldb::Env* host, const FurrowLevelDb* settings) : host_(host), settings_(settings) {}
  // An Env that refuses every name with `error`, because the settings are wrong.
  RootedEnv(leveldb::Env* host, const std::string& error) : host_(host), settings_(nullptr), error_(error) {}

  leveldb::Status NewSequentialFile(const std::string& name, leveldb::SequentialFile** result) override;
  leveldb::Status NewRandomAccessFile(const std::string& name, leveldb::RandomAccessFile** result) override;
  leveldb::Status NewWritableFile(const std::string& name, leveldb::WritableFile** result) override;
  leveldb::Status NewAppendableFile(const std::string& name, leveldb::WritableFile** result) override;
  bool FileExists(const std::string& name) override;
  leveldb::Status GetChildren(const std::string& dir, std::vector<std::string>* result) override;
  leveldb::Status RemoveFile(const std::string& name) override;
  leveldb::Status DeleteFile(const std::string& name) override;
  leveldb::Status CreateDir(const std::string& name) override;
  leveldb::Status RemoveDir(const std::string& name) override;
  leveldb::Status DeleteDir(const std::string& name) override;
  leveldb::Status GetFileSize(const std::string& name, uint64_t* size) override;
  leveldb::Status RenameFile(const std::string& from, const std::string& to) override;
  leveldb::Status LockFile(const std::string& name, leveldb::FileLock** lock) override;
  leveldb::Status UnlockFile(leveldb::FileLock* lock) override;
  void Schedule(void (*function)(void*), void* arg) override;
  void StartThread(void (*function)(void*), void* arg) override;
  leveldb::Status GetTestDirectory(std::string* path) override;
  leveldb::Status NewLogger(const std::string& name, leveldb::Logger** result) override;
  uint64_t NowMicros() override;
  void SleepForMicroseconds(int micros) override;

 private:
  // Where a name lies: in `env`, which is the host's or the drive's, as `name`. `env` is null if there is an error.
  struct Place {
    leveldb::Env* env = nullptr;
    std::string name;
    leveldb::Status error;
  };

  Place Find(const std::string& name);
  // The drive's URL.
  std::string Device() const;
  // The drive's Env. Mounts the drive at the first call, and after a mount that failed.
  leveldb::Env* Drive(leveldb::Status* error);
  // Fails if `place`, of the file `name`, is on the drive, and the host has a database in the file's directory, which the drive would
  // hide.
  leveldb::Status RefuseDatabaseOfHost(const std::string& name, const Place& place);

  leveldb::Env* host_;
  const FurrowLevelDb* settings_;
  std::string error_;
  std::atomic<leveldb::Env*> drive_{nullptr};  // unmounted at the end of the process
  std::mutex mounting_;
  bool said_ = false;  // a failed mount was printed
};

}  // namespace furrow
