// Drops entries that have expired, when a compaction passes over them.
#pragma once

#include <memory>

#include "furrow_abi.h"
#include "rocksdb/compaction_filter.h"

namespace furrow {

// Values begin with their expiry: milliseconds since 1970, little-endian, 8 bytes; 0 is never. A shorter value is
// kept. The time is taken once per compaction: an entry is dropped late, never early.
class ExpiryFilterFactory : public rocksdb::CompactionFilterFactory {
 public:
  // `fs` must outlive the database.
  explicit ExpiryFilterFactory(const FurrowFs* fs) : fs_(fs) {}
  const char* Name() const override { return "furrow.ExpiryFilterFactory"; }
  std::unique_ptr<rocksdb::CompactionFilter> CreateCompactionFilter(
      const rocksdb::CompactionFilter::Context& context) override;

 private:
  const FurrowFs* fs_;
};

}  // namespace furrow
