#include "rooted_env.h"

#include <cstdio>

#include "env.h"
#include "files.h"
#include "status.h"

namespace furrow {

using leveldb::Env;
using leveldb::Status;

namespace {

// A lock of the host or of the drive, and the Env that releases it.
class PlacedLock final : public leveldb::FileLock {
 public:
  PlacedLock(Env* env, leveldb::FileLock* lock) : env_(env), lock_(lock) {}
  Status Unlock() { return env_->UnlockFile(lock_); }

 private:
  Env* env_;
  leveldb::FileLock* lock_;
};

}  // namespace

RootedEnv::Place RootedEnv::Find(const std::string& name) {
  Place place;
  if (settings_ == nullptr) {
    place.error = Status::InvalidArgument(name, error_);
    return place;
  }
  struct Found {
    bool on_drive = false;
    std::string path;
  } found;
  auto on_drive = [](void* context, const char* path, size_t len) noexcept {
    static_cast<Found*>(context)->on_drive = true;
    static_cast<Found*>(context)->path.assign(path, len);
  };
  place.error = ToStatus(furrow_leveldb_place(settings_, name.data(), name.size(), &found, on_drive));
  if (place.error.ok()) {
    place.env = found.on_drive ? Drive(&place.error) : host_;
    place.name = found.on_drive ? found.path : name;
  }
  return place;
}

std::string RootedEnv::Device() const {
  size_t len = 0;
  const char* device = furrow_leveldb_device(settings_, &len);
  return std::string(device, len);
}

Env* RootedEnv::Drive(Status* error) {
  if (Env* drive = drive_.load(std::memory_order_acquire)) {
    return drive;
  }
  std::lock_guard<std::mutex> lock(mounting_);
  if (Env* drive = drive_.load(std::memory_order_relaxed)) {
    return drive;
  }
  const std::string device = Device();
  FurrowFs* fs = nullptr;
  FurrowStatus status = furrow_mount(device.data(), device.size(), 0, &fs);
  if (status.code == FURROW_OK) {
    Env* drive = NewEnv(fs, host_, furrow_leveldb_flushes(settings_) != 0, furrow_leveldb_table_size(settings_));
    drive_.store(drive, std::memory_order_release);
    return drive;
  }
  const std::string message = TakeMessage(status);
  if (!said_) {
    // Some programs do not print LevelDB's status.
    said_ = true;
    fprintf(stderr, "furrow: %s\n", message.c_str());
  }
  *error = Status::IOError(message);
  return nullptr;
}

Status RootedEnv::RefuseDatabaseOfHost(const std::string& name, const Place& place) {
  const std::string directory = name.substr(0, name.rfind('/'));
  if (place.env == host_ || !host_->FileExists(directory + "/CURRENT")) {
    return Status::OK();
  }
  const std::string target = place.name.substr(0, place.name.rfind('/'));
  const std::string parent = target.substr(0, target.rfind('/') + 1);
  const std::string command = "furrow fs cp -d '" + Device() + "' -r '" + directory + "' 'fs:" + parent + "'";
  return Status::IOError(directory, "the host has a database in this directory, which FURROW_LEVELDB_ROOT would hide: move it to "
                                    "the drive with `" + command +
                                    "` and rename the host's directory, or choose another root");
}

Status RootedEnv::NewSequentialFile(const std::string& name, leveldb::SequentialFile** result) {
  *result = nullptr;
  const Place place = Find(name);
  return place.env == nullptr ? place.error : place.env->NewSequentialFile(place.name, result);
}

Status RootedEnv::NewRandomAccessFile(const std::string& name, leveldb::RandomAccessFile** result) {
  *result = nullptr;
  const Place place = Find(name);
  return place.env == nullptr ? place.error : place.env->NewRandomAccessFile(place.name, result);
}

Status RootedEnv::NewWritableFile(const std::string& name, leveldb::WritableFile** result) {
  *result = nullptr;
  const Place place = Find(name);
  return place.env == nullptr ? place.error : place.env->NewWritableFile(place.name, result);
}

Status RootedEnv::NewAppendableFile(const std::string& name, leveldb::WritableFile** result) {
  *result = nullptr;
  const Place place = Find(name);
  return place.env == nullptr ? place.error : place.env->NewAppendableFile(place.name, result);
}

bool RootedEnv::FileExists(const std::string& name) {
  const Place place = Find(name);
  return place.env != nullptr && place.env->FileExists(place.name);
}

Status RootedEnv::GetChildren(const std::string& dir, std::vector<std::string>* result) {
  result->clear();
  const Place place = Find(dir);
  return place.env == nullptr ? place.error : place.env->GetChildren(place.name, result);
}

Status RootedEnv::RemoveFile(const std::string& name) {
  const Place place = Find(name);
  return place.env == nullptr ? place.error : place.env->RemoveFile(place.name);
}

Status RootedEnv::DeleteFile(const std::string& name) { return RemoveFile(name); }

Status RootedEnv::CreateDir(const std::string& name) {
  const Place place = Find(name);
  return place.env == nullptr ? place.error : place.env->CreateDir(place.name);
}

Status RootedEnv::RemoveDir(const std::string& name) {
  const Place place = Find(name);
  return place.env == nullptr ? place.error : place.env->RemoveDir(place.name);
}

Status RootedEnv::DeleteDir(const std::string& name) { return RemoveDir(name); }

Status RootedEnv::GetFileSize(const std::string& name, uint64_t* size) {
  *size = 0;
  const Place place = Find(name);
  return place.env == nullptr ? place.error : place.env->GetFileSize(place.name, size);
}

Status RootedEnv::RenameFile(const std::string& from, const std::string& to) {
  const Place source = Find(from);
  const Place target = Find(to);
  if (source.env == nullptr || target.env == nullptr) {
    return source.env == nullptr ? source.error : target.error;
  }
  if (source.env != target.env) {
    return Status::IOError("renaming " + from + " to " + to, "one lies on the host and one on the drive: copy it");
  }
  if (IsCurrent(to)) {
    // RepairDB ends with this rename and takes no lock before, where a database of the host is refused otherwise.
    Status refused = RefuseDatabaseOfHost(to, target);
    if (!refused.ok()) {
      return refused;
    }
  }
  return source.env->RenameFile(source.name, target.name);
}

Status RootedEnv::LockFile(const std::string& name, leveldb::FileLock** lock) {
  *lock = nullptr;
  const Place place = Find(name);
  if (place.env == nullptr) {
    return place.error;
  }
  Status status = RefuseDatabaseOfHost(name, place);
  leveldb::FileLock* held = nullptr;
  if (status.ok()) {
    status = place.env->LockFile(place.name, &held);
  }
  if (status.ok()) {
    *lock = new PlacedLock(place.env, held);
  }
  return status;
}

Status RootedEnv::UnlockFile(leveldb::FileLock* lock) {
  PlacedLock* placed = static_cast<PlacedLock*>(lock);
  Status status = placed->Unlock();
  delete placed;
  return status;
}

void RootedEnv::Schedule(void (*function)(void*), void* arg) { host_->Schedule(function, arg); }

void RootedEnv::StartThread(void (*function)(void*), void* arg) { host_->StartThread(function, arg); }

Status RootedEnv::GetTestDirectory(std::string* path) {
  Status status = host_->GetTestDirectory(path);
  const Place place = status.ok() ? Find(*path) : Place();
  if (place.env != nullptr && place.env != host_) {
    place.env->CreateDir(place.name);  // it may exist
  }
  return status;
}

Status RootedEnv::NewLogger(const std::string& name, leveldb::Logger** result) {
  *result = nullptr;
  const Place place = Find(name);
  return place.env == nullptr ? place.error : place.env->NewLogger(place.name, result);
}

uint64_t RootedEnv::NowMicros() { return host_->NowMicros(); }

void RootedEnv::SleepForMicroseconds(int micros) { host_->SleepForMicroseconds(micros); }

}  // namespace furrow
