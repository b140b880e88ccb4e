#include "status.h"

namespace furrow {

using rocksdb::IOStatus;

IOStatus ToIOStatusSlow(const FurrowStatus& status, Missing missing) {
  std::string message(status.message == nullptr ? "" : status.message, status.message_len);
  furrow_message_free(status.message, status.message_len);
  IOStatus result;
  switch (status.code) {
    case FURROW_NOT_FOUND:
      result = missing == Missing::kProbe ? IOStatus::NotFound(message) : IOStatus::PathNotFound(message);
      break;
    case FURROW_NO_SPACE:
      result = IOStatus::NoSpace(message);
      break;
    case FURROW_INVALID:
      result = IOStatus::InvalidArgument(message);
      break;
    case FURROW_BUSY:
    default:
      result = IOStatus::IOError(message);
      break;
  }
  // An error is never retryable: a writer that failed once fails until it is reopened, and RocksDB's own recovery
  // would retry for ever instead of reporting the error.
  result.SetRetryable(false);
  result.SetDataLoss(status.data_loss != 0);
  return result;
}

}  // namespace furrow
