#include "visible_listener.h"

#include <utility>

#include "rocksdb/db.h"
#include "rocksdb/version.h"
#include "second_handle.h"
#include "unlogged.h"

namespace furrow {

using rocksdb::Status;

namespace {

bool Hidden(const std::string& family) { return family == kMarksFamily; }

class Visible : public rocksdb::EventListener {
 public:
  explicit Visible(std::shared_ptr<rocksdb::EventListener> inner) : inner_(std::move(inner)) {}
  const char* Name() const override { return inner_->Name(); }
  const rocksdb::Customizable* Inner() const override { return inner_.get(); }

  void OnFlushCompleted(rocksdb::DB* db, const rocksdb::FlushJobInfo& info) override {
    if (!Hidden(info.cf_name)) {
      inner_->OnFlushCompleted(db, info);
    }
  }
  void OnFlushBegin(rocksdb::DB* db, const rocksdb::FlushJobInfo& info) override {
    if (!Hidden(info.cf_name)) {
      inner_->OnFlushBegin(db, info);
    }
  }
  void OnTableFileDeleted(const rocksdb::TableFileDeletionInfo& info) override { inner_->OnTableFileDeleted(info); }
  void OnCompactionBegin(rocksdb::DB* db, const rocksdb::CompactionJobInfo& info) override {
    if (!Hidden(info.cf_name)) {
      inner_->OnCompactionBegin(db, info);
    }
  }
  void OnCompactionCompleted(rocksdb::DB* db, const rocksdb::CompactionJobInfo& info) override {
    if (!Hidden(info.cf_name)) {
      inner_->OnCompactionCompleted(db, info);
    }
  }
  void OnSubcompactionBegin(const rocksdb::SubcompactionJobInfo& info) override {
    if (!Hidden(info.cf_name)) {
      inner_->OnSubcompactionBegin(info);
    }
  }
  void OnSubcompactionCompleted(const rocksdb::SubcompactionJobInfo& info) override {
    if (!Hidden(info.cf_name)) {
      inner_->OnSubcompactionCompleted(info);
    }
  }
  void OnTableFileCreated(const rocksdb::TableFileCreationInfo& info) override {
    if (!Hidden(info.cf_name)) {
      inner_->OnTableFileCreated(info);
    }
  }
  void OnTableFileCreationStarted(const rocksdb::TableFileCreationBriefInfo& info) override {
    if (!Hidden(info.cf_name)) {
      inner_->OnTableFileCreationStarted(info);
    }
  }
  void OnMemTableSealed(const rocksdb::MemTableInfo& info) override {
    if (!Hidden(info.cf_name)) {
      inner_->OnMemTableSealed(info);
    }
  }
  void OnColumnFamilyHandleDeletionStarted(rocksdb::ColumnFamilyHandle* handle) override {
    if (!DestroysOwnHandle()) {
      inner_->OnColumnFamilyHandleDeletionStarted(handle);
    }
  }
  void OnExternalFileIngested(rocksdb::DB* db, const rocksdb::ExternalFileIngestionInfo& info) override {
    inner_->OnExternalFileIngested(db, info);
  }
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, Status* status) override {
    inner_->OnBackgroundError(reason, status);
  }
  void OnStallConditionsChanged(const rocksdb::WriteStallInfo& info) override {
    if (!Hidden(info.cf_name)) {
      inner_->OnStallConditionsChanged(info);
    }
  }
  void OnFileReadFinish(const rocksdb::FileOperationInfo& info) override { inner_->OnFileReadFinish(info); }
  void OnFileWriteFinish(const rocksdb::FileOperationInfo& info) override { inner_->OnFileWriteFinish(info); }
  void OnFileFlushFinish(const rocksdb::FileOperationInfo& info) override { inner_->OnFileFlushFinish(info); }
  void OnFileSyncFinish(const rocksdb::FileOperationInfo& info) override { inner_->OnFileSyncFinish(info); }
  void OnFileRangeSyncFinish(const rocksdb::FileOperationInfo& info) override { inner_->OnFileRangeSyncFinish(info); }
  void OnFileTruncateFinish(const rocksdb::FileOperationInfo& info) override { inner_->OnFileTruncateFinish(info); }
  void OnFileCloseFinish(const rocksdb::FileOperationInfo& info) override { inner_->OnFileCloseFinish(info); }
  bool ShouldBeNotifiedOnFileIO() override { return inner_->ShouldBeNotifiedOnFileIO(); }
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason reason, Status error, bool* automatic) override {
    inner_->OnErrorRecoveryBegin(reason, std::move(error), automatic);
  }
  void OnErrorRecoveryCompleted(Status error) override { inner_->OnErrorRecoveryCompleted(std::move(error)); }
  void OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo& info) override { inner_->OnErrorRecoveryEnd(info); }
  void OnBlobFileCreationStarted(const rocksdb::BlobFileCreationBriefInfo& info) override {
    inner_->OnBlobFileCreationStarted(info);
  }
  void OnBlobFileCreated(const rocksdb::BlobFileCreationInfo& info) override { inner_->OnBlobFileCreated(info); }
  void OnBlobFileDeleted(const rocksdb::BlobFileDeletionInfo& info) override { inner_->OnBlobFileDeleted(info); }
  void OnIOError(const rocksdb::IOErrorInfo& info) override { inner_->OnIOError(info); }

 private:
  std::shared_ptr<rocksdb::EventListener> inner_;
};

}  // namespace

std::shared_ptr<rocksdb::EventListener> VisibleListener(std::shared_ptr<rocksdb::EventListener> listener) {
#if ROCKSDB_MAJOR < 8
  if (listener != nullptr) {
    return std::make_shared<Visible>(std::move(listener));
  }
#endif
  return listener;
}

}  // namespace furrow
