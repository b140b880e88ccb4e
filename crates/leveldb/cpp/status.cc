#include "status.h"

namespace furrow {

using leveldb::Status;

std::string TakeMessage(const FurrowStatus& status) {
  std::string message(status.message == nullptr ? "" : status.message, status.message_len);
  furrow_message_free(status.message, status.message_len);
  return message;
}

Status ToStatusSlow(const FurrowStatus& status) {
  const std::string message = TakeMessage(status);
  switch (status.code) {
    case FURROW_NOT_FOUND:
      return Status::NotFound(message);
    case FURROW_INVALID:
      return Status::InvalidArgument(message);
    default:
      return Status::IOError(message);
  }
}

}  // namespace furrow
