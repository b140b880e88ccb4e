// A wrapper around a program's listener that hides the events of the hidden column family.
#pragma once

#include <memory>

#include "rocksdb/listener.h"

namespace furrow {

// Wraps `listener`. Deletions of table files name no family, and are passed on. Returns `listener` itself if the
// RocksDB version may have events that this wrapper does not know.
std::shared_ptr<rocksdb::EventListener> VisibleListener(std::shared_ptr<rocksdb::EventListener> listener);

}  // namespace furrow
