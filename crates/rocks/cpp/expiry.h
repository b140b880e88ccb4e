// A compaction filter that drops expired entries.
#pragma once

#include <memory>

#include "furrow_abi.h"
#include "rocksdb/compaction_filter.h"

namespace furrow {

// The filter expects that values begin with their expiry time: milliseconds since 1970, little-endian, 8 bytes; 0 is
// never. A value shorter than 8 bytes is kept. The clock is read once per compaction, so an entry may be dropped late
// but never early.
class ExpiryFilterFactory : public rocksdb::CompactionFilterFactory {
 public:
  // Makes a factory of the filter. The file system `fs`, whose clock the filter reads, must outlive the database.
  explicit ExpiryFilterFactory(const FurrowFs* fs) : fs_(fs) {}
  const char* Name() const override { return "furrow.ExpiryFilterFactory"; }
  std::unique_ptr<rocksdb::CompactionFilter> CreateCompactionFilter(
      const rocksdb::CompactionFilter::Context& context) override;

 private:
  const FurrowFs* fs_;
};

}  // namespace furrow
