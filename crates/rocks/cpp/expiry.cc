#include "expiry.h"

namespace furrow {

namespace {

constexpr size_t kHeader = 8;

class ExpiryFilter : public rocksdb::CompactionFilter {
 public:
  explicit ExpiryFilter(uint64_t now_ms) : now_ms_(now_ms) {}
  const char* Name() const override { return "furrow.ExpiryFilter"; }

  bool Filter(int, const rocksdb::Slice&, const rocksdb::Slice& value, std::string*, bool*) const override {
    if (value.size() < kHeader) {
      return false;
    }
    uint64_t expiry = 0;
    for (size_t i = 0; i < kHeader; ++i) {
      expiry |= static_cast<uint64_t>(static_cast<unsigned char>(value[i])) << (8 * i);
    }
    return expiry != 0 && expiry <= now_ms_;
  }

 private:
  uint64_t now_ms_;
};

}  // namespace

std::unique_ptr<rocksdb::CompactionFilter> ExpiryFilterFactory::CreateCompactionFilter(
    const rocksdb::CompactionFilter::Context&) {
  return std::make_unique<ExpiryFilter>(furrow_unix_ms(fs_));
}

}  // namespace furrow
